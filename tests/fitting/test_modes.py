"""Which mode ``wants_reverse`` chooses for the derivative of a fused rollout."""

import jax
import jax.numpy as jnp
import pytest

import jaxquat as jq
from jaxquat.fitting.differentiation import wants_reverse

pytestmark = pytest.mark.needs("llvmlite")


@jax.custom_vjp
def double(x):
    return 2.0 * x


double.defvjp(lambda x: (2.0 * x, None), lambda _, bar: (2.0 * bar,))


def ends(params, law=lambda x: x):
    body = jq.Body.from_principal(jnp.array([0.6, 1.0, 1.5]))
    start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), jnp.array([0.9, -0.4, 0.7]))
    torque = lambda t, state, params: -law(jnp.sum(params) * state.omega)
    grid = jq.grid(0.0, 0.1, 4)
    path = jq.rollout(
        jq.lie_euler, body, torque, start, grid, params, options=jq.RolloutOptions(engine="fused")
    )
    return path.final.omega


def test_a_loss_of_up_to_three_parameters_wants_forward_mode():
    """1 + 3 values for three tangents, 4 for a gradient."""
    loss = lambda params: jnp.sum(ends(params))
    assert not wants_reverse(loss, jnp.ones(3))
    assert wants_reverse(loss, jnp.ones(4))
    assert wants_reverse(jax.jit(loss), jnp.ones(4))


def test_three_results_want_forward_mode_for_up_to_eleven_parameters():
    """1 + 11 values for the tangents, 3 * 4 for the gradients."""
    assert not wants_reverse(ends, jnp.ones(11), results=3)
    assert wants_reverse(ends, jnp.ones(12), results=3)


def test_a_torque_without_forward_mode_wants_reverse_mode():
    assert wants_reverse(lambda params: jnp.sum(ends(params, double)), jnp.ones(1))
