"""The exact motions: against the equations of motion, many digits, and one another."""

import functools
import itertools

import jax
import jax.numpy as jnp
import mpmath
import multiprecision
import numpy as np
import pytest
from exact_motions import flip_interval, free_symmetric, kovalevskaya, nutation
from marks import some

import jaxquat as jq
from examples.validation import problems
from examples.validation.tops import coning, steady_precession
from jaxquat import exact

Q0 = jnp.asarray(problems.TILTED)
SPINS = {  # moments and rates of every kind of free motion
    "generic": ((1.0, 2.0, 3.0), (0.3, -0.4, 0.9)),
    "about the smallest": ((3.0, 1.0, 2.0), (-0.2, 0.9, 0.1)),
    "against the axis": ((3.0, 1.0, 2.0), (-0.9, 0.1, -0.2)),
    "nearly principal": ((1.0, 2.0, 3.0), (1e-6, 2e-6, 1.0)),
    "principal, largest": ((1.0, 2.0, 3.0), (0.0, 0.0, 1.0)),
    "principal, smallest": ((1.0, 2.0, 3.0), (1.0, 0.0, 0.0)),
    "oblate": ((1.0, 1.0, 2.0), (0.3, 0.4, 0.5)),
    "prolate": ((2.0, 2.0, 1.0), (0.3, 0.4, 0.5)),
    "separatrix": ((1.0, 2.0, 2.25), (0.75, 0.0, 1.0)),
    "separatrix, elsewhere": ((1.0, 2.0, 2.25), (-0.6, 0.45 * 2**0.5, 0.8)),
}
CONSTANT = {  # spins that do not change, though those beside them do
    "middle": ((1.0, 2.0, 3.0), (0.0, 1.0, 0.0)),
    "in the plane of equal moments": ((1.0, 1.0, 2.0), (0.3, 0.4, 0.0)),
    "sphere": ((2.0, 2.0, 2.0), (0.3, 0.4, 0.5)),
    "rest": ((1.0, 2.0, 3.0), (0.0, 0.0, 0.0)),
}

KINDS = (
    *("generic", "one zero", "two zeros", "two equal", "sphere", "flat", "nearly equal", "needle"),
    *("near the middle axis", "middle axis, one zero", "middle axis"),
    *("near a pole", "near the separatrix"),
)
REPORTED = (  # moments, rates and times at which an earlier edition failed in one precision or both
    ((1.0, 2.0, 2.5), (0.0, 0.4, 0.5), 10.0),
    *(
        ((1.0, 2.0, 2.5), (e, 0.3, e), t)
        for e, t in ((1e-6, 10.0), (1e-8, 10.0), (1e-14, 100.0), (1e-25, 100.0), (1e-30, 700.0))
    ),
    ((0.6, 1.0, 1.6), (1e-8, 2.0, 1e-8), 20.0),
    ((1.0, 2.0, 3.0), (1e-20, 2e-20, 3e-20), 1e20),
    ((1.0, 2.0, 3.0), (0.0, 0.0, 0.0), 1.0),
    *((moments, omega, 10.0) for moments, omega in (*SPINS.values(), *CONSTANT.values())),
)


