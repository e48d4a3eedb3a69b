"""Units: moments and masses from 1e-33 to 1e38 in float32, 1e-290 to 1e290 in float64.

Only ratios of torques to moments and of forces to the mass count. So with moments s I, torques
s tau, a mass s m and forces s f a motion is the one at s = 1: to the last bit where s is a power of
two. A derivative by a moment goes as 1/s. Forward mode takes tangents of size s, which leave it as
it is. Reverse mode takes cotangents of size sqrt(s), so that the gradient is of size 1/sqrt(s): of
a loss of order 1 it would be 1e-38 at s = 1e38, which float32 cannot hold.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some
from scipy.spatial.transform import Rotation

import jaxquat as jq
from jaxquat.dynamics.units import own_units

FULL = np.array([[0.9, 0.1, -0.15], [0.1, 0.8, 0.05], [-0.15, 0.05, 1.1]])
MOMENTS = np.array([0.6, 0.8, 1.1])
SINGLE = [np.float32(2.0**e) for e in (-110, -60, 60, 126)]  # 7.7e-34 to 8.5e37
DOUBLE = [np.float64(2.0**e) for e in (-963, -500, 500, 963)]  # 1.3e-290 to 7.8e289
TILTED = np.array([0.8, 0.4, -0.2, 0.4])
WEIGHTS = 0.5, -0.25, 0.75, 0.3, -0.6
# full_quat adds torques to accelerations, as published. Those of ``MADE_OF_OTHERS`` are composed of
# a scheme or lifted from a tableau, as others here are, and take minutes.
NAMES = [name for name in jq.schemes.SCHEMES if name not in ("no_squish_kl6", "full_quat")]
MADE_OF_OTHERS = "symmetric_top_suzuki4", "symmetric_top_bm4", "rkmk6"
SCHEMES = [(n, kind, engine) for n in NAMES if n not in MADE_OF_OTHERS
           for kind, engine in (("full", "fused"), ("principal", "scan"))]  # fmt: skip
QUICK = [("rkmk2", "full", "fused")]  # the values of two by the scan are quick, too
IN_FLOAT64 = [("rkmk4", "full", "fused"), ("no_squish", "principal", "scan"),
              ("lgvi", "principal", "scan"), ("half_quat", "principal", "scan")]  # fmt: skip


def push(t, state, strength):
    """A force of time."""
    force = strength * jnp.stack([jnp.cos(t), jnp.sin(t), t * t])
    return jq.Wrench(jnp.zeros_like(force), force)


def pull(t, state, strength):
    """A torque of time in world axes."""
    return strength * jnp.stack([jnp.sin(t), jnp.cos(2 * t), jnp.cos(t)])


def motion(name, kind, engine):
    """(end, arguments): the numbers of the last state of a rollout by (inertia, strength, mass)."""
    scheme = jq.schemes.SCHEMES[name]

    def end(inertia, strength, mass=None):
        make = jq.Body if kind == "full" else jq.Body.from_principal
        body, dtype = make(inertia, mass=mass), inertia.dtype
        q, omega = jnp.asarray(TILTED, dtype), jnp.asarray([0.9, 0.4, -0.6], dtype)
        torque, start = jq.torques.in_world(pull), jq.State(q, omega)
        if name.startswith("full_quat"):
            start = jq.schemes.hoffmann.full_quat_start(q, omega)
        elif mass is not None:
            start = start._replace(position=jnp.zeros_like(omega), velocity=omega)
            weight = jq.forces.gravity(body, jnp.asarray([0.0, 0.0, -1.0], dtype))
            torque = jq.torques.total(torque, weight, push)
        grid = jq.grid(0.0, 0.05, 8)
        final = jq.rollout(
            scheme, body, torque, start, grid, strength, options=jq.RolloutOptions(engine=engine)
        ).final
        return jnp.concatenate([x.ravel() for x in jax.tree.leaves(final)])

    arguments = FULL if kind == "full" else MOMENTS, 0.7
    return end, (*arguments, 1.3) if scheme.translation else arguments


def check_scales(function, arguments, sizes, derivatives=True):
    """A power of two in the arguments changes no bit of the value, nor of a derivative.

    Only where the arguments are near the end of the range it changes some.
    """

    @jax.jit
    def compute(cotangent, *arguments):
        if not derivatives:
            value = function(*arguments)
            return value, value, ()
        value, transpose = jax.vjp(function, *arguments)
        # Equal weights would leave the motion as it is.
        tangents = tuple(
            weight * x * jnp.linspace(1.0, 0.5, x.size, dtype=x.dtype).reshape(x.shape)
            for weight, x in zip(WEIGHTS, arguments, strict=False)
        )
        slope = jax.jvp(function, arguments, tangents)[1]
        return value, slope, transpose(cotangent * jnp.ones_like(value))

    dtype = type(sizes[0])
    arguments = [jnp.asarray(x, dtype) for x in arguments]
    wanted = compute(jnp.ones((), dtype), *arguments)
    for leaf in jax.tree.leaves(wanted):
        assert np.isfinite(leaf).all()
        assert np.any(leaf != 0)
    for size in sizes:
        root = dtype(2.0 ** (np.log2(size) // 2))
        value, slope, gradient = compute(root, *(jnp.asarray(size) * x for x in arguments))
        # A part of a torque [N m] below the normal numbers is 0 for XLA on a CPU.
        lost = np.finfo(dtype).tiny / size
        tolerance = lost + 8 * np.finfo(dtype).eps if lost > np.finfo(dtype).eps ** 2 else 0.0
        gradient = [np.asarray(x) * (size / root) for x in gradient]
        for ours, theirs in zip((value, slope, *gradient), (*wanted[:2], *wanted[2]), strict=True):
            largest = np.abs(theirs).max()
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize(("name", "kind", "engine"), some(SCHEMES, QUICK))
def test_no_scheme_knows_the_size_of_moments_and_mass_in_float32(name, kind, engine):
    check_scales(*motion(name, kind, engine), SINGLE)


@pytest.mark.parametrize("name", ["no_squish", "lgvi"])
def test_no_path_knows_the_size_of_moments_and_mass(name):
    """Without the derivatives, which take longer to compile."""
    check_scales(*motion(name, "principal", "scan"), SINGLE, derivatives=False)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind", "engine"), IN_FLOAT64)
def test_no_scheme_knows_the_size_of_moments_and_mass_in_float64(name, kind, engine):
    check_scales(*motion(name, kind, engine), DOUBLE)


@pytest.mark.slow
def test_drag_does_not_know_the_size_of_moments_and_mass():
    """Strong drag on the rotation, weak drag on the velocity, a torque and a force of time.

    The damping is 100 times the moments, so the largest of these is 2^-7 of what float32 can hold.
    """

    def end(inertia, strength, mass, damping, resistance):
        body, dtype = jq.Body(inertia, mass=mass), inertia.dtype
        q, omega = jnp.asarray(TILTED, dtype), jnp.asarray([0.9, 0.4, -0.6], dtype)
        start = jq.State(q, omega, (), jnp.zeros_like(omega), omega)
        torque = jq.torques.total(jq.torques.in_world(pull), push)
        scheme = jq.schemes.damp(jq.no_squish, damping, resistance=resistance)
        path = jq.rollout(scheme, body, torque, start, jq.grid(0.0, 0.05, 8), strength)
        return jnp.concatenate([x.ravel() for x in jax.tree.leaves(path.final)])

    check_scales(end, (FULL, 0.7, 1.3, 100.0 * MOMENTS, 2.0), [*SINGLE[:-1], np.float32(2.0**119)])


def still(dtype):
    return jq.State(jnp.asarray(TILTED, dtype), jnp.asarray([0.9, 0.4, -0.6], dtype))


def numbers(state):
    return jnp.concatenate([state.q, state.omega])


def free_body(inertia):
    return numbers(jq.exact.free_body(jq.Body(inertia), 1.5, still(inertia.dtype)))


@pytest.mark.parametrize(
    ("sizes", "derivatives"),
    some([(SINGLE, False), (SINGLE, True), (DOUBLE, True)], [(SINGLE, False)]),
)
def test_no_exact_motion_knows_the_size_of_the_moments(sizes, derivatives):
    check_scales(free_body, (FULL,), sizes, derivatives)


def equations(inertia, strength, mass):
    body, level = jq.Body(inertia, mass=mass), still(inertia.dtype)
    moving = level._replace(position=level.omega, velocity=level.omega)
    rates = jq.dynamics.derivative(body, push, 0.3, moving, strength)
    return jnp.concatenate([rates.omega, rates.velocity])


def test_the_equations_of_motion_do_not_know_the_size_of_moments_and_mass():
    check_scales(equations, (FULL, 0.7, 1.3), SINGLE)


def test_the_matrices_of_a_step_scale_as_the_moments():
    """A does not, and B goes as 1/s."""

    @jax.jit
    def linear(inertia, strength):
        body, level = jq.Body(inertia), still(inertia.dtype)
        return jq.dynamics.linearize(jq.lie_euler, body, pull, 0.0, level, 0.1, strength)

    inertia, strength = FULL.astype(np.float32), np.float32(0.7)
    a, b = linear(inertia, strength)
    for size in SINGLE[1:3]:
        scaled_a, scaled_b = linear(size * inertia, size * strength)
        np.testing.assert_array_equal(scaled_a, a)
        np.testing.assert_array_equal(scaled_b, b / size)


@pytest.mark.parametrize(
    "sizes", [SINGLE, pytest.param(DOUBLE, marks=pytest.mark.slow)], ids=["float32", "float64"]
)
def test_principal_axes_of_any_size_leave_a_remainder_of_rounding(sizes):
    """Off the diagonal stood 5e-2 of the moments at 1e-18 kg m^2, and all of it at 1e20."""
    dtype = type(sizes[0])

    @jax.jit
    def principal(inertia):
        moments, axes = jq.Body(inertia).principal()
        return moments, jq.quaternion.to_matrix(axes)

    for size in [*sizes, dtype(1e-33), dtype(1e-19), dtype(1e-18), dtype(1e-15), dtype(8e37)]:
        inertia = (size * FULL.astype(dtype)).astype(dtype)
        moments, rotation = (np.asarray(x, float) for x in principal(inertia))
        turned = rotation.T @ inertia.astype(float) @ rotation / float(size)
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=10 * eps)
        np.testing.assert_allclose(moments / float(size), np.diag(turned), atol=10 * eps)


def test_sizes_between_powers_of_two_change_a_motion_by_rounding():
    end, arguments = motion("rkmk2", "full", "scan")
    end = jax.jit(end)
    arguments = [np.asarray(x, np.float32) for x in arguments]
    wanted = end(*arguments)
    for size in np.float32([1e-33, 1e-20, 2.7e36, 8e37]):
        got = end(*(size * x for x in arguments))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-5)  # 1.2e-38/1e-33 and rounding


@pytest.mark.slow
def test_equal_moments_are_known_at_every_size():
    """A hundred units of rounding of 1e-33 kg m^2 are below the smallest float32."""
    turn = Rotation.from_quat(TILTED[[1, 2, 3, 0]]).as_matrix()
    for size in (1e-33, 1.0, 1e37):
        top = size * turn @ np.diag([0.6, 0.6, 1.0]) @ turn.T
        jq.schemes.symmetric_top_bm4.check(jq.Body(jnp.asarray(top, jnp.float32)))
        other = jq.Body.from_principal(jnp.asarray(size * MOMENTS, jnp.float32))
        with pytest.raises(ValueError, match="two equal principal moments"):
            jq.schemes.symmetric_top_bm4.check(other)


def test_six_parameters_go_there_and_back_at_every_size():
    there_and_back = jax.jit(lambda x: jq.Body.from_parameters(jq.Body(x).parameters).inertia)
    for size in SINGLE:
        again = np.asarray(there_and_back(size * FULL.astype(np.float32))) / size
        np.testing.assert_allclose(again, FULL, atol=2e-5)  # 60 e-folds in float32: 60 eps


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jq.Body(1e-46 * FULL.astype(np.float64)), "positive definite.*or float64"),
        (lambda: jq.Body(1e-37 * FULL), "normal numbers.*or float64"),
        (lambda: jq.Body.from_principal(1e-39 * MOMENTS), "positive definite.*or float64"),
        (lambda: jq.Body.from_principal(2e38 * MOMENTS), "sums are finite.*or float64"),
        (lambda: jq.Body.from_principal(1e39 * MOMENTS), "finite values.*or float64"),
        (lambda: jq.Body.from_principal(MOMENTS, mass=1e-46), "mass: wanted positive.*or float64"),
        (lambda: jq.Body.from_principal(MOMENTS, mass=1e39), "mass: wanted finite.*or float64"),
        (lambda: jq.Body.sphere(3e-26, 1e-10), "positive definite.*or float64"),  # a molecule
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_what_float32_cannot_hold_is_refused_with_advice(make, message):
    with jax.enable_x64(False), pytest.raises(ValueError, match=message):
        make()


def test_float64_is_not_advised_to_who_has_it():
    with pytest.raises(ValueError, match=r"use other units of length or mass$"):
        jq.Body.from_principal(1e-310 * MOMENTS)


def test_a_step_of_ones_own_sees_the_body_as_it_was_made():
    seen = []

    def step(body, torque, t, state, dt, params):
        seen.append((body.inertia, body.mass, torque(t, state, params)))
        return state

    body = jq.Body.from_principal(jnp.asarray(1e-20 * MOMENTS), mass=1e-9)
    constant = lambda t, state, params: jnp.full(3, 1e-20)
    twice = jq.schemes.compose(step, [0.5, 0.5])
    twice(body, constant, 0.0, still(np.float64), 0.1, None)
    for inertia, mass, tau in seen:
        np.testing.assert_array_equal(np.diag(inertia), 1e-20 * MOMENTS)
        assert (mass, tau[0]) == (1e-9, 1e-20)


def test_units_are_powers_of_two_and_within_the_range():
    """They are the identity for what is in its own units already."""
    for size in (0.0, 1e-45, 1e-30, 0.9, 2.8, 1e30, 3e38):
        body, scales = own_units(jq.Body._unchecked(moments=size * jnp.ones(3, jnp.float32)))
        mantissa, exponent = np.frexp(scales.torque)
        assert mantissa == 0.5
        assert abs(exponent) <= 101
        if 1e-30 < size < 1e30:
            assert own_units(body)[1].torque == 1.0


@pytest.mark.slow
def test_the_gain_of_an_lqr_scales_as_the_moments():
    """With costs of the command as 1/s^2. At 1e10 the gain was twice as large, without a word."""
    level = still(np.float64)._replace(omega=jnp.zeros(3))

    def gain(size):
        body = jq.Body.from_principal(size * jnp.asarray(MOMENTS))
        command = lambda t, state, u: u
        a, b = jq.dynamics.linearize(jq.rkmk4, body, command, 0.0, level, 0.1, jnp.zeros(3))
        return np.asarray(jq.control.lqr(a, b, jnp.eye(6), jnp.eye(3) / size**2)) / size

    for size in (1e-30, 1e-15, 1e10, 1e30):
        np.testing.assert_allclose(gain(size), gain(1.0), rtol=1e-9, atol=1e-12)
