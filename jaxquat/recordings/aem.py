"""Attitude ephemeris messages of the CCSDS (AEM, 504.0-B-1 of 2008 and 504.0-B-2 of 2024), KVN."""

from __future__ import annotations

import calendar
import datetime
import itertools
import math
import os
import re
from collections.abc import Mapping
from decimal import Context, Decimal

import numpy as np

from jaxquat._internal.checks import finite, instance, one_of, place, positive_integer
from jaxquat.recordings.attitudes import of_euler_angles, of_euler_rates
from jaxquat.recordings.headers import text_of
from jaxquat.recordings.recording import Recording, check_recording, check_samples, check_times

_SIZES = {  # how many numbers a line has
    "QUATERNION": 4, "QUATERNION/DERIVATIVE": 8, "QUATERNION/ANGVEL": 7,
    "EULER_ANGLE": 3, "EULER_ANGLE/DERIVATIVE": 6, "EULER_ANGLE/ANGVEL": 6,
}  # fmt: skip
_TYPES = {"1.0": ("QUATERNION", "QUATERNION/DERIVATIVE"), "2.0": tuple(_SIZES)}  # that are read
_SEQUENCES = tuple(a + b + c for a, b, c in itertools.product("XYZ", repeat=3) if a != b != c)
_BODY = re.compile(  # frames on a spacecraft
    r"(SC_BODY|ACC|ACTUATOR|AST|CSS|DSS|ESA|GYRO|IMU|INSTRUMENT|MTA|RW|SA|SENSOR|STARTRACKER|TAM)"
    r"(_FRAME)?(_\w+)?"
)
_EPOCH = re.compile(r"(\d{4})-(?:(\d\d)-(\d\d)|(\d{3}))T(\d\d):(\d\d):(\d\d(?:\.\d*)?)Z?", re.A)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.A)
_PARTS = {  # what follows a part of a message, and what it begins
    ("header", "META_START"): "metadata", ("metadata", "META_STOP"): "",
    ("", "DATA_START"): "data", ("data", "DATA_STOP"): "end", ("end", "META_START"): "metadata",
}  # fmt: skip
_FRAMES = ("REF_FRAME_A", "REF_FRAME_B")
_NEEDED = ("OBJECT_NAME", "OBJECT_ID", *_FRAMES, "TIME_SYSTEM", "START_TIME")
_ORDER = (*_NEEDED[:2], "CENTER_NAME", *_NEEDED[2:4], "ATTITUDE_DIR", *_NEEDED[4:], "STOP_TIME")
_ORDER = (*_ORDER, "ATTITUDE_TYPE", "QUATERNION_TYPE", "ANGVEL_FRAME")
_WRITTEN = {*_ORDER, "ORIGINATOR"} - {"ATTITUDE_DIR", *_ORDER[-3:]}
_EXACT = Context(prec=60)  # seconds since the year 1, and all digits of a float
_FIRST, _END = Decimal(86400), Decimal(86400 * (datetime.date.max.toordinal() + 1))  # s
_CONJUGATE = np.array([1.0, -1.0, -1.0, -1.0])


