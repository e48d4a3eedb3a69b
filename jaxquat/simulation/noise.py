"""The noise of a rollout with a stochastic scheme: a random key, or one row of normals per step.

Given normals go into the loop with the inputs, so a reverse pass writes each cotangent once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import Array
from jax.typing import DTypeLike

from jaxquat._internal.checks import exactly, finite, is_key, reproducible_key
from jaxquat.dynamics.state import State
from jaxquat.schemes.scheme import Scheme, noise_count
from jaxquat.simulation.controller import Controller, update_of


class WithNoise(NamedTuple):
    """A sample's input or command, and the noise of its steps; with a leading axis, of all."""

    value: Any  # None where there is neither input nor command
    noise: Array  # (sample_every, n)


def without_noise(value: Any) -> Any:
    """Return the user's part of an input or a command."""
    return value.value if isinstance(value, WithNoise) else value


def draw(key: Array, k: Any, count: int, dtype: DTypeLike) -> Array:
    """Draw the standard normals of step k, (count,)."""
    return jax.random.normal(jax.random.fold_in(key, k), (count,), dtype)


def check_noise(noise: Any, scheme: Scheme, start: State, steps: int) -> Any:
    """Return ``noise`` as a key, as an array (steps, n) in the dtype of the start, or None."""
    wanted = f"a jax.random.key or an array of shape ({steps}, {{n}})"
    count = noise_count(noise, scheme, start, wanted)
    if noise is None:
        return None
    if is_key(noise):
        if noise.shape:
            hint = "; use jax.vmap for several bodies"
            raise ValueError(f"noise: wanted one key, got shape {noise.shape}{hint}")
        return reproducible_key("noise", noise)
    if getattr(noise, "dtype", None) == "uint32":
        got = f"uint32{list(noise.shape)}; jax.random.wrap_key_data makes a key of an old one"
        raise TypeError(f"noise: wanted {wanted.format(n=count)}, got {got}")
    if isinstance(noise, int | float):  # a seed
        raise TypeError(f"noise: wanted {wanted.format(n=count)}, got {noise}")
    normals = exactly("noise", noise, (steps, count))
    finite("noise", normals)
    return normals.astype(start.q.dtype)


def passing_noise(controller: Controller) -> Controller:
    """Make the controller take inputs ``WithNoise`` and pass the noise on with its commands."""

    def update(t: Array, state: State, memory: Any, params: Any, value: WithNoise) -> Any:
        command, memory = update_of(controller, t, state, memory, params, value.value)
        return WithNoise(command, value.noise), memory

    return Controller(controller.init, update, controller.period)
