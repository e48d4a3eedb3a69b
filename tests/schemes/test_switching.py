"""Steps split at switching instants: exact impulses, the order of the scheme, derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from examples.validation import problems
from jaxquat.schemes import restart, split_steps

BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
START = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.5, -1.0, 0.7]))
ARMS = jnp.array([[0.4, -1.1, 0.7], [0.2, 0.9, -0.5], [-0.8, 0.3, 0.6]])
ON, OFF = np.array([0.1371, 0.5234, 1.777]), np.array([0.911, 1.4142, 1.901])  # s
AT_WIDTHS = lambda t, state, params, widths: widths
PULSED = split_steps(jq.rkmk4, AT_WIDTHS)
NEEDED = pytest.mark.needs("llvmlite")
BOTH = ["scan", pytest.param("fused", marks=NEEDED)]
SCAN_FIRST = ["scan", pytest.param("fused", marks=(NEEDED, pytest.mark.slow))]


def open_until(t, state, params, command):
    """Thrusters that are open from the beginning of the step to their instants."""
    _, passed = command
    return jnp.where(passed, jnp.zeros_like(params[:, 0]), 1.0) @ params


@pytest.mark.parametrize("engine", SCAN_FIRST)
@pytest.mark.parametrize("dtype", some(["float32", "float64"], ["float32"]))
def test_the_rate_about_one_axis_is_the_impulse_over_the_moment(engine, dtype):
    """``sum F r w/I``, for widths that are inside of a step, outside, equal, 0, whole and infinite.

    The time is late: in float32 it has steps of 6e-5 s, which the widths do not feel. The
    derivative is ``F r/I`` for an instant within the step, and 0 for all others. A second body has
    an instant that is NaN.
    """
    widths = np.array([[0.1, 0.1], [0.3, 0.2], [-0.1, 0.45], [0.5, 0.0], [0.7, np.inf], [0.4, 0.4]])
    arms = jnp.array([[0.0, 0.0, 0.7], [0.0, 0.0, -0.3]], dtype)
    body = jq.Body(jnp.diag(jnp.array([3.0, 2.0, 4.0], dtype)))
    start = jq.State(jnp.array([1.0, 0, 0, 0], dtype), jnp.zeros(3, dtype))

    def rate(inputs):
        grid = jq.grid(1e3, 0.5, 6)
        path = jq.rollout(
            PULSED,
            body,
            open_until,
            start,
            grid,
            arms,
            inputs=inputs,
            options=jq.RolloutOptions(engine=engine),
        )
        return path.final.omega[2]

    batch = np.stack([widths, widths])
    batch[1, 2, 1] = np.nan
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(rate)))(jnp.asarray(batch, dtype))
    value, slope, eps = values[0], slopes[0], np.finfo(dtype).eps
    assert np.isnan(values[1])
    wanted = np.sum(np.clip(widths, 0.0, 0.5) @ np.array([0.7, -0.3])) / 4.0
    np.testing.assert_allclose(value, wanted, rtol=0, atol=4 * eps)
    inside = (widths > 0.0) & (widths < 0.5)
    np.testing.assert_allclose(slope, inside * np.array([0.7, -0.3]) / 4.0, rtol=0, atol=eps)


def tumbling(scheme, rate=True):
    """(torque of what is on, thrust within a switched step), for a tumbling body."""

    def torque(t, state, params, on):
        tau = on @ ARMS + jnp.sin(2.0 * t + jnp.arange(3.0))
        tau = tau + jq.quaternion.rotate_inverse(state.q, jnp.array([1.0, 0.5, 0.0]))
        return tau - 0.2 * jnp.cross(jnp.array([1.0, 2.0, 3.0]), state.omega) if rate else tau

    def switching(t, state, params, command):
        began, ended = command[1]
        return torque(t, state, params, jnp.where(began & ~ended, 1.0, 0.0))

    at = lambda t, state, params, command: jnp.stack([jnp.asarray(ON), jnp.asarray(OFF)]) - t
    return torque, switching, split_steps(scheme, at)


def numbers(state):
    return np.concatenate([state.q, state.omega])


def split_by_hand(scheme, torque, steps, substeps=1):
    """The end of a rollout through the ends of the steps and the instants, with what is on."""
    edges = np.unique(np.concatenate([np.arange(steps + 1) * (2.0 / steps), ON, OFF]))
    middle = 0.5 * (edges[1:] + edges[:-1])[:, None]
    on = jnp.asarray((middle > ON) & (middle < OFF), float)
    grid = jq.grid_at(edges, substeps)
    run = jax.jit(lambda s: jq.rollout(scheme, BODY, torque, s, grid, inputs=on).final)
    return numbers(run(START))


@functools.cache
def reference(rate=True):
    return split_by_hand(jq.rkmk6, tumbling(jq.rkmk6, rate)[0], 400)


def end(scheme, torque, steps, engine="auto"):
    grid, inputs = jq.grid(0.0, 2.0 / steps, steps), jnp.zeros(steps)
    run = lambda s: (
        jq.rollout(
            scheme, BODY, torque, s, grid, inputs=inputs, options=jq.RolloutOptions(engine=engine)
        ).final
    )
    return numbers(jax.jit(run)(START))


@pytest.mark.parametrize("engine", SCAN_FIRST)
def test_a_split_step_is_the_steps_to_and_from_the_instants(engine):
    """To rounding: the same steps by ``grid_at``, with what is on as input."""
    torque, switching, scheme = tumbling(jq.rkmk2)
    wanted = split_by_hand(jq.rkmk2, torque, 7)
    np.testing.assert_allclose(end(scheme, switching, 7, engine), wanted, rtol=0, atol=1e-14)


SCHEMES = ["lie_euler", "rkmk2", "rkmk4", "rkmk6", "lie_midpoint"]
OF_ATTITUDE = ["no_squish", "lgvi", "simo_wong"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SCHEMES, *OF_ATTITUDE])
def test_a_scheme_keeps_its_order_at_arbitrary_instants(name):
    scheme, counts = jq.schemes.SCHEMES[name], np.array([40, 80])
    rate = name in SCHEMES
    _, switching, split = tumbling(scheme, rate)
    errors = [np.abs(end(split, switching, n) - reference(rate)).max() for n in counts.tolist()]
    assert errors[-1] > 1e-13, "the slope would measure rounding"
    assert abs(problems.slope(counts, np.array(errors)) - scheme.order) < 0.3


@pytest.mark.slow
def test_without_the_split_the_order_is_one():
    """The mean of 16 numbers of steps, because the error jumps with the place in the step."""
    torque, _, _ = tumbling(jq.rkmk4)
    ends = np.stack([ON, OFF])

    def by_time(t, state, params, command):
        began, ended = jnp.asarray(ends) <= t
        return torque(t, state, params, jnp.where(began & ~ended, 1.0, 0.0))

    near = [[n + k for k in range(8)] for n in (40, 160)]
    errors = [
        np.mean([np.abs(end(jq.rkmk4, by_time, n) - reference()).max() for n in counts])
        for counts in near
    ]
    assert 0.6 < np.log(errors[0] / errors[1]) / np.log(np.mean(near[1]) / np.mean(near[0])) < 1.4
    assert errors[1] > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("engine", BOTH)
def test_the_derivative_by_widths_is_that_of_differences(engine):
    """In both modes, of a tumbling body; two of three ends are together in one step."""
    rng = np.random.default_rng(2)
    widths, push = rng.uniform(0.01, 0.09, (5, 3)), jnp.asarray(rng.normal(size=(5, 3)))
    widths[2, 1] = widths[2, 0]
    widths = jnp.asarray(widths)

    def attitude(inputs):
        grid = jq.grid(0.0, 0.1, 5)
        path = jq.rollout(
            PULSED,
            BODY,
            open_until,
            START,
            grid,
            ARMS,
            inputs=inputs,
            options=jq.RolloutOptions(engine=engine),
        )
        return path.final.q[1]

    def slopes(inputs):
        _, forward = jax.jvp(attitude, (inputs,), (push,))
        return forward, jnp.sum(jax.grad(attitude)(inputs) * push)

    forward, reverse = jax.jit(slopes)(widths)
    np.testing.assert_allclose(forward, reverse, rtol=1e-12)
    shifts = jnp.array([-1.0, 1.0])[:, None, None] * 1e-5
    low, high = jax.jit(jax.vmap(attitude))(widths[None] + shifts * push[None])
    # The second derivative jumps where two ends meet: the difference is off by 1e-5 of it.
    np.testing.assert_allclose(forward, (high - low) / 2e-5, rtol=1e-5)


def test_widths_fire_in_each_step_of_a_sample_and_widths_with_its_time_once():
    """A sample of five steps: an impulse of 5 F w, or of F w, which is longer than a step."""
    body, widths = jq.Body(2.0 * jnp.eye(3)), jnp.array([0.11, 0.31])

    def torque(t, state, params, command):
        _, ended = command
        return jnp.where(ended, 0.0, jnp.array([0.0, 0.0, 3.0]))

    def rate(instants, commands):
        scheme, grid = split_steps(jq.lie_euler, instants), jq.grid(0.0, 0.2, 10, sample_every=5)
        start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3))
        path = jq.rollout(scheme, body, torque, start, grid, inputs=commands)
        return path.final.omega[2]

    ends = lambda t, state, params, command: command[0] + command[1] - t
    each, once = jax.jit(lambda w: (rate(AT_WIDTHS, w), rate(ends, (jnp.array([0.0, 1.0]), w))))(
        widths
    )
    np.testing.assert_allclose(each, 1.5 * 5 * (0.11 + 0.2), rtol=1e-14)
    np.testing.assert_allclose(once, 1.5 * (0.11 + 0.31), rtol=1e-14)


@pytest.mark.parametrize("engine", SCAN_FIRST)
def test_ramps_have_the_impulse_of_their_areas(engine):
    """A pulse with time to rise has ``F (w - rise/2 + decay/2)``, a shorter one two triangles.

    The fourth begins while the third decays, at the level l. There are five steps to an interval,
    and none ends where a ramp does; the level of the thrust is an aux state whose rate jumps.
    """
    rise, decay, force, interval = 0.11, 0.23, 3.0, 1.0

    def instants(t, state, params, command):
        began, width = command
        remaining = jnp.maximum(began + width - t, 0.0)
        full = jnp.minimum((1.0 - state.aux) * rise, remaining)
        top = jnp.minimum(state.aux + remaining / rise, 1.0)
        return jnp.stack([full, remaining, remaining + top * decay])

    def torque(t, state, params, command):
        _, (full, ended, out) = command
        falling = jnp.where(out, 0.0, -1.0 / decay)
        rate = jnp.where(ended, falling, jnp.where(full, 0.0, 1.0 / rise))
        return jnp.array([0.0, 0.0, force]) * state.aux, rate

    widths = jnp.array([0.613, 0.071, 0.97, 0.05])
    start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3), jnp.zeros(()))

    def rate(widths):
        path = jq.rollout(
            split_steps(jq.rkmk4, instants),
            jq.Body(2.0 * jnp.eye(3)),
            torque,
            start,
            jq.grid(0.0, 0.2, 20, sample_every=5, save_every=5),
            inputs=(interval * jnp.arange(4.0), widths),
            options=jq.RolloutOptions(engine=engine),
        )
        return path.state.omega[:, 2], path.state.aux

    (omega, level), slope = jax.jit(lambda w: (rate(w), jax.jacfwd(lambda w: rate(w)[0][-1])(w)))(
        widths
    )
    top, begun = 0.071 / rise, 1.0 - 0.03 / decay
    impulses = [
        0.613 - rise / 2 + decay / 2,
        0.071 * top / 2 + top * top * decay / 2,
        0.97 - rise / 2 + 0.03 * (1.0 + begun) / 2,
        0.05 - rise * (1.0 - begun) ** 2 / 2 + decay / 2,
    ]
    np.testing.assert_allclose(omega[1:], force / 2 * np.cumsum(impulses), rtol=1e-13)
    np.testing.assert_allclose(level, [0.0, 0.0, 0.0, begun, 0.0], rtol=0, atol=1e-13)
    wanted = [1.0, top * (1.0 + decay / rise), (1.0 - begun) * (1.0 + rise / decay), 1.0]
    np.testing.assert_allclose(slope, force / 2 * np.array(wanted), rtol=1e-12)


def test_the_facts_of_the_inner_scheme_are_passed_on():
    assert (PULSED.order, PULSED.evaluations, PULSED.reversible) == (4, None, False)
    assert PULSED.name == "switched(rkmk4)"
    assert split_steps(jq.rkmk4, AT_WIDTHS) == PULSED
    drag = jq.schemes.damp(jq.no_squish, 0.5)
    np.testing.assert_array_equal(split_steps(drag, AT_WIDTHS).decay(BODY), drag.decay(BODY))


def test_what_cannot_be_split_is_refused_by_name():
    never = lambda t, state, params: t < 0.0
    again = restart(jq.rkmk4, never, lambda t, state, params: state)
    for scheme, text in (
        (again, "wanted one that is not restarted, got .*; put restarted outermost"),
        (PULSED, "wanted one that is not switched, got .*; put switched outermost"),
        (jq.stochastic.brownian(1.0, 0.1), "scheme: wanted a deterministic one, got brownian"),
    ):
        with pytest.raises(TypeError, match=text):
            split_steps(scheme, AT_WIDTHS)
    with pytest.raises(TypeError, match="put switched outermost"):
        jq.schemes.compose(PULSED, jq.schemes.weights.SUZUKI4)
    grid = jq.grid(0.0, 0.1, 1)
    with pytest.raises(TypeError, match=r"torque: switched wanted one with a command, .* got zero"):
        jq.rollout(PULSED, BODY, jq.torques.zero, START, grid)
    whole = split_steps(jq.rkmk4, lambda t, state, params, command: command > 0.0)
    with pytest.raises(TypeError, match=r"instants\(\.\.\.\): wanted"):
        jq.rollout(whole, BODY, open_until, START, grid, ARMS, inputs=jnp.zeros(1))
    with pytest.raises(ValueError, match=r"time-reversible scheme .* got switched\(rkmk4\)"):
        jq.rollout(
            PULSED, BODY, open_until, START, grid, ARMS, inputs=jnp.zeros((1, 3)),
            options=jq.RolloutOptions(checkpoint="reversible"),
        )  # fmt: skip
