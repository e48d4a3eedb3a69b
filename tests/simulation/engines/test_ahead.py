"""The kernels for the GPU, compiled ahead of time for one that is not there.

NVIDIA's assembler and XLA's own compiler for an H200 take them. Nothing of it runs. The packages
that this takes are in the task `gpu` of noxfile.py.
"""

import flat
import jax
import jax.numpy as jnp
import pytest

import jaxquat as jq
from examples.validation import ahead

pytestmark = pytest.mark.needs("jax_cuda12_plugin")
BODIES, PROGRAMS = 16384, ("ptxas", "nvdisasm")


def loss(name, gains, starts):
    """The mean square of the last states of a closed loop over 1024 steps."""
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0], gains.dtype))
    law = lambda t, state, gains: -gains[0] * state.q[1:] - gains[1] * state.omega

    def final(start):
        options = {"save_every": 1024, "engine": "fused"}
        grid = jq.grid(0.0, 0.01, 1024)
        return flat.rollout(
            jq.schemes.SCHEMES[name], body, law, start, grid, gains, **options
        ).final

    return sum(jnp.mean(x**2) for x in jax.tree.leaves(jax.vmap(final)(starts)[:2]))


def lowered(name, dtype):
    """The loss and its gradient, for "cuda"."""
    number = lambda *shape: jax.ShapeDtypeStruct(shape, dtype)
    arguments = number(2), jq.State(number(BODIES, 4), number(BODIES, 3))
    value = lambda gains, starts: loss(name, gains, starts)
    return [ahead.lowered(f, *arguments) for f in (value, jax.value_and_grad(value))]


LOCAL = {  # accesses to local memory in a step of the backward pass, if no rare branch is needed
    ("rkmk4", "float32"): 16,
    ("zhao", "float32"): 8,
    ("rkmk4", "float64"): 440,
    ("zhao", "float64"): 80,
}


@pytest.mark.skipif(not all(map(ahead.program, PROGRAMS)), reason="no ptxas or no nvdisasm")
@pytest.mark.parametrize(("name", "dtype"), LOCAL)
def test_a_thread_has_registers_enough(name, dtype):
    """Nothing is spilled forwards, and backwards no more than is stated."""
    kernels = {}
    for function in lowered(name, jnp.dtype(dtype)):
        kernels |= ahead.kernels(function)
    assert set(kernels) == {"fused_forward", "fused_keeping", "fused_backward"}
    for processor in ("sm_80", "sm_90a"):
        needs = {kind: ahead.assembled(text, processor) for kind, text in kernels.items()}
        assert [len(needs[kind].steps) for kind in sorted(needs)] == [2, 1, 1]
        assert all(kernel.registers <= 255 for kernel in needs.values())
        assert needs["fused_forward"].stores == needs["fused_keeping"].stores == 0
        steps = [x for loop in needs["fused_backward"].loops for x in loop.names]
        assert sum(x.startswith(("LDL", "STL")) for x in steps) <= LOCAL[name, dtype]


@pytest.mark.parametrize("name", ["rkmk4", "zhao"])
def test_xla_compiles_value_and_gradient_for_an_h200(name):
    value, gradient = (f.compile().as_text() for f in lowered(name, jnp.float32))
    assert "fused_forward" in value
    assert "fused_keeping" in gradient
    assert "fused_backward" in gradient
