"""Small files in the published formats, so that every task can be run without its data. Not data: made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nacdrive.common.files import atomic_path, write_text
from nacdrive.common.result_folder import note_own
from nacdrive.datasets.par import ACTIVITIES, TAGS
from nacdrive.datasets.physionet2012 import HEADER, OUTCOMES, STAYS
from nacdrive.datasets.uea import TEST, TRAIN

MARKER = "MADE-UP.txt"
"""In every folder of made-up files: whoever reads one says so beside every number."""
SENTENCE = "Every file here was made up by nacdrive in the data set's format. Nothing here was measured.\n"
SYNTHETIC_PAR_FILE = "readings.txt"
"""Not the official name, so that nobody takes it for the official file."""


def is_synthetic(folder: Path) -> bool:
    """Whether ``folder`` holds made-up files."""
    return (folder / MARKER).is_file()


def generate(task: str, folder: Path) -> None:
    """Write a small made-up data set for ``task`` into ``folder``, unless it is there."""
    if not is_synthetic(folder):
        folder.mkdir(parents=True, exist_ok=True)
        GENERATORS[task](folder)
        write_text(folder / MARKER, SENTENCE)


def emnist(folder: Path) -> None:
    """Crude digits: a bar whose place and length tell the class. MNIST's own files are checked, so not its format."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, 1200).astype(np.uint8)
    images = np.zeros((len(labels), 28, 28), np.uint8)
    for image, label in zip(images, labels, strict=True):
        row, column = 4 + 2 * int(label) + random.integers(0, 2), random.integers(2, 8)
        image[row : row + 3, column : column + 6 + int(label)] = 255
    with atomic_path(folder / "digits.npz") as partial, partial.open("wb") as file:
        np.savez_compressed(file, images=images, labels=labels)


