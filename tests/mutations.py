"""Errors planted in a copy of the package, each of which a test must find.

    python tests/mutations.py                 all of them: ten minutes
    python tests/mutations.py --list
    python tests/mutations.py "stage time"    those whose names contain this

Every error names the test that finds it, a quick one but for three. That test must pass on the
package and fail on the changed copy. The exit status is 1 if an error is not found.
"""

import argparse
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from commands import ROOT


class Mutation(NamedTuple):
    """Replace the text ``old`` by ``new`` in a file of ``jaxquat``."""

    file: str
    old: str
    new: str
    test: str


RKMK, PCDM = (f"schemes/{x}.py" for x in ("munthe_kaas", "pcdm"))
PROJECTED = "schemes/formulations.py"
SPLITTING, IMPLICIT = "schemes/splitting.py", "schemes/implicit.py"

MEKF, AHRS, ERROR = (f"estimation/{x}.py" for x in ("mekf", "ahrs", "error_state"))
IMU_ERROR = "estimation/imu.py"
STAGES = "estimation/stages.py"
PREINTEGRATION = "kinematics/preintegration.py"

FUSED = "fused"
HOISTING, BRANCHES = f"{FUSED}/trace/hoisting.py", "_internal/branches.py"
DERIVATIVES, TRANSPOSES, KEYS, PRIMITIVES, PASSES, RECURRENCE, TIMELOOP = (
    f"{FUSED}/{x}.py"
    for x in (
        "derivatives", "transposes", "keys", "primitives", "passes", "recurrence", "timeloop",
    )
)  # fmt: skip
C, C_OPERATIONS = (f"{FUSED}/targets/{x}.py" for x in ("c", "c_operations"))
CPU, LOADING, OBJECTS = (f"{FUSED}/{x}.py" for x in ("cpu", "loading", "targets/objects"))
PARTITIONING = f"{FUSED}/partitioning.py"
RECOGNITION = "_internal/recognition.py"
# Lines of the time loop, and the names of three tests.
SAMPLE = "                member.sample(k)\n"
ROW = """\
            with target.when(k.multiple_of(loop.save_every)):
                save(k, k // loop.save_every)
"""
PAST = '            past["command"].set(member.carried["command"].get(), j)\n'
CONTROLLER = "a_controller_with_memory_and_inputs[6-4]"
ROTORS = "torques_that_close_over_what_is_the_same_on_all_devices[rotors-fused]"
STAY = "bodies_stay_where_cotangents_are_batched_and_where_the_devices_do_not_divide_them"


def of_step(name: str) -> str:
    """The test of the error of one step, for a scheme."""
    return f"schemes/test_schemes.py::test_the_error_of_one_step[{name}]"


def of_mekf(name: str) -> str:
    """A test of the filter of attitude and bias, and of what it shares."""
    return f"estimation/test_mekf.py::test_{name}"


def of_ahrs(name: str) -> str:
    """A test of the filter of an inertial sensor."""
    return f"estimation/test_ahrs.py::test_{name}"


def of_motions(name: str) -> str:
    """A test of what the same filter claims."""
    return f"estimation/test_motions.py::test_{name}"


def of_aux(name: str) -> str:
    """The test of aux states, for a scheme."""
    return f"schemes/test_schemes.py::test_aux_states_are_integrated_at_the_scheme_order[{name}]"


def of_engine(file: str, name: str) -> str:
    """A test of the compiler of loops, or of an engine, in a file ``test_FILE.py``."""
    folder = "fused" if file in ("passes", "scalarize", "scanning") else "simulation/engines"
    return f"{folder}/test_{file}.py::test_{name}"


def of_second(name: str) -> str:
    """The test of second derivatives by a parameter and by the start."""
    test = "the_second_derivatives_of_a_logarithm_are_those_of_calculus"
    return of_engine("derivatives", f"{test}[{name}]")


def of_rules(name: str) -> str:
    """The test of second derivatives of functions with a custom derivative."""
    test = "a_second_derivative_by_the_kernel_is_of_functions_whose_rules_call_them"
    return of_engine("derivatives", f"{test}[{name}]")


