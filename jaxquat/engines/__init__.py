"""The ways to run a simulation: by ``lax.scan``, by undoing steps, by one fused kernel."""
