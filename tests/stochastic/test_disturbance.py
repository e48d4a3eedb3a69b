"""White and Gauss-Markov torques: closed forms, orders, derivatives, and what they leave alone."""

import functools
import itertools

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify
from marks import some

import jaxquat as jq
from examples.validation import torque_noise
from jaxquat.stochastic import Disturbance, add_gauss_markov_torque, add_torque_noise

MOMENTS = np.array([1.0, 2.0, 2.5])  # kg m^2
BODY = jq.Body.from_principal(jnp.asarray(MOMENTS))
BALL = jq.Body(2.0 * jnp.eye(3))
REST = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
START = jq.State(jnp.array([0.8, 0.0, 0.6, 0.0]), jnp.array([0.5, -0.8, 0.6]))
FACTOR = np.array([[0.3, 0.1, 0.0], [0.2, 0.4, -0.1], [0.0, 0.3, 0.2]])  # N m/sqrt(Hz)
DEVIATION, TIME = np.array([0.3, 0.2, 0.4]), np.array([0.7, 1.5, 1.0])  # N m, s
DENSITY = np.array([0.1, 0.2, 0.3])  # N m/sqrt(Hz)


def disturbed(state, torque=(0.0, 0.0, 0.0), aux=()):
    return state._replace(aux=Disturbance(jnp.asarray(torque, state.q.dtype), aux))


BY_AXIS = add_torque_noise(jq.lie_euler, DENSITY)
STARTS = {"white": REST, "Gauss-Markov": disturbed(REST)}


def after(scheme, body, torque, start, dt, rows):
    """The state after one step for each row of normals."""

    def step(state, row):
        return scheme(body, torque, 0.0, state, dt, None, row), None

    return lax.scan(step, start, rows)[0]


@functools.cache
def responses(scheme, steps, kind):
    """Turn, momentum and disturbance of a ball at rest about z, per normal, by the length of steps.

    They are linear in the normals: the axis stays. -> function of dt: (3, steps * normals + 1); the
    last column is that of the disturbance at the start.
    """
    count = scheme.noise(STARTS[kind])
    units = np.eye(count * steps + 1)

    def end(unit, dt):
        start = REST if kind == "white" else disturbed(REST, unit[-1] * jnp.eye(3)[2])
        final = after(scheme, BALL, jq.torques.zero, start, dt, unit[:-1].reshape(steps, count))
        torque = 0.0 if kind == "white" else final.aux.torque[2]
        return jq.quaternion.log(final.q)[2], 2.0 * final.omega[2], torque

    ends = jax.jit(jax.vmap(end, (0, None)))
    return lambda dt: np.array([np.broadcast_to(x, len(units)) for x in ends(units, dt)])


@pytest.mark.parametrize("dt", [0.02, 0.7])
@pytest.mark.parametrize("steps", [1, 5])
def test_turn_and_momentum_of_a_ball_are_an_integrated_wiener_process(dt, steps):
    """Their covariance is density^2 [[t^3/(3 I^2), t^2/(2 I)], [., t]], whatever dt is."""
    response = responses(BY_AXIS, steps, "white")(dt)[:2]
    t, inertia = dt * steps, 2.0
    wanted = [[t**3 / (3 * inertia**2), t**2 / (2 * inertia)], [t**2 / (2 * inertia), t]]
    np.testing.assert_allclose(response @ response.T, 0.3**2 * np.array(wanted), rtol=1e-13)


def test_a_density_matrix_is_that_of_the_momentum():
    scheme = add_torque_noise(jq.lie_euler, FACTOR)
    end = lambda row: 2.0 * scheme(BALL, jq.torques.zero, 0.0, REST, 0.25, None, row).omega
    momentum = np.asarray(jax.jit(jax.vmap(end))(jnp.eye(6))).T
    np.testing.assert_allclose(momentum @ momentum.T, 0.25 * FACTOR @ FACTOR.T, atol=1e-15)


@pytest.mark.parametrize("scheme", [jq.no_squish, jq.lgvi], ids=lambda scheme: scheme.name)
def test_the_mean_square_momentum_of_a_free_body_grows_exactly(scheme):
    """By 3 density^2 dt, in a step that turns it by 0.5 rad; two nodes -1 and 1 per normal."""
    normals = jnp.array(list(itertools.product((-1.0, 1.0), repeat=6)))
    dt, density = 0.5, 0.3
    noisy = add_torque_noise(scheme, density)
    step = lambda row: noisy(BODY, jq.torques.zero, 0.0, START, dt, None, row).omega
    momentum = MOMENTS * np.asarray(jax.jit(jax.vmap(step))(normals))
    grown = np.mean(np.sum(momentum**2, axis=1)) - np.sum((MOMENTS * START.omega) ** 2)
    assert grown == pytest.approx(3 * density**2 * dt, rel=1e-12)


