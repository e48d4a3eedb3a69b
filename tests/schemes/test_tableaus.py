"""Tests of tableaus: the order conditions and the refused tableaus."""

import itertools
import re

import numpy as np
import pytest

from jaxquat.schemes import tableaus
from jaxquat.schemes.tableaus import (
    BUTCHER6,
    DORMAND_PRINCE5,
    EULER,
    HEUN,
    KUTTA3,
    MIDPOINT,
    RK4,
    tableau,
)

ALL = {
    "EULER": (EULER, 1),
    "MIDPOINT": (MIDPOINT, 2),
    "HEUN": (HEUN, 2),
    "KUTTA3": (KUTTA3, 3),
    "RK4": (RK4, 4),
    "DORMAND_PRINCE5": (DORMAND_PRINCE5, 5),
    "BUTCHER6": (BUTCHER6, 6),
}


def final_error(method, steps):
    """Return the end state y(1) of a nonlinear, time-dependent system after ``steps`` steps.

    One solution of the system is (sin t, cos t, t). The start (0.2, 0.7, -0.3) is not on it.
    """

    def slope(t, y):
        shift = np.array([np.sin(t), np.cos(t), t])
        d = y - shift
        return np.array([np.cos(t), -np.sin(t), 1.0]) + np.array(
            [d[1] * y[2] - d[0], d[2] * y[0] ** 2 + d[0], d[0] * y[1] - d[1]]
        )

    a = np.zeros((len(method.b), len(method.b)))
    for i, row in enumerate(method.a):
        a[i + 1, : i + 1] = row
    c = np.array([0.0, *method.c])
    h, y = 1.0 / steps, np.array([0.2, 0.7, -0.3])
    for k in range(steps):
        slopes = np.zeros((len(c), 3))
        for i in range(len(c)):
            slopes[i] = slope((k + c[i]) * h, y + h * a[i] @ slopes)
        y = y + h * np.asarray(method.b, float) @ slopes
    return y


@pytest.mark.parametrize("name", ALL)
def test_order_measured_on_a_nonlinear_system(name):
    """Differences of three refinements have the order.

    This test does not depend on the order conditions that the constructor checks.
    """
    method, order = ALL[name]
    assert method.order == order
    assert isinstance(getattr(tableaus, name), tableaus.Tableau)
    coarse, middle, fine = (final_error(method, n) for n in (16, 32, 64))
    slope = np.log2(np.linalg.norm(coarse - middle) / np.linalg.norm(middle - fine))
    assert slope == pytest.approx(order, abs=0.2)


def test_number_of_rooted_trees():
    assert [len(tableaus._trees(n)) for n in range(1, 7)] == [1, 1, 2, 4, 9, 20]


def test_densities():
    """The density is n! for the tall tree of n nodes and n for the bush."""
    tall, bush = ((((),),),), ((), (), ())
    assert tableaus._density(tall) == 24
    assert tableaus._density(bush) == 4
    assert tableaus._density(((), ((),))) == 8


@pytest.mark.parametrize("name", ALL)
def test_a_perturbed_coefficient_is_refused(name):
    """The constructor refuses a tableau with perturbed coefficients.

    A change of one weight breaks sum b = 1. Moving weight between stages, or within a row of a,
    breaks a later condition.
    """
    method, order = ALL[name]
    b = (method.b[0] + 1e-9, *method.b[1:])
    with pytest.raises(
        ValueError, match=re.escape("b: wanted 1.0 for the order-1 condition of tree ()")
    ):
        tableau(method.a, b, method.c, order)
    if order > 1:
        b = (method.b[0] + 1e-9, *method.b[1:-1], method.b[-1] - 1e-9)
        with pytest.raises(
            ValueError, match=r"b: wanted 0\.5 for the order-2 condition of tree \(\(\),\), got"
        ):
            tableau(method.a, b, method.c, order)
    if order > 2:
        last = (method.a[-1][0] + 1e-6, method.a[-1][1] - 1e-6, *method.a[-1][2:])
        with pytest.raises(
            ValueError, match=r"b: wanted .* for the order-[3456] condition of tree .*, got"
        ):
            tableau((*method.a[:-1], last), method.b, method.c, order)


@pytest.mark.parametrize("name", ALL)
def test_a_higher_order_than_there_is_is_refused(name):
    method, order = ALL[name]
    with pytest.raises(ValueError, match=f"order-{order + 1} condition of tree"):
        tableau(method.a, method.b, method.c, order + 1)


@pytest.mark.parametrize(
    ("a", "b", "c", "message"),
    [
        (
            ((0.5, 0.0),),
            (0.0, 1.0),
            (0.5,),
            "a: wanted 1 rows of 1, 2, ... entries (b has 2), got [2]",
        ),
        ((), (0.0, 1.0), (0.5,), "a: wanted 1 rows of 1, 2, ... entries (b has 2), got []"),
        (((0.5,),), (0.0, 1.0), (), "c: wanted 1 nodes, got 0"),
        (((0.5,),), (0.0, 1.0), (0.6,), "c: wanted the row sums of a, got 0.6 for the row (0.5,)"),
    ],
)
def test_wrong_shapes_are_refused(a, b, c, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tableau(a, b, c, 2)


def test_family_of_second_order():
    """Two stages with b = (1 - 1/(2c), 1/(2c)) have order 2 for every node c.

    They never have order 3.
    """
    for c, order in itertools.product((0.25, 0.5, 2 / 3, 1.0), (2, 3)):
        made = (((c,),), (1 - 0.5 / c, 0.5 / c), (c,), order)
        if order == 2:
            assert tableau(*made).order == 2
        else:
            with pytest.raises(ValueError, match="order-3"):
                tableau(*made)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_coefficient_that_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="b: wanted"):
        tableau((), (bad,), (), 1)
    with pytest.raises(ValueError, match=r"[abc]: wanted"):
        tableau(((bad,),), (0.0, 1.0), (bad,), 2)


def test_an_order_below_one_is_refused():
    with pytest.raises(ValueError, match="order"):
        tableau((), (1.0,), (), 0)
