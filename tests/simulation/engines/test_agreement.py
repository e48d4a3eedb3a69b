"""The fused engine and the scan must agree on these programs.

The programs have extreme numbers, integers, indices and empty arrays. Others once ended the process
or were wrong.
"""

import functools
import gc
import itertools
import os
import subprocess
import sys
import threading

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT
from jax import lax
from marks import some
from side_by_side import assert_agree, both, saved

import jaxquat as jq
from jaxquat.fused import cpu, loading, lowering

SIZES = (1, 2, 4, 8) if jax.config.jax_enable_x64 else (1, 2, 4)
INTEGERS = [np.dtype(f"{sign}{size}") for sign in "iu" for size in SIZES]
NAMES, DTYPES = ("float32", "float64"), [np.float32, np.float64]
FLOATS = pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
FLOAT32_QUICK = pytest.mark.parametrize("dtype", some(DTYPES, [np.float32]), ids=NAMES)


def by_kernel(function, *arguments):
    """The values of ``function`` by the kernel alone."""
    return jax.jit(functools.partial(saved, "fused", function))(*map(jnp.asarray, arguments))


def is_refused(function, *arguments, match):
    """The kernel has no form of ``function``; nothing is compiled."""
    with pytest.raises(jq.fused.NotScalarError, match=match):
        jax.eval_shape(functools.partial(saved, "fused", function), *map(jnp.asarray, arguments))


def in_a_child(program):
    """Returns what a program prints in a process of its own, which it may end."""
    path = os.pathsep.join([str(ROOT / "tests"), *sys.path])
    options = {"capture_output": True, "text": True, "timeout": 300}
    command, environment = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": path}
    child = subprocess.run(command, env=environment, **options)
    assert child.returncode == 0, f"ended by {child.returncode}: {child.stderr[-2000:]}"
    return child.stdout


