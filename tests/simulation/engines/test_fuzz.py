"""The fuzzer reaches the tables of the fused engine, finds planted errors, and finds no others."""

import functools
import os
import random
import re
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT
from fuzz import child, oracle, planted, programs, reducing, rollouts
from fuzz.grammar import NOT_BACKWARD, PRODUCTIONS, SHAPES, Grammar, Mode, Type
from fuzz.running import Children

import jaxquat as jq
from jaxquat._internal.jaxprs import equations
from jaxquat.fused.trace.elementwise import ELEMENTWISE
from jaxquat.fused.trace.tracing import ON_ARRAYS

pytestmark = pytest.mark.needs("llvmlite")

DASH = "a name of the one with a dash in other versions of jax"
NEVER_DRAWN = {
    **dict.fromkeys(("scatter_mul", "scatter_min", "scatter_max"), DASH),
    "scatter_sub": "jnp subtracts in some versions of jax only",
    "scatter-sub": "a name of scatter_sub in other versions of jax",
    "lu_pivots_to_permutation": "jax.scipy.linalg.lu_solve alone asks for it",
    "platform_index": "some versions of jax choose a factorization by it",
    "eq_to": "no function of jnp asks for equality in the total order",
    "lt_to": "searchsorted takes one of the comparisons in the total order",
    "pvary": "only jax.shard_map makes it",
    "reshard": "only meshes with explicit axes make it",
    "copy_p": "a name of copy in other versions of jax",
    "one_minus_square": "the derivative of tanh in other versions of jax",
    "expand_dims": "broadcast_in_dim or reshape in this version of jax",
    "stack": "concatenate in this version of jax",
    "unstack": "slices in this version of jax",
    "tile": "broadcast and reshape in this version of jax",
    "split": "slices in some versions of jax",
    "empty": "only loops of jax that collect rows make uninitialised arrays",
    "empty2": "only loops of jax that collect rows make uninitialised arrays",
    "iota_2x32_shape": "what random_bits is traced to, which the engine does",
    "threefry2x32": "what random_bits is traced to, which the engine does",
    "call_hi_primitive": "lax.custom_root in other versions of jax",
    "polynomial": "jnp.sinc and the like in newer versions of jax",
    "scatter_add": "a name of scatter-add in other versions of jax",
    "copy": "jnp.copy of a traced array is nothing in some versions of jax",
    "optimization_barrier": "put in by jax.checkpoint within a derivative, in some versions of jax",
}


