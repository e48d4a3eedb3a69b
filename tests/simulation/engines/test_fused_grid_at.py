"""The kernel through given times: the rows and the derivatives of the scan."""

import functools

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from as_scalars import evaluate
from marks import some

import jaxquat as jq
from examples.validation import problems
from jaxquat.simulation.engines.kernels import trace
from jaxquat.simulation.simulation import checked_simulation

BODY = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
START = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.5, -1.0, 0.7]))
GAIN = jnp.asarray(0.3)
# Spacings differ by a factor of 16. Two intervals are empty, one of them in the middle.
STAMPS = np.array([0.5, 0.51, 0.67, 0.67, 0.7, 0.78, 0.78])
NUMBERS = np.random.default_rng(5).normal(size=(6, 3))


def euler(body, torque, t, state, dt, params):
    """Does a step that compiles fast and has 0/0 where dt is 0."""
    omega_dot = jq.dynamics.derivative(body, torque, t, state, params).omega
    q = jq.quaternion.normalize(state.q.at[1:].add(0.5 * dt * state.omega))
    return jq.State(q, state.omega + dt * ((dt * omega_dot) / dt))


def pull(t, state, gain, command=0.0):
    return -gain * state.q[1:] + 0.3 * jnp.sin(2 * t + jnp.arange(3, dtype=t.dtype)) + command


def update(t, state, memory, gain, value):
    memory = memory + state.omega
    return -gain * memory + jnp.cos(t) + (0.0 if value is None else value), memory


CONTROLLER = jq.Controller(lambda start, gain: jnp.zeros_like(start.omega), update)
CASES = {
    "bare": {"save_every": 3},
    "saved": {"save_every": 2, "save": lambda t, state, gain: (t, gain * state.omega)},
    "inputs": {"inputs": NUMBERS[:3], "sample_every": 2, "save_every": 3},
    "controller": {"controller": CONTROLLER, "sample_every": 3, "save_every": 2},
    "both": {
        "controller": CONTROLLER, "inputs": NUMBERS[:3], "sample_every": 2, "checkpoint": 3,
        "save": lambda t, state, gain, command: t * state.q[0] + command,
    },
    "every": {"controller": CONTROLLER, "inputs": NUMBERS},
}  # fmt: skip


def loss(times, gain, engine, substeps, options):
    path = flat.rollout(
        euler,
        BODY,
        pull,
        START,
        jq.grid_at(times, substeps),
        gain,
        options=jq.RolloutOptions(engine=engine),
        **options,
    )
    weighted = [jnp.sum(jnp.sin(x + 0.3 * k)) for k, x in enumerate(jax.tree.leaves(path))]
    return sum(weighted), path


def assert_close(a, b, ulp=300):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        bound = ulp * jnp.finfo(y.dtype).eps * max(1.0, np.abs(y).max(initial=0))
        np.testing.assert_allclose(x, y, rtol=0, atol=bound)


@pytest.mark.parametrize("name", some(CASES, quick=["saved"], slow=["both", "controller"]))
def test_rows_and_gradients_are_those_of_the_scan(name):
    """By times too, empty intervals among them, in both modes."""
    results = []
    for engine in ("fused", "scan"):
        run = functools.partial(loss, engine=engine, substeps=2, options=CASES[name])
        back = jax.value_and_grad(run, (0, 1), has_aux=True)
        ahead = lambda t, g, run=run: jax.jvp(lambda t: run(t, g)[0], (t,), (jnp.cos(t),))
        both = jax.jit(lambda t, g, back=back, ahead=ahead: (back(t, g), ahead(t, g)))
        results.append(both(jnp.asarray(STAMPS), GAIN))
    assert_close(*results)
    _, (by_times, _) = results[0][0]
    _, slope = results[0][1]
    np.testing.assert_allclose(slope, np.cos(STAMPS) @ by_times, rtol=1e-10)


@pytest.mark.parametrize(
    "dtype", some([jnp.float32, jnp.float64], [jnp.float64]), ids=["float32", "float64"]
)
def test_equal_intervals_are_the_equal_steps_of_a_grid(dtype):
    """The times are sums of powers of two, so that both grids have them to the last digit."""
    body, start, gain = jax.tree.map(lambda x: x.astype(dtype), (BODY, START, GAIN))
    options = {"save_every": 3, "save": lambda t, state, gain: (t, *state[:2]), "engine": "fused"}
    run = functools.partial(flat.rollout, euler, body, pull, start, **options)
    equal = jq.grid(0.5, 0.0625, 12)
    times = np.asarray(equal.times(dtype))
    grids = {"grid": equal}, {"grid": jq.grid_at(times)}
    grids += ({"grid": jq.grid_at(times[::3], 3), "save_every": 1},)
    expected, *others = jax.jit(lambda: [run(params=gain, **grid) for grid in grids])()
    for path in others:
        np.testing.assert_array_equal(path.t, expected.t)
        np.testing.assert_array_equal(path.saved[0], expected.t)
        assert_close(path, expected, ulp=8)


