"""One scheme of each family under vmap, in both modes: start, inertia, parameters of the torque, step and time.

The others are differentiated in benchmarks/certificates.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from test_schemes import ANY_TORQUE

import jaxquat as jq

STEPS = 6
QUICK = ("zhao", "half_quat", "symmetric_top", "lgvi")
SHIFTS = (-2.0, -1.0, 1.0, 2.0)


def end_of(name, body_of, x):
    """The state after six steps: q and omega (7,), of 14 + k numbers: turn, rate, torque parameters, dt, t0, body (k,)."""
    turn, omega, pull, drive, dt, t0, rest = x[:3], x[3:6], x[6:9], x[9:12], x[12], x[13], x[14:]

    def torque(t, state, params):
        tau = jq.quaternion.rotate_inverse(state.q, params[0]) + jnp.sin(3.0 * t) * params[1]
        return tau - 0.3 * params[1][0] * state.omega if name in ANY_TORQUE else tau

    q = jq.quaternion.multiply(jnp.asarray(problems.TILTED), jq.quaternion.exp(turn))
    start = problems.start_of(name, q, omega)
    path = jq.rollout(jq.SCHEMES[name].step, body_of(rest), torque, start, jq.grid(t0, dt, STEPS), (pull, drive), save_every=STEPS)
    return jnp.concatenate([path.state.q[-1], path.state.omega[-1]])


def principal(x):
    turn = jq.quaternion.multiply(jnp.array([0.5, -0.5, 0.5, 0.5]), jq.quaternion.exp(x[3:]))
    return jq.Body.from_principal(x[:3], turn)


BODIES = {
    "repeated moments": (principal, [0.6, 0.6, 1.0, 0.1, -0.2, 0.3]),
    "full inertia": (jq.Body.from_parameters, [-0.9, -0.7, -0.5, 0.1, -0.15, 0.2]),
}


SLOW = ("rkmk4", "formulation1", "symmetric_top_bm4", "simo_wong")
CASES = [(name, "repeated moments") for name in (*QUICK, *SLOW)] + [("zhao", "full inertia"), ("symmetric_top", "full inertia")]


@pytest.mark.parametrize(
    ("name", "kind"),
    [pytest.param(*case, marks=() if case[0] in QUICK and case[1] == "repeated moments" else pytest.mark.slow) for case in CASES],
)
def test_both_modes_and_vmap(name, kind):
    """Forward = reverse, and = central differences of order 4, for three members at once, one of them at rest."""
    body_of, numbers = BODIES[kind]
    spins = jnp.array([[1.2, -0.7, 0.9], [0.0, 0.0, 0.0], [-0.5, 2.0, 0.3]])
    common = jnp.array([0.5, -0.3, 0.8, 0.4, 0.2, -0.6, 0.05, 0.4, *numbers])
    members = jnp.concatenate([jnp.zeros((3, 3)), spins, jnp.broadcast_to(common, (3, common.size))], axis=1)
    h = 3e-4

    @jax.jit
    @jax.vmap
    def run(x):
        def f(x):
            return end_of(name, body_of, x)

        moved = x[None, None] + h * jnp.array(SHIFTS)[:, None, None] * jnp.eye(x.size)[None]
        return jax.jacfwd(f)(x), jax.jacrev(f)(x), jax.vmap(jax.vmap(f))(moved)

    forward, reverse, (low2, low, high, high2) = (
        np.asarray(y) if k < 2 else np.moveaxis(np.asarray(y), 1, 0) for k, y in enumerate(run(members))
    )
    differences = np.swapaxes(low2 - 8 * low + 8 * high - high2, 1, 2) / (12 * h)
    assert np.isfinite(forward).all()
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-12 * np.abs(forward).max())
    np.testing.assert_allclose(forward, differences, rtol=0, atol=1e-9 * np.abs(forward).max())
    assert (np.abs(forward[0]).max(axis=0) > 1e-6).all(), "a number that has no effect would test nothing"
