"""Stochastic schemes: the noise of a step is its argument, and a rollout passes it on."""

import dataclasses
import functools

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq

KEY = jax.random.key(3)
STEPS, N = 12, 3
FORMS = [(engine, form) for engine in ("scan", "fused") for form in ("key", "array")]
STAMPS = np.array([0.0, 0.1, 0.1, 0.25, 0.3, 0.5, 0.5])  # two intervals are empty


@functools.partial(jax.tree_util.register_dataclass, data_fields=["amplitude"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Kicked:
    """A step that kicks the rate at random, then turns the body."""

    amplitude: jax.Array

    def noise(self, state):
        return N

    def __call__(self, body, torque, t, state, dt, params, noise):
        assert (noise.shape, noise.dtype) == ((N,), state.q.dtype)
        kicked = state._replace(omega=state.omega + self.amplitude * jnp.sqrt(dt) * noise)
        return jq.lie_euler(body, torque, t, kicked, dt, params)


class Deaf:
    """A step that ignores its noise."""

    def noise(self, state):
        return N

    def __call__(self, body, torque, t, state, dt, params, noise):
        return jq.lie_euler(body, torque, t, state, dt, params)


class Unready:
    """A step that says it takes noise, and does not."""

    def noise(self, state):
        return N

    def __call__(self, body, torque, t, state, dt, params):
        return state


DEAF = jq.schemes.Scheme(Deaf(), "deaf")


def kicked(amplitude=0.3, dtype=jnp.float64):
    return jq.schemes.Scheme(Kicked(jnp.asarray(amplitude, dtype)), "kicked")


def drag(t, state, params, *command):
    return -0.4 * state.omega + 0.1 * jnp.sin(t) + sum(command, jnp.zeros(3, state.q.dtype))


def problem(dtype=jnp.float64):
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0], dtype))
    return body, jq.State(jnp.array([1.0, 0, 0, 0], dtype), jnp.array([0.1, 0.2, 0.3], dtype))


def fly(scheme, noise, grid=None, dtype=jnp.float64, **options):
    body, start = problem(dtype)
    grid = jq.grid(0.0, 0.1, STEPS) if grid is None else grid
    return flat.rollout(scheme, body, drag, start, grid, noise=noise, **options)


def drawn(key, steps=STEPS, dtype=jnp.float64):
    one = lambda k: jax.random.normal(jax.random.fold_in(key, k), (N,), dtype)
    return jax.vmap(one)(jnp.arange(steps))


