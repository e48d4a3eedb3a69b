"""The engines: each is a function ``run(simulation) -> Path``.

``scan`` nests ``lax.scan``; ``reversible`` keeps only the rows of the path for the backward pass;
``kernels`` has ``jaxquat.fused`` compile the whole loop into one kernel, for which ``by_interval``
makes given times its inputs, ``explaining`` says what it does, and ``selfcheck`` compares it with
``scan`` on a GPU. ``jq.rollout`` makes the Simulation and chooses the engine.
"""