@functools.cache
def coloured_responses():
    return responses(add_gauss_markov_torque(jq.lie_euler, DEVIATION, TIME), 3, "Gauss-Markov")


@pytest.mark.parametrize("dt", [1e-3, 0.3, 40.0])
def test_a_gauss_markov_torque_and_its_impulse_have_their_closed_forms(dt):
    """From 0, for steps of any length; from a stationary start by 2 sigma^2 tau^2 (h - 1 + e^-h).

    h is t/tau. A stationary variance stays, and the correlation is exp(-h).
    """
    response = coloured_responses()(dt)[1:]
    deviation, tau = DEVIATION[2], TIME[2]
    h = 3 * dt / tau
    drop = -np.expm1(-h)
    # 2 h - 3 + 4 exp(-h) - exp(-2 h) without cancellation, by the mean over [0, h]
    x, w = np.polynomial.legendre.leggauss(200)
    impulse = tau**2 * h * np.sum(w * np.expm1(-h * (x + 1) / 2) ** 2)
    wanted = np.array([[impulse, tau * drop**2], [tau * drop**2, -np.expm1(-2 * h)]])
    noise = response[:, :-1]
    np.testing.assert_allclose(noise @ noise.T, deviation**2 * wanted, rtol=1e-11)
    remains = response[:, -1]
    np.testing.assert_allclose(remains, [tau * drop, np.exp(-h)], rtol=1e-12, atol=1e-16)
    stationary = np.sum(noise**2, axis=1) + deviation**2 * remains**2
    ramps = np.sum(w * (x + 1) / 2 * np.exp(-h * (1 - x) / 2))  # 2 (h - 1 + exp(-h))/h^2
    np.testing.assert_allclose(stationary[1], deviation**2, rtol=1e-12)
    np.testing.assert_allclose(stationary[0], (deviation * tau * h) ** 2 * ramps, rtol=1e-11)


def test_without_density_or_deviation_a_step_is_that_of_the_scheme():
    """Bit for bit, whatever the normals are, where the same operations are compiled one by one."""
    row = np.random.default_rng(0).normal(size=6)
    push = lambda t, state, params: jnp.array([0.1, -0.2, 0.3])
    end = lambda scheme, start, *noise: scheme(BODY, push, 0.0, start, 0.1, None, *noise)
    wanted = end(jq.lie_euler, START)
    for noisy, start in (
        (add_torque_noise(jq.lie_euler, 0.0), START),
        (add_gauss_markov_torque(jq.lie_euler, 0.0, 1.0), disturbed(START)),
    ):
        after = end(noisy, start, row)
        np.testing.assert_array_equal(after.q, wanted.q)
        np.testing.assert_array_equal(after.omega, wanted.omega)


def both(density, deviation, time_constant, scheme=jq.rkmk4):
    return add_gauss_markov_torque(add_torque_noise(scheme, density), deviation, time_constant)


def test_random_torques_nest_and_take_their_normals_in_turn():
    """The outer one, a Gauss-Markov torque, takes the first six; the white one takes the others."""
    scheme = add_gauss_markov_torque(BY_AXIS, DEVIATION, TIME)
    assert scheme.noise(STARTS["Gauss-Markov"]) == 12
    _, momentum, torque = responses(scheme, 1, "Gauss-Markov")(0.25)
    np.testing.assert_array_equal(np.flatnonzero(torque), [2, 12])  # x and the start
    np.testing.assert_array_equal(np.flatnonzero(momentum), [2, 5, 8, 12])
    assert momentum[8] == pytest.approx(0.3 * np.sqrt(0.25), rel=1e-14)


