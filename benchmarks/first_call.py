"""Seconds until the first result of each entry point, compilation included, one process each.

    python benchmarks/first_call.py [--only NAME ...] [--write]

Each row is a fresh process that has imported jax and jaxquat. Its time is divided into XLA,
lowering, and the rest, which is mostly tracing. LLVM compiles the kernels of the fused engine
beside them, in a thread. The last column is the same call in a second process that finds JAX's
persistent cache filled. Ratios are to the yardstick: value and gradient of a hand-written Lie RK4
under ``lax.scan``.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import pages

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- first calls -->", "<!-- end of first calls -->"
SHOWN = ("total", "tracing", "lowering", "llvm", "xla")


def problem():
    """A body under a quaternion law, its start, and a grid of 1000 steps."""
    import jax.numpy as jnp

    import jaxquat as jq

    body = jq.Body.from_principal(jnp.array([1.0, 2.0, 3.0]))
    start = jq.State(jq.quaternion.exp(jnp.array([0.3, 0.2, 0.1])), jnp.array([0.1, -0.2, 0.3]))

    def law(t, state, k):
        return -k[0] * state.q[1:] - k[1] * state.omega

    return body, law, start, jq.grid(0.0, 0.01, 1000), jnp.array([1.0, 2.0])


def flown(scheme, engine="auto"):
    """A function of the gains: the last rate of a rollout."""
    import jax.numpy as jnp

    import jaxquat as jq

    body, law, start, grid, gains = problem()
    options = jq.RolloutOptions(engine=engine)

    def loss(gains):
        path = jq.rollout(scheme, body, law, start, grid, gains, options=options)
        return jnp.sum(path.final.omega**2)

    return loss, gains


def of_rollout(name, engine="auto", derivative="value"):
    """A rollout, its gradient, or a product with its Hessian."""

    def call():
        import jax

        import jaxquat as jq

        loss, gains = flown(jq.schemes.SCHEMES[name], engine)
        kinds = {
            "value": lambda: jax.jit(loss)(gains),
            "gradient": lambda: jax.jit(jax.value_and_grad(loss))(gains),
            "hessian": lambda: jax.jit(lambda k: jax.jvp(jax.grad(loss), (k,), (k,)))(gains),
        }
        return kinds[derivative]()

    return call


def yardstick():
    """Value and gradient of a Lie RK4 written by hand, 1000 steps under ``lax.scan``."""
    import jax
    import jax.numpy as jnp

    inertia, dt = jnp.array([1.0, 2.0, 3.0]), 0.01

    def multiply(p, q):
        w = p[0] * q[0] - p[1:] @ q[1:]
        return jnp.concatenate([w[None], p[0] * q[1:] + q[0] * p[1:] + jnp.cross(p[1:], q[1:])])

    def exp(u):
        square = u @ u
        angle = jnp.sqrt(jnp.where(square > 1e-6, square, 1.0))
        sine = jnp.where(square > 1e-6, jnp.sin(angle / 2) / angle, 0.5 - square / 48)
        return jnp.concatenate([jnp.cos(0.5 * angle * (square > 1e-6))[None], sine * u])

    def dexpinv(u, v):
        square = u @ u
        angle = jnp.sqrt(jnp.where(square > 1e-6, square, 1.0))
        half = 0.5 * angle
        factor = jnp.where(
            square > 1e-6, (1 - half / jnp.tan(half)) / angle**2, 1 / 12 + square / 720
        )
        return v + 0.5 * jnp.cross(u, v) + factor * jnp.cross(u, jnp.cross(u, v))

    def slopes(q, u, omega, gains):
        attitude = multiply(q, exp(u))
        tau = -gains[0] * attitude[1:] - gains[1] * omega
        return dexpinv(u, omega), (tau - jnp.cross(omega, inertia * omega)) / inertia

    def loss(gains):
        def step(carry, _):
            q, omega = carry
            zero = jnp.zeros(3)
            k1 = slopes(q, zero, omega, gains)
            k2 = slopes(q, 0.5 * dt * k1[0], omega + 0.5 * dt * k1[1], gains)
            k3 = slopes(q, 0.5 * dt * k2[0], omega + 0.5 * dt * k2[1], gains)
            k4 = slopes(q, dt * k3[0], omega + dt * k3[1], gains)
            u, change = (
                dt / 6 * (a + 2 * b + 2 * c + d) for a, b, c, d in zip(k1, k2, k3, k4, strict=True)
            )
            return (multiply(q, exp(u)), omega + change), None

        begin = exp(jnp.array([0.3, 0.2, 0.1])), jnp.array([0.1, -0.2, 0.3])
        (_, omega), _ = jax.lax.scan(step, begin, length=1000)
        return jnp.sum(omega**2)

    return jax.jit(jax.value_and_grad(loss))(jnp.array([1.0, 2.0]))


def plan(kind="plain"):
    """A slew by ``ilqr``: plain, with limits or a constraint, for 100 goals, or its derivative."""

    def call():
        import jax
        import jax.numpy as jnp

        import jaxquat as jq

        body = jq.Body.from_principal(jnp.array([1.0, 2.0, 3.0]))
        still = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        goal = jq.quaternion.exp(jnp.array([0.0, 0.0, 2.0]))

        def missed(state, goal):
            turn = jq.quaternion.log(jq.quaternion.relative(goal, state.q))
            return 1e2 * jnp.concatenate([turn, state.omega])

        def effort(k, state, goal, command):
            return command

        def slow(k, state, goal, command):
            return jnp.abs(state.omega) - 0.2

        limits = jq.planning.Constraints(limits=(-0.4, 0.4))
        kinds = {"limits": limits, "constraints": jq.planning.Constraints(inequalities=slow)}

        def slew(goal):
            return jq.planning.ilqr(
                jq.rkmk2, body, jq.torques.commanded, still, jq.grid(0.0, 0.5, 40), goal,
                jnp.zeros((20, 3)), jq.planning.Residuals(effort, missed),
                constraints=kinds.get(kind),
            ).commands  # fmt: skip

        if kind == "vmap":
            goals = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
            return jax.jit(jax.vmap(slew))(goals / np.linalg.norm(goals, axis=1, keepdims=True))
        if kind == "derivative":
            return jax.jit(jax.grad(lambda goal: jnp.sum(slew(goal) ** 2)))(goal)
        return jax.jit(slew)(goal)

    return call


def feedback(kind):
    """A rollout with ``mpc``, or with ``mppi`` of 256 sequences, which slow a body down."""

    def call():
        import jax
        import jax.numpy as jnp

        import jaxquat as jq

        body = jq.Body.from_principal(jnp.array([1.0, 2.0, 3.0]))
        turning = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.1, 0.2, 0.3]))
        guess, grid = jnp.zeros((10, 3)), jq.grid(0.0, 0.5, 40)
        plant = jq.rkmk2, body, jq.torques.commanded
        limits = jq.planning.Constraints(limits=(-0.5, 0.5))

        def cost(k, state, params, command):
            return jnp.concatenate([command, 10.0 * state.omega])

        def controller():
            if kind == "mpc":
                return jq.planning.mpc(*plant, 0.5, guess, cost, constraints=limits)
            sampling = jq.planning.Sampling(0.2, 0.01, samples=256)
            return jq.planning.mppi(
                jax.random.key(0), *plant, 0.5, guess, cost, sampling=sampling, constraints=limits
            )

        def fly(start):
            return jq.rollout(*plant, start, grid, controller=controller()).final.omega

        return jax.jit(fly)(turning)

    return call


def policy():
    """An update of a network of 2 x 64 by the gradient of 64 flights of 100 samples."""
    import jax
    import jax.numpy as jnp
    import optax

    import jaxquat as jq

    body = jq.Body.from_principal(jnp.array([1.0, 2.0, 3.0]))
    sizes, rng = (7, 64, 64, 3), np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    weights = [(0.1 * normal(m, n), np.zeros(m, np.float32)) for n, m in itertools.pairwise(sizes)]

    def network(t, state, memory, weights, value):
        x = jnp.concatenate([state.q, state.omega])
        for matrix, bias in weights[:-1]:
            x = jnp.tanh(matrix @ x + bias)
        return weights[-1][0] @ x + weights[-1][1], memory

    def loss(weights, starts):
        controller = jq.Controller(lambda start, weights: (), network, 0.01)

        def flown(start):
            grid = jq.grid(0.0, 0.01, 100)
            path = jq.rollout(
                jq.rkmk2, body, jq.torques.commanded, start, grid, weights, controller=controller
            )
            return jnp.sum(path.final.omega**2)

        return jnp.mean(jax.vmap(flown)(starts))

    adam = optax.adam(1e-3)

    def update(weights, memory, starts):
        slope = jax.grad(loss)(weights, starts)
        changes, memory = adam.update(slope, memory)
        return optax.apply_updates(weights, changes), memory

    turns = normal(64, 4)
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    starts = jq.State(jnp.asarray(turns), jnp.asarray(normal(64, 3)))
    return jax.jit(update)(weights, adam.init(weights), starts)


def shaken():
    """A body in a fluid by ``langevin``, 1000 steps."""
    import jax
    import jax.numpy as jnp

    import jaxquat as jq

    body, _, start, grid, _ = problem()
    scheme = jq.stochastic.langevin(jq.no_squish, 0.4 * jnp.ones(3), 1e-2)

    def fly(key):
        return jq.rollout(scheme, body, jq.torques.zero, start, grid, noise=key).final.omega

    return jax.jit(fly)(jax.random.key(0))


def recording():
    """Ten seconds of an inertial sensor at rest."""
    import jaxquat as jq

    t = np.arange(1000) / 100
    force, field = np.tile([0.0, 0.0, 9.81], (1000, 1)), np.tile([20.0, 0.0, -40.0], (1000, 1))
    return jq.recordings.Recording(t, np.zeros((1000, 3)), accelerometer=force, magnetometer=field)


def filtered(smooth=False):
    """``ahrs`` over 1000 samples, or its smoother."""

    def call():
        import jax

        import jaxquat as jq

        samples = jq.estimation.imu_samples(recording())
        run = jq.estimation.smooth if smooth else jq.estimation.run
        return jax.jit(lambda samples: run(jq.estimation.ahrs(), samples))(samples)

    return call


def vectors():
    """``mekf`` over 1000 samples of a gyroscope and two vectors."""
    import jax
    import jax.numpy as jnp

    import jaxquat as jq

    times, q = np.arange(1000) / 100, jnp.array([1.0, 0.0, 0.0, 0.0])
    two = jnp.tile(jnp.eye(3)[1:], (1000, 1, 1))
    samples = jq.estimation.VectorSample(
        jq.estimation.intervals(times), jnp.zeros((1000, 3)), two, two, jnp.full((1000, 4), jnp.nan)
    )
    return jax.jit(lambda x: jq.estimation.run(jq.estimation.mekf(q), x))(samples)


def preintegrated():
    """``preintegrate`` over 1000 samples."""
    import jax
    import jax.numpy as jnp

    import jaxquat as jq

    rates, times = 0.1 * jnp.ones((1000, 3)), jnp.arange(1000) / 100
    return jax.jit(jq.kinematics.preintegrate)(rates, rates, times)


def ensemble():
    """An ensemble of 4096 members."""
    import jax

    import jaxquat as jq

    loss, gains = flown(jq.rkmk4)

    def draw(key):
        return gains * jax.random.uniform(key, (2,), minval=0.5)

    reduce = jq.ensembles.mean()
    return jq.ensembles.run(jax.random.key(0), draw, loss, 4096, reduce=reduce, progress=False)


def fit():
    """A fit of two gains by 10 updates of Adam."""
    import optax

    import jaxquat as jq

    loss, gains = flown(jq.rkmk4)
    options = jq.FitOptions(progress=False)
    adam = optax.adam(0.1)
    return jq.fit(lambda k, batch, key: loss(k), gains, adam, steps=10, options=options).params


def least_squares():
    """Two gains by least squares from a path."""
    import jaxquat as jq

    body, law, start, grid, gains = problem()

    def rates(k):
        return jq.rollout(jq.rkmk4, body, law, start, grid, k).state.omega.ravel()

    seen = rates(gains)
    options = jq.LeastSquaresOptions(progress=False)
    return jq.least_squares(lambda k: rates(k) - seen, 0.5 * gains, options=options).params


ROWS = {
    "yardstick": yardstick,
    "rollout, rkmk4, scan": of_rollout("rkmk4", "scan"),
    "rollout, rkmk4, kernel": of_rollout("rkmk4", "fused"),
    "rollout, zhao": of_rollout("zhao"),
    "rollout, lie_midpoint": of_rollout("lie_midpoint"),
    "gradient, scan": of_rollout("rkmk4", "scan", "gradient"),
    "gradient, kernel": of_rollout("rkmk4", "fused", "gradient"),
    "product with the Hessian": of_rollout("rkmk4", "auto", "hessian"),
    "fit": fit,
    "least_squares": least_squares,
    "ensembles.run": ensemble,
    "ilqr": plan(),
    "ilqr, limits": plan("limits"),
    "ilqr, constraints": plan("constraints"),
    "ilqr, vmap": plan("vmap"),
    "ilqr, derivative": plan("derivative"),
    "mpc": feedback("mpc"),
    "mppi": feedback("mppi"),
    "policy update": policy,
    "langevin": shaken,
    "preintegrate": preintegrated,
    "mekf": vectors,
    "ahrs": filtered(),
    "smooth": filtered(smooth=True),
}


def measured(name):
    """Call one entry point in this process and print its seconds as JSON."""
    import jax

    import jaxquat
    from jaxquat.fused.targets import host

    seconds: dict[str, float] = {"lowering": 0.0, "xla": 0.0, "llvm": 0.0}
    events = {
        "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
        "/jax/core/compile/backend_compile_duration": "xla",
    }

    def listen(event, duration_secs, **_):
        if event in events:
            seconds[events[event]] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    compiled = host.compiled

    def timed(text):
        began = time.perf_counter()
        code = compiled(text)
        seconds["llvm"] += time.perf_counter() - began
        return code

    for module in list(sys.modules.values()):
        if getattr(module, "compiled", None) is compiled:
            vars(module)["compiled"] = timed
    assert jaxquat.__version__
    began = time.perf_counter()
    jax.block_until_ready(jax.tree.leaves(ROWS[name]()))
    seconds["total"] = time.perf_counter() - began
    seconds["tracing"] = seconds["total"] - seconds["lowering"] - seconds["xla"]
    print(json.dumps(seconds))


def processes(name):
    """The seconds of a first process, and the total of a second one with a filled cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "XDG_CACHE_HOME": folder,
        }
        command = [sys.executable, __file__, "--measure", name]
        runs = [
            subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            for _ in range(2)
        ]
    first, second = (json.loads(run.stdout.splitlines()[-1]) for run in runs)
    return first, second["total"]


def main():
    """Print the table, a row at a time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance")
    arguments = parser.parse_args()
    if arguments.measure:
        measured(arguments.measure)
        return
    lines = [
        "| first call [s] | total | of the yardstick | tracing | lowering | LLVM | XLA | cached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    unit = None
    for name in dict.fromkeys(["yardstick", *arguments.only]):
        first, again = processes(name)
        unit = unit or first["total"]
        parts = " | ".join(f"{first[x]:.2f}" for x in SHOWN[1:])
        total = f"{first['total']:.2f} | {first['total'] / unit:.2f}"
        lines.append(f"| {name} | {total} | {parts} | {again:.2f} |")
        print(lines[-1], flush=True)
    if arguments.write:
        pages.put(PAGE, BEGIN, END, "\n".join(lines))


if __name__ == "__main__":
    main()
