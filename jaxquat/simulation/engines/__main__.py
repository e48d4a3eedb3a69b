"""The command ``python -m jaxquat.simulation.engines``: see ``selfcheck.check_gpu``."""

import sys

from jaxquat.simulation.engines.selfcheck import check_gpu

if __name__ == "__main__":
    sys.exit(not check_gpu())