def read_aem(path: str | os.PathLike[str], segment: int | None = None) -> Recording:
    """Read attitudes from an attitude ephemeris message of the CCSDS, KVN of version 1 or 2.

    ``t`` are seconds after START_TIME in the file's TIME_SYSTEM, whose days have 86,400 s. ``q``
    maps the frame on the spacecraft, as SC_BODY_1, to the other one, scalar first, in the digits of
    the file; version 2 may have Euler angles instead. ``gyro``, in axes of the spacecraft, are the
    rates of an ANGVEL or those of a DERIVATIVE. ``notes`` has the metadata.

    Args:
        path: the file.
        segment: the number of the segment, from 1; None if the file has only one.

    Raises:
        ValueError, TypeError: a bad argument; another format or version; a malformed line, by its
            number; no ATTITUDE_DIR or QUATERNION_TYPE in version 1; another ATTITUDE_TYPE, such as
            SPIN, or RATE and EULER_ANGLE of version 1; both frames, or none, on the spacecraft.
        OSError: the file cannot be opened.

    Examples:
        >>> attitudes = jq.recordings.read_aem("attitude.aem")  # doctest: +SKIP
    """
    segment = None if segment is None else positive_integer("segment", segment)
    text, file = text_of(path), os.fspath(path)
    segments = _segments(file, text)
    if len(segments) < (segment or 1) or (segment is None and len(segments) > 1):
        raise ValueError(f"segment: wanted one of the {len(segments)} of {file}, got {segment}")
    notes, lines = segments[(segment or 1) - 1]
    where, t, numbers = f"{file}: segment {segment or 1}", [], []
    kind = _convention(where, notes)
    start = _seconds(f"{where}: START_TIME", notes["START_TIME"])
    for k, (epoch, *cells) in lines:
        here = f"{file}, line {k}"
        numbers.append([float(x) if _NUMBER.fullmatch(x) else math.nan for x in cells])
        if len(cells) != _SIZES[kind] or not all(map(math.isfinite, numbers[-1])):
            wanted = f"a time and {_SIZES[kind]} finite numbers"
            raise ValueError(f"{here}: wanted {wanted}, got {' '.join(cells)}")
        t.append(float(_seconds(here, epoch) - start))
    if len(t) < 2:
        raise ValueError(f"{where}: wanted at least two attitudes, got {len(t)}")
    on_a = _spacecraft(where, notes) == "REF_FRAME_A"
    q, rate = _b_to_a(where, np.array(numbers), kind, notes)
    check_times(f"{where}, times [s]", np.array(t), "")
    check_samples(where, "q", q)
    if on_a:
        rate = None if rate is None else -_rotated(q, rate)
        q = q * _CONJUGATE
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
            and the other one the world of q, TIME_SYSTEM, START_TIME of t = 0, ORIGINATOR, perhaps
            CENTER_NAME, in place of those in ``recording.notes``. Others are not written.
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
    t, rates = np.asarray(recording.t, float), recording.gyro if version == "2.0" else None
    check_times("recording.t", t)
    if recording.q is None or not recording.present("q").all():
        raise ValueError("recording: wanted q in all rows, got rows without; use rows_with")
    check_samples("recording.q", "q", np.asarray(recording.q))
    notes = {key: str(x) for key, x in {**recording.notes, **metadata}.items() if key in _WRITTEN}
    for key in (*_NEEDED, "ORIGINATOR"):
        if key not in notes:
            raise ValueError(f"metadata: wanted {key}, got {', '.join(notes) or 'nothing'}")
    for key, x in notes.items():
        if len(x.splitlines()) != 1 or x != x.strip():
            raise ValueError(f"metadata: wanted a line of text for {key}, got {x!r}")
    body = _spacecraft("metadata", notes)
    on_a, start = body == "REF_FRAME_A", _seconds("metadata: START_TIME", notes["START_TIME"])
    q = np.asarray(recording.q, float) * (_CONJUGATE if on_a else 1.0)
    numbers, kind = np.roll(q, -1, axis=1), "QUATERNION"
    if rates is not None:  # of B relative to A, in axes of the spacecraft
        with np.errstate(over="ignore"):
            rates = np.rad2deg(np.asarray(rates, float)) * (-1.0 if on_a else 1.0)
        finite("recording.gyro [deg/s]", rates)
        numbers, kind = np.concatenate([numbers, rates], axis=1), "QUATERNION/ANGVEL"
    epochs = [_epoch(start, x) for x in t.tolist()]
    notes |= {"STOP_TIME": epochs[-1], "ATTITUDE_TYPE": kind}
    if version == "1.0":
        notes |= {"ATTITUDE_DIR": "A2B", "QUATERNION_TYPE": "LAST"}
    elif rates is not None:
        notes["ANGVEL_FRAME"] = notes[body]
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    head = {"CCSDS_AEM_VERS": version, "CREATION_DATE": now, "ORIGINATOR": notes["ORIGINATOR"]}
    pairs = {key: notes[key] for key in _ORDER if key in notes}
    head, about = ([f"{key} = {x}" for key, x in part.items()] for part in (head, pairs))
    text = [*head, "META_START", *about, "META_STOP", "DATA_START"]
    for epoch, row in zip(epochs, numbers.tolist(), strict=True):
        text.append(f"{epoch} {' '.join(map(repr, row))}")
    file.write_text("\n".join([*text, "DATA_STOP", ""]), encoding="utf-8")


def _segments(file: str, text: str) -> list[tuple[dict[str, str], list[tuple[int, list[str]]]]]:
    """Return the keywords and the numbered lines of cells of each segment."""
    if text.lstrip().startswith("<"):
        raise ValueError(f"{file}: wanted KVN, lines such as CCSDS_AEM_VERS = 2.0, got XML")
    header: dict[str, str] = {}
    pairs, segments, part = header, [], "header"
    for k, line in enumerate(map(str.strip, re.split("\r\n?|\n", text)), start=1):
        key, equals, value = (cell.strip() for cell in line.partition("="))
        if not header and key != "CCSDS_AEM_VERS" and line:
            raise ValueError(f"{file}: wanted CCSDS_AEM_VERS = ... first, got {line[:40]!r}")
        if not line or line.startswith("COMMENT"):
            continue
        if any(line == word for _, word in _PARTS):
            if (part, line) not in _PARTS:
                raise ValueError(f"{file}, line {k}: wanted no {line} here, got one")
            part = _PARTS[part, line]
            if part == "metadata":
                pairs = dict(header)
                segments.append((pairs, []))
        elif part == "data" and segments:
            segments[-1][1].append((k, line.split()))
        elif equals and value and part in ("header", "metadata") and key not in pairs:
            pairs[key] = value
        else:
            raise ValueError(f"{file}, line {k}: wanted a new keyword and a value, got {line!r}")
    if not segments or part != "end":
        raise ValueError(f"{file}: wanted whole segments, got {len(segments)}, the last cut short")
    return segments


