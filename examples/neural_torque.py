"""Learn an unmodelled drag torque from trajectories, with a small network inside the integrator.

    python examples/neural_torque.py [--network jax|equinox|flax] [--engine auto|fused|scan]

A known torque acts on a tumbling body, and a drag that the model lacks: linear, quadratic and skew
in the rate. A network from rate to torque is fitted so that short predictions match recorded
trajectories. The predictions last 1 s and begin at every second of these trajectories (multiple
shooting).

The program prints how well the model predicts held-out trajectories of 10 s, without and with the
network, and draws neural_torque.png.

The fused engine (pip install "jaxquat[fused]") makes the gradient fast: see docs/performance.md.
"auto" uses it if it is installed. The networks of equinox and flax need these packages; they show
how to pass their parameters to ``jq.fit``.
"""

import argparse
import os
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import jaxquat as jq
from jaxquat import plot

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MOMENTS = jnp.array([0.6, 0.8, 1.0])  # kg m^2
LINEAR = jnp.array([0.02, 0.05, 0.03])  # N m s
QUADRATIC = jnp.array([0.06, 0.02, 0.04])  # N m s^2
SKEW = jnp.array([0.0, 0.03, -0.02])  # N m s^2
RATE_NOISE, ATTITUDE_NOISE = 1e-3, 1e-3  # rad/s, rad
DT, STEPS, WINDOW = 0.05, 200, 20
WIDTH = 16


# The physics.


def known(t):
    """Return the torque that the model has [N m]."""
    return 0.3 * jnp.sin(jnp.array([0.7, 1.1, 0.9]) * t + jnp.array([0.0, 1.0, 2.0]))


def drag(omega):
    """Return the torque that the model lacks [N m]."""
    speed = jnp.sqrt(jnp.sum(omega * omega) + 1e-12)
    return -LINEAR * omega - QUADRATIC * speed * omega + SKEW * jnp.roll(omega, 1) * speed


def without(t, state, params):
    """Return the known torque alone."""
    return known(t)


def true(t, state, params):
    """Return the known torque and the drag."""
    return known(t) + drag(state.omega)


def hybrid(apply):
    """Return a torque law: the known torque plus a tenth of a network's output [N m]."""

    def torque(t, state, params):
        return known(t) + 0.1 * apply(params, state.omega)

    return torque


# The networks: two hidden layers with tanh, as ``(parameters, apply(parameters, omega))``.


def plain(key):
    """Make the network in plain JAX."""
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
    """Make the network in equinox.

    Its arrays are the parameters. They are combined with the static part to call the module.
    """
    import equinox as eqx

    mlp = eqx.nn.MLP(3, 3, WIDTH, 2, activation=jnp.tanh, key=key)
    params, static = eqx.partition(mlp, eqx.is_array)
    return params, lambda params, omega: eqx.combine(params, static)(omega)


def flax(key):
    """Make the network in flax (linen)."""
    from flax import linen  # pyright: ignore[reportMissingImports]

    network = linen.Sequential(
        [linen.Dense(WIDTH), linen.tanh, linen.Dense(WIDTH), linen.tanh, linen.Dense(3)]
    )
    return network.init(key, jnp.zeros(3)), network.apply


NETWORKS = {"jax": plain, "equinox": equinox, "flax": flax}


# The data.


def trajectory(torque, params, start, t0=0.0, steps=STEPS, finer=1, scheme=jq.rkmk4, engine="scan"):
    """Return the states after 0, 1 ... ``steps`` periods of 0.05 s."""
    body = jq.Body.from_principal(MOMENTS)
    grid = jq.grid(t0, DT / finer, steps * finer, save_every=finer)
    options = jq.RolloutOptions(engine=engine)
    return jq.rollout(scheme, body, torque, start, grid, params, options=options).state


def random_starts(key, n):
    """Draw n attitudes uniform over SO(3), and rates uniform in the ball of 2 rad/s."""
    turn, spin = jax.random.split(key)
    return jq.State(jq.quaternion.random(turn, (n,)), 2.0 * jax.random.ball(spin, 3, shape=(n,)))


@partial(jax.jit, static_argnums=1)
def truth(key, n):
    """Simulate n trajectories of 10 s under the known torque and the drag.

    Another scheme computes them, with a step five times finer.
    """
    one = partial(trajectory, true, None, finer=5, scheme=jq.schemes.rkmk5)
    return jax.vmap(one)(random_starts(key, n))


def measured(states, key):
    """Add white noise to attitude and rate."""
    turn, spin = jax.random.split(key)
    noise = jq.quaternion.exp(ATTITUDE_NOISE * jax.random.normal(turn, states.omega.shape))
    omega = states.omega + RATE_NOISE * jax.random.normal(spin, states.omega.shape)
    return jq.State(jq.quaternion.multiply(states.q, noise), omega)


def windows(states):
    """Return the times (K,) at which the windows begin, and the states (K, WINDOW + 1) in them."""
    n, samples = states.omega.shape[:2]
    first = np.arange(0, samples - 1, WINDOW)
    t0 = jnp.tile(DT * jnp.asarray(first, states.omega.dtype), n)
    index = first[:, None] + np.arange(WINDOW + 1)
    return t0, jax.tree.map(lambda x: x[:, index].reshape(-1, WINDOW + 1, x.shape[-1]), states)


def first_states(states):
    """Return the first state of each trajectory or window."""
    return jax.tree.map(lambda x: x[:, 0], states)


# The fit.


def squared_errors(states, others):
    """Return the squares of the error angle [rad^2] and of the error of the rate [(rad/s)^2]."""
    angle = jq.quaternion.squared_distance(states.q, others.q)
    return angle, jnp.sum((states.omega - others.omega) ** 2, axis=-1)


