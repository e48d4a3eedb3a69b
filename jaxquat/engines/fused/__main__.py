"""The command ``python -m jaxquat.engines.fused``: see ``selfcheck.check_gpu``."""

import sys

from jaxquat.engines.fused.selfcheck import check_gpu

if __name__ == "__main__":
    sys.exit(not check_gpu())
