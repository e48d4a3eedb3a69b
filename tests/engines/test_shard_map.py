"""Rollouts within ``jax.shard_map``, which by default checks along which axes arrays vary."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec
from marks import some

import jaxquat as jq

SPREAD, SAME = PartitionSpec("bodies"), PartitionSpec()
GAINS = jnp.array([2.0, 1.0])
RATES = jnp.array([[0.9, -0.4, 0.7], [0.2, 0.5, -0.3]])


def flight(engine, omega, gains, torque, scheme=jq.zhao, **options):
    """The path from an attitude that is the same on all devices."""
    body, grid = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0])), jq.grid(0.0, 0.05, 4)
    start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), omega)
    return jq.rollout(scheme, body, torque, start, grid, gains, engine=engine, **options)


def by_attitude(engine, omega, gains, **options):
    torque = lambda t, s, g: -g[0] * s.q[1:]
    return flight(engine, omega, gains, torque, jq.lie_midpoint, **options).state.q


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


def check(problem, engine, **options):
    """Values and gradients within shard_map are those outside of it, by the scan."""
    mesh = jax.make_mesh((1,), ("bodies",), axis_types=(AxisType.Auto,))
    bodies = lambda engine: jax.vmap(
        lambda omega, gains: problem(engine, omega, gains, **options), (0, None)
    )
    within = jax.shard_map(
        bodies(engine), mesh=mesh, in_specs=(SPREAD, SAME), out_specs=SPREAD, check_vma=True
    )

    def slopes(function):
        loss = lambda rates, gains: jnp.sum(jnp.sin(function(rates, gains)))
        return jax.jit(jax.value_and_grad(loss, (0, 1)))(RATES, GAINS)

    got, wanted = slopes(within), slopes(bodies("scan"))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("engine", some(["scan", "fused"], ["fused"]))
@pytest.mark.parametrize(
    "problem", some([by_loop, by_closure, by_controller, by_attitude], (by_loop,))
)
def test_what_varies_from_device_to_device(problem, engine):
    check(problem, engine)


@pytest.mark.slow
def test_by_undoing_steps():
    check(by_attitude, "auto", checkpoint="reversible")


def test_what_is_the_same_stays_so():
    """Where nothing varies, the result may leave shard_map as one array of all devices."""
    mesh = jax.make_mesh((1,), ("bodies",), axis_types=(AxisType.Auto,))
    function = lambda omega: by_loop("scan", omega, GAINS)
    specs = {"in_specs": SAME, "out_specs": SAME}
    got = jax.jit(jax.shard_map(function, mesh=mesh, **specs))(RATES[0])
    np.testing.assert_allclose(got, jax.jit(function)(RATES[0]), rtol=1e-12)
