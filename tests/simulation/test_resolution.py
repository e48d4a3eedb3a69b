"""A grid is refused where the dtype of the state cannot tell the times of its steps apart."""

import functools

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

import jaxquat as jq
from jaxquat import kinematics

REFUSED = r"grid: wanted steps that float32 can tell apart at t = {} s \(at least {} s\), got {} s"


def turned(body, torque, t, state, dt, params):
    """Does a step that compiles fast."""
    q = jq.quaternion.normalize(state.q.at[1:].add(0.5 * dt * state.omega))
    return jq.State(q, state.omega + dt * torque(t, state, params))


def fly(grid, dtype=jnp.float32, **options):
    body = jq.Body(jnp.diag(jnp.array([2.0, 3.0, 4.0], dtype)))
    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0], dtype), jnp.array([0.0, 0.0, 1.0], dtype))
    return flat.rollout(
        turned,
        body,
        jq.torques.zero,
        start,
        grid,
        options=jq.RolloutOptions(engine="scan"),
        **options,
    )


def turn(grid, dtype=jnp.float32):
    level = jnp.array([1.0, 0.0, 0.0, 0.0], dtype)
    return kinematics.rollout_of_attitude(lambda t, q, params: jnp.ones(3, dtype), level, grid)


def traced(run):
    """Without the numbers of the run: a grid with known times is refused before.

    JAX adds lines to the message.
    """

    @functools.wraps(run)
    def shapes(grid, dtype=jnp.float32):
        return jax.eval_shape(lambda: run(grid, dtype))

    return shapes


RUNS = [traced(fly), traced(turn)]


@pytest.mark.parametrize("run", RUNS)
def test_the_least_step_is_eps_times_the_farther_end(run):
    """In float32 eps = 2^-23, so it is 2^-6 s at 2^17 s, be this the first time or the last."""
    least, far = 2.0**-6, 2.0**17
    for t0 in (-far, far - 4 * least):
        run(jq.grid(t0, least, 4))
        with pytest.raises(ValueError, match=REFUSED.format("131072", "0.0156", "0.015")):
            run(jq.grid(t0 - 4 * (0.015 - least) * (t0 > 0), 0.015, 4))
    run(jq.grid(1e9, 0.01, 4), jnp.float64)
    with pytest.raises(
        ValueError, match=r"at least 0\.222 s\), got 0\.01 s; start at 0 [a-z ]*(\n|$)"
    ):
        run(jq.grid(1e15, 0.01, 4), jnp.float64)


@pytest.mark.parametrize("run", RUNS)
def test_short_intervals_among_others_are_allowed_and_count_in_the_mean(run):
    """Two sensors of 1 Hz, one 1 ms after the other, at 1e6 s, where float32 wants .119 s."""
    merged = 1e6 + np.sort(np.concatenate([np.arange(5.0), 0.001 + np.arange(5.0)]))
    run(jq.grid_at(merged))  # mean .44 s
    run(jq.grid_at(np.append(merged, np.full(90, merged[-1]))))  # empty intervals do not count
    run(jq.grid_at(np.full(3, 1e9)))  # nothing but empty ones
    with pytest.raises(ValueError, match=REFUSED.format(r"1e\+06", "0.119", "0.111139")):
        run(jq.grid_at(merged, substeps=4))


def after_a_long_interval(short):
    """At 2^17 s, where float32 wants 2^-6 s, so many of 10 ms between two long ones."""
    stamps = 2.0**17 + 0.01 * np.arange(short + 1)
    return np.concatenate([[0.0], stamps, [2.0**18]])


@pytest.mark.parametrize("run", RUNS)
def test_a_long_interval_does_not_excuse_nine_short_ones_in_a_row(run):
    """The mean step is thousands of seconds, and the torque still sees one time for all nine."""
    run(jq.grid_at(after_a_long_interval(8)))
    run(jq.grid_at(np.repeat(after_a_long_interval(8), 2)))  # empty intervals do not count
    for stamps in (after_a_long_interval(9), np.repeat(after_a_long_interval(9), 2)):
        with pytest.raises(ValueError, match=REFUSED.format("131072", "0.0156", "0.01")):
            run(jq.grid_at(stamps))
        run(jq.grid_at(stamps), jnp.float64)
        run(jq.grid_at(-stamps[::-1] + 2.0**17))  # near 0 they are far apart


@pytest.mark.parametrize("run", RUNS)
def test_stamps_coarser_than_the_state_are_held_to_their_own_eps(run):
    """In float32 1000 inputs of 20 Hz at 1e9 s became one interval of 64 s, the others empty."""
    stamps = (1e9 + 0.05 * np.arange(1001)).astype(np.float32)
    wanted = r"that float32 can tell apart at t = 1e\+09 s \(at least 119 s\), got 64 s"
    with pytest.raises(ValueError, match=wanted + "; subtract the first time in float64(\n|$)"):
        run(jq.grid_at(stamps), jnp.float64)
    stamps = (1e6 + 0.125 * np.arange(5)).astype(np.float32)  # float32 wants .119 s
    run(jq.grid_at(stamps, substeps=100), jnp.float64)  # of whole intervals
    with pytest.raises(ValueError, match=REFUSED.format(r"1e\+06", "0.119", "0.00125")):
        run(jq.grid_at(stamps, substeps=100))


@functools.cache
def reported(steps, dtype):
    return jax.jit(checkify.checkify(lambda t: fly(jq.grid_at(t), dtype, check=True).t))


@pytest.mark.parametrize(
    ("stamps", "dtype", "wanted"),
    [
        (after_a_long_interval(8), jnp.float32, None),
        (after_a_long_interval(9), jnp.float32, "at t = 131072 s (at least 0.0156 s), got 0.01 s"),
        (after_a_long_interval(9), jnp.float64, None),
        ((1e9 + 0.05 * np.arange(12)).astype(np.float32), jnp.float64, None),  # all are one
        ((1e9 + 6.4 * np.arange(12)).astype(np.float32), jnp.float64, "(at least 119 s), got 64 s"),
    ],
)
def test_traced_times_in_a_row_and_coarse_ones_are_reported(stamps, dtype, wanted):
    message = reported(len(stamps), dtype)(jnp.asarray(stamps))[0].get()
    assert message is None if wanted is None else wanted in message


@functools.cache
def checked(of_times):
    def run(t0):
        grid = jq.grid_at(t0 + 0.01 * jnp.arange(5.0)) if of_times else jq.grid(t0, 0.01, 4)
        return fly(grid, check=True).t

    return jax.jit(checkify.checkify(run))


@pytest.mark.parametrize("of_times", [False, True])
@pytest.mark.parametrize(("t0", "least"), [(8e4, None), (1e5, "0.0119"), (-1e5, "0.0119")])
def test_traced_times_are_reported(of_times, t0, least):
    """At 8e4 s float32 wants .00954 s; the test has times in float64, so the steps are right."""
    message = checked(of_times)(t0)[0].get()
    if least is None:
        assert message is None
    else:
        assert f"float32 can tell apart at t = {abs(t0) + 0.04 * (t0 > 0):.6g} s" in message
        assert f"(at least {least} s), got 0.01 s; start at 0" in message
