"""Exact motions, in closed form: what the schemes are tested against.

Each is a function of time, start and inertia, differentiable in all of them where the motion depends on them smoothly. One body,
one time; ``jax.vmap`` for many. References: E. T. Whittaker, Analytical Dynamics of Particles and Rigid Bodies, 4th ed. 1937,
sections 69-71; L. D. Landau and E. M. Lifshitz, Mechanics, 3rd ed. 1976, sections 35-37; R. van Zon and J. Schofield, J. Comput.
Phys. 225, 2007, 145-164 (attitude of the free asymmetric body).
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import elliptic, euler
from jaxquat.arguments import exactly, is_concrete, positive, unit_vector
from jaxquat.body import Body
from jaxquat.control import follow
from jaxquat.linear import cross, dot, matvec, transpose
from jaxquat.mechanics import State, Torque, check_state, momentum
from jaxquat.quaternion import conjugate, exp, from_matrix, multiply, normalize, rotate, rotate_inverse
from jaxquat.schemes.splitting import symmetric

__all__ = [
    "coning",
    "fixed_axis",
    "flip_interval",
    "free_body",
    "free_symmetric",
    "kovalevskaya",
    "nutation",
    "prescribed",
    "steady_precession",
]


def free_body(body: Body, start: State, t: ArrayLike) -> State:
    """The free body with any three moments at one time t [s] after ``start``. Whittaker 1937, section 69; on the separatrix too.

    In the dtype of the start. Spin about the middle axis, or about one in the plane of two equal moments, is constant: its
    derivatives with respect to start and inertia, which this formula does not know, are NaN.
    """
    start = check_state("start", start)
    t = _number("t", t).astype(start.q.dtype)
    moments, axes = body.principal()
    omega = rotate_inverse(axes, start.omega)
    moments, omega, matrix, gap = _ordered(moments, omega)
    axes = multiply(axes, from_matrix(transpose(matrix)))
    i1, i2, i3 = moments
    w1, w2, w3 = omega
    outer, lower, upper = i3 - i1, i2 - i1, i3 - i2  # of one sign

    constant = (outer == 0) | (upper == 0) | ((w1 == 0) & (w3 == 0)) | (w3 * w3 * outer + lower * w2 * w2 == 0)
    safe = functools.partial(jnp.where, constant, 1.0)
    root = jnp.sqrt(safe(i2 * upper / (i1 * outer)))  # a1/a2, of the amplitudes of w1 and w2
    third = jnp.sqrt(safe(w3 * w3 + i2 * lower / (i3 * outer) * w2 * w2))  # the amplitude of w3
    factor = safe(i1 * lower / (third * third * i3 * upper))  # m/a1^2
    m1 = safe(outer * gap / safe(upper * (i3 * outer * w3 * w3 + i2 * lower * w2 * w2)))
    frequency = third * jnp.sqrt(safe(outer * upper / (i1 * i2)))
    sense = jnp.where(outer < 0, -1.0, 1.0).astype(t.dtype)
    circles = w1 * w1 + w2 * w2 > 0
    phase0 = jnp.arctan2(jnp.where(circles, sense * root * w2, 0.0), jnp.where(circles, w1, 1.0))
    u, u0 = frequency * t, elliptic.first(phase0, m1)
    jacobi = jax.vmap(elliptic.jacobi, (0, None))(jnp.stack([u, u + u0, u0]), m1)

    # The rates by the addition theorems, which stay smooth where their circle shrinks to a point.
    sn, cn, dn, _ = (x[0] for x in jacobi)
    dn0 = w3 / third
    numerators = [
        w1 * cn - sense * root * w2 * sn * dn * dn0,
        sense / root * w1 * sn * dn0 + w2 * cn * dn,
        w3 * dn - sense * root * factor * third * w1 * w2 * sn * cn,
    ]
    rates = jnp.stack(numerators) / safe(cn * cn + sn * sn * dn0 * dn0)  # 1 - m sn^2 sn0^2

    # The turn about the momentum, less the turn of the momentum about axis 3: an integral of the third kind and an angle.
    n, stretch = safe(-i3 * lower / (i1 * upper)), i2 / (i1 * root)
    integral, angle = (x[0] - x[1] for x in _circling(jax.tree.map(lambda x: x[1:], jacobi), m1, n, stretch))
    size = jnp.sqrt(safe(jnp.sum((moments * omega) ** 2)))
    turn = size * (t / i1 + outer * n / (3.0 * i1 * i3 * frequency) * integral) - sense * angle
    about = exp(turn * jnp.asarray([0.0, 0.0, 1.0], t.dtype))
    turned = multiply(conjugate(_upright(moments * omega / size)), multiply(about, _upright(moments * rates / size)))
    q = multiply(multiply(start.q, axes), multiply(turned, conjugate(axes)))

    sphere = (outer == 0) & (upper == 0)
    spin = start.omega + _without_derivative(start.omega, constant & ~sphere) + _without_derivative(body.inertia, constant)
    return State(
        jnp.where(constant, multiply(start.q, exp(t * spin)), q), jnp.where(constant, spin, rotate(axes, rates)), start.aux
    )


def _ordered(moments: Array, omega: Array) -> tuple[Array, Array, Array, Array]:
    """(moments, rates, the matrix to these axes, ``I3 (I3 - I2) w3^2 - I1 (I2 - I1) w1^2``).

    Axis 3 is the one that the momentum circles, the moments go up to it or down, as the sign of the last tells; w1 and w3 >= 0.
    """
    order = jnp.argsort(moments)
    (i1, i2, i3), (w1, _, w3) = moments[order], omega[order]
    gap = i3 * (i3 - i2) * w3 * w3 - i1 * (i2 - i1) * w1 * w1
    order = jnp.where(gap > 0, order, order[::-1])
    matrix = jnp.eye(3, dtype=omega.dtype)[order]
    x, _, z = jnp.where(matvec(matrix, omega) < 0, -1.0, 1.0).astype(omega.dtype)
    y = x * z * dot(matrix[0], cross(matrix[1], matrix[2]))  # so that it is a rotation
    matrix = matrix * jnp.stack([x, y, z])[:, None]
    return moments[order], matvec(matrix, omega), matrix, gap


def _circling(jacobi: tuple[Array, ...], m1: Array, n: Array, stretch: Array) -> tuple[Array, Array]:
    """(3 (Pi(n; am u) - u)/n, the angle arctan(stretch tan(am u))), continued through all turns. -> (k,), (k,)."""
    sn, cn, dn, am = jacobi
    angle = am + jnp.arctan2((stretch - 1.0) * sn * cn, cn * cn + stretch * sn * sn)
    turns = jnp.round(am / jnp.pi)
    side = jnp.where(cn < 0, -1.0, 1.0).astype(am.dtype)  # (-1)^turns
    several = (turns != 0) & (m1 > 0)
    one, zero = jnp.ones_like(m1), jnp.zeros_like(m1)
    quarter = elliptic.rj_complement(one, zero, jnp.sqrt(jnp.where(m1 > 0, m1, 1.0)), 1.0 - n)
    part = jax.vmap(elliptic.rj_complement)(side * sn, side * cn, dn, 1.0 - n * sn * sn)
    return jnp.where(several, part + 2.0 * turns * quarter, part), angle


def _upright(direction: Array) -> Array:
    """The smallest turn of a unit vector (3,) with positive third component to axis 3."""
    x, y, z = direction
    return normalize(jnp.stack([1.0 + z, y, -x, jnp.zeros_like(x)]))


def _without_derivative(x: Array, where: Array) -> Array:
    """Zero, whose derivative with respect to x is NaN where it says so."""
    return 0.0 * jnp.sqrt(jnp.where(where, 0.0 * jnp.sum(x), 1.0))


def free_symmetric(body: Body, start: State, t: ArrayLike) -> State:
    """The free body with I1 = I2, axis 3 of ``body.principal()`` its axis: ``q = exp(L t/I1) q0 exp(e3 w3 (1 - I3/I1) t)``.

    One time t [s], in the dtype of the start. ValueError for a concrete body with I1 != I2: ``free_body`` knows its motion.
    """
    start = check_state("start", start)
    t = _number("t", t).astype(start.q.dtype)
    _check_symmetric("free_symmetric", body, "; use exact.free_body")
    (i1, _, i3), axes = body.principal()
    w3 = rotate_inverse(axes, start.omega)[2]
    axis = rotate(axes, jnp.asarray([0.0, 0.0, 1.0], t.dtype))
    spin = exp((w3 * (1.0 - i3 / i1) * t) * axis)
    q = multiply(multiply(exp(momentum(body, start) * (t / i1)), start.q), spin)
    return State(q, rotate_inverse(spin, start.omega), start.aux)


def fixed_axis(q: ArrayLike, axis: ArrayLike, angle: ArrayLike) -> Array:
    """Attitude after a turn by ``angle`` [rad], the integral of the rate, about a fixed unit axis (3,), body axes. -> (4,)."""
    q, axis = exactly("q", q, (4,), _ONE), exactly("axis", axis, (3,), _ONE)
    unit_vector("axis", axis)
    return multiply(q, exp(_number("angle", angle) * axis))


def flip_interval(body: Body, omega: ArrayLike) -> Array:
    """Seconds from flip to flip of a body that spins near its middle axis (Dzhanibekov): half a period of its rates. (3,) -> ()."""
    moments, axes = body.principal()
    (i1, i2, i3), (_, w2, w3), _, gap = _ordered(moments, rotate_inverse(axes, exactly("omega", omega, (3,))))
    outer, lower, upper = i3 - i1, i2 - i1, i3 - i2
    third = i3 * outer * w3 * w3 + i2 * lower * w2 * w2
    m1 = outer * gap / (upper * third)
    return 2.0 * elliptic.complete(m1) / jnp.sqrt(third * upper / (i1 * i2 * i3))


def steady_precession(
    body: Body, potential: ArrayLike, tilt: ArrayLike, spin: ArrayLike, t: ArrayLike, fast: bool = False
) -> State:
    """The heavy top that precesses at constant tilt, I1 = I2, under ``U = potential cos(tilt)``, at one time t [s].

    Of ``torques.heavy_top(weight, (0, 0, h))`` the potential is weight h [J]. ``tilt`` is the angle of the axis from the vertical
    [rad], ``spin`` is ``omega[2]`` [rad/s]; of the two rates of precession the slow or the fast, which is infinite at a tilt of
    pi/2. At t = 0 the attitude is a turn by the tilt about x. Body axes are principal axes; in the dtype of the body. Landau and
    Lifshitz 1976, section 35.

    Raises:
        ValueError: concrete values with I1 != I2, or a spin that is too slow, ``I3^2 spin^2 < 4 I1 potential cos(tilt)``: NaN where
            it is traced.
    """
    potential, tilt, spin, t = _numbers(body, potential=potential, tilt=tilt, spin=spin, t=t)
    i1, i3 = _heavy("steady_precession", body)
    with jax.ensure_compile_time_eval():
        cosine = jnp.cos(tilt)
        square = i3 * i3 * spin * spin - 4.0 * i1 * potential * cosine
        if is_concrete(square) and not float(square) >= 0:
            bound = 4.0 * i1 * potential * cosine
            raise ValueError(f"spin: wanted I3^2 spin^2 >= 4 I1 potential cos(tilt) = {bound:.6g}, got {i3 * i3 * spin * spin:.6g}")
    root = jnp.sqrt(square)
    larger = i3 * spin + jnp.where(spin < 0, -root, root)
    rate = larger / (2.0 * i1 * cosine) if fast else 2.0 * potential / larger
    own = (spin - rate * cosine) * t
    q = euler.to_quaternion(jnp.stack([rate * t, tilt, own]), "ZXZ")
    across = rate * jnp.sin(tilt)
    return State(q, jnp.stack([across * jnp.sin(own), across * jnp.cos(own), spin]))


def nutation(body: Body, potential: ArrayLike, tilt: ArrayLike, spin: ArrayLike, t: ArrayLike) -> Array:
    """Cosine of the tilt, at one time t [s], of the heavy top released with its axis at rest at the angle ``tilt`` [rad]. -> ().

    As ``steady_precession``: I1 = I2, ``U = potential cos(tilt)`` [J], here positive (for a top that hangs measure the tilt from
    below), ``spin`` is ``omega[2]`` [rad/s]; in the dtype of the body. Landau and Lifshitz 1976, section 35.

    Raises:
        ValueError: concrete values with I1 != I2, or a potential that is not positive: NaN where it is traced.
    """
    potential, tilt, spin, t = _numbers(body, potential=potential, tilt=tilt, spin=spin, t=t)
    positive("potential", potential)
    i1, i3 = _heavy("nutation", body)
    cosine = jnp.cos(tilt)
    a, b = i3 * spin / i1, 2.0 * potential / i1
    root = jnp.sqrt(a**4 - 4.0 * b * (a * a * cosine - b))
    low, high = 2.0 * (a * a * cosine - b) / (a * a + root), (a * a + root) / (2.0 * b)
    m1 = (high - cosine) / (high - low)
    sn, _, _, _ = elliptic.jacobi(0.5 * jnp.sqrt(b * (high - low)) * t + elliptic.complete(m1), m1)
    return low + (cosine - low) * sn * sn


def kovalevskaya(scale: ArrayLike, potential: ArrayLike, state: State) -> Array:
    """The fourth constant of the heavy body with moments (2, 2, 1) scale [kg m^2] and ``U = potential R[2, 0]`` [J]. -> ().

    ``|(w1 + i w2)^2 - potential/scale (g1 + i g2)|^2`` [rad^4/s^4] with g the vertical in body axes.
    """
    g1, g2, _ = rotate_inverse(state.q, jnp.asarray([0.0, 0.0, 1.0], state.q.dtype))
    w1, w2, _ = state.omega
    share = _number("potential", potential) / _number("scale", scale)
    return (w1 * w1 - w2 * w2 - share * g1) ** 2 + (2.0 * w1 * w2 - share * g2) ** 2


def coning(half_angle: ArrayLike, rate: ArrayLike, t: ArrayLike) -> State:
    """An axis that describes a cone: a turn by ``half_angle`` [rad] about a horizontal axis that turns at ``rate`` [rad/s].

    At one time t [s]; defined for all values, in the dtype to which the three promote.
    """
    b, rate, t = _number("half_angle", half_angle), _number("rate", rate), _number("t", t)
    b, rate, t = (x.astype(jnp.result_type(b, rate, t)) for x in (b, rate, t))
    sine, cosine = jnp.sin(rate * t), jnp.cos(rate * t)
    q = jnp.stack([jnp.cos(0.5 * b), jnp.sin(0.5 * b) * cosine, jnp.sin(0.5 * b) * sine, jnp.zeros_like(b)])
    across = rate * jnp.sin(b)
    return State(q, jnp.stack([-across * sine, across * cosine, -rate * (1.0 - jnp.cos(b))]))


def prescribed(body: Body, attitude: Callable[[Array], Array]) -> tuple[Callable[[ArrayLike], State], Torque]:
    """A motion chosen freely: ``attitude(t) -> (4,)`` with its State at any time, and the torque of time that makes it happen."""

    def state(t: ArrayLike) -> State:
        reference = follow(attitude, _number("t", t))
        return State(reference.q, reference.omega)

    def torque(t: ArrayLike, state: State, params: Any, *held: Any) -> Array:
        _, omega, alpha = follow(attitude, t)
        return matvec(body.inertia, alpha) + cross(omega, matvec(body.inertia, omega))

    return state, torque


_ONE = "; use jax.vmap"


def _number(name: str, value: ArrayLike) -> Array:
    return exactly(name, value, (), _ONE)


def _numbers(body: Body, **named: ArrayLike) -> list[Array]:
    """In the dtype of the body; what is concrete stays so under jit."""
    with jax.ensure_compile_time_eval():
        return [_number(name, value).astype(body.inertia.dtype) for name, value in named.items()]


def _heavy(name: str, body: Body) -> tuple[Array, Array]:
    """I1 and I3 of a symmetric body in principal axes."""
    with jax.ensure_compile_time_eval():
        inertia = body.inertia
        across = jnp.max(jnp.abs(inertia - jnp.diag(jnp.diagonal(inertia))))
        if is_concrete(across) and across > 100 * jnp.finfo(inertia.dtype).eps * jnp.max(inertia):
            raise ValueError(f"body: {name} wanted principal axes, got the inertia {inertia.tolist()}")
        _check_symmetric(name, body)
        return inertia[0, 0], inertia[2, 2]


def _check_symmetric(name: str, body: Body, hint: str = "") -> None:
    if is_concrete(body):
        with jax.ensure_compile_time_eval():
            moments, _ = body.principal()
            if not bool(symmetric(moments, axis=2)):
                raise ValueError(f"body: {name} wanted two equal moments about axis 3, got {moments.tolist()}{hint}")
