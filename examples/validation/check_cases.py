"""Simulate NASA's check cases of rigid bodies in flight, and compare with its simulators.

NASA Engineering and Safety Center, Check-Cases for Verification of 6-Degree-of-Freedom Flight
Vehicle Simulations, TM-2015-218675. The published histories are files, one per case and simulator,
``nesc_atmos_01_..._sim_01.csv.gz``. A case is a table (``Case``): where the body starts, how fast,
and what it is.
"""

import csv
import gzip
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxquat as jq
from examples.validation.earth import Earth, atmosphere, north_east_down

FOOT, POUND = 0.3048, 4.4482216152605  # m, N
SLUG = POUND / FOOT  # kg
STEP, SAVED = 0.01, 0.1  # s


class Case(NamedTuple):
    """A body and its start, in the units of the check cases: feet, slugs, degrees, seconds.

    Attributes:
        number: of the case, as in the names of the files.
        title: what happens.
        mass: [slug].
        inertia: principal moments in body axes [slug ft^2], (3,).
        altitude: geodetic [ft].
        latitude, longitude: geodetic [deg].
        velocity: relative to the Earth, north, east, down [ft/s].
        euler: yaw, pitch, roll of the body in the local vertical frame [deg].
        rates: of the body relative to the inertial frame, body axes [deg/s].
        area, span, chord: reference area [ft^2] and lengths [ft].
        drag: coefficient of drag.
        damping: coefficients of the moments against roll, pitch and yaw.
        against: the axes to which the damped rate is relative, "inertial" or "Earth".
        wind: rows (altitude [ft], north, east, down [ft/s]), linear between them.
        earth: fields of ``Earth`` that are not those of WGS 84.
        seconds: duration.
    """

    number: str
    title: str
    mass: float
    inertia: tuple[float, ...]
    altitude: float
    latitude: float = 0.0
    longitude: float = 0.0
    velocity: tuple[float, ...] = (0.0, 0.0, 0.0)
    euler: tuple[float, ...] = (0.0, 0.0, 0.0)
    rates: tuple[float, ...] = (0.0, 0.0, 0.0)
    area: float = 0.0
    span: float = 1.0
    chord: float = 1.0
    drag: float = 0.0
    damping: tuple[float, ...] = (0.0, 0.0, 0.0)
    against: str = "inertial"
    wind: tuple[tuple[float, ...], ...] = ((0.0, 0.0, 0.0, 0.0),)
    earth: dict[str, float] = {}  # noqa: RUF012
    seconds: float = 30.0


SPHERE: dict[str, Any] = {"mass": 1.0, "inertia": (3.6, 3.6, 3.6), "area": 0.1963495}
BRICK: dict[str, Any] = {
    "mass": 0.155404754,
    "inertia": (0.00189422, 0.006211019, 0.007194665),
    "altitude": 30_000.0,
    "rates": (10.0, 20.0, 30.0),
    "area": 0.22222,
    "span": 1 / 3,
    "chord": 2 / 3,
}
EAST = (0.0, -np.rad2deg(Earth().rotation), 0.0)  # at rest on the Earth, facing east
CASES = (
    Case("01", "a sphere dropped without drag", **SPHERE, altitude=30_000.0),
    Case("02", "a brick that tumbles without damping", **BRICK),
    Case("03", "a brick that tumbles with damping", **BRICK, damping=(-1.0, -1.0, -1.0)),
    Case(
        "03",
        "the same with damping of the rate relative to the Earth",
        **BRICK,
        damping=(-1.0, -1.0, -1.0),
        against="Earth",
    ),
    Case("06", "a sphere dropped with drag", **SPHERE, altitude=30_000.0, drag=0.1),
    Case(
        "09",
        "a cannonball fired east",
        **SPHERE,
        altitude=0.0,
        velocity=(0.0, 1000.0, -1000.0),
        euler=(90.0, 0.0, 0.0),
        rates=EAST,
        drag=0.1,
    ),
)


class Quantity(NamedTuple):
    """Columns of the files that are compared as one: the largest difference of any counts."""

    name: str
    unit: str
    columns: tuple[str, ...]
    angle: bool = False