DIVISION = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
from jax import lax
from side_by_side import assert_agree
pairs, names = [], []
for dtype in (f"{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)):
    limits = np.iinfo(dtype)
    negative = {-7, -2, -1} if limits.min else set()
    values = sorted({limits.min, limits.min + 1, 0, 1, 2, 7, limits.max} | negative)
    x, y = (z.ravel() for z in np.meshgrid(np.array(values, dtype), np.array(values, dtype)))
    pairs += [np.resize(x, 100), np.resize(y, 100)]

def divided(*values):
    results = []
    for x, y in zip(values[::2], values[1::2]):
        constants = [np.asarray(c, x.dtype) for c in (0, -1 if x.dtype.kind == "i" else 1, 3)]
        results += [lax.div(x, y), lax.rem(x, y), jnp.where(y != 0, x // y, 5), x % y]
        results += [f(x, c) for f in (lax.div, lax.rem) for c in constants]
        results += [f(jnp.asarray(np.iinfo(x.dtype).min, x.dtype), y) for f in (lax.div, lax.rem)]
    return results

assert_agree(divided, *pairs)
print("agreed")
"""


@pytest.mark.slow
def test_integers_divide_by_zero_and_overflow_as_xla_defines_it():
    """This includes the dropped branch of a ``where``, which once was a SIGFPE."""
    assert in_a_child(DIVISION) == "agreed\n"


GRADIENT = """
import jax, jax.numpy as jnp, jaxquat as jq
body = jq.Body.from_principal(jnp.array([0.6, 1.0, 1.5]))

def torque(t, state, gains):
    tau = -gains[0] * state.q[1:] - gains[1] * state.omega + 1e-3 * state.aux[:3]
    return tau, -gains[0] * state.aux

def loss(gains, rates):
    q, grid = jnp.array([0.5, 0.5, -0.5, 0.5]), jq.grid(0.0, 1e-4, STEPS, save_every=STEPS)
    options = jq.RolloutOptions(checkpoint=STEPS, engine="fused")

    def one(omega):
        start = jq.State(q, omega, jnp.ones(SIZE) * omega[0])
        path = jq.rollout(jq.lie_euler, body, torque, start, grid, gains, options=options)
        return path.state.omega[-1]

    return jnp.sum(jax.vmap(one)(rates) ** 2)

print(jax.jit(jax.grad(loss))(jnp.array([2.0, 1.0]), jnp.ones((40, 3))))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("size", "steps"), [(3, 50_000), (60, 5000)])
def test_a_gradient_keeps_as_many_states_as_asked_for(size, steps):
    """The states take 32 and 21 MB for each thread; that once overflowed its stack (SIGSEGV)."""
    text = in_a_child(GRADIENT.replace("SIZE", str(size)).replace("STEPS", str(steps)))
    assert "nan" not in text
    assert "inf" not in text


FEW = [dtype for dtype in INTEGERS if dtype in (np.int8, np.uint32)]
OTHERS = [dtype for dtype in INTEGERS if dtype not in FEW]


@pytest.mark.parametrize(
    "dtypes",
    [INTEGERS[:1], pytest.param(INTEGERS[1:], marks=pytest.mark.slow)],
    ids=["int8", "others"],
)
def test_shifts_by_as_many_bits_as_there_are_or_more(dtypes):
    """Of variables by variables and by constants, and of constants."""
    shifts = lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic
    numbers, pairs = {}, []
    for dtype in dtypes:
        limits = np.iinfo(dtype)
        values = np.array([limits.min, limits.min + 1, 0, 1, 5, limits.max], dtype)
        bits = limits.bits
        counts = [0, 1, bits - 1, bits, bits + 1, 100, *([-1] if limits.min else [])]
        numbers[dtype] = [np.asarray(c, dtype) for c in counts]
        x, y = (z.ravel() for z in np.meshgrid(values, np.array(counts, dtype)))
        pairs += [np.resize(x, 42), np.resize(y, 42)]

    def shifted(*pairs):
        results = {}
        for dtype, x, y in zip(dtypes, pairs[::2], pairs[1::2], strict=True):
            top = lax.full_like(x, np.iinfo(dtype).max - 1)
            of_constant = [shift(top, lax.full_like(x, 7)) + 0 * x for shift in shifts]
            of_variable = [shift(x, c) for shift in shifts for c in (y, *numbers[dtype])]
            results[str(dtype)] = of_variable + of_constant
        return results

    assert_agree(shifted, *pairs)


@pytest.mark.parametrize(
    ("dtype", "kinds"),
    [
        (np.float32, FEW),
        pytest.param(np.float32, OTHERS, marks=pytest.mark.slow),
        pytest.param(np.float64, INTEGERS, marks=pytest.mark.slow),
    ],
    ids=["float32-few", "float32-others", "float64"],
)
def test_floats_convert_to_integers_by_the_nearest_there_is_and_nan_to_zero(dtype, kinds):
    values = [0.5, -0.99, 127.5, -128.5, 255.0, 256.0, 2.0**31, -(2.0**31) - 600, 2.0**32, 2.0**63]
    values = np.array([*values, 1e20, np.inf, -np.inf, np.nan], dtype)

    def converted(x):
        # These are constants only once the loop is unrolled, as they come from its index.
        odd = [lax.fori_loop(0, 1, lambda k, _, c=c: k.astype(dtype) + c, dtype(0)) for c in values]
        return [v.astype(kind) for kind in kinds for v in (x, *odd)]

    assert_agree(converted, values)


SPECIAL = [0.0, 1.0, 1.5, 2.0, 3.0, 0.3, 700.0, 1e-30, 1e-10, 1e10, 1e30, np.inf]


@pytest.mark.slow  # test_a_gravity_gradient_far_away and test_scalarize.py have ordinary ones
@FLOATS
def test_powers_of_constant_exponents(dtype):
    """x^-2.5 once was 0 where x^3 is infinite, and NaN at 0; x^65 was NaN for a negative x."""
    bases = np.array([*SPECIAL, *(-x for x in SPECIAL), np.nan], dtype)
    sizes = [0.0, 0.5, 1.5, 2.5, 3.5, 4.0, 5.0, 7.5, 64.0, 65.0, 100.0, 101.0, 1 / 3, 1e10]
    exponents = [dtype(sign * e) for e in (*sizes, np.inf, np.nan) for sign in (1, -1)]
    assert_agree(lambda x: [lax.pow(x, e) for e in exponents], bases, ulps=4)
    exponents = (0, 1, 2, 3, 5, 65, 100, -1, -2, -5, -65)
    assert_agree(lambda x: [lax.integer_pow(x, e) for e in exponents], bases, ulps=1)


@FLOAT32_QUICK
def test_powers_of_variable_exponents(dtype):
    values = np.array([*SPECIAL, *(-x for x in SPECIAL), np.nan], dtype)
    x, y = (z.ravel() for z in np.meshgrid(values, values))
    assert_agree(lambda x, y: lax.pow(x, y), x, y, ulps=2)


def test_a_gravity_gradient_far_away():
    """The power r^-5 is right at 7000 km, where r^6 is beyond float32."""
    r = np.float32([7e6, 2e7])
    wanted = r.astype(float) ** -5
    np.testing.assert_allclose(by_kernel(lambda r: (r * r) ** -2.5, r), wanted, rtol=5e-7)


@pytest.mark.slow  # test_fused.py::test_elementary_functions has these angles one by one
@FLOATS
def test_angles_of_any_size(dtype):
    """Beyond 1e5 (float32) and 1e9 (float64) quarter turns are counted in integers.

    Large and small angles stand side by side in a vector.
    """
    sizes = np.exp2(np.random.default_rng(3).uniform(-10, np.finfo(dtype).maxexp - 0.01, 1000))
    special = [1e12, 0.0, -0.0, np.inf, np.nan, np.finfo(dtype).max]
    values = np.concatenate([sizes, -sizes, special]).astype(dtype)
    assert_agree(lambda x: [jnp.sin(x), jnp.cos(x)], values, ulps=3)
    assert_agree(jnp.tan, values, ulps=6)


@FLOAT32_QUICK
def test_hyperbolic_functions_up_to_their_overflow(dtype):
    edge = np.log(np.finfo(dtype).max)
    values = [0.0, -0.0, 1e-8, 0.3, 5.0, edge * 0.97, edge - 0.1, edge + 0.5, edge + 2]
    values = np.array([*values, np.inf, np.nan], dtype)
    values = np.concatenate([values, -values])
    others = np.array([-1.0, -0.4, -0.0, 1e-9, 1.0, 1e30, np.finfo(dtype).max, np.inf], dtype)
    others = np.resize(others, values.shape)
    with np.errstate(over="ignore", divide="ignore"):
        exact = [f(values.astype(np.longdouble)) for f in (np.sinh, np.cosh, np.expm1)]
        exact.append(np.log1p(others.astype(np.longdouble)))
        wanted = [x.astype(dtype) for x in exact]
    functions = lambda x, y: [jnp.sinh(x), jnp.cosh(x), jnp.expm1(x), jnp.log1p(y)]
    got = by_kernel(functions, values, others)
    for x, y, ulps in zip(wanted, got, (8, 8, 8, 2), strict=True):
        np.testing.assert_allclose(y, x, rtol=ulps * np.finfo(dtype).eps)


# Functions that agree to the last bit, with the rows of their arguments. They are one program.


def outside_of_an_array(x):
    """Elements there are the fill value."""
    arrays = [x, *(x.astype(kind) for kind in (np.int32, np.int8, np.uint32, np.uint8)), x > 1]
    taken = lambda a, value: a.at[jnp.array([0, 5, -9, 2])].get(mode="fill", fill_value=value)
    values = (None, 7) if x.dtype == np.float32 else (None, 0, 1, 7)
    return [taken(a, value) for a in arrays for value in values]


def fewer_bits(x):
    """They round to even and overflow."""
    formats = [(5, 10), (8, 7), (8, 23), (11, 52), (2, 1), (4, 0), (8, 52)]
    return [lax.reduce_precision(x, *f) for f in formats]


def fewer_bits_of(dtype):
    sizes = 10.0 ** np.random.default_rng(2).uniform(-9, 9, 500)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan]
    # These numbers are at the ends of half precision.
    ends = [65504, 65519.9, 65520, 6.1e-5, 6.0e-5, 1 + 2.0**-11]
    normal = np.random.default_rng(1).normal(size=500)
    return [np.concatenate([normal * sizes, special, ends]).astype(dtype)]


def rounded(x):
    """Halves round away from zero and nothing else does, or they round to even."""
    methods = lax.RoundingMethod.AWAY_FROM_ZERO, lax.RoundingMethod.TO_NEAREST_EVEN
    return [lax.round(x, m) for m in methods]


def rounded_of(dtype):
    values = [0.49999997, 0.49999999999999994, 0.5, 1.5, 2.5, 0.0, 8388609, 8388607.5, 2.0**52 + 1]
    values = np.array([*values, 1e30, np.inf], dtype)
    return [np.concatenate([values, -values, [dtype(np.nan)]])]


def bytes_and_booleans(b, u):
    """They have maxima of their own."""
    return [jnp.maximum(u, jnp.uint8(3)), jnp.maximum(b, u > 2), jnp.minimum(b, u > 2)]


def product_into_a_wider_type(x):
    return jnp.dot(x, x, preferred_element_type=jnp.int32)


def large_choice(k):
    """It takes the last."""
    return lax.select_n(k, *(jnp.asarray(c, jnp.int32) for c in (3, 4, 5)))


def reductions_of_nothing(x):
    kinds = [jnp.zeros((2, 0), dtype) for dtype in (x.dtype, jnp.int8, jnp.uint32, bool)]
    results = [f(a, axis=1) for a in kinds for f in (jnp.sum, jnp.prod, jnp.any, jnp.all)]
    results += [f(a, axis=1, initial=1) for a in kinds[:3] for f in (jnp.max, jnp.min)]
    return [a + x.astype(a.dtype) if a.dtype != bool else a for a in results]


def dots_of_booleans(x):
    """They hold where both do anywhere."""
    mask = x > 0
    wide = jnp.dot(mask, mask[0], preferred_element_type=jnp.int32)
    different = jnp.einsum("ij,kj->ik", mask, ~mask)
    return [jnp.dot(mask[0], mask[0]), mask @ mask.T, different, wide]


def dots_of_booleans_of(dtype):
    one = [[1.0, -2.0, 3.0, 4.0], [-1.0, 2.0, 3.0, -4.0], [-1.0, -1.0, -1.0, -1.0]]
    return [np.stack([np.array(sign, dtype) for sign in (one, np.negative(one), np.add(one, 2))])]


def subnormal(x, y):
    """Such numbers have no sign."""
    return [jnp.sign(x), jnp.floor_divide(x, y)]


def subnormal_of(dtype):
    tiny = np.full(3, np.finfo(dtype).smallest_subnormal)
    return [tiny * np.array([1, -1, 0], dtype), np.array([2.0, -3.0, 0.5], dtype)]


EXACT = {
    outside_of_an_array: lambda dtype: [np.array([[1.0, 2.0, 3.0], [4.0, 0.0, 1.0]], dtype)],
    fewer_bits: fewer_bits_of,
    rounded: rounded_of,
    bytes_and_booleans: lambda _: [np.array([True, False, True]), np.array([1, 2, 200], np.uint8)],
    product_into_a_wider_type: lambda _: [np.array([[100, 2, 3], [-128, 127, 1]], np.int8)],
    large_choice: lambda _: [np.array([0, 1, 2], np.int32)],
    reductions_of_nothing: lambda dtype: [np.array([[1.0, 2.0]], dtype)],
    dots_of_booleans: dots_of_booleans_of,
    subnormal: subnormal_of,
}


@FLOAT32_QUICK
def test_the_bits_are_those_of_xla(dtype):
    arguments = {f.__name__: make(dtype) for f, make in EXACT.items()}
    count = max(len(x) for x in jax.tree.leaves(arguments))
    arguments = jax.tree.map(lambda x: x[np.arange(count) % len(x)], arguments)
    leaves, tree = jax.tree.flatten(arguments)

    def results(*leaves):
        of = jax.tree.unflatten(tree, leaves)
        return {f.__name__: f(*of[f.__name__]) for f in EXACT}

    assert_agree(results, *leaves)


# Where the kernel cannot be made, engine="auto" takes the scan at once.


def flown(engine, torque, factor=1.0, params=None, **options):
    """Returns a rollout of twelve steps by an engine; ``factor`` scales the rate at the start."""
    start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), factor * jnp.array([0.3, -0.2, 0.5]))
    body, grid = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0])), jq.grid(0.0, 0.05, 12)
    return flat.rollout(
        jq.lie_euler,
        body,
        torque,
        start,
        grid,
        params,
        options=jq.RolloutOptions(engine=engine),
        **options,
    )


