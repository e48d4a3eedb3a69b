"""Translation with noise: Gaussian displacement and velocity, traps, diffusion of rods, limits."""

import functools

import flat
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg
from jax import lax
from marks import some

import jaxquat as jq
from examples.validation import problems

MOMENTS, MASS = np.array([1.0, 2.0, 2.5]), 1.5  # kg m^2, kg
BODY = jq.Body.from_principal(jnp.asarray(MOMENTS), mass=MASS)
DAMPING, RESISTANCE = np.array([1.0, 2.0, 1.5]), np.array([0.8, 2.0, 1.2])  # N m s, N s/m
WIND = jnp.array([0.3, -0.2, 0.1])
Q = np.array([0.8, 0.0, 0.48, -0.36])
START = jq.State(*map(jnp.asarray, (Q, [0.1, -0.2, 0.3])), (), jnp.ones(3), jnp.arange(3.0) - 1.0)
EPS = {jnp.float32: 2.0**-23, jnp.float64: 2.0**-52}
CASES = [(make, dtype) for make in ("langevin", "brownian") for dtype in EPS]
BOTH = [(make, engine, dtype) for make, dtype in CASES for engine in ("scan", "fused")]
QUICK = [("langevin", "scan", jnp.float64)]


def made(make, temperature=0.3, resistance=RESISTANCE, wind=None, damping=DAMPING):
    heat = jnp.asarray(temperature)
    damping, resistance = (jnp.asarray(x, heat.dtype) for x in (damping, resistance))
    if make == "brownian":
        return jq.stochastic.brownian(damping, heat, resistance=resistance, wind=wind)
    return jq.stochastic.langevin(jq.no_squish, damping, heat, resistance=resistance, wind=wind)


def cast(tree, dtype):
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


def exact_step(x):
    """exp(-x), m, and the covariances of velocity and displacement, with 60 digits.

    The velocity is in units of sqrt(kT/m), the displacement in those times dt (Chandrasekhar 1943,
    section II.2; Ermak and Buckholz 1980).
    """
    with mpmath.workdps(60):
        x = mpmath.mpf(float(x))
        e = mpmath.exp(-x)
        spread = (2 * x - 3 + 4 * e - e * e) / x**2
        return [float(y) for y in (e, (1 - e) / x, 1 - e * e, (1 - e) ** 2 / x, spread)]


@pytest.mark.parametrize("dtype", some(EPS, [jnp.float64]))
def test_displacement_and_velocity_have_the_joint_distribution_of_chandrasekhar(dtype):
    """A nanometre's particle of 1e-30 kg, whose relaxation time is 1e-10 s, at 290 K.

    dt resistance/m is 1e-15 to 1e14 along the first axis, 2 and 1/2 times that along the others.
    The map from (velocity, normals) to (displacement, velocity) is linear.
    """
    mass, kT, shape = 1e-30, 4e-21, np.array([1.0, 2.0, 0.5])
    body = jq.Body.from_principal(cast(MOMENTS, dtype) * 1e-30, mass=dtype(mass))
    scheme = made("langevin", dtype(kT), 1e-20 * shape, damping=1e-20 * DAMPING)
    still = cast(START, dtype)._replace(omega=jnp.zeros(3, dtype), position=jnp.zeros(3, dtype))
    axes = np.asarray(jq.quaternion.to_matrix(Q))

    def step(dt, unit):
        noise = jnp.concatenate([jnp.zeros(6, dtype), unit[3:]])
        state = still._replace(velocity=unit[:3])
        after = scheme.step(body, jq.torques.zero, 0.0, state, dt, None, noise)
        return after.position, after.velocity

    x = np.array([1e-15, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 7.0, 40.0, 1e3, 1e6, 1e14])
    columns = jax.jit(jax.vmap(jax.vmap(step, (None, 0)), (0, None)))
    both = columns(cast(1e-10 * x, dtype), jnp.eye(9, dtype=dtype))
    moved, moving = (axes.T @ np.swapaxes(np.asarray(a, float), 1, 2) for a in both)  # body axes
    thermal, tolerance = np.sqrt(kT / mass), 30 * EPS[dtype]
    for k in range(len(x)):
        dt = float(dtype(1e-10 * x[k]))
        exact = np.array([exact_step(a) for a in dt / 1e-10 * shape])
        close = functools.partial(np.testing.assert_allclose, rtol=tolerance)
        close(moving[k, :, :3] @ axes, np.diag(exact[:, 0]), atol=tolerance)
        close(moved[k, :, :3] @ axes / dt, np.diag(exact[:, 1]), atol=tolerance * exact[0, 1])
        shift, kick = moved[k, :, 3:] / (thermal * dt), moving[k, :, 3:] / thermal
        for a, b, column in ((kick, kick, 2), (shift, kick, 3), (shift, shift, 4)):
            wanted = np.diag(exact[:, column])
            close(a @ b.T, wanted, rtol=3 * tolerance, atol=3 * tolerance * wanted.max())


