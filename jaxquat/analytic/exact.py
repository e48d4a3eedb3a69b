"""Exact motions, in closed form: what the schemes are tested against.

Each is a function of time, start and inertia, differentiable in all of them where the motion depends on them smoothly. One body,
one time; ``jax.vmap`` for many. References: E. T. Whittaker, Analytical Dynamics of Particles and Rigid Bodies, 4th ed. 1937,
sections 69-71; L. D. Landau and E. M. Lifshitz, Mechanics, 3rd ed. 1976, sections 35-37; R. van Zon and J. Schofield, J. Comput.
Phys. 225, 2007, 145-164 (attitude of the free asymmetric body).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._checks import (
    boolean,
    exactly,
    finite,
    is_concrete,
    positive,
    takes,
    unit_quaternion,
    unit_vector,
)
from jaxquat._linear import cross, dot, matvec, transpose
from jaxquat.analytic import elliptic
from jaxquat.control import follow
from jaxquat.dynamics.body import Body, check_body
from jaxquat.dynamics.contract import Torque
from jaxquat.dynamics.state import State, check_state
from jaxquat.rotations import euler
from jaxquat.rotations.quaternion import conjugate, exp, multiply, normalize, rotate, rotate_inverse
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
    """The free body with any three moments at one time t [s] after ``start``, in the dtype of the start.

    Values and derivatives by start, inertia and time hold at every spin: about a principal axis, of a
    symmetric body, of a sphere, on the separatrix, at rest. The rates are those of Whittaker 1937,
    section 69, and the attitude is van Zon and Schofield's, both by addition theorems in the start.

    Accuracy: the error is a few units of rounding times ``1 + sum |x dy/dx|`` over the numbers x that
    go in: moments, rates in principal axes, time. Only near the separatrix is this more than
    ``|omega| t``. A body that flips does so at intervals ``log(16/m1)/rate``, where m1 is proportional
    to ``gap - fall``, ``gap = I3 (I3 - I2) w3^2`` and ``fall = I1 (I2 - I1) w1^2`` (axis 2 the middle).
    A relative error e of w1 or w3 therefore shifts each flip by up to
    ``2 e (gap + fall)/|gap - fall|/rate``. So ``omega = (1e-14, 0.3, 1e-14)`` flips on time. But where
    gap and fall agree to rounding, or where turning omega into principal axes leaves w1 and w3 no
    digits, the time of the flip is not in the data. Then the result is the exact motion from a start
    that differs by some units of rounding; momentum and energy are those of the start.

    Near the middle axis derivatives by the start grow like exp(rate t); exactly on it they stop
    growing where they would leave the range of the dtype.
    """
    body, start, t = _start(body, start, t)
    moments, axes = body.principal()
    turned, rates = _free(moments, rotate_inverse(axes, start.omega), t)
    turned = jnp.concatenate([turned[:1], rotate(axes, turned[1:])])
    q = multiply(start.q, turned)
    return State(q, rotate(axes, rates), start.aux)


def _start(body: Body, start: State, t: ArrayLike) -> tuple[Body, State, Array]:
    """The arguments of a free motion, of one body and one dtype, or an error that names what is wrong."""
    start = check_state("start", start)
    check_body(body, start.q.dtype, "the start")
    return body, start, _number("t", t).astype(start.q.dtype)


def _free(moments: Array, omega: Array, t: Array) -> tuple[Array, Array]:
    """The turn (4,) of a free body in time t, and its rates (3,) then, in principal axes."""
    rest = jnp.max(jnp.abs(omega)) == 0
    size = _unit(jnp.where(rest, 1.0, omega))
    moments, matrix, start = _ordered(moments / _unit(moments), jnp.where(rest, 1.0, omega / size))
    time = t * size
    large, _ = _squares(moments, start)
    short = large * time * time < 2.0**-14

    # each branch at an ordinary motion where it does not serve
    ordinary = (
        jnp.asarray([1.0, 2.0, 3.0], t.dtype),
        jnp.asarray([0.5, 0.5, 1.0], t.dtype),
        jnp.ones_like(t),
    )
    safe = [jnp.where(short, x, y) for x, y in zip(ordinary, (moments, start, time), strict=True)]
    near, far = _short(moments, start, jnp.where(short, time, 0.0)), _long(*safe)
    half, end = (jnp.where(short, x, y) for x, y in zip(near, far, strict=True))

    about = jnp.stack([jnp.cos(half), jnp.zeros_like(half), jnp.zeros_like(half), jnp.sin(half)])
    turned = multiply(
        conjugate(_upright(moments * start)), multiply(about, _upright(moments * end))
    )
    turned = jnp.concatenate([turned[:1], matvec(transpose(matrix), turned[1:])])
    return jnp.where(rest, exp(t * omega), turned), jnp.where(
        rest, omega, size * matvec(transpose(matrix), end)
    )


def _unit(x: Array) -> Array:
    """The power of two next to the largest element: the unit in which nothing over- or underflows and no digit changes."""
    _, exponent = jnp.frexp(jnp.max(jnp.abs(lax.stop_gradient(x))))
    return jnp.ldexp(jnp.ones_like(x[0]), exponent - 1)


def _squares(moments: Array, omega: Array) -> tuple[Array, Array]:
    """The squares of the frequency and of k times the frequency, sums of positive terms."""
    (i1, i2, i3), (w1, w2, w3) = moments, omega
    outer, lower, upper = i3 - i1, i2 - i1, i3 - i2
    both = upper * lower / (i1 * i3) * w2 * w2
    return upper * outer / (i1 * i2) * w3 * w3 + both, lower * outer / (i2 * i3) * w1 * w1 + both


def _modulus(moments: Array, start: Array) -> tuple[Array, elliptic.Modulus]:
    """The frequency, and the modulus of the elliptic functions, of a motion that is not constant."""
    (i1, i2, i3), (w1, _, w3) = moments, start
    large, small = _squares(moments, start)
    unit = lax.stop_gradient(jnp.maximum(jnp.abs(w1), jnp.abs(w3)))  # w1^2 and w3^2 may underflow
    unit = jnp.where(unit > 0, unit, 1.0)
    gap, fall = i3 * (i3 - i2) * (w3 / unit) ** 2, i1 * (i2 - i1) * (w1 / unit) ** 2
    m1 = (i3 - i1) / (i1 * i2 * i3) * (gap - fall) / large
    flips = m1 > 0
    root = jnp.where(flips, jnp.sqrt(jnp.where(flips, m1, 1.0)), 0.0)
    m1 = jnp.where(
        flips, m1, m1 - lax.stop_gradient(m1)
    )  # on the separatrix rounding may leave a negative m1
    return jnp.sqrt(large), elliptic.Modulus(small / large, unit * unit * m1, unit * root)


def _rates(moments: Array, start: Array, s: Array, c: Array, d: Array) -> Array:
    """The rates from those at the start by the addition theorems: s = sn/frequency, c = cn, d = dn.

    The denominator is 1 - m sn^2 sn0^2 as a sum of squares, which may underflow as a body flips: hence ``scale``.
    """
    (i1, i2, i3), (w1, w2, w3) = moments, start
    c1, c2, c3 = (i2 - i3) / i1, (i3 - i1) / i2, (i1 - i2) / i3  # of Euler's equations
    scale = lax.stop_gradient(jnp.maximum(jnp.abs(c), jnp.sqrt(-c1 * c2) * jnp.abs(w3 * s)))
    c, d, w1, w3 = c / scale, d / scale, w1 / scale, w3 / scale
    numerators = [
        w1 * c + c1 * w2 * w3 * s * d,
        w2 * c * d + c2 * w3 * w1 * s,
        w3 * d + c3 * w1 * w2 * s * c,
    ]
    return jnp.stack(numerators) / (c * c - c1 * c2 * w3 * w3 * s * s)


_NODES, _WEIGHTS = (0.5 * x for x in np.polynomial.legendre.leggauss(3))


def _short(moments: Array, start: Array, t: Array) -> tuple[Array, Array]:
    """Half the turn about the momentum, and the rates, where the argument of the elliptic functions is below 1/128.

    There these are their Taylor series (Abramowitz and Stegun, 16.22), whose coefficients are polynomials in the squares of the
    frequencies: nothing divides by a frequency, which a sphere has not. Over so short a piece the rate of turn is integrated to
    rounding by three Gauss nodes.
    """
    share = jnp.asarray([*(0.5 + _NODES), 1.0], t.dtype)
    large, small = (x * t * t * share * share for x in _squares(moments, start))
    both = large * small
    s = (
        t
        * share
        * (1.0 - (large + small) / 6.0 + (large * large + 14.0 * both + small * small) / 120.0)
    )
    c = (
        1.0
        - large / 2.0
        + (large * large + 4.0 * both) / 24.0
        - large * (large * large + 44.0 * both + 16.0 * small**2) / 720.0
    )
    d = (
        1.0
        - small / 2.0
        + (small * small + 4.0 * both) / 24.0
        - small * (small * small + 44.0 * both + 16.0 * large**2) / 720.0
    )
    rates = jax.vmap(_rates, (None, None, 0, 0, 0), 1)(moments, start, s, c, d)

    momentum = moments * start
    size = jnp.sqrt(dot(momentum, momentum))
    speed = dot(momentum, start) / size + rates[2]
    return 0.5 * t * jnp.sum(
        jnp.asarray(_WEIGHTS, t.dtype) * (speed / (1.0 + moments[2] * rates[2] / size))[:-1]
    ), rates[:, -1]


def _long(moments: Array, start: Array, t: Array) -> tuple[Array, Array]:
    """Half the turn about the momentum, and the rates, at any time, of a motion that is not constant.

    With l the unit momentum in these axes, the frame that ``_upright`` gives turns about it at
    ``(2 E/L + w3)/(1 + l3)``, and l3 = kappa dn(u + u0). The integral from u0 to u + u0 is that from 0
    to u, which knows no phase u0, and by the addition theorem of the third kind the argument of a
    complex number. From its classical form (NIST DLMF, 19.11(i)) the amplitudes cancel: what
    is left is ``1 + l3 - link (l1 - i l2)`` at the end, which never vanishes.
    """
    (i1, i2, i3), (w1, w2, w3) = moments, start
    outer, lower, upper = i3 - i1, i2 - i1, i3 - i2
    frequency, modulus = _modulus(moments, start)
    momentum = moments * start
    size = jnp.sqrt(dot(momentum, momentum))
    third = jnp.sqrt(w3 * w3 + i2 * lower / (i3 * outer) * w2 * w2)  # the largest rate about axis 3
    kappa = i3 * third / size
    across = i1 * (i1 * w1 * w1 + i2 * upper / outer * w2 * w2) / (size * size)
    pole = elliptic.Pole(kappa, across, lower * i3 / (i1 * upper))
    sn, cn, dn, integral = elliptic.jacobi_and_third(frequency * t, modulus, pole)
    end = _rates(moments, start, sn / frequency, cn, dn)

    sense = jnp.where(outer < 0, -1.0, 1.0).astype(t.dtype)
    x, y, z = moments * end / size
    link = sense * modulus.m * jnp.sqrt(i1 * upper / (i2 * outer)) * sn * momentum[1] / size
    link = link / ((1.0 + kappa) * (1.0 + dn) * (1.0 + w3 / third))
    between = jnp.arctan2(link * y, 1.0 + z - link * x)
    steady = 0.5 * size * (kappa / i3 + across / ((1.0 + kappa) * i1)) * t  # 1 - kappa cancels
    return steady + sense * integral + between, end


def _ordered(moments: Array, omega: Array) -> tuple[Array, Array, Array]:
    """(moments, the matrix to these axes, rates).

    Axis 3 is the one that the momentum circles, the moments go up to it or down; w1 and w3 >= 0. Where no axis is circled either
    order serves.
    """
    order = jnp.argsort(moments)
    (i1, i2, i3), (w1, _, w3) = moments[order], jnp.abs(omega[order])
    circled = jnp.sqrt(i3 * (i3 - i2)) * w3 > jnp.sqrt(i1 * (i2 - i1)) * w1
    order = jnp.where(circled, order, order[::-1])
    matrix = jnp.eye(3, dtype=omega.dtype)[order]
    x, _, z = jnp.where(matvec(matrix, omega) < 0, -1.0, 1.0).astype(omega.dtype)
    y = x * z * dot(matrix[0], cross(matrix[1], matrix[2]))  # so that it is a rotation
    matrix = matrix * jnp.stack([x, y, z])[:, None]
    return moments[order], matrix, matvec(matrix, omega)


def _upright(momentum: Array) -> Array:
    """The smallest turn of a vector (3,) with third component z >= 0 to axis 3."""
    x, y, z = momentum / lax.stop_gradient(jnp.max(jnp.abs(momentum)))
    return normalize(jnp.stack([jnp.sqrt(x * x + y * y + z * z) + z, y, -x, jnp.zeros_like(x)]))


def free_symmetric(body: Body, start: State, t: ArrayLike) -> State:
    """The free body with I1 = I2, axis 3 of ``body.principal()`` its axis: ``q = exp(L t/I1) q0 exp(e3 w3 (1 - I3/I1) t)``.

    One time t [s], in the dtype of the start. ValueError for a concrete body with I1 != I2: ``free_body`` knows its motion.
    """
    body, start, t = _start(body, start, t)
    _check_symmetric("free_symmetric", body, "; use exact.free_body")
    (i1, _, i3), axes = body.principal()
    axis = rotate(axes, jnp.asarray([0.0, 0.0, 1.0], t.dtype))
    slip = (1.0 - i3 / i1) * rotate_inverse(axes, start.omega)[2] * axis  # omega - L/I1
    spin = exp(t * slip)
    q = multiply(multiply(exp(t * rotate(start.q, start.omega - slip)), start.q), spin)
    return State(q, rotate_inverse(spin, start.omega), start.aux)


def fixed_axis(q: ArrayLike, axis: ArrayLike, angle: ArrayLike) -> Array:
    """Attitude after a turn by ``angle`` [rad], the integral of the rate, about a fixed unit axis (3,), body axes. -> (4,)."""
    q, axis = exactly("q", q, (4,), _ONE), exactly("axis", axis, (3,), _ONE)
    unit_quaternion("q", q)
    unit_vector("axis", axis)
    if axis.dtype != q.dtype:
        raise TypeError(f"axis: wanted the dtype of q, {q.dtype}, got {axis.dtype}")
    return multiply(q, exp(_number("angle", angle).astype(q.dtype) * axis))


def flip_interval(body: Body, omega: ArrayLike) -> Array:
    """Seconds from flip to flip of a body that spins near its middle axis (Dzhanibekov): half a period of its rates. (3,) -> ().

    Infinite on the separatrix, at the middle axis itself and where equal moments leave no period. In the dtype of omega.
    """
    omega = exactly("omega", omega, (3,), _ONE)
    finite("omega", omega)
    check_body(body, omega.dtype, "omega")
    moments, axes = body.principal()
    omega = rotate_inverse(axes, omega)
    size = _unit(jnp.where(jnp.max(jnp.abs(omega)) == 0, 1.0, omega))
    moments, _, omega = _ordered(moments / _unit(moments), omega / size)
    constant = _squares(moments, omega)[0] == 0
    ordinary = jnp.asarray([1.0, 2.0, 3.0], omega.dtype), jnp.asarray([0.5, 0.5, 1.0], omega.dtype)
    frequency, modulus = _modulus(
        *(jnp.where(constant, x, y) for x, y in zip(ordinary, (moments, omega), strict=True))
    )
    return jnp.where(constant, jnp.inf, 2.0 * elliptic.complete(modulus) / frequency / size)


def steady_precession(
    body: Body,
    potential: ArrayLike,
    tilt: ArrayLike,
    spin: ArrayLike,
    t: ArrayLike,
    fast: bool = False,
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
    i1, i3 = _heavy("steady_precession", body)
    potential, tilt, spin, t = _numbers(body, potential=potential, tilt=tilt, spin=spin, t=t)
    with jax.ensure_compile_time_eval():
        # by I1 and not I1^2, which underflows for the moments of small particles
        a, b, cosine = i3 / i1 * spin, potential / i1, jnp.cos(tilt)
        square = a * a - 4.0 * b * cosine
        if is_concrete(square) and not float(square) >= 0:
            bound, got = (
                4.0 * float(i1) * float(potential) * float(cosine),
                (float(i3) * float(spin)) ** 2,
            )
            raise ValueError(
                f"spin: wanted I3^2 spin^2 >= 4 I1 potential cos(tilt) = {bound:.6g}, got {got:.6g}"
            )
    root = jnp.sqrt(square)
    larger = a + jnp.where(spin < 0, -root, root)
    rate = (
        larger / (2.0 * cosine)
        if boolean("fast", fast)
        else 2.0 * b / jnp.where(b == 0, 1.0, larger)
    )
    own = (spin - rate * cosine) * t
    q = euler.to_quaternion(jnp.stack([rate * t, tilt, own]), "ZXZ")
    across = rate * jnp.sin(tilt)
    return State(q, jnp.stack([across * jnp.sin(own), across * jnp.cos(own), spin]))


def nutation(
    body: Body, potential: ArrayLike, tilt: ArrayLike, spin: ArrayLike, t: ArrayLike
) -> Array:
    """Cosine of the tilt, at one time t [s], of the heavy top released with its axis at rest at the angle ``tilt`` [rad]. -> ().

    As ``steady_precession``: I1 = I2, ``U = potential cos(tilt)`` [J], here positive (for a top that hangs measure the tilt from
    below), ``spin`` is ``omega[2]`` [rad/s]; in the dtype of the body. Landau and Lifshitz 1976, section 35.

    Raises:
        ValueError: concrete values with I1 != I2, or a potential that is not positive: NaN where it is traced.
    """
    i1, i3 = _heavy("nutation", body)
    potential, tilt, spin, t = _numbers(body, potential=potential, tilt=tilt, spin=spin, t=t)
    positive("potential", potential)
    sine, cosine = jnp.sin(tilt), jnp.cos(tilt)
    pull = jnp.sqrt(2.0 * potential / i1)
    # cos(tilt) lies between the turning points cos - below and the third root cos + above, whose product of distances is sin^2
    ratio = (i3 / i1 * spin / pull) ** 2
    x = ratio - 2.0 * cosine
    span = jnp.hypot(x, 2.0 * sine)  # below + above
    still = span == 0  # upright, at the spin where that becomes unstable
    span = jnp.where(still, 1.0, span)
    larger = 0.5 * (span + jnp.abs(x))
    less = sine / larger  # the smaller distance is sine less: it cancels nowhere
    slow = x < 0
    m = jnp.where(slow, larger, sine * less) / span
    m1 = jnp.where(slow, sine * less, larger) / span
    root = jnp.where(slow, jnp.abs(sine) / jnp.sqrt(larger * span), jnp.sqrt(larger / span))
    sn, _, dn = elliptic.jacobi(0.5 * pull * jnp.sqrt(span) * t, elliptic.Modulus(m, m1, root))
    return cosine - jnp.where(still, 0.0, (sine * (sn / dn)) ** 2 / span)


def kovalevskaya(scale: ArrayLike, potential: ArrayLike, state: State) -> Array:
    """The fourth constant of the heavy body with moments (2, 2, 1) scale [kg m^2] and ``U = potential R[2, 0]`` [J]. -> ().

    ``|(w1 + i w2)^2 - potential/scale (g1 + i g2)|^2`` [rad^4/s^4] with g the vertical in body axes.
    """
    state = check_state("state", state)
    scale, potential = (
        _number(*named).astype(state.q.dtype)
        for named in (("scale", scale), ("potential", potential))
    )
    positive("scale", scale)
    g1, g2, _ = rotate_inverse(state.q, jnp.asarray([0.0, 0.0, 1.0], state.q.dtype))
    w1, w2, _ = state.omega
    share = potential / scale
    return (w1 * w1 - w2 * w2 - share * g1) ** 2 + (2.0 * w1 * w2 - share * g2) ** 2


def coning(half_angle: ArrayLike, rate: ArrayLike, t: ArrayLike) -> State:
    """An axis that describes a cone: a turn by ``half_angle`` [rad] about a horizontal axis that turns at ``rate`` [rad/s].

    At one time t [s]; defined for all values, in the dtype to which the three promote.
    """
    b, rate, t = _number("half_angle", half_angle), _number("rate", rate), _number("t", t)
    b, rate, t = (x.astype(jnp.result_type(b, rate, t)) for x in (b, rate, t))
    sine, cosine = jnp.sin(rate * t), jnp.cos(rate * t)
    q = jnp.stack(
        [jnp.cos(0.5 * b), jnp.sin(0.5 * b) * cosine, jnp.sin(0.5 * b) * sine, jnp.zeros_like(b)]
    )
    across = rate * jnp.sin(b)
    return State(
        q, jnp.stack([-across * sine, across * cosine, -2.0 * rate * jnp.sin(0.5 * b) ** 2])
    )


def prescribed(
    body: Body, attitude: Callable[[Array], Array]
) -> tuple[Callable[[ArrayLike], State], Torque]:
    """A motion chosen freely: ``attitude(t) -> (4,)`` with its State at any time, and the torque of time that makes it happen."""
    check_body(body)
    takes("attitude", attitude, "t")

    def state(t: ArrayLike) -> State:
        reference = follow(attitude, _number("t", t))
        return State(reference.q, reference.omega)

    def torque(t: ArrayLike, state: State, params: Any, *held: Any) -> Array:
        _, omega, alpha = follow(attitude, t)
        return matvec(body.inertia, alpha) + cross(omega, matvec(body.inertia, omega))

    return state, torque


_ONE = "; use jax.vmap"


def _number(name: str, value: ArrayLike) -> Array:
    number = exactly(name, value, (), _ONE)
    finite(name, number)
    return number


def _numbers(body: Body, **named: ArrayLike) -> list[Array]:
    """In the dtype of the body; what is concrete stays so under jit."""
    with jax.ensure_compile_time_eval():
        return [_number(name, value).astype(body.inertia.dtype) for name, value in named.items()]


def _heavy(name: str, body: Body) -> tuple[Array, Array]:
    """I1 and I3 of a symmetric body in principal axes."""
    check_body(body)
    with jax.ensure_compile_time_eval():
        inertia = body.inertia
        across = jnp.max(jnp.abs(inertia - jnp.diag(jnp.diagonal(inertia))))
        if is_concrete(across) and across > 100 * jnp.finfo(inertia.dtype).eps * jnp.max(inertia):
            raise ValueError(
                f"body: {name} wanted principal axes, got the inertia {inertia.tolist()}"
            )
        _check_symmetric(name, body)
        return inertia[0, 0], inertia[2, 2]


def _check_symmetric(name: str, body: Body, hint: str = "") -> None:
    if is_concrete(body):
        with jax.ensure_compile_time_eval():
            moments, _ = body.principal()
            if not bool(symmetric(moments, axis=2)):
                raise ValueError(
                    f"body: {name} wanted two equal moments about axis 3, got {moments.tolist()}{hint}"
                )