def loss(torque, engine, params, batch, key):
    """Return the mean square error of the predictions over windows, rad^2 and (rad/s)^2."""
    t0, recorded = batch

    def predict(t0, start):
        return trajectory(torque, params, start, t0, WINDOW, engine=engine)

    predicted = jax.vmap(predict)(t0, first_states(recorded))
    angle, rate = squared_errors(predicted, recorded)
    return jnp.mean(angle[:, 1:]) + jnp.mean(rate[:, 1:])


def learn(network, engine, key, trajectories=128, updates=3000):
    """Fit the network.

    Returns:
        The torque law of the hybrid, and the fit of its parameters.
    """
    data, noise, weights, descent = jax.random.split(key, 4)
    params, apply = NETWORKS[network](weights)
    torque = hybrid(apply)
    batches = windows(measured(truth(data, trajectories), noise))
    optimizer = optax.adam(optax.warmup_cosine_decay_schedule(3e-3, 3e-2, updates // 50, updates))
    fit = jq.fit(
        partial(loss, torque, engine), params, optimizer, batches,
        steps=updates, key=descent, batch_size=64, options=jq.FitOptions(chunk=100),
    )  # fmt: skip
    return torque, fit


# How good it is.


@partial(jax.jit, static_argnums=0)
def held_out(torque, params, recorded):
    """Return two errors of predictions from the first states, each (n, STEPS + 1).

    They are the error angle [deg] and the error of the rate [rad/s].
    """
    predicted = jax.vmap(partial(trajectory, torque, params))(first_states(recorded))
    angle, rate = (jnp.sqrt(error) for error in squared_errors(predicted, recorded))
    return jnp.rad2deg(angle), rate


def print_torque_error(torque, params, omega):
    """Print how far the learned torque is from the drag, at the rates (n, 3)."""
    still = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
    learned = jax.vmap(lambda w: torque(0.0, still._replace(omega=w), params) - known(0.0))(omega)
    exact = jax.vmap(drag)(omega)
    share = np.linalg.norm(learned - exact) / np.linalg.norm(exact)
    print(f"learned torque: off by {share:.2%} of the drag, rms")


def print_table(errors):
    """Print the errors without and with the network, and the factors between them."""
    rms = {name: [np.sqrt(np.mean(x**2, axis=1)) for x in pair] for name, pair in errors.items()}
    print("\n32 held-out trajectories of 10 s, rms error along each\n")
    print("              angle [deg]          rate [rad/s]")
    print("              median     worst     median     worst")
    for name, (angle, rate) in rms.items():
        angles = f"{np.median(angle):10.3f}{np.max(angle):10.3f}"
        print(f"{name:10s}{angles}{np.median(rate):11.5f}{np.max(rate):10.5f}")
    for name, before, after in zip(("angle", "rate"), rms["without"], rms["hybrid"], strict=True):
        median, least = np.median(before / after), np.min(before / after)
        print(
            f"better by a factor of {median:.0f} in the {name} (median), {least:.0f} at the least"
        )


def draw(t, errors, file):
    """Draw median and worst error of the held-out predictions against time."""
    figure, panels = plt.subplots(1, 2, figsize=(8.0, 3.6), layout="constrained")
    for name, colour in (("without", plot.COLOURS[1]), ("hybrid", plot.COLOURS[0])):
        for panel, values in zip(panels, errors[name], strict=True):
            middle, worst = np.median(values, axis=0)[1:], np.max(values, axis=0)[1:]
            panel.semilogy(t[1:], middle, color=colour, linewidth=2.0, label=f"{name}, median")
            dashed = {"color": colour, "linewidth": 1.2, "linestyle": "--"}
            panel.semilogy(t[1:], worst, label=f"{name}, worst", **dashed)
            panel.set(xlabel="time [s]", xlim=(0, t[-1]))
    panels[0].set_ylabel("error angle [deg]")
    panels[1].set_ylabel("error of the rate [rad/s]")
    panels[0].legend()
    figure.suptitle("Predictions of 32 held-out trajectories, with and without the learned torque")
    figure.savefig(file, dpi=150)


def main():
    """Learn, predict, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="jax", choices=NETWORKS)
    parser.add_argument("--engine", default="auto", choices=["auto", "fused", "scan"])
    options = parser.parse_args()
    train, test = jax.random.split(jax.random.key(0))
    began = time.perf_counter()
    try:
        torque, fit = learn(options.network, options.engine, train)
    except ImportError as error:
        if options.network == "jax":
            raise
        need = f"wanted the package installed, pip install {options.network} ({error})"
        sys.exit(f"--network {options.network}: {need}")
    size, seconds = sum(x.size for x in jax.tree.leaves(fit.params)), time.perf_counter() - began
    print(f"{len(fit.history)} updates of {size} parameters in {seconds:.1f} s, with compilation")
    before, after = np.sqrt(fit.history[0]), np.sqrt(np.mean(fit.history[-100:]))
    print(f"root of the loss {before:.4f} before, {after:.4f} after")

    recorded = truth(test, 32)
    print_torque_error(torque, fit.params, recorded.omega.reshape(-1, 3))
    models = {"without": (without, None), "hybrid": (torque, fit.params)}
    errors = {name: held_out(*model, recorded) for name, model in models.items()}
    errors = {name: tuple(map(np.asarray, pair)) for name, pair in errors.items()}
    print_table(errors)
    draw(DT * np.arange(STEPS + 1), errors, "neural_torque.png")
    print("\ndrawn to neural_torque.png")


if __name__ == "__main__":
    # The next start finds its programs compiled.
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/jax"))
    main()
