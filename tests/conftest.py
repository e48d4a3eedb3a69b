"""Tests run hostile: float64 enabled (float32 is asked for by name), strict dtype promotion, no implicit rank promotion."""

import jax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
