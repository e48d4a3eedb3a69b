"""Make the pictures of docs/gallery.md by running the examples.

    python docs/gallery.py [FAST.csv.gz SLOW.csv.gz]

The pictures of README.md and docs/api/plot.md are among them. What an example prints is kept in
docs/gallery/NAME.txt: the numbers of the captions are from there, which a test checks. The
recordings are those of examples/calibrate_gyro.py; without them its picture stays as it is, and so
does that of examples/attitude_filter.py, which needs two halves of recordings, and of
examples/identify_quadrotor.py without its flights. Pictures are kept in 256 colours and films in
64, which takes a third of the size and makes no difference to the eye.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageSequence

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))
from examples.validation import flight_log  # noqa: E402

FLIGHTS = DOCS.parents[1] / "shared" / "data" / "crazyflie"
PICTURES = {  # example: its pictures in docs
    "fit_gains": ["fit_gains.png"],
    "gallery": [
        "plotting_free.png",
        "plotting_recording.png",
        "plotting_control.png",
        "plotting_margins.png",
        "gallery/flips.gif",
    ],
    "quadrotor": ["gallery/quadrotor.gif", "gallery/quadrotor.png"],
    "train_policy": ["gallery/train_policy.gif", "gallery/train_policy.png"],
    "monte_carlo": ["gallery/monte_carlo.png"],
    "detumble": ["gallery/detumble.png"],
    "cubesat": ["gallery/cubesat.png"],
    "particles": ["gallery/particles.png"],
    "brownian": ["gallery/brownian.png"],
    "toutatis": ["gallery/toutatis.png"],
    "identify_inertia": ["gallery/identify_inertia.png"],
    "identify_quadrotor": ["gallery/identify_quadrotor.png"],
    "neural_torque": ["gallery/neural_torque.png"],
    "gyro_attitude": ["gallery/gyro_attitude.png"],
    "calibrate_gyro": ["gallery/calibrate_gyro.png"],
    "attitude_filter": ["gallery/attitude_filter.png"],
    "pointing_event": ["gallery/pointing_event.png"],
    "adaptive_top": ["gallery/adaptive_top.png"],
    "export": ["gallery/export.png"],
    "onboard": ["gallery/onboard.png"],
    "pointing_budget": ["gallery/pointing_budget.png"],
    "log_to_gains": ["gallery/log_to_gains.png"],
}


def keep(source, target):
    """Write a picture or film with a palette instead of full colours."""
    target.parent.mkdir(exist_ok=True)
    picture = Image.open(source)
    frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(picture)]
    first = frames[0].quantize(64 if frames[1:] else 256, dither=Image.Dither.NONE)
    if not frames[1:]:
        first.save(target, optimize=True)
        return
    later = [frame.quantize(palette=first, dither=Image.Dither.NONE) for frame in frames[1:]]
    timing = {"duration": picture.info["duration"], "loop": 0}
    first.save(target, save_all=True, append_images=later, optimize=True, **timing)


def run(name, *arguments):
    """Run an example in a folder that is thrown away; keep its pictures and what it prints."""
    environment = os.environ | {"PYTHONPATH": str(DOCS.parent)}
    command = [sys.executable, DOCS.parent / "examples" / f"{name}.py", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        printed = done.stdout
        for file in arguments:
            printed = printed.replace(str(file), Path(file).name)
        (DOCS / "gallery" / f"{name}.txt").write_text(printed)
        for picture in PICTURES[name]:
            keep(Path(folder) / Path(picture).name, DOCS / picture)


def main():
    """Run each example."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", nargs="*", type=Path)
    recordings = [path.resolve() for path in parser.parse_args().recordings]
    for name in PICTURES:
        if name == "calibrate_gyro":
            if recordings:
                run(name, *recordings)
        elif name == "attitude_filter":
            continue
        elif name == "log_to_gains":
            with tempfile.TemporaryDirectory() as folder:
                flight_log.three_axes(Path(folder) / "simulated.ulg")
                run(name, Path(folder) / "simulated.ulg")
        elif name == "train_policy":
            run(name, "--updates", "1000")  # on any machine, however busy
        elif name != "identify_quadrotor" or FLIGHTS.exists():
            run(name)


if __name__ == "__main__":
    main()
