"""A run with ``until`` ends at the first chunk that suffices, and is otherwise a run of fixed n."""

import math
from functools import partial

import chex
import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat import ensembles
from jaxquat.ensembles import standard_error

KEY = jax.random.key(7)
BODY = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
REDUCE = (ensembles.mean(), ensembles.quantiles([0.1, 0.9]))


def normal(key):
    return jax.random.normal(key, (), jnp.float64)


def run(simulate=lambda x: x, n=4000, draw=normal, **options):
    options = {"progress": False, "chunk": 16} | options
    return ensembles.run(KEY, draw, simulate, n, **options)


def unmet(**options):
    """A run that ends with all members, which is said."""
    with pytest.warns(RuntimeWarning, match="^until: not met by all "):
        found = run(**options)
    assert found.met is False
    return found


def test_normal_numbers_need_the_square_of_deviation_over_error():
    """It is (1/0.02)^2 = 2500; n numbers give a variance to sqrt(2/n), so n to sqrt(2 n).

    NumPy finds the same chunk: the first at which std/sqrt(n) is below.
    """
    found = run(until=standard_error(None, 0.02), chunk=32)
    draws = np.asarray(ensembles.members(KEY, normal, 4000))
    errors = [np.std(draws[:n], ddof=1) / math.sqrt(n) for n in range(32, 4001, 32)]
    first = next(k for k, error in enumerate(errors) if error < 0.02)
    assert found.met is True
    assert found.n == found.statistic.n == 32 * (first + 1)
    assert abs(found.n - 2500) < 5 * math.sqrt(2 * 2500) + 32
    np.testing.assert_allclose(found.statistic.standard_error, errors[first], rtol=1e-12)
    np.testing.assert_allclose(found.statistic.mean, draws[: found.n].mean(), rtol=1e-11)


@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize("engine", ["scan", "fused"])
def test_the_bits_are_those_of_a_run_of_as_many_members(engine):
    """One member in six fails."""

    def draw(key):
        return jax.random.normal(key, (3,), jnp.float64)

    def simulate(omega):
        torque = lambda t, state, params: -state.omega
        grid, options = jq.grid(0.0, 0.05, 10), {"save_every": 10, "engine": engine}
        start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), omega)
        end = flat.rollout(jq.lie_euler, BODY, torque, start, grid, **options).final.omega
        return {"end": jnp.where(omega[0] > 1, jnp.nan, end), "up": end[0] > 0}

    rule = standard_error(lambda out: out["end"], 0.03)
    stopped = run(simulate, 5000, draw, until=rule, reduce=REDUCE)
    fixed = run(simulate, stopped.n, draw, reduce=REDUCE)
    assert 200 < stopped.n < 1000
    assert (fixed.statistic, fixed.met) == (None, None)
    assert stopped.statistic.n == stopped.n - len(stopped.failed_index) < 0.9 * stopped.n
    assert stopped.n == fixed.n
    same = [(found.result, found.failed_index) for found in (stopped, fixed)]
    chex.assert_trees_all_equal(*same)


def test_the_last_member_ends_a_run_that_is_not_precise_enough():
    """Of 50 normal numbers the error is 0.14 or so."""
    with pytest.warns(RuntimeWarning) as caught:
        found = run(n=50, until=standard_error(None, 0.01), reduce=REDUCE)
    error = found.statistic.standard_error
    text = f"{found.statistic.mean:.4g} +- {error:.4g}"
    assert str(caught[0].message) == f"until: not met by all 50 members (statistic {text})"
    assert 0.1 < error < 0.2
    assert (found.n, found.met) == (50, False)
    chex.assert_trees_all_equal(found.result, run(n=50, reduce=REDUCE).result)
    assert repr(found).splitlines()[0] == "Ensemble: 50 members, 0 failed, until not met"
    assert repr(found).splitlines()[-1].split() == ["statistic", *text.split()]


def test_the_last_chunk_may_meet_the_rule():
    found = run(n=70, until=standard_error(None, 1.0, minimum=70))
    assert (found.n, found.met, found.result) == (70, True, None)
    assert repr(found).startswith("Ensemble: 70 members, 0 failed, until met\n")


def test_an_event_that_never_occurs_ends_with_an_error_of_1_4_over_n():
    """0 of n: p = 2/(n + 4), so sqrt(p (1 - p)/(n + 4)) < 1e-3 from n = 1410 on, not at 1400.

    Three in n, the bound of 95 % for an event not seen, is then 2.1 standard errors.
    """
    found = run(lambda x: x > 9, until=standard_error(None, 1e-3), chunk=10)
    assert (found.n, found.met) == (1410, True)
    assert (found.statistic.mean, found.statistic.std) == (0.0, 0.0)
    p = 2 / 1414
    error = found.statistic.standard_error
    np.testing.assert_allclose(error, math.sqrt(p * (1 - p) / 1414), rtol=1e-14)
    assert 2.1 < 3 / 1410 / error < 2.15


