"""One function by both engines: as what a rollout saves, of arrays with one row a body."""

import functools

import jax
import jax.numpy as jnp

import jaxquat as jq


def saved(engine, function, *arguments):
    """``function`` of each row of the arguments, computed within a rollout of one step by an engine."""
    dtype = jnp.result_type(*[x for x in arguments if jnp.issubdtype(x.dtype, jnp.floating)] or [jnp.float32])
    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0], dtype), jnp.zeros(3, dtype))
    body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5], dtype))

    def one(*row):
        path = jq.rollout(
            jq.lie_euler,
            body,
            lambda t, state, params, held: jnp.zeros(3, dtype),
            start,
            jq.grid(0.0, 0.1, 1),
            inputs=[x[None] for x in row],
            save=lambda t, state, params, held: function(*held),
            engine=engine,
        )
        return jax.tree.map(lambda x: x[0], path.saved)

    return jax.vmap(one)(*arguments)


def both(function, *arguments):
    """What the scan gives and what the fused engine gives."""
    return tuple(jax.jit(functools.partial(saved, name, function))(*arguments) for name in ("scan", "fused"))
