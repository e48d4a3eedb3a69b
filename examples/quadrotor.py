"""Fit the gains of a quadrotor's cascaded controller through five-second flights in wind.

    python examples/quadrotor.py [--engine scan]

A quadrotor of 0.9 kg follows a figure of eight. Its motors lag behind the commanded speeds by 50
ms. Each flight has its own wind with gusts, and starts off the course, tilted. The controller,
``control.cascade``, is sampled at 100 Hz and knows neither wind nor lag. The fit begins with gains
chosen by hand. Each update simulates 32 flights and differentiates the mean cost with respect to
the logarithms of 18 gains, through rotors, allocation and controller.

The table compares the gains before and after on 256 other flights; quadrotor.png shows them and one
flight in space, and quadrotor.gif is a film of that flight. Without the extra ``fused`` the scan
engine takes ten times as long.
"""

import argparse
import os
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import jaxquat as jq
from jaxquat import control, forces, plot, rotors

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BODY = jq.Body(jnp.diag(jnp.array([0.007, 0.008, 0.013])), 0.9)  # kg m^2, kg
WEIGHT, LAG = 0.9 * 9.80665, 0.05  # N, s
DRAG = jnp.array([0.25, 0.25, 0.35])  # N s/m, along the body axes
CORNERS = jnp.array([[1.0, 1.0, 0.0], [-1.0, 1.0, 0.0], [-1.0, -1.0, 0.0], [1.0, -1.0, 0.0]])
ROTORS = rotors.Rotors(
    positions=0.12 * CORNERS,
    axes=jnp.tile(jnp.array([0.0, 0.0, 1.0]), (4, 1)),
    spins=jnp.array([1.0, -1.0, 1.0, -1.0]),
    thrust=jnp.array([0.0, 0.0, 6e-6]),  # N s^2
    drag=jnp.array([0.0, 0.0, 1e-7]),  # N m s^2
)
BY_HAND = control.CascadeGains(
    position=jnp.full(3, 1.0),
    velocity=jnp.full(3, 2.5),
    velocity_integral=jnp.full(3, 0.5),
    attitude=jnp.array([6.0, 6.0, 3.0]),
    rate=jnp.array([15.0, 15.0, 8.0]),
    rate_integral=jnp.full(3, 5.0),
)
LIMITS = control.CascadeLimits(speed=3.0, tilt=0.8, thrust=2.0 * WEIGHT)
GRID = jq.grid(0.0, 0.01, 500)
GUSTS = 2 * jnp.pi * jnp.array([0.3, 0.7, 1.5])  # rad/s


class Flight(NamedTuple):
    """The properties that differ between flights."""

    start: jq.State
    wind: jax.Array  # (3,) m/s
    gust: jax.Array  # (3, 3) m/s, of three frequencies
    phase: jax.Array  # (3, 3) rad


def eight(t):
    """Return the position on the figure of eight [m] at the time t [s]."""
    turn = 2 * jnp.pi / 5.0 * t
    return jnp.stack([1.8 * jnp.sin(turn), 0.8 * jnp.sin(2 * turn), 2.0 + 0.7 * jnp.cos(turn)])


def course(t, params, _):
    """Return the course at time t: a figure of eight, with a heading that turns slowly."""
    return control.follow_position(eight, t, lambda t: 0.4 * t)


def fly(log_gains, flight, engine="auto"):
    """Return the path of one flight of 5 s."""

    def wind(t, position):
        return flight.wind + jnp.sum(flight.gust * jnp.sin(GUSTS[:, None] * t + flight.phase), 0)

    plant = jq.torques.total(
        forces.gravity(BODY), rotors.lag(ROTORS, LAG), forces.linear_drag(DRAG, wind)
    )
    cascade = control.cascade(
        BODY,
        GRID.dt,
        course,
        gains=partial(jax.tree.map, jnp.exp),
        limits=LIMITS,
    )
    controller = rotors.command_speeds(cascade, ROTORS, min=0.05, max=0.6 * WEIGHT)
    return jq.rollout(
        jq.rkmk2, BODY, plant, flight.start, GRID, log_gains,
        controller=controller, options=jq.RolloutOptions(engine=engine),
    )  # fmt: skip


def random_flights(key, n):
    """Draw n flights: starts within 0.7 m of the course and tilts up to 0.5 rad, winds to 6 m/s."""
    keys = jax.random.split(key, 6)
    place, slope = jax.jvp(eight, (0.0,), (1.0,))
    tilt, spin, shift, speed = (jax.random.ball(k, 3, shape=(n,)) for k in keys[:4])
    hover = jnp.full((n, 4), rotors.speeds(ROTORS, jnp.full(4, WEIGHT / 4))[0])
    start = jq.State(
        jq.quaternion.exp(0.5 * tilt), 1.0 * spin, hover, place + 0.7 * shift, slope + 0.5 * speed
    )
    wind = 6.0 * jax.random.ball(keys[4], 3, shape=(n,)) * jnp.array([1.0, 1.0, 0.2])
    gust, phase = jax.random.split(keys[5])
    return Flight(
        start,
        wind,
        0.8 * jax.random.normal(gust, (n, 3, 3)),
        jax.random.uniform(phase, (n, 3, 3), maxval=2 * jnp.pi),
    )


def errors(log_gains, flight, engine="auto"):
    """Return the distance from the course [m] and the cost at each row.

    The cost is distance^2 + 0.01 |omega|^2: without the second term the fitted gains would shake
    the craft.
    """
    path = fly(log_gains, flight, engine)
    squared = jnp.sum((path.state.position - jax.vmap(eight)(path.t)) ** 2, -1)
    return jnp.sqrt(squared + 1e-12), squared + 0.01 * jnp.sum(path.state.omega**2, -1)


