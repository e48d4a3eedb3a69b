"""The order of a scheme, measured on forced bodies whose motion is known."""

import functools

import jax
import numpy as np

import jaxquat as jq
from examples.validation import problems

ANY_TORQUE = {name for name, scheme in jq.schemes.SCHEMES.items() if scheme.torques == "any"}
# Composed of the steps or flows of others, which they take in other lengths.
COMPOSED = ("symmetric_top_suzuki4", "symmetric_top_bm4", "no_squish_kl6")
# Each order has its numbers of steps per second.
STEPS = {
    0: (40, 80, 160),  # of a scheme that does not converge
    1: (200, 400, 800),
    2: (40, 80, 160),
    3: (30, 60, 120),
    4: (30, 60, 120),
    5: (30, 60, 120),
    6: (20, 40, 80),
}


distance = jax.jit(jq.quaternion.distance)


def angles(q, reference):
    return np.asarray(distance(q, reference))


@functools.cache
def forced(rate=True, symmetric=False, kind=problems.Forced):
    problem = kind(rate, symmetric)
    return problem, jax.tree.map(np.float64, problem.exact())


def rms(values):
    return np.sqrt(np.mean(np.square(values)))


def measured(name, step, order, problem, exact):
    """The RMS errors (3, n) over all bodies, and their n slopes.

    They are those of attitude and rate, and of position and velocity where there are any.
    """
    q, vectors = exact
    steps = problem.T * np.array(STEPS[order])
    errors = []
    march = problems.marcher(step, problem.torque, batch=True)
    bodies, start = problem.bodies(), problem.starts(name)
    for n in steps.tolist():
        state = march(bodies, start, 0.0, problem.T, n, problem.params)
        got = np.concatenate([x for x in (state.omega, *state[3:]) if x is not None], axis=1)
        parts = np.split(got - vectors, got.shape[1] // 3, axis=1)
        errors.append([rms(angles(state.q, q)), *(rms(np.linalg.norm(x, axis=1)) for x in parts)])
    errors = np.array(errors)
    return errors, [problems.slope(steps, errors[:, k]) for k in range(errors.shape[1])]


def assert_order(name, step, order, problem, exact):
    errors, slopes = measured(name, step, order, problem, exact)
    assert errors.min() > 1e-12, "the slope would measure rounding"
    assert np.abs(np.array(slopes) - order).max() < 0.15, f"{name}: order {order}, slopes {slopes}"
