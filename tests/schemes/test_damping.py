"""Drag beside a scheme: exact at a fixed attitude, at any ratio of step to relaxation time."""

import functools

import flat
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax.experimental import checkify
from marks import some

import jaxquat as jq
from examples.validation import problems
from jaxquat.schemes import damp
from jaxquat.schemes.relaxation import relaxation
from jaxquat.simulation.engines import reversible

DAMPING = jnp.array([[0.5, 0.1, 0.0], [0.0, 0.4, 0.2], [0.1, 0.0, 0.6]])
BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
START = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.5, -1.0, 0.7]))
WIND = jnp.array([0.3, -0.5, 0.8])  # a rate in world axes


EPS = {jnp.float32: 2.0**-23, jnp.float64: 2.0**-52}
BOTH = [(e, d) for d in (jnp.float32, jnp.float64) for e in ("scan", "fused")]


def wind(t, state, params):
    return jq.quaternion.rotate_inverse(state.q, WIND * jnp.cos(t))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_rate_of_a_sphere_decays_exactly_towards_the_given_rate(dtype):
    """Its rate is ``c + (omega0 - c) exp(-d t/I)`` at steps from 0.1 to 2e8 decay times."""
    body = jq.Body(2.0 * jnp.eye(3, dtype=dtype))
    start = jax.tree.map(lambda x: x.astype(dtype), START)
    c = jnp.array([1.0, 2.0, -0.5], dtype)

    def omega(strength):
        scheme = damp(jq.schemes.pcdm1, strength, toward=lambda t, state, params: c)
        path = jq.rollout(
            scheme,
            body,
            jq.torques.zero,
            start,
            jq.grid(0.0, 0.2, 3),
            options=jq.RolloutOptions(engine="scan"),
        )
        return path.state.omega

    strengths = jnp.array([1.0, 30.0, 1e3, 2e5, 2e9], dtype)
    got = jax.jit(jax.vmap(omega))(strengths)
    decays = np.exp(-0.1 * np.asarray(strengths, float)[:, None, None] * np.arange(4)[:, None])
    c, excess = np.asarray(c, float), np.asarray(start.omega - c, float)
    wanted = c + decays * excess
    np.testing.assert_allclose(got, wanted, rtol=0, atol=40 * jnp.finfo(dtype).eps)


def test_a_damped_step_towards_a_rate_is_undone_by_one_of_minus_dt():
    scheme = damp(jq.no_squish, DAMPING, toward=wind)
    step = jax.jit(lambda t, state, dt: scheme(BODY, problems.heavy, t, state, dt, None))
    back = step(0.4, step(0.3, START, 0.1), -0.1)
    np.testing.assert_allclose(jq.dynamics.local(START, back), np.zeros(6), atol=1e-15)


@pytest.mark.needs("llvmlite")
@pytest.mark.slow
def test_the_rate_towards_which_a_body_decays_has_gradients():
    """The derivative by the wind, of both engines, against differences."""

    def last(wind, engine="scan"):
        scheme = damp(
            jq.schemes.pcdm1,
            DAMPING,
            toward=lambda t, state, params: jq.quaternion.rotate_inverse(state.q, t * wind),
        )
        grid = jq.grid(0.2, 0.1, 4)
        final = jq.rollout(
            scheme, BODY, jq.torques.zero, START, grid, options=jq.RolloutOptions(engine=engine)
        ).final
        return final.omega[0] + final.q[2]

    value, h = jax.jit(jax.vmap(last)), 1e-5 * np.eye(3)
    differences = (value(WIND[None] + h) - value(WIND[None] - h)) / 2e-5
    for engine in ("scan", "fused"):
        slope = jax.jit(jax.grad(last), static_argnums=1)(WIND, engine)
        np.testing.assert_allclose(slope, differences, rtol=0, atol=1e-10)


