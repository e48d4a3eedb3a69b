"""A function as a scalar program, beside the same function by ``jax.jit``."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxquat.fused.trace.tracing import scalarize

MEANING = {  # of each scalar operation, on arrays
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
    "neg": lax.neg,
    "abs": lax.abs,
    "fma": lambda x, y, z: x * y + z,
    "sqrt": lax.sqrt,
    "floor": lax.floor,
    "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "eq": lax.eq,
    "ne": lax.ne,
    "lt": lax.lt,
    "le": lax.le,
    "select": lax.select,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "shl": lax.shift_left,
    "shr": lax.shift_right_logical,
    "sar": lax.shift_right_arithmetic,
    "sin": lax.sin,
    "cos": lax.cos,
    "exp": lax.exp,
    "expm1": lax.expm1,
    "log": lax.log,
    "log1p": lax.log1p,
    "tanh": lax.tanh,
    "atan2": lax.atan2,
    "pow": lax.pow,
}


def evaluate(program, inputs):
    """The outputs, by ``jax.lax``, with loops unrolled; the inputs may have any common shape."""
    values = list(inputs)
    for op in program.ops:
        args = [values[a] for a in op.args]
        if op.name == "const":
            values.append(op.number)
        elif op.name == "call":
            values.append(_called(op.value, args))
        elif op.name == "item":
            values.append(args[0][op.value])
        elif op.name == "convert":
            values.append(lax.convert_element_type(args[0], op.dtype))
        elif op.name == "bitcast":
            values.append(lax.bitcast_convert_type(args[0], jnp.dtype(op.dtype)))
        elif op.name == "take":
            index, *elements = _of_one_shape(args)
            values.append(jnp.take_along_axis(jnp.stack(elements), index[None], 0)[0])
        else:
            values.append(MEANING[op.name](*_of_one_shape(args)))
    return [values[k] for k in program.outputs]


def _of_one_shape(args):
    return args if len({np.shape(x) for x in args}) == 1 else jnp.broadcast_arrays(*args)


def _called(routine, args):
    """The items of a call."""
    fixed, carried, rows = routine.split(args)
    if routine.kind == "while":
        trip = lambda values: evaluate(routine.program, [*fixed, *values])
        carried = [jnp.asarray(x) for x in carried]
        return lax.while_loop(lambda values: jnp.any(values[0]), trip, carried)
    results = []
    for k in range(routine.trips):
        outputs = evaluate(routine.program, [*fixed, *carried, *(row[k] for row in rows)])
        carried = outputs[: routine.carried]
        results.append(outputs[routine.carried :])
    return [*carried, *(x for row in zip(*results, strict=True) for x in row)]


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
