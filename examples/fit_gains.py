"""Fit the gains of an attitude controller by gradient descent, through two integrators, and see what it gains.

The aircraft of G. Hoffmann, Application of Quaternions (2002): inertia with a product, torque limits 8, 2 and 4 N m, and his
quaternion law with six gains. It starts at any attitude with rates up to 1 rad/s and should come to rest at the identity. The
gains start at his; each update simulates 64 starts over 10 s and differentiates the mean cost.

    python examples/fit_gains.py [--engine scan]

prints the table and draws fit_gains.png. Without the extra ``fused`` the scan engine takes ten times as long.
"""

import argparse
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

INERTIA = jnp.array([[0.6, 0.0, -0.2], [0.0, 1.0, 0.0], [-0.2, 0.0, 1.5]])  # kg m^2
LIMITS = jnp.array([8.0, 2.0, 4.0])  # N m
HOFFMANN = jq.control.Gains(
    damping=jnp.array([3.0, 4.0, 6.0]), stiffness=jnp.array([6.0, 10.0, 12.0])
)
TARGET = jnp.array([1.0, 0.0, 0.0, 0.0])
GRID = jq.grid(0.0, 0.05, 200)


def torque(t, state, log_gains):
    """Hoffmann's law within the actuators' limits; the gains are exponentials, so they stay positive."""
    gains = jax.tree.map(jnp.exp, log_gains)
    return jq.actuators.saturate_smooth(jq.control.quaternion_law(state, gains, TARGET), LIMITS)


def observe(t, state, log_gains):
    """What is kept of a step: angle^2 [rad^2] of the error, torque [N m], the cost angle^2 + 0.1 |omega|^2 + 0.001 |torque|^2."""
    squared, applied = jq.quaternion.squared_distance(state.q, TARGET), torque(t, state, log_gains)
    return squared, applied, squared + 0.1 * jnp.sum(state.omega**2) + 0.001 * jnp.sum(applied**2)


def simulate(step, log_gains, start, engine="scan"):
    """The measures along one trajectory of 10 s."""
    return jq.rollout(
        step, jq.Body(INERTIA), torque, start, GRID, log_gains, save=observe, engine=engine
    ).saved


def loss(step, engine, log_gains, starts, key):
    """Mean cost over time and over a batch of starts."""
    return jnp.mean(jax.vmap(lambda start: simulate(step, log_gains, start, engine)[2])(starts))


def random_starts(key, n):
    """Attitudes uniform over SO(3), rates uniform in the ball of 1 rad/s."""
    turn, spin = jax.random.split(key)
    return jq.State(jq.quaternion.random(turn, (n,)), jax.random.ball(spin, 3, shape=(n,)))


@partial(jax.jit, static_argnums=0)
def evaluate(step, log_gains, starts):
    """Error angle [deg] (n, times), settling time to 1 degree [s], peak torque [N m] and cost of every start."""

    def one(start):
        squared, applied, cost = simulate(step, log_gains, start)
        return jnp.rad2deg(jnp.sqrt(squared)), jnp.max(jnp.abs(applied)), jnp.mean(cost)

    angle, peak, costs = jax.vmap(one)(starts)
    outside = angle > 1.0
    last = jnp.where(outside.any(axis=1), angle.shape[1] - jnp.argmax(outside[:, ::-1], axis=1), 0)
    return angle, last * GRID.dt, peak, costs


HEADER = """
                 damping [N m s]       stiffness [N m]        settling to 1 deg [s]   peak torque   cost
                   x     y     z         x     y     z        mean  95 %   slowest     mean [N m]   mean"""


def row(name, log_gains, settling, peak, costs):
    """One line of the table: the gains, and how 1024 starts that the fit never saw fare with them."""
    gains = jax.tree.map(jnp.exp, log_gains)
    damping, stiffness = (" ".join(f"{value:5.2f}" for value in group) for group in gains)
    times = f"{np.mean(settling):5.2f} {np.percentile(settling, 95):5.2f}   {np.max(settling):5.2f}"
    return f"{name:14s} {damping}     {stiffness}       {times}        {np.mean(peak):6.2f}      {np.mean(costs):.4f}"


def main():
    """Fit through both schemes, print the table, draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", default="auto", choices=["scan", "fused", "auto"])
    engine = parser.parse_args().engine
    train, held_out, descent = jax.random.split(jax.random.key(0), 3)
    starts, unseen = random_starts(train, 4096), random_starts(held_out, 1024)
    initial, times, lines = jax.tree.map(jnp.log, HOFFMANN), GRID.times(), [HEADER]
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    for panel, (name, step) in zip(
        panels, {"rkmk4": jq.rkmk4, "zhao": jq.zhao}.items(), strict=True
    ):
        print(f"fitting six gains through {name}, 64 starts an update", flush=True)
        began = time.perf_counter()
        fit = jq.fit(
            partial(loss, step, engine),
            initial,
            optax.adam(0.08),
            starts,
            steps=60,
            batch_size=64,
            key=descent,
        )
        print(f"60 updates in {time.perf_counter() - began:.1f} s, compilation included")
        for label, log_gains, colour in (
            ("before", initial, "tab:orange"),
            ("after", fit.params, "tab:blue"),
        ):
            angle, *measures = map(np.asarray, evaluate(step, log_gains, unseen))
            lines.append(row(f"{name} {label}", log_gains, *measures))
            low, middle, high = np.percentile(angle, (10, 50, 90), axis=0)
            panel.fill_between(times, low, high, color=colour, alpha=0.2, linewidth=0)
            panel.plot(times, middle, color=colour, label=label)
        panel.axhline(1.0, color="grey", linewidth=0.8, linestyle="--")
        panel.set(
            title=f"through {name}", xlabel="time [s]", yscale="log", ylim=(1e-2, 200), xlim=(0, 8)
        )
        panel.legend(title="median, 10-90 %")
    panels[0].set_ylabel("error angle [deg]")
    figure.suptitle("Hoffmann's gains and fitted gains on 1024 held-out starts over all of SO(3)")
    figure.savefig("fit_gains.png", dpi=120)
    print("\n".join(lines))
    print("\nOn 1024 held-out starts; drawn to fit_gains.png.")


if __name__ == "__main__":
    main()
