"""Names of scipy, MJX, diffrax, other libraries and textbooks, and what to use instead."""

from __future__ import annotations

_STEPS = "jq.rollout(jq.rkmk4, body, torque, start, jq.grid(t0, dt, steps), params)"
_ADAPTIVE = "jq.interop.diffrax for adaptive steps, jq.rollout for equal ones"
_MATRIX = "jq.quaternion.from_matrix(matrix), jq.quaternion.to_matrix(q)"
_VECTOR = "jq.quaternion.exp(u) of a rotation vector [rad], jq.quaternion.log(q)"
_ANGLES = 'jq.euler.to_quaternion(angles, "ZYX"), jq.euler.from_quaternion(q, "ZYX"), in rad'
_XYZW = "jq.quaternion.from_xyzw(q), jq.quaternion.to_xyzw(q): scipy has the scalar last"
_ROTATION = "functions of arrays (w, x, y, z): jq.quaternion.exp, jq.quaternion.rotate, jq.euler"
_READ = "jq.recordings.read(path, columns), jq.recordings.read_ulog(path)"
_FREE = "jq.torques.zero"
_FILTERS = "jq.estimation.mekf, jq.estimation.ahrs"
_FIT = "jq.fit(loss, params, optimizer), jq.least_squares(residuals, params)"
_TABLE = "np.column_stack([path.t, path.state.q, path.state.omega])"
_FRAME = f'pandas.DataFrame({_TABLE}, columns=["t", *"wxyz", "omega_x", "omega_y", "omega_z"])'
_ENERGY = "jq.dynamics.energy(body, state)"
_PRODUCT = "jq.quaternion.multiply(p, q)"
_MOMENTUM = "jq.dynamics.momentum(body, state)"
_SETTLING = "jq.control.settling_time(t, error, within)"
_SLERP = "jq.quaternion.slerp(p, q, t)"
_SOLIDS = "jq.Body.sphere, jq.Body.ellipsoid, jq.Body.box, jq.Body.cylinder"
_WAHBA = "jq.quaternion.from_vectors(body, world, weights)"
_PREINTEGRATE = "jq.kinematics.preintegrate(gyro, accel, times)"
_SPLIT = "jq.no_squish, jq.symmetric_top"

