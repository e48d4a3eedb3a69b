"""The engines: each is a function ``run(simulation) -> Path``.

``scan`` nests ``lax.scan``; ``reversible`` keeps only the rows of the path for the backward pass;
``kernels`` has ``jaxquat.fused`` compile the whole loop, for which ``by_interval`` makes given
times inputs. ``explaining`` prints the choice, and ``selfcheck`` compares ``kernels`` with
``scan``.
"""
