"""The definition of a filter, its run over a recording, and its smoother."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxquat import fused
from jaxquat._internal import reprs
from jaxquat._internal.checks import arrays, instance, is_concrete, takes
from jaxquat._internal.linear import matvec
from jaxquat.estimation import error_state
from jaxquat.estimation.arguments import check_sizes, unit_or_missing
from jaxquat.estimation.error_state import Error
from jaxquat.estimation.imu import ImuSample
from jaxquat.estimation.interval import Interval, checked
from jaxquat.quaternion import correct_norm, exp, log, multiply


class Estimate(NamedTuple):
    """The estimate of a filter after a sample.

    Attributes:
        q: attitude, body to world, (4,).
        bias: bias of the gyroscope, body axes [rad/s], (3,).
        others: the filter's further states, (n - 6,), in the order that its docstring gives.
        covariance: of the error, (n, n): the rotation vector of the attitude in WORLD axes [rad],
            ``q_true = exp(error[:3]) q``, then bias and others.
        nis: normalised innovation squared, (), with the mean ``observations`` if the noises are as
            assumed. NaN for ``ahrs``.
        observations: how many scalars were observed, ().
        log_likelihood: of the sample given all previous samples, (). NaN for ``ahrs``.

    Examples:
        >>> estimate = jq.estimation.smooth(mekf, samples)
        >>> f"{estimate.bias[0, 0]:.5f} +- {jnp.sqrt(estimate.covariance[0, 3, 3]):.5f} rad/s"
        '0.00200 +- 0.00005 rad/s'
    """

    q: Array
    bias: Array
    others: Array
    covariance: Array
    nis: Array
    observations: Array
    log_likelihood: Array


class Linearized(NamedTuple):
    """The linearised step of a filter, for the smoother."""

    transition: Array  # transition matrix of the error, (n, n)
    noise: Array  # covariance that the transition adds, (n, n)
    correction: Array  # the change of the mean by the observations, (n,)


class Filter(NamedTuple):
    """A filter: pure functions of its memory (its state between samples) and one sample.

    They are differentiable, in both modes, with respect to samples and settings.

    Attributes:
        init: ``init(sample) -> memory`` from the first sample; pass this sample to ``step``, too.
        step: ``step(memory, sample) -> (memory, estimate)``.
        linearize: ``linearize(memory, sample) -> (memory, estimate, Linearized)``, for ``smooth``.

    Examples:
        >>> sample = jax.tree.map(lambda rows: rows[0], samples)
        >>> memory, estimate = jax.jit(mekf.step)(mekf.init(sample), sample)
        >>> estimate.observations  # an attitude is three scalars
        Array(3., dtype=float32)
    """

    init: Callable[[Any], Any]
    step: Callable[[Any, Any], tuple[Any, Estimate]]
    linearize: Callable[[Any, Any], tuple[Any, Estimate, Linearized]]


# Reverse mode stores only the memory and recomputes the step, whose thirty arrays are as large as
# the covariance. Within a scan, XLA cannot merge the two computations: no barrier is needed.
_recomputed = functools.partial(jax.checkpoint, prevent_cse=False)


def run(
    filter: Filter,  # noqa: A002
    samples: Any,
    memory: Any = None,
    *,
    save: Callable[[Estimate], Any] = lambda estimate: estimate,
    engine: str = "auto",
) -> tuple[Any, Any]:
    """Run a filter over N samples of a recording. -> (memory, estimates with leading axis (N,)).

    Map over recordings with ``jax.vmap``; pad them with samples of length 0 without sensors (the
    interval is 0, NaN elsewhere), which change nothing.

    Args:
        filter: from ``mekf`` or ``ahrs``.
        samples: the filter's samples, each array with a leading axis (N,).
        memory: the memory that an earlier run returned; None to start at the first sample.
        save: ``save(estimate) -> pytree of arrays``, what to keep; by default the whole Estimate.
            ``lambda estimate: estimate.q`` spares the covariances, 1.3 kB a sample in ``ahrs``.
        engine: "fused", "scan" or "auto", see ``jq.fused.scan``.

    Raises:
        ValueError, TypeError: a bad argument, by name; a ``dt`` that is no ``estimation.Interval``;
            concrete intervals that are negative or not finite, or sizes that ``imu_samples``
            refuses.

    Examples:
        >>> memory, estimates = jax.jit(lambda samples: jq.estimation.run(mekf, samples))(samples)
        >>> f"{estimates.bias[-1, 0]:.4f} rad/s"
        '0.0020 rad/s'
    """
    memory = _start(filter, samples, memory)
    takes("save", save, "estimate")

    def step(memory: Any, sample: Any) -> tuple[Any, Any]:
        memory, estimate = filter.step(memory, sample)
        return memory, arrays("save(estimate)", save(estimate))

    return fused.scan(_recomputed(step), memory, samples, engine=engine)


def smooth(filter: Filter, samples: Any, memory: Any = None) -> Estimate:  # noqa: A002
    """Estimate the state at each of N samples from all samples. -> Estimate, leading axis (N,).

    This is the fixed-interval smoother of Rauch, Tung and Striebel. What a sensor may not correct
    in the filter, it does not correct here. ``nis``, ``observations`` and ``log_likelihood`` come
    from the filter. The covariances of all samples are kept: ``merge`` the samples of a long
    recording.

    Args:
        filter: from ``mekf`` or ``ahrs``.
        samples: the filter's samples, each array with a leading axis (N,).
        memory: the memory that an earlier run returned; None to start at the first sample.

    Examples:
        >>> smoothed = jax.jit(lambda samples: jq.estimation.smooth(mekf, samples))(samples)
        >>> f"{smoothed.bias[0, 0]:.4f} rad/s"  # known from the first sample on
        '0.0020 rad/s'
    """
    memory = _start(filter, samples, memory)

    def forward(memory: Any, sample: Any) -> tuple[Any, tuple[Estimate, Linearized]]:
        memory, estimate, linearized = filter.linearize(memory, sample)
        return memory, (estimate, linearized)

    # In the backward passes, ``later`` is of the next sample; the transition leads to it.
    def covariance(later: Any, row: Any) -> tuple[Any, tuple[Array, Array]]:
        own, *to_own = row
        smoothed, (transition, noise) = later
        gain, smoothed = error_state.smoothed(own, transition, noise, smoothed)
        return (smoothed, to_own), (gain, smoothed)

    def mean(later: Any, row: Any) -> tuple[Any, tuple[Array, ...]]:
        error, correction = later
        numbers, gain, own = row
        turn = joined(error[:3], correction[:3])
        # relative to the prediction of the next sample, then to the estimate of this one
        error = matvec(gain, (error + correction).at[:3].set(turn))
        return (error, own), _moved(numbers, error)

    _, (estimates, linearized) = fused.scan(_recomputed(forward), memory, samples)
    # After the last sample nothing is known: the filter's estimate of it stays.
    transition, noise, correction = linearized
    zero, zeros = jax.tree.map(lambda x: jnp.zeros_like(x[0]), (correction, noise))
    begin = zeros, [zeros, jnp.eye(len(zero), dtype=zero.dtype)]
    matrices = estimates.covariance, transition, noise
    gains, covariances = lax.scan(_recomputed(covariance), begin, matrices, reverse=True)[1]
    rows = estimates[:3], gains, correction
    q, bias, others = fused.scan(_recomputed(mean), (zero, zero), rows, reverse=True)[1]
    return estimates._replace(q=q, bias=bias, others=others, covariance=covariances)


def corrected(estimate: Estimate, error: Error) -> Estimate:
    """Return the estimate corrected by the mean error (n,), with the error's covariance."""
    q, bias, others = _moved(estimate[:3], error.mean)
    return estimate._replace(q=q, bias=bias, others=others, covariance=error.covariance)


