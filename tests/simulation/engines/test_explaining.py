"""What ``jq.explain`` prints of a stage, and a loop of one's own beside ``jq.rollout``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq

pytestmark = pytest.mark.needs("llvmlite")

X, Y = jnp.array([0.3, -0.7, 1.1]), jnp.array([2.0, 0.5, -1.0])


def test_a_loop_of_ones_own_over_a_scheme_is_its_rollout():
    body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5]))
    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.1, 2.0, 0.3]))
    torque = lambda t, state, params: jnp.stack([jnp.sin(t), -state.omega[1], state.q[3]])

    def advance(state, t):
        after = jq.rkmk4(body, torque, t, state, 0.1, None)
        return after, after.omega

    last, rates = jax.jit(lambda s: jq.fused.scan(advance, s, 0.1 * jnp.arange(9.0)))(start)
    path = jq.rollout(
        jq.rkmk4,
        body,
        torque,
        start,
        jq.grid(0.0, 0.1, 9),
        options=jq.RolloutOptions(engine="scan"),
    )
    np.testing.assert_allclose(last.q, path.final.q, atol=1e-15)
    np.testing.assert_allclose(rates, path.state.omega[1:], atol=1e-15)


@pytest.mark.parametrize(
    ("stage", "named"),
    [
        ("hoisted", "rarely"),
        ("branched", "cond"),
        ("jvp", "f64[1,3]"),
        ("vjp", "add_any"),
        ("scalar", "float64 = select"),
    ],
)
def test_each_stage_is_printed(stage, named, capsys):
    body, start = jq.Body.from_principal(X * X + 1.0), jq.State(jnp.eye(4)[0], Y)
    torque = lambda t, state, gain: -gain * state.omega
    arguments = jq.lie_euler, body, torque, start, jq.grid(0.0, 0.01, 4), jnp.array(0.5)
    jq.explain(*arguments, stage=stage)
    text = capsys.readouterr().out
    assert text.startswith("step:\n")
    assert "\n\nsave:\n" in text
    assert named in text
    with pytest.raises(ValueError, match=r"stage: wanted one of 'hoisted', .*, got 'assembly'"):
        jq.explain(*arguments, stage="assembly")
