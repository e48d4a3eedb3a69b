"""A program as a user writes it, with types; strict checkers and Python itself accept it.

tests/test_packaging.py runs it, and checks it with pyright and mypy beside the installed wheel.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

import jaxquat as jq
from jaxquat import control, dynamics, ensembles, estimation, planning, quaternion, recordings


class Gains(NamedTuple):
    """Logarithms of the gains of ``law``."""

    stiffness: Array
    damping: Array


IDENTITY = jnp.array([1.0, 0.0, 0.0, 0.0])
BODY = jq.Body.box(3.0, jnp.array([0.5, 0.35, 0.15]))  # kg, m
START = jq.State(q=IDENTITY, omega=jnp.array([0.15, 0.3, 0.15]))  # rad/s
GRID = jq.grid(0.0, 0.1, 20)


# A rollout with a torque of the user's own, and its gradient.


def law(t: Array, state: jq.State, gains: Gains) -> Array:
    """A spring and a damper, in body axes [N m]."""
    turn = quaternion.log(state.q)
    return -jnp.exp(gains.stiffness) * turn - jnp.exp(gains.damping) * state.omega


def cost(gains: Gains) -> Array:
    """The squared angle at the end [rad^2]."""
    path: jq.Path = jq.rollout(jq.rkmk4, BODY, law, START, GRID, gains)
    end: jq.State = path.final
    return quaternion.squared_distance(end.q, IDENTITY)


def rolled_out(gains: Gains) -> tuple[Array, Array, float]:
    """What a path holds."""
    path = jq.rollout(jq.rkmk4, BODY, law, START, GRID, gains)
    rates: Array = path.state.omega
    times: Array = path.t
    between: jq.State = path.at(0.55)
    some: jq.Path = path[3:5]
    energy: Array = dynamics.energy(BODY, some.final)
    last: jq.State = jq.rkmk4(BODY, law, 0.0, START, 0.1, gains)
    finer = jq.grid_at(jnp.array([0.0, 0.1, 0.3]), substeps=2)
    uneven = jq.rollout(jq.schemes.lie_midpoint, BODY, jq.torques.zero, START, finer)
    return rates, times, float(energy + between.q[0] + last.omega[0]) + len(uneven)


# A controller with memory, and options.


def measured(state: jq.State, noise: Any) -> jq.State:
    """What ``pid`` sees."""
    return state


def controlled() -> jq.Path:
    """A sampled controller."""
    gains = control.PIDGains(*(k * jnp.ones(3) for k in (0.1, 0.1, 0.01)))
    options = jq.RolloutOptions(engine="scan", check=True)
    grid = jq.grid(0.0, 0.1, 20, sample_every=2)
    rest = control.Reference(IDENTITY, jnp.zeros(3), jnp.zeros(3))
    pid: jq.Controller = control.pid(BODY, 0.2, rest, gains=gains, measure=measured)
    return jq.rollout(
        jq.rkmk2, BODY, jq.torques.commanded, START, grid, controller=pid, options=options
    )


# Fits.


def loss(params: Gains, batch: None, key: None) -> Array:
    """``cost`` as ``jq.fit`` calls it."""
    return cost(params)


def fitted(gains: Gains) -> tuple[Gains, float]:
    """Gains by descent, and a damping by least squares."""
    options = jq.FitOptions(progress=False)
    descent: jq.Fit = jq.fit(loss, gains, optax.adam(0.1), steps=3, options=options)
    best: Gains = descent.params
    losses: list[float] = [float(x) for x in descent.history]

    def residuals(damping: Array) -> Array:
        return jnp.exp(-damping * jnp.linspace(0.0, 1.0, 5)) - jnp.linspace(1.0, 0.5, 5)

    quiet = jq.LeastSquaresOptions(progress=False)
    squares: jq.LeastSquares = jq.least_squares(residuals, jnp.array(1.0), options=quiet)
    damping: Array = squares.params
    return best, losses[-1] + float(damping)


# Plans.


def effort(k: Array, state: jq.State, params: None, command: Array) -> Array:
    """Residuals of a sample."""
    return jnp.concatenate([0.1 * command, state.omega])


def planned() -> tuple[Array, jq.Path]:
    """The commands that stop the body."""
    plan: planning.Plan = planning.ilqr(
        jq.rkmk2, BODY, jq.torques.commanded, START, GRID, None, jnp.zeros((5, 3)), effort
    )
    bounds = planning.Constraints(limits=(-1.0, 1.0))
    bounded = planning.ilqr(
        jq.rkmk2,
        BODY,
        jq.torques.commanded,
        START,
        GRID,
        None,
        jnp.zeros((5, 3)),
        planning.Residuals(effort),
        constraints=bounds,
        solver=planning.Solver(iterations=3),
    )
    return plan.commands + bounded.commands, plan.path


# Attitude from sensors.


def filtered() -> tuple[Array, Array]:
    """Attitudes and their covariance at rest."""
    n = 50
    samples = estimation.ImuSample(
        estimation.intervals(0.01 * jnp.arange(n)),
        jnp.zeros((n, 3)),
        jnp.tile(jnp.array([0.0, 0.0, 9.81]), (n, 1)),
        jnp.full((n, 3), jnp.nan),
    )
    ahrs: estimation.Filter = estimation.ahrs(estimation.AhrsSettings())
    estimates: estimation.Estimate = estimation.run(ahrs, samples)[1]
    smoothed = estimation.smooth(ahrs, samples)
    return estimates.q, smoothed.covariance


def described(recording: recordings.Recording) -> float:
    """A recording's spacing [s]."""
    return float(recording.spacing())


# Ensembles.


def draw(key: Array) -> jq.State:
    """A member's start."""
    return START._replace(omega=jax.random.normal(key, (3,)))


def simulate(start: jq.State) -> Array:
    """A member's energy [J]."""
    path = jq.rollout(jq.rkmk2, BODY, jq.torques.zero, start, GRID)
    return dynamics.energy(BODY, path.final)


def sampled() -> tuple[int, Array]:
    """The mean energy of members, and its standard error."""
    ensemble: ensembles.Ensemble = ensembles.run(
        jax.random.key(0), draw, simulate, 32, reduce=ensembles.mean(), progress=False
    )
    mean: ensembles.Mean = ensemble.result
    return ensemble.n, jnp.asarray(mean.standard_error)


if __name__ == "__main__":
    initial = Gains(jnp.zeros(()), jnp.zeros(()))
    print(jax.grad(cost)(initial))
    print(rolled_out(initial)[2], controlled(), fitted(initial)[1])
    print(planned()[1], filtered()[0].shape, sampled())
