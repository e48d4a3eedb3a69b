"""The bridge to diffrax: its loop around our schemes, adaptive steps, events and adjoints."""

import functools

import chex
import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest

import jaxquat as jq
from examples.validation import effort, problems
from examples.validation.problems import FAST, FAST_START, FAST_TORQUE, fast_end
from jaxquat.interop import diffrax as bridge

BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
START = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.5, -1.0, 0.7]), {})
GAINS = jnp.array([2.0, 0.8])
LEVEL = jnp.array([1.0, 0.0, 0.0, 0.0])


def law(t, state, gains):
    """A torque of time, attitude and rate."""
    waves = 0.3 * jnp.sin(2 * t + jnp.arange(3.0, dtype=state.q.dtype))
    return -gains[0] * state.q[0] * state.q[1:] - gains[1] * state.omega + waves


def solve(solver, end, dt=None, start=START, gains=GAINS, body=BODY, torque=law, **options):
    return diffrax.diffeqsolve(
        bridge.term(body, torque), solver, 0.0, end, dt, start, gains, max_steps=20_000, **options
    )


@functools.cache
def reference():
    """The motion at 101 times in [0, 2], from twenty times finer steps of order 6."""
    grid = jq.grid(0.0, 1e-3, 2000, save_every=20)
    run = lambda: jq.rollout(jq.rkmk6, BODY, law, START, grid, GAINS)
    path = jax.jit(run)()
    return path.t, path.state


