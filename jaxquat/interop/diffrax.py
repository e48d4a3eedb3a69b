"""Rigid-body rotation in diffrax (extra ``diffrax``): adaptive steps, events, dense output.

``Dopri5`` is its embedded Runge-Kutta method, lifted as in ``jq.schemes.rkmk``. A state without aux
needs ``aux={}``, because diffrax's loops cannot hold an empty tuple. diffrax's own solvers accept
``term``, too, whose derivative of q is that in R^4, but their attitudes leave the sphere. The
examples of the functions continue this one:

Examples:
    >>> import diffrax
    >>> from jaxquat.interop import diffrax as bridge
    >>> body = jq.Body.from_principal(jnp.array([1.0, 2.0, 3.0]))
    >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.3, 0.4, 1.2]), aux={})
    >>> options = {"stepsize_controller": bridge.controller(attitude=1e-4, rate=1e-4)}
    >>> def solve(solver, dt0, **options):
    ...     free = bridge.term(body, jq.torques.zero)
    ...     return diffrax.diffeqsolve(free, solver, 0.0, 1.0, dt0, start, **options)
    >>> solution = jax.jit(lambda: solve(bridge.Dopri5(), None, **options))()
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal.checks import missing_package

try:
    import diffrax
except ImportError as error:
    raise ImportError(missing_package("interop.diffrax", "diffrax", "diffrax")) from error

from jaxquat import so3
from jaxquat._internal.checks import exactly, instance, positive, takes
from jaxquat._internal.linear import dot, root
from jaxquat._internal.renamed import answer
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Torque
from jaxquat.dynamics.motion import derivative
from jaxquat.dynamics.state import Rates, State
from jaxquat.quaternion import correct_norm, exp, log, multiply, relative
from jaxquat.schemes.munthe_kaas import moved, stages
from jaxquat.schemes.tableaus import DORMAND_PRINCE5, combine
from jaxquat.simulation.path import cubic

__all__ = ["Dopri5", "controller", "term"]

_ERROR = (
    35 / 384 - 5179 / 57600,
    0.0,
    500 / 1113 - 7571 / 16695,
    125 / 192 - 393 / 640,
    -2187 / 6784 + 92097 / 339200,
    11 / 84 - 187 / 2100,
    -1 / 40,
)
"""Weights of the slopes, that at the end included, in the error of Dormand and Prince."""


def term(body: Body, torque: Torque) -> diffrax.ODETerm:
    """Return the motion of one body as a term of diffrax, ``vf(t, state, params)``.

    Its ``vf`` returns a ``State`` of derivatives, that of q in R^4. TypeError if state and body
    differ in dtype: with ``jax_enable_x64``, a body and a state in float32 need times in float32,
    because diffrax promotes the state to the dtype of times, and Python numbers are float64.

    Examples:
        >>> drag = bridge.term(body, lambda t, state, gain: -gain * state.omega)
        >>> f"{drag.vf(0.0, start, 0.75).omega[0]:.3f} rad/s^2"
        '-0.705 rad/s^2'
    """
    instance("body", body, Body, "a jq.Body")
    takes("torque", torque, "t, state, params")

    def rates(t: Any, state: State, params: Any) -> State:
        state = State(*state)
        _check_dtype(body, state)
        others = derivative(body, torque, jnp.asarray(t, state.q.dtype), state, params)
        rate = jnp.concatenate([jnp.zeros_like(state.omega[:1]), 0.5 * state.omega])
        return State(multiply(state.q, rate), *others)

    return diffrax.ODETerm(rates)


def _check_dtype(body: Body, state: State) -> None:
    """Raise TypeError if diffrax has promoted the state to another dtype than the body's."""
    body_dtype, dtype = body.inertia.dtype, state.q.dtype
    if body_dtype != dtype:
        hint = (
            "; diffrax gives the state the dtype of the times where that is wider, and a Python"
            f" number has {jnp.asarray(0.0).dtype}: give t0, t1, dt0 and the ts of SaveAt as"
            f" {body_dtype}, as in jnp.{body_dtype}(0.0)"
        )
        hint = hint if dtype.itemsize > body_dtype.itemsize else ""
        raise TypeError(f"y0: wanted the dtype of the body, {body_dtype}, got {dtype}{hint}")