def damped(t, state, params):
    return -state.omega


@functools.cache
def damped_rates():
    """Of the scan, for what is the same torque in other words."""
    return flown("scan", damped).state.omega


def _largest(x):
    return jnp.linalg.eigvalsh(jnp.outer(x, x))[-1]


@jax.custom_vjp
def with_eigenvalues(x):
    """It has a scalar form, but its derivative in reverse mode has none."""
    return jnp.tanh(x)


with_eigenvalues.defvjp(lambda x: (jnp.tanh(x), x), lambda x, bar: (_largest(x) * bar,))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sample_every", "save_every"),
    [(4, 2), *(pytest.param(*n, marks=pytest.mark.weekly) for n in ((2, 4), (6, 4), (1, 1)))],
)
def test_a_derivative_without_scalar_form_is_that_of_the_scan(sample_every, save_every, capsys):
    controller = jq.Controller(
        lambda start, params: {"sum": jnp.zeros(3), "count": jnp.asarray(0)},
        lambda t, state, memory, params, value: (
            params * with_eigenvalues(state.omega) + memory["sum"] + value,
            {"sum": 0.5 * memory["sum"] + state.omega, "count": memory["count"] + 1},
        ),
    )

    torque = lambda t, state, params, command: 0.1 * command - state.omega
    inputs = jnp.arange(36.0).reshape(12, 3)[: 12 // sample_every]
    options = {"controller": controller, "sample_every": sample_every, "save_every": save_every}

    def loss(engine, x):
        path = flown(engine, torque, x, x, inputs=x * inputs, **options)
        return jnp.sum(path.state.omega**2) + jnp.sum(path.command) + jnp.sum(path.memory["sum"])

    values = jnp.array([1.3, 0.4])
    slopes = lambda engine: jax.vmap(jax.value_and_grad(functools.partial(loss, engine)))
    wanted, got = (jax.jit(slopes(engine))(values) for engine in ("scan", "auto"))
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    assert "fused_loop" in str(jax.make_jaxpr(jax.grad(lambda x: loss("auto", x)))(1.3))
    with pytest.raises(jq.fused.NotScalarError, match="eigh"):
        jax.grad(lambda x: loss("fused", x))(1.3)


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_a_fault_of_the_engine_is_reported_once_and_the_scan_takes_its_place(stage, monkeypatch):
    honest = lowering.checked_loop

    def faulty(recurrence, kind, live=None):
        if kind == stage:
            raise RuntimeError(f"planted in {stage}")
        return honest(recurrence, kind, live)

    monkeypatch.setattr(lowering, "checked_loop", faulty)
    loss = lambda engine, x: jnp.sum(flown(engine, damped, x).state.omega ** 2)
    derivative = jax.grad if stage == "backward" else lambda f: f
    slope = lambda engine: jax.jit(derivative(functools.partial(loss, engine)))
    with pytest.warns(RuntimeWarning, match=f"(?s)RuntimeError: planted in {stage}.*report"):
        got = slope("auto")(1.3)
    np.testing.assert_allclose(got, slope("scan")(1.3), rtol=1e-13)
    slope("auto").lower(1.3)  # the second time it is silent: here a warning is an error
    with pytest.raises(RuntimeError, match="planted"):
        slope("fused").lower(1.3)


def test_an_error_of_the_users_torque_is_that_of_the_scan_alone():
    def broken(t, state, params):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        flown("auto", broken)
    assert caught.value.__context__ is None


def test_explain_says_that_the_derivative_is_by_a_scan(capsys):
    start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), jnp.ones(3))
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
    torque = lambda t, state, params: with_eigenvalues(state.omega)
    jq.explain(jq.lie_euler, body, torque, start, jq.grid(0.0, 0.05, 12))
    text = capsys.readouterr().out
    assert text.startswith('engine="auto" takes the fused kernel\n')
    assert "\nderivative: by a scan (no scalar form: eigh" in text


