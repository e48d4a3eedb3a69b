"""Simulate the excited body of A. Hoffmann's table (Application of Quaternions, 10.1)."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxquat as jq
from examples.validation import problems
from jaxquat import quaternion

BODY = jq.Body(jnp.array([[0.6, 0.0, -0.2], [0.0, 1.0, 0.0], [-0.2, 0.0, 1.5]]))
REST = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3))


def angles(q):
    """(phi, theta, psi) [deg], his roll, pitch and yaw; of a quaternion of any norm."""
    radians = jax.jit(lambda q: jq.euler.from_quaternion(quaternion.normalize(q), "ZYX"))
    return np.degrees(np.asarray(radians(q)))[..., ::-1]


def excited(name, steps=11, dt=0.1, torque_steps=1):
    def torque(t, state, params):
        return jnp.where(t < (torque_steps - 0.5) * dt, 5.0, 0.0) * jnp.ones(3)

    start = problems.start_of(name, REST.q, REST.omega)
    return jax.jit(
        lambda: jq.rollout(jq.schemes.SCHEMES[name], BODY, torque, start, jq.grid(0.0, dt, steps))
    )().state


def simultaneous(q, omega, inertia, torque, h, steps):
    """Half-Quat with simultaneous assignment, with nothing of the library."""
    for k in range(steps):
        tau = torque(k, q) - np.cross(omega, inertia @ omega)
        omega = omega + h * np.linalg.solve(inertia, tau)
        q = q + 0.5 * h * np.concatenate([[-q[1:] @ omega], q[0] * omega + np.cross(q[1:], omega)])
        q = q * (2 - np.linalg.norm(q))
    return q
