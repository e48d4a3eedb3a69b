"""Simulate one spacecraft with Basilisk and with jaxquat, and compare motion and speed.

    pip install bsk && python benchmarks/basilisk.py [--many 1000] [--only components] [--write]

A spacecraft with products of inertia and four reaction wheels of limited torque turns from a tumble
to rest in a low orbit, under gravity gradient and the law of Basilisk's ``mrpFeedback``. A command
lasts one step, in both. Both take classical Runge-Kutta steps of the same length: Basilisk of the
modified Rodrigues parameters, jaxquat (``rkmk4``) of the rotation vector. So the difference between
them shows the order of both, and what is left of it at short steps would be a difference of models.

Basilisk's inertia of the hub contains the wheels. The body of jaxquat does not contain their
moments about their own axes; the last row shows what happens if one forgets this. Basilisk
simulates one spacecraft at a time here, and the time for many is that of one, times their number.

A second table compares components, each on a spacecraft that tumbles freely in empty space.
A third compares light, density and field of the surroundings at places, without a spacecraft.
``--write`` puts the tables into docs/validation.md.
"""

import argparse
import datetime
import functools
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from pages import put
from timing import best

import jaxquat as jq

try:
    from Basilisk.architecture import messaging, sysModel  # pyright: ignore[reportMissingImports]
    from Basilisk.fswAlgorithms import (  # pyright: ignore[reportMissingImports]
        attTrackingError,
        dipoleMapping,
        inertial3D,
        mrpFeedback,
        mtbMomentumManagementSimple,
        rwMotorTorque,
        tamComm,
        torque2Dipole,
    )
    from Basilisk.simulation import (  # pyright: ignore[reportMissingImports]
        GravityGradientEffector,
        MtbEffector,
        eclipse,
        exponentialAtmosphere,
        hingedRigidBodyStateEffector,
        linearSpringMassDamper,
        magneticFieldCenteredDipole,
        magnetometer,
        reactionWheelStateEffector,
        simpleNav,
        spacecraft,
        svIntegrators,
        thrusterDynamicEffector,
        vscmgStateEffector,
    )
    from Basilisk.utilities import (  # pyright: ignore[reportMissingImports]
        SimulationBaseClass,
        macros,
        pythonVariableLogger,
        simIncludeGravBody,
        simIncludeRW,
    )
except ImportError as error:
    raise SystemExit(f"this benchmark needs Basilisk (pip install bsk): {error}") from None

jax.config.update("jax_enable_x64", True)

PAGE = Path(__file__).parents[1] / "docs" / "validation.md"
DURATION, STEPS = 300.0, (0.5, 0.2, 0.1, 0.05)  # s

MU, MASS = 3.986004418e14, 750.0  # m^3/s^2, kg
INERTIA = np.array([[900.0, 12.0, -8.0], [12.0, 800.0, 15.0], [-8.0, 15.0, 600.0]])  # kg m^2
AXES = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [3**-0.5] * 3])
SPIN_INERTIA, MOTOR_LIMIT = 0.16, 0.2  # kg m^2, N m
GAINS = 3.5, 30.0  # N m, N m s

MRP, RATE = np.array([0.1, 0.2, -0.3]), np.array([0.01, -0.02, 0.03])  # rad/s
SPINS = np.array([50.0, -30.0, 20.0, 10.0])  # rad/s
POSITION, VELOCITY = np.array([7.0e6, 1.0e5, -2.0e5]), np.array([-100.0, 7200.0, 2000.0])  # m, m/s


def column(x):
    """Return a vector as Basilisk takes it."""
    return np.reshape(x, (3, 1)).tolist()


def tumbling(dt, inertia=INERTIA, position=POSITION, velocity=VELOCITY, rate=RATE):
    """Return a simulation of Basilisk and its spacecraft, before any component is added."""
    sim = SimulationBaseClass.SimBaseClass()
    sim.CreateNewProcess("all").addTask(sim.CreateNewTask("task", macros.sec2nano(dt)))
    craft = spacecraft.Spacecraft()
    craft.ModelTag = "craft"
    craft.setIntegrator(svIntegrators.svIntegratorRK4(craft))
    craft.hub.mHub, craft.hub.r_BcB_B, craft.hub.IHubPntBc_B = MASS, column([0.0] * 3), inertia
    craft.hub.r_CN_NInit, craft.hub.v_CN_NInit = column(position), column(velocity)
    craft.hub.sigma_BNInit, craft.hub.omega_BN_BInit = column(MRP), column(rate)
    return sim, craft


def executed(sim, models, duration):
    """Run the models in this order, and return the seconds that it took."""
    for priority, model in enumerate(models):
        sim.AddModelToTask("task", model, len(models) - priority)  # the largest runs first
    sim.InitializeSimulation()
    sim.ConfigureStopTime(macros.sec2nano(duration))
    began = time.perf_counter()
    sim.ExecuteSimulation()
    return time.perf_counter() - began


