"""These problems have known answers.

Where they serve as a reference of the library, they are stated independently of it.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

import jaxquat as jq
from examples.validation import effort

MOMENTS = np.array([0.6, 0.8, 1.0])
OMEGA0 = np.array([1.8, 0.4, -0.9]) / MOMENTS
TILTED = np.array([1.0, 0.2, -0.1, 0.3]) / np.linalg.norm([1.0, 0.2, -0.1, 0.3])


def heavy(t, state, params):
    """Returns the torque of the potential U = R[2, 2]."""
    return jq.torques.heavy_top(1.0, jnp.array([0.0, 0.0, 1.0], state.q.dtype))(t, state, params)


def driven(t, state, params):
    """Adds damping, a world torque that turns with time and a gyroscopic term to HEAVY."""
    phase = 1.3 * t
    world = 0.7 * jnp.stack([jnp.sin(phase), jnp.cos(2 * phase), 0.5 * jnp.sin(3 * phase)])
    gyroscopic = 0.1 * jnp.cross(jnp.array([1.0, 2.0, -1.0], state.q.dtype), state.omega)
    damping = jnp.array([0.1, 0.2, 0.05], state.q.dtype) * state.omega
    return (
        heavy(t, state, params)
        - damping
        + jq.quaternion.rotate_inverse(state.q, world)
        + gyroscopic
    )


# Each name has a torque, q(0), q(10) and omega(10); integrations to 1e-13 give twelve digits.
REFERENCE = {
    "FREE": (
        jq.torques.zero,
        np.array([1.0, 0.0, 0.0, 0.0]),
        np.array([-0.736061364161, -0.570786951240, -0.299388571831, -0.206839086105]),
        np.array([2.943270847530, -0.869330246291, 0.779554981481]),
    ),
    "HEAVY": (
        heavy,
        TILTED,
        np.array([0.935974927239, -0.283043350117, -0.081490563941, 0.192864422648]),
        np.array([3.043997942899, 1.092302506836, 0.259854776290]),
    ),
    "DRIVEN": (
        driven,
        TILTED,
        np.array([-0.343902369732, -0.012129128900, 0.598877430318, -0.723138899369]),
        np.array([1.514075557328, 0.589332789084, 0.060891962432]),
    ),
}


def reference_body(dtype=jnp.float64):
    return jq.Body.from_principal(jnp.asarray(MOMENTS, dtype))


def start_of(name, q, omega):
    """Returns the State at which a scheme starts."""
    own = name in ("full_quat", "full_quat_corrected")
    return (
        jq.schemes.hoffmann.full_quat_start(q, omega)
        if own
        else jq.State(jnp.asarray(q), jnp.asarray(omega))
    )


def random_rotations(n, seed):
    """Returns n rotations of scipy, whose newer versions call the seed ``rng``."""
    return Rotation.random(n, random_state=seed)  # pyright: ignore[reportCallIssue]


class Forced:
    """64 bodies with products of inertia under torques of time, attitude and rate.

    If ``rate`` is False, the torques do not depend on the rate. With ``symmetric``, two of the
    principal moments of each body are equal, and moments and axes define the body.
    """

    n, T = 64, 2

    def __init__(self, rate=True, symmetric=False):
        rng = np.random.default_rng(20260101)
        axes = random_rotations(self.n, 7).as_matrix()
        # Second moments of mass make every inertia physical.
        square = rng.uniform(0.3, 1.0, (self.n, 3))
        if symmetric:
            square[:, 1] = square[:, 0]
        moments = square.sum(axis=1, keepdims=True) - square
        self.bodies = lambda: jax.vmap(jq.Body)(jnp.asarray(self.inertia))
        if symmetric:
            turns = jax.vmap(jq.quaternion.from_matrix)(jnp.asarray(axes))
            self.bodies = lambda: jax.vmap(jq.Body.from_principal)(jnp.asarray(moments), turns)
        self.inertia = np.einsum("nij,nj,nkj->nik", axes, moments, axes)
        self.inertia = 0.5 * (self.inertia + self.inertia.swapaxes(1, 2))
        q = rng.normal(size=(self.n, 4))
        self.q = q / np.linalg.norm(q, axis=1, keepdims=True)
        self.omega = 0.5 * rng.normal(size=(self.n, 3))
        self.params = {
            "amplitude": rng.normal(size=(self.n, 3)),
            "frequency": rng.uniform(1.0, 3.0, (self.n, 3)),
            "phase": rng.uniform(0.0, 6.0, (self.n, 3)),
            "pull": rng.normal(size=(self.n, 3)),
        }
        # The rate coupling is mostly gyroscopic. Dormand-Prince 5 misses sixth-order conditions.
        # Except for those of tall trees, its seventh order outweighs them until the error is below
        # rounding, so only a rate coupling makes its order visible.
        matrix = rng.normal(size=(self.n, 3, 3))
        self.params["rate"] = rate * (
            2.0 * (matrix - matrix.swapaxes(1, 2)) + 0.1 * rng.normal(size=(self.n, 3, 3))
        )
        self.torque = self.of_rate if rate else self.of_attitude

    @staticmethod
    def of_attitude(t, state, p):
        return p["amplitude"] * jnp.sin(
            p["frequency"] * t + p["phase"]
        ) + jq.quaternion.rotate_inverse(state.q, p["pull"])

    @staticmethod
    def of_rate(t, state, p):
        return Forced.of_attitude(t, state, p) + p["rate"] @ state.omega

    def starts(self, name):
        return jax.vmap(lambda q, omega: start_of(name, q, omega))(
            jnp.asarray(self.q), jnp.asarray(self.omega)
        )

    def exact(self, t0=0.0, duration=None):
        """Returns (q, omega) at T, by extrapolation of the midpoint rule in extended precision.

        It uses nothing of the library. With ``duration`` the motion starts at t0 and ends so much
        later, after one big step.
        """
        extended = np.longdouble
        p = jax.tree.map(lambda x: x.astype(extended), self.params)
        inertia, inverse = extended_inverse(self.inertia)

        def derivative(t, y):
            q, omega = y[:, :4], y[:, 4:]
            w, v = q[:, :1], q[:, 1:]
            across = np.cross(p["pull"], v)
            back = p["pull"] + 2 * (w * across + np.cross(across, v))
            tau = (
                p["amplitude"] * np.sin(p["frequency"] * t + p["phase"])
                + back
                + (p["rate"] @ omega[..., None])[..., 0]
            )
            gyroscopic = np.cross(omega, (inertia @ omega[..., None])[..., 0])
            return np.concatenate(
                [spun(q, omega), (inverse @ (tau - gyroscopic)[..., None])[..., 0]], axis=1
            )

        start = np.concatenate([self.q, self.omega], axis=1).astype(extended)
        return self.extrapolated(derivative, start, t0, duration)

    def extrapolated(self, derivative, start, t0, duration):
        from_t0 = lambda t, y: derivative(t0 + t, y)
        end, steps = (self.T, 24 * int(self.T)) if duration is None else (duration, 1)
        return extrapolate(from_t0, start, end, steps)


class Flying(Forced):
    """The bodies of Forced with positions: torques and forces depend on these and the velocities.

    If ``rate`` is False, they depend neither on the rate nor on the velocity.
    """

    def __init__(self, rate=True, symmetric=False):
        super().__init__(rate, symmetric)
        rng = np.random.default_rng(20261124)
        self.mass = rng.uniform(0.5, 2.0, self.n)
        self.position, self.velocity = rng.normal(size=(2, self.n, 3))
        self.params |= {
            "weight": rng.normal(size=(self.n, 3)),
            "spring": rng.uniform(4.0, 16.0, (self.n, 3)),
            "thrust": rng.normal(size=(self.n, 3)),
            "flow": rate * 0.3 * rng.normal(size=(self.n, 3, 3)),
            "drag": rate * 0.3 * rng.normal(size=(self.n, 3, 3)),
            "lift": rate * 0.3 * rng.normal(size=(self.n, 3, 3)),
        }
        without_mass = self.bodies
        self.bodies = lambda: _with_mass(without_mass(), jnp.asarray(self.mass))
        self.torque = self.wrench_of_rate if rate else self.wrench

    @staticmethod
    def wrench(t, state, p):
        moving = jnp.sin(p["frequency"] * t + p["phase"] + state.position)
        tau = p["amplitude"] * moving + jq.quaternion.rotate_inverse(state.q, p["pull"])
        force = p["weight"] * jnp.cos(p["frequency"] * t) - p["spring"] * state.position
        return jq.Wrench(tau, force + jq.quaternion.rotate(state.q, p["thrust"]))

    @staticmethod
    def wrench_of_rate(t, state, p):
        tau, force = Flying.wrench(t, state, p)
        flow = jq.quaternion.rotate_inverse(state.q, state.velocity)
        tau = tau + p["rate"] @ state.omega + p["flow"] @ flow
        force = force + p["drag"] @ state.velocity
        lift = p["lift"] @ jq.quaternion.rotate(state.q, state.omega)
        return jq.Wrench(tau, force + lift)

    def starts(self, name):
        states = super().starts(name)
        return states._replace(
            position=jnp.asarray(self.position), velocity=jnp.asarray(self.velocity)
        )

    def exact(self, t0=0.0, duration=None):
        """Returns (q, omega with position and velocity) at T, like that of Forced."""
        extended = np.longdouble
        p = jax.tree.map(lambda x: x.astype(extended), self.params)
        inertia, inverse = extended_inverse(self.inertia)
        mass = self.mass.astype(extended)[:, None]
        times = lambda matrix, x: (matrix @ x[..., None])[..., 0]

        def turned(q, x, sign):
            w, v = q[:, :1], sign * q[:, 1:]
            across = np.cross(v, x)
            return x + 2 * (w * across + np.cross(v, across))

        def derivative(t, y):
            q, omega, x, v = y[:, :4], y[:, 4:7], y[:, 7:10], y[:, 10:]
            tau = (
                p["amplitude"] * np.sin(p["frequency"] * t + p["phase"] + x)
                + turned(q, p["pull"], -1)
                + times(p["rate"], omega)
                + times(p["flow"], turned(q, v, -1))
            )
            force = (
                p["weight"] * np.cos(p["frequency"] * t)
                - p["spring"] * x
                + turned(q, p["thrust"], 1)
                + times(p["drag"], v)
                + times(p["lift"], turned(q, omega, 1))
            )
            omega_dot = times(inverse, tau - np.cross(omega, times(inertia, omega)))
            return np.concatenate([spun(q, omega), omega_dot, v, force / mass], axis=1)

        start = [self.q, self.omega, self.position, self.velocity]
        start = np.concatenate(start, axis=1).astype(extended)
        return self.extrapolated(derivative, start, t0, duration)


def _with_mass(bodies, mass):
    """The batch of bodies with masses; ``Body`` has no field to replace, but it is a pytree."""
    if bodies._moments is None:
        return jax.vmap(jq.Body)(bodies.inertia, mass)
    moments, axes = jax.vmap(jq.Body.principal)(bodies)
    return jax.vmap(jq.Body.from_principal)(moments, axes, mass)


def extended_inverse(inertia):
    """Inertias and their inverses, in extended precision."""
    extended = inertia.astype(np.longdouble)
    inverse = np.linalg.inv(inertia).astype(np.longdouble)
    # One Newton step takes the inverse from double to extended precision.
    return extended, inverse @ (2 * np.eye(3) - extended @ inverse)


def spun(q, omega):
    """``1/2 q (0, omega)``, without the library."""
    w, v = q[:, :1], q[:, 1:]
    scalar = -(v * omega).sum(1, keepdims=True)
    return np.concatenate([scalar, w * omega + np.cross(v, omega)], axis=1) / 2


class FreeBodies:
    """64 bodies and starts without torque, with steps of .02.

    What stays constant in exact arithmetic shows how a scheme rounds. ``axes`` is "principal",
    "given" (``from_principal`` gets them with the moments) or "matrix". With ``symmetric``, two
    moments are equal.
    """

    n, h, chunk = 64, 0.02, 1000

    def __init__(self, dtype, axes="principal", symmetric=False):
        rng = np.random.default_rng(20260301)
        # Second moments of mass make every inertia physical.
        square = rng.uniform(0.3, 1.0, (self.n, 3))
        if symmetric:
            square[:, 1] = square[:, 0]
        moments = jnp.asarray(square.sum(axis=1, keepdims=True) - square, dtype)
        turns, q = (random_rotations(self.n, seed).as_quat()[:, [3, 0, 1, 2]] for seed in (8, 9))
        self.bodies = jax.vmap(jq.Body.from_principal)(
            moments, *([] if axes == "principal" else [jnp.asarray(turns, dtype)])
        )
        if axes == "matrix":
            self.bodies = jax.vmap(jq.Body)(self.bodies.inertia)
        omega = rng.normal(size=(self.n, 3))
        omega *= 1.5 / np.linalg.norm(omega, axis=1, keepdims=True)
        self.starts = jq.State(jnp.asarray(q, dtype), jnp.asarray(omega, dtype))

    def drifts(self, step, counts, engine="scan"):
        """Returns medians (counts, 2) over the bodies after each of ``counts`` steps.

        The columns are |momentum - momentum0| and |energy - energy0|, relative to the start. Both
        energies are means over 1000 steps.
        """
        energy0, momentum0, medians = None, None, []
        for done, states in self.fly(step, max(counts), engine):
            if momentum0 is None:
                energy0, momentum0 = self.energy(states).mean(1), self.momentum(states, 0)
            if done in counts:
                turned = np.linalg.norm(
                    self.momentum(states, -1) - momentum0, axis=1
                ) / np.linalg.norm(momentum0, axis=1)
                medians.append(
                    [
                        np.median(turned),
                        np.median(np.abs(self.energy(states).mean(1) / energy0 - 1)),
                    ]
                )
        return np.array(medians)

    def fly(self, step, steps, engine):
        """Yields (steps done, states (64, 1001, ...)) every 1000 steps."""

        def of_one(body, state):
            grid, options = jq.grid(0.0, self.h, self.chunk), jq.RolloutOptions(engine=engine)
            return jq.rollout(step, body, jq.torques.zero, state, grid, options=options).state

        run = jax.jit(jax.vmap(of_one), compiler_options=effort.FULL)
        last = jax.jit(lambda states: jax.tree.map(lambda x: x[:, -1], states))
        start = self.starts
        for done in range(self.chunk, steps + 1, self.chunk):
            states = run(self.bodies, start)
            yield done, states
            start = last(states)

    def energy(self, states):
        """Returns the energies (64, rows), in float64."""
        omega = np.asarray(states.omega, np.float64)
        return 0.5 * np.einsum(
            "nij,nri,nrj->nr", np.asarray(self.bodies.inertia, np.float64), omega, omega
        )

    def momentum(self, states, row):
        """Returns the momenta (64, 3) of a row in world axes, in float64."""
        q, omega = (np.asarray(x[:, row], np.float64) for x in (states.q, states.omega))
        m = np.einsum("nij,nj->ni", np.asarray(self.bodies.inertia, np.float64), omega)
        return Rotation.from_quat(q[:, [1, 2, 3, 0]]).apply(m)


def extrapolate(derivative, y, end, steps, columns=9):
    """Integrates by Gragg's modified midpoint rule with 2, 4, ..., 2 ``columns`` substeps.

    It extrapolates in the square of the substep.
    """
    big = np.longdouble(end) / steps
    for k in range(steps):
        table = []
        for substeps in range(2, 2 * columns + 1, 2):
            h, t = big / substeps, k * big
            before, now = y, y + h * derivative(t, y)
            for j in range(1, substeps):
                before, now = now, before + 2 * h * derivative(t + j * h, now)
            row = [(before + now + h * derivative(t + big, now)) / 2]
            for j, previous in enumerate(table[-1] if table else []):
                ratio = (np.longdouble(substeps) / (substeps - 2 * (j + 1))) ** 2
                row.append(row[-1] + (row[-1] - previous) / (ratio - 1))
            table.append(row)
        y = table[-1][-1]
    return y[:, :4], y[:, 4:]


def manufactured(t):
    """Returns (q, omega, omega') at time t of a motion given by its "ZXZ" angles, for any body."""

    def angles(t):
        return jnp.stack(
            [
                0.7 * t + 0.3 * jnp.sin(2 * t),
                1.0 + 0.4 * jnp.cos(1.7 * t),
                -1.1 * t + 0.2 * jnp.cos(3 * t),
            ]
        )

    def omega(t):
        (_, theta, psi), (phi_dot, theta_dot, psi_dot) = jax.jvp(angles, (t,), (jnp.ones_like(t),))
        s, c = jnp.sin, jnp.cos
        return jnp.stack(
            [
                phi_dot * s(theta) * s(psi) + theta_dot * c(psi),
                phi_dot * s(theta) * c(psi) - theta_dot * s(psi),
                phi_dot * c(theta) + psi_dot,
            ]
        )

    value, slope = jax.jvp(omega, (t,), (jnp.ones_like(t),))
    return jq.euler.to_quaternion(angles(t), "ZXZ"), value, slope


def prescribed(body, attitude):
    """Returns ``(state(t), torque)`` of a smooth motion ``attitude(t)``, by differentiation."""

    def state(t):
        return jq.State(*jq.control.follow(attitude, t)[:2])

    def torque(t, state, params):
        _, omega, alpha = jq.control.follow(attitude, t)
        return body.inertia @ alpha + jnp.cross(omega, body.inertia @ omega)

    return state, torque


def marcher(step, torque, chunk=10, batch=False):
    """Returns ``march(body, start, t0, t1, n, params)``, which takes n steps.

    n is a multiple of ``chunk``. It compiles once, whatever n is.
    """

    def advance(body, state, t0, dt, params):
        grid = jq.grid(t0, dt, chunk, save_every=chunk)
        options = jq.RolloutOptions(engine="scan")
        path = jq.rollout(step, body, torque, state, grid, params, options=options)
        return jax.tree.map(lambda x: x[-1], path.state)

    advance = jax.jit(jax.vmap(advance, in_axes=(0, 0, None, None, 0)) if batch else advance)

    def march(body, state, t0, t1, n, params=None):
        assert n % chunk == 0
        for k in range(0, n, chunk):
            state = advance(body, state, t0 + k * (t1 - t0) / n, (t1 - t0) / n, params)
        return state

    return march


def slope(steps, errors):
    """Returns the order of convergence.

    It is minus the least-squares slope of log error against log steps.
    """
    return -np.polyfit(np.log(steps), np.log(errors), 1)[0]


# A heavy top that spins at 150 rad/s.
FAST = jq.Body.from_principal(jnp.array([15.234375, 15.234375, 0.46875]))
FAST_START = jq.State(jnp.array([-0.5, 0.5, 0.5, 0.5]), jnp.array([-4.61538, 0, 150.0]))
FAST_TORQUE = jq.torques.heavy_top(147.15, jnp.array([0.0, 0, 1]))


@functools.cache
def fast_march(name):
    return marcher(jq.schemes.SCHEMES[name], FAST_TORQUE)


@functools.cache
def fast_end():
    """Returns q at t = 1.

    The end of the axis is checked against its record of twelve digits.
    """
    end = fast_march("symmetric_top_bm4")(FAST, FAST_START, 0.0, 1.0, 1600)
    axis = np.asarray(jq.quaternion.rotate(end.q, jnp.array([0.0, 0, 1])))
    assert np.abs(axis - np.array([0.173343964098, 0.640088592070, -0.748490791134])).max() < 2e-12
    return end.q