@pytest.mark.slow
def test_a_scan_over_an_empty_array():
    nothing = jnp.zeros((0, 3))
    carried = lambda t, state, params: lax.scan(lambda c, x: (c + x, x), -state.omega, nothing)[0]
    rows = lambda: lax.scan(lambda c, x: (c, x), 0.0, nothing)[1]
    torque = lambda t, state, params: carried(t, state, params) + jnp.sum(rows(), 0)
    for engine in ("fused", "auto"):
        np.testing.assert_allclose(flown(engine, torque).state.omega, damped_rates(), rtol=1e-13)


def test_a_word_among_the_parameters():
    torque = lambda t, state, params: (
        -params["gain"] * state.omega if params["mode"] == "damped" else 0 * state.omega
    )
    params = {"gain": 1.0, "mode": "damped"}
    for engine in ("scan", "fused", "auto"):
        got = flown(engine, torque, params=params).state.omega
        np.testing.assert_allclose(got, damped_rates(), rtol=1e-13)


@pytest.mark.parametrize("engine", ["fused", "auto"])
def test_no_body_at_all(engine):
    torque = lambda t, state, gain: -gain * state.omega
    run = lambda gain: jax.vmap(lambda x: flown(engine, torque, x, gain).state.q)(jnp.zeros(0))
    assert run(1.0).shape == (0, 13, 4)
    assert jax.grad(lambda gain: jnp.sum(run(gain)))(1.0) == 0