INSTEAD: dict[str, dict[str, str]] = {
    "": {
        **dict.fromkeys(("integrate", "simulate", "odeint", "trajectory", "solve_ivp"), _STEPS),
        **dict.fromkeys(("propagate", "Simulator", "mj_step"), _STEPS),
        **dict.fromkeys(("solve", "diffeqsolve", "ODETerm", "Tsit5", "tsit5"), _ADAPTIVE),
        **dict.fromkeys(("RK45", "rk45", "DOP853", "PIDController"), _ADAPTIVE),
        **dict.fromkeys(("SaveAt", "saveat"), "save_every= and save= of jq.rollout"),
        **dict.fromkeys(("rk4", "RK4", "runge_kutta", "RKMK4", "integrators"), "jq.rkmk4"),
        "step": "jq.rkmk4(body, torque, t, state, dt, params): a scheme is its own step",
        **dict.fromkeys(("dopri", "dopri5", "Dopri5"), "jq.rkmk5"),
        **dict.fromkeys(("euler_step", "Euler"), "jq.lie_euler"),
        **dict.fromkeys(("midpoint", "Midpoint"), "jq.rkmk2, jq.lie_midpoint"),
        **dict.fromkeys(("implicit_midpoint", "ImplicitMidpoint"), "jq.lie_midpoint"),
        "semi_implicit_euler": _SPLIT,
        **dict.fromkeys(("verlet", "leapfrog", "velocity_verlet", "nosquish"), _SPLIT),
        "NO_SQUISH": _SPLIT,
        **dict.fromkeys(("rattle", "shake"), "jq.lgvi"),
        "predictor_corrector": "jq.pcdm1, jq.zhao",
        **dict.fromkeys(("Rotation", "Quaternion", "quat", "quaternions", "SO3"), _ROTATION),
        **dict.fromkeys(("rotation", "math", "lie", "Rot3"), _ROTATION),
        **dict.fromkeys(("SE3", "Pose3"), "jq.State with position and velocity"),
        **dict.fromkeys(("from_euler", "as_euler", "to_euler"), _ANGLES),
        **dict.fromkeys(("from_quat", "as_quat"), _XYZW),
        **dict.fromkeys(("from_matrix", "as_matrix"), _MATRIX),
        **dict.fromkeys(("from_rotvec", "as_rotvec"), _VECTOR),
        **dict.fromkeys(("slerp", "Slerp"), _SLERP),
        **dict.fromkeys(("skew", "hat"), "jq.so3.hat(v)"),
        **dict.fromkeys(("state", "Data", "make_data"), "jq.State"),
        **dict.fromkeys(("torque", "force", "scheme"), "jq.torques, jq.forces, jq.schemes"),
        **dict.fromkeys(("vmap", "batch"), "jax.vmap: jq.rollout takes one body"),
        "grad": "jax.grad, which goes through jq.rollout",
        **dict.fromkeys(("quat_mul", "quat_multiply"), _PRODUCT),
        **dict.fromkeys(("RigidBody", "Inertia", "Model", "Spacecraft"), "jq.Body(inertia)"),
        **dict.fromkeys(("sphere", "ellipsoid", "box", "cylinder"), _SOLIDS),
        **dict.fromkeys(("energy", "kinetic_energy"), _ENERGY),
        **dict.fromkeys(("momentum", "angular_momentum"), _MOMENTUM),
        **dict.fromkeys(("linearize", "linearise"), "jq.dynamics.linearize"),
        **dict.fromkeys(("lqr", "dlqr", "LQR"), "jq.control.lqr"),
        **dict.fromkeys(("pid", "PID"), "jq.control.pid"),
        **dict.fromkeys(("step_info", "stepinfo", "settling_time"), _SETTLING),
        **dict.fromkeys(("orbit", "Orbit"), "jq.State with position and velocity, jq.forces"),
        **dict.fromkeys(("Trajectory", "Solution"), "jq.Path, what jq.rollout returns"),
        **dict.fromkeys(("linspace", "time_grid"), "jq.grid(t0, dt, steps), jq.grid_at(times)"),
        **dict.fromkeys(("minimize", "optimize", "train", "curve_fit"), _FIT),
        **dict.fromkeys(("identify", "estimate", "system_id"), _FIT),
        **dict.fromkeys(("load", "read", "read_csv", "load_csv", "from_csv", "logs"), _READ),
        **dict.fromkeys(("read_ulog", "load_ulog", "ulog"), "jq.recordings.read_ulog(path)"),
        **dict.fromkeys(("ekf", "EKF", "kalman", "mekf", "ahrs", "filters"), _FILTERS),
        **dict.fromkeys(("madgwick", "Madgwick", "mahony", "Mahony", "vqf"), "jq.estimation.ahrs"),
        **dict.fromkeys(("triad", "TRIAD", "quest", "QUEST", "davenport"), _WAHBA),
        **dict.fromkeys(("preintegrate", "PreintegratedImuMeasurements"), _PREINTEGRATE),
        **dict.fromkeys(("sensors", "imu"), "jq.gyro, jq.accelerometer, jq.magnetometer"),
        "diffrax": "jq.interop.diffrax",
        "mechanics": "jq.dynamics",
        **dict.fromkeys(("ensemble", "monte_carlo"), "jq.ensembles.run(draw, simulate, n, key)"),
        "animate": "jq.plot.animate(path, body)",
        "visualize": "jq.plot",
        "jeffery": "jq.flow.jeffery, jq.flow.jeffery_rate",
        "Ellipsoid": "jq.Body.ellipsoid(mass, semi_axes), jq.flow",
        "wheels": "jq.actuators.wheel_torque",
        **dict.fromkeys(("quadrotor", "Quadrotor"), "jq.rotors, jq.control.cascade"),
        "version": "jq.__version__",
        **dict.fromkeys(("enable_x64", "float64"), 'jax.config.update("jax_enable_x64", True)'),
    },
    "quaternion": {
        **dict.fromkeys(("from_euler", "to_euler", "as_euler"), _ANGLES),
        **dict.fromkeys(("from_rpy_radians", "rpy", "yaw_pitch_roll", "q2euler"), _ANGLES),
        **dict.fromkeys(("from_rotvec", "as_rotvec", "to_rotvec", "from_rotation_vector"), _VECTOR),
        **dict.fromkeys(("as_matrix", "from_dcm", "to_dcm", "dcm", "as_dcm"), _MATRIX),
        **dict.fromkeys(("rotation_matrix", "to_rotation_matrix", "q2R", "dcm2quat"), _MATRIX),
        **dict.fromkeys(("from_quat", "as_quat"), _XYZW),
        **dict.fromkeys(("Rotation", "Quaternion"), _ROTATION),
        **dict.fromkeys(("as_mrp", "mrp"), "jq.quaternion.from_mrp(p), jq.quaternion.to_mrp(q)"),
        **dict.fromkeys(("inv", "conj", "q_conj"), "jq.quaternion.conjugate(q)"),
        **dict.fromkeys(("apply", "act", "rotate_vector"), "jq.quaternion.rotate(q, v)"),
        **dict.fromkeys(
            ("mul", "product", "qmul", "quat_mul", "q_prod"), "jq.quaternion.multiply(p, q)"
        ),
        **dict.fromkeys(("norm", "unit"), "jq.quaternion.normalize(q)"),
        **dict.fromkeys(
            ("sym_distance", "absolute_distance"), "jq.quaternion.distance(p, q) [rad]"
        ),
        **dict.fromkeys(("angle", "magnitude", "error"), "jq.quaternion.distance(p, q) [rad]"),
        "identity": "jnp.array([1.0, 0.0, 0.0, 0.0])",
        **dict.fromkeys(("uniform", "sample_uniform"), "jq.quaternion.random(key, shape)"),
        **dict.fromkeys(("align_vectors", "triad", "quest"), _WAHBA),
        **dict.fromkeys(("interpolate", "Slerp", "intermediates"), _SLERP),
        "average": "jq.quaternion.mean(q, weights)",
        **dict.fromkeys(("exp_map", "log_map"), _VECTOR),
        "axis_angle_to_quat": "jq.quaternion.from_axis_angle(axis, angle)",
        **dict.fromkeys(("integrate", "quat_integrate"), "jq.kinematics.integrate(q0, omega, dt)"),
        "derivative": "jq.dynamics.derivative(body, torque, t, state, params)",
    },
    "euler": {
        **dict.fromkeys(("from_euler", "to_quat"), "jq.euler.to_quaternion(angles, order)"),
        **dict.fromkeys(("to_euler", "quaternion_to_euler"), "jq.euler.from_quaternion(q, order)"),
        **dict.fromkeys(("rpy", "quat2euler", "euler2quat"), _ANGLES),
        "to_matrix": "jq.quaternion.to_matrix(jq.euler.to_quaternion(angles, order))",
        "from_matrix": "jq.euler.from_quaternion(jq.quaternion.from_matrix(matrix), order)",
    },
    "so3": {
        **dict.fromkeys(("from_matrix", "as_matrix", "to_matrix"), _MATRIX),
        **dict.fromkeys(("skew", "wedge", "cross_matrix"), "jq.so3.hat(v)"),
        "unskew": "jq.so3.vee(matrix)",
        **dict.fromkeys(("Expmap", "expmap", "Logmap", "logmap"), "jq.so3.exp, jq.so3.log"),
        **dict.fromkeys(("left_jacobian", "jac_left"), 'jq.so3.dexp(u, v, "world")'),
        **dict.fromkeys(("right_jacobian", "jac_right"), "jq.so3.dexp(u, v)"),
        **dict.fromkeys(("inverse_jacobian", "right_jacobian_inverse"), "jq.so3.dexpinv(u, v)"),
    },
    "torques": {
        **dict.fromkeys(("none", "free"), _FREE),
        "held": "jq.torques.commanded",
        "gravity": "jq.torques.heavy_top, jq.torques.gravity_gradient, jq.forces.gravity",
        **dict.fromkeys(("damping", "friction", "viscous"), "jq.torques.drag(damping)"),
        "magnetorquer": "jq.torques.magnetic(dipole, field)",
        **dict.fromkeys(("reaction_wheel", "wheel"), "jq.actuators.wheel_torque"),
        "jeffery": "jq.flow.jeffery",
        **dict.fromkeys(
            ("spring", "solar_pressure"), "lambda t, state, params: ..., body axes [N m]"
        ),
        **dict.fromkeys(("world", "in_body"), "jq.torques.in_world(torque)"),
        "constant": "lambda t, state, params: params: a torque is any function of these",
        "sum": "jq.torques.total(...)",
    },
    "schemes": {"rk4": "jq.rkmk4", **dict.fromkeys(("verlet", "leapfrog"), _SPLIT)},
    "forces": {
        "drag": "jq.forces.linear_drag, jq.forces.quadratic_drag",
        "weight": "jq.forces.gravity(body)",
        **dict.fromkeys(("two_body", "kepler", "newton"), "jq.forces.point_mass(body)"),
        "stokes": "jq.flow.translational_resistance",
    },
    "flow": {
        **dict.fromkeys(("shear", "simple_shear"), "the argument gradient of jq.flow.jeffery"),
        **dict.fromkeys(("drag", "stokes"), "jq.flow.translational_resistance"),
        "jeffery_period": "the formula in help(jq.flow.jeffery_rate)",
    },
    "control": {
        **dict.fromkeys(("pd", "PD", "quaternion_feedback"), "jq.control.quaternion_law"),
        **dict.fromkeys(("PID", "LQR"), "jq.control.pid, jq.control.lqr"),
        **dict.fromkeys(("step_info", "stepinfo"), _SETTLING),
        "dlqr": "jq.control.lqr, which is in discrete time",
        **dict.fromkeys(("ss", "c2d"), "a, b = jq.dynamics.linearize(...)"),
        "lee": "jq.control.geometric_law, jq.control.flight_law",
        **dict.fromkeys(("waypoints", "trajectory"), "jq.control.follow_position(position, t)"),
        **dict.fromkeys(("saturate", "limit"), "jq.actuators.saturate(tau, limits)"),
        "bdot": "jq.Controller; examples/detumble.py has the law",
    },
    "dynamics": {
        "angular_momentum": _MOMENTUM,
        "kinetic_energy": _ENERGY,
        **dict.fromkeys(("euler", "newton_euler"), "jq.dynamics.angular_acceleration"),
        "forward_dynamics": "jq.dynamics.derivative(body, torque, t, state, params)",
        "potential_energy": "jq.forces.potential(body, state)",
        **dict.fromkeys(("boxplus", "plus"), "jq.dynamics.retract(state, delta)"),
        **dict.fromkeys(("boxminus", "minus", "error"), "jq.dynamics.local(a, b)"),
    },
    "actuators": {
        **dict.fromkeys(("ReactionWheel", "reaction_wheel"), "jq.actuators.wheel_torque"),
        **dict.fromkeys(("thruster", "thrusters"), "jq.actuators.allocate_thrusters"),
        "motor": "jq.actuators.lag(actual, command, time_constant)",
        "clip": "jq.actuators.saturate(tau, limits)",
    },
    "rotors": {
        "quadrotor": "jq.rotors.Rotors, as in examples/quadrotor.py",
        "mixer": "jq.rotors.allocate(rotors, thrust, torque)",
    },
    "exact": {
        "torque_free": "jq.exact.free_body(body, t, start)",
        **dict.fromkeys(("jeffery", "jeffery_period"), "jq.flow, whose help has the period"),
    },
    "gyro": {"integrate": "jq.kinematics.integrate(q0, omega, dt)"},
    "estimation": {
        **dict.fromkeys(("ekf", "EKF", "ukf", "kalman"), "jq.estimation.mekf"),
        **dict.fromkeys(("madgwick", "mahony", "vqf", "complementary"), "jq.estimation.ahrs"),
        **dict.fromkeys(("smoother", "rts"), "jq.estimation.smooth(filter, samples)"),
        **dict.fromkeys(("triad", "quest"), _WAHBA),
    },
    "recordings": {
        **dict.fromkeys(("load", "read_csv", "from_csv", "csv"), "jq.recordings.read(path)"),
        "load_ulog": "jq.recordings.read_ulog(path)",
        **dict.fromkeys(
            ("from_numpy", "from_pandas", "rosbag"), "jq.recordings.Recording(t, gyro)"
        ),
    },
    "ensembles": {
        **dict.fromkeys(("ensemble", "monte_carlo", "simulate"), "jq.ensembles.run"),
        "draw": "jq.ensembles.members(draw, n, key)",
        **dict.fromkeys(("std", "variance"), "jq.ensembles.mean(), whose result has std"),
        **dict.fromkeys(("median", "percentile", "histogram"), "jq.ensembles.quantiles"),
    },
    "plot": {
        **dict.fromkeys(("omega", "history"), "jq.plot.rates(path)"),
        **dict.fromkeys(
            ("trajectory", "plot", "plot3d"), "jq.plot.track(path), jq.plot.rates(path)"
        ),
        "attitude": "jq.plot.body_axes(path), jq.plot.attitude_error(path, target)",
        **dict.fromkeys(("video", "film"), "jq.plot.animate(path, body)"),
        **dict.fromkeys(
            ("error", "error_angle", "angle_error"), "jq.plot.attitude_error(path, target)"
        ),
        "loss": "jq.plot.fit_history(fit)",
        **dict.fromkeys(("euler", "angles"), 'jq.plot.euler_angles(path, "ZYX")'),
        **dict.fromkeys(("recording", "sensors", "gyro"), "jq.plot.channels(recording)"),
        "sphere": "jq.plot.momentum_sphere(path, body)",
        "show": "ax.figure.savefig(file); a notebook shows the axes that end a cell",
    },
    "Path": {
        **dict.fromkeys(("time", "times", "ts"), "path.t"),
        **dict.fromkeys(("states", "ys", "y", "x"), "path.state"),
        **dict.fromkeys(("q", "quat", "quaternion", "attitude"), "path.state.q"),
        **dict.fromkeys(("omega", "angular_velocity"), "path.state.omega"),
        **dict.fromkeys(("position", "pos"), "path.state.position"),
        **dict.fromkeys(("velocity", "vel"), "path.state.velocity"),
        "aux": "path.state.aux",
        **dict.fromkeys(("euler", "rpy"), 'jq.euler.from_quaternion(path.state.q, "ZYX"), in rad'),
        **dict.fromkeys(("control", "u"), "path.command"),
        **dict.fromkeys(("last", "final_state"), "path.final"),
        **dict.fromkeys(("interpolate", "evaluate"), "path.at(t)"),
        **dict.fromkeys(("n", "rows"), "len(path)"),
        "animate": "jq.plot.animate(path, body)",
        "qpos": "path.state.position, path.state.q",
        "to_numpy": "np.asarray(path.state.q)",
        **dict.fromkeys(("to_csv", "save", "write"), f"np.savetxt(file, {_TABLE})"),
        **dict.fromkeys(("to_dataframe", "to_pandas", "df", "to_df"), _FRAME),
        "torque": "jq.plot.torque(path, torque, params); commands are path.command",
        "plot": "jq.plot.rates(path), jq.plot.body_axes(path)",
        "energy": "jax.vmap(lambda state: jq.dynamics.energy(body, state))(path.state)",
    },
    "Grid": {
        **dict.fromkeys(("t", "ts", "time"), "grid.times()"),
        **dict.fromkeys(("n", "N"), "grid.steps"),
        **dict.fromkeys(("t1", "duration"), "grid.times()[-1]"),
    },
    "GridAt": dict.fromkeys(("t", "ts", "time"), "grid.times()"),
    "State": {
        **dict.fromkeys(("quat", "quaternion", "rot", "attitude"), "state.q"),
        **dict.fromkeys(("w", "angular_velocity"), "state.omega"),
        **dict.fromkeys(("pos", "xpos"), "state.position"),
        **dict.fromkeys(("vel", "v"), "state.velocity"),
        **dict.fromkeys(("dcm", "R", "xmat"), "jq.quaternion.to_matrix(state.q)"),
        **dict.fromkeys(("euler", "rpy"), 'jq.euler.from_quaternion(state.q, "ZYX"), in rad'),
        "energy": "jq.dynamics.energy(body, state)",
        "qpos": "state.position, state.q",
        "qvel": "state.velocity (world axes), state.omega (body axes)",
        "replace": "state._replace(omega=...)",
    },
    "Body": {
        **dict.fromkeys(("I", "J", "inertia_tensor"), "body.inertia"),
        **dict.fromkeys(("Ixx", "Iyy", "Izz"), "jnp.diag(body.inertia)"),
        **dict.fromkeys(("moments", "principal_moments", "axes"), "body.principal()"),
        "m": "body.mass",
    },
    "Recording": {
        **dict.fromkeys(("time", "times"), "recording.t"),
        **dict.fromkeys(("omega", "rates", "angular_velocity", "gyroscope"), "recording.gyro"),
        **dict.fromkeys(("quat", "quaternion", "attitude", "orientation"), "recording.q"),
        "rate": "recording.gyro [rad/s], 1 / recording.spacing() [Hz]",
        **dict.fromkeys(("fs", "frequency"), "1 / recording.spacing() [Hz]"),
        **dict.fromkeys(("to_csv", "save", "write"), "jq.recordings.write(file, recording)"),
        **dict.fromkeys(("acc", "accel"), "recording.accelerometer"),
        "mag": "recording.magnetometer",
        "dt": "recording.spacing()",
        "plot": "jq.plot.channels(recording)",
        "duration": "recording.t[-1] - recording.t[0]",
    },
}
"""What to use instead, by the owner's public name ("" is the package) and the name guessed."""