def basilisk(dt):
    """Return attitudes, rates, positions and wheel speeds of Basilisk, and the seconds it took."""
    sim, craft = tumbling(dt)
    bodies = simIncludeGravBody.gravBodyFactory()
    earth = bodies.createEarth()
    earth.isCentralBody, earth.mu = True, MU
    bodies.addBodiesTo(craft)
    gradient = GravityGradientEffector.GravityGradientEffector()
    gradient.addPlanetName(earth.planetName)
    craft.addDynamicEffector(gradient)
    factory = simIncludeRW.rwFactory()
    wheels = reactionWheelStateEffector.ReactionWheelStateEffector()
    for axis, spin in zip(AXES, SPINS, strict=True):
        factory.create(
            "custom", axis.tolist(), Omega=spin * 30 / np.pi, Js=SPIN_INERTIA,
            u_max=MOTOR_LIMIT, maxMomentum=1e3, RWModel=messaging.BalancedWheels,
        )  # fmt: skip
    factory.addToSpacecraft("craft", wheels, craft)

    navigation, target = simpleNav.SimpleNav(), inertial3D.inertial3D()
    target.sigma_R0N = [0.0, 0.0, 0.0]
    navigation.scStateInMsg.subscribeTo(craft.scStateOutMsg)
    error = attTrackingError.attTrackingError()
    error.attNavInMsg.subscribeTo(navigation.attOutMsg)
    error.attRefInMsg.subscribeTo(target.attRefOutMsg)
    law, motors = mrpFeedback.mrpFeedback(), rwMotorTorque.rwMotorTorque()
    (law.K, law.P), law.Ki, law.integralLimit = GAINS, -1.0, 0.1
    payload = messaging.VehicleConfigMsgPayload(ISCPntB_B=INERTIA.ravel().tolist())
    vehicle, configuration = messaging.VehicleConfigMsg().write(payload), factory.getConfigMessage()
    law.guidInMsg.subscribeTo(error.attGuidOutMsg)
    law.vehConfigInMsg.subscribeTo(vehicle)
    law.rwParamsInMsg.subscribeTo(configuration)
    law.rwSpeedsInMsg.subscribeTo(wheels.rwSpeedOutMsg)
    motors.controlAxes_B = np.eye(3).ravel().tolist()
    motors.vehControlInMsg.subscribeTo(law.cmdTorqueOutMsg)
    motors.rwParamsInMsg.subscribeTo(configuration)
    wheels.rwMotorCmdInMsg.subscribeTo(motors.rwMotorTorqueOutMsg)
    states, speeds = craft.scStateOutMsg.recorder(), wheels.rwSpeedOutMsg.recorder()
    order = wheels, craft, gradient, navigation, target, error, law, motors, states, speeds
    seconds = executed(sim, order, DURATION)
    q = jax.vmap(jq.quaternion.from_mrp)(jnp.asarray(states.sigma_BN))
    spins = np.asarray(speeds.wheelSpeeds)[:, : len(AXES)]
    return q, np.asarray(states.omega_BN_B), np.asarray(states.r_BN_N), spins, seconds


TOTAL = jq.Body(jnp.asarray(INERTIA), mass=MASS)
BODY = jq.Body(jnp.asarray(INERTIA - SPIN_INERTIA * AXES.T @ AXES), mass=MASS)


def wheels(t, state, params, command):
    """Return the torque of the wheels, and the rate of their momenta, which are the aux states."""
    motor = jnp.clip(command, -MOTOR_LIMIT, MOTOR_LIMIT)
    return jq.actuators.wheel_torque(jnp.asarray(AXES), state, state.aux, motor), motor


# The gravity gradient acts on the wheels, too.
gravity = jq.torques.total(jq.forces.point_mass(TOTAL, MU), jq.torques.gravity_gradient(TOTAL, MU))
torque = jq.torques.total(wheels, gravity)


def update(t, state, memory, params, value):
    """Command the motors by the law of ``mrpFeedback`` without its integral."""
    turn = jq.quaternion.to_mrp(state.q)
    return jq.actuators.allocate(
        jnp.asarray(AXES), -GAINS[0] * turn - GAINS[1] * state.omega
    ), memory


def start(omega=RATE):
    """Return the state in which the spacecraft tumbles."""
    momenta = SPIN_INERTIA * (jnp.asarray(SPINS) + jnp.asarray(AXES) @ omega)
    q = jq.quaternion.from_mrp(jnp.asarray(MRP))
    where = {"position": jnp.asarray(POSITION), "velocity": jnp.asarray(VELOCITY)}
    return jq.State(q, jnp.asarray(omega), momenta, **where)


def fly(dt, save_every=1, body=BODY):
    """Return the function of a start that flies."""
    controller = jq.Controller(lambda start, params: (), update)
    grid = jq.grid(0.0, dt, round(DURATION / dt), save_every=save_every)
    return lambda begin: jq.rollout(jq.rkmk4, body, torque, begin, grid, controller=controller)


