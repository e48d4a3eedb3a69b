"""A body spins about a principal axis for 10 s; conda runs this beside the built package."""

import jax.numpy as jnp

import jaxquat as jq

body = jq.Body(jnp.diag(jnp.array([2.0, 3.0, 4.0])))
start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 0.3]))
path = jq.rollout(jq.rkmk4, body, jq.torques.zero, start, jq.grid(0.0, 0.01, 1000))
assert abs(jq.quaternion.log(path.final.q)[2] - 3.0) < 1e-5, path.final
print(path)
