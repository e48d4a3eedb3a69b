"""These tests check grids, rollouts, controllers, checkpointing and interpolation."""

import functools

import chex
import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify
from jax.flatten_util import ravel_pytree

import jaxquat as jq
from examples.validation import problems

BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
START = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.5, -1.0, 0.7]))
GAINS = {"stiffness": jnp.array(2.0), "damping": jnp.array(0.8)}


def law(t, state, gains):
    """Returns a torque of time, attitude and rate."""
    return (
        -gains["stiffness"] * state.q[0] * state.q[1:]
        - gains["damping"] * state.omega
        + 0.3 * jnp.sin(2 * t + jnp.arange(3.0))
    )


def loop(step, torque, start, t0, dt, steps, params):
    """Returns the trajectory by a Python loop over the step."""
    states = [start]
    for k in range(steps):
        states.append(step(BODY, torque, t0 + k * dt, states[-1], dt, params))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *states)


def assert_close(a, b, ulp=100):
    """Asserts that a and b are equal up to rounding.

    The two programs have the same arithmetic, and the compiler orders it differently.
    """
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        eps = jnp.finfo(x.dtype).eps if jnp.issubdtype(x.dtype, jnp.floating) else 0
        np.testing.assert_allclose(
            x, y, rtol=0, atol=ulp * eps * max(1.0, np.abs(y).max(initial=0))
        )


def test_scan_is_the_python_loop_with_jit_and_without():
    grid = jq.grid(0.5, 0.05, 12)
    expected = loop(jax.jit(jq.rkmk2, static_argnums=1), law, START, 0.5, 0.05, 12, GAINS)
    run = functools.partial(flat.rollout, jq.rkmk2, BODY, law, START, grid)
    for path in (run(GAINS), jax.jit(run)(GAINS)):
        assert_close(path.state, expected)
        np.testing.assert_array_equal(path.t, 0.5 + 0.05 * np.arange(13))
        assert path.command == ()
        assert path.memory == ()


def test_vmap_is_a_loop_over_bodies():
    rng = np.random.default_rng(0)
    q = rng.normal(size=(5, 4))
    starts = jq.State(q / np.linalg.norm(q, axis=1, keepdims=True), rng.normal(size=(5, 3)))
    inertias = np.asarray(BODY.inertia) * rng.uniform(0.5, 2.0, (5, 1, 1))
    gains = {"stiffness": np.linspace(1.0, 2.0, 5), "damping": np.linspace(0.1, 1.0, 5)}

    @jax.jit
    def run(inertia, start, gains):
        grid = jq.grid(0.0, 0.05, 12)
        return jq.rollout(jq.lie_euler, jq.Body(inertia), law, start, grid, gains)

    many = jax.tree.map(np.asarray, jax.jit(jax.vmap(run))(inertias, starts, gains))
    for k in range(5):
        one = jax.tree.map(lambda x, k=k: x[k], (inertias, starts, gains))
        assert_close(jax.tree.map(lambda x, k=k: x[k], many), run(*one))


def test_one_trace_per_signature():
    @jax.jit
    @chex.assert_max_traces(n=1)
    def run(start, gains, dt):
        return jq.rollout(jq.lie_euler, BODY, law, start, jq.grid(0.0, dt, 20), gains).state

    for scale in (0.5, 1.0, 2.0):
        run(START, jax.tree.map(lambda x, s=scale: s * x, GAINS), 0.01 * scale)


