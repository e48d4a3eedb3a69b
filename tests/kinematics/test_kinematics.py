"""Attitude from rates: orders on coning and on constant acceleration, derivatives, bad input."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from examples.validation import problems
from jaxquat import kinematics, quaternion
from jaxquat.kinematics.magnus_expansion import NODES, expansion, magnus_vector, product

IDENTITY = jnp.array([1.0, 0.0, 0.0, 0.0])
HALF_ANGLE, SPIN = 0.3, 4.0  # methods: coning with b = 0.6 and W = 4


@jax.jit
def coning(t):
    c, s = np.cos(HALF_ANGLE), np.sin(HALF_ANGLE)
    return jnp.stack([c + 0 * t, s * jnp.cos(SPIN * t), s * jnp.sin(SPIN * t), 0 * t], axis=-1)


@jax.jit
def off(q, t):
    """The largest distance of attitudes from those of the motion [rad]."""
    return jnp.max(quaternion.distance(q, coning(t)))


def coning_rate(t, params):
    sine, versine = np.sin(2 * HALF_ANGLE), 1 - np.cos(2 * HALF_ANGLE)
    return SPIN * jnp.stack(
        [-sine * jnp.sin(SPIN * t), sine * jnp.cos(SPIN * t), -versine + 0 * t], axis=-1
    )


def slopes_and_differences(f, x, mode, h):
    """The Jacobian of f at x, and central differences, by one program."""
    run = jax.jit(getattr(jax, mode)(lambda x: (f(x),) * 2, has_aux=True))
    at = [[run(x + n * h * unit)[1] for n in (-2, -1, 1, 2)] for unit in np.eye(x.size)]
    rows = [(8 * (above - below) - (far - back)) / (12 * h) for back, below, above, far in at]
    return run(x)[0], np.stack(rows, axis=1)


distance = jax.jit(quaternion.distance)


def angle(p, q):
    return float(distance(p, q))


def by_nodes(rate, q0, dt, n, order):
    """The attitudes after n steps of the expansion, from rates at the Gauss nodes."""
    starts = dt * np.arange(n)

    @jax.jit
    def run(q0):
        rates = [jax.vmap(lambda t: rate(t, None))(starts + node * dt) for node in NODES[order]]
        return product(q0, expansion(rates, dt))

    return run(q0)


@pytest.mark.parametrize(("order", "printed"), [(2, "2.6e-02"), (4, "4.8e-05"), (6, "1.1e-06")])
def test_the_expansion_on_coning_has_its_order(order, printed):
    """The slope is the order, and the error at h = 0.1 is that of methods.md, to its digits."""
    counts = np.array([30, 120])
    errors = []
    for n in counts:
        q = by_nodes(coning_rate, coning(0.0), 3.0 / n, n, order)
        assert q.shape == (n + 1, 4)
        assert np.abs(np.linalg.norm(q, axis=1) - 1).max() < 1e-15
        errors.append(angle(q[-1], coning(3.0)))
    assert f"{errors[0]:.1e}" == printed
    assert abs(-problems.slope(3.0 / counts, np.array(errors)) - order) < 0.1


def pulled(t, q, params):
    """A rate that depends on the attitude, of which coning is still a solution."""
    pull = params * jnp.stack([jnp.cos(t), jnp.sin(3 * t), 0.5 + t])
    difference = quaternion.rotate_inverse(q, pull) - quaternion.rotate_inverse(coning(t), pull)
    return coning_rate(t, None) + difference


@pytest.mark.parametrize(
    ("given_times", "order"),
    [
        *some([(True, 4), (True, 6), (False, 2), (False, 4)], [(True, 4)]),
        *(
            pytest.param(*x, marks=[pytest.mark.slow, pytest.mark.weekly])
            for x in ((True, 2), (False, 6))
        ),
    ],
)
def test_a_rollout_of_attitude_has_its_order(order, given_times):
    counts, errors = np.array([20, 80]), []
    for n in counts:
        grid = jq.grid(0.0, 2.0 / n, int(n))
        if given_times:
            grid = jq.grid_at(np.array([0.0, 0.7, 0.9, 2.0]), int(n) // 3)
        run = functools.partial(kinematics.rollout_of_attitude, pulled, grid=grid, order=order)
        t, q = jax.jit(run)(coning(0.0), params=2.0)
        assert q.shape == (grid.intervals + 1, 4)
        assert np.abs(np.linalg.norm(q, axis=1) - 1).max() < 1e-15
        errors.append(float(off(q, t)))
    assert min(errors) > 1e-13
    steps = counts // 3 if given_times else counts
    assert abs(-problems.slope(1.0 / steps, np.array(errors)) - order) < 0.25


@pytest.mark.parametrize(
    "engine", ["scan", pytest.param("fused", marks=pytest.mark.needs("llvmlite"))]
)
def test_a_rollout_of_attitude_takes_inputs_and_saves_every_so_many_intervals(engine):
    """Rates about z that are held over each interval turn by their sum; its slope is the step."""
    rates = jnp.array([0.5, -1.0, 2.0, 0.25, 1.5, 0.75])
    rate = lambda t, q, scale, held: scale * held * jnp.array([0.0, 0.0, 1.0])

    def turned(rates):
        t, q = kinematics.rollout_of_attitude(
            rate, IDENTITY, jq.grid(0.0, 0.1, 6, save_every=2), 2.0,
            order=2, inputs=rates, engine=engine,
        )  # fmt: skip
        angles = quaternion.log(q)[:, 2]
        return angles, (t, angles)

    slopes, (t, angles) = jax.jit(jax.jacrev(turned, has_aux=True))(rates)
    np.testing.assert_allclose(t, [0.0, 0.2, 0.4, 0.6], rtol=1e-15)
    np.testing.assert_allclose(angles, [0.0, -0.1, 0.35, 0.8], rtol=0, atol=1e-15)
    np.testing.assert_allclose(slopes[3], 0.2 * np.ones(6), rtol=1e-14)
    np.testing.assert_allclose(slopes[1], [0.2, 0.2, 0, 0, 0, 0], rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("dtype", "substeps", "limit"),
    some([(jnp.float32, 40, 4e-5), (jnp.float64, 160, 1e-9)], [(jnp.float64, 160, 1e-9)]),
)
def test_a_spheroid_without_inertia_follows_the_orbit_of_jeffery(dtype, substeps, limit):
    """To three roundings of b in float32.

    One shifts the phase of a turn by ``2 pi eps/2 (r^2 + 1)/4``, and where the axis is fastest it
    moves r times as fast as the phase: 1.2e-5. Its axis is ``exp((W + b E) t) p0``, made unit, with
    b = (r^2 - 1)/(r^2 + 1).

    In a shear of 1/s, ``(x, y)`` of this turn at ``1/(r + 1/r)`` on an ellipse of ratio r.
    """
    r, q0 = 5.0, quaternion.exp(jnp.array([0.8, -0.4, 0.3], dtype))
    shear = jnp.zeros((3, 3), dtype).at[0, 1].set(1.0)
    jeffery = jq.flow.jeffery_rate(jnp.array([1.0, 1.0, r], dtype), shear)
    times = (r + 1 / r) * np.linspace(0.0, 2.0 * np.pi, 9)
    run = lambda: kinematics.rollout_of_attitude(jeffery, q0, jq.grid_at(times, substeps), order=6)
    axes = quaternion.rotate(jax.jit(run)().q, jnp.array([0.0, 0.0, 1.0], dtype))
    assert axes.dtype == dtype
    phase, (x, y, z) = times / (r + 1 / r), np.asarray(axes[0], float)
    moved = np.stack(
        [
            x * np.cos(phase) + r * y * np.sin(phase),
            y * np.cos(phase) - x / r * np.sin(phase),
            z + 0 * phase,
        ],
        axis=-1,
    )
    wanted = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    np.testing.assert_allclose(axes, wanted, rtol=0, atol=limit)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["jacfwd", "jacrev"])
def test_gradients_of_a_rollout_of_attitude_are_those_of_central_differences(mode):
    """By start, parameters and times; the last interval is empty, and the rate singular there."""

    def last(x):
        times = jnp.concatenate([jnp.zeros(1), x[3:5], jnp.full(2, 0.7)])
        rate = lambda t, q, p: pulled(t, q, p[:3]) + p[3] * jnp.sqrt(0.7 - t)
        grid = jq.grid_at(times, 2)
        path = kinematics.rollout_of_attitude(rate, quaternion.exp(x[:3]), grid, x[5:], order=2)
        return jnp.ravel(path.q[1:])

    x = jnp.array([0.1, 0.2, 0.3, 0.2, 0.5, 1.0, -0.5, 2.0, 0.3])
    slopes, central = slopes_and_differences(last, x, mode, 2e-4)
    np.testing.assert_allclose(slopes, central, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(slopes[-4:], slopes[-8:-4])


@pytest.mark.slow
@pytest.mark.parametrize("order", [2, 4, 6])
def test_the_integral_of_samples_has_its_order_in_their_spacing(order):
    """The largest error is that of every sample: the ends are no worse than the middle."""
    counts = np.array([60, 240])
    errors = []
    for n in counts:
        t = jnp.linspace(0.0, 3.0, n + 1)
        run = functools.partial(kinematics.integrate, dt=3.0 / n, order=order)
        q = jax.jit(run)(coning(0.0), coning_rate(t, None))
        assert q.shape == (n + 1, 4)
        errors.append(float(off(q, t)))
    assert abs(-problems.slope(3.0 / counts, np.array(errors)) - order) < 0.15


@pytest.mark.parametrize("order", [2, 4, 6])
def test_samples_of_a_polynomial_are_read_exactly(order):
    """A rate of degree order - 1 about a fixed axis is integrated exactly, up to both ends."""
    axis, powers = jnp.array([0.48, -0.6, 0.64]), np.arange(order)
    t = np.linspace(0.0, 1.0, 9)
    rate = sum((k + 1.0) * t**k for k in powers)
    turned = sum(t ** (k + 1.0) for k in powers)

    @jax.jit
    def run(rate, turned):
        got = kinematics.integrate(IDENTITY, rate[:, None] * axis[None], 0.125, order=order)
        return got, quaternion.exp(turned[:, None] * axis[None])

    np.testing.assert_allclose(*run(rate, turned), rtol=0, atol=2e-15)


OMEGA, ALPHA = jnp.array([1.0, -2.0, 1.5]), jnp.array([2.0, 1.0, -3.0])


@functools.cache
def accelerated():
    """The attitude after 2 s of constant acceleration, to 1e-13.

    It is that of the expansion of order 6 with steps of 1/400 s.
    """
    return by_nodes(lambda t, p: OMEGA + ALPHA * t, IDENTITY, 0.0025, 800, 6)[-1]


@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_magnus_on_constant_acceleration_has_its_order(order):
    counts = np.array([8, 16, 32])
    step = jax.jit(lambda q, t, h: kinematics.magnus(q, OMEGA + ALPHA * t, ALPHA, h, order=order))
    errors = []
    for n in counts:
        q, h = IDENTITY, 2.0 / n
        for k in range(n):
            q = step(q, k * h, h)
        errors.append(angle(q, accelerated()))
    assert errors[-1] > 1e-12
    assert abs(-problems.slope(2.0 / counts, np.array(errors)) - order) < 0.15


def test_the_third_term_of_magnus_alone_does_not_raise_the_order():
    """Without its partner, h^5 W/720 alpha x wm, the order stays that of the first two terms, 4."""

    @jax.jit
    def step(q, omega, h):
        middle = omega + 0.5 * h * ALPHA
        partner = h**5 / 720 * jnp.dot(middle, middle) * jnp.cross(ALPHA, middle)
        turn = magnus_vector(omega, ALPHA, h[None], 6) + partner  # there its sign is minus
        return quaternion.multiply(q, quaternion.exp(turn))

    counts, errors = np.array([8, 16, 32]), []
    for n in counts:
        q, h = IDENTITY, jnp.asarray(2.0 / n)
        for k in range(n):
            q = step(q, OMEGA + ALPHA * (k * h), h)
        errors.append(angle(q, accelerated()))
    assert abs(-problems.slope(2.0 / counts, np.array(errors)) - 4) < 0.15


def test_magnus_about_a_fixed_axis_is_exact_at_every_order():
    axis = jnp.array([0.48, -0.6, 0.64])
    arguments = IDENTITY, 3.0 * axis, -2.0 * axis, 0.7
    by_order = lambda: [kinematics.magnus(*arguments, order=order) for order in (2, 4, 6, 8)]
    wanted = quaternion.exp((3.0 * 0.7 - 0.7**2) * axis)
    for got in jax.jit(by_order)():
        np.testing.assert_allclose(got, wanted, rtol=0, atol=4e-16)


def test_magnus_broadcasts():
    omega, run = np.stack([OMEGA, 2 * OMEGA]), jax.jit(kinematics.magnus)
    got = run(IDENTITY, omega, ALPHA, np.array([0.1, 0.2]))
    for k in range(2):
        wanted = run(IDENTITY, omega[k], ALPHA, 0.1 * (k + 1))
        np.testing.assert_allclose(got[k], wanted, rtol=1e-15, atol=1e-16)


@pytest.mark.parametrize(("degrees", "percent"), [(60, 0.24), (90, 1.19), (180, 15.8)])
def test_the_truncated_exponential_is_wrong_by_these_percents_of_the_angle(degrees, percent):
    """The source document's (1 - v^2/2, (1 - v^2/6) v); its "below 1 %" holds for |dq| only."""
    v = np.deg2rad(degrees) / 2
    wrong = abs(2 * np.arctan2(v - v**3 / 6, 1 - v**2 / 2) - 2 * v) / (2 * v)
    assert float(f"{100 * wrong:.3g}") == pytest.approx(percent, abs=0.005 * max(1, percent // 1.5))


@pytest.mark.parametrize(
    ("mode", "order"), some([("jacfwd", 6), ("jacrev", 6), ("jacrev", 4)], [("jacrev", 4)])
)
def test_gradients_are_those_of_central_differences(mode, order):
    """By samples, start and spacing."""

    def turned(x):
        start, samples = quaternion.exp(x[:3]), x[4:].reshape(8, 3)
        return quaternion.log(kinematics.integrate(start, samples, x[3], order=order)[-1])

    noise = jnp.asarray(np.random.default_rng(0).normal(size=24))
    x = jnp.concatenate([jnp.array([0.1, 0.2, 0.3, 0.1]), noise])
    slopes, central = slopes_and_differences(turned, x, mode, 1e-3)
    np.testing.assert_allclose(slopes, central, rtol=0, atol=1e-9)


def test_rows_are_saved_where_the_grid_says():
    rate = lambda t, q, params: jnp.stack([jnp.sin(t), t, 0.3 * t])
    for grid in (jq.grid(0.0, 0.1, 12), jq.grid_at(np.linspace(0.0, 1.2, 13) ** 1.1, 2)):
        rare = dataclasses.replace(grid, save_every=4)
        runs = (
            jax.jit(lambda g=g: kinematics.rollout_of_attitude(rate, IDENTITY, g))
            for g in (grid, rare)
        )
        whole, rows = (jax.tree.map(np.asarray, run()) for run in runs)
        np.testing.assert_array_equal(rows.t, whole.t[::4])
        np.testing.assert_array_equal(rows.q, whole.q[::4])


def test_float32_stays_float32():
    q, omega = IDENTITY.astype(jnp.float32), jnp.ones((7, 3), jnp.float32)
    rate, grid = lambda t, q, p: p * t + q[1:], jq.grid(0.0, 0.1, 3)
    for run in (
        lambda q, omega: kinematics.integrate(q, omega, 0.1, order=6),
        lambda q, omega: kinematics.magnus(q, omega[0], omega[0], jnp.float32(0.1)),
        lambda q, omega: kinematics.rollout_of_attitude(rate, q, grid, omega[0]),
    ):
        dtypes = {x.dtype for x in jax.tree.leaves(jax.eval_shape(run, q, omega))}
        assert dtypes == {np.dtype(np.float32)}


def test_bad_arguments_are_named():
    samples, grid = jnp.ones((5, 3)), jq.grid(0.0, 0.1, 2)
    for call, message in (
        (
            lambda: kinematics.integrate(IDENTITY, samples, 0.1, order=6),
            r"omega: wanted shape \(N, 3\) with N >= 6",
        ),
        (
            lambda: kinematics.integrate(IDENTITY, samples.astype(jnp.float32), 0.1),
            "omega: wanted the dtype of q0",
        ),
        (
            lambda: kinematics.magnus(IDENTITY, OMEGA, ALPHA, 0.1, order=5),
            "order: wanted one of 2, 4, 6, 8, got 5",
        ),
        (
            lambda: kinematics.integrate(jnp.zeros(5), samples, IDENTITY),
            r"q0: wanted shape \(4,\), got \(5,\); the order is integrate\(q0, omega, dt\)",
        ),
        (
            lambda: kinematics.integrate(2 * IDENTITY, samples, -0.1),
            "q0: wanted a unit quaternion",
        ),
        (
            lambda: kinematics.integrate(IDENTITY, samples, -0.1),
            "dt: wanted positive values, got -0.1",
        ),
        (
            lambda: kinematics.rollout_of_attitude(lambda t, q, p: q, IDENTITY, grid),
            r"rate: wanted shape \(3,\), got \(4,\) from rate\(t, q, params\)",
        ),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()
