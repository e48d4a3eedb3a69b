"""A step of each scheme as a scalar program gives the numbers of jax.jit, and so does its vjp."""

import jax
import jax.numpy as jnp
import pytest
from as_scalars import assert_same

import jaxquat as jq
from examples.validation import problems
from examples.validation.orders import COMPOSED


def step_arguments(name):
    body = jq.Body.from_principal(jnp.array([0.6, 0.6, 1.0]), jnp.array([0.5, 0.5, -0.5, 0.5]))
    state = problems.start_of(name, jnp.asarray(problems.TILTED), jnp.array([1.2, -0.7, 0.9]))

    def function(t, state, dt, pull):
        torque = lambda t, state, p: jnp.sin(3 * t) * jq.quaternion.rotate_inverse(state.q, p)
        return jq.schemes.SCHEMES[name](body, torque, t, state, dt, pull)

    return function, (jnp.asarray(0.4), state, jnp.asarray(0.05), jnp.array([0.5, -0.3, 0.8]))


# Of other tableaus, or composed of others: test_fused.py has a rollout and a gradient of each.
LIKE_ANOTHER = ("rkmk5", "rkmk6", *COMPOSED)


STEPS = [name for name in jq.schemes.SCHEMES if name not in LIKE_ANOTHER]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "lgvi" else pytest.mark.slow) for n in STEPS],
)
def test_every_step_and_its_vjp(name):
    """Of a body with two equal principal moments."""
    function, arguments = step_arguments(name)
    slope = lambda bar, *arguments: jax.vjp(function, *arguments)[1](bar)
    both = lambda bar, *arguments: (function(*arguments), slope(bar, *arguments))
    assert_same(both, arguments[1], *arguments, rtol=1e-11)