def free_motions(n, seed):
    """(moments, omega, q, t) of n bodies of all kinds in turn, after those reported.

    All are numbers of float32, so that both precisions take them. |omega| t goes from 0.01 to 200
    either way, |omega| from 1e-5 to 1e5, axes and signs stand in any order, and offsets go down to
    1e-30 |omega|.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n):
        kind, square, omega = KINDS[k % len(KINDS)], rng.uniform(0.1, 1.0, 3), rng.normal(size=3)
        moments, small = np.sort(square.sum() - square), 10.0 ** -rng.uniform(0.0, 30.0, 3)
        if kind == "two equal":
            moments[1] = moments[rng.choice([0, 2])]
            omega[rng.integers(3)] *= rng.integers(2)
        elif kind == "sphere":
            moments[:] = moments[0]
        elif kind == "flat":
            moments[2] = moments[0] + moments[1]
        elif kind == "nearly equal":
            moments[1:] = moments[0] * (1.0 + 10.0 ** -rng.uniform(1.0, 7.0, 2))
        elif kind == "needle":
            thin = 10.0 ** -rng.uniform(1.0, 6.0)
            moments = np.array([thin, 1.0 - thin * rng.uniform(), 1.0])
        moments = np.sort(moments.astype(np.float32)).astype(float)
        i1, i2, i3 = moments
        if kind == "one zero":
            omega[rng.integers(3)] = 0.0
        elif kind == "two zeros":
            omega[rng.permutation(3)[:2]] = 0.0
        elif kind == "near the middle axis":
            omega[[0, 2]] *= small[[0, 2]]
        elif kind == "middle axis, one zero":
            omega[[0, 2]] *= small[[0, 2]] * rng.permutation([0.0, 1.0])
        elif kind == "middle axis":
            omega[[0, 2]] = 0.0
        elif kind == "near a pole":
            omega *= np.where(np.arange(3) == rng.choice([0, 2]), 1.0, small)
        elif kind == "near the separatrix":
            separatrix = omega[0] * np.sqrt(i1 * (i2 - i1) / (i3 * (i3 - i2)))
            omega[2] = separatrix * (1.0 + 0.1 * rng.choice([-1, 1]) * small[0] ** 0.3)
        order, size = rng.permutation(3), 10.0 ** rng.uniform(-5.0, 5.0)
        angle = rng.choice([-1.0, 1.0, 1.0, 1.0]) * 10.0 ** rng.uniform(-2.0, 2.3)
        t = angle / size / np.linalg.norm(omega)
        rows.append((moments[order], size * omega[order], t))
    moments, omega, t = (
        np.array([row[k] for row in (*REPORTED, *rows)], np.float32) for k in range(3)
    )
    q = rng.normal(size=(len(t), 4))
    return moments, omega, (q / np.linalg.norm(q, axis=1, keepdims=True)).astype(np.float32), t


def in_hundred_digits(moments, omega, q, t):
    ends = []
    for *vectors, time in zip(moments, omega, q, t, strict=True):
        ends.append(multiprecision.free_body(*map(multiprecision.vector, vectors), float(time)))
    return np.array(ends, dtype=float)


def attitude_and_rate(moments, omega, q, t):
    """The free motion as one vector (7,)."""
    return jnp.concatenate(
        exact.free_body(jq.Body.from_principal(moments), t, jq.State(q, omega))[:2]
    )


@functools.cache
def free_motion_of_many():
    return jax.jit(jax.vmap(attitude_and_rate))


@pytest.mark.parametrize("n", some([130, 5_000], [130]))
def test_free_motion_of_every_kind_in_both_precisions(n):
    """Rates and attitude, its sign too, are those of multiple precision within this bound.

    It is 4 eps (1 + sum |x dy/dx|) over moments, rates and time x. By so much the motion changes
    where each of these seven numbers moves by four units of rounding: no formula that rounds them
    can promise less. This one rounds them a few times, by itself and in differences of moments that
    are exact. The sum is about |omega| t where the body tumbles. It grows near the separatrix,
    where rounding decides when the body flips. Where it comes to 1e-3/eps a linear bound says
    nothing, and the motion is that of another body a few units away. Momentum and energy hold
    everywhere.
    """
    motions = free_motions(n, n)
    run, wide = free_motion_of_many(), [x.astype(np.float64) for x in motions]
    wanted, moments, t = in_hundred_digits(*motions), wide[0], wide[3]
    rate = np.linalg.norm(wide[1], axis=1)
    size = np.where(rate > 0, rate, 1.0)[:, None]
    unit = np.concatenate([np.ones((len(t), 4)), np.repeat(size, 3, axis=1)], axis=1)
    got = np.asarray(run(*wide))
    columns = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (3, None)]
    # float32 is moved by what its own rounding does, float64 by less than bends the motion and by
    # more than is lost in the difference
    for dtype, h in ((np.float64, 2.0**-38), (np.float32, 2.0**-24)):
        condition = np.zeros(len(t))
        for which, column in columns:
            changed = [x.copy() for x in wide]
            changed[which][..., column] *= 1.0 + h
            condition += (np.abs(run(*changed) - got) / unit).max(1) / h
        eps = np.finfo(dtype).eps
        end = np.asarray(run(*(x.astype(dtype) for x in motions)), np.float64)
        errors, allowed = (np.abs(end - wanted) / unit).max(1), 4 * eps * (1 + condition)
        linear = allowed < 4e-3
        worst = np.argmax(np.where(linear, errors / allowed, 0))
        ratio, where = errors[worst] / allowed[worst], [x[worst] for x in motions]
        assert (errors <= allowed)[linear].all(), (dtype, ratio, where)
        assert np.median(allowed) < 30 * eps, "the bound would be no bound"
        assert linear.mean() > (0.999 if dtype == np.float64 else 0.96)
        # q at the start is a number of float32, too
        attitudes = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (wide[2], end[:, :4])]
        rates = wide[1], end[:, 4:]
        turn = jax.vmap(jq.quaternion.rotate)
        pairs = zip(attitudes, rates, strict=True)
        momenta = [np.asarray(turn(q, moments * x)) for q, x in pairs]
        size = np.linalg.norm(momenta[0], axis=1)
        assert (np.linalg.norm(momenta[1] - momenta[0], axis=1) <= 12 * eps * size).all()
        energies = [(moments * x**2).sum(1) for x in rates]
        assert (np.abs(energies[1] - energies[0]) <= 12 * eps * energies[0]).all()


@pytest.mark.slow
def test_derivatives_of_free_motion_of_every_kind():
    """They are finite in both modes and precisions, by moments, rates, attitude and time.

    They are those of multiple precision within 1e-11, in float32 5e-3. That is relative to the
    largest by the same argument, or to what rounding the argument itself makes of them where that
    is more: by the moments |omega| t, by a rate 1 over that rate, whose relative change moves the
    phase. Near the separatrix m1 is the small difference of ``gap`` and ``fall``, and its rounding
    enters every derivative: 30 units of (gap + fall)/(gap - fall) are added there, and where they
    come to 0.1 the derivatives are finite and no more. What lies below the normal numbers, as the
    acceleration of a rate of 1e-20 does in float32, may be 0.
    """
    motions = free_motions(104, 5)
    wide = [x.astype(np.float64) for x in motions]
    modes = [mode(attitude_and_rate, argnums=(0, 1, 2, 3)) for mode in (jax.jacfwd, jax.jacrev)]
    runs = [jax.jit(jax.vmap(mode)) for mode in modes]
    double, single = ([[np.asarray(x) for x in run(*xs)] for run in runs] for xs in (wide, motions))
    for blocks in (*double, *single):
        assert all(np.isfinite(x).all() for x in blocks)

    step = multiprecision.mpfr(10) ** -50  # small beside 1e-30, in 180 digits
    for k in range(len(wide[3])):
        if not motions[1][k].any():
            continue  # at rest: the test of constant spins
        rate = np.linalg.norm(wide[1][k])
        unit = np.array([1.0] * 4 + [rate] * 3)[:, None]
        order = np.argsort(wide[0][k])
        (i1, i2, i3), (w1, _, w3) = wide[0][k][order], wide[1][k][order] / rate
        gap, fall = i3 * (i3 - i2) * w3**2, i1 * (i2 - i1) * w1**2
        closeness = (gap + fall) / max(abs(gap - fall), 1e-300) if gap + fall > 0 else 1.0
        for argument in (0, 1, 3):
            x = [multiprecision.vector(np.atleast_1d(row[k])) for row in wide]
            columns = []
            for j, value in enumerate(x[argument]):
                h = step * max(abs(y) for y in x[argument])
                ends = []
                for moved in (value - h, value + h):
                    x[argument][j] = moved
                    ends.append(multiprecision.free_body(*x[:3], x[3][0]))
                x[argument][j] = value
                columns.append([(high - low) / (2 * h) for low, high in zip(*ends, strict=True)])
            wanted = np.array(columns, dtype=float).T / unit
            omega = np.where(wide[1][k] == 0, np.inf, np.abs(wide[1][k]))
            least = {0: np.full(3, rate * abs(wide[3][k])), 1: 1.0 / omega, 3: 0.0}[argument]
            precisions = (double, 1e-11, np.finfo(float)), (single, 5e-3, np.finfo(np.float32))
            for blocks, tolerance, kind in precisions:
                tolerance += 30 * kind.eps * closeness
                for block in blocks if tolerance < 0.1 else ():
                    error = np.abs(block[argument][k].reshape(7, -1) / unit - wanted).max(0)
                    largest = np.maximum(np.abs(wanted).max(), least)
                    bound = tolerance * largest + kind.tiny / unit.min()
                    assert (error <= bound).all(), (k, argument, tolerance, error)


def test_multiple_precision_satisfies_the_equations_of_motion():
    """The reference itself: its derivative by central differences, and its start, are right."""
    zero, step = multiprecision.ZERO, multiprecision.mpfr(10) ** -25
    vectors = [
        [multiprecision.vector(np.atleast_1d(row)) for row in x] for x in free_motions(13, 1)
    ]
    moments, omega, q, t = vectors
    for i, w, p, (time,) in list(zip(moments, omega, q, t, strict=True))[:-23:-1]:
        begin = multiprecision.free_body(i, w, p, zero)
        rate = multiprecision.sqrt(multiprecision.dot(w, w))
        if rate == 0:
            continue
        assert max(abs(x - y) / max(rate, 1) for x, y in zip(begin, [*p, *w], strict=True)) < 1e-55
        low, here, high = (
            multiprecision.free_body(i, w, p, time + k * step / rate) for k in (-1, 0, 1)
        )
        slope = [(y - x) / (2 * step) for x, y in zip(low, high, strict=True)]
        end, rates = here[:4], [x / rate for x in here[4:]]
        turn = multiprecision.multiply(end, [zero, *multiprecision.scaled(0.5, rates)])
        inertia = [[i[j] if j == k else zero for k in range(3)] for j in range(3)]
        acceleration = multiprecision.acceleration(inertia, rates, [zero] * 3)
        change = multiprecision.scaled(rate, acceleration)
        for got, wanted, size in zip(slope, [*turn, *change], [1] * 4 + [rate] * 3, strict=True):
            assert abs(got - wanted) < 1e-33 * size


def free(moments, omega, t):
    return exact.free_body(jq.Body.from_principal(moments), t, jq.State(Q0, omega))


def defect(body, motion, torque, t):
    """How far a motion is from its equations at time t, by differentiation."""
    state, rate = jax.jvp(motion, (t,), (jnp.ones_like(t),))
    spun = 0.5 * jq.quaternion.multiply(state.q, jnp.concatenate([jnp.zeros(1), state.omega]))
    acceleration = jq.dynamics.derivative(body, torque, t, state, None).omega
    return jnp.concatenate([rate.q - spun, rate.omega - acceleration])


@pytest.mark.slow
def test_free_motion_satisfies_its_equations():
    """It does so over 30 s, begins at the start and does not jump."""
    every = list((SPINS | CONSTANT).values())
    moments, omegas = (jnp.array([each[k] for each in every]) for k in (0, 1))
    times = jnp.linspace(0.0, 30.0, 301)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0, None))
    @functools.partial(jax.vmap, in_axes=(None, None, 0))
    def run(moments, omega, t):
        body = jq.Body.from_principal(moments)
        motion = lambda t: free(moments, omega, t)
        state = motion(t)
        error = defect(body, motion, jq.torques.zero, t)
        return state, error, jq.dynamics.momentum(body, state)

    paths, errors, momenta = jax.tree.map(np.asarray, run(moments, omegas, times))
    for k, name in enumerate(SPINS | CONSTANT):
        # one rounding off the separatrix cn comes to 1e-7, by an angle that is known to eps
        assert np.abs(errors[k]).max() < (1e-13 if name != "separatrix, elsewhere" else 3e-9), name
        assert np.abs(paths.q[k, 0] - Q0).max() < 1e-15, name
        assert np.abs(paths.omega[k, 0] - omegas[k]).max() < 1e-15, name
        steps = np.asarray(jax.vmap(jq.quaternion.distance)(paths.q[k, 1:], paths.q[k, :-1]))
        assert (steps <= 0.1 * np.linalg.norm(paths.omega[k], axis=1).max() + 1e-9).all(), name
        assert np.abs(momenta[k] - momenta[k, 0]).max() < 1e-13, name


def test_the_free_motion_ends_where_the_reference_does():
    _, q0, q, omega = problems.REFERENCE["FREE"]
    start = jq.State(jnp.asarray(q0), jnp.asarray(problems.OMEGA0))
    end = jax.jit(exact.free_body)(problems.reference_body(), 10.0, start)
    assert jq.quaternion.distance(end.q, jnp.asarray(q)) < 3e-12  # twelve digits were printed
    assert np.abs(end.omega - omega).max() < 1e-12


def random_tops(n):
    """Bodies, by moments and axes, with starts by attitude and rate."""
    rng = np.random.default_rng(11)
    square = rng.uniform(0.3, 1.0, (n, 3))
    moments = square.sum(1, keepdims=True) - square
    axes, q = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in rng.normal(size=(2, n, 4)))
    omega = rng.normal(size=(n, 3))
    return moments, axes, q, omega


@pytest.mark.slow
@pytest.mark.parametrize("flips", [4, 40])
def test_forty_random_tops_move_as_extrapolation_in_extended_precision_says(flips):
    """Within 1e-12 and four times the change that one ulp of the input makes."""
    moments, axes, q, omega = random_tops(40)

    @jax.jit
    @jax.vmap
    def run(moments, axes, q, omega, t):
        return exact.free_body(jq.Body.from_principal(moments, axes), t, jq.State(q, omega))

    # one time for all: so many flips of the slowest body, at least as many of the others
    principal = jax.vmap(jq.quaternion.rotate_inverse)(axes, omega)
    intervals = [flip_interval(*pair) for pair in zip(moments, np.asarray(principal), strict=True)]
    t = np.full(40, float(flips * np.median(intervals)))
    got = run(moments, axes, q, omega, t)

    def distance(q, omega):
        """The largest difference from what is tested, of each body."""
        return np.maximum(np.abs(q - got.q).max(1), np.abs(omega - got.omega).max(1))

    extended = np.longdouble
    matrix = np.asarray(jax.vmap(jq.quaternion.to_matrix)(jnp.asarray(axes)))
    wide_axes = axes.astype(extended)
    # not to the rounding of float64, which shows over 2000 rad
    wide_axes = wide_axes / np.sqrt((wide_axes**2).sum(1, keepdims=True))
    w, v = wide_axes[:, :1, None], wide_axes[:, 1:]
    hat = np.stack([np.cross(v, e) for e in np.eye(3, dtype=extended)], axis=2)
    wide = np.eye(3, dtype=extended) + 2 * (w * hat + hat @ hat)
    assert np.abs(wide - matrix).max() < 1e-14
    inertia = wide * moments.astype(extended)[:, None, :] @ wide.swapaxes(1, 2)
    inverse = wide / moments.astype(extended)[:, None, :] @ wide.swapaxes(1, 2)

    def derivative(_, y):
        q, omega = y[:, :4], y[:, 4:]
        w, v = q[:, :1], q[:, 1:]
        scalar, vector = -(v * omega).sum(1, keepdims=True), w * omega + np.cross(v, omega)
        m = (inertia @ omega[..., None])[..., 0]
        acceleration = -(inverse @ np.cross(omega, m)[..., None])[..., 0]
        return np.concatenate([scalar / 2, vector / 2, acceleration], axis=1)

    start = np.concatenate([q, omega], axis=1).astype(extended)
    q_end, omega_end = problems.extrapolate(derivative, start, extended(t[0]), int(4 * t[0]))

    allowed = np.full(40, 1e-12)
    for which, up in [(k, up) for k in range(4) for up in (-np.inf, np.inf)]:
        for column in range((moments, axes, q, omega)[which].shape[1]):
            moved = [x.copy() for x in (moments, axes, q, omega)]
            moved[which][:, column] = np.nextafter(moved[which][:, column], up)
            allowed = np.maximum(allowed, 1e-12 + 4 * distance(*run(*moved, t)[:2]))
    errors = distance(q_end.astype(float), omega_end.astype(float))
    assert (errors < allowed).all(), (errors / allowed).max()
    assert np.median(allowed) < 3e-12 * max(1, flips / 4), "the bound would be no bound"


@pytest.mark.slow  # the bounds are those of XLA's full effort
def test_on_the_separatrix_a_body_leaves_for_the_middle_axis_and_stays_there():
    """Over fifty time constants the rates are sech and tanh to rounding, and the equations hold."""
    moments, omega = (jnp.array(x) for x in SPINS["separatrix"])
    size = np.linalg.norm(np.array(moments) * np.array(omega))
    rate = float(size / 2.0 * np.sqrt((2.25 - 2.0) * (2.0 - 1.0) / (1.0 * 2.25)))
    times = jnp.linspace(0.0, 50.0 / rate, 501)
    body = jq.Body.from_principal(moments)
    motion = lambda t: free(moments, omega, t)
    at = lambda t: (motion(t), defect(body, motion, jq.torques.zero, t))
    path, errors = jax.jit(jax.vmap(at))(times)
    s = np.asarray(rate * times)
    wanted = np.stack([0.75 / np.cosh(s), -size / 2.0 * np.tanh(s), 1.0 / np.cosh(s)], axis=1)
    either_way = np.array([1, np.sign(-path.omega[-1, 1]), 1])
    np.testing.assert_allclose(np.asarray(path.omega) * either_way, wanted, rtol=0, atol=1e-14)
    assert np.abs(errors).max() < 1e-13
    momenta = jax.jit(jax.vmap(lambda state: jq.dynamics.momentum(body, state)))(path)
    drift = momenta - jq.dynamics.momentum(body, jq.State(Q0, omega))[None]
    assert np.abs(drift).max() < 1e-13


@pytest.mark.slow
def test_derivatives_at_constant_spins_are_those_of_the_motion_beside_them():
    """At rest q moves by t/2; off the middle axis an offset e grows to e cosh(rate t)."""
    moments, omegas = (jnp.array([each[k] for each in CONSTANT.values()]) for k in (0, 1))
    by_omega = jax.jacrev(lambda omega, moments: free(moments, omega, 2.0))
    jacobians = jax.jit(jax.vmap(by_omega))(omegas, moments)
    names = list(CONSTANT)
    half_turn = np.asarray(jax.vmap(jq.quaternion.multiply, (None, 0))(Q0, jnp.eye(4)[1:])).T
    np.testing.assert_allclose(jacobians.q[names.index("rest")], half_turn, atol=1e-15)
    rate = np.sqrt((3.0 - 2.0) * (2.0 - 1.0) / (1.0 * 3.0))
    off_middle = jacobians.omega[names.index("middle")][[0, 2], [0, 2]]
    np.testing.assert_allclose(off_middle, np.cosh(2.0 * rate), rtol=1e-14)


def test_a_body_flips_as_dzhanibekovs():
    """The interval is the recorded number, after which the middle rate has the other sign."""
    body, omega = jq.Body.from_principal(jnp.array([1.0, 2, 3])), jnp.array([1e-4, 1, 1e-4])
    interval = flip_interval((1.0, 2.0, 3.0), omega)
    assert abs(interval - 35.50725) < 5e-6
    at = jax.jit(jax.vmap(lambda t: exact.free_body(body, t, jq.State(Q0, omega)).omega))
    ends = at(interval * jnp.array([1.0, 2.0, 7.0]))
    signs = np.array([[-1.0, -1.0, 1.0], [1.0, 1.0, 1.0], [-1.0, -1.0, 1.0]])
    np.testing.assert_allclose(ends, np.asarray(omega) * signs, atol=3e-10)


@pytest.mark.slow
def test_a_body_by_its_full_inertia_satisfies_the_equations():
    body = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
    start = jq.State(Q0, jnp.array([0.5, -1.0, 0.7]))
    motion = lambda t: exact.free_body(body, t, start)
    at = jax.jit(jax.vmap(lambda t: defect(body, motion, jq.torques.zero, t)))
    errors = at(jnp.linspace(0, 20, 50))
    assert np.abs(errors).max() < 1e-13


@pytest.mark.slow
def test_the_free_symmetric_body_is_the_free_body():
    start = jq.State(Q0, jnp.array([0.5, -1.0, 0.7]))

    @jax.jit
    @jax.vmap
    def both(moments, t):
        body = jq.Body.from_principal(moments, Q0[::-1])
        return [motion(body, t, start) for motion in (free_symmetric, exact.free_body)]

    moments = np.repeat([(1.0, 1.0, 2.0), (1.5, 1.5, 0.4)], 2, axis=0)
    ours, general = both(moments, np.array([0.3, 20.0, 0.3, 20.0]))
    assert np.max(jq.quaternion.distance(ours.q, general.q)) < 1e-13
    assert np.abs(ours.omega - general.omega).max() < 1e-13


def test_steady_precession_satisfies_the_equations_of_the_heavy_top():
    body = jq.Body.from_principal(jnp.array([1.0, 1, 0.6]))
    torque = jq.torques.heavy_top(1.3, jnp.array([0.0, 0, 1]))
    tilts, spins = (0.7, np.pi / 2, 2.2), (6.0, -6.0)

    @jax.jit
    @jax.vmap
    def run(tilt, spin, t):
        motion = lambda t: steady_precession(body, 1.3, t, tilt, spin)
        return motion(t).q, defect(body, motion, torque, t)

    rows = np.array(list(itertools.product(tilts, spins, np.linspace(0.0, 3.0, 20))))
    q, errors = run(*rows.T)
    assert np.abs(errors).max() < 1e-12
    tilt, _, t = rows.T
    half = 0.5 * tilt[t == 0]
    start = np.stack([np.cos(half), np.sin(half), 0 * half, 0 * half], axis=1)
    np.testing.assert_allclose(np.asarray(q)[t == 0], start, atol=1e-15)


def heavy_motion(moments, offset, weight, start, t):
    """Times and states of a heavy top, by rkmk6."""
    body = jq.Body.from_principal(jnp.array(moments))
    torque = jq.torques.heavy_top(weight, jnp.array(offset))
    grid = jq.grid(0.0, t / 1500, 1500, save_every=100)
    path = jax.jit(lambda: jq.rollout(jq.rkmk6, body, torque, start, grid))()
    return jax.tree.map(np.asarray, (path.t, path.state))


@pytest.mark.slow
def test_nutation_is_that_of_a_heavy_top_released_at_rest():
    start = jq.State(jq.quaternion.exp(jnp.array([0.9, 0.0, 0.0])), jnp.array([0.0, 0.0, 5.0]))
    times, states = heavy_motion((1.0, 1.0, 0.6), (0.0, 0.0, 1.0), 1.3, start, 6.0)
    body = jq.Body.from_principal(jnp.array([1.0, 1.0, 0.6]))
    cosine = jax.jit(jax.vmap(lambda t: nutation(body, 1.3, t, tilt=0.9, spin=5.0)))(times)
    rolled = 1 - 2 * (states.q[:, 1] ** 2 + states.q[:, 2] ** 2)
    np.testing.assert_allclose(cosine, rolled, rtol=0, atol=1e-13)
    assert cosine.min() < cosine.max() - 0.1


@pytest.mark.slow
def test_kovalevskayas_constant_is_constant():
    start = jq.State(Q0, jnp.array([0.3, 0.4, 0.5]))
    _, states = heavy_motion((1.4, 1.4, 0.7), (1.0, 0.0, 0.0), 1.1, start, 6.0)
    constant = jax.jit(jax.vmap(lambda state: kovalevskaya(0.7, 1.1, state)))(states)
    assert np.ptp(constant) < 1e-12
    assert np.ptp(states.omega) > 1.0


def test_coning_has_the_rate_of_its_attitude():
    for t in (0.0, 0.7, 3.0):
        q, slope = jax.jvp(lambda t: coning(t, 0.6, 4.0), (t,), (1.0,))
        omega = 2 * jq.quaternion.multiply(jq.quaternion.conjugate(q), slope)[1:]
        across = np.sin(0.6) * np.array([-np.sin(4.0 * t), np.cos(4.0 * t)])
        np.testing.assert_allclose(omega, 4.0 * np.append(across, np.cos(0.6) - 1.0), atol=1e-15)


def test_a_prescribed_motion_satisfies_the_equations_under_its_torque():
    body = jq.Body.random(jax.random.key(0))
    angles = lambda t: jnp.stack([t, 0.3 * t * t, jnp.sin(t)])
    state, torque = problems.prescribed(body, lambda t: jq.euler.to_quaternion(angles(t), "ZXZ"))
    at = jax.jit(jax.vmap(lambda t: defect(body, state, torque, t)))
    errors = at(jnp.linspace(0.0, 3.0, 20))
    assert np.abs(errors).max() < 1e-13


@pytest.mark.slow
def test_a_motion_takes_one_time_and_keeps_its_dtype():
    """A Python integer is a time; several are an error that names vmap.

    The dtype is that of the start, or of the body.
    """
    body = jq.Body.from_principal(jnp.array([1.0, 1.0, 0.6], jnp.float32))
    start = jq.State(Q0.astype(jnp.float32), jnp.array([0.3, 0.4, 0.5], jnp.float32))
    motions = {
        "free_body": lambda t: exact.free_body(body, t, start),
    }
    for name, motion in motions.items():
        (whole, shapes), (real, _) = (
            jax.make_jaxpr(lambda t=t, motion=motion: motion(t), return_shape=True)()
            for t in (2, 2.0)
        )
        assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(shapes)), name
        assert str(whole) == str(real), name  # the same program of the same numbers
        for x, y in zip(whole.consts, real.consts, strict=True):
            np.testing.assert_array_equal(x, y, err_msg=name)
        with pytest.raises(ValueError, match=r"^t: wanted shape \(\), got \(3,\); use jax.vmap$"):
            motion(jnp.arange(3.0))


@pytest.mark.slow
def test_units_of_inertia_and_time_do_not_matter():
    """Bodies of 1e-12 or 1e-30 kg m^2 turn at 1e-12 rad/s to rounding, in float32.

    Its smallest number is 1e-38.
    """
    moments, omega = (jnp.array(x, jnp.float32) for x in ((1.0, 2.0, 2.5), (0.3, 0.4, 0.5)))

    @jax.jit
    @jax.vmap
    def motion(inertia, rate):
        body = jq.Body.from_principal(inertia * moments)
        end = exact.free_body(body, 3.0 / rate, jq.State(Q0.astype(jnp.float32), rate * omega))
        return end.q, end.omega / rate

    inertias, rates = [1.0, 2.0**-40, 2.0**-100], [1.0, 2.0**-40, 2.0**-40]
    for x in motion(jnp.array(inertias, jnp.float32), jnp.array(rates, jnp.float32)):
        np.testing.assert_allclose(x[1:], np.stack([x[0]] * 2), rtol=0, atol=3e-6)


@pytest.mark.slow
def test_nutation_of_tops_released_almost_upright_is_that_of_sixty_digits():
    """By the roots of the cubic; within what a unit of rounding of the tilt does to the cosine."""
    run = jax.jit(
        jax.vmap(
            lambda m, p, t, tilt, spin: nutation(
                jq.Body.from_principal(m), p, t, tilt=tilt, spin=spin
            )
        )
    )
    rows = itertools.product((1e-12, 1e-6, 0.7, 3.1), (0.0, 1.0, 3.5, 50.0), (0.5, 20.0))
    tilt, spin, t = np.array(list(rows), np.float32).T
    context = mpmath.MPContext()
    context.dps = 60
    wanted = []
    for row in zip(tilt, spin, t, strict=True):
        angle, rate, time = (context.mpf(float(x)) for x in row)
        moment = context.mpf(float(np.float32(0.6)))
        cosine, b, square = context.cos(angle), 2 * context.mpf(1.25), (moment * rate) ** 2
        root = context.sqrt((square / b - 2 * cosine) ** 2 + 4 * context.sin(angle) ** 2)
        high, low = (square / b + root) / 2, (square / b - root) / 2
        m = (cosine - low) / (high - low)
        u = context.sqrt(b * (high - low)) / 2 * time + context.ellipk(m)
        sn = context.ellipfun("sn", u, m=m)
        wanted.append(float(context.re(low + (cosine - low) * sn**2)))
    for dtype in (np.float32, np.float64):
        moments = np.tile(np.array([1.0, 1.0, np.float32(0.6)], dtype), (len(t), 1))
        potential = np.full(len(t), 1.25, dtype)
        got = run(moments, potential, *(x.astype(dtype) for x in (t, tilt, spin)))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=200 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda body, half, start: exact.free_body(half, 1.0, start),
            TypeError,
            "^body: wanted the dtype of the start, float64, got float32",
        ),
        (
            lambda body, half, start: exact.free_body(
                jax.vmap(jq.Body)(jnp.eye(3)[None]), 1.0, start
            ),
            ValueError,
            r"^body: wanted one body, inertia of shape \(3, 3\), got \(1, 3, 3\); use jax.vmap",
        ),
    ],
)
def test_errors_name_the_argument(call, error, match):
    body, half = (jq.Body.from_principal(jnp.array([1.0, 1.0, 0.6], x)) for x in ("f8", "f4"))
    with pytest.raises(error, match=match):
        call(body, half, jq.State(Q0, jnp.array([0.3, 0.4, 0.5])))
