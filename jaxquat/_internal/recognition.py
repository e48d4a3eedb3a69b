"""Recognise a function that was traced before, so that it is not compiled again.

A Python function says nothing about the numbers that it closes over. So it is traced at each call,
in milliseconds, and compared with earlier ones. Equal programs are one object for ``jax.jit``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from jaxquat._internal.checks import is_key
from jaxquat._internal.jaxprs import closed_jaxpr, equations, nested

MOST = 64  # programs that are remembered, with all that was compiled for them
# Types of values with which functions of JAX work, but which they do not compute with.
_SCRATCH = ("Store", "EqualStore", "DynamicJaxprTrace", "object")
# Packages whose values do not change.
_TRUSTED = ("builtins", "numpy", "jax", "jaxlib", "jaxquat", "ml_dtypes")

_known: list[tuple[Any, TracedFunction]] = []  # the one used last stands last
_lock = threading.Lock()


class TracedFunction:
    """A traced ``function(floats, others, *arguments)`` of the arrays that it closed over."""

    def __init__(self, closed: Any, structure: Any) -> None:
        self.closed, self.structure = closed, structure
        self._jitted: dict[Any, Any] = {}

    def __call__(self, floats: list[Any], others: list[Any], *arguments: Any) -> Any:
        variables = self.closed.jaxpr.invars[len(floats) :]
        others = [_with_key(x, v) for x, v in zip(others, variables, strict=False)]
        results = jaxpr_as_fun(self.closed)(*floats, *others, *jax.tree.leaves(arguments))
        return jax.tree.unflatten(self.structure, results)

    def jitted(self, function: Callable[..., Any], *statics: Any) -> Callable[..., Any]:
        """Return ``jax.jit`` of a function with its first arguments, one object for equal ones."""
        # It is kept here, not by ``static_argnums``, so that it can be forgotten.
        with _lock:
            found = self._jitted.pop((function, statics), None)
            found = found or jax.jit(functools.partial(function, *statics))
            self._jitted[function, statics] = found  # the one used last stands last
            for key in list(self._jitted)[:-MOST]:
                del self._jitted[key]
        return found

    def forget(self) -> None:
        """Drop what was compiled; JAX keeps the program itself in its caches."""
        self._jitted.clear()


def _with_key(x: Any, variable: Any) -> Any:
    """Return the words of a key as the key that a variable stands for."""
    aval = variable.aval
    return jax.random.wrap_key_data(x, impl=aval.dtype._impl) if is_key(aval) else x


def traced(
    function: Callable[..., Any], *examples: Any
) -> tuple[TracedFunction, list[Any], list[Any]]:
    """Return a function traced for such arguments, and what it closes over: floats, and others."""
    # Known integers and booleans remain part of it, as they may be indices.
    # JAX keeps the trace of a function object, which may now close over other numbers.
    anew = lambda *arguments: function(*arguments)  # noqa: E731
    closed, shape = jax.make_jaxpr(anew, return_shape=True)(*examples)
    jaxpr, pairs = closed.jaxpr, list(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    floats = {v: x for v, x in pairs if jnp.issubdtype(v.aval.dtype, jnp.inexact)}
    others = {v: x for v, x in pairs if v not in floats and (isinstance(x, Tracer) or is_key(x))}
    # NumPy's arrays may change.
    copied = lambda x: np.array(x) if isinstance(x, np.ndarray) else x  # noqa: E731
    fixed = {v: copied(x) for v, x in pairs if v not in floats and v not in others}
    others = {v: jax.random.key_data(x) if is_key(x) else x for v, x in others.items()}
    inputs = [*floats, *others, *jaxpr.invars]
    lifted = closed_jaxpr(closed, inputs, jaxpr.outvars, jaxpr.eqns, fixed)
    new = TracedFunction(lifted, jax.tree.structure(shape))
    if not any(_may_change(e) for e in equations(lifted)):
        new = _first_of_its_kind(new)
    return new, list(floats.values()), list(others.values())


def _may_change(equation: Any) -> bool:
    """Return whether an equation holds a NumPy array of the caller, which may change later."""
    values = [*equation.params.values(), *(getattr(v, "val", None) for v in equation.invars)]
    for inner in nested(equation):
        values += getattr(inner, "consts", ())
    return any(isinstance(x, np.ndarray) and x.ndim > 0 for x in jax.tree.leaves(values))


def is_eager() -> bool:
    """Return whether operations run now, instead of being traced for a function to compile."""
    return not isinstance(jnp.zeros(()), Tracer)


def _first_of_its_kind(new: TracedFunction) -> TracedFunction:
    names = tuple(equation.primitive.name for equation in new.closed.jaxpr.eqns)
    key = new.structure, tuple(new.closed.in_avals), names
    with _lock:
        for k, (other, old) in enumerate(_known):
            if other == key and _alike(old.closed, new.closed):
                _known.append(_known.pop(k))
                return old
        _known.append((key, new))
        for _, old in _known[:-MOST]:
            old.forget()
        del _known[:-MOST]
        return new


def _alike(one: Any, other: Any) -> bool:
    """Return whether two values are equal; where it is not known, they are not."""
    # The same object is not enough: it may have changed since.
    if type(one) is not type(other):
        return False
    if isinstance(one, FunctionType):
        return _same_code(one, other)
    if hasattr(one, "eqns") or hasattr(one, "consts"):  # a jaxpr, closed or, from jax 0.12 on, both
        consts = [list(getattr(x, "consts", ())) for x in (one, other)]
        jaxprs = [getattr(x, "jaxpr", x) for x in (one, other)]
        return _alike(*consts) and _same_equations(*jaxprs)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_alike(one[k], other[k]) for k in one)
    if type(one).__module__.split(".")[0] not in _TRUSTED:
        return False
    if type(one).__name__ in _SCRATCH:
        return True
    if hasattr(one, "transforms"):  # a rule of a custom derivative, as JAX keeps it
        return _alike(*([f.f, f.transforms, f.params] for f in (one, other)))
    return _equal(one, other)


def _equal(one: Any, other: Any) -> bool:
    """Return whether two numbers, arrays or objects of the same type are equal, to the bit."""
    if isinstance(one, np.ndarray | np.generic):
        same = one.dtype == other.dtype and one.shape == other.shape
        return same and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return np.float64(one).tobytes() == np.float64(other).tobytes()
    try:
        if isinstance(one, Array) and not isinstance(one, Tracer):
            return one.aval == other.aval and np.array_equal(np.asarray(one), np.asarray(other))
        return bool(one == other)
    except Exception:  # a comparison of its own, or keys
        return False


def _same_equations(one: Any, other: Any) -> bool:
    names: dict[Any, Any] = {}

    def bind(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
        names.update(zip(ours, theirs, strict=False))
        return len(ours) == len(theirs) and all(
            x.aval == y.aval for x, y in zip(ours, theirs, strict=True)
        )

    def read(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
        def equal(x: Any, y: Any) -> bool:
            if hasattr(x, "val") or hasattr(y, "val"):
                both = hasattr(x, "val") and hasattr(y, "val")
                return both and x.aval == y.aval and _alike(x.val, y.val)
            return names.get(x) is y

        return len(ours) == len(theirs) and all(map(equal, ours, theirs))

    if not bind([*one.constvars, *one.invars], [*other.constvars, *other.invars]):
        return False
    if len(one.eqns) != len(other.eqns):
        return False
    for a, b in zip(one.eqns, other.eqns, strict=True):
        same = a.primitive is b.primitive and a.effects == b.effects
        same = same and read(a.invars, b.invars) and _alike(dict(a.params), dict(b.params))
        if not (same and bind(a.outvars, b.outvars)):
            return False
    return read(one.outvars, other.outvars)


def _same_code(one: Any, other: Any) -> bool:
    """Return whether two functions of JAX or of this library, rules of derivatives, are equal."""
    # What another rule computes is only known when it is traced, so others count as different.
    if one.__code__ is not other.__code__ or one.__globals__ is not other.__globals__:
        return False
    if one.__module__.split(".")[0] not in ("jax", "jaxquat"):
        return False
    cells = [[c.cell_contents for c in f.__closure__ or ()] for f in (one, other)]
    # a dict is a memo
    return _alike(*([x for x in values if not isinstance(x, dict)] for values in cells))