def assert_close(a, b, tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("dtype", some([jnp.float32, jnp.float64], [jnp.float64]))
def test_a_key_is_the_array_of_its_folded_draws_and_scan_and_kernel_agree(dtype):
    normals = np.asarray(drawn(KEY, dtype=dtype), np.float64)  # cast to the dtype of the state
    eps = float(jnp.finfo(dtype).eps)
    options = {"dtype": dtype, "save_every": 3}

    @jax.jit
    def paths(normals):
        return [
            [fly(kicked(dtype=dtype), noise, engine=engine, **options) for noise in (KEY, normals)]
            for engine in ("scan", "fused")
        ]

    scanned, fused = paths(normals)
    for by_key, by_array in (scanned, fused):
        assert_close(by_key, by_array, 20 * eps)
    assert_close(scanned, fused, 40 * eps)


def test_the_rate_of_a_free_ball_is_the_sum_of_its_kicks():
    ball, (_, start) = jq.Body(jnp.eye(3)), problem()
    grid, normals = jq.grid(0.0, 0.25, STEPS), drawn(KEY)
    fly = lambda: jq.rollout(kicked(2.0), ball, jq.torques.zero, start, grid, noise=normals)
    # each kick is 2 sqrt(1/4) = 1 times its normals
    wanted = start.omega + normals.sum(0)
    np.testing.assert_allclose(jax.jit(fly)().final.omega, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("engine", ["scan", "fused"])
def test_bodies_with_keys_of_their_own_have_noise_of_their_own(engine):
    keys = jax.random.split(KEY, 3)
    last = lambda noise: fly(kicked(), noise, engine=engine).final.omega
    alone, together = jax.jit(last), jax.jit(jax.vmap(last))(keys)
    each = jnp.stack([alone(drawn(key)) for key in keys])
    assert_close(together, each, 1e-14)
    assert np.abs(np.diff(each, axis=0)).max() > 0.1


@pytest.mark.parametrize(("engine", "form"), some(FORMS, [("fused", "key")]))
def test_both_modes_have_the_derivative_by_the_amplitude_with_the_noise_held(engine, form):
    noise = KEY if form == "key" else drawn(KEY)

    def loss(amplitude):
        final = fly(kicked(amplitude), noise, engine=engine).final
        return jnp.sum(final.q[:2]) + jnp.sum(final.omega**2)

    h = 1e-5
    reverse, forward = jax.jit(lambda a: (jax.grad(loss)(a), jax.jvp(loss, (a,), (1.0,))[1]))(0.3)
    loss = jax.jit(loss)
    differences = (loss(0.3 + h) - loss(0.3 - h)) / (2 * h)  # their error is of order h^2
    np.testing.assert_allclose([reverse, forward], differences, rtol=1e-8)


@pytest.mark.parametrize(("engine", "form"), some(FORMS, [("fused", "array")]))
def test_recomputed_segments_draw_the_same_noise(engine, form):
    noise = KEY if form == "key" else drawn(KEY)

    def slope(checkpoint):
        loss = lambda a: jnp.sum(
            fly(kicked(a), noise, engine=engine, checkpoint=checkpoint).final.omega
        )
        return jax.jit(jax.grad(loss))(0.3)

    np.testing.assert_allclose(slope("sqrt"), slope("none"), rtol=1e-13)


def test_the_derivative_by_normals_reaches_each_row():
    def last(normals, engine):
        return fly(kicked(), normals, engine=engine).final.omega[0]

    by_scan, by_kernel = (
        jax.jit(jax.grad(last), static_argnums=1)(drawn(KEY), engine)
        for engine in ("scan", "fused")
    )
    assert_close(by_scan, by_kernel, 1e-14)
    assert np.abs(by_scan).max(axis=1).min() > 1e-3


COUNT = jq.Controller(
    lambda start, params: jnp.zeros(3),
    lambda t, state, memory, params, value: (
        memory + (0.0 if value is None else value),
        memory - 0.01 * state.omega + t,
    ),
)
LOUD = 0.01 * np.arange(3.0 * STEPS).reshape(STEPS, 3)
OPTIONS = {
    "alone": {"save_every": 4},
    "save": {"save": lambda t, state, params: (t, state.omega), "save_every": 2},
    "inputs": {"inputs": LOUD, "save_every": 3},
    "held inputs": {"inputs": LOUD[:4], "sample_every": 3, "save_every": 2},
    "controller": {"controller": COUNT, "sample_every": 3, "save_every": 6},
    "both": {
        "controller": COUNT,
        "inputs": LOUD[:3],
        "sample_every": 4,
        "save": lambda t, state, params, command: (t, command),
    },
}
AT = {
    "alone": {},
    "inputs": {"inputs": LOUD[:6], "save_every": 2},
    "held inputs": {"inputs": LOUD[:2], "sample_every": 3},
    "controller": {"controller": COUNT, "sample_every": 2, "save_every": 3},
    "both": {
        "controller": COUNT,
        "inputs": LOUD[:6],
        "save": lambda t, state, params, command: (t, command),
    },
}
CASES = [
    *((None, name) for name in OPTIONS),
    *((substeps, name) for substeps in (1, 2) for name in AT),
]
QUICK = [(2, "both")]


@pytest.mark.parametrize("engine", ["scan", "fused"])
@pytest.mark.parametrize(("substeps", "name"), some(CASES, QUICK))
def test_who_ignores_noise_sees_what_there_is_without(substeps, name, engine):
    grid = jq.grid(0.0, 0.1, STEPS) if substeps is None else jq.grid_at(STAMPS, substeps)
    options = {"engine": engine, **(OPTIONS if substeps is None else AT)[name]}
    wanted = jax.jit(lambda: fly(jq.lie_euler, None, grid, **options))()
    for noise in (KEY, drawn(KEY, grid.steps)):
        assert_same(jax.jit(lambda noise=noise: fly(DEAF, noise, grid, **options))(), wanted)


@pytest.mark.parametrize(("substeps", "name"), some([x for x in CASES if x[0]], [(2, "both")]))
def test_steps_of_empty_intervals_have_their_rows(substeps, name):
    grid = jq.grid_at(STAMPS, substeps)
    run = lambda noise, engine: fly(kicked(), noise, grid, engine=engine, **AT[name])
    normals = drawn(KEY, grid.steps)
    results = [
        jax.jit(run, static_argnums=1)(noise, engine)
        for noise in (KEY, normals)
        for engine in ("scan", "fused")
    ]
    for result in results[1:]:
        assert_close(results[0], result, 1e-14)


@pytest.mark.parametrize("engine", ["scan", "fused"])
def test_noise_of_an_empty_interval_contributes_nothing(engine):
    normals = drawn(KEY, 6)
    wild = normals.at[1].set(jnp.nan)

    def last(amplitude, normals):
        grid = jq.grid_at(STAMPS)
        return jnp.sum(fly(kicked(amplitude), normals, grid, engine=engine).final.omega)

    slopes = jax.jit(jax.grad(last, (0, 1)))
    assert_same(slopes(0.3, wild), slopes(0.3, normals))
    np.testing.assert_array_equal(slopes(0.3, normals)[1][1], 0.0)


def test_a_scheme_takes_as_many_normals_as_it_says():
    body, start = problem()
    assert (jq.rkmk4.noise(start), DEAF.noise(start)) == (0, N)
    step = functools.partial(kicked(1.0), body, jq.torques.zero, 0.0, start, 0.01, None)
    moved = step(np.ones(N)).omega - step(np.zeros(N)).omega
    np.testing.assert_allclose(moved, 0.1, atol=0.01)  # sqrt(0.01)


def test_a_step_with_a_method_noise_is_a_stochastic_scheme():
    assert_same(jax.jit(lambda: fly(Deaf(), KEY))(), jax.jit(lambda: fly(DEAF, KEY))())


def test_explain_accepts_noise(capsys):
    body, start = problem()
    jq.explain(kicked(), body, drag, start, jq.grid(0.0, 0.1, STEPS), noise=KEY)
    assert "takes the fused kernel" in capsys.readouterr().out


def wrong(value):
    return lambda: fly(DEAF, value)


def step_of(scheme, *noise):
    def take():
        body, start = problem()
        return scheme(body, drag, 0.0, start, 0.1, None, *noise)

    return take


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (wrong(None), TypeError, "noise: wanted a jax.random.key or an array of shape (12, 3)"),
        (wrong(None), TypeError, "because deaf is stochastic, got None"),
        (wrong(jax.random.PRNGKey(0)), TypeError, "wanted a jax.random.key or"),
        (wrong(jax.random.PRNGKey(0)), TypeError, "got uint32[2]"),
        (wrong(jax.random.split(KEY)), ValueError, "noise: wanted one key, got shape (2,)"),
        (wrong(jax.random.key(0, impl="rbg")), ValueError, "noise: wanted a generator whose"),
        (wrong(0), TypeError, "noise: wanted a jax.random.key or an array of shape"),
        (wrong(np.zeros((12, 2))), ValueError, "noise: wanted shape (12, 3), got (12, 2)"),
        (wrong(np.zeros((11, 3))), ValueError, "noise: wanted shape (12, 3), got (11, 3)"),
        (wrong(np.zeros((12, 3), int)), TypeError, "noise: wanted a floating dtype, got int64"),
        (wrong(np.full((12, 3), np.nan)), ValueError, "noise: wanted finite values"),
        (wrong("white"), TypeError, "noise: wanted an array of floats, got 'white'"),
        (
            lambda: fly(jq.rkmk4, KEY),
            TypeError,
            "noise: wanted none because rkmk4 is deterministic, got key<fry>[]",
        ),
        (lambda: fly(jq.rkmk4, np.zeros((12, 3))), TypeError, "deterministic, got float64[12, 3]"),
        (
            lambda: fly(Unready(), KEY),
            TypeError,
            "scheme: wanted scheme(body, torque, t, state, dt, params, noise), got Unready(",
        ),
        (step_of(DEAF), TypeError, "noise: wanted an array of shape (3,) because deaf is"),
        (step_of(DEAF, np.zeros(2)), ValueError, "noise: wanted shape (3,), got (2,)"),
        (step_of(jq.rkmk4, np.zeros(3)), TypeError, "noise: wanted none because rkmk4"),
        (
            lambda: jq.schemes.compose(DEAF, (0.5, 0.5)),
            TypeError,
            "scheme: wanted a deterministic one, got deaf",
        ),
        (
            lambda: jq.schemes.damp(DEAF, 0.1 * np.ones(3)),
            TypeError,
            "scheme: wanted a deterministic one, got deaf",
        ),
        (
            step_of(dataclasses.replace(DEAF, reversible=True).undo, np.zeros(3)),
            ValueError,
            "undo: wanted a step with a method undo, got deaf with noise",
        ),
        (step_of(DEAF.undo, np.zeros(3)), ValueError, "undo: wanted a reversible scheme, got deaf"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)
