"""A policy as a part of donkeycar's: pictures in, angle and throttle out. pip install nacdrive-run donkeycar

nacdrive recordings import ~/mycar/data --out tub
nacdrive train --task imitation --data tub --out runs/tub
nacdrive export runs/tub/nac_steady.pt --out pilot.onnx
python donkey_part.py pilot.onnx ~/mycar/data     # in a Vehicle whose camera is the tub

In a car's manage.py: V.add(Pilot("pilot.onnx"), inputs=inputs, outputs=outputs, run_condition="run_pilot").
"""

import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

try:
    from nacdrive_run import Policy  # on the car: numpy and onnxruntime
except ModuleNotFoundError:
    from nacdrive.drivers.onnx_runtime import Policy

PAUSE_S = 1.0
"""After so long without a picture somebody else has driven: what is remembered counts no more."""


class Pilot:
    """Decides for each picture, at its time, and remembers what its policy remembers."""

    def __init__(self, path):
        self.policy = Policy(path)
        self.began = self.last = -PAUSE_S

    def run(self, image):
        """Angle (to the right positive) and throttle (less than 0 brakes) for uint8 RGB [height, width, 3]."""
        now = time.monotonic()
        if now - self.last > PAUSE_S:
            self.policy.reset()
            self.began = now
        self.last = now
        decision = self.policy.step(image, now - self.began)
        return decision.steering, decision.throttle - decision.brake


class TubCamera:
    """Shows the pictures of a tub, and what was driven."""

    def __init__(self, path):
        from donkeycar.parts.tub_v2 import Tub

        self.tub = Tub(path, read_only=True)
        self.images, self.records, self.shutdown = Path(path) / "images", iter(self.tub), self.tub.close

    def run(self):
        """One record after the other."""
        record = next(self.records)
        return np.asarray(Image.open(self.images / record["cam/image_array"])), record["user/angle"]


class Compare:
    """Prints the angle of the person who drove and that of the policy."""

    def run(self, theirs, ours):
        """At each picture."""
        print(f"{theirs:+.2f} {ours:+.2f}")


def main(policy, tub):
    """Run donkeycar's own loop over a tub, twenty times a second."""
    from donkeycar.vehicle import Vehicle

    vehicle, camera = Vehicle(), TubCamera(tub)
    vehicle.add(camera, outputs=["cam/image_array", "user/angle"])
    vehicle.add(Pilot(policy), inputs=["cam/image_array"], outputs=["pilot/angle", "pilot/throttle"])
    vehicle.add(Compare(), inputs=["user/angle", "pilot/angle"])
    vehicle.start(rate_hz=20, max_loop_count=len(camera.tub))


if __name__ == "__main__":
    main(*sys.argv[1:])
