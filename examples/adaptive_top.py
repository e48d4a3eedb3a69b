"""A heavy top that spins at 150 rad/s, to a tolerance: the steps are chosen by diffrax's PID controller.

    pip install "jaxquat[examples,diffrax]"
    python examples/adaptive_top.py

One second, 24 turns about the top's axis, for five tolerances of what one step may err in attitude [rad] and rate [rad/s]. Prints
for each the error at the end against a reference (a splitting of order 4 that is made for such bodies, with steps where its own
error is rounding), the steps, and what as many fixed steps of the same method give. Draws adaptive_top.png.
"""

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
AXIS = np.array(
    [0.173343964098, 0.640088592070, -0.748490791134]
)  # of the top at the end, by another implementation
TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10)


@jax.jit
def adaptive(tolerance):
    """The state after a second, and the numbers of steps taken and rejected."""
    solution = diffrax.diffeqsolve(
        bridge.term(BODY, TORQUE),
        bridge.Dopri5(),
        0.0,
        1.0,
        None,
        START,
        stepsize_controller=bridge.controller(
            attitude=tolerance, rate=tolerance, pcoeff=0.2, icoeff=0.4
        ),
        max_steps=20_000,
    )
    return (
        jax.tree.map(lambda x: x[-1], solution.ys),
        solution.stats["num_accepted_steps"],
        solution.stats["num_rejected_steps"],
    )


def marcher(step, chunk=10):
    """``march(n)``: the state after a second in n fixed steps, a multiple of ``chunk``; compiled once, whatever n is."""

    @jax.jit
    def march(n):
        def advance(k, state):
            path = jq.rollout(
                step, BODY, TORQUE, state, jq.grid(k * chunk / n, 1.0 / n, chunk), save_every=chunk
            )
            return jax.tree.map(lambda x: x[-1], path.state)

        return jax.lax.fori_loop(0, n // chunk, advance, START)

    return march


def draw(errors, runs, file):
    """The error against the tolerance, and against the work."""
    figure = Figure(figsize=(10.0, 4.0), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.loglog(TOLERANCES, errors, "o-", color="tab:blue", label="after one second")
    left.loglog(TOLERANCES, TOLERANCES, "--", color="grey", label="error = tolerance of a step")
    left.set(
        xlabel="tolerance of a step [rad], [rad/s]",
        ylabel="rotation angle error [rad]",
        title="The error follows the tolerance",
    )
    left.grid(alpha=0.3)
    left.legend()
    plot.work_precision(runs, "torque evaluations", ax=right).set(
        ylim=(1e-17, 1), title="What the steps buy"
    )
    figure.savefig(file)


def main():
    """Solve for each tolerance, compare, print, draw."""
    rkmk5, splitting = marcher(jq.rkmk5), marcher(jq.symmetric_top_bm4)
    reference = splitting(1600)
    angle = jax.jit(lambda state: jq.quaternion.distance(state.q, reference.q))
    tip = jq.quaternion.rotate(reference.q, jnp.array([0.0, 0.0, 1.0]))
    print(
        f"reference: axis of the top off by {np.max(np.abs(tip - AXIS)):.1e} from another implementation's twelve digits\n"
    )
    print("             rotation angle                             rkmk5, as many")
    print("tolerance    error [rad]    error/tolerance    steps    fixed steps [rad]    rejected")
    errors, counts, fixed = [], [], []
    for tolerance in TOLERANCES:
        state, steps, rejected = adaptive(tolerance)
        same = 10 * round(int(steps) / 10)
        errors, fixed = [*errors, float(angle(state))], [*fixed, float(angle(rkmk5(same)))]
        counts.append((6 * int(steps + rejected), 6 * same))
        print(
            f"{tolerance:9.0e} {errors[-1]:14.2e} {errors[-1] / tolerance:18.1f} {steps:8d} {fixed[-1]:20.2e} {rejected:11d}"
        )
    some = np.array([20, 40, 80, 160, 320])
    better = np.array([float(angle(splitting(n))) for n in some])
    print(
        f"\nsymmetric_top_bm4, made for such bodies, in {some[2]} fixed steps: {better[2]:.1e} rad"
    )
    tried, taken = zip(*counts, strict=True)
    runs = {
        "Dopri5, by tolerance": (tried, errors),
        "rkmk5, as many fixed steps": (taken, fixed),
        "symmetric_top_bm4, fixed steps": (
            jq.SCHEMES["symmetric_top_bm4"].evaluations * some,
            better,
        ),
    }
    draw(errors, runs, "adaptive_top.png")
    print("\ndrawn to adaptive_top.png")


if __name__ == "__main__":
    main()