@pytest.fixture(autouse=True)
def plain_promotion():
    """Programs add numbers of several dtypes, as users do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            yield


def primitives_of(mode, node):
    """The primitives in an expression and in its derivative in reverse mode."""
    names = {"jax": jax, "jnp": jnp, "np": np, "lax": jax.lax}
    exec(programs.PRELUDE, names)
    data = programs.data_of(mode, 3, 1)
    command = {name: x[0, 0] for name, x in data["command"].items()}
    command["key"] = jax.random.wrap_key_data(command["key"])
    params = {name: x[0] for name, x in data["params"].items()}
    state = type("State", (), {})

    def function(floats, others):
        inputs = {name: floats[name] | others[name] for name in groups}
        scope = names | {"t": floats["t"]} | inputs
        state.q, state.omega = floats["q"], floats["omega"]
        return eval(node.render(), scope | {"state": state})

    is_float = lambda x: jnp.issubdtype(x.dtype, jnp.floating)
    groups = {"command": command, "params": params}
    chosen = lambda group, of: {k: x for k, x in group.items() if is_float(x) == of}
    floats, others = ({name: chosen(x, of) for name, x in groups.items()} for of in (True, False))
    floats |= {"t": data["t0"][0], "q": data["q"][0], "omega": data["omega"][0]}
    jaxpr, out = jax.make_jaxpr(function, return_shape=True)(floats, others)
    assert (out.dtype, out.shape) == (mode.name(node.type.dtype), node.type.shape), node.render()
    occurring = {equation.primitive.name for equation in equations(jaxpr)}
    if node.type.kind == "f" and node.productions().isdisjoint(NOT_BACKWARD):
        back = lambda floats, others, bar: jax.vjp(lambda f: function(f, others), floats)[1](bar)
        bar = jnp.ones(node.type.shape, mode.name(node.type.dtype))
        derivative = jax.make_jaxpr(back)(floats, others, bar)
        occurring |= {equation.primitive.name for equation in equations(derivative)}
    return occurring


@pytest.mark.slow
def test_the_grammar_reaches_every_entry_of_the_tables_but_those_named_with_a_reason():
    mode, occurring = Mode(x64=True, single=True), set()
    for number, production in enumerate(PRODUCTIONS.values()):
        if production.name.startswith("odd "):
            continue
        dtypes = ("f", "i4", "u4", "b", "i1", "u2")
        kinds = [Type(dtype, shape) for dtype in dtypes for shape in SHAPES]
        kinds = [kind for kind in kinds if production.weight(kind)]
        rng = random.Random(number)
        kinds = list({kind.dtype: kind for kind in reversed(kinds)}.values())  # one of each dtype
        many = ("is", "reduce", "extremes at the run's indices")  # many functions
        for turn in range(12 if production.name in many else 4):
            kind = kinds[-1 - turn % len(kinds)]
            occurring |= primitives_of(mode, production.make(Grammar(rng, mode), kind, 1))
    missing = {*ELEMENTWISE, *ON_ARRAYS} - occurring
    assert missing <= set(NEVER_DRAWN), missing - set(NEVER_DRAWN)


def test_a_seed_names_a_program_and_its_inputs():
    for seed in (0, 30, 60, 79):
        one, two = programs.draw(seed), programs.draw(seed)
        assert one == two
        first, second = (programs.data_of(one.mode, seed, 3) for _ in range(2))
        jax.tree.map(np.testing.assert_array_equal, first, second)
        assert rollouts.text_of(rollouts.draw(seed)) == rollouts.text_of(rollouts.draw(seed))


def test_constants_in_place_of_an_operation_have_its_shape():
    """An operation on constants is replaced by one of them, of which the other may be a scalar."""
    mode, kind = Mode(x64=True, single=True), Type("i4", (3,))
    made = [PRODUCTIONS["add"].make(Grammar(random.Random(k), mode), kind, 0) for k in range(2000)]
    assert {node.production for node in made} == {"add", "constant"}
    assert {node.type for node in made} == {kind}


def test_floats_agree_to_some_ulp_and_everything_else_by_its_bits():
    one = np.float32([[1.0, np.nan, np.inf, 0.5]])
    assert oracle.close(one, one + np.float32(3e-7)).all()
    assert not oracle.close(one, np.float32([[1.00001, 0.0, -np.inf, 1e-30]])).any()
    assert oracle.close(np.int32([[3, 4]]), np.int32([[3, 5]])).tolist() == [[True, False]]


@pytest.mark.slow
def test_other_roundings_admit_what_rounding_explains_and_nothing_else():
    """(1 + x) - 1 keeps two digits of 1.3e-7; a floor at a number reached exactly stays."""
    lost, kept = lambda x: (x[0] + 1.0) - 1.0, lambda x: jnp.floor(x[1] * 2.0)
    x = np.float32([1.3e-7, 1.5])
    samples = [oracle.shaken(f, (x[None],))[0] for f in (lost, kept)]
    admitted = lambda value, many: bool(oracle.admitted(np.float32(value), many[0], many))
    assert admitted(2.4e-7, samples[0])
    assert not admitted(1e-5, samples[0])
    assert admitted(3.0, samples[1])
    assert not admitted(2.0, samples[1])


def assert_admitted(function, x, good, bad):
    """The samples of a function at x admit the good values and not the bad ones."""
    samples = oracle.shaken(function, (x[None],))[0]
    admitted = lambda value: bool(oracle.admitted(np.float32(value), samples[0], samples))
    assert list(map(admitted, (*good, *bad))) == [True] * len(good) + [False] * len(bad), samples


@pytest.mark.slow
def test_other_roundings_admit_what_xla_may_make_of_signs_masks_and_quotients():
    x = np.float32([-1.0, np.nan, -0.0, 6e4])
    nothing, infinity, small = np.float32([0.0, np.inf, 1e-34])
    largest, mask = np.float32(3.4e38), lambda x: (x[:2] > 0).astype(x.dtype)
    stored = lambda x: jax.lax.scan(lambda c, y: (c, mask(y)), 0, jnp.stack([x, x]))[1]
    taken = lambda x: jax.lax.scan(lambda c, m: (c, m * x[1]), 0, stored(x))[1]  # a NaN each
    written_over = lambda x: jnp.sum(jnp.arctan2(x, x).at[np.array([0])].set(7 * x**0))
    slope = jax.grad(written_over)  # 0 times that of arctan2(0, 0)
    cases = [
        (lambda x: (x[0] > 0).astype(x.dtype) * x[1], [nothing, x[1]], [small]),
        (lambda x: 1 / (x[2] + 0.0), [infinity, -infinity], [nothing]),
        (lambda x: 1 / jnp.sign(x[2]), [infinity, -infinity], [nothing]),
        (lambda x: jnp.pad(mask(x), (1, 0))[1] * x[1], [nothing, x[1]], [small]),
        (lambda x: jnp.sum(taken(x)), [nothing, x[1]], [small]),
        (lambda x: -(0.0 * x[0]) * x[1], [nothing, x[1]], [small]),  # a power of 0 has no slope
        (lambda x: slope(x[2:3])[0], [nothing, x[1]], [small]),
        (lambda x: x[3] / largest, [nothing, x[3] / largest], [10 * small, infinity]),
        (lambda x: jnp.copysign(1.0, jnp.sqrt(x[0])), np.float32([1, -1]), [infinity]),
        (lambda x: jnp.copysign(1.0, jnp.min(x)), np.float32([1, -1]), [infinity]),
        (lambda x: jnp.min(x), np.float32([np.nan, -1]), np.float32([-2, 0])),
    ]
    for function, good, bad in cases:
        assert_admitted(function, x, good, bad)


@pytest.mark.skipif(
    "optimization_level=0" in os.environ.get("XLA_FLAGS", ""),
    reason="XLA's tanh reaches 1 early where it compiles as for a user, as in `nox -s matrix`",
)
def test_other_roundings_admit_a_tanh_that_reaches_one_early():
    near = lambda x: jnp.log(1 + jnp.tanh(9.2 * x[0]))
    assert_admitted(near, np.float32([-1.0]), [-np.float32(np.inf)], [np.float32(0)])


@pytest.mark.slow
def test_other_roundings_admit_infinity_where_a_part_of_a_sum_overflows():
    """Of the first dot -1.36 * -3.4e38 overflows upward, the whole downward."""
    x = np.float32([-1.363568, -2.915315, 0.6, 0.5])
    dot = lambda x: jnp.dot(x[:2], np.float32([-3.4028235e38, 3.4028235e38]))
    small = lambda x: jnp.dot(x[2:], np.float32([3e38, -3e38]))
    product = lambda x: jnp.prod(x * np.float32([1e38, -1e30, 1e-30, 1e-20]))
    cases = [(dot, [np.inf, -np.inf], [1.0]), (small, [3e37], [np.inf, -np.inf, np.nan])]
    endless = lambda x: jnp.dot(x[1:3] * np.float32([1, 1e-30]), np.float32([3.4028235e38, np.inf]))
    cases.append((endless, [np.inf], [1.0]))
    cases.append((product, [-1.1925634e18, -np.inf], [1.1925634e18, np.inf, np.nan]))
    for function, good, bad in cases:
        assert_admitted(function, x, good, bad)


def test_samples_that_are_partly_infinite_admit_all_numbers_up_to_the_largest():
    samples = np.float32([0.0, np.inf, 2.4e32, np.inf])
    admitted = lambda value: bool(oracle.admitted(np.float32(value), samples[1], samples))
    assert list(map(admitted, (1.09e38, np.inf, -np.inf, np.nan))) == [True, True, False, False]
    scan, finite = np.float32(np.inf), np.float32([1.0, 2.0, 1.5])
    assert not oracle.admitted(np.float32(1e38), scan, finite)  # the scan is not a sample


def test_a_gradient_may_be_infinite_where_the_scan_adds_infinities_of_both_signs():
    """The kernel multiplies the sum of two steps by the slope of arccos at 1, the scan each."""

    def end(engine, exponent):
        f = lambda x, y: (x + y ** jnp.arccos(exponent), None)
        return jq.fused.scan(f, jnp.float32(0), np.float32([0.5, 3]), engine=engine)[0]

    slope = lambda engine: lambda a: {"gradient": jax.grad(functools.partial(end, engine))(a)}
    scan, fused = (jax.jit(jax.vmap(slope(engine))) for engine in ("scan", "fused"))
    arguments = (np.float32([1]),)
    wanted, got = (jax.tree.map(np.asarray, by(*arguments)) for by in (scan, fused))
    assert got["gradient"] == -np.inf
    replaced, accepted = child.by_inputs(scan, arguments, wanted, got, {"smooth": ["e"]})
    np.testing.assert_equal((accepted, replaced["gradient"]), ({"e"}, np.float32([np.nan])))


def test_a_failure_shrinks_to_the_operation_that_fails():
    trees = lambda program: [node for _, node in program.expressions.values()]
    failing = lambda program: any("round even" in tree.productions() for tree in trees(program))
    program = next(filter(failing, map(programs.draw, range(1000))))
    small = reducing.reduced(program, failing, [])
    ((_, node),) = small.expressions.values()
    assert node.production == "round even"
    assert node.size() == 2


# the first program that shows each planted error, and the expression that does
SHOWN_BY = {
    "convert": (1, "e11"),
    "div": (2, "e11"),
    "shift": (76, "e8"),
    "min": (1, "e17"),
    "round": (1, "e0"),
    "gather": (4, "e19"),
    "pow": (12, "e7"),
}


@pytest.fixture(scope="module")
def children_without_errors():
    children = Children()
    yield children
    children.end()


@pytest.mark.slow
@pytest.mark.parametrize("name", planted.PLANTED)
def test_a_planted_error_is_found(name, children_without_errors):
    seed, expression = SHOWN_BY[name]
    request, children = programs.draw(seed).request([expression]), Children(name)
    failures = children.ask(request).get("failures")
    children.end()
    assert failures
    assert not children_without_errors.ask(request).get("failures")


def run(*arguments):
    """Exit status and output of the command line."""
    command = [sys.executable, "-m", "tests.fuzz", *map(str, arguments)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return process.returncode, process.stdout


@pytest.mark.slow
def test_the_engines_agree_on_a_few_programs():
    status, output = run("--programs", 1, "--expressions", 6, "--seed", 1)
    assert status == 0, output
    assert re.search(r"6 expressions, 0 rollouts, 0 differences, 0 crashes, 0 hangs", output)
    assert "0 broken, 0 + 0 invalid" in output, output


@pytest.mark.slow
@pytest.mark.long
def test_the_engines_agree_on_two_hundred_expressions_and_five_rollouts():
    status, output = run("--programs", 10, "--rollouts", 5, "--seed", 100)
    assert status == 0, output
    assert re.search(r"200 expressions, 5 rollouts, 0 differences, 0 crashes, 0 hangs", output)
