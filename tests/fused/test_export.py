"""``jq.export.c``: the C code, compiled and called, has the bits of the kernel."""

import ctypes
import functools
import itertools
import platform
import re
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_scalarize import ELEMENTWISE, MATRIX, MOVES, REDUCTIONS

import jaxquat as jq
from jaxquat import estimation

pytestmark = [
    pytest.mark.needs("llvmlite"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not on the path"),
]
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-ffp-contract=off"]
NUMBERS = itertools.count()
LEVEL = np.array([1.0, 0.0, 0.0, 0.0])
STEPS = 10_000
ENDLESS = ("while", "rows of a while")  # for some arguments
CASES = {**MOVES, **REDUCTIONS, **ELEMENTWISE}


def buffer(tree):
    """A struct with the leaves of a tree, as C lays it out."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(tree) if np.size(x)]
    fields = [(f"leaf{k}", x.dtype, x.shape) for k, x in enumerate(leaves)]
    struct = np.zeros((), np.dtype(fields, align=True))
    for (name, *_), x in zip(fields, leaves, strict=True):
        struct[name] = x
    return struct


def pointer(struct):
    return struct.ctypes.data_as(ctypes.c_void_p)


def compiled(folder, text, name="step", compiler="gcc", options=("-O1",)):
    """The C function as a function of pointers."""
    (folder / f"{name}.c").write_text(text)
    library = folder / f"{name}_{next(NUMBERS)}.so"  # a library is loaded once by its path
    command = [compiler, *STRICT, *options, "-shared", "-fPIC", f"{name}.c", "-o", library, "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return getattr(ctypes.CDLL(str(library)), name)


def run(step, init, xs, example):
    """The last carry and all y of ``step(carry, x) -> (carry, y)`` in C, each as leaves.

    The new carry is written over the old one.
    """
    carry = buffer(init)
    y = buffer(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), example))
    rows = []
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, xs))
    for row in zip(*leaves, strict=True):
        x = buffer(jax.tree.unflatten(structure, row))
        step(pointer(carry), pointer(x), pointer(carry), pointer(y))
        rows.append(y.copy())
    ys = np.stack(rows)
    return [carry[n] for n in carry.dtype.names], [ys[n] for n in ys.dtype.names]


def both(folder, function, init, xs, **options):
    """The results of a loop in C and by the kernel: leaves of the last carry and of all y."""
    x = jax.tree.map(lambda rows: rows[0], xs)
    functions = options.pop("functions", "own")
    text = jq.export.c(function, (init, x), functions=functions)
    example = jax.eval_shape(function, init, x)[1]
    last, ys = run(compiled(folder, text, **options), init, xs, example)
    wanted = jq.fused.scan(function, init, xs, engine="fused")
    return [*last, *ys], [np.asarray(x) for x in jax.tree.leaves(wanted) if np.size(x)]


def assert_same_bits(results):
    for k, (got, wanted) in enumerate(zip(*results, strict=True)):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted, err_msg=f"leaf {k}")


def cast(tree, dtype):
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


def pendulum(dtype):
    """A step of a body under a torque with sine and exponential, and an input torque."""
    body = jq.Body(jnp.asarray([[0.6, 0.0, -0.2], [0.0, 1.0, 0.0], [-0.2, 0.0, 1.5]], dtype))

    def step(state, x):
        def torque(t, state, params):
            return x - 0.2 * jnp.tanh(state.omega) + 0.1 * jnp.sin(3.0 * state.q[1:])

        state = jq.rkmk4(body, torque, 0.0, state, 0.01, None)
        return state, state

    start = jq.State(cast(LEVEL, dtype), cast(np.array([0.1, 0.2, 0.3]), dtype))
    xs = np.random.default_rng(0).normal(size=(STEPS, 3)).astype(dtype)
    return step, start, jnp.asarray(xs)


@pytest.fixture(params=[pytest.param("float32", marks=pytest.mark.slow), "float64"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield np.dtype(request.param)


def test_a_step_with_a_torque_has_the_bits_of_the_kernel_over_10000_steps(tmp_path, dtype):
    assert_same_bits(both(tmp_path, *pendulum(dtype)))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang", "clang-14"])
def test_optimised_code_has_the_same_bits(tmp_path, dtype, compiler):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not on the path")
    options = {"compiler": compiler, "options": ("-O3", "-march=native")}
    assert_same_bits(both(tmp_path, *pendulum(dtype), **options))


def test_a_controller_with_memory_has_the_bits_of_the_kernel(tmp_path):
    """A PID law with an integral, its command limited, over 10,000 samples."""
    dtype = np.float32
    body = jq.Body(cast(np.diag([0.6, 1.0, 1.5]), dtype))
    gains = jq.control.PIDGains(*(cast(np.full(3, x), dtype) for x in (1.2, 2.0, 0.3)))
    still = jq.control.Reference(*(cast(x, dtype) for x in (LEVEL, np.zeros(3), np.zeros(3))))
    law = jq.control.pid(body, 0.01, still, gains=gains, limits=cast(1.0, dtype))

    def update(memory, state):
        command, memory = law.update(jnp.zeros((), dtype), state, memory, None, None)
        return memory, command

    rng = np.random.default_rng(1)
    q = jq.quaternion.random(jax.random.key(0), (STEPS,)).astype(dtype)
    states = jq.State(q, jnp.asarray(rng.normal(size=(STEPS, 3)), dtype))
    memory = law.init(jax.tree.map(lambda x: x[0], states), None)
    assert_same_bits(both(tmp_path, update, memory, states))


def samples(count):
    """Samples of a gyroscope, an accelerometer and a magnetometer of a body that turns about."""
    t, rng = 0.01 * np.arange(count), np.random.default_rng(2)
    rate = np.stack([np.sin(0.7 * t), np.cos(0.4 * t), 0.8 * np.sin(0.2 * t)], axis=1)
    rate = jnp.asarray(rate, jnp.float32)
    q = jq.kinematics.integrate(jnp.asarray(LEVEL, jnp.float32), rate, np.float32(0.01))
    up, north = np.float32([[0.0, 0.0, 9.80665]]), np.float32([[0.0, 18.0, -45.0]])
    seen = [rate, *(jq.quaternion.rotate_inverse(q, x) for x in (up, north))]
    seen = [x + np.float32(0.01 * rng.normal(size=(count, 3))) for x in seen]
    return estimation.ImuSample(estimation.Interval(jnp.full(count, np.float32(0.01))), *seen)


def vectors(imu):
    """The samples of ``mekf`` with the same measurements."""
    shape = (len(imu.gyro), 2, 3)
    world = np.float32([[0.0, 0.0, 9.80665], [0.0, 18.0, -45.0]])
    seen = jnp.stack([imu.accelerometer, imu.magnetometer], axis=1)
    known = jnp.broadcast_to(world, shape)
    lost = jnp.full((len(imu.gyro), 4), jnp.nan, jnp.float32)
    return estimation.VectorSample(imu.dt, imu.gyro, seen, known, lost)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mekf", "ahrs"])
def test_a_filter_has_the_bits_of_the_kernel_over_10000_samples(tmp_path, name):
    with jax.enable_x64(False):
        rows = samples(STEPS)
        if name == "mekf":
            settings = estimation.MekfSettings(vectors=0.05)
            kind, rows = estimation.mekf(jnp.asarray(LEVEL), settings), vectors(rows)
        else:
            kind = estimation.ahrs()
        memory = kind.init(jax.tree.map(lambda x: x[0], rows))
        results = both(tmp_path, kind.step, memory, rows)
    assert_same_bits(results)
    turned = jq.quaternion.distance(results[0][0], results[1][0])
    assert turned < 1e-3


@pytest.mark.slow
def test_a_predictive_controller_has_the_bits_of_the_kernel_over_200_samples(tmp_path):
    """Two Gauss-Newton steps for five commands within limits; its loops stay loops."""
    with jax.enable_x64(False):
        body = jq.Body(jnp.diag(jnp.array([0.6, 1.0, 1.5])))
        law = jq.planning.mpc(
            jq.rkmk2, body, lambda t, state, params, command: command, 0.5, jnp.zeros((5, 3)),
            lambda k, state, params, command: jnp.concatenate([command, 10.0 * state.omega]),
            constraints=jq.planning.Constraints(limits=(-0.5, 0.5)), iterations=2,
        )  # fmt: skip

        def update(memory, omega):
            state = jq.State(jnp.asarray(LEVEL), omega)
            command, memory = law.update(jnp.float32(0.0), state, memory, None, None)
            return memory, command

        rates = jnp.asarray(np.random.default_rng(0).normal(size=(200, 3)))
        memory = law.init(jq.State(jnp.asarray(LEVEL), rates[0]), None)
        results = both(tmp_path, update, memory, rates, options=("-O0",))
    assert_same_bits(results)
    assert np.ptp(results[0][-1]) > 0.5


def policy(dtype):
    """Two layers of 64: the carry is the last command, part of the observation."""
    rng, sizes = np.random.default_rng(3), ((64, 33), (64, 64), (4, 64))
    weights = [(cast(rng.normal(size=size) / 8, dtype), cast(rng.normal(size=size[0]) / 8, dtype))
               for size in sizes]  # fmt: skip

    def step(command, seen):
        x = jnp.concatenate([command, seen])
        for weight, bias in weights[:-1]:
            x = jnp.tanh(weight @ x + bias)
        weight, bias = weights[-1]
        command = jax.nn.sigmoid(weight @ x + bias)
        return command, command

    return step, cast(np.zeros(4), dtype), cast(rng.normal(size=(STEPS, 29)), dtype)


def test_a_policy_is_loops_over_constant_tables_and_has_the_bits_of_the_kernel(tmp_path):
    step, start, xs = policy(np.float32)
    assert_same_bits(both(tmp_path, step, start, xs))
    text = jq.export.c(step, (start, xs[0]))
    sizes = map(int, re.findall(r"static const float step_table\d+\[(\d+)\]", text))
    assert {33 * 64, 64 * 64, 4 * 64} <= {*sizes}
    body = text[text.index("void step(", text.index("#include <math.h>")) :]
    assert body.count("\n") < 1000  # of 6752 operations
    assert "for (int32_t" in body
    assert "malloc" not in text


def test_functions_of_the_library_are_within_4_ulp_of_the_own_ones_after_a_step(tmp_path):
    """Of the largest command, which is below 1; rounding then grows as the motion amplifies it."""
    step, start, xs = policy(np.float32)
    own, _ = both(tmp_path, step, start, xs[:1])
    libm, _ = both(tmp_path, step, start, xs[:1], functions="libm", name="step")
    np.testing.assert_allclose(libm[0], own[0], rtol=0, atol=4 * np.finfo(np.float32).eps / 2)


@pytest.mark.parametrize("names", [["while", "remainder", "cond", "powers", "largest outside"]])
def test_integers_loops_and_branches_have_the_bits_of_the_kernel(tmp_path, names):
    assert_same_bits(both(tmp_path, *of_cases(names, np.float32)))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(CASES), 6))
def test_every_traced_function_has_the_bits_of_the_kernel(tmp_path, first, dtype):
    """NaN, infinity, -0 and large numbers are among the arguments; denormal results count as 0."""
    names = [name for name in [*CASES][first : first + 6] if name not in ENDLESS]
    step, start, xs = of_cases(names, dtype)
    odd = np.array([np.nan, np.inf, -0.0, 1e3, 1e7, 0.0])
    odd = cast(np.tile(odd, 4).reshape(2, 4, 3), dtype)
    more = cast(np.random.default_rng(4).normal(size=(5, 4, 3)), dtype)
    c, kernel = both(tmp_path, step, start, jnp.concatenate([xs, odd, more, 300.0 * more]))
    tiny = np.finfo(dtype).tiny
    c = [np.where(abs(x) < tiny, 0, x).astype(x.dtype) if x.dtype.kind == "f" else x for x in c]
    assert_same_bits((c, kernel))


def of_cases(names, dtype):
    """A loop that applies the cases to each x."""

    def step(count, x):
        return count + 1, [CASES[name](x) for name in names]

    return step, cast(np.zeros(1), dtype), cast(MATRIX[None], dtype)


def test_a_long_loop_stays_a_loop_and_has_the_bits_of_the_kernel(tmp_path):
    """Its carry, its rows of data and of results, forward and backward; 300 trips of 40 or more."""
    gains = cast(np.linspace(0.5, 1.5, 300), np.float32)

    def long(x):
        return functools.reduce(lambda y, k: 0.5 - x * y, range(20), 0.1 * x)

    def step(carry, x):
        forth, sums = jax.lax.scan(lambda c, g: (jnp.sin(long(c) + g * x), c), carry, gains)
        back, more = jax.lax.scan(
            lambda c, row: (long(c - 0.1 * row[0] * row[1]), c[0]), forth, (sums, gains),
            reverse=True,
        )  # fmt: skip
        return 0.1 * back, (sums, more)

    start, xs = jnp.ones(2, np.float32), cast(np.linspace(0.1, 1.0, 30).reshape(30, 1), np.float32)
    text = jq.export.c(step, (start, xs[0]))
    assert text.count("step_sin_f4(") == 3  # its definition, and two components in a body
    assert_same_bits(both(tmp_path, step, start, xs))


def test_a_loop_that_the_kernel_unrolls_has_the_bits_of_the_kernel(tmp_path):
    """A product from before the loop or from the last trip is joined with a sum.

    The map is that of Henon, which is chaotic, so one bit changes the result of 150 trips.
    """

    def trip(k, values):
        c, product = values
        c = (1.0 - 1.4 * c * c) + product
        return c, 0.3 * c

    def step(carry, x):
        last, product = jax.lax.fori_loop(0, 150, trip, (carry, 0.3 * carry * x))
        return last, last + product

    start, xs = jnp.ones(1, np.float32), cast(np.linspace(0.1, 0.9, 100)[:, None], np.float32)
    assert_same_bits(both(tmp_path, step, start, xs))
    loops = [jq.export.c(step, (start, xs[0]), functions=x).count("for (") for x in ("own", "libm")]
    assert loops == [0, 1]


MODE = """
#include <xmmintrin.h>
unsigned exchanged(unsigned mode)
{
    const unsigned old = _mm_getcsr();
    _mm_setcsr(mode);
    return old;
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the mode is set as on an x86")
def test_denormal_numbers_have_the_bits_of_the_kernel_if_the_processor_flushes_them(
    tmp_path, dtype
):
    """A product of 0.1 and a sum fall below the normal range within 400 steps."""

    def step(pair, x):
        pair = 0.1 * pair[0] * x, 0.125 * pair[1] + pair[0]
        return pair, pair[0] - 0.25 * pair[1]

    pair, xs = tuple(cast(np.ones((2, 3)), dtype)), cast(np.linspace(0.5, 1.0, 400)[:, None], dtype)
    exchanged = compiled(tmp_path, MODE, "exchanged")
    exchanged.argtypes, exchanged.restype = [ctypes.c_uint], ctypes.c_uint
    gradual = both(tmp_path, step, pair, xs)
    usual = exchanged(0x9FC0)  # no exceptions, FTZ and DAZ
    try:
        flushed = both(tmp_path, step, pair, xs)
    finally:
        exchanged(usual)
    assert_same_bits(flushed)
    assert any((c != kernel).any() for c, kernel in zip(*gradual, strict=True))


def test_what_a_branch_gets_but_does_not_use_is_not_computed(tmp_path):
    """``lax.cond`` gives both branches the same arguments; compilers warn of unused variables."""

    def long(c, unused):
        return c + 0.1 * jnp.sin(jnp.sin(jnp.sin(c))), jnp.tanh(c)

    def short(c, unused):
        return c, 0.5 * c

    def step(carry, x):
        new, unused = jax.lax.cond(x[0] > 0.5, long, short, carry, x)
        new, _ = jax.lax.cond(x[0] < 0.7, long, short, new, unused)
        return new, new

    start, xs = jnp.ones(3, np.float32), cast(np.linspace(0.0, 1.0, 12).reshape(4, 3), np.float32)
    assert_same_bits(both(tmp_path, step, start, xs))


def test_the_carried_values_of_a_loop_change_at_once(tmp_path):
    """Two values that change places in each of 4095 trips."""

    def step(pair, x):
        pair = jax.lax.fori_loop(0, 4095, lambda k, pair: (pair[1], jnp.cos(pair[0] + x)), pair)
        return pair, pair

    pair = jnp.zeros(1, np.float32), jnp.ones(1, np.float32)
    assert "k < 4095" in re.sub(r"k\d+_", "k", jq.export.c(step, (pair, pair[1])))
    assert_same_bits(both(tmp_path, step, pair, jnp.ones((5, 1), np.float32)))


def test_arguments_and_results_are_structs_with_the_names_of_the_leaves():
    body = jq.Body(np.diag(np.float32([0.6, 1.0, 1.5])))
    state = jq.State(jnp.asarray(LEVEL), jnp.ones(3), aux={"wheel": jnp.float32(0.0)})

    def torque(t, state, params):
        return -state.omega * params[0], {"wheel": jnp.ones_like(state.aux["wheel"])}

    def turn(t, state, gains):
        return jq.rkmk2(body, torque, t, state, 0.1, gains), jnp.ones((2, 2)) * t

    with jax.enable_x64(False):
        text = jq.export.c(turn, (0.0, cast(state, np.float32), [jnp.ones(3)]), name="turn")
    fields = ["float q[4];", "float omega[3];", "float aux_wheel;"]
    struct = "\n    ".join(["typedef struct {", *fields])
    assert f"{struct}\n}} turn_state;" in text
    given = "float t, const turn_state *state, const turn_gains *gains"
    assert f"void turn({given}, turn_state *result0, float result1[4]);" in text


def test_names_of_c_and_of_the_file_get_other_names(tmp_path):
    """Arguments and leaves with the names of keywords, functions, variables, tables and types."""

    def step(double, v1_, step_state, state, step_sin_f4, step_table0, result, INT32_MAX):
        table = jnp.sin(jnp.cumsum(state["a b"][0]) + jnp.arange(20.0))
        return {**state, "a b": [table + state["a_b_0"], v1_ * double]}, step_state["NAN"] + result

    rows = [jnp.ones(20, np.float32), jnp.float32(1)]
    state = {"a b": rows, "a_b_0": 1.0, "x1_": 1.0, "STEP_H": 2.0, "for": 3}
    with jax.enable_x64(False):
        text = jq.export.c(step, (1.0, 2.0, {"NAN": 3.0}, state, 4.0, 5.0, 6.0, 7.0))
    compiled(tmp_path, text)
    assert "float double_, float v1__, const step_itemstep_state *itemstep_state" in text
    assert "const step_state *state, float itemstep_sin_f4_, float itemstep_table0" in text
    fields = ["int32_t for_;", "float itemSTEP_H;", "float a_b_0[20];", "float a_b_0_;", "x1__;"]
    assert all(field in text for field in fields)


def test_results_may_be_written_over_arguments(tmp_path):
    """Also if they are arguments in another order."""

    def step(pair, x):
        first, second = pair
        return (second[::-1], first), first + x

    pair = jnp.arange(20.0, dtype=np.float32), jnp.arange(20.0, 40.0, dtype=np.float32)
    assert_same_bits(both(tmp_path, step, pair, jnp.ones((7, 20), np.float32)))


MAIN = """
#define STEP_DECLARATIONS
#include "step.c"
#include <stdio.h>

int main(void)
{
    step_%s carry = {0};
    float last[%d] = {0};
    for (int k = 0; k < 100; k++) {
        last[0] = 0.01f * (float)k;
        step(&carry, last, &carry, last);
    }
    printf("%%a\\n", (double)last[1]);
    return 0;
}
"""


def test_the_code_is_clean_under_the_sanitizers_of_undefined_behaviour_and_addresses(tmp_path):
    """A small main, in its own file, calls a step with loops, tables, integers and indices."""
    table = cast(np.linspace(-1.0, 1.0, 40), np.float32)

    def step(memory, x):
        place = jnp.argmax(x[:4]).astype(np.int32) + memory["count"] % 7
        rows, _ = jax.lax.scan(lambda c, g: (jnp.cos(c * g) + x[0], c), memory["rows"], table)
        new = x.at[place].set(jnp.sum(rows) + table[place * 3])
        count = memory["count"] * 1_000_003 + (x[1] * 1e12).astype(np.int32)
        return {"count": count, "rows": rows}, new[:4]

    memory = {"count": np.int32(3), "rows": np.ones((3, 7), np.float32)}
    x = np.zeros(4, np.float32)
    (tmp_path / "step.c").write_text(jq.export.c(step, (memory, x)))
    (tmp_path / "main.c").write_text(MAIN % ("memory", 4))
    kinds = "-fsanitize=undefined,address"
    command = ["gcc", *STRICT, kinds, "-fno-sanitize-recover=all", "step.c", "main.c", "-lm"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if "cannot find" in made.stderr:
        pytest.skip("gcc has no sanitizers")
    assert made.returncode == 0, made.stderr
    ran = subprocess.run(tmp_path / "a.out", capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_the_stated_stack_bounds_what_an_optimising_compiler_uses(tmp_path):
    """256 bytes are for saved registers and addresses, which are no local variables."""
    step, start, xs = pendulum(np.float32)
    text = jq.export.c(step, (start, xs[0]))
    (tmp_path / "step.c").write_text(text)
    command = ["gcc", *STRICT, "-O2", "-fstack-usage", "-c", "step.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    rows = [line.split("\t") for line in (tmp_path / "step.su").read_text().splitlines()]
    stated = int(re.search(r"at most (\d+) bytes", text)[1])
    assert sum(int(bytes_used) for _, bytes_used, _ in rows) < stated + 256


def test_bad_arguments_are_named():
    x = jnp.zeros(3)
    for arguments, options, message in (
        ((1, (x,)), {}, "function: wanted"),
        ((jnp.sin, x), {}, "example_arguments: wanted a tuple, got"),
        ((jnp.sin, ("a",)), {}, "example_arguments: wanted arrays, got 'a'"),
        ((jnp.sin, (x,)), {"name": "for"}, "name: wanted a name of C, got 'for'"),
        ((jnp.sin, (x,)), {"name": "memcpy"}, "name: wanted a name of C, got 'memcpy'"),
        ((jnp.sin, (x,)), {"name": "uint32_t"}, "name: wanted a name of C, got 'uint32_t'"),
        ((jnp.sin, (x,)), {"name": "a b"}, "name: wanted a name of C, got 'a b'"),
        ((jnp.sin, (x,)), {"functions": "none"}, "functions: wanted"),
    ):
        with pytest.raises((TypeError, ValueError), match=re.escape(message)):
            jq.export.c(*arguments, **options)
    with pytest.raises(jq.fused.NotScalarError, match="eigh"):
        jq.export.c(jnp.linalg.eigvalsh, (jnp.eye(3),))
