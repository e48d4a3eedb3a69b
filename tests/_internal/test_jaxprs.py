"""``depends_on`` finds which outputs depend on an input, and no more than these.

It looks through calls, branches and loops.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxquat._internal.jaxprs import depends_on

X, Y = jnp.array([0.3, -0.2]), jnp.array([1.0, 2.0])


def found(function):
    """Says for each output of ``function(x, y)`` whether it depends on x."""
    return depends_on(jax.make_jaxpr(function)(X, Y), [True, False])


@jax.custom_jvp
def product(x, y):
    return y * 2.0, x * y


@product.defjvp
def _(primals, tangents):
    return product(*primals), product(*tangents)


@jax.custom_vjp
def pulled(x, y):
    return y * 2.0, x * y


pulled.defvjp(lambda x, y: (pulled(x, y), None), lambda _, bars: (bars[0], bars[1]))


def swap(carry, _):
    return (carry[1], carry[0]), carry[1]


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x, y: (y, x, 1.0), [False, True, False]),
        (lambda x, y: (y + 0.0 * x, jnp.sin(y)), [True, False]),
        (
            lambda x, y: (jnp.sum(x * y) * 0.0 if False else jnp.sum(y), lax.stop_gradient(x)),
            [False, True],
        ),
        # calls
        (jax.jit(lambda x, y: (y * 2.0, x * y)), [False, True]),
        (jax.checkpoint(lambda x, y: (y * 2.0, x * y)), [False, True]),
        (jax.jit(jax.checkpoint(jax.jit(lambda x, y: (y * 2.0, x * y)))), [False, True]),
        (product, [False, True]),
        (pulled, [False, True]),
        (jax.vmap(lambda x, y: (y * 2.0, x * y)), [False, True]),
        (lambda x, y: jax.jvp(lambda y: y * 2.0, (y,), (x,)), [False, True]),
        # branches: each output depends on its own operands, and all depend on the index
        (
            lambda x, y: lax.cond(y[0] > 0, lambda x, y: (y, x), lambda x, y: (2.0 * y, y), x, y),
            [False, True],
        ),
        (
            lambda x, y: lax.cond(x[0] > 0, lambda y: (y, y), lambda y: (2.0 * y, -y), y),
            [True, True],
        ),
        (
            lambda x, y: lax.switch(
                2, [lambda x, y: y, lambda x, y: -y, lambda x, y: 2.0 * y], x, y
            ),
            [False],
        ),
        # loops: x reaches the first carried value in the second turn
        (lambda x, y: lax.scan(swap, (y, x), None, length=3), [True, True, True]),
        (
            lambda x, y: lax.scan(lambda c, _: ((c[0], c[0] + c[1]), c[0]), (y, x), None, length=3),
            [False, True, False],
        ),
        (lambda x, y: lax.scan(lambda c, row: (c + row[1], row[0]), 0.0, (x, y)), [False, True]),
        (
            lambda x, y: lax.fori_loop(0, 3, lambda k, c: (c[0] * 2.0, c[1] + c[0]), (y, x)),
            [False, True],
        ),
        (
            lambda x, y: lax.fori_loop(0, 3, lambda k, c: (c[1], c[2], c[0]), (y, y, x)),
            [True, True, True],
        ),
        (
            lambda x, y: lax.while_loop(
                lambda c: c[0] < 5.0, lambda c: (c[0] + 1.0, 2.0 * c[1]), (x[0], y)
            ),
            [True, True],
        ),
        (
            lambda x, y: lax.while_loop(
                lambda c: c[0] < x[0], lambda c: (c[0] + 1.0, 2.0 * c[1]), (y[0], y)
            ),
            [True, True],
        ),
        (
            lambda x, y: lax.while_loop(lambda c: c[0] < 5.0, lambda c: (c[0] + 1.0, x), (y[0], y)),
            [False, True],
        ),
        # any other primitive
        (lambda x, y: jnp.linalg.eigh(jnp.outer(y, y) + x[:, None]), [True, True]),
        (
            lambda x, y: lax.reduce((x, y), (0.0, 0.0), lambda a, b: (a[0], b[1]), (0,)),
            [True, True],
        ),
    ],
)
def test_an_output_depends_on_what_it_is_made_of(function, wanted):
    assert found(function) == wanted


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x, y: (y * lax.stop_gradient(x), jnp.sin(x) + y), [False, True]),
        (lambda x, y: (jnp.round(x) + y, jnp.floor(x) * x), [False, True]),
        (lambda x, y: (y[jnp.argmax(x)], jnp.where(x > 0, y, 2.0 * y)), [False, False]),
        (lambda x, y: x.astype(int).astype(float) + y, [False]),
        (
            lambda x, y: lax.cond(x[0] > 0, lambda y: (y, y), lambda y: (2.0 * y, -y), y),
            [False] * 2,
        ),
        (
            lambda x, y: lax.while_loop(
                lambda c: c[0] < 5.0, lambda c: (c[0] + 1.0, 2.0 * c[1]), (x[0], y)
            ),
            [True, False],
        ),
        (
            lambda x, y: lax.scan(
                lambda c, _: ((c[1], lax.stop_gradient(c[0])), c[1]), (y, x), None, length=3
            ),
            [True, True, True],  # x may be there at once, without a turn
        ),
        (jax.jit(jax.checkpoint(lambda x, y: (y + lax.stop_gradient(x), x * y))), [False, True]),
        (product, [True, True]),
        (pulled, [True, True]),
    ],
)
def test_an_output_has_a_derivative_by_what_it_follows_smoothly(function, wanted):
    """A custom derivative may be by anything; no other is wrongly there or wrongly zero."""
    traced = jax.make_jaxpr(function)(X, Y)
    assert depends_on(traced, [True, False], slope=True) == wanted
    derivatives = (
        jax.tree.leaves(jax.jit(jax.jacfwd(function))(X, Y)) if function is not pulled else []
    )
    for there, derivative in zip(wanted, derivatives, strict=False):
        assert there or not np.any(derivative)


def test_nested_loops_are_followed_to_the_end():
    """Every turn moves the carried values one place to the front.

    x is the fourth: it reaches all before it and none behind.
    """

    def turn(carry, _):
        return (*carry[1:], carry[-1]), None

    def inner(carry, _):
        return lax.scan(turn, carry, None, length=1)

    wanted = [True, True, True, True, False]
    assert found(lambda x, y: inner((y, y, y, x, y), None)[0]) == wanted
    assert found(lambda x, y: lax.scan(inner, (y, y, y, x, y), None, length=4)[0]) == wanted
