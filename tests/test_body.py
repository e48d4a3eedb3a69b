"""Bodies: inertias of simple solids, the chart of physical inertias, parallel axes, and the body as a pytree."""

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
    return np.einsum("n,n,ij->ij", masses, square, np.eye(3)) - np.einsum(
        "n,ni,nj->ij", masses, places, places
    )


def physical(inertia):
    """Positive definite, and no principal second moment of mass negative."""
    moments = np.linalg.eigvalsh(inertia)
    return moments[0] > 0 and moments[2] <= (moments[0] + moments[1]) * (
        1 + 4 * np.finfo(inertia.dtype).eps
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_from_principal_is_the_body_of_the_matrix(dtype):
    axes = jnp.asarray(AXES / np.linalg.norm(AXES), dtype)
    body = jq.Body.from_principal(jnp.asarray(MOMENTS, dtype), axes)
    assert body.inertia.dtype == dtype
    rotation = Rotation.from_quat(np.roll(axes, -1)).as_matrix()  # principal to body axes
    np.testing.assert_allclose(
        body.inertia,
        rotation @ np.diag(MOMENTS) @ rotation.T,
        rtol=0,
        atol=16 * jnp.finfo(dtype).eps,
    )
    np.testing.assert_array_equal(body.principal()[0], jnp.asarray(MOMENTS, dtype))
    np.testing.assert_array_equal(
        jq.Body.from_principal(jnp.asarray(MOMENTS, dtype)).inertia, np.diag(MOMENTS).astype(dtype)
    )
    again = jq.Body(body.inertia)
    assert again.inertia.dtype == dtype
    np.testing.assert_array_equal(again.inertia, body.inertia)


# Solids


@pytest.mark.parametrize(
    "sides", [(0.3, 0.5, 0.7), (1.0, 1e-3, 1e-3), (1.0, 1.0, 1e-6), (1e-7, 1e-7, 1.0)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_box(sides, dtype):
    """Each m/12 (b^2 + c^2), to rounding: also for a thin rod (m l^2/12 across) and a thin plate."""
    a, b, c = np.asarray(sides, dtype).astype(float)
    body = jq.Body.box(dtype(2.0), np.asarray(sides, dtype))
    wanted = 2.0 / 12.0 * np.array([b * b + c * c, c * c + a * a, a * a + b * b])
    np.testing.assert_allclose(body.inertia, np.diag(wanted), rtol=8 * np.finfo(dtype).eps)
    assert body.inertia.dtype == dtype


def test_box_is_the_integral_over_its_volume():
    """Gauss nodes of two points an axis integrate quadratics exactly."""
    sides, nodes = np.array([0.3, 0.5, 0.7]), np.array([-1.0, 1.0]) / np.sqrt(3)
    places = np.stack(
        np.meshgrid(*(0.5 * s * nodes for s in sides), indexing="ij"), axis=-1
    ).reshape(-1, 3)
    np.testing.assert_allclose(
        jq.Body.box(2.0, sides).inertia,
        point_masses(np.full(8, 2.0 / 8), places),
        rtol=0,
        atol=4e-16,
    )


@pytest.mark.parametrize(("radius", "height"), [(0.4, 1.1), (1e-6, 1.0), (1.0, 1e-6)])
def test_cylinder(radius, height):
    """Along m r^2/2, across m (3 r^2 + h^2)/12; a rod in the one limit and a disc in the other."""
    across = 3.0 * (3 * radius**2 + height**2) / 12
    got = jq.Body.cylinder(3.0, radius, height).inertia
    np.testing.assert_allclose(got, np.diag([across, across, 1.5 * radius**2]), rtol=4 * EPS)
    if radius < 1e-3:
        assert got[0, 0] == pytest.approx(3.0 * height**2 / 12, rel=1e-10)
    if height < 1e-3:
        assert got[0, 0] == pytest.approx(0.5 * float(got[2, 2]), rel=1e-10)


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
    np.testing.assert_allclose(
        body.inertia, point_masses(masses, places - offset), rtol=0, atol=1e-13
    )
    back = point_masses(masses, places + offset)
    np.testing.assert_allclose(
        body.inertia, back, rtol=0, atol=1e-13
    )  # about a point at +offset or -offset: the same


def test_shifted_after_from_principal():
    body = jq.Body.from_principal(MOMENTS, AXES)
    np.testing.assert_allclose(body.shifted(2.0, np.zeros(3)).inertia, body.inertia, rtol=0, atol=0)
    np.testing.assert_allclose(
        np.diag(body.shifted(2.0, np.array([0, 0, 1.0])).inertia - body.inertia),
        [2, 2, 0],
        atol=1e-15,
    )


# The chart

THETA = hnp.arrays(np.float64, 6, elements=st.floats(-1.5, 1.5, allow_subnormal=False))
from_parameters = jax.jit(lambda theta: jq.Body.from_parameters(theta).inertia)
parameters = jax.jit(lambda inertia: jq.Body._unchecked(inertia).parameters)


@settings(deadline=None, max_examples=100)
@given(THETA)
def test_every_parameter_is_a_physical_inertia_and_comes_back(theta):
    inertia = np.asarray(from_parameters(theta))
    assert physical(inertia)
    np.testing.assert_array_equal(inertia, inertia.T)
    # the smallest of the second moments, at least exp(-3)/20, comes out of differences of moments up to 50
    np.testing.assert_allclose(parameters(inertia), theta, rtol=0, atol=1e-10)


def test_from_parameters_by_its_definition():
    """S = L L^T holds the second moments of mass, I = tr(S) 1 - S: point masses on the columns of L have it."""
    theta = np.array([0.1, -0.3, 0.4, 0.5, -0.2, 0.3])
    factor = np.array([[np.exp(0.1), 0, 0], [0.5, np.exp(-0.3), 0], [-0.2, 0.3, np.exp(0.4)]])
    body = jq.Body.from_parameters(theta)
    np.testing.assert_allclose(body.inertia, point_masses(np.ones(3), factor.T), rtol=0, atol=1e-15)
    np.testing.assert_allclose(body.parameters, theta, rtol=0, atol=1e-14)


@pytest.mark.parametrize("log_scale", [2.0, 6.0, 12.0])
def test_thin_bodies_have_physical_parameters(log_scale):
    """A needle: S = diag(s^2, s^-2, s^-2), whose least moment 2 s^-2 must not drown in the others."""
    inertia = np.asarray(from_parameters(np.array([log_scale, -log_scale, -log_scale, 0, 0, 0])))
    large, small = np.exp(2 * log_scale), np.exp(-2 * log_scale)
    np.testing.assert_allclose(
        inertia, np.diag([2 * small, large + small, large + small]), rtol=1e-14
    )


def test_parameters_of_a_given_body_and_of_a_principal_one():
    for body in (jq.Body(INERTIA), jq.Body.from_principal(MOMENTS, AXES)):
        np.testing.assert_allclose(
            jq.Body.from_parameters(body.parameters).inertia, body.inertia, rtol=0, atol=1e-14
        )


def test_random_bodies_are_physical_and_have_products():
    keys = jax.random.split(jax.random.key(1), 200)
    inertias = np.asarray(jax.jit(jax.vmap(lambda key: jq.Body.random(key).inertia))(keys))
    assert all(map(physical, inertias))
    assert np.abs(inertias[:, 0, 1]).mean() > 0.05
    assert 0.5 < np.median(np.linalg.eigvalsh(inertias)) < 5
    assert (
        jax.eval_shape(lambda key: jq.Body.random(key, dtype=jnp.float32), keys[0]).inertia.dtype
        == jnp.float32
    )


# As a pytree

BODIES = [
    jq.Body(INERTIA),
    jq.Body.from_principal(MOMENTS, np.array([0.8, 0.6, 0, 0])),
    jq.Body.box(1.0, np.ones(3)),
]


@pytest.mark.parametrize("body", BODIES)
def test_leaves_and_tree_map(body):
    leaves, structure = jax.tree.flatten(body)
    assert len(leaves) == (1 if body._moments is None else 2)
    again = jax.tree.unflatten(structure, leaves)
    assert isinstance(again, jq.Body)
    np.testing.assert_array_equal(again.inertia, body.inertia)
    doubled = jax.tree.map(lambda x: 2 * x, body)
    np.testing.assert_allclose(
        doubled.inertia, (2 if body._moments is None else 32) * body.inertia, rtol=4 * EPS
    )  # R(2 q) = 4 R
    assert jax.tree.map(lambda _: None, body) is not None  # unflattening checks nothing
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(body)]
    assert paths == ([".inertia"] if body._moments is None else [".moments", ".axes"])


@jax.jit
def energy(body, omega):
    return jq.dynamics.energy(body, jq.State(jnp.array([1.0, 0, 0, 0]), omega))


OMEGA = np.array([0.3, -0.5, 0.9])


@pytest.mark.parametrize("body", BODIES)
def test_body_is_an_argument_of_jit_and_grad(body):
    """1/2 omega . I omega: its derivative is 1/2 omega omega^T in I, 1/2 (R^T omega)_k^2 in the moments."""
    assert float(energy(body, OMEGA)) == pytest.approx(
        0.5 * OMEGA @ np.asarray(body.inertia) @ OMEGA, rel=1e-14
    )
    gradient = jax.grad(energy)(body, OMEGA)
    assert isinstance(gradient, jq.Body)
    if body._moments is None:
        np.testing.assert_allclose(gradient.inertia, 0.5 * np.outer(OMEGA, OMEGA), rtol=1e-14)
    else:
        rotation = Rotation.from_quat(np.roll(body._axes, -1)).as_matrix()
        np.testing.assert_allclose(
            gradient._moments, 0.5 * (rotation.T @ OMEGA) ** 2, rtol=0, atol=1e-15
        )


def test_vmap_makes_a_batch_of_bodies():
    inertias = np.stack([INERTIA, 2 * INERTIA, 3 * INERTIA])
    batch = jax.vmap(jq.Body)(inertias)
    assert isinstance(batch, jq.Body)
    np.testing.assert_array_equal(batch.inertia, inertias)
    energies = jax.vmap(energy, in_axes=(0, None))(batch, OMEGA)
    np.testing.assert_allclose(
        energies, float(energy(BODIES[0], OMEGA)) * np.array([1, 2, 3]), rtol=1e-14
    )
    principal = jax.vmap(jq.Body.from_principal)(np.stack([MOMENTS, 2 * MOMENTS]))
    np.testing.assert_array_equal(principal.inertia[1], np.diag(2 * MOMENTS))


@pytest.mark.parametrize("name", ["inertia", "_inertia", "moments", "axes", "mass"])
def test_immutable(name):
    body = jq.Body(INERTIA)
    with pytest.raises(AttributeError):
        setattr(body, name, INERTIA)
    with pytest.raises(AttributeError):
        delattr(body, name)
    np.testing.assert_array_equal(body.inertia, INERTIA)


@pytest.mark.parametrize("body", BODIES)
def test_what_is_public(body):
    """``principal()`` of every body, not slots that some bodies have empty."""
    public = {name for name in dir(body) if not name.startswith("_")}
    assert public.isdisjoint({"moments", "axes"})
    moments, axes = body.principal()
    rotation = np.asarray(jq.quaternion.to_matrix(axes))
    np.testing.assert_allclose(
        rotation * np.asarray(moments) @ rotation.T, body.inertia, rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda body: pickle.loads(pickle.dumps(body))]
)
def test_copies_and_pickles(again, body):
    other = again(body)
    np.testing.assert_array_equal(other.inertia, body.inertia)
    assert jax.tree.structure(other) == jax.tree.structure(body)


def test_repr_shows_how_it_was_made():
    assert repr(BODIES[0]).startswith("Body(inertia=")
    assert repr(BODIES[1]).startswith("Body.from_principal(moments=")


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_the_inertia_is_symmetric_to_the_last_bit(dtype):
    """What rounding leaves beside it makes the energy of a free body drift."""
    keys = jax.random.split(jax.random.key(3), 50)
    moments = jnp.array([0.7, 1.1, 1.3], dtype)
    turns = jax.vmap(lambda key: jq.quaternion.random(key, dtype=dtype))(keys)
    inertia = jax.vmap(jq.Body.from_principal, (None, 0))(moments, turns).inertia
    np.testing.assert_array_equal(inertia, inertia.swapaxes(1, 2))
    skewed = inertia[0].at[0, 1].multiply(1 + 4 * jnp.finfo(dtype).eps)
    np.testing.assert_array_equal(jq.Body(skewed).inertia, jq.Body(skewed).inertia.T)
