"""Hoffmann's schemes: his printed table, the responses of his controllers, the Lagrange form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from examples.validation import problems
from examples.validation.hoffmann import BODY, REST, angles, excited, simultaneous
from jaxquat import control, quaternion
from jaxquat.schemes import hoffmann


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("half_quat", (69.4904, 17.1177, 41.2577)),  # he printed 69.49, 17.12, 41.26
        ("full_quat", (65.5633, 18.1130, 38.6448)),  # 65.56, 18.11, 38.64
        ("full_quat_corrected", (68.1026, 18.1222, 40.4146)),
    ],
)
def test_a_scheme_gives_the_row_of_the_printed_table(name, printed):
    np.testing.assert_allclose(angles(excited(name).q)[-1], printed, rtol=0, atol=5e-5)


@pytest.mark.slow
def test_the_exact_motion_beside_the_table():
    """A torque of 5 for 0.1 s, then 1 s of the free body: what the table should have shown."""
    push = problems.marcher(jq.rkmk6, lambda t, state, params: 5.0 * jnp.ones(3))
    pushed = push(BODY, REST, 0.0, 0.1, 100)
    free = jax.jit(lambda state: jq.exact.free_body(BODY, 1.0, state))(pushed)
    np.testing.assert_allclose(angles(free.q), (65.5256, 18.3935, 38.3360), rtol=0, atol=5e-5)


def test_simultaneous_assignment_is_another_method():
    """It ends at 68.7346, 18.1313, 40.8318 degrees: his table is that of sequential assignment.

    On FREE and HEAVY it is wrong by 0.77 and 0.89 rad, as is recorded.
    """
    push = lambda k, q: 5.0 * (k == 0) * np.ones(3)
    one, inertia = np.array([1.0, 0, 0, 0]), np.asarray(BODY.inertia)
    pushed = simultaneous(one, np.zeros(3), inertia, push, 0.1, 11)
    np.testing.assert_allclose(angles(pushed), (68.7346, 18.1313, 40.8318), rtol=0, atol=5e-5)

    def heavy(k, q):
        w, x, y, z = q
        down = -np.array([2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z])
        return np.cross([0.0, 0.0, 1.0], down)

    free = lambda k, q: np.zeros(3)
    for name, torque, recorded in (("FREE", free, 0.77), ("HEAVY", heavy, 0.89)):
        _, q0, q, _ = problems.REFERENCE[name]
        end = simultaneous(q0, problems.OMEGA0, np.diag(problems.MOMENTS), torque, 0.05, 200)
        error = jq.quaternion.distance(jnp.asarray(end / np.linalg.norm(end)), jnp.asarray(q))
        assert abs(float(error) / recorded - 1) < 0.01


@pytest.mark.slow
def test_full_quat_as_published_converges_to_another_motion():
    """Its ends at dt = 1e-3 and 2e-4 agree with each other and not with the truth.

    Those of the corrected scheme approach the truth.
    """
    ends = {}
    for name in ("full_quat", "full_quat_corrected"):
        for n in (1, 5):
            ends[name, n] = angles(excited(name, 1100 * n, 1e-3 / n, 100 * n).q)[-1]
    truth = np.array([65.5256, 18.3935, 38.3360])
    wrong = np.abs(ends["full_quat", 5] - truth).max()
    assert wrong > 1.0
    assert np.abs(ends["full_quat", 5] - ends["full_quat", 1]).max() < 0.3 * wrong
    coarse, fine = (np.abs(ends["full_quat_corrected", n] - truth).max() for n in (1, 5))
    assert fine < 0.03
    assert 4.5 < coarse / fine < 5.5


TARGET = jnp.radians(jnp.array([20.0, -10.0, 30.0]))  # roll, pitch, yaw
LIMITS = jnp.array([8.0, 2.0, 4.0])


def controlled(law, target, step, dt, steps):
    """From (psi, theta, phi) = (15, 30, 15) degrees."""
    gains = control.Gains(
        jnp.array([2.0, 4, 5]) if law == "euler" else jnp.array([3.0, 4, 6]),
        jnp.array([6.0, 10, 12]),
    )
    target_q = jq.euler.to_quaternion(target[::-1], "ZYX")

    def torque(t, state, params):
        if law == "euler":
            return control.euler_law(state, gains, target)
        tau = control.quaternion_law(state, gains, target_q)
        return jnp.clip(tau, -LIMITS, LIMITS) if law == "limited" else tau

    start = jq.State(
        jq.euler.to_quaternion(jnp.radians(jnp.array([15.0, 30, 15])), "ZYX"), jnp.zeros(3)
    )
    return angles(
        jax.jit(lambda: jq.rollout(step, BODY, torque, start, jq.grid(0.0, dt, steps)))().state.q
    )


RESPONSES = {
    "euler": ((-1.4462, -0.3833, -0.5014), (0.2345, -0.1184, -0.1440), (-2.4399, -0.3397, -0.6185)),
    "quaternion": (
        (0.8113, -0.6528, 0.3426),
        (0.0860, -0.0899, -0.0598),
        (0.6444, -0.7663, 0.4122),
    ),
    "limited": ((0.6183, 0.8234, 0.5773), (0.0981, -0.2411, -0.0854), (0.4584, 1.1618, 0.6899)),
}


@pytest.mark.parametrize("law", some(RESPONSES, ("quaternion", "limited")))
def test_responses_of_his_controllers(law):
    """At steps 10 and 20 of his program, and those of the continuous controller at t = 1."""
    path = controlled(law, jnp.zeros(3), jq.schemes.half_quat, 0.1, 20)
    np.testing.assert_allclose(path[[10, 20]], RESPONSES[law][:2], rtol=0, atol=5e-5)
    exact = controlled(law, jnp.zeros(3), jq.rkmk4, 0.0005, 2000)
    np.testing.assert_allclose(
        exact[-1], RESPONSES[law][2], rtol=0, atol=1.5e-4 if law == "limited" else 5e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("law", RESPONSES)
def test_responses_at_a_nonzero_target(law):
    """The program settles there; with the error in the wrong frame it would settle at zero only."""
    path = controlled(law, TARGET, jq.schemes.half_quat, 0.1, 200)
    np.testing.assert_allclose(path[-1], np.degrees(TARGET), rtol=0, atol=1e-3)
    fine = controlled(law, TARGET, jq.schemes.half_quat, 0.001, 1000)
    exact = controlled(law, TARGET, jq.rkmk4, 0.001, 1000)
    assert np.abs(fine[-1] - exact[-1]).max() < 0.15  # order 1: a hundredth of what 0.1 errs by
    assert np.abs(path[10] - exact[-1]).max() > 0.3


def test_lagrange_form_is_lagranges_equation():
    """d/dt dT/dP - dT/dQ = M_L + lambda Q with T = 2 P^T V^T J V P (5.2), by differentiation.

    |Q| = 1 is kept.
    """

    @jax.jit
    @jax.vmap
    def terms(q, omega, tau):
        state = hoffmann.full_quat_start(q, omega)
        his, p = quaternion.to_hoffmann(state.q), state.aux
        v = quaternion.hoffmann_v(his)
        generalized = 2.0 * v.T @ jnp.concatenate([tau, jnp.zeros(1)])
        p_dot = hoffmann.lagrange(BODY, his, p, generalized)

        def kinetic(his, p):
            omega = 2.0 * (quaternion.hoffmann_v(his) @ p)[:3]
            return 0.5 * omega @ BODY.inertia @ omega

        momentum = jax.grad(kinetic, argnums=1)
        rate = jax.jvp(momentum, (his, p), (p, p_dot))[1]
        left = rate - jax.grad(kinetic)(his, p) - generalized
        sphere = hoffmann.lagrange(jq.Body.from_principal(1.7 * jnp.ones(3)), his, p, generalized)
        spun = -(p @ p) * his + generalized / (4 * 1.7)
        return left - (left @ his) * his, his @ p_dot + p @ p, sphere - spun

    rng = np.random.default_rng(0)
    q, omega, tau = (rng.normal(size=(5, n)) for n in (4, 3, 3))
    left, kept, sphere = terms(q / np.linalg.norm(q, axis=1, keepdims=True), omega, tau)
    np.testing.assert_allclose(left, 0, atol=1e-13)
    np.testing.assert_allclose(kept, 0, atol=1e-14)
    np.testing.assert_allclose(sphere, 0, atol=1e-14)


def test_full_quat_wants_its_own_start():
    with pytest.raises(TypeError, match="full_quat_start"):
        jq.schemes.full_quat(BODY, jq.torques.zero, 0.0, REST, 0.1, None)
