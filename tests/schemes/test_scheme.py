"""A Scheme is its step and its facts.

A factory derives the facts of the schemes that it makes. Schemes are compared by value.
"""

import copy
import dataclasses
import inspect
import itertools
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT

import jaxquat as jq
from jaxquat.schemes import tableaus, weights

BODY = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
TOP = jq.Body.from_principal(jnp.array([0.6, 0.6, 1.0]))
START = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), jnp.array([0.3, -0.2, 0.5]))
DRAG = jnp.array([0.1, 0.2, 0.3])


def stepped(scheme, body=BODY):
    return scheme(body, jq.torques.zero, 0.0, START, 0.1, None)


def test_every_scheme_is_its_step_and_says_what_it_is():
    for name, scheme in jq.schemes.SCHEMES.items():
        assert getattr(jq.schemes, name) is scheme
        assert scheme.name == name
        assert scheme.source
        assert scheme.source in repr(scheme)
        assert scheme.torques in ("any", "attitude")
        assert len(repr(scheme).splitlines()) == 1
        assert inspect.getdoc(scheme) != inspect.getdoc(jq.schemes.Scheme)


def test_what_a_new_scheme_lacks_is_said():
    """The messages name what a new scheme lacks.

    It needs a public name, and rows in three tables of docs/schemes.md.
    """
    rows = [
        f"| `{s.name}` | {s.order} | {s.evaluations} | {s.source} |"
        for s in jq.schemes.SCHEMES.values()
    ]
    assert set(jq.schemes.SCHEMES) <= set(jq.schemes.__all__), "names to add to jaxquat/schemes"
    page = (ROOT / "docs" / "schemes.md").read_text()
    assert [row for row in rows if row not in page] == [], "rows to add to docs/schemes.md"
    for title in ("Accuracy", "Conservation"):
        table = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        missing = set(jq.schemes.SCHEMES) - set(re.findall(r"^\| `?(\w+)`? \|", table, re.M))
        assert not missing, f"run benchmarks/certificates.py --write for {title} in docs/schemes.md"


def test_a_factory_makes_the_same_scheme_again_and_jit_does_not_trace_it_twice():
    """Equal numbers in one program are equal results, so nothing needs to run."""
    traces = []

    @jax.jit
    def run(scheme):
        traces.append(scheme.name)
        return stepped(scheme).omega

    for make in (
        lambda: jq.schemes.rkmk(tableaus.RK4),
        lambda: jq.schemes.compose(jq.no_squish, weights.SUZUKI4),
        lambda: jq.schemes.damp(jq.zhao, DRAG),
        lambda: jq.schemes.compose(
            jq.schemes.damp(jq.schemes.rkmk(tableaus.HEUN), DRAG), (0.5, 0.5)
        ),
    ):
        traces.clear()
        first, second = make(), make()
        run.trace(first), run.trace(second)
        assert len(traces) == 1, first
        jax.tree.map(np.testing.assert_array_equal, first, second)
        assert hash(first) == hash(second)
    assert jq.schemes.rkmk(tableaus.RK4) == jq.schemes.rkmk(tableaus.RK4)
    assert jq.schemes.rkmk(tableaus.HEUN) != jq.schemes.rkmk(tableaus.MIDPOINT)
    assert jq.schemes.compose(jq.zhao, (0.5, 0.5)) == jq.schemes.compose(jq.zhao, (0.5, 0.5))
    assert jq.schemes.compose(jq.zhao, (0.5, 0.5)) != jq.schemes.compose(jq.zhao, (0.25, 0.75))


@pytest.mark.parametrize("name", [*jq.schemes.SCHEMES, "composed", "damped"])
def test_a_scheme_is_copied_and_pickled(name):
    made = {
        "composed": jq.schemes.compose(jq.no_squish, weights.KAHAN_LI6),
        "damped": jq.schemes.damp(jq.no_squish, DRAG),
    }
    scheme = made.get(name) or jq.schemes.SCHEMES[name]
    copied = jax.tree.map(lambda x: x, scheme)
    pickled = [pickle.loads(pickle.dumps(x)) for x in (scheme, copied)]
    for again in (copy.deepcopy(scheme), *pickled):
        assert jax.tree.structure(again) == jax.tree.structure(scheme)
        jax.tree.map(np.testing.assert_array_equal, again, scheme)


