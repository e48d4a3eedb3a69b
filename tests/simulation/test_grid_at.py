"""Grids through given times: what a rollout does at them, and what their derivatives are."""

import dataclasses
import functools

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify
from marks import some

import jaxquat as jq
from examples.validation import problems

BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
PRINCIPAL = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
START = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.5, -1.0, 0.7]))
# Spacings differ by a factor of 16. Two intervals are empty, one of them in the middle.
STAMPS = np.array([0.5, 0.51, 0.67, 0.67, 0.7, 0.78, 0.78])
EMPTY = np.diff(STAMPS) == 0
ONE_OF_EACH_FAMILY = (*("rkmk4", "rkmk6", "formulation2", "zhao", "lie_midpoint", "lie_euler"),)


def law(t, state, stiffness):
    """Returns a torque of time and attitude."""
    return -stiffness * state.q[1:] + 0.3 * jnp.sin(2 * t + jnp.arange(3.0))


def fly(times, stiffness=1.3, scheme=jq.no_squish, substeps=2, **options):
    return flat.rollout(
        scheme, PRINCIPAL, law, START, jq.grid_at(times, substeps), stiffness, **options
    )


def watching(scheme):
    """Returns a scheme that leaves time and length of its last step in aux."""

    def step(body, torque, t, state, dt, params):
        after = scheme(body, torque, t, state._replace(aux=()), dt, params)
        return after._replace(aux=jnp.stack([t, dt]))

    return step


def cheap(body, torque, t, state, dt, params):
    """Does a step that compiles fast, for tests that do not depend on the scheme."""
    omega_dot = jq.dynamics.derivative(body, torque, t, state, params).omega
    q = jq.quaternion.normalize(state.q.at[1:].add(0.5 * dt * state.omega))
    return jq.State(q, state.omega + dt * omega_dot, state.aux)


def assert_close(a, b, rtol=1e-12):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=0, atol=rtol * max(1.0, np.abs(y).max(initial=0)))


