"""Rotors: curves and their inverses, the wrench on the body, and what gives way at the limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from jaxquat import actuators, rotors

K, RATIO, ARM = 1e-5, 0.02, 0.2  # N s^2, m, m: thrust K w^2, drag RATIO times the thrust
CORNERS = ARM * np.array([[1.0, 1, 0], [-1, 1, 0], [-1, -1, 0], [1, -1, 0]])
LEVEL = np.array([1.0, 0, 0, 0])
UP, SPINS = np.tile([0.0, 0, 1], (4, 1)), np.array([1.0, -1, 1, -1])
QUAD = rotors.Rotors(CORNERS, UP, SPINS, np.array([0, 0, K]), np.array([0, 0, RATIO * K]))
ANGLES = np.arange(6) * np.pi / 3 + 0.2
RNG = np.random.default_rng(4)
WRENCH = jax.jit(rotors.wrench)
TILTED = np.stack([0.1 * RNG.normal(size=6), 0.1 * RNG.normal(size=6), np.ones(6)], axis=1)
HEXA = rotors.Rotors(
    np.stack([0.3 * np.cos(ANGLES), 0.3 * np.sin(ANGLES), 0.02 * np.sin(3 * ANGLES)], axis=1),
    TILTED / np.linalg.norm(TILTED, axis=1, keepdims=True),
    np.array([1.0, -1, 1, -1, 1, -1]),
    np.array([0.0, 0.0, 2e-5]),
    np.array([0.0, 0.0, 3e-7]),
)


def cast(dtype, tree=QUAD):
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


@jax.jit
def carried(craft, thrust, torque, most=None, least=0.0):
    """The thrusts that are allocated, and their wrench on a level body."""
    thrusts = rotors.allocate(craft, thrust, torque, min=least, max=most)
    level = jnp.asarray(LEVEL, thrusts.dtype)
    return thrusts, rotors.wrench(craft, rotors.speeds(craft, thrusts), level)


@jax.jit
def there_and_back(craft, w):
    thrusts = jnp.polyval(craft.thrust[::-1], w)
    of_thrusts = lambda f: (rotors.speeds(craft, f),) * 2
    slopes, speeds = jax.jacfwd(of_thrusts, has_aux=True)(thrusts)
    return thrusts, speeds, slopes


@pytest.mark.parametrize("curve", [(0.0, 0.0, K), (0.3, 2e-4, K), (0.2, -2e-4, K), (0.0, 3e-3, 0)])
def test_speeds_are_the_inverse_of_the_curve(curve):
    craft = QUAD._replace(thrust=np.array(curve))
    w = np.array([200.0, 450.0, 800.0, 1500.0])
    got, speeds, slopes = map(np.asarray, there_and_back(craft, w))
    np.testing.assert_allclose(got, curve[0] + curve[1] * w + curve[2] * w**2, rtol=1e-15)
    np.testing.assert_allclose(speeds, w, rtol=1e-12)
    slopes = np.diagonal(slopes)
    np.testing.assert_allclose(slopes, 1 / (curve[1] + 2 * curve[2] * w), rtol=1e-10)


def test_a_rotor_that_stands_still_or_cannot_has_finite_slopes():
    of_thrusts = jax.jit(jax.jacrev(lambda f: rotors.speeds(QUAD, f)))
    slopes = of_thrusts(jnp.array([0.0, -1.0, 1.0, 4.0]))
    np.testing.assert_array_equal(np.diagonal(slopes)[:2], 0)
    np.testing.assert_allclose(np.diagonal(slopes)[2:], 0.5 / np.sqrt(K * np.array([1, 4])))


def test_the_wrench_of_each_rotor():
    """Front left alone pushes up, rolls the body to the right and pitches it up.

    It turns by the right-hand rule, so the body yaws the other way.
    """
    torque, force = WRENCH(QUAD, np.array([100.0, 0, 0, 0]), LEVEL)
    thrust = K * 1e4
    np.testing.assert_allclose(force, [0, 0, thrust], rtol=1e-15)
    np.testing.assert_allclose(torque, [ARM * thrust, -ARM * thrust, -RATIO * thrust], rtol=1e-14)
    each = [WRENCH(HEXA, w, LEVEL).torque for w in 300.0 * np.eye(6)]
    thrusts, drags = 2e-5 * 9e4, 3e-7 * 9e4
    wanted = np.cross(HEXA.positions, thrusts * HEXA.axes)
    wanted -= (HEXA.spins * drags)[:, None] * HEXA.axes
    np.testing.assert_allclose(each, wanted, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("axis", "turned"),
    [
        ("x", [0.0, -1.0, 0.0]),  # rolled to the right, y points down and z to the right, -y
        ("y", [1.0, 0.0, 0.0]),  # pitched down, z points ahead
        ("z", [0.0, 0.0, 1.0]),  # another heading changes no vertical force
    ],
)
def test_a_quarter_turn_moves_the_force_and_leaves_the_torque(axis, turned):
    half = np.sqrt(0.5) * np.eye(4)["xyz".index(axis) + 1]
    speeds, q = np.array([500.0, 510, 490, 505]), half + np.sqrt(0.5) * np.eye(4)[0]
    torque, force = WRENCH(QUAD, speeds, q)
    np.testing.assert_allclose(force, K * np.sum(speeds**2) * np.array(turned), atol=1e-14)
    np.testing.assert_array_equal(torque, WRENCH(QUAD, speeds, LEVEL).torque)


def test_at_any_attitude_the_force_is_in_world_axes_and_the_torque_in_body_axes():
    """Summed rotor by rotor in world axes, with the rotation matrix written out."""
    rng = np.random.default_rng(8)
    q = rng.normal(size=(20, 4))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    speeds = rng.uniform(100.0, 400.0, (20, 6))
    got = jax.jit(jax.vmap(rotors.wrench, (None, 0, 0)))(HEXA, speeds, q)
    for k, (w, x, y, z) in enumerate(q):
        rotation = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
            ]
        )
        arms, axes = HEXA.positions @ rotation.T, HEXA.axes @ rotation.T
        forces = (2e-5 * speeds[k] ** 2)[:, None] * axes
        torques = np.cross(arms, forces) - (HEXA.spins * 3e-7 * speeds[k] ** 2)[:, None] * axes
        np.testing.assert_allclose(got.force[k], forces.sum(axis=0), atol=1e-13)
        np.testing.assert_allclose(rotation @ got.torque[k], torques.sum(axis=0), atol=1e-14)


@pytest.mark.parametrize(
    "craft", [QUAD, pytest.param(HEXA, marks=pytest.mark.slow)], ids=["quad", "hexa"]
)
def test_the_shortest_thrusts_are_those_of_the_pseudoinverse(craft):
    ratio = craft.drag[2] / craft.thrust[2]
    arms = np.cross(craft.positions, craft.axes) - ratio * craft.spins[:, None] * craft.axes
    matrix = np.concatenate([craft.axes[:, 2:], arms], axis=1).T
    wanted = np.array([12.0, 0.1, -0.2, 0.03])
    for dtype, tolerance in ((jnp.float32, 1e-5), (jnp.float64, 1e-12)):
        given = cast(dtype, (craft, wanted))
        got, load = carried(given[0], given[1][0], given[1][1:])
        assert got.dtype == dtype
        np.testing.assert_allclose(got, np.linalg.pinv(matrix) @ wanted, rtol=0, atol=tolerance)
        delivered = np.array([load.force[2], *load.torque])
        np.testing.assert_allclose(delivered, wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_hover_is_an_equilibrium_to_rounding(dtype):
    """The weight is carried, and the torque is exactly 0 for four equal thrusts."""
    craft, weight = cast(dtype), jnp.asarray(1.3 * 9.80665, dtype)
    thrusts, load = carried(craft, weight, jnp.zeros(3, dtype))
    np.testing.assert_allclose(thrusts, np.full(4, weight / 4), rtol=4 * jnp.finfo(dtype).eps)
    np.testing.assert_allclose(load.force[2], weight, rtol=4 * jnp.finfo(dtype).eps)
    np.testing.assert_allclose(load.torque, np.zeros(3), atol=4 * jnp.finfo(dtype).eps)


ROWS = {
    "nothing gives way": ((10.0, 0.1, 0.2, 0.05), (10.0, 0.1, 0.2, 0.05)),
    # half of 2.5 N a rotor is taken by roll, the other half is left for yaw
    "yaw": ((10.0, 1.0, 0.0, 5.0), (10.0, 1.0, 0.0, 0.1)),
    # pure yaw: 2.5 N up and down at 0.02 m
    "yaw alone": ((10.0, 0.0, 0.0, -5.0), (10.0, 0.0, 0.0, -0.2)),
    # roll and pitch leave 2.5, 4.5, 2.5 and 0.5 N; yaw adds to the second and fourth rotor,
    # up to 6 N, or takes from them, down to 0
    "yaw adds": ((10.0, 0.8, 0.8, 5.0), (10.0, 0.8, 0.8, 0.12)),
    "yaw takes": ((10.0, 0.8, 0.8, -5.0), (10.0, 0.8, 0.8, -0.04)),
    # 0.5/(4 0.2) = 0.625 N of 6 up and down
    "too much thrust": ((30.0, 0.5, 0.0, 0.0), (21.5, 0.5, 0.0, 0.0)),
    "too little thrust": ((1.0, 0.5, 0.0, 0.3), (2.5, 0.5, 0.0, 0.0)),
    # 6 N of difference between opposite corners: 3/0.2/4 2 = 7.5 is wanted
    "roll and pitch": ((10.0, 3.0, 3.0, 0.2), (12.0, 1.2, 1.2, 0.0)),
}
"""Wanted and delivered thrust [N] and torque [N m], with 0 to 6 N a rotor."""


@pytest.mark.parametrize("name", ROWS)
def test_what_gives_way_at_the_limits(name):
    """The same gives way between 1 N and 7 N, if each rotor carries 1 N more."""
    wanted, delivered = ROWS[name]
    got, load = carried(QUAD, wanted[0], np.array(wanted[1:]), 6.0)
    assert np.all((np.asarray(got) >= 0) & (np.asarray(got) <= 6))
    load = np.array([load.force[2], *load.torque])
    np.testing.assert_allclose(load, delivered, rtol=0, atol=1e-13)
    more, _ = carried(QUAD, wanted[0] + 4.0, np.array(wanted[1:]), 7.0, 1.0)
    np.testing.assert_allclose(more, np.asarray(got) + 1.0, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_the_allocation_is_continuous_and_has_the_slopes_of_differences():
    """Along a line through all kinds of limits: no jump, and slopes at almost every point."""
    line = lambda s: jnp.stack([4.0 + 9.0 * s, 1.5 * s * s, 0.5 - s, 0.4 * s])

    def thrusts(s):
        wanted = line(s)
        return rotors.allocate(QUAD, wanted[0], wanted[1:], min=0.1, max=6.0)

    s = jnp.linspace(-1.0, 2.0, 601)
    all_of = lambda s: (thrusts(s), jax.jacfwd(thrusts)(s), jax.jacrev(thrusts)(s))
    values, slopes, backward = map(np.asarray, jax.jit(jax.vmap(all_of))(s))
    assert np.abs(np.diff(values, axis=0)).max() < 0.1
    assert values.min() >= 0.1
    assert values.max() <= 6.0
    central = (values[2:] - values[:-2]) / (s[2] - s[0])
    off = np.abs(slopes[1:-1] - central).max(axis=1)
    assert np.mean(off < 0.1) > 0.95
    assert np.isfinite(backward).all()


def plant(t, state, craft, command):
    """The torque of a quadrotor; the speeds of its rotors follow with a lag of 0.03 s."""
    wanted = rotors.allocate(craft, jnp.asarray(12.0, command.dtype), command, max=6.0)
    load = rotors.wrench(craft, state.aux, state.q)
    return load.torque, actuators.lag(state.aux, rotors.speeds(craft, wanted), 0.03)


def flown(dtype, engine):
    body = jq.Body.from_principal(jnp.array([0.02, 0.03, 0.04], dtype))
    craft = cast(dtype)
    gains = jq.control.Gains(jnp.full(3, 0.2, dtype), jnp.full(3, 0.5, dtype))
    level = jnp.array([1.0, 0, 0, 0], dtype)
    controller = jq.Controller(
        lambda start, params: (),
        lambda t, state, memory, params, value: (
            jq.control.quaternion_law(state, gains, level),
            memory,
        ),
    )
    hover = rotors.speeds(craft, jnp.full(4, 3.0, dtype))
    q = jq.quaternion.exp(jnp.array([0.5, -0.3, 1.0], dtype))
    start = jq.State(q, jnp.zeros(3, dtype), hover)
    grid = jq.grid(0.0, 0.005, 400)

    def angle(craft):
        path = jq.rollout(
            jq.rkmk2,
            body,
            plant,
            start,
            grid,
            craft,
            controller=controller,
            options=jq.RolloutOptions(engine=engine),
        )
        return jq.quaternion.squared_distance(path.state.q[100], level), path.final

    return jax.jit(jax.value_and_grad(angle, has_aux=True))(craft)


@pytest.mark.needs("llvmlite")
@pytest.mark.slow
def test_a_quadrotor_with_lagging_motors_comes_level_in_both_engines_and_precisions():
    """The gradients by arms and curves agree, too."""
    (value, final), slope = flown(jnp.float64, "scan")
    assert np.abs(jq.quaternion.log(final.q)).max() < 0.01
    for dtype, tolerance in ((jnp.float64, 1e-10), (jnp.float32, 1e-4)):
        (got, _), other = flown(dtype, "fused")
        np.testing.assert_allclose(got, value, rtol=tolerance)
        np.testing.assert_allclose(other.positions, slope.positions, atol=10 * tolerance)
        np.testing.assert_allclose(other.drag, slope.drag, rtol=20 * tolerance)


THREE = QUAD._replace(positions=CORNERS[:3], axes=UP[:3], spins=SPINS[:3])
BAD = {
    r"rotors.axes: wanted shape \(4, 3\), got \(3, 3\)": (QUAD._replace(axes=np.eye(3)), {}),
    r"rotors.axes: wanted a unit vector": (QUAD._replace(axes=2 * UP), {}),
    r"rotors.spins: wanted 1 or -1": (QUAD._replace(spins=2 * SPINS), {}),
    r"rotors.thrust: wanted a curve that rises": (QUAD._replace(thrust=-QUAD.thrust), {}),
    r"rotors: wanted rotors that all lift": (
        QUAD._replace(positions=CORNERS + np.array([1.0, 0, 0])), {}
    ),
    r"rotors: wanted at least 4 rotors, got 3": (THREE, {}),
    r"rotors: wanted rotors that lift the body and turn it about all axes": (
        QUAD._replace(drag=0 * QUAD.drag), {}
    ),
    r"rotors: wanted rotors that lift .* axes, got \[\[": (
        QUAD._replace(positions=CORNERS * np.array([1.0, 0, 0])), {}
    ),
    r"min: wanted less than max": (QUAD, {"max": 0.0}),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_rotors_are_named(message):
    craft, limits = BAD[message]
    with pytest.raises((TypeError, ValueError), match="^" + message):
        rotors.allocate(craft, 1.0, np.zeros(3), **limits)


MASS = 4 * K * 500.0**2 / 9.80665  # four rotors at 500 rad/s carry it
CRAFT = jq.Body(jnp.diag(jnp.array([0.02, 0.02, 0.04])), MASS)
PLANT = jq.torques.total(
    jq.forces.gravity(CRAFT), rotors.lag(QUAD, 0.05), jq.forces.linear_drag(0.3)
)


def hovering(speed=500.0, dtype=jnp.float64):
    zero = jnp.zeros(3, dtype)
    q = jnp.array([1.0, 0, 0, 0], dtype)
    return jq.State(q, zero, jnp.full(4, speed, dtype), zero, zero)


def commanded(start, command, dt, steps, scheme=jq.rkmk4):
    grid, inputs = jq.grid(0.0, dt, steps), jnp.tile(command, (steps, 1))
    run = lambda: jq.rollout(
        scheme, CRAFT, PLANT, start, grid, inputs=inputs, options=jq.RolloutOptions(engine="scan")
    )
    return jax.jit(run)()


def test_a_hover_stays_where_it_is():
    """Weight and thrust cancel, and so do the torques, but for rounding.

    Where XLA rounds products and sums together, 3e-17 N m remain: in 10 s 1e-14 rad/s and, by the
    tilt, g t^4/24 times 1e-15 rad/s^2, 4e-12 m.
    """
    path = commanded(hovering(), jnp.full(4, 500.0), 0.01, 1000, jq.rkmk2)
    np.testing.assert_allclose(path.state.position, np.zeros((1001, 3)), atol=1e-11)
    np.testing.assert_allclose(path.state.omega, np.zeros((1001, 3)), atol=1e-13)
    np.testing.assert_array_equal(path.state.aux, np.full((1001, 4), 500.0))


def test_a_lagging_rotor_pushes_along_its_axis_in_the_world():
    """Rolled by a right angle about body x, body z is world -y; the weight is not in it."""
    state = hovering()._replace(q=jnp.array([np.sqrt(0.5), np.sqrt(0.5), 0, 0]))
    load, rates = rotors.lag(QUAD, 0.05)(0.0, state, None, jnp.full(4, 510.0))
    np.testing.assert_allclose(load.force, [0, -MASS * 9.80665, 0], atol=1e-14)
    np.testing.assert_allclose(load.torque, np.zeros(3), atol=1e-15)
    np.testing.assert_allclose(rates, np.full(4, 200.0), rtol=1e-13)


@pytest.mark.parametrize(("scheme", "order"), some([(jq.rkmk2, 2), (jq.rkmk4, 4)], [(jq.rkmk2, 2)]))
def test_rotors_spin_up_exponentially_to_the_order_of_the_scheme(scheme, order):
    """``w = w1 - (w1 - w0) exp(-t/s)`` with a lag s of 0.05 s, after one lag."""
    command = jnp.array([500.0, 510.0, 490.0, 505.0])
    wanted = np.asarray(command) - (np.asarray(command) - 400.0) * np.exp(-1)
    errors = []
    for steps in (10, 20):
        speeds = commanded(hovering(400.0), command, 0.05 / steps, steps, scheme).final.aux
        errors.append(np.abs(np.asarray(speeds) - wanted).max())
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


def test_a_controller_of_lift_commands_the_speeds_that_deliver_it():
    lift = jq.control.Lift(jnp.asarray(9.0), jnp.array([0.1, -0.05, 0.01]))
    inner = jq.Controller(lambda start, params: jnp.zeros(2), lambda t, s, m, p, u: (lift, m + 1))
    outer = rotors.command_speeds(inner, QUAD, max=12.0)
    update = jax.jit(outer.update)
    command, memory = update(jnp.asarray(0.0), hovering(), jnp.zeros(2), None, None)
    load = WRENCH(QUAD, command, LEVEL)
    np.testing.assert_allclose(load.force, [0, 0, 9.0], atol=1e-14)
    np.testing.assert_allclose(load.torque, lift.torque, atol=1e-15)
    np.testing.assert_array_equal(memory, np.ones(2))


def test_bad_input_of_lagging_rotors_is_named():
    plant = rotors.lag(QUAD, 0.05)
    with pytest.raises(TypeError, match=r"^rotors.lag: wanted a controller or inputs"):
        plant(0.0, hovering(), None)
    with pytest.raises(ValueError, match=r"^state.aux: wanted shape \(4,\), got \(3,\)"):
        plant(0.0, hovering()._replace(aux=jnp.zeros(3)), None, jnp.zeros(4))
    with pytest.raises(ValueError, match=r"^command: wanted shape \(4,\), got \(3,\)"):
        plant(0.0, hovering(), None, jnp.zeros(3))
    wrong = jq.Controller(lambda start, params: (), lambda t, s, m, p, u: (jnp.zeros(3), m))
    with pytest.raises(TypeError, match=r"^controller.update.*wanted a control.Lift"):
        rotors.command_speeds(wrong, QUAD).update(0.0, hovering(), (), None, None)


@pytest.mark.parametrize("unit", [2.0**-66, 2.0**-40, 2.0**66])
def test_the_unit_of_length_changes_no_thrust_in_single_precision(unit):
    """Arms, torque and the ratio of drag to thrust in other units, down to 1e-20 m."""
    craft, torque = cast(np.float32), np.float32([0.1, -0.2, 0.01])
    other = craft._replace(positions=unit * craft.positions, drag=unit * craft.drag)
    allocate = jax.jit(rotors.allocate)
    wanted = allocate(craft, np.float32(12.0), torque)
    got = allocate(other, np.float32(12.0), np.float32(unit) * torque)
    assert np.all(np.isfinite(wanted))
    np.testing.assert_array_equal(got, wanted)


def test_axes_in_half_precision_are_said_to_be_so():
    axes = jnp.asarray(HEXA.axes, jnp.bfloat16)
    with pytest.raises(ValueError, match=r"^rotors.axes: wanted a unit .* in bfloat16, which"):
        rotors.allocate(cast(jnp.bfloat16, HEXA)._replace(axes=axes), 1.0, np.zeros(3))


@pytest.mark.parametrize("name", ["load", "Load"])
def test_the_load_in_body_axes_is_answered_by_the_wrench_in_world_axes(name):
    with pytest.raises(AttributeError, match=r"[wW]rench.* whose force is in WORLD axes$"):
        getattr(rotors, name)


def test_bounds_by_their_old_names_work_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"^allocate: lowest is now called min$"):
        got = rotors.allocate(QUAD, 10.0, np.array([0.0, 0.0, 0.5]), lowest=1.0)
    wanted = rotors.allocate(QUAD, 10.0, np.array([0.0, 0.0, 0.5]), min=1.0)
    np.testing.assert_array_equal(got, wanted)
    assert got.min() == 1.0
