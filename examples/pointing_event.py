"""Stop an attitude manoeuvre at the moment when its pointing error falls below 0.1 degrees, by an event of diffrax.

    pip install "jaxquat[examples,diffrax]"
    python examples/pointing_event.py

A satellite turns by 150 degrees under a quaternion law within the limits of its wheels. Steps are as long as the tolerance allows;
one of them sees the error cross 0.1 degrees, and Newton's method finds the moment on the interpolation between its ends. Prints the
moment, the error there and the steps, the error of a much finer rollout to that moment, and what rollouts with fixed steps say,
which know the error at their own times only. Draws pointing_event.png.
"""

from functools import partial

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from matplotlib.figure import Figure

import jaxquat as jq
from jaxquat import plot
from jaxquat.interop import diffrax as bridge

jax.config.update("jax_enable_x64", True)

BODY = jq.Body(jnp.array([[12.0, 0.5, -0.8], [0.5, 9.0, 0.3], [-0.8, 0.3, 15.0]]))  # kg m^2
COMMAND = jnp.array([1.0, 0.0, 0.0, 0.0])
START = jq.State(
    jq.quaternion.exp(jnp.deg2rad(150.0) * jnp.array([2.0, -1.0, 2.0]) / 3.0),
    jnp.array([0.02, -0.03, 0.01]),
    aux={},
)
GAINS = jq.control.Gains(
    damping=jnp.array([4.0, 3.0, 5.0]), stiffness=jnp.array([0.9, 0.7, 1.1])
)  # N m s, N m
LIMIT = jnp.full(3, 0.3)  # N m, of the wheels
CLOSE = 0.1  # deg
TOLERANCE = 1e-9  # rad and rad/s, each step


def torque(t, state, gains):
    """The law within the limits [N m]."""
    return jq.actuators.saturate_smooth(jq.control.quaternion_law(state, gains, COMMAND), LIMIT)


def beyond(t, y, args, **_):
    """Changes sign when the error crosses 0.1 degrees; the square, so that it is smooth."""
    return jq.quaternion.squared_distance(y.q, COMMAND) - jnp.deg2rad(CLOSE) ** 2


@jax.jit
def solve():
    """The solution up to the event."""
    return diffrax.diffeqsolve(
        bridge.term(BODY, torque),
        bridge.Dopri5(),
        0.0,
        300.0,
        None,
        START,
        GAINS,
        stepsize_controller=bridge.controller(attitude=TOLERANCE, rate=TOLERANCE),
        saveat=diffrax.SaveAt(steps=True),
        event=diffrax.Event(beyond, optimistix.Newton(rtol=1e-12, atol=1e-12)),
        max_steps=1000,
    )


@partial(jax.jit, static_argnames=("step", "steps"))
def fixed(step, dt, steps):
    """A rollout with steps of one length."""
    return jq.rollout(step, BODY, torque, START, jq.grid(0.0, dt, steps), GAINS)


def degrees(q):
    """The pointing error."""
    return np.rad2deg(jax.jit(jq.quaternion.distance)(q, jnp.broadcast_to(COMMAND, q.shape)))


def draw(ends, paths, file):
    """The error against time, and around the moment."""
    finest = paths[min(paths)]
    figure = Figure(figsize=(10.0, 4.0), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2)
    moment = float(ends.t[-1])
    plot.attitude_error(finest, COMMAND, ax=left)
    left.plot(
        ends.t,
        degrees(ends.state.q),
        "o",
        color="tab:orange",
        markersize=3.5,
        label="diffrax's steps",
    )
    plot.attitude_error(finest, COMMAND, ax=right)
    for (dt, path), marker, size in zip(paths.items(), "Ds.", (10, 6, 6), strict=True):
        right.plot(
            path.t,
            degrees(path.state.q),
            marker,
            markersize=size,
            label=f"rollout, fixed steps of {dt} s",
        )
    for ax in (left, right):
        ax.axhline(CLOSE, color="grey", linewidth=0.8, linestyle="--")
        ax.plot(
            [moment],
            [CLOSE],
            "*",
            color="gold",
            markeredgecolor="black",
            markersize=14,
            label="the event",
            zorder=3,
        )
        ax.legend()
    left.set(
        xlim=(0, moment + 2),
        ylim=(0.05, 300),
        yscale="log",
        ylabel="pointing error [deg]",
        title="A turn by 150 degrees",
    )
    right.set(
        xlim=(moment - 1.8, moment + 1.2),
        ylim=(0.05, 0.2),
        ylabel="pointing error [deg]",
        title="Around the event",
    )
    figure.savefig(file)


def main():
    """Solve up to the event, compare, print, draw."""
    solution = solve()
    taken = jnp.isfinite(solution.ts)
    ends = jq.Path(solution.ts[taken], jax.tree.map(lambda x: x[taken], solution.ys), (), ())
    moment, error, lengths = (
        float(ends.t[-1]),
        degrees(ends.state.q[-1]),
        np.diff(ends.t)[:-1],
    )  # the event cuts the last
    print(f"event: the pointing error falls below {CLOSE} deg at t = {moment:.8f} s")
    print(
        f"error there {error:.10f} deg, after {len(ends.t)} steps of {lengths.min():.2f} to {lengths.max():.2f} s"
    )
    fine = fixed(jq.rkmk6, moment / 20_000, 20_000)
    print(
        f"a rollout of order 6 to that time, in 20000 steps: {degrees(fine.state.q[-1]):.10f} deg"
    )
    print(f"\nrkmk5 with fixed steps: the first row below {CLOSE} deg")
    print("step [s]    steps    time [s]    late by [s]   error there [deg]")
    paths = {dt: fixed(jq.rkmk5, dt, 600) for dt in (1.0, 0.5, 0.1)}
    for dt, path in paths.items():
        angle = degrees(path.state.q)
        row = int(np.argmax(angle < CLOSE))
        print(
            f"{dt:8.1f} {row:8d} {path.t[row]:11.1f} {path.t[row] - moment:14.4f} {angle[row]:19.6f}"
        )
    draw(ends, paths, "pointing_event.png")
    print("\ndrawn to pointing_event.png")


if __name__ == "__main__":
    main()
