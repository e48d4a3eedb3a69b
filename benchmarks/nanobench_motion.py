"""Fit the model of ``nanodrone_model`` to flights of NanoBench, and predict others.

    python benchmarks/nanobench_motion.py --train FILES --test FILES [--write]

FILES are CSVs of the repository syediu/nanobench-iros2026, with commands of the motors and no
measured speeds. The thrust is nearly linear in command times battery voltage (the mean acceleration
along the body's z axis says so to 2 %), so the squared speeds are that product after a lag of 50
ms. States are those of the motion capture, with the gyroscope's rates. Its clock is aligned to the
one of the motion capture for each flight, where the rates differ least. The windows, the errors and
the fit are those of ``nanodrone.py``: half a second from every sample, by these speeds alone.
"""

import time

import jax
import numpy as np
from nanodrone import BATCH, PAGE, mean_errors, parser_of, put
from nanodrone_fit import MEMORY_STEPS, chosen, constant, improved, residuals_at
from nanodrone_model import DT, Model, completed, first_guess, predict, windows
from scipy.signal import butter, filtfilt, lfilter
from scipy.spatial.transform import Rotation

import jaxquat as jq
from examples.validation import nanobench

PAGE = PAGE.with_name("validation.md")
LAG, HOVER = 0.05, 2.9  # s, V: command times voltage in hover
SHIFTS = np.arange(-0.1, 0.101, 0.002)  # s
SWING = butter(2, np.array([0.5, 6.0]) * 2 * DT, "band")  # Hz
HORIZONS = (1, 10, 50)


def flight(file):
    """Return the part of a flight above 0.3 m, as ``nanodrone_model.read`` does."""
    log = nanobench.read(file)
    high = np.flatnonzero(log["position"][:, 2] > 0.3)[[0, -1]]
    t = np.arange(float(log.t[high[0]]) + 0.1, float(log.t[high[1]]) - 0.1, DT)
    q = Rotation.from_quat(log.q, scalar_first=True)
    turns = (q[:-1].inv() * q[1:]).as_rotvec() / np.diff(log.t)[:, None]
    late = clock(t, (log.t[1:] + log.t[:-1]) / 2, turns, log)
    volts = log["motors"] / 65535 * log["battery"][:, None]
    keep = np.exp(-DT / LAG)
    volts = lfilter([1 - keep], [1, -keep], volts, axis=0, zi=keep * volts[:1])[0]

    def at(times, values):
        return np.stack([np.interp(times, log.t, column) for column in values.T], 1)

    signs = np.cumprod(np.append(1.0, np.sign(np.sum(log.q[1:] * log.q[:-1], axis=1))))
    q = at(t, log.q * signs[:, None])
    return completed(
        {
            "t": t - t[0],
            "q": q / np.linalg.norm(q, axis=1, keepdims=True),
            "position": at(t, log["position"]),
            "velocity": at(t, log["velocity"]),
            "omega": at(t + late, log.gyro),
            "motors": np.sqrt(at(t + late, volts / HOVER)),
            "battery": np.interp(t + late, log.t, log["battery"]),
        }
    )


def clock(t, middles, turns, log):
    """Return by how much the sensors' stamps are late [s]: where both rates differ least."""

    def swing(times, values, stamps):
        sampled = np.stack([np.interp(times, stamps, x) for x in values.T[:2]], 1)
        return filtfilt(*SWING, sampled, axis=0)  # pyright: ignore[reportCallIssue]

    wanted = swing(t, turns, middles)
    misses = [np.sum((swing(t + s, log.gyro, log.t) - wanted) ** 2) for s in SHIFTS]
    return SHIFTS[np.argmin(misses)]


def fitted(flights):
    """Return the two models by name."""
    residuals = residuals_at(MEMORY_STEPS)
    data = chosen(flights, MEMORY_STEPS, 36)
    options = jq.LeastSquaresOptions(max_steps=16, ftol=1e-4, progress=False)
    guess = first_guess()
    physics = jq.least_squares(
        lambda x, data: residuals(Model(x, None), data), guess.physics, data, options=options
    )
    print(physics, flush=True)
    model = guess._replace(physics=physics.params)
    memory, result = improved(
        model, [x for x in model.memory._fields if x != "start"], residuals, data, 12
    )
    print(result, flush=True)
    return {"physics": model._replace(memory=None), "physics and memory": memory}


def table(files, models):
    """Return the ratios to holding of each quantity, over all windows of all flights."""
    flights = [flight(file) for file in files]
    batches = [
        jax.tree.map(lambda x, first=first: x[first : first + BATCH], part)
        for part in map(windows, flights)
        for first in range(0, len(part["q"]), BATCH)
    ]
    hold = mean_errors(constant, batches)
    titles = " | ".join(f"{10 * h} ms" for h in HORIZONS)
    lines = [f"| error after, as a part of that of hold | {titles} |"]
    lines += ["|---|" + "---|" * len(HORIZONS)]
    for name, model in models.items():
        errors = mean_errors(lambda x, m=model: predict(m, x), batches)
        for quantity, found in errors.items():
            cells = [f"{(found / hold[quantity])[h - 1]:.2f}" for h in HORIZONS]
            lines.append(f"| {name}: {quantity} | {' | '.join(cells)} |")
    return lines


def main():
    """Fit, test, print."""
    options = parser_of(__doc__).parse_args()
    begin = time.perf_counter()
    models = fitted([flight(file) for file in options.train])
    text = "\n".join(table(options.test, models))
    print(f"{text}\n({time.perf_counter() - begin:.0f} s)")
    if options.write:
        put(PAGE, "<!-- NanoBench: motion -->", "<!-- end of motion -->", text)


if __name__ == "__main__":
    main()
