"""Stability margins of a sampled loop, one command at a time and all commands together.

Plant and controller, memory included, are linearised over a sample. Their series connection L(z),
from acting to minus commanded, gives ``S = (1 + L)^-1``. Broken at command i, with the others
closed, the loop is ``l_i = 1 / S_ii - 1``. With D = S - 1/2, the loop stays stable under any
factors ``f = (2 + d) / (2 - d)``, also complex, with ``|d|`` below the disk margin: ``1 / max
|D_ii|`` for one command, ``1 / mu(D)`` for all, mu the structured singular value. P. Seiler, A.
Packard and P. Gahinet, An introduction to disk margins, IEEE Control Systems 40(5), 2020, 78-95,
skew 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike, DTypeLike
from scipy import linalg

from jaxquat._internal.checks import concrete, instance, positive, positive_integer, scalar, takes
from jaxquat._internal.renamed import has_old_fields, refuses_old_keywords
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Commanded, Torque
from jaxquat.dynamics.state import State, check_state, describe, error_size, local, retract
from jaxquat.schemes.scheme import as_deterministic
from jaxquat.simulation.controller import Controller, update_of

Transfer = Callable[[np.ndarray], np.ndarray]

_AWAY = 0.1  # rad: a linearised equilibrium further from the state gets a warning


@has_old_fields("control.Margins")
class Margins(NamedTuple):
    """The stability margins of a loop of m commands; arrays of NumPy, in float64.

    Attributes:
        gain: (m, 2), the factors on one command below and above which the loop is unstable (0,
            inf).
        phase: (m,) [rad], the phase lag or lead of one command that makes it unstable (pi if none).
        delay: (m,) [s], the delay of one command that makes it unstable (inf if none); exact for
            whole numbers of samples.
        disk: (m,), the disk margin of one command, at most 2. It guarantees factors from
            ``(2 - disk) / (2 + disk)`` to ``(2 + disk) / (2 - disk)`` and phases up to
            ``2 arctan(disk / 2)``.
        multiloop: the disk margin of all commands at once: a lower bound, exact for one command.
        frequency: (k,) [rad/s], from nearly 0 to half of the sampling frequency.
        loop: (m, k), complex: the transfer of the loop broken at each command with the others
            closed; a factor f on the command makes the loop unstable at ``f loop = -1``.

    Examples:
        >>> law = lambda t, state, memory, damping, value: (-damping * state.omega, memory)
        >>> loop = jq.Controller(lambda start, damping: (), law)
        >>> plant = jq.rkmk4, body, jq.torques.commanded, 0.0, start, 0.1
        >>> margins = jq.control.margins(*plant, 5.0, loop)
        >>> margins.gain[0].round(2), margins.disk[0].round(2)  # up to 2 I/(damping dt)
        (array([0., 4.]), np.float64(1.2))
    """

    gain: np.ndarray
    phase: np.ndarray
    delay: np.ndarray
    disk: np.ndarray
    multiloop: float
    frequency: np.ndarray
    loop: np.ndarray

    def __repr__(self) -> str:
        numbers = zip(Margins._fields[:5], self[:5], strict=True)
        shown = (f"{name} {np.round(x, 3).tolist()}" for name, x in numbers)
        return f"<Margins of {len(self.gain)} commands: {'; '.join(shown)}>"


@refuses_old_keywords("control.margins")
def margins(
    scheme: Callable[..., State],
    body: Body,
    torque: Torque,
    t: ArrayLike,
    state: State,
    dt: ArrayLike,
    params: Any,
    controller: Controller,
    *,
    sample_every: int = 1,
    inputs: Any = None,
) -> Margins:
    """Compute the stability margins of a controller's loop about a state that it keeps.

    The loop is that of ``rollout`` with the same arguments, including memory, delays, lags and aux
    states. Uncontrollable and unobservable states, such as the position under an attitude
    controller, are removed. All arguments must be concrete (TypeError).

    Args:
        scheme: any deterministic scheme.
        body: the Body.
        torque: ``torque(t, state, params, command)``, the plant.
        t: the time [s] at which torque and controller are evaluated.
        state: the State to linearise about, which the loop must keep, for instance at rest at the
            target. If the loop would turn by more than 0.1 rad, there is a warning, unless rounding
            hides it in a slow loop. A command at an active limit has no effect.
        dt: the step [s].
        params: passed to torque and controller.
        controller: a jq.Controller, with the memory of its ``init``; for another one pass
            ``controller._replace(init=lambda start, params: memory)``. Wrap a law that the torque
            calls in a controller, as in the example.
        sample_every: steps per sample.
        inputs: one sample's slice of the inputs, if the controller or the torque takes any.

    Raises:
        ValueError: the closed loop is unstable; no command affects the controller's input;
            ``controller.period`` is not ``sample_every * dt``; a bad value.

    Examples:
        >>> law = lambda t, state, m, gains, _: (jq.control.quaternion_law(state, gains, level), m)
        >>> loop = jq.Controller(lambda start, gains: (), law)
        >>> plant = jq.rkmk4, body, jq.torques.commanded, 0.0, start, 0.1
        >>> margins = jq.control.margins(*plant, gains, loop)
        >>> margins.gain[0].round(1), np.rad2deg(margins.phase).round(1), margins.delay.round(2)
        (array([ 0., 50.]), array([12. ,  8.5,  7. ]), array([0.15, 0.15, 0.15]))
    """
    scheme = as_deterministic("scheme", scheme)
    instance("body", body, Body, "a jq.Body")
    takes("torque", torque, "t, state, params, command")
    state, t, dt = check_state("state", state), scalar("t", t), scalar("dt", dt)
    instance("controller", controller, Controller, "a jq.Controller")
    sample_every = positive_integer("sample_every", sample_every)
    for name, value in {"body": body, "t": t, "state": state, "dt": dt, "params": params}.items():
        concrete(name, value, "compute the margins outside jit, vmap and grad")
    positive("dt", dt)
    sample = sample_every * float(dt)
    period = sample if controller.period is None else float(np.asarray(controller.period))
    if not np.isclose(sample, period, rtol=1e-5):
        wanted = f"a period of {sample:.6g} s (sample_every * dt)"
        raise ValueError(f"controller: wanted {wanted}, got {period:.6g}")

    t, dt = t.astype(state.q.dtype), dt.astype(state.q.dtype)

    def plant(state: State, command: Any) -> State:
        commanded = Commanded(torque, command)

        def step(k: Any, state: State) -> State:
            return scheme(body, commanded, t + k * dt, state, dt, params)

        return lax.fori_loop(0, sample_every, step, state)

    def regulator(state: State, memory: Any) -> tuple[Any, Any]:
        return update_of(controller, t, state, memory, params, inputs)

    loop, drift = _linearised(plant, regulator, state, controller.init(state, params))
    a, b, k = loop
    if not np.isfinite(np.hstack([a, b, k.T])).all():
        raise ValueError("state: wanted one where torque and controller have finite derivatives")
    eps = float(jnp.finfo(state.q.dtype).eps)
    turn = _turn_to_rest(a - b @ k, drift, eps)
    if turn > _AWAY:
        text = f"the loop turns this state by about {turn:.2g} rad; wanted an equilibrium of it"
        warnings.warn(f"margins: {text}, such as rest at the target", stacklevel=3)
    return _margins(a, b, k, sample, eps)


def _linearised(
    plant: Callable[[State, Any], State],
    regulator: Callable[[State, Any], tuple[Any, Any]],
    state: State,
    memory: Any,
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Return A, B and K of ``x' = A x + B u``, ``u = -K x`` about a state, and the drift of x."""
    held, _ = regulator(state, memory)
    flat, join = _inexact(memory, state.q.dtype)
    command, unravel = ravel_pytree(held)
    if not (command.size and jnp.issubdtype(command.dtype, jnp.inexact)):
        wanted = f"a command of {state.q.dtype}"
        raise TypeError(f"controller.update: wanted {wanted}, got {describe(held)}")

    def moved(delta: Array, flat: Array, change: Array) -> tuple[tuple[Array, ...], Array]:
        begin, kept = retract(state, delta), plant(state, unravel(command))
        wanted, after = regulator(begin, join(flat))
        after = _inexact(after, flat.dtype)[0]
        drift = jnp.concatenate([local(state, kept), after - flat])
        error = local(kept, plant(begin, unravel(command + change)))
        return (error, after, ravel_pytree(wanted)[0]), drift

    zeros = jnp.zeros(error_size(state), state.q.dtype), flat, jnp.zeros_like(command)
    jacobian, drift = jax.jit(jax.jacfwd(moved, argnums=(0, 1, 2), has_aux=True))(*zeros)
    rows = [np.hstack([np.asarray(x, np.float64) for x in row]) for row in jacobian]
    whole, m = np.vstack(rows), command.size
    matrices = whole[:-m, :-m], whole[:-m, -m:], -whole[-m:, :-m]
    return matrices, np.asarray(drift, np.float64)


