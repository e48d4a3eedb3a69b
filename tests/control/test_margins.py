"""Margins against closed forms, and against the loop that ``rollout`` closes at the margin."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from jaxquat import actuators, control, dynamics

DT = 0.1
MOMENTS = np.array([2.0, 3.0, 4.0])
BODY = jq.Body.from_principal(jnp.asarray(MOMENTS))
REST = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
DAMPER = jq.Controller(lambda start, k: (), lambda t, state, m, k, value: (-k * state.omega, m))


def single(tree):
    return jax.tree.map(lambda x: x.astype(jnp.float32), tree)


def damper(k, body=BODY, torque=jq.torques.commanded, controller=DAMPER, **options):
    start = (jq.lie_euler, body, torque, 0.0, REST, DT, k, controller)
    return control.margins(*start, **options)


def test_a_damped_rate_has_the_margins_in_closed_form():
    """With c = k dt / I the loop is L = c / (z - 1), and the attitude does not count.

    |L| = 1 at z = exp(j w) with 2 sin(w/2) = c, at the phase -pi/2 - w/2.
    """
    c = np.array([0.3, 0.7, 1.6])
    found = damper(jnp.asarray(c * MOMENTS / DT))
    w = 2 * np.arcsin(c / 2)
    phase = np.pi / 2 - w / 2
    np.testing.assert_allclose(found.gain, np.stack([0 * c, 2 / c], -1), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.phase, phase, rtol=1e-12)
    np.testing.assert_allclose(found.delay, phase / w * DT, rtol=1e-12)
    disk = 2 * (2 - c) / (2 + c)
    np.testing.assert_allclose(found.disk, np.minimum(disk, 2.0), rtol=1e-12)
    np.testing.assert_allclose(found.multiloop, disk.min(), rtol=1e-12)
    with pytest.warns(DeprecationWarning, match="together is now called multiloop"):
        assert found.together == found.multiloop
    z = np.exp(1j * DT * found.frequency)
    np.testing.assert_allclose(found.loop, c[:, None] / (z - 1), rtol=1e-9)
    np.testing.assert_allclose(found.frequency[-1], np.pi / DT, rtol=1e-15)


def test_the_delay_margin_is_what_delay_makes_unstable():
    """The phase margin is n samples at w = pi / (2 n + 1), with poles on the unit circle."""
    late = 2
    c = 2 * np.sin(np.pi / (2 * (2 * late + 1)))
    np.testing.assert_allclose(damper(c * MOMENTS / DT).delay, late * DT, rtol=1e-12)
    delayed = control.delay(DAMPER, late, jnp.zeros(3))
    found = damper(0.9999 * c * MOMENTS / DT, controller=delayed)
    assert np.all((found.delay > 0) & (found.delay < 1e-3 * DT))
    np.testing.assert_allclose(found.gain[:, 1], 1 / 0.9999, rtol=1e-9)


def test_a_sample_of_delay_turns_the_loop_at_half_the_sampling_frequency():
    """With l(pi) = -c/0.1 = 15 the loop z = -0.9 + c is stable, and a sample later it is not."""
    spring = lambda t, state, k, command: command - 1.9 / DT * MOMENTS * state.omega
    k = -1.5 * MOMENTS / DT
    found = damper(k, torque=spring)
    np.testing.assert_allclose(found.loop[:, -1], 15.0, rtol=1e-9)
    np.testing.assert_allclose(found.delay, DT, rtol=1e-12)
    with pytest.raises(ValueError, match=r"pole of modulus 1\.7548"):  # z^2 + 0.9 z = 1.5
        damper(k, torque=spring, controller=control.delay(DAMPER, 1, jnp.zeros(3)))


@pytest.mark.slow
def test_what_the_controller_does_not_see_does_not_count_at_any_attitude():
    """A turn about the line to the sun, and the momentum of wheels that rub, are marginal."""
    axis, still = np.array([0.0, 0.0, 1.0]), jnp.zeros(3)

    def pointing(q):
        sun = jq.quaternion.rotate(q, axis)
        law = lambda t, state, memory, params, value: (
            2.0 * jnp.cross(axis, jq.quaternion.rotate_inverse(state.q, sun)) - 4.0 * state.omega,
            memory,
        )
        loop = jq.Controller(lambda start, params: (), law)
        start = jq.State(q, still)
        return control.margins(
            jq.rkmk2, BODY, jq.torques.commanded, 0.0, start, DT, None, loop
        ).disk

    turned = jq.quaternion.exp(jnp.array([0.5, -0.1, 0.7]))
    np.testing.assert_allclose(pointing(turned), pointing(REST.q), rtol=1e-7)

    def rubbing(t, state, friction, command):
        speed = state.aux / 0.01 - state.omega
        motor = -command - actuators.wheel_friction(speed, 0.0, friction)
        return actuators.wheel_torque(jnp.eye(3), state, state.aux, motor), motor

    law = lambda t, state, memory, friction, value: (
        -2.0 * jq.quaternion.log(state.q) - 4.0 * state.omega,
        memory,
    )
    loop = jq.Controller(lambda start, friction: (), law)
    start = jq.State(REST.q, still, still)
    by = lambda friction: control.margins(jq.rkmk2, BODY, rubbing, 0.0, start, 0.05, friction, loop)
    np.testing.assert_allclose(by(1e-6).gain[:, 1], by(0.0).gain[:, 1], rtol=1e-4)
    assert np.all(by(1e-3).disk > 0.5)


@pytest.mark.slow
def test_a_slow_loop_beside_a_drifting_position_has_the_same_margins_in_single_precision():
    """Poles of 1 - 2e-4 are nearer to those of the position, 1, than rounding moves the latter."""
    start = REST._replace(q=jq.quaternion.exp(jnp.array([0.5, -0.1, 0.7])))
    start = start._replace(position=jnp.ones(3), velocity=jnp.array([0.1, 0.0, 0.0]))
    heavy, found = jq.Body(BODY.inertia, mass=5.0), []
    for body, about in ((heavy, start), single((heavy, start))):

        def law(t, state, memory, params, value, body=body, q=about.q):
            turn = jq.quaternion.log(jq.quaternion.relative(q, state.q))
            return -body.inertia @ (2.5e-5 * turn + 7e-3 * state.omega), memory

        loop = jq.Controller(lambda start, params: (), law)
        plant = jq.torques.commanded
        found.append(control.margins(jq.rkmk2, body, plant, 0.0, about, 0.05, None, loop))
    for name in ("gain", "phase", "delay", "disk"):
        double, single_ = (getattr(x, name) for x in found)
        np.testing.assert_allclose(single_, double, rtol=2e-5, err_msg=name)


@pytest.mark.slow
def test_a_delay_of_a_hundred_samples_is_within_reach():
    """L = c z^-100/(z - 1) is on the edge at c = 2 sin(pi/402), by the delay in closed form."""
    c = 2 * np.sin(np.pi / (2 * (2 * 100 + 1)))
    late = control.delay(DAMPER, 100, jnp.zeros(3))
    found = damper(0.5 * c * MOMENTS / DT, controller=late)
    np.testing.assert_allclose(found.gain[:, 1], 2.0, rtol=1e-9)


# A plant with products of inertia and lagging motors, under a PID controller with two steps a
# sample and a delay: 12 states of plant and controller, and 6 commands on their way.

FULL = jq.Body(jnp.array([[2.0, 0.3, -0.2], [0.3, 3.0, 0.4], [-0.2, 0.4, 4.0]]))
KEPT = jq.State(REST.q, REST.omega, jnp.zeros(3))
GAINS = control.PIDGains(jnp.array([2.0, 3.0, 4.0]), jnp.array([1.0, 1.5, 2.5]), jnp.full(3, 0.1))
TARGET = control.Reference(REST.q, jnp.zeros(3), jnp.zeros(3))
PID = control.delay(control.pid(FULL, 2 * DT, TARGET), 2, jnp.zeros(3))
SAMPLED = {"controller": PID, "sample_every": 2}


def lagging(t, state, params, command):
    return state.aux, actuators.lag(state.aux, params["units"] * command * params["share"], 0.15)


def scaled(units):
    """The same loop with commands in other units."""

    def update(t, state, memory, params, value):
        command, memory = PID.update(t, state, memory, params["gains"], value)
        return command / units, memory

    return jq.Controller(lambda start, params: PID.init(start, params["gains"]), update)


def params_of(share, units=1.0):
    return {"gains": GAINS, "share": share, "units": units}


def of_units(units):
    units = jnp.asarray(units)
    return control.margins(
        jq.rkmk2, FULL, lagging, 0.0, KEPT, DT, params_of(jnp.ones(3), units), scaled(units),
        sample_every=2,
    )  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return of_units(np.ones(3))


@jax.jit
def sample(share):
    """The Jacobian of one sample of a rollout, by the error of the state and the memory."""
    controller = scaled(1.0)
    memory = controller.init(KEPT, params_of(share))
    flat, unravel = jax.flatten_util.ravel_pytree(memory)

    def after(x):
        path = jq.rollout(
            jq.rkmk2,
            FULL,
            lagging,
            dynamics.retract(KEPT, x[:9]),
            jq.grid(0.0, DT, 2, sample_every=2, save_every=2),
            params_of(share),
            controller=controller.resume(unravel(x[9:])),
            options=jq.RolloutOptions(engine="scan"),
        )
        rest = jax.flatten_util.ravel_pytree(path.memory)[0]
        return jnp.concatenate([dynamics.local(KEPT, path.final), rest])

    return jax.jacfwd(after)(jnp.concatenate([jnp.zeros(9), flat]))


def radius(share):
    return np.abs(np.linalg.eigvals(np.asarray(sample(jnp.asarray(share))))).max()


def test_the_loop_of_a_rollout_is_on_the_edge_at_the_gain_margin(found):
    assert radius(np.ones(3)) < 0.995
    for i in range(3):
        one = lambda g, i=i: np.where(np.arange(3) == i, g, 1.0)
        assert radius(one(0.5)) < 1.0
        np.testing.assert_allclose(radius(one(found.gain[i, 1])), 1.0, rtol=1e-9)
        assert radius(one(1.001 * found.gain[i, 1])) > 1.0 > radius(one(0.999 * found.gain[i, 1]))


def test_any_gains_within_the_disk_leave_the_loop_stable(found):
    assert np.all(found.multiloop <= found.disk)
    disk = found.multiloop
    assert disk > 0.25
    low, high = (2 - disk) / (2 + disk), (2 + disk) / (2 - disk)
    assert np.all((found.gain[:, 0] <= low) & (high <= found.gain[:, 1]))
    assert np.all(2 * np.arctan(found.disk / 2) <= found.phase)
    corners = np.stack(np.meshgrid(*[[low, high]] * 3), -1).reshape(-1, 3)
    assert max(map(radius, corners)) < 1.0


def test_a_turn_of_the_loop_at_the_disk_margin_is_on_the_edge(found):
    """1 + f l = 0 with f = (2 + d) / (2 - d) and |d| the disk margin, at some frequency."""
    for loop, disk in zip(found.loop, found.disk, strict=True):
        f = -1 / loop
        d = 2 * (f - 1) / (f + 1)
        np.testing.assert_allclose(np.abs(d).min(), disk, rtol=1e-4)
        assert np.abs(d).min() >= disk * (1 - 1e-12)


@pytest.mark.slow
def test_units_of_the_commands_do_not_matter(found):
    other = of_units(np.array([1e-6, 1.0, 1e5]))
    for ours, theirs in zip(found[:5], other[:5], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), some([("float32", 1e-5), ("float64", 1e-12)], [("float64", 1e-12)])
)
def test_either_precision_and_a_memory_with_a_counter(dtype, tolerance):
    def update(t, state, memory, k, value):
        return -k * state.omega, memory + 1

    body, rest = jax.tree.map(lambda x: x.astype(dtype), (BODY, REST))
    counter = jq.Controller(lambda start, k: jnp.array(0), update)
    k = jnp.asarray(0.3 * MOMENTS / DT, dtype)
    found = control.margins(jq.lie_euler, body, jq.torques.commanded, 0.0, rest, DT, k, counter)
    np.testing.assert_allclose(found.gain[:, 1], 2 / 0.3, rtol=tolerance)


def turned_loop(angle, time, share, start=REST):
    """The margins about a turned state, of a loop that takes ``time`` [s]; dt is a share of it."""
    gains = control.Gains(damping=4.0 / time * jnp.ones(3), stiffness=2.0 / time**2 * jnp.ones(3))
    level = jnp.array([1.0, 0.0, 0.0, 0.0])
    law = lambda t, state, memory, gains, value: (
        control.quaternion_law(state, gains, level), memory
    )  # fmt: skip
    loop = jq.Controller(lambda start, gains: (), law)
    turned = start._replace(q=jq.quaternion.exp(angle * jnp.array([0.0, 0.6, 0.8])))
    body = jq.Body(BODY.inertia, mass=5.0)
    plant, dt = jq.torques.commanded, share * time
    return control.margins(jq.rkmk2, body, plant, 0.0, turned, dt, gains, loop)


@pytest.mark.parametrize(
    ("time", "share"), some([(1.0, 0.1), (1e6, 0.1), (1e-6, 0.1), (1e6, 1e-7)], [(1e6, 0.1)])
)
def test_a_state_that_the_loop_turns_is_reported_with_the_angle_in_any_time(time, share):
    """By the law 2 sin(angle/2), whose linear part at 1 rad is zero 2 tan(1/2) = 1.09 rad away."""
    with pytest.warns(UserWarning, match=r"the loop turns this state by about 1.1 rad; wanted an"):
        turned_loop(1.0, time, share)


@pytest.mark.slow
@pytest.mark.parametrize("time", [1.0, 1e6, 1e-6])
def test_an_equilibrium_is_not_reported_beside_a_drifting_position(time):
    start = REST._replace(position=1e3 * jnp.ones(3), velocity=1e3 / time * jnp.ones(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        turned_loop(0.0, time, 0.1)
        turned_loop(0.0, time, 1e-3, start)


def test_errors():
    with pytest.raises(TypeError, match=r"params: wanted concrete arrays.*outside jit"):
        jax.jit(lambda k: damper(k).disk)(1.0)
    with pytest.raises(ValueError, match=r"controller: wanted a stable loop, got a pole of mod"):
        damper(2.1 * MOMENTS / DT)
    with pytest.raises(ValueError, match=r"torque: wanted one by which a command moves something"):
        damper(1.0, torque=jq.torques.zero)
    with pytest.raises(ValueError, match=r"controller: wanted a period of 0.2 s .*, got 0.1$"):
        damper(1.0, controller=DAMPER._replace(period=0.1), sample_every=2)
    with pytest.raises(TypeError, match=r"memory is now controller=controller.resume\(memory\)"):
        damper(1.0, memory=jnp.zeros(3))
