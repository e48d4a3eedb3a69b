"""Measure the orders of schemes with random torques.

All is in float64, for a triaxial body under a torque of attitude and, where the scheme takes it, a
drag that is curved in the rate. The noise is along no principal axes. An error along a path is the
RMS over paths of the angle to the attitude after 2 s in steps of 2 ms with the same noise. An error
of the mean is that of four functions of the state after one step, over its length.
"""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxquat as jq
from jaxquat.stochastic import Disturbance, add_gauss_markov_torque, add_torque_noise

MOMENTS = np.array([1.0, 2.0, 2.5])  # kg m^2
FACTOR = np.array([[0.3, 0.1, 0.0], [0.2, 0.4, -0.1], [0.0, 0.3, 0.2]])  # N m/sqrt(Hz)
DEVIATION, TIME = np.array([0.3, 0.2, 0.4]), np.array([0.7, 1.5, 1.0])  # N m, s
LENGTHS = (0.25, 0.125, 0.0625, 0.03125)  # s
SPAN, FINE = 2.0, 1024


def problem(kind, scheme):
    """Return the scheme with the random torque, a body, a torque and a start."""
    q, omega = jnp.array([0.8, 0.0, 0.6, 0.0]), jnp.array([0.5, -0.8, 0.6])
    body = jq.Body.from_principal(jnp.asarray(MOMENTS))

    def torque(t, state, params):
        level = jq.quaternion.rotate_inverse(state.q, jnp.array([0.0, 0.0, 1.0]))
        drag = 0.4 * jnp.dot(state.omega, state.omega) * state.omega
        pull = jnp.cross(level, jnp.eye(3)[0])
        return pull - drag if scheme.torques == "any" else pull

    if kind == "white":
        return add_torque_noise(scheme, FACTOR), body, torque, jq.State(q, omega)
    start = jq.State(q, omega, Disturbance(jnp.array([0.1, -0.2, 0.3])))
    return add_gauss_markov_torque(scheme, DEVIATION, TIME), body, torque, start


# Along a path: a longer step takes the noise of the shorter ones.


def white_normals(normals, dt, times):
    """Return the normals of steps of ``times * dt`` from those of dt, (steps, paths, 6)."""
    x, y = normals[..., :3], normals[..., 3:]
    w, j = np.sqrt(dt) * x, dt**1.5 * (x / 2 + y / np.sqrt(12))
    w, j = (a.reshape(-1, times, *a.shape[1:]) for a in (w, j))
    earlier = np.cumsum(w, axis=1) - w
    w, j, dt = w.sum(1), (j + dt * earlier).sum(1), times * dt
    x = w / np.sqrt(dt)
    return np.concatenate([x, np.sqrt(12) * (j / dt**1.5 - x / 2)], axis=-1)


def moments(dt):
    """Return the means and factors of a Gauss-Markov torque and its impulse over dt."""
    h = dt / TIME
    after, drop = np.exp(-h), -np.expm1(-h)
    impulse = DEVIATION**2 * TIME**2 * (2 * h - 3 + 4 * after - after**2)
    of_x = DEVIATION * np.sqrt(-np.expm1(-2 * h))
    impulse_of_x = DEVIATION**2 * TIME * drop**2 / of_x
    return after, TIME * drop, of_x, impulse_of_x, np.sqrt(impulse - impulse_of_x**2)


def coloured_normals(normals, dt, times):
    """Return the normals of steps of ``times * dt`` from those of dt, (steps, paths, 6)."""
    x, y = normals[..., :3], normals[..., 3:]
    after, mean, of_x, impulse_of_x, of_y = moments(dt)
    torque, impulses = [np.zeros_like(x[0])], []
    for one, two in zip(x, y, strict=True):
        impulses.append(mean * torque[-1] + impulse_of_x * one + of_y * two)
        torque.append(after * torque[-1] + of_x * one)
    torque = np.array(torque)[::times]
    impulses = np.array(impulses).reshape(-1, times, *x.shape[1:]).sum(1)
    after, mean, of_x, impulse_of_x, of_y = moments(times * dt)
    x = (torque[1:] - after * torque[:-1]) / of_x
    y = (impulses - mean * torque[:-1] - impulse_of_x * x) / of_y
    return np.concatenate([x, y], axis=-1)


