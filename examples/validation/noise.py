"""Measure the stochastic schemes, for ``certificates.py --noise``; docs/noise.md has three tables.

``TABLES`` has, by title, a function that yields the rows, and the names of its columns. The body
has the moments 1, 2 and 2.5 kg m^2 and the dampings 1, 2 and 1.5 N m s, unless a table says
otherwise; x = dt D/I is that of its first axis. The dipole lies along its third axis, in a field
along the vertical, with the energy ``-2 kT cos``. So <cos> = coth 2 - 1/2 in equilibrium. Numbers
in brackets are standard errors, in units of the last digit.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxquat as jq
from jaxquat import quaternion
from jaxquat._internal.linear import matmul, matvec, transpose
from jaxquat.schemes.relaxation import inverse_by_rows
from jaxquat.stochastic.ornstein_uhlenbeck import ornstein_uhlenbeck

MOMENTS, DAMPING = np.array([1.0, 2.0, 2.5]), np.array([1.0, 2.0, 1.5])
BALL, KT = np.ones(3), 0.5  # kg m^2, J


def start():
    """An attitude and a rate that are special in no way."""
    return jq.State(jnp.array([0.5, 0.7, -0.1, 0.5]), jnp.array([0.7, -0.5, 0.4]))


def dipole(t, state, strength):
    """The torque [N m] on a dipole along body z in a vertical field, ``strength`` is its energy."""
    up = jnp.array([0.0, 0.0, 1.0], state.q.dtype)
    return strength * jnp.cross(up, quaternion.rotate_inverse(state.q, up))


class EulerMaruyama(NamedTuple):
    """The step that takes all rates at its beginning, for a body in its principal axes."""

    damping: Array
    temperature: Array

    def noise(self, state):
        """How many standard normals a step takes."""
        return 3

    def __call__(self, body, torque, t, state, dt, params, noise):
        """Take one step."""
        moments, omega = body.inertia.diagonal(), state.omega
        gyroscopic = jnp.cross(moments * omega, omega)
        rate = torque(t, state, params) + gyroscopic - self.damping * omega
        kick = jnp.sqrt(2.0 * self.temperature * self.damping * dt) * noise
        q = quaternion.correct_norm(quaternion.multiply(state.q, quaternion.exp(dt * omega)))
        return state._replace(q=q, omega=omega + (dt * rate + kick) / moments)


def euler_maruyama(damping, temperature):
    """The Scheme of Euler and Maruyama."""
    return jq.schemes.Scheme(EulerMaruyama(damping, temperature), "Euler-Maruyama")


def langevin(damping, temperature):
    """The scheme under test, with the scheme of the free body that docs/noise.md uses."""
    return jq.stochastic.langevin(jq.no_squish, damping, temperature)


SCHEMES = {
    "langevin": langevin,
    "brownian": jq.stochastic.brownian,
    "Euler-Maruyama": euler_maruyama,
}


def bracketed(value, error):
    """A number and its standard error: 0.0123 (4)."""
    digits = max(0, int(np.ceil(-np.log10(error))))
    return f"{value:.{digits}f} ({error * 10.0**digits:.0f})"


def slope(errors, steps):
    """The order between each two neighbours, () for the first."""
    return np.diff(np.log(np.abs(errors))) / np.diff(np.log(steps))


def shown(name):
    """The name of a scheme, as code if it is one of the library."""
    return f"`{name}`" if hasattr(jq.schemes, name) else name


# Equilibrium.

EQUILIBRIUM = "scheme | x | error of `<cos>` | slope | errors of `I_i <omega_i^2>/kT`"
BODIES, CHUNK, CHUNKS = 20_000, 100, 40


@functools.partial(jax.jit, static_argnums=0)
def chunk(name, states, keys, dt, kT):
    """Take 100 steps in float32; return the states, and means of cos and omega^2 by body."""
    scheme = SCHEMES[name](jnp.asarray(DAMPING, jnp.float32), kT)
    body = jq.Body.from_principal(jnp.asarray(MOMENTS, jnp.float32))
    grid = jq.grid(0.0, dt, CHUNK, save_every=CHUNK // 10)

    def one(state, key):
        path = jq.rollout(scheme, body, dipole, state, grid, 2.0 * kT, noise=key)
        cosines = quaternion.to_matrix(path.state.q[1:])[:, 2, 2]
        return path.final, jnp.mean(cosines), jnp.mean(path.state.omega[1:] ** 2, axis=0)

    return jax.vmap(one)(states, keys)


def in_equilibrium(kT):
    """States (BODIES,) with the distribution of Boltzmann, in float32."""
    draw = np.random.default_rng(0)
    cosine = 1.0 + np.log1p(-draw.uniform(size=BODIES) * -np.expm1(-4.0)) / 2.0
    turn, spin = draw.uniform(0.0, 2.0 * np.pi, (2, BODIES))
    z, y = np.eye(3)[[2, 1]]
    q = quaternion.multiply(
        quaternion.exp(np.outer(turn, z)), quaternion.exp(np.outer(np.arccos(cosine), y))
    )
    q = quaternion.multiply(q, quaternion.exp(np.outer(spin, z)))
    omega = draw.normal(size=(BODIES, 3)) * np.sqrt(kT / MOMENTS)
    return jq.State(jnp.asarray(q, jnp.float32), jnp.asarray(omega, jnp.float32))


def biases(name, kT, dt, burn):
    """The errors of <cos> and of I_i <omega_i^2>/kT, (4,), and their standard errors."""
    states, sums = in_equilibrium(kT), np.zeros((BODIES, 4))
    for k in range(burn + CHUNKS):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(1), k), BODIES)
        states, cosine, squares = chunk(name, states, keys, np.float32(dt), np.float32(kT))
        if k >= burn:
            sums += np.column_stack([cosine, squares * MOMENTS / kT]) / CHUNKS
    exact = np.array([1.0 / np.tanh(2.0) - 0.5, 1.0, 1.0, 1.0])
    return sums.mean(axis=0) - exact, sums.std(axis=0) / np.sqrt(BODIES)


def equilibrium(cases):
    """Yield a row for each (scheme, kT, x, chunks until it is in equilibrium)."""
    before = None
    for name, kT, x, burn in cases:
        errors, spreads = biases(name, kT, x, burn)
        order = ""
        if abs(errors[0]) < 3.0 * spreads[0]:
            before = None
        else:
            if before and before[0] == name:
                order = f"{slope([before[2], errors[0]], [before[1], x])[0]:.1f}"
            before = (name, x, errors[0])
        heats = [] if name == "brownian" else map(bracketed, errors[1:], spreads[1:])
        yield [shown(name), f"{x:g}",
               bracketed(errors[0], spreads[0]), order, ", ".join(heats)]  # fmt: skip


WARM = [("langevin", KT, x, 1 + int(0.1 / x)) for x in (0.01, 0.1, 0.2, 0.4, 0.8)]
WARM += [("Euler-Maruyama", KT, 0.4, 1)]
COLD = [(name, 1e-3, x, 1 + int(25 / x)) for name in ("langevin", "brownian")
        for x in (1.0, 10.0, 30.0, 100.0)]  # fmt: skip


# The weak order.


class Problem(NamedTuple):
    """A stochastic differential equation on attitudes and rates, in body axes.

    Attributes:
        drift: ``drift(q, omega)``, the rate of turn (3,) and of omega (3,).
        spread: the turns (3, 3) and changes of omega (3, 3) of the noises, one noise a row.
    """

    drift: Callable[..., tuple[Array, Array]]
    spread: tuple[Array, Array]


H = 0.05 * np.arange(-4.0, 5.0)
POWERS = np.linalg.inv(np.vander(H, increasing=True))  # the coefficients of s^k from values at H
FIRST, SECOND = POWERS[1], 2.0 * POWERS[2]  # the derivatives at 0, to order 8 or better


def generator(problem, f):
    """The function L f(q, omega), the rate of the mean of f, by differences of order 8.

    Nested derivatives of JAX are exact, but L L f takes XLA 40 s to compile.
    """

    def applied(q, omega):
        def along(turn, kick):
            def value(s):
                return f(quaternion.multiply(q, quaternion.exp(s * turn)), omega + s * kick)

            return jax.vmap(value)(H)

        spread = jnp.sum(jax.vmap(along)(*problem.spread), axis=0)
        return FIRST @ along(*problem.drift(q, omega)) + SECOND @ spread / 2.0

    return applied


def with_inertia(moments, kT):
    """The equation of ``langevin``."""

    def drift(q, omega):
        torque = dipole(0.0, jq.State(q, omega), 2.0 * kT)
        gyroscopic = jnp.cross(moments * omega, omega)
        return omega, (torque + gyroscopic - DAMPING * omega) / moments

    return Problem(drift, (jnp.zeros((3, 3)), jnp.diag(np.sqrt(2.0 * kT * DAMPING) / moments)))


def without_inertia(kT):
    """The equation of ``brownian``."""

    def drift(q, omega):
        return dipole(0.0, jq.State(q, omega), 2.0 * kT) / DAMPING, jnp.zeros(3)

    return Problem(drift, (jnp.diag(np.sqrt(2.0 * kT / DAMPING)), jnp.zeros((3, 3))))


def attitudes(q, omega):
    """Test functions of the attitude, (4,)."""
    r = quaternion.to_matrix(q)
    return jnp.stack([r[2, 2], r[0, 1], r[2, 2] ** 2, r[0, 0] * r[1, 2]])


def motions(q, omega):
    """Test functions of attitude and rate, (8,)."""
    up = quaternion.rotate_inverse(q, jnp.array([0.0, 0.0, 1.0]))
    mixed = jnp.stack([jnp.dot(up, omega), omega[0], omega[0] * omega[1] * up[2]])
    return jnp.concatenate([attitudes(q, omega), mixed, jnp.sum(omega**2, keepdims=True)])


def mean_after(scheme, body, f, dt):
    """The mean of f after a step from ``start()``, by Gauss-Hermite quadrature over its normals."""
    points, weights = np.polynomial.hermite_e.hermegauss(5)
    count = scheme.noise(start())
    grids = np.stack(np.meshgrid(*count * [points]), axis=-1).reshape(-1, count)
    product = functools.reduce(np.multiply.outer, count * [weights / weights.sum()])

    def value(noise):
        grid, noise = jq.grid(0.0, dt, 1), noise[None]
        path = jq.rollout(scheme, body, dipole, start(), grid, 2.0 * KT, noise=noise)
        return f(*path.final[:2])

    return product.ravel() @ jax.vmap(value)(grids)


def local_errors(name, f, dts, x=None):
    """The distance of one step's means of f from those of the semigroup to order 2, (dts,).

    With x, the inertia falls with the step, and the semigroup is that without inertia.
    """
    free = name == "brownian" or x is not None
    problem = without_inertia(KT) if free else with_inertia(MOMENTS, KT)
    once = generator(problem, f)
    twice = generator(problem, once)
    scheme = SCHEMES[name](jnp.asarray(DAMPING), jnp.asarray(KT))

    def error(dt):
        zeroth, first, second = (g(*start()[:2]) for g in (f, once, twice))
        series = zeroth + dt * first + dt**2 / 2 * second
        body = jq.Body.from_principal(jnp.asarray(MOMENTS if x is None else DAMPING * dt / x))
        return jnp.linalg.norm(mean_after(scheme, body, f, dt) - series)

    return np.asarray(jax.jit(jax.vmap(error))(dts))


DTS = 0.2 / 2.0 ** np.arange(5)


def weak_order():
    """Yield a row of local errors for each scheme."""
    for name, f, x, shown_x in (
        ("langevin", motions, None, "dt/(1 s)"),
        ("Euler-Maruyama", motions, None, "dt/(1 s)"),
        ("langevin", attitudes, 1e8, "1e8"),
        ("brownian", attitudes, None, "no inertia"),
    ):
        errors = local_errors(name, f, DTS, x)
        slopes = ", ".join(f"{k:.2f}" for k in slope(errors, DTS))
        yield [shown(name), shown_x, ", ".join(f"{e:.1e}" for e in errors), slopes]


# Motion: what is known of the free body.


def trace_of_rank(rank, rates):
    """The mean character of the rotation in diffusion for these ``D_i t``, by its generator.

    It is the trace of exp(-sum D_i t J_i^2), with the matrices J_i of a spin.
    """
    m = np.arange(-rank, rank + 1)
    up = np.diag(np.sqrt(rank * (rank + 1) - m[:-1] * (m[:-1] + 1)), -1)
    spins = (up + up.T) / 2, (up - up.T) / 2j, np.diag(m)
    hamiltonian = sum(rate * spin @ spin for rate, spin in zip(rates, spins, strict=True))
    return np.exp(-np.linalg.eigvalsh(hamiltonian)).sum()


def exact_diffusion(rates):
    """P1 and P2 of the body's axes and the mean squared angle, (7,), for ``D_i t``.

    The matrix of the <(e_i . e_j)^2> relaxes as a chain that jumps between axes i and j with the
    rate 2 D_k, with the rates of decay of L. D. Favro, Phys. Rev. 119, 1960, 53-62. In characters,
    the squared angle is pi^2/3 + 2 + sum_l 2 (-1)^l (l^-2 + (l + 1)^-2) chi_l.
    """
    first = np.exp(rates - rates.sum())
    jumps = 2.0 * np.array([[0, rates[2], rates[1]], [rates[2], 0, rates[0]], [*rates[1::-1], 0]])
    values, vectors = np.linalg.eigh(jumps - np.diag(jumps.sum(axis=0)))
    squares = np.einsum("ik,k,ik->i", vectors, np.exp(values), vectors)
    angle = np.pi**2 / 3.0 + 2.0
    for k in range(1, 30):
        weight = 2.0 * (-1) ** k * (1.0 / k**2 + 1.0 / (k + 1) ** 2)
        angle += weight * trace_of_rank(k, rates)
    return np.array([*first, *(1.5 * squares - 0.5), angle])


def diffusion(bodies=1_000_000, steps=100, dt=0.01):
    """Yield a row for each mean of free Brownian motion, at two times."""

    def one(key):
        single = functools.partial(jnp.asarray, dtype=jnp.float32)
        scheme = jq.stochastic.brownian(single(DAMPING), single(KT))
        rest = jq.State(single([1.0, 0.0, 0.0, 0.0]), single(np.zeros(3)))
        path = jq.rollout(
            scheme, jq.Body.from_principal(single(MOMENTS)), jq.torques.zero, rest,
            jq.grid(0.0, dt, steps, save_every=steps // 2), noise=key,
        )  # fmt: skip
        q = path.state.q[1:]
        first = jnp.diagonal(quaternion.to_matrix(q), axis1=1, axis2=2)
        squared = quaternion.distance(q, rest.q) ** 2
        return jnp.concatenate([first, 1.5 * first**2 - 0.5, squared[:, None]], axis=1)

    samples = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(2), bodies)))
    means, errors = samples.mean(0, dtype=float), samples.std(0, dtype=float) / np.sqrt(bodies)
    exact = [exact_diffusion(KT / DAMPING * dt * k) for k in (steps // 2, steps)]
    axes = [f"P{rank} of axis {axis}" for rank in (1, 2) for axis in "xyz"]
    for k, name in enumerate([*axes, "squared angle [rad^2]"]):
        cells = zip((e[k] for e in exact), means[:, k], errors[:, k], strict=True)
        yield [name, *itertools.chain(*((f"{e:.4f}", bracketed(m - e, s)) for e, m, s in cells))]


def autocorrelation(bodies=1_000_000):
    """Yield a row for each step: errors of <omega(0) . omega(0.8 s)> of a ball, gamma = 1/s.

    They are relative to 3 kT/I. In body axes and in those of the world it is exp(-gamma t).
    """
    single = functools.partial(jnp.asarray, dtype=jnp.float32)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def products(key, dt):
        omega = np.float32(np.sqrt(KT)) * jax.random.normal(key, (3,), jnp.float32)
        path = jq.rollout(
            langevin(single(BALL), single(KT)), jq.Body.from_principal(single(BALL)),
            jq.torques.zero, jq.State(single([1.0, 0.0, 0.0, 0.0]), omega),
            jq.grid(0.0, dt, 8), noise=jax.random.fold_in(key, 8),
        )  # fmt: skip
        state = path.state
        world = quaternion.rotate(state.q, state.omega)
        return jnp.stack([state.omega @ omega, world @ omega], axis=1)

    keys = jax.random.split(jax.random.key(3), bodies)
    for k in (8, 4, 2, 1):
        sample = np.asarray(products(keys, np.float32(0.8 / k))[:, k], float) / (3.0 * KT)
        bias, error = sample.mean(axis=0) - np.exp(-0.8), sample.std(axis=0) / np.sqrt(bodies)
        yield [f"{0.8 / k:g}", *map(bracketed, bias, error)]


# The limit without inertia.


def overdamped(bodies=1000, steps=50, dt=0.01):
    """Yield a row for each x: how far langevin and brownian are apart, on the same noise."""
    noise = np.random.default_rng(4).normal(size=(bodies, steps, 6))
    rest = start()._replace(omega=jnp.zeros(3))

    @jax.jit
    def angles(x):
        body = jq.Body.from_principal(DAMPING * dt / x)

        def end(scheme, noise):
            grid, strength = jq.grid(0.0, dt, steps), 2.0 * KT
            return jq.rollout(scheme, body, dipole, rest, grid, strength, noise=noise).final.q

        def one(noise):
            heavy = end(langevin(DAMPING, KT), noise)
            light = end(jq.stochastic.brownian(DAMPING, KT), noise[:, 3:])
            return quaternion.distance(heavy, light), quaternion.distance(rest.q, light)

        return [jnp.sqrt(jnp.mean(angle**2)) for angle in jax.vmap(one)(noise)]

    for x in (1e2, 1e3, 1e4, 1e5, 1e6):
        apart, moved = angles(x)
        yield [f"{x:.0e}", f"{apart:.1e}", f"{apart / moved:.1e}", f"{np.sqrt(2.0 / x):.1e}"]


# The strong order.


def coarsened(inertia, damping, rows, dt):
    """The noise (k, 6) of ``langevin`` steps of 2 dt that move a body like two steps of dt each.

    A step from rest with it, without load and gyroscopic term, ends at the rate of both steps and
    at the sum of their turns. The difference of the paths is then the error of the step, without
    that of sampling (M. B. Giles, Oper. Res. 56(3), 2008, 607-617). ``rows`` is (2 k, 6).
    """
    first, second = rows[0::2], rows[1::2]
    back = inverse_by_rows(jnp.linalg.cholesky(inertia))
    drag = matmul(matmul(back, damping), transpose(back))
    unit = jnp.eye(3, dtype=dt.dtype)  # the inertia of the rates u, whose roots are triangular
    half, whole = (ornstein_uhlenbeck(unit, drag, jnp.ones_like(dt), h) for h in (dt, 2.0 * dt))
    between = matvec(half.rate_of_x, first[:, :3])
    rate = between + matvec(half.change, between) + matvec(half.rate_of_x, second[:, :3])
    turn = matvec(half.turn, between) + matvec(half.turn_of_x, first[:, :3] + second[:, :3])
    turn = turn + matvec(half.turn_of_y, first[:, 3:] + second[:, 3:])
    x = matvec(inverse_by_rows(whole.rate_of_x), rate)
    y = matvec(inverse_by_rows(whole.turn_of_y), turn - matvec(whole.turn_of_x, x))
    return jnp.concatenate([x, y], axis=1)


COUNTS, FINE = (4, 8, 16, 32, 64), 1024


@functools.partial(jax.jit, static_argnums=0)
def last(name, moments, noise):
    """The attitudes (bodies, 4) after 1 s, in steps with this noise (bodies, steps, n)."""
    body, grid = jq.Body.from_principal(moments), jq.grid(0.0, 1.0 / noise.shape[1], noise.shape[1])
    scheme = SCHEMES[name](jnp.asarray(DAMPING), KT)

    def one(noise):
        return jq.rollout(scheme, body, dipole, start(), grid, 2.0 * KT, noise=noise).final.q

    return jax.vmap(one)(noise)


def strong_errors(name, moments, bodies=1000):
    """The root mean square angles [rad] from the fine path after 1 s, by steps, (5,).

    And their relative standard errors.
    """
    body = jq.Body.from_principal(jnp.asarray(moments))
    scheme = SCHEMES[name](jnp.asarray(DAMPING), jnp.asarray(KT))
    count = scheme.noise(start())
    noise = jnp.asarray(np.random.default_rng(5).normal(size=(bodies, FINE, count)))
    steps, fine, errors, relative = FINE, last(name, moments, noise), {}, {}
    while steps > min(COUNTS):
        rows = noise.reshape(-1, count)
        if name == "langevin":
            rows = coarsened(body.inertia, jnp.diag(DAMPING), rows, jnp.asarray(1.0 / steps))
        else:
            rows = (rows[0::2] + rows[1::2]) / np.sqrt(2.0)
        noise = rows.reshape(bodies, -1, count)
        steps //= 2
        if steps in COUNTS:
            squares = np.asarray(quaternion.distance(last(name, moments, noise), fine)) ** 2
            errors[steps] = np.sqrt(squares.mean())
            relative[steps] = squares.std() / squares.mean() / (2.0 * np.sqrt(bodies))
    return (np.array([column[steps] for steps in COUNTS]) for column in (errors, relative))


def strong_order():
    """Yield a row of errors for each scheme."""
    for name, moments, of in (
        ("langevin", MOMENTS, "triaxial"),
        ("langevin", 2.0 * BALL, "a ball"),
        ("brownian", MOMENTS, "any"),
    ):
        errors, relative = strong_errors(name, moments)
        slopes = slope(errors, 1.0 / np.array(COUNTS))
        uncertain = np.hypot(relative[1:], relative[:-1]) / np.log(2.0)
        yield [shown(name), of, ", ".join(f"{e:.1e}" for e in errors),
               ", ".join(map(bracketed, slopes, uncertain))]  # fmt: skip


TABLES: dict[str, tuple[Callable[[], Iterator[list[str]]], str]] = {
    "Equilibrium": (lambda: equilibrium(WARM), EQUILIBRIUM),
    "Equilibrium in long steps": (lambda: equilibrium(COLD), EQUILIBRIUM),
    "Weak order": (weak_order, "scheme | x | errors at dt = .2, .1, .05, .025, .0125 | slopes"),
    "Diffusion": (diffusion, "mean | after .5 s | error | after 1 s | error"),
    "Memory of the rate": (autocorrelation, "dt gamma | error, body axes | error, world axes"),
    "Without inertia": (overdamped, "x | apart [rad] | relative | sqrt(2/x)"),
    "Strong order": (
        strong_order,
        "scheme | body | errors [rad] in 4, 8, 16, 32, 64 steps | slopes",
    ),
}
