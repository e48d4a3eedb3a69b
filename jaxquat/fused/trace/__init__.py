"""From traced functions to scalar programs: hoisting, and a rule for each primitive of JAX."""
