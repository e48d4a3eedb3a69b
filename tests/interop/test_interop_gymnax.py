"""The bridge to gymnax: its API beside an environment of its own, and the motion of a rollout."""

import importlib
import sys

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import spaces
from gymnax.wrappers import LogWrapper

import jaxquat as jq
from jaxquat.interop import gymnax as bridge

KEY = jax.random.key(0)
BODY = jq.Body.from_principal(jnp.array([2.0, 3.0, 4.0]))
DT, STEPS, MOST = 0.02, 5, 4


def motors(t, state, gain, action):
    return gain * action + jnp.sin(t) * jnp.ones(3)


def start(key, gain):
    turn, rate = jax.random.normal(key, (2, 3))
    return jq.State(jq.quaternion.exp(turn), rate)


def observe(key, state, gain):
    return jnp.concatenate([state.q, state.omega])


def reward(t, state, gain, action):
    return t - state.omega @ state.omega


def env_of(scheme=jq.lie_euler, **options):
    box = spaces.Box(-0.5, 0.5, (3,), jnp.float64)
    options = {"steps": STEPS, "params": 0.7, "max_steps": MOST, **options}
    return bridge.world(scheme, BODY, motors, start, observe, reward, box, DT, **options)


GOOD = {
    "scheme": jq.rkmk2, "body": BODY, "torque": motors, "start": start, "observe": observe,
    "reward": reward, "actions": spaces.Box(-1.0, 1.0, (3,)), "dt": DT, "params": 0.7,
}  # fmt: skip


@pytest.fixture(autouse=True)
def promotion():
    with jax.numpy_dtype_promotion("standard"):  # gymnax mixes
        yield


def episode(env, key, actions):
    """The results of ``reset`` and of ``step`` with each action, by a scan."""

    def one(state, row):
        obs, state, *others = env.step(*row[:1], state, row[1])
        return state, (obs, state, *others)

    obs, state = env.reset(key)
    keys = jax.random.split(key, len(actions))
    return (obs, state), jax.lax.scan(one, state, (keys, actions))[1]


def test_the_results_have_the_kinds_of_those_of_an_environment_of_gymnax():
    with jax.enable_x64(False):  # gymnax' own have the dtypes of single precision
        key, body = jax.random.key(0), jq.Body.from_principal(jnp.array([2.0, 3.0, 4.0]))
        box = spaces.Box(-0.5, 0.5, (3,))
        ours = bridge.world(jq.lie_euler, body, motors, start, observe, reward, box, DT, params=0.7)
        kinds = []
        for env in (gymnax.make("Pendulum-v1")[0], ours):
            params = env.default_params
            first, state = env.reset(key, params)
            obs, after, *others = env.step(key, state, env.action_space(params).sample(key), params)
            space = env.observation_space(params)
            assert space.shape == first.shape == obs.shape == others[-1]["final_observation"].shape
            assert space.dtype == first.dtype == obs.dtype == jnp.float32
            assert space.contains(obs)
            assert after.time == 1
            others[-1].pop("final_observation")
            kinds.append(jax.tree.map(lambda x: (x.shape, x.dtype), others))
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize(
    "engine", ["scan", pytest.param("fused", marks=pytest.mark.needs("llvmlite"))]
)
def test_an_episode_is_a_rollout_and_the_next_one_begins_by_itself(engine):
    env = env_of(engine=engine)
    actions = 0.1 * jax.random.normal(KEY, (2, MOST + 1, 3))
    keys = jax.random.split(KEY, 2)
    both = jax.jit(jax.vmap(lambda key, actions: episode(env, key, actions)))(keys, actions)
    (_, state), (obs, states, rewards, terminated, truncated, info) = both

    def alone(state, actions):
        grid = jq.grid(0.0, DT, MOST * STEPS)
        options = {"inputs": actions[:MOST], "sample_every": STEPS, "save_every": STEPS}
        return jq.rollout(jq.lie_euler, BODY, motors, state.motion, grid, 0.7, **options).state

    wanted = jax.jit(jax.vmap(alone))(state, actions)
    np.testing.assert_allclose(states.motion.q[:, : MOST - 1], wanted.q[:, 1:MOST], atol=1e-13)
    last = info["final_observation"][:, MOST - 1]
    np.testing.assert_allclose(last[:, 4:], wanted.omega[:, MOST], atol=1e-13)
    t = DT * STEPS * np.arange(1, MOST + 1)
    np.testing.assert_allclose(
        rewards[:, :MOST], t - np.sum(np.square(wanted.omega[:, 1:]), axis=-1), atol=1e-12
    )
    np.testing.assert_array_equal(truncated, [[False] * (MOST - 1) + [True, False]] * 2)
    assert not terminated.any()
    np.testing.assert_array_equal(states.time[0], [1, 2, 3, 0, 1])
    assert np.all(np.abs(obs[:, MOST - 1] - last) > 1e-3)  # it is of the next episode


def test_what_has_ended_is_terminated_with_discount_0():
    env = env_of(ended=lambda t, state, gain: t > 0.25)  # after the third action of 0.1 s
    _, (_, states, _, terminated, truncated, info) = episode(env, KEY, jnp.zeros((4, 3)))
    np.testing.assert_array_equal(terminated, [False, False, True, False])
    np.testing.assert_array_equal(info["discount"], [1.0, 1.0, 0.0, 1.0])
    assert not truncated.any()
    np.testing.assert_array_equal(states.time, [1, 2, 0, 1])


