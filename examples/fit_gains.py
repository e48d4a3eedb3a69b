"""Fit the gains of an attitude controller by gradient descent, through two integrators.

    python examples/fit_gains.py [--engine scan]

The aircraft is from G. Hoffmann, Application of Quaternions (2002): an inertia with a product of
inertia, torque limits of 8, 2 and 4 N m, and his quaternion law with six gains. It starts at any
attitude with a rate of up to 1 rad/s and should come to rest at the identity. The fit begins with
his gains. Each update simulates 64 starts over 10 s and differentiates the mean cost.

The table compares the gains before and after on 1024 other starts. The picture is fit_gains.png.
Without the extra ``fused`` the scan engine takes ten times as long.
"""

import argparse
import os
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

INERTIA = jnp.array([[0.6, 0.0, -0.2], [0.0, 1.0, 0.0], [-0.2, 0.0, 1.5]])  # kg m^2
LIMITS = jnp.array([8.0, 2.0, 4.0])  # N m
HOFFMANN = jq.control.Gains(
    damping=jnp.array([3.0, 4.0, 6.0]), stiffness=jnp.array([6.0, 10.0, 12.0])
)
TARGET = jnp.array([1.0, 0.0, 0.0, 0.0])
GRID = jq.grid(0.0, 0.05, 200)


def torque(t, state, log_gains):
    """Return the torque [N m] of Hoffmann's law within the actuators' limits.

    The parameters are logarithms of the gains, so the gains stay positive.
    """
    gains = jax.tree.map(jnp.exp, log_gains)
    return LIMITS * jnp.tanh(jq.control.quaternion_law(state, gains, TARGET) / LIMITS)


def observe(t, state, log_gains):
    """Return the values saved in a row: squared error angle [rad^2], torque [N m], and cost.

    The cost is angle^2 + 0.1 |omega|^2 + 0.001 |torque|^2.
    """
    squared, tau = jq.quaternion.squared_distance(state.q, TARGET), torque(t, state, log_gains)
    return squared, tau, squared + 0.1 * jnp.sum(state.omega**2) + 0.001 * jnp.sum(tau**2)


def simulate(scheme, log_gains, start, engine="scan"):
    """Return the values that ``observe`` saves along one trajectory of 10 s."""
    body, options = jq.Body(INERTIA), jq.RolloutOptions(save=observe, engine=engine)
    return jq.rollout(scheme, body, torque, start, GRID, log_gains, options=options).saved


def loss(scheme, engine, log_gains, starts, key):
    """Return the mean cost over time and over a batch of starts."""
    return jnp.mean(jax.vmap(lambda start: simulate(scheme, log_gains, start, engine)[2])(starts))


def random_starts(key, n):
    """Draw n attitudes uniform over SO(3), and rates uniform in the ball of 1 rad/s."""
    turn, spin = jax.random.split(key)
    return jq.State(jq.quaternion.random(turn, (n,)), jax.random.ball(spin, 3, shape=(n,)))


@partial(jax.jit, static_argnums=0)
def evaluate(scheme, log_gains, starts):
    """Simulate n starts.

    Returns:
        Error angles [deg] (n, times); settling time to 1 degree [s], peak torque [N m] and mean
        cost of each start.
    """

    def one(start):
        squared, tau, cost = simulate(scheme, log_gains, start)
        return jnp.rad2deg(jnp.sqrt(squared)), jnp.max(jnp.abs(tau)), jnp.mean(cost)

    angle, peak, costs = jax.vmap(one)(starts)
    outside = angle > 1.0
    last = jnp.where(outside.any(axis=1), angle.shape[1] - jnp.argmax(outside[:, ::-1], axis=1), 0)
    return angle, last * GRID.dt, peak, costs


def fit_through(scheme, engine, starts, key):
    """Fit the gains through one scheme, and print the time taken."""
    began = time.perf_counter()
    objective, initial = partial(loss, scheme, engine), jax.tree.map(jnp.log, HOFFMANN)
    fit = jq.fit(objective, initial, optax.adam(0.08), starts, steps=60, batch_size=64, key=key)
    print(f"60 updates in {time.perf_counter() - began:.1f} s, compilation included")
    return fit


HEADER = """
               damping [N m s]     stiffness [N m]     settling to 1 deg [s]   peak torque   cost
                 x     y     z       x     y     z     mean  95 %   slowest     mean [N m]   mean"""


def print_row(name, log_gains, settling, peak, costs):
    """Print the gains and the results of 1024 held-out starts with them."""
    gains = jax.tree.map(jnp.exp, log_gains)
    damping, stiffness = (" ".join(f"{value:5.2f}" for value in group) for group in gains)
    times = f"{np.mean(settling):5.2f} {np.percentile(settling, 95):5.2f}   {np.max(settling):5.2f}"
    means = f"{np.mean(peak):6.2f}      {np.mean(costs):.4f}"
    print(f"{name:12s} {damping}   {stiffness}    {times}        {means}")


def draw(angles, file):
    """Draw the error angles [deg], a panel for each scheme, before and after the fit."""
    figure, panels = plt.subplots(1, 2, figsize=(8.0, 3.8), sharey=True, layout="constrained")
    for panel, (name, curves) in zip(panels, angles.items(), strict=True):
        for (label, angle), colour in zip(curves.items(), plot.COLOURS[1::-1], strict=True):
            low, middle, high = np.percentile(angle, (10, 50, 90), axis=0)
            panel.fill_between(GRID.times(), low, high, color=colour, alpha=0.2, linewidth=0)
            panel.plot(GRID.times(), middle, color=colour, linewidth=2.0, label=label)
        panel.axhline(1.0, color="0.45", linewidth=0.8, linestyle="--")
        panel.set(title=f"through {name}", xlabel="time [s]", xlim=(0, 8))
        panel.set(yscale="log", ylim=(1e-2, 200))
        panel.legend(title="median, middle 80 %")
    panels[0].set_ylabel("error angle [deg]")
    figure.suptitle("Hoffmann's gains and fitted gains on 1024 held-out starts over all of SO(3)")
    figure.savefig(file, dpi=150)


def main():
    """Fit through both schemes, print the table, draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", default="auto", choices=["scan", "fused", "auto"])
    engine = parser.parse_args().engine
    train, held_out, descent = jax.random.split(jax.random.key(0), 3)
    starts, unseen = random_starts(train, 4096), random_starts(held_out, 1024)

    schemes, gains = {"rkmk4": jq.rkmk4, "zhao": jq.zhao}, {}
    for name, scheme in schemes.items():
        print(f"fitting six gains through {name}, 64 starts an update", flush=True)
        fit = fit_through(scheme, engine, starts, descent)
        gains[name] = {"before": jax.tree.map(jnp.log, HOFFMANN), "after": fit.params}

    print(HEADER)
    angles = {name: {} for name in schemes}
    for name, scheme in schemes.items():
        for label, log_gains in gains[name].items():
            angle, *measures = map(np.asarray, evaluate(scheme, log_gains, unseen))
            print_row(f"{name} {label}", log_gains, *measures)
            angles[name][label] = angle
    draw(angles, "fit_gains.png")
    print("\nOn 1024 held-out starts; drawn to fit_gains.png.")


if __name__ == "__main__":
    # The next start finds its programs compiled.
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/jax"))
    main()
