"""A function as a scalar program, beside the same function by ``jax.jit``."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxquat.fused.ir.program import evaluate
from jaxquat.fused.trace.tracing import scalarize


def leaves_of(tree):
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    leaves = [jax.random.key_data(x) if is_key(x) else x for x in jax.tree.leaves(tree)]
    return [np.asarray(x) for x in leaves]


def both(function, *arguments):
    """The values by the scalar program and by jit, flat, and the program."""
    program = scalarize(function, *arguments)
    inputs = [x for leaf in leaves_of(arguments) for x in leaf.ravel()]
    got = [np.asarray(x) for x in evaluate(program, inputs)]
    wanted = [x for leaf in leaves_of(jax.jit(function)(*arguments)) for x in leaf.ravel()]
    assert [x.dtype for x in got] == [x.dtype for x in wanted]
    return np.array(got, object), np.array(wanted, object), program


def assert_same(function, *arguments, rtol=1e-14):
    """The scalar program gives the numbers of jit; the program."""
    got, wanted, program = both(function, *arguments)
    np.testing.assert_allclose(got.astype(float), wanted.astype(float), rtol=rtol, atol=1e-14)
    return program
