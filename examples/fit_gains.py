"""Fit the gains of an attitude controller by gradient descent, through two integrators, and see what it gains.

The aircraft of G. Hoffmann, Application of Quaternions (2002): inertia with a product, torque limits 8, 2 and 4 N m, and his quaternion
law with six gains. It starts at any attitude with rates up to 1 rad/s and should come to rest at the identity. The gains start at his;
each update simulates 64 starts over 10 s and differentiates the mean cost.

    python examples/fit_gains.py

prints the table and draws fit_gains.png.
"""

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
HOFFMANN = jq.control.Gains(damping=jnp.array([3.0, 4.0, 6.0]), stiffness=jnp.array([6.0, 10.0, 12.0]))
COMMAND = jnp.array([1.0, 0.0, 0.0, 0.0])
GRID = jq.grid(0.0, 0.05, 200)


def torque(t, state, log_gains):
    """Hoffmann's law within the actuators' limits; the gains are exponentials, so they stay positive."""
    gains = jax.tree.map(jnp.exp, log_gains)
    return jq.actuators.saturate_smooth(jq.control.quaternion_law(state, gains, COMMAND), LIMITS)


def simulate(step, log_gains, start):
    """Error angle squared [rad^2], rate [rad/s] and torque [N m] along one trajectory."""
    path = jq.rollout(step, jq.Body(INERTIA), torque, start, GRID, log_gains)
    applied = jax.vmap(torque, in_axes=(0, 0, None))(path.t, path.state, log_gains)
    return jax.vmap(jq.quaternion.squared_distance, in_axes=(0, None))(path.state.q, COMMAND), path.state.omega, applied


def cost(squared_angle, omega, applied):
    """Mean over the 10 s of angle^2 + 0.1 |omega|^2 + 0.001 |torque|^2."""
    return jnp.mean(squared_angle + 0.1 * jnp.sum(omega**2, axis=-1) + 0.001 * jnp.sum(applied**2, axis=-1))


def loss(step, log_gains, starts, key):
    """Mean cost over a batch of starts."""
    return jnp.mean(jax.vmap(lambda start: cost(*simulate(step, log_gains, start)))(starts))


def random_starts(key, n):
    """Attitudes uniform over SO(3), rates uniform in the ball of 1 rad/s."""
    turn, direction, radius = jax.random.split(key, 3)
    omega = jax.random.ball(direction, 3, shape=(n,))
    del radius
    return jq.State(jq.quaternion.random(turn, (n,)), omega)


@partial(jax.jit, static_argnums=0)
def evaluate(step, log_gains, starts):
    """Error angle [deg] (n, times), settling time to 1 degree [s], peak torque [N m] and cost of every start."""

    def one(start):
        squared, omega, applied = simulate(step, log_gains, start)
        return jnp.rad2deg(jnp.sqrt(squared)), jnp.max(jnp.abs(applied)), cost(squared, omega, applied)

    angle, peak, costs = jax.vmap(one)(starts)
    outside = angle > 1.0
    last = jnp.where(outside.any(axis=1), angle.shape[1] - jnp.argmax(outside[:, ::-1], axis=1), 0)
    return angle, last * GRID.dt, peak, costs


def report(name, gains, settling, peak, costs):
    """One row of the table."""
    numbers = " ".join(f"{value:6.2f}" for value in (*gains.damping, *gains.stiffness))
    settled = np.mean(settling <= GRID.dt * GRID.steps)
    print(f"{name:18s} {numbers}   {np.mean(settling):6.2f} {np.percentile(settling, 95):6.2f} {settled:8.1%}"
          f" {np.mean(peak):9.2f} {np.mean(costs):8.4f}")


def main():
    """Fit through both schemes, print the table, draw the picture."""
    began = time.perf_counter()
    train, held_out, descent = jax.random.split(jax.random.key(0), 3)
    data, unseen = random_starts(train, 4096), random_starts(held_out, 1024)
    start = jax.tree.map(jnp.log, HOFFMANN)
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
    rows = []
    for panel, (name, step) in zip(panels, {"rkmk4": jq.rkmk4, "zhao": jq.zhao}.items(), strict=True):
        fit = jq.fit(partial(loss, step), start, optax.adam(0.08), data, steps=60, batch=64, key=descent)
        for label, log_gains, colour in (("before", start, "tab:orange"), ("after", fit.params, "tab:blue")):
            angle, *measures = map(np.asarray, evaluate(step, log_gains, unseen))
            rows.append((f"{name} {label}", jax.tree.map(jnp.exp, log_gains), *measures))
            low, middle, high = np.percentile(angle, (10, 50, 90), axis=0)
            times = GRID.times(jnp.float32)
            panel.fill_between(times, low, high, color=colour, alpha=0.2, linewidth=0)
            panel.plot(times, middle, color=colour, label=label)
        panel.axhline(1.0, color="grey", linewidth=0.8, linestyle="--")
        panel.set(title=name, xlabel="time [s]", yscale="log", ylim=(1e-3, 200), xlim=(0, 10))
        panel.legend(title="median, 10-90 %")
    panels[0].set_ylabel("error angle [deg]")
    figure.suptitle("1024 held-out starts over all of SO(3)")
    figure.savefig("fit_gains.png", dpi=120)
    for row in rows:
        report(*row)
    print(f"{time.perf_counter()-began:.1f}")


if __name__ == "__main__":
    main()