def _turn_to_rest(closed: np.ndarray, drift: np.ndarray, eps: float) -> float:
    """Return the turn [rad] after which the linearised loop rests, from balanced states."""
    rate = np.eye(len(closed)) - closed
    counts = np.ones(len(closed), bool)
    for _ in rate:
        counts &= rate[counts].any(axis=0)
    if not counts[:3].any():
        return 0.0
    balanced = linalg.matrix_balance(rate[counts][:, counts], permute=False, separate=True)
    rate, (scale, _) = balanced
    least = max(eps**0.5, 100.0 * eps / np.linalg.norm(rate, 2))
    rest = np.zeros(len(closed))
    rest[counts] = scale * np.linalg.lstsq(rate, drift[counts] / scale, least)[0]
    return float(np.linalg.norm(rest[:3]))


def _inexact(memory: Any, dtype: DTypeLike) -> tuple[Array, Callable[[Array], Any]]:
    """Return the numbers of a memory that have derivatives, (p,), and the inverse function."""
    memory = jax.tree.map(jnp.asarray, memory)
    moves = lambda x: jnp.issubdtype(x.dtype, jnp.inexact)  # noqa: E731
    numbers = [x for x in jax.tree.leaves(memory) if moves(x)]
    flat, unravel = ravel_pytree(numbers or jnp.zeros(0, dtype))

    def join(flat: Array) -> Any:
        moved = iter(unravel(flat))
        return jax.tree.map(lambda x: next(moved) if moves(x) else x, memory)

    return flat, join