def test_the_facts_are_those_of_the_scheme_but_for_what_noise_spoils():
    for scheme in (jq.lie_euler, jq.zhao, jq.rkmk4, jq.no_squish, jq.schemes.simo_wong):
        white = add_torque_noise(scheme, 0.1)
        coloured = add_gauss_markov_torque(scheme, 0.1, 1.0)
        for noisy in (white, coloured):
            assert noisy.order == min(scheme.order, 2)
            assert (noisy.evaluations, noisy.torques) == (scheme.evaluations, scheme.torques)
            assert noisy.conserves == ("norm",)
            assert noisy.translation == scheme.translation
        assert (white.aux, coloured.aux) == (scheme.aux, True)
        assert (white.reversible, coloured.reversible) == (scheme.reversible, False)
        assert (white.noise(START), coloured.noise(disturbed(START))) == (6, 6)
    damped = jq.schemes.damp(jq.no_squish, 0.4)
    for noisy in (add_torque_noise(damped, 0.1), add_gauss_markov_torque(damped, 0.1, 1.0)):
        assert noisy.decay(BODY) == damped.decay(BODY)


def test_a_torque_sees_its_own_aux_states_and_not_the_disturbance():
    """Wheels keep the sum of the momenta of a ball and of themselves but for the disturbance."""

    def wheels(t, state, params, command):
        assert state.aux.shape == (3,)
        return -command - jnp.cross(state.omega, state.aux), command

    start = disturbed(REST, (0.0, 0.0, 0.5), jnp.zeros(3))
    scheme = add_gauss_markov_torque(jq.rkmk2, 0.0, 1e9)
    grid = jq.grid(0.0, 0.25, 4)
    inputs, noise = jnp.tile(jnp.array([0.0, 0.0, 0.1]), (4, 1)), jnp.zeros((4, 6))
    fly = lambda: jq.rollout(scheme, BALL, wheels, start, grid, inputs=inputs, noise=noise)
    final = jax.jit(fly)().final
    assert 2.0 * final.omega[2] == pytest.approx(0.5 - 0.1, rel=1e-8)
    np.testing.assert_allclose(final.aux.aux, [0.0, 0.0, 0.1], rtol=1e-14)
    np.testing.assert_allclose(final.aux.torque, [0.0, 0.0, 0.5], rtol=1e-8)


def test_the_toward_of_a_damped_scheme_receives_the_command():
    """A strong drag brings the body to the commanded rate, the disturbance shifts it by N/D."""
    toward = lambda t, state, params, command: command
    damped = jq.schemes.damp(jq.lie_euler, 1e3, toward)
    scheme = add_gauss_markov_torque(damped, 0.0, 1e9)
    start, grid = disturbed(REST, (0.0, 0.0, 5.0)), jq.grid(0.0, 0.5, 2)
    inputs, noise = jnp.tile(jnp.array([0.0, 0.0, 0.1]), (2, 1)), jnp.zeros((2, 6))
    push = lambda t, state, params, command: jnp.zeros(3)
    fly = lambda: jq.rollout(scheme, BODY, push, start, grid, inputs=inputs, noise=noise)
    assert jax.jit(fly)().final.omega[2] == pytest.approx(0.1 + 5.0 / 1e3, rel=1e-8)


def test_a_body_that_moves_may_be_shaken():
    body = jq.Body(2.0 * jnp.eye(3), mass=1.0)
    moving = REST._replace(position=jnp.zeros(3), velocity=jnp.array([1.0, 0.0, 0.0]))
    push = lambda t, state, params: jq.Wrench(jnp.zeros(3), jnp.array([0.0, 0.0, -2.0]))
    for scheme, start in (
        (add_torque_noise(jq.no_squish, 0.1), moving),
        (add_gauss_markov_torque(jq.no_squish, 0.1, 1.0), disturbed(moving)),
    ):
        final = scheme(body, push, 0.0, start, 0.5, None, jnp.ones(6))
        np.testing.assert_allclose(final.velocity, [1.0, 0.0, -1.0], rtol=1e-15)
        assert final.omega[0] > 0.01


GRID = jq.grid(0.0, 0.1, 9)
NORMALS = np.random.default_rng(0).normal(size=(9, 12))


def loss(theta, scheme=jq.rkmk4, **options):
    """A number of the end of a path with both torques, by density, deviation and time constant."""
    density, deviation, time_constant = theta
    noisy = both(FACTOR * density, DEVIATION * deviation, time_constant, scheme)
    pull = lambda t, state, params: -0.5 * state.q[1:]
    start = disturbed(START, (0.1, -0.2, 0.3))
    options = {"noise": NORMALS, "save_every": 9, **options}
    final = flat.rollout(noisy, BODY, pull, start, GRID, **options).final
    return jnp.dot(final.q, jnp.arange(4.0)) + jnp.sum(final.aux.torque**2)


