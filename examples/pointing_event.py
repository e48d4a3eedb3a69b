"""Stop an attitude manoeuvre when its pointing error falls below 0.1 degrees.

    pip install "jaxquat[examples,diffrax]"
    python examples/pointing_event.py

A satellite turns by 150 degrees under a quaternion law within the limits of its wheels. diffrax
takes steps as long as the tolerance allows. In one of them the error crosses 0.1 degrees, and
Newton's method finds the moment on the interpolation between the ends of that step.

The program prints the moment, the error there, and the steps. It compares them with a much finer
rollout to that moment, and with rollouts of fixed steps, which give the error only at their own
times. The picture is pointing_event.png.
"""

import os
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
TARGET = jnp.array([1.0, 0.0, 0.0, 0.0])
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
    """Return the torque [N m] of the law within the wheels' limits."""
    return LIMIT * jnp.tanh(jq.control.quaternion_law(state, gains, TARGET) / LIMIT)


def beyond(t, y, args, **_):
    """Return a number that changes sign when the error crosses 0.1 degrees.

    It is the squared error minus the squared limit, because the square is smooth.
    """
    return jq.quaternion.squared_distance(y.q, TARGET) - jnp.deg2rad(CLOSE) ** 2


@jax.jit
def solve():
    """Solve up to the event, and save the state at the end of each step."""
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


@partial(jax.jit, static_argnames=("scheme", "steps"))
def fixed(scheme, dt, steps):
    """Return a rollout with steps of one length."""
    return jq.rollout(scheme, BODY, torque, START, jq.grid(0.0, dt, steps), GAINS)


def degrees(q):
    """Return the pointing error [deg]."""
    return np.rad2deg(jax.jit(jq.quaternion.distance)(q, jnp.broadcast_to(TARGET, q.shape)))


def print_rows(paths, moment):
    """Print the first row below 0.1 degrees of each rollout."""
    print(f"\nrkmk5 with fixed steps: the first row below {CLOSE} deg")
    print("step [s]    steps    time [s]    late by [s]   error there [deg]")
    for dt, path in paths.items():
        angle = degrees(path.state.q)
        row = int(np.argmax(angle < CLOSE))
        t = path.t[row]
        print(f"{dt:8.1f} {row:8d} {t:11.1f} {t - moment:14.4f} {angle[row]:19.6f}")


def draw(ends, paths, file):
    """Draw the error against time, and around the moment."""
    moment, finest = float(ends.t[-1]), paths[min(paths)]
    figure = Figure(figsize=(8.0, 3.6), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    plot.attitude_error(finest, TARGET, ax=left)
    dots = {"color": plot.COLOURS[1], "markersize": 3.5, "label": "diffrax's steps"}
    left.plot(ends.t, degrees(ends.state.q), "o", **dots)
    plot.attitude_error(finest, TARGET, ax=right)
    looks = zip(paths.items(), "Ds.", (11, 6, 5), plot.COLOURS[3:], strict=True)
    for (dt, path), marker, size, colour in looks:
        dots = {"color": colour, "markersize": size, "label": f"fixed steps of {dt} s"}
        right.plot(path.t, degrees(path.state.q), marker, **dots)
    star = {"color": plot.COLOURS[2], "markeredgecolor": "black", "markersize": 14, "zorder": 3}
    for ax in (left, right):
        ax.axhline(CLOSE, color="0.45", linewidth=0.8, linestyle="--")
        ax.plot([moment], [CLOSE], "*", label="the event", **star)
        ax.legend()
        ax.set_ylabel("pointing error [deg]")
    left.set(xlim=(0, moment + 2), ylim=(0.05, 300), yscale="log", title="A turn by 150 degrees")
    right.set(xlim=(moment - 1.8, moment + 1.2), ylim=(0.05, 0.2), title="Around the event")
    figure.savefig(file)


def main():
    """Solve up to the event, compare, print, draw."""
    solution = solve()
    taken = jnp.isfinite(solution.ts)
    ends = jq.Path(solution.ts[taken], jax.tree.map(lambda x: x[taken], solution.ys))
    moment, error = float(ends.t[-1]), degrees(ends.state.q[-1])
    lengths = np.diff(ends.t)[:-1]  # the event cuts the last step
    print(f"event: the pointing error falls below {CLOSE} deg at t = {moment:.8f} s")
    steps = f"{len(ends.t)} steps of {lengths.min():.2f} to {lengths.max():.2f} s"
    print(f"error there {error:.10f} deg, after {steps}")
    fine = degrees(fixed(jq.rkmk6, moment / 20_000, 20_000).final.q)
    print(f"a rollout of order 6 to that time, in 20000 steps: {fine:.10f} deg")

    paths = {dt: fixed(jq.schemes.rkmk5, dt, 600) for dt in (1.0, 0.5, 0.1)}
    print_rows(paths, moment)
    draw(ends, paths, "pointing_event.png")
    print("\ndrawn to pointing_event.png")


if __name__ == "__main__":
    # The next start finds its programs compiled.
    jax.config.update("jax_compilation_cache_dir", os.path.expanduser("~/.cache/jax"))
    main()