@pytest.mark.needs("llvmlite")
@pytest.mark.slow
def test_the_fused_engine_decays_as_the_scan_does():
    scheme, grid = damp(jq.no_squish, DAMPING, toward=wind), jq.grid(0.0, 0.1, 30)
    by_scan, fused = (
        jq.rollout(
            scheme, BODY, problems.heavy, START, grid, options=jq.RolloutOptions(engine=engine)
        ).state
        for engine in ("scan", "fused")
    )
    for got, wanted in zip(fused[:2], by_scan[:2], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_the_order_is_two_and_falls_to_one_where_the_decay_is_short():
    """The reference is rkmk4 with the same drag as a torque.

    At 100 times the drag the decay takes about 0.02; steps of 0.1 to 0.02 are stable there. At
    20,000 times a body follows the wind, and the error is that of Euler's method for q.
    """

    def drag(t, state, strength):
        return -strength * DAMPING @ (state.omega - wind(t, state, None))

    def step(body, torque, t, state, dt, strength):
        scheme = damp(jq.no_squish, strength * DAMPING, wind)
        return scheme(body, torque, t, state, dt, None)

    fine = problems.marcher(jq.rkmk4, jq.torques.total(problems.heavy, drag), chunk=100)
    coarse = problems.marcher(step, problems.heavy)
    local = jax.jit(jq.dynamics.local)

    def errors(strength, steps, many):
        reference = fine(BODY, START, 0.0, 2.0, many, strength)
        ends = [coarse(BODY, START, 0.0, 2.0, n, strength) for n in steps]
        return [np.linalg.norm(local(reference, end)) for end in ends]

    steps = np.array([40, 80, 160])
    assert abs(problems.slope(steps, errors(1.0, steps.tolist(), 1000)) - 2) < 0.05
    assert errors(100.0, [20], 4000)[0] < 0.1
    assert abs(problems.slope(steps, errors(2e4, steps.tolist(), 80000)) - 1) < 0.1


def test_the_rate_to_decay_towards_is_checked():
    with pytest.raises(TypeError, match=r"^toward: wanted toward\(t, state, params\), got"):
        damp(jq.no_squish, DAMPING, lambda t, q: WIND)
    for toward, error, text in (
        (lambda t, state, params: state.q, ValueError, r"^toward\(...\): wanted shape \(3,\), got"),
        (lambda t, state, params: state.omega, TypeError, r"got toward, which reads state.omega"),
        (lambda t, state, params, command: WIND, TypeError, r"^toward: wanted toward\(t, state, p"),
    ):
        with pytest.raises(error, match=text):
            damp(jq.no_squish, DAMPING, toward)(BODY, jq.torques.zero, 0.0, START, 0.1, None)


def test_torques_of_the_rate_and_aux_states_are_refused():
    scheme = damp(jq.rkmk4, DAMPING)
    drag = jq.torques.drag(DAMPING)
    with pytest.raises(TypeError, match=r"^damped\(rkmk4\): wanted a torque of time and attitude"):
        scheme(BODY, drag, 0.0, START, 0.1, None)
    moving = START._replace(aux=jnp.zeros(2))
    with pytest.raises(TypeError, match=r"^damped\(rkmk4\): wanted a state without aux"):
        scheme(BODY, lambda t, s, p: (WIND, s.aux), 0.0, moving, 0.1, None)
    with pytest.raises(TypeError, match=r"^scheme: wanted one without drag, got damped\(rkmk4\)"):
        damp(scheme, DAMPING)
    with pytest.raises(ValueError, match=r"^damping: wanted a positive semidefinite matrix"):
        damp(jq.rkmk4, jnp.array([0.1, -0.1, 0.1]))
    with pytest.raises(ValueError, match=r"^damping, resistance: wanted one of them or both"):
        damp(jq.rkmk4)
    with pytest.raises(ValueError, match=r"^wind: wanted a resistance with it, got none"):
        damp(jq.rkmk4, DAMPING, wind=WIND)
    with pytest.raises(ValueError, match=r"^state: wanted position and velocity because"):
        damp(jq.rkmk4, resistance=1.0)(BODY, jq.torques.zero, 0.0, START, 0.1, None)


X = (1e-3, 0.1, 1.0, 5.0, 20.0, 1e2, 1e4, 1e6, 1e8)  # step over relaxation time


@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize(("engine", "dtype"), some(BOTH, BOTH[:1]))
def test_a_body_at_its_terminal_rate_keeps_it_and_turns_as_far_as_it_should(engine, dtype):
    """Under a constant torque about a principal axis, ``omega = tau/damping`` and 20 steps of 0.1.

    The angle is 2 rad; each of the 20 products of quaternions rounds by about an ulp of 1.
    """
    body = jq.Body.from_principal(jnp.array([1e-3, 2e-3, 2.5e-3], dtype))
    start = jq.State(jnp.array([1, 0, 0, 0], dtype), jnp.array([1, 0, 0], dtype))

    def last(x):
        damping = x * 1e-3 / 0.1 * jnp.ones(3, dtype)
        torque = lambda t, state, params: damping * start.omega
        scheme, grid = damp(jq.lie_euler, damping), jq.grid(0.0, 0.1, 20)
        path = jq.rollout(
            scheme, body, torque, start, grid, options=jq.RolloutOptions(engine=engine)
        )
        return path.state.omega, path.final.q

    omega, q = jax.jit(jax.vmap(last))(jnp.array(X, dtype))
    np.testing.assert_allclose(omega[..., 0], 1.0, rtol=0, atol=4 * EPS[dtype])
    np.testing.assert_allclose(omega[..., 1:], 0.0, rtol=0, atol=0)
    wanted = np.tile([np.cos(1.0), np.sin(1.0), 0.0, 0.0], (len(X), 1))
    np.testing.assert_allclose(q, wanted, rtol=0, atol=10 * EPS[dtype])


@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize(("engine", "dtype"), some(BOTH, BOTH[1:2]))
def test_a_settling_particle_keeps_its_terminal_velocity(engine, dtype):
    """``v = wind + R K^-1 R^T weight``, whatever x, and 20 steps of 0.1 move it by 2 v.

    The attitude is fixed, and the resistance differs along the body axes.
    """
    body = jq.Body.from_principal(jnp.ones(3, dtype), mass=jnp.asarray(1e-3, dtype))
    q = jq.quaternion.exp(jnp.array([0.4, -0.7, 0.2], dtype))
    speeds = jnp.array([0.5, -0.3, 0.8], dtype)  # along the body axes, through the air
    air = jnp.asarray(WIND, dtype)
    shape = jnp.array([1.0, 2.0, 0.5], dtype)
    velocity = air + jq.quaternion.rotate(q, speeds)
    start = jq.State(q, jnp.zeros(3, dtype), (), jnp.zeros(3, dtype), velocity)

    def last(x):
        resistance = x * 1e-3 / 0.1 * shape

        def weight(t, state, params):
            force = jq.quaternion.rotate(state.q, resistance * speeds)
            return jq.Wrench(jnp.zeros(3, dtype), force)

        scheme = damp(jq.lie_euler, resistance=resistance, wind=lambda t, position: air)
        path = jq.rollout(
            scheme,
            body,
            weight,
            start,
            jq.grid(0.0, 0.1, 20),
            options=jq.RolloutOptions(engine=engine),
        )
        return path.final.velocity, path.final.position

    speed, place = jax.jit(jax.vmap(last))(jnp.array(X, dtype))
    shape = (len(X), 3)
    wanted = np.asarray(velocity, float)
    np.testing.assert_allclose(speed, np.broadcast_to(wanted, shape), rtol=0, atol=20 * EPS[dtype])
    far = np.broadcast_to(2 * wanted, shape)
    np.testing.assert_allclose(place, far, rtol=0, atol=40 * EPS[dtype])


@pytest.mark.parametrize("dtype", some([jnp.float32, jnp.float64], [jnp.float32]))
def test_the_mean_of_the_decay_is_right_to_a_few_ulp_for_any_matrix(dtype):
    """``(1 - exp(-Z)) Z^-1`` against 60 digits, for norms from 1e-6 to 1e30.

    Z is isotropic, diagonal with axes without drag, full and symmetric, and not symmetric.
    """
    full = np.array([[1.0, 0.2, -0.1], [0.2, 0.8, 0.3], [-0.1, 0.3, 1.2]])
    kinds = [np.eye(3), np.diag([0.0, 1e-3, 1.0]), full, np.asarray(DAMPING)]
    sizes = [1e-6, 0.1, 1.0, 7.0, 40.0, 300.0, 1e5, 1e8, 1e12, 1e30]
    matrices = jnp.asarray([size * kind for kind in kinds for size in sizes], dtype)
    got = jax.jit(jax.vmap(lambda z: relaxation(z).mean))(matrices)
    for matrix, value in zip(np.asarray(matrices, float), np.asarray(got, float), strict=True):
        wanted = exact_mean_decay(matrix)
        scale = np.maximum(np.abs(wanted).max(), np.abs(wanted))
        assert np.abs((value - wanted) / scale).max() < 4 * EPS[dtype], matrix


def test_change_and_spread_of_the_shortest_steps_are_proportional_to_them():
    """For small Z they are -Z and 2/3 Z: ``2 n - m^2 = 2 (1/2 - Z/6) - (1 - Z)``."""
    full = jnp.array([[1.0, 0.2, -0.1], [0.2, 0.8, 0.3], [-0.1, 0.3, 1.2]], jnp.float32)
    for matrix in (full, jnp.eye(3, dtype=jnp.float32)):
        for size in np.float32([1e-24, 1e-35, 2.5e-37]):
            found = jax.jit(relaxation)(size * matrix)
            np.testing.assert_allclose(found.change / size, -matrix, rtol=1e-6)
            np.testing.assert_allclose(found.spread / size, 2.0 / 3.0 * matrix, rtol=2e-6)
    stiff = jax.jit(relaxation)(jnp.diag(jnp.array([1e-36, 1.0, 1e8], jnp.float32)))
    np.testing.assert_allclose(jnp.diagonal(stiff.change), [-1e-36, np.expm1(-1.0), -1.0], 1e-6)


def exact_mean_decay(matrix):
    """Returns it by the exponential of ``[[-Z, 1], [0, 0]]``, whose upper right it is."""
    mpmath.mp.dps, z = 60, np.zeros((6, 6))
    z[:3, :3], z[:3, 3:] = -matrix, np.eye(3)
    halvings = max(0, int(np.ceil(np.log2(np.abs(matrix).sum())))) + 4
    power = mpmath.expm(mpmath.matrix(z.tolist()) / mpmath.mpf(2) ** halvings, method="taylor")
    for _ in range(halvings):
        power = power * power
    return np.array([[float(power[i, 3 + j]) for j in range(3)] for i in range(3)])


def dipole(t, state, params):
    """A torque of at most 0.72 N m, whose derivative by a turn is no larger."""
    field = jq.quaternion.rotate_inverse(state.q, jnp.array([0.0, 0.6, 1.0]))
    return jnp.cross(jnp.array([0.3, -0.2, 0.5]), field)


def pulsed(t, state, params):
    return dipole(t, state, params) + jnp.array([0.5, -0.3, 0.4]) * jnp.cos(3 * t)


SHEAR = jnp.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
FULL = jnp.array([[1.2, 0.1, 0.0], [0.1, 0.8, 0.2], [0.0, 0.2, 1.0]])
MOTIONS = {
    "a dipole in a field": (FULL, dipole, None),
    "a torque of time": (FULL, pulsed, None),
    "a spheroid with a moment in shear": (
        jnp.asarray(np.diag([1.0, 1.0, 0.6])),
        dipole,
        jq.flow.jeffery_rate(jnp.array([1.0, 1.0, 3.0]), SHEAR),
    ),
}


@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize(
    ("engine", "name"),
    some([(e, m) for e in ("scan", "fused") for m in MOTIONS], [("fused", "a torque of time")]),
)
def test_the_order_is_two_and_the_error_is_bounded_by_the_step_whatever_the_inertia(engine, name):
    """For x below 1 the slope is 2; for x up to 1e9 the error after 2 s is below C dt.

    The reference is rkmk2 in steps of at most a fourth of the relaxation time, or from x = 1e4 on
    the body without inertia, which is nearer than 1e-4 steps. Without inertia a step is one of
    Euler's method for ``q' = w(t, q)``, whose error is at most ``dt max|w'| (exp(L T) - 1)/(2 L)``;
    with |w'| below 2.4 and L about 1 that is 7.7 dt.
    """
    damping, torque, toward = MOTIONS[name]
    moments, q = np.asarray(BODY.inertia), START.q
    sizes = np.array([1.0, 1e-1, 1e-2, 1e-3, 1e-5, 1e-8, 1e-11])
    large = int((sizes > 1e-4).sum())
    bodies = jax.jit(jax.vmap(lambda size: jq.Body(size * moments)))(sizes)
    resting = jq.State(jnp.broadcast_to(q, (len(sizes), 4)), jnp.zeros((len(sizes), 3)))

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0, None, None))
    def forty(body, state, t, dt):
        scheme = damp(jq.no_squish, damping, toward)
        return jq.rollout(
            scheme,
            body,
            torque,
            state,
            jq.grid(t, dt, 40),
            options=jq.RolloutOptions(engine=engine),
        ).final

    def last(steps):
        state = resting
        for k in range(0, steps, 40):
            state = forty(bodies, state, 2 * k / steps, 2 / steps)
        return state

    def rate(t, q, params):
        state = jq.State(q, jnp.zeros(3))
        terminal = jnp.linalg.inv(damping) @ torque(t, state, params)
        return terminal if toward is None else terminal + toward(t, state, params)

    def dragged(t, state, params):
        excess = state.omega if toward is None else state.omega - toward(t, state, params)
        return torque(t, state, params) - damping @ excess

    march = problems.marcher(jq.rkmk2, dragged, chunk=1000, batch=True)
    inert, begin = jax.tree.map(lambda x: x[:large], (bodies, resting))
    moved = march(inert, begin, 0.0, 2.0, 8000)

    @jax.jit
    def without_inertia():
        grid = jq.grid(0.0, 2e-3, 1000)
        q_end = jq.kinematics.rollout_of_attitude(rate, q, grid, order=2).q[-1]
        return q_end, rate(2.0, q_end, None)

    still = without_inertia()
    steps = np.array([40, 80, 160])
    local = jax.jit(jax.vmap(jq.dynamics.local))
    reference = jq.State(
        *(jnp.concatenate([x, jnp.stack([y] * (len(sizes) - large))])
          for x, y in zip(moved[:2], still, strict=True))
    )  # fmt: skip
    errors = np.array([np.linalg.norm(local(reference, last(n)), axis=1) for n in steps.tolist()])
    for k, size in enumerate(sizes):
        assert np.all(errors[:, k] < 7.7 * 2 / steps), size
        if size >= 0.1:
            assert abs(problems.slope(steps, errors[:, k]) - 2) < 0.1, size