def test_params_may_differ_from_world_to_world():
    """Bodies of half the inertia gain twice the rate; the wrapper of gymnax adds up the rewards."""
    env = LogWrapper(env_of(params=1.0))
    moments = jnp.array([[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    params = env.default_params.replace(body=jax.vmap(jq.Body.from_principal)(moments))
    axes = (None, 0, None, jax.tree.map(lambda _: None, params).replace(body=0))
    rest = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
    _, state = env.reset(KEY)
    state = state.replace(env_state=state.env_state.replace(motion=rest))
    states = jax.tree.map(lambda x: jnp.stack([jnp.asarray(x)] * 2), state)
    _, after, rewards, *_ = jax.vmap(env.step, axes)(KEY, states, jnp.ones(3), params)
    omega = after.env_state.motion.omega
    np.testing.assert_allclose(omega[1], 2.0 * omega[0], rtol=1e-12)
    np.testing.assert_allclose(after.episode_returns, rewards)


@pytest.mark.slow
def test_a_stochastic_scheme_draws_its_noise_from_the_key():
    noisy = env_of(jq.stochastic.with_torque_noise(jq.lie_euler, 0.1))
    _, state = noisy.reset(KEY)
    two = [noisy.step(jax.random.key(k), state, jnp.zeros(3))[0] for k in (1, 2)]
    assert np.all(np.abs(two[0] - two[1])[4:] > 1e-4)


@pytest.mark.slow
def test_gradients_flow_if_they_are_asked_for():
    """A torque of ``gain + sin(t)`` on each axis of a ball, so 3 t/I by the gain in total."""
    ball = jq.Body(2.0 * jnp.eye(3))

    def rate(gain, env):
        params = env.default_params.replace(params=gain, body=ball)
        _, state = env.reset(KEY)
        return env.step(KEY, state, jnp.ones(3), params)[0][4:] @ jnp.ones(3)

    for env, slope in ((env_of().with_transition_gradients(), 3 * 0.1 / 2), (env_of(), 0.0)):
        np.testing.assert_allclose(jax.grad(rate)(0.7, env), slope, rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"actions": (-1.0, 1.0)}, TypeError, "actions: wanted a space of gymnax, got tuple"),
        ({"body": None}, TypeError, "body: wanted a jq.Body, got None"),
        ({"dt": 0.0}, ValueError, "dt: wanted positive values"),
        ({"reward": observe}, TypeError, r"reward: wanted reward\(t, state, params, action\)"),
        ({"max_steps": 0}, ValueError, "max_steps: wanted at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_named(change, error, text):
    with pytest.raises(error, match=text):
        bridge.world(**GOOD | change)


@pytest.mark.parametrize(
    ("name", "returned", "error", "text"),
    [
        ("ended", 1.0, TypeError, "wanted one bool, got float"),
        ("ended", jnp.zeros(()), TypeError, r"wanted one bool, got float64\[\]"),
        ("ended", jnp.zeros(1, bool), TypeError, r"wanted one bool, got bool\[1\]"),
        ("ended", None, TypeError, "wanted one bool, got NoneType"),
        ("reward", jnp.zeros(3), ValueError, r"wanted shape \(\), got \(3,\)"),
        ("reward", jnp.array(1), TypeError, "wanted a floating dtype, got int64"),
        ("reward", True, TypeError, "wanted a floating dtype, got bool"),
        ("reward", None, TypeError, "wanted an array of floats, got None"),
        ("start", None, TypeError, "wanted a jq.State, got None"),
        ("start", jq.State(jnp.ones(4), jnp.zeros(3)), ValueError, ""),
        ("observe", (jnp.zeros(3),), TypeError, "wanted an array back, got tuple"),
        ("observe", 1.0, TypeError, "wanted an array back, got float"),
    ],
)
def test_a_wrong_result_of_a_function_is_named(name, returned, error, text):
    functions = {
        "ended": lambda t, state, params: returned,
        "reward": lambda t, state, params, action: returned,
        "start": lambda key, params: returned,
        "observe": lambda key, state, params: returned,
    }
    env = bridge.world(**GOOD | {name: functions[name]})

    def act(key):
        _, state = env.reset_env(key, env.default_params)
        return env.step_env(key, state, jnp.zeros(3), env.default_params)

    with pytest.raises(error, match=f"^{name}.*{text}"):
        jax.eval_shape(act, KEY)


def test_bodies_are_mapped_by_a_function_of_the_body():
    """Under 1 N m for 0.1 s each ball gains 0.1/I; ``axes`` of gymnax' params are not needed."""
    moments = jnp.array([[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    rest = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
    change = {"start": lambda key, params: rest, "torque": lambda t, s, p, action: action}
    env = bridge.world(**GOOD | change, steps=STEPS)

    def flown(body, key):
        params = env.default_params.replace(body=body)
        _, state = env.reset(key, params)
        return env.step(key, state, jnp.ones(3), params)[0][4:]

    bodies, keys = jax.vmap(jq.Body.from_principal)(moments), jax.random.split(KEY, 2)
    omega = jax.jit(jax.vmap(flown))(bodies, keys)
    np.testing.assert_allclose(omega, 0.1 / moments, rtol=1e-12)


@pytest.mark.parametrize("module", ["six", "flax", "gymnax"])
def test_the_error_of_a_missing_package_names_it(monkeypatch, module):
    for name in [name for name in sys.modules if name.partition(".")[0] in ("gymnax", module)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "jaxquat.interop.gymnax")
    monkeypatch.setitem(sys.modules, module, None)
    text = f'wanted the package {module}, got none: pip install "jaxquat\\[gymnax\\]"'
    with pytest.raises(ImportError, match=text):
        importlib.import_module("jaxquat.interop.gymnax")
