"""``run``: the devices simulate a chunk while the host reduces and stores the previous one."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from jaxquat._internal import checks, reprs
from jaxquat._internal import progress as bars
from jaxquat._internal.checks import place
from jaxquat._internal.renamed import order_of
from jaxquat.ensembles import chunks, stores
from jaxquat.ensembles.chunks import Experiment, Plan
from jaxquat.ensembles.drawing import LARGEST, keys
from jaxquat.ensembles.reducers import Reducer, brief


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble(reprs.Tabular):
    """The result of ``jq.ensembles.run``.

    Attributes:
        n: number of members simulated, including those that failed.
        result: results of the reducers, in the structure of ``reduce``.
        failed_index: (f,) int64, ascending: the numbers of the members with an output not finite.
        failed_key: (f,) their keys: ``simulate(draw(failed_key[0]))`` runs the first again.
        statistic: result of ``until``; None without it.
        met: whether ``until`` was met; None without it.

    Examples:
        >>> options = {"reduce": jq.ensembles.mean(), "progress": False}
        >>> draw, simulate = jax.random.normal, jnp.sqrt  # of a negative number it is NaN
        >>> ensemble = jq.ensembles.run(jax.random.key(0), draw, simulate, 100, **options)
        >>> ensemble.result.n + len(ensemble.failed_index)
        100
    """

    n: int
    result: Any
    failed_index: np.ndarray
    failed_key: Array
    statistic: Any = None
    met: bool | None = None

    def _table(self) -> reprs.Table:
        first, failed = self.failed_index[:3].tolist(), len(self.failed_index)
        numbers = ", ".join(map(str, first)) + (", ..." if failed > len(first) else "")
        which = f" ({numbers})" if failed else ""
        ended = "" if self.met is None else f", until {'met' if self.met else 'not met'}"
        rows = brief(self.result) + brief({"statistic": self.statistic})
        return f"Ensemble: {self.n} members, {failed} failed{which}{ended}", rows, ()


def run(
    key: Array,
    draw: Callable[[Array], Any],
    simulate: Callable[[Any], Any],
    n: int,
    *,
    chunk: int | None = None,
    reduce: Any = None,
    until: Reducer | None = None,
    mesh: Mesh | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Ensemble:
    """Simulate n random members in chunks of bounded memory; keep statistics, all outputs, or both.

    Args:
        key: a ``jax.random.key`` of a generator whose numbers do not depend on vmap (the default,
            not "rbg").
        draw: ``draw(key) -> member``, any pytree; member i has the key ``fold_in(key, i)``.
        simulate: ``simulate(member) -> outputs`` for ONE member, jittable; ``run`` vmaps it. The
            outputs are a small pytree of arrays, such as a settling time from a ``jq.rollout``.
        n: number of members, up to 2^31; with ``until`` the largest number.
        chunk: number of members simulated at once, a multiple of the mesh's devices; the last chunk
            is padded. Default: the chunk of the store; otherwise 2^14 per CPU device, 2^18 per
            device of another kind, fewer if these would need more than half of the free memory.
        reduce: a reducer (``jq.ensembles.mean()``, ...) or a pytree of them, for the outputs of
            members that did not fail.
        until: a rule such as ``jq.ensembles.standard_error(of, below)``, evaluated after each chunk
            on all members so far. The run ends with the first chunk that meets it, with the bits of
            a run of as many members without ``until``.
        mesh: devices of this process over which each chunk is split, along all axes of the mesh;
            None for the default device.
        store: a folder for the outputs of all members, a zarr group with one array (n, ...) per
            output (extra ``store``), named by its place in the pytree. After a kill, the same call
            resumes and gives the same result; a finished store serves another ``reduce`` without a
            simulation. Members that ``until`` did not reach are missing; a stricter rule goes on
            from there.
        progress: show a bar with members per second and the remaining time.

    Returns:
        Ensemble. Members with an output that is not finite are excluded from ``result`` and listed
        in ``failed_index``; RuntimeWarning if all members failed, or n do not meet ``until``.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name; a store of
            another run (n, chunk, key, shapes and dtypes are compared, functions are not); tracing
            or differentiating (use ``jq.ensembles.members``); a lost or damaged chunk of the store,
            by its members.
        MemoryError: the chunk does not fit; the message names a size that would.
        OSError: the store cannot be written. BlockingIOError: another run writes to it (not
            detected without file locks, as on Windows).
        ImportError: a store without zarr.

    Examples:
        >>> body, grid = jq.Body(2.0 * jnp.eye(3)), jq.grid(0.0, 0.1, 50)  # kg m^2, 5 s
        >>> damper = lambda t, state, params: -state.omega  # N m
        >>> draw = lambda key: jax.random.normal(key, (3,))  # a rate [rad/s]
        >>> def simulate(omega):
        ...     start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), omega)
        ...     return jq.rollout(jq.rkmk2, body, damper, start, grid).final.omega
        >>> options = {"reduce": jq.ensembles.mean(), "progress": False}
        >>> mean = jq.ensembles.run(jax.random.key(0), draw, simulate, 1000, **options).result
        >>> mean.std.round(2)  # rad/s: 1 at first, times exp(-5 s/2 s)
        array([0.08, 0.08, 0.08])
    """
    # Check and convert.
    experiment = _checked_experiment(key, draw, simulate, n, mesh)
    checks.boolean("progress", progress)
    if until is not None and getattr(until, "met", None) is None:
        wanted = "a rule such as jq.ensembles.standard_error(...)"
        raise TypeError(f"until: wanted {wanted}, got {type(until).__name__}")
    _check_reduce((reduce, until), store)
    member, outputs = chunks.shapes(experiment)
    tally = _Tally((reduce, until), outputs)
    folder = None if store is None else place("store", store).resolve()
    existing = None if folder is None else stores.fingerprint(folder)
    size, program = _chunk(experiment, chunk, existing)
    plan, done = Plan(experiment.n, size), 0

    # Compute.
    with (
        _opened(experiment, folder, plan, member, outputs) as opened,
        bars.bar("members", plan.n, scaled=True, shown=progress) as bar,
    ):
        for k, leaves in enumerate(_outputs(experiment, plan, opened, bar, program)):
            members = plan.members(k)
            tally.add(members, leaves)
            bar.update(members.stop - members.start)
            done = members.stop
            if until is not None and tally.meets(until):
                break
    (result, statistic), failed = tally.result()
    met = None if until is None else _is_met(until, statistic)
    ensemble = Ensemble(done, result, failed, keys(experiment.key, failed), statistic, met)
    problem = _problem(ensemble)
    if problem:
        warnings.warn(problem, RuntimeWarning, stacklevel=2)
    return ensemble


def _checked_experiment(key: Any, draw: Any, simulate: Any, n: Any, mesh: Any) -> Experiment:
    key = checks.reproducible_key("key", key, order_of("ensembles.run"))
    checks.takes("draw", draw, "key")
    checks.takes("simulate", simulate, "member")
    n = checks.positive_integer("n", n)
    if n > LARGEST:
        raise ValueError(f"n: wanted at most 2^31 members, got {n}")
    if mesh is not None:
        checks.instance("mesh", mesh, Mesh, "a jax.sharding.Mesh")
        mesh = Mesh(mesh.devices, mesh.axis_names)  # without its axis types, which do not matter
        owners = {x.process_index for x in mesh.devices.flat}
        if owners != {jax.process_index()}:
            wanted = f"devices of this process, {jax.process_index()}"
            raise ValueError(f"mesh: wanted {wanted}, got those of {sorted(owners)}")
    return Experiment(draw, simulate, n, key, mesh)


def _problem(ensemble: Ensemble) -> str:
    n, failed = ensemble.n, ensemble.failed_index
    if failed.size == n:
        problem = f"all {n} members failed, each with an output that is not finite"
        consequence = f"the first is number {failed[0]}: there are no statistics"
        return f"simulate: {problem}, {consequence}"
    if ensemble.met is False:
        statistic = brief({"statistic": ensemble.statistic})
        reached = ", ".join(f"{place} {text}" for place, text in statistic)
        return f"until: not met by all {n} members ({reached})"
    return ""


class _Tally:
    """Statistics and failures of the chunks so far, which are added in their order."""

    def __init__(self, reduce: Any, outputs: Any) -> None:
        self.outputs = jax.tree.structure(outputs)
        self.reducers, self.structure = jax.tree.flatten(reduce)
        none = jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), outputs)
        no_index = np.zeros(0, np.int64)
        self.summaries = [reducer.summarise(none, no_index) for reducer in self.reducers]
        self.failed = [no_index]

    def add(self, members: slice, leaves: list[np.ndarray]) -> None:
        index = np.arange(members.start, members.stop)
        good = np.ones(index.size, bool)
        for leaf in leaves:
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                good &= np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))
        self.failed.append(index[~good])
        good_leaves = leaves if good.all() else [leaf[good] for leaf in leaves]
        rows = jax.tree.unflatten(self.outputs, good_leaves)
        pairs = zip(self.reducers, self.summaries, strict=True)
        self.summaries = [
            reducer.merge(summary, reducer.summarise(rows, index[good]))
            for reducer, summary in pairs
        ]

    def meets(self, until: Reducer) -> bool:
        return _is_met(until, until.finish(self.summaries[-1]))

    def result(self) -> tuple[Any, np.ndarray]:
        """Return results and failed members."""
        pairs = zip(self.reducers, self.summaries, strict=True)
        results = [reducer.finish(summary) for reducer, summary in pairs]
        return jax.tree.unflatten(self.structure, results), np.concatenate(self.failed)


def _outputs(
    experiment: Experiment, plan: Plan, store: stores.Store | None, bar: Any, program: Any
) -> Iterator[list[np.ndarray]]:
    """Yield the leaves of the outputs of each chunk, in order, read or simulated and stored."""
    done = 0
    if store is not None:
        digests = store.digests()[: plan.chunks]
        done = len(digests)
        for k, digest in enumerate(digests):
            yield store.read(k, plan.members(k), digest)
        bar.initial = bar.n  # reading does not count in the members per second
        bar.unpause()
    if done == plan.chunks:
        return
    try:
        for k, padded in _simulated(experiment, plan, program, done):
            members = plan.members(k)
            leaves = [rows[: members.stop - members.start] for rows in padded]
            if store is not None:
                store.write(k, members, leaves)
            yield leaves
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and "Out of memory" not in str(error):
            raise
        smaller = max(plan.size // 2 // experiment.devices, 1) * experiment.devices
        got = f"{plan.size}; try {smaller} ({error})"
        raise MemoryError(f"chunk: wanted one that fits into memory, got {got}") from error


def _simulated(
    experiment: Experiment, plan: Plan, program: Any, first: int
) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Yield the rows of each chunk from ``first`` on, after the launch of the next one."""
    if program is None:
        program = chunks.within_memory(experiment, plan.size)
    data, launched = experiment.key_data, None
    for k in range(first, plan.chunks + 1):
        before = launched
        if k < plan.chunks:
            launched = program(data, np.uint32(k * plan.size))
        if before is not None:
            yield k - 1, [np.asarray(x) for x in jax.tree.leaves(before)]