def test_a_rate_to_decay_towards_reads_position_params_and_command():
    """The terminal rate is the position along x times params times the command, in each step."""
    flow = lambda t, state, params, command: jnp.stack(
        [params * command * state.position[0], 0.0 * t, 0.0 * t]
    )
    zeros = jnp.zeros(3)
    start = jq.State(jnp.array([1.0, 0, 0, 0]), zeros, (), jnp.array([2.0, 0, 0]), zeros)
    scheme = damp(jq.lie_euler, 1e9 * jnp.ones(3), flow)
    body = jq.Body(jnp.eye(3), mass=1.0)
    path = jq.rollout(
        scheme, body, jq.torques.zero, start, jq.grid(0.0, 0.1, 2), 3.0,
        inputs=jnp.array([0.5, -0.25]), options=jq.RolloutOptions(engine="scan"),
    )  # fmt: skip
    np.testing.assert_allclose(path.state.omega[1:, 0], [3.0, -1.5], rtol=1e-15)


def resting(self, arguments, clock, k, state, undo=False):
    return state


def test_drag_that_cannot_be_undone_is_refused_by_the_reversible_engine(monkeypatch):
    """Nine powers of e between two rows leave three digits of float32, and 29 those of float64.

    The states are not of interest, so steps leave them as they are.
    """
    monkeypatch.setattr(reversible._Steps, "step", resting)
    start = jax.tree.map(lambda x: x.astype(jnp.float32), START)
    body = jq.Body(2.0 * jnp.eye(3, dtype=jnp.float32))

    def fly(strength, body=body, start=start, **options):
        scheme = damp(jq.no_squish, strength * np.ones(3, start.q.dtype))
        grid, torque = jq.grid(0.0, 0.5, 20, save_every=10), jq.torques.zero
        return flat.rollout(
            scheme,
            body,
            torque,
            start,
            grid,
            options=jq.RolloutOptions(checkpoint="reversible"),
            **options,
        )

    traced = lambda *arguments: jax.eval_shape(lambda: fly(*arguments).final)
    traced(3.0)  # 10 steps of 0.5 s with I/D = 2/3 s: 7.5
    with pytest.raises(ValueError, match=r'^checkpoint: "reversible" wanted a drag .* got 10;'):
        traced(4.0)
    traced(4.0, jq.Body(2.0 * jnp.eye(3)), START)
    check = checkify.checkify(jax.jit(lambda strength: fly(strength, check=True).final))
    assert check(3.0)[0].get() is None
    assert '"reversible" wanted a drag' in check(4.0)[0].get()


