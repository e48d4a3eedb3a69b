"""Bodies: inertias of solids, the chart of physical inertias, parallel axes, the pytree."""

import copy
import pickle

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

import jaxquat as jq

RNG = np.random.default_rng(3)
INERTIA = np.array([[0.6, 0.0, -0.2], [0.0, 1.0, 0.0], [-0.2, 0.0, 1.5]])
MOMENTS, AXES = np.array([1.0, 2.0, 2.5]), np.array([0.5, -0.1, 0.7, 0.5])
EPS = float(np.finfo(np.float64).eps)


def point_masses(masses, places):
    """Sum m (|r|^2 1 - r r^T)."""
    square = np.sum(places**2, axis=-1)
    outer = np.einsum("n,ni,nj->ij", masses, places, places)
    return np.einsum("n,n,ij->ij", masses, square, np.eye(3)) - outer


def physical(inertia):
    """Positive definite, and no principal second moment of mass negative."""
    moments, rounding = np.linalg.eigvalsh(inertia), 4 * np.finfo(inertia.dtype).eps
    return moments[0] > 0 and moments[2] <= (moments[0] + moments[1]) * (1 + rounding)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_from_principal_is_the_body_of_the_matrix(dtype):
    moments, axes = (jnp.asarray(x, dtype) for x in (MOMENTS, AXES / np.linalg.norm(AXES)))
    body = jq.Body.from_principal(moments, axes)
    assert body.inertia.dtype == dtype
    rotation = Rotation.from_quat(np.roll(axes, -1)).as_matrix()  # principal to body axes
    wanted, rounding = rotation @ np.diag(MOMENTS) @ rotation.T, 16 * jnp.finfo(dtype).eps
    np.testing.assert_allclose(body.inertia, wanted, rtol=0, atol=rounding)
    np.testing.assert_array_equal(body.principal()[0], moments)
    aligned = jq.Body.from_principal(moments)
    np.testing.assert_array_equal(aligned.inertia, np.diag(MOMENTS).astype(dtype))
    again = jq.Body(body.inertia)
    assert again.inertia.dtype == dtype
    np.testing.assert_array_equal(again.inertia, body.inertia)


# Solids