@functools.partial(jax.jit, static_argnums=0)
@functools.partial(jax.vmap, in_axes=(None, 0, None))
def trapped(make, dt, strength):
    """The matrices of a step of (position, velocity) in a trap of 2 N/m, and of its normals."""

    def step(unit):
        scheme = made(make, 1.0, strength)
        trap = lambda t, state, params: jq.Wrench(jnp.zeros(3), -2.0 * state.position)
        state = jq.State(jnp.eye(4)[0], jnp.zeros(3), (), unit[:3], unit[3:6])
        noise = jnp.zeros(scheme.step.noise(state))
        noise = noise.at[noise.size // 2 :].set(unit[6 : 6 + noise.size // 2])
        after = scheme.step(BODY, trap, 0.0, state, dt, None, noise)
        return jnp.concatenate([after.position, after.velocity])

    columns = jax.vmap(step)(jnp.eye(12)).T
    return columns[:, :6], columns[:, 6:]


def stationary(make, dts, strength):
    """The mean squares of position and velocity that a step keeps, with kT = 1 J."""
    pairs = zip(*map(np.asarray, trapped(make, jnp.asarray(dts), strength)), strict=True)
    heat = [np.diag(scipy.linalg.solve_discrete_lyapunov(a, b @ b.T)) for a, b in pairs]
    return np.array(heat)[:, :3], np.array(heat)[:, 3:]


def test_a_particle_in_a_trap_has_the_temperature_up_to_dt_squared():
    """``k <x^2>/kT`` is 1 + k dt^2/(6 m), and ``m <v^2>/kT`` is 1 - k dt^2/(12 m), at weak drag.

    There a step is one of Verlet, which keeps ``m v^2 + (1 - h^2/4) k x^2`` with ``h^2 = k dt^2/m``
    and mean parts that are equal. Drag makes it fall by ``x (1 - h^2/12)``, the determinant's
    change, and noise, to which the force at the end adds, makes it rise by ``2 kT x (1 - h^2/6)``.
    """
    dts = np.array([0.2, 0.1, 0.05, 0.025])
    place, velocity = stationary("langevin", dts, np.array([0.03, 0.3, 3.0]))
    for heat, share in ((2.0 * place, 1 / 6), (MASS * velocity, -1 / 12)):
        bias = heat - 1.0
        slopes = np.log2(bias[:-1] / bias[1:])
        np.testing.assert_allclose(slopes, 2.0, atol=0.1)
        np.testing.assert_allclose(slopes[-1], 2.0, atol=0.02)
        np.testing.assert_allclose(bias[-1, 0], share * 2.0 / MASS * dts[-1] ** 2, rtol=2e-3)


@pytest.mark.parametrize("make", ["langevin", "brownian"])
def test_a_trap_in_steps_that_forget_the_velocity_is_that_of_brownian_motion(make):
    """``k <x^2> = kT/(1 - k dt/(2 resistance))``, that of Euler and Maruyama's method.

    The relaxation time is 1e-9 of a step.
    """
    resistance, dts = 1e5 * np.array([1.0, 10.0, 100.0]), 1e4 * np.array([1.0, 2.0, 3.0, 5.0])
    place, _ = stationary(make, dts, resistance)
    wanted = 1.0 / (1.0 - dts[:, None] / resistance)
    np.testing.assert_allclose(2.0 * place, wanted, rtol=4e-9 if make == "langevin" else 1e-13)


X = (1e-3, 0.1, 1.0, 5.0, 20.0, 1e2, 1e4, 1e6, 1e8)  # step over relaxation time


@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize(("make", "engine", "dtype"), some(BOTH, QUICK))
def test_a_settling_particle_keeps_its_terminal_velocity(make, engine, dtype):
    """``v = wind + R K^-1 R^T weight``, whatever x, and 20 steps of 0.1 move it by 2 v."""
    body = jq.Body.from_principal(jnp.ones(3, dtype), mass=jnp.asarray(1e-3, dtype))
    q, speeds = cast((jq.quaternion.exp(jnp.array([0.4, -0.7, 0.2])), [0.5, -0.3, 0.8]), dtype)
    speeds = jnp.stack(speeds)
    air = jnp.asarray(WIND, dtype)
    velocity = air + jq.quaternion.rotate(q, speeds)
    start = jq.State(q, jnp.zeros(3, dtype), (), jnp.zeros(3, dtype), velocity)

    def last(x):
        resistance = x * 1e-3 / 0.1 * jnp.array([1.0, 2.0, 0.5], dtype)

        def weight(t, state, params):
            force = jq.quaternion.rotate(state.q, resistance * speeds)
            return jq.Wrench(jnp.zeros(3, dtype), force)

        scheme = made(make, dtype(0.0), resistance, lambda t, position: air)
        noise, grid = jnp.zeros((20, scheme.noise(start)), dtype), jq.grid(0.0, 0.1, 20)
        path = jq.rollout(
            scheme, body, weight, start, grid, noise=noise, options=jq.RolloutOptions(engine=engine)
        )
        return path.final.velocity, path.final.position

    speed, place = jax.jit(jax.vmap(last))(jnp.array(X, dtype))
    wanted = np.broadcast_to(np.asarray(velocity, float), (len(X), 3))
    np.testing.assert_allclose(speed, wanted, rtol=0, atol=20 * EPS[dtype])
    np.testing.assert_allclose(place, 2 * wanted, rtol=0, atol=40 * EPS[dtype])


@pytest.mark.slow
def test_without_heat_it_is_a_drag_of_order_2_as_damped_is():
    """A turning body in a trap and a shear flow, whose axes differ in resistance.

    The reference is rkmk4 with the same drags as torque and force. In steps that forget the
    velocity the order is 1, as that of ``damp``.
    """

    def load(t, state, params):
        level = jq.quaternion.rotate_inverse(state.q, jnp.array([0.0, 0.0, 1.0]))
        tau = jnp.array([0.3, -0.2, 0.5]) * jnp.sin(3.0 * t) + jnp.cross(level, jnp.eye(3)[0])
        return jq.Wrench(tau, jnp.array([0.2, 0.5, -0.3]) * jnp.cos(t) - state.position)

    wind = lambda t, position: WIND + 0.3 * jnp.sin(t) * jnp.roll(position, 1)
    local = jax.jit(jq.dynamics.local)

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def end(scheme, steps, strength):
        damping, resistance = strength * DAMPING, strength * RESISTANCE
        torque, options = load, {}
        if scheme == "langevin":
            step = made(scheme, 0.0, resistance, wind, damping)
            options = {"noise": jnp.zeros((steps, 12))}
        elif scheme == "damped":
            drags = {"resistance": resistance, "wind": wind}
            step = jq.schemes.damp(jq.no_squish, damping, **drags)
        else:
            step = jq.rkmk4
            drag = jq.forces.linear_drag(resistance, wind)
            torque = jq.torques.total(load, jq.torques.drag(damping), drag)
        grid = jq.grid(0.0, 2.0 / steps, steps)
        return flat.rollout(
            step, BODY, torque, START, grid, options=jq.RolloutOptions(engine="scan"), **options
        ).final

    for strength, order, many in ((1.0, 2, 1000), (1e3, 1, 20000)):
        reference, steps = end("rkmk4", many, strength), np.array([20, 40, 80])
        errors = {}
        for scheme in ("langevin", "damped"):
            ends = [end(scheme, n, strength) for n in steps.tolist()]
            errors[scheme] = np.array([np.linalg.norm(local(reference, e)[6:]) for e in ends])
            assert abs(problems.slope(steps, errors[scheme]) - order) < 0.15, scheme
        assert np.all(errors["langevin"] < 2.0 * errors["damped"])


def many(scheme, body, torque, starts, dt, steps, save):
    """``save(state)`` after each step of many bodies, each with noise of its own."""
    count = scheme.step.noise(starts)

    def one(key, start):
        def step(state, k):
            noise = jax.random.normal(jax.random.fold_in(key, k), (count,))
            after = scheme.step(body, torque, 0.0, state, dt, None, noise)
            return after, save(after)

        return lax.scan(step, start, jnp.arange(steps))[1]

    keys = jax.random.split(jax.random.key(5), len(starts.q))
    return jax.jit(jax.vmap(one))(keys, starts)


@pytest.mark.slow
@pytest.mark.parametrize("x", [0.3, 30.0])
def test_turning_bodies_have_the_temperature_along_each_axis(x):
    """``m <v_i^2> = kT`` in world axes, whatever the step, although the resistance turns."""
    bodies, steps, kT = 1000, 100, 0.02 / x
    draw = np.random.default_rng(0).normal
    q = draw(size=(bodies, 4))
    starts = jq.State(
        jnp.asarray(q / np.linalg.norm(q, axis=1, keepdims=True)),
        jnp.asarray(draw(size=(bodies, 3)) * np.sqrt(kT / MOMENTS)),
        (),
        jnp.zeros((bodies, 3)),
        jnp.asarray(draw(size=(bodies, 3)) * np.sqrt(kT / MASS)),
    )
    dt = x * MASS / RESISTANCE[0]
    scheme = made("langevin", kT)
    speeds = many(scheme, BODY, jq.torques.zero, starts, dt, steps, lambda s: s.velocity)
    heat = MASS * np.mean(np.asarray(speeds) ** 2, axis=(0, 1)) / kT
    independent = bodies * (1.0 + steps * min(x, 2.0) / 2.0)
    assert np.all(np.abs(heat - 1.0) < 4.0 * np.sqrt(2.0 / independent))


@pytest.mark.slow
@pytest.mark.parametrize("make", ["brownian", "langevin"])
def test_a_rod_diffuses_along_its_axis_first_and_then_alike_in_all_directions(make):
    """Y. Han et al., Science 314, 2006, 626-630, here in three dimensions.

    The mobility is anisotropic by a tensor of rank 2, which decays with 6 D_r. So along the initial
    axis the mean square is ``2 (tr D/3) t + 4/3 (D_l - D_t) tau``, and across it, per axis,
    ``2 (tr D/3) t - 2/3 (D_l - D_t) tau``, ``tau = (1 - exp(-6 D_r t))/(6 D_r)``. A step keeps the
    mobility at its start, which lengthens tau by about 3 D_r dt, here 0.6 per cent. That of
    langevin takes that halfway, with a step of 400 relaxation times. There is no drift.
    """
    bodies, dt, marks = 4000, 2e-3, [0, 24, 99, 399]
    along, across, spin = 4.0, 1.0, 1.0  # m^2/s, 1/s, with kT = 1 J
    zeros = jnp.zeros((bodies, 3))
    starts = jq.State(jnp.tile(jnp.asarray(Q), (bodies, 1)), zeros, (), zeros, zeros)
    body = jq.Body.from_principal(jnp.full(3, 5e-6), mass=5e-6)
    resistance = 1.0 / np.array([across, across, along])
    scheme = made(make, 1.0, resistance, damping=np.full(3, 1.0 / spin))
    save = lambda state: state.position
    places = many(scheme, body, jq.torques.zero, starts, dt, max(marks) + 1, save)
    rows = np.asarray(places)[:, marks] @ np.asarray(jq.quaternion.to_matrix(Q))
    t = dt * (np.array(marks) + 1.0)
    tau = (1.0 - np.exp(-6.0 * spin * t)) / (6.0 * spin)
    mean = 2.0 * (along + 2.0 * across) / 3.0 * t
    excess = (along - across) * tau
    wanted = np.stack([mean - excess / 1.5, mean - excess / 1.5, mean + excess / 0.75], axis=1)
    squares = np.mean(rows**2, axis=0)
    error = np.std(rows**2, axis=0) / np.sqrt(bodies)
    assert np.all(np.abs(squares - wanted) < 4.0 * error + 0.01 * excess[:, None])
    whole = np.sum(rows**2, axis=2)
    error = np.std(whole, axis=0) / np.sqrt(bodies)
    np.testing.assert_array_less(np.abs(whole.mean(axis=0) - 3.0 * mean), 4.0 * error + 5e-3 * mean)
    drift = np.abs(rows.mean(axis=0))
    assert np.all(drift < 4.0 * np.sqrt(wanted / bodies))


@pytest.mark.parametrize(("make", "dtype"), some(CASES, [("brownian", jnp.float64)]))
def test_units_of_mass_change_nothing(make, dtype):
    """A power of two scales inertia, mass, both drags, both loads and temperature alike."""
    noise = cast(np.random.default_rng(0).normal(size=12), dtype)
    start = cast(START, dtype)

    def after(unit):
        one = lambda x: unit * jnp.asarray(x, dtype)
        body = jq.Body.from_principal(one(MOMENTS), mass=one(MASS))
        load = lambda t, state, params: jq.Wrench(one([0.1, 0.2, -0.3]), one([0.2, -0.4, 0.1]))
        scheme = made(make, one(0.3), one(RESISTANCE), WIND, one(DAMPING))
        numbers = noise[: scheme.step.noise(start)]
        return scheme.step(body, load, 0.0, start, dtype(0.1), None, numbers)

    states = jax.jit(jax.vmap(after))(cast(2.0 ** np.array([0, -100, -50, 50, 100]), dtype))
    for rows in (states.q, states.omega, states.position, states.velocity):
        assert rows.dtype == dtype
        assert np.abs(rows - rows[:1]).max() <= 8 * EPS[dtype]


@pytest.mark.slow
@pytest.mark.parametrize("make", ["langevin", "brownian"])
def test_derivatives_by_resistance_and_temperature_are_those_of_differences(make):
    """Along one path of given noise; a resistance that is equal along all axes is no exception."""
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(5, 12)))
    change = jnp.array([0.2, -0.1, 0.3])
    trap = lambda t, state, params: jq.Wrench(jnp.zeros(3), -state.position)

    def end(resistance, kT):
        scheme = made(make, kT, resistance)
        count = scheme.step.noise(START)

        def step(state, row):
            return scheme.step(BODY, trap, 0.0, state, 0.3, None, row[:count]), None

        state = lax.scan(step, START, noise)[0]
        return jnp.sum(state.position * jnp.arange(1.0, 4.0)) + jnp.sum(state.velocity**2)

    evaluate = jax.jit(lambda resistance, h: end(resistance + h * change, 0.2 + 0.5 * h))
    slope = jax.jit(jax.grad(end, (0, 1)))
    for resistance in (jnp.asarray(RESISTANCE), jnp.full(3, 1.5)):
        by_resistance, by_temperature = slope(resistance, 0.2)
        derivative = float(jnp.sum(by_resistance * change) + 0.5 * by_temperature)
        difference = float((evaluate(resistance, 1e-5) - evaluate(resistance, -1e-5)) / 2e-5)
        assert derivative == pytest.approx(difference, rel=1e-7)