@pytest.mark.slow
def test_jit_may_be_disabled():
    """Without jit, the kernel once called itself without end."""
    wanted = damped_rates()
    with jax.disable_jit():
        np.testing.assert_allclose(flown("fused", damped).state.omega, wanted, rtol=1e-13)


@pytest.mark.slow
def test_bits_of_another_width_go_by_the_scan():
    x = np.array([1, 70000, 2**32 - 1], np.uint32)
    assert_agree(lambda x: lax.bitcast_convert_type(x, jnp.uint16), x, engine="auto")
    message = r"bitcast_convert_type: from uint32 to uint16 .*; use engine='scan'"
    is_refused(lambda x: lax.bitcast_convert_type(x, jnp.uint16), x, match=message)


@jax.custom_vjp
def tripled(x):
    return x * np.array([1.0, 2.0, 3.0])


tripled.defvjp(lambda x: (tripled(x), None), lambda _, bar: (bar * jnp.array([1.0, 2.0, 3.0]),))


def test_a_function_with_its_own_derivative_and_a_constant():
    torque = lambda t, state, params: -tripled(state.omega)
    loss = lambda engine, x: jnp.sum(flown(engine, torque, x).state.omega)
    slope = lambda engine: jax.jit(jax.grad(functools.partial(loss, engine)))
    wanted, got = (slope(engine)(1.0) for engine in ("scan", "fused"))
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


