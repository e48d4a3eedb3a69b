"""Bodies in a fluid that shakes them: Langevin dynamics, and its limit without inertia.

With the drag ``-D (omega - c)`` in body axes, a torque tau and noise of the temperature kT,

    I d omega = (tau - omega x I omega - D (omega - c)) dt + sqrt(2 kT D) dW.

Let G be the change of the rate by the gyroscopic term over half a step, by a scheme for the free
body, and O the rest at a constant torque, solved exactly: rate and turn are a Gaussian vector (S.
Chandrasekhar, Rev. Mod. Phys. 15, 1943, 1-89, II.2; D. L. Ermak and H. Buckholz, J. Comput. Phys.
35, 1980, 169-182). A step is G O G. With ``I = L L^T``, ``u = L^T omega`` has one temperature about
all axes and the symmetric drag ``S = L^-1 D L^-T``, so m, n, c, g of ``Z = dt S`` (``relaxation``)
commute:

    u    -> (1 + c) u + dt ((m - n) f_0 + n f_1) + sqrt(kT) A x,
    turn =  dt L^-T (m u + dt n f_0 + sqrt(kT) (B x + C y)),

where f is ``L^-1 (tau + D c)`` at both ends, x and y are standard normals (3,), and ``A A^T``,
``B A^T`` and ``B B^T + C C^T`` are -(2 c + c^2), -c m and g. In steps much longer than I/D the turn
is that of Brownian motion with the mobility D^-1. (An exact step of the rate alone, between two
turns, makes the diffusion wrong by x/2 coth(x/2).) Displacement and velocity follow the same
equations, with mass, resistance, force and wind. O solves them along the body axes halfway through
the turn; along those at the start the order would be 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, not_negative, report
from jaxquat._internal.linear import matvec, scale_of, transpose
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.forces import Wind
from jaxquat.dynamics.state import State
from jaxquat.dynamics.torques import zero
from jaxquat.dynamics.units import Scales, own_units, torque_in
from jaxquat.quaternion import correct_norm, exp, multiply, rotate, rotate_inverse
from jaxquat.schemes.damping import Fluid
from jaxquat.schemes.relaxation import inverse_by_rows
from jaxquat.schemes.scheme import Scheme, StepArguments, StepObject, as_part
from jaxquat.stochastic.ornstein_uhlenbeck import ornstein_uhlenbeck


def langevin(
    scheme: Scheme | Step,
    damping: ArrayLike,
    temperature: ArrayLike,
    toward: Callable[..., Array] | None = None,
    *,
    resistance: ArrayLike | None = None,
    wind: Wind | None = None,
) -> Scheme:
    """Make the scheme of a body with drag and thermal noise, for steps of any length.

    A step takes six standard normals, ``jq.rollout(..., noise=jax.random.key(0))``. Rate and turn
    have the right joint distribution at a fixed torque. The weak order is 2 in steps much shorter
    than the relaxation time I/damping; in much longer ones it is 1, and the motion is that of
    ``brownian``. In equilibrium ``I_i <omega_i^2>`` is the temperature. A ``resistance`` adds the
    drag ``-resistance (velocity - wind)`` and its noise; the state then needs a position, and a
    step twelve normals.

    Torques and forces may depend on time, attitude and position, not on rates; aux states are
    refused. At temperature 0 the scheme is that of a drag, and the derivative with respect to the
    temperature is infinite.

    Args:
        scheme: a scheme for the free body, for the gyroscopic term alone; not stochastic or
            restarted.
        damping: (), diagonal (3,) or (3, 3), body axes [N m s], positive definite. A leaf of the
            Scheme, as temperature and resistance are: gradients reach them.
        temperature: k T [J], (), not negative.
        toward: ``toward(t, state, params)``, the rate (3,) of the fluid [rad/s] in BODY axes, as in
            ``schemes.damp``; zero by default.
        resistance: () or (3,) along body axes [N s/m], positive; None for a state without position.
        wind: velocity of the fluid in WORLD axes [m/s], (3,) or ``wind(t, position) -> (3,)``.

    Examples:
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        >>> jq.stochastic.langevin(jq.no_squish, jnp.array(0.4), 1e-2).noise(start)
        6
    """
    scheme = as_part("scheme", scheme)
    fluid = Fluid.checked(damping, toward, resistance, wind, definite=True)
    step = Langevin(scheme, fluid, _temperature(temperature))
    return _stochastic(step, f"langevin({scheme.name})", 2, "Ermak and Buckholz 1980")


def brownian(
    damping: ArrayLike,
    temperature: ArrayLike,
    toward: Callable[..., Array] | None = None,
    *,
    resistance: ArrayLike | None = None,
    wind: Wind | None = None,
) -> Scheme:
    """Make the scheme of a body without inertia in a fluid: Brownian motion.

    A step turns the body by ``dt (damping^-1 tau + toward)`` and by three normals of the covariance
    ``2 dt temperature damping^-1``, in body axes (geometric Euler, weak order 1). The rate of the
    state is that of this turn without noise; neither it nor the moments are used.

    With a ``resistance`` the state needs a position (and the body a mass, unused), and a step six
    normals: it adds ``dt (resistance^-1 force + wind)`` and normals of the covariance
    ``2 dt temperature resistance^-1``, along the body axes at its start. There is no drift by
    noise, because that mobility has no divergence (Ermak and McCammon, J. Chem. Phys. 69, 1978,
    1352-1360). The velocity of the state is ``resistance^-1 force + wind`` at the start of the
    step.

    Arguments and errors are those of ``langevin``.

    Examples:
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        >>> jq.stochastic.brownian(jnp.array([0.4, 0.4, 0.1]), 1e-2).noise(start)
        3
    """
    fluid = Fluid.checked(damping, toward, resistance, wind, definite=True)
    step = Brownian(fluid, _temperature(temperature))
    return _stochastic(step, "brownian", 1, "geometric Euler")


def _stochastic(step: Thermal, name: str, evaluations: int, source: str) -> Scheme:
    return Scheme(
        step,
        name,
        order=1,
        evaluations=evaluations,
        torques="attitude",
        conserves=("norm",),
        aux=False,
        translation=step.fluid.resistance is not None,
        source=source,
    )


def _temperature(temperature: ArrayLike) -> Array:
    temperature = exactly("temperature", temperature, ())
    not_negative("temperature", temperature)
    return temperature


class Thermal(StepObject):
    """A step in a fluid; ``normals`` is the number of normals of a turn, and of a displacement."""

    has_drag = True
    name: ClassVar[str]  # for messages
    normals: ClassVar[int]

    fluid: Fluid
    temperature: Array

    def report(self) -> None:
        """Report traced numbers that are refused where they are known."""
        self.fluid.report()
        wanted = "a number that is not negative"
        report("temperature", wanted, self.temperature >= 0, self.temperature)

    def noise(self, state: State) -> int:
        """Return how many standard normals a step takes."""
        return self.normals * (2 if self.moves(state) else 1)

    def moves(self, state: State) -> bool:
        """Return whether the body has a position; TypeError if the resistance does not fit."""
        moves = state.position is not None
        if moves and self.fluid.resistance is None:
            wanted = f"{self.name} wanted one because the state has a position"
            raise TypeError(f"resistance: {wanted}, got none")
        if self.fluid.resistance is not None and not moves:
            wanted = "position and velocity because there is a resistance"
            raise TypeError(f"state: {self.name} wanted {wanted}, got neither")
        return moves

    def load(
        self, fluid: Fluid, torque: Torque, params: Any, t: Array, state: State
    ) -> tuple[Array, Callable[[Array], Array]]:
        """Return the torque on the body at rest, and the force along the axes of an attitude."""
        tau, force, rate, air = fluid.acting(self.name, torque, t, state, params)
        if rate is not None:
            tau = tau + matvec(fluid.damping, rate)

        def force_along(q: Array) -> Array:
            push = rotate_inverse(q, force)
            if air is None:
                return push
            return push + matvec(fluid.resistance, rotate_inverse(q, air))

        return tau, force_along


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Langevin(Thermal):
    """The step of ``langevin``."""

    name = "langevin"
    normals = 6

    scheme: Scheme
    fluid: Fluid
    temperature: Array

    def take(self, at: StepArguments) -> State:
        """Take one step."""
        body, torque, t, state, dt, params, noise = at
        moves = self.moves(state)
        own_body, scales = own_units(body)
        fluid = self.fluid.within(scales, torque)
        load = functools.partial(self.load, fluid, torque_in(scales, torque), params)
        warmth = scales.torque * self.temperature
        turning = ornstein_uhlenbeck(own_body.inertia, fluid.damping, warmth, dt)

        def gyrated(state: State) -> State:
            turning_only = State(state.q, state.omega)
            free = self.scheme(body, zero, t, turning_only, 0.5 * turning.gyration, params)
            return state._replace(omega=free.omega)

        state = gyrated(state)
        tau0, force0 = load(t, state)
        turn = turning.shift(state.omega, tau0, noise[:6])
        after = state._replace(q=correct_norm(multiply(state.q, exp(turn))))

        def kicked(after: State) -> tuple[State, Callable[[Array], Array]]:
            """Return this state with the rate at the end of the step, and the force on it."""
            tau1, force1 = load(t + dt, after)
            gain = turning.gain(state.omega, tau0, tau1, noise[:3])
            return gyrated(after._replace(omega=state.omega + gain)), force1

        if not moves:
            return kicked(after)[0]
        mass, warmth = own_body.mass * jnp.eye(3, dtype=dt.dtype), scales.force * self.temperature
        moving = ornstein_uhlenbeck(mass, fluid.resistance, warmth, dt)
        halfway = multiply(state.q, exp(0.5 * turn))
        velocity, push = rotate_inverse(halfway, state.velocity), force0(halfway)
        shift = rotate(halfway, moving.shift(velocity, push, noise[6:]))
        after, force1 = kicked(after._replace(position=state.position + shift))
        gain = moving.gain(velocity, push, force1(halfway), noise[6:9])
        return after._replace(velocity=state.velocity + rotate(halfway, gain))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Brownian(Thermal):
    """The step of ``brownian``."""

    name = "brownian"
    normals = 3

    fluid: Fluid
    temperature: Array

    def take(self, at: StepArguments) -> State:
        """Take one step."""
        _, torque, t, state, dt, params, noise = at
        fluid, moves = self.fluid, self.moves(state)
        scales = Scales(scale_of(fluid.damping), scale_of(fluid.resistance) if moves else 1.0)
        fluid = fluid.within(scales, torque)
        tau, force = self.load(fluid, torque_in(scales, torque), params, t, state)

        def motion(unit: Any, drag: Array, load: Array, noise: Array) -> tuple[Array, Array]:
            """Return the rate under this load and the turn by noise, or those of the position."""
            factor = inverse_by_rows(jnp.linalg.cholesky(drag))
            back = transpose(factor)  # the mobility is back factor
            kick = jnp.sqrt(2.0 * (unit * self.temperature) * dt)
            return matvec(back, matvec(factor, load)), kick * matvec(back, noise)

        rate, turn = motion(scales.torque, fluid.damping, tau, noise[:3])
        q = correct_norm(multiply(state.q, exp(dt * rate + turn)))
        after = state._replace(q=q, omega=rate)
        if not moves:
            return after
        drift, shift = motion(scales.force, fluid.resistance, force(state.q), noise[3:])
        return after._replace(
            position=state.position + rotate(state.q, dt * drift + shift),
            velocity=rotate(state.q, drift),
        )