MUTATIONS = {
    "kernel: a reversed scan saves its first row last": Mutation(
        "fused/timeloop.py",
        "loop.rows - row if loop.reverse",
        "row - loop.first if loop.reverse",
        "fused/test_scanning.py::test_results_that_repeat_others_are_those_of_lax_scan[fused-True]",
    ),
    "kernel: the row before the first step is differentiated": Mutation(
        "fused/timeloop.py",
        "k.multiple_of(loop.save_every)), _if_saved(target, loop, row):",
        "k.multiple_of(loop.save_every)):",
        "fused/test_scanning.py::test_results_that_repeat_others_are_those_of_lax_scan[fused-False]",
    ),
    "kernel: the other numbers of a sparse array are left out": Mutation(
        "fused/targets/lanes.py",
        "if not fills or name != most:",
        "if not fills:",
        "fused/test_scanning.py::test_results_that_repeat_others_are_those_of_lax_scan[fused-False]",
    ),
    "kernel: a result of a scan stands for another one": Mutation(
        "_internal/jaxprs.py",
        "(id(equation), sources(inner)[k])",
        "id(equation)",
        "fused/test_scanning.py::test_results_that_repeat_others_are_those_of_lax_scan[fused-False]",
    ),
    "kernel: equal results share a custom derivative": Mutation(
        "_internal/jaxprs.py",
        'inner = None if equation.primitive.name.startswith("custom_") else called(equation)',
        "inner = called(equation)",
        "fused/test_scanning.py::test_equal_results_with_different_derivatives_stay_apart[forward]",
    ),
    "kernel: a kernel in a step has no scalar form": Mutation(
        "fused/primitives.py",
        "        if by_scan is not None:",
        "        if by_scan is None:",
        "fused/test_scanning.py::test_a_kernel_may_have_a_scan_of_kernels_in_its_step[fused]",
    ),
    "kernel: what constants make is passed in another order": Mutation(
        "fused/targets/lanes.py",
        "self.run(parts[0], constants))",
        "self.run(parts[0], constants)[::-1])",
        "planning/test_riccati.py::test_the_kernels_of_an_iteration_give_the_policy_of_xla[False]",
    ),
    "kernel: a product of constants is rounded before its sum": Mutation(
        "fused/ir/invariants.py",
        'if op.name == "const"}.union(summed(program))',
        'if op.name == "const"}',
        "fused/test_invariants.py::"
        "test_what_depends_on_the_constants_alone_is_a_program_of_its_own",
    ),
    "kernel: constants beside denormal numbers are folded as on a processor": Mutation(
        "fused/targets/host.py",
        'PASSES = ("sroa", "sccp")',
        'PASSES = ("sroa",)',
        "fused/test_scanning.py::test_a_denormal_result_counts_as_zero_for_a_constant_argument_too",
    ),
    "C: carried variables are set one after the other": Mutation(
        C,
        'new.append(self.variable("v", routine.dtype(k), x) if depends else x)',
        "new.append(x)",
        "fused/test_export.py::test_the_carried_values_of_a_loop_change_at_once",
    ),
    "C: loops that a kernel unrolls stay loops": Mutation(
        "export.py",
        'loops=LOOPS if functions == "own" else calls.LONG',
        "loops=calls.LONG",
        "fused/test_export.py::test_a_loop_that_the_kernel_unrolls_has_the_bits_of_the_kernel",
    ),
    "C: results change arguments that are read later": Mutation(
        "export.py",
        'kept.append(body.variable("v", dtype, first))',
        "kept.append(first)",
        "fused/test_export.py::test_results_may_be_written_over_arguments",
    ),
    "C: products and sums are rounded apart": Mutation(
        C_OPERATIONS,
        '"fma": "fma{f}({0}, {1}, {2})"',
        '"fma": "(({0} * {1}) + {2})"',
        "fused/test_export.py::test_a_controller_with_memory_has_the_bits_of_the_kernel",
    ),
    "torque at q0: rkmk": Mutation(
        RKMK,
        "rates(t + node * dt, stage)",
        "rates(t + node * dt, stage._replace(q=state.q))",
        of_step("rkmk4"),
    ),
    "torque at q0: zhao": Mutation(
        PCDM, "dt, middle)", "dt, middle._replace(q=q))", of_step("zhao")
    ),
    "torque at q0: pcdm1": Mutation(PCDM, "state._replace(q=middle)", "state", of_step("pcdm1")),
    "torque at q0: splitting": Mutation(
        SPLITTING, "kick(change, here, after", "kick(change, state, after", of_step("symmetric_top")
    ),
    "torque at q0: lgvi": Mutation(
        IMPLICIT,
        '"lgvi", torque, t + dt, end',
        '"lgvi", torque, t + dt, state',
        of_step("lgvi"),
    ),
    "torque at q0: lie_midpoint": Mutation(
        IMPLICIT, "State(q_mean, mean)", "State(q, mean)", of_step("lie_midpoint")
    ),
    "torque at q0: simo_wong": Mutation(
        IMPLICIT, "end._replace(q=q1)", "end", of_step("simo_wong")
    ),
    "force at x0: rkmk": Mutation(
        RKMK,
        "rates(t + node * dt, stage)",
        "rates(t + node * dt, stage._replace(position=state.position))",
        of_step("rkmk4"),
    ),
    "force at v0: zhao": Mutation(
        PCDM, "dt, middle)", "dt, middle._replace(velocity=state.velocity))", of_step("zhao")
    ),
    "force at x0: splitting": Mutation(
        SPLITTING,
        "kick(change, here, after",
        "kick(change, here._replace(position=state.position), after",
        of_step("symmetric_top"),
    ),
    "lost velocity: splitting": Mutation(
        SPLITTING, "(state.velocity + change.v))", "state.velocity)", of_step("symmetric_top")
    ),
    "force at x0: simo_wong": Mutation(
        IMPLICIT,
        '_, force1 = evaluate_at_attitude("simo_wong", torque, t + dt, end, params)',
        "force1 = force0",
        of_step("simo_wong"),
    ),
    "wrong stage time: rkmk": Mutation(
        RKMK, "rates(t + node * dt, stage)", "rates(t, stage)", of_step("rkmk4")
    ),
    "wrong stage time: zhao": Mutation(
        PCDM, "rates(t + 0.5 * dt, middle)", "rates(t, middle)", of_step("zhao")
    ),
    "wrong stage time: pcdm1": Mutation(
        PCDM, "torque, t + 0.5 * dt, midpoint", "torque, t, midpoint", of_step("pcdm1")
    ),
    "wrong stage time: formulations": Mutation(
        PROJECTED, "rates(t + node * dt, stage)", "rates(t, stage)", of_step("formulation1")
    ),
    "wrong stage time: splitting": Mutation(
        SPLITTING, "t + done * dt", "t", of_step("symmetric_top")
    ),
    "wrong stage time: lgvi": Mutation(
        IMPLICIT, '"lgvi", torque, t + dt', '"lgvi", torque, t', of_step("lgvi")
    ),
    "wrong stage time: lie_midpoint": Mutation(
        IMPLICIT, "t + 0.5 * dt", "t", of_step("lie_midpoint")
    ),
    "wrong stage time: simo_wong": Mutation(
        IMPLICIT, "t + dt, end._replace(q=q1)", "t, end._replace(q=q1)", of_step("simo_wong")
    ),
    "series switched at 1e-6": Mutation(
        "_internal/series.py",
        "near = s < _SWITCH",
        "near = s < 1e-6",
        "_internal/test_series.py::test_the_value_and_two_derivatives_are_right_to_rounding",
    ),
    "lost aux: rkmk": Mutation(
        RKMK,
        "return displaced(state, q, others)",
        "return displaced(state, q, others)._replace(aux=state.aux)",
        of_aux("rkmk4"),
    ),
    "lost aux: the stages of rkmk": Mutation(
        RKMK,
        "stage = displaced(state, turned, shift)",
        "stage = displaced(state, turned, shift)._replace(aux=state.aux)",
        of_aux("rkmk4"),
    ),
    "lost aux: zhao": Mutation(
        PCDM, "turn)), shift)", "turn)), shift)._replace(aux=state.aux)", of_aux("zhao")
    ),
    "lost aux: the middle of zhao": Mutation(
        PCDM, "dt, middle)", "dt, middle._replace(aux=state.aux))", of_aux("zhao")
    ),
    "torques: no reaction of the gravity gradient": Mutation(
        "dynamics/torques.py",
        "return Wrench(torque, -(strength / distance)",
        "return Wrench(torque, 0.0 * -(strength / distance)",
        "dynamics/test_forces.py::test_field_and_gradient_are_those_of_the_potential",
    ),
    "forces: drag in still air": Mutation(
        "dynamics/forces.py",
        "v = state.velocity - jnp.asarray(air(t, position), position.dtype)",
        "v = state.velocity",
        "dynamics/test_forces.py::test_a_fall_against_linear_drag_and_its_slope_by_the_mass",
    ),
    "forces: a thrust without its arm": Mutation(
        "dynamics/forces.py",
        "_replace(torque=moment)",
        "_replace(torque=0.0 * moment)",
        "dynamics/test_forces.py::test_the_power_of_a_thrust_is_that_at_its_point",
    ),
    "environment: the Earth turns by the solar day": Mutation(
        "dynamics/environment.py",
        "2.0 * math.pi * 1.00273790935 / 86400.0",
        "2.0 * math.pi / 86400.0",
        "dynamics/test_environment.py::test_the_earth_turns_by_sidereal_time",
    ),
    "environment: the Sun without its equation of the centre": Mutation(
        "dynamics/environment.py",
        "x, y = jnp.cos(mean + centre), jnp.sin(mean + centre)",
        "x, y = jnp.cos(mean), jnp.sin(mean)",
        "dynamics/test_environment.py::test_the_sun_is_where_an_almanac_has_it",
    ),
    "environment: half-shadow without the chord of the discs": Mutation(
        "dynamics/environment.py",
        "jnp.arctan2(y, x) - x * y",
        "jnp.arctan2(y, x)",
        "dynamics/test_environment.py::test_half_shadow_is_that_of_rays",
    ),
    "environment: the field of the epoch's five years only": Mutation(
        "dynamics/igrf.py",
        "table[k] + (year - years[k]) * rate",
        "table[k] + 0.0 * (year - years[k]) * rate",
        "dynamics/test_environment.py::test_the_field_is_that_of_the_official_program",
    ),
    "environment: a row of the recursion": Mutation(
        "dynamics/igrf.py",
        "(n - 1) ** 2 - m * m, 0)",
        "(n - 1) ** 2 - m, 0)",
        "dynamics/test_environment.py::test_the_field_has_neither_divergence_nor_curl",
    ),
    "aem: the derivative of a quaternion in the other axes": Mutation(
        "recordings/aem.py",
        "(vectors - np.cross(",
        "(vectors + np.cross(",
        "recordings/test_aem.py::test_derivatives_of_quaternions_become_rates",
    ),
    "aem: the rates of angles about the axes of the start": Mutation(
        "recordings/attitudes.py",
        "last_two.inv().apply(first)",
        "last_two.apply(first)",
        "recordings/test_aem.py::test_euler_angles_and_their_rates_are_those_of_the_textbook",
    ),
    "writing: the notes are lost": Mutation(
        "recordings/tables.py",
        "own_notes(path, text) if columns is None else {}",
        "{}",
        "recordings/test_reading.py::test_notes_are_read_back",
    ),
    "allan: distant differences by rounding": Mutation(
        "sensors/allan.py",
        "u < n + m, u < 16 * max(n, m)",
        "u >= 0, u >= 0",
        "sensors/test_allan.py::test_a_walk_alone_of_200000_samples_is_fitted",
    ),
    "allan: squares of large readings overflow": Mutation(
        "sensors/allan.py",
        "np.frexp(np.abs(values).max(axis=1))[1]",
        "np.zeros(3, int)",
        "sensors/test_allan.py::test_noise_has_the_unit_of_the_samples_at_any_scale_of_readings_and_time",
    ),
    "aem: the direction is ignored": Mutation(
        "recordings/aem.py",
        '.upper() == "B2A"',
        '.upper() == "A2C"',
        "recordings/test_aem.py::test_all_conventions_of_one_attitude_are_read_alike",
    ),
    "appendages: half of the Coriolis force": Mutation(
        "dynamics/appendages.py",
        "+ 2.0 * velocity)",
        "+ velocity)",
        "dynamics/test_appendages.py::test_power_force_and_torque_are_what_changes_energy_and_momenta",
    ),
    "appendages: a mode without momentum in turning axes": Mutation(
        "dynamics/appendages.py",
        "omega) + of_modes)",
        "omega) + 0.0 * of_modes)",
        "dynamics/test_appendages.py::test_power_force_and_torque_are_what_changes_energy_and_momenta",
    ),
    "wheel_imbalance: a turn the other way": Mutation(
        "actuators/wheels.py",
        "+ jnp.sin(angle)[:, None] * cross(axes, normals)",
        "- jnp.sin(angle)[:, None] * cross(axes, normals)",
        "actuators/test_actuators.py::"
        "test_a_wheel_off_balance_shakes_a_body_in_a_circle_and_about_its_normal",
    ),
    "rotors: thrust not turned with the body": Mutation(
        "actuators/rotors.py",
        "Wrench(torque, rotate(q, jnp.sum(forces, axis=0)))",
        "Wrench(torque, jnp.sum(forces, axis=0))",
        "actuators/test_rotors.py::test_a_lagging_rotor_pushes_along_its_axis_in_the_world",
    ),
    "ornstein_uhlenbeck: a turn that does not know the noise of the rate": Mutation(
        "stochastic/ornstein_uhlenbeck.py",
        "turn + matvec(self.turn_of_x, noise[:3])",
        "turn + 0.0 * matvec(self.turn_of_x, noise[:3])",
        "stochastic/test_langevin_translation.py::test_displacement_and_velocity_have_the_joint_"
        "distribution_of_chandrasekhar[float64]",
    ),
    "brownian: twice the noise": Mutation(
        "stochastic/langevin.py",
        "jnp.sqrt(2.0 * (unit * self.temperature) * dt)",
        "jnp.sqrt(4.0 * (unit * self.temperature) * dt)",
        "stochastic/test_langevin.py::test_a_turn_of_brownian_motion_has_the_covariance_of_heat_over_"
        "damping",
    ),
    "torque noise: one kick for both halves": Mutation(
        "stochastic/disturbance.py",
        "return turn, 0.5 * (u + v), 0.5 * (u - v)",
        "return turn, 0.5 * (u + v), 0.5 * (u + v)",
        "stochastic/test_disturbance.py::test_turn_and_momentum_of_a_ball_are_an_integrated_wiener_"
        "process",
    ),
    "Gauss-Markov torque: noise of a white one": Mutation(
        "stochastic/disturbance.py",
        "jnp.sqrt(-change * (2.0 + change))",
        "jnp.sqrt(-2.0 * change)",
        "stochastic/test_disturbance.py::test_a_gauss_markov_torque_and_its_impulse_have_their_closed_"
        "forms",
    ),
    "reversible: the noise of another interval": Mutation(
        "simulation/engines/reversible.py",
        "draw(arguments.key, k, self.count, self.dtype)",
        "draw(arguments.key, k - clock.first, self.count, self.dtype)",
        "simulation/engines/test_reversing.py::test_the_gradient_with_noise_by_undoing_steps[True-no_squish]",
    ),
    "switched: an instant has passed one part late": Mutation(
        "schemes/switching.py",
        "rank[None] < np.arange(len(ends) + 1)",
        "rank[None] + 1 < np.arange(len(ends) + 1)",
        "schemes/test_switching.py::test_ramps_have_the_impulse_of_their_areas[scan]",
    ),
    "switched: parts at the time of the step": Mutation(
        "schemes/switching.py",
        "told, t + begin, state",
        "told, t, state",
        "schemes/test_switching.py::test_a_split_step_is_the_steps_to_and_from_the_instants[scan]",
    ),
    "restart: event at the time before the step": Mutation(
        "schemes/restarting.py",
        "end, params = at.state, at.t + at.dt, at.params",
        "end, params = at.state, at.t, at.params",
        "schemes/test_restarting.py::test_a_stochastic_scheme_gets_its_noise_and_its_own_aux_states",
    ),
    "restart: the number of the fresh state": Mutation(
        "schemes/restarting.py",
        "number=begun.aux.number",
        "number=anew.aux.number",
        "schemes/test_restarting.py::test_a_stochastic_scheme_gets_its_noise_and_its_own_aux_states",
    ),
    "bodies: deviation of products as of moments": Mutation(
        "ensembles/drawing.py",
        "0.5**0.5 * spread",
        "spread",
        "ensembles/test_bodies.py::test_mass_and_second_moments_along_any_axis_have_the_spread",
    ),
    "reversible: too much drag under jit": Mutation(
        "simulation/engines/reversible.py",
        "_Steps(simulation, exponent <= largest)",
        "_Steps(simulation, jnp.asarray(True))",
        "schemes/test_damping.py::test_drag_that_cannot_be_undone_is_refused_within_jit_or_gives_nan",
    ),
    "mekf: wrong sign of the bias": Mutation(
        MEKF,
        "sample.gyro - memory.bias",
        "sample.gyro + memory.bias",
        of_mekf("through_a_gap_attitude_and_covariance_are_those_of_the_integrals"),
    ),
    "mekf: process noise that knows no gap": Mutation(
        MEKF,
        "numbers.gyro**2 * dt",
        "numbers.gyro**2 * 0.1",
        of_mekf("through_a_gap_attitude_and_covariance_are_those_of_the_integrals"),
    ),
    "mekf: twice the process noise": Mutation(
        MEKF,
        "numbers.gyro**2 * dt",
        "numbers.gyro**2 * 2.0 * dt",
        of_mekf("the_errors_are_as_large_as_the_covariance_says"),
    ),
    "mekf: a gate that never closes": Mutation(
        MEKF, "<= gate**2", "<= jnp.inf", of_mekf("an_attitude_beyond_the_gate_is_left_out")
    ),
    "Kalman update: no noise in Joseph's form": Mutation(
        ERROR,
        " - noise",
        "",
        of_mekf("a_block_of_observations_is_the_textbook"),
    ),
    "Kalman update: a gain without the other rows": Mutation(
        ERROR,
        "optimal = _product(transpose(images), inverse)",
        "optimal = _product(transpose(images), inverse * jnp.eye(len(variances)))",
        of_mekf("a_block_of_observations_is_the_textbook"),
    ),
    "smoother: transition transposed": Mutation(
        ERROR,
        "_solved(ahead, _product(transition, covariance))",
        "_solved(ahead, _product(transpose(transition), covariance))",
        of_mekf("the_smoother_is_that_of_rauch_tung_and_striebel"),
    ),
    "smoother: the error of the sample left out": Mutation(
        ERROR,
        "own = _product(_product(left, covariance), transpose(left))",
        "own = 0.0 * left",
        of_mekf("the_smoother_is_that_of_rauch_tung_and_striebel"),
    ),
    "smoother: the noise of the step left out": Mutation(
        ERROR,
        "_product(gain, noise + later)",
        "_product(gain, later)",
        "estimation/test_smoother.py::"
        "test_its_covariance_is_that_of_its_error_whatever_the_gains[0]",
    ),
    "smoother: what was unknown stays unknown in the past": Mutation(
        AHRS,
        "starts & known",
        "starts",
        "estimation/test_smoother.py::test_a_magnetometer_gives_the_heading_of_the_time_before_it",
    ),
    "smoother: a tilt carried back over a large turn": Mutation(
        AHRS,
        "(tilt.begins & near)",
        "tilt.begins",
        "estimation/test_smoother.py::"
        "test_a_first_force_gives_the_tilt_before_it_over_small_turns_only",
    ),
    "ahrs: wrong sign of the innovation's bias": Mutation(
        AHRS,
        "gyro - numbers[:3]",
        "gyro + numbers[:3]",
        of_ahrs("at_rest_the_bias_is_found"),
    ),
    "ahrs: wrong sign of the response": Mutation(
        STAGES, "- response)", "+ response)", of_ahrs("a_gain_error_is_found_in_motion")
    ),
    "ahrs: a tilt that accelerates the wrong way": Mutation(
        IMU_ERROR,
        "jnp.stack([matrix[1], -matrix[0]])",
        "jnp.stack([matrix[1], matrix[0]])",
        of_ahrs("the_blocks_of_the_transition_are_those_of_the_matrix"),
    ),
    "ahrs: rest that is never seen": Mutation(
        STAGES,
        "still_time > settings.rest_time",
        "still_time > jnp.inf",
        of_ahrs("at_rest_the_bias_is_found"),
    ),
    "ahrs: density of the velocity that is not measured": Mutation(
        "estimation/detectors.py",
        "density + jnp.square(settings.velocity)",
        "jnp.square(settings.velocity)",
        of_motions("an_aeroplane_in_turns_keeps_tilt_and_heading"),
    ),
    "ahrs: a ride that is a rest at velocity 0": Mutation(
        AHRS,
        " | (rest_begins & _MOVING)",
        "",
        of_motions("to_gather_speed_is_no_rest"),
    ),
    "ahrs: a disturbed start that is never forgiven": Mutation(
        STAGES,
        "(restarts | begins)",
        "begins",
        of_motions("a_disturbed_start_is_forgiven"),
    ),
    "ahrs: a tilt that is never lost": Mutation(
        "estimation/detectors.py",
        "time > _LOST_TIME",
        "time > 1e9",
        of_motions("what_spoils_an_attitude_is_forgiven_or_claimed"),
    ),
    "ahrs: a heading that keeps its first tilt": Mutation(
        STAGES,
        " | outdated",
        "",
        of_motions("what_spoils_an_attitude_is_forgiven_or_claimed"),
    ),
    "ahrs: a heading that begins again only at a steady tilt": Mutation(
        STAGES,
        "steady | (halved & (before.age > _AGAIN))",
        "steady",
        of_motions("a_heading_begins_again_when_the_tilt_is_better_known"),
    ),
    "ahrs: a start in motion at no velocity": Mutation(
        "estimation/detectors.py",
        "mean_square = jnp.maximum(mean_square, (1.0 - memory.known) * jnp.square(speed))",
        "",
        of_motions("a_start_in_motion_is_claimed"),
    ),
    "ahrs: rates that contain the coning": Mutation(
        STAGES,
        "time_squared * cross(before, rate) / 12.0",
        "0.0 * cross(before, rate)",
        of_motions("a_slow_gyroscope_does_not_see_the_cone"),
    ),
    "ahrs: a heading from noise": Mutation(
        "estimation/detectors.py",
        " - 2.0 * _BY_CHANCE * variance * after.share",
        "",
        of_motions("a_slow_magnetometer_at_rest_in_a_vertical_field_gives_no_heading"),
    ),
    "ahrs: a heading from a wrong tilt": Mutation(
        "estimation/detectors.py",
        "_VERTICAL_TILTS * tilt_variance",
        "0.0",
        of_motions("a_vertical_field_with_noise_gives_no_heading"),
    ),
    "ahrs: a mean field that does not turn with the heading": Mutation(
        STAGES,
        "jnp.where(begins, angle, 0.0))",
        "0.0 * angle)",
        of_motions("a_dip_of_84_degrees_gives_a_heading_in_the_same_noise"),
    ),
    "ahrs: a first heading of one sample": Mutation(
        STAGES,
        "is_early = age < _FIRST_READINGS",
        "is_early = age < 0.0",
        of_motions("the_first_second_of_a_magnetometer_is_averaged"),
    ),
    "ahrs: a gyroscope that misses nothing": Mutation(
        STAGES,
        ".at[:3].add(missed)",
        "",
        of_motions("a_gyroscope_that_misses_samples_is_claimed_at_once"),
    ),
    "ahrs: gravity in free fall": Mutation(
        STAGES,
        "impulse = intervals[1] * rotate(q, force)[2]",
        "impulse = intervals[1] * GRAVITY",
        of_motions("free_fall_measures_no_tilt"),
    ),
    "ahrs: the velocity turns the bias about the vertical": Mutation(
        AHRS,
        "rotate_inverse(north.q, up), 0.0)",
        "0.0 * up, 0.0)",
        of_motions("without_a_magnetometer_no_setting_turns_the_heading"),
    ),
    "ahrs: a heading that begins without the error of the tilt": Mutation(
        AHRS,
        "jnp.where(north.begins & starts[2], north.by_tilt, 0.0)",
        "0.0 * north.by_tilt",
        of_ahrs("sensors_may_have_rows_of_their_own[the gyroscope last]"),
    ),
    "ahrs: a tilt that a gap has lost": Mutation(
        STAGES,
        "> _LOST_TILT)  # as after a gap",
        "> 1e9)",
        of_motions("a_tilt_that_a_gap_has_lost_is_that_of_the_next_force"),
    ),
    "ahrs: latency the wrong way": Mutation(
        AHRS,
        "exp(settings.latency * (",
        "exp(-settings.latency * (",
        of_ahrs("latency_turns_the_attitude_on"),
    ),
    "preintegration: dp without the square of time": Mutation(
        "kinematics/galilean.py",
        "held = 0.5 * nu",
        "held = 0.0 * nu",
        "kinematics/test_preintegration.py::test_held_samples_give_the_product_of_matrix_exponentials",
    ),
    "preintegration: wrong sign of the bias Jacobian": Mutation(
        PREINTEGRATION,
        "jacobian = -matmul(",
        "jacobian = matmul(",
        "kinematics/test_preintegration.py::test_other_biases_are_right_to_first_order",
    ),
    "preintegration: noise that knows no interval": Mutation(
        PREINTEGRATION,
        "densities[None] ** 2 / jnp.where(dt == 0, jnp.ones_like(dt), dt)[:, None]",
        "jnp.broadcast_to(densities[None] ** 2, (len(dt), 6))",
        "kinematics/test_preintegration.py::test_the_covariance_is_that_of_simulated_noise",
    ),
    "least squares: a covariance not scaled": Mutation(
        "fitting/covariance.py",
        "root = deviation * root",
        "root = 1.0 * root",
        "fitting/test_covariance.py::test_linear_regression_is_the_textbook",
    ),
    "least squares: a given sigma that does not count": Mutation(
        "fitting/covariance.py",
        "jacobian = jacobian / np.broadcast_to(sigma, value.shape)[:, None]",
        "pass",
        "fitting/test_covariance.py::test_given_sigma_weighs_the_residuals",
    ),
    "report: a band without the noise of the measurements": Mutation(
        "plot/identification.py",
        "half = _NORMAL * np.hypot(errors, noise)",
        "half = _NORMAL * errors",
        "plot/test_identification.py::test_the_band_contains_most_of_the_held_out_data",
    ),
    "report: autocorrelation at the wrong lags": Mutation(
        "plot/identification.py",
        "x[: n - lag] * x[lag:]",
        "x[: n - lag] * x[: n - lag]",
        "plot/test_identification.py::"
        "test_white_residuals_stay_in_the_band_and_a_wrong_model_leaves_it",
    ),
    "hoisting: floats closed over are part of the program": Mutation(
        HOISTING,
        "known = not (jnp.issubdtype(dtype, jnp.inexact) or isinstance(value, Tracer))",
        "known = not isinstance(value, Tracer)",
        of_engine("passes", "a_hoisted_function_is_the_function_of_what_it_closes_over"),
    ),
    "hoisting: a callee for calls with other fixed inputs": Mutation(
        HOISTING,
        "None if c else _name(v) for c, v in",
        "c for c, v in",
        of_engine("passes", "a_long_function_is_one_callee_for_all_its_calls"),
    ),
    "hoisting: all numbers of one type are equal": Mutation(
        HOISTING,
        "return value.dtype, value.shape, value.tobytes()",
        "return value.dtype, value.shape",
        of_engine("passes", "what_is_fixed_is_shared_by_equal_numbers_alone"),
    ),
    "hoisting: operations with other parameters share a result": Mutation(
        HOISTING,
        "key = equation.primitive, names, tuple(sorted(equation.params.items()))",
        "key = equation.primitive, names",
        of_engine("passes", "a_long_function_is_one_callee_for_all_its_calls"),
    ),
    "hoisting: a slope by what a rule closes over": Mutation(
        HOISTING,
        'count = equation.params.get("num_consts", 0) if custom else 0',
        "count = 0",
        of_engine("passes", "what_a_rule_closes_over_has_no_derivative"),
    ),
    "hoisting: calls with other numbers share a trace": Mutation(
        HOISTING,
        "if tree == structure and all(x is y for x, y in zip(values, fixed, strict=True)):",
        "if tree == structure:",
        of_engine("passes", "what_is_fixed_is_shared_by_equal_numbers_alone"),
    ),
    "hoisting: every choice within a rare branch is taken as known": Mutation(
        BRANCHES,
        " and which is condition",
        "",
        of_engine("passes", "a_choice_within_a_rare_branch_remains"),
    ),
    "derivatives: the tangents of what is kept count for nothing": Mutation(
        DERIVATIVES,
        'in ("primal", "residual") and',
        'in ("primal",) and',
        of_engine("derivatives", "the_second_derivative_by_the_start_alone[jvp of grad]"),
    ),
    "derivatives: the tangents of cotangents are left out": Mutation(
        DERIVATIVES,
        "more = keys.live_of_tangent(f, live, moved)",
        "more = keys.live_of_tangent(f, live)",
        of_engine("fused_grid_at", "the_second_derivative_by_the_times_is_that_of_the_scan"),
    ),
    "derivatives: tangents of constants that are 0 are arrays": Mutation(
        DERIVATIVES,
        "for i in g.unused(more)}",
        "for i in ()}",
        of_engine(
            "scanning",
            "a_second_derivative_of_zero_meets_no_infinite_slope_of_what_is_computed_before_the_run",
        ),
    ),
    "derivatives: linearized at the last state that is kept": Mutation(
        KEYS,
        "Operand(x.array[..., 0, :], x.batched)",
        "Operand(x.array[..., -1, :], x.batched)",
        of_second("jacrev of linearized"),
    ),
    "derivatives: what bodies share has the cotangent of the first": Mutation(
        TRANSPOSES,
        "c = c.sum(0)",
        "c = c[0]",
        of_engine("derivatives", "a_derivative[checkpoint-mean]"),
    ),
    "derivatives: the cotangent of a start replaced by that of what is kept": Mutation(
        TRANSPOSES,
        "by_dx[of_start] = by_dx[of_start] + first if of_start in by_dx else first",
        "by_dx[of_start] = first",
        of_second("jacrev of grad"),
    ),
    "derivatives: no second derivatives by the start": Mutation(
        TRANSPOSES,
        "return keys.zeros(f, key.primal, members).at[..., 0, :].set(by_start)",
        "return None",
        of_second("jacrev of grad"),
    ),
    "derivatives: a checkpoint forgets which results have cotangents": Mutation(
        TRANSPOSES,
        'live = keys.live_of_primal(g, params["live"])',
        "live = ()",
        of_engine(
            "scanning", "checkpoint_keeps_the_value_of_a_gradient_whose_cotangent_is_constant"
        ),
    ),
    "derivatives: directions and elements change places": Mutation(
        TRANSPOSES,
        "apart(x, count), c)",
        "apart(x, x.shape[-1] // count, -1), c)",
        of_engine("derivatives", "the_tangents_of_several_directions_have_a_transpose"),
    ),
    "derivatives: a parameter that the loss does not use": Mutation(
        TRANSPOSES,
        "if key in asked - unused",
        "if key in asked",
        of_engine(
            "agreement",
            "an_infinite_slope_of_what_the_loss_does_not_use_leaves_its_gradient_alone",
        ),
    ),
    "derivatives: a checkpoint that keeps whatever the policy says": Mutation(
        TRANSPOSES,
        'if saved is True or type(saved).__name__ == "SaveableType":',
        "if True:",
        of_engine("derivatives", "checkpoint_keeps_a_rollout_where_its_policy_says_so"),
    ),
    "passes: directions behind the elements": Mutation(
        PASSES,
        "out_axes=(None, 0, None)",
        "out_axes=(None, -1, None)",
        of_engine("passes", "the_passes_of_derivatives_are_those_of_jax"),
    ),
    "passes: sums over devices are taken for none": Mutation(
        PASSES,
        "return not names.isdisjoint(",
        "return names.isdisjoint(",
        of_engine("shard_map", ROTORS),
    ),
    "passes: the values by rules are computed without them": Mutation(
        PASSES,
        "return all_outputs",
        "return function(*points)[1]",
        of_rules("rounded"),
    ),
    "passes: functions with a custom_vjp are not counted": Mutation(
        PASSES,
        '("custom_jvp", "custom_vjp")',
        '"custom_jvp"',
        of_rules("clipped"),
    ),
    "passes: calls that nothing needs are counted": Mutation(
        PASSES,
        "for equation in equations(needed)]",
        "for equation in equations(closed.jaxpr)]",
        of_rules("sinc"),
    ),
    "passes: outputs in their old order": Mutation(
        PASSES,
        "[jaxpr.outvars[k] for k in outputs]",
        "[jaxpr.outvars[k] for k in sorted(outputs)]",
        of_engine("passes", "inputs_and_outputs_in_another_order"),
    ),
    "recurrence: a cotangent reaches what one step reads": Mutation(
        RECURRENCE,
        "while reached != before:\n        before",
        "for _ in range(1):\n        before",
        of_engine("derivatives", "what_goes_through_other_states_has_its_derivative"),
    ),
    "recurrence: a tangent moves what one step writes": Mutation(
        RECURRENCE,
        "_closure(moving, self._slopes)",
        "moving",
        of_engine("derivatives", "what_goes_through_other_states_has_its_derivative"),
    ),
    "jaxprs: a derivative goes through stop_gradient": Mutation(
        "_internal/jaxprs.py",
        '("stop_gradient", "bitcast',
        '("bitcast',
        of_engine("derivatives", "a_tangent_or_cotangent_of_zero_meets_no_infinite_slope[jvp]"),
    ),
    "arrays: a reshape forgets its order of axes": Mutation(
        "fused/trace/arrays.py",
        "x if order is None else x.transpose(order)",
        "x",
        of_engine("scalarize", "all_operations_and_their_vjps[moves]"),
    ),
    "indexing: a scatter to the outside moves inside": Mutation(
        "fused/trace/indexing.py",
        "!= jax.lax.GatherScatterMode.CLIP",
        "== jax.lax.GatherScatterMode.FILL_OR_DROP",
        of_engine("scalarize", "all_operations_and_their_vjps[moves]"),
    ),
    "recurrence: a constant that is used has no gradient": Mutation(
        RECURRENCE,
        '("constants", i) not in reached}',
        '("constants", i) in reached}',
        of_engine("derivatives", "a_derivative[value_and_grad-loss]"),
    ),
    "recurrence: a tangent keeps states of its own choice": Mutation(
        RECURRENCE,
        "self, segment=self.kept_every, specs=specs",
        "self, segment=self.segment, specs=specs",
        of_engine("derivatives", "a_tangent_keeps_the_states_that_its_primal_keeps"),
    ),
    "recurrence: the rules keep states of their own choice": Mutation(
        RECURRENCE,
        "replace(self, segment=self.kept_every, of_functions",
        "replace(self, of_functions",
        of_engine(
            "scanning",
            "auto_has_the_second_derivatives_that_the_kernel_lacks[computing_anew-7]",
        ),
    ),
    "recurrence: a rule of custom_vjp has a tangent": Mutation(
        RECURRENCE,
        "return has_vjp or ",
        "return ",
        of_engine(
            "scanning",
            "auto_has_the_second_derivatives_that_the_kernel_lacks[reverse_alone-3]",
        ),
    ),
    "recurrence: commands cost nothing to keep": Mutation(
        RECURRENCE,
        "for group in CARRY for leaf in self.specs[group])",
        "for group in CARRY[:2] for leaf in self.specs[group])",
        of_engine("fused", "a_long_step_is_not_computed_again"),
    ),
    "recurrence: the tangent in other directions": Mutation(
        RECURRENCE,
        "key = (method.__name__, *args)",
        "key = (method.__name__, *args[:2])",
        of_engine(
            "derivatives", "one_recurrence_has_derivatives_by_each_argument_and_of_each_result"
        ),
    ),
    "recurrence: the derivative of other results": Mutation(
        RECURRENCE,
        "key = (method.__name__, *args)",
        "key = (method.__name__, *args[:1])",
        of_engine(
            "derivatives",
            "one_recurrence_has_derivatives_by_each_argument_and_of_each_result",
        ),
    ),
    "recurrence: tangents of zero are in the programs": Mutation(
        RECURRENCE,
        "if has(p) and p not in zero]",
        "if has(p)]",
        of_engine("derivatives", "a_tangent_or_cotangent_of_zero_meets_no_infinite_slope[jvp]"),
    ),
    "recurrence: sums over devices are always taken": Mutation(
        RECURRENCE,
        "sums = not axes_of(self.number) or passes.has_sums(function, numbers)",
        "sums = True",
        of_engine("shard_map", ROTORS),
    ),
    "time loop: a row under the command before its sample": Mutation(
        TIMELOOP,
        SAMPLE + ROW,
        f"{ROW}            with target.when(k < loop.steps):\n{SAMPLE}",
        of_engine("fused", "what_is_saved[True-4]"),
    ),
    "speculation: only the first branch that was left out is asked for": Mutation(
        f"{FUSED}/ir/speculation.py",
        "again = functools.reduce(operator.or_, needed)",
        "again = needed[0]",
        of_engine("speculation", "a_later_branch_alone_is_needed"),
    ),
    "time loop: the cotangent of a command counts for the samples before": Mutation(
        TIMELOOP,
        '                self.by["command"].set(target.zeros(self.leaves["command"]))\n',
        "",
        of_engine("fused", CONTROLLER),
    ),
    "time loop: a step goes back under the command before its sample": Mutation(
        TIMELOOP,
        f"            member.sample(begin + j)\n{PAST}",
        f"{PAST}            member.sample(begin + j)\n",
        of_engine("fused", "what_is_saved[True-4]"),
    ),
    "time loop: steps are numbered from the start of their segment": Mutation(
        TIMELOOP,
        "cotangents.back(begin + j,",
        "cotangents.back(j,",
        of_engine("fused", "every_scheme[half_quat]"),
    ),
    "time loop: the first segment is read first": Mutation(
        TIMELOOP,
        'variable.set(target.read(operands["residual", group], segment))',
        'variable.set(target.read(operands["residual", group], later))',
        of_second("linearized grad"),
    ),
    "memory: a kernel compiled in another way": Mutation(
        "fused/targets/host.py",
        "str(llvm.llvm_version_info), str(LEVEL), *PASSES",
        "str(llvm.llvm_version_info)",
        of_engine("fused", "a_processor_has_kernels_of_its_own"),
    ),
    "memory: a kernel of another processor": Mutation(
        CPU,
        "[text, *host.processor(), *host.version()]",
        "[text, *host.version()]",
        of_engine("fused", "a_processor_has_kernels_of_its_own"),
    ),
    "memory: the file of another kernel": Mutation(
        OBJECTS,
        "head == FORMAT + key + hashlib.sha256(code).digest()",
        "head.endswith(hashlib.sha256(code).digest())",
        of_engine("fused", "a_damaged_file_is_thrown_away"),
    ),
    "memory: one name for all kernels": Mutation(
        LOADING,
        'return f"jaxquat_kernel_{name}"',
        'return "jaxquat_kernel"',
        of_engine("agreement", "kernels_outlive_the_caches_of_jax_and_of_the_engine"),
    ),
    "memory: code that is not counted": Mutation(
        LOADING,
        "if _size > MOST:",
        "if False:",
        of_engine("agreement", "too_much_code_in_memory_is_refused"),
    ),
    "sharding: bodies that the devices do not divide": Mutation(
        PARTITIONING, "        if remainder:\n", "        if False:\n", of_engine("sharding", STAY)
    ),
    "sharding: a mesh of two axes": Mutation(
        PARTITIONING,
        "return (k, *_factors(n // k))",
        "return (k, n // k)",
        of_engine("sharding", "a_mesh_has_an_axis_for_each_prime_factor"),
    ),
    "sharding: operands merged in the wrong order": Mutation(
        PRIMITIVES,
        "        x = x.swapaxes(0, 1) if self.is_last else x\n",
        "",
        of_engine("derivatives", "the_jacobian_of_sums_over_bodies"),
    ),
    "sharding: batched cotangents come before the bodies": Mutation(
        PRIMITIVES,
        'all(key.is_tangent or key.role == "cotangent" for key in mapped)',
        "all(key.is_tangent for key in mapped)",
        of_engine("sharding", STAY),
    ),
    # Found by no quick test when sixty errors were planted at random.
    "lie_midpoint: attitude by the old rate": Mutation(
        "schemes/implicit.py",
        "q_mean = lax.optimization_barrier(multiply(q, exp(0.5 * dt * mean)))",
        "q_mean = lax.optimization_barrier(multiply(q, exp(0.5 * dt * omega)))",
        "schemes/test_schemes.py::test_the_error_of_one_step[lie_midpoint]",
    ),
    "check_state: no velocity": Mutation(
        "dynamics/state.py",
        '("omega", "aux", "position", "velocity"):',
        '("omega", "aux", "position"):',
        "dynamics/test_wrench.py::test_what_is_refused",
    ),
    "allocate: yaw takes the wrong way": Mutation(
        "actuators/rotors.py",
        "turn = _share(base - low, -turning)",
        "turn = _share(base - low, turning)",
        "actuators/test_rotors.py::test_what_gives_way_at_the_limits",
    ),
    "Path.at: dexp for dexpinv": Mutation(
        "simulation/path.py",
        "u, rate = cubic(s, turn, a.omega * dt, so3.dexpinv(turn, b.omega) * dt)",
        "u, rate = cubic(s, turn, a.omega * dt, so3.dexp(turn, b.omega) * dt)",
        "simulation/test_rollout.py::test_interpolation_is_exact_at_the_rows_and_of_order_four_between",
    ),
    "scan: the last command of a row": Mutation(
        "simulation/engines/scan.py",
        "return after, (simulation.observe(carry.k, carry.state, first, interval), last)",
        "return after, (simulation.observe(carry.k, carry.state, last, interval), last)",
        "simulation/test_grid_at.py::test_a_row_has_its_own_time_and_the_command_of_its_own_sample",
    ),
    "lqr: gain of scaled commands": Mutation(
        "control/lqr.py",
        "return unit[:, None] * np.linalg.solve(r + b.T @ p @ b, b.T @ p @ a)",
        "return np.linalg.solve(r + b.T @ p @ b, b.T @ p @ a)",
        "control/test_control.py::test_lqr_minimises_the_cost_of_the_loop",
    ),
    "pointing: the windows of a drift overlap less than they do": Mutation(
        "control/window_weights.py",
        "(s + window, -1.0), (s - window, -1.0)",
        "(s + window, -1.0), (s - window, -0.9)",
        "control/test_pointing.py::"
        "test_densities_that_are_linear_between_frequencies_are_integrated_exactly[wide]",
    ),
    "pointing: times of a member as independent samples": Mutation(
        "control/pointing.py",
        "math.sqrt(len(size))",
        "math.sqrt(size.size)",
        "control/test_pointing.py::test_the_mixed_interval_counts_members_and_not_times",
    ),
    "cascade: feed-forward turned forth": Mutation(
        "control/cascade.py",
        "rate = k.attitude * error + rotate_inverse(state.q, c.heading_rate * z)",
        "rate = k.attitude * error + rotate(state.q, c.heading_rate * z)",
        "control/test_cascade.py::"
        "test_a_steady_turn_needs_the_gyroscopic_torque_and_the_integral_parts_stay",
    ),
    "merge: turned by the inverse": Mutation(
        "estimation/imu.py",
        "to_end = multiply(conjugate(end)[None], q)",
        "to_end = multiply(end[None], q)",
        of_ahrs("merged_samples_are_means_in_the_axes_at_the_end_without_what_is_missing"),
    ),
    "planning: half the slope of an equality of mpc": Mutation(
        "planning/interior.py",
        "v = v + matvec(end[0].T, end[1]) / softness",
        "v = v + 0.5 * matvec(end[0].T, end[1]) / softness",
        "planning/test_mpc.py::test_an_equality_at_the_end_of_the_horizon_moves_with_the_samples",
    ),
    "planning: the gains of a pass before the last step": Mutation(
        "planning/iteration.py",
        "        gains = jnp.where(stepped | (c.damping > least), jnp.nan, gains)\n",
        "",
        "planning/test_riccati.py::test_the_gains_of_a_plan_are_those_of_the_model_at_its_end",
    ),
    "planning: the gains of other free commands": Mutation(
        "planning/optimum.py",
        "    known &= jnp.all(jnp.any(gains != 0, axis=-1) == free)\n",
        "",
        "planning/test_riccati.py::test_the_gains_of_a_plan_are_those_of_the_model_at_its_end",
    ),
    "planning: a retraction of first order": Mutation(
        "dynamics/state.py",
        "1.0 - 0.5 * jnp.sum(half * half, keepdims=True)",
        "1.0 - 0.0 * jnp.sum(half * half, keepdims=True)",
        "dynamics/test_dynamics.py::test_the_near_retraction_has_two_derivatives_of_the_retraction",
    ),
    "gates: a fork that waits too late": Mutation(
        "fused/gates.py",
        "os.register_at_fork(before=before, ",
        "os.register_at_fork(",
        "fused/test_gates.py::test_a_process_forks_after_its_kernels_are_compiled",
    ),
    "planning: twice the turn": Mutation(
        "planning/linearization.py",
        "turns = 0.5 * quaternion.left_matrix(q)",
        "turns = quaternion.left_matrix(q)",
        "planning/test_riccati.py::test_the_jacobian_by_parts_is_that_by_the_whole_error",
    ),
    "planning: a column of another part": Mutation(
        "planning/linearization.py",
        "block_diag(*directions)",
        "block_diag(*reversed(directions))",
        "planning/test_riccati.py::test_the_jacobian_by_parts_is_that_by_the_whole_error",
    ),
    "ensembles: failed only if all is": Mutation(
        "ensembles/simulating.py",
        "good &= np.isfinite(leaf).all(axis=tuple(range(1, leaf.ndim)))",
        "good &= np.isfinite(leaf).any(axis=tuple(range(1, leaf.ndim)))",
        "ensembles/test_ensembles.py::test_members_that_fail_are_left_out_and_named",
    ),
    "ensembles: an event not seen has no error": Mutation(
        "ensembles/stopping.py",
        "p = (result.n * middle + 2) / (result.n + 4)",
        "p = middle",
        "ensembles/test_ensembles_stopping.py::"
        "test_an_event_that_never_occurs_ends_with_an_error_of_1_4_over_n",
    ),
    "by_interval: time of another interval": Mutation(
        "simulation/engines/by_interval.py",
        "return self.simulation.observe(k, state, command.value, interval)",
        "return self.simulation.observe(k, state, command.value, command.interval)",
        "simulation/engines/test_fused_grid_at.py::test_equal_intervals_are_the_equal_steps_of_a_grid[float64]",
    ),
    "diffrax: term": Mutation(
        "interop/diffrax.py",
        "rate = jnp.concatenate([jnp.zeros_like(state.omega[:1]), 0.5 * state.omega])",
        "rate = jnp.concatenate([jnp.zeros_like(state.omega[:1]), state.omega])",
        "interop/test_interop_diffrax.py::"
        "test_the_term_has_the_slopes_of_a_turn_and_of_newton_and_euler",
    ),
    "recognised functions: constants": Mutation(
        RECOGNITION,
        "return _alike(*consts) and _same_equations(*jaxprs)",
        "return _same_equations(*jaxprs)",
        "_internal/test_recognition.py::test_another_function_is_not[index]",
    ),
    "recognised functions: numbers in equations": Mutation(
        RECOGNITION,
        "return both and x.aval == y.aval and _alike(x.val, y.val)",
        "return both and x.aval == y.aval",
        "_internal/test_recognition.py::test_another_function_is_not[number]",
    ),
    "recognised functions: rules of users": Mutation(
        RECOGNITION,
        'if one.__module__.split(".")[0] not in ("jax", "jaxquat"):',
        "if False:",
        "_internal/test_recognition.py::test_another_function_is_not[rule of a user]",
    ),
    "recognised functions: arrays that change": Mutation(
        RECOGNITION,
        "np.array(x) if isinstance(x, np.ndarray) else x",
        "x",
        "_internal/test_recognition.py::test_an_array_that_changes_in_place_makes_another_function[mask]",
    ),
}


