"""Ellipsoids in a viscous flow: Jeffery's torque and orbits, and the resistance in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import jaxquat as jq
from jaxquat import flow

MU = 0.7
SHEAR = np.zeros((3, 3))
SHEAR[0, 1] = 2.0  # u_x = 2 y
RNG = np.random.default_rng(8)
GRADIENT = RNG.normal(size=(3, 3))
GRADIENT -= np.trace(GRADIENT) / 3 * np.eye(3)
Q = RNG.normal(size=4)
Q /= np.linalg.norm(Q)
STATE = jq.State(jnp.asarray(Q), jnp.asarray(RNG.normal(size=3)))


def integrals(a):
    """Returns the integrals b of the docstring, by quadrature in l = s^2 u^2/(1 - u)^2."""

    def of(axis):
        def integrand(u):
            root = u / (1 - u)
            values = np.asarray(a) ** 2 + root**2
            return 2 * root / (1 - u) ** 2 / (values[axis] * np.sqrt(np.prod(values)))

        return quad(integrand, 0, 1, epsabs=0, epsrel=1e-12)[0]

    return np.array([of(axis) for axis in range(3)])


@pytest.mark.parametrize("a", [(0.6, 1.1, 2.3), (3.0, 0.4, 0.4), (1.0, 1.0, 0.3)])
def test_resistances_are_the_integrals_of_jeffery_and_of_happel_and_brenner(a):
    b, square = integrals(a), np.square(a)
    turning = [
        16 * np.pi * MU * (square[j] + square[k]) / (3 * (square[j] * b[j] + square[k] * b[k]))
        for j, k in ((1, 2), (2, 0), (0, 1))
    ]
    moving = 16 * np.pi * MU / (np.sum(square * b) + square * b)
    for dtype, rtol in ((jnp.float32, 2e-6), (jnp.float64, 1e-11)):
        axes = jnp.asarray(a, dtype)
        for got, wanted in (
            (flow.rotational_resistance(axes, MU), turning),
            (flow.translational_resistance(axes, MU), moving),
        ):
            assert got.dtype == dtype
            np.testing.assert_allclose(got, wanted, rtol=rtol)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_resistance_of_a_sphere_is_that_of_stokes(dtype):
    """``8 pi mu a^3`` and ``6 pi mu a``, of a millimetre and of a micrometre too."""
    eps = jnp.finfo(dtype).eps
    for radius in (1.0, 1e-3, 1e-6):
        a = jnp.full(3, radius, dtype)
        turning, moving = flow.rotational_resistance(a, MU), flow.translational_resistance(a, MU)
        np.testing.assert_allclose(turning, 8 * np.pi * MU * radius**3, rtol=10 * eps)
        np.testing.assert_allclose(moving, 6 * np.pi * MU * radius, rtol=10 * eps)


def test_the_resistance_of_a_disc_and_of_a_needle():
    """A disc of radius 1: 32/3 mu about all axes, 16 mu broadside and 32/3 mu edge on.

    A needle of half length 1 and aspect ratio r: ``4 pi mu/(ln 2 r - 1/2)`` along its axis.
    """
    disc = jnp.array([1.0, 1.0, 1e-5])
    np.testing.assert_allclose(flow.rotational_resistance(disc, 1.0), 32 / 3, rtol=3e-5)
    wanted = [32 / 3, 32 / 3, 16]
    np.testing.assert_allclose(flow.translational_resistance(disc, 1.0), wanted, rtol=3e-5)
    needle = flow.translational_resistance(jnp.array([1.0, 1e-4, 1e-4]), 1.0)[0]
    np.testing.assert_allclose(needle, 4 * np.pi / (np.log(2e4) - 0.5), rtol=1e-6)


def test_the_resistance_has_gradients_where_axes_are_equal():
    """Those of a sphere by its three axes: the sum is that of ``6 pi mu a``, and b = c."""
    resistance = jax.jit(lambda a: flow.translational_resistance(a, 1.0))
    slopes = np.asarray(jax.jit(jax.jacfwd(resistance))(jnp.ones(3)))
    np.testing.assert_allclose(slopes.sum(axis=1), 6 * np.pi, rtol=1e-14)
    np.testing.assert_allclose(slopes[0, 1], slopes[0, 2], rtol=1e-14)
    h = 1e-5 * np.eye(3)
    differences = [resistance(jnp.asarray(1 + e)) - resistance(jnp.asarray(1 - e)) for e in h]
    np.testing.assert_allclose(slopes.T, np.stack(differences) / 2e-5, rtol=0, atol=1e-8)


def test_a_spheroid_in_shear_turns_at_jeffery_s_rate():
    """At the angle phi from the gradient it is ``g (r^2 cos^2 + sin^2)/(r^2 + 1)`` about -z."""
    for r in (0.2, 1.0, 5.0):
        rate = flow.jeffery_rate(jnp.array([r, 1.0, 1.0]), SHEAR)
        for phi in (0.0, 0.4, 1.3, 2.9):
            half = 0.5 * (0.5 * np.pi - phi)  # the axis of symmetry is body x
            q = jnp.array([np.cos(half), 0.0, 0.0, np.sin(half)])
            wanted = -2.0 * (r**2 * np.cos(phi) ** 2 + np.sin(phi) ** 2) / (r**2 + 1)
            np.testing.assert_allclose(rate(0.0, q), [0.0, 0.0, wanted], rtol=0, atol=1e-15)


def test_the_torque_is_that_of_jeffery():
    """By numpy, from the strain and the spin in body axes of a flow that varies with time.

    ``T_1 = 16 pi mu/(3 (a_2^2 b_2 + a_3^2 b_3))`` times
    ``(a_2^2 - a_3^2) E_23 + (a_2^2 + a_3^2) (W_1 - omega_1)``.
    """
    a = np.array([0.6, 1.1, 2.3])
    b, square = integrals(a), a**2
    rate = flow.jeffery_rate(jnp.asarray(a), lambda t, state, params: t * jnp.asarray(GRADIENT))
    torque = flow.rotational_resistance(a, MU) * (rate(1.7, STATE) - STATE.omega)
    rotation = np.asarray(jq.quaternion.to_matrix(STATE.q))
    local = rotation.T @ (1.7 * GRADIENT) @ rotation
    strain, spin = (local + local.T) / 2, (local - local.T) / 2
    wanted = []
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        inner = (square[j] - square[k]) * strain[j, k]
        inner += (square[j] + square[k]) * (spin[k, j] - STATE.omega[i])
        wanted.append(16 * np.pi * MU / (3 * (square[j] * b[j] + square[k] * b[k])) * inner)
    np.testing.assert_allclose(torque, wanted, rtol=1e-11)
    a = jnp.full(3, 0.3)
    sphere = flow.jeffery_rate(a, GRADIENT)(0.0, STATE) - STATE.omega
    sphere = flow.rotational_resistance(a, MU) * sphere
    curl = np.array([GRADIENT[k, j] - GRADIENT[j, k] for j, k in ((1, 2), (2, 0), (0, 1))])
    wanted = 8 * np.pi * MU * 0.3**3 * (rotation.T @ curl / 2 - STATE.omega)
    np.testing.assert_allclose(sphere, wanted, rtol=1e-13, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["scan", "fused"])
def test_the_period_of_a_spheroid_with_little_inertia_is_that_of_jeffery(engine):
    """``2 pi (r + 1/r)/g`` to what an inertia of 1e-5 changes, at 1000 relaxation times a step.

    The step is of order 1 there: two runs give the limit of short steps.
    """
    if engine == "fused":
        pytest.importorskip("llvmlite")
    a, period = jnp.array([3.0, 1.0, 1.0]), np.pi * (3 + 1 / 3)
    scheme = jq.schemes.damp(
        jq.no_squish, flow.rotational_resistance(a, 1.0), toward=flow.jeffery_rate(a, SHEAR)
    )
    body = jq.Body.from_principal(1e-4 * jnp.array([1.0, 2.0, 2.0]))
    q = jnp.array([np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])
    start = jq.State(q, jnp.array([0.0, 0.0, -1.8]))

    def error(steps):
        grid = jq.grid(0.0, period / steps, steps)
        path = jq.rollout(
            scheme, body, jq.torques.zero, start, grid, options=jq.RolloutOptions(engine=engine)
        )
        return np.asarray(jq.quaternion.log(jq.quaternion.relative(q, path.final.q)))

    coarse, fine = error(1000), error(2000)
    assert np.abs(coarse).max() < 0.02  # the attitude is back after a whole turn
    np.testing.assert_allclose(2 * fine - coarse, 0, atol=2e-4)


def test_bad_input_of_the_flow_is_named():
    a = np.ones(3)
    with pytest.raises(ValueError, match=r"^semi_axes: wanted positive values"):
        flow.rotational_resistance(-a, 1.0)
    with pytest.raises(ValueError, match=r"^gradient\(...\): wanted shape \(3, 3\), got \(3,\)"):
        flow.jeffery_rate(a, lambda t, state, params: a)(0.0, STATE.q)
    with pytest.raises(TypeError, match=r"^gradient: wanted gradient\(t, state, params\), got"):
        flow.jeffery_rate(a, lambda t: GRADIENT)(0.0, STATE.q)
