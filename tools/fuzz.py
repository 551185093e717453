"""Damaged files and senseless command lines: does any end in a traceback, or change a file of the user's?

    python tools/fuzz.py                                   # 500 damaged files, 3,000 command lines
    python tools/fuzz.py --files 50 --lines 0 --seed 3     # a few, others

Each runs in a forked child of a process that has everything imported, in a folder with one file of every kind that a
user might keep. What is counted: tracebacks, children that a signal ended, children that ran out of time (which are
ended and not judged), files of the user's that changed. Exit code 1 if there is any of the first two or the last.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
LIMIT_S = 60
"""Of processor time and of the clock for one command."""
SAMPLE = ROOT / "recordings" / "carracing-sample"
AGENTS = ROOT / "agents"
PRELOAD = (
    "torch", "pyarrow.parquet", "tyro", "PIL.Image", "cv2", "matplotlib.pyplot", "rich.console", "gymnasium", "pygame",
    "Box2D", "flask", "socketio", "numba", "onnxruntime", "h5py", "stable_baselines3", "nacdrive.rollout.drive",
    "nacdrive.models", "nacdrive.training", "nacdrive.web", "nacdrive.rl",
)  # fmt: skip
VALUES = (
    "", "0", "1", "-1", "3", "1e999", "nan", "inf", "-inf", "999999999999999999999", "x", "a b", "../..", "/", ".",
    "/dev/null", "/dev/zero", "missing", "notes.txt", "mine", "IMG", "model.pt", "recording", "nac_steady.pt", "ppo",
    "geometric", "carracing", "udacity-track", "a:b", "my:Own", "http://x", "\udcff", "ü", "random:7", "lake", "cpu",
    "cuda", "None", "True", "[]", "{}", "-", "--", "a" * 300,
)  # fmt: skip
KEPT = (
    "notes.txt", "mine/thesis.docx", "mine/made-up/x.docx", "mine/driving_log.csv",
    "mine/IMG/center_2018_07_16_17_11_43_382.jpg", "mine/metrics.jsonl", "mine/results.jsonl", "mine/.x.partial",
    "mine/tensorboard/events.out.tfevents.1.vm", "mine/episode-favourite.parquet", "mine/holiday.mp4", "results.jsonl",
)  # fmt: skip


def plant(folder: Path) -> None:
    """Files of a user's in ``folder``, a model and a recording among them."""
    for name in KEPT:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"precious {name}\n")
    shutil.copy(AGENTS / "carracing" / "nac_steady.pt", folder / "model.pt")
    shutil.copytree(SAMPLE, folder / "recording", dirs_exist_ok=True)


def fingerprint(folder: Path) -> dict[str, str]:
    """Checksum of each file that was planted."""
    paths = [folder / name for name in (*KEPT, "model.pt")] + sorted((folder / "recording").rglob("*.parquet"))
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "gone" for path in paths}