@pytest.mark.parametrize(("sample_every", "save_every"), [(2, 6), (4, 6)])
def test_a_row_has_its_own_time_and_the_command_of_its_own_sample(sample_every, save_every):
    """The command consists of the time, the input and the number of its sample."""
    times = np.cumsum(np.random.default_rng(0).uniform(0.1, 0.5, 13))
    inputs, rows = np.arange(12.0 // sample_every) ** 2, np.arange(0, 13, save_every)
    sample = np.minimum(rows // sample_every, len(inputs) - 1)
    wanted = np.stack([times[sample * sample_every], inputs[sample], sample], axis=1)
    options = {
        "controller": jq.Controller(
            lambda start, params: jnp.zeros(()),
            lambda t, state, memory, params, value: (jnp.stack([t, value, memory]), memory + 1.0),
        ),
        "inputs": inputs,
        "save": lambda t, state, params, command: (t, command),
    }
    options |= {"sample_every": sample_every, "save_every": save_every}
    grid, torque = jq.grid_at(times), jq.torques.commanded
    for engine in ("auto", "scan"):
        path = flat.rollout(
            cheap, BODY, torque, START, grid, options=jq.RolloutOptions(engine=engine), **options
        )
        np.testing.assert_array_equal(path.saved[0], times[rows])
        np.testing.assert_array_equal(path.saved[1], wanted)


# --- accuracy


@pytest.mark.parametrize(
    "name",
    some(ONE_OF_EACH_FAMILY, ("zhao",)),
)
def test_the_order_is_kept_where_spacings_are_random(name):
    """The motion is known in closed form for any body.

    The torque is the one that it needs, and a gyroscopic one of the deviation from it. Without the
    latter Dormand-Prince 5 seems to have a higher order.
    """
    scheme = jq.schemes.SCHEMES[name]
    spacing = np.exp(np.random.default_rng(0).uniform(0.0, np.log(12.0), 12))
    assert spacing.max() / spacing.min() > 10
    times = np.concatenate([[0.0], np.cumsum(spacing)]) / spacing.sum()

    def torque(t, state, params):
        _, omega, slope = problems.manufactured(t)
        inertia, axis = BODY.inertia, jnp.array([4.0, 8.0, -4.0])
        deviation = jnp.cross(axis, state.omega - omega)
        return inertia @ slope + jnp.cross(omega, inertia @ omega) + deviation

    @jax.jit
    def errors():
        q, omega, _ = jax.vmap(problems.manufactured)(times)
        start = problems.start_of(name, q[0], omega[0])
        paths = [
            jq.rollout(scheme, BODY, torque, start, jq.grid_at(times, n)).state for n in substeps
        ]
        return [
            (
                jnp.abs(jq.quaternion.distance(state.q, q)).max(),
                jnp.abs(state.omega - omega).max(),
            )
            for state in paths
        ]

    substeps = (2, 8) if scheme.order > 4 else (4, 16)
    measured = np.array(errors())
    assert measured.min() > 1e-13, "the slope would measure rounding"
    slopes = [problems.slope(substeps, measured[:, k]) for k in (0, 1)]
    assert np.abs(np.array(slopes) - scheme.order).max() < 0.35, slopes


@pytest.mark.parametrize("dtype", some(["float32", "float64"], ["float32"]))
def test_equal_intervals_are_the_equal_steps_of_a_grid(dtype):
    """The times are sums of powers of two, so that both grids have them to the last digit."""
    dtype = jnp.dtype(dtype)
    body, start = jax.tree.map(lambda x: x.astype(dtype), (BODY, START))
    inputs = jnp.arange(18, dtype=dtype).reshape(6, 3)
    controller = jq.Controller(
        lambda start, params: jnp.zeros_like(start.omega),
        lambda t, state, memory, params, value: (value * t - memory, memory + state.omega),
    )
    torque = lambda t, state, params, command: 0.1 * command + t * state.q[1:]

    @functools.partial(jax.jit, static_argnums=(1, 2, 3))
    def path(grid, sample_every, save_every, substeps):
        return jq.rollout(
            cheap,
            body,
            torque,
            start,
            dataclasses.replace(
                grid, sample_every=sample_every * substeps, save_every=save_every * substeps
            ),
            controller=controller,
            inputs=inputs,
        )

    equal = jq.grid(0.5, 0.0625, 24)
    times = np.asarray(equal.times(dtype), dtype)
    # samples within rows, then rows within samples
    for save_every in (12, 2):
        expected = path(equal, 4, save_every, 1)
        got = path(jq.grid_at(times), 4, save_every, 1)
        np.testing.assert_array_equal(got.t, expected.t)
        assert_close(got, expected, 100 * jnp.finfo(dtype).eps)
        halved = jax.jit(
            lambda save_every=save_every: jq.rollout(
                cheap,
                body,
                torque,
                start,
                jq.grid_at(times[::2], 2, sample_every=2, save_every=save_every // 2),
                controller=controller,
                inputs=inputs,
            )
        )()
        assert_close(halved, expected, 100 * jnp.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_times_of_steps_come_from_the_data(dtype):
    """At 1e5 s a float32 is off by 4 ms: times are rounded, but no error adds up."""
    stamps = 1e5 + np.array([0.0, 0.31, 0.32, 0.67, 1.9])
    start = jax.tree.map(lambda x: x.astype(dtype), START)._replace(aux=jnp.zeros(2, dtype))
    body = jax.tree.map(lambda x: x.astype(dtype), BODY)
    grid = jq.grid_at(stamps, 4)
    torque = lambda t, state, params: (jnp.zeros_like(state.omega), jnp.zeros(2, dtype))
    path = jax.jit(lambda: jq.rollout(watching(cheap_with_aux), body, torque, start, grid))()
    np.testing.assert_array_equal(path.t, stamps.astype(dtype))
    steps = (np.diff(stamps) / 4).astype(dtype)
    begins = stamps[:-1].astype(dtype) + dtype(3) * steps
    np.testing.assert_array_equal(path.state.aux[1:, 1], steps)
    np.testing.assert_allclose(path.state.aux[1:, 0], begins, rtol=jnp.finfo(dtype).eps)
    assert path.state.q.dtype == dtype


def cheap_with_aux(body, torque, t, state, dt, params):
    return cheap(body, lambda t, s, p: torque(t, s, p)[0], t, state, dt, params)


# --- derivatives by the times


@pytest.mark.parametrize("checkpoint", some(["none", 3, "reversible"], ["none"]))
def test_the_derivative_by_the_times_is_that_of_central_differences(checkpoint):
    """The ends of empty intervals move together: there the sum of both derivatives is theirs."""
    groups = np.unique(STAMPS, return_inverse=True)[1]
    distinct = jnp.asarray(np.unique(STAMPS))

    @jax.jit
    def loss(distinct):
        scheme = jq.no_squish if checkpoint == "reversible" else cheap
        path = fly(distinct[groups], scheme=scheme, checkpoint=checkpoint, save_every=2)
        weights = jnp.arange(1.0, 1 + path.t.size)[:, None]
        return jnp.sum(weights * path.state.q**3) + jnp.sum(weights * path.state.omega)

    h = 1e-5
    shifts = h * jnp.eye(distinct.size)
    values = jax.jit(jax.vmap(loss))
    central = (values(distinct[None] + shifts) - values(distinct[None] - shifts)) / (2 * h)
    gradient = jax.jit(jax.grad(loss))(distinct)
    np.testing.assert_allclose(gradient, central, rtol=1e-8, atol=1e-8)
    assert np.abs(central).min() > 1e-5


@pytest.mark.slow
def test_the_last_state_moves_with_the_last_time_as_the_equation_says():
    """By T it is f(T, state(T)), by t0 it is -(d state(T)/d start) f(t0, start).

    The times between have no part in the motion, only in its error.
    """
    times = 0.1 * jnp.array([0.0, 0.2, 1.3, 1.5, 2.6, 3.0])

    def rate(t, state):
        omega_dot = jq.dynamics.derivative(BODY, law, t, state, 1.3).omega
        turn = jnp.concatenate([jnp.zeros(1), 0.5 * state.omega])
        return jq.State(jq.quaternion.multiply(state.q, turn), omega_dot)

    def last(times, start):
        return jq.rollout(jq.rkmk4, BODY, law, start, jq.grid_at(times, 2), 1.3).final

    jacobian = jax.jit(jax.jacfwd(last))(times, START)
    final = jax.jit(last)(times, START)
    moved = rate(times[-1], final)
    _, carried = jax.jit(
        lambda tangent: jax.jvp(functools.partial(last, times), (START,), (tangent,))
    )(rate(times[0], START))
    for slope, end, begin in zip(jacobian[:2], moved[:2], carried[:2], strict=True):
        np.testing.assert_allclose(slope[:, -1], end, atol=1e-5)
        np.testing.assert_allclose(slope[:, 0], -begin, atol=1e-5)
        np.testing.assert_allclose(slope[:, 1:-1], 0.0, atol=1e-5)
    assert min(np.abs(x).max() for x in moved[:2]) > 0.1


@pytest.mark.slow
def test_the_reversible_engine_has_the_rows_and_gradients_of_the_scan():
    def loss(times, stiffness, checkpoint):
        path = fly(times, stiffness, substeps=3, save_every=3, checkpoint=checkpoint,
                   save=lambda t, state, params: t * state.omega)  # fmt: skip
        return jnp.sum(jnp.sin(path.saved)), path

    both = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True), static_argnums=2)
    times, stiffness = jnp.asarray(STAMPS), jnp.asarray(1.3)
    assert_close(both(times, stiffness, "reversible"), both(times, stiffness, "none"))


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("scan", marks=pytest.mark.slow),
        pytest.param("reversible", marks=pytest.mark.slow),
        pytest.param("fused", marks=pytest.mark.needs("llvmlite")),
    ],
)
def test_a_clock_offset_cancels_where_only_the_stamps_have_it(engine):
    """To a torque of time an offset of all stamps is a latency of the torque.

    There is an input for every interval, except that the reversible engine takes none.
    """
    inputs = jnp.asarray(np.random.default_rng(4).normal(size=(STAMPS.size - 1, 3)))
    options = {"engine": engine, "inputs": inputs}
    if engine == "reversible":
        options = {"checkpoint": "reversible"}

    def last(offset, latency, slope):
        def torque(t, state, params, command=0.5):
            return command - state.q[1:] + slope * jnp.sin(5 * (t + latency) + jnp.arange(3.0))

        grid = jq.grid_at(jnp.asarray(STAMPS) + offset, 2)
        path = flat.rollout(jq.no_squish, PRINCIPAL, torque, START, grid, **options)
        return jnp.sum(path.final.omega**3)

    slopes = jax.jit(jax.grad(last, (0, 1)))
    by_offset, _ = slopes(0.0, 0.0, 0.0)
    np.testing.assert_allclose(by_offset, 0.0, rtol=0, atol=1e-13)
    by_offset, by_latency = slopes(0.0, 0.0, 0.7)
    np.testing.assert_allclose(by_offset, by_latency, rtol=1e-11)
    assert abs(by_latency) > 0.01