def differences():
    """Return the rows of the table of differences."""
    rows = [
        "| step [s] | attitude [rad] | rate [rad/s] | position [m] | wheels [rad/s] |",
        "|---|---|---|---|---|",
    ]
    for dt, body in (*((dt, BODY) for dt in STEPS), (0.1, TOTAL)):
        q, omega, position, spins, _ = basilisk(dt)
        path = jax.jit(fly(dt, body=body))(start())
        state = path.state
        off = jax.vmap(jq.quaternion.distance)(q, state.q)
        ours = state.aux / SPIN_INERTIA - state.omega @ AXES.T
        pairs = (omega, state.omega), (position, state.position), (spins, ours)
        cells = [float(off.max()), *(float(np.abs(a - b).max()) for a, b in pairs)]
        name = f"{dt:g}" if body is BODY else f"{dt:g}, wheels in the body too"
        rows.append(f"| {name} | {' | '.join(f'{cell:.1e}' for cell in cells)} |")
    return rows


def speeds(many):
    """Return the rows of the table of times."""
    dt = 0.1
    theirs = min(basilisk(dt)[-1] for _ in range(5))
    one = best(jax.jit(fly(dt, save_every=3000)), start())
    rates = RATE + 1e-3 * np.random.default_rng(0).normal(size=(many, 3))
    starts = jax.vmap(start)(rates)
    all_of_them = best(jax.jit(jax.vmap(fly(dt, save_every=3000))), starts)
    return [
        "| spacecraft | Basilisk [s] | jaxquat [s] | ratio |",
        "|---|---|---|---|",
        f"| 1 | {theirs:.3g} | {one:.3g} | {theirs / one:.0f} |",
        f"| {many} | {many * theirs:.3g} | {all_of_them:.3g} | {many * theirs / all_of_them:.0f} |",
    ]


STILL, SPACE = np.zeros(3), (0.02, 60.0)  # step and duration of a component [s]
FRICTION = 0.02, 1e-4, 0.03, 5.0  # N m, N m s, N m, rad/s
MOTORS, FRICTION_SPINS = np.array([0.1, -0.2, 0.0, 0.0]), np.array([0.0, 0.0, 30.0, -20.0])


def wheels_of_basilisk(spins, motors, options, unbalanced=(0.0, 0.0)):
    """Return states, wheel speeds and directions of imbalance for wheels with these options."""
    dt, duration = SPACE
    sim, craft = tumbling(dt, position=STILL, velocity=STILL)
    factory, normals = simIncludeRW.rwFactory(), []
    wheels = reactionWheelStateEffector.ReactionWheelStateEffector()
    for axis, spin, own in zip(AXES, spins, options, strict=True):
        wheel = factory.create(
            "custom", axis.tolist(), Omega=spin * 30 / np.pi, Js=SPIN_INERTIA, u_max=1.0,
            maxMomentum=1e3, **own,
        )  # fmt: skip
        wheel.U_s, wheel.U_d = unbalanced
        normals.append(np.reshape(wheel.w2Hat0_B, 3))
    factory.addToSpacecraft("craft", wheels, craft)
    payload = messaging.ArrayMotorTorqueMsgPayload(motorTorque=motors.tolist())
    command = messaging.ArrayMotorTorqueMsg().write(payload)
    wheels.rwMotorCmdInMsg.subscribeTo(command)
    states, speeds = craft.scStateOutMsg.recorder(), wheels.rwSpeedOutMsg.recorder()
    executed(sim, (wheels, craft, states, speeds), duration)
    return states, np.asarray(speeds.wheelSpeeds)[:, : len(AXES)], jnp.asarray(normals)


def compared(states, theirs, body, torque, aux, ours, scheme=jq.rkmk4, sample_every=1, **held):
    """Return the largest differences: attitude, rate, position, and ``ours(state) - theirs``.

    The last number is what the component does: the rates differ by it from those without the
    component, for which the params of the torque are 0 and not 1.
    """
    q = jax.vmap(jq.quaternion.from_mrp)(jnp.asarray(states.sigma_BN))
    moving = np.asarray(states.r_BN_N), np.asarray(states.v_BN_N)
    begin = jq.State(q[0], jnp.asarray(states.omega_BN_B)[0], aux, *(x[0] for x in moving))
    grid = jq.grid(0.0, SPACE[0], round(SPACE[1] / SPACE[0]), sample_every=sample_every)
    run = jax.jit(lambda on: jq.rollout(scheme, body, torque, begin, grid, on, **held).state)
    state, without = run(1.0), run(0.0)
    pairs = (
        (states.omega_BN_B, state.omega),
        (moving[0], state.position),
        (theirs, ours(state)),
        (without.omega, state.omega),
    )
    off = jax.vmap(jq.quaternion.distance)(q, state.q)
    return [float(off.max()), *(float(np.abs(np.asarray(a) - b).max()) for a, b in pairs)]


def speeds_of(momenta, omega):
    """Return the speeds of the wheels relative to the body."""
    return momenta / SPIN_INERTIA - omega @ jnp.asarray(AXES).T


