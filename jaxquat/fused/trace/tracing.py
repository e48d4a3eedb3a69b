"""From a traced function to a scalar program: every array dissolves into its scalars.

``Tracing.run`` walks through the equations of a jaxpr. Each variable has an array of scalars
(``Values``), so a transpose emits nothing, and an elementwise operation one scalar operation for
each element. The rules in ``ELEMENTWISE`` take scalars; those in ``ON_ARRAYS``, of the other
modules, arrays of them. Calls are inlined and loops of known length unrolled, or become a
``Routine`` where the code would grow too long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxquat._internal.branches import is_rare
from jaxquat._internal.jaxprs import called, nested
from jaxquat.fused.errors import not_scalar
from jaxquat.fused.ir.builder import Builder
from jaxquat.fused.ir.program import Program
from jaxquat.fused.trace import (
    arrays,
    calls,
    control,
    elementwise,
    indexing,
    linear_algebra,
    products,
    random,
    reductions,
)  # fmt: skip
from jaxquat.fused.trace.elementwise import ELEMENTWISE
from jaxquat.fused.trace.values import (
    Values,
    constants,
    fits,
    flat,
    opened,
    raw_dtype,
    raw_shape,
    shaped,
)  # fmt: skip

LONGEST = 200_000  # operations

_MODULES = (
    arrays, control, elementwise, indexing, linear_algebra, products, random, reductions,
)  # fmt: skip
ON_ARRAYS = {name: rule for module in _MODULES for name, rule in module.RULES.items()}


def scalarize(function: Callable[..., Any], *arguments: Any) -> Program:
    """Return the scalar program of a function, at the shapes and dtypes of ``arguments``.

    Its inputs are the scalars of the leaves of the arguments, its outputs those of the result.
    Loops of fixed length are unrolled and calls inlined; operations on large arrays and long
    functions that ``jax.jit`` calls twice or more stay together, as routines.

    Raises:
        NotScalarError: names the primitive that has no scalar form.

    Examples:
        >>> jq.fused.scalarize(jnp.cross, jnp.zeros(3), jnp.zeros(3)).counts()
        {'mul': 6, 'sub': 3}
    """
    return program_of(jax.make_jaxpr(function)(*arguments))


def program_of(closed: Any, sums: bool = True, loops: float = math.inf) -> Program:
    """Return the scalar program of a jaxpr.

    With ``sums`` ``psum_invariant`` adds over devices. Loops of ``loops`` or more operations are
    not unrolled.
    """
    sizes = [(raw_shape(v.aval), raw_dtype(v.aval)) for v in closed.jaxpr.invars]
    dtypes = [dtype for shape, dtype in sizes for _ in range(math.prod(shape))]
    tracing = Tracing(dtypes, calls.sites(closed.jaxpr, {}), {}, sums, loops)
    inputs = shaped(tracing.arguments, [shape for shape, _ in sizes])
    outputs = tracing.run(closed.jaxpr, closed.consts, inputs)
    return tracing.finish(flat(outputs))


def dissolves(equation: Any) -> bool:
    """Return whether an equation and all that it calls are primitives with a scalar form."""
    name = equation.primitive.name
    jaxprs = [opened(inner)[0] for inner in nested(equation)]
    known = name in ELEMENTWISE or name in ON_ARRAYS or called(equation) is not None
    return known and all(map(dissolves, (e for j in jaxprs for e in j.eqns)))


class Tracing(Builder):
    """A builder that runs jaxprs.

    ``sites``: the number of calls of each jaxpr, by its id. ``routines``: see ``calls.called``.
    ``sums``, ``loops``: see ``program_of``. ``products``: see ``products.computed``.
    """

    def __init__(
        self,
        inputs: Sequence[np.dtype],
        sites: dict[int, int],
        routines: dict[Any, Any],
        sums: bool = True,
        loops: float = math.inf,
    ) -> None:
        super().__init__(inputs)
        self.sites, self.routines, self.sums, self.loops = sites, routines, sums, loops
        self.products: dict[int, Any] = {}
        self.in_rare = False  # within a function of ``branches.rarely``

    def apart(self, inputs: Sequence[np.dtype]) -> Tracing:
        """Return a builder for a routine of this program."""
        return Tracing(inputs, self.sites, self.routines, self.sums, self.loops)

    def run(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Values]) -> list[Values]:
        """Return the outputs of a jaxpr, from its equations in order."""
        known: dict[Any, Values] = dict(zip(jaxpr.invars, inputs, strict=True))
        known.update((v, constants(self, c)) for v, c in zip(jaxpr.constvars, consts, strict=True))

        def read(v: Any) -> Values:
            literal = hasattr(v, "val")
            return constants(self, np.asarray(v.val, v.aval.dtype)) if literal else known[v]

        for equation in jaxpr.eqns:
            name = equation.primitive.name
            for variable in equation.outvars:
                fits(name, raw_shape(variable.aval))
            results = self._apply(equation, [read(v) for v in equation.invars])
            if len(self.ops) > LONGEST:
                raise not_scalar(f"{name}: more than {LONGEST} scalar operations")
            # a rule may return a scalar in place of an array of shape ()
            known.update(zip(equation.outvars, map(np.asarray, results), strict=True))
        return [read(v) for v in jaxpr.outvars]

    def traced(self, function: Callable[..., Any], specs: Any, args: Sequence[Values]) -> Any:
        """Return the outputs of a function, traced for arrays of these shapes and dtypes."""
        closed = jax.make_jaxpr(function)(*specs)
        return self.run(closed.jaxpr, closed.consts, args)

    def _apply(self, equation: Any, args: list[Values]) -> list[Values]:
        name, params = equation.primitive.name, equation.params
        if name == "jit" and self.sites.get(id(params["jaxpr"]), 0) > 1:
            outputs = calls.called(self, equation, args)
            if outputs is not None:
                return outputs
        if name == "psum_invariant" and not self.sums:
            return args
        if name in ("add", "add_any"):
            values = products.joined(self, *args)
            if values is not None:
                return [values]
        if name in ELEMENTWISE:
            return [elementwise.elementwise(self, ELEMENTWISE[name], args)]
        if name in ON_ARRAYS:
            result = ON_ARRAYS[name](self, equation, *args)
            return list(result) if isinstance(result, (list, tuple)) else [result]
        inner = called(equation)
        if inner is not None:
            outside, self.in_rare = self.in_rare, self.in_rare or is_rare(equation)
            results = self.run(*opened(inner), args)
            self.in_rare = outside
            return results
        raise not_scalar(f"{name}: this primitive has no scalar form")