# --- empty intervals


def test_an_empty_interval_leaves_the_state_as_it_is_to_the_last_digit():
    known = jax.jit(lambda: fly(STAMPS, scheme=cheap))().state
    traced = jax.jit(lambda times: fly(times, scheme=cheap))(jnp.asarray(STAMPS)).state
    for state in (known, traced):
        same = np.all(np.diff(np.asarray(state.omega), axis=0) == 0, axis=1)
        np.testing.assert_array_equal(same, EMPTY)
        np.testing.assert_array_equal(state.q[3], state.q[2])
    assert_close(traced, known)


def dividing(body, torque, t, state, dt, params):
    """Does a step that has 0/0 where dt is 0."""
    after = cheap(body, torque, t, state, dt, params)
    return after._replace(omega=state.omega + dt * ((after.omega - state.omega) / dt))


def test_padded_recordings_under_vmap_are_what_they_are_alone():
    """The step divides by dt, the torque has an infinite slope at the end of each recording.

    The controller divides by the time since its last sample, and the inputs of the padding are NaN.
    """
    lengths, n = (3, 5), 6
    rng = np.random.default_rng(1)
    stamps = np.cumsum(rng.uniform(0.02, 0.2, (2, n + 1)), axis=1)
    inputs = rng.normal(size=(2, n, 3))
    for k, length in enumerate(lengths):
        stamps[k, length + 1 :] = stamps[k, length]
        inputs[k, length:] = np.nan

    controller = jq.Controller(
        lambda start, params: {"t": jnp.asarray(-1.0), "omega": start.omega},
        lambda t, state, memory, params, value: (
            value - params * (state.omega - memory["omega"]) / (t - memory["t"]),
            {"t": t, "omega": state.omega},
        ),
    )

    def loss(times, inputs, gain):
        torque = lambda t, state, params, command: command * jnp.sqrt(times[-1] - t)
        path = jq.rollout(
            dividing, BODY, torque, START, jq.grid_at(times), gain,
            controller=controller, inputs=inputs,
        )  # fmt: skip
        return jnp.sum(path.final.q**3) + jnp.sum(path.final.omega), path

    gain = jnp.asarray(0.1)
    differentiated = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)
    (values, paths), gradients = jax.jit(jax.vmap(differentiated, (0, 0, None)))(
        jnp.asarray(stamps), jnp.asarray(inputs), gain
    )
    k, length = 0, lengths[0]
    (value, path), (by_times, by_inputs, by_gain) = jax.jit(differentiated)(
        jnp.asarray(stamps[k, : length + 1]), jnp.asarray(inputs[k, :length]), gain
    )
    padded = jax.tree.map(lambda x: x[k], (paths.state, paths.command))
    whole = path.state, path.command
    assert_close(jax.tree.map(lambda x: x[:length], padded), jax.tree.map(lambda x: x[:-1], whole))
    for x in jax.tree.leaves(padded):
        np.testing.assert_array_equal(x[length:], np.broadcast_to(x[length], x[length:].shape))
    assert_close((values[k], jax.tree.map(lambda x: x[k], paths.memory)), (value, path.memory))
    assert_close(gradients[2][k], by_gain)
    assert_close(gradients[1][k, :length], by_inputs)
    np.testing.assert_array_equal(gradients[1][k, length:], 0.0)
    # The torque has the last time itself: its derivative may stand at any of the equal times.
    padding = jnp.sum(gradients[0][k, length:])
    assert_close(jnp.append(gradients[0][k, :length], padding), by_times)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))