def friction():
    """Two wheels start from rest against Stribeck friction; two slow down."""
    names = ("fCoulomb", "cViscous", "fStatic", "betaStatic")
    smooth = {"useRWfriction": True, **dict(zip(names, FRICTION, strict=True))}
    jumps = {**smooth, "betaStatic": -1.0}
    states, theirs, _ = wheels_of_basilisk(FRICTION_SPINS, MOTORS, [smooth] * 2 + [jumps] * 2)

    def torque(t, state, on):
        speed = speeds_of(state.aux, state.omega)
        rubbing = jq.actuators.wheel_friction(speed[:2], *FRICTION)
        turning = jq.actuators.wheel_friction(speed[2:], *FRICTION[:2])
        motor = jnp.asarray(MOTORS) - on * jnp.concatenate([rubbing, turning])
        return jq.actuators.wheel_torque(jnp.asarray(AXES), state, state.aux, motor), motor

    momenta = SPIN_INERTIA * jnp.asarray(FRICTION_SPINS + AXES @ RATE)
    return compared(
        states, theirs, BODY, torque, momenta, lambda state: speeds_of(state.aux, state.omega)
    )


UNBALANCED = 2e-3, 3e-3  # kg m, kg m^2: a thousand times those of a wheel
PLACES = 0.5 * AXES[[1, 2, 0, 3]]  # m


def imbalance():
    """Four unbalanced wheels off the centre of mass speed up, and the angles are states."""
    model = messaging.JitterSimple
    options = [{"RWModel": model, "rWB_B": place.tolist()} for place in PLACES]
    states, theirs, normals = wheels_of_basilisk(0.3 * SPINS, MOTORS, options, UNBALANCED)

    def torque(t, state, on):
        angle, momenta = state.aux
        axes, speed, motor = jnp.asarray(AXES), speeds_of(momenta, state.omega), jnp.asarray(MOTORS)
        shake = jq.actuators.wheel_imbalance(
            axes, normals, jnp.asarray(PLACES), state, angle, speed, *UNBALANCED
        )
        tau = jq.actuators.wheel_torque(axes, state, momenta, motor)
        return jq.Wrench(tau + on * shake.torque, on * shake.force), (speed, motor)

    begin = jnp.zeros(4), SPIN_INERTIA * jnp.asarray(0.3 * SPINS + AXES @ RATE)
    return compared(
        states, theirs, BODY, torque, begin, lambda state: speeds_of(state.aux[1], state.omega)
    )


TANKS = jq.dynamics.slosh_masses(
    mass=np.array([60.0, 40.0]),
    position=np.array([[0.6, -0.2, 0.1], [-0.4, 0.5, -0.3]]),
    axis=np.array([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0]]),
    stiffness=np.array([30.0, 50.0]),
    damping=np.array([2.0, 0.0]),
)
DISPLACED = np.array([0.1, -0.05]), np.array([0.02, 0.05])  # m, m/s


def recorded(craft, name):
    """Return what records the states NAME0 and NAME1 of a spacecraft of Basilisk."""
    shown = [
        lambda t, i=i: craft.dynManager.getStateObject(f"{name}{i}").getState() for i in (0, 1)
    ]
    return pythonVariableLogger.PythonVariableLogger({f"{name}{i}": shown[i] for i in (0, 1)})


def carrying(body, appendages):
    """Return the torque and force that appendages exert, times the params, and their rates."""

    def torque(t, state, on):
        x, rate = state.aux
        acting, acceleration = jq.dynamics.coupled(body, appendages, state, x, rate, jnp.zeros(3))
        return jax.tree.map(lambda part: on * part, acting), (rate, acceleration)

    return torque


def slosh():
    """Two masses slide along axes of the body, one with damping."""
    sim, craft = tumbling(SPACE[0], position=STILL, velocity=STILL)
    tanks = []
    for i in range(2):
        tank = linearSpringMassDamper.LinearSpringMassDamper()
        tank.massInit, tank.k = float(TANKS.mass[i]), float(TANKS.stiffness[i])
        tank.c = float(TANKS.damping[i])
        tank.r_PB_B = column(TANKS.position[i])
        tank.pHat_B = column(TANKS.translation[i] / TANKS.mass[i])
        tank.rhoInit, tank.rhoDotInit = (float(x[i]) for x in DISPLACED)
        tank.nameOfRhoState, tank.nameOfRhoDotState = f"rho{i}", f"rate{i}"
        tank.nameOfMassState = f"mass{i}"
        craft.addStateEffector(tank)
        tanks.append(tank)
    states, log = craft.scStateOutMsg.recorder(), recorded(craft, "rho")
    executed(sim, (craft, states, log), SPACE[1])
    theirs = np.stack([np.reshape(log.rho0, -1), np.reshape(log.rho1, -1)], axis=1)
    begin, torque = tuple(jnp.asarray(x) for x in DISPLACED), carrying(TOTAL, TANKS)
    return compared(states, theirs, TOTAL, torque, begin, lambda state: state.aux[0])


PANEL, CENTRE, HINGE = 20.0, 1.5, 1.2  # kg, m from the hinge, m from the centre of the hub
PANEL_INERTIA = np.diag([12.0, 5.0, 15.0])  # kg m^2, its axes: to the hinge, the hinge's, across
SPRING = 40.0, 2.0  # N m, N m s