def test_a_proportion_has_the_error_of_agresti_and_coull():
    found = run(lambda x: x < 1, until=standard_error(None, 0.02))
    low = np.count_nonzero(np.asarray(ensembles.members(KEY, normal, found.n)) < 1)
    p = (low + 2) / (found.n + 4)
    assert found.statistic.mean == pytest.approx(low / found.n, rel=1e-14)
    error = math.sqrt(p * (1 - p) / (found.n + 4))
    assert found.statistic.standard_error == pytest.approx(error, rel=1e-13)
    assert 0.8 * 334 < found.n < 1.2 * 334  # 0.8413 times 0.1587 over 0.02^2


@pytest.mark.parametrize("value", [0.0, 0.1, -1e6 / 3])
def test_numbers_that_are_all_equal_never_suffice(value):
    """Their deviation is zero, or a rounding error of the mean."""
    found = unmet(simulate=lambda x: 0.0 * x + value, n=1000, until=standard_error(None, 1.0))
    assert found.statistic.standard_error <= 1e-15 * abs(value)


def test_members_that_failed_are_not_among_the_minimum():
    """Half of them fail: about 200 members have 100 that did not."""
    rule = standard_error(None, 1e9)
    found = run(lambda x: jnp.sqrt(x), until=rule, reduce=ensembles.mean())
    good = np.cumsum(np.asarray(ensembles.members(KEY, normal, 4000)) >= 0)
    assert found.n == 16 * (np.flatnonzero(good[15::16] >= 100)[0] + 1)
    assert found.result == found.statistic


def test_when_all_members_fail_one_warning_says_so():
    with pytest.warns(RuntimeWarning) as caught:
        found = run(lambda x: x * jnp.nan, n=50, until=standard_error(None, 1.0))
    assert [str(w.message).split(",")[0] for w in caught] == ["simulate: all 50 members failed"]
    assert (found.n, found.met, found.statistic.n) == (50, False, 0)


def test_an_infinite_value_never_suffices():
    of = lambda out: np.where(out > 2, np.inf, out)
    assert unmet(n=400, until=standard_error(of, 1.0)).statistic.mean == np.inf


SPREAD = 5 * math.sqrt(2 * 400) + 20
"""Five standard deviations of the number of members, and a chunk."""


@pytest.mark.parametrize(
    ("below", "n", "spread"),
    [
        (1.0, 100, 0.0),  # the minimum
        ({"x": 1.0, "pair": 0.2}, 400, SPREAD),  # 4 / 0.2 squared
        ({"x": 1.0, "pair": np.array([0.05, 1.0])}, 400, SPREAD),  # 1 / 0.05 squared
        ({"x": 0.1, "pair": np.ones(1)}, 400, SPREAD),  # 2 / 0.1 squared
    ],
)
def test_every_number_of_a_pytree_must_be_below_its_limit(below, n, spread):
    """Standard deviations 2, 1 and 4."""

    def simulate(x):
        return {"x": 2 * x[0], "pair": jnp.stack([x[1], 4 * x[2]])}

    draw = lambda key: jax.random.normal(key, (3,), jnp.float64)
    found = run(simulate, draw=draw, until=standard_error(None, below), chunk=20)
    assert abs(found.n - n) <= spread
    assert found.statistic.standard_error["pair"].shape == (2,)


def test_the_rule_is_not_evaluated_within_chunks():
    """600 members in one chunk, of which some 400 would do."""
    found = run(until=standard_error(None, 0.05), chunk=600)
    assert (found.n, found.statistic.n) == (600, 600)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            partial(standard_error, None, ()),
            ValueError,
            "below: wanted at least one positive number, got ()",
        ),
        (
            lambda: run(until=standard_error(None, np.ones(3))),
            ValueError,
            "below: wanted limits that broadcast to a member's values of shapes (), got [1. 1. 1.]",
        ),
        (
            lambda: run(lambda x: {"x": x}, until=standard_error(None, {"y": 1.0})),
            ValueError,
            "a member's values of shapes {'x': ()}, got {'y': 1.0}",
        ),
        (
            lambda: run(until=standard_error(lambda out: {}, 1.0)),
            ValueError,
            "of: wanted at least one array, got {}",
        ),
        (
            lambda: run(until=ensembles.mean()),
            TypeError,
            "until: wanted a rule such as jq.ensembles.standard_error(...), got Reducer",
        ),
    ],
)
def test_refused_by_name(make, kind, message):
    with pytest.raises(kind) as caught:
        make()
    assert message in str(caught.value)


def test_a_rule_that_returns_an_array_is_refused():
    rule = jq.ensembles.Reducer(
        lambda outputs, index: len(index), lambda a, b: a + b, int, met=lambda n: np.ones(2) > n
    )
    options = {"until": rule, "chunk": 4, "progress": False}
    with pytest.raises(TypeError, match="until: wanted met to return True or False, got array"):
        jq.ensembles.run(jax.random.key(0), jax.random.normal, jnp.square, 8, **options)