def planted(mutation: Mutation, folder: Path) -> None:
    """Copy the package, with what Python has compiled of it, and change the copy."""
    shutil.copytree(ROOT / "jaxquat", folder / "jaxquat")
    file = folder / "jaxquat" / mutation.file
    text = file.read_text()
    if (count := text.count(mutation.old)) != 1:
        raise ValueError(f"{mutation.file} contains {mutation.old!r} {count} times, not once")
    file.write_text(text.replace(mutation.old, mutation.new))


def passes(package: Path, *tests: str) -> bool:
    """Whether tests pass on the package in a folder."""
    options = ["-n", "0", "-q", "-x", "-p", "no:cacheprovider"]
    options += ["-m", "slow or not slow"]  # with -m XLA compiles with less effort
    # import the package of the folder, not the one next to the tests
    options += ["-o", "pythonpath="]
    path = os.pathsep.join([str(package), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(ROOT / "tests" / test for test in tests)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{tests}: pytest could not run it\n{done.stdout}{done.stderr}")
    return done.returncode == 0


@functools.cache
def unchanged(tests: frozenset[str]) -> frozenset[str]:
    """Those of the tests that pass on the package itself; all of them need one process."""
    if passes(ROOT, *sorted(tests)):
        return tests
    return frozenset(test for test in tests if len(tests) > 1 and unchanged(frozenset([test])))


def found(mutation: Mutation) -> bool:
    """Whether the test of a mutation fails because of it."""
    with tempfile.TemporaryDirectory() as folder:
        planted(mutation, Path(folder))
        return not passes(Path(folder), mutation.test)


def main() -> int:
    """Run the command line; return the exit status, 1 if a mutation is not found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", default="", help="part of the names")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = {name: x for name, x in MUTATIONS.items() if options.part in name}
    if options.list:
        print(*(f"{name} ({mutation.test})" for name, mutation in chosen.items()), sep="\n")
        return 0
    good, missed = unchanged(frozenset(x.test for x in chosen.values())), 0
    for name, mutation in chosen.items():
        verdict = "found" if mutation.test in good and found(mutation) else "NOT FOUND"
        missed += verdict == "NOT FOUND"
        print(f"{verdict:10} {name} ({mutation.test})", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