def test_the_term_has_the_slopes_of_a_turn_and_of_newton_and_euler():
    """Only diffrax's own solvers integrate the slope of q, ``q (0, omega)/2``."""
    body, force, gravity = jq.Body(BODY.inertia, mass=2.0), START.q[1:], jnp.array([0.0, 0.0, -9.8])
    torque = lambda t, state, gains: jq.Wrench(law(t, state, gains), 2.0 * gravity + force)
    start = START._replace(position=force, velocity=3.0 * force)
    slope = bridge.term(body, torque).vf(0.3, start, GAINS)
    s, v, omega, inertia = map(np.asarray, (start.q[0], start.q[1:], start.omega, body.inertia))
    turn = 0.5 * np.array([-v @ omega, *(s * omega + np.cross(v, omega))])
    np.testing.assert_allclose(slope.q, turn, rtol=0, atol=1e-15)
    torque = inertia @ slope.omega + np.cross(omega, inertia @ omega)
    np.testing.assert_allclose(torque, law(0.3, start, GAINS), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(slope.position, start.velocity)
    np.testing.assert_allclose(slope.velocity, gravity + 0.5 * force, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_fixed_steps_are_the_rollouts():
    times, grid = jnp.linspace(0.0, 2.0, 21), jq.grid(0.0, 0.1, 20)
    compiled = functools.partial(jax.jit, compiler_options=effort.FULL)
    ys = compiled(lambda: solve(bridge.Dopri5(), 2.0, 0.1, saveat=diffrax.SaveAt(ts=times)).ys)()
    path = compiled(lambda: jq.rollout(jq.schemes.rkmk5, BODY, law, START, grid, GAINS))()
    chex.assert_trees_all_close(ys, path.state, rtol=0, atol=1e-14)


def weighted(state):
    return state.q @ jnp.arange(4.0) + state.omega @ jnp.arange(3.0)


def last(tree):
    return jax.tree.map(lambda x: x[-1], tree)


DISCRETE = {  # these differentiate the steps themselves
    "forward": (diffrax.ForwardMode(), jax.jacfwd),
    "recursive": (diffrax.RecursiveCheckpointAdjoint(), jax.grad),
    "direct": (diffrax.DirectAdjoint(), jax.grad),
    "direct, forward": (diffrax.DirectAdjoint(), jax.jacfwd),
}
OTHERS = {"BacksolveAdjoint", "ImplicitAdjoint"}


@pytest.mark.skipif(
    not diffrax.__version__.startswith("0.7"), reason="docs/migration.md is about diffrax 0.7"
)
def test_every_adjoint_of_diffrax_is_shown():
    classes = {name: x for name, x in vars(diffrax).items() if isinstance(x, type)}
    public = {name for name, x in classes.items() if issubclass(x, diffrax.AbstractAdjoint)}
    discrete = {type(adjoint).__name__ for adjoint, _ in DISCRETE.values()}
    assert public - {"AbstractAdjoint"} == discrete | OTHERS


def loss_of_rollout(gains, scheme, dt):
    """The loss over 2 s whose gradients are compared below."""
    grid = jq.grid(0.0, dt, round(2.0 / dt))
    return weighted(last(jq.rollout(scheme, BODY, law, START, grid, gains).state))


def loss_of_solution(gains, solver, dt=None, **options):
    """The same loss by diffrax."""
    return weighted(last(solve(solver, 2.0, dt, gains=gains, **options).ys))


@functools.cache
def exact_gradient():
    """The gradient by forward mode through 2000 steps of order 6."""
    gradient = jax.jacfwd(lambda gains: loss_of_rollout(gains, jq.rkmk6, 1e-3))
    return np.asarray(jax.jit(gradient)(GAINS))


@functools.cache
def gradient_of_rollout(scheme):
    return jax.jit(jax.jacfwd(lambda gains: loss_of_rollout(gains, scheme, 0.1)))(GAINS)


@pytest.mark.slow
@pytest.mark.parametrize("name", DISCRETE)
def test_gradients_of_fixed_steps_are_the_rollouts(name):
    adjoint, gradient = DISCRETE[name]
    solver, scheme = bridge.Dopri5(), jq.schemes.rkmk5
    here = jax.jit(gradient(lambda gains: loss_of_solution(gains, solver, 0.1, adjoint=adjoint)))
    np.testing.assert_allclose(here(GAINS), gradient_of_rollout(scheme), rtol=1e-12)


@pytest.mark.slow
def test_backsolve_is_the_gradient_of_the_exact_motion():
    """Its backward equation is no rigid body, so it has a solver and tolerances of its own."""
    backward = {
        "solver": diffrax.Tsit5(),
        "stepsize_controller": diffrax.PIDController(rtol=1e-9, atol=1e-9),
    }
    options = {
        "stepsize_controller": bridge.controller(attitude=1e-9, rate=1e-9),
        "adjoint": diffrax.BacksolveAdjoint(**backward),
    }
    gradient = jax.grad(lambda gains: loss_of_solution(gains, bridge.Dopri5(), **options))
    np.testing.assert_allclose(jax.jit(gradient)(GAINS), exact_gradient(), rtol=1e-7)


@pytest.mark.slow
def test_gradients_through_adaptive_steps_follow_the_tolerance():
    def loss(gains, tolerance):
        options = {"stepsize_controller": bridge.controller(attitude=tolerance, rate=tolerance)}
        return loss_of_solution(gains, solver=bridge.Dopri5(), **options)

    errors, gradient, right = [], jax.jit(jax.grad(loss)), exact_gradient()
    for tolerance in (1e-6, 1e-9):
        errors.append(np.max(np.abs(gradient(GAINS, tolerance) - right)))
        assert errors[-1] < 10 * tolerance
    assert errors[0] > 100 * errors[1]


@pytest.mark.slow
def test_implicit_adjoint_of_an_attitude_at_rest():
    """Against a constant torque the law k q0 q_xyz holds a turn of asin(2 |torque| / k) about it.

    That is so whatever the body is.
    """
    params = {"k": jnp.asarray(4.0), "constant": jnp.array([0.3, -0.5, 0.8])}

    def torque(t, state, p):
        return p["constant"] - p["k"] * state.q[0] * state.q[1:] - 2.0 * state.omega

    still = diffrax.steady_state_event(rtol=0.0, atol=1e-8, norm=optimistix.max_norm)
    options = {
        "stepsize_controller": bridge.controller(attitude=1e-9, rate=1e-9),
        "event": diffrax.Event(still),
        "adjoint": diffrax.ImplicitAdjoint(),
    }

    def settled(params):
        end = last(solve(bridge.Dopri5(), 100.0, gains=params, torque=torque, **options).ys)
        turn = jq.quaternion.log(end.q)
        return turn, turn

    def derived(params):
        size = jnp.sqrt(params["constant"] @ params["constant"])
        return jnp.arcsin(2 * size / params["k"]) * params["constant"] / size

    with jax.numpy_dtype_promotion("standard"):  # diffrax mixes
        slopes_and_turn = jax.jit(jax.jacrev(settled, has_aux=True))(params)
    right = jax.jacrev(derived)(params), derived(params)
    chex.assert_trees_all_close(slopes_and_turn, right, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_errors_follow_the_tolerances_between_the_steps_too():
    tolerances = 1e-6, 1e-9
    times, right = reference()
    errors = []
    for tolerance in tolerances:
        steps = bridge.controller(attitude=tolerance, rate=tolerance)
        options = {"stepsize_controller": steps, "saveat": diffrax.SaveAt(dense=True)}
        solution = jax.jit(functools.partial(solve, bridge.Dopri5(), 2.0, **options))()
        states = jax.vmap(solution.evaluate)(times)
        angle = jnp.max(jax.vmap(jq.quaternion.distance)(states.q, right.q))
        errors.append([float(angle), float(jnp.max(jnp.abs(states.omega - right.omega)))])
        assert max(errors[-1]) < 5 * tolerance
    assert np.all(np.array(errors[0]) / np.array(errors[1]) > 0.1 * tolerances[0] / tolerances[1])


@pytest.mark.slow
def test_attitude_and_rate_have_tolerances_of_their_own():
    """With one tolerance tight and one loose, the steps are about those of the tight one alone."""

    def count(**tolerances):
        steps = bridge.controller(**tolerances)
        return int(solve(bridge.Dopri5(), 2.0, stepsize_controller=steps).stats["num_steps"])

    loose, both = count(attitude=1e-3, rate=1e-3), count(attitude=1e-9, rate=1e-9)
    assert both > 5 * loose
    for tight in ({"attitude": 1e-9, "rate": 1e3}, {"attitude": 1e3, "rate": 1e-9}):
        assert 3 * loose < count(**tight) <= both


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_saved_and_interpolated_attitudes_are_unit(dtype):
    start, gains, body = jax.tree.map(lambda x: x.astype(dtype), (START, GAINS, BODY))
    times = jnp.linspace(0.0, 2.0, 1001, dtype=dtype)
    steps = bridge.controller(attitude=1e-4, rate=1e-4)
    options = {"start": start, "gains": gains, "body": body, "stepsize_controller": steps}
    solution = solve(bridge.Dopri5(), 2.0, saveat=diffrax.SaveAt(ts=times, dense=True), **options)
    for q in (solution.ys.q, jax.vmap(solution.evaluate)(times).q):
        assert q.dtype == dtype
        norm = np.linalg.norm(np.asarray(q, np.float64), axis=1)
        assert np.abs(norm - 1).max() < 10 * np.finfo(dtype).eps


def test_the_interpolation_has_its_orders_on_a_motion_in_closed_form():
    """6 for the attitude, 5 for the rate, 4 for all others, between exact ends."""

    def exact(t):
        q, omega, slope = problems.manufactured(t)
        s, c = jnp.sin(t + jnp.arange(3.0)), jnp.cos(t + jnp.arange(3.0))
        return jq.State(q, omega, s, s, c), jq.State(0.0 * q, slope, c, c, -s)

    @jax.jit
    @jax.vmap
    def errors(dt):
        t = 0.3 + dt * jnp.array([0.0, 0.4, 1.0])
        states = jax.vmap(exact)(t)
        (y0, k0), (wanted, _), (y1, k1) = (
            jax.tree.map(lambda x, k=k: x[k], states) for k in range(3)
        )
        got = bridge._Interpolation(t[0], t[2], y0, y1, k0, k1).evaluate(t[1])
        others = [jnp.linalg.norm(a - b) for a, b in zip(got[1:], wanted[1:], strict=True)]
        return jnp.stack([jq.quaternion.distance(got.q, wanted.q), *others])

    steps = np.array([0.2, 0.1, 0.05])
    slopes = [-problems.slope(steps, each) for each in np.asarray(errors(steps)).T]
    assert np.abs(np.array(slopes) - [6, 5, 4, 4, 4]).max() < 0.3, slopes


@pytest.mark.slow
def test_orders_of_the_interpolation():
    """Between exact ends, over steps of 0.4, 0.2, 0.1 s, the slopes are 6 (attitude) and 5 (rate).

    Both are those of errors within one step.
    """
    term, grid = bridge.term(BODY, law), jq.grid(0.0, 1e-3, 400)
    fine = jax.jit(lambda: jq.rollout(jq.rkmk6, BODY, law, START, grid, GAINS).state)()
    at = lambda k: jax.tree.map(lambda x: x[k], fine)
    errors = []
    for steps in (400, 200, 100):
        ends = {"y0": at(0), "y1": at(steps)}
        t1 = 1e-3 * steps
        slopes = {"k0": term.vf(0.0, ends["y0"], GAINS), "k1": term.vf(t1, ends["y1"], GAINS)}
        path = bridge._Interpolation(t0=0.0, t1=t1, **ends, **slopes)
        pairs = [(path.evaluate(1e-3 * k), at(k)) for k in range(0, steps + 1, steps // 10)]
        errors.append([
            max(float(jq.quaternion.distance(a.q, b.q)) for a, b in pairs),
            max(float(jnp.max(jnp.abs(a.omega - b.omega))) for a, b in pairs),
        ])  # fmt: skip
        chex.assert_trees_all_close(path.evaluate(0.0), at(0), atol=1e-15)
        chex.assert_trees_all_close(path.evaluate(t1), at(steps), atol=1e-14)
        difference = path.evaluate(0.0, t1)
        np.testing.assert_allclose(difference.omega, at(steps).omega - at(0).omega, atol=1e-14)
    slopes = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert np.all(slopes[:, 0] > 5.6), slopes
    assert np.all(slopes[:, 1] > 4.6), slopes


@pytest.mark.slow
def test_an_event_stops_at_a_tenth_of_a_degree():
    """A damped body settles; at the event the attitude is off by 0.1 degrees, to its tolerance."""
    damped = lambda t, state, gains: -4.0 * state.q[0] * state.q[1:] - 2.0 * state.omega
    limit = jnp.deg2rad(0.1)

    def beyond(t, y, args, **_):
        return jq.quaternion.squared_distance(y.q, LEVEL) - limit**2

    event = diffrax.Event(beyond, optimistix.Newton(rtol=1e-10, atol=1e-12))
    steps = bridge.controller(attitude=1e-9, rate=1e-9)
    options = {"torque": damped, "stepsize_controller": steps, "event": event}
    solution = jax.jit(lambda: solve(bridge.Dopri5(), 60.0, **options))()
    angle = jnp.rad2deg(jq.quaternion.distance(solution.ys.q[-1], LEVEL))
    np.testing.assert_allclose(angle, 0.1, rtol=1e-6)
    grid = jq.grid(0.0, float(solution.ts[-1]) / 2000, 2000)
    fine = jax.jit(lambda: jq.rollout(jq.rkmk6, BODY, damped, START, grid, GAINS).state)()
    angles = jax.vmap(jq.quaternion.distance, (0, None))(fine.q, LEVEL)
    np.testing.assert_allclose(jnp.rad2deg(angles[-1]), 0.1, rtol=1e-6)
    assert np.all(np.asarray(angles[:-1]) > limit)


@pytest.mark.slow
def test_the_fast_heavy_top_to_its_tolerance():
    """It turns at 150 rad/s for one second, over two thousand steps.

    The error is a few tens of tolerances, and follows them.
    """
    problem = {"start": FAST_START._replace(aux={}), "body": FAST, "torque": FAST_TORQUE}
    errors = []
    for tolerance in (1e-8, 1e-9):
        steps = bridge.controller(attitude=tolerance, rate=tolerance)
        options = problem | {"gains": None, "stepsize_controller": steps}
        solution = jax.jit(functools.partial(solve, bridge.Dopri5(), 1.0, **options))()
        errors.append(float(jq.quaternion.distance(solution.ys.q[-1], fast_end())))
        assert errors[-1] < 50 * tolerance
    assert 8 < errors[0] / errors[1] < 12.5


@pytest.mark.slow
def test_aux_states_and_batches():
    """A wheel beside the body; three bodies at once, each with steps of its own."""

    def torque(t, state, gain):
        wheel = state.aux["wheel"]
        return -gain * wheel, {"wheel": 0.1 * state.omega - wheel}

    start = START._replace(aux={"wheel": jnp.array([0.1, 0.2, -0.3])})
    steps = bridge.controller(attitude=1e-9, rate=1e-9, aux=1e-9)

    def by_diffrax(gain):
        times = diffrax.SaveAt(ts=jnp.array([0.35, 1.0]))
        options = {"torque": torque, "stepsize_controller": steps, "saveat": times}
        return solve(bridge.Dopri5(), 1.0, start=start, gains=gain, **options).ys

    def by_rollout(gain):
        grid = jq.grid(0.0, 0.01, 100)
        return jq.rollout(jq.rkmk6, BODY, torque, start, grid, gain).state

    gains = jnp.array([0.1, 1.0, 3.0])
    here, rows = jax.jit(jax.vmap(by_diffrax))(gains), jax.jit(jax.vmap(by_rollout))(gains)
    there = jax.tree.map(lambda x: x[:, jnp.array([35, 100])], rows)
    chex.assert_trees_all_close(here, there, rtol=0, atol=3e-8)


@pytest.mark.slow
def test_diffraxs_own_solvers_take_the_term():
    """They leave the sphere, by their error."""
    steps = diffrax.PIDController(rtol=1e-9, atol=1e-9)
    ys = solve(diffrax.Tsit5(), 2.0, stepsize_controller=steps).ys
    _, right = reference()
    np.testing.assert_allclose(ys.q[-1], right.q[-1], atol=1e-7)


def test_python_times_beside_a_state_in_float32_are_an_error_that_says_what_to_give():
    """In float64, as here, diffrax brings the state to the dtype of Python times."""
    body, start, gains = jax.tree.map(lambda x: x.astype(jnp.float32), (BODY, START, GAINS))
    term, solver = bridge.term(body, law), bridge.Dopri5()
    message = (
        "y0: wanted the dtype of the body, float32, got float64; .* give t0, t1, dt0 and the ts of"
        r" SaveAt as float32, as in jnp.float32\(0.0\)"
    )
    with pytest.raises(TypeError, match=message):
        diffrax.diffeqsolve(term, solver, 0.0, 1.0, 0.5, start, gains)
    times = jnp.asarray([0.0, 1.0, 0.5], jnp.float32)
    ys = diffrax.diffeqsolve(term, solver, *times, start, gains).ys
    assert ys.q.dtype == jnp.float32
    run = lambda: jq.rollout(jq.schemes.rkmk5, body, law, start, jq.grid(0.0, 0.5, 2), gains).final
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[-1], ys), jax.jit(run)(), atol=1e-6)
    with pytest.raises(TypeError, match=r"the body, float64, got float32(\n|$)"):
        diffrax.diffeqsolve(bridge.term(BODY, law), solver, *times, start, gains)


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"y0: wanted a State with aux=\{\}"):
        solve(bridge.Dopri5(), 1.0, 0.1, start=START._replace(aux=()))
    backsolve = diffrax.BacksolveAdjoint()  # with our solver for the backward equation, too
    with pytest.raises(ValueError, match="Terms are not compatible with solver"):
        jax.grad(loss_of_solution)(GAINS, bridge.Dopri5(), 0.1, adjoint=backsolve)
    with pytest.raises(ValueError, match="rate: wanted positive"):
        bridge.controller(rate=0.0)


@pytest.mark.slow
def test_bodies_that_move_are_solved_with_tolerances():
    """Fixed steps are the rollout's; adaptive ones keep to their tolerance of the position."""
    start = START._replace(position=jnp.array([1.0, 0.0, 0.2]), velocity=jnp.array([0.0, 0.9, 0.1]))
    body = jq.Body(BODY.inertia, 1.7)

    def pulled(t, state, gains):
        force = -gains[0] * state.position + jq.quaternion.rotate(state.q, 0.3 * state.omega)
        return jq.Wrench(law(t, state, gains) + 0.1 * state.velocity, force)

    given = {"start": start, "body": body, "torque": pulled}
    ys = jax.jit(lambda: solve(bridge.Dopri5(), 2.0, 0.1, **given).ys)()
    run = lambda: jq.rollout(jq.schemes.rkmk5, body, pulled, start, jq.grid(0.0, 0.1, 20), GAINS)
    end = jax.jit(run)().final
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[-1], ys), end, rtol=0, atol=1e-14)
    fine = lambda: jq.rollout(jq.rkmk6, body, pulled, start, jq.grid(0.0, 0.01, 200), GAINS)
    wanted = jax.jit(fine)().final
    for tolerance in (1e-5, 1e-9):
        steps = bridge.controller(tolerance, tolerance, tolerance, tolerance, tolerance)
        adaptive = lambda steps=steps: (
            solve(bridge.Dopri5(), 2.0, stepsize_controller=steps, **given).ys
        )
        got = jax.tree.map(lambda x: x[-1], jax.jit(adaptive)())
        error = np.abs(jq.dynamics.local(wanted, got)).max()
        assert tolerance / 1000 < error < 20 * tolerance
