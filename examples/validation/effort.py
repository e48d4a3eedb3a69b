"""How hard XLA tries when it compiles the tests.

Most of the time of the tests goes into compilation. With LESS it takes a third of it; the programs
have other last digits and slower loops. Tests of long loops ask for FULL. A run without ``-m`` and
the matrix of noxfile.py compile as for a user.
"""

from importlib import metadata

VERSION = tuple(int(number) for number in metadata.version("jaxlib").split(".")[:2])
KNOWN = VERSION < (0, 11)  # XLA ends the process at a flag that it does not know

LESS = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}
FLAGS = " ".join(f"--{name}={str(value).lower()}" for name, value in LESS.items()) if KNOWN else ""

FULL = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True} if KNOWN else None
"""Options of ``jax.jit`` for long loops, and for what a test compares to the last digit."""
