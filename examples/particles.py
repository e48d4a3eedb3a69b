"""Simulate 10,000 particles in a shear flow, whose initial alignment disperses.

    python examples/particles.py [--bodies 10000] [--engine auto]

Each particle is a rod, five times as long as thick, in the flow ``u_x = y`` between moving walls.
All rods start with their axes along y, across the flow, but their lengths differ by a tenth.
Without inertia (Jeffery 1922) each rod would stay on its own orbit, and longer rods would turn more
slowly; so the cloud turns together at first, and then disperses. The particles have inertia: their
rates relax to the fluid's in a hundredth of the time scale of the shear, so they also drift from
orbit to orbit, towards the plane of the flow.

The program prints how often the rods lie along the flow at the beginning and at the end, compares
this with what Jeffery's orbits predict for a cloud that has dispersed, and draws it to
particles.png.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxquat as jq
from jaxquat import plot

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import PowerNorm

SHEAR = jnp.zeros((3, 3)).at[0, 1].set(1.0)  # 1/s
RATIO, SPREAD = 5.0, 0.1  # of length to thickness, and its standard deviation
TILT = 0.5  # rad, of the axes out of the plane of the flow, standard deviation
RELAXATION = 0.01  # s, in which a rod's rate relaxes to the fluid's
STEP, EVERY = 0.01, 32  # s, and steps between rows
PERIOD = 2 * np.pi * (RATIO + 1 / RATIO)  # s, of the mean rod
ROWS = round(8 * PERIOD / (STEP * EVERY))
TURN = np.linspace(-90.0, 90.0, 61)  # deg, edges of the classes


def draw_member(key):
    """Draw a rod: the ratio of length to thickness, and the attitude; its axis is body z."""
    long, tilt = jax.random.split(key)
    ratio = RATIO * jnp.exp(SPREAD * jax.random.normal(long))
    across = jq.quaternion.exp(jnp.array([-jnp.pi / 2, 0.0, 0.0]))  # body z along world y
    out = jq.quaternion.exp(jnp.array([1.0, 0.0, 0.0]) * TILT * jax.random.normal(tilt))
    return ratio, jq.quaternion.multiply(across, out)


def fly(engine, key):
    """Return the axis of one rod in the world at all rows, (rows, 3)."""
    ratio, q = draw_member(key)
    semi_axes = jnp.stack([jnp.ones(()), jnp.ones(()), ratio])
    rate = jq.flow.jeffery_rate(semi_axes, SHEAR)
    damping = jq.flow.rotational_resistance(semi_axes, 1.0)
    mass = RELAXATION * damping[0] * 5.0 / (1.0 + ratio**2)  # kg: for turns across the axis
    body = jq.Body.ellipsoid(mass, semi_axes)
    path = jq.rollout(
        jq.schemes.damp(jq.symmetric_top, damping, toward=rate),
        body,
        jq.torques.zero,
        jq.State(q, rate(0.0, q)),
        jq.grid(0.0, STEP, ROWS * EVERY, save_every=EVERY),
        options=jq.RolloutOptions(
            save=lambda t, state, *_: jq.quaternion.rotate(state.q, jnp.array([0.0, 0.0, 1.0])),
            engine=engine,
        ),
    )
    return path.saved


def angles(axes):
    """Return the angle [deg] of the axes from the flow, in its plane, between -90 and 90."""
    angle = np.rad2deg(np.arctan2(axes[..., 1], axes[..., 0]))
    return (angle + 90.0) % 180.0 - 90.0


def dispersed(angle):
    """Return the density [1/deg] over the angle when all phases of the orbit are equally likely."""
    a = np.deg2rad(angle)
    return RATIO / (np.cos(a) ** 2 + (RATIO * np.sin(a)) ** 2) / 180.0


def draw(t, angle, axes):
    """Draw the density against time, its beginning and end, and the axes on the sphere."""
    density = np.stack([np.histogram(row, TURN, density=True)[0] for row in angle])
    middles = 0.5 * (TURN[1:] + TURN[:-1])
    figure = plt.figure(figsize=(8.6, 6.0), layout="constrained")
    grid = figure.add_gridspec(2, 1)
    top, bottom = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    field = top.subplots()
    color = PowerNorm(0.4, 0.0, np.quantile(density, 0.999))
    mesh = field.pcolormesh(
        t / PERIOD, middles, density.T, norm=color, cmap="magma", rasterized=True
    )
    field.set(xlabel="time [periods of the mean rod]", ylabel="angle from the flow [deg]")
    field.set(yticks=(-90, -45, 0, 45, 90), xlim=(0, 4))
    field.set_title(f"{angle.shape[1]:,} rods turn together, then disperse")
    top.colorbar(mesh, ax=field, label="density [1/deg]", pad=0.01)
    cells = bottom.add_gridspec(1, 4, width_ratios=(1.0, 1.0, 1.0, 1.15))
    places = [bottom.add_subplot(cells[k], projection="3d") for k in range(3)]
    u, v = np.mgrid[0 : 2 * np.pi : 40j, 0 : np.pi : 20j]
    for ax, when in zip(places, (0.0, 0.75, 8.0), strict=True):
        row = int(np.argmin(np.abs(t - when * PERIOD)))
        shown = axes[row, :1500]
        ax.plot_wireframe(
            np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v), color="0.88", linewidth=0.3
        )
        ends = np.concatenate([shown, -shown])
        ax.plot(*ends.T, ".", color=plot.COLOURS[1], alpha=0.5, markersize=1.8, markeredgewidth=0)
        for name, end in zip(("flow", "gradient", "vorticity"), np.eye(3), strict=True):
            ax.plot(*np.outer(end, (1.0, 1.3)), color="0.3", linewidth=1.0)
            x, y, z = 1.6 * end
            ax.text(x, y, z, name, fontsize="small", ha="center", va="bottom")
        ax.set_axis_off()
        ax.set_title(f"after {when:g} periods", y=-0.05)
        ax.set(box_aspect=(1, 1, 1))
        ax.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1))
        ax.view_init(elev=25, azim=-55)
    last = bottom.add_subplot(cells[3])
    late = np.histogram(angle[t > 7 * PERIOD], TURN, density=True)[0]
    last.stairs(late, TURN, fill=True, color=plot.COLOURS[1], alpha=0.5, label="rods")
    last.plot(middles, dispersed(middles), "k", linewidth=1.5, label="Jeffery")
    last.set(ylim=(0.0, 1.2 * dispersed(0.0)), title="in the eighth period")
    last.set(xlabel="angle from the flow [deg]", ylabel="density [1/deg]", xticks=(-90, 0, 90))
    last.yaxis.tick_right()  # on the left it would overlap the label of the sphere
    last.yaxis.set_label_position("right")
    last.legend(fontsize="small", loc="upper right")
    figure.savefig("particles.png", dpi=130)


def main():
    """Simulate, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, default=10_000)
    parser.add_argument("--engine", default="auto", choices=["scan", "fused", "auto"])
    options = parser.parse_args()
    keys, began = jax.random.split(jax.random.key(1922), options.bodies), time.perf_counter()
    axes = jax.jit(jax.vmap(lambda key: fly(options.engine, key), out_axes=1))(keys)
    axes = np.asarray(axes)
    seconds = time.perf_counter() - began
    t = STEP * EVERY * np.arange(ROWS + 1)[-len(axes) :]
    print(f"{options.bodies} rods, {ROWS * EVERY} steps, {seconds:.1f} s, compilation included")
    angle = angles(axes)
    for name, when in (("first", t <= PERIOD), ("last", t > 7 * PERIOD)):
        share = np.mean(np.abs(angle[when]) < 15)
        print(f"within 15 deg of the flow in the {name} period: {share:.1%}")
    fine = np.linspace(-15, 15, 3001)
    print(f"Jeffery, all phases alike: {np.mean(dispersed(fine)) * 30:.1%}")
    plane = [np.degrees(np.arcsin(np.median(np.abs(axes[k, :, 2])))) for k in (0, -1)]
    print(f"median tilt out of the plane of the flow: {plane[0]:.1f} deg, then {plane[1]:.1f} deg")
    draw(t, angle, axes)
    print("drawn to particles.png")


if __name__ == "__main__":
    main()
