"""Measure schemes and programs on problems with known answers.

``tests/`` and ``benchmarks/`` both import this package, and neither imports the other. It is
importable from the top of the repository, with an editable install, or with ``PYTHONPATH=.``.
"""
