"""Attitude ephemeris messages of the CCSDS (AEM, 504.0-B-1 of 2008 and 504.0-B-2 of 2024), KVN."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, localcontext

import numpy as np

from jaxquat._internal.checks import finite, instance, one_of, place, positive_integer
from jaxquat.recordings.recording import Recording, check_recording, check_samples, check_times

_TYPES = {  # those that are read, by the version of the message
    "1.0": ("QUATERNION", "QUATERNION/DERIVATIVE"),
    "2.0": ("QUATERNION", "QUATERNION/DERIVATIVE", "QUATERNION/ANGVEL"),
}
_BODY = re.compile(  # frames on a spacecraft
    r"(SC_BODY|ACC|ACTUATOR|AST|CSS|DSS|ESA|GYRO|IMU|INSTRUMENT|MTA|RW|SA|SENSOR|STARTRACKER|TAM)"
    r"(_FRAME)?(_\w+)?"
)
_EPOCH = re.compile(  # date, hour, minute, second; 60 is a leap second
    r"(\d{4}-(?:\d\d-\d\d|\d{3}))T([01]\d|2[0-3]):([0-5]\d):((?:[0-5]\d|60)(?:\.\d*)?)Z?", re.A
)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.A)
_WORDS = ("META_START", "META_STOP", "DATA_START", "DATA_STOP")  # between the parts, in turn
_NEEDED = ("OBJECT_NAME", "OBJECT_ID", "REF_FRAME_A", "REF_FRAME_B", "TIME_SYSTEM", "START_TIME")
_CONVENTIONS = ("ATTITUDE_DIR", "ATTITUDE_TYPE", "QUATERNION_TYPE", "ANGVEL_FRAME")
_ORDER = (
    "OBJECT_NAME", "OBJECT_ID", "CENTER_NAME", "REF_FRAME_A", "REF_FRAME_B", "ATTITUDE_DIR",
    "TIME_SYSTEM", "START_TIME", "STOP_TIME", *_CONVENTIONS[1:],
)  # fmt: skip
_DIGITS = 60  # seconds since the year 1, and all digits of a float
_END = 86400 * datetime.date.max.toordinal()  # s
_CONJUGATE = np.array([1.0, -1.0, -1.0, -1.0])


def read_aem(path: str | os.PathLike[str], segment: int | None = None) -> Recording:
    """Read attitudes from an attitude ephemeris message of the CCSDS, KVN of version 1 or 2.

    ``t`` are seconds after START_TIME in the file's TIME_SYSTEM, whose days have 86,400 s. ``q``
    maps the frame on the spacecraft, as SC_BODY_1, to the other one, scalar first, in the digits of
    the file. ``gyro``, in axes of the spacecraft, are the rates of QUATERNION/ANGVEL or those of a
    quaternion's derivative. ``notes`` has the metadata.

    Args:
        path: the file.
        segment: the number of the segment, from 1; None if the file has only one.

    Raises:
        ValueError, TypeError: a bad argument; another format or version; a malformed line, by its
            number; no ATTITUDE_DIR or QUATERNION_TYPE in version 1; another ATTITUDE_TYPE, such as
            SPIN, Euler angles or RATE; both frames, or none, on the spacecraft.
        OSError: the file cannot be opened.

    Examples:
        >>> attitudes = jq.recordings.read_aem("attitude.aem")  # doctest: +SKIP
    """
    file = place("path", path)
    segment = None if segment is None else positive_integer("segment", segment)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: wanted a text in UTF-8, got other bytes ({error})") from error
    segments = _segments(str(file), text)
    if len(segments) < (segment or 1) or (segment is None and len(segments) > 1):
        raise ValueError(f"segment: wanted one of the {len(segments)} of {file}, got {segment}")
    notes, lines = segments[(segment or 1) - 1]
    where, t, numbers = f"{file}: segment {segment or 1}", [], []
    size = {"/DERIVATIVE": 8, "/ANGVEL": 7}.get(_convention(where, notes), 4)
    start = _seconds(where, notes["START_TIME"])
    for k, (epoch, *cells) in lines:
        here = f"{file}, line {k}"
        if not all(map(_NUMBER.fullmatch, cells)):
            raise ValueError(f"{here}: wanted numbers, got {' '.join(cells)}")
        numbers.append([float(cell) for cell in cells])
        if len(cells) != size:
            raise ValueError(f"{here}: wanted a time and {size} numbers, got {len(cells)}")
        t.append(float(_seconds(here, epoch) - start))
    if len(t) < 2:
        raise ValueError(f"{where}: wanted at least two attitudes, got {len(t)}")
    q, rate = _attitudes(where, np.array(numbers), notes)
    check_times(f"{where}, times [s]", np.array(t), "")
    check_samples(where, "q", q)
    return Recording(np.array(t), rate, q, notes=notes)


def write_aem(
    path: str | os.PathLike[str],
    recording: Recording,
    metadata: Mapping[str, str] | None = None,
    *,
    version: str = "2.0",
) -> None:
    """Write the attitudes of a recording to an attitude ephemeris message of one segment, KVN.

    ``read_aem`` restores every bit of t and q, and the rates ``gyro`` to rounding, which version 2
    has in degrees per second and version 1 leaves out.

    Args:
        path: the file.
        recording: unit attitudes q, perhaps rates, in every row (``recording.rows_with("q")``).
        metadata: OBJECT_NAME, OBJECT_ID, REF_FRAME_A and REF_FRAME_B, one of them on the spacecraft
            and the other one the world of q, TIME_SYSTEM, START_TIME of t = 0, ORIGINATOR, and
            others, in place of those in ``recording.notes``.
        version: "2.0", or "1.0" with the quaternion's scalar last and the direction A2B.

    Raises:
        ValueError, TypeError: a bad argument, by name; metadata that are missing.
        OSError: the file cannot be written.

    Examples:
        >>> import tempfile
        >>> metadata = {"OBJECT_NAME": "CUBE", "OBJECT_ID": "2026-001A", "ORIGINATOR": "ME"}
        >>> metadata |= {"REF_FRAME_A": "EME2000", "REF_FRAME_B": "SC_BODY_1"}
        >>> metadata |= {"TIME_SYSTEM": "UTC", "START_TIME": "2026-03-20T12:00:00"}
        >>> q = np.array([[1.0, 0.0, 0.0, 0.0], [0.8, 0.0, 0.6, 0.0]])
        >>> attitudes = jq.recordings.Recording(np.array([0.0, 60.0]), q=q)
        >>> file = tempfile.mkdtemp() + "/attitude.aem"
        >>> jq.recordings.write_aem(file, attitudes, metadata)
        >>> jq.recordings.read_aem(file).q[1]
        array([0.8, 0. , 0.6, 0. ])
    """
    file, metadata = place("path", path), {} if metadata is None else metadata
    check_recording(recording)
    instance("metadata", metadata, Mapping, "a dict of texts by keyword")
    one_of("version", version, tuple(_TYPES))
    t = np.asarray(recording.t, float)
    check_times("recording.t", t)
    if recording.q is None or not recording.present("q").all():
        raise ValueError("recording: wanted q in all rows, got rows without; use rows_with")
    check_samples("recording.q", "q", np.asarray(recording.q))
    notes = {key: str(x) for key, x in {**recording.notes, **metadata}.items() if key.isupper()}
    _check_keys("metadata", notes, (*_NEEDED, "ORIGINATOR"))
    for key, x in notes.items():
        if len(x.splitlines()) != 1 or x != x.strip():
            raise ValueError(f"metadata: wanted a line of text for {key}, got {x!r}")
    body = _spacecraft("metadata", notes)
    on_a, start = body == "REF_FRAME_A", _seconds("metadata: START_TIME", notes["START_TIME"])
    epochs = [_epoch(start, x) for x in t.tolist()]
    numbers = np.roll(np.asarray(recording.q, float) * (_CONJUGATE if on_a else 1.0), -1, axis=1)
    own = {"STOP_TIME": epochs[-1], "ATTITUDE_TYPE": "QUATERNION"}
    if version == "1.0":
        own |= {"ATTITUDE_DIR": "A2B", "QUATERNION_TYPE": "LAST"}
    elif recording.gyro is not None:  # of B relative to A, in axes of the spacecraft
        with np.errstate(over="ignore"):
            rates = np.rad2deg(np.asarray(recording.gyro, float)) * (-1.0 if on_a else 1.0)
        finite("recording.gyro [deg/s]", rates)
        numbers = np.concatenate([numbers, rates], axis=1)
        own |= {"ATTITUDE_TYPE": "QUATERNION/ANGVEL", "ANGVEL_FRAME": notes[body]}
    pairs = {**notes, **dict.fromkeys(_CONVENTIONS, ""), **own}
    text = [
        f"CCSDS_AEM_VERS = {version}",
        f"CREATION_DATE = {datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%S}",
        f"ORIGINATOR = {notes['ORIGINATOR']}",
        "META_START",
        *(f"{key} = {pairs[key]}" for key in _ORDER if pairs.get(key)),
        "META_STOP",
        "DATA_START",
    ]
    for epoch, row in zip(epochs, numbers.tolist(), strict=True):
        text.append(f"{epoch} {' '.join(map(repr, row))}")
    file.write_text("\n".join([*text, "DATA_STOP", ""]), encoding="utf-8")


def _segments(file: str, text: str) -> list[tuple[dict[str, str], list[tuple[int, list[str]]]]]:
    """Return the keywords and the numbered lines of cells of each segment."""
    header: dict[str, str] = {}
    pairs, segments, part = header, [], 0  # parts: metadata 1, 5, ..., and data 3, 7, ...
    for k, line in enumerate(map(str.strip, text.splitlines()), start=1):
        key, equals, value = (cell.strip() for cell in line.partition("="))
        if not header and key != "CCSDS_AEM_VERS" and line:
            raise ValueError(f"{file}: wanted CCSDS_AEM_VERS = ... first, got {line[:40]!r}")
        if not line or line.startswith("COMMENT"):
            continue
        if line in _WORDS:
            if line != _WORDS[part % 4]:
                raise ValueError(f"{file}, line {k}: wanted no {line} here, got one")
            part += 1
            if part % 4 == 1:
                pairs = dict(header)
                segments.append((pairs, []))
        elif part % 4 == 3:
            segments[-1][1].append((k, line.split()))
        elif equals and value and key not in pairs and (part == 0 or part % 4 == 1):
            pairs[key] = value
        else:
            raise ValueError(f"{file}, line {k}: wanted a new keyword and a value, got {line!r}")
    if not segments or part % 4:
        raise ValueError(f"{file}: wanted whole segments, got {len(segments)}, the last cut short")
    return segments


def _convention(where: str, notes: dict[str, str]) -> str:
    """Return what follows QUATERNION in the type; ValueError if a convention is not supported."""
    version, kind = notes["CCSDS_AEM_VERS"], notes.get("ATTITUDE_TYPE", "nothing").upper()
    one_of(f"{where}: CCSDS_AEM_VERS", version, tuple(_TYPES))
    one_of(f"{where}: ATTITUDE_TYPE", kind, _TYPES[version])
    for key, values in (("ATTITUDE_DIR", ("A2B", "B2A")), ("QUATERNION_TYPE", ("FIRST", "LAST"))):
        if version == "1.0":
            one_of(f"{where}: {key}", notes.get(key, "nothing").upper(), values)
        elif key in notes:
            raise ValueError(f"{where}: wanted no {key} in version 2.0, got {notes[key]}")
    _check_keys(where, notes, _NEEDED)
    return kind.removeprefix("QUATERNION")


def _check_keys(where: str, notes: Mapping[str, str], keys: Iterable[str]) -> None:
    for key in keys:
        if key not in notes:
            raise ValueError(f"{where}: wanted {key}, got {', '.join(notes) or 'nothing'}")


def _attitudes(
    where: str, numbers: np.ndarray, notes: Mapping[str, str]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return q and rates [rad/s] of the spacecraft. A message has those of B relative to A.

    The axes of A, turned by the message's quaternion, are those of B.
    """
    body = _spacecraft(where, notes)
    on_a, is_b2a = body == "REF_FRAME_A", notes.get("ATTITUDE_DIR", "A2B").upper() == "B2A"
    shift = 0 if notes.get("QUATERNION_TYPE", "LAST").upper() == "FIRST" else 1
    sign = _CONJUGATE if is_b2a != on_a else 1.0
    q, rest = np.roll(numbers[:, :4], shift, axis=1) * sign, numbers[:, 4:]
    if rest.shape[1] == 4:  # omega = 2 q* q'
        slope = np.roll(rest, shift, axis=1) * sign
        vectors = q[:, :1] * slope[:, 1:] - slope[:, :1] * q[:, 1:]
        return q, 2.0 * (vectors - np.cross(q[:, 1:], slope[:, 1:]))
    if rest.shape[1] == 0:
        return q, None
    frame, rate = notes.get("ANGVEL_FRAME", "nothing"), np.deg2rad(rest) * (-1.0 if on_a else 1.0)
    one_of(f"{where}: ANGVEL_FRAME", frame, (notes["REF_FRAME_A"], notes["REF_FRAME_B"]))
    if frame != notes[body]:
        across = 2.0 * np.cross(rate, q[:, 1:]) / np.sum(q * q, axis=1)[:, None]
        rate = rate + q[:, :1] * across + np.cross(across, q[:, 1:])
    return q, rate


