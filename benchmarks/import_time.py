"""What ``import jaxquat`` adds to ``import jax, optax``: seconds, the best and the median of ten processes."""

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
    times = [
        float(
            subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True).stdout
        )
        for _ in range(10)
    ]
    print(
        f"import jaxquat adds {min(times):.3f} s (best), {statistics.median(times):.3f} s (median of ten)"
    )


if __name__ == "__main__":
    main()
