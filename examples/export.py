"""Export a fitted closed loop as a file that needs only jax.

    python examples/export.py

The program fits the six gains of an attitude law and exports the simulation of 100 closed loops
with ``jax.export`` to closed_loop.bin. It runs that file in a new process that never imports
jaxquat, where the numbers must be the same to the last bit. The picture is export.png.

An export has the program of the scan, because a fused kernel exists only in its own process.
``jax.export`` writes files with the package flatbuffers (pip install "jaxquat[export]"). For any
number of bodies, give ``exported`` a dimension of ``jax.export.symbolic_shape("n")``. XLA then
rounds differently: attitudes by up to 2.4e-7 and rates by 7e-7 rad/s in float32.
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
from jaxquat import plot

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
    """Return a quaternion law's torque [N m] within the actuators' limits.

    The parameters are logarithms of the gains, so the gains stay positive.
    """
    gains = jax.tree.map(jnp.exp, log_gains)
    command = jq.control.quaternion_law(state, gains, TARGET)
    return LIMIT * jnp.tanh(command / LIMIT)


def simulate(log_gains, q, omega):
    """Return attitudes (N, 201, 4) and rates (N, 201, 3) of N bodies over 10 s."""
    body = jq.Body(INERTIA)

    def one(q, omega):
        start, options = jq.State(q, omega), jq.RolloutOptions(engine="scan")
        return jq.rollout(jq.rkmk4, body, torque, start, GRID, log_gains, options=options).state

    states = jax.vmap(one)(q, omega)
    return states.q, states.omega


def random_starts(key, n):
    """Draw n attitudes uniform over SO(3), and rates uniform in the ball of 1 rad/s."""
    turn, spin = jax.random.split(key)
    return jq.quaternion.random(turn, (n,)), jax.random.ball(spin, 3, shape=(n,))


def fitted(updates=60):
    """Fit the logarithms of the gains by gradient descent on the mean square angle and rate."""

    def loss(log_gains, starts, key):
        q, omega = simulate(log_gains, *starts)
        angle = jax.vmap(jax.vmap(jq.quaternion.squared_distance, (0, None)), (0, None))(q, TARGET)
        return jnp.mean(angle) + 0.1 * jnp.mean(jnp.sum(omega**2, axis=-1))

    start = jq.control.Gains(damping=jnp.zeros(3), stiffness=jnp.zeros(3))
    starts, key = random_starts(jax.random.key(0), 256), jax.random.key(1)
    return jq.fit(loss, start, optax.adam(0.08), starts, steps=updates, batch_size=32, key=key)


def closed_loop(log_gains):
    """Return ``simulate`` with the gains built in."""
    return jax.jit(lambda q, omega: simulate(log_gains, q, omega))


def exported(loop, n):
    """Return a closed loop of n bodies as bytes."""
    dtype = TARGET.dtype
    shapes = jax.ShapeDtypeStruct((n, 4), dtype), jax.ShapeDtypeStruct((n, 3), dtype)
    return export.export(loop)(*shapes).serialize()


def run_alone(folder, q, omega):
    """Run closed_loop.bin in a folder, in a process that imports jax but not jaxquat.

    Returns:
        The attitudes and rates that it computes.
    """
    np.savez(folder / "starts.npz", q=q, omega=omega)
    files = [str(folder / name) for name in ("closed_loop.bin", "starts.npz", "states.npz")]
    subprocess.run([sys.executable, "-c", ALONE, *files], check=True)
    states = np.load(folder / "states.npz")
    return states["q"], states["omega"]


def compare(name, here, there):
    """Print how many numbers are identical; exit if some are not."""
    same, largest = np.sum(here == there), np.max(np.abs(here - there))
    print(f"{name}: {same} of {here.size} numbers identical, largest difference {largest:g}")
    if not np.array_equal(here, there):
        sys.exit(f"the exported loop differs in its {name}")


def draw(q, file):
    """Draw the error angles of the loaded loop."""
    angle = np.rad2deg(2.0 * np.arctan2(np.linalg.norm(q[..., 1:], axis=-1), np.abs(q[..., 0])))
    figure, axis = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
    axis.semilogy(GRID.times(), angle.T, color=plot.COLOURS[0], linewidth=0.7, alpha=0.5)
    axis.set(xlabel="time [s]", ylabel="error angle [deg]", xlim=(0, 8), ylim=(1e-3, 200))
    axis.set_title(f"{len(q)} bodies in the loaded closed loop, fitted gains")
    figure.savefig(file, dpi=150)


def main():
    """Fit, export, run in another process, compare, draw."""
    if importlib.util.find_spec("flatbuffers") is None:
        need = "jax.export needs the package flatbuffers to write a file"
        sys.exit(f'{need}: pip install "jaxquat[export]"')
    fit = fitted()
    before, after = fit.history[0], np.mean(fit.history[-10:])
    print(f"mean cost {before:.3f} before, {after:.3f} after {len(fit.history)} updates")
    damping, stiffness = (np.round(np.exp(logarithm), 2) for logarithm in fit.params)
    print(f"damping {damping} N m s, stiffness {stiffness} N m")

    loop, file, began = closed_loop(fit.params), Path("closed_loop.bin"), time.perf_counter()
    file.write_bytes(exported(loop, N))
    kibibytes, seconds = file.stat().st_size / 1024, time.perf_counter() - began
    print(f"{file}: {kibibytes:.0f} KiB, exported in {seconds:.1f} s")

    starts = random_starts(jax.random.key(2), N)
    q, omega = map(np.asarray, loop(*starts))
    loaded_q, loaded_omega = run_alone(Path.cwd(), *map(np.asarray, starts))
    compare("attitudes", q, loaded_q)
    compare("rates", omega, loaded_omega)
    draw(loaded_q, "export.png")
    print("drawn to export.png")


if __name__ == "__main__":
    main()
