"""Conserved quantities walk and do not drift.

In either precision, errors grow like the root of the number of steps. E. Hairer, R. McLachlan and
A. Razakarivony, BIT 48, 2008, call this "Brouwer's law". The tests use free bodies with and without
products of inertia, steps of .02 and medians over 64 starts.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from examples.validation import problems
from examples.validation.orders import COMPOSED

CONSERVING = [name for name, scheme in jq.schemes.SCHEMES.items() if "momentum" in scheme.conserves]
# Those that are not composed of others. Others differ from them in the lengths of their flows.
OF_ONE_STEP = [name for name in CONSERVING if name not in COMPOSED]
# At 1e5 steps in float32, the bound is some 700 roundings of 6e-8. That is what 1e5 roundings of
# either sign come to in one component.
BOUND = 4e-5
# Errors grow at most like this power of the steps; 0.5 is a random walk, 1 is a drift.
GROWTH = 0.65
# The values are eps in units of that of float32.
PRECISIONS = {"float32": 1.0, "float64": 2.0**-29}


def bodies(name, precision, axes):
    symmetric = name == "symmetric_top_bm4"
    # A matrix of float32 leaves two equal moments apart by more than the scheme admits.
    if symmetric and axes == "matrix":
        axes = "given"
    return problems.FreeBodies(jnp.dtype(precision), axes, symmetric)


def growth(counts, errors):
    return -problems.slope(np.array(counts), np.array(errors))


@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize("name", some(["no_squish", "lgvi", "simo_wong"], ["no_squish"]))
def test_momentum_and_energy_walk_in_float32(name):
    counts = (10_000, 100_000)
    found = bodies(name, "float32", "given").drifts(jq.schemes.SCHEMES[name], counts, "fused")
    assert (found[-1] < BOUND).all(), found
    assert growth(counts, found[:, 0]) < GROWTH, found


@pytest.mark.slow
@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize(
    ("name", "axes", "precision"),
    [
        *((name, "given", "float32") for name in CONSERVING),
        *((name, "given", "float64") for name in OF_ONE_STEP),
        *((name, "principal", "float32") for name in OF_ONE_STEP),
    ],
)
def test_momentum_and_energy_walk_over_a_million_steps(name, axes, precision):
    counts, unit = (10_000, 100_000, 1_000_000), PRECISIONS[precision]
    found = bodies(name, precision, axes).drifts(jq.schemes.SCHEMES[name], counts, "fused")
    # Some energies swing by the square of the step, so that their means differ by more than
    # rounding. The test in extended precision covers these.
    swings = precision == "float64" and name in ("no_squish", "symmetric_top")
    assert found[1, 0] < BOUND * unit, found / unit
    assert swings or found[1, 1] < BOUND * unit, found / unit
    assert growth(counts, found[:, 0]) < GROWTH, found / unit
    assert growth(counts, found[:, 1]) < GROWTH, found / unit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [*((name, "float32") for name in OF_ONE_STEP), ("lgvi", "float64"), ("simo_wong", "float64")],
)
def test_momentum_and_energy_walk_in_the_scan_engine(name, precision):
    """The scheme gets a matrix of inertia, and rotations find its axes.

    The test in extended precision runs the splittings in float64.
    """
    counts, unit = (10_000, 100_000), PRECISIONS[precision]
    found = bodies(name, precision, "matrix").drifts(jq.schemes.SCHEMES[name], counts)
    assert (found[-1] < BOUND * unit).all(), found / unit
    assert growth(counts, found[:, 0]) < GROWTH, found / unit


def turned(m, axis, angle):
    """Turns the momentum of a body about one of its axes, in place."""
    j, k = (axis + 1) % 3, (axis + 2) % 3
    c, s = np.cos(angle), np.sin(angle)
    m[j], m[k] = c * m[j] + s * m[k], c * m[k] - s * m[j]


def extended_energy(name, moments, omega, h, steps, every):
    """Returns the energy of the free body by a splitting in extended precision.

    There is a row each ``every`` steps: (3, n), (3, n) -> (rows, n).
    """
    h, found = np.longdouble(h), []
    if name == "symmetric_top":  # The closest pair of moments comes first.
        gaps = np.abs(np.roll(moments, -1, 0) - np.roll(moments, 1, 0))
        order = (np.argmin(gaps, 0) + 1 + np.arange(3)[:, None]) % 3
        moments, omega = (np.take_along_axis(x, order, 0) for x in (moments, omega))
    m = moments * omega
    for number in range(1, steps + 1):
        if name == "no_squish":
            for axis, share in ((2, 0.5), (1, 0.5), (0, 1.0), (1, 0.5), (2, 0.5)):
                turned(m, axis, share * h * m[axis] / moments[axis])
        else:
            turned(m, 1, 0.5 * h * m[1] * (1 / moments[1] - 1 / moments[0]))
            turned(m, 2, h * m[2] * (1 / moments[2] - 1 / moments[0]))
            turned(m, 1, 0.5 * h * m[1] * (1 / moments[1] - 1 / moments[0]))
        if number % every == 0:
            found.append((m * m / moments).sum(0) / 2)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.skipif(
    np.finfo(np.longdouble).eps > 1e-18, reason="long double is no wider than double here"
)
@pytest.mark.parametrize("name", ["no_squish", "symmetric_top"])
def test_energy_in_float64_walks_beside_the_same_splitting_in_extended_precision(name):
    """Only rounding is left beside the same steps in extended precision.

    The energy itself swings with the square of the step.
    """
    free, steps, counts = problems.FreeBodies(jnp.float64), 100_000, (10_000, 100_000)
    moments, omega = (
        np.asarray(x, np.longdouble).T for x in (free.bodies.principal()[0], free.starts.omega)
    )
    wanted = extended_energy(name, moments, omega, free.h, steps, free.chunk)
    got = np.array(
        [
            free.energy(states)[:, -1]
            for _, states in free.fly(jq.schemes.SCHEMES[name], steps, "scan")
        ]
    )
    error = np.abs(got / wanted.astype(np.float64) - 1)
    walked = [np.median(error[count // free.chunk - 5 : count // free.chunk]) for count in counts]
    assert walked[-1] < BOUND * PRECISIONS["float64"], walked
    assert growth(counts, walked) < GROWTH, walked


@pytest.mark.slow
@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize("name", ["rkmk4", "zhao", "rkmk6", "pcdm1"])
def test_what_explicit_schemes_lose_of_the_momentum_by_rounding_walks_in_float32(name):
    """At this step, their truncation error is smaller than the rounding."""
    counts = (10_000, 100_000)
    found = bodies(name, "float32", "principal").drifts(jq.schemes.SCHEMES[name], counts, "fused")[
        :, 0
    ]
    assert found[-1] < BOUND / 2, found
    assert growth(counts, found) < GROWTH, found
