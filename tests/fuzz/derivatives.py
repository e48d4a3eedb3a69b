"""The derivatives of programs and rollouts, in both modes and of first and second order.

``differentiated(kind, loss, floats)`` is a tree of one body's numbers: "value" has its outputs,
"gradient" the gradient of their weighted sum in reverse mode, "tangent" the tangents of the outputs
in one direction, or in several under ``jax.vmap``, and "second" derivatives of the gradient.
"""

from collections.abc import Callable
from typing import Any

from .grammar import NOT_BACKWARD

KINDS = (
    "grad", "jvp", "grad", "checkpoint", "jvp of grad", "linearize", "jacfwd", "grad of jvp",
    "checkpoint twice", "vmapped grad",
)  # fmt: skip
REVERSE = ("grad", "checkpoint", "vmapped grad")
FORWARD = ("jvp", "jacfwd")
DIRECTIONS = 3


def without(kind: str) -> tuple[str, ...]:
    """The productions that do not have this kind of derivative."""
    names = () if kind in REVERSE else ("custom vjp",)
    if kind not in (*REVERSE, *FORWARD):
        names = (*names, "sinc")  # jax's second derivative at 0 depends on the order of its modes
        # jax 0.10's second derivative of a scan with frexp is wrong (0.12's is right), and ldexp
        # calls it: jvp(grad(sum of scan(x -> sin(x + 0.1 ldexp(x, 3))))).
        names = (*names, "ldexp", "frexp")
    return (*names, "extremes at the run's indices") if kind in FORWARD else (*names, *NOT_BACKWARD)


def differentiated(kind: str, loss: Callable[[Any], tuple[Any, Any]], floats: Any) -> Any:
    """The values and derivatives of a kind; ``loss(floats)`` is (weighted sum, outputs by name)."""
    import jax
    import jax.numpy as jnp

    total = lambda x: loss(x)[0]

    def outputs(x: Any) -> tuple[Any, Any]:
        values = loss(x)[1]
        smooth = lambda y: y if jnp.issubdtype(y.dtype, jnp.floating) else None
        return jax.tree.map(smooth, values), values

    def direction(k: Any = 0) -> Any:
        """Moderate numbers, even if the inputs are not."""
        one = lambda x: jnp.cos(jnp.arange(1, x.size + 1) * 1.7 + k).reshape(x.shape)
        return jax.tree.map(lambda x: one(x).astype(x.dtype), floats)

    if kind in ("jvp", "jacfwd"):
        push = lambda k: jax.jvp(outputs, (floats,), (direction(k),), has_aux=True)
        numbers = jnp.arange(DIRECTIONS, dtype=jnp.int32)
        push_all = push if kind == "jvp" else jax.vmap(push, out_axes=(None, 0, None))
        _, tangent, values = push_all(0 if kind == "jvp" else numbers)
        return {"value": values, "tangent": tangent}
    if kind == "linearize":
        _, push, values = jax.linearize(outputs, floats, has_aux=True)
        return {"value": values, "tangent": push(direction())}
    if kind == "jvp of grad":
        both = jax.grad(loss, has_aux=True)
        gradient, second, values = jax.jvp(both, (floats,), (direction(),), has_aux=True)
        return {"value": values, "gradient": gradient, "second": second}
    if kind == "grad of jvp":
        slope = lambda x: jax.jvp(total, (x,), (direction(),))[1]
        return {"value": loss(floats)[1], "second": jax.grad(slope)(floats)}
    if kind == "checkpoint twice":
        inner = jax.grad(jax.checkpoint(total))

        def weighted(x: Any) -> Any:
            parts = zip(jax.tree.leaves(inner(x)), jax.tree.leaves(direction()), strict=True)
            return sum(jnp.sum(y * weight) for y, weight in parts)

        return {"value": loss(floats)[1], "second": jax.grad(jax.checkpoint(weighted))(floats)}
    if kind == "vmapped grad":  # of a function with a batch axis
        twice = jax.tree.map(lambda x: jnp.stack([x, x]), floats)
        of_two = lambda x: jnp.sum(jax.vmap(total)(x))
        return {"value": loss(floats)[1], "gradient": jax.grad(of_two)(twice)}
    function = jax.checkpoint(loss) if kind == "checkpoint" else loss
    gradient, values = jax.grad(function, has_aux=True)(floats)
    return {"value": values, "gradient": gradient}
