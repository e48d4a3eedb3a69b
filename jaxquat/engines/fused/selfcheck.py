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

import functools
import hashlib
import importlib.metadata
import threading
import warnings
from collections.abc import Callable
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
from jaxquat.engines.fused.targets import objects
from jaxquat.schemes import zhao
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
    files = sorted(File(__file__).parent.rglob("*"))
    texts = [file.read_bytes() for file in files if file.suffix in (".py", ".ll")]
    return hashlib.sha256(b"\n".join([driver, *(part.encode() for part in parts), *texts])).digest()


def _answer(key: bytes, engine: Engine) -> str:
    """What stands against the kernels, or "": from the file, or from a check."""
    answer = objects.read(key, "check")
    if answer is not None:
        return answer.decode()
    try:
        with ThreadPoolExecutor(1) as executor:
            found = executor.submit(difference, engine).result() or ""
    except Exception as error:
        lines = str(error).splitlines() or [""]
        return f"its check ended with {type(error).__name__}: {lines[0][:200]}"
    objects.write(key, found.encode(), "check")
    return found


def difference(engine: Engine) -> str | None:
    """Where kernels and scan differ by more than rounding; None if they agree."""
    _within.check = True
    try:
        for dtype in TOLERANCES:
            with jax.enable_x64(dtype == "float64"):
                found = _difference(engine, dtype)
            if found:
                return found
    finally:
        del _within.check
    return None


def _difference(engine: Engine, dtype: str) -> str | None:
    """The same in one precision."""
    arguments = problem(dtype)
    forward = jax.jit(functools.partial(values, engine))(*arguments)
    gradients, keeping = slope(engine)(*arguments)
    true_gradients, rows = slope(scan.run)(*arguments)
    errors = {
        "values": max(_error(forward, rows), _error(keeping, rows), key=_rank),
        "gradients": max(
            map(_error, *map(jax.tree.leaves, (gradients, true_gradients))), key=_rank
        ),
    }
    for (name, error), bound in zip(errors.items(), TOLERANCES[dtype], strict=True):
        if not error <= bound:
            return f"its {dtype} {name} differ from the scan's by {error:.1e}"
    return None


def _error(got: Array, wanted: Array) -> float:
    """The largest difference, in units of the largest number."""
    a, b = np.asarray(got), np.asarray(wanted)
    return float(np.abs(a - b).max() / np.abs(b).max())


def _rank(error: float) -> float:
    """What ``max`` goes by: not a number is the worst."""
    return np.inf if np.isnan(error) else error


def problem(dtype: str) -> tuple[Array, Array, tuple[Array, Array]]:
    """Attitudes and rates of some bodies, and the weights of a network."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(BODIES, 4))
    q = q / np.linalg.norm(q, axis=1, keepdims=True)
    omega, *weights = (0.3 * rng.normal(size=shape) for shape in ((BODIES, 3), (6, 7), (3, 6)))
    first, last = (jnp.asarray(x, dtype) for x in weights)
    return jnp.asarray(q, dtype), jnp.asarray(omega, dtype), (first, last)


def network(t: Array, state: State, weights: tuple[Array, Array]) -> Array:
    """A torque with a loop over its weights, a sine and tanh."""
    attitude_and_rate = jnp.concatenate([state.q, state.omega])
    return weights[1] @ jnp.tanh(weights[0] @ attitude_and_rate + jnp.sin(3 * t))


def values(engine: Engine, q: Array, omega: Array, weights: tuple[Array, Array]) -> Array:
    """The rows of all bodies and after them their last states, (bodies, rows, 7)."""
    dtype = q.dtype
    body = Body.from_principal(jnp.asarray([0.6, 0.8, 1.0], dtype))
    times = grid(jnp.asarray(0.1, dtype), jnp.asarray(0.02, dtype), STEPS)

    def one(q: Array, omega: Array) -> Array:
        simulation = checked_simulation(
            zhao, body, network, State(q, omega), times, weights, save_every=10
        )
        path = engine(simulation)
        rows = jnp.concatenate([path.state.q, path.state.omega], axis=1)
        return jnp.concatenate([rows, jnp.concatenate(path.final[:2])[None]])

    return jax.vmap(one)(q, omega)


def slope(engine: Engine) -> Callable[..., Any]:
    """The gradient of ``loss`` by attitudes, rates and weights, and the rows."""
    return jax.jit(jax.grad(functools.partial(loss, engine), (0, 1, 2), has_aux=True))


def loss(
    engine: Engine, q: Array, omega: Array, weights: tuple[Array, Array]
) -> tuple[Array, Array]:
    """A number that depends on every row, and the rows."""
    rows = values(engine, q, omega, weights)
    return jnp.mean(rows**3), rows
