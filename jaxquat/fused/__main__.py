"""The command ``python -m jaxquat.fused``: see ``selfcheck.check_gpu``."""

import sys

from jaxquat.fused.selfcheck import check_gpu

if __name__ == "__main__":
    sys.exit(not check_gpu())
