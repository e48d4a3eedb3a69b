"""Langevin dynamics and Brownian motion: their Gaussian step, laws of diffusion, and limits."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax import lax
from jax.experimental import checkify
from marks import some

import jaxquat as jq
from jaxquat.stochastic.ornstein_uhlenbeck import ornstein_uhlenbeck

MOMENTS = np.array([1.0, 2.0, 2.5])  # kg m^2
BODY = jq.Body.from_principal(jnp.asarray(MOMENTS))
SKEWED = np.array([[1.0, 0.3, -0.2], [0.3, 2.0, 0.4], [-0.2, 0.4, 1.5]])  # N m s
TURNED = np.array([[2.0, 0.2, 0.1], [0.2, 1.0, -0.3], [0.1, -0.3, 2.5]])  # kg m^2
START = jq.State(jnp.array([0.8, 0.0, 0.6, 0.0]), jnp.array([0.1, -0.2, 0.3]))


def moved(scheme, body, torque, starts, dt, steps, seed=0):
    """The states after each step of many bodies, each with noise of its own."""
    count = scheme.step.noise(START)

    def one(key, start):
        def step(state, k):
            noise = jax.random.normal(jax.random.fold_in(key, k), (count,))
            after = scheme.step(body, torque, 0.0, state, dt, None, noise)
            return after, after

        return lax.scan(step, start, jnp.arange(steps))[1]

    keys = jax.random.split(jax.random.key(seed), len(starts.q))
    return jax.jit(jax.vmap(one))(keys, starts)


def at_equilibrium(bodies, temperature):
    draw = np.random.default_rng(0).normal
    q = draw(size=(bodies, 4))
    omega = draw(size=(bodies, 3)) * np.sqrt(temperature / MOMENTS)
    return jq.State(jnp.asarray(q / np.linalg.norm(q, axis=1, keepdims=True)), jnp.asarray(omega))


@pytest.mark.parametrize("dt", [pytest.param(1e-6, marks=pytest.mark.slow), 1e-2, 1.0])
def test_turn_and_rate_are_those_of_the_linear_equation(dt):
    """(turn, rate)' = F (turn, rate) + white noise; its exact step is by C. Van Loan, IEEE Trans.

    Automatic Control 23(3), 1978, 395-404.
    """
    kT, pull = 0.3, np.linalg.solve(TURNED, SKEWED)
    o = ornstein_uhlenbeck(*map(jnp.asarray, (TURNED, SKEWED, kT, dt)))
    drift = np.zeros((6, 6))
    drift[:3, 3:], drift[3:, 3:] = np.eye(3), -pull
    density = np.zeros((6, 6))
    density[3:, 3:] = 2.0 * kT * pull @ np.linalg.inv(TURNED)
    wide = scipy.linalg.expm(dt * np.block([[-drift, density], [np.zeros((6, 6)), drift.T]]))
    exact = wide[6:, 6:].T
    covariance = exact @ wide[:6, 6:]
    noise = np.block([[o.turn_of_x, o.turn_of_y], [o.rate_of_x, np.zeros((3, 3))]])
    size = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(o.turn, exact[:3, 3:], rtol=1e-12, atol=1e-13 * dt)
    np.testing.assert_allclose(np.eye(3) + o.change, exact[3:, 3:], rtol=1e-12, atol=1e-14)
    scaled = (noise @ noise.T - covariance) / np.outer(size, size)
    assert np.abs(scaled).max() < 1e-11


def test_a_turn_of_brownian_motion_has_the_covariance_of_heat_over_damping():
    """The turns by unit normals are the columns of its root, for turns of 1e-7 rad."""
    scheme, dt, kT = jq.stochastic.brownian(SKEWED, 1e-14), 0.3, 1e-14
    step = jax.jit(lambda noise: scheme(BODY, jq.torques.zero, 0.0, START, dt, None, noise).q)
    turns = [jq.quaternion.multiply(jq.quaternion.conjugate(START.q), step(x)) for x in np.eye(3)]
    columns = 2.0 * np.stack(turns)[:, 1:]
    wanted = 2.0 * kT * dt * np.linalg.inv(SKEWED)
    np.testing.assert_allclose(columns.T @ columns, wanted, rtol=1e-7)


def test_a_long_step_is_that_of_brownian_motion():
    """The turn has the covariance 2 kT D^-1 dt, less 3/2 of it for each relaxation time in dt."""
    dt, kT = 1e6, 0.3
    o = ornstein_uhlenbeck(*map(jnp.asarray, (TURNED, SKEWED, kT, dt)))
    turn = o.turn_of_x @ o.turn_of_x.T + o.turn_of_y @ o.turn_of_y.T
    np.testing.assert_allclose(turn, 2.0 * kT * dt * np.linalg.inv(SKEWED), rtol=1e-5)
    np.testing.assert_allclose(
        o.turn_of_torque, dt * np.linalg.inv(SKEWED), rtol=1e-5
    )  # the terminal rate
    rate = o.rate_of_x @ o.rate_of_x.T
    np.testing.assert_allclose(rate, kT * np.linalg.inv(TURNED), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("x", [0.1, 10.0, 100.0])
def test_triaxial_diffusion_and_equipartition_in_steps_of_any_length(x):
    """<e_i . e_i> = exp(-(D_j + D_k) t), and I_i <omega_i^2> = kT.

    An Ornstein-Uhlenbeck step of the rate alone, between two turns, would diffuse x/2 coth(x/2)
    times as fast, 50 times at x = 100.
    """
    damping, steps, bodies = np.array([1.0, 2.0, 1.5]), 40, 2000
    kT = 2e-3 / x if x < 1 else 2e-2 / x
    starts = at_equilibrium(bodies, kT)
    scheme = jq.stochastic.langevin(jq.no_squish, jnp.asarray(damping), kT)
    states = moved(scheme, BODY, jq.torques.zero, starts, x, steps)
    heat = MOMENTS * np.mean(np.asarray(states.omega) ** 2, axis=(0, 1)) / kT
    independent = bodies * (1.0 + steps * min(x, 2.0) / 2.0)
    assert np.all(np.abs(heat - 1.0) < 4.0 * np.sqrt(2.0 / independent))
    before, after = (jq.quaternion.to_matrix(q) for q in (starts.q, states.q[:, -1]))
    along = np.einsum("nji,nji->ni", before, after)
    diffusivity = kT / damping
    # a body at rest in equilibrium first moves freely, for a relaxation time
    t = steps * x - (MOMENTS / damping) * (1.0 - np.exp(-steps * x * damping / MOMENTS))
    spread = np.sum(diffusivity * t) - diffusivity * t
    errors = np.std(along, axis=0) / np.sqrt(bodies)
    assert np.all(np.abs(along.mean(axis=0) - np.exp(-spread)) < 4.0 * errors + 0.01 * spread)


@pytest.mark.slow
def test_brownian_motion_of_a_dipole_in_a_field_has_the_mean_of_langevin():
    """<cos> = coth(2) - 1/2 where the field's energy is 2 kT."""
    field = jnp.array([0.0, 0.0, 1.0])

    def pull(t, state, params):
        along = jq.quaternion.rotate_inverse(state.q, field)
        return 2.0 * jnp.cross(jnp.array([0.0, 0.0, 1.0]), along)

    scheme = jq.stochastic.brownian(jnp.array([1.0, 1.0, 0.5]), 1.0)
    states = moved(scheme, BODY, pull, at_equilibrium(2000, 1.0), 0.01, 300)
    up = jq.quaternion.to_matrix(states.q[:, 200:])[:, :, 2, 2]
    assert np.mean(up) == pytest.approx(1.0 / np.tanh(2.0) - 0.5, abs=0.02)


