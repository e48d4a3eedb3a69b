"""Drag beside a scheme: exact decay at any step, towards a rate of time and attitude."""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest

import jaxquat as jq
from jaxquat.schemes import damped

DAMPING = jnp.array([[0.5, 0.1, 0.0], [0.0, 0.4, 0.2], [0.1, 0.0, 0.6]])
BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
START = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.5, -1.0, 0.7]))
WIND = jnp.array([0.3, -0.5, 0.8])  # a rate in world axes


def wind(t, q):
    return jq.quaternion.rotate_inverse(q, WIND * jnp.cos(t))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_rate_of_a_sphere_decays_exactly_towards_the_given_rate(dtype):
    """Its rate is ``c + (omega0 - c) exp(-d t/I)`` at steps from 0.1 to 20,000 decay times."""
    body = jq.Body(2.0 * jnp.eye(3, dtype=dtype))
    start = jax.tree.map(lambda x: x.astype(dtype), START)
    c = jnp.array([1.0, 2.0, -0.5], dtype)

    def omega(strength):
        scheme = damped(jq.pcdm1, strength * jnp.ones(3, dtype), toward=lambda t, q: c)
        path = jq.rollout(scheme, body, jq.torques.zero, start, jq.grid(0.0, 0.2, 3), engine="scan")
        return path.state.omega

    strengths = jnp.array([1.0, 30.0, 1e3, 2e5], dtype)
    got = jax.jit(jax.vmap(omega))(strengths)
    decays = np.exp(-0.1 * np.asarray(strengths, float)[:, None, None] * np.arange(4)[:, None])
    c, excess = np.asarray(c, float), np.asarray(start.omega - c, float)
    wanted = c + decays * excess
    np.testing.assert_allclose(got, wanted, rtol=0, atol=40 * jnp.finfo(dtype).eps)


def test_a_damped_step_towards_a_rate_is_undone_by_one_of_minus_dt():
    scheme = damped(jq.no_squish, DAMPING, toward=wind)
    there = scheme(BODY, problems.heavy, 0.3, START, 0.1, None)
    back = scheme(BODY, problems.heavy, 0.4, there, -0.1, None)
    np.testing.assert_allclose(jq.dynamics.local(START, back), np.zeros(6), atol=1e-15)


@pytest.mark.needs("llvmlite")
@pytest.mark.slow
def test_the_rate_towards_which_a_body_decays_has_gradients():
    """The derivative by the wind, of both engines, against differences."""

    def last(wind, engine="scan"):
        scheme = damped(
            jq.pcdm1, DAMPING, toward=lambda t, q: jq.quaternion.rotate_inverse(q, t * wind)
        )
        grid = jq.grid(0.2, 0.1, 4)
        final = jq.rollout(scheme, BODY, jq.torques.zero, START, grid, engine=engine).final
        return final.omega[0] + final.q[2]

    value, h = jax.jit(jax.vmap(last)), 1e-5 * np.eye(3)
    differences = (value(WIND[None] + h) - value(WIND[None] - h)) / 2e-5
    for engine in ("scan", "fused"):
        slope = jax.jit(jax.grad(last), static_argnums=1)(WIND, engine)
        np.testing.assert_allclose(slope, differences, rtol=0, atol=1e-10)


@pytest.mark.needs("llvmlite")
@pytest.mark.slow
def test_the_fused_engine_decays_as_the_scan_does():
    scheme, grid = damped(jq.no_squish, DAMPING, toward=wind), jq.grid(0.0, 0.1, 30)
    by_scan, fused = (
        jq.rollout(scheme, BODY, problems.heavy, START, grid, engine=engine).state
        for engine in ("scan", "fused")
    )
    for got, wanted in zip(fused[:2], by_scan[:2], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_the_order_is_two_and_falls_to_one_where_the_decay_is_short():
    """The reference is rkmk4 with the same drag as a torque.

    At 100 times the drag the decay takes about 0.02; steps of 0.1 to 0.02 are stable there. At
    20,000 times a body follows the wind, and the error is that of Euler's method for q.
    """

    def errors(strength, steps, fine):
        def drag(t, state, params):
            return -strength * DAMPING @ (state.omega - wind(t, state.q))

        torque = jq.torques.total(problems.heavy, drag)
        reference = problems.marcher(jq.rkmk4, torque)(BODY, START, 0.0, 2.0, fine)
        march = problems.marcher(damped(jq.no_squish, strength * DAMPING, wind), problems.heavy)
        ends = [march(BODY, START, 0.0, 2.0, n) for n in steps]
        return [np.linalg.norm(jq.dynamics.local(reference, end)) for end in ends]

    steps = np.array([40, 80, 160])
    assert abs(problems.slope(steps, errors(1.0, steps, 1000)) - 2) < 0.05
    assert errors(100.0, [20], 4000)[0] < 0.1
    assert abs(problems.slope(steps, errors(2e4, steps, 80000)) - 1) < 0.1


def test_the_rate_to_decay_towards_is_checked():
    with pytest.raises(TypeError, match=r"^toward: wanted toward\(t, q\), got"):
        damped(jq.no_squish, DAMPING, lambda t: WIND)
    scheme = damped(jq.no_squish, DAMPING, lambda t, q: q)
    with pytest.raises(ValueError, match=r"^toward\(t, q\): wanted shape \(3,\), got \(4,\)"):
        scheme(BODY, jq.torques.zero, 0.0, START, 0.1, None)
