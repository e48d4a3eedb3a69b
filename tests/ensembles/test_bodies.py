"""Random bodies: the first-order law of their spread, and that they are physical."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq

KEY = jax.random.key(0)
INERTIA = jnp.array([[2.0, 0.3, -0.2], [0.3, 3.0, 0.5], [-0.2, 0.5, 4.0]])  # kg m^2
MEAN = jq.Body(INERTIA, mass=12.0)


def second_moments(inertia):
    half = 0.5 * np.trace(inertia, axis1=-2, axis2=-1)[..., None, None]
    return half * np.eye(3) - np.asarray(inertia)


def test_mass_and_second_moments_along_any_axis_have_the_spread():
    axes = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0, 0.8], [-0.36, 0.48, 0.8]])
    axes = np.concatenate([axes, np.linalg.eigh(INERTIA)[1].T])  # the principal axes are the last
    drawn = jax.jit(lambda key: jq.ensembles.bodies(key, MEAN, 0.01, (1_000_000,)))(KEY)
    along = lambda inertia: np.einsum("ai,...ij,aj->...a", axes, second_moments(inertia), axes)
    mass, moments = drawn.mass / MEAN.mass - 1, along(drawn.inertia) / along(INERTIA) - 1
    # the standard error of a standard deviation is 1/sqrt(2e6), 7e-4 of it; the terms of second
    # order are 1e-4 of it in the deviation and at most 1.5 spread^2 in the mean
    np.testing.assert_allclose([mass.std(), *moments.std(axis=0)], 0.01, rtol=4e-3)
    np.testing.assert_allclose([mass.mean(), *moments.mean(axis=0)], 0.0, atol=2e-4)
    independent = np.corrcoef(np.column_stack([mass, moments[:, -3:]]).T)
    np.testing.assert_allclose(independent, np.eye(4), atol=5e-3)  # five standard errors
    # of x and y the correlation is cos^2 of their angle in the metric of the second moments
    s = second_moments(INERTIA)
    correlation = np.corrcoef(moments[:, 0], moments[:, 1])[0, 1]
    np.testing.assert_allclose(correlation, s[0, 1] ** 2 / s[0, 0] / s[1, 1], atol=5e-3)


def test_the_moments_of_a_ball_have_the_spread_over_the_root_of_two():
    """I = S_x + S_y of two independent second moments of equal size."""
    draw = lambda key: jq.ensembles.bodies(key, jq.Body(2.0 * jnp.eye(3)), 0.01, (100_000,)).inertia
    inertia = jax.jit(draw)(KEY)
    moments = jnp.diagonal(inertia, axis1=1, axis2=2)
    np.testing.assert_allclose(moments.std(axis=0), 2.0 * 0.01 / np.sqrt(2.0), rtol=1e-2)
    # off the diagonal the deviation of GOE, 1/sqrt(2) of the diagonal's, of S = 1
    np.testing.assert_allclose(inertia[:, 0, 1].std(), 0.01 / np.sqrt(2.0), rtol=1e-2)


def test_every_body_is_physical_for_a_spread_of_three():
    draw = lambda key: jq.ensembles.bodies(key, MEAN, 3.0, (100_000,))
    drawn = jax.jit(draw)(KEY)
    small, middle, large = np.linalg.eigvalsh(drawn.inertia).T
    rounding = 1e-14 * large  # of eigenvalues
    assert np.all(small > -rounding)
    assert np.all(small + middle - large > -rounding)
    assert np.all(drawn.mass > 0)
    assert large.max() / large.min() > 1e6  # they do differ


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_units_do_not_matter_in_float32(unit):
    @jax.jit
    def draw(unit):
        mean = jq.Body(INERTIA.astype("float32") * unit, 12 * unit)
        return jq.ensembles.bodies(KEY, mean, 0.3, (100,))

    one, other = draw(jnp.float32(1.0)), draw(jnp.float32(unit))
    assert other.inertia.dtype == other.mass.dtype == jnp.float32
    np.testing.assert_allclose(other.inertia / unit, one.inertia, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(other.mass / unit, one.mass, rtol=1e-5)


def test_derivatives_by_the_mean_and_the_spread():
    """Bodies scale with the mean; at spread 0 they are the mean, and move as their normals say."""
    key = jax.random.key(3)
    draw = lambda scale, spread: jq.ensembles.bodies(
        key, jq.Body._unchecked(scale * INERTIA, mass=12.0 * scale), spread
    )
    body = draw(1.0, 0.2)
    by_scale = jax.jit(jax.jacfwd(draw))(1.0, 0.2)
    np.testing.assert_allclose(by_scale.inertia, body.inertia, rtol=1e-12)
    np.testing.assert_allclose(by_scale.mass, body.mass, rtol=1e-12)
    at_zero, by_spread = jax.jit(lambda s: jax.jvp(lambda s: draw(1.0, s), (s,), (1.0,)))(0.0)
    np.testing.assert_allclose(at_zero.inertia, INERTIA, rtol=1e-14, atol=1e-14)
    normals = jax.random.normal(key, (7,))
    np.testing.assert_allclose(by_spread.mass, 12.0 * normals[6], rtol=1e-14)
    first = second_moments(by_spread.inertia)[0, 0] / second_moments(INERTIA)[0, 0]
    np.testing.assert_allclose(first, normals[0], rtol=1e-12)


def test_a_body_without_mass_has_none_and_the_same_inertia():
    bare = jq.ensembles.bodies(KEY, jq.Body(INERTIA), 0.1)
    assert bare.mass is None
    np.testing.assert_array_equal(bare.inertia, jq.ensembles.bodies(KEY, MEAN, 0.1).inertia)


def test_a_flat_body_is_refused():
    with pytest.raises(ValueError, match="body: wanted one that is not flat, got principal"):
        jq.ensembles.bodies(KEY, jq.Body.from_principal(jnp.array([1.0, 2.0, 3.0])), 0.1)