def test_the_step_is_traced_a_fixed_number_of_times():
    """The trace does not grow with the number of steps."""
    counts = []
    for steps in (2, 2000):
        calls = []

        def torque(t, state, params, calls=calls):
            calls.append(0)
            return law(t, state, params)

        jax.make_jaxpr(
            lambda s, steps=steps, torque=torque: jq.rollout(
                jq.rkmk4,
                BODY,
                torque,
                s,
                jq.grid(0.0, 0.1, steps),
                GAINS,
                options=jq.RolloutOptions(engine="scan"),
            )
        )(START)
        counts.append(len(calls))
    assert counts[0] == counts[1] == 4


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_times_come_from_the_index(dtype):
    """In a million steps of 1e-3, every time is within an ulp of the exact one.

    Accumulation would be off by thousands of ulp.
    """
    times = np.asarray(jq.grid(0.0, 1e-3, 1_000_000).times(dtype), dtype=np.longdouble)
    exact = np.arange(1_000_001) * np.longdouble(dtype(1e-3))
    assert np.abs(times - exact).max() <= np.finfo(dtype).eps * 1000
    asked = []

    def step(body, torque, t, state, dt, params):
        return jq.State(state.q, state.omega.at[0].set(t))

    start = jax.tree.map(lambda x: x.astype(dtype), START)
    body = jq.Body(BODY.inertia.astype(dtype))
    path = jax.jit(
        lambda: jq.rollout(
            step, body, jq.torques.zero, start, jq.grid(0.0, 1e-3, 100_000, save_every=100)
        )
    )()
    asked = np.asarray(path.state.omega[1:, 0])
    np.testing.assert_allclose(
        asked, 1e-3 * (np.arange(1, 1001) * 100 - 1), rtol=2 * np.finfo(dtype).eps
    )
    assert path.t.dtype == dtype


def test_times_without_a_dtype():
    assert jq.grid(0.0, 0.1, 2).times().dtype == jnp.float64
    with jax.enable_x64(False):
        assert jq.grid(0, 1, 2).times().dtype == jnp.float32
        assert jq.grid(0.0, np.float64(0.1), 2).times().dtype == jnp.float32
    narrow = jq.grid(0.0, jnp.float32(0.1), 2)
    assert narrow.times().dtype == jnp.float32
    np.testing.assert_array_equal(narrow.times(), narrow.times(jnp.float32))


DIVISORS = [
    (1, 1),
    (1, 4),
    (3, 1),
    (4, 4),
    (2, 6),
    (6, 2),
    (4, 6),
    (6, 4),
    (12, 12),
    (1, 12),
    (12, 1),
    (12, 8),
]
INTEGRATOR = jq.Controller(
    init=lambda start, params: {"sum": jnp.zeros(3), "calls": jnp.asarray(0)},
    update=lambda t, state, memory, params, noise: (
        -params["stiffness"] * state.q[1:]
        + 0.1 * memory["sum"]
        + 0.01 * jnp.cos(t)
        + (0.0 if noise is None else noise),
        {"sum": memory["sum"] - state.omega, "calls": memory["calls"] + 1},
    ),
)


def command_law(t, state, params, command):
    return command - params["damping"] * state.omega + 0.1 * jnp.sin(t + jnp.arange(3.0))


