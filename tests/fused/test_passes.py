"""The passes from jaxpr to jaxpr, each against what JAX computes of the same function."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from jaxquat._internal.branches import branched, rarely
from jaxquat._internal.jaxprs import equations
from jaxquat.fused import passes
from jaxquat.fused.trace.hoisting import hoist, shared

X, Y = jnp.array([0.3, -0.7, 1.1]), jnp.array([2.0, 0.5, -1.0])


def names(closed):
    return [equation.primitive.name for equation in equations(closed)]


def long_function(table, x, y):
    """Long enough to stay a call, and not the same by x as by y."""
    for k in range(60):
        x = jnp.sin(x) * table[k % 3] + jnp.cos(2.0 * y)
    return x, table * y


def test_a_hoisted_function_is_the_function_of_what_it_closes_over():
    matrix = jnp.diag(jnp.array([1.0, 2.0, 4.0]))
    index = np.array([2, 0, 1])

    def function(scale):
        return jax.make_jaxpr(lambda x: jnp.linalg.inv(scale * matrix) @ x[index] + jnp.arange(3.0))

    rest, fixed = hoist(function(3.0)(X))
    assert [x.shape for x in fixed] == [(3, 3)]  # the inverse; indices and arange are literals
    assert names(rest).count("dot_general") == 1
    wanted = jnp.linalg.inv(3.0 * matrix) @ X[index] + jnp.arange(3.0)
    np.testing.assert_allclose(jaxpr_as_fun(rest)(*fixed, X)[0], wanted, rtol=1e-14)

    def by_scale(scale):
        rest, fixed = hoist(function(scale)(X))
        return jaxpr_as_fun(rest)(*fixed, X)[0].sum()

    slope = jax.grad(by_scale)(3.0)
    np.testing.assert_allclose(slope, -(jnp.linalg.inv(matrix) @ X[index]).sum() / 9, rtol=1e-13)


def test_what_is_fixed_is_computed_once_however_often_it_stands_there():
    gain = jnp.array(0.7)
    closed = jax.make_jaxpr(lambda x: jnp.exp(gain) * x + jnp.cos(jnp.exp(gain)) * x)(X)
    rest, fixed = hoist(closed)
    assert len(fixed) == 2
    assert "exp" not in names(rest)
    np.testing.assert_allclose(jaxpr_as_fun(rest)(*fixed, X)[0], jaxpr_as_fun(closed)(X)[0])


def test_what_is_fixed_is_shared_by_equal_numbers_alone():
    """Those of the program, and those that the calls of one function are given."""
    gain = jnp.array(0.7)
    scaled = shared(lambda x, n: n * gain * x)
    closed = jax.make_jaxpr(lambda x: 2.0 * gain * x + 3.0 * gain + scaled(x, 5.0) + scaled(x, 7.0))
    rest, fixed = hoist(closed(X))
    np.testing.assert_allclose(sorted(map(float, fixed)), [1.4, 2.1, 3.5, 4.9], rtol=1e-15)
    np.testing.assert_allclose(jaxpr_as_fun(rest)(*fixed, X)[0], 9.8 * X + 2.1, rtol=1e-14)


def test_a_long_function_is_one_callee_for_all_its_calls():
    """Its arguments may be the same twice, or fixed; its results may be fixed too."""
    table = jnp.array([0.2, 0.3, 0.4])
    call = jax.jit(functools.partial(long_function, table))

    def function(x, y):
        first, fixed = call(x, table)
        second, moved = call(x, y)
        third, _ = call(y, y)
        return first, fixed, second, moved, third, call(y, 2.0 * table)[0]

    closed = jax.make_jaxpr(function)(X, Y)
    rest, fixed = hoist(closed)
    callees = [e.params["jaxpr"] for e in rest.jaxpr.eqns if e.primitive.name == "jit"]
    assert (len(callees), len({id(x) for x in callees})) == (4, 3)  # by y, by table, by 2 table
    got, wanted = jaxpr_as_fun(rest)(*fixed, X, Y), jaxpr_as_fun(closed)(X, Y)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_a_rule_closes_over_has_no_derivative():
    """As in the scan, where JAX refuses it."""
    gain = jnp.array(2.0)

    @jax.custom_vjp
    def scaled(x):
        return gain * x

    scaled.defvjp(lambda x: (gain * x, gain), lambda gain, c: (3.0 * c,))
    rest, fixed = hoist(jax.make_jaxpr(scaled)(X))
    total = lambda gain, x: jaxpr_as_fun(rest)(gain, x)[0].sum()
    by_gain, by_x = jax.grad(total, (0, 1))(*fixed, X)
    np.testing.assert_array_equal(by_x, [3.0, 3.0, 3.0])
    assert by_gain == 0.0


def test_a_rare_branch_becomes_a_cond_that_computes_one_side():
    def function(x):
        reduced = lambda x: (jnp.arctan(x),)
        first = rarely(reduced, x > 1.0, (x,), x)[0]
        return first * rarely(reduced, x > 2.0, (x,), x)[0]

    closed = jax.make_jaxpr(function)(1.5)
    parts = branched(closed)
    assert names(parts).count("cond") == 2
    assert "cond" not in names(closed)
    assert branched(parts) is not closed
    for x in (0.5, 1.5, 2.5):
        got, wanted = jaxpr_as_fun(parts)(x)[0], jaxpr_as_fun(closed)(x)[0]
        np.testing.assert_allclose(got, wanted, rtol=1e-15)
    plain = jax.make_jaxpr(jnp.sin)(1.0)
    assert branched(plain) is plain


def test_a_choice_within_a_rare_branch_remains():
    """The condition of the branch is known in it, and no other."""

    def function(x):
        chosen = lambda x: (jax.lax.select(x > 3.0, 10.0 * x, -x),)
        return rarely(chosen, x > 1.0, (x,), x)[0]

    parts = jaxpr_as_fun(branched(jax.make_jaxpr(function)(1.5)))
    assert [float(*parts(x)) for x in (0.5, 2.0, 4.0)] == [0.5, -2.0, 40.0]


def triple(x, n, y):
    return x * jnp.sin(y), n + 1, (x @ y) ** 2 / y


def test_the_passes_of_derivatives_are_those_of_jax():
    closed = jax.make_jaxpr(triple)(X, 3, Y)
    (dx, dy), cotangents = (0.1 * Y, X * X), (Y - X, X + 2.0)
    both = passes.jvp(closed, moving=[0, 2], results=[0, 2], count=2)
    got = jaxpr_as_fun(both)(X, 3, Y, jnp.stack([dx, Y]), jnp.stack([dy, X]))
    smooth = lambda x, y: (triple(x, 3, y)[0], triple(x, 3, y)[2])
    values, slopes = jax.jvp(smooth, (X, Y), (dx, dy))
    for a, b in zip((got[0], got[2], got[3][0], got[4][0]), (*values, *slopes), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)
    assert got[1] == 4
    back = jaxpr_as_fun(passes.vjp(closed, live=[0, 2]))(X, 3, Y, *cotangents)
    for a, b in zip(back, jax.vjp(smooth, X, Y)[1](cotangents), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_inputs_and_outputs_in_another_order():
    closed = jax.make_jaxpr(triple)(X, 3, Y)
    spec = jax.ShapeDtypeStruct((2,), jnp.float32)
    other = passes.arranged(closed, [2, spec, 0, 1], [1, 0])
    assert other.in_avals[1].dtype == jnp.float32
    count, product = jaxpr_as_fun(other)(Y, jnp.ones(2, jnp.float32), X, 3)
    assert count == 4
    np.testing.assert_array_equal(product, triple(X, 3, Y)[0])
