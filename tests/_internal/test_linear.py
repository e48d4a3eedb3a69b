"""Three-by-three algebra against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxquat._internal import linear

RNG = np.random.default_rng(1)
A, B = RNG.normal(size=(2, 50, 3, 3))
V, W = RNG.normal(size=(2, 50, 3))


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        ("dot", (V, W), np.einsum("ni,ni->n", V, W)),
        ("cross", (V, W), np.cross(V, W)),
        ("matvec", (A, V), np.einsum("nij,nj->ni", A, V)),
        ("matmul", (A, B), A @ B),
        ("transpose", (A,), A.transpose(0, 2, 1)),
    ],
)
def test_a_product_is_that_of_numpy(name, arguments, wanted):
    got = jax.jit(getattr(linear, name))(*arguments)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=20 * np.finfo(float).eps)


def test_matvec_and_matmul_serve_other_sizes_too():
    a, b = RNG.normal(size=(2, 2, 4, 4))
    np.testing.assert_allclose(linear.matmul(a, b), a @ b, atol=1e-14)
    wanted = np.einsum("nij,nj->ni", a[:, :3], b[:, 0])
    np.testing.assert_allclose(linear.matvec(a[:, :3], b[:, 0]), wanted, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_inverse_is_right_to_its_condition(dtype):
    """A^-1 A = 1 to a small multiple of eps cond(A)^2."""
    matrix = A.astype(dtype)
    inverse = np.asarray(jax.jit(linear.inverse)(matrix))
    assert inverse.dtype == dtype
    residual = np.abs(inverse.astype(float) @ matrix.astype(float) - np.eye(3)).max(axis=(1, 2))
    assert (residual / np.linalg.cond(matrix.astype(float)) ** 2).max() < 10 * np.finfo(dtype).eps


@jax.jit
def both_inverses(matrix):
    """The values and slopes of both functions, in reverse mode."""
    functions = linear.inverse_inertia, linear.inverse
    return [(f(matrix), jax.jacrev(f)(matrix)) for f in functions]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inertias_of_any_size_are_inverted(dtype):
    """A power of two changes no digit of it, nor of its derivatives.

    That holds even where the dtype cannot hold the determinant.
    """
    inertia = np.array([[0.6, 0.1, -0.2], [0.1, 0.8, 0.05], [-0.2, 0.05, 1.0]], dtype)
    largest = np.finfo(dtype).maxexp - 12
    (wanted, slope), plain = both_inverses(inertia)
    np.testing.assert_array_equal(wanted, plain[0])
    np.testing.assert_array_equal(slope, plain[1])
    forward = jax.jit(
        lambda x: [jax.jacfwd(f)(x) for f in (linear.inverse_inertia, linear.inverse)]
    )
    np.testing.assert_array_equal(*forward(inertia))
    for exponent in (-largest, -60, -1, 1, 60, largest):
        size = dtype(2.0) ** exponent
        got = both_inverses(inertia * size)[0][0]
        np.testing.assert_array_equal(got, np.asarray(wanted) / size)
    size = dtype(2.0**50)
    got = both_inverses(inertia * size)[0][1]
    np.testing.assert_array_equal(got, np.asarray(plain[1]) / size / size)


def test_the_inverse_of_a_singular_matrix_is_not_finite():
    assert not np.isfinite(linear.inverse(jnp.ones((3, 3)))).any()
