"""Child processes: how they are started, asked, ended when they hang, replaced when they die."""

import collections
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
QUICK = (  # with these flags XLA compiles in 2/3 of the time
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
)
INHERITED = [  # without the older emitters, which round some numbers wrongly to fewer bits
    flag for flag in os.environ.get("XLA_FLAGS", "").split() if "fusion_emitters" not in flag
]
REQUESTS = 60  # to one child; then a new one is started, because kernels stay in memory


class Child:
    """A process of one mode ("x64" or "x32"), with at most one planted error."""

    def __init__(self, mode: str, cache: str, planted: str | None = None) -> None:
        self.cache = cache
        self.arguments = [sys.executable, "-m", "fuzz.child", mode, *([planted] if planted else [])]
        self.process: subprocess.Popen[bytes] | None = None
        self.asked = 0
        self.errors: collections.deque[bytes] = collections.deque(maxlen=20)

    def start(self) -> subprocess.Popen[bytes]:
        """Start a new process in place of the current one."""
        self.end()
        path = [str(HERE.parent), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(p for p in path if p),
            "PYTHONWARNINGS": "ignore",
            "XLA_FLAGS": " ".join([*INHERITED, *QUICK]),
            "JAXQUAT_CACHE": "",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": self.cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(
            self.arguments, stdin=pipe, stdout=pipe, stderr=nothing, env=environment
        )
        self.asked = 0
        return self.process

    def ask(self, request: dict[str, Any], timeout: float = 240.0) -> dict[str, Any]:
        """The answer, or {"status": "crash", "signal": ...} or {"status": "hang"}."""
        process = self.process
        if process is None or process.poll() is not None or self.asked >= REQUESTS:
            process = self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        self.asked += 1
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        data, end = b"", time.monotonic() + timeout
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self.end()
                return {"status": "hang", "seconds": timeout}
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                code = process.wait()
                self.process = None
                name = signal.Signals(-code).name if code < 0 else f"exit {code}"
                return {"status": "crash", "signal": name}
            data += piece
        return json.loads(data)

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()  # waits, and closes the pipes
            self.process = None


class Children:
    """A child of each mode."""

    def __init__(self, planted: str | None = None) -> None:
        self.planted, self.children = planted, dict[str, Child]()
        self.cache = tempfile.TemporaryDirectory()  # single operations occur in every program

    def ask(self, request: dict[str, Any], timeout: float = 240.0) -> dict[str, Any]:
        """The answer of the child for the request's mode; the other child is ended."""
        mode = "x64" if request["mode"][0] else "x32"
        for other, child in self.children.items():
            if other != mode:
                child.end()
        if mode not in self.children:
            self.children[mode] = Child(mode, self.cache.name, self.planted)
        return self.children[mode].ask(request, timeout)

    def end(self) -> None:
        """End all processes."""
        for child in self.children.values():
            child.end()
        self.cache.cleanup()
