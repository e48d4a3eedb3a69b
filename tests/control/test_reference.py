"""References: derivatives of functions of time, and the attitude along a force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxquat import control, quaternion
from jaxquat.control.reference import attitude_of


def test_a_reference_has_the_derivatives_of_its_functions():
    def figure_eight(t):
        return jnp.stack([2.0 * jnp.sin(t), jnp.sin(2.0 * t), 1.0 + 0.5 * jnp.cos(0.7 * t)])

    got = control.follow_position(figure_eight, jnp.asarray(0.4), lambda t: 0.5 * t)
    wanted = [2.0 * np.cos(0.4), 2.0 * np.cos(0.8), -0.35 * np.sin(0.28)]
    np.testing.assert_allclose(got.velocity, wanted, rtol=1e-14)
    wanted = [-2.0 * np.sin(0.4), -4.0 * np.sin(0.8), -0.245 * np.cos(0.28)]
    np.testing.assert_allclose(got.acceleration, wanted, rtol=1e-14)
    np.testing.assert_allclose(got[3:], [0.2, 0.5], rtol=1e-15)
    np.testing.assert_array_equal(control.follow_position(figure_eight, 0.4)[3:], [0.0, 0.0])


@pytest.mark.parametrize("z", [1.0, -1.0])
def test_the_attitude_of_a_force_has_the_axes_of_the_paper(z):
    """Body z along the force; body x is the projection of the heading; upside down too."""
    rng = np.random.default_rng(1)
    force = rng.normal(size=(20, 3)) * np.array([1.0, 1.0, 0.5])
    force[:, 2] = z * np.abs(force[:, 2])
    angles = rng.uniform(-7, 7, 20)
    got = np.asarray(
        jax.jit(lambda *x: quaternion.to_matrix(jax.vmap(attitude_of)(*x)))(force, angles)
    )
    up = force / np.linalg.norm(force, axis=1, keepdims=True)
    ahead = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    ahead -= np.sum(ahead * up, axis=1, keepdims=True) * up
    ahead /= np.linalg.norm(ahead, axis=1, keepdims=True)
    np.testing.assert_allclose(got[:, :, 2], up, rtol=0, atol=1e-14)
    np.testing.assert_allclose(got[:, :, 0], ahead, rtol=0, atol=1e-13)