def run(arguments: list[str], folder: Path, limit_s: int = LIMIT_S) -> tuple[str, str]:
    """Outcome of a command line (its exit code, ``late``, ``signal N`` or ``traceback``), and the traceback."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _in_child(arguments, folder, writing, limit_s)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(ProcessLookupError):
        # Whatever it started is of its own session.
        os.killpg(child, signal.SIGKILL)
    if code in (-signal.SIGXCPU, -signal.SIGALRM):
        return "late", ""
    if code < 0:
        return f"signal {-code}", text
    return ("traceback" if text else str(code)), text


def _in_child(arguments: list[str], folder: Path, writing: int, limit_s: int) -> None:
    os.setsid()
    os.set_inheritable(writing, False)
    os.chdir(folder)
    silence = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(silence, number)
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(limit_s)
    warnings.simplefilter("ignore")
    from nacdrive.cli.main import main

    sys.argv = ["nacdrive", *arguments]
    try:
        main()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException:
        os.write(writing, f"{arguments}\n{traceback.format_exc()}".encode(errors="replace")[-3000:])
        os._exit(70)
    os._exit(0)


MADE = (
    "record --env carracing --expert geometric --episodes 3 --max-frames 4 --workers 1 --out made",
    "train --data recording --model gru --epochs 1 --workers 1 --out run",
    "eval --model model.pt --episodes 1 --max-frames 3 --workers 1 --no-videos --out ev",
    "bench run --tasks synthetic-decay --models dense --epochs 1 --most 40 --folds 1 --budget smoke --out br",
    "export model.pt --to onnx --out model.onnx",
    "export model.pt --to safetensors --out model.safetensors",
    "recordings export recording --to lerobot --out lerobot",
    "recordings export recording --to minari --out minari-v0",
)
"""What makes sound files of further kinds."""
DRIVES = ("drive --model {} --headless --max-frames 2", "explain wiring --model {} --out w.png")
RECORDING = (
    "recordings check recording", "recordings info recording", "recordings card recording",
    "recordings export recording --to lerobot --out lr", "recordings export recording --to minari --out mi-v0",
    "recordings merge recording made --out both", "train --data recording --epochs 1 --model dense --out trained",
    "explain saliency --model model.pt --data recording --out s.png", "share recording --model model.pt --out p.html",
    "replay recording --video lap.mp4", "explain neurons --model model.pt --data recording --out n.png",
)  # fmt: skip
OPENED = {
    "model.pt": (
        *DRIVES, "export {} --to c --out out.c", "export {} --to html --out out.html",
        "replay made --model {} --video lap.mp4", "share recording --model {} --out p.html",
        "eval --model {} --episodes 1 --max-frames 2 --workers 1 --no-videos --out e",
    ),
    "model.safetensors": DRIVES,
    "model.onnx": DRIVES,
    "agent.pt": (
        "expert eval --agent {} --episodes 1 --max-frames 2 --workers 1 --out e",
        "drive --driver {} --headless --max-frames 2", "expert imitate --teacher {} --out im",
        "record --expert {} --episodes 1 --max-frames 2 --workers 1 --out r",
    ),
    "agent.zip": ("expert export --agent {} --out exported.pt",),
    "emnist.pt": ("predict --task emnist digits --model {} --out o",),
    "recording/recording.json": RECORDING,
    "recording/episode-3000000.parquet": RECORDING,
    "made/recording.json": ("record --expert geometric --episodes 4 --max-frames 4 --workers 1 --resume --out made",),
    "run/run.json": ("train --data recording --model gru --epochs 2 --workers 1 --resume --out run",),
    "run/gru.pt": ("explain wiring --model {} --out w.png",),
    "run/metrics.jsonl": ("train --data recording --model gru --epochs 2 --workers 1 --resume --out run",),
    "ev/evaluation.json": (f"{MADE[2]} --resume",),
    "ev/episodes.jsonl": (f"{MADE[2]} --resume",),
    "br/results.jsonl": (
        "bench report br --out rep", "bench robustness br --out rob", "bench plan --tasks synthetic-decay --costs br",
        f"{MADE[3]} --resume",
    ),
    "results/results.jsonl": (
        "bench report results --out rep", "bench robustness results --out rob",
        "bench plan --tasks synthetic-decay --costs results",
    ),
    "digits/seven.png": ("predict --task emnist digits --out o", "predict --task emnist {} --out o"),
    "idx/t10k-images-idx3-ubyte": ("predict --task emnist idx --out o",),
    "lerobot/meta/info.json": ("recordings import lerobot --out imported",),
    "lerobot/meta/stats.json": ("recordings import lerobot --out imported",),
    "lerobot/data/chunk-000/file-000.parquet": ("recordings import lerobot --out imported",),
    "minari-v0/data/main_data.hdf5": ("recordings import minari-v0 --out imported",),
    "minari-v0/data/metadata.json": ("recordings import minari-v0 --out imported",),
    "log/driving_log.csv": ("recordings import log --out imported", "eval --env udacity --data log --out e"),
    "log/IMG/center_2018_07_16_17_11_43_382.jpg": ("recordings import log --out imported",),
    "bearing/acc_00001.csv": ("predict bearing --out o", "data check pronostia --data bearing"),
    "par/ConfLongDemo_JSI.txt": ("bench run --tasks par --models dense --data par --budget smoke --out b",),
}  # fmt: skip
"""Files by name, and the command lines that open them (``{}`` is the file)."""
RESUMED = ("made", "run", "ev", "br")
"""What a command goes on with is its own: it may set broken files aside."""


def make(folder: Path) -> None:
    """A sound file of each kind in ``folder``."""
    from PIL import Image

    from tests.helpers.udacity_logs import make_log

    ppo = AGENTS / "carracing" / "ppo"
    for source, name in ((ppo / "ppo.pt", "agent.pt"), (ppo / "ppo.zip", "agent.zip")):
        shutil.copy(source, folder / name)
    shutil.copy(AGENTS / "emnist" / "nac_exact.pt", folder / "emnist.pt")
    shutil.copytree(SAMPLE, folder / "recording", dirs_exist_ok=True)
    for line in MADE:
        outcome, text = run(line.split(), folder, 10 * LIMIT_S)
        if outcome != "0":
            raise SystemExit(f"{line}: {outcome} {text}")
    make_log(folder / "log")
    row = {
        "key": "emnist/gru/0", "task": "emnist", "model": "gru", "fold": 0, "repeat": 0, "asked": ["emnist"],
        "made_up": [], "status": "done", "scores": {"emnist": {"accuracy": 80.0}}, "parameters": 1000, "train_s": 9.0,
        "wall_s": 10.0, "epochs": 8, "train_sequences": 7000, "peak_mib": 300.0, "fit": {"epochs": 8},
        "record": {"config": {"protocol": "sequence", "size": {"epochs": 8}, "folds": 1, "seed": 0}},
    }  # fmt: skip
    for name in ("results", "digits", "idx", "bearing", "par"):
        (folder / name).mkdir()
    (folder / "results" / "results.jsonl").write_text((json.dumps(row) + "\n") * 3)
    Image.new("L", (28, 28), 90).save(folder / "digits" / "seven.png")
    (folder / "idx" / "t10k-images-idx3-ubyte").write_bytes(
        bytes((0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28)) + bytes(2 * 784)
    )
    sound = "\n".join(f"9,39,39,{65664 + i},0.552,-0.146" for i in range(2560))
    for number in range(1, 4):
        (folder / "bearing" / f"acc_{number:05d}.csv").write_text(sound)
    reading = "A01,010-000-024-033,6337902279{0:08d},27.05.2009 14:03:25:127,4.06,1.89,0.5,walking\n"
    (folder / "par" / "ConfLongDemo_JSI.txt").write_text("".join(reading.format(i * 10_000) for i in range(400)))


def damage(data: bytes, rng: random.Random) -> bytes:
    """``data`` as a broken disk, a careless or a malicious hand would leave it."""
    kind = rng.randrange(8)
    place, length = rng.randrange(len(data) + 1), 1 << rng.randrange(12)
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + bytes(length) + data[place + length :]
    if kind == 2:
        return data[:place] + rng.randbytes(min(length, 64)) + data[place:]
    if kind == 3:
        return bytes(byte ^ (1 << rng.randrange(8)) if rng.random() < 4 / len(data) else byte for byte in data)
    if kind == 4:
        return data[place:] + data[:place]
    if kind == 5:
        whole = (b"[" * 100_000, b"", b"\xff\xfe", b"{}", b"null", b"[1]", b"PK\x03\x04", rng.randbytes(99))
        return rng.choice(whole)
    # A word of its text is another of the same length or another type.
    words = [b"true", b"null", b"1e999", b"-1", b'"x"', b"[]", b"{}", b"9" * 30]
    numbers = [i for i in range(len(data) - 1) if data[i : i + 1] in b":" and data[i + 1 : i + 2] in b' "0123456789[{']
    if not numbers:
        return data[:place]
    start = rng.choice(numbers) + 1
    ends = [end for sign in (b",", b"}", b"]", b"\n") if (end := data.find(sign, start)) > 0]
    return data[:start] + rng.choice(words) + data[min(ends, default=start) :]


def damaged_files(count: int, rng: random.Random, folder: Path, limit_s: int) -> list[tuple[str, str, str]]:
    """Open so many damaged files with every command that takes them: (line, outcome, traceback)."""
    sound = folder.with_name("sound")
    shutil.copytree(folder, sound)
    names = [name for name in OPENED if (folder / name).is_file()]
    for name in sorted({*OPENED} - {*names}):
        note(name, "not made", "")
    results = []
    for number in range(count):
        name = names[number % len(names)]
        path, place = folder / name, name.split("/")[0]
        path.write_bytes(damage((sound / name).read_bytes(), rng))
        kept = hashlib.sha256(path.read_bytes()).hexdigest()
        line = rng.choice(OPENED[name]).replace("{}", name)
        overwrite = "--out" in line and "--resume" not in line
        outcome, text = run([*line.split(), "--overwrite"] if overwrite else line.split(), folder, limit_s)
        changed = not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != kept
        if changed and place not in RESUMED:
            outcome, text = "changed", f"{line}: {name}"
        results.append(note(f"{line}: {name}", outcome, text))
        if (sound / place).is_dir():
            shutil.rmtree(folder / place)
            shutil.copytree(sound / place, folder / place)
        else:
            shutil.copy(sound / place, path)
    return results


def random_lines(count: int, rng: random.Random) -> list[list[str]]:
    """Command lines: a verb, some of its options, values that fit or do not."""
    from nacdrive.cli.main import VERBS, entries, load_verb

    options: list[tuple[list[str], list[str]]] = []
    for verb in VERBS:
        for sub, (config, _) in entries(load_verb(verb)).items():
            names = [f"--{field.name.rstrip('_').replace('_', '-')}" for field in dataclasses.fields(config)]
            options.append(([verb, *sub.split()], names))
    lines = []
    for _ in range(count):
        words, names = rng.choice(options)
        line = list(words)
        for name in rng.sample(names, min(len(names), rng.randrange(5))):
            line += [name, *([rng.choice(VALUES)] if rng.random() < 0.8 else [])]
        line += [rng.choice(VALUES) for _ in range(rng.randrange(3))]
        lines.append(line)
    return lines


def main() -> int:
    """Run it and print the counts and every traceback's end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--lines", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-s", type=int, default=LIMIT_S, help="a command that takes longer is not judged")
    given = parser.parse_args()
    return report(*fuzz(given.files, given.lines, given.seed, given.limit_s))


