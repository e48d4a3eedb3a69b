"""Records are checked by one table: shapes with letters, values, and the names in errors."""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from jaxquat._internal.checks import positive
from jaxquat._internal.declared import Field, checked_record


class Springs(NamedTuple):
    axes: object
    stiffness: object


FIELDS = {"axes": Field([("n", 3)]), "stiffness": Field([(), ("n",)], positive)}
GOOD = Springs(jnp.ones((2, 3)), jnp.array([1.0, 2.0]))


def checked(springs):
    return checked_record("springs", springs, Springs, FIELDS, "springs")


def test_a_good_record_comes_back_with_arrays():
    assert all(x is y for x, y in zip(checked(GOOD), GOOD, strict=True))
    one = checked(GOOD._replace(stiffness=3))
    assert one.stiffness.dtype == jnp.result_type(float)
    assert one.stiffness.shape == ()


@pytest.mark.parametrize(
    ("springs", "error", "message"),
    [
        (None, TypeError, "springs: wanted springs, got None"),
        (GOOD._replace(axes="up"), TypeError, "springs.axes: wanted an array of floats, got 'up'"),
        (
            GOOD._replace(axes=jnp.ones(3)),
            ValueError,
            "springs.axes: wanted shape (n, 3), got (3,)",
        ),
        (
            GOOD._replace(axes=jnp.ones((0, 3))),
            ValueError,
            "springs.axes: wanted shape (n, 3), got (0, 3)",
        ),
        (
            GOOD._replace(stiffness=jnp.ones(3)),
            ValueError,
            "springs.stiffness: wanted shape () or (2,), got (3,)",
        ),
        (
            GOOD._replace(stiffness=0.0),
            ValueError,
            "springs.stiffness: wanted positive values, got 0.0",
        ),
    ],
)
def test_an_error_names_the_field(springs, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        checked(springs)


def test_traced_values_are_checked_for_shapes_alone():
    assert jax.jit(lambda x: checked(GOOD._replace(stiffness=x)).stiffness)(-1.0) == -1.0
    with pytest.raises(ValueError, match=r"springs\.stiffness: wanted shape"):
        jax.jit(lambda x: checked(GOOD._replace(stiffness=x)).stiffness)(jnp.ones(5))
    # a Python int that is an argument of jax.jit
    assert jax.jit(lambda x: checked(GOOD._replace(stiffness=x)).stiffness)(2) == 2.0
