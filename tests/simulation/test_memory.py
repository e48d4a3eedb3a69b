"""A rollout goes on where another ended: state and memory together are all there is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq

BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
START = jq.State(jnp.array([0.8, 0.0, 0.6, 0.0]), jnp.array([0.5, -1.0, 0.7]))
DT = 2.0**-5  # s, a power of two: the times of both parts are those of the whole


def init(start, gain):
    return {"integral": jnp.zeros(3), "count": 0}


def update(t, state, memory, gain, value):
    """A law with an integral; the count of the samples is a Python number at first."""
    integral = memory["integral"] + jq.quaternion.log(state.q)
    command = -gain * (integral + state.omega)
    return command, {"integral": integral, "count": memory["count"] + 1}


CONTROLLER = jq.Controller(init, update)


def push(t, state, gain, command):
    return command + jnp.sin(t) * jnp.ones(3)


def fly(start, t0, steps, gain, engine, memory=None):
    controller = CONTROLLER if memory is None else CONTROLLER.resume(memory)
    return jq.rollout(
        jq.lie_euler, BODY, push, start, jq.grid(t0, DT, steps, sample_every=4), gain,
        controller=controller, options=jq.RolloutOptions(engine=engine),
    )  # fmt: skip


@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize("engine", some(["scan", "fused"], quick=["fused"]))
def test_two_rollouts_that_are_chained_have_the_bits_of_one(engine):
    def whole(gain):
        return fly(START, 0.0, 20, gain, engine)

    def chained(gain):
        first = fly(START, 0.0, 8, gain, engine)
        return fly(first.final, 8 * DT, 12, gain, engine, first.memory)

    def differentiated(f, gain):
        def loss(gain):
            path = f(gain)
            return jnp.sum(path.final.omega**2) + jnp.sum(path.memory["integral"]), path

        return jax.value_and_grad(loss, has_aux=True)(gain)

    (_, one), slope = jax.jit(lambda gain: differentiated(whole, gain))(0.7)
    (_, two), chained_slope = jax.jit(lambda gain: differentiated(chained, gain))(0.7)
    assert two.memory["count"] == 5
    for x, y in zip(jax.tree.leaves(one[8:]), jax.tree.leaves(two[:]), strict=True):
        np.testing.assert_array_equal(x, y)
    for name in ("integral", "count"):
        np.testing.assert_array_equal(one.memory[name], two.memory[name])
    np.testing.assert_allclose(chained_slope, slope, rtol=1e-13)


def test_the_derivative_by_the_memory_is_that_of_a_known_integral():
    """One sample: the command is -gain (memory + angle + rate), and turns a ball for a second."""
    ball = jq.Body(2.0 * jnp.eye(3))
    rest = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
    controller = jq.Controller(
        lambda start, gain: jnp.zeros(3), lambda t, state, memory, gain, _: (-gain * memory, memory)
    )
    command = lambda t, state, gain, command: command

    def rate(memory):
        grid = jq.grid(0.0, 0.25, 4, sample_every=4)
        return jq.rollout(
            jq.lie_euler, ball, command, rest, grid, 0.7,
            controller=controller.resume(memory),
        ).final.omega  # fmt: skip

    memory = jnp.array([0.0, 0.0, 0.4])
    np.testing.assert_allclose(jax.jit(rate)(memory), -0.35 * memory, rtol=1e-14)
    slopes = jax.jit(jax.jacrev(rate))(memory)
    np.testing.assert_allclose(slopes[2], [0.0, 0.0, -0.35], atol=1e-14)


@pytest.mark.parametrize(
    ("memory", "got"),
    [
        (jnp.zeros(3), r"float64\[3\]"),
        ({"integral": jnp.zeros(4), "count": 0}, r"float64\[4\]"),
        (
            {"integral": jnp.zeros(3, "float32"), "count": 0},
            r"float32\[3\]",
        ),
    ],
)
def test_a_memory_that_does_not_fit_is_named(memory, got):
    wanted = "memory: wanted a memory like that of controller.init, .* got .*" + got
    with pytest.raises(TypeError, match=wanted):
        fly(START, 0.0, 4, 0.7, "scan", memory)
