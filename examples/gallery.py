"""Draw every picture of ``jaxquat.plot``.

    python examples/gallery.py [FOLDER]

It takes about a minute and writes five files to the folder: plotting_free.png shows a body that
flips, flips.gif is a film of it, plotting_recording.png shows its Euler angles and what sensors on
it would record, plotting_control.png shows an aircraft under control, a fit, and a comparison of
schemes, and plotting_margins.png how far a delay takes its loops towards instability.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import jaxquat as jq
from jaxquat import plot

jax.config.update("jax_enable_x64", True)

BOX = jq.Body.box(3.0, jnp.array([0.5, 0.35, 0.15]))  # kg, m
FLIPPING = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.15, 3.0, 0.15]))
AIRCRAFT = jq.Body(jnp.array([[0.6, 0.0, -0.2], [0.0, 1.0, 0.0], [-0.2, 0.0, 1.5]]))  # kg m^2
LIMITS = jnp.array([8.0, 2.0, 4.0])  # N m
LEVEL = jnp.array([1.0, 0.0, 0.0, 0.0])
HOFFMANN = jq.control.Gains(
    damping=jnp.array([3.0, 4.0, 6.0]), stiffness=jnp.array([6.0, 10.0, 12.0])
)
FIELD = jnp.array([20e-6, 0.0, -44e-6])  # T, world axes, z up
SCHEMES = ("zhao", "rkmk4", "rkmk6", "symmetric_top", "symmetric_top_suzuki4")


# A body that flips: pictures in space, a film, and a recording.


def flipped():
    """Return the path of eight seconds of a box spun about its middle axis."""
    grid = jq.grid(0.0, 0.01, 800)
    return jax.jit(lambda: jq.rollout(jq.rkmk4, BOX, jq.torques.zero, FLIPPING, grid))()


def draw_free(folder, flips):
    """Draw plotting_free.png and flips.gif."""
    figure = Figure(figsize=(11.4, 3.4), dpi=110)
    plot.rates(flips, ax=figure.add_axes((0.06, 0.17, 0.25, 0.68)))
    panels: list[Any] = []
    for left, azimuth in ((0.33, -30), (0.7, 45)):
        place = (left, 0.04, 0.27, 0.87)
        panels.append(figure.add_axes(place, projection="3d", elev=30, azim=azimuth))
    plot.body_axes(flips, frames=2, ax=panels[0])
    plot.momentum_sphere(flips, BOX, ax=panels[1])
    for panel in panels:
        panel.tick_params(pad=-3, labelsize="small")
        for axis in (panel.xaxis, panel.yaxis, panel.zaxis):
            axis.labelpad = -4
        above: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.47, 0.93)}
        panel.legend(ncols=3, frameon=False, handlelength=1.2, columnspacing=0.8, **above)
    figure.savefig(folder / "plotting_free.png")

    figure = Figure(figsize=(4.2, 3.7), dpi=80)
    panel: Any = figure.add_axes((0.03, 0.11, 0.87, 0.89), projection="3d")
    plot.animate(flips, BOX, folder / "flips.gif", fps=12, ax=panel)


def recorded(flips):
    """Return the recording of simulated sensors on the body.

    It has rates with noise, the magnetic field in one of ten rows, and attitudes that are lost for
    a second.
    """
    rng, rows = np.random.default_rng(0), len(flips.t)
    gyro = np.asarray(flips.state.omega) + rng.normal(scale=0.05, size=(rows, 3))
    field = np.asarray(jq.quaternion.rotate_inverse(flips.state.q, FIELD))
    magnetometer = np.where(np.arange(rows)[:, None] % 10 == 0, field, np.nan)
    t, q = np.array(flips.t), np.array(flips.state.q)
    q[(t >= 3.0) & (t < 4.0)] = np.nan
    return jq.recordings.Recording(t, gyro, q, magnetometer=magnetometer)


def draw_recording(folder, flips):
    """Draw plotting_recording.png: Euler angles above the channels of a recording."""
    figure = Figure(figsize=(7.4, 7.6), dpi=110, layout="constrained")
    angles, *channels = figure.subplots(4, sharex=True, height_ratios=(1.5, 1, 1, 1))
    plot.euler_angles(flips, ax=angles)
    for panel in (angles, *plot.channels(recorded(flips), ax=channels)):
        panel.label_outer()
    figure.align_ylabels()
    figure.savefig(folder / "plotting_recording.png")


# An aircraft under control: flights, and a fit of the gains.


def law(t, state, log_gains):
    """Return the torque [N m] of Hoffmann's law within the actuators' limits.

    The parameters are logarithms of the gains, so the gains stay positive.
    """
    gains = jax.tree.map(jnp.exp, log_gains)
    return LIMITS * jnp.tanh(jq.control.quaternion_law(state, gains, LEVEL) / LIMITS)


@jax.jit
def fly(log_gains, start):
    """Return the path of eight seconds of flight."""
    return jq.rollout(jq.zhao, AIRCRAFT, law, start, jq.grid(0.0, 0.04, 200), log_gains)


def random_starts(key, n):
    """Draw n attitudes uniform over SO(3), and rates uniform in the ball of 1 rad/s."""
    turn, spin = jax.random.split(key)
    return jq.State(jq.quaternion.random(turn, (n,)), jax.random.ball(spin, 3, shape=(n,)))


def loss(log_gains, starts, key):
    """Return the mean of angle^2 + 0.1 |omega|^2 + 0.001 |torque|^2."""
    paths = jax.vmap(partial(fly, log_gains))(starts)
    tau = jax.vmap(jax.vmap(law, (0, 0, None)), (0, 0, None))(paths.t, paths.state, log_gains)
    squared = jq.quaternion.squared_distance(paths.state.q, LEVEL)
    rates, torques = jnp.sum(paths.state.omega**2, -1), jnp.sum(tau**2, -1)
    return jnp.mean(squared + 0.1 * rates + 0.001 * torques)


def fitted():
    """Fit the gains from four starts near Hoffmann's, with validation on other flights."""
    train, held_out, near, key = jax.random.split(jax.random.key(0), 4)
    hoffmann = jax.tree.map(jnp.log, HOFFMANN)
    several = jax.tree.map(lambda x: x + 0.5 * jax.random.normal(near, (4, 3)), hoffmann)
    unseen = random_starts(held_out, 64)
    fit = jq.fit(
        loss,
        several,
        optax.adam(0.1),
        random_starts(train, 512),
        steps=40,
        batch_size=128,
        starts=4,
        key=key,
        validation=lambda log_gains: loss(log_gains, unseen, None),
        options=jq.FitOptions(chunk=5),
    )
    return fit, random_starts(held_out, 200)