def panels(angle):
    """Two rigid panels on hinges swing by this angle [rad] and by half of it, from rest.

    Here they are two modes, so they differ from Basilisk's panels by the square of the angle.
    """
    sim, craft = tumbling(SPACE[0], position=STILL, velocity=STILL, rate=STILL)
    about_hinge, inertia = PANEL_INERTIA[1, 1] + PANEL * CENTRE**2, INERTIA.copy()
    translation, rotation, begin = [], [], np.array([angle, -0.5 * angle])
    both = [hingedRigidBodyStateEffector.HingedRigidBodyStateEffector() for _ in range(2)]
    for i, side in enumerate((np.array([0.0, 1.0, 0.0]), np.array([0.0, -1.0, 0.0]))):
        axes = np.stack([-side, np.cross([0.0, 0.0, 1.0], -side), [0.0, 0.0, 1.0]])
        panel = both[i]
        panel.mass, panel.d, panel.IPntS_S = PANEL, CENTRE, PANEL_INERTIA.tolist()
        (panel.k, panel.c), panel.thetaInit = SPRING, begin[i]
        panel.r_HB_B, panel.dcm_HB = column(HINGE * side), axes.tolist()
        panel.nameOfThetaState, panel.nameOfThetaDotState = f"theta{i}", f"thetaDot{i}"
        craft.addStateEffector(panel)
        where, moved = (HINGE + CENTRE) * side, CENTRE * axes[2]  # m, m per rad
        own = axes.T @ PANEL_INERTIA @ axes
        inertia += own + PANEL * (where @ where * np.eye(3) - np.outer(where, where))
        translation.append(PANEL * moved)
        rotation.append(own @ axes[1] + PANEL * np.cross(where, moved))
    root = np.sqrt(about_hinge)
    frequency = np.sqrt(SPRING[0]) / root * np.ones(2)
    modes = jq.dynamics.flexible_modes(
        frequency,
        SPRING[1] / (2 * about_hinge * frequency),
        np.array(translation) / root,
        np.array(rotation) / root,
    )
    states, theirs = craft.scStateOutMsg.recorder(), recorded(craft, "theta")
    executed(sim, (craft, states, theirs), SPACE[1])
    theirs = np.stack([np.reshape(theirs.theta0, -1), np.reshape(theirs.theta1, -1)], axis=1)
    body = jq.Body(jnp.asarray(inertia), mass=MASS + 2 * PANEL)
    return compared(
        states, theirs, body, carrying(body, modes), (jnp.asarray(begin * root), jnp.zeros(2)),
        lambda state: state.aux[0] / root,
    )  # fmt: skip


GIMBALS = np.array([[1.0, 0, 1], [0, 1, 1], [-1, 0, 1], [0, -1, 1]]) / np.sqrt(2.0)
ROTORS = np.array([[0.0, 1, 0], [-1, 0, 0], [0, -1, 0], [1, 0, 0]])
STORED, GIMBAL_INERTIA = 5.0, 0.3  # N m s, kg m^2
GIMBAL_MOTORS = np.array([0.01, -0.02, 0.005, 0.01])  # N m


def cmgs():
    """Four CMGs in a pyramid, whose gimbals turn by motors and by the rate of the body.

    The speed of Basilisk's rotors changes with the rate of the body. A tiny spin inertia keeps
    their momentum constant; the differences are in proportion to it.
    """
    sim, craft = tumbling(SPACE[0], position=STILL, velocity=STILL)
    device, spin, across = vscmgStateEffector.VSCMGStateEffector(), 1e-10, 0.2  # kg m^2
    for gimbal, rotor in zip(GIMBALS, ROTORS, strict=True):
        gyro = vscmgStateEffector.VSCMGConfigMsgPayload()
        gyro.ggHat_B, gyro.gsHat0_B = column(gimbal), column(rotor)
        gyro.gtHat0_B, gyro.rGB_B = column(np.cross(gimbal, rotor)), column(STILL)
        gyro.IW1 = gyro.IW2 = gyro.IW3 = spin
        gyro.IG1 = gyro.IG2 = across - spin
        gyro.IG3, gyro.Omega, gyro.Omega_max = GIMBAL_INERTIA - spin, STORED / spin, 1e12
        gyro.massW = gyro.massG = 1e-3
        gyro.u_s_max = gyro.u_s_min = gyro.u_g_max = gyro.u_g_min = -1.0  # no limits
        gyro.wheelLinearFrictionRatio = gyro.gimbalLinearFrictionRatio = -1.0
        device.AddVSCMG(gyro)
    craft.addStateEffector(device)
    payload = messaging.VSCMGArrayTorqueMsgPayload(gimbalTorque=GIMBAL_MOTORS.tolist())
    command = messaging.VSCMGArrayTorqueMsg().write(payload)
    device.cmdsInMsg.subscribeTo(command)
    states, angles = craft.scStateOutMsg.recorder(), device.speedOutMsg.recorder()
    executed(sim, (craft, device, states, angles), SPACE[1])  # the device records angles late
    shape = across * (4 * np.eye(3) - GIMBALS.T @ GIMBALS)  # without moments about the gimbals
    g, rotors = jnp.asarray(GIMBALS), jnp.asarray(ROTORS)

    def torque(t, state, on):
        x, momenta = state.aux
        rate = momenta / GIMBAL_INERTIA - g @ state.omega
        axes = jnp.cos(x)[:, None] * rotors + jnp.sin(x)[:, None] * jnp.cross(g, rotors)
        towards, stored = jnp.cross(g, axes), jnp.full(4, STORED)
        motor = jnp.asarray(GIMBAL_MOTORS) + on * STORED * towards @ state.omega
        tau = jq.actuators.wheel_torque(axes, state, stored, 0.0 * stored)
        tau = tau - (stored * rate) @ towards
        return on * tau + jq.actuators.wheel_torque(g, state, momenta, motor), (rate, motor)

    begin = jnp.zeros(4), GIMBAL_INERTIA * jnp.asarray(GIMBALS @ RATE)
    body = jq.Body(jnp.asarray(INERTIA + shape), mass=MASS)
    theirs = np.asarray(angles.gimbalAngles)[:, :4]
    return compared(states, theirs, body, torque, begin, lambda state: state.aux[0])