@pytest.mark.slow
def test_derivatives_by_all_parameters_are_those_of_differences():
    """Along one path of given noise, also at density and deviation 0, with either checkpointing."""
    value = jax.jit(loss)
    for checkpoint in ("none", "sqrt"):
        slopes = jax.jit(jax.grad(functools.partial(loss, checkpoint=checkpoint)))
        for theta in ([1.0, 0.8, 1.5], [0.0, 0.0, 1.5]):
            theta, h = np.array(theta), 1e-5
            change = h * np.eye(3)
            wanted = [(value(theta + d) - value(theta - d)) / (2 * h) for d in change]
            np.testing.assert_allclose(slopes(theta), wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.slow
@pytest.mark.needs("llvmlite")
def test_both_engines_have_one_path_and_one_derivative():
    keys = jax.random.split(jax.random.key(0), 3)
    theta = np.array([1.0, 0.8, 1.5])

    def run(engine):
        one = lambda key: jax.value_and_grad(loss)(theta, jq.no_squish, noise=key, engine=engine)
        return jax.jit(jax.vmap(one))(keys)

    (by_scan, slopes), (by_kernel, fused) = run("scan"), run("fused")
    np.testing.assert_allclose(by_kernel, by_scan, rtol=1e-12)
    np.testing.assert_allclose(fused, slopes, rtol=1e-10)
    assert np.std(by_scan) > 0.01


@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_a_kernel_has_the_states_of_the_scan_under_a_controller(dtype):
    """White torque; a controller that damps. The density may have another dtype."""
    body, start = (jax.tree.map(lambda x: jnp.asarray(x, dtype), x) for x in (BODY, START))
    loop = jq.Controller(
        lambda start, params: (), lambda t, state, memory, params, _: (-state.omega, memory)
    )

    def final(engine):
        options = {"controller": loop, "sample_every": 3, "save_every": 9, "engine": engine}
        plant, key = jq.torques.commanded, jax.random.key(0)
        fly = lambda: flat.rollout(BY_AXIS, body, plant, start, GRID, noise=key, **options).final
        return jax.jit(fly)()

    scanned, fused = final("scan"), final("fused")
    assert fused.omega.dtype == dtype
    for x, y in zip(scanned[:2], fused[:2], strict=True):
        np.testing.assert_allclose(x, y, atol=20 * np.finfo(dtype).eps)


def test_a_gauss_markov_torque_in_float32_is_that_in_float64():
    def end(dtype):
        start = jax.tree.map(lambda x: jnp.asarray(x, dtype), disturbed(START, (0.1, 0.0, 0.2)))
        body = jax.tree.map(lambda x: jnp.asarray(x, dtype), BODY)
        scheme = add_gauss_markov_torque(jq.lie_euler, DEVIATION, TIME)
        step = lambda row: scheme(body, jq.torques.zero, 0.0, start, 0.01, None, row)
        return jax.jit(step)(jnp.asarray(NORMALS[0, :6]))

    single, double = end(np.float32), end(np.float64)
    assert single.aux.torque.dtype == np.float32
    np.testing.assert_allclose(single.aux.torque, double.aux.torque, rtol=1e-6)
    np.testing.assert_allclose(single.omega, double.omega, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "strong"), [("white", 1.0), ("Gauss-Markov", 2.0)])
def test_the_weak_order_is_2_and_the_strong_order_1_or_2(kind, strong):
    """Under a torque that is curved in the rate, with noise along no principal axes."""
    mean = torque_noise.of_the_mean(kind, jq.rkmk4)
    assert torque_noise.slope(mean) == pytest.approx(2.0, abs=0.1)
    along = torque_noise.along_paths(kind, jq.rkmk4, 200)
    assert torque_noise.slope(along) == pytest.approx(strong, abs=0.1)


def test_a_state_without_a_disturbance_is_refused():
    scheme = add_gauss_markov_torque(jq.no_squish, 0.1, 1.0)
    key = jax.random.key(0)
    for aux, error, words in (
        ((), TypeError, "state.aux: wanted a jq.stochastic.Disturbance, .* got tuple"),
        (Disturbance(jnp.zeros(2)), ValueError, r"state.aux.torque: wanted shape \(3,\), got"),
        (Disturbance(jnp.zeros(3), jnp.zeros(2)), TypeError, "no_squish: wanted a state without"),
    ):
        start = REST._replace(aux=aux)
        with pytest.raises(error, match=words):
            jq.rollout(scheme, BODY, jq.torques.zero, start, GRID, noise=key)