def test_drag_that_cannot_be_undone_is_refused_within_jit_or_gives_nan(monkeypatch):
    """It is refused where drag, body and grid are known, and otherwise the gradient is NaN.

    Steps leave the state as it is; test_reversing.py has derivatives by undone steps with drag.
    """
    monkeypatch.setattr(reversible._Steps, "step", resting)
    body, rates = jq.Body(2.0 * jnp.eye(3)), jnp.array([0.3, 0.4, 0.5])
    strength = 14.0  # 10 steps of 0.5 s with I/D = 1/7 s: 35

    def loss(omega, strength, grid):
        scheme = damp(jq.no_squish, strength)
        start = START._replace(omega=omega)
        options = {"checkpoint": "reversible", "save_every": 10}
        return flat.rollout(scheme, body, jq.torques.zero, start, grid, **options).final.omega[1]

    slope, equal = jax.jit(jax.grad(loss), static_argnums=2), jq.grid(0.0, 0.5, 20)
    for grid in (equal, jq.grid_at(np.linspace(0.0, 10.0, 21))):
        known_drag = jax.jit(jax.grad(lambda omega, grid=grid: loss(omega, strength, grid)))
        with pytest.raises(ValueError, match=r'^checkpoint: "reversible" wanted a drag .* got 35;'):
            known_drag(rates)
    assert np.isnan(slope(rates, strength, equal)).all()
    np.testing.assert_array_equal(slope(rates, strength / 2, equal), [0.0, 1.0, 0.0])


