"""Plans with commands and residuals in any units, in both precisions.

With commands of size s and residuals of size r, a plan is the one at s = r = 1, its commands, gains
and their derivatives times s: to the last bit where both are powers of two.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq

BODY = jq.Body.from_principal(np.array([2.0, 3.0, 4.0]))
STILL = jq.State(np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3))
SINGLE = [(0, 0), (119, 0), (65, 0), (-65, 0), (0, 119), (0, -65), (119, 100), (-100, -100)]
DOUBLE = [(0, 0), (1000, 0), (-1000, 0), (0, 1000), (0, -960), (900, 900), (-900, -900)]


@functools.partial(jax.jit, static_argnames="constrained")
def plan(size, weight, turn, constrained=False):
    """Turn by ``turn`` about z in 5 s, with commands of ``size`` and residuals of ``weight``."""

    def about_z(t, state, params, command):
        return jnp.concatenate([jnp.zeros(2, turn.dtype), command / size])

    def effort(k, state, params, command):
        return weight * (command / size)

    def missed(state, params):
        return jnp.stack([jq.quaternion.log(state.q)[2] - turn, state.omega[2]])

    body, start = jax.tree.map(lambda x: jnp.asarray(x, turn.dtype), (BODY, STILL))
    final = None if constrained else lambda *at: weight * (30.0 * missed(*at))
    return jq.planning.ilqr(
        jq.rkmk2, body, about_z, start, jq.grid(0.0, 0.25, 20), jnp.zeros((20, 1), turn.dtype),
        effort, final=final, equalities=missed if constrained else None,
    )  # fmt: skip


def slopes(size, weight, turn):
    """The plan, and the derivative of its commands in units of ``size``, forward and reverse."""
    commands = lambda turn: plan(size, weight, turn).commands / size
    slope = jax.jvp(commands, (turn,), (jnp.ones_like(turn),))[1]
    pulled = jax.grad(lambda turn: jnp.sum(commands(turn)[:10]))(turn)
    return plan(size, weight, turn), slope, pulled


def test_commands_in_any_unit_are_the_same_in_single_precision():
    wanted, *others = [plan(np.float32(s), np.float32(1.0), np.float32(1.0)) for s in
                       (1.0, 2.0**119, 2.0**65, 2.0**-65)]  # fmt: skip
    for found, size in zip(others, (2.0**119, 2.0**65, 2.0**-65), strict=True):
        assert found.converged
        np.testing.assert_array_equal(found.commands / np.float32(size), wanted.commands)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "exponents"), [(np.float32, SINGLE), (np.float64, DOUBLE)])
def test_units_of_commands_and_residuals_change_no_plan_and_no_derivative(dtype, exponents):
    """The cost is below 1e38 and above 1e-38 times the square of the weight only."""
    compute = jax.jit(slopes)
    sizes = [[dtype(2.0**e) for e in pair] for pair in exponents]
    wanted, slope, pulled = compute(*sizes[0], dtype(1.0))
    assert np.all(np.abs(wanted.commands) > 2e-2)  # none vanishes below the normal numbers
    np.testing.assert_allclose(pulled, np.sum(slope[:10]), rtol=100 * np.finfo(dtype).eps)
    for size, weight in sizes:
        found, *others = compute(size, weight, dtype(1.0))
        assert found.reason == "no further decrease"
        assert found.iterations == wanted.iterations
        np.testing.assert_array_equal(found.commands / size, wanted.commands)
        np.testing.assert_array_equal(found.gains / size, wanted.gains)
        for ours, theirs in zip(others, (slope, pulled), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        if abs(np.log2(weight)) < 60:
            np.testing.assert_array_equal(found.cost, weight * weight * wanted.cost)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "weight"), [(2.0**65, 1.0), (2.0**-65, 1.0), (1.0, 2.0**100)])
def test_residuals_that_vanish_along_the_guess_take_their_unit_from_the_constraints(size, weight):
    wanted = plan(np.float32(1.0), np.float32(1.0), np.float32(1.0), constrained=True)
    got = plan(np.float32(size), np.float32(weight), np.float32(1.0), constrained=True)
    assert wanted.converged
    assert got.converged
    np.testing.assert_allclose(got.commands / size, wanted.commands, rtol=0, atol=1e-3)
