"""What ``checkify`` reports of a fused rollout: what it reports of the scan.

A kernel is opaque to ``checkify.checkify(f, errors=checkify.float_checks)``. So where errors are
asked for that JAX's operations report themselves, the program of the scan runs in its place, as one
``jit``, for which ``checkify`` has a rule. Checks that the user calls are effects, which a kernel
never has.
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
except ImportError:  # then nothing is reported of a kernel
    error_checks: dict[Any, Any] = {}


def report(primitive: Primitive, program: Callable[..., list[Array]]) -> None:
    """Let ``checkify`` report the errors of a program, which has the results of the primitive."""

    def rule(*arguments: Any, **params: Any) -> Any:
        """(error, results) of (error, enabled errors, *operands), in jax 0.12 after a context."""
        first = len(arguments) - len(params["batched"])
        (*_, error, enabled), operands = arguments[:first], arguments[first:]
        if set(enabled) <= set(checkify.user_checks):
            return error, primitive.bind(*operands, **params)
        whole = jax.jit(lambda *operands: program(*operands, **params))
        (call,) = jax.make_jaxpr(whole)(*operands).eqns
        return error_checks[call.primitive](*arguments, **call.params)

    error_checks[primitive] = rule
