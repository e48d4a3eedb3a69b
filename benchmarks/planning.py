"""Plan beside crocoddyl, and count how many slews converge.

    pip install crocoddyl
    python benchmarks/planning.py [--number 1000] [--slews 10000] [--write]

crocoddyl (PyPI) plans the motions of robots by differential dynamic programming, in C++. Both
programs minimise the same function of 50 commands, with the Gauss-Newton model: of a body with
three torques, and of a quadrotor with four thrusts. A step is crocoddyl's semi-implicit Euler
step, so that both have the same minimum; how far they are apart is in the table.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxquat as jq
from jaxquat import dynamics, planning, quaternion, so3

SAMPLES, DT = 50, 0.03  # s
INERTIA, MASS = np.diag([0.010, 0.012, 0.020]), 1.0  # kg m^2, kg
ARM, DRAG, GRAVITY = 0.2, 0.02, 9.81  # m, N m of torque per N of thrust, m/s^2
ARMS = ARM * np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])  # m
SPINS = np.array([-1.0, 1.0, -1.0, 1.0])
TORQUES = np.stack([ARMS[:, 1], -ARMS[:, 0], DRAG * SPINS])  # N m per N of each thrust
HOVER = np.full(4, MASS * GRAVITY / 4)  # N
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
    return jq.Wrench(TORQUES @ command, weight + quaternion.rotate(state.q, thrust))


def ours(start: jq.State, hessian: str = "gauss-newton", **options: Any) -> planning.Plan:
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
        semi_implicit, BODY, torque, start, grid, guess, residuals, final=final, hessian=hessian,
        **options,
    )  # fmt: skip


def starts(number: int, *, flies: bool) -> jq.State:
    """Starts at random."""
    rng = np.random.default_rng(0)
    q = quaternion.exp(jnp.asarray(0.5 * rng.normal(size=(number, 3))))
    omega, position, velocity = (jnp.asarray(rng.normal(size=(number, 3))) for _ in range(3))
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
            model.addJoint(0, joint, pinocchio.SE3.Identity(), "root_joint"), body, pinocchio.SE3.Identity()
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
        self.problem = crocoddyl.ShootingProblem(
            state.zero(), [action(running, DT)] * SAMPLES, end
        )
        self.solver = crocoddyl.SolverDDP(self.problem)

    def rows(self, start: jq.State) -> list[np.ndarray]:
        """The starts as crocoddyl's: position, attitude with the scalar last, velocities."""
        q = np.roll(np.asarray(start.q), -1, axis=-1)
        if not self.flies:
            return list(np.concatenate([q, start.omega], axis=-1))
        v = quaternion.rotate_inverse(start.q, start.velocity)
        return list(np.concatenate([start.position, q, v, start.omega], axis=-1))

    def solve(self, row: np.ndarray, iterations: int = 100) -> None:
        """Plan from one start."""
        self.problem.x0 = row
        guess = [self.level] * SAMPLES
        self.solver.solve(self.problem.rollout(guess), guess, iterations, True)
