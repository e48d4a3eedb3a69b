"""Problems of nonlinear least squares with known parameters, and where their fits begin.

``case`` is a body that tumbles. For 20 s, known torques of 0.1 N m push it about each axis, at 0.3,
0.7 and 1.1 Hz; its inertia is random. At 200 Hz its attitude is measured with noise of 0.5 degrees,
a small random rotation, and its rates with a bias of 0.02 rad/s and noise of 0.01 rad/s. The fit
begins with each axis of the mass distribution 30 % off.

``zeros`` are small problems of seven families with exact data, one or more of whose true parameters
are 0.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxquat as jq

RATE = 200  # Hz
NOISE = np.deg2rad(0.5), 0.01  # rad, rad/s
BIAS = np.array([0.02, -0.02, 0.02])  # rad/s


class Case(NamedTuple):
    """A simulated measurement, and where its fit begins."""

    truth: Any
    guess: Any
    data: Any  # of the tumbling body: attitudes (N, 4), rates (N, 3), the first State


def torque(t: Array, state: jq.State, params: Any) -> Array:
    """Return the known torque [N m]."""
    return 0.1 * jnp.sin(2.0 * jnp.pi * jnp.array([0.3, 0.7, 1.1], state.q.dtype) * t)


def flight(theta: Array, start: jq.State, samples: int) -> jq.State:
    """Return the motion at the times of so many samples."""
    body, grid = jq.Body.from_parameters(theta), jq.grid(0.0, 1.0 / RATE, samples - 1)
    return jq.rollout(jq.rkmk4, body, torque, start, grid).state


def residuals(params: Any, data: Any) -> Array:
    """Return what is measured minus what is predicted, in standard deviations."""
    q, omega, start = data
    predicted = flight(params["theta"], start, len(q))
    turn = jq.quaternion.log(jq.quaternion.relative(predicted.q, q))
    rates = omega - predicted.omega - params["bias"][None]
    return jnp.ravel(jnp.concatenate([turn / NOISE[0], rates / NOISE[1]], axis=1))


def case(seed: int, seconds: float = 20.0) -> Case:
    """Return the measurement with this seed, in JAX's default precision."""
    rng, samples = np.random.default_rng(seed), round(seconds * RATE) + 1
    body = jq.Body.random(jax.random.key(seed))
    start = jq.State(
        jq.quaternion.random(jax.random.key(seed + 100)), jnp.array(rng.normal(size=3))
    )
    start = start._replace(omega=start.omega.astype(start.q.dtype))
    truth = {"theta": body.parameters, "bias": jnp.asarray(BIAS)}
    exact = jax.jit(flight, static_argnums=2)(truth["theta"], start, samples)
    turn, noise = (jnp.asarray(x * rng.normal(size=(samples, 3))) for x in NOISE)
    q = jq.quaternion.multiply(exact.q, jq.quaternion.exp(turn))
    guess = {"theta": off_by_30_percent(body, rng), "bias": jnp.zeros(3)}
    return Case(truth, guess, (q, exact.omega + truth["bias"][None] + noise, start))


def off_by_30_percent(body: jq.Body, rng: np.random.Generator) -> Array:
    """Return parameters of a body whose mass lies 30 % off: second moments of 0.7 or 1.3."""
    stretched = np.sqrt(rng.choice([0.7, 1.3], 3))
    inertia = np.asarray(body.inertia, float)
    second = 0.5 * np.trace(inertia) * np.eye(3) - inertia  # the integral of x x^T dm
    second = second * np.outer(stretched, stretched)
    return jq.Body(jnp.asarray(np.trace(second) * np.eye(3) - second)).parameters


def inertia_of(params: Any) -> Array:
    """Return the inertia [kg m^2]."""
    return jq.Body.from_parameters(params["theta"]).inertia


def offset(p: Array, data: Any) -> Array:
    """Return residuals whose true parameters are all 0, beside a known model."""
    t, y = data
    return y * (1.0 + p[0] * t) * jnp.exp(p[1] * t**2) + p[2] * jnp.sin(t) - y