THRUST, INTERVAL, SHORTEST = 5.0, 2.0, 0.03  # N, s, s
PLUMES = np.concatenate([np.eye(3), -np.eye(3)])[[1, 2, 0, 4, 5, 3]]
NOZZLES = np.concatenate([np.eye(3), np.eye(3)])  # m
# Basilisk's thrusters switch at the ends of its steps. Those of 0.02 s are too short to be fired.
ON_TIMES = 0.02 * np.random.default_rng(1).choice([0, 1, 2, 7, 40, 90], size=(30, 6))  # s


class Commands(sysModel.SysModel):
    """Writes the on-times of each interval when it begins."""

    def __init__(self):
        super().__init__()
        self.message = messaging.THRArrayOnTimeCmdMsg()

    def UpdateState(self, now):  # noqa: N802
        """Write them, at the nanosecond ``now``."""
        number, late = divmod(now, macros.sec2nano(INTERVAL))
        if late == 0 and number < len(ON_TIMES):
            # Rounding would decide on which side of the end of a step a pulse ends.
            wanted = (ON_TIMES[number] + 1e-12).tolist()
            payload = messaging.THRArrayOnTimeCmdMsgPayload(OnTimeRequest=wanted)
            self.message.write(payload, now, self.moduleID)


def thrusters(decay, longer=0.0):
    """Six thrusters fire other pulses in each interval; their thrust decays linearly."""
    sim, craft = tumbling(SPACE[0], position=STILL, velocity=STILL)
    device, commands = thrusterDynamicEffector.ThrusterDynamicEffector(), Commands()
    for place, plume in zip(NOZZLES, PLUMES, strict=True):
        thruster = thrusterDynamicEffector.THRSimConfig()
        thruster.thrLoc_B, thruster.thrDir_B = column(place), column(plume)
        thruster.MaxThrust, thruster.MinOnTime, thruster.updateOnly = THRUST, SHORTEST, True
        if decay:
            pair = thrusterDynamicEffector.THRTimePair()
            pair.TimeDelta, pair.ThrustFactor, pair.IspFactor = decay, 0.0, 1.0
            thruster.ThrusterOffRamp.push_back(pair)
        device.addThruster(thruster)
    device.cmdsInMsg.subscribeTo(commands.message)
    craft.addDynamicEffector(device)
    states = craft.scStateOutMsg.recorder()
    executed(sim, (craft, commands, device, states), SPACE[1])
    arms = jnp.cross(NOZZLES, PLUMES)

    def instants(t, state, on, command):
        began, widths = command
        end = began - t + widths
        return jnp.stack([end, jnp.where(widths > 0.0, end + decay, end)])

    def torque(t, state, on, command):
        (began, widths), (ended, decayed) = command
        falling = 1.0 - (t - began - widths) / decay if decay else 0.0
        level = jnp.where(ended, jnp.where(decayed, 0.0, falling), 1.0)
        forces = on * THRUST * level
        push = jq.quaternion.rotate(state.q, forces @ jnp.asarray(PLUMES))
        return jq.Wrench(forces @ arms, push)

    begins, wanted = INTERVAL * jnp.arange(30.0), THRUST * jnp.asarray(ON_TIMES) / INTERVAL
    widths = jq.actuators.pulse_widths(wanted, THRUST, INTERVAL, SHORTEST)
    widths = jnp.where(widths > 0.0, widths + longer, 0.0)
    attitude, rate, position, _, change = compared(
        states, 0.0, TOTAL, torque, (), lambda state: 0.0,
        jq.schemes.split_steps(jq.rkmk4, instants), inputs=(begins, widths),
        sample_every=round(INTERVAL / SPACE[0]),
    )  # fmt: skip
    return attitude, rate, position, None, change


RODS, DIPOLES = AXES[[3, 1, 2, 0]], np.array([300.0, 60.0, 200.0, 400.0])  # A m^2
FIELD, UNLOAD = np.array([1e-5, -2e-5, 3e-5]), 5e-4  # T, in world axes; 1/s