def _margins(a: np.ndarray, b: np.ndarray, k: np.ndarray, period: float, eps: float) -> Margins:
    """Return the margins of ``x' = a x + b u`` with ``u = -k x``, for a relative error eps."""
    closed, b, k = _seen(a - b @ k, b, k, eps)
    triangle, turn = linalg.schur(closed, output="complex")[:2]
    b, k, one = turn.conj().T @ b, k @ turn, np.eye(b.shape[1])

    def sensitivity(w: np.ndarray) -> np.ndarray:
        """Return S, (n, m, m), at frequencies (n,) in radians per sample."""
        shifts = np.exp(1j * w)[:, None, None] * np.eye(len(closed))
        return one - k @ np.linalg.solve(shifts - triangle, np.broadcast_to(b, (len(w), *b.shape)))

    w = _frequencies(np.diag(triangle))
    at = sensitivity(w)
    loops = [
        _of_one(lambda w, i=i: sensitivity(w)[:, i, i], w, at[:, i, i], eps**0.5)
        for i in range(len(one))
    ]
    gain, phase, delay, disk, loop = map(np.array, zip(*loops, strict=True))

    def apart(s: np.ndarray) -> np.ndarray:
        return _structured(s - 0.5 * one)

    multiloop = 1.0 / _largest(lambda w: apart(sensitivity(w)), w, apart(at))
    return Margins(gain, phase, delay * period, disk, multiloop, w / period, loop)


def _of_one(sensitivity: Transfer, w: np.ndarray, at: np.ndarray, rounding: float) -> tuple:
    """Return gain, phase, delay [samples], disk and transfer of one loop."""

    def inverse(s: np.ndarray) -> np.ndarray:
        """Return 1 / l, which is finite at the poles of l."""
        return s / (1.0 - s)

    def beyond(s: np.ndarray) -> np.ndarray:
        return np.abs(inverse(s)) - 1.0

    with np.errstate(divide="ignore", invalid="ignore"):
        real = _roots(lambda s: np.imag(inverse(s)), sensitivity, w, at)
        factors = -np.real(inverse(sensitivity(np.append(real, [0.0, np.pi]))))
        unit = _roots(beyond, sensitivity, w, at)
        lag = -np.angle(-inverse(sensitivity(unit))) if len(unit) else unit
        loop = (1.0 - at) / at
        # One sample of delay changes the sign of l at pi, where l is real.
        turned = 1.0 if beyond(at[-1:])[0] < 0.0 else np.inf
    less, more = factors[(factors > rounding) & (factors < 1.0)], factors[factors > 1.0]
    gain = less.max(initial=0.0), more.min(initial=np.inf)
    phase = np.abs(lag).min(initial=np.pi)
    delay = (lag % (2.0 * np.pi) / unit).min(initial=turned)
    apart = _largest(lambda w: np.abs(sensitivity(w) - 0.5), w, np.abs(at - 0.5))
    return gain, phase, delay, 1.0 / apart, loop


