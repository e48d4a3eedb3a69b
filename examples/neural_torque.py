"""Learn an unmodelled drag torque from trajectories with a small network inside the integrator.

    python examples/neural_torque.py [--network jax|equinox|flax] [--engine auto|fused|scan]

A tumbling body feels a torque that is known and a drag that the model does not have: linear, quadratic and skew in the rate. A
network from rate to torque is fitted so that short predictions, 1 s from every second of the recorded trajectories,
meet what was recorded (multiple shooting). Prints how well the model without and with the network predict held-out trajectories of
10 s, and draws neural_torque.png.

The fused engine (pip install "jaxquat[fused]") makes the gradient fast: see docs/fused.md; "auto" takes it where it is installed.
The networks of equinox and flax need these packages, and show how their parameters go into ``jq.fit``.
"""

import argparse
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import jaxquat as jq

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MOMENTS = jnp.array([0.6, 0.8, 1.0])  # kg m^2
LINEAR = jnp.array([0.02, 0.05, 0.03])  # N m s
QUADRATIC = jnp.array([0.06, 0.02, 0.04])  # N m s^2
SKEW = jnp.array([0.0, 0.03, -0.02])  # N m s^2
RATE_NOISE, ATTITUDE_NOISE = 1e-3, 1e-3  # rad/s, rad
DT, STEPS, WINDOW = 0.05, 200, 20
WIDTH = 16


def known(t):
    """The torque that the model has [N m]."""
    return 0.3 * jnp.sin(jnp.array([0.7, 1.1, 0.9]) * t + jnp.array([0.0, 1.0, 2.0]))


def drag(omega):
    """The torque that it lacks [N m]."""
    speed = jnp.sqrt(jnp.sum(omega * omega) + 1e-12)
    return -LINEAR * omega - QUADRATIC * speed * omega + SKEW * jnp.roll(omega, 1) * speed


def plain(key):
    """A network with two hidden layers, in plain JAX: its parameters, and ``apply(params, omega) -> torque``."""
    sizes = (3, WIDTH, WIDTH, 3)
    params = [
        (jax.random.normal(k, (m, n)) / n**0.5, jnp.zeros(m))
        for k, n, m in zip(jax.random.split(key, 3), sizes[:-1], sizes[1:], strict=True)
    ]

    def apply(params, omega):
        *hidden, (weight, bias) = params
        for w, b in hidden:
            omega = jnp.tanh(w @ omega + b)
        return weight @ omega + bias

    return params, apply


def equinox(key):
    """The same in equinox: its arrays are the parameters, the rest of the module is put back to call it."""
    import equinox as eqx

    mlp = eqx.nn.MLP(3, 3, WIDTH, 2, activation=jnp.tanh, key=key)
    params, rest = eqx.partition(mlp, eqx.is_array)
    return params, lambda params, omega: eqx.combine(params, rest)(omega)


def flax(key):
    """The same in flax (linen)."""
    from flax import linen  # pyright: ignore[reportMissingImports]

    network = linen.Sequential(
        [linen.Dense(WIDTH), linen.tanh, linen.Dense(WIDTH), linen.tanh, linen.Dense(3)]
    )
    return network.init(key, jnp.zeros(3)), network.apply


NETWORKS = {"jax": plain, "equinox": equinox, "flax": flax}


def hybrid(apply):
    """The known torque and a network's, a tenth of its output [N m]."""

    def torque(t, state, params):
        return known(t) + 0.1 * apply(params, state.omega)

    return torque


def without(t, state, params):
    """The known torque alone."""
    return known(t)


def true(t, state, params):
    """The known torque and the drag."""
    return known(t) + drag(state.omega)


def trajectory(torque, params, start, t0=0.0, steps=STEPS, finer=1, step=jq.rkmk4, engine="scan"):
    """States after 0, 1 ... ``steps`` periods of 0.05 s."""
    grid = jq.grid(t0, DT / finer, steps * finer)
    return jq.rollout(
        step,
        jq.Body.from_principal(MOMENTS),
        torque,
        start,
        grid,
        params,
        save_every=finer,
        engine=engine,
    ).state


def starts(key, n):
    """Attitudes uniform over SO(3), rates uniform in the ball of 2 rad/s."""
    turn, spin = jax.random.split(key)
    return jq.State(jq.quaternion.random(turn, (n,)), 2.0 * jax.random.ball(spin, 3, shape=(n,)))


@partial(jax.jit, static_argnums=1)
def truth(key, n):
    """N trajectories of 10 s under both torques, by another scheme with a step five times finer."""
    return jax.vmap(lambda start: trajectory(true, None, start, finer=5, step=jq.cf4))(
        starts(key, n)
    )


def measured(states, key):
    """With white noise on attitude and rate."""
    turn, spin = jax.random.split(key)
    noise = jq.quaternion.exp(ATTITUDE_NOISE * jax.random.normal(turn, states.omega.shape))
    omega = states.omega + RATE_NOISE * jax.random.normal(spin, states.omega.shape)
    return jq.State(jq.quaternion.multiply(states.q, noise), omega)


def windows(states):
    """Times (K,) of the starts of all windows, and the states (K, WINDOW + 1) in them."""
    n, samples = states.omega.shape[:2]
    first = np.arange(0, samples - 1, WINDOW)
    t0 = jnp.tile(DT * jnp.asarray(first, states.omega.dtype), n)
    index = first[:, None] + np.arange(WINDOW + 1)
    return t0, jax.tree.map(lambda x: x[:, index].reshape(-1, WINDOW + 1, x.shape[-1]), states)


