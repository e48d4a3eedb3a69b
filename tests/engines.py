"""One function by both engines: as what a rollout saves, of arrays with one row a body."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxquat as jq


def saved(engine, function, *arguments):
    """``function`` of each row of the arguments, computed within a rollout of one step by an engine."""
    dtype = jnp.result_type(
        *[x for x in arguments if jnp.issubdtype(x.dtype, jnp.floating)] or [jnp.float32]
    )
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


def both(function, *arguments, engine="fused"):
    """What the scan gives and what the other engine gives."""
    arguments = [jnp.asarray(x) for x in arguments]
    return tuple(
        jax.jit(functools.partial(saved, name, function))(*arguments) for name in ("scan", engine)
    )


def assert_agree(function, *arguments, ulps=0, engine="fused"):
    """The engines give the same numbers, floats up to some units in the last place of the scan's."""
    wanted, got = both(function, *arguments, engine=engine)
    for path, x in jax.tree_util.tree_leaves_with_path(wanted):
        y = np.asarray(
            functools.reduce(
                lambda tree, key: tree[getattr(key, "key", getattr(key, "idx", None))], path, got
            )
        )
        x, name = np.asarray(x), jax.tree_util.keystr(path)
        assert x.dtype == y.dtype, name
        if ulps:
            with np.errstate(invalid="ignore", over="ignore"):
                bound = np.where(np.isfinite(x), ulps * np.spacing(np.abs(x)), 0)
                near = np.abs(x.astype(np.longdouble) - y) <= bound
            assert (near | (x == y) | (np.isnan(x) & np.isnan(y))).all(), (
                f"{name}: {x[~near][:5]} {y[~near][:5]}"
            )
        else:
            np.testing.assert_array_equal(y, x, name)
        if x.dtype.kind == "f":
            zero = (x == 0) & (y == 0)
            np.testing.assert_array_equal(
                np.signbit(y)[zero], np.signbit(x)[zero], f"{name}: the sign of zero"
            )
