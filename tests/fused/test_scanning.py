"""``jq.fused.scan`` is ``jax.lax.scan``: values, derivatives of both modes, batches, refusals."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxquat as jq
from jaxquat.fused.engine import MULTIPLICATIONS

pytestmark = pytest.mark.needs("llvmlite")

FORCES = np.sin(np.arange(12.0) ** 1.3)
INIT = {"x": jnp.array([0.3, -0.2]), "count": jnp.array(0, jnp.int32)}


def driven(gain):
    """A nonlinear oscillator with a counter, which does not commute with its input."""

    def f(carry, force):
        x, count = carry["x"], carry["count"]
        after = x + 0.1 * jnp.stack(
            [x[1], -gain * jnp.sin(x[0]) + force * jnp.cos(count.astype(x.dtype))]
        )
        return {"x": after, "count": count + 1}, (after[0] * x[1], count % 3 == 0)

    return f


def by(engine):
    """``gain, start, forces -> (last x, count, products, booleans)`` by an engine."""

    def run(gain, start, forces):
        scan = lax.scan if engine is None else lambda *a: jq.fused.scan(*a, engine=engine)
        last, (product, even) = scan(driven(gain), INIT | {"x": start}, forces)
        return last["x"], last["count"], product, even

    return run


ARGUMENTS = (jnp.array(1.7), INIT["x"], jnp.asarray(FORCES))


def test_values_are_those_of_lax_scan():
    values = (jax.jit(by(engine))(*ARGUMENTS) for engine in ("fused", "auto", "scan", None))
    *runs, wanted = values
    for run in runs:
        for got, right in zip(run, wanted, strict=True):
            assert got.dtype == right.dtype
            np.testing.assert_allclose(got, right, rtol=1e-14)


def test_reversed_steps_go_from_the_last_row_to_the_first():
    def run(forces, scan, **options):
        f = lambda forces: scan(driven(1.7), INIT, forces, reverse=True, **options)
        value, transpose = jax.vjp(lambda forces: f(forces)[1][0], forces)
        return value, transpose(jnp.cos(value)), f(forces)[0]["count"]

    engines = ("fused", "auto", "scan")
    every = lambda x: [run(x, lax.scan), *(run(x, jq.fused.scan, engine=e) for e in engines)]
    wanted, *results = jax.jit(every)(ARGUMENTS[2])
    for result in results:
        for got, right in zip(result, wanted, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-12)


@jax.checkpoint
def repeating(carry, force):
    """A step whose results repeat the carry, each other, the row and the carry before.

    The matrix has more zeros than other numbers, and more numbers than a kernel holds in registers.
    """
    x, total = carry
    after = x + 0.1 * jnp.stack([x[1], force - jnp.sin(x[0])])
    square = after * x
    matrix = jnp.zeros((3, 7)).at[1, 2:4].set(square).at[2, 6].set(force)
    return (after, total + matrix), (square, after, matrix, x, force, square, total)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("way", ["fused", "auto", "derivative by a scan"])
def test_results_that_repeat_others_are_those_of_lax_scan(monkeypatch, reverse, way):
    if way == "derivative by a scan":
        monkeypatch.setitem(MULTIPLICATIONS["cpu"], "value", -1)
    options = {"engine": "fused" if way == "fused" else "auto", "reverse": reverse}

    def run(forces, scan, **options):
        begin = INIT["x"], jnp.ones((3, 7))
        f = lambda x, forces: scan(repeating, (x, begin[1]), forces, **options)
        value, transpose = jax.vjp(f, begin[0], forces)
        return value, transpose(jax.tree.map(jnp.cos, value))

    both = lambda x: (run(x, jq.fused.scan, **options), run(x, lax.scan, reverse=reverse))
    results, wanted = jax.jit(jax.vmap(both))(np.stack([FORCES, -FORCES]))
    for got, right in zip(jax.tree.leaves(results), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("way", ["forward", "reverse"])
def test_equal_results_with_different_derivatives_stay_apart(way):
    """The sine twice, by its rule once with the slope 0; both change places in an inner call."""
    if way == "forward":
        twice = jax.custom_jvp(lambda x: (jnp.sin(x),) * 2)
        twice.defjvp(lambda p, t: (twice(*p), (jnp.cos(p[0]) * t[0], 0.0 * t[0])))
    else:
        twice = jax.custom_vjp(lambda x: (jnp.sin(x),) * 2)
        twice.defvjp(lambda x: (twice(x), x), lambda x, bars: (bars[0] * jnp.cos(x),))
    exchanged = jax.jit(lambda x: twice(x)[::-1])

    def last(c, scan, **options):
        f = lambda c, x: (twice(c + x)[0], (twice(c * x), exchanged(c)))
        return [jnp.sum(y) for y in jax.tree.leaves(scan(f, c, ARGUMENTS[2], **options))]

    of = lambda scan, **options: jax.jit(jax.jacrev(lambda c: last(c, scan, **options)))(0.3)
    np.testing.assert_allclose(of(jq.fused.scan, engine="fused"), of(lax.scan), rtol=1e-12)


@pytest.mark.parametrize("inner", ["fused", "auto"])
def test_a_kernel_may_have_a_scan_of_kernels_in_its_step(inner):
    """A step that runs twelve small steps from last to first, two members at once."""

    def run(start, outer, inner, **options):
        def step(x, gain):
            once = lambda x: inner(lambda x, f: (x + 0.1 * jnp.sin(gain * x + f), x), x, FORCES)
            last, before = jax.vmap(once)(jnp.stack([x, -x]))
            return last[0] + 0.1 * last[1] ** 2, before[1, 3]

        return outer(step, start, jnp.array([0.3, 0.7, -0.4]), **options)

    kernel = partial(jq.fused.scan, reverse=True, engine=inner)
    values = lambda x: run(x, jq.fused.scan, kernel, engine="fused")
    wanted = lambda x: run(x, lax.scan, partial(lax.scan, reverse=True))
    for both in (lambda f: f, jax.jacrev, jax.jacfwd):
        got, right = (jax.tree.leaves(jax.jit(both(f))(0.2)) for f in (values, wanted))
        np.testing.assert_allclose(np.hstack(got), np.hstack(right), rtol=1e-12)


def loss(run):
    return lambda *a: jnp.sum(run(*a)[0] ** 2) + jnp.sum(jnp.sin(run(*a)[2]))


@pytest.mark.parametrize(
    "derivative",
    [
        lambda f: jax.grad(f, (0, 1, 2)),
        lambda f: jax.jacfwd(f, (0, 1, 2)),
        pytest.param(lambda f: jax.hessian(f, (0, 1)), marks=pytest.mark.slow),
    ],
    ids=["reverse", "forward", "second"],
)
def test_derivatives_are_those_of_lax_scan(derivative):
    one, other = (jax.jit(derivative(loss(by(e))))(*ARGUMENTS) for e in ("fused", None))
    for got, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-11, atol=1e-13)


def test_a_second_derivative_of_zero_meets_no_infinite_slope_of_what_is_computed_before_the_run():
    """At a = 0 those of 1/a are -1/a^2 and 2/a^3; a step is linear in 1/a, which is hoisted."""
    end = lambda a: jq.fused.scan(lambda x, _: (x + 1 / a, None), 0.0, length=1, engine="fused")[0]
    once, a = jax.grad(end), jnp.array(0.0)
    assert jax.jit(lambda a: jax.jvp(once, (a,), (jnp.ones(()),)))(a) == (-jnp.inf, jnp.inf)
    assert jax.jit(jax.grad(once))(a) == jnp.inf


@pytest.mark.parametrize("where", ["closed over", "carried", "read"])
def test_the_rule_of_a_derivative_may_have_integers_among_its_arguments(where):
    """Three steps x -> 3 x, with a rule that says 6: 6^3, by the kernel in both modes."""
    times = jax.custom_jvp(lambda x, n: n[0].astype(x.dtype) * x)
    times.defjvp(lambda a, da: (times(*a), 2 * times(da[0], a[1])))
    n = jnp.array([3, 0], jnp.int32)
    run = lambda f, *a: jq.fused.scan(f, *a, length=3, engine="fused")[0]
    end = {
        "closed over": lambda x: run(lambda x, _: (times(x, n), None), x),
        "carried": lambda x: run(lambda c, _: ((times(*c), c[1]), None), (x, n))[0],
        "read": lambda x: run(lambda x, n: (times(x, n), None), x, jnp.stack([n, n, n])),
    }[where]
    x = jnp.array(1.0)
    assert jax.jit(jax.grad(end))(x) == 216
    assert jax.jit(lambda x: jax.jvp(end, (x,), (x,)))(x) == (27, 216)


def test_a_branch_may_take_the_tangents_of_integers():
    """The rule differentiates a function that closes over them: 2 x twice, with a slope of 4."""
    n = np.array([7, 2], np.int32)
    inner = lambda x: lax.cond(x > 0, lambda n: 2 * x, lambda n: 3 * x, jnp.array(n))
    f = jax.custom_jvp(inner)
    f.defjvp(lambda x, dx: (f(*x), 2 * jax.jvp(inner, x, dx)[1]))
    end = lambda x: jq.fused.scan(lambda x, _: (f(x), None), x, length=2, engine="fused")[0]
    assert jax.jit(jax.grad(end))(1.0) == 16


def computing_anew():
    """x^2, whose rule computes the value by a primitive without a scalar form."""
    f = jax.custom_jvp(lambda x: x * x)
    f.defjvp(lambda x, dx: (x[0] ** 2 + 0 * lax.lgamma(x[0]), x[0] * dx[0]))
    return f


def reverse_alone():
    """x^2, whose forward rule calls the function itself."""
    f = jax.custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: (f(x), x), lambda x, bar: (bar * x,))
    return f


@pytest.mark.parametrize(("square", "factor"), [(computing_anew, 7), (reverse_alone, 3)])
def test_auto_has_the_second_derivatives_that_the_kernel_lacks(square, factor):
    """Three steps x -> x^2 with the slope x by a rule: x x^2 x^4.

    The second derivative is 7 x^6 where x^2 has the slope 2 x, and 3 x^6 where it has x.
    """
    f = square()
    end = jax.checkpoint(lambda x: jq.fused.scan(lambda x, _: (f(x), None), x, length=3)[0])
    second = jax.jit(jax.grad(jax.checkpoint(jax.grad(end))))(1.1)
    np.testing.assert_allclose(second, factor * 1.1**6, rtol=1e-12)


def test_a_denormal_result_counts_as_zero_for_a_constant_argument_too():
    """erfc(9.2) is 1.06e-38 and erfc(10) 2e-45, less than the normal numbers of float32."""
    f = lambda x, _: (x, [1 / lax.erfc(y) for y in (x, np.float32(9.2), np.float32(10))])
    for x in (9.2, 10):
        assert jq.fused.scan(f, jnp.float32(x), length=1, engine="fused")[1] == 3 * [np.inf]


def test_what_holds_nothing_is_no_array_of_a_kernel():
    nothing = np.zeros(2, jax.dtypes.float0)
    count = lambda n, _: (n + 1, nothing)
    last, ys = jq.fused.scan(count, 0, length=3)
    assert (last, ys.shape, ys.dtype) == (3, (3, 2), jax.dtypes.float0)
    with pytest.raises(jq.fused.NotScalarError, match="float0"):
        jq.fused.scan(count, 0, length=3, engine="fused")


def test_a_batch_has_a_row_for_each_of_its_starts():
    starts = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))
    batch = (jax.jit(jax.vmap(by(e), (None, 0, None)))(ARGUMENTS[0], starts, FORCES) for e in
             ("fused", None))  # fmt: skip
    for got, right in zip(*batch, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-14, atol=1e-15)  # of products near 0


def test_random_keys_are_carried_and_read_and_returned():
    def f(key, x):
        key, use = jax.random.split(key)
        return key, (x + jax.random.normal(use, (), x.dtype), use)

    runs = (
        jax.jit(lambda k, s=scan: s(f, k, jnp.arange(4.0)))(jax.random.key(3))
        for scan in (lambda *a: jq.fused.scan(*a, engine="fused"), lax.scan)
    )
    (last, (numbers, keys)), (wanted, (right, drawn)) = runs
    np.testing.assert_array_equal(jax.random.key_data(last), jax.random.key_data(wanted))
    np.testing.assert_array_equal(jax.random.key_data(keys), jax.random.key_data(drawn))
    np.testing.assert_allclose(numbers, right, rtol=1e-14)


def test_without_xs_there_are_length_steps():
    double = lambda x, _: (2.0 * x, x)
    last, ys = jax.jit(lambda x: jq.fused.scan(double, x, length=5, engine="fused"))(jnp.array(1.0))
    assert last == 32.0
    assert ys.tolist() == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_what_has_no_scalar_form_takes_the_scan_or_is_named():
    f = lambda x, _: (jnp.linalg.eigh(x)[1], jnp.trace(x))
    x = jnp.eye(3) + 0.1
    last, traces = jq.fused.scan(f, x, length=3)
    np.testing.assert_allclose(last, lax.scan(f, x, length=3)[0])
    assert traces.shape == (3,)
    with pytest.raises(jq.fused.NotScalarError, match="eigh"):
        jq.fused.scan(f, x, length=3, engine="fused")


def test_an_error_of_f_is_raised_as_it_is():
    def f(x, y):
        raise RuntimeError("from within")

    with pytest.raises(RuntimeError, match="from within"):
        jq.fused.scan(f, jnp.array(0.0), jnp.arange(3.0))


@pytest.mark.parametrize("engine", ["auto", "fused", "scan"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((lambda x, y: (x, y), "word", jnp.ones(2)), "^init: wanted arrays, got 'word'"),
        ((lambda x, y: (x, y), 1.0, object()), "^xs: wanted arrays, got <object"),
        (("f", 1.0, jnp.ones(2)), "^f: wanted a function, got 'f'"),
        ((lambda x, y: (x, y), 1.0, None, -1), "^length: wanted at least 0, got -1$"),
        ((lambda x, y: (x, y), 1.0, None, 2.0), r"^length: wanted an integer, got 2\.0$"),
        ((lambda x, y: (x, y), 1.0, None, True), "^length: wanted an integer, got True$"),
        # by lax.scan
        ((lambda x, y: (x[None], y), 1.0, jnp.ones(2)), "carry input and carry output"),
        ((lambda x, y: x, 1.0, jnp.ones(2)), "must be a pair"),
        ((lambda x, y: (x, y), 1.0, (jnp.ones(2), jnp.ones(3))), "leading axis sizes: 2, 3"),
        ((lambda x, y: (x, y), 1.0, jnp.ones(2), 3), "length"),
        ((lambda x, y: (x, y), 1.0), "length"),
    ],
)
def test_a_carry_or_a_length_that_does_not_fit_is_refused(arguments, message, engine):
    with pytest.raises((TypeError, ValueError), match=message):
        jq.fused.scan(*arguments, engine=engine)


def test_python_numbers_have_the_dtypes_of_lax_scan():
    """Their type is weak: it gives way to that of an array, and remains where f keeps it."""
    narrow = jnp.arange(1, 4, dtype=jnp.int8)
    cases = (
        (lambda c, x: (c * 1.0, c * x), 0.5, jnp.ones(3, jnp.float32)),
        (lambda c, x: (c + x, c), 0.0, jnp.ones(3, jnp.float32)),
        (lambda c, x: (c + 1, c * x), 90, narrow),
        (lambda c, x: (c + x, c), 0, jnp.ones(3)),
        (lambda c, x: ((c[0] + c[1], c[1] * 1), (c[0] * x, c[1] * x)), (0, 2.0), narrow),
    )
    with jax.numpy_dtype_promotion("standard"):
        for f, init, xs in cases:
            wanted = jax.tree.leaves(lax.scan(f, init, xs))
            for engine in ("auto", "fused"):
                got = jax.tree.leaves(jq.fused.scan(f, init, xs, engine=engine))
                assert [x.dtype for x in got] == [x.dtype for x in wanted]
                for one, right in zip(got, wanted, strict=True):
                    np.testing.assert_array_equal(one, right)


@pytest.mark.parametrize("engine", ["auto", "fused"])
def test_no_step_and_no_array_give_what_lax_scan_gives(engine):
    last, ys = jq.fused.scan(lambda c, x: (c + x, 2 * x), 1.5, jnp.ones(0), engine=engine)
    assert (last, ys.shape) == (1.5, (0,))
    last, ys = jq.fused.scan(lambda c, x: (c, c), 1.5, length=0, engine=engine)
    assert (last, ys.shape) == (1.5, (0,))
    assert jq.fused.scan(lambda c, x: ((), None), (), jnp.ones(3), engine=engine) == ((), None)


def test_many_tangents_of_a_large_step_are_no_kernel(monkeypatch):
    monkeypatch.setattr("jaxquat.fused.lowering.OPERATIONS", 10)
    both = [jax.jit(jax.jacfwd(loss(by(engine)))) for engine in ("auto", "fused")]
    calls = [f.lower(*ARGUMENTS).as_text().count("custom_call") for f in both]
    assert calls[0] == 0
    assert calls[1] > 0
    slopes = [float(f(*ARGUMENTS)) for f in both]
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-11)


def test_checkpoint_keeps_the_value_of_a_gradient_whose_cotangent_is_constant():
    """Three steps c -> p c from 1 end at p^3, with the derivatives 27 and 18 at p = 3."""
    end = lambda p: jq.fused.scan(lambda c, _: (p * c, None), 1.0, length=3, engine="fused")[0]
    assert jax.value_and_grad(jax.checkpoint(jax.grad(end)))(3.0) == (27.0, 18.0)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning")
def test_arrays_of_two_precisions_without_float64_are_left_to_the_scan():
    """One was made while JAX had float64, and is closed over when it has not."""
    with jax.enable_x64(True):
        wide = jnp.array([0.1, 0.2, 0.3], jnp.float64)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        narrow = lambda x: x.astype(jnp.float32)
        step = lambda c, _: (narrow(c * 0.5 + narrow(jnp.outer(wide, c) @ wide)), c)
        by = lambda engine: jax.jit(jax.grad(lambda x: jnp.sum(
            jq.fused.scan(step, x, length=3, engine=engine)[0])))  # fmt: skip
        x = jnp.ones(3, jnp.float32)
        np.testing.assert_allclose(by("auto")(x), by("scan")(x), rtol=1e-6)
        with pytest.raises(NotImplementedError, match="float32 and float64 without jax_enable_x64"):
            by("fused")(x)


def test_the_function_is_traced_once():
    """A trace of a long step takes longer than all that is done with it."""
    traces = []

    def step(x, force):
        traces.append(x)
        return x + force, x

    jax.jit(lambda x: jq.fused.scan(step, x, jnp.arange(3.0)))(jnp.zeros(()))
    assert len(traces) == 1