def _moved(numbers: tuple[Array, Array, Array], error: Array) -> tuple[Array, Array, Array]:
    (q, bias, others), shift = numbers, error[3:]
    return turned(q, error[:3]), bias + shift[:3], others + shift[3:]


def joined(later: Array, earlier: Array) -> Array:
    """Return the rotation vector of two turns in world axes, (3,)."""
    return log(multiply(exp(later), exp(earlier)))


def turned(q: Array, u: Array) -> Array:
    """Turn an attitude by a rotation vector in world axes, ``exp(u) q``. (4,), (3,) -> (4,)."""
    return correct_norm(multiply(exp(u), q))


def present(value: Array, fallback: Array) -> tuple[Array, Array]:
    """Return whether a measurement is finite, and it or ``fallback``: no derivative is NaN."""
    valid = jnp.all(jnp.isfinite(value))
    return valid, jnp.where(valid, value, fallback)


def _start(filter: Filter, samples: Any, memory: Any) -> Any:  # noqa: A002
    instance("filter", filter, Filter, "an estimation.Filter, such as mekf(...)")
    if hasattr(samples, "dt"):
        checked("samples.dt", samples.dt)
    _check_arrays(samples)
    start = filter.init(jax.tree.map(lambda leaf: leaf[0], samples))
    if isinstance(samples, ImuSample) and is_concrete(samples):
        sensors = samples.dt.seconds, samples.gyro, samples.accelerometer
        check_sizes("samples", *map(np.asarray, sensors))
    if memory is None:
        return start
    wanted, got = (reprs.shapes(tree) for tree in (start, arrays("memory", memory)))
    if jax.tree.structure(memory) != jax.tree.structure(start) or got != wanted:
        raise TypeError(f"memory: wanted the memory of the filter, {wanted}, got {got}")
    return memory


def _check_arrays(samples: Any) -> None:
    """Raise TypeError or ValueError unless all leaves have an axis (N,), and for bad attitudes."""
    arrays("samples", samples)
    if hasattr(samples, "attitude"):
        unit_or_missing("samples.attitude", samples.attitude)
    for name, value in getattr(samples, "_asdict", dict)().items():
        if isinstance(value, list | tuple) and not isinstance(value, Interval):
            raise TypeError(f"samples.{name}: wanted an array, got a {type(value).__name__}")
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(samples)]
    if len({shape[:1] for shape in shapes}) != 1 or shapes[0][:1] in ((), (0,)):
        raise ValueError(f"samples: wanted arrays with one axis (N,) in front, got shapes {shapes}")
