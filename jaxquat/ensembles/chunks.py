"""One chunk of members as a compiled program: the same for every chunk, on one device or split over the devices of a mesh."""

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
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxquat._checks import arrays, concrete
from jaxquat.ensembles.sampling import keys

CPU_CHUNK, ACCELERATOR_CHUNK = 2**14, 2**18
"""Members a device in a chunk unless told otherwise: enough to keep it busy, a second of work or less, if memory allows."""


class Problem(NamedTuple):
    """Whose members are simulated."""

    sample: Callable[[Array], Any]
    simulate: Callable[[Any], Any]
    n: int
    key: Array
    mesh: Mesh | None

    @property
    def devices(self) -> int:
        """Over which a chunk is split."""
        return 1 if self.mesh is None else self.mesh.size


def shapes(problem: Problem) -> tuple[Any, Any]:
    """Shapes and dtypes of one member and of its outputs. TypeError for tracers, and for outputs that are not numbers."""

    def one(key: Array) -> tuple[Any, Any]:
        member = arrays("sample", problem.sample(key))
        return member, arrays("simulate", problem.simulate(member))

    hint = "jq.ensemble runs chunk by chunk and is neither traced nor differentiated; under jit, vmap or grad use jax.lax.map over "
    hint += "jq.ensembles.draw(sample, n, key)"
    concrete("key", problem.key, hint)
    jaxpr, (member, outputs) = jax.make_jaxpr(one, return_shape=True)(problem.key)
    if any(isinstance(x, Tracer) for x in jaxpr.consts):
        raise TypeError(
            f"simulate: wanted a function that closes over concrete arrays, got traced ones; {hint}"
        )
    if not jax.tree.leaves(member):
        raise ValueError(f"sample: wanted at least one array of a member, got {member}")
    if not jax.tree.leaves(outputs):
        raise ValueError(f"simulate: wanted at least one array of outputs, got {outputs}")
    for leaf in jax.tree.leaves(outputs):
        if not any(
            jnp.issubdtype(leaf.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)
        ):
            raise TypeError(
                f"simulate: wanted outputs of floats, integers or booleans, got {leaf.dtype}"
            )
    return member, outputs


def compiled(problem: Problem, chunk: int) -> Callable[[np.ndarray, np.uint32], Any]:
    """The outputs of ``chunk`` members from a number on, after the last member that one again: (key data, first) -> outputs."""
    kind, share, mesh = jax.random.key_impl(problem.key), chunk // problem.devices, problem.mesh

    def part(data: Array, first: Array) -> Any:
        if mesh is not None:
            first = first + jnp.uint32(share) * lax.axis_index(mesh.axis_names).astype(jnp.uint32)
        index = jnp.minimum(first + jnp.arange(share, dtype=jnp.uint32), jnp.uint32(problem.n - 1))
        members = jax.vmap(problem.sample)(keys(jax.random.wrap_key_data(data, impl=kind), index))
        # Nothing of the simulation is fused into the drawing, so that the members are the same bits whatever is simulated.
        return jax.vmap(problem.simulate)(lax.optimization_barrier(members))

    whole = part
    if mesh is not None:
        spread, same = PartitionSpec(mesh.axis_names), PartitionSpec()
        whole = jax.shard_map(
            part, mesh=mesh, in_specs=(same, same), out_specs=spread, check_vma=False
        )
    return jax.jit(whole).lower(key_data(problem), np.uint32(0)).compile()


def key_data(problem: Problem) -> np.ndarray:
    """The key as numbers."""
    return np.asarray(jax.random.key_data(problem.key))


def own(problem: Problem, chunk: int) -> slice:
    """Which rows of a chunk this process computes."""
    if problem.mesh is None:
        return slice(0, chunk)
    spread = NamedSharding(problem.mesh, PartitionSpec(problem.mesh.axis_names))
    parts = [
        x.indices(chunk)
        for (x,) in filter(None, spread.addressable_devices_indices_map((chunk,)).values())
    ]
    first, last = min(x[0] for x in parts), max(x[1] for x in parts)
    processes = len({device.process_index for device in problem.mesh.devices.flat})
    if (
        last - first != len(parts) * (chunk // problem.devices)
        or processes * (last - first) != chunk
    ):
        owners = [device.process_index for device in problem.mesh.devices.flat]
        raise ValueError(
            f"mesh: wanted as many devices of each process, side by side, got devices of the processes {owners}"
        )
    return slice(first, last)


def fetch(x: Array) -> np.ndarray:
    """The rows that this process computed."""
    parts = sorted(x.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in parts])


def free_bytes(problem: Problem) -> float:
    """Memory that is free for each device of this process; infinite where nobody can say."""
    device = jax.local_devices()[0] if problem.mesh is None else problem.mesh.local_devices[0]
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    memory = Path("/proc/meminfo")
    if device.platform == "cpu" and memory.exists():
        (line,) = [
            line for line in memory.read_text().splitlines() if line.startswith("MemAvailable")
        ]
        return (
            1024
            * int(line.split()[1])
            / (1 if problem.mesh is None else len(problem.mesh.local_devices))
        )
    return math.inf


def needed_bytes(program: Any) -> int:
    """On each device, with the outputs of the chunk before still there."""
    memory = program.memory_analysis()
    return (
        0
        if memory is None
        else memory.temp_size_in_bytes
        + memory.argument_size_in_bytes
        + 2 * memory.output_size_in_bytes
    )


def fitting(problem: Problem, chunk: int, needed: float, free: float) -> int:
    """The chunk that takes 0.9 of what is free, memory in proportion: a multiple of the devices; 0 if there is none."""
    return int(0.9 * chunk * free / needed) // problem.devices * problem.devices


def default(problem: Problem) -> tuple[int, Any]:
    """A chunk and its program: 2^14 members a CPU device, 2^18 on others, fewer where they need more than half of what is free."""
    device = jax.local_devices()[0] if problem.mesh is None else problem.mesh.devices.flat[0]
    share = CPU_CHUNK if device.platform == "cpu" else ACCELERATOR_CHUNK
    chunk = min(share, -(-problem.n // problem.devices)) * problem.devices
    program = compiled(problem, chunk)
    needed, half = needed_bytes(program), free_bytes(problem) / 2
    if needed <= half:
        return chunk, program
    chunk = max(fitting(problem, chunk, needed, half), problem.devices)
    return chunk, given(problem, chunk)


def given(problem: Problem, chunk: int) -> Any:
    """The program of this chunk; MemoryError if it does not fit."""
    program = compiled(problem, chunk)
    needed, free = needed_bytes(program), free_bytes(problem)
    if needed > free:
        smaller = fitting(problem, chunk, needed, free)
        advice = f"{smaller} would fit" if smaller else "not even one member a device would fit"
        raise MemoryError(
            f"chunk: wanted one that fits into the {free / 1e6:.3g} MB free on each device, got {chunk}, which takes "
            f"{needed / 1e6:.3g} MB; {advice}"
        )
    return program