@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize(("make", "dtype"), some(CASES, [("brownian", jnp.float64)]))
def test_both_engines_have_one_path_and_one_derivative_for_each_key(make, dtype):
    """Many bodies under vmap, each with a key; one alone has the same path."""
    body, start, grid = cast(BODY, dtype), cast(START, dtype), jq.grid(0.0, 0.1, 20, save_every=20)

    def weight(t, state, params):
        along = jq.quaternion.rotate(state.q, jnp.array([0.0, 0.0, 0.2], dtype))
        return jq.Wrench(jnp.array([0.1, 0.0, 0.0], dtype), along - state.position)

    def end(resistance, key, engine):
        scheme = made(make, dtype(0.3), resistance, WIND)
        path = jq.rollout(
            scheme,
            body,
            weight,
            start,
            grid,
            noise=key,
            options=jq.RolloutOptions(engine=engine),
        )
        final = path.final
        return jnp.sum(final.position * final.velocity + final.q[1:]), final

    keys, resistance = jax.random.split(jax.random.key(0), 3), jnp.asarray(RESISTANCE, dtype)
    slopes = {
        engine: jax.grad(functools.partial(end, engine=engine), has_aux=True)
        for engine in ("scan", "fused")
    }
    (by_scan, scanned), (by_kernel, fused) = (
        jax.jit(jax.vmap(slope, (None, 0)))(resistance, keys) for slope in slopes.values()
    )
    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=200 * EPS[dtype])
    jax.tree.map(close, fused, scanned)
    np.testing.assert_allclose(by_kernel, by_scan, rtol=0, atol=2000 * EPS[dtype])
    _, alone = jax.jit(functools.partial(end, engine="fused"))(resistance, keys[1])
    jax.tree.map(lambda a, b: close(a, b[1]), alone, fused)
    assert np.std(by_scan, axis=0).min() > 0.01