class _Interpolation(diffrax.AbstractLocalInterpolation):
    """The motion within one step."""

    # The rotation vector from the start of the step is the quintic that matches attitude, rate and
    # acceleration at both ends; rates are its exact derivative. Aux states, position and velocity
    # are cubics. y0 and y1 are the states at the times t0 and t1 [s], k0 and k1 their derivatives.

    t0: Any
    t1: Any
    y0: State
    y1: State
    k0: State
    k1: State

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> State:
        """Return the state at ``t0``, or with ``t1`` the state at t1 minus the state at t0."""
        if t1 is not None:
            return jax.tree.map(jnp.subtract, self.evaluate(t1), self.evaluate(t0))
        dtype = self.y0.q.dtype
        dt = jnp.asarray(self.t1 - self.t0, dtype)
        moving = dt != 0  # diffrax also evaluates steps of length zero
        dt = jnp.where(moving, dt, 1)
        s = jnp.where(moving, jnp.asarray(t0 - self.t0, dtype) / dt, 0)
        turn, rate = self._turn(s, dt)
        others = jax.tree.map(
            lambda a, b, c, d: a + cubic(s, b - a, c * dt, d * dt)[0],
            *(y[2:] for y in (self.y0, self.y1, self.k0, self.k1)),
        )
        return State(correct_norm(multiply(self.y0.q, exp(turn))), rate, *others)

    def _turn(self, s: Array, dt: Array) -> tuple[Array, Array]:
        """Return the rotation vector since the start, and the body rate, at the fraction ``s``."""
        # In the chart u of ``q = q0 exp(u)``, ``u' = dexpinv(u, omega)``, and u'' follows by jvp.
        end = log(relative(self.y0.q, self.y1.q))
        slope = so3.dexpinv(end, self.y1.omega)
        slope, curve = jax.jvp(so3.dexpinv, (end, self.y1.omega), (slope, self.k1.omega))
        slopes, curves = (self.y0.omega, slope), (self.k0.omega, curve)
        u, u_dot = _quintic(s, end, *(v * dt for v in slopes), *(a * dt**2 for a in curves))
        return u, so3.dexp(u, u_dot) / dt


def _quintic(
    s: Array, end: Array, v0: Array, v1: Array, a0: Array, a1: Array
) -> tuple[Array, Array]:
    """Return Hermite's quintic from 0 to ``end`` with derivatives v, a at both ends; its slope."""
    c3 = 10 * end - 6 * v0 - 4 * v1 - 1.5 * a0 + 0.5 * a1
    c4 = -15 * end + 8 * v0 + 7 * v1 + 1.5 * a0 - a1
    c5 = 6 * end - 3 * v0 - 3 * v1 - 0.5 * a0 + 0.5 * a1
    value = s * (v0 + s * (0.5 * a0 + s * (c3 + s * (c4 + s * c5))))
    return value, v0 + s * (a0 + s * (3 * c3 + s * (4 * c4 + s * 5 * c5)))