@pytest.mark.slow
def test_the_implicit_midpoint_rule_solves_its_equation_under_any_drag():
    """256 dipoles from random attitudes and rates, x from 1 to 1e8, are finite.

    The mean rate of a step is the terminal one, so the attitude errs by O(dt^2) whatever x is:
    below 2e-3 in 2 s, as rates below 1.2 rad/s and steps of 0.05 make it.
    """
    q = jax.vmap(jq.quaternion.random)(jax.random.split(jax.random.key(0), 256))
    omega = jax.random.normal(jax.random.key(1), (256, 3))
    torque = jq.torques.total(dipole, jq.torques.drag(FULL))

    @jax.jit
    @jax.vmap
    def last(q, omega, x):
        body, grid = jq.Body(0.05 / x * BODY.inertia), jq.grid(0.0, 0.05, 40)
        path = jq.rollout(
            jq.schemes.lie_midpoint,
            body,
            torque,
            jq.State(q, omega),
            grid,
            options=jq.RolloutOptions(engine="scan"),
        )
        return path.final.q

    def rate(t, q, params):
        return jnp.linalg.inv(FULL) @ dipole(t, jq.State(q, jnp.zeros(3)), params)

    still = jax.jit(
        jax.vmap(lambda q: jq.kinematics.rollout_of_attitude(rate, q, jq.grid(0.0, 0.01, 200)))
    )(q).q[:, -1]
    for x in (1e4, 1e6, 1e8):
        got = last(q, 0.0 * omega, jnp.full(256, x))
        assert float(jnp.max(jq.quaternion.distance(got, still))) < 2e-3
    for x in (1.0, 1e2, 1e4, 1e6, 1e8):
        assert np.isfinite(last(q, omega, jnp.full(256, x))).all()