@pytest.mark.parametrize("make", ["brownian", pytest.param("langevin", marks=pytest.mark.slow)])
@pytest.mark.parametrize("x", [0.1, 100.0])
def test_white_torque_under_drag_turns_a_ball_as_its_mobility_says_in_steps_of_any_length(make, x):
    """The torque is constant within a step, so the turn is that of the scalar recursion.

    Normals 1e-6 in each step, one at a time: turns are linear in them and about one axis.
    """
    damping, density, steps, inertia = 1.5, 0.3, 8, 2.0
    dt = x * inertia / damping
    inner = {
        "brownian": lambda: jq.stochastic.brownian(damping, 0.0),
        "langevin": lambda: jq.stochastic.langevin(jq.no_squish, damping, 0.0),
    }[make]()
    scheme = add_torque_noise(inner, density)
    assert scheme.order == 1
    count, unit = scheme.noise(REST), 1e-6
    rows = np.zeros((steps, steps, count))
    rows[range(steps), range(steps), 2] = unit
    end = jax.jit(jax.vmap(lambda rows: after(scheme, BALL, jq.torques.zero, REST, dt, rows).q))
    turns = 2.0 * np.asarray(end(rows))[:, 3] / unit

    decay, relaxation = np.exp(-x), inertia / damping
    wanted = []
    for kicked in range(steps):
        rate = turn = 0.0
        for k in range(steps):
            terminal = density / np.sqrt(dt) / damping * (k == kicked)
            if make == "langevin":
                turn += terminal * dt + relaxation * (1 - decay) * (rate - terminal)
                rate = terminal + decay * (rate - terminal)
            else:
                turn += terminal * dt
        wanted.append(turn)
    np.testing.assert_allclose(turns, wanted, rtol=1e-7, atol=1e-7 * np.max(wanted))
    mobility = density**2 * dt * steps / damping**2
    if make == "brownian" or x > 1:
        assert np.sum(turns**2) == pytest.approx(mobility, rel=0.03)


def test_drag_is_found_within_other_schemes():
    """Compositions and Gauss-Markov torques of it have it, too: three normals, weak order 1."""
    drag = jq.schemes.damp(jq.no_squish, 0.1)
    inner = add_gauss_markov_torque(drag, 0.1, 1.0)
    assert add_torque_noise(inner, 0.1).noise(disturbed(REST)) == 3 + 6
    assert (
        add_torque_noise(jq.schemes.compose(drag, jq.schemes.weights.SUZUKI4), 0.1).noise(REST) == 3
    )
    assert add_torque_noise(jq.no_squish, 0.1).noise(REST) == 6


def test_a_scheme_whose_rate_is_no_omega_is_refused():
    start = jq.schemes.hoffmann.full_quat_start(REST.q, REST.omega)
    scheme = add_torque_noise(jq.schemes.full_quat_corrected, 0.1)
    with pytest.raises(TypeError, match=r"state\.aux: add_torque_noise wanted none because"):
        jq.rollout(scheme, BODY, jq.torques.zero, start, GRID, noise=jax.random.key(0))


TRACED = {
    "density": lambda x: add_torque_noise(jq.lie_euler, x),
    "deviation": lambda x: add_gauss_markov_torque(jq.lie_euler, x, 1.0),
    "time_constant": lambda x: add_gauss_markov_torque(jq.lie_euler, 0.1, x),
    "damping": lambda x: add_torque_noise(jq.schemes.damp(jq.lie_euler, x), 0.1),
    "damping of a composition": lambda x: add_torque_noise(
        jq.schemes.compose(jq.schemes.damp(jq.lie_euler, x), [0.5, 0.5]), 0.1
    ),
}


@pytest.mark.parametrize("name", some(TRACED, ["density", "deviation", "damping of a composition"]))
def test_check_reports_traced_arguments_of_these_schemes_and_of_those_within(name):
    def run(x):
        scheme = TRACED[name](x)
        start = disturbed(REST) if name in ("deviation", "time_constant") else REST
        noise = jnp.zeros((1, scheme.noise(start)))
        grid = jq.grid(0.0, 0.1, 1)
        return jq.rollout(
            scheme,
            BODY,
            jq.torques.zero,
            start,
            grid,
            noise=noise,
            options=jq.RolloutOptions(check=True),
        ).t

    checked = jax.jit(checkify.checkify(run))
    assert checked(0.5)[0].get() is None
    assert f"{name.split()[0]}: wanted" in checked(-0.5)[0].get()
