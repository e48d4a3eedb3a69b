"""Names of columns and channels, and the units of their numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jaxquat._internal.checks import instance
from jaxquat.recordings.units import UNITS, is_value

SIZES = {"gyro": 3, "q": 4, "accelerometer": 3, "magnetometer": 3}  # numbers in a sample

SI = {  # the units of the time and of the channels that have their own fields
    "t": "s",
    "gyro": "rad/s",
    "q": "1",
    "movement": "1",
    "accelerometer": "m/s^2",
    "magnetometer": "T",
}


def checked_names(columns: Mapping[str, Any]) -> dict[str, str | tuple[str, ...]]:
    """Return a name or a tuple of names for each channel."""
    instance("columns", columns, Mapping, 'a dict such as {"t": "time", "gyro": ("x", "y", "z")}')
    checked: dict[str, str | tuple[str, ...]] = {}
    for name, value in columns.items():
        is_sequence = isinstance(value, tuple | list)
        names = tuple(value) if is_sequence else (value,)
        if not isinstance(name, str) or not isinstance(value, str | tuple | list) or not names:
            raise TypeError(f"columns: wanted names of columns for {name!r}, got {value!r}")
        for column in names:
            instance("columns", column, str, f"names of columns for {name}")
        if len(set(names)) < len(names):
            raise ValueError(f"columns: wanted each column of {name} once, got {names}")
        axes = "".join(column[-1:] for column in names)
        if name == "q" and axes != "wxyz" and set(axes) == set("wxyz"):
            raise ValueError(f"columns: wanted the columns of q scalar first, got {names}")
        checked[name] = names if is_sequence else value
    return checked


def checked_units(
    units: Mapping[str, str | float] | None, names: Sequence[str]
) -> Mapping[str, str | float]:
    """Return the argument ``units`` of a reader: units that fit some of the channels ``names``."""
    if units is None:
        return {}
    instance("units", units, Mapping, 'a dict such as {"gyro": "deg/s"}')
    for name, unit in units.items():
        if name not in names:
            raise ValueError(f"units: wanted names among {', '.join(names)}, got {name!r}")
        problem = unit_problem(name, unit)
        if problem:
            raise ValueError(f"units: {problem} for {name}")
    return units


def unit_problem(name: str, unit: str | float) -> str:
    """Return what is wrong with a unit for this channel, "" if nothing is."""
    if is_value(unit):
        return ""
    if not isinstance(unit, str) or unit not in UNITS:
        return f"wanted one of {', '.join(UNITS)}, or its value in SI, got {unit!r}"
    if name in SI and UNITS[unit][0] != SI[name]:
        return f"wanted a unit that is a multiple of {SI[name]}, got {unit!r}"
    return ""


def name_and_unit(cell: str) -> tuple[str, str | None]:
    """Split ``"gx [deg/s]"`` or ``"gx (deg/s)"``. The index of ``"output[3]"`` is no unit."""
    match = re.fullmatch(r"(.*?)\s*(?:\[([^][]*)\]|\(([^()]*)\))", cell)
    unit = (match[2] or match[3] or "").strip() if match else ""
    if match is None or unit.isdigit():
        return cell, None
    return match[1], unit or None


def ends_in_a_unit(column: str, channel: str) -> bool:
    """Return whether a name has a unit, as in ``time_us``, ``gyroXDegPerSec``, ``gx_dps_raw``."""
    column = re.sub(r"\[\d+\]$", "", column)  # an index
    by_axis = re.sub(r"(?<=[a-z])([XYZ])(?=[A-Za-z])", r"_\1_", column)  # gyroXDps
    by_capital = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", by_axis)
    pattern = _ENDINGS_OF.get(channel, _ENDINGS)
    return any(
        pattern.fullmatch("_".join(filter(None, re.split(r"[\s_./:{}()-]+", text.lower()))))
        for text in (column, by_axis, by_capital)
    )


_AFTER = (  # words that may follow a unit
    r"[xyz]|\d+|raw|(un)?cal(ib|ibrated)?|(un)?filt(ered)?|lpf|corr(ected)?|comp(ensated)?|mean"
    r"|avg|average|median|smooth(ed)?|meas(ured)?|body"
)
_SMALL = r"(m|milli|u|µ|μ|micro|n|nano)"
_LONG_TIME = r"(min|mins|minutes?|h|hr|hrs|hours?)"
_SECOND = r"(s|secs?|seconds?)"
_TIME = rf"({_SECOND}|{_LONG_TIME})"
_PER = r"_?(p|per)?_?"
_LENGTH = r"(cm|mm|km|ft|feet)"
_UNITS = (
    rf"{_SMALL}{_SECOND}|micros|millis|nanos|minutes|hours|days",
    rf"({_SMALL}?deg(ree)?s?|{_SMALL}rad(ian)?s?)({_PER}{_TIME})?",
    rf"rad(ian)?s?{_PER}{_LONG_TIME}|m?dp[sh]",
    rf"{_LENGTH}({_PER}{_TIME})?|{_LENGTH}{_PER}s(ec)?({_PER}s(ec)?|\^?2|²)",
    rf"kmh|kph|mph|kts?|knots?|m?ga|{_SMALL}t(eslas?)?|{_SMALL}?gauss",
    r"rpm|mg|hpa|%|°(_s)?",
)


def _endings(*more: str) -> re.Pattern[str]:
    """Compile the pattern of a name with a unit; "us_1" may be an ultrasonic sensor."""
    return re.compile(rf"(.*_|(?!..?_))({'|'.join((*_UNITS, *more))})(_({_AFTER}))*")


_COUNTS = r"raw|lsbs?|counts?|cnts?|adc|digits?|a_?u|ticks?"
_ENDINGS = _endings()
_ENDINGS_OF = {
    "t": _endings("min|mins|h|hr|hrs|hour|day|ticks?|cycles|counts?"),
    "gyro": _endings("hz|rps", _COUNTS),
    "accelerometer": _endings(rf"{_SMALL}?(g|gs|gees?|gals?)", _COUNTS),
    "magnetometer": _endings("g|gamma|oersted", _COUNTS),
}