def test_a_scheme_with_another_fact_keeps_it_when_it_is_pickled():
    changed = dataclasses.replace(jq.zhao, order=7)
    again = pickle.loads(pickle.dumps(changed))
    assert again == changed
    assert again.order == 7


def test_schemes_have_hashes_of_their_own():
    assert len({hash(scheme) for scheme in jq.schemes.SCHEMES.values()}) == len(jq.schemes.SCHEMES)


def test_weights_sum_to_one_up_to_rounding():
    """A sum that is off by more would make a scheme that does not converge."""
    with pytest.raises(ValueError, match="weights: wanted numbers that sum to 1"):
        jq.schemes.compose(jq.no_squish, (0.5, 0.5 + 2e-11))


@pytest.mark.slow
def test_a_damping_is_a_leaf_that_gradients_and_vmap_reach():
    """The derivative of omega by damping agrees with a difference.

    It is the derivative of a step by the Scheme itself.
    """

    def rate(damping):
        return stepped(jq.schemes.damp(jq.schemes.pcdm1, damping)).omega[0]

    def of_scheme(scheme):
        return stepped(scheme).omega[0]

    h = 1e-6
    drag = np.asarray(DRAG)
    places = drag + np.array([[0.0] * 3, [h, 0.0, 0.0], [-h, 0.0, 0.0], drag])

    @jax.jit
    def slopes(damping):
        return jax.grad(of_scheme)(jq.schemes.damp(jq.schemes.pcdm1, damping)), jax.grad(rate)(
            damping
        )

    @jax.jit
    def values(places):
        many = jax.vmap(lambda d: jq.schemes.damp(jq.schemes.pcdm1, d))(places)
        return jax.vmap(of_scheme)(many), jax.vmap(rate)(places)

    leaves, by_damping = slopes(DRAG)
    (leaf,) = jax.tree.leaves(leaves)
    np.testing.assert_allclose(jnp.diagonal(leaf), by_damping, rtol=1e-12)
    of_many, rates = values(places)
    np.testing.assert_allclose(leaf[0, 0], (rates[1] - rates[2]) / (2 * h), rtol=1e-7)
    np.testing.assert_allclose(of_many, rates, rtol=1e-14)


def orders(scheme, all_weights):
    return [jq.schemes.compose(scheme, each).order for each in all_weights]


def test_the_order_of_a_composition_follows_from_its_weights():
    """The weights of Yoshida's triple jumps, of Suzuki and of Kahan and Li raise the order.

    The triple jumps start from orders 2 and 4. Halves gain nothing. A step of order 2 whose errors
    have even powers, too, gets no higher than order 3: order 4 needs weights whose fourth powers
    sum to zero, and only complex weights do that.
    """
    jump = lambda p: (1 / (2 - 2 ** (1 / (p + 1))),)
    triple = lambda p: (*jump(p), 1 - 2 * jump(p)[0], *jump(p))
    named = [weights.SUZUKI4, weights.TRIPLE_JUMP4, weights.KAHAN_LI6, (0.5, 0.5), (1.0,)]
    assert orders(jq.no_squish, named) == [4, 4, 6, 2, 2]
    assert orders(jq.schemes.simo_wong, named) == [4, 4, 6, 2, 2]
    assert orders(jq.zhao, named) == [3, 3, 3, 2, 2]
    assert weights.composed_order(4, True, triple(4)) == 6
    assert weights.composed_order(6, True, triple(6)) == 8
    twice = jq.schemes.compose(jq.schemes.compose(jq.no_squish, triple(2)), triple(4))
    assert (twice.order, twice.evaluations, twice.reversible) == (6, 18, True)
    assert jq.schemes.compose(jq.schemes.full_quat, (0.5, 0.5)).order == 0
    assert weights.composed_order(None, False, (0.5, 0.5)) is None