# What does not depend on the state is computed outside.


@pytest.mark.slow
@pytest.mark.parametrize("body", ["matrix", pytest.param("parameters", marks=pytest.mark.weekly)])
def test_a_splitting_takes_any_inertia(body):
    """The principal axes have no scalar form, but they do not depend on the state."""
    matrix = jnp.array([[1.0, 0.1, 0.0], [0.1, 1.5, 0.2], [0.0, 0.2, 2.0]])
    start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), jnp.array([0.3, -0.2, 0.5]))
    pull, grid = jnp.array([0.1, 0.2, 0.3]), jq.grid(0.0, 0.05, 8)
    torque = lambda t, state, params: jq.quaternion.rotate_inverse(state.q, pull)
    of_values = {"matrix": lambda x: jq.Body(matrix * x[0]), "parameters": jq.Body.from_parameters}

    def end(engine, values):
        path = jq.rollout(
            jq.no_squish,
            of_values[body](values),
            torque,
            start,
            grid,
            options=jq.RolloutOptions(engine=engine),
        )
        return path.state.omega[-1]

    values = jnp.linspace(0.5, 1.0, 6)
    wanted, got = (jax.jit(functools.partial(end, e))(values) for e in ("scan", "fused"))
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.slow
def test_a_decomposition_of_constants_is_computed_outside():
    moments = lambda: jnp.linalg.eigh(jnp.diag(jnp.arange(1.0, 4.0)))[0]
    torque = lambda t, state, params: -moments() * state.omega
    wanted, got = (flown(engine, torque).state.omega for engine in ("scan", "fused"))
    np.testing.assert_allclose(got, wanted, rtol=1e-13)


@pytest.mark.slow
def test_a_decomposition_of_parameters_within_a_call_is_computed_outside_and_differentiated():
    """A decomposition within a custom derivative is not computed outside.

    Such a derivative belongs to the whole function, so "auto" takes the scan.
    """
    torque = lambda t, state, params: -(jnp.linalg.eigh(params)[1] @ jnp.diag(params)) * state.omega
    plain = lambda params, omega: torque(0.0, jq.State(omega, omega), params)
    custom = jax.custom_jvp(plain)
    custom.defjvp(lambda p, v: (custom(*p), 3 * jax.jvp(plain, p, v)[1]))
    wrapped = lambda t, state, params: custom(params, state.omega)
    matrix = jnp.array([[2.0, 0.1, 0.3], [0.1, 3.0, 0.2], [0.3, 0.2, 1.0]])

    def slope(torque, engine):
        path = lambda p: flown(engine, lambda t, s, _: torque(t, s, p))
        end = lambda p: jnp.sum(jnp.sin(path(p).state.omega[-1]))
        return jax.jit(jax.value_and_grad(end))(matrix)

    close = functools.partial(np.testing.assert_allclose, rtol=1e-11)
    cases = (jax.checkpoint(torque), "fused"), (jax.jit(torque), "fused"), (wrapped, "auto")
    for function, engine in cases:
        jax.tree.map(close, slope(function, engine), slope(function, "scan"))
    with pytest.raises(jq.fused.NotScalarError, match="eigh"):
        slope(wrapped, "fused")


