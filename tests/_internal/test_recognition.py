"""A function traced again is recognised if, and only if, it computes the same."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxquat._internal.recognition import traced

X = np.array([1.0, 2.0, 3.0], np.float32)
FACTOR = 2.0


def doubled(rule):
    """A function with this derivative."""
    function = jax.custom_jvp(lambda x: 2.0 * x)
    function.defjvp(rule)
    return function


def honest(primals, tangents):
    return 2.0 * primals[0], 2.0 * tangents[0]


def from_a_variable(primals, tangents):
    return 2.0 * primals[0], FACTOR * tangents[0]


def closing_over(factor):
    return lambda primals, tangents: (2.0 * primals[0], factor * tangents[0])


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def steep(slope, x):
    return 1.0 * x


@steep.defjvp
def _steep_jvp(slope, primals, tangents):
    return 1.0 * primals[0], slope * tangents[0]


def scaled(factor):
    return lambda x: factor * x


def alike(one, other, *arguments):
    return traced(one, *arguments)[0] is traced(other, *arguments)[0]


SAME = {
    "equations": lambda: lambda x: jnp.sin(x) + 1.0,
    "float array": lambda: lambda x: x * jnp.arange(3.0, dtype=X.dtype),
    "index": lambda: lambda x: x[np.array([0, 2])],
    "index on the device": lambda: lambda x: x[jnp.array([0, 2])],
    "NaN": lambda: lambda x: jnp.where(x > 0, jnp.nan, x),
    "branch": lambda: lambda x: jax.lax.cond(x[0] > 0, lambda: x, lambda: 2 * x),
    "loop": lambda: lambda x: jax.lax.while_loop(lambda c: c[0] < 3, lambda c: c + 1, x),
    "call": lambda: jax.jit(lambda x: jnp.cos(x)),
    "rule of JAX": lambda: lambda x: jax.nn.relu(x),
}


@pytest.mark.parametrize("kind", SAME)
def test_the_same_function_is_recognised(kind):
    assert alike(SAME[kind](), SAME[kind](), X)


def test_it_is_recognised_after_it_was_differentiated():
    """JAX keeps results of the rule in the equation."""
    function, _, _ = traced(SAME["rule of JAX"](), X)
    jax.jacobian(lambda x: function([], [], x))(X)
    assert traced(SAME["rule of JAX"](), X)[0] is function


OTHER = {
    "number": (lambda x: 2.0 * x, lambda x: 2.5 * x),
    "zero of other sign": (lambda x: x + 0.0, lambda x: x + -0.0),
    "order": (lambda x: x - jnp.sin(x), lambda x: jnp.sin(x) - x),
    "result": (lambda x: (x, x + 1.0), lambda x: (x + 1.0, x)),
    "structure": (lambda x: (x, x), lambda x: [x, x]),
    "index": (lambda x: x[np.array([0, 2])], lambda x: x[np.array([0, 1])]),
    "index on the device": (lambda x: x[jnp.array([0, 2])], lambda x: x[jnp.array([0, 1])]),
    "branch": tuple(
        lambda x, a=a: jax.lax.cond(x[0] > 0, lambda: x, lambda: a * x) for a in (2.0, 3.0)
    ),
    "callback": tuple(lambda x, f=f: jax.pure_callback(f, x, x) for f in (np.sin, np.cos)),
    "rule of a user": (lambda x: doubled(honest)(x), lambda x: doubled(honest)(x)),
    "rule": (doubled(honest), doubled(lambda p, t: (2.0 * p[0], 9.0 * t[0]))),
    "closure of a rule": (doubled(closing_over(2.0)), doubled(closing_over(3.0))),
    "argument of a rule": (lambda x: steep(2.0, x), lambda x: steep(3.0, x)),
}


@pytest.mark.parametrize("kind", OTHER)
def test_another_function_is_not(kind):
    assert not alike(*OTHER[kind], X)


def test_arguments_of_other_types_make_another_function():
    function = scaled(2.0)
    assert traced(function, X)[0] is not traced(function, X[:2])[0]
    assert traced(function, X)[0] is not traced(function, X.astype(np.float16))[0]


def test_a_rule_that_reads_a_variable_of_its_module_is_never_recognised(monkeypatch):
    function = doubled(from_a_variable)
    before, _, _ = traced(function, X)
    monkeypatch.setitem(globals(), "FACTOR", 7.0)
    assert traced(function, X)[0] is not before


def test_arrays_are_arguments():
    """Floats may be differentiated; keys and traced integers are others."""
    matrix, key = jnp.arange(9.0, dtype=X.dtype).reshape(3, 3), jax.random.key(1)

    def value(n):
        def function(x):
            return matrix @ x + jax.random.normal(key, (3,), X.dtype) + n.astype(X.dtype)

        known, floats, others = traced(function, X)
        assert [x.shape for x in floats] == [(3, 3)]
        assert len(others) == 2
        return known(floats, others, X), function(X)

    np.testing.assert_array_equal(*jax.jit(value)(3))


def test_a_closure_that_changed_is_traced_anew():
    factor = 2.0

    def function(x):
        return factor * x

    before, _, _ = traced(function, X)
    factor = 3.0
    assert traced(function, X)[0] is not before
    factor = 2.0
    assert traced(function, X)[0] is before


class Factor:
    """An object with a rule, whose number may change."""

    def __init__(self, factor):
        self.factor = factor

    def rule(self, primals, tangents):
        return 2.0 * primals[0], self.factor * tangents[0]


def test_methods_as_rules_are_never_recognised():
    function = lambda factor: lambda x: doubled(Factor(factor).rule)(x)
    assert not alike(function(2.0), function(3.0), X)


CHANGED = {
    "mask": (np.array([True, True, False]), lambda m: lambda x: jnp.where(m, x, 0.0)),
    "index": (np.array([0, 1]), lambda m: lambda x: x[m]),
    "mask within a call": (
        np.array([True, True, False]),
        lambda m: lambda x: jax.jit(lambda x: jnp.where(m, x, 0.0))(x),
    ),
    "floats within a call": (X.copy(), lambda m: lambda x: jax.jit(lambda x: m * x)(x)),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_an_array_that_changes_in_place_makes_another_function(kind):
    array, make = CHANGED[kind]
    before, floats, _ = traced(make(array), X)
    value = np.asarray(before(floats, [], X))
    array[0] = 0 if array.dtype == bool else 2
    after, floats, _ = traced(make(array), X)
    assert after is not before
    np.testing.assert_array_equal(after(floats, [], X), make(array)(X))
    assert not np.array_equal(value, after(floats, [], X))


def test_keys_are_arguments_in_a_compiled_function_too():
    key = jax.random.key(3)
    function = lambda x: x + jax.random.normal(key, (3,), X.dtype)
    known, floats, others = traced(function, X)
    np.testing.assert_allclose(jax.jit(known)(floats, others, X), function(X), rtol=1e-6)


def test_what_was_compiled_is_forgotten_with_the_oldest_programs(monkeypatch):
    monkeypatch.setattr("jaxquat._internal.recognition.MOST", 2)
    first, _, _ = traced(lambda x: x + 1.5, X)
    add = lambda number, x: x + number
    kept = first.jitted(add, 1)
    assert first.jitted(add, 1) is kept
    first.jitted(add, 2), first.jitted(add, 3)
    assert first.jitted(add, 1) is not kept
    kept = first.jitted(add, 1)
    for factor in (3.25, 3.5):
        traced(scaled(factor), X)
    assert traced(lambda x: x + 1.5, X)[0] is not first
    assert first.jitted(add, 1) is not kept
