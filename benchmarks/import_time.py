"""Measure what ``import jaxquat`` adds to ``import jax, optax``.

    python benchmarks/import_time.py

It prints seconds, the best and the median of ten processes.
"""

import statistics
import subprocess
import sys

PROGRAM = """
import time, jax, optax
before = time.perf_counter()
import jaxquat
print(time.perf_counter() - before)
"""


def main() -> None:
    """Print both."""
    command = [sys.executable, "-c", PROGRAM]
    runs = [subprocess.run(command, check=True, capture_output=True) for _ in range(10)]
    times = [float(run.stdout) for run in runs]
    best, median = min(times), statistics.median(times)
    print(f"import jaxquat adds {best:.3f} s (best), {median:.3f} s (median of ten)")


if __name__ == "__main__":
    main()
