"""Weighted means of random commands: against the tilted Gaussian, and in a loop with limits."""

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat.planning import Residuals, Sampling

MOMENT, DT = 4.0, 0.5  # kg m^2 about z, s
BODY = jq.Body.from_principal(np.array([2.0, 3.0, MOMENT]))
START = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 0.1]))


def about_z(t, state, params, command):
    return jnp.concatenate([jnp.zeros(2, command.dtype), command])


def test_one_step_of_a_linear_plant_is_the_mean_of_the_tilted_gaussian():
    """It is (m/s^2 + g r/T)/p, with p = 1/s^2 + (c^2 + g^2)/T.

    These are mean and precision of exp(-cost/T) N(m, s^2) for a cost (c u)^2/2 + (g u - r)^2/2.

    With weights w, the mean of n samples has the variance E[w^2 (u - mean)^2]/E[w]^2/n, and w^2
    tilts the Gaussian to the precision q = 1/s^2 + 2 (c^2 + g^2)/T.
    """
    m, s, c, weight, heat, count = 0.2, 0.3, 0.5, 20.0, 0.4, 100_000
    g, r = weight * DT / MOMENT, weight * (0.04 - 0.1)  # of the rate after the step

    def paid(k, state, params, command):
        return c * command

    def final(k, state, params):
        return weight * (state.omega[2:] - 0.04)

    controller = jq.planning.mppi(
        jax.random.key(0), jq.lie_euler, BODY, about_z, DT, jnp.full((1, 1), m),
        Residuals(paid, final), sampling=Sampling(s, heat, count),
    )  # fmt: skip
    memory = controller.init(START, None)
    command, after = jax.jit(lambda: controller.update(0.0, START, memory, None, None))()
    p, q = (1.0 / s**2 + n * (c**2 + g**2) / heat for n in (1, 2))
    mean, doubled = ((m / s**2 + n * g * r / heat) / x for n, x in ((1, p), (2, q)))
    # E[w^2] and E[w]^2 as Gaussian integrals, up to the same factor exp(-r^2/T)
    squares = np.exp(0.5 * (q * doubled**2 - m**2 / s**2)) / np.sqrt(q * s**2)
    square = np.exp(p * mean**2 - m**2 / s**2) / (p * s**2)
    error = np.sqrt(squares / square * (1.0 / q + (doubled - mean) ** 2) / count)
    assert error < 2e-3
    np.testing.assert_allclose(command, mean, rtol=0, atol=3.0 * error)
    assert abs(mean - m) > 50.0 * error
    np.testing.assert_array_equal(after[0][0], command)
    assert after[1] == 1


GOAL = jq.quaternion.exp(jnp.array([0.3, -0.2, 0.4]))
LIMIT = 0.3


def motors(t, state, params, command):
    return command


def off(k, state, params, command):
    turn = jq.quaternion.log(jq.quaternion.relative(GOAL.astype(state.q.dtype), state.q))
    return jnp.concatenate([turn, 2.0 * state.omega, 0.1 * command])


def end(k, state, params):
    return 3.0 * off(k, state, params, jnp.zeros(0, state.q.dtype))


def slew(key, start=START, engine="auto"):
    body = jax.tree.map(lambda x: x.astype(start.q.dtype), BODY)
    controller = jq.planning.mppi(
        key, jq.rkmk2, body, motors, DT, jnp.zeros((4, 3), start.q.dtype), Residuals(off, end),
        sampling=Sampling(jnp.full(3, 0.03), 0.03, samples=256),
        constraints=jq.planning.Constraints((-LIMIT, LIMIT)), sample_every=2,
    )  # fmt: skip
    grid, options = jq.grid(0.0, DT, 80), {"controller": controller, "sample_every": 2}
    return flat.rollout(
        jq.rkmk2, body, motors, start, grid, options=jq.RolloutOptions(engine=engine), **options
    )


@pytest.mark.slow
def test_a_slew_within_limits_has_the_bits_of_its_key():
    keys = jax.random.split(jax.random.key(1), 3)
    alone, many = jax.jit(slew), jax.jit(jax.vmap(slew))(keys)
    distance = jax.vmap(lambda q: jq.quaternion.distance(q, GOAL))(many.final.q)
    assert np.all(np.rad2deg(distance) < 2.0)
    assert np.all(np.abs(np.asarray(many.command)) <= LIMIT)
    first = alone(keys[0])
    np.testing.assert_array_equal(first.command, alone(keys[0]).command)
    np.testing.assert_allclose(first.command, many.command[0], rtol=0, atol=1e-9)
    assert np.abs(np.asarray(many.command[0] - many.command[1])).max() > 1e-3


@pytest.mark.slow
def test_in_single_precision_costs_far_above_the_temperature_leave_no_nan():
    """The least cost is subtracted before exp(-cost/temperature), which is 0 for all of them."""
    start = jax.tree.map(lambda x: x.astype(jnp.float32), START._replace(omega=30.0 * START.omega))
    path = jax.jit(lambda key: slew(key, start))(jax.random.key(2))
    assert path.command.dtype == jnp.float32
    assert np.all(np.isfinite(path.command))
    assert np.abs(np.asarray(path.final.omega)).max() < 0.5


def test_errors_say_what_was_wanted():
    def controller(**changes):
        arguments = {"key": jax.random.key(0), "sampling": Sampling(0.1, 1.0)} | changes
        key = arguments.pop("key")
        return jq.planning.mppi(
            key, jq.rkmk2, BODY, motors, DT, jnp.zeros((4, 3)), off, **arguments
        )

    for changes, error, message in (
        ({"key": 0}, TypeError, "key: wanted a jax.random.key, got 0"),
        ({"key": jax.random.split(jax.random.key(0))}, ValueError, "key: wanted one key"),
        ({"sampling": Sampling(0.0, 1.0)}, ValueError, "sampling.std: wanted positive"),
        (
            {"sampling": Sampling(jnp.ones(2), 1.0)},
            ValueError,
            r"sampling.std: wanted shape \(\) or \(3,\), got \(2,\)",
        ),
        ({"sampling": Sampling(0.1, -1.0)}, ValueError, "sampling.temperature: wanted positive"),
        ({"sampling": Sampling(0.1, 1.0, 0)}, ValueError, "sampling.samples: wanted at least 1"),
        ({"std": 0.1}, TypeError, r"std is now sampling=jq.planning.Sampling\(std=...\)"),
    ):
        with pytest.raises(error, match=message):
            controller(**changes)