def _spacecraft(where: str, notes: Mapping[str, str]) -> str:
    """Return which of the two frames is one of the spacecraft."""
    keys = ("REF_FRAME_A", "REF_FRAME_B")
    on = [key for key in keys if _BODY.fullmatch(notes[key].upper())]
    if len(on) != 1:
        got = " and ".join(notes[key] for key in keys)
        raise ValueError(f"{where}: wanted one frame on the spacecraft, as SC_BODY_1, got {got}")
    return on[0]


def _seconds(where: str, epoch: str) -> Decimal:
    """Return the seconds since the year 1 of a date, by month and day or by the day of the year."""
    match, day = _EPOCH.fullmatch(epoch), None
    if match:
        with contextlib.suppress(ValueError):
            form = "%Y-%j" if len(match[1]) == 8 else "%Y-%m-%d"
            day = datetime.datetime.strptime(match[1], form)
    if not match or day is None or day.year != int(epoch[:4]):  # Python reads day 366 of any year
        wanted = "2026-03-20T12:00:00 or 2026-079T12:00:00"
        raise ValueError(f"{where}: wanted a time such as {wanted}, got {epoch!r}")
    minutes = (24 * (day.toordinal() - 1) + int(match[2])) * 60 + int(match[3])
    with localcontext(prec=_DIGITS):
        return 60 * minutes + Decimal(match[4])


def _epoch(start: Decimal, t: float) -> str:
    """Return the date of t [s] after the start, with all digits."""
    after = Decimal(repr(t))
    with localcontext(prec=_DIGITS):
        time = start + after
        if not 0 <= time < _END or time - start != after:
            wanted = "times in the years 1 to 9999, to 1e-48 s"
            raise ValueError(f"recording.t: wanted {wanted}, got {t}")
        seconds, rest = divmod(time, 1)
    date = datetime.datetime.min + datetime.timedelta(seconds=int(seconds))
    return f"{date.isoformat()}.{f'{rest:f}'[2:] or 0}"