def test_a_palindrome_of_wrong_weights_has_no_higher_order():
    for a, b in itertools.pairwise((0.2, 0.3, 0.4, 0.9)):
        assert weights.composed_order(2, True, (a, b, 1 - 2 * (a + b), b, a)) == 2


def test_a_stage_whose_row_is_zero_stands_at_the_start():
    """Two such stages with half the weight each are Euler's method."""
    twice = tableaus.tableau(a=((0,),), b=(0.5, 0.5), c=(0,), order=1)
    step = 0.0, START, 0.1, None
    run = lambda table: jq.schemes.rkmk(table)(BODY, jq.torques.drag(jnp.ones(3)), *step)
    got, wanted = jax.jit(lambda: (run(twice), run(tableaus.EULER)))()
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-15), got, wanted)


def test_facts_of_what_is_made_of_schemes():
    lopsided = (0.25, 0.75)
    assert jq.schemes.compose(jq.no_squish, weights.SUZUKI4).reversible
    assert not jq.schemes.compose(jq.no_squish, lopsided).reversible
    assert not jq.schemes.compose(jq.rkmk4, (0.5, 0.5)).reversible
    made = jq.schemes.compose(jq.schemes.simo_wong, lopsided)
    assert (made.torques, made.conserves, made.aux) == (
        "attitude",
        jq.schemes.simo_wong.conserves,
        False,
    )
    drag = jq.schemes.damp(jq.schemes.symmetric_top_suzuki4, DRAG)
    assert (drag.order, drag.conserves, drag.reversible) == (2, ("norm",), True)
    assert jq.schemes.damp(jq.schemes.half_quat, DRAG).conserves == ()
    lifted = jq.schemes.rkmk(tableaus.DORMAND_PRINCE5)
    assert (lifted.order, lifted.evaluations, lifted.torques) == (5, 6, "any")


def test_the_demand_of_a_scheme_goes_with_it():
    jax.eval_shape(lambda: stepped(jq.schemes.symmetric_top_bm4, TOP))
    for scheme in (
        jq.schemes.symmetric_top_bm4,
        jq.schemes.compose(jq.schemes.symmetric_top_bm4, (0.5, 0.5)),
        jq.schemes.damp(jq.schemes.symmetric_top_bm4, DRAG),
    ):
        scheme.check(TOP)
        for call in (
            lambda scheme=scheme: stepped(scheme),
            lambda scheme=scheme: scheme.check(BODY),
            lambda scheme=scheme: jq.rollout(
                scheme,
                BODY,
                jq.torques.zero,
                START,
                jq.grid(0.0, 0.1, 2),
                options=jq.RolloutOptions(checkpoint="reversible"),
            ),
        ):
            with pytest.raises(ValueError, match=r"body: .*wanted two equal principal moments"):
                call()


def test_of_a_plain_function_nothing_is_known_and_it_is_admitted():
    def own(body, torque, t, state, dt, params):
        return jq.lie_euler(body, torque, t, state, dt, params)

    grid = jq.grid(0.0, 0.1, 4)
    ours, theirs = (
        jax.jit(lambda x=x: jq.rollout(x, BODY, jq.torques.zero, START, grid).final.q)()
        for x in (own, jq.lie_euler)
    )
    np.testing.assert_array_equal(ours, theirs)
    made = jq.schemes.compose(own, (0.5, 0.5))
    assert (made.order, made.evaluations, made.reversible) == (None, None, False)
    with pytest.raises(ValueError, match=r'"reversible" wanted a time-reversible .*, got own'):
        jq.rollout(
            own,
            BODY,
            jq.torques.zero,
            START,
            grid,
            options=jq.RolloutOptions(checkpoint="reversible"),
        )
