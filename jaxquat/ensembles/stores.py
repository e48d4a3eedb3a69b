"""The outputs of every member in a zarr group in a folder, and how many chunks of it are whole.

``rows`` members make one file of an array: the part of a chunk that one process computes. A chunk counts as there when the file
``done-<part>``, replaced atomically after its arrays are written, says so; what is beyond is written again.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxquat._checks import missing_package


class Store(NamedTuple):
    """Of one process."""

    folder: Path
    arrays: list[Any]  # zarr arrays (n, ...), in the order of the leaves of the outputs
    part: int  # which part of every chunk is this process's


def fingerprint(folder: Path) -> dict[str, Any] | None:
    """Of the run that made the store; None if nothing is there. ValueError if it is something else."""
    if not folder.exists():
        return None
    try:
        return dict(_zarr().open_group(folder, mode="r").attrs["ensemble"])
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise ValueError(
            f"store: wanted a new folder or the store of an ensemble, got {folder}, which is neither"
        ) from error


def check(folder: Path, wanted: dict[str, Any], found: dict[str, Any]) -> None:
    """ValueError, with every difference, if another run made the store."""
    if wanted != found:
        names = [name for name in wanted if wanted[name] != found.get(name)]
        differences = "; ".join(
            f"{name} {wanted[name]} here, {found.get(name)} there" for name in names
        )
        raise ValueError(
            f"store: wanted a new folder or the store of this very run, got {folder} of another: {differences}"
        )


def create(folder: Path, run: dict[str, Any], n: int, rows: int) -> None:
    """All or nothing: made beside its place, then moved there."""
    beside = folder.with_name(f".{folder.name}.creating")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        group = _zarr().open_group(beside, mode="w")
        for name, (shape, dtype) in run["outputs"].items():
            missing = (
                float("nan") if "float" in dtype else 0
            )  # what a member not yet simulated reads as
            sizes = (rows, *(max(k, 1) for k in shape))
            group.create_array(
                name, shape=(n, *shape), chunks=sizes, dtype=dtype, fill_value=missing
            )
        group.attrs["ensemble"] = run
        beside.rename(folder)
    except OSError as error:
        raise _unwritten(error, folder) from error


def attach(folder: Path, names: list[str], part: int) -> Store:
    """The store of this process, to be written."""
    group = _zarr().open_group(folder, mode="r+")
    return Store(folder, [group[name] for name in names], part)


def done(store: Store) -> int:
    """Chunks whose part of this process is whole."""
    file = _counter(store)
    return int(file.read_text()) if file.exists() else 0


def read(store: Store, rows: slice) -> list[np.ndarray]:
    """These members."""
    return [np.asarray(array[rows]) for array in store.arrays]


def write(store: Store, rows: slice, leaves: list[np.ndarray], count: int) -> None:
    """These members; ``count`` chunks are whole then."""
    try:
        if rows.stop > rows.start:
            for array, leaf in zip(store.arrays, leaves, strict=True):
                array[rows] = leaf
        file = _counter(store)
        beside = file.with_suffix(".new")
        beside.write_text(str(count))
        os.replace(beside, file)
    except OSError as error:
        raise _unwritten(error, store.folder) from error


def _counter(store: Store) -> Path:
    return store.folder / f"done-{store.part}"


def _unwritten(error: OSError, folder: Path) -> OSError:
    reason, place = error.strerror or error, folder.parent.absolute()
    return OSError(
        error.errno,
        f"store: could not be written ({reason}); with room in {place} the same call resumes",
    )


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError(missing_package("store", "zarr", "store")) from error
    return zarr
