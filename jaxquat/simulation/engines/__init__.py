"""The engines: each is a function ``run(simulation) -> Path``.

``scan`` nests ``lax.scan``; ``reversible`` keeps only the rows of the path; ``kernels`` compiles
the loop, for which ``by_interval`` makes given times inputs, and ``selfcheck`` compares both.
"""
