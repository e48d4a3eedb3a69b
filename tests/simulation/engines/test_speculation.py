"""A program that repeats itself if a rare branch was needed equals the program with branches."""

import emulator
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from jaxquat._internal import series
from jaxquat._internal.branches import branched
from jaxquat.fused.ir.expansion import lowered
from jaxquat.fused.ir.speculation import speculated
from jaxquat.fused.trace.tracing import program_of


def two_angles(s):
    """The second angle depends on the first, which may be a large one."""
    first = series.sinc(s)
    return first, series.cos(50.0 * first * first)


def program():
    return lowered(program_of(branched(jax.make_jaxpr(two_angles)(jnp.float32(1.0)))))


def test_all_rare_branches_become_one():
    branches = [op.value.kind for op in program().ops if op.name == "call"]
    after = [op.value.kind for op in speculated(program()).ops if op.name == "call"]
    assert branches == ["seldom", "seldom"]
    assert after == ["seldom"]


def test_a_program_without_rare_branches_stays():
    polynomial = lowered(program_of(jax.make_jaxpr(lambda x: x * x + 1.0)(jnp.float32(1.0))))
    assert speculated(polynomial) is polynomial


def test_a_later_branch_alone_is_needed():
    """The first angle is small, so the second one is sqrt(50) rad."""

    def run(s):
        advance = lambda total, x: (total + x, two_angles(x)[1])
        one = lambda x: jq.fused.scan(advance, jnp.float32(0.0), x, engine="fused")[1]
        return jax.vmap(one)(s)

    s = jnp.linspace(0.0, 0.1, 20, dtype=jnp.float32).reshape(4, 5)
    with emulator.gpu():
        got = jax.jit(run)(s)
        jax.block_until_ready(got)
    np.testing.assert_allclose(
        got, jnp.cos(jnp.sqrt(50.0) * jnp.sinc(jnp.sqrt(s) / np.pi)), atol=2e-5
    )


@pytest.mark.parametrize(
    "dtype", some([jnp.float32, jnp.float64], [jnp.float32]), ids=["float32", "float64"]
)
def test_bodies_with_small_and_with_large_angles_of_a_step(dtype):
    """Rates up to 1000 rad/s in steps of 0.05 s turn half of the bodies by more than 4 rad."""
    rng = np.random.default_rng(2)
    omega = rng.normal(size=(40, 3)) * np.geomspace(0.1, 1000.0, 40)[:, None]
    starts = jq.State(
        jq.quaternion.random(jax.random.key(0), (40,), dtype=dtype), jnp.asarray(omega, dtype)
    )
    body, grid = jq.Body.from_principal(jnp.ones(3, dtype)), jq.grid(0.0, 0.05, 6, save_every=2)

    def run(starts):
        options = jq.RolloutOptions(engine="fused")
        torque = lambda t, state, params: -0.1 * state.q[1:]
        one = lambda start: jq.rollout(
            jq.schemes.lie_euler, body, torque, start, grid, options=options
        )
        return jax.vmap(one)(starts).state

    wanted = jax.jit(run)(starts)
    with emulator.gpu():
        got = jax.jit(lambda x: run(x))(starts)
        jax.block_until_ready(got)
    assert (np.linalg.norm(omega, axis=1) * 0.05 > 4.0).sum() > 10
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)
