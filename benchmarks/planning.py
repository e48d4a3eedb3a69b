"""Plan beside crocoddyl, and count how many slews converge.

    pip install crocoddyl pin==4.0.0
    python benchmarks/planning.py [--number 1000] [--slews 10000] [--write]

crocoddyl (PyPI) plans the motions of robots by differential dynamic programming, in C++. Both
programs minimise the same function of 50 commands, with the Gauss-Newton model: of a body with
three torques, and of a quadrotor with four thrusts. A step is crocoddyl's semi-implicit Euler
step, so that both have the same minimum; how far their commands are apart, as a fraction of the
range of the commands, is in the table. crocoddyl 3.2.1 was built for pinocchio 4.0.0; with 4.1.0
its numbers are wrong. Times are processor times of all threads, which other processes disturb
least: 1000 plans use all cores, crocoddyl uses one.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pages import put

import jaxquat as jq
from jaxquat import dynamics, planning, quaternion, so3

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
SAMPLES, DT = 50, 0.03  # s
INERTIA, MASS = np.diag([0.010, 0.012, 0.020]), 1.0  # kg m^2, kg
ARM, DRAG, GRAVITY = 0.2, 0.02, 9.81  # m, N m of torque per N of thrust, m/s^2
ARMS = ARM * np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])  # m
SPINS = np.array([-1.0, 1.0, -1.0, 1.0])
TORQUES = np.stack([ARMS[:, 1], -ARMS[:, 0], DRAG * SPINS])  # N m per N of each thrust
HOVER = np.full(4, MASS * GRAVITY / 4)  # N
jax.config.update("jax_enable_x64", True)
BODY = jq.Body(INERTIA, MASS)


class Weights(NamedTuple):
    """Squares of the weights of errors and commands, per second and at the end."""

    state: np.ndarray
    command: np.ndarray
    end: np.ndarray


SLEW = Weights(np.repeat([1.0, 0.1], 3), np.full(3, 10.0), np.repeat([100.0, 10.0], 3))
FLIGHT = Weights(
    np.repeat([1.0, 1.0, 0.1, 0.1], 3), np.full(4, 0.1), np.repeat([100.0, 100.0, 10.0, 10.0], 3)
)


def semi_implicit(body: jq.Body, torque: Any, t: Any, state: jq.State, dt: Any, params: Any) -> Any:
    """Step as crocoddyl does: rates in body axes first, then attitude and position with them."""
    rates = dynamics.derivative(body, torque, t, state, params)
    omega = state.omega + dt * rates.omega
    q = quaternion.multiply(state.q, quaternion.exp(dt * omega))
    if state.position is None:
        return state._replace(q=q, omega=omega)
    v = quaternion.rotate_inverse(state.q, state.velocity + dt * rates.velocity)
    v = v - dt * jnp.cross(state.omega, quaternion.rotate_inverse(state.q, state.velocity))
    shift = quaternion.rotate(state.q, so3.dexp(dt * omega, dt * v, "world"))
    return jq.State(q, omega, state.aux, state.position + shift, quaternion.rotate(q, v))


def error(state: jq.State) -> Array:
    """The error of a state from rest at the origin in crocoddyl's coordinates."""
    turn = quaternion.log(state.q)
    if state.position is None:
        return jnp.concatenate([turn, state.omega])
    shift = so3.dexpinv(turn, state.position, "world")
    velocity = quaternion.rotate_inverse(state.q, state.velocity)
    return jnp.concatenate([shift, turn, velocity, state.omega])


def motors(t: Array, state: jq.State, params: Any, command: Array) -> Array:
    """Three torques [N m]."""
    return command


def rotors(t: Array, state: jq.State, params: Any, command: Array) -> jq.Wrench:
    """Four thrusts along body z [N], and the weight."""
    weight = jnp.array([0.0, 0.0, -MASS * GRAVITY])
    thrust = jnp.stack([jnp.zeros(()), jnp.zeros(()), jnp.sum(command)])
    return jq.Wrench(jnp.asarray(TORQUES) @ command, weight + quaternion.rotate(state.q, thrust))


def ours(start: jq.State, hessian: str, tolerance: float) -> planning.Plan:
    """Plan a slew, or a flight if the start has a position."""
    flies = start.position is not None
    weights, torque, level = (FLIGHT, rotors, HOVER) if flies else (SLEW, motors, np.zeros(3))

    def residuals(k: Array, state: jq.State, params: Any, command: Array) -> Array:
        errors = jnp.sqrt(DT * weights.state) * error(state)
        return jnp.concatenate([errors, jnp.sqrt(DT * weights.command) * (command - level)])

    def final(state: jq.State, params: Any) -> Array:
        return jnp.sqrt(weights.end) * error(state)

    guess = jnp.broadcast_to(level, (SAMPLES, len(level)))
    grid = jq.grid(0.0, DT, SAMPLES)
    return planning.ilqr(
        semi_implicit, BODY, torque, start, grid, None, guess, planning.Residuals(residuals, final),
        solver=planning.Solver(tolerance=tolerance, hessian=hessian),
    )  # fmt: skip