def test_a_grid_of_empty_intervals_is_the_identity():
    @jax.jit
    def last(times):
        return jq.rollout(dividing, BODY, law, START, jq.grid_at(times), 1.3).final.omega

    np.testing.assert_array_equal(last(jnp.full(4, 0.3)), START.omega)
    np.testing.assert_array_equal(jax.jit(jax.jacrev(last))(jnp.full(4, 0.3)), 0.0)


# --- rows, engines, errors


def test_sampling_saving_and_inputs_count_intervals():
    inputs = jnp.arange(9.0).reshape(3, 3)
    torque = lambda t, state, params, command: command
    grid = jq.grid_at(STAMPS, 5)
    assert (grid.intervals, grid.steps) == (6, 30)
    path = jax.jit(
        lambda: jq.rollout(
            cheap,
            BODY,
            torque,
            START,
            dataclasses.replace(grid, sample_every=2, save_every=3),
            inputs=inputs,
        )
    )()
    np.testing.assert_array_equal(path.t, STAMPS[::3])
    np.testing.assert_array_equal(path.command, inputs[jnp.array([0, 1, 2])])
    with pytest.raises(ValueError, match="save_every: wanted a divisor of the 6 intervals, got 5"):
        jq.rollout(
            cheap, BODY, torque, START, dataclasses.replace(grid, save_every=5), inputs=inputs
        )
    with pytest.raises(ValueError, match=r"leading axis 6 \(intervals // grid.sample_every\)"):
        jq.rollout(cheap, BODY, torque, START, grid, inputs=inputs)
    waits = jq.Controller(
        lambda start, params: (), lambda t, state, memory, params, value: (value, ()), 0.2
    )
    with pytest.raises(ValueError, match=r"wanted a period of 0\.01 s"):
        jq.rollout(cheap, BODY, torque, START, grid, controller=waits)