def _seen(
    closed: np.ndarray, b: np.ndarray, k: np.ndarray, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the loop without hidden unstable modes (Schur form; Golub and Van Loan, 7.6)."""
    closed, (scale, _) = linalg.matrix_balance(closed, permute=False, separate=True)
    b, k = b / scale[:, None], k * scale
    whole = _response(closed, b, k)
    if not np.diagonal(whole).any():
        wanted = "one by which a command moves something that the controller sees"
        raise ValueError(f"torque: wanted {wanted}, for instance jq.torques.commanded")
    size = np.sqrt(np.diagonal(whole))
    # Rounding moves double eigenvalues by the root of eps; slow visible modes may be as near.
    for edge in (eps**0.5, 1e-8, 1e-12):
        least = 1.0 - 10.0 * edge
        ordered: Any = linalg.schur(closed, sort=lambda x, y, r=least: np.hypot(x, y) > r)
        form, turn, n = ordered
        left, right = turn.T @ b, k @ turn
        shift = linalg.solve_sylvester(form[:n, :n], -form[n:, n:], -form[:n, n:])
        part = _response(form[:n, :n], left[:n] - shift @ left[n:], right[:, :n])
        if np.all(part * part.T <= eps * np.outer(size, size) ** 2):
            return form[n:, n:], left[n:], right[:, n:] + right[:, :n] @ shift
    radius = np.abs(linalg.eigvals(closed)).max()
    if not radius < 1.0:
        raise ValueError(f"controller: wanted a stable loop, got a pole of modulus {radius:.6g}")
    return closed, b, k


def _response(a: np.ndarray, b: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Return the largest responses (m, m) of ``k x`` to an impulse of each command."""
    largest = np.zeros((len(k), b.shape[1]))
    for _ in a:
        largest, b = np.maximum(largest, np.abs(k @ b)), a @ b
    return largest


def _frequencies(poles: np.ndarray) -> np.ndarray:
    """Return frequencies [radians per sample] up to pi, dense about the resonances."""
    poles = poles[np.abs(poles) > 0.5]
    slowest = np.abs(np.log(poles)).min(initial=1.0)
    about = np.angle(poles)[:, None] + (1.0 - np.abs(poles))[:, None] * np.linspace(-3.0, 3.0, 25)
    w = np.concatenate([np.geomspace(1e-3 * slowest, np.pi, 1000), about.ravel()])
    return np.unique(w[(w >= 1e-3 * slowest) & (w <= np.pi)])


def _roots(f: Transfer, sensitivity: Transfer, w: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Find by bisection where f of the sensitivity changes its sign without a pole."""
    values = f(at)
    change = np.flatnonzero((values[:-1] < 0.0) != (values[1:] < 0.0))
    low, high, below = w[change], w[change + 1], values[change] < 0.0
    for _ in range(60 if len(change) else 0):
        middle = 0.5 * (low + high)
        left = (f(sensitivity(middle)) < 0.0) == below
        low, high = np.where(left, middle, low), np.where(left, high, middle)
    size = np.abs(values[change]) + np.abs(values[change + 1])
    return low[np.abs(f(sensitivity(low))) <= size] if len(change) else low


def _largest(f: Transfer, w: np.ndarray, at: np.ndarray) -> float:
    """Return the maximum of f, with values ``at``, refined about the largest value."""
    for _ in range(8):
        k = int(np.argmax(at))
        w = np.linspace(w[max(k - 1, 0)], w[min(k + 1, len(w) - 1)], 33)
        at = f(w)
    return float(at.max())


def _structured(d: np.ndarray) -> np.ndarray:
    """Bound structured singular values (k,) of (k, m, m); scaled as by Osborne, J. ACM 7, 1960."""
    scale = np.ones(d.shape[:2])
    others = np.abs(d) ** 2 * (1.0 - np.eye(d.shape[1]))
    for _ in range(20):
        scaled = others * (scale[:, :, None] / scale[:, None, :]) ** 2
        rows, columns = scaled.sum(axis=2), scaled.sum(axis=1)
        ratio = np.divide(columns, rows, out=np.ones_like(rows), where=(rows > 0) & (columns > 0))
        scale *= ratio**0.125
    return np.linalg.norm(d * scale[:, :, None] / scale[:, None, :], ord=2, axis=(1, 2))
