"""The world of docs/migration.md that PyTorch steps without a copy."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT

torch = pytest.importorskip("torch", reason="no torch is installed")


@pytest.fixture(scope="module")
def world():
    page = (ROOT / "docs" / "migration.md").read_text()
    names = {}
    with jax.numpy_dtype_promotion("standard"), jax.enable_x64(False):
        exec(re.findall(r'```python title="torch_world.py"\n(.*?)```', page, re.S)[0], names)
    return names


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(1)
    q, omega, command = (torch.randn(64, n, generator=generator) for n in (4, 3, 3))
    return q / q.norm(dim=1, keepdim=True), omega, command


@pytest.fixture(autouse=True)
def _as_a_user_has_it():
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def test_nothing_is_copied(world, tensors):
    for tensor, array in zip(tensors, world["to_jax"](tensors), strict=True):
        assert array.unsafe_buffer_pointer() == tensor.data_ptr()
    arrays = world["advance"](*world["to_jax"](tensors))
    for tensor, array in zip(world["to_torch"](arrays), arrays, strict=True):
        assert array.unsafe_buffer_pointer() == tensor.data_ptr()


def test_a_step_and_its_gradient_are_those_of_jax(world, tensors):
    arrays = tuple(jnp.asarray(x.numpy()) for x in tensors)
    for x in tensors:
        x.requires_grad_()
    q, omega = world["step"](*tensors)
    expected = world["advance"](*arrays)
    np.testing.assert_array_equal(q.detach().numpy(), expected[0])
    np.testing.assert_array_equal(omega.detach().numpy(), expected[1])

    (q[:, 1].sum() + (omega**2).sum()).backward()

    def loss(arrays):
        q, omega = world["advance"](*arrays)
        return jnp.sum(q[:, 1]) + jnp.sum(omega**2)

    slopes = jax.grad(loss)(arrays)
    for x, slope in zip(tensors, slopes, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-5, atol=1e-6)