def without_heat(step, steps, torque, body=BODY):
    dt, noise = 2.0 / steps, jnp.zeros(6)
    advance = lambda state, t: (step(body, torque, t, state, dt, None, noise), None)
    return lax.scan(advance, START, dt * jnp.arange(steps, dtype=float))[0]


@pytest.mark.slow
def test_without_heat_it_is_a_drag_of_order_2():
    """Under a torque of time and attitude, against Runge-Kutta of order 4 in 2000 steps."""

    def torque(t, state, params):
        level = jq.quaternion.rotate_inverse(state.q, jnp.array([0.0, 0.0, 1.0]))
        return jnp.array([0.3, -0.2, 0.5]) * jnp.sin(3.0 * t) + jnp.cross(level, jnp.eye(3)[0])

    current = lambda t, state, params: jnp.array([0.2, 0.1, 0.0]) * jnp.cos(t)
    damping = jnp.asarray(SKEWED)
    step = jq.stochastic.langevin(jq.no_squish, damping, 0.0, current).step

    def dragged(t, state, params):
        return torque(t, state, params) - damping @ (state.omega - current(t, state, params))

    reference = jq.rollout(jq.rkmk4, BODY, dragged, START, jq.grid(0.0, 1e-3, 2000)).final
    errors = []
    for steps in (20, 40, 80):
        state = jax.jit(functools.partial(without_heat, step, steps, torque))()
        errors.append(float(jq.quaternion.distance(state.q, reference.q)))
    slopes = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    np.testing.assert_allclose(slopes, 2.0, atol=0.15)
    assert errors[-1] < 1e-3


