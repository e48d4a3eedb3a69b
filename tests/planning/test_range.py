"""Plans whose second derivatives by the commands are beyond the range of float32."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq

BODY = jq.Body.from_principal(jnp.array([2.0, 3.0, 4.0], jnp.float32))
STILL = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0], jnp.float32), jnp.zeros(3, jnp.float32))


@functools.partial(jax.jit, static_argnames=("limited", "works"))
def plan(size, guess, *, limited=False, works=True):
    """Turn by 1 rad about z in 5 s, with commands of this size; from a guess in units of it."""

    def about_z(t, state, params, command):
        return jnp.concatenate([jnp.zeros(2, command.dtype), command / size])

    def effort(k, state, params, command):
        return command / size if works else jnp.zeros_like(command)

    def missed(state, params):
        return 30.0 * jnp.stack([jq.quaternion.log(state.q)[2] - 1.0, state.omega[2]])

    return jq.planning.ilqr(
        jq.rkmk2, BODY, about_z, STILL, jq.grid(0.0, 0.25, 20), None,
        jnp.full((20, 1), guess * size), jq.planning.Residuals(effort, missed),
        constraints=jq.planning.Constraints((-9.0 * size, 9.0 * size) if limited else None),
    )  # fmt: skip


@pytest.mark.parametrize("size", [3e19, 1e30, 1e36, 1e-20, 1e-30])
@pytest.mark.parametrize("guess", [0.0, 0.5])
def test_a_second_derivative_beyond_the_dtype_is_not_a_minimum(size, guess):
    """The squares of slopes of 1/3e19 and less are below 1e-38, those of 1e20 are infinite."""
    found = plan(np.float32(size), np.float32(guess))
    assert not found.converged
    assert found.reason.startswith("no step, however short, lowers the cost")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"limited": True}, {"works": False}])
def test_limits_and_final_residuals_alone_do_not_hide_it(options):
    assert not plan(np.float32(3e19), np.float32(0.0), **options).converged


@pytest.mark.parametrize("size", [2.0**50, 2.0**-50])
def test_units_within_the_range_change_no_digit(size):
    wanted = plan(np.float32(1.0), np.float32(0.0))
    found = plan(np.float32(size), np.float32(0.0))
    assert found.converged
    np.testing.assert_array_equal(found.commands / np.float32(size), wanted.commands)