def fuzz(files: int, lines: int, seed: int, limit_s: int = LIMIT_S) -> tuple[Counter[str], list[str]]:
    """Counts of the outcomes, and what to say of each that should not be."""
    os.environ |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    for name in PRELOAD:
        try:
            import_module(name)
        except ImportError:
            continue
    import torch

    from nacdrive.cli.main import VERBS, load_verb

    for verb in VERBS:
        load_verb(verb)
    torch.set_num_threads(1)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "home"
        folder.mkdir()
        plant(folder)
        results: list[tuple[str, str, str]] = []
        if files:
            make(folder)
            results = damaged_files(files, rng, folder, limit_s)
        before = fingerprint(folder)
        for line in random_lines(lines, rng):
            outcome, text = run(line, folder, limit_s)
            if (after := fingerprint(folder)) != before:
                changed = [name for name, sum_ in after.items() if sum_ != before[name]]
                outcome, text = "changed", f"{line}: {changed}"
                plant(folder)
            results.append(note(" ".join(line), outcome, text))
    counts = Counter(outcome for _, outcome, _ in results)
    bad = [f"{line}\n{text}" for line, outcome, text in results if is_bad(outcome)]
    return counts, bad


def note(line: str, outcome: str, text: str) -> tuple[str, str, str]:
    """What was run and its outcome; printed to stderr at once, so that a long run can be followed."""
    print(f"{outcome}: {line}" + f"\n{text}" * is_bad(outcome), file=sys.stderr, flush=True)
    return line, outcome, text


def is_bad(outcome: str) -> bool:
    """Whether it is neither an exit code of 0 to 2 nor out of time."""
    return outcome[0] not in "012l"


def report(counts: Counter[str], bad: list[str]) -> int:
    """Print it; the exit code."""
    print("\n\n".join(bad))
    print(", ".join(f"{outcome}: {count}" for outcome, count in sorted(counts.items())))
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