def starts(number: int, *, flies: bool) -> jq.State:
    """Starts at random."""
    rng = np.random.default_rng(0)
    q = quaternion.exp(jnp.asarray(0.3 * rng.normal(size=(number, 3))))
    omega, position, velocity = (jnp.asarray(0.5 * rng.normal(size=(number, 3))) for _ in range(3))
    return jq.State(q, omega, (), position, velocity) if flies else jq.State(q, omega)


class Crocoddyl:
    """The same plans by crocoddyl."""

    def __init__(self, *, flies: bool) -> None:
        import crocoddyl  # pyright: ignore[reportMissingImports]
        import pinocchio  # pyright: ignore[reportMissingImports]

        self.flies = flies
        self.model = model = pinocchio.Model()
        joint = pinocchio.JointModelFreeFlyer() if flies else pinocchio.JointModelSpherical()
        body = pinocchio.Inertia(MASS, np.zeros(3), INERTIA)
        model.appendBodyToJoint(
            model.addJoint(0, joint, pinocchio.SE3.Identity(), "root_joint"),
            body,
            pinocchio.SE3.Identity(),
        )
        state = crocoddyl.StateMultibody(model)
        weights, level = (FLIGHT, HOVER) if flies else (SLEW, np.zeros(3))
        if flies:
            kinds = crocoddyl.ThrusterType
            thrusters = [
                crocoddyl.Thruster(
                    pinocchio.SE3(np.eye(3), arm), DRAG, kinds.CW if spin > 0 else kinds.CCW
                )
                for arm, spin in zip(ARMS, SPINS, strict=True)
            ]
            actuation = crocoddyl.ActuationModelFloatingBaseThrusters(state, thrusters)
        else:
            actuation = crocoddyl.ActuationModelFull(state)
        self.level = level

        def action(parts: dict[str, Any], dt: float) -> Any:
            costs = crocoddyl.CostModelSum(state, len(level))
            for name, (weight, residual) in parts.items():
                activation = crocoddyl.ActivationModelWeightedQuad(weight)
                costs.addCost(name, crocoddyl.CostModelResidual(state, activation, residual), 1.0)
            free = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, costs)
            return crocoddyl.IntegratedActionModelEuler(free, dt)

        errors = crocoddyl.ResidualModelState(state, state.zero(), len(level))
        effort = crocoddyl.ResidualModelControl(state, level)
        running = {"state": (weights.state, errors), "command": (weights.command, effort)}
        end = action({"state": (weights.end, errors)}, 0.0)
        self.problem = crocoddyl.ShootingProblem(state.zero(), [action(running, DT)] * SAMPLES, end)
        self.problem.nthreads = 1
        self.solver = crocoddyl.SolverDDP(self.problem)
        self.solver.th_stop = 1e-14

    def rows(self, start: jq.State) -> list[np.ndarray]:
        """The starts as crocoddyl's: position, attitude with the scalar last, velocities."""
        q = np.roll(np.asarray(start.q), -1, axis=-1)
        if not self.flies:
            return list(np.concatenate([q, start.omega], axis=-1))
        v = quaternion.rotate_inverse(start.q, start.velocity)
        return list(np.concatenate([start.position, q, v, start.omega], axis=-1))

    def solve(self, row: np.ndarray) -> tuple[int, np.ndarray]:
        """Plan from one start: the iterations, and the commands."""
        self.problem.x0 = row
        guess = [self.level] * SAMPLES
        self.solver.solve(self.problem.rollout(guess), guess, 100, True)
        return self.solver.iter + 1, np.array(self.solver.us.tolist())


class Sample(NamedTuple):
    """Iterations and their processor time."""

    iterations: int
    seconds: float


def measured(run: Callable[[], int]) -> Sample:
    """Run once; ``run`` returns how many iterations it made."""
    began = time.process_time()
    iterations = run()
    return Sample(iterations, time.process_time() - began)