def unloading():
    """Four rods in the field of the Earth take momentum out of wheels, as far as they can."""
    sim, craft = tumbling(SPACE[0], position=STILL, velocity=STILL)
    factory, device = simIncludeRW.rwFactory(), MtbEffector.MtbEffector()
    wheels = reactionWheelStateEffector.ReactionWheelStateEffector()
    for axis, spin in zip(AXES, SPINS, strict=True):
        factory.create(
            "custom", axis.tolist(), Omega=spin * 30 / np.pi, Js=SPIN_INERTIA, u_max=1.0,
            maxMomentum=1e3, RWModel=messaging.BalancedWheels,
        )  # fmt: skip
    factory.addToSpacecraft("craft", wheels, craft)
    motors = messaging.ArrayMotorTorqueMsg().write(
        messaging.ArrayMotorTorqueMsgPayload(motorTorque=MOTORS.tolist())
    )
    wheels.rwMotorCmdInMsg.subscribeTo(motors)
    field = messaging.MagneticFieldMsg().write(
        messaging.MagneticFieldMsgPayload(magField_N=FIELD.tolist())
    )
    rods = messaging.MTBArrayConfigMsg().write(
        messaging.MTBArrayConfigMsgPayload(
            numMTB=4, GtMatrix_B=RODS.T.ravel().tolist(), maxMtbDipoles=DIPOLES.tolist()
        )
    )
    sensor, reading = magnetometer.Magnetometer(), tamComm.tamComm()
    law = mtbMomentumManagementSimple.mtbMomentumManagementSimple()
    dipole, mapping = torque2Dipole.torque2Dipole(), dipoleMapping.dipoleMapping()
    sensor.scaleFactor, sensor.senNoiseStd = 1.0, [0.0] * 3
    sensor.stateInMsg.subscribeTo(craft.scStateOutMsg)
    sensor.magInMsg.subscribeTo(field)
    configuration, law.Kp = factory.getConfigMessage(), UNLOAD
    law.rwParamsInMsg.subscribeTo(configuration)
    law.rwSpeedsInMsg.subscribeTo(wheels.rwSpeedOutMsg)
    dipole.tauRequestInMsg.subscribeTo(law.tauMtbRequestOutMsg)
    reading.dcm_BS = np.eye(3).ravel().tolist()
    reading.tamInMsg.subscribeTo(sensor.tamDataOutMsg)
    dipole.tamSensorBodyInMsg.subscribeTo(reading.tamOutMsg)
    mapping.steeringMatrix = np.linalg.pinv(RODS.T).ravel().tolist()
    mapping.mtbArrayConfigParamsInMsg.subscribeTo(rods)
    mapping.dipoleRequestBodyInMsg.subscribeTo(dipole.dipoleRequestOutMsg)
    device.mtbParamsInMsg.subscribeTo(rods)
    device.magInMsg.subscribeTo(field)
    device.mtbCmdInMsg.subscribeTo(mapping.dipoleRequestMtbOutMsg)
    craft.addDynamicEffector(device)
    states, speeds = craft.scStateOutMsg.recorder(), wheels.rwSpeedOutMsg.recorder()
    chain = wheels, craft, sensor, reading, law, dipole, mapping, device, states, speeds
    executed(sim, chain, SPACE[1])
    theirs, axes = np.asarray(speeds.wheelSpeeds)[:, : len(AXES)], jnp.asarray(AXES)

    def seen(state):
        return jq.quaternion.rotate_inverse(state.q, jnp.asarray(FIELD))

    def update(t, state, memory, on, value):
        stored = axes.T @ (SPIN_INERTIA * speeds_of(state.aux, state.omega))
        wanted = jq.actuators.magnetorquer_dipoles(RODS, -UNLOAD * stored, seen(state))
        return jnp.clip(wanted, -DIPOLES, DIPOLES), memory

    def torque(t, state, on, dipoles):
        turn = jnp.cross(on * dipoles @ jnp.asarray(RODS), seen(state))
        motor = jnp.asarray(MOTORS)
        return turn + jq.actuators.wheel_torque(axes, state, state.aux, motor), motor

    return compared(
        states, theirs, BODY, torque, SPIN_INERTIA * jnp.asarray(SPINS + AXES @ RATE),
        lambda state: speeds_of(state.aux, state.omega),
        controller=jq.Controller(lambda start, on: (), update),
    )  # fmt: skip


