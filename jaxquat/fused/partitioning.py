"""Members that are sharded over devices: each device runs the kernel for its own members.

``by_device`` declares in a sharding rule that the kernel keeps the axis of members; without it XLA
would gather all members on every device. Shardy reads the rule, and calls ``partition`` for the
program of one device. The user's mesh is not known here, but any even split over n devices is a
split over a mesh whose axes are the prime factors of n, which ``with_mesh`` provides.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec


def devices(context: Any) -> int:
    """Return over how many devices XLA partitions a program; 1 within ``jax.shard_map``."""
    explicit = jax.sharding.get_abstract_mesh().explicit_axes
    if explicit and jax.__version_info__ < (0, 10, 2):  # jax 0.8.1 cannot lower one device's part
        return 1
    if not getattr(jax.config, "jax_use_shardy_partitioner", True):
        return 1
    return getattr(context.module_context.axis_context, "num_devices", 1)


def with_mesh(context: Any) -> Any:
    """Return a lowering context with several devices, in which ``by_device`` can be lowered."""
    module, count = context.module_context, devices(context)
    factors = _factors(count)
    axes = dataclasses.replace(
        module.axis_context,
        device_assignment=tuple(jax.devices()[:1] * count),  # only their number is read
        abstract_mesh=AbstractMesh(factors, tuple(f"factor{k}" for k in range(len(factors)))),
    )
    return context.replace(module_context=module.replace(axis_context=axes))


def _factors(n: int) -> tuple[int, ...]:
    for k in range(2, math.isqrt(n) + 1):
        if n % k == 0:
            return (k, *_factors(n // k))
    return (n,)


def by_device(
    function: Callable[..., list[Array]],
    members: int,
    batched: Sequence[bool],
    operands: Sequence[Array],
) -> list[Array]:
    """Return ``function(*operands, members=members)``; each device computes its own share."""

    def of_all_bodies(*operands: Array) -> list[Array]:
        return function(*operands, members=members)

    def partition(mesh: Any, operands: Any, results: Any) -> Any:
        axes, *_ = *results[0].sharding.spec, None
        names = axes if isinstance(axes, tuple) else filter(None, [axes])
        share, remainder = divmod(members, math.prod(mesh.shape[name] for name in names))
        if remainder:
            axes, share = None, members
        spread, same = (NamedSharding(mesh, PartitionSpec(*x)) for x in ([axes], []))
        program = functools.partial(function, members=share)
        return mesh, program, [spread] * len(results), tuple(spread if x else same for x in batched)

    count = itertools.count()

    def named(x: Any, has_members: bool) -> str:
        names = [f"axis{next(count)}" for _ in x.shape]
        return " ".join(["members", *names[1:]] if has_members else names)

    inner = ", ".join(map(named, operands, batched))
    outer = ", ".join(named(x, True) for x in jax.eval_shape(of_all_bodies, *operands))
    split = custom_partitioning(of_all_bodies)
    split.def_partition(partition, sharding_rule=f"{inner} -> {outer}")
    return split(*operands)
