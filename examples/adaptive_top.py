"""Integrate a heavy top that spins at 150 rad/s to a tolerance, with steps chosen by diffrax.

    pip install "jaxquat[examples,diffrax]"
    python examples/adaptive_top.py

The run lasts one second, 24 turns about the top's axis. diffrax's PID controller chooses the steps
for five tolerances; a tolerance bounds the error of one step in attitude [rad] and rate [rad/s].

The reference is a splitting of order 4 made for such bodies, with steps so short that its own error
is rounding. For each tolerance, the table has the error at the end, the number of steps, and the
error of the same method with as many fixed steps. The picture is adaptive_top.png.
"""

from typing import NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxquat as jq
from jaxquat import plot
from jaxquat.interop import diffrax as bridge

jax.config.update("jax_enable_x64", True)

BODY = jq.Body.from_principal(jnp.array([15.234375, 15.234375, 0.46875]))  # kg m^2
START = jq.State(jnp.array([-0.5, 0.5, 0.5, 0.5]), jnp.array([-4.61538, 0.0, 150.0]), aux={})
TORQUE = jq.torques.heavy_top(147.15, jnp.array([0.0, 0.0, 1.0]))
# The axis of the top at the end, by another implementation.
AXIS = np.array([0.173343964098, 0.640088592070, -0.748490791134])
TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)
STAGES = 6  # torque evaluations of one step of Dopri5 and of rkmk5


class Run(NamedTuple):
    """The results for one tolerance; errors are rotation angles [rad]."""

    error: float
    steps: int
    rejected: int
    fixed_steps: int  # about as many, a multiple of 10
    fixed_error: float


@jax.jit
def adaptive(tolerance):
    """Return the state after a second, and the numbers of accepted and rejected steps."""
    steps = bridge.controller(attitude=tolerance, rate=tolerance, pcoeff=0.2, icoeff=0.4)
    solution = diffrax.diffeqsolve(
        bridge.term(BODY, TORQUE),
        bridge.Dopri5(),
        0.0,
        1.0,
        None,
        START,
        stepsize_controller=steps,
        max_steps=20_000,
    )
    last = jax.tree.map(lambda x: x[-1], solution.ys)
    return last, solution.stats["num_accepted_steps"], solution.stats["num_rejected_steps"]


def marcher(scheme, chunk=10):
    """Return ``march(n)``, the state after a second in n fixed steps, a multiple of ``chunk``.

    It is compiled once, whatever n is.
    """

    @jax.jit
    def march(n):
        def advance(k, state):
            grid = jq.grid(k * chunk / n, 1.0 / n, chunk, save_every=chunk)
            return jq.rollout(scheme, BODY, TORQUE, state, grid).final

        return jax.lax.fori_loop(0, n // chunk, advance, START)

    return march


def run(tolerance, march, angle):
    """Solve to one tolerance, and again with as many fixed steps of rkmk5."""
    state, steps, rejected = adaptive(tolerance)
    fixed_steps = 10 * round(int(steps) / 10)
    fixed_error = float(angle(march(fixed_steps)))
    return Run(float(angle(state)), int(steps), int(rejected), fixed_steps, fixed_error)


def print_table(runs):
    """Print a line for each tolerance."""
    print("             rotation angle                             rkmk5, as many")
    print("tolerance    error [rad]    error/tolerance    steps    fixed steps [rad]    rejected")
    for tolerance, r in zip(TOLERANCES, runs, strict=True):
        cells = f"{tolerance:9.0e} {r.error:14.2e} {r.error / tolerance:18.1f} {r.steps:8d}"
        print(f"{cells} {r.fixed_error:20.2e} {r.rejected:11d}")


def draw(runs, splitting, file):
    """Draw the error against the tolerance, and against the work."""
    figure = Figure(figsize=(8.0, 3.6), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    errors = [r.error for r in runs]
    left.loglog(TOLERANCES, errors, "o-", color=plot.COLOURS[0], label="after one second")
    left.loglog(TOLERANCES, TOLERANCES, "--", color="0.45", label="error = tolerance of a step")
    left.set(xlabel="tolerance of a step [rad], [rad/s]", ylabel="rotation angle error [rad]")
    left.set_title("The error follows the tolerance")
    left.grid(alpha=0.3)
    left.legend()
    tried = [STAGES * (r.steps + r.rejected) for r in runs]
    fixed = [STAGES * r.fixed_steps for r in runs], [r.fixed_error for r in runs]
    curves = {
        "Dopri5, tolerance": (tried, errors),
        "rkmk5, fixed steps": fixed,
        "symmetric_top_bm4": splitting,
    }
    for (name, curve), colour in zip(curves.items(), plot.COLOURS, strict=False):
        right.loglog(*curve, "o-", color=colour, label=name)
    right.set(xlabel="torque evaluations", ylabel="rotation angle error [rad]")
    right.grid(alpha=0.3)
    right.legend(loc="upper right")
    figure.savefig(file)


def main():
    """Solve for each tolerance, compare, print, draw."""
    rkmk5, splitting = marcher(jq.schemes.rkmk5), marcher(jq.schemes.symmetric_top_bm4)
    reference = splitting(1600)
    angle = jax.jit(lambda state: jq.quaternion.distance(state.q, reference.q))
    tip = jq.quaternion.rotate(reference.q, jnp.array([0.0, 0.0, 1.0]))
    off = np.max(np.abs(tip - AXIS))
    print(f"reference: axis of the top off by {off:.1e} from another implementation's 12 digits\n")
    runs = [run(tolerance, rkmk5, angle) for tolerance in TOLERANCES]
    print_table(runs)

    counts = np.array([20, 40, 80, 160, 320])
    errors = np.array([float(angle(splitting(n))) for n in counts])
    print(f"\nsymmetric_top_bm4, made for such bodies, in 80 fixed steps: {errors[2]:.1e} rad")
    evaluations = jq.schemes.SCHEMES["symmetric_top_bm4"].evaluations
    draw(runs, (evaluations * counts, errors), "adaptive_top.png")
    print("\ndrawn to adaptive_top.png")


if __name__ == "__main__":
    main()