def decay(p: Array, data: Any) -> Array:
    """Return the residuals of an exponential with an offset."""
    t, y = data
    return p[0] * jnp.exp(-p[1] * t) + p[2] - y


def wave(p: Array, data: Any) -> Array:
    """Return the residuals of a sine of unknown frequency."""
    t, y = data
    return p[0] * jnp.sin(p[2] * t) + p[1] * jnp.cos(p[2] * t) + p[3] - y


def peak(p: Array, data: Any) -> Array:
    """Return the residuals of a bell-shaped curve near 1."""
    t, y = data
    return p[0] * jnp.exp(-(((t - 1.0 - p[1]) * p[2]) ** 2)) + p[3] - y


def cubic(p: Array, data: Any) -> Array:
    """Return the residuals of a cubic polynomial."""
    t, y = data
    return p[0] + p[1] * t + p[2] * t**2 + p[3] * t**3 - y


def spin(p: Array, data: Any) -> Array:
    """Return the residuals of attitudes: a rotation vector that grows linearly."""
    t, y = data
    q = jq.quaternion.exp(p[None, :3] + p[None, 3:] * t[:, None])
    return jnp.ravel(jq.quaternion.log(jq.quaternion.relative(y, q)))


def gyro(p: Array, data: Any) -> Array:
    """Return the residuals of a gyroscope with three biases and a scale error of its clock."""
    t, y = data
    phase = t * (1.0 + p[3])
    rates = jnp.stack([jnp.cos(phase), jnp.sin(phase), jnp.full_like(t, 0.3)], axis=-1)
    return jnp.ravel(rates + p[None, :3] - y)


FAMILIES: list[tuple[Callable[[Array, Any], Array], list[float], list[int]]] = [
    (offset, [0.0, 0.0, 0.0], [0, 1, 2]),
    (decay, [1.3, 0.8, 0.0], [2]),
    (wave, [1.0, 0.5, 2.0, 0.7], [0, 3]),
    (peak, [1.0, 0.2, 1.2, 0.6], [1, 3]),
    (cubic, [1.0, 0.5, -0.7, 1.0], [0, 1, 2, 3]),
    (spin, [0.3, -0.2, 0.1, 0.2, 0.3, -0.4], [0, 1, 2, 3, 4, 5]),
    (gyro, [0.1, -0.2, 0.3, 0.01], [0, 1, 2, 3]),
]
"""Residuals, true parameters before they are scaled at random, and which of them may be 0."""


def zeros(seed: int, dtype: Any) -> tuple[Callable[[Array, Any], Array], Case]:
    """Return a problem with exact data and true parameters that are 0.

    Of four starts, one is the truth, and one has the right value where that is 0.
    """
    rng = np.random.default_rng(seed)
    function, usual, candidates = FAMILIES[seed % len(FAMILIES)]
    truth = np.array(usual) * rng.uniform(0.6, 1.6, len(usual))
    truth[rng.permutation(candidates)[: rng.integers(1, len(candidates) + 1)]] = 0.0
    t, exact = jnp.linspace(0.0, 2.0, 40), jnp.asarray(truth)
    if function is offset:
        y = 1.0 + jnp.sin(3.0 * t)
    elif function is spin:
        y = jq.quaternion.exp(exact[None, :3] + exact[None, 3:] * t[:, None])
    else:
        shape = (40, 3) if function is gyro else (40,)
        y = jnp.reshape(function(exact, (t, jnp.zeros(shape))), shape)
    away, kind = 0.1 * rng.normal(size=len(truth)), rng.integers(4)
    if kind == 0:
        away[truth == 0] = 0.0
    elif kind == 1:
        away[:] = 0.0
    data = t.astype(dtype), y.astype(dtype)
    return function, Case(truth, jnp.asarray(truth + away, dtype), data)
