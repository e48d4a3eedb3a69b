"""Make the pictures of docs/gallery.md by running the examples; those of README.md and docs/plotting.md are among them.

    python docs/gallery.py [FAST.csv.gz SLOW.csv.gz]

The recordings are those of examples/calibrate_gyro.py; without them its picture stays as it is. Pictures are kept in 256 colours,
films in 64: a third of the size, and no difference to the eye.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageSequence

DOCS = Path(__file__).resolve().parent
PICTURES = {  # of each example, within docs
    "fit_gains": ["fit_gains.png"],
    "gallery": ["plotting_free.png", "plotting_control.png", "gallery/flips.gif"],
    "monte_carlo": ["gallery/monte_carlo.png"],
    "identify_inertia": ["gallery/identify_inertia.png"],
    "neural_torque": ["gallery/neural_torque.png"],
    "gyro_attitude": ["gallery/gyro_attitude.png"],
    "calibrate_gyro": ["gallery/calibrate_gyro.png"],
    "pointing_event": ["gallery/pointing_event.png"],
    "adaptive_top": ["gallery/adaptive_top.png"],
    "export": ["gallery/export.png"],
}


def keep(source, target):
    """The picture or film with a palette instead of full colours."""
    target.parent.mkdir(exist_ok=True)
    picture = Image.open(source)
    frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(picture)]
    first = frames[0].quantize(64 if frames[1:] else 256, dither=Image.Dither.NONE)
    if not frames[1:]:
        first.save(target, optimize=True)
        return
    rest = [frame.quantize(palette=first, dither=Image.Dither.NONE) for frame in frames[1:]]
    first.save(
        target,
        save_all=True,
        append_images=rest,
        duration=picture.info["duration"],
        loop=0,
        optimize=True,
    )


def main():
    """Run each example in a folder that is thrown away, and keep what it drew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", nargs="*", type=Path)
    recordings = [path.resolve() for path in parser.parse_args().recordings]
    environment = os.environ | {"PYTHONPATH": str(DOCS.parent)}
    for name, pictures in PICTURES.items():
        arguments = recordings if name == "calibrate_gyro" else []
        if name == "calibrate_gyro" and not recordings:
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable,
                str(DOCS.parent / "examples" / f"{name}.py"),
                *map(str, arguments),
            ]
            subprocess.run(command, cwd=folder, env=environment, check=True)
            for picture in pictures:
                keep(Path(folder) / Path(picture).name, DOCS / picture)


if __name__ == "__main__":
    main()
