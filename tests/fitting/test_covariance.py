"""Covariance of fitted parameters: textbook regression, and combinations that data cannot see."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq

X = np.linspace(-1.0, 2.0, 40)
DESIGN = np.stack([np.ones(40), X, X**2], axis=1)
DATA = DESIGN @ [0.5, -1.0, 2.0] + 0.1 * np.sin(37.0 * X)


def parabola(params):
    return params["offset"] + params["slopes"][0] * X + params["slopes"][1] * X**2 - DATA


def optimum():
    solution = np.linalg.solve(DESIGN.T @ DESIGN, DESIGN.T @ DATA)
    return {"offset": jnp.asarray(solution[0]), "slopes": jnp.asarray(solution[1:])}


def test_linear_regression_is_the_textbook():
    """Seber and Lee, Linear Regression Analysis, (3.3): s^2 inv(X^T X), s^2 = RSS / (m - n)."""
    found = jq.fit_covariance(parabola, optimum())
    residual = np.asarray(parabola(optimum()))
    variance = residual @ residual / 37
    wanted = variance * np.linalg.inv(DESIGN.T @ DESIGN)
    errors = np.sqrt(np.diag(wanted))
    np.testing.assert_allclose(found.covariance, wanted, rtol=1e-12)
    np.testing.assert_allclose(found.standard_errors["offset"], errors[0], rtol=1e-12)
    np.testing.assert_allclose(found.standard_errors["slopes"], errors[1:], rtol=1e-12)
    np.testing.assert_allclose(found.sigma, np.sqrt(variance), rtol=1e-14)
    assert found.names == ("offset", "slopes[0]", "slopes[1]")
    assert found.unidentifiable.shape == (0, 3)
    assert "not identifiable" not in str(found)


def test_given_sigma_weighs_the_residuals():
    """Generalised least squares: inv(X^T W X) with W = 1/sigma^2.

    One sigma for all is a factor.
    """
    sigma = 0.1 + np.abs(X)
    found = jq.fit_covariance(parabola, optimum(), sigma=sigma)
    wanted = np.linalg.inv(DESIGN.T @ (DESIGN / sigma[:, None] ** 2))
    np.testing.assert_allclose(found.covariance, wanted, rtol=1e-12)
    found = jq.fit_covariance(parabola, optimum(), sigma=0.3)
    wanted = 0.09 * np.linalg.inv(DESIGN.T @ DESIGN)
    np.testing.assert_allclose(found.covariance, wanted, rtol=1e-12)


@pytest.mark.parametrize(
    ("reduced", "says"),
    [(1e5, True), (2.26, True), (2.24, False), (1.0, False), (1e-5, False)],
)
def test_residuals_that_contradict_sigma_are_said(reduced, says):
    """Of 37 degrees of freedom five standard deviations are 5 sqrt(2/37) = 1.16.

    A factor of 1.5 in the errors is one of 2.25 in chi-squared.
    """
    residual = np.asarray(parabola(optimum()))
    sigma = np.sqrt(residual @ residual / 37 / reduced)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = jq.fit_covariance(parabola, optimum(), sigma=sigma)
    np.testing.assert_allclose(found.reduced_chi_squared, reduced, rtol=1e-12)
    wanted = sigma**2 * np.linalg.inv(DESIGN.T @ DESIGN)
    np.testing.assert_allclose(found.covariance, wanted, rtol=1e-11)
    assert str(found).endswith(f"chi-squared per degree of freedom: {reduced:.3g}")
    assert [warning.category for warning in caught] == ([RuntimeWarning] if says else [])
    if says:
        message, factor = str(caught[0].message), f"{np.sqrt(reduced):.3g}"
        assert f"a chi-squared per degree of freedom of {reduced:.3g}" in message
        assert f"{factor} times what sigma says, and the standard errors are too small" in message
        assert caught[0].filename == __file__


def test_few_residuals_are_given_more_room():
    """Two degrees of freedom: 1 + 5 sqrt(2/2) = 6."""

    def run(size):
        data = jnp.array([size, -size, 0.0])
        return jq.fit_covariance(lambda p: p - data, jnp.array(0.0), sigma=1.0)

    assert run(2.44).reduced_chi_squared == pytest.approx(2.44**2)  # 5.95
    with pytest.warns(RuntimeWarning, match=r"per degree of freedom of 6\.05"):
        run(2.46)


def test_there_is_no_chi_squared_without_sigma_or_freedom():
    assert jq.fit_covariance(parabola, optimum()).reduced_chi_squared is None
    assert jq.fit_covariance(lambda p: p - 1.0, jnp.ones(3), sigma=1.0).reduced_chi_squared is None


def test_units_do_not_matter():
    """A parameter in units 1e12 times as large: its row and column shrink by that.

    Nothing becomes flat.
    """
    units = np.array([1.0, 1e-12, 1.0])
    found = jq.fit_covariance(lambda p: jnp.asarray(DESIGN / units) @ p, jnp.zeros(3), sigma=1.0)
    wanted = np.linalg.inv(DESIGN.T @ DESIGN)
    np.testing.assert_allclose(found.covariance / np.outer(units, units), wanted, rtol=1e-11)
    assert found.unidentifiable.size == 0


def test_flat_directions_are_reported_and_the_rest_is_right():
    """Only a - 2 b and d are seen: a and b are flat along (2, 1), and c alone.

    The error of d is that of two columns.
    """
    names = ("a", "b", "c", "d")

    def residuals(params):
        return (params["a"] - 2 * params["b"]) * X + params["d"] * X**2

    found = jq.fit_covariance(residuals, dict.fromkeys(names, 0.0), sigma=0.5)
    assert found.names == names
    wanted = [[2 / 5**0.5, 1 / 5**0.5, 0, 0], [0, 0, 1, 0]]
    in_order = found.unidentifiable if found.unidentifiable[0, 0] else found.unidentifiable[::-1]
    np.testing.assert_allclose(in_order, wanted, atol=1e-14)
    assert [float(found.standard_errors[name]) for name in "abc"] == [np.inf] * 3
    two = np.stack([X, X**2], axis=1)
    error = 0.5 * np.sqrt(np.linalg.inv(two.T @ two)[1, 1])
    np.testing.assert_allclose(found.standard_errors["d"], error, rtol=1e-12)
    unknown = [[i != j and (i < 3 or j < 3) for j in range(4)] for i in range(4)]
    np.testing.assert_array_equal(np.isnan(found.covariance), unknown)
    assert np.sum(found.singular_values < 1e-15) == 2
    report = str(found).splitlines()
    assert sorted(report[4:6]) == ["not identifiable: +0.707 a +0.707 b", "not identifiable: +1 c"]
    assert report[0].endswith("+- inf")


def test_units_hide_no_part_of_a_flat_direction():
    """A moment of 1e-5 and a scale of 1 are seen by their ratio: both parts change it alike."""
    residuals = lambda p: p["moment"] / p["scale"] * X - X
    params = {"moment": jnp.array(1e-5), "scale": jnp.array(1.0)}
    found = jq.fit_covariance(residuals, params, sigma=1.0)
    assert "not identifiable: +0.707 moment +0.707 scale" in str(found)
    np.testing.assert_allclose(found.unidentifiable[0], [1e-5, 1.0], rtol=1e-9)


def test_fewer_residuals_than_parameters():
    """One equation x + y + z = 1: two directions are flat, both orthogonal to (1, 1, 1)."""
    residuals = lambda p: jnp.sum(p, keepdims=True) - 1.0
    found = jq.fit_covariance(residuals, jnp.ones(3), sigma=1.0)
    assert found.unidentifiable.shape == (2, 3)
    assert np.linalg.matrix_rank(found.unidentifiable) == 2
    np.testing.assert_allclose(found.unidentifiable @ np.ones(3), 0.0, atol=1e-15)
    message = (
        "residuals: wanted more than the 1 identifiable parameters to estimate sigma from, got 1"
    )
    with pytest.raises(ValueError, match=message):
        jq.fit_covariance(residuals, jnp.ones(3))


@pytest.mark.slow
def test_free_motion_shows_inertia_up_to_scale():
    """Euler's equation omega' = -inv(I) (omega x I omega) is the same for c I.

    The flat direction is the six entries themselves.
    """
    entries = jnp.array([0.6, 0.05, -0.2, 1.0, 0.1, 1.5])
    start = jq.State(jq.quaternion.exp(jnp.array([0.5, -1.0, 0.3])), jnp.array([0.4, 0.9, -1.0]))

    def rates(entries):
        xx, xy, xz, yy, yz, zz = entries
        body = jq.Body(jnp.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
        path = jq.rollout(jq.lie_euler, body, jq.torques.zero, start, jq.grid(0.0, 0.1, 40))
        return path.state.omega.ravel()

    data = jax.jit(rates)(entries)
    found = jq.fit_covariance(lambda p: rates(p) - data, entries, sigma=0.01)
    np.testing.assert_allclose(found.unidentifiable, [entries / np.linalg.norm(entries)], atol=1e-9)
    assert found.singular_values[-1] < 1e-13
    assert found.singular_values[-2] > 1e-4
    assert np.all(np.isinf(found.standard_errors))
    ratios = jq.fit_covariance(lambda p: rates(jnp.append(p, 1.5)) - data, entries[:5], sigma=0.01)
    assert ratios.unidentifiable.size == 0
    assert np.all(np.isfinite(ratios.standard_errors))


def test_reverse_mode_where_only_that_is_defined():
    @jax.custom_vjp
    def double(x):
        return 2.0 * x

    double.defvjp(lambda x: (2.0 * x, None), lambda _, bar: (2.0 * bar,))
    found = jq.fit_covariance(lambda p: double(p) * jnp.ones(4), jnp.array(0.0), sigma=1.0)
    np.testing.assert_allclose(found.covariance, [[1 / 16]], rtol=1e-14)
    assert found.names == ("params",)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"residuals": jnp.sum}, ValueError, r"residuals: wanted shape \(m,\)"),
        ({"residuals": lambda p: p / 0.0}, ValueError, "residuals: wanted finite values"),
        (
            {"residuals": lambda p: jnp.sqrt(p - 1.0)},
            ValueError,
            "derivatives of residuals: wanted finite values",
        ),
        (
            {"params": jq.Body(jnp.eye(3))},
            TypeError,
            r"params: wanted no jq.Body, .* got one at params; give theta of",
        ),
        ({"params": ()}, ValueError, "params: wanted at least one number, got none"),
        ({"sigma": jnp.ones(4)}, ValueError, r"sigma: wanted shape \(\) or \(3,\), got \(4,\)"),
    ],
)
def test_errors(arguments, error, message):
    good = {"residuals": lambda p: jnp.stack([p[0], p[1], p[0]]), "params": jnp.ones(2)}
    with pytest.raises(error, match=message):
        jq.fit_covariance(**good | arguments)


def test_a_covariance_shows_itself_in_few_lines():
    """Of x, y and z only x + y is seen, with sigma 0.5: chi-squared is (0.1^2 + 0.3^2) / 0.25."""
    residuals = lambda p: (p["x"] + p["y"]) * jnp.ones(2) - jnp.array([1.1, 0.7])
    params = {"x": 0.75, "y": 0.25, "z": 0.0}
    found = jq.fit_covariance(residuals, params, sigma=0.5)
    assert found.reduced_chi_squared == pytest.approx(0.4)
    assert str(found).splitlines()[3].startswith("not identifiable: ")
    assert repr(found).splitlines() == [
        "FitCovariance: 3 parameters, 2 flat directions",
        "  x   0.75 +- inf",
        "  y   0.25 +- inf",
        "  z   0 +- inf",
        *(f"  {line}" for line in str(found).splitlines()[3:5]),
        "  chi-squared per degree of freedom: 0.4",
    ]
    many = jq.fit_covariance(lambda p: jnp.append(p, 1.0), jnp.zeros(40))
    assert len(repr(many).splitlines()) == 9
    assert len(str(many).splitlines()) == 40
