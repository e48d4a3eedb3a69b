"""One chunk of members as a compiled program, the same for all chunks, and its memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer
from jax.sharding import Mesh, PartitionSpec

from jaxquat._internal.checks import arrays, concrete
from jaxquat.ensembles.drawing import keys

# Default members per device in a chunk: they keep it busy for a second or less.
CPU_CHUNK, ACCELERATOR_CHUNK = 2**14, 2**18
_NOT_TRACED = (
    "jq.ensembles.run runs chunk by chunk and is neither traced nor differentiated; "
    "under jit, vmap or grad use jax.lax.map over jq.ensembles.members(key, draw, n)"
)


class Experiment(NamedTuple):
    """What to simulate, and where: the arguments of ``run``."""

    draw: Callable[[Array], Any]
    simulate: Callable[[Any], Any]
    n: int
    key: Array
    mesh: Mesh | None

    @property
    def devices(self) -> int:
        """The number of devices over which a chunk is split."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def device(self) -> Any:
        """The first device."""
        return jax.local_devices()[0] if self.mesh is None else self.mesh.devices.flat[0]

    @property
    def key_data(self) -> np.ndarray:
        """The key as numbers."""
        return np.asarray(jax.random.key_data(self.key))


class Plan(NamedTuple):
    """How the members are divided into chunks."""

    n: int  # number of members
    size: int  # number of members in a chunk; the last chunk may have fewer

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return -(-self.n // self.size)

    def members(self, k: int) -> slice:
        """Return the numbers of the members in chunk k."""
        return slice(k * self.size, min((k + 1) * self.size, self.n))


def shapes(experiment: Experiment) -> tuple[Any, Any]:
    """Return the shapes and dtypes of one member and of its outputs, checked."""

    def one(key: Array) -> tuple[Any, Any]:
        member = arrays("draw", experiment.draw(key))
        return member, arrays("simulate", experiment.simulate(member))

    concrete("key", experiment.key, _NOT_TRACED)
    jaxpr, (member, outputs) = jax.make_jaxpr(one, return_shape=True)(experiment.key)
    if any(isinstance(x, Tracer) for x in jaxpr.consts):
        wanted = "a function that closes over concrete arrays"
        raise TypeError(f"simulate: wanted {wanted}, got traced ones; {_NOT_TRACED}")
    if not jax.tree.leaves(member):
        raise ValueError(f"draw: wanted at least one array of a member, got {member}")
    if not jax.tree.leaves(outputs):
        raise ValueError(f"simulate: wanted at least one array of outputs, got {outputs}")
    kinds = jnp.floating, jnp.integer, jnp.bool_
    for leaf in jax.tree.leaves(outputs):
        if not any(jnp.issubdtype(leaf.dtype, kind) for kind in kinds):
            wanted = "outputs of floats, integers or booleans"
            raise TypeError(f"simulate: wanted {wanted}, got {leaf.dtype}")
    return member, outputs


def compiled(experiment: Experiment, size: int) -> Callable[[np.ndarray, np.uint32], Any]:
    """Compile ``(key data, first member) -> outputs`` of ``size`` members, padded by the last."""
    mesh, kind = experiment.mesh, jax.random.key_impl(experiment.key)
    share = size // experiment.devices

    def part(data: Array, first: Array) -> Any:
        if mesh is not None:
            first = first + jnp.uint32(share) * lax.axis_index(mesh.axis_names).astype(jnp.uint32)
        last = jnp.uint32(experiment.n - 1)
        index = jnp.minimum(first + jnp.arange(share, dtype=jnp.uint32), last)
        key = jax.random.wrap_key_data(data, impl=kind)
        members = jax.vmap(experiment.draw)(keys(key, index))
        # The barrier keeps XLA from fusing the simulation into the drawing, so that the bits of the
        # members do not depend on the simulation.
        return jax.vmap(experiment.simulate)(lax.optimization_barrier(members))

    program = part
    if mesh is not None:
        spread, same = PartitionSpec(mesh.axis_names), PartitionSpec()
        program = jax.shard_map(
            part, mesh=mesh, in_specs=(same, same), out_specs=spread, check_vma=False
        )
    return jax.jit(program).lower(experiment.key_data, np.uint32(0)).compile()


def free_bytes(experiment: Experiment) -> float:
    """Return the free memory for each device; infinite if unknown."""
    device = experiment.device
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    memory = Path("/proc/meminfo")
    if device.platform != "cpu" or not memory.exists():
        return math.inf
    lines = memory.read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("MemAvailable")]
    return 1024 * int(line.split()[1]) / experiment.devices


def needed_bytes(program: Any) -> int:
    """Return the memory needed on each device beside the outputs of the previous chunk."""
    memory = program.memory_analysis()
    if memory is None:
        return 0
    inputs_and_outputs = memory.argument_size_in_bytes + 2 * memory.output_size_in_bytes
    return memory.temp_size_in_bytes + inputs_and_outputs


def fitting(experiment: Experiment, size: int, needed: float, free: float) -> int:
    """Return the chunk, a multiple of the devices, that takes 0.9 of the free memory; 0 if none."""
    return int(0.9 * size * free / needed) // experiment.devices * experiment.devices


def default(experiment: Experiment) -> tuple[int, Any]:
    """Return the default size of a chunk, and its program."""
    devices = experiment.devices
    share = CPU_CHUNK if experiment.device.platform == "cpu" else ACCELERATOR_CHUNK
    size = min(share, -(-experiment.n // devices)) * devices
    program = compiled(experiment, size)
    needed, half = needed_bytes(program), free_bytes(experiment) / 2
    if needed <= half:
        return size, program
    size = max(fitting(experiment, size, needed, half), devices)
    return size, within_memory(experiment, size)


def within_memory(experiment: Experiment, size: int) -> Any:
    """Compile the program of a chunk of ``size`` members; MemoryError if it does not fit."""
    program = compiled(experiment, size)
    needed, free = needed_bytes(program), free_bytes(experiment)
    if needed > free:
        smaller = fitting(experiment, size, needed, free)
        advice = f"{smaller} would fit" if smaller else "not even one member per device would fit"
        raise MemoryError(
            f"chunk: wanted one that fits into the {free / 1e6:.3g} MB free on each device, "
            f"got {size}, which takes {needed / 1e6:.3g} MB; {advice}"
        )
    return program
