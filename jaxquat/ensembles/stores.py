"""The outputs of every member in a zarr group in a folder, and how many chunks of it are whole.

Each array has one file for the rows of a chunk that one process computes. A chunk counts as whole
when the file ``done-<part>`` says so. That file is replaced atomically after the arrays of the
chunk are written, so what a killed run has written beyond it is not believed, and is written
again. It lies in the folder of the first array: zarr warns of files that it does not know in the
folder of a group, when it lists that, but not in the folder of an array.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxquat._checks import missing_package

_BELONGS = "ensemble"
"""The attribute of the group that holds the fingerprint of its run."""


@dataclass(frozen=True)
class Store:
    """The part of a store that one process writes.

    Attributes:
        folder: of the zarr group.
        arrays: zarr arrays (n, ...), in the order of the leaves of the outputs.
        part: which part of every chunk is that of this process.
    """

    folder: Path
    arrays: list[Any]
    part: int

    @property
    def done(self) -> int:
        """Chunks whose part of this process is whole."""
        return int(self._counter.read_text()) if self._counter.exists() else 0

    def read(self, rows: slice) -> list[np.ndarray]:
        """The outputs of these members."""
        return [np.asarray(array[rows]) for array in self.arrays]

    def write(self, rows: slice, leaves: list[np.ndarray], count: int) -> None:
        """Write the outputs of these members, with which ``count`` chunks are whole."""
        try:
            if rows.stop > rows.start:
                for array, leaf in zip(self.arrays, leaves, strict=True):
                    array[rows] = leaf
            beside = self._counter.with_suffix(".new")
            beside.write_text(str(count))
            os.replace(beside, self._counter)
        except OSError as error:
            raise _unwritten(error, self.folder) from error

    @property
    def _counter(self) -> Path:
        name = f"done-{self.part}"
        old = self.folder / name  # where version 0.1.0 put it
        return old if old.exists() or not self.arrays else self.folder / self.arrays[0].path / name


def fingerprint(folder: Path) -> dict[str, Any] | None:
    """The fingerprint of the run that made the store; None if nothing is there.

    ValueError if something else is there.
    """
    if not folder.exists():
        return None
    try:
        return dict(_zarr().open_group(folder, mode="r").attrs[_BELONGS])
    except (FileNotFoundError, KeyError, ValueError) as error:
        wanted = "a new folder or the store of an ensemble"
        raise ValueError(f"store: wanted {wanted}, got {folder}, which is neither") from error


def check(folder: Path, here: dict[str, Any], there: dict[str, Any]) -> None:
    """ValueError, with every difference, if another run made the store."""
    if here != there:
        differences = "; ".join(
            f"{name} {here[name]} here, {there.get(name)} there"
            for name in here
            if here[name] != there.get(name)
        )
        wanted = "a new folder or the store of this very run"
        raise ValueError(f"store: wanted {wanted}, got {folder} of another: {differences}")


def create(folder: Path, run: dict[str, Any], n: int, rows: int) -> None:
    """Make a store of n members: all or nothing, made beside its place and then moved there.

    ``run`` is the fingerprint, ``rows`` the members in one file of an array.
    """
    beside = folder.with_name(f".{folder.name}.creating")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        group = _zarr().open_group(beside, mode="w")
        for name, (shape, dtype) in run["outputs"].items():
            missing = float("nan") if "float" in dtype else 0  # of a member not yet simulated
            sizes = (rows, *(max(k, 1) for k in shape))
            group.create_array(
                name, shape=(n, *shape), chunks=sizes, dtype=dtype, fill_value=missing
            )
        group.attrs[_BELONGS] = run
        beside.rename(folder)
    except OSError as error:
        raise _unwritten(error, folder) from error


def attach(folder: Path, names: list[str], part: int) -> Store:
    """The store in a folder, to be written by this process."""
    group = _zarr().open_group(folder, mode="r+")
    return Store(folder, [group[name] for name in names], part)


def _unwritten(error: OSError, folder: Path) -> OSError:
    reason, place = error.strerror or error, folder.parent.absolute()
    way_out = f"with room in {place} the same call resumes"
    return OSError(error.errno, f"store: could not be written ({reason}); {way_out}")


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as error:
        raise ImportError(missing_package("store", "zarr", "store")) from error
    return zarr