def test_recordings_of_different_lengths_go_through_one_kernel():
    """The torque has an infinite slope at the end of each recording, and the padding no inputs."""
    lengths, n = (3, 6), 6
    stamps = 0.1 + np.cumsum(np.random.default_rng(1).uniform(0.02, 0.2, (2, n + 1)), axis=1)
    inputs = np.stack([NUMBERS, NUMBERS[::-1]])
    for k, length in enumerate(lengths):
        stamps[k, length + 1 :] = stamps[k, length]
        inputs[k, length:] = np.nan

    def of_one(times, inputs, gain):
        torque = lambda t, state, gain, command: command * gain * jnp.sqrt(times[-1] - t)
        path = jq.rollout(
            euler,
            BODY,
            torque,
            START,
            jq.grid_at(times),
            gain,
            inputs=inputs,
            options=jq.RolloutOptions(engine="fused"),
        )
        return jnp.sum(path.final.q**3) + jnp.sum(path.final.omega), path.final

    differentiated = jax.value_and_grad(of_one, (0, 1, 2), has_aux=True)
    padded = jax.jit(jax.vmap(differentiated, (0, 0, None)))(stamps, inputs, GAIN)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(padded))
    end = lengths[0]
    alone = jax.jit(differentiated)(stamps[0, : end + 1], inputs[0, :end], GAIN)
    (values, (by_times, by_inputs, by_gain)) = jax.tree.map(lambda x: x[0], padded)
    # The torque has the last time itself: its derivative may stand at any of the equal times.
    by_times = jnp.append(by_times[:end], jnp.sum(by_times[end:]))
    assert_close((values, (by_times, by_inputs[:end], by_gain)), alone)
    np.testing.assert_array_equal(by_inputs[end:], 0.0)


@pytest.mark.slow
def test_the_second_derivative_by_the_times_is_that_of_the_scan():
    def product(engine):
        slope = jax.grad(lambda t: loss(t, GAIN, engine, 2, CASES["bare"])[0])
        return jax.jit(lambda t: jax.jvp(slope, (t,), (jnp.sin(7 * t),))[1])(jnp.asarray(STAMPS))

    assert_close(product("fused"), product("scan"))


def test_a_slow_controller_is_asked_only_where_it_is_due():
    """Its functions are within a branch, and the branch is chosen at every third interval."""

    def slow(t, state, memory, gain, value):
        return -gain * jnp.sin(jnp.exp(state.omega)), memory + 1

    controller = jq.Controller(lambda start, gain: jnp.int32(0), slow)
    grid = jq.grid_at(np.linspace(0.0, 1.0, 7), 2, sample_every=3)
    simulation = checked_simulation(euler, BODY, pull, START, grid, GAIN, controller=controller)
    sample = trace(simulation)[0].loop.sample
    assert sample is not None
    assert {op.name for op in sample.ops}.isdisjoint({"sin", "exp"})
    (branch,) = sample.routines()
    assert branch.kind == "branch"
    assert branch.program.counts()["sin"] == branch.program.counts()["exp"] == 3
    inputs = [jnp.zeros((), dtype) for dtype in sample.inputs]
    number = [dtype.name for dtype in sample.inputs].index("int32")
    (call,) = [op for op in sample.ops if op.name == "call"]
    asked = sample._replace(outputs=call.args[:1])
    due = [bool(evaluate(asked, [*inputs[:number], jnp.int32(k), *inputs[number + 1 :]])[0])
           for k in range(0, 12, 2)]  # fmt: skip
    assert due == [True, False, False, True, False, False]
    run = functools.partial(
        flat.rollout, euler, BODY, pull, START, grid, engine="fused", controller=controller
    )
    assert jax.jit(lambda: run(params=GAIN).memory)() == 2


def test_explain_describes_the_kernel(capsys):
    jq.explain(euler, BODY, pull, START, jq.grid_at(STAMPS, 2), GAIN)
    assert 'engine="auto" takes the fused kernel' in capsys.readouterr().out