@pytest.mark.parametrize(
    ("dtype", "make"),
    some(
        [(dtype, make) for dtype in (np.float64, np.float32) for make in ("langevin", "brownian")],
        [(np.float64, "brownian")],  # that of langevin is quick where there is a position
    ),
)
def test_units_of_mass_change_nothing(dtype, make):
    """A power of two scales inertia, drag, torque and temperature alike."""
    noise = jnp.asarray(np.random.default_rng(0).normal(size=6), dtype)
    start = jax.tree.map(lambda x: jnp.asarray(x, dtype), START)

    def after(unit):
        one = lambda x: unit * jnp.asarray(x, dtype)
        body = jq.Body.from_principal(one(MOMENTS))
        torque = lambda t, state, params: one([0.1, 0.2, -0.3])
        scheme = made(make, one(SKEWED), one(0.3))
        numbers = noise[: scheme.step.noise(start)]
        return scheme.step(body, torque, 0.0, start, dtype(0.1), None, numbers)

    states = jax.jit(jax.vmap(after))(jnp.asarray(2.0 ** np.array([0, -100, -50, 50, 100]), dtype))
    for rows in (states.q, states.omega):
        assert rows.dtype == dtype
        spread = np.abs(rows - rows[:1]).max()
        assert spread <= 4 * np.finfo(dtype).eps


def made(make, damping, temperature):
    if make == "brownian":
        return jq.stochastic.brownian(damping, temperature)
    return jq.stochastic.langevin(jq.no_squish, damping, temperature)


@pytest.mark.slow
@pytest.mark.parametrize("make", ["langevin", "brownian"])
def test_derivatives_by_damping_and_temperature_are_those_of_differences(make):
    """Along one path of given noise; equal dampings about all axes are no exception."""
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(5, 6)))
    change = jnp.array([[0.2, 0.1, 0.0], [0.1, -0.3, 0.2], [0.0, 0.2, 0.1]])

    def end(damping, kT):
        scheme = made(make, damping, kT)
        count = scheme.step.noise(START)

        def step(state, row):
            after = scheme.step(BODY, jq.torques.zero, 0.0, state, 0.3, None, row[:count])
            return after, None

        return jnp.dot(lax.scan(step, START, noise)[0].q, jnp.array([0.3, -0.2, 0.5, 0.1]))

    evaluate = jax.jit(lambda damping, h: end(damping + h * change, 0.2 + 0.5 * h))
    slope = jax.jit(jax.grad(end, (0, 1)))
    for damping in (jnp.asarray(SKEWED), 1.5 * jnp.eye(3)):
        by_damping, by_temperature = slope(damping, 0.2)
        along = float(jnp.sum(by_damping * change) + 0.5 * by_temperature)
        difference = float((evaluate(damping, 1e-5) - evaluate(damping, -1e-5)) / 2e-5)
        assert along == pytest.approx(difference, rel=1e-7)


