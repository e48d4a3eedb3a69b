"""A delayed controller gives the commands of the controller itself, some samples later."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq

BALL = jq.Body(2.0 * jnp.eye(3))
REST = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))


def ramp(t, state, memory, params, value):
    """A command that does not depend on the state: its number, and a gain."""
    return {"torque": params * memory * jnp.ones(3), "number": memory}, memory + 1.0


RAMP = jq.Controller(lambda start, params: jnp.array(1.0), ramp, period=0.1)
BEFORE = {"torque": 0.5 * jnp.ones(3), "number": jnp.array(-1.0)}


def push(t, state, params, command):
    return command["torque"]


@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize("engine", ["scan", "fused"])
def test_commands_arrive_two_samples_later_and_gradients_with_them(engine):
    def fly(gain):
        return jq.rollout(
            jq.lie_euler,
            BALL,
            push,
            REST,
            jq.grid(0.0, 0.05, 10, sample_every=2, save_every=2),
            gain,
            controller=jq.control.delay(RAMP, 2, BEFORE),
            options=jq.RolloutOptions(engine=engine),
        )

    def last(gain):
        path = fly(gain)
        return path.final.omega[0], path

    (omega, path), slope = jax.jit(jax.value_and_grad(last, has_aux=True))(3.0)
    np.testing.assert_array_equal(path.command["number"], [-1.0, -1.0, 1.0, 2.0, 3.0, 3.0])
    np.testing.assert_array_equal(path.memory[0][1]["number"], 5.0)  # still on its way
    np.testing.assert_allclose(omega, 0.1 * (0.5 + 0.5 + 3.0 * (1 + 2 + 3)) / 2.0, rtol=1e-14)
    np.testing.assert_allclose(slope, 0.1 * (1 + 2 + 3) / 2.0, rtol=1e-14)


def test_a_command_of_another_kind_is_named():
    late = jq.control.delay(RAMP, 1, jnp.zeros(3))
    with pytest.raises(ValueError, match=r"before: wanted a command like .*, got float64\[3\]"):
        jq.rollout(
            jq.lie_euler, BALL, push, REST, jq.grid(0.0, 0.1, 2), 3.0, controller=late
        )  # fmt: skip
