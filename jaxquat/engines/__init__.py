"""The engines: each is a function ``run(simulation) -> Path``.

``scan`` nests ``lax.scan``; ``reversible`` keeps only the rows of the path for the backward pass;
``fused`` compiles the whole loop into one kernel. ``jq.rollout`` makes the Simulation and chooses
the engine.
"""
