"""The kinds of GPU on which the kernels are used: those known to be right, and those checked here.

The code that checks a GPU calls ``keep`` with its answer, which goes to a file of the cache folder,
under a hash of all that it depends on. An error is not kept: it may be temporary.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import threading
import warnings
from pathlib import Path as File
from typing import Any

import jax

from jaxquat.fused.targets import objects

# Kinds of device on which benchmarks/gpu.py and tests/simulation/engines/test_nvptx.py found no
# fault.
VOUCHED = frozenset(["NVIDIA H100 80GB HBM3", "NVIDIA H200"])
WITHIN = "JAXQUAT_WITHIN_CHECK"  # an environment variable, set in the process of a check
UNCHECKED = "it has not been checked here (run jq.check_gpu() once)"
_lock = threading.Lock()
_answers: dict[str, str] = {}  # why the kernels are not used, or "", by kind of device


def objection() -> str | None:
    """Return an error message if the kernels are not used on this process's GPU, otherwise None."""
    device = jax.local_devices()[0]
    kind = device.device_kind
    if kind in VOUCHED or WITHIN in os.environ:
        return None
    with _lock:
        if kind not in _answers:
            try:
                kept = objects.read(_key(device), "check")
                _answers[kind] = UNCHECKED if kept is None else kept.decode()
            except Exception as error:  # for example, a package has no version
                _answers[kind] = f"the answer of its check is lost: {line(error)}"
            if _answers[kind]:
                warnings.warn(message(kind, _answers[kind]), RuntimeWarning, stacklevel=2)
    return message(kind, _answers[kind]) if _answers[kind] else None


def keep(device: Any, reason: str, lasting: bool) -> None:
    """Keep why the kernels are not used, or "" if they are; on disk, too, if this is lasting."""
    if lasting:
        objects.write(_key(device), reason.encode(), "check")
    with _lock:
        _answers[device.device_kind] = reason


def message(kind: str, reason: str) -> str:
    """Return the text of the warning and of the error."""
    return f'engine "fused" is off on {kind}: {reason}; use engine="scan"'


def line(error: Exception) -> str:
    """Return the first line of an error, with its type."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


def _key(device: Any) -> bytes:
    version = File("/proc/driver/nvidia/version")
    driver = version.read_bytes() if version.exists() else b""
    packages = [importlib.metadata.version(name) for name in ("jax", "jaxlib", "llvmlite")]
    parts = [device.device_kind, device.client.platform_version, *packages]
    files = sorted(File(__file__).parent.rglob("*"))
    texts = [file.read_bytes() for file in files if file.suffix in (".py", ".ll")]
    return hashlib.sha256(b"\n".join([driver, *(part.encode() for part in parts), *texts])).digest()
