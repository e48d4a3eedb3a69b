"""Special functions made of elementary ones: error functions, inverse hyperbolic functions, roots.

The polynomials are Chebyshev approximations, the lowest power first, by mpmath at 40 digits:
``mpmath.chebyfit(f, [a, b], n)[::-1]``. Where there are two, the first is for float32. Each
docstring has f, a and b and the largest error of the polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from jaxquat.fused.ir.builder import Scalar, exp, fma, minimum, nearest, operation, sqrt, where
from jaxquat.fused.ir.elementary import bits, exponent, horner, single, two_to, with_sign

_LARGE = 2.0**60  # log x and log1p(x) are the same, and x^2 is finite in float32

Tables = tuple[Sequence[float], Sequence[float]]

_ERF = ((
    0.12837917, -0.37612626, 0.11283594, -0.026854211, 0.0051890872, -0.00080168643, 7.875875e-05,
), (
    0.12837916709551256, -0.37612638903183543, 0.11283791670945006, -0.02686617064323777,
    0.0052239776071164225, -0.0008548325975389692, 0.00012055294904839707, -1.492473690741966e-05,
    1.6447424703317362e-06, -1.6208483801871705e-07, 1.3720064546777686e-08,
    -7.795898827002142e-10,
))  # fmt: skip
_ERFCX = ((
    0.27399892, -0.24413718, 0.19330221, -0.13521333, 0.082712166, -0.043505576, 0.019098327,
    -0.0065711606, 0.0015427187, -0.000113791655, -0.00019537828,
), (
    0.27399891525012277, -0.2441371822702205, 0.19330217556631105, -0.13521345782830985,
    0.0827128969694048, -0.04350273430998837, 0.019095378729436, -0.006592513334221576,
    0.0015280138908565155, -7.02397317528128e-05, -0.00011376302633751423, 4.420333216036671e-05,
    -9.093399499857707e-07, -4.715814334002791e-06, 1.1748550392763238e-06, 3.576811543856592e-07,
    -2.1318267068936343e-07, -2.1530188743745024e-08, 3.200574265106267e-08,
    2.5525195758575452e-09, -3.80174975921741e-09, -8.306133774879127e-10,
))  # fmt: skip
_CBRT = (
    1.8522882, -1.6162947, 1.0590118, -0.34049258, 0.041582074,
)  # fmt: skip
_ERF_INV_NEAR = ((
    1.5014094, 0.24664028, -0.004177393, -0.0012527264, 0.00021834939, -4.97242e-06,
    -3.4639852e-06, 4.6813136e-07, 2.3335968e-08, -8.931926e-09,
), (
    1.501409351110792, 0.2466402767441667, -0.004177317724383496, -0.0012527079078074829,
    0.00021825026434256318, -4.996079611173956e-06, -3.416619591404169e-06, 4.787252381299726e-07,
    1.341679559820944e-08, -1.086118607299662e-08, 9.073107389663029e-10, 1.196159853985287e-10,
    -3.110649163196451e-11, 9.08606053079741e-13, 5.368481716774611e-13, -7.551199522345375e-14,
    -3.132281484589996e-15, 1.8184842927434184e-15, -1.0474938411750245e-16,
    -2.1255566343301617e-17, 2.6458717948420677e-18,
))  # fmt: skip
_ERF_INV_MIDDLE = ((
    2.9583201, 1.0037187, 0.0070491456, -0.0053010657, 0.003781036, -0.0025208683, 0.0013119164,
    -0.0003232761, -0.0001745297, 0.00012924176,
), (
    2.958320150240462, 1.0037186917979253, 0.007047884417816499, -0.005301010608514514,
    0.0037944200146708545, -0.0025198826907006505, 0.0012606698939920426, -0.0003286621889167741,
    -8.955338240756869e-05, 0.00013610502348601784, -5.8852007112450675e-05,
    2.1837309715312406e-06, 1.1399596485535217e-05, -6.2699544028217165e-06, 9.028289650413611e-07,
    7.462651635844983e-07, -5.558111089235029e-07, 1.3735879095734807e-07, 5.2442834090933283e-08,
    -4.749494643934027e-08, 3.2272879710776776e-09, 4.192817593746465e-09,
))  # fmt: skip
_ERF_INV_FAR = (
    4.849906401408584, 1.0103004648645446, -0.0001387193183536735, -0.00021503011979298579,
    7.599527739461002e-05, -1.9681771203726043e-05, 4.526059693479695e-06, -9.930261373154388e-07,
    2.2901618092413998e-07, -6.756725498741952e-08, 2.9123821685986172e-08, -1.523376897450945e-08,
    7.64410733347763e-09, -3.494653368877176e-09, 1.4902433047498932e-09, -4.2401917084661897e-10,
    -2.2772394472761313e-11, 3.963145924658085e-11,
)  # fmt: skip


def asinh(x: Scalar) -> Scalar:
    """Return ``log1p(|x| + x^2/(1 + sqrt(1 + x^2)))``; log |2 x| for large x."""
    size = abs(x)
    large, square = size > _LARGE, size * size
    u = size + square / (1 + sqrt(1 + square))
    return with_sign(_log1p_or_twice(large, size, u), x)


def acosh(x: Scalar) -> Scalar:
    """Return ``log1p(t + sqrt(t (t + 2)))`` with t = x - 1, exact; log(2 x) for large x."""
    t = x - 1
    value = _log1p_or_twice(x > _LARGE, x, t + sqrt(t * (t + 2)))
    return where(x < 1, np.nan, value)


def _log1p_or_twice(large: Scalar, x: Scalar, u: Scalar) -> Scalar:
    """Return ``log1p(u)``, but log(2 x) where ``large``: there log x and log1p(x) are equal."""
    return operation("log1p", where(large, x, u)) + where(large, x.like(math.log(2)), 0)


def atanh(x: Scalar) -> Scalar:
    """Return ``log1p(2 |x|/(1 - |x|))/2``: beyond 1 the argument is below -1."""
    size = abs(x)
    return with_sign(0.5 * operation("log1p", 2 * size / (1 - size)), x)


def cbrt(x: Scalar) -> Scalar:
    """Return the cube root: x is 8^k y, and the root of y in [2^-1.5, 2^1.5] is y/y^(2/3).

    A polynomial for f = y^(-1/3) gives r to 1.5 %. With h = 1 - y r^3 the exact value is r (1 -
    h)^(-1/3); two terms of this series leave 14/81 h^3. One Newton step for y r^2 follows.
    """
    size = abs(x)
    e, f = exponent(size)
    k = nearest(e * (1 / 3))
    y = (f + 1) * two_to(e - 3 * k)
    r = horner(_CBRT, y)
    for _ in range(1 if single(x) else 2):
        h = 1 - y * r * (r * r)
        r = r + r * h * (h * (2 / 9) + 1 / 3)
    root = y * (r * r)
    root = root - (root * root * root - y) * (r * r * (1 / 3))
    usual = (size < np.inf) & (size > 0)
    return where(usual, with_sign(root * two_to(k), x), x)


def erf(x: Scalar) -> Scalar:
    """Return a polynomial up to 1, ``1 - erfc`` beyond it."""
    size = minimum(abs(x), 30)
    far = with_sign(1 - exp(-(size * size)) * _erfcx(size), x)
    return where(size < 1, _erf_near(x), far)


def _erf_near(x: Scalar) -> Scalar:
    """Return ``x + x p(x^2)``: p by f = erf(sqrt z)/sqrt z - 1 in [0, 1], to 1e-9 and 1e-17."""
    return fma(x, horner(_of(_ERF, x), x * x), x)


def erfc(x: Scalar) -> Scalar:
    """Return ``1 - erf`` up to 1, ``exp(-x^2) erfcx(x)`` beyond it, ``2 - erfc(-x)`` below -1.

    x^2 is h^2 + (x - h)(x + h), where h has half of the digits of x and its square is exact. The
    second term is at most 0.1 in float32 and 5e-5 in float64, for a Taylor series.
    """
    size = minimum(abs(x), 30)
    mask, terms = (-(2**12), 6) if single(x) else (-(2**27), 4)
    h = (bits(size) & mask).bitcast(x.dtype)
    b = (h - size) * (h + size)
    less_one = b * horner([1 / math.factorial(n) for n in range(1, terms)], b)
    v = _erfcx(size)
    value = exp(-(h * h)) * fma(v, less_one, v)
    return where(size < 1, 1 - _erf_near(x), where(x < 0, 2 - value, value))


def _erfcx(x: Scalar) -> Scalar:
    """Return ``exp(x^2) erfc(x)`` for x from 0 to the end of the range of erfc, 10.1 or 27.

    The form is t p(1 - 2 t) with t = 1/(1 + x/4), a map as by Shepherd and Laframboise, Mathematics
    of Computation 36, 1981. The relative errors are 3e-9 and 5e-17.
    """
    t = 1 / fma(x, 0.25, 1)
    return t * horner(_of(_ERFCX, x), fma(t, -2, 1))


def erf_inv(x: Scalar) -> Scalar:
    """Return ``x p``, where p is a polynomial in w = -log(1 - x^2) up to w = 5, then in sqrt w.

    The form is by M. Giles, Approximating the erfinv function, GPU Computing Gems 2, 2011. f =
    erf_inv(x)/x for w in [0, 5], [5, 16] and [16, 37], in w - 2.5, sqrt(w) - 3.125 and sqrt(w) - 5;
    the relative errors are 2e-8 (float32) and 1e-16.
    """
    w = -operation("log", (1 - x) * (1 + x))
    root = sqrt(w)
    p = horner(_of(_ERF_INV_MIDDLE, x), root - 3.125)
    if not single(x):
        p = where(w < 16, p, horner(_ERF_INV_FAR, root - 5))
    value = x * where(w < 5, horner(_of(_ERF_INV_NEAR, x), w - 2.5), p)
    return where(abs(x).equals(1), x * np.inf, value)


def _of(tables: Tables, x: Scalar) -> Sequence[float]:
    return tables[0] if single(x) else tables[1]
