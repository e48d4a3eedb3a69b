"""Rollouts within ``jax.shard_map``, which by default checks along which axes arrays vary."""

import functools
import os
import subprocess
import sys

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec
from marks import some

import jaxquat as jq
from examples.validation.effort import FULL

SPREAD, SAME = PartitionSpec("bodies"), PartitionSpec()
GAINS = jnp.array([2.0, 1.0])
RATES = jnp.array([[0.9, -0.4, 0.7], [0.2, 0.5, -0.3]])


def flight(engine, omega, gains, torque, scheme=jq.lie_euler, **options):
    """The path from an attitude that is the same on all devices."""
    body, grid = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0])), jq.grid(0.0, 0.05, 4)
    start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), omega)
    return flat.rollout(
        scheme,
        body,
        torque,
        start,
        grid,
        gains,
        options=jq.RolloutOptions(engine=engine),
        **options,
    )


def by_attitude(engine, omega, gains, **options):
    torque = lambda t, s, g: -g[0] * s.q[1:]
    return flight(engine, omega, gains, torque, jq.schemes.lie_midpoint, **options).state.q


def by_loop(engine, omega, gains):
    """A torque with a loop in it, whose body reads what is the same on all devices."""

    def torque(t, state, gains):
        damped = jax.lax.fori_loop(0, 2, lambda k, x: gains[1] * x, state.omega)
        return -gains[0] * state.q[1:] - damped

    return flight(engine, omega, gains, torque).state.q


def by_closure(engine, omega, gains):
    """Start, body and params are the same on all devices; what the torque closes over is not."""
    torque = lambda t, state, gains: -gains[0] * state.q[1:] + omega
    return flight(engine, jnp.ones(3), gains, torque).state.q


def by_controller(engine, omega, gains):
    """The memory is the same on all devices at the start, and not after a sample."""

    def update(t, state, memory, gains, _):
        return -gains[1] * state.omega - memory, memory + 0.1 * state.omega

    controller = jq.Controller(lambda start, gains: jnp.zeros(3), update)
    torque = lambda t, state, gains, command: command
    options = {"controller": controller, "sample_every": 2, "save_every": 4}
    return flight(engine, omega, gains, torque, **options).final.omega


class Kicked:
    """A step that adds its noise to the rate."""

    def noise(self, state):
        return 3

    def __call__(self, body, torque, t, state, dt, params, noise):
        kicked = state._replace(omega=state.omega + noise)
        return jq.lie_euler(body, torque, t, kicked, dt, params)


def by_noise(engine, omega, gains):
    """Start, body and params are the same on all devices; the noise is not."""
    torque = lambda t, state, gains: -gains[0] * state.q[1:]
    scheme, normals = jq.schemes.Scheme(Kicked(), "kicked"), jnp.outer(jnp.arange(4.0), omega)
    return flight(engine, jnp.ones(3), gains, torque, scheme, noise=normals).state.q


def by_key(engine, omega, gains):
    torque = lambda t, state, gains: -gains[0] * state.q[1:]
    scheme, number = jq.schemes.Scheme(Kicked(), "kicked"), (100 * omega[0]).astype(jnp.int32)
    key = jax.random.fold_in(jax.random.key(0), number)
    return flight(engine, jnp.ones(3), gains, torque, scheme, noise=key).state.q


def by_pulses(engine, omega, gains):
    """Instants and start are the same on all devices; what the torque closes over is not."""
    scheme = jq.schemes.split_steps(jq.rkmk2, lambda t, state, gains, ends: gains[1] * ends)
    push = lambda t, state, gains, command: jnp.where(command[1][0], gains[0] * omega, 0.0)
    inputs = 0.01 * jnp.arange(4.0)[:, None]
    return flight(engine, jnp.ones(3), gains, push, scheme, inputs=inputs).state.q


V, EYE, LEVEL = jnp.array([0.3, -0.2, 0.1]), jnp.eye(3), jnp.array([1.0, 0.0, 0.0, 0.0])
BODY = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]), mass=2.0)
REST, HERE = jq.control.Reference(LEVEL, jnp.zeros(3), jnp.zeros(3)), jq.control.hold_position(V)
CORNERS = 0.12 * jnp.array([[1.0, 1, 0], [-1, 1, 0], [-1, -1, 0], [1, -1, 0]])
SPINS, CURVE = jnp.array([1.0, -1.0, 1.0, -1.0]), jnp.array([0.0, 0.0, 2e-5])
ROTORS = jq.rotors.Rotors(CORNERS, jnp.tile(EYE[2], (4, 1)), SPINS, CURVE, 0.02 * CURVE)