def components():
    """Return the rows of the table of components."""
    rows = [
        "| component | attitude [rad] | rate [rad/s] | position [m] | its own states "
        "| changes the rate by [rad/s] |",
        "|---|---|---|---|---|---|",
    ]
    named = (
        ("friction of wheels [rad/s]", friction),
        ("imbalance of wheels [rad/s]", imbalance),
        ("CMGs [rad]", cmgs),
        ("slosh masses [m]", slosh),
        ("panels, from 0.01 rad [rad]", lambda: panels(0.01)),
        ("panels, from 0.001 rad [rad]", lambda: panels(0.001)),
        ("thrusters whose thrust decays", functools.partial(thrusters, 0.12)),
        ("thrusters whose thrust jumps", functools.partial(thrusters, 0.0)),
        ("the same, a sixth of a step longer", functools.partial(thrusters, 0.0, SPACE[0] / 6)),
        ("magnetorquers and wheels [rad/s]", unloading),
    )
    for name, difference in named:
        cells = ("" if cell is None else f"{cell:.1e}" for cell in difference())
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def environment_of_basilisk(places, sun, dipole, turn):
    """Return fraction of light, density and field [T] of Basilisk at places (N, 3) [m]."""
    sim = SimulationBaseClass.SimBaseClass()
    sim.CreateNewProcess("all").addTask(sim.CreateNewTask("task", macros.sec2nano(1.0)))
    shadow, air = eclipse.Eclipse(), exponentialAtmosphere.ExponentialAtmosphere()
    field = magneticFieldCenteredDipole.MagneticFieldCenteredDipole()
    still = messaging.SpicePlanetStateMsgPayload(PlanetName="earth", J20002Pfix=turn.tolist())
    star = messaging.SpicePlanetStateMsgPayload(PlanetName="sun", PositionVector=sun.tolist())
    planet = messaging.SpicePlanetStateMsg().write(still)
    sun_message = messaging.SpicePlanetStateMsg().write(star)
    shadow.sunInMsg.subscribeTo(sun_message)
    shadow.addPlanetToModel(planet)
    for model in (air, field):
        model.planetPosInMsg.subscribeTo(planet)
    air.planetRadius, air.scaleHeight, air.baseDensity = 6378137.0, 7249.0, 1.225
    field.planetRadius, (field.g11, field.h11, field.g10) = 6.3712e6, dipole.tolist()
    messages = []
    for place in places:
        message = messaging.SCStatesMsg()
        message.write(messaging.SCStatesMsgPayload(r_BN_N=place.tolist()))
        messages.append(message)
        for model in (shadow, air, field):
            model.addSpacecraftToModel(message)
    executed(sim, [shadow, air, field], 1.0)
    light = [x.read().shadowFactor for x in shadow.eclipseOutMsgs]
    densities = [x.read().neutralDensity for x in air.envOutMsgs]
    return (
        np.array(light),
        np.array(densities),
        np.array([x.read().magField_N for x in field.envOutMsgs]),
    )


def surroundings():
    """Return the rows of the table of light, density and field, on orbits of all inclinations."""
    epoch, tilt = datetime.datetime(2025, 1, 1), np.linspace(0.0, np.pi, 40)
    orbit = jax.vmap(
        lambda tilt, t: jq.environment.kepler_orbit(6.878e6, tilt, ascending_node=tilt)(t)[0]
    )
    places = np.concatenate([orbit(tilt, t + 0.0 * tilt) for t in np.arange(0.0, 5600.0, 20.0)])
    turn = np.asarray(jq.quaternion.to_matrix(jq.environment.earth_attitude(epoch, 0.0))).T
    dipole = 1e-9 * np.array([-1410.3, 4545.5, -29350.0])
    sun = 1.471e11 * np.asarray(jq.environment.sun_direction(epoch, 0.0))
    light, air, field = environment_of_basilisk(places, sun, dipole, turn)
    ours = jax.jit(lambda x: jq.environment.sunlight(epoch, 0.0, x))(places)
    edge, off = (light > 0.0) & (light < 1.0), np.abs(light - ours)
    radii = 6378137.0 + np.linspace(1.0, 24e3, 200)
    low = radii[:, None] * np.array([0.6, 0.8, 0.0])  # where the ellipsoid has this radius
    air = environment_of_basilisk(low, sun, dipole, turn)[1]
    ratio = jq.environment.density(low) / air
    ours = jax.jit(lambda x: jq.environment.magnetic_field(epoch, 0.0, x, 1))(places)
    rows = (
        ("`sunlight`", "`eclipse`, half-shadow", edge.sum(), f"{off[edge].max():.1e}"),
        ("`sunlight`", "`eclipse`, elsewhere", (~edge).sum(), f"{off[~edge].max():.1e}"),
        ("`density`, below 24 km", "`exponentialAtmosphere`", len(low),
         f"{np.abs(ratio - 1.0).max():.1e} of it"),
        ("`magnetic_field(..., degree=1)`", "`magneticFieldCenteredDipole`", len(places),
         f"{1e9 * np.abs(field - ours).max():.1e} nT"),
    )  # fmt: skip
    yield "| `jq.environment` | Basilisk | places | largest difference |"
    yield "|---|---|---|---|"
    yield from (f"| {name} | {module} | {count} | {text} |" for name, module, count, text in rows)


def main():
    """Compare, print, and write where asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--many", type=int, default=1000, help="spacecraft that fly together")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    tables = {
        "differences": differences, "components": components, "surroundings": surroundings,
        "speeds": lambda: speeds(options.many),
    }  # fmt: skip
    parser.add_argument("--only", choices=tables)
    options = parser.parse_args()
    for name in tables if options.only is None else {options.only} & {*tables}:
        text = "\n".join(tables[name]())
        print(f"{text}\n")
        if options.write:
            begin, end = f"<!-- Basilisk: {name} -->", f"<!-- end of {name} -->"
            put(PAGE, begin, end, text)


if __name__ == "__main__":
    main()