QUANTITIES = (
    Quantity("altitude", "ft", ("altitudeMsl_ft",)),
    Quantity("longitude", "deg", ("longitude_deg",), True),
    Quantity("latitude", "deg", ("latitude_deg",), True),
    Quantity("velocity", "ft/s", tuple(f"feVelocity_ft_s_{x}" for x in "XYZ")),
    Quantity(
        "Euler angles", "deg", tuple(f"eulerAngle_deg_{x}" for x in ("Yaw", "Pitch", "Roll")), True
    ),
    Quantity(
        "body rates",
        "deg/s",
        tuple(f"bodyAngularRateWrtEi_deg_s_{x}" for x in ("Roll", "Pitch", "Yaw")),
    ),
    Quantity("gravity", "ft/s^2", ("localGravity_ft_s2",)),
    Quantity("density", "slug/ft^3", ("airDensity_slug_ft3",)),
    Quantity("speed of sound", "ft/s", ("speedOfSound_ft_s",)),
    Quantity("dynamic pressure", "lbf/ft^2", ("dynamicPressure_lbf_ft2",)),
    Quantity("aerodynamic force", "lbf", tuple(f"aero_bodyForce_lbf_{x}" for x in "XYZ")),
    Quantity("moments", "ft lbf", tuple(f"aero_bodyMoment_ftlbf_{x}" for x in "LMN")),
)


class Situation(NamedTuple):
    """Where the body is with respect to the Earth and its air, in SI units.

    ``down`` is the attitude of the local vertical frame in the inertial one, ``velocity`` relative
    to the Earth in that frame, ``flow`` that relative to the air in body axes, ``omega`` the rate
    that is damped.
    """

    latitude: jax.Array
    longitude: jax.Array
    altitude: jax.Array
    down: jax.Array
    velocity: jax.Array
    flow: jax.Array
    omega: jax.Array
    density: jax.Array
    sound: jax.Array


def situation(case, t, state):
    """Return the Situation of a state."""
    earth = Earth()._replace(**case.earth)
    turn = earth.turn(t)
    fixed = jq.quaternion.rotate_inverse(turn, state.position)
    latitude, longitude, altitude = earth.geodetic(fixed)
    down = jq.quaternion.multiply(turn, north_east_down(latitude, longitude))
    relative = state.velocity - jnp.cross(earth.spin(), state.position)
    velocity = jq.quaternion.rotate_inverse(down, relative)
    heights, *winds = jnp.asarray(case.wind).T
    wind = FOOT * jnp.stack([jnp.interp(altitude / FOOT, heights, w) for w in winds])
    through = jq.quaternion.rotate(down, velocity - wind)
    flow = jq.quaternion.rotate_inverse(state.q, through)
    spin = {"inertial": 0.0, "Earth": 1.0}[case.against] * earth.spin()
    omega = state.omega - jq.quaternion.rotate_inverse(state.q, spin)
    air = atmosphere(altitude)
    return Situation(latitude, longitude, altitude, down, velocity, flow, omega, *air)


def aerodynamics(case, now):
    """Return force and moment in body axes [N], [N m]."""
    speed = jnp.sqrt(now.flow @ now.flow)
    half = 0.5 * now.density * case.area * FOOT**2 * speed  # qbar S / V
    lengths = FOOT * jnp.array([case.span, case.chord, case.span])
    moment = 0.5 * half * lengths**2 * jnp.asarray(case.damping) * now.omega
    return -half * case.drag * now.flow, moment


def acting(case):
    """Return the wrench on the body of a case."""
    earth, mass = Earth()._replace(**case.earth), SLUG * case.mass

    def wrench(t, state, params):
        force, moment = aerodynamics(case, situation(case, t, state))
        force = jq.quaternion.rotate(state.q, force)
        return jq.Wrench(moment, force + mass * earth.gravity(state.position))

    return wrench


def start_of(case):
    """Return body and state at t = 0, in inertial axes."""
    earth = Earth()._replace(**case.earth)
    latitude, longitude = np.deg2rad([case.latitude, case.longitude])
    position = earth.position(latitude, longitude, FOOT * case.altitude)
    down = north_east_down(latitude, longitude)
    attitude = jq.euler.to_quaternion(jnp.deg2rad(jnp.asarray(case.euler)), "ZYX")
    velocity = jq.quaternion.rotate(down, FOOT * jnp.asarray(case.velocity))
    state = jq.State(
        jq.quaternion.multiply(down, attitude),
        jnp.deg2rad(jnp.asarray(case.rates)),
        position=position,
        velocity=velocity + jnp.cross(earth.spin(), position),
    )
    moments = SLUG * FOOT**2 * jnp.asarray(case.inertia)
    return jq.Body.from_principal(moments, mass=SLUG * case.mass), state