def loss(engine, log_gains, flights, key):
    """Return the mean cost over time and over a batch of flights."""
    return jnp.mean(jax.vmap(lambda flight: errors(log_gains, flight, engine)[1])(flights))


def fitted(engine, flights, key):
    """Fit the gains, and print the time taken."""
    began, initial = time.perf_counter(), jax.tree.map(jnp.log, BY_HAND)
    objective, optimiser = partial(loss, engine), optax.adam(0.05)
    fit = jq.fit(objective, initial, optimiser, flights, steps=200, batch_size=32, key=key)
    print(f"200 updates in {time.perf_counter() - began:.1f} s, compilation included")
    return fit.params


def print_rows(distances):
    """Print the distances of the flights from the course."""
    print("\n256 held-out flights         distance from the course [m]")
    print("                      over 2 to 5 s: rms    95 %    at its worst    at 5 s, median")
    for name, distance in distances.items():
        late = distance[:, 200:]
        row = f"{np.sqrt(np.mean(late**2)):.3f}   {np.percentile(late, 95):.3f}"
        print(f"{name:34s} {row}     {late.max():.3f}           {np.median(distance[:, -1]):.3f}")


def draw(flights, distances, file):
    """Draw one flight in space, with each set of gains, and all of them against time."""
    plt.rcParams["grid.color"] = "0.88"
    figure = plt.figure(figsize=(9.0, 4.2))
    space: Any = figure.add_axes((-0.04, -0.08, 0.6, 1.09), projection="3d", elev=30, azim=-58)
    panel = figure.add_axes((0.69, 0.13, 0.295, 0.73))
    course = np.asarray(jax.vmap(eight)(jnp.linspace(0.0, 5.0, 201)))
    space.plot(*course.T, "--", color="0.5", linewidth=1.2, label="course")
    colours = {"by hand": plot.COLOURS[4], "fitted": plot.COLOURS[3]}
    for name, path in flights.items():
        style: dict[str, Any] = {"colour": colours[name], "label": f"gains {name}", "size": 0.3}
        plot.track(path, frames=15 if name == "fitted" else 1, ax=space, **style)
    space.set(zlim=(0.9, space.get_zlim()[1]))
    space.set_aspect("equal")
    floor: dict[str, Any] = {"zs": 0.9, "color": "0.85", "linewidth": 2.0, "zorder": 0}
    space.plot(*course[:, :2].T, **floor)
    space.tick_params(pad=0, labelsize="small")
    space.zaxis.labelpad = 0
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.02, 0.99)}
    place |= {"ncols": 2, "frameon": False}
    handles, labels = space.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda k: labels[k].startswith("body"))
    figure.legend([handles[k] for k in order], [labels[k] for k in order], **place)
    for name, distance in distances.items():
        low, middle, high = np.percentile(distance, (10, 50, 90), axis=0)
        panel.fill_between(GRID.times(), low, high, color=colours[name], alpha=0.2, linewidth=0)
        panel.plot(GRID.times(), middle, color=colours[name], label=f"gains {name}")
    panel.set(xlabel="time [s]", ylabel="distance from the course [m]", xlim=(0, 5))
    panel.set(yscale="log", ylim=(0.01, 1.0), yticks=[0.01, 0.1, 1.0])
    panel.set_yticklabels(["0.01", "0.1", "1"])
    panel.set_title("256 held-out flights:\nmedian and middle 80 %")
    panel.grid()
    panel.legend(frameon=False)
    figure.savefig(file, dpi=140)


def film(path, file):
    """Film the flight; the quadrotor is a box, drawn half as large again."""
    figure = plt.figure(figsize=(4.8, 3.8), dpi=90)
    space: Any = figure.add_axes((-0.02, 0.0, 0.92, 1.0), projection="3d", elev=30, azim=-58)
    course = np.asarray(jax.vmap(eight)(jnp.linspace(0.0, 5.0, 201)))
    space.plot(*course.T, "--", color="0.6", linewidth=1.2)
    plot.animate(path, BODY, file, fps=12, size=0.65, ax=space)


def main():
    """Fit the gains, print the table, draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", default="auto", choices=["scan", "fused", "auto"])
    engine = parser.parse_args().engine
    train, held_out, descent = jax.random.split(jax.random.key(0), 3)
    flights, unseen = random_flights(train, 2048), random_flights(held_out, 256)
    print("fitting 18 gains, 32 flights an update", flush=True)
    gains = {
        "by hand": jax.tree.map(jnp.log, BY_HAND),
        "fitted": fitted(engine, flights, descent),
    }

    many = jax.jit(jax.vmap(partial(errors, engine=engine), (None, 0)))
    distances = {name: np.asarray(many(g, unseen)[0]) for name, g in gains.items()}
    print_rows(distances)
    print("\n                       x      y      z")
    for field, before, after in zip(control.CascadeGains._fields, *gains.values(), strict=True):
        for name, value in (("by hand", before), ("fitted", after)):
            print(f"{field:18s}", *(f"{x:6.2f}" for x in np.exp(value)), f"  {name}")

    first = jax.tree.map(lambda x: x[0], unseen)
    one = jax.jit(partial(fly, engine=engine))
    paths = {name: one(g, first) for name, g in gains.items()}
    draw(paths, distances, "quadrotor.png")
    film(paths["fitted"], "quadrotor.gif")
    print("\ndrawn to quadrotor.png and quadrotor.gif")


if __name__ == "__main__":
    # The next start finds its programs compiled.
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/jax"))
    main()