def test_a_state_and_a_resistance_go_together():
    resting = jq.State(START.q, START.omega)
    trace = lambda scheme, body, load, *rest: jax.eval_shape(
        lambda rest: scheme(body, load, *rest), rest
    )
    for make, numbers in (("langevin", (12, 6)), ("brownian", (6, 3))):
        free = (
            jq.stochastic.brownian(DAMPING, 0.3)
            if make == "brownian"
            else jq.stochastic.langevin(jq.no_squish, DAMPING, 0.3)
        )
        moving, noise = made(make), jnp.zeros(numbers[0])
        assert (moving.noise(START), free.noise(resting)) == numbers
        assert (moving.translation, free.translation) == (True, False)
        with pytest.raises(TypeError, match=f"^resistance: {make} wanted one because the state"):
            free.noise(START)
        with pytest.raises(TypeError, match=f"^state: {make} wanted position and velocity because"):
            moving.step(BODY, jq.torques.zero, 0.0, resting, 0.1, None, noise)
        pair = lambda t, state, params: (jnp.zeros(3), state.aux)
        with pytest.raises(TypeError, match=f"^{make}: wanted a state without aux"):
            trace(moving, BODY, pair, 0.0, START._replace(aux=jnp.zeros(2)), 0.1, None, noise)
        with pytest.raises(TypeError, match=f"^{make}: wanted a torque of .*reads state.velocity"):
            trace(moving, BODY, jq.forces.linear_drag(1.0), 0.0, START, 0.1, None, noise)
        with pytest.raises(ValueError, match=r"^resistance: wanted positive values, got \[1. 0. 1"):
            made(make, resistance=np.array([1.0, 0.0, 1.0]))
