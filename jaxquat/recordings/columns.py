"""What the columns of a file are called, and the units of their numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jaxquat._checks import instance
from jaxquat.recordings.units import UNITS

SIZES = {"gyro": 3, "q": 4, "accelerometer": 3, "magnetometer": 3}
"""How many numbers a sample of these channels has."""

SI = {
    "t": "s",
    "gyro": "rad/s",
    "q": "1",
    "movement": "1",
    "accelerometer": "m/s^2",
    "magnetometer": "T",
}
"""The SI units of the channels that have a field of their own."""


def checked_names(
    argument: str, columns: Mapping[str, str | Sequence[str]]
) -> dict[str, str | tuple[str, ...]]:
    """For each channel a name or a tuple of names; TypeError that names the argument."""
    instance(argument, columns, Mapping, 'a dict such as {"t": "time", "gyro": ("x", "y", "z")}')
    checked: dict[str, str | tuple[str, ...]] = {}
    for name, value in columns.items():
        names = (value,) if isinstance(value, str) else value
        if not isinstance(name, str) or not isinstance(names, tuple | list) or not names:
            raise TypeError(f"{argument}: wanted names of columns for {name!r}, got {value!r}")
        for column in names:
            instance(argument, column, str, f"names of columns for {name}")
        checked[name] = value if isinstance(value, str) else tuple(names)
    return checked


def checked_units(units: Mapping[str, str] | None, names: Sequence[str]) -> Mapping[str, str]:
    """The argument ``units``: one that is known, of the right quantity, for some channels."""
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


def unit_problem(name: str, unit: str) -> str:
    """What is wrong with a unit for this channel; "" if nothing is."""
    if not isinstance(unit, str) or unit not in UNITS:
        return f"wanted one of {', '.join(UNITS)}, got {unit!r}"
    if name in SI and UNITS[unit][0] != SI[name]:
        return f"wanted a unit that is a multiple of {SI[name]}, got {unit!r}"
    return ""


def name_and_unit(cell: str) -> tuple[str, str | None]:
    """``"gx [deg/s]"`` in two.

    A number in brackets is an index: ``"output[3]"`` has no unit. Nor has ``"output[]"``.
    """
    match = re.fullmatch(r"(.*?)\s*(?:\[([^][]*)\]|\(([^()]*)\))", cell)
    unit = (match[2] or match[3] or "").strip() if match else ""
    if match is None or unit.isdigit():
        return cell, None
    return match[1], unit or None


def ends_in_a_unit(column: str, channel: str) -> bool:
    """Whether a name ends in a unit that is not of SI, as ``time_us``, ``timeMs``, ``gx deg/s`` do.

    Capitals do not matter, nor what stands between the words. Endings that are no unit in most
    names, such as "g" and "min", count in the channels where they are one.
    """
    endings = _ENDINGS | _ENDINGS_OF.get(channel, set())
    column = re.sub(r"\[\d+\]$", "", column)  # an index
    for text in (column, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", column)):
        words = [word for word in re.split(r"[\s_./:{}-]+", text.lower()) if word]
        if any("_".join(words[-count:]) in endings for count in (1, 2, 3)):
            return True
    return False


_SPELLED = "usec microseconds micros msec milliseconds millis nsec nanoseconds nanos degs degrees"
_SPELLED += " degps deg_sec deg_per_s deg_per_sec degrees_s degrees_per_second"
_SPELLED += " ga mga km kmh kph mph ft feet minutes hours"
_ENDINGS_OF = {"accelerometer": {"g"}, "t": {"min", "mins", "h", "hour"}}
_ENDINGS = {
    *_SPELLED.split(),
    *(
        name.lower().replace("/", "_")
        for name, (_, one) in UNITS.items()
        if one != 1.0 and len(name) > 1 and name != "min"
    ),
}
