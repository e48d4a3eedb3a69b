"""A second plan of the same problem compiles nothing, and one of another problem is right."""

import contextlib

import flat  # noqa: F401
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat.planning import Constraints, Residuals, Solver

compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
)


@contextlib.contextmanager
def compilations():
    """A list of the programs that XLA compiles within."""
    before, within = len(compiled), []
    yield within
    within += compiled[before:]


def slew(angle, weight=10.0, moment=2.0, constraints=None):
    """A plan by functions that are new at each call and close over numbers and arrays."""
    body = jq.Body.from_principal(jnp.array([moment, 3.0, 4.0]))
    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
    goal = jnp.array([0.0, 0.0, angle])
    matrix = weight * jnp.eye(3)

    def effort(k, state, params, command):
        return command

    def missed(state, params):
        return jnp.concatenate([matrix @ (jq.quaternion.log(state.q) - goal), 7.0 * state.omega])

    return jq.planning.ilqr(
        jq.lie_euler, body, jq.torques.commanded, start, jq.grid(0.0, 0.5, 10), None,
        jnp.zeros((10, 3)), Residuals(effort, missed), constraints=constraints,
        solver=Solver(hessian="gauss-newton"),
    )  # fmt: skip


@pytest.mark.needs("llvmlite")
def test_other_numbers_and_new_functions_compile_nothing():
    first = slew(1.0)
    for arguments in [(1.0,), (0.7,), (0.7, 4.0), (0.7, 4.0, 1.5)]:
        slew(*arguments)  # their small operations outside of the plan
    with compilations() as programs:
        again, other = slew(1.0), slew(0.7, 4.0, 1.5)
    assert not programs
    np.testing.assert_array_equal(again.commands, first.commands)
    expected = jax.jit(slew, static_argnums=range(3))(0.7, 4.0, 1.5)
    np.testing.assert_allclose(other.commands, expected.commands, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_the_derivative_and_constraints_compile_nothing():
    limits = Constraints(
        limits=(-0.4, 0.4), inequalities=lambda k, state, params, command: state.omega - 0.3
    )
    calls = [
        lambda angle: jax.grad(lambda a: jnp.sum(slew(a).commands ** 2))(angle),
        lambda angle: slew(angle, constraints=limits).commands,
    ]
    for call in calls:
        call(1.0), call(0.9)
        with compilations() as programs:
            call(0.8)
        assert not programs