def par(folder: Path) -> None:
    """Two short runs of each of three persons: each activity at a height and a place of its own."""
    random = np.random.default_rng(3)
    lines = []
    for person in "ABC":
        for run in (1, 2):
            tick = 633_790_226_000_000_000
            for activity, name in enumerate(ACTIVITIES):
                for i in range(40):
                    tick += int(random.integers(200_000, 900_000))
                    x, y, z = random.normal((activity % 4, activity // 4, activity / 10), 0.1)
                    tag = list(TAGS)[i % 4]
                    lines.append(f"{person}0{run},{tag},{tick},27.05.2009 14:03:25:723,{x:.4f},{y:.4f},{z:.4f},{name}")
    write_text(folder / SYNTHETIC_PAR_FILE, "\n".join(lines) + "\n")


def udacity(folder: Path) -> None:
    """A minute's drive at 4 frames a second: a grey road whose bend is the steering, seen by three cameras."""
    (folder / "IMG").mkdir(parents=True, exist_ok=True)
    lines = []
    rows, columns = np.arange(60, 160), np.arange(320)
    for i in range(240):
        steering, stamp = float(np.sin(i / 12)) / 2, f"2018_07_16_17_11_{i // 4:02d}_{i % 4 * 250:03d}"
        names = []
        for camera, aside in {"center": 0, "left": 40, "right": -40}.items():
            frame = np.full((160, 320, 3), (90, 140, 70), np.uint8)
            middle = (160 + aside * (rows - 60) / 100 + 120 * steering * (160 - rows) / 100).astype(int)
            left, right = (middle - rows // 2)[:, None], (middle + rows // 2)[:, None]
            frame[60:][(columns >= left) & (columns < right)] = 120
            names.append(f"IMG/{camera}_{stamp}.jpg")
            note_own(folder / names[-1])
            Image.fromarray(frame).save(folder / names[-1], quality=70)
        lines.append(",".join([*names, f"{steering:.4f}", "0.3", "0", "15.0"]))
    write_text(folder / "driving_log.csv", "\n".join(lines) + "\n")


def vibration(samples: int, wear: float, random: np.random.Generator, rate_hz: float) -> NDArray[np.float64]:
    """[samples, 2] noise with shocks that grow with wear."""
    t = np.arange(samples) / rate_hz
    shocks = (np.sin(2 * np.pi * 90 * t) > 0.99) * np.sin(2 * np.pi * 3000 * t)
    return random.normal(0, 0.4 + wear, (samples, 2)) + 6 * wear * shocks[:, None]


def pronostia(folder: Path) -> None:
    """A few short-lived bearings of two conditions; one with semicolons, as the real Bearing1_4."""
    random = np.random.default_rng(0)
    for name, snapshots in {"Bearing1_1": 60, "Bearing1_4": 40, "Bearing2_7": 30}.items():
        where = folder / "Full_Test_Set" / name
        sign = ";" if name == "Bearing1_4" else ","
        for i in range(snapshots):
            signal, clock = vibration(2560, max(0.0, 2 * i / snapshots - 1), random, 25_600), 9 * 3600 + 10 * i
            stamp = sign.join(map(str, (clock // 3600, clock // 60 % 60, clock % 60)))
            line = f"{stamp}{sign}%.1f{sign}%.3f{sign}%.3f\n"
            values = np.column_stack([39.0 * np.arange(len(signal)), signal])
            write_text(where / f"acc_{i + 1:05d}.csv", line * len(signal) % tuple(values.ravel().tolist()))


def xjtu_sy(folder: Path) -> None:
    """One raw bearing, a file a minute."""
    random, where = np.random.default_rng(1), folder / "35Hz12kN" / "Bearing1_1"
    for i in range(30):
        signal = vibration(32_768, max(0.0, i / 15 - 1), random, 25_600)
        lines = "%.4f,%.4f\n" * len(signal) % tuple(signal.ravel().tolist())
        write_text(where / f"{i + 1}.csv", f"Horizontal_vibration_signals,Vertical_vibration_signals\n{lines}")


def hust(folder: Path) -> None:
    """Two recordings of a bearing, healthy and with a fault."""
    from scipy.io import savemat

    random = np.random.default_rng(2)
    for fault, wear in {"N": 0.0, "B": 0.5}.items():
        note_own(folder / f"{fault}400.mat")
        savemat(folder / f"{fault}400.mat", {"data": vibration(4 * 51_200, wear, random, 51_200)[:, :1]})


def physionet2012(folder: Path) -> None:
    """Sixty short stays; the heart of who dies beats faster and faster."""
    random = np.random.default_rng(4)
    outcomes = ["RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death"]
    for stay in range(60):
        name, dies = 900_000 + stay, stay % 3 == 0
        lines = [HEADER, f"00:00,RecordID,{name}", "00:00,Age,60", "00:00,Gender,1", "00:00,Height,-1"]
        for minute in np.sort(random.integers(0, 2880, 12)):
            rate = 80 + dies * minute / 60 + random.normal()
            lines += [f"{minute // 60:02d}:{minute % 60:02d},{what}" for what in (f"HR,{rate:.1f}", "Temp,37.0")]
        write_text(folder / STAYS / f"{name}.txt", "\n".join(lines) + "\n")
        outcomes.append(f"{name},6,1,5,-1,{int(dies)}")
    write_text(folder / OUTCOMES, "\n".join(outcomes) + "\n")


def uea(folder: Path) -> None:
    """Two classes of waves in two dimensions, one twice as fast as the other, between 12 and 24 steps long."""
    random = np.random.default_rng(5)
    for part, count in ((TRAIN, 60), (TEST, 40)):
        lines = ["@problemName Waves", "@timeStamps false", "@classLabel true slow fast", "@data"]
        for number in range(count):
            phase = random.uniform(0, 6) + np.arange(random.integers(12, 25)) * (0.5 + 0.5 * (number % 2))
            rows = [",".join(f"{value:.4f}" for value in wave) for wave in (np.sin(phase), np.cos(phase))]
            lines.append(":".join([*rows, ("slow", "fast")[number % 2]]))
        write_text(folder / f"Waves{part}", "\n".join(lines) + "\n")


GENERATORS: dict[str, Callable[[Path], None]] = {
    "emnist": emnist,
    "par": par,
    "physionet2012": physionet2012,
    "uea": uea,
    "udacity": udacity,
    "pronostia": pronostia,
    "xjtu-sy": xjtu_sy,
    "hust": hust,
}
