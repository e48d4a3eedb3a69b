"""Export a fitted closed loop as a file that needs jax alone.

    python examples/export.py

fits the six gains of an attitude law, exports the simulation of 100 closed loops with ``jax.export`` to closed_loop.bin, and runs
that file in a new process that never imports jaxquat: the numbers must be the same to the last bit. Draws export.png.

The loop has to be that of the scan engine: a fused kernel lives in the process that compiled it. ``jax.export`` writes files with
the package flatbuffers (pip install "jaxquat[export]"). For any number of bodies give ``exported`` a dimension of
``jax.export.symbolic_shape("n")``: XLA then rounds differently, attitudes by up to 2.4e-7 and rates by 7e-7 rad/s in float32.
"""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax
from jax import export

import jaxquat as jq

matplotlib.use("Agg")
import matplotlib.pyplot as plt

INERTIA = jnp.array([[0.6, 0.0, -0.2], [0.0, 1.0, 0.0], [-0.2, 0.0, 1.5]])  # kg m^2
LIMIT = 2.0  # N m
TARGET = jnp.array([1.0, 0.0, 0.0, 0.0])
N = 100
GRID = jq.grid(0.0, 0.05, 200)

ALONE = """
import sys
from pathlib import Path

import jax
import numpy as np
from jax import export

closed_loop = export.deserialize(bytearray(Path(sys.argv[1]).read_bytes()))
starts = np.load(sys.argv[2])
q, omega = jax.jit(closed_loop.call)(starts["q"], starts["omega"])
assert not any(name.split(".")[0] == "jaxquat" for name in sys.modules)
np.savez(sys.argv[3], q=q, omega=omega)
print(f"in another process: jax {jax.__version__}, {len(sys.modules)} modules, none of jaxquat")
"""


def torque(t, state, log_gains):
    """A quaternion law within the actuators' limits; the gains are exponentials, so they stay positive."""
    gains = jax.tree.map(jnp.exp, log_gains)
    return jq.actuators.saturate_smooth(
        jq.control.quaternion_law(state, gains, TARGET), jnp.full(3, LIMIT)
    )


def simulate(log_gains, q, omega):
    """Attitudes (N, 201, 4) and rates (N, 201, 3) of N bodies over 10 s."""

    def one(q, omega):
        return jq.rollout(
            jq.rkmk4, jq.Body(INERTIA), torque, jq.State(q, omega), GRID, log_gains, engine="scan"
        ).state

    states = jax.vmap(one)(q, omega)
    return states.q, states.omega


def random_starts(key, n):
    """Attitudes uniform over SO(3), rates uniform in the ball of 1 rad/s."""
    turn, spin = jax.random.split(key)
    return jq.quaternion.random(turn, (n,)), jax.random.ball(spin, 3, shape=(n,))


def fitted(updates=60):
    """The logarithms of the gains, by gradient descent on the mean square angle and rate."""

    def loss(log_gains, starts, key):
        q, omega = simulate(log_gains, *starts)
        angle = jax.vmap(jax.vmap(jq.quaternion.squared_distance, (0, None)), (0, None))(q, TARGET)
        return jnp.mean(angle) + 0.1 * jnp.mean(jnp.sum(omega**2, axis=-1))

    start = jq.control.Gains(damping=jnp.zeros(3), stiffness=jnp.zeros(3))
    starts, key = random_starts(jax.random.key(0), 256), jax.random.key(1)
    return jq.fit(loss, start, optax.adam(0.08), starts, steps=updates, batch_size=32, key=key)


def closed_loop(log_gains):
    """``simulate`` with the gains built in."""
    return jax.jit(lambda q, omega: simulate(log_gains, q, omega))


def exported(loop, n):
    """A closed loop of n bodies as bytes."""
    dtype = TARGET.dtype
    shapes = jax.ShapeDtypeStruct((n, 4), dtype), jax.ShapeDtypeStruct((n, 3), dtype)
    return export.export(loop)(*shapes).serialize()


def run_alone(folder, q, omega):
    """What closed_loop.bin in a folder computes in a process that imports jax and not jaxquat: attitudes, rates."""
    np.savez(folder / "starts.npz", q=q, omega=omega)
    files = [str(folder / name) for name in ("closed_loop.bin", "starts.npz", "states.npz")]
    subprocess.run([sys.executable, "-c", ALONE, *files], check=True)
    states = np.load(folder / "states.npz")
    return states["q"], states["omega"]


def draw(q, path):
    """The error angles of the loaded loop."""
    angle = np.rad2deg(2.0 * np.arctan2(np.linalg.norm(q[..., 1:], axis=-1), np.abs(q[..., 0])))
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    axis.semilogy(GRID.times(), angle.T, color="tab:blue", linewidth=0.6, alpha=0.5)
    axis.set(xlabel="time [s]", ylabel="error angle [deg]", xlim=(0, 8), ylim=(1e-3, 200))
    axis.set_title(f"{len(q)} bodies in the loaded closed loop, fitted gains")
    figure.savefig(path, dpi=120)


def main():
    """Fit, export, run elsewhere, compare, draw."""
    if importlib.util.find_spec("flatbuffers") is None:
        sys.exit(
            'jax.export wants the package flatbuffers to write a file: pip install "jaxquat[export]"'
        )
    fit = fitted()
    gains = jax.tree.map(np.exp, fit.params)
    print(
        f"mean cost {fit.history[0]:.3f} before, {np.mean(fit.history[-10:]):.3f} after {len(fit.history)} updates"
    )
    print(
        f"damping {np.round(gains.damping, 2)} N m s, stiffness {np.round(gains.stiffness, 2)} N m"
    )
    loop, folder, began = closed_loop(fit.params), Path.cwd(), time.perf_counter()
    (folder / "closed_loop.bin").write_bytes(exported(loop, N))
    size = (folder / "closed_loop.bin").stat().st_size
    print(
        f"closed_loop.bin: {size / 1024:.0f} KiB, exported in {time.perf_counter() - began:.1f} s"
    )
    starts = random_starts(jax.random.key(2), N)
    here, there = map(np.asarray, loop(*starts)), run_alone(folder, *map(np.asarray, starts))
    for name, a, b in zip(("attitudes", "rates"), here, there, strict=True):
        print(
            f"{name}: {np.sum(a == b)} of {a.size} numbers identical, largest difference {np.max(np.abs(a - b)):g}"
        )
        if not np.array_equal(a, b):
            sys.exit(f"the exported loop differs in its {name}")
    draw(there[0], "export.png")
    print("drawn to export.png")


if __name__ == "__main__":
    main()