def along_paths(kind, scheme, paths):
    """Return the RMS errors along paths [rad] in steps of LENGTHS."""
    noisy, body, torque, start = problem(kind, scheme)
    fine = np.random.default_rng(0).normal(size=(FINE, paths, 6))
    coarsened = white_normals if kind == "white" else coloured_normals

    def end(rows, dt):
        def step(state, row):
            return noisy(body, torque, 0.0, state, dt, None, row), None

        return lax.scan(step, start, rows)[0].q

    ends = jax.jit(jax.vmap(end, (1, None)))
    exact = ends(fine, SPAN / FINE)
    errors = []
    for dt in LENGTHS:
        q = ends(coarsened(fine, SPAN / FINE, round(dt * FINE / SPAN)), dt)
        errors.append(np.sqrt(np.mean(jq.quaternion.distance(q, exact) ** 2)))
    return np.array(errors)


# The mean after a step is ``1 + dt L + dt^2 L^2/2`` of its function, with the generator L.


def hermite(count, points=3):
    """Return nodes (n, count) and weights (n,) of a quadrature over standard normals."""
    x, w = np.polynomial.hermite_e.hermegauss(points)
    each = np.array(list(itertools.product(range(points), repeat=count)))
    return jnp.asarray(x[each]), jnp.asarray(np.prod(w[each] / w.sum(), axis=1))


def flat(state):
    """Return attitude, rate and disturbance as one vector."""
    return jnp.concatenate([state.q, state.omega, *state.aux[:1]])


def along(function, v):
    """Return the derivative of a function of the flat state along a vector."""
    return lambda x: jax.jvp(function, (x,), (v,))[1]


def generated(kind, scheme, function):
    """Return the generator's derivative of a function of the flat state."""
    _, body, torque, _ = problem(kind, scheme)

    def derivative(x):
        q, omega, n = x[:4], x[4:7], x[7:]
        rate = jq.dynamics.derivative(body, torque, 0.0, jq.State(q, omega), None).omega
        spin = 0.5 * jq.quaternion.multiply(q, jnp.concatenate([jnp.zeros(1), omega]))
        if kind == "white":
            drift, columns = jnp.concatenate([spin, rate]), FACTOR.T / MOMENTS
        else:
            drift = jnp.concatenate([spin, rate + n / MOMENTS, -n / TIME])
            columns = np.diag(np.sqrt(2 / TIME) * DEVIATION)
        value = along(function, drift)(x)
        for column in columns:
            v = jnp.concatenate([jnp.zeros(x.size - 3), column])
            value += 0.5 * along(along(function, v), v)(x)
        return value

    return derivative


def of_the_mean(kind, scheme):
    """Return the errors of four means after one step of LENGTHS, over its length [1/s]."""
    noisy, body, torque, start = problem(kind, scheme)
    normals, weights = hermite(6)
    x = flat(start)
    waves = np.random.default_rng(1).normal(size=(4, x.size))

    def observed(x):
        return jnp.sin(waves @ x)

    def after(dt, row):
        return observed(flat(noisy(body, torque, 0.0, start, dt, None, row)))

    first = generated(kind, scheme, observed)
    second = generated(kind, scheme, first)

    @jax.jit
    def error(dt):
        mean = weights @ jax.vmap(partial(after, dt))(normals)
        series = observed(x) + dt * first(x) + 0.5 * dt**2 * second(x)
        return jnp.linalg.norm(mean - series) / dt

    return np.array([error(dt) for dt in LENGTHS])


def slope(errors):
    """Return the order that the shortest steps show."""
    return np.log2(errors[-2] / errors[-1])