@pytest.mark.parametrize("name", some(["lgvi", "rkmk4", "simo_wong"], ["rkmk4"]))
def test_a_rare_branch_on_what_does_not_change(name):
    """The torque is the sine of a parameter, for one body in float32.

    The mask of its branch for large angles, passed as a mask, once ended the process.
    """
    dtype, scheme, grid = jnp.float32, jq.schemes.SCHEMES[name], jq.grid(0.0, 0.1, 8)
    body = jq.Body.from_principal(jnp.array([0.6, 0.6, 1.0], dtype))
    start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5], dtype), jnp.array([0.3, -0.2, 0.5], dtype))
    torque = lambda t, state, params: jnp.sin(params) * jnp.ones(3, dtype)

    def end(engine, params):
        path = jq.rollout(
            scheme, body, torque, start, grid, params, options=jq.RolloutOptions(engine=engine)
        )
        return path.state.omega[-1]

    scan, fused = (jax.jit(functools.partial(end, e)) for e in ("scan", "fused"))
    for params in (dtype(0.4), dtype(1e12)):
        np.testing.assert_allclose(fused(params), scan(params), rtol=1e-5)


# Kernels in memory.


@pytest.mark.slow
def test_kernels_outlive_the_caches_of_jax_and_of_the_engine():
    """Four threads call four functions in turn, for two numbers of bodies, as a fifth clears.

    An executable may then be the last that knows a kernel, and functions are compiled again.
    """

    def end(k, x):
        return flown("fused", lambda t, s, p: -s.omega - 0.125 * k, x).state.omega[-1]

    functions = [jax.jit(jax.vmap(functools.partial(end, k))) for k in range(4)]
    sizes = [jnp.ones(n) for n in (1, 8)]
    first = [[np.asarray(function(x)) for x in sizes] for function in functions]
    assert len({x.tobytes() for row in first for x in row[:1]}) == 4
    known, wrong, working = len(loading.loaded), [], threading.Event()

    def call(number):
        turns = itertools.islice(itertools.cycle(range(4)), number, number + 20)
        for turn, k in enumerate(turns):
            wanted, x = first[k][turn // 4 % 2], sizes[turn // 4 % 2]
            if np.asarray(functions[k](x)).tobytes() != wanted.tobytes():
                wrong.append(k)

    def clear():
        while not working.wait(0.02):
            jax.clear_caches()
            cpu._kernel.cache_clear()
            lowering._compiled.cache_clear()
            gc.collect()

    clearing = threading.Thread(target=clear)
    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    clearing.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    working.set()
    clearing.join()
    assert not wrong
    assert len(loading.loaded) == known  # what is compiled again finds its kernel there


@pytest.mark.slow
def test_too_much_code_in_memory_is_refused(monkeypatch):
    flown("fused", lambda t, state, params: -0.0625 * state.omega)
    monkeypatch.setattr(loading, "MOST", loading._size - 1)
    torque = lambda t, state, params: -0.1875 * state.omega
    with pytest.raises(NotImplementedError, match=r"more than .* MiB of kernels in one process"):
        flown("fused", torque)
    np.testing.assert_array_equal(
        flown("auto", torque).state.omega, flown("scan", torque).state.omega
    )


# Zeros stand beside NaN and infinity.


def test_an_infinite_slope_of_what_the_loss_does_not_use_leaves_its_gradient_alone():
    """Roots of zero, of a parameter and of the state, are saved beside what the loss uses.

    Zero times their infinite slope would be NaN.
    """

    def save(t, state, scale):
        roots = jnp.sqrt(0.0 * scale), jnp.sqrt(0.0 * state.omega)
        return {"used": scale * state.omega, "roots": roots}

    def loss(scale, engine):
        path = flown(engine, lambda t, state, scale: -scale * state.omega, params=scale, save=save)
        return jnp.sum(path.saved["used"])

    slope = lambda engine: jax.jit(jax.grad(lambda scale: loss(scale, engine)))
    wanted, got = (slope(engine)(0.7) for engine in ("scan", "fused"))
    assert np.isfinite(wanted)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.slow
def test_the_largest_of_numbers_that_are_none_has_the_gradient_of_the_scan():
    """XLA takes a product with a boolean as a choice, which is 0 and not NaN where it is false."""
    x, y = np.array([[-1.5, 0.5, -0.4], [1.0, 2.0, 3.0]]), np.zeros(2)

    def slopes(x, y):
        return jax.grad(lambda x: y * jnp.max(jnp.log(x)))(x)

    wanted, got = both(slopes, x, y)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.slow
def test_a_reduction_with_a_start_is_no_call_of_what_it_combines():
    """A reduction with a start has no scalar form; "auto" takes the scan."""
    x = np.array([[0.3, -0.2, 0.5], [1.0, 2.0, 3.0]])
    functions = [
        lambda x: lax.reduce(x, np.float64(5), lax.add, (0,)),
        lambda x: lax.reduce(x, np.float64(0.5), lambda a, b: a * b + 1, (0,)),
        lambda x: lax.reduce_window(x, np.float64(1), lambda a, b: a + 2 * b, (2,), (1,), "VALID"),
    ]
    for function in functions:
        is_refused(function, x, match="reduce")
    assert_agree(lambda x: [function(x) for function in functions], x, engine="auto")


@pytest.mark.slow
def test_a_boolean_is_a_number_within_a_dot_and_a_choice_in_a_product():
    """NaN times 0 is NaN in a dot, but a product is a choice. In XLA some dots are choices too."""
    x = np.array([[np.nan, 1.5, -0.5], [2.0, np.nan, 3.0], [1.0, 2.0, 1.5]])
    mask = lambda x: (x < 2).astype(x.dtype)
    wanted, got = both(lambda x: [mask(x) @ x, mask(x) * x], x)
    np.testing.assert_array_equal(got[0], [np.nan, np.nan, 2.5])
    np.testing.assert_array_equal(got[1], wanted[1])


@FLOATS
def test_angles_beside_a_right_angle_are_rounded_to_nearest_on_both_sides(dtype):
    """The half turn less a right angle would be an ulp away, and a sort would see no tie."""
    angles_of = lambda c: (jnp.arccos(c), jnp.arctan2(jnp.ones_like(c), c))
    for angles in by_kernel(angles_of, np.array([0.0, -0.0], dtype)):
        np.testing.assert_array_equal(angles, np.full(2, np.pi / 2, dtype))


COMMANDS = [lambda t: 0.5, lambda t: 2, lambda t: jnp.where(t > 0, 1.0, 2.0)]


@FLOAT32_QUICK
def test_python_numbers_as_command_and_saved_have_one_dtype(dtype):
    """The torque takes them in its own dtype, and a path keeps them in that of an array of them."""
    body = jq.Body(jnp.eye(3, dtype=dtype))
    start = jq.State(jnp.eye(4, dtype=dtype)[0], jnp.ones(3, dtype))

    def path(engine, command, save):
        torque = lambda t, s, p, c: -c * s.omega
        return jq.rollout(
            jq.lie_euler,
            body,
            torque,
            start,
            jq.grid(0.0, 0.1, 4),
            options=jq.RolloutOptions(save=save, engine=engine),
            controller=jq.Controller(lambda s, p: (), lambda t, s, m, p, i: (command(t), m)),
        )

    def paths(engine):
        last = COMMANDS[-1]
        yield path(engine, last, lambda t, s, p, c: (1.0, 2, last(t)))
        yield from (path(engine, command, None) for command in COMMANDS)

    scans, kernels = (jax.jit(lambda e=e: list(paths(e)))() for e in ("scan", "fused"))
    for scan, fused in zip(scans, kernels, strict=True):
        kept = [(x.command, x.saved) for x in (scan, fused)]
        for a, b in zip(*map(jax.tree.leaves, kept), strict=True):
            assert jax.typeof(a) == jax.typeof(b)
            assert not jax.typeof(a).weak_type
            np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(
            scan.final.omega, fused.final.omega, rtol=4 * jnp.finfo(dtype).eps
        )
