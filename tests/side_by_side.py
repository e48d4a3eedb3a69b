"""One function by both engines: it is what a rollout saves, of arrays with one row per body."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import jaxquat as jq
from examples.validation import effort


def saved(engine, function, *arguments):
    """``function`` of each row of the arguments, by an engine, within a rollout of one step."""
    floats = [x for x in arguments if jnp.issubdtype(x.dtype, jnp.floating)]
    dtype = jnp.result_type(*floats or [jnp.float32])
    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0], dtype), jnp.zeros(3, dtype))
    body, grid = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5], dtype)), jq.grid(0.0, 0.1, 1)
    torque = lambda t, state, params, command: jnp.zeros(3, dtype)
    save = lambda t, state, params, command: function(*command)

    def one(*row):
        inputs = [x[None] for x in row]
        path = jq.rollout(
            jq.lie_euler,
            body,
            torque,
            start,
            grid,
            inputs=inputs,
            options=jq.RolloutOptions(save=save, engine=engine),
        )
        return jax.tree.map(lambda x: x[0], path.saved)

    return jax.vmap(one)(*arguments)


def both(function, *arguments, engine="fused"):
    """The values of ``function`` by the scan and by the other engine."""
    arguments = [jnp.asarray(x) for x in arguments]

    def run(name):
        program = functools.partial(saved, name, function)
        return jax.jit(program, compiler_options=effort.FULL)(*arguments)

    return run("scan"), run(engine)


def assert_agree(function, *arguments, ulps=0, engine="fused"):
    """The engines agree: floats to ``ulps`` of the scan's, zeros in their sign, others exactly."""
    wanted, got = both(function, *arguments, engine=engine)
    entry = lambda tree, key: tree[getattr(key, "key", getattr(key, "idx", None))]
    for path, x in jax.tree_util.tree_leaves_with_path(wanted):
        x, y = np.asarray(x), np.asarray(functools.reduce(entry, path, got))
        name = jax.tree_util.keystr(path)
        assert x.dtype == y.dtype, name
        if ulps:
            with np.errstate(invalid="ignore", over="ignore"):
                bound = np.where(np.isfinite(x), ulps * np.spacing(np.abs(x)), 0)
                near = np.abs(x.astype(np.longdouble) - y) <= bound
            agree = near | (x == y) | (np.isnan(x) & np.isnan(y))
            assert agree.all(), f"{name}: {x[~near][:5]} {y[~near][:5]}"
        else:
            np.testing.assert_array_equal(y, x, name)
        if x.dtype.kind == "f":
            zero, message = (x == 0) & (y == 0), f"{name}: the sign of zero"
            np.testing.assert_array_equal(np.signbit(y)[zero], np.signbit(x)[zero], message)