class _Lifted(diffrax.AbstractSolver):
    """The steps of ``Dopri5``; their error is tangent, a State with (0, rotation vector) as q."""

    term_structure: ClassVar = diffrax.ODETerm
    interpolation_cls: ClassVar[Callable[..., _Interpolation]] = _Interpolation

    def order(self, terms: Any) -> int:
        """Return the order of the solution."""
        return DORMAND_PRINCE5.order

    def init(self, terms: Any, t0: Any, t1: Any, y0: State, args: Any) -> State:
        """Return the slope at the start."""
        if isinstance(y0.aux, tuple) and not y0.aux:
            where = "where there is no aux state (diffrax cannot hold an empty tuple)"
            raise ValueError(f"y0: wanted a State with aux={{}} {where}, got ()")
        return terms.vf(t0, y0, args)

    def func(self, terms: Any, t0: Any, y0: State, args: Any) -> State:
        """Return the slope plus a term along q, 0 on the sphere, for ``ImplicitAdjoint``."""
        slope = terms.vf(t0, y0, args)
        return slope._replace(q=slope.q + (1 - dot(y0.q, y0.q)) * y0.q)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: State, args: Any, solver_state: Any, made_jump: Any
    ) -> Any:
        """Return state, error, arguments of the interpolation, slope at the end, and success."""
        dtype = y0.q.dtype
        t, dt = jnp.asarray(t0, dtype), jnp.asarray(t1 - t0, dtype)
        k0 = lax.cond(made_jump, lambda _: terms.vf(t0, y0, args), lambda k: k, solver_state)

        def rates(t: Array, stage: State) -> Rates:
            return Rates(*terms.vf(t, stage, args)[1:])

        slopes = stages(DORMAND_PRINCE5, rates, t, y0, dt, Rates(*k0[1:]))
        shift = combine(DORMAND_PRINCE5.b, slopes, dt)
        y1 = moved(y0, shift)
        k1 = terms.vf(t1, y1, args)
        end = so3.dexpinv(shift[0], y1.omega), Rates(*k1[1:])
        turn, others = combine(_ERROR, [*slopes, end], dt)
        error = State(jnp.concatenate([jnp.zeros_like(turn[:1]), turn]), *others)
        dense = {"y0": y0, "y1": y1, "k0": k0, "k1": k1}
        return y1, error, dense, k1, diffrax.RESULTS.successful


class Dopri5(_Lifted):
    """Dormand and Prince's method 5(4), lifted (J. Comput. Appl. Math. 6, 1980, 19): ``jq.rkmk5``.

    Examples:
        >>> solution = jax.jit(lambda: solve(bridge.Dopri5(), 0.02))()
        >>> f"{jnp.linalg.norm(solution.ys.q):.4f}"
        '1.0000'
    """


class _Norm(NamedTuple):
    """The largest error of any array of a State, in units of its tolerance."""

    attitude: float
    rate: float
    aux: float
    position: float
    velocity: float

    def __call__(self, error: Any) -> Array:
        q, *others = error
        scaled = [_root_mean_square(q[1:]) / self.attitude]
        for tolerance, part in zip(self[1:], others, strict=True):
            scaled += [_root_mean_square(x) / tolerance for x in jax.tree.leaves(part)]
        return jnp.max(jnp.stack(scaled))


def _root_mean_square(x: Array) -> Array:
    return root(dot(x.ravel(), x.ravel()) / max(x.size, 1))


def controller(
    attitude: float = 1e-6,
    rate: float = 1e-6,
    aux: float = 1e-6,
    position: float = 1e-6,
    velocity: float = 1e-6,
    **options: Any,
) -> diffrax.PIDController:
    """Return a PID controller of diffrax that bounds the estimated error of each step.

    The error is the root mean square over the axes. ValueError for a tolerance that is not
    positive.

    Args:
        attitude: tolerance of the attitude [rad].
        rate: tolerance of the body rate [rad/s].
        aux: tolerance of each aux state, in its unit.
        position: tolerance of the position [m].
        velocity: tolerance of the velocity [m/s].
        options: more arguments of ``diffrax.PIDController`` (pcoeff, icoeff, dcoeff, dtmin, ...).

    Examples:
        >>> steps = bridge.controller(attitude=1e-4, rate=1e-3)  # rad, rad/s
    """
    norm = _Norm(attitude, rate, aux, position, velocity)
    for name, value in norm._asdict().items():
        positive(name, exactly(name, value, ()))
    return diffrax.PIDController(rtol=0.0, atol=1.0, norm=norm, **options)


answer({"interop.diffrax": sys.modules[__name__]})
