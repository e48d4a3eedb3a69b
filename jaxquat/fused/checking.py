"""For a fused loop, ``checkify`` reports the errors of the scan.

A kernel is opaque to ``checkify``. So where automatic checks of JAX's operations are requested, the
program of the scan runs in its place, as one ``jit``. Checks that the user calls are effects, which
a kernel never has.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax.experimental import checkify
from jax.extend.core import Primitive

try:
    from jax._src.checkify import error_checks  # there is no public way to add a rule
except ImportError:  # then no errors of a kernel are reported
    error_checks: dict[Any, Any] = {}


def report(primitive: Primitive, program: Callable[..., list[Array]]) -> None:
    """Let ``checkify`` report the errors of a program that computes the results of a primitive."""

    def rule(*arguments: Any, **params: Any) -> Any:
        """Map (error, enabled errors, *operands) to (error, results); jax 0.12 adds a context."""
        first = len(arguments) - len(params["batched"])
        (*_, error, enabled), operands = arguments[:first], arguments[first:]
        if set(enabled) <= set(checkify.user_checks):
            return error, primitive.bind(*operands, **params)
        jitted = jax.jit(lambda *operands: program(*operands, **params))
        (call,) = jax.make_jaxpr(jitted)(*operands).eqns
        return error_checks[call.primitive](*arguments, **call.params)

    error_checks[primitive] = rule