def _check_reduce(reduce: Any, store: Any) -> None:
    reducers = jax.tree.leaves(reduce)
    for reducer in reducers:
        checks.instance("reduce", reducer, Reducer, "reducers such as jq.ensembles.mean()")
    if not reducers and store is None:
        hint = "for all outputs in memory jax.vmap(simulate)(jq.ensembles.members(key, draw, n))"
        raise ValueError(f"reduce: wanted reducers, a store, or both, got neither; {hint}")


def _is_met(until: Any, statistic: Any) -> bool:
    met = until.met(statistic)
    if np.shape(met) != ():
        raise TypeError(f"until: wanted met to return True or False, got {met!r}")
    return bool(met)


def _chunk(experiment: Experiment, chunk: Any, there: dict[str, Any] | None) -> tuple[int, Any]:
    """Return the size of a chunk, and its program if finding the size had to compile it."""
    program = None
    if chunk is None and there is not None:
        chunk = there["chunk"]
    if chunk is None:
        chunk, program = chunks.default(experiment)
    chunk, devices = checks.positive_integer("chunk", chunk), experiment.devices
    if chunk % devices:
        raise ValueError(f"chunk: wanted a multiple of the mesh's {devices} devices, got {chunk}")
    return min(chunk, -(-experiment.n // devices) * devices), program


def _fingerprint(experiment: Experiment, plan: Plan, member: Any, outputs: Any) -> dict[str, Any]:
    """Return what must agree for a store to be resumed, in values that JSON returns unchanged."""
    generator = str(jax.random.key_impl(experiment.key))
    return {
        "n": experiment.n,
        "chunk": plan.size,
        "key": [generator, *experiment.key_data.tolist()],
        "member": _described(member),
        "outputs": _described(outputs),
    }


def _described(tree: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    places = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    kinds = [[list(x.shape), str(x.dtype)] for _, x in leaves]
    named = {place or "outputs": kind for place, kind in zip(places, kinds, strict=True)}
    if len(named) < len(leaves):
        wanted = "outputs whose places have different names"
        raise ValueError(f"store: wanted {wanted}, got {list(named)}")
    return named


@contextlib.contextmanager
def _opened(
    experiment: Experiment, folder: Path | None, plan: Plan, member: Any, outputs: Any
) -> Iterator[stores.Store | None]:
    """Make or open the store, if there is a folder, locked while this run writes to it."""
    if folder is None:
        yield None
        return
    run = _fingerprint(experiment, plan, member, outputs)
    if not folder.exists():
        stores.create(folder, run, plan.n, plan.size)
    store = stores.attach(folder, run)
    with contextlib.nullcontext() if len(store.digests()) >= plan.chunks else store.only_writer():
        yield store