def control_gains(k):
    return jq.control.Gains(k * jnp.ones(3), 2.0 * k * jnp.ones(3))


def law(command):
    """The torque of a law, and its options."""
    return lambda k: (lambda t, state, params: command(state, k), {})


def wheels(k):
    """Motors turn wheels whose momentum is the aux state."""

    def torque(t, state, params):
        motor = jq.actuators.allocate(EYE, -k * state.omega, 0.5)
        return jq.actuators.wheel_torque(EYE, state, state.aux, motor), motor

    return torque, {"aux": jnp.zeros(3)}


def lags(k):
    """Torques that follow a command, which is the same on all devices."""

    def torque(t, state, params, command):
        return state.aux, jq.actuators.lag(state.aux, command, 0.1 * k)

    return torque, {"aux": jnp.zeros(3), "inputs": k * jnp.ones((4, 3))}


def delays(k):
    """Commands that were recorded."""
    times, commands = jnp.linspace(0.0, 0.2, 5), jnp.outer(jnp.arange(5.0), V)
    late = jq.actuators.delay_record(times, commands, 0.02 * k)
    slow = jq.actuators.lag_record(times, commands, 0.1 * k)
    return jq.torques.commanded, {"inputs": late + slow[:-1]}


def rotors(k):
    """Rotors that follow speeds which are the same on all devices."""
    curves = ROTORS._replace(thrust=k * CURVE)
    speeds = jq.Controller(lambda *_: (), lambda *_: (500.0 * jnp.ones(4), ()))
    plant = jq.torques.total(jq.forces.gravity(BODY), jq.rotors.lag(curves, 0.05))
    return plant, {"aux": 480.0 * jnp.ones(4), "controller": speeds}


def cascade(k):
    gains = jq.control.CascadeGains(*(k * jnp.ones(3) for _ in range(6)))
    controller = jq.control.cascade(BODY, 0.05, HERE, gains=gains)
    plant, options = rotors(k)
    near = jq.quaternion.exp(0.1 * V)  # far from upright a last bit decides which limit binds
    return plant, options | {
        "controller": jq.rotors.command_speeds(controller, ROTORS), "q": near
    }  # fmt: skip


def pid(k):
    gains = jq.control.PIDGains(*(k * jnp.ones(3) for _ in range(3)))
    controller = jq.control.pid(BODY, 0.05, REST, gains=gains, limits=2.0)
    return jq.torques.commanded, {"controller": controller}


def flight_law(k):
    gains = jq.control.FlightGains(*(k * jnp.ones(3) for _ in range(4)))

    def torque(t, state, params):
        lift = jq.control.flight_law(state, gains, HERE, BODY)
        return jq.Wrench(lift.torque, jq.quaternion.rotate(state.q, lift.thrust * EYE[2]))

    return torque, {}


PLANTS = {
    "zero": lambda k: (jq.torques.zero, {}),
    "commanded": lambda k: (jq.torques.commanded, {"inputs": k * jnp.ones((4, 3))}),
    "heavy_top": lambda k: (jq.torques.heavy_top(k, V), {}),
    "drag": lambda k: (jq.torques.drag(k * jnp.ones(3)), {}),
    "gravity_gradient at a known position": lambda k: (
        jq.torques.gravity_gradient(BODY, 1.0, lambda t: k * (V + EYE[0])), {}),
    "in_world": lambda k: (jq.torques.in_world(lambda t, state, params: k * V), {}),
    "gravity": lambda k: (jq.forces.gravity(BODY, k * V), {}),
    "point_mass": lambda k: (jq.forces.point_mass(BODY, k), {}),
    "gravity_gradient": lambda k: (jq.torques.gravity_gradient(BODY, k), {}),
    "linear_drag": lambda k: (jq.forces.linear_drag(k, V), {}),
    "quadratic_drag": lambda k: (jq.forces.quadratic_drag(k, V), {}),
    "thrust": lambda k: (jq.forces.thrust(k * V, EYE[0]), {}),
    "potential": law(lambda state, k: jq.forces.potential(BODY, state, k) * V),
    "quaternion_law": law(lambda s, k: jq.control.quaternion_law(s, control_gains(k), LEVEL)),
    "euler_law": law(lambda s, k: jq.control.euler_law(s, control_gains(k), V)),
    "tracking_law": law(lambda s, k: jq.control.tracking_law(s, control_gains(k), REST, BODY)),
    "geometric_law": law(lambda s, k: jq.control.geometric_law(s, control_gains(k), REST, BODY)),
    "wheels": wheels, "lags": lags, "delays": delays, "rotors": rotors, "cascade": cascade,
    "pid": pid, "flight_law": flight_law,
}  # fmt: skip


