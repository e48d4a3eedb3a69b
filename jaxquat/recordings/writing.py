"""Recordings as text files of the library's own: their columns, and writing them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxquat._internal.checks import place
from jaxquat.recordings.cells import names_of
from jaxquat.recordings.columns import name_and_unit
from jaxquat.recordings.headers import header_of
from jaxquat.recordings.recording import Recording, check_recording, check_samples, check_times

OWN: dict[str, str | tuple[str, ...]] = {
    "gyro": ("gyr_x", "gyr_y", "gyr_z"),
    "q": ("q_w", "q_x", "q_y", "q_z"),
    "movement": "movement",
}
"""The columns of channels in files that ``write`` wrote; those of others end in their index."""
_NOTES = "# notes of jaxquat: "  # before the JSON in the line after the header


def own_columns(names: Sequence[str]) -> dict[str, str | tuple[str, ...]]:
    """Return the columns of each channel in a file of the library's own with this header."""
    bare = {name_and_unit(cell)[0] for cell in names}
    found: dict[str, Any] = {name: own for name, own in OWN.items() if bare & {*names_of(own)}}
    for column in names:
        match = re.fullmatch(r"(.+)\[(\d*)\]", column)
        if match and match[1] not in OWN:
            name, others = match[1], names_of(found.get(match[1], ()))
            found[name] = (*others, f"{name}[{len(others)}]") if match[2] else column
    return {"t": "t", **(found or OWN)}  # OWN names the missing columns of somebody else's file


def write(path: str | os.PathLike[str], recording: Recording) -> None:
    """Write all channels of a recording to a file from which ``read`` restores every bit.

    The file is compressed if its name ends in .gz. All channels are read back as float64, a
    complete movement as bool. A comment after the header has the notes as JSON.

    Raises:
        ValueError, TypeError: the argument, or a channel that ``read`` would refuse: a row in which
            some numbers are NaN, an infinite number, an attitude off the unit sphere, a bad name;
            notes that JSON changes or cannot hold, such as arrays.
        OSError: the file cannot be written.

    Examples:
        >>> import tempfile
        >>> file, t = tempfile.mkdtemp() + "/rest.csv.gz", np.arange(3) / 7
        >>> jq.recordings.write(file, jq.recordings.Recording(t, channels={"motors": t}))
        >>> jq.recordings.read(file)["motors"] == t  # to the last bit
        array([ True,  True,  True])
    """
    if isinstance(recording, str | os.PathLike):
        hint = "; the order is jq.recordings.write(file, recording)"
        raise TypeError(f"recording: wanted a recordings.Recording, got {recording!r}{hint}")
    check_recording(recording)
    file, names = place("path", path), recording.names
    check_times("recording.t", np.asarray(recording.t))
    numbers, header = [np.asarray(recording.t, np.float64)], ["t"]
    for name in names:
        values = np.asarray(recording[name], np.float64)
        check_samples(f'recording["{name}"]', name, values)
        numbers.append(values)
        indices = range(values.shape[1]) if values.ndim == 2 else [""]
        header += names_of(OWN.get(name, tuple(f"{name}[{k}]" for k in indices)))
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    if not _is_read_back(text.getvalue(), header, names):
        wanted = "channels with names that a header can hold"
        raise ValueError(f"recording: wanted {wanted}, got {', '.join(map(repr, names)) or 'none'}")
    if recording.notes:
        text.write(f"{_NOTES}{_in_json(recording.notes)}\r\n")
    for row in np.column_stack(numbers).tolist():
        writer.writerow("" if math.isnan(x) else repr(x) for x in row)
    content = text.getvalue().encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def _in_json(notes: Mapping[str, Any]) -> str:
    for key, value in notes.items():
        try:
            is_kept = json.loads(json.dumps({key: value})) == {key: value}
        except (TypeError, ValueError, RecursionError):
            is_kept = False
        if not is_kept:
            wanted = "texts, finite numbers, booleans, lists and dicts of them by texts"
            raise ValueError(f"recording.notes: wanted {wanted}, got {value!r} for {key!r}")
    return json.dumps(dict(notes))


def own_notes(path: str | os.PathLike[str], text: str) -> dict[str, Any]:
    """Return the notes in the text of a file that ``write`` wrote."""
    _, found, rest = text.partition(f"\n{_NOTES}")
    line = rest.partition("\n")[0]
    try:
        return dict(json.loads(line)) if found else {}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)}: wanted notes in JSON, got {line!r}") from error


def _is_read_back(line: str, header: list[str], names: Sequence[str]) -> bool:
    """Return whether ``read`` finds the header in its line, and the channels of these names."""
    if header_of(line.replace("\0", ""), ("t",)).names != header:
        return False
    is_text = "".join(names) == "".join(names).encode(errors="ignore").decode()  # no surrogates
    bare = {name_and_unit(cell)[0] for cell in header}
    return is_text and len(bare) == len(header) and own_columns(header).keys() == {"t", *names}