@pytest.mark.parametrize(
    "sides", [(0.3, 0.5, 0.7), (1.0, 1e-3, 1e-3), (1.0, 1.0, 1e-6), (1e-7, 1e-7, 1.0)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_box_has_the_moments_of_its_sides(sides, dtype):
    """Each is m/12 (b^2 + c^2) to rounding, for a thin rod (m l^2/12 across) and a plate, too."""
    a, b, c = np.asarray(sides, dtype).astype(float)
    body = jq.Body.box(dtype(2.0), np.asarray(sides, dtype))
    wanted = 2.0 / 12.0 * np.array([b * b + c * c, c * c + a * a, a * a + b * b])
    np.testing.assert_allclose(body.inertia, np.diag(wanted), rtol=8 * np.finfo(dtype).eps)
    assert body.inertia.dtype == dtype


def test_box_is_the_integral_over_its_volume():
    """Two Gauss nodes an axis integrate quadratics exactly."""
    sides, nodes = np.array([0.3, 0.5, 0.7]), np.array([-1.0, 1.0]) / np.sqrt(3)
    along = np.meshgrid(*(0.5 * s * nodes for s in sides), indexing="ij")
    wanted = point_masses(np.full(8, 2.0 / 8), np.stack(along, axis=-1).reshape(-1, 3))
    np.testing.assert_allclose(jq.Body.box(2.0, sides).inertia, wanted, rtol=0, atol=4e-16)


@pytest.mark.parametrize(("radius", "height"), [(0.4, 1.1), (1e-6, 1.0), (1.0, 1e-6)])
def test_a_cylinder_becomes_a_rod_and_a_disc_in_the_limits(radius, height):
    """The moment along the axis is m r^2/2, across it m (3 r^2 + h^2)/12."""
    across = 3.0 * (3 * radius**2 + height**2) / 12
    got = jq.Body.cylinder(3.0, radius, height).inertia
    np.testing.assert_allclose(got, np.diag([across, across, 1.5 * radius**2]), rtol=4 * EPS)
    if radius < 1e-3:
        assert got[0, 0] == pytest.approx(3.0 * height**2 / 12, rel=1e-10)
    if height < 1e-3:
        assert got[0, 0] == pytest.approx(0.5 * float(got[2, 2]), rel=1e-10)


@pytest.mark.parametrize("semi_axes", [(0.3, 0.5, 0.7), (1.0, 1e-6, 1e-6), (1.0, 1.0, 1e-6)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_ellipsoid_has_the_moments_of_its_semi_axes(semi_axes, dtype):
    """Each is m/5 (b^2 + c^2) to rounding, for a needle and a disc, too."""
    a, b, c = np.asarray(semi_axes, dtype).astype(float)
    body = jq.Body.ellipsoid(dtype(2.0), np.asarray(semi_axes, dtype))
    wanted = 2.0 / 5.0 * np.array([b * b + c * c, c * c + a * a, a * a + b * b])
    np.testing.assert_allclose(body.inertia, np.diag(wanted), rtol=8 * np.finfo(dtype).eps)
    assert body.inertia.dtype == body.mass.dtype == dtype


def test_an_ellipsoid_is_the_integral_over_its_volume():
    """The six vertices of an octahedron integrate cubics over a sphere exactly.

    Three Gauss nodes along the radius r do so with r^4: second moments in shells of weight r^2.
    """
    semi_axes, nodes = np.array([0.3, 0.5, 0.7]), np.concatenate([np.eye(3), -np.eye(3)])
    radii, weights = np.polynomial.legendre.leggauss(3)  # exact up to degree 5
    radii = 0.5 * (radii + 1.0)
    shells = 3.0 * 0.5 * weights * radii**2  # shares of the volume, whose sum is 1
    places = (radii[:, None, None] * nodes * semi_axes).reshape(-1, 3)
    wanted = point_masses(np.repeat(2.0 * shells / 6, 6), places)
    np.testing.assert_allclose(jq.Body.ellipsoid(2.0, semi_axes).inertia, wanted, atol=4e-16)


def test_a_sphere_is_the_round_ellipsoid():
    body = jq.Body.sphere(5.0, 0.7)
    np.testing.assert_allclose(body.inertia, 2.0 / 5.0 * 5.0 * 0.49 * np.eye(3), rtol=4e-16)
    round_one = jq.Body.ellipsoid(5.0, np.full(3, 0.7))
    np.testing.assert_array_equal(round_one.inertia, body.inertia)
    assert body.mass == 5.0


@pytest.mark.parametrize(
    ("make", "size", "mass_of_density"),
    [
        (jq.Body.sphere, 0.7, lambda r: 4.0 / 3.0 * np.pi * r**3),
        (jq.Body.ellipsoid, np.array([0.3, 0.5, 0.7]), lambda a: 4.0 / 3.0 * np.pi * a.prod()),
    ],
)
def test_the_derivatives_of_a_solid_by_its_size_are_those_of_its_moments(
    make, size, mass_of_density
):
    """At constant density the trace of the inertia is homogeneous of degree 5 in the size."""
    trace = lambda size: jnp.trace(make(mass_of_density(size), size).inertia)
    size = jnp.asarray(size)
    value, slope = jax.jit(jax.value_and_grad(trace))(size)
    np.testing.assert_allclose(jnp.sum(slope * size), 5.0 * value, rtol=1e-14)


def test_a_cube_and_a_sphere_like_cylinder_are_isotropic():
    cube = jq.Body.box(6.0, np.ones(3)).inertia
    np.testing.assert_allclose(cube, np.eye(3), rtol=0, atol=2 * EPS)
    isotropic = jq.Body.cylinder(1.0, 1.0, np.sqrt(3.0)).inertia  # h^2 = 3 r^2
    np.testing.assert_allclose(isotropic, 0.5 * np.eye(3), rtol=0, atol=2 * EPS)


# Shifts


def test_shifted_is_the_parallel_axis_theorem():
    masses, places = RNG.uniform(0.5, 2, 8), RNG.normal(size=(8, 3))
    places -= masses @ places / masses.sum()
    offset = np.array([0.3, -1.2, 0.7])
    body = jq.Body(point_masses(masses, places)).shifted(masses.sum(), offset)
    for sign in (1, -1):  # about a point at +offset or at -offset it is the same
        wanted = point_masses(masses, places - sign * offset)
        np.testing.assert_allclose(body.inertia, wanted, rtol=0, atol=1e-13)


def test_a_principal_body_is_shifted_too():
    body = jq.Body.from_principal(MOMENTS, AXES)
    np.testing.assert_allclose(body.shifted(2.0, np.zeros(3)).inertia, body.inertia, rtol=0, atol=0)
    added = body.shifted(2.0, np.array([0, 0, 1.0])).inertia - body.inertia
    np.testing.assert_allclose(np.diag(added), [2, 2, 0], atol=1e-15)


# The chart

THETA = hnp.arrays(np.float64, 6, elements=st.floats(-1.5, 1.5, allow_subnormal=False))
from_parameters = jax.jit(lambda theta: jq.Body.from_parameters(theta).inertia)
parameters = jax.jit(lambda inertia: jq.Body(inertia).parameters)


@settings(deadline=None, max_examples=100)
@given(THETA)
def test_every_parameter_is_a_physical_inertia_and_comes_back(theta):
    inertia = np.asarray(from_parameters(theta))
    assert physical(inertia)
    np.testing.assert_array_equal(inertia, inertia.T)
    # The least second moment, at least exp(-3)/20, is a difference of moments of up to 50.
    np.testing.assert_allclose(parameters(inertia), theta, rtol=0, atol=1e-10)


def test_from_parameters_by_its_definition():
    """Point masses on the columns of L have S = L L^T for second moments, and I = tr(S) 1 - S."""
    theta = np.array([0.1, -0.3, 0.4, 0.5, -0.2, 0.3])
    factor = np.array([[np.exp(0.1), 0, 0], [0.5, np.exp(-0.3), 0], [-0.2, 0.3, np.exp(0.4)]])
    body = jq.Body.from_parameters(theta)
    np.testing.assert_allclose(body.inertia, point_masses(np.ones(3), factor.T), rtol=0, atol=1e-15)
    np.testing.assert_allclose(body.parameters, theta, rtol=0, atol=1e-14)


@pytest.mark.parametrize("log_scale", [2.0, 6.0, 12.0])
def test_thin_bodies_have_physical_parameters(log_scale):
    """The least moment of a needle, S = diag(s^2, s^-2, s^-2), is 2 s^-2 to all its digits."""
    inertia = np.asarray(from_parameters(np.array([log_scale, -log_scale, -log_scale, 0, 0, 0])))
    large, small = np.exp(2 * log_scale), np.exp(-2 * log_scale)
    wanted = np.diag([2 * small, large + small, large + small])
    np.testing.assert_allclose(inertia, wanted, rtol=1e-14)


def test_parameters_of_any_body_give_it_back():
    for body in (jq.Body(INERTIA), jq.Body.from_principal(MOMENTS, AXES)):
        again = jq.Body.from_parameters(body.parameters)
        np.testing.assert_allclose(again.inertia, body.inertia, rtol=0, atol=1e-14)


def test_random_bodies_are_physical_and_have_products():
    keys = jax.random.split(jax.random.key(1), 200)
    inertias = np.asarray(jax.jit(jax.vmap(lambda key: jq.Body.random(key).inertia))(keys))
    assert all(map(physical, inertias))
    assert np.abs(inertias[:, 0, 1]).mean() > 0.05
    assert 0.5 < np.median(np.linalg.eigvalsh(inertias)) < 5
    single = jax.eval_shape(lambda key: jq.Body.random(key, dtype=jnp.float32), keys[0])
    assert single.inertia.dtype == jnp.float32


# As a pytree

BODIES = [
    jq.Body(INERTIA),
    jq.Body.from_principal(MOMENTS, np.array([0.8, 0.6, 0, 0])),
    jq.Body.box(1.0, np.ones(3)),
]


def leaf_names(body):
    """What the body was made of, as the paths of its leaves."""
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(body)]


def test_the_leaves_are_what_was_given():
    assert leaf_names(BODIES[0]) == [".inertia"]
    for body in BODIES[1:]:
        mass = [] if body.mass is None else [".mass"]
        assert leaf_names(body) == [".moments", ".axes", *mass]


@pytest.mark.parametrize("body", BODIES)
def test_leaves_may_be_replaced(body):
    leaves, structure = jax.tree.flatten(body)
    again = jax.tree.unflatten(structure, leaves)
    assert isinstance(again, jq.Body)
    np.testing.assert_array_equal(again.inertia, body.inertia)
    doubled = jax.tree.map(lambda x: 2 * x, body)
    factor = 2 if len(leaves) == 1 else 32  # R(2 q) = 4 R(q)
    np.testing.assert_allclose(doubled.inertia, factor * body.inertia, rtol=4 * EPS)
    for placeholder in (None, object(), 0):  # JAX makes such bodies; they are not checked
        assert isinstance(jax.tree.map(lambda _, x=placeholder: x, body), jq.Body)


@jax.jit
def energy(body, omega):
    return jq.dynamics.energy(body, jq.State(jnp.array([1.0, 0, 0, 0]), omega))


OMEGA = np.array([0.3, -0.5, 0.9])


@pytest.mark.parametrize("body", BODIES)
def test_body_is_an_argument_of_jit_and_grad(body):
    """Of 1/2 omega . I omega: 1/2 omega omega^T by I, 1/2 (R^T omega)_k^2 by the moments."""
    wanted = 0.5 * OMEGA @ np.asarray(body.inertia) @ OMEGA
    assert float(energy(body, OMEGA)) == pytest.approx(wanted, rel=1e-14)
    gradient = jax.grad(energy)(body, OMEGA)
    assert isinstance(gradient, jq.Body)
    if leaf_names(body) == [".inertia"]:
        np.testing.assert_allclose(gradient.inertia, 0.5 * np.outer(OMEGA, OMEGA), rtol=1e-14)
    else:
        _, axes = body.principal()
        wanted = 0.5 * (Rotation.from_quat(np.roll(axes, -1)).as_matrix().T @ OMEGA) ** 2
        np.testing.assert_allclose(gradient.principal()[0], wanted, rtol=0, atol=1e-15)


def test_vmap_makes_a_batch_of_bodies():
    inertias = np.stack([INERTIA, 2 * INERTIA, 3 * INERTIA])
    batch = jax.vmap(jq.Body)(inertias)
    assert isinstance(batch, jq.Body)
    np.testing.assert_array_equal(batch.inertia, inertias)
    energies = jax.vmap(energy, in_axes=(0, None))(batch, OMEGA)
    wanted = float(energy(BODIES[0], OMEGA)) * np.array([1, 2, 3])
    np.testing.assert_allclose(energies, wanted, rtol=1e-14)
    principal = jax.vmap(jq.Body.from_principal)(np.stack([MOMENTS, 2 * MOMENTS]))
    np.testing.assert_array_equal(principal.inertia[1], np.diag(2 * MOMENTS))


@pytest.mark.parametrize("name", ["inertia", "_inertia", "moments", "axes", "mass"])
def test_a_body_is_immutable(name):
    body = jq.Body(INERTIA)
    with pytest.raises(AttributeError):
        setattr(body, name, INERTIA)
    with pytest.raises(AttributeError):
        delattr(body, name)
    np.testing.assert_array_equal(body.inertia, INERTIA)


@pytest.mark.parametrize("body", BODIES)
def test_every_body_has_principal_moments(body):
    """``principal()`` has them, and no attribute that would be empty for some bodies."""
    public = {name for name in dir(body) if not name.startswith("_")}
    assert public.isdisjoint({"moments", "axes"})
    moments, axes = body.principal()
    rotation = np.asarray(jq.quaternion.to_matrix(axes))
    wanted = rotation * np.asarray(moments) @ rotation.T
    np.testing.assert_allclose(body.inertia, wanted, rtol=0, atol=1e-13)


def pickled(body):
    return pickle.loads(pickle.dumps(body))


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
def test_bodies_are_copied_and_pickled(again, body):
    other = again(body)
    np.testing.assert_array_equal(other.inertia, body.inertia)
    assert jax.tree.structure(other) == jax.tree.structure(body)


def test_repr_shows_in_a_line_how_a_body_was_made():
    given, principal = BODIES[:2]
    assert repr(given) == "Body(inertia=[[0.6, 0, -0.2], [0, 1, 0], [-0.2, 0, 1.5]])"
    wanted = "Body.from_principal(moments=[1, 2, 2.5], axes=[0.8, 0.6, 0, 0])"
    assert repr(principal) == wanted
    assert repr(jq.Body(given.inertia / 3)).startswith("Body(inertia=[[0.2, 0, -0.06667], [0, 0.33")
    batch = jax.vmap(jq.Body)(np.stack([INERTIA] * 5))
    assert repr(batch) == "Body(inertia=float64[5, 3, 3] from -0.2 to 1.5)"
    assert repr(jax.tree.map(lambda _: None, given)) == "Body(inertia=None)"
    shown = []
    jax.jit(lambda body: shown.append(repr(body)))(given)
    assert "float64[3,3]" in shown[0]
    assert "float64" in repr(jax.eval_shape(lambda body: body, given))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_inertia_is_symmetric_to_the_last_bit(dtype):
    """A skew part left by rounding would make the energy of a free body drift."""
    moments = np.array([0.7, 1.1, 1.3], dtype)
    turns = np.roll(Rotation.random(50, random_state=3).as_quat(), 1, axis=1).astype(dtype)
    made = jax.vmap(jq.Body.from_principal, (None, 0))
    inertia = np.asarray(jax.jit(lambda *given: made(*given).inertia)(moments, turns))
    np.testing.assert_array_equal(inertia, inertia.swapaxes(1, 2))
    skewed = inertia[0].copy()
    skewed[0, 1] *= 1 + 4 * jnp.finfo(dtype).eps
    assert skewed[0, 1] != skewed[1, 0]
    np.testing.assert_array_equal(jq.Body(skewed).inertia, jq.Body(skewed).inertia.T)
