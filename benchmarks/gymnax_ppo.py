"""PPO on a jaxquat world through gymnax: a body that turns to an attitude and stops there.

    python benchmarks/gymnax_ppo.py [--updates 60] [--worlds 128]

Proximal policy optimisation (Schulman et al., arXiv:1707.06347) with the advantages of Schulman et
al., arXiv:1506.02438, in JAX and optax. It prints the mean return of an episode of 10 s before and
after the training, and that of a control law with gains found by hand.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import optax
from gymnax.environments import spaces

import jaxquat as jq
from jaxquat.interop.gymnax import world

ACTIONS, EPOCHS, PARTS = 100, 4, 8  # per episode; over the data of an update; minibatches
DISCOUNT, DECAY, CLIP, ENTROPY = 0.99, 0.95, 0.2, 1e-3


def motors(t, state, params, action):
    """Return a torque of at most 0.5 N m per axis."""
    return 0.5 * jnp.tanh(action)


def start(key, params):
    """Return a random attitude and rate."""
    turn, rate = jax.random.normal(key, (2, 3))
    return jq.State(jq.quaternion.exp(turn), 0.3 * rate)


def observe(key, state, params):
    """Return rotation vector and rate."""
    return jnp.concatenate([jq.quaternion.log(state.q), state.omega])


def reward(t, state, params, action):
    """Return less, the farther and faster the body is."""
    turn = jq.quaternion.log(state.q)
    return -(turn @ turn + state.omega @ state.omega) / ACTIONS


ENV = world(
    jq.rkmk2, jq.Body.from_principal(jnp.array([2.0, 3.0, 4.0])), motors, start, observe, reward,
    spaces.Box(-3.0, 3.0, (3,)), 0.02, steps=5, max_steps=ACTIONS,
)  # fmt: skip


def network(key, outputs, last):
    """Return weights and biases of two hidden layers of 32, and of one scaled by ``last``."""
    sizes = ((6, 32, 1.0), (32, 32, 1.0), (32, outputs, last))
    keys = jax.random.split(key, 3)
    draw = lambda key, i, o, scale: scale * jax.random.normal(key, (i, o)) / i**0.5  # noqa: E731
    return [(draw(key, *size), jnp.zeros(size[1])) for key, size in zip(keys, sizes, strict=True)]


def apply(layers, x):
    """Return the outputs of a perceptron with tanh."""
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return x @ layers[-1][0] + layers[-1][1]


def log_density(mean, log_deviation, action):
    """Return the log density of a normal action, up to a constant."""
    z = (action - mean) * jnp.exp(-log_deviation)
    return -(0.5 * z**2 + log_deviation).sum(-1)


def collect(params, obs, states, key):
    """Return the transitions of an episode's length in all worlds, and where these are then."""

    def act(carry, key):
        obs, states = carry
        for_noise, for_worlds = jax.random.split(key)
        mean = apply(params["policy"], obs)
        noise = jax.random.normal(for_noise, mean.shape)
        action = mean + jnp.exp(params["log_deviation"]) * noise
        density = log_density(mean, params["log_deviation"], action)
        keys = jax.random.split(for_worlds, len(obs))
        after, states, gain, failed, late, info = jax.vmap(ENV.step)(keys, states, action)
        # a time limit is no failure: the value of the last observation stands for what would follow
        gain = gain + DISCOUNT * late * apply(params["value"], info["final_observation"])[:, 0]
        return (after, states), (obs, action, density, gain, failed | late)

    (obs, states), batch = jax.lax.scan(act, (obs, states), jax.random.split(key, ACTIONS))
    return obs, states, batch


def advantages(params, batch, last):
    """Return the advantages of the actions, and the values that the critic shall learn."""
    obs, _, _, gain, done = batch
    values = apply(params["value"], jnp.concatenate([obs, last[None]]))[..., 0]

    def back(later, row):
        gain, done, value, following = row
        error = gain + DISCOUNT * jnp.where(done, 0.0, following) - value
        now = error + DISCOUNT * DECAY * jnp.where(done, 0.0, later)
        return now, now

    rows = gain, done, values[:-1], values[1:]
    _, found = jax.lax.scan(back, jnp.zeros(len(last)), rows, reverse=True)
    return found, found + values[:-1]


def loss(params, part):
    """Return the clipped objective plus the error of the critic."""
    obs, action, before, advantage, target = part
    density = log_density(apply(params["policy"], obs), params["log_deviation"], action)
    ratio = jnp.exp(density - before)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    gained = jnp.minimum(ratio * advantage, clipped * advantage).mean()
    missed = jnp.mean((apply(params["value"], obs)[:, 0] - target) ** 2)
    return -gained + 0.5 * missed - ENTROPY * params["log_deviation"].sum()


def score(policy, key, worlds=512):
    """Return the mean return of an episode under ``policy(obs)``."""
    keys = jax.random.split(key, worlds)
    obs, states = jax.vmap(ENV.reset)(keys)

    def act(carry, _):
        obs, states = carry
        after, states, gain, *_ = jax.vmap(ENV.step)(keys, states, policy(obs))
        return (after, states), gain

    return jax.lax.scan(act, (obs, states), None, length=ACTIONS)[1].sum(0).mean()


def main():
    """Train and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--worlds", type=int, default=128)
    options = parser.parse_args()
    keys = jax.random.split(jax.random.key(0), 4)
    params = {
        "policy": network(keys[0], 3, 0.01),
        "value": network(keys[1], 1, 1.0),
        "log_deviation": jnp.full(3, -0.5),
    }
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2e-3))

    @jax.jit
    def update(params, memory, obs, states, key):
        for_worlds, for_parts = jax.random.split(key)
        obs, states, batch = collect(params, obs, states, for_worlds)
        data = (*batch[:3], *advantages(params, batch, obs))
        data = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), data)

        def descend(carry, rows):
            params, memory = carry
            slopes = jax.grad(loss)(params, jax.tree.map(lambda x: x[rows], data))
            change, memory = optimizer.update(slopes, memory)
            return (optax.apply_updates(params, change), memory), None

        epochs = jax.random.split(for_parts, EPOCHS)
        orders = jax.vmap(lambda k: jax.random.permutation(k, len(data[0])))(epochs)
        parts = orders.reshape(EPOCHS * PARTS, -1)
        (params, memory), _ = jax.lax.scan(descend, (params, memory), parts)
        return params, memory, obs, states

    scored = jax.jit(lambda params: score(lambda obs: apply(params["policy"], obs), keys[2]))
    by_hand = jax.jit(lambda: score(lambda obs: -2 * obs[:, :3] - 4 * obs[:, 3:], keys[2]))
    print(f"return before {scored(params):.3f}, by hand {by_hand():.3f}", flush=True)
    obs, states = jax.vmap(ENV.reset)(jax.random.split(keys[3], options.worlds))
    memory, began = optimizer.init(params), time.perf_counter()
    for k in range(options.updates):
        key = jax.random.fold_in(keys[3], k)
        params, memory, obs, states = update(params, memory, obs, states, key)
        if (k + 1) % 10 == 0:
            print(f"after {k + 1} updates {scored(params):.3f}", flush=True)
    actions = options.updates * options.worlds * ACTIONS
    print(f"{actions} actions in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