def errors(states, others):
    """Error angle [rad] and error of the rate [rad/s], squared."""
    return jq.quaternion.squared_distance(states.q, others.q), jnp.sum(
        (states.omega - others.omega) ** 2, axis=-1
    )


def loss(torque, engine, params, batch, key):
    """Mean square error of the predictions over windows, rad^2 and (rad/s)^2."""
    t0, recorded = batch

    def predict(t0, start):
        return trajectory(torque, params, start, t0, WINDOW, engine=engine)

    predicted = jax.vmap(predict)(t0, jax.tree.map(lambda x: x[:, 0], recorded))
    angle, rate = errors(predicted, recorded)
    return jnp.mean(angle[:, 1:]) + jnp.mean(rate[:, 1:])


def learn(network, engine, key, trajectories=128, updates=3000):
    """The torque of the hybrid and its fitted parameters."""
    data, noise, weights, descent = jax.random.split(key, 4)
    params, apply = NETWORKS[network](weights)
    torque = hybrid(apply)
    batches = windows(measured(truth(data, trajectories), noise))
    optimizer = optax.adam(optax.warmup_cosine_decay_schedule(3e-3, 3e-2, updates // 50, updates))
    fit = jq.fit(
        partial(loss, torque, engine),
        params,
        optimizer,
        batches,
        steps=updates,
        batch_size=64,
        chunk=100,
        key=descent,
    )
    return torque, fit


@partial(jax.jit, static_argnums=0)
def held_out(torque, params, recorded):
    """Error angle [deg] and error of the rate [rad/s] along predictions from the first states, each (n, STEPS + 1)."""
    predicted = jax.vmap(lambda start: trajectory(torque, params, start))(
        jax.tree.map(lambda x: x[:, 0], recorded)
    )
    angle, rate = (jnp.sqrt(error) for error in errors(predicted, recorded))
    return jnp.rad2deg(angle), rate


def draw(t, curves, path):
    """Median and worst error of the held-out predictions against time."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, colour in (("without", "tab:orange"), ("hybrid", "tab:blue")):
        for panel, values in zip(panels, curves[name], strict=True):
            panel.semilogy(
                t[1:], np.median(values, axis=0)[1:], color=colour, label=f"{name}, median"
            )
            panel.semilogy(
                t[1:],
                np.max(values, axis=0)[1:],
                color=colour,
                linewidth=0.8,
                linestyle="--",
                label=f"{name}, worst",
            )
            panel.set(xlabel="time [s]", xlim=(0, t[-1]))
    panels[0].set_ylabel("error angle [deg]")
    panels[1].set_ylabel("error of the rate [rad/s]")
    panels[0].legend()
    figure.suptitle(
        "Predictions of 32 held-out trajectories from their first states, with and without the learned torque"
    )
    figure.savefig(path, dpi=120)


def main():
    """Learn, predict, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="jax", choices=NETWORKS)
    parser.add_argument("--engine", default="auto", choices=["auto", "fused", "scan"])
    arguments = parser.parse_args()
    train, test = jax.random.split(jax.random.key(0))
    began = time.perf_counter()
    try:
        torque, fit = learn(arguments.network, arguments.engine, train)
    except ImportError as error:
        if arguments.network == "jax":
            raise
        sys.exit(
            f"--network {arguments.network}: wanted the package installed, pip install {arguments.network} ({error})"
        )
    size = sum(leaf.size for leaf in jax.tree.leaves(fit.params))
    print(
        f"{len(fit.history)} updates of {size} parameters in {time.perf_counter() - began:.1f} s, compilation included"
    )
    print(
        f"root of the loss {np.sqrt(fit.history[0]):.4f} before, {np.sqrt(np.mean(fit.history[-100:])):.4f} after"
    )

    recorded = truth(test, 32)
    curves = {
        "without": held_out(without, None, recorded),
        "hybrid": held_out(torque, fit.params, recorded),
    }
    curves = {name: tuple(map(np.asarray, values)) for name, values in curves.items()}
    omega = recorded.omega.reshape(-1, 3)
    still = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
    learned = jax.vmap(lambda w: torque(0.0, still._replace(omega=w), fit.params) - known(0.0))(
        omega
    )
    wanted = jax.vmap(drag)(omega)
    print(
        f"learned torque: off by {np.linalg.norm(learned - wanted) / np.linalg.norm(wanted):.2%} of the drag, rms"
    )

    rms = {
        name: [np.sqrt(np.mean(x**2, axis=1)) for x in values] for name, values in curves.items()
    }
    print(
        "\n32 held-out trajectories of 10 s, rms error along each\n\n              angle [deg]          rate [rad/s]"
    )
    print("              median     worst     median     worst")
    for name, (angle, rate) in rms.items():
        print(
            f"{name:10s}{np.median(angle):10.3f}{np.max(angle):10.3f}{np.median(rate):11.5f}{np.max(rate):10.5f}"
        )
    for k, name in enumerate(("angle", "rate")):
        ratio = rms["without"][k] / rms["hybrid"][k]
        print(
            f"better by a factor of {np.median(ratio):.0f} in the {name} (median), {np.min(ratio):.0f} at the least"
        )
    draw(DT * np.arange(STEPS + 1), curves, "neural_torque.png")
    print("\ndrawn to neural_torque.png")


if __name__ == "__main__":
    main()
