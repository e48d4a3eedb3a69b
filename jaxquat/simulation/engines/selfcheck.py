"""A check of the fused kernels on kinds of GPU that are not in ``vouching.VOUCHED``.

Another Python process simulates a few bodies by the kernels and by ``lax.scan`` and compares values
and gradients, because a wrong kernel may leave the GPU unusable, never end, or end the process. It
allocates the GPU's memory on demand, because this one may hold most of it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat.dynamics.body import Body
from jaxquat.dynamics.state import State
from jaxquat.fused import vouching
from jaxquat.fused.targets import nvptx
from jaxquat.schemes import zhao
from jaxquat.simulation.engines import scan
from jaxquat.simulation.grid import grid
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import Simulation, checked_simulation

BODIES, STEPS = 150, 40  # two blocks of threads; the second is not full
TOLERANCES = {"float32": (1e-5, 1e-4), "float64": (1e-12, 1e-9)}  # of values and of gradients
LIMIT = 600  # seconds for a check; it needs twenty, mostly for XLA to compile the scan
# -P: a file jax.py in the working directory is not imported instead of the package
MAIN = "from jaxquat.simulation.engines import kernels, selfcheck; selfcheck.main(kernels.run)"
COMMAND = ("-P", "-c", MAIN)

Engine = Callable[[Simulation], Path]


class Answer(NamedTuple):
    """Why the kernels are not used, or "", and whether the same is expected next time."""

    reason: str
    lasting: bool = True


def check_gpu() -> bool:
    """Compare the fused kernels with the scan on this GPU, once, and keep the answer. -> bool.

    It prints one line and returns whether ``engine="auto"`` uses the kernels from now on. H100 and
    H200 need no check. It takes about twenty seconds, in its own process. Check again after an
    update of the driver, jax, jaxlib, llvmlite or jaxquat. In a shell:
    ``python -m jaxquat.simulation.engines``.

    Raises:
        RuntimeError: JAX has no GPU.
        ImportError: the extra ``fused`` is not installed, or the GPU is too old for it.

    Examples:
        >>> try:
        ...     jq.check_gpu()
        ... except RuntimeError as error:
        ...     print(error)
        check_gpu: wanted a GPU, got cpu
    """
    platform = jax.default_backend()
    if platform not in ("gpu", "cuda"):
        raise RuntimeError(f"check_gpu: wanted a GPU, got {platform}")
    lacking = nvptx.missing()
    if lacking:
        raise ImportError(lacking)
    device = jax.local_devices()[0]
    kind, answer = device.device_kind, checked(device.device_kind)
    vouching.keep(device, answer.reason, answer.lasting)
    agree = f"the kernels agree with the scan on {kind}"
    print(vouching.message(kind, answer.reason) if answer.reason else agree)  # noqa: T201
    return not answer.reason


def checked(kind: str) -> Answer:
    """Return the answer of a check in another process, which is stopped after ``LIMIT`` seconds."""
    environment = os.environ | {
        vouching.WITHIN: "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # this process may have most of the memory
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        "PYTHONWARNINGS": "ignore",
    }
    platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
    if platforms:
        environment["JAX_PLATFORMS"] = platforms
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, *COMMAND, kind], env=environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        late = Answer(f"its check gave no answer within {LIMIT} s")
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            return late
        finally:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # the driver may hold it
                process.wait(5)
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    if status == -signal.SIGALRM:
        return late
    if status < 0:  # SIGKILL and SIGTERM come from outside
        lasting = -status not in (signal.SIGKILL, signal.SIGTERM)
        return Answer(f"its check was ended by signal {-status}", lasting)
    try:
        return Answer(*json.loads(lines[-1]))
    except (IndexError, TypeError, ValueError):
        return Answer(f"its check ended with status {status}", lasting=False)


def main(engine: Engine) -> None:
    """Print the answer; the alarm ends this process even if the one that started it is gone."""
    signal.alarm(LIMIT)
    try:
        expected, kind = sys.argv[1], jax.local_devices()[0].device_kind
        if kind != expected:
            raise RuntimeError(f"it ran on {kind}")
        answer = Answer(difference(engine) or "")
    except Exception as error:
        answer = Answer(f"its check ended with {vouching.line(error)}", lasting=False)
    print(json.dumps(answer), flush=True)  # noqa: T201


def difference(engine: Engine) -> str | None:
    """Return a message if ``engine`` and the scan differ by more than rounding, otherwise None."""
    return next(filter(None, map(functools.partial(_difference, engine), TOLERANCES)), None)


def _difference(engine: Engine, dtype: str) -> str | None:
    with jax.enable_x64(dtype == "float64"):
        arguments = problem(dtype)
        forward = jax.jit(functools.partial(values, engine))(*arguments)
        gradients, keeping = slope(engine)(*arguments)
        with jax.default_matmul_precision("highest"):  # a GPU's default rounds to 10 bits
            true_gradients, rows = slope(scan.run)(*arguments)
    pairs = map(jax.tree.leaves, (gradients, true_gradients))
    errors = {
        "values": np.max([_error(forward, rows), _error(keeping, rows)]),  # NaN if one is
        "gradients": np.max([*map(_error, *pairs)]),
    }
    for (name, error), bound in zip(errors.items(), TOLERANCES[dtype], strict=True):
        if not error <= bound:
            return f"its {dtype} {name} differ from the scan's by {error:.1e}"
    return None


def _error(got: Array, wanted: Array) -> float:
    a, b = np.asarray(got), np.asarray(wanted)
    return float(np.abs(a - b).max() / np.abs(b).max())


def problem(dtype: str) -> tuple[Array, Array, tuple[Array, Array]]:
    """Return attitudes and rates of some bodies, and the weights of a network."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=(BODIES, 4))
    q = q / np.linalg.norm(q, axis=1, keepdims=True)
    omega, *weights = (0.3 * rng.normal(size=shape) for shape in ((BODIES, 3), (6, 7), (3, 6)))
    first, last = (jnp.asarray(x, dtype) for x in weights)
    return jnp.asarray(q, dtype), jnp.asarray(omega, dtype), (first, last)


def network(t: Array, state: State, weights: tuple[Array, Array]) -> Array:
    """Compute a torque with a loop over its weights, a sine and tanh."""
    attitude_and_rate = jnp.concatenate([state.q, state.omega])
    return weights[1] @ jnp.tanh(weights[0] @ attitude_and_rate + jnp.sin(3 * t))


def values(engine: Engine, q: Array, omega: Array, weights: tuple[Array, Array]) -> Array:
    """Return the rows of all bodies followed by their last states, (bodies, rows, 7)."""
    dtype = q.dtype
    body = Body.from_principal(jnp.asarray([0.6, 0.8, 1.0], dtype))
    t0, dt = jnp.asarray(0.1, dtype), jnp.asarray(0.02, dtype)
    times = grid(t0, dt, STEPS, save_every=10)

    def one(q: Array, omega: Array) -> Array:
        simulation = checked_simulation(zhao, body, network, State(q, omega), times, weights)
        path = engine(simulation)
        rows, last = jnp.concatenate(path.state[:2], axis=1), jnp.concatenate(path.final[:2])
        return jnp.concatenate([rows, last[None]])

    return jax.vmap(one)(q, omega)


def slope(engine: Engine) -> Callable[..., Any]:
    """Return a function for the gradient of a number that depends on every row, and the rows."""

    def loss(q: Array, omega: Array, weights: tuple[Array, Array]) -> tuple[Array, Array]:
        rows = values(engine, q, omega, weights)
        return jnp.mean(rows**3), rows

    return jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