def plant(name):
    """A torque of the library that closes over what is the same on all devices."""

    def problem(engine, omega, gains):
        torque, options = PLANTS[name](gains[0])
        aux = options.pop("aux", ())
        q = options.pop("q", jnp.array([0.5, 0.5, -0.5, 0.5]))
        start = jq.State(q, omega, aux, EYE[0] + V, V)
        damped = jq.torques.total(torque, lambda t, s, g, *_: -g[1] * s.omega)
        grid = jq.grid(0.0, 0.05, 4)
        path = flat.rollout(
            jq.lie_euler,
            BODY,
            damped,
            start,
            grid,
            gains,
            options=jq.RolloutOptions(engine=engine),
            **options,
        )
        return jnp.concatenate([path.final.omega, path.final.velocity])

    return problem


def check(problem, engine, tolerance=1e-11, forward=True, effort=None, **options):
    """Values and derivatives within shard_map are those outside of it, by the scan."""
    mesh = jax.make_mesh((jax.device_count(),), ("bodies",), axis_types=(AxisType.Auto,))
    bodies = lambda engine: jax.vmap(
        lambda omega, gains: problem(engine, omega, gains, **options), (0, None)
    )
    within = jax.shard_map(
        bodies(engine), mesh=mesh, in_specs=(SPREAD, SAME), out_specs=SPREAD, check_vma=True
    )

    @functools.partial(jax.jit, static_argnums=0, compiler_options=effort)
    def slopes(function):
        loss = lambda rates, gains: jnp.sum(jnp.sin(function(rates, gains)))
        value = lambda gains: function(RATES, gains)
        pushed = jax.jvp(value, (GAINS,), (V[:2],)) if forward else value(GAINS)
        return jax.value_and_grad(loss, (0, 1))(RATES, GAINS), pushed

    got, wanted = slopes(within), slopes(bodies("scan"))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["scan", "fused"])
@pytest.mark.parametrize(
    "problem", [by_loop, by_closure, by_controller, by_attitude, by_noise, by_key, by_pulses]
)
def test_what_varies_from_device_to_device(problem, engine):
    check(problem, engine)


@pytest.mark.parametrize("engine", some(["scan", "fused"], ["fused"]))
@pytest.mark.parametrize("name", some(list(PLANTS), ["rotors"]))
def test_torques_that_close_over_what_is_the_same_on_all_devices(name, engine):
    if name != "cascade":
        check(plant(name), engine)
        return
    # The regulators multiply a last bit by 1e6. With less effort XLA's code for the derivative of
    # the scan is wrong, by 20, not its value, nor the derivative of one step.
    check(plant(name), engine, tolerance=1e-8, effort=FULL)


@pytest.mark.slow
def test_two_devices():
    """Cotangents of what is the same on all devices are added up once."""
    count = "--xla_force_host_platform_device_count=2"
    flags = {"XLA_FLAGS": " ".join([os.environ.get("XLA_FLAGS", ""), count])}
    cases = "rotors or lags or magnetic or by_closure or by_controller"
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-k", cases, __file__]
    subprocess.run(command, env=os.environ | flags, check=True, timeout=500)


@pytest.mark.slow
def test_by_undoing_steps():
    check(by_attitude, "auto", forward=False, checkpoint="reversible")


def test_what_is_the_same_stays_so():
    """Where nothing varies, the result may leave shard_map as one array of all devices."""
    mesh = jax.make_mesh((1,), ("bodies",), axis_types=(AxisType.Auto,))
    function = lambda omega: by_loop("scan", omega, GAINS)
    specs = {"in_specs": SAME, "out_specs": SAME}
    got = jax.jit(jax.shard_map(function, mesh=mesh, **specs))(RATES[0])
    np.testing.assert_allclose(got, jax.jit(function)(RATES[0]), rtol=1e-12)
