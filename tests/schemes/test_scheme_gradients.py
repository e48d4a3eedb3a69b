"""Every scheme has its derivatives under vmap, in both modes.

They are those by the start, the inertia at repeated moments, the parameters of the torque, the step
and the time.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from examples.validation import problems
from examples.validation.orders import ANY_TORQUE, COMPOSED
from jaxquat.schemes.munthe_kaas import MuntheKaas

SHIFTS = (-2.0, -1.0, 1.0, 2.0)
# One member is at rest.
SPINS = jnp.array([[1.2, -0.7, 0.9], [0.0, 0.0, 0.0], [-0.5, 2.0, 0.3]])
H = 3e-4
# Those composed of the steps of others have their gradients in simulation/engines/test_fused.py,
# other lifted tableaus than that of rkmk4 in test_gradients.py.
ONE_BY_ONE = [
    name
    for name, scheme in jq.schemes.SCHEMES.items()
    if name not in COMPOSED and (name == "rkmk4" or not isinstance(scheme.step, MuntheKaas))
]


def end_of(name, body_of, steps, x):
    """Returns q and omega (7,) after some steps as a function of 14 + k numbers.

    The numbers are turn, rate, torque parameters, dt, t0 and body (k,). If ``steps`` is None, two
    steps run operation by operation; else that many steps run in a rollout.
    """
    turn, omega, pull, drive, dt, t0, rest = x[:3], x[3:6], x[6:9], x[9:12], x[12], x[13], x[14:]

    def torque(t, state, params):
        tau = jq.quaternion.rotate_inverse(state.q, params[0]) + jnp.sin(3.0 * t) * params[1]
        return tau - 0.3 * params[1][0] * state.omega if name in ANY_TORQUE else tau

    body, step, params = body_of(rest), jq.schemes.SCHEMES[name], (pull, drive)
    state = problems.start_of(
        name, jq.quaternion.multiply(jnp.asarray(problems.TILTED), jq.quaternion.exp(turn)), omega
    )
    if steps is None:
        for k in range(2):
            state = step(body, torque, t0 + k * dt, state, dt, params)
    else:
        rows = jq.rollout(
            step, body, torque, state, jq.grid(t0, dt, steps, save_every=steps), params
        ).state
        state = jax.tree.map(lambda x: x[-1], rows)
    return jnp.concatenate([state.q, state.omega])


def principal(x):
    turn = jq.quaternion.multiply(jnp.array([0.5, -0.5, 0.5, 0.5]), jq.quaternion.exp(x[3:]))
    return jq.Body.from_principal(x[:3], turn)


BODIES = {
    "repeated moments": (principal, [0.6, 0.6, 1.0, 0.1, -0.2, 0.3]),
    "full inertia": (jq.Body.from_parameters, [-0.9, -0.7, -0.5, 0.1, -0.15, 0.2]),
}


def verify(run, numbers):
    """Asserts that both modes agree with central differences of order 4.

    The modes agree with each other to rounding. There are three members at once, and every number
    has an effect.
    """
    common = jnp.array([0.5, -0.3, 0.8, 0.4, 0.2, -0.6, 0.05, 0.4, *numbers])
    members = jnp.concatenate(
        [jnp.zeros((3, 3)), SPINS, jnp.broadcast_to(common, (3, common.size))], axis=1
    )
    moved = (
        members[:, None, None]
        + H * jnp.array(SHIFTS)[None, :, None, None] * jnp.eye(members.shape[1])[None, None]
    )
    forward, reverse, shifted = (np.asarray(x) for x in run(members, moved))
    low2, low, high, high2 = np.moveaxis(shifted, 1, 0)
    differences = np.swapaxes(low2 - 8 * low + 8 * high - high2, 1, 2) / (12 * H)
    assert np.isfinite(forward).all()
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-12 * np.abs(forward).max())
    np.testing.assert_allclose(forward, differences, rtol=0, atol=1e-9 * np.abs(forward).max())
    assert (np.abs(forward[0]).max(axis=0) > 1e-6).all(), (
        "a number that has no effect would test nothing"
    )


def both_modes(f):
    """Returns Jacobians of f: R^n -> R^7 in forward and reverse mode, and its values elsewhere.

    The first two are at ``members`` (b, n), the values at ``moved`` (b, 4, n, n). Each has one vmap
    over all rows: every vmap around another costs the time of an operation without jit once more.
    """

    def run(members, moved):
        b, n = members.shape
        member, direction = np.indices((b, n)).reshape(2, -1)
        slope = jax.vmap(lambda x, dx: jax.jvp(f, (x,), (dx,))[1])
        forward = slope(members[member], jnp.eye(n)[direction]).reshape(b, n, 7)
        member, output = np.indices((b, 7)).reshape(2, -1)
        pulled = jax.vmap(lambda x, bar: jax.vjp(f, x)[1](bar)[0])
        reverse = pulled(members[member], jnp.eye(7)[output]).reshape(b, 7, n)
        values = jax.vmap(f)(moved.reshape(-1, n)).reshape(*moved.shape[:3], 7)
        return jnp.swapaxes(forward, 1, 2), reverse, values

    return run


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.long
def test_steps_of_every_scheme():
    """The steps run operation by operation and share compilations, so all schemes are one test."""
    for name, kind in [(name, "repeated moments") for name in ONE_BY_ONE] + [
        ("symmetric_top", "full inertia")
    ]:
        body_of, numbers = BODIES[kind]
        try:
            verify(
                both_modes(lambda x, name=name, body_of=body_of: end_of(name, body_of, None, x)),
                numbers,
            )
        except AssertionError as error:
            raise AssertionError(f"{name}, {kind}") from error


@pytest.mark.slow  # the gradient of half_quat by the fused engine is quick
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "repeated moments") for name in ("half_quat", "zhao", "simo_wong")),
        *((name, "full inertia") for name in ("zhao", "lgvi")),
    ],
)
def test_a_compiled_rollout(name, kind):
    body_of, numbers = BODIES[kind]
    verify(jax.jit(both_modes(lambda x: end_of(name, body_of, 6, x))), numbers)
