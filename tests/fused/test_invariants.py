"""A loop in a kernel computes once what does not change from trip to trip."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from as_scalars import evaluate

from jaxquat._internal.branches import branched, rarely
from jaxquat.fused.ir.expansion import contracted
from jaxquat.fused.ir.invariants import apart
from jaxquat.fused.trace import calls
from jaxquat.fused.trace.tracing import program_of

ROWS = np.linspace(-1.0, 2.0, 12).reshape(4, 3)


@jax.jit
def long(x, d):
    """A function of two results, the first of which does not depend on d."""
    for _ in range(calls.LONG // 4):
        x, d = x * x + x, x * d - d
    return x, d


def reduced(x, d):
    return jnp.exp(jnp.sin(jnp.sinh(x))) * jnp.tanh(x) / (1.0 + x * x), jnp.cosh(x) * d


def scanned(x):
    """A tangent pushed along rows: through numbers, a function of two calls, and two branches."""

    def along(total, row):
        a, da = jnp.sin(x) * x, jnp.cos(x) * row[0]
        b, db = long(a, da)
        c, dc = long(b, db)
        e, de = rarely(reduced, c > 0.5, (c, dc), c, dc)
        f, df = jax.lax.cond(c < 1.0, reduced, lambda x, d: (x, 2.0 * d), e, de)
        return total + f * df, (f, df + row[1] + total, row[2])

    return jax.lax.scan(along, jnp.zeros_like(x), ROWS.astype(x.dtype))


def programs(x):
    closed = branched(jax.make_jaxpr(scanned)(x))
    return program_of(closed, loops=calls.LONG), program_of(closed)


@pytest.mark.parametrize("x", [0.1, 0.7, -1.3])
def test_the_loop_gives_the_numbers_of_the_unrolled_one(x):
    x = jnp.float64(x)
    kept, unrolled = (np.ravel(evaluate(program, [x])) for program in programs(x))
    np.testing.assert_array_equal(kept, unrolled)
    wanted = np.concatenate([np.ravel(y) for y in jax.tree.leaves(scanned(x))])
    np.testing.assert_allclose(kept, wanted, rtol=1e-13)


def test_what_does_not_change_stands_before_the_loop():
    kept, _ = programs(jnp.float32(0.7))
    (loop,) = (r for r in kept.routines() if r.trips == 4)
    body = loop.program.counts()
    assert not {"sin", "cos", "tanh"} & set(body), body  # of x alone
    assert body["mul"] < 4 * calls.LONG  # the tangents of 2 long functions and little else
    assert {"sin", "cos", "tanh"} < set(kept.counts())


def test_a_row_that_does_not_change_is_repeated():
    def constant(x):
        return jax.lax.scan(
            lambda _, row: ((), (long(x, x)[0], row)), (), ROWS[:, 0].astype(x.dtype)
        )[1]

    program = program_of(jax.make_jaxpr(constant)(jnp.float32(0.3)), loops=calls.LONG)
    results = evaluate(program, [jnp.float32(0.3)])
    np.testing.assert_array_equal(results[:4], np.full(4, long(*2 * [jnp.float32(0.3)])[0]))
    np.testing.assert_array_equal(results[4:], ROWS[:, 0].astype(np.float32))


def test_a_product_that_is_only_added_is_rounded_with_the_sum_as_in_the_unrolled_loop():
    def turned(x):
        sine, cosine = jnp.sin(x), jnp.cos(x)
        trip = lambda d, _: (sine * cosine - d * 0.4 + (sine * sine) * d, None)
        return jax.lax.scan(trip, x, None, 200)[0]

    closed = jax.make_jaxpr(turned)(jnp.float32(0.7))
    kept, unrolled = (contracted(program_of(closed, loops=x)) for x in (calls.LONG, np.inf))
    assert [r.trips for r in kept.routines()] == [200]
    assert kept.counts() == unrolled.counts()
    assert kept.counts()["fma"] == 400


def test_results_of_no_numbers_come_from_a_loop_that_is_kept():
    def decay(x):
        trip = lambda d, _: (d * 0.9 + x, jnp.zeros((0, 2), x.dtype))
        return jax.lax.scan(trip, x, None, 400)

    program = program_of(jax.make_jaxpr(decay)(jnp.float32(0.3)), loops=calls.LONG)
    assert any(r.trips == 400 for r in program.routines())
    assert len(program.outputs) == 1


def test_what_depends_on_the_constants_alone_is_a_program_of_its_own():
    """Three of ten operations; the product of constants stays, for the sum that it is part of."""

    def step(a, b, k, x):
        return jnp.sin(a) / b * x + a * b + k * jnp.cos(x), x

    a, b, k, x = map(jnp.float32, (0.7, -1.3, 2.0, 0.4))
    program = program_of(jax.make_jaxpr(step)(a, b, k, x))
    before, rest = apart(program, 2)
    assert set(before.counts()) == {"sin", "div"}
    assert not {"sin", "div"} & set(rest.counts())
    found = evaluate(rest, [*evaluate(before, [a, b]), k, x])
    np.testing.assert_array_equal(found, evaluate(program, [a, b, k, x]))
    both = contracted(rest), contracted(program)
    assert [p.counts().get("fma") for p in both] == [2, 2]  # so the bits are the same
    assert apart(program, 0) is None


def test_few_operations_on_constants_stay_in_the_steps():
    def step(a, x):
        return jnp.sin(a) * sum(jnp.sin(x + n) for n in range(20))

    program = program_of(jax.make_jaxpr(step)(*map(jnp.float32, (0.7, 0.4))))
    assert apart(program, 1) is None