def sampled_loop(step, inputs, sample_every, save_every, steps, dt, controller):
    """Computes the sampled trajectory by a Python loop.

    It returns states and commands at saved rows, and the final memory.
    """
    state, memory = START, controller.init(START, GAINS) if controller else ()
    update = jax.jit(controller.update) if controller else None
    states, commands = [], []
    for k in range(steps):
        if k % sample_every == 0:
            value = None if inputs is None else inputs[k // sample_every]
            command, memory = (
                update(k * dt, state, memory, GAINS, value) if controller else (value, memory)
            )
        if k % save_every == 0:
            states.append(state)
            commands.append(command)
        state = step(command, k * dt, state)
    return (
        jax.tree.map(lambda *x: np.stack(x), *states, state),
        np.stack([*commands, command]),
        memory,
    )


@functools.cache
def compiled_step():
    return jax.jit(
        lambda command, t, state: jq.rkmk2(
            BODY, lambda t, s, p: command_law(t, s, p, command), t, state, 0.05, GAINS
        )
    )


KINDS = ("controller", "controller and inputs", "inputs")
ONE_OF_EACH = [("controller and inputs", 4, 6), ("controller", 6, 4), ("inputs", 12, 8)]


def sampling_cases():
    """Every kind samples and saves by the same code, so one kind alone takes all the divisors."""
    for kind in KINDS:
        for divisors in DIVISORS:
            weekly = [pytest.mark.weekly] * (kind != "controller and inputs")
            marks = [] if (kind, *divisors) in ONE_OF_EACH else [pytest.mark.slow, *weekly]
            yield pytest.param(kind, *divisors, marks=marks)


@pytest.mark.parametrize(("kind", "sample_every", "save_every"), list(sampling_cases()))
def test_sampling_and_saving(kind, sample_every, save_every):
    steps = 24
    inputs = (
        0.2 * np.random.default_rng(3).normal(size=(steps // sample_every, 3))
        if "inputs" in kind
        else None
    )
    controller = INTEGRATOR if "controller" in kind else None
    options = {
        "controller": controller,
        "inputs": inputs,
        "sample_every": sample_every,
        "save_every": save_every,
    }
    path = flat.rollout(
        jq.rkmk2, BODY, command_law, START, jq.grid(0.0, 0.05, steps), GAINS, **options
    )
    states, commands, memory = sampled_loop(
        compiled_step(), inputs, sample_every, save_every, steps, 0.05, controller
    )
    assert_close((path.state, path.command, path.memory), (states, commands, memory))
    np.testing.assert_allclose(path.t, 0.05 * np.arange(0, steps + 1, save_every), rtol=1e-15)
    if controller:
        assert path.memory["calls"] == steps // sample_every


@pytest.mark.parametrize(
    "kind",
    [
        "torque",
        pytest.param("controller", marks=pytest.mark.slow),
        pytest.param("check", marks=pytest.mark.slow),
        pytest.param("reversible", marks=[pytest.mark.slow, pytest.mark.weekly]),
    ],
)
def test_what_save_makes_of_the_rows(kind):
    """The saved rows are what save makes of the whole path, and the last row stays."""
    sampled = {"controller": INTEGRATOR, "sample_every": 6} if kind == "controller" else {}
    options = {
        "save_every": 4,
        "checkpoint": "reversible" if kind == "reversible" else "none",
        "check": kind == "check",
        **sampled,
    }
    torque = {
        "controller": command_law,
        "reversible": lambda t, state, gains: gains["stiffness"] * state.q[1:],
    }.get(kind, law)
    step = jq.schemes.lie_midpoint if kind == "reversible" else jq.lie_euler

    def save(t, state, gains, *command):
        return {
            "power": state.omega @ torque(t, state, gains, *command),
            "late": t > 0.5,
            "time": t,
            "one": 1,
        }

    def run(save, gains):
        return flat.rollout(
            step,
            BODY,
            torque,
            START,
            jq.grid(0.0, 0.05, 24),
            gains,
            options=jq.RolloutOptions(save=save),
            **options,
        )

    if kind == "check":
        run = lambda save, gains, run=run: checkify.checkify(lambda: run(save, gains))()[1]
    run = jax.jit(run, static_argnums=0)
    whole, path = run(None, GAINS), run(save, GAINS)
    command = [whole.command] if kind == "controller" else []
    of_row = lambda t, state, *command: save(t, state, GAINS, *command)
    assert_close(path.saved, jax.jit(jax.vmap(of_row))(whole.t, whole.state, *command))
    assert_close((path.t, path.memory), (whole.t, whole.memory))
    assert_close(path.final, whole.final)
    assert path.state == path.command == whole.saved == ()
    with pytest.raises(ValueError, match="path: wanted the states of all rows"):
        path.at(0.1)

    def by_rows(gains):
        rows = run(None, gains)
        command = [rows.command] if sampled else []
        power = lambda t, *row: save(t, row[0], gains, *row[1:])["power"]
        return jnp.sum(jax.vmap(power)(whole.t, rows.state, *command))

    by_rollout = lambda gains: jnp.sum(run(save, gains).saved["power"])
    gradients = jax.jit(lambda gains: (jax.grad(by_rollout)(gains), jax.grad(by_rows)(gains)))
    assert_close(*gradients(GAINS), 1000)


def final_loss(
    gains, start=START, checkpoint="none", steps=1000, dt=0.01, body=BODY, t0=0.0, step=jq.rkmk4
):
    grid = jq.grid(t0, dt, steps)
    options = {"save_every": steps, "checkpoint": checkpoint, "engine": "scan"}
    path = flat.rollout(step, body, law, start, grid, gains, **options)
    end = jax.tree.map(lambda x: x[-1], path.state)
    return jq.quaternion.squared_distance(end.q, jnp.array([1.0, 0, 0, 0])) + jnp.sum(
        end.omega * jnp.array([1.0, 2.0, -1.0])
    )


def everything(vector, body_of, step):
    """Returns the loss after 1000 steps as a function of one vector.

    The vector packs gains, start (tangent), inertia, dt and t0.
    """
    gains, delta, theta, dt, t0 = vector[:2], vector[2:8], vector[8:-2], vector[-2], vector[-1]
    start = jq.dynamics.retract(START, delta)
    return final_loss(
        {"stiffness": gains[0], "damping": gains[1]},
        start,
        dt=dt,
        t0=t0,
        body=body_of(theta),
        step=step,
    )


def principal(theta):
    return jq.Body.from_principal(theta)


def full_symmetric(theta):
    """Returns a body of any symmetric matrix, given entry by entry."""
    a, b, c, d, e, f = theta
    return jq.Body(jnp.stack([a, d, e, d, b, f, e, f, c]).reshape(3, 3))


BODIES = {
    "log-Cholesky": (jq.Body.from_parameters, BODY.parameters),
    "repeated moments, principal": (principal, jnp.array([1.0, 1.0, 1.5])),
    "repeated moments, matrix": (full_symmetric, jnp.array([1.0, 1.0, 1.5, 0.0, 0.0, 0.0])),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("zhao", "log-Cholesky"),
        *(
            pytest.param("rkmk4", kind, marks=pytest.mark.weekly)
            for kind in BODIES
            if "repeated" in kind
        ),
    ],
)
def test_gradient_through_a_thousand_steps(name, kind):
    """Both modes agree with central differences of order 4, to 1e-6 relative.

    The derivatives are those by gains, start, inertia, dt and t0.
    """
    body_of, theta = BODIES[kind]
    loss = functools.partial(everything, body_of=body_of, step=jq.schemes.SCHEMES[name])
    point = jnp.concatenate([jnp.array([2.0, 0.8]), jnp.zeros(6), theta, jnp.array([0.01, 0.2])])
    value = jax.jit(jax.vmap(loss))
    # The end time is 1000 dt, so dt has a smaller difference.
    h = 1e-3 * jnp.where(jnp.arange(point.size) == point.size - 2, 0.01, 1.0)
    offsets = jnp.array([-2.0, -1.0, 1.0, 2.0])
    shifted = point[None] + (offsets[:, None, None] * jnp.diag(h)[None]).reshape(-1, point.size)
    low2, low, high, high2 = value(shifted).reshape(4, -1)
    central = (low2 - 8 * low + 8 * high - high2) / (12 * h)
    for mode in (jax.jacfwd, jax.grad):
        gradient = jax.jit(mode(loss))(point)
        np.testing.assert_allclose(
            gradient, central, rtol=1e-6, atol=1e-6 * np.abs(central).max() * 1e-2
        )


def cheap(body, torque, t, state, dt, params):
    """Does a step that compiles fast, for tests that do not depend on the scheme."""
    omega_dot = jq.dynamics.derivative(body, torque, t, state, params).omega
    return jq.State(
        jq.quaternion.normalize(state.q.at[1:].add(0.5 * dt * state.omega)),
        state.omega + dt * omega_dot,
    )


PYTHON_NUMBERS = {
    "int to float": (0, lambda m, x: m + x, "float32"),
    "float to float": (0.5, lambda m, x: m + x, "float32"),
    "int to uint8": (0, lambda m, x: m + jnp.uint8(200), "uint8"),
    "int to uint64": (0, lambda m, x: m + jnp.uint64(2**63 + 3), "uint64"),
    "back to a float": (jnp.float32(1.0), lambda m, x: 2.0, "float32"),
}


@pytest.mark.parametrize("engine", ["scan", "fused"])
def test_a_python_number_in_the_memory_takes_the_dtype_of_the_update(engine):
    def update(t, state, memory, params, value):
        after = {
            name: following(memory[name], state.omega[0])
            for name, (_, following, _) in PYTHON_NUMBERS.items()
        }
        size = sum(jnp.asarray(x).astype(jnp.float32) for x in after.values())
        return -state.omega * size * 1e-20, after

    start, body = jax.tree.map(lambda x: np.asarray(x, np.float32), (START, BODY))
    numbers = {name: number for name, (number, *_) in PYTHON_NUMBERS.items()}
    controller = jq.Controller(lambda start, params: numbers, update)
    path = jq.rollout(
        jq.lie_euler, body, jq.torques.commanded, start, jq.grid(0.0, 0.1, 3),
        controller=controller, options=jq.RolloutOptions(engine=engine),
    )  # fmt: skip
    for name, (number, following, dtype) in PYTHON_NUMBERS.items():
        wanted = functools.reduce(following, np.asarray(path.state.omega[:3, 0]), number)
        assert path.memory[name].dtype == dtype, name
        np.testing.assert_allclose(path.memory[name], wanted, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    ("save_every", "checkpoints"),
    [
        (40, (7,)),
        *(
            pytest.param(*given, marks=pytest.mark.slow)
            for given in ((40, ("sqrt", 1, 64, 5000)), (1000, (7, "sqrt")), (1, (7, "sqrt")))
        ),
    ],
)
def test_checkpointing_changes_no_gradient(save_every, checkpoints):
    def loss(gains, checkpoint):
        path = jq.rollout(
            cheap,
            BODY,
            law,
            START,
            jq.grid(0.0, 0.01, 1000, save_every=save_every),
            gains,
            options=jq.RolloutOptions(checkpoint=checkpoint, engine="scan"),
        )
        return jnp.sum(path.state.q**4) / path.t.size

    wanted = jax.jit(jax.value_and_grad(lambda g: loss(g, "none")))(GAINS)
    for checkpoint in checkpoints:
        assert_close(
            jax.jit(jax.value_and_grad(lambda g, c=checkpoint: loss(g, c)))(GAINS), wanted, ulp=2000
        )


@pytest.mark.parametrize(
    ("sample_every", "save_every", "checkpoint"),
    [
        (8, 12, "sqrt"),
        *(
            pytest.param(*given, marks=pytest.mark.slow)
            for given in ((8, 12, 5), (4, 24, 5), (4, 24, "sqrt"), (24, 4, 5), (24, 4, "sqrt"))
        ),
    ],
)
def test_checkpointing_with_a_controller(sample_every, save_every, checkpoint):
    inputs = 0.2 * np.random.default_rng(3).normal(size=(48 // sample_every, 3))

    def loss(gains, inputs, checkpoint):
        path = jq.rollout(
            cheap,
            BODY,
            command_law,
            START,
            jq.grid(0.0, 0.05, 48, sample_every=sample_every, save_every=save_every),
            gains,
            controller=INTEGRATOR,
            inputs=inputs,
            options=jq.RolloutOptions(checkpoint=checkpoint, engine="scan"),
        )
        return jnp.sum(path.state.omega**2) + jnp.sum(path.command**2)

    by_both = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)), static_argnums=2)
    _, wanted = by_both(GAINS, inputs, "none")
    assert_close(by_both(GAINS, inputs, checkpoint)[1], wanted, ulp=2000)
    more, less = (by_both(GAINS, inputs + shift, "none")[0] for shift in (1e-6, -1e-6))
    np.testing.assert_allclose(np.sum(wanted[1]), (more - less) / 2e-6, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zhao", pytest.param("rkmk4", marks=pytest.mark.weekly)])
def test_memory_of_the_backward_pass(name):
    """Checkpoint "none" keeps every state; "sqrt" keeps 64 of them and 64 of one segment.

    The test counts the compiled temporaries over 4096 steps of 64 bytes.
    """

    def temporaries(checkpoint):
        loss = functools.partial(
            final_loss, steps=4096, checkpoint=checkpoint, step=jq.schemes.SCHEMES[name]
        )
        return jax.jit(jax.grad(loss)).lower(GAINS).compile().memory_analysis().temp_size_in_bytes

    one_step = 16_000  # The backward pass of a step itself takes these bytes.
    assert 64 * 4096 <= temporaries("none") <= 64 * 4096 + one_step
    assert 64 * 128 <= temporaries("sqrt") <= 64 * 128 + one_step


def test_the_users_own_loop_is_the_rollout():
    """The loop is the one of docs/start.md."""
    times = 0.05 * jnp.arange(20.0)

    def body_of_loop(state, t):
        state = jq.lie_euler(BODY, law, t, state, 0.05, GAINS)
        return state, state

    _, states = jax.jit(lambda: lax.scan(body_of_loop, START, times))()
    run = lambda: jq.rollout(jq.lie_euler, BODY, law, START, jq.grid(0.0, 0.05, 20), GAINS)
    assert_close(jax.tree.map(lambda x: x[1:], jax.jit(run)().state), states)


def test_interpolation_is_exact_at_the_rows_and_of_order_four_between():
    """The path is a motion known in closed form, with an aux state that decays.

    Outside of it everything is NaN.
    """

    @jax.jit
    @jax.vmap
    def exact(t):
        q, omega, _ = problems.manufactured(t)
        return jq.State(q, omega, {"x": jnp.exp(-t)})

    @jax.jit
    def at(path, t, wanted):
        got = path.at(t)
        return got, jq.quaternion.distance(got.q, wanted.q)

    errors, spacings = [], np.array([0.04, 0.02, 0.01])
    for spacing in spacings:
        t = 0.3 + spacing * np.arange(9.0)
        between = (t[:-1, None] + spacing * np.array([[0.21, 0.5, 0.83]])).ravel()
        asked = np.concatenate([t, between, [0.29, t[-1] + 0.01]])
        wanted = jax.tree.map(np.asarray, exact(asked))
        path = jq.Path(t, jax.tree.map(lambda x: x[:9], wanted))
        got, distance = jax.tree.map(np.asarray, at(path, asked, wanted))
        assert all(np.isnan(x[-2:]).all() for x in jax.tree.leaves(got))  # outside of the path
        assert all(np.isfinite(x[:-2]).all() for x in jax.tree.leaves(got))
        errors.append(
            [
                np.abs(x[9:12]).max()
                for x in (distance, got.omega - wanted.omega, got.aux["x"] - wanted.aux["x"])
            ]
        )
        assert distance[:9].max() < 1e-15
        # Omega has a larger bound, as it comes from a division by the spacing.
        assert_close(got.omega[:9], path.state.omega, ulp=200)
        assert np.abs(np.linalg.norm(got.q[:-2], axis=1) - 1).max() < 4e-16
    slopes = [-problems.slope(spacings, np.array(errors)[:, k]) for k in range(3)]
    assert np.abs(np.array(slopes) - np.array([4, 3, 2])).max() < 0.15, slopes


def test_interpolation_takes_times_of_any_shape():
    q, rates = jnp.asarray(np.tile(problems.TILTED, (5, 1))), jnp.zeros((5, 3))
    path = jq.Path(0.05 * jnp.arange(5.0), jq.State(q, rates))
    assert jax.eval_shape(path.at, 0.125).q.shape == (4,)
    assert jax.eval_shape(path.at, jnp.zeros((2, 3))).omega.shape == (2, 3, 3)


def test_gradients_of_the_path_with_respect_to_every_argument_exist():
    """Each leaf of body, start, grid, params and inputs has a finite, nonzero gradient."""

    def loss(body, start, grid, params, inputs):
        path = jq.rollout(
            jq.lie_euler, body, command_law, start, grid, params,
            controller=INTEGRATOR, inputs=inputs,
        )  # fmt: skip
        return jnp.sum(path.state.q**3) + jnp.sum(path.state.omega) + jnp.sum(path.command)

    grid = jax.tree.map(jnp.asarray, jq.grid(0.1, 0.05, 10))
    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3, 4)))(
        BODY, START, grid, GAINS, 0.1 * jnp.ones((10, 3))
    )
    for leaf in jax.tree.leaves(gradient):
        assert np.all(np.isfinite(leaf))
        assert np.abs(leaf).max() > 0
    assert ravel_pytree(gradient)[0].size == 9 + 7 + 2 + 2 + 30
