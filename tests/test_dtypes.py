"""What float32 beside float64 gives, as docs/conventions.md says: refused, cast, or promoted."""

import jax
import jax.numpy as jnp
import pytest

import jaxquat as jq
from jaxquat import control, dynamics, forces, quaternion, so3

SINGLE, DOUBLE = jnp.float32, jnp.float64
BOTH = [(SINGLE, DOUBLE), (DOUBLE, SINGLE)]


def q(dtype):
    return quaternion.exp(jnp.array([0.1, 0.2, 0.3], dtype))


def v(dtype):
    return jnp.array([1.0, 2.0, 2.5], dtype)


def body(dtype):
    return jq.Body.from_principal(v(dtype), mass=jnp.asarray(2.0, dtype))


def state(dtype):
    return jq.State(q(dtype), v(dtype), (), v(dtype), v(dtype))


def gains(dtype):
    return control.Gains(v(dtype), v(dtype))


def step(of_body, of_state, torque=jq.torques.zero, dt=0.1):
    return jq.rkmk4(body(of_body), torque, 0.0, state(of_state), dt, None).position


REFUSED = {
    "another body": lambda a, b: step(a, b),
    "another torque": lambda a, b: step(a, a, lambda t, state, params: v(b)),
    "two dtypes in a state": lambda a, b: dynamics.local(state(b)._replace(q=q(a)), state(b)),
    "another mass": lambda a, b: jq.Body(body(a).inertia, jnp.asarray(2.0, b)),
    "another error": lambda a, b: dynamics.retract(state(a), jnp.zeros(12, b)),
}
CAST = {
    "step": lambda a, b: step(a, a, dt=jnp.asarray(0.1, b)),
    "gravity": lambda a, b: forces.gravity(body(a), v(b))(0.0, state(a), None).force,
    "point_mass": lambda a, b: forces.point_mass(body(a), v(b)[0])(0.0, state(a), None).force,
    "linear_drag": lambda a, b: forces.linear_drag(v(b))(0.0, state(a), None).force,
    "quadratic_drag": lambda a, b: forces.quadratic_drag(v(b))(0.0, state(a), None).force,
    "thrust": lambda a, b: forces.thrust(v(b))(0.0, state(a), None).force,
}
PROMOTED = {
    "multiply": lambda a, b: quaternion.multiply(q(a), q(b)),
    "rotate": lambda a, b: quaternion.rotate(q(a), v(b)),
    "slerp": lambda a, b: quaternion.slerp(q(a), q(b), 0.5),
    "distance": lambda a, b: quaternion.distance(q(a), q(b)),
    "dexpinv": lambda a, b: so3.dexpinv(0.1 * v(a), v(b)),
    "quaternion_law": lambda a, b: control.quaternion_law(state(a), gains(b), q(a)),
    "energy": lambda a, b: dynamics.energy(body(a), state(b)),
    "momentum": lambda a, b: dynamics.momentum(body(a), state(b)),
    "local": lambda a, b: dynamics.local(state(a), state(b)),
}


@pytest.fixture(autouse=True)
def as_a_user_has_it():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize(("one", "other"), BOTH)
def test_a_simulation_refuses_two_dtypes(case, one, other):
    with pytest.raises((TypeError, ValueError), match=r"dtype"):
        jax.eval_shape(lambda: REFUSED[case](one, other))


@pytest.mark.parametrize("case", CAST)
@pytest.mark.parametrize(("one", "other"), BOTH)
def test_times_and_coefficients_are_cast_to_the_dtype_of_the_state(case, one, other):
    assert jax.eval_shape(lambda: CAST[case](one, other)).dtype == one


@pytest.mark.parametrize("case", PROMOTED)
@pytest.mark.parametrize(("one", "other"), BOTH)
def test_functions_of_arrays_promote_as_jax_does(case, one, other):
    assert jax.eval_shape(lambda: PROMOTED[case](one, other)).dtype == DOUBLE
