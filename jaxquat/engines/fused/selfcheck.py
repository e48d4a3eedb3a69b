"""A check of the fused kernels on a kind of GPU on which nobody has vouched for them.

Before the first rollout on such a GPU, ``objection`` simulates a few bodies for a few steps, by the
kernels and by ``lax.scan``, in both precisions, and compares values and gradients. The torque is a
small network, so loops, functions and large arrays of the kernels are among what runs.

- Where they agree, the kernels are used.
- Where they differ, or where the kernels end with an error, there is one warning; ``engine="auto"``
  takes the scan and ``engine="fused"`` is an error. Both name the reason.

A comparison is kept in a file of the cache folder, under a hash of the kind of device, of the
driver, of jaxlib, of llvmlite, and of the text of this engine. An error is not kept: it may be one
of the moment, such as a full memory.

The check runs in a thread of its own, where no transformation of the caller is under way.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path as File
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat.dynamics.body import Body
from jaxquat.dynamics.state import State
from jaxquat.engines import scan
from jaxquat.engines.fused import cpu
from jaxquat.schemes import rkmk4
from jaxquat.simulation.grid import grid
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import Simulation, checked_simulation

VOUCHED: frozenset[str] = frozenset()  # kinds of device on which benchmarks/gpu.py found no fault
BODIES, STEPS = 150, 40  # two blocks of threads, of which the second is not full
TOLERANCES = {"float32": (1e-5, 1e-4), "float64": (1e-12, 1e-9)}  # of values and of gradients

Engine = Callable[[Simulation], Path]

_lock = threading.Lock()
_within = threading.local()  # its attribute ``check`` is there in the thread of a check
_answers: dict[bytes, str] = {}  # what stands against the kernels, or "", by key


def objection(engine: Engine) -> str | None:
    """Why the kernels of this process's GPU are not used, as an error message; None if they are.

    ``engine`` runs a simulation by the kernels.
    """
    device = jax.devices()[0]
    if device.device_kind in VOUCHED or hasattr(_within, "check"):
        return None
    key = _key(device)
    with _lock:
        if key not in _answers:
            _answers[key] = _answer(key, engine)
            if _answers[key]:
                warnings.warn(_message(device, _answers[key]), RuntimeWarning, stacklevel=2)
    return _message(device, _answers[key]) if _answers[key] else None


def _message(device: Any, reason: str) -> str:
    return f'engine "fused" is off on {device.device_kind}: {reason}; use engine="scan"'


def _key(device: Any) -> bytes:
    """The hash of all that an answer may depend on."""
    version = File("/proc/driver/nvidia/version")
    driver = version.read_bytes() if version.exists() else b""
    packages = [importlib.metadata.version(name) for name in ("jax", "jaxlib", "llvmlite")]
    parts = [device.device_kind, device.client.platform_version, *packages]
    texts = [file.read_bytes() for file in sorted(File(__file__).parent.rglob("*.py"))]
    return hashlib.sha256(b"\n".join([driver, *(part.encode() for part in parts), *texts])).digest()


def _answer(key: bytes, engine: Engine) -> str:
    """What stands against the kernels, or "": from the file, or from a check."""
    answer = cpu.kept(key, "check")
    if answer is not None:
        return answer.decode()
    try:
        with ThreadPoolExecutor(1) as executor:
            found = executor.submit(difference, engine).result() or ""
    except Exception as error:
        lines = str(error).splitlines() or [""]
        return f"its check ended with {type(error).__name__}: {lines[0][:200]}"
    cpu.keep(key, found.encode(), "check")
    return found


def difference(engine: Engine) -> str | None:
    """Where kernels and scan differ by more than rounding; None if they agree."""
    _within.check = True
    try:
        for dtype, tolerances in TOLERANCES.items():
            with jax.enable_x64(dtype == "float64"):
                pairs = zip(results(engine, dtype), results(scan.run, dtype), strict=True)
                for (name, got), (_, wanted) in pairs:
                    error = _relative_error(got, wanted)
                    bound = tolerances[name != "values"]
                    if not error <= bound:  # NaN is no agreement
                        return f"its {dtype} {name} differ from the scan's by {error:.1e}"
    finally:
        del _within.check
    return None


def results(engine: Engine, dtype: str) -> list[tuple[str, Sequence[np.ndarray]]]:
    """Values, and gradients by start and weights, of some bodies with a network for a torque."""
    rng = np.random.default_rng(0)
    number = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
    q, omega = number(BODIES, 4), number(BODIES, 3)
    q = q / jnp.sqrt(jnp.sum(q * q, axis=1, keepdims=True))
    weights, factors = (0.3 * number(8, 7), 0.3 * number(3, 8)), number(BODIES, 7)
    body = Body.from_principal(jnp.asarray([0.6, 0.8, 1.0], dtype))
    times = grid(jnp.asarray(0.1, dtype), jnp.asarray(0.02, dtype), STEPS)

    def torque(t: Array, state: State, weights: Any) -> Array:
        hidden = jnp.tanh(weights[0] @ jnp.concatenate([state.q, state.omega]) + jnp.sin(3 * t))
        return weights[1] @ hidden

    def values(q: Array, omega: Array, weights: Any) -> Array:
        simulation = checked_simulation(
            rkmk4, body, torque, State(q, omega), times, weights, save_every=10
        )
        state = engine(simulation).state
        return jnp.concatenate([state.q, state.omega], axis=1)

    def loss(arguments: Any) -> tuple[Array, Array]:
        q, omega, weights = arguments
        rows = jax.vmap(values, (0, 0, None))(q, omega, weights)
        return jnp.mean(factors[:, None] * rows**2), rows

    arguments = q, omega, weights
    forward = jax.jit(lambda arguments: loss(arguments)[1])(arguments)
    gradients, rows = jax.jit(jax.grad(loss, has_aux=True))(arguments)
    leaves = [np.asarray(x) for x in jax.tree.leaves(gradients)]
    return [("values", [np.asarray(forward), np.asarray(rows)]), ("gradients", leaves)]


def _relative_error(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference, in units of the largest number of its array."""
    errors = [np.abs(a - b).max() / np.abs(b).max() for a, b in zip(got, wanted, strict=True)]
    return float(np.max(errors))