def _convention(where: str, notes: dict[str, str]) -> str:
    """Return the type of the attitudes; ValueError if a convention is not supported."""
    version, kind = notes["CCSDS_AEM_VERS"], notes.get("ATTITUDE_TYPE", "nothing").upper()
    one_of(f"{where}: CCSDS_AEM_VERS", version, tuple(_TYPES))
    one_of(f"{where}: ATTITUDE_TYPE", kind, _TYPES[version])
    for key, values in (("ATTITUDE_DIR", ("A2B", "B2A")), ("QUATERNION_TYPE", ("FIRST", "LAST"))):
        if version == "1.0":
            one_of(f"{where}: {key}", notes.get(key, "nothing").upper(), values)
        elif key in notes:
            raise ValueError(f"{where}: wanted no {key} in version 2.0, got {notes[key]}")
    for key in _NEEDED:
        if key not in notes:
            raise ValueError(f"{where}: wanted {key}, got {', '.join(notes)}")
    if kind.startswith("EULER"):
        one_of(f"{where}: EULER_ROT_SEQ", notes.get("EULER_ROT_SEQ", "nothing").upper(), _SEQUENCES)
    return kind


def _b_to_a(
    where: str, numbers: np.ndarray, kind: str, notes: Mapping[str, str]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return q from components in B to those in A, and the rate of B relative to A, in B [rad/s].

    The axes of A, turned by the message's quaternion or sequence of angles, are those of B.
    """
    if kind.startswith("EULER"):
        order, angles, rest = notes["EULER_ROT_SEQ"].upper(), numbers[:, :3], numbers[:, 3:]
        q = of_euler_angles(angles, order)
        if kind.endswith("DERIVATIVE"):
            return q, np.deg2rad(of_euler_rates(angles, rest, order))
    else:
        shift = 0 if notes.get("QUATERNION_TYPE", "LAST").upper() == "FIRST" else 1
        sign = _CONJUGATE if notes.get("ATTITUDE_DIR", "A2B").upper() == "B2A" else 1.0
        q, rest = np.roll(numbers[:, :4], shift, axis=1) * sign, numbers[:, 4:]
        if kind.endswith("DERIVATIVE"):  # omega = 2 q* q'
            slope = np.roll(rest, shift, axis=1) * sign
            vectors = q[:, :1] * slope[:, 1:] - slope[:, :1] * q[:, 1:]
            return q, 2.0 * (vectors - np.cross(q[:, 1:], slope[:, 1:]))
    if rest.shape[1] == 0:
        return q, None
    a, b, frame = (notes.get(x, "nothing").upper() for x in (*_FRAMES, "ANGVEL_FRAME"))
    one_of(f"{where}: ANGVEL_FRAME", frame, (a, b))
    rate = np.deg2rad(rest)
    return q, (_rotated(q * _CONJUGATE, rate) if frame == a else rate)


def _spacecraft(where: str, notes: Mapping[str, str]) -> str:
    """Return which of the two frames is one of the spacecraft."""
    on = [key for key in _FRAMES if _BODY.fullmatch(notes[key].upper())]
    if len(on) != 1:
        got = " and ".join(notes[key] for key in _FRAMES)
        raise ValueError(f"{where}: wanted one frame on the spacecraft, as SC_BODY_1, got {got}")
    return on[0]


def _rotated(q: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    across = 2.0 * np.cross(q[:, 1:], vectors) / np.sum(q * q, axis=1)[:, None]
    return vectors + q[:, :1] * across + np.cross(q[:, 1:], across)


def _seconds(where: str, epoch: str) -> Decimal:
    """Return the seconds of a date with month and day, or with the day of the year."""
    match = _EPOCH.fullmatch(epoch)
    try:
        if not match:
            raise ValueError("no match")
        year, month, day, of_year, hour, minute = (int(x or 1) for x in match.groups()[:6])
        first = datetime.datetime(year, month, day, hour, minute)
        minutes = (first - datetime.datetime.min) // datetime.timedelta(minutes=1) + 1440 * of_year
        if not 1 <= of_year <= 365 + calendar.isleap(year) or Decimal(match[7]) >= 61:  # leap
            raise ValueError("out of range")
    except ValueError as error:
        wanted = "2026-03-20T12:00:00 or 2026-079T12:00:00"
        raise ValueError(f"{where}: wanted a time such as {wanted}, got {epoch!r}") from error
    return _EXACT.add(Decimal(60 * minutes), Decimal(match[7]))


def _epoch(start: Decimal, t: float) -> str:
    """Return the date of t [s] after the start, with all digits."""
    after = Decimal(repr(t))
    seconds = _EXACT.add(start, after)
    if not _FIRST <= seconds < _END or _EXACT.subtract(seconds, start) != after:
        raise ValueError(f"recording.t: wanted times in the years 1 to 9999, to 1e-48 s, got {t}")
    whole, _, digits = f"{seconds:f}".partition(".")
    moment = datetime.datetime.min + datetime.timedelta(seconds=int(whole) - 86400)
    return f"{moment.isoformat()}.{digits or 0}"