def beside(number: int, *, flies: bool) -> list[str]:
    """Rows of the table: one plan, and many at once, in turns with crocoddyl's."""
    name, table = "quadrotor" if flies else "slew", []
    theirs = Crocoddyl(flies=flies)
    for count in (1, number):
        many = starts(count, flies=flies)
        rows = theirs.rows(many)[:20]
        if count == 1:
            many = jax.tree.map(lambda x: x[0], many)
        for hessian in ("gauss-newton", "exact") if count == 1 else ("gauss-newton",):
            one = partial(ours, hessian=hessian, tolerance=1e-8)
            plan = jax.jit(one if count == 1 else jax.vmap(one))
            plans = jax.block_until_ready(plan(many))  # compiles
            converged = np.ravel(plans.converged)  # Gauss-Newton steps: 99 of 100 slews have
            assert np.mean(converged) >= 0.98
            commands = np.reshape(plans.commands, (count, SAMPLES, -1))
            off = [
                np.abs(theirs.solve(row)[1] - u).max()
                for row, u, good in zip(rows, commands, converged, strict=False)
                if good
            ]

            def our_run(plan: Any = plan, many: Any = many, count: int = count) -> int:
                return count * (1 + int(jax.block_until_ready(plan(many)).iterations.max()))

            def their_run(rows: Any = rows) -> int:
                return sum(theirs.solve(row)[0] for row in rows)

            pairs = [
                (measured(our_run), measured(their_run)) for _ in range(30 if count == 1 else 3)
            ]
            us, per = [
                1e6 * min(sample.seconds / sample.iterations for sample in side)
                for side in zip(*pairs, strict=True)
            ]
            steps, passes = np.mean(plans.iterations), pairs[0][1].iterations / len(rows)
            apart = max(off) / np.ptp(commands)
            table.append(
                f"| {name} | {count} | {hessian} | {1 + steps:.0f} | {passes:.0f} | {us:.0f} "
                f"| {per:.0f} | {us / per:.2f} | {apart:.0e} |"
            )
            print(table[-1], flush=True)
    return table


def slews(number: int) -> list[str]:
    """Rows of the table of slews of 5 s to rest; the first half are within 1e-3 of a half turn."""
    body = jq.Body.from_principal(np.array([2.0, 3.0, 4.0]))  # kg m^2
    grid = jq.grid(0.0, 0.25, 20)

    def effort(k: Array, state: jq.State, goal: Array, command: Array) -> Array:
        return command

    def missed(state: jq.State, goal: Array) -> Array:
        turn = quaternion.log(quaternion.relative(goal, state.q))
        return 30.0 * jnp.concatenate([turn, state.omega])

    def slew(hessian: str, start: jq.State, goal: Array) -> tuple[planning.Plan, Array]:
        guess = jnp.zeros((20, 3))
        plan = planning.ilqr(
            jq.rkmk2, body, motors, start, grid, goal, guess, planning.Residuals(effort, missed),
            solver=planning.Solver(tolerance=1e-10, hessian=hessian),
        )  # fmt: skip

        def cost(commands: Array) -> Array:
            path = jq.rollout(jq.rkmk2, body, motors, start, grid, goal, inputs=commands)
            return 0.5 * jnp.sum(commands**2) + 0.5 * jnp.sum(missed(path.final, goal) ** 2)

        return plan, jnp.abs(jax.grad(cost)(plan.commands)).max()

    rng = np.random.default_rng(0)
    q, axes = (
        x / np.linalg.norm(x, axis=1)[:, None]
        for x in (rng.normal(size=(number, 4)), rng.normal(size=(number, 3)))
    )
    near = np.pi + rng.uniform(-1e-3, 1e-3, number // 2)
    angles = np.concatenate([near, rng.uniform(0.0, np.pi, number - number // 2)])
    goals = quaternion.multiply(q, quaternion.exp(axes * angles[:, None]))
    first = jq.State(jnp.asarray(q), jnp.asarray(0.2 * rng.normal(size=(number, 3))))
    table = []
    for hessian, step in (("exact", 1), ("gauss-newton", max(1, number // 200))):
        chosen = jax.tree.map(lambda x, step=step: x[::step], (first, goals))
        plans, slope = jax.jit(jax.vmap(partial(slew, hessian)))(*chosen)
        good = np.asarray(plans.converged)
        median, most = np.percentile(np.asarray(plans.iterations)[good], [50, 99])
        table.append(
            f"| {hessian} | {len(good)} | {np.sum(good)} | {median:.0f} | {most:.0f} "
            f"| {np.asarray(slope)[good].max():.1e} |"
        )
        print(table[-1], flush=True)
    return table


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    parser.add_argument("--number", type=int, default=1000, help="plans at once")
    parser.add_argument("--slews", type=int, default=10_000, help="0 for none")
    options = parser.parse_args()
    tables = {}
    if options.slews:
        tables["slews"] = [
            "| Hessian | slews | converged | steps, median | 99 % | largest gradient, N m |",
            "|---" * 6 + "|",
            *slews(options.slews),
        ]
    try:
        import crocoddyl  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        print(f"not beside crocoddyl: {error}")
    else:
        tables["crocoddyl"] = [
            "| problem | plans | Hessian | iterations | crocoddyl's | us an iteration "
            "| crocoddyl's | ratio | commands apart |",
            "|---" * 9 + "|",
            *beside(options.number, flies=False),
            *beside(options.number, flies=True),
        ]
    for name, table in tables.items():
        text = "\n".join(table)
        print(text)
        if options.write:
            put(PAGE, f"<!-- {name} -->", f"<!-- end of {name} -->", text)


if __name__ == "__main__":
    main()
