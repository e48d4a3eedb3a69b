"""The series against mpmath: values and two derivatives, on both sides of the switch at s = 4."""

import functools
import itertools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from marks import some

from jaxquat._internal import series

# Each is hypergeometric in s = x^2, so that mpmath needs no branch at zero either.
EXACT = {
    "cos": lambda s: mpmath.hyp0f1(mpmath.mpf(1) / 2, -s / 4),
    "sinc": lambda s: mpmath.hyp0f1(mpmath.mpf(3) / 2, -s / 4),
    "cot_defect": lambda s: (
        mpmath.hyp0f1(mpmath.mpf(5) / 2, -s / 4) / 3 / mpmath.hyp0f1(mpmath.mpf(3) / 2, -s / 4)
    ),
    "sin_defect": lambda s: mpmath.hyp1f2(1, 2, mpmath.mpf(5) / 2, -s) / 6,
    "cos_defect": lambda s: mpmath.hyp1f2(1, mpmath.mpf(5) / 2, 3, -s) / 24,
    "sin_defect_slope": lambda s: -mpmath.hyp1f2(2, 3, mpmath.mpf(7) / 2, -s) / 30,
    "cos_defect_slope": lambda s: -mpmath.hyp1f2(2, mpmath.mpf(7) / 2, 4, -s) / 180,
}
SMALL, SWITCH = [0.0, 1e-30, 1e-12, 1e-4], [3.999, 4.001]
SQUARES = [*SMALL, *SWITCH, *np.linspace(0.05, 1.2, 40), *np.linspace(1.5, 9.9, 15)]


def with_derivatives(function):
    """The function of many s, with its first and second derivatives."""
    first = jax.grad(lambda s: function(s))
    three = function, first, jax.grad(first)
    return jax.jit(lambda s: jnp.stack([jax.vmap(f)(s) for f in three]))


@functools.cache
def exact(name):
    """The squares, and the value with three derivatives there. Float32 can hold the squares."""
    squares = np.asarray([x for x in SQUARES if x < np.pi**2 or name != "cot_defect"], np.float32)
    with mpmath.workdps(50):
        rows = [mpmath.taylor(EXACT[name], mpmath.mpf(float(x)), 3) for x in squares]
        table = [[float(k * row[n]) for row in rows] for n, k in enumerate((1, 1, 2, 6))]
    return squares, np.array(table)


QUICK = {*itertools.product(EXACT, [jnp.float64]), ("cot_defect", jnp.float32)}
QUICK |= {("sinc", jnp.float32), ("sin_defect_slope", jnp.float32)}


@pytest.mark.parametrize(
    ("name", "dtype"), some(list(itertools.product(EXACT, [jnp.float32, jnp.float64])), QUICK)
)
def test_the_value_and_two_derivatives_are_right_to_rounding(name, dtype):
    squares, (*wanted, third) = exact(name)
    s = jnp.asarray(squares, dtype)
    got = with_derivatives(getattr(series, name))(s)
    assert got.dtype == dtype
    wanted = np.array(wanted)
    # in units of the value at zero, the largest in modulus; with a pole ahead in units of its own
    # size and of its change with one ulp of s
    change = np.asarray(s, np.float64) * np.abs([*wanted[1:], third])
    units = np.abs(wanted) + change if name == "cot_defect" else np.abs(wanted[:, :1])
    errors = np.max(np.abs(np.asarray(got, np.float64) - wanted) / units, axis=1)
    ulps = errors / jnp.finfo(dtype).eps
    # the second derivative of a slope is the third of a closed form beyond the switch
    assert (ulps < np.array([4, 16, 64 if "slope" in name else 32])).all(), ulps


@functools.cache
def after_many_turns(name):
    """Numbers whose squares float32 can hold, and the values at these squares."""
    squares = np.square(np.linspace(3.0, 200.0, 400)).astype(np.float32).astype(float)
    with mpmath.workdps(50):
        values = [float(EXACT[name](mpmath.mpf(x))) for x in squares]
    return np.sqrt(squares), squares, np.array(values)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", ["cos", "sinc", "sin_defect", "cos_defect"])
def test_after_many_turns_the_error_is_that_of_the_phase(name, dtype):
    """The rounding of x itself moves the phase by x eps."""
    x, squares, wanted = after_many_turns(name)
    s = jnp.asarray(squares, dtype)
    got = np.asarray(jax.jit(getattr(series, name))(s), np.float64)
    size = {"cos": 1.0, "sinc": 1.0 / x, "sin_defect": 1.0 / (4.0 * x * x)}
    size = {**size, "cos_defect": 1.0 / (8.0 * x * x)}[name]
    assert (np.abs(got - wanted) < 2 * x * size * jnp.finfo(dtype).eps).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_cosm1_sinc_loses_nothing_where_the_cosine_is_one(dtype):
    s = jnp.asarray(SQUARES, dtype)
    cosm1, sinc = jax.jit(series.cosm1_sinc)(s)
    with mpmath.workdps(50):
        roots = [mpmath.sqrt(mpmath.mpf(float(x))) for x in s]
        versed = [float(-2 * mpmath.sin(x / 2) ** 2) for x in roots]
        ratios = [float(mpmath.sinc(x)) for x in roots]
    np.testing.assert_allclose(cosm1, versed, rtol=4 * jnp.finfo(dtype).eps)
    np.testing.assert_allclose(sinc, ratios, rtol=0, atol=4 * jnp.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_cot_defect_is_nan_from_its_pole_on(dtype):
    s = jnp.asarray([9.86, 9.87, 12.0, 100.0], dtype)
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(series.cot_defect)))(s)
    assert value[0] > 200.0
    assert np.isfinite(slope[0])
    assert np.isnan(np.asarray(value[1:])).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_arctan_ratio_is_right_to_rounding(dtype):
    angles = [1e-30, 1e-12, 1e-4, 0.1, 0.39, 0.4, 0.8, 1.2, 1.5, 1.57]
    sine, cosine = np.sin(angles).astype(dtype), np.cos(angles).astype(dtype)
    s = np.append(sine * sine, [0, 1, 0.25]).astype(dtype)
    c = np.append(cosine, [0.5, 0, 0]).astype(dtype)
    got = np.asarray(jax.jit(series.arctan_ratio)(s, c), np.float64)
    with mpmath.workdps(50):
        roots = [mpmath.sqrt(mpmath.mpf(float(x))) for x in s]
        wanted = [
            mpmath.atan2(r, float(y)) / r if r else 1 / mpmath.mpf(float(y))
            for r, y in zip(roots, c, strict=True)
        ]
        wanted = np.array([float(x) for x in wanted])
    np.testing.assert_allclose(got, wanted, rtol=8 * jnp.finfo(dtype).eps)


def test_arctan_ratio_is_smooth_at_zero():
    """With c = 1: 1 - s/3 + s^2/5 - ..., so the derivatives in s at zero are -1/3 and 2/5."""
    slopes = jax.jit(jax.value_and_grad(jax.grad(series.arctan_ratio)))
    first, second = slopes(0.0, 1.0)
    assert float(first) == pytest.approx(-1 / 3, rel=1e-15)
    assert float(second) == pytest.approx(2 / 5, rel=1e-15)