@pytest.mark.slow  # with a position it is quick
@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize("make", ["langevin", "brownian"])
def test_both_engines_have_one_path_and_one_derivative(make):
    grid = jq.grid(0.0, 0.1, 20, save_every=20)

    def end(kT, key, engine):
        scheme = made(make, jnp.asarray(SKEWED), kT)
        path = jq.rollout(
            scheme,
            BODY,
            jq.torques.zero,
            START,
            grid,
            noise=key,
            options=jq.RolloutOptions(engine=engine),
        )
        return jnp.sum(path.final.q * jnp.arange(4.0)), path.final

    keys = jax.random.split(jax.random.key(0), 3)
    runs = [
        jax.jit(jax.vmap(jax.grad(functools.partial(end, engine=engine), has_aux=True), (None, 0)))
        for engine in ("scan", "fused")
    ]
    (by_scan, scanned), (by_kernel, fused) = (run(0.3, keys) for run in runs)
    np.testing.assert_allclose(fused.q, scanned.q, atol=1e-13)
    np.testing.assert_allclose(by_kernel, by_scan, rtol=1e-11)
    assert np.std(by_scan) > 0.01


@pytest.mark.parametrize("damping", [-1.0, np.array([1.0, -2.0, 1.0]), np.diag([1.0, 1.0, -1.0])])
@pytest.mark.parametrize("make", ["damped", "langevin", "brownian"])
def test_a_damping_that_is_written_under_jit_is_checked(make, damping):
    """A scalar or a diagonal becomes a matrix there, which is traced: it is checked before."""
    calls = {"damped": lambda: jq.schemes.damp(jq.no_squish, damping)}
    factory = calls.get(make, lambda: made(make, damping, 0.1))
    with pytest.raises(ValueError, match=r"damping: wanted a .*positive .*definite matrix, got"):
        jax.jit(lambda: jax.tree.leaves(factory())[0])()


REFUSED = {
    "damping": {"damping": jnp.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])},
    "temperature": {"kT": -0.1},
    "resistance": {"resistance": jnp.array([1.0, -1.0, 1.0])},
}


def test_check_reports_traced_arguments_that_are_refused_where_they_are_known():
    """Each is named, and good ones give no error. ``damp`` takes a resistance of 0."""
    moving = START._replace(position=jnp.zeros(3), velocity=jnp.zeros(3))
    body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5]), mass=1.0)

    def run(damping, kT, resistance, name):
        scheme, noise = (
            jq.stochastic.brownian(damping, kT, resistance=resistance),
            jnp.zeros((1, 6)),
        )
        if name == "damped":
            scheme, noise = jq.schemes.damp(jq.lie_euler, damping, resistance=resistance), None
        grid = jq.grid(0.0, 0.1, 1)
        return jq.rollout(
            scheme,
            body,
            jq.torques.zero,
            moving,
            grid,
            noise=noise,
            options=jq.RolloutOptions(check=True),
        ).t

    good = {"damping": jnp.asarray(SKEWED), "kT": 0.1, "resistance": jnp.ones(3)}
    for scheme, wrong_ones in (
        ("brownian", REFUSED),
        ("damped", {"damping": {"damping": -jnp.eye(3)}, "resistance": REFUSED["resistance"]}),
    ):
        checked = jax.jit(checkify.checkify(functools.partial(run, name=scheme)))
        assert checked(**good)[0].get() is None
        for name, wrong in wrong_ones.items():
            assert f"{name}: wanted" in checked(**good | wrong)[0].get()
