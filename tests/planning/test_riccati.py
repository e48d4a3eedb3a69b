"""The systems of the commands against NumPy, and the kernel of an iteration against XLA."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat.planning import linearization, policies, trajectory
from jaxquat.planning.riccati import Choice, backward, held, solve_free

FREE = jnp.ones(4, bool)
RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(4, 6))
HESSIAN, COLUMNS = ROOT @ ROOT.T, RNG.normal(size=(4, 3))

solve = jax.jit(solve_free)


def test_the_free_commands_are_solved_for_and_the_others_get_0():
    free = np.array([True, False, True, True])
    wanted = np.linalg.solve(HESSIAN[np.ix_(free, free)], COLUMNS[free])
    solution = np.asarray(solve(HESSIAN, COLUMNS, free))
    np.testing.assert_allclose(solution[free], wanted, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(solution[~free], 0.0)


def test_a_hessian_that_is_not_positive_definite_gives_nan():
    """One eigenvalue is negative, or the third row is the sum of the first two."""
    saddle = HESSIAN - 1.01 * np.linalg.eigvalsh(HESSIAN)[0] * np.eye(4)
    singular = np.diag([1.0, 1.0, 0.0, 1.0])
    for hessian in (saddle, singular, -HESSIAN):
        assert np.all(np.isnan(solve(hessian, COLUMNS, FREE)))


def test_units_of_the_commands_change_no_digit_in_single_precision():
    """Powers of two from 2^-50 to 2^50, so that elements of the Hessian go from 1e-30 to 1e30."""
    units = np.ldexp(1.0, [-50, 50, 0, 20]).astype(np.float32)
    hessian, columns = HESSIAN.astype(np.float32), COLUMNS.astype(np.float32)
    scaled = solve(units[:, None] * hessian * units, units[:, None] * columns, FREE)
    np.testing.assert_array_equal(units[:, None] * scaled, solve(hessian, columns, FREE))


@pytest.mark.parametrize("columns", [*linearization.LINEARISED], ids=lambda f: f.__name__)
def test_the_jacobian_by_parts_is_that_by_the_whole_error(columns):
    """Every part of the state acts on every result; aux has two leaves, in the order of local."""
    turned = jq.quaternion.exp(jnp.array([0.3, -0.5, 0.2]))
    aux = {"b": jnp.array([0.7, 0.8]), "a": jnp.array(0.6)}
    state = jq.State(turned, jnp.array([0.1, -0.2, 0.3]), aux, jnp.ones(3), -jnp.ones(3))
    command, rng = jnp.array([0.4, 0.5]), np.random.default_rng(0)
    mix = jnp.asarray(rng.normal(size=(5, 20)))

    def function(state, command):
        numbers = jnp.concatenate([*map(jnp.ravel, jax.tree.leaves(state)), command, command**2])
        return jnp.sin(mix @ numbers), numbers[:2]

    def whole(z):
        n = z.size - command.size
        return function(jq.dynamics.retract(state, z[:n]), command + z[n:])

    linear = jax.jit(functools.partial(linearization._linear, columns, function))
    value, jacobian = linear(state, command)
    wanted = jax.jit(jax.jacfwd(whole))(trajectory.zeros(state, command))
    jax.tree.map(np.testing.assert_array_equal, value, jax.jit(function)(state, command))
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-15)
    jax.tree.map(close, jacobian, wanted)


@pytest.mark.slow
@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize("exact", [False, True])
def test_the_kernels_of_an_iteration_give_the_policy_of_xla(monkeypatch, exact):
    """Those for one problem and those for many, between limits, which some of the commands meet."""
    body = jq.Body.from_principal(np.array([2.0, 3.0, 4.0]))
    start = jq.State(np.array([1.0, 0.0, 0.0, 0.0]), np.array([0.1, -0.2, 0.3]))

    def stage(k, state, command):
        motor = lambda t, state, params: command * jnp.ones(3)
        after = jq.lie_euler(body, motor, 0.0, state, 0.25, None)
        return after, jnp.concatenate([command, jq.quaternion.log(state.q) - 0.5])

    problem = trajectory.Problem(stage, lambda state: 3.0 * state.omega)
    commands, limits = jnp.zeros((6, 1)), (jnp.full((6, 1), -0.15), jnp.full((6, 1), 0.15))
    path, _ = trajectory.simulated(problem, start, commands)

    def policy_of(damping):
        choice = policies.within(commands, limits, damping)
        return policies.policy_of(problem, path, choice, exact)

    monkeypatch.setattr(policies.fused, "if_possible", lambda kernel, scan: scan())
    xla = jax.jit(policy_of)(jnp.zeros(()))
    monkeypatch.setattr(policies.fused, "if_possible", lambda kernel, scan: kernel())
    alone = jax.jit(lambda damping: policy_of(damping))(jnp.zeros(()))
    many = jax.jit(jax.vmap(policy_of))(jnp.zeros(2))
    assert np.any(np.abs(xla[0].change) == 0.15)
    assert np.any(np.abs(xla[0].change) < 0.15)
    for policy in (alone, jax.tree.map(lambda x: x[1], many)):
        close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-13)
        jax.tree.map(close, policy, xla)


@pytest.mark.parametrize(
    ("limits", "iterations", "away", "wall"),
    [
        pytest.param(None, 50, 0.5, 1.0, marks=pytest.mark.slow),
        pytest.param((-0.15, 0.15), 50, 0.5, 1.0, marks=pytest.mark.slow),
        (None, 2, 0.5, 0.02),
        ((0.0, 0.15), 50, 0.0, 1.0),
    ],
    ids=["free", "limits", "a short step", "the minimum at a limit"],
)
def test_the_gains_of_a_plan_are_those_of_the_model_at_its_end(limits, iterations, away, wall):
    """The last pass has other ones after a short step, or where a limit does not hold a command."""
    body = jq.Body.from_principal(np.array([2.0, 3.0, 4.0]))
    start = jq.State(np.array([1.0, 0.0, 0.0, 0.0]), away * np.array([0.2, -0.4, 0.0]))
    motor = lambda t, state, params, command: command * jnp.ones(3)
    off = lambda state: jq.quaternion.log(state.q) - away
    within = lambda state: jnp.where(jnp.abs(state.q[3]) > wall, jnp.inf, off(state))
    residual = lambda k, state, params, command: jnp.concatenate([command, within(state)])
    final = lambda state, params: 3.0 * state.omega

    def stage(k, state, command):
        after = jq.lie_euler(body, lambda t, s, p: motor(t, s, p, command), 0.0, state, 0.25, None)
        return after, residual(k, state, None, command)

    @jax.jit
    def planned(guess):
        plan = jq.planning.ilqr(
            jq.lie_euler, body, motor, start, jq.grid(0.0, 0.25, 8), None, guess,
            jq.planning.Residuals(residual, final),
            constraints=jq.planning.Constraints(limits=limits),
            solver=jq.planning.Solver(iterations=iterations),
        )  # fmt: skip
        problem = trajectory.Problem(stage, lambda state: final(state, None))
        path, _ = trajectory.simulated(problem, start, plan.commands)
        of_rows = limits and tuple(jnp.full((8, 1), limit) for limit in limits)
        free = trajectory.free_of(plan.commands, of_rows)
        gains = backward(linearization.gauss_newton(problem, path), Choice(held, free)).gains
        return plan, free, gains

    plan, free, gains = planned(jnp.zeros((8, 1)))
    assert bool(plan.converged) == (iterations == 50)
    assert np.all(free) == (limits is None)
    np.testing.assert_allclose(plan.gains, gains, rtol=1e-11, atol=1e-13)