def history(case):
    """Return the columns of a case, each tenth of a second, by their names in the files."""
    body, start = start_of(case)
    earth = Earth()._replace(**case.earth)
    steps, every = round(case.seconds / STEP), round(SAVED / STEP)
    grid = jq.grid(0.0, STEP, steps, save_every=every)

    def observe(t, state, params):
        now = situation(case, t, state)
        force, moment = aerodynamics(case, now)
        attitude = jq.quaternion.relative(now.down, state.q)
        return {
            "time": t,
            "altitudeMsl_ft": now.altitude / FOOT,
            "longitude_deg": jnp.rad2deg(now.longitude),
            "latitude_deg": jnp.rad2deg(now.latitude),
            "feVelocity_ft_s": now.velocity / FOOT,
            "eulerAngle_deg": jnp.rad2deg(jq.euler.from_quaternion(attitude, "ZYX")),
            "bodyAngularRateWrtEi_deg_s": jnp.rad2deg(state.omega),
            "localGravity_ft_s2": jnp.linalg.norm(earth.gravity(state.position)) / FOOT,
            "airDensity_slug_ft3": now.density * FOOT**3 / SLUG,
            "speedOfSound_ft_s": now.sound / FOOT,
            "dynamicPressure_lbf_ft2": 0.5 * now.density * now.flow @ now.flow * FOOT**2 / POUND,
            "aero_bodyForce_lbf": force / POUND,
            "aero_bodyMoment_ftlbf": moment / (POUND * FOOT),
        }

    options = jq.RolloutOptions(save=observe)
    path = jax.jit(lambda: jq.rollout(jq.rkmk4, body, acting(case), start, grid, options=options))()
    saved = jax.tree.map(np.asarray, path.saved)
    columns = {name: value for name, value in saved.items() if value.ndim == 1}
    for stem, ends in (
        ("feVelocity_ft_s", "XYZ"),
        ("eulerAngle_deg", ("Yaw", "Pitch", "Roll")),
        ("bodyAngularRateWrtEi_deg_s", ("Roll", "Pitch", "Yaw")),
        ("aero_bodyForce_lbf", "XYZ"),
        ("aero_bodyMoment_ftlbf", "LMN"),
    ):
        columns |= {f"{stem}_{end}": saved[stem][:, k] for k, end in enumerate(ends)}
    return columns


def published(folder, case):
    """Return the histories of NASA's simulators by number, at tenths of a second."""
    found = {}
    for file in sorted(folder.glob(f"nesc_atmos_{case.number}_*_sim_*.csv.gz")):
        with gzip.open(file, "rt") as stream:
            names, *rows = csv.reader(stream)
        table = np.array([[float(x) if x else np.nan for x in row] for row in rows])
        columns = dict(zip(reversed(names), reversed(table.T), strict=True))
        tenths = np.abs(10 * columns["time"] - np.round(10 * columns["time"])) < 1e-6
        number = file.name.removesuffix(".csv.gz").rpartition("_")[2]
        found[number] = {name: column[tenths] for name, column in columns.items()}
    return found


def difference(quantity, a, b):
    """Return the largest difference of two histories at common stamps; NaN without columns."""
    if not all(name in history for name in quantity.columns for history in (a, b)):
        return np.nan
    stamps = [np.round(10 * history["time"]).astype(int) for history in (a, b)]
    _, rows, others = np.intersect1d(*stamps, return_indices=True)
    worst = 0.0
    for name in quantity.columns:
        off = a[name][rows] - b[name][others]
        if quantity.angle:
            off = (off + 180) % 360 - 180
        worst = max(worst, np.abs(off).max())
    return worst


class Row(NamedTuple):
    """A quantity of a case.

    Attributes:
        quantity: what is compared.
        ours: the difference of jaxquat to each simulator, by number.
        median: the simulator that is the least far from the others, by the median.
        nearest: how far the nearest other simulator is from it.
        farthest: how far the two simulators are apart that are the most.
    """

    quantity: Quantity
    ours: dict[str, float]
    median: str
    nearest: float
    farthest: float

    @property
    def ratio(self):
        """How far jaxquat is from the median simulator, in units of its nearest peer."""
        return self.ours[self.median] / self.nearest if self.nearest else np.inf


def compared(case, folder):
    """Return the rows of a case, of the quantities that at least three simulators have."""
    ours, theirs = history(case), published(folder, case)
    rows = []
    for quantity in QUANTITIES:
        apart = {
            i: {j: difference(quantity, theirs[i], theirs[j]) for j in theirs if j != i}
            for i in theirs
        }
        apart = {
            i: {j: x for j, x in others.items() if np.isfinite(x)} for i, others in apart.items()
        }
        apart = {i: others for i, others in apart.items() if len(others) >= 2}
        if not apart or max(max(others.values()) for others in apart.values()) == 0:
            continue
        median = min(apart, key=lambda i: np.median(list(apart[i].values())))
        to_ours = {i: difference(quantity, ours, theirs[i]) for i in apart}
        farthest = max(max(others.values()) for others in apart.values())
        rows.append(Row(quantity, to_ours, median, min(apart[median].values()), farthest))
    return rows
