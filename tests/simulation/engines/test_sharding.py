"""Bodies that are sharded over eight devices stay there, with all that a rollout makes of them."""

import functools
import os
import re
import subprocess
import sys

import pytest

from jaxquat.fused import partitioning

COMMON = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
import jaxquat as jq

body, level = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0])), jnp.array([0.5, 0.5, -0.5, 0.5])
gains, rates = jnp.array([2.0, 1.0]), jax.random.normal(jax.random.key(0), (48, 3))

def rows(rate, gains):
    torque = lambda t, state, gains: -gains[0] * state.q[1:] - gains[1] * state.omega
    options = jq.RolloutOptions(engine="fused")
    start, grid = jq.State(level, rate), jq.grid(0.0, 0.01, 16, save_every=8)
    return jq.rollout(
        jq.lie_euler, body, torque, start, grid, gains, options=options
    ).state.omega

bodies = jax.vmap(rows, (0, None))
loss = lambda rates, gains: jnp.sum(bodies(rates, gains) ** 2)
devices = np.array(jax.devices())
line = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
on_line = NamedSharding(line, PartitionSpec("d"))

def check(function, sharding=on_line, rates=rates):
    wanted = jax.jit(function)(rates, gains)
    program = jax.jit(function).lower(jax.device_put(rates, sharding), gains).compile()
    results = program(jax.device_put(rates, sharding), gains)
    for x, y in zip(jax.tree.leaves(results), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-6)
    shardings = ["none" if x.sharding.is_fully_replicated else
                 "kept" if x.sharding.is_equivalent_to(sharding, x.ndim) else "other"
                 for x in jax.tree.leaves(results)]
    print("of results", *shardings)
    print(program.as_text())
"""
COLLECTIVES = re.compile(r"\b(all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute)")


def found(*calls):
    """For each call of ``check`` the shardings of its results, and the collectives."""
    flags = os.environ.get("XLA_FLAGS", "")
    count = "--xla_force_host_platform_device_count=8"
    environment = os.environ | {"XLA_FLAGS": f"{flags} {count}", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", "\n".join([COMMON, *calls])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("of results ")[1:]
    return [(part.split("\n")[0], set(COLLECTIVES.findall(part))) for part in parts]


ONE = "lambda rate, gains: jnp.sum(rows(rate, gains))"
MEAN = "lambda rates, gains: jnp.mean(bodies(rates, gains), 0)"
SLOPE = "lambda rates, gains: jax.jvp(lambda x: jax.grad(loss, 1)(rates, x), (gains,), (gains,))"
NESTED = "lambda rates, gains: jax.vmap(bodies, (0, None))(rates.reshape(16, 3, 3), gains)"
EACH = "lambda rates, gains: jax.vmap(rows)(rates, rates[:, :2])"
REMAINDER = """check(
    lambda rates, gains: bodies(jax.lax.with_sharding_constraint(rates, on_line), gains),
    NamedSharding(line, PartitionSpec()), rates[:42],
)"""
LOOP = "lambda rates, gains: jax.lax.fori_loop(0, 3, lambda k, x: bodies(x, gains)[:, -1], rates)"


@functools.cache
def of_quick_tests():
    """The value, its gradient, a Jacobian and a remainder, by one process."""
    jacobian = f"check(jax.jacrev({MEAN}, 1))"
    return found("check(bodies)", "check(jax.grad(loss, (0, 1)))", jacobian, REMAINDER)


def test_value_and_gradient():
    """The gradient by the gains alone is a sum over devices."""
    assert of_quick_tests()[:2] == [("kept", set()), ("kept none", {"all-reduce"})]


def test_bodies_stay_where_cotangents_are_batched_and_where_the_devices_do_not_divide_them():
    """Three cotangents of a mean meet 48 bodies: the bodies come first where axes are merged.

    Of 42 bodies on eight devices each device computes all.
    """
    jacobian, whole = of_quick_tests()[2:]
    assert jacobian == ("none", {"all-reduce"})
    assert whole[0] in ("none", "other")  # jax 0.8.1 gives them uneven shares


def test_a_mesh_has_an_axis_for_each_prime_factor():
    assert partitioning._factors(8) == (2, 2, 2)
    assert partitioning._factors(360) == (2, 2, 2, 3, 3, 5)
    assert partitioning._factors(7) == (7,)


OTHERS = {
    NESTED: ("kept", set()),
    EACH: ("kept", set()),
    LOOP: ("kept", set()),
    "jax.jacfwd(bodies, 1)": ("kept", set()),
    f"jax.vmap(jax.hessian({ONE}, (0, 1)), (0, None))": ("kept kept kept kept", set()),
    "jax.hessian(loss, 1)": ("none", {"all-reduce"}),
    SLOPE: ("none none", {"all-reduce"}),
    "jax.grad(jax.checkpoint(loss), 1)": ("none", {"all-reduce"}),
}


@pytest.mark.slow
def test_derivatives_and_batches():
    results = found(*(f"check({function})" for function in OTHERS))
    assert dict(zip(OTHERS, results, strict=True)) == OTHERS


@pytest.mark.slow
def test_meshes():
    """A part of a mesh, its axes in any order, devices in another order, and explicit axes.

    Bodies that are not sharded stay so.
    """
    of = "check(bodies, NamedSharding({}, PartitionSpec({})))".format
    square = 'Mesh(devices.reshape(4, 2), ("a", "b"))'
    turned = 'Mesh(devices.reshape(2, 4).T, ("a", "b"))'
    three = 'Mesh(devices[:6].reshape(2, 3), ("a", "b"))'
    back = 'Mesh(devices[::-1], ("a",))'
    explicit = 'jax.make_mesh((8,), ("a",), axis_types=(AxisType.Explicit,))'
    meshes = (
        (square, '"a"'),
        (square, '"b"'),
        (square, '("b", "a")'),
        (turned, '"a"'),
        (turned, '("b", "a")'),
        (three, '("a", "b")'),
        (three, '"b"'),
        (back, '"a"'),
        (explicit, '"a"'),
    )
    whole = "check(bodies, NamedSharding(line, PartitionSpec()))"
    results = found(whole, *(of(*mesh) for mesh in meshes))
    assert results == [("none", set()), *[("kept", set())] * 9]