@pytest.mark.slow
def test_a_path_is_interpolated_between_rows_at_any_times():
    """Rows at one time count once; the path is a motion known in closed form."""
    t = jnp.array([0.3, 0.3, 0.302, 0.33, 0.33, 0.34, 0.34, 0.34])
    q, omega, _ = jax.vmap(problems.manufactured)(t)
    path = jq.Path(t, jq.State(q, omega))
    asked = jnp.array([0.3, 0.3013, 0.317, 0.33, 0.336, 0.34])
    got = jax.jit(path.at)(asked)
    q, omega, _ = jax.vmap(problems.manufactured)(asked)
    assert jq.quaternion.distance(got.q, q).max() < 1e-7
    np.testing.assert_allclose(got.omega, omega, atol=1e-5)
    slopes = jax.jit(jax.vmap(jax.grad(lambda t: path.at(t).q[0])))(asked)
    turns = jax.vmap(jq.quaternion.multiply)(q, jnp.pad(0.5 * omega, ((0, 0), (1, 0))))
    np.testing.assert_allclose(slopes, turns[:, 0], atol=1e-5)


@pytest.mark.slow
def test_auto_has_the_rows_of_the_scan(capsys):
    run = functools.partial(flat.rollout, cheap, BODY, law, START, jq.grid_at(STAMPS, 2), 1.3)
    auto, scan = (jax.jit(lambda e=e: run(engine=e, save_every=2))() for e in ("auto", "scan"))
    assert_close(auto, scan)
    jq.explain(cheap, BODY, law, START, jq.grid_at(STAMPS, 2), 1.3)
    assert 'engine="auto" takes' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0.0, 0.2, 0.1], "do not decrease, got times[1] = 0.2, then 0.1"),
        ([0.0, np.nan, 0.1], "times: wanted finite values, got times[1] = nan"),
        ([0.0, 0.1, np.inf], "times: wanted finite values, got times[2] = inf"),
        ([0.0, 0.1, 0.1], None),
    ],
)
def test_bad_times_under_jit_are_reported(times, message):
    error, _ = checked()(jnp.asarray(times))
    assert (message is None and error.get() is None) or message in error.get()


@functools.cache
def checked():
    def run(times):
        return jq.rollout(
            cheap, BODY, law, START, jq.grid_at(times), 1.3, options=jq.RolloutOptions(check=True)
        )

    return jax.jit(checkify.checkify(run))
