"""A neural torque for the benchmarks: two hidden layers of tanh on attitude and rate."""

import jax
import jax.numpy as jnp


def torque(t, state, params):
    """Return the last layer's three numbers, a torque [N m]."""
    x = jnp.concatenate([state.q, state.omega])
    for weight, bias in params[:-1]:
        x = jnp.tanh(weight @ x + bias)
    return params[-1][0] @ x + params[-1][1]


def weights(width):
    """Return random weights and zero biases of two hidden layers of this width."""
    sizes = [(width, 7), (width, width), (3, width)]
    keys = jax.random.split(jax.random.key(1), 3)
    return [
        (1.2 / width**0.5 * jax.random.normal(key, size), jnp.zeros(size[0]))
        for key, size in zip(keys, sizes, strict=True)
    ]
