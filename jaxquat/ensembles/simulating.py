"""``ensemble``: chunk after chunk, simulated on the devices while the host reduces and stores the one before."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh
from tqdm import tqdm

from jaxquat._checks import boolean, instance, place, positive_integer, random_key, takes
from jaxquat.ensembles import chunks, stores
from jaxquat.ensembles.chunks import Problem
from jaxquat.ensembles.processes import gather
from jaxquat.ensembles.reducers import Reducer
from jaxquat.ensembles.sampling import LARGEST, keys


class Ensemble(NamedTuple):
    """The result of ``ensemble``.

    Attributes:
        result: of the reducers, in the structure of ``reduce``.
        failed_index: (f,) int64, ascending: the members with an output that is not finite.
        failed_key: (f,) their keys: ``simulate(sample(failed_key[0]))`` runs the first again.
    """

    result: Any
    failed_index: np.ndarray
    failed_key: Array


def ensemble(
    sample: Callable[[Array], Any],
    simulate: Callable[[Any], Any],
    n: int,
    key: Array,
    *,
    chunk: int | None = None,
    reduce: Any = None,
    mesh: Mesh | None = None,
    store: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Ensemble:
    """Simulate n random members in chunks of bounded memory, and keep statistics of their outputs, or all of them in a store.

    Args:
        sample: ``sample(key) -> member``, any pytree; member i has the key ``fold_in(key, i)``.
        simulate: ``simulate(member) -> outputs`` of ONE member, jittable: a small pytree of arrays, such as a settling time from a
            ``jq.rollout`` with either engine. It is vmapped.
        n: number of members, up to 2^31.
        key: a ``jax.random.key`` of a generator whose numbers do not depend on vmap (the default one, not "rbg").
        chunk: members simulated at once, a multiple of the mesh's devices; the last chunk is padded, so that there is one program.
            Default: the store's; otherwise 2^14 a CPU device, 2^18 a device of another kind, fewer where XLA's memory analysis
            says that these need more than half of what is free.
        reduce: a reducer (``jq.ensembles.mean()``, ...) or a pytree of them. They see the outputs of the members that did not fail.
        mesh: devices over which each chunk is split along all axes; they may belong to several processes, as many of each, which
            then all make the same call. Default: the default device.
        store: a folder for the outputs of all members, a zarr group with one array (n, ...) per output (extra ``store``), named by
            its place in the pytree. A call that was killed resumes from it when it is made again, with the result that it would
            have had; a finished store answers another ``reduce`` without a simulation.
        progress: show a bar with members a second and the time left.

    Returns:
        Ensemble. Members with an output that is not finite are left out of ``result`` and named; RuntimeWarning if that is all.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name; a store of another run (another n, chunk, key,
            number of processes, shapes and dtypes of members and outputs; what functions compute is not compared); tracing or
            differentiating (use ``jq.ensembles.draw``).
        MemoryError: the chunk does not fit; the message says which would.
        OSError: the store cannot be written.
        ImportError: a store without zarr.
    """
    takes("sample", sample, "key")
    takes("simulate", simulate, "member")
    n, progress = positive_integer("n", n), boolean("progress", progress)
    if n > LARGEST:
        raise ValueError(f"n: wanted at most 2^31 members, got {n}")
    reducers, structure = jax.tree.flatten(reduce, is_leaf=lambda x: isinstance(x, Reducer))
    for reducer in reducers:
        instance("reduce", reducer, Reducer, "reducers such as jq.ensembles.mean()")
    if not reducers and store is None:
        hint = "for all outputs in memory jax.vmap(simulate)(jq.ensembles.draw(sample, n, key))"
        raise ValueError(f"reduce: wanted reducers, a store, or both, got neither; {hint}")
    if mesh is not None:
        instance("mesh", mesh, Mesh, "a jax.sharding.Mesh")
        mesh = Mesh(mesh.devices, mesh.axis_names)  # whatever its axis types
    problem = Problem(sample, simulate, n, _reproducible(key), mesh)
    together = _several_processes(mesh)
    member, outputs = chunks.shapes(problem)
    empty = jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), outputs)
    summaries = [reducer.summarise(empty, np.zeros(0, np.int64)) for reducer in reducers]
    folder = None if store is None else place("store", store)
    kept = None if folder is None else stores.fingerprint(folder)
    if chunk is None and kept is not None:
        chunk = kept["chunk"]
    program = None
    if chunk is None:
        chunk, program = chunks.default(problem)
        smallest = min(gather(np.asarray(chunk))) if together else chunk
        if chunk != smallest:
            chunk, program = int(smallest), None
    chunk = positive_integer("chunk", chunk)
    if chunk % problem.devices:
        raise ValueError(
            f"chunk: wanted a multiple of the mesh's {problem.devices} devices, got {chunk}"
        )
    chunk = min(chunk, -(-n // problem.devices) * problem.devices)
    rows, number, first, opened = chunks.own(problem, chunk), -(-n // chunk), 0, None
    if folder is not None:
        run = _fingerprint(problem, chunk, rows, member, outputs)
        lead = not together or jax.process_index() == 0
        if kept is not None:
            stores.check(folder, run, kept)
        elif lead:
            stores.create(folder, run, n, rows.stop - rows.start)
        if together:
            gather(np.zeros(0))  # the store is there
        opened = stores.attach(folder, list(run["outputs"]), rows.start // (rows.stop - rows.start))
        first = stores.done(opened)
        first = int(min(gather(np.asarray(first)))) if together else first
    failed: list[np.ndarray] = []

    def members(k: int) -> slice:
        return slice(min(k * chunk + rows.start, n), min(k * chunk + rows.stop, n))

    def absorb(k: int, leaves: list[np.ndarray]) -> None:
        index = np.arange(members(k).start, members(k).stop)
        good = np.ones(index.size, bool)
        for leaf in leaves:
            if jnp.issubdtype(leaf.dtype, jnp.floating):
                good &= np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))
        failed.append(index[~good])
        tree = jax.tree.unflatten(
            jax.tree.structure(outputs), [leaf if good.all() else leaf[good] for leaf in leaves]
        )
        for j, reducer in enumerate(reducers):
            summaries[j] = reducer.merge(summaries[j], reducer.summarise(tree, index[good]))
        bar.update(min((k + 1) * chunk, n) - k * chunk)

    def receive(k: int, launched: Any) -> None:
        size = members(k).stop - members(k).start
        leaves = [chunks.fetch(x)[:size] for x in jax.tree.leaves(launched)]
        if opened is not None:
            stores.write(opened, members(k), leaves, k + 1)
        absorb(k, leaves)

    data, before = chunks.key_data(problem), None
    quiet = not progress or (together and jax.process_index() != 0)
    with tqdm(total=n, disable=quiet, unit="member", unit_scale=True) as bar:
        if opened is not None:
            for k in range(first):
                absorb(k, stores.read(opened, members(k)))
            bar.initial = bar.n
            bar.unpause()
        try:
            program = program or (chunks.given(problem, chunk) if first < number else None)
            for k in range(first, number):
                assert program is not None
                launched = program(data, np.uint32(k * chunk))
                if before is not None:
                    receive(k - 1, before)
                before = launched
            if before is not None:
                receive(number - 1, before)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error) and "Out of memory" not in str(error):
                raise
            smaller = max(chunk // 2 // problem.devices, 1) * problem.devices
            raise MemoryError(
                f"chunk: wanted one that fits into memory, got {chunk}; try {smaller} ({error})"
            ) from error
    failures = np.concatenate(failed)
    if together:
        everyone = gather((summaries, failures))
        summaries, failures = everyone[0][0], np.sort(np.concatenate([x[1] for x in everyone]))
        for other, _ in everyone[1:]:
            summaries = [
                reducer.merge(a, b)
                for reducer, a, b in zip(reducers, summaries, other, strict=True)
            ]
    if failures.size == n:
        text = f"simulate: all {n} members failed, each with an output that is not finite, the first of number {failures[0]}"
        warnings.warn(f"{text}: statistics are of none", RuntimeWarning, stacklevel=2)
    result = jax.tree.unflatten(
        structure, [reducer.finish(x) for reducer, x in zip(reducers, summaries, strict=True)]
    )
    return Ensemble(result, failures, keys(problem.key, failures))


def _reproducible(key: Any) -> Array:
    """One key, of a generator that will do."""
    key = random_key("key", key)
    if "rbg" in str(jax.random.key_impl(key)):
        raise ValueError(
            f"key: wanted a generator whose numbers do not depend on vmap, got {jax.random.key_impl(key)}"
        )
    return key


def _several_processes(mesh: Mesh | None) -> bool:
    if mesh is None:
        return False
    found = {device.process_index for device in mesh.devices.flat}
    if found not in ({jax.process_index()}, set(range(jax.process_count()))):
        raise ValueError(
            f"mesh: wanted devices of this process alone or of all {jax.process_count()} processes, got {sorted(found)}"
        )
    return len(found) > 1


def _fingerprint(
    problem: Problem, chunk: int, rows: slice, member: Any, outputs: Any
) -> dict[str, Any]:
    """What must agree for a store to be resumed; of values that JSON gives back as they are."""

    def described(tree: Any) -> dict[str, Any]:
        leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
        named = {
            jax.tree_util.keystr(path, simple=True, separator="/") or "outputs": [
                list(x.shape),
                str(x.dtype),
            ]
            for path, x in leaves
        }
        if len(named) < len(leaves):
            raise ValueError(
                f"store: wanted outputs whose places have different names, got {list(named)}"
            )
        return named

    return {
        "n": problem.n,
        "chunk": chunk,
        "processes": chunk // (rows.stop - rows.start),
        "key": [str(jax.random.key_impl(problem.key)), *chunks.key_data(problem).tolist()],
        "member": described(member),
        "outputs": described(outputs),
    }