def precision(scheme, evaluations):
    """Measure a scheme on 8 s of flips, against the motion in closed form.

    Returns:
        Numbers of torque evaluations, and the corresponding rotation angle errors [rad].
    """

    @jax.jit
    def advance(state, dt):
        grid = jq.grid(0.0, dt, 50, save_every=50)
        return jq.rollout(scheme, BOX, jq.torques.zero, state, grid).final

    exact, work, error = jq.exact.free_body(BOX, 8.0, FLIPPING), [], []
    for parts in (2, 4, 8, 16, 32):
        state = FLIPPING
        for _ in range(parts):
            state = advance(state, 8.0 / (50 * parts))
        work.append(50 * parts * evaluations)
        error.append(jq.quaternion.distance(state.q, exact.q))
    return np.array(work), np.array(error)


def draw_control(folder):
    """Draw plotting_control.png: one flight, many flights, the fit, and five schemes."""
    fit, unseen = fitted()
    figure = Figure(figsize=(8.0, 8.4), dpi=130, layout="constrained")
    left, right = figure.subplots(3, 2).T
    flight = fly(fit.params, jax.tree.map(lambda x: x[0], unseen))
    plot.attitude_error(flight, LEVEL, ax=left[0]).set_title("one flight, fitted gains")
    plot.rates(flight, ax=right[0])
    plot.torque(flight, law, fit.params, ax=left[1])
    gains = {"Hoffmann's gains": jax.tree.map(jnp.log, HOFFMANN), "fitted gains": fit.params}
    for label, log_gains in gains.items():
        paths = jax.vmap(partial(fly, log_gains))(unseen)
        angle = jnp.rad2deg(jq.quaternion.distance(paths.state.q, LEVEL))
        plot.fan(paths.t, angle, "attitude error [deg]", label=label, ax=right[1])
    right[1].set(yscale="log", ylim=(1e-2, 200), title="200 flights that the fit never saw")
    assert fit.best_start is not None  # there are several starts
    assert fit.validation is not None
    best, updates = fit.best_start, np.arange(0, 41, fit.chunk)
    navy, vermilion = plot.COLOURS[:2]
    left[2].plot(np.delete(fit.history, best, axis=0).T, color="0.7", linewidth=0.8)
    left[2].plot(fit.history[best], color=navy, label="training")
    left[2].plot(updates, fit.validation[best], "o--", color=vermilion, label="validation")
    left[2].set(xlabel="updates", ylabel="loss")
    left[2].grid(alpha=0.3)
    left[2].legend()
    schemes = {name: jq.schemes.SCHEMES[name] for name in SCHEMES}
    for (name, scheme), colour in zip(schemes.items(), plot.COLOURS, strict=False):
        right[2].loglog(*precision(scheme, scheme.evaluations), "o-", color=colour, label=name)
    right[2].set(xlabel="torque evaluations in 8 s of flips", ylabel="rotation angle error [rad]")
    right[2].grid(alpha=0.3)
    right[2].legend()
    figure.savefig(folder / "plotting_control.png")


def draw_margins(folder):
    """Draw plotting_margins.png: the loops of a PID controller, without and with a delay."""
    period = 0.05  # s
    start = jq.State(LEVEL, jnp.zeros(3))
    gains = jq.control.PIDGains(HOFFMANN.damping, HOFFMANN.stiffness, jnp.full(3, 0.5))
    still = jq.control.Reference(LEVEL, jnp.zeros(3), jnp.zeros(3))
    pid = jq.control.pid(AIRCRAFT, period, still)
    late = jq.control.delay(pid, 2, jnp.zeros(3))
    figure = Figure(figsize=(8.0, 4.3), dpi=130, layout="constrained")
    titles = "no delay", f"{2 * period:.1f} s of delay"
    for ax, loop, title in zip(figure.subplots(1, 2), (pid, late), titles, strict=True):
        torque = jq.torques.commanded
        found = jq.control.margins(jq.rkmk4, AIRCRAFT, torque, 0.0, start, period, gains, loop)
        phase = np.rad2deg(found.phase).min()
        plot.nyquist(found, ax=ax).set_title(f"{title}, phase margin {phase:.0f} deg")
    figure.savefig(folder / "plotting_margins.png")


def main():
    """Draw all pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", default=".", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    flips = flipped()
    draw_free(folder, flips)
    draw_recording(folder, flips)
    draw_control(folder)
    draw_margins(folder)
    names = "free", "recording", "control", "margins"
    print(f"drawn plotting_{{{', '.join(names)}}}.png and flips.gif in {folder}")


if __name__ == "__main__":
    main()
