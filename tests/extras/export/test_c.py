"""The C of a policy decides as torch does: compiled here, frame by frame over resets, and around a track."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.registry import env_spec
from nacdrive.extras.export.c_source import array, export_c, identifier, named, write_frames
from nacdrive.extras.export.network_description import NACStep, describe, without_idle_neurons
from nacdrive.models import Policy, PolicyConfig, load_policy, save_policy
from nacdrive.rollout.rollout import rollout
from tests.helpers.nightly import daily
from tests.helpers.small_policies import CHOICES, DAILY, KINDS, saved, small_policy, smooth_frames
from tools.compiled_policy import CompiledPolicy, build, compiler

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs a C compiler: apt-get install gcc")
STRICT = ("-std=c99", "-O0", "-Wall", "-Wextra", "-Werror")
QUICK = ("-std=c99", "-O0")  # to compile; how fast it decides is none of a test's business
SANITIZED = (*STRICT, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CLOSE = 1e-5


def compare(policy: Policy, compiled: CompiledPolicy, frames, t_s, resets=(0,)) -> float:
    """Largest difference of what the two give for a stream of frames, as a share of the largest number given."""
    apart = size = 0.0
    for i, (frame, t) in enumerate(zip(frames, t_s, strict=True)):
        if i in resets:
            policy.reset()
            compiled.reset()
        one, other = policy.step(frame, float(t)), compiled.step(frame, float(t))
        outputs = policy.last_decision().scores
        apart = max(apart, float(np.abs(outputs - compiled.outputs).max()))
        size = max(size, 1.0, float(np.abs(outputs).max()))
        assert one.choice == other.choice
        for name in ("steering", "throttle", "brake"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=CLOSE)
    return apart / size


@pytest.mark.parametrize("kind", daily(KINDS, DAILY))
def test_c_decides_as_torch(kind: str, tmp_path: Path) -> None:
    policy, model = saved(kind, tmp_path)
    compiled = CompiledPolicy(model, tmp_path, STRICT)
    frames, t_s = smooth_frames(policy, 24)
    assert compare(policy, compiled, frames, np.concatenate([t_s[:14], t_s[:10]]), resets=(0, 14)) < CLOSE
    given = []
    for frame, t in zip(frames, t_s, strict=True):
        policy.step(frame, float(t) + 100)
        given.append(policy.last_decision().scores)
    assert np.ptp(given, axis=0).max() > 1e-3, "outputs that never change would hide every mistake"


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(path.stem for path in (shipped("agents") / "carracing").glob("nac_*.pt")))
def test_the_c_of_a_shipped_carracing_policy_decides_as_torch_over_a_recorded_lap(name: str, tmp_path: Path) -> None:
    model = shipped("agents") / "carracing" / f"{name}.pt"
    compiled = CompiledPolicy(model, tmp_path, QUICK)
    recording = Recording.open(shipped("recordings") / "carracing-sample")
    laps = [recording.load(k) for k in (0, 1)]
    frames = np.concatenate([lap.decoded()[:90] for lap in laps])
    t_s = np.concatenate([lap.t_s[:90] for lap in laps])
    assert compare(load_policy(model), compiled, frames, t_s, resets=(0, 90)) < CLOSE


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(path.stem for path in (shipped("agents") / "udacity").glob("nac_*.pt")))
def test_the_c_of_a_shipped_udacity_policy_steers_as_torch(name: str, tmp_path: Path) -> None:
    model = shipped("agents") / "udacity" / f"{name}.pt"
    policy, compiled = load_policy(model), CompiledPolicy(model, tmp_path, QUICK)
    frames, t_s = smooth_frames(policy, 20)
    assert compare(policy, compiled, frames, t_s, resets=(0,)) < CLOSE


@pytest.mark.parametrize("kind", daily(["nac-euler-steers", "topk", "long-lstm"], ["long-lstm"]))
def test_the_program_beside_it_runs_under_sanitizers_and_prints_the_decisions(kind: str, tmp_path: Path) -> None:
    policy, model = saved(kind, tmp_path)
    code, header, program = export_c(model, tmp_path / "made")
    assert header.read_text().count("#endif") == 3
    try:
        made = build([code, program], tmp_path / "try", SANITIZED)
    except UserError as error:
        pytest.skip(f"the compiler has no sanitizers: {error}")
    frames, t_s = smooth_frames(policy, 12)
    t_s = np.concatenate([t_s[:7], t_s[:5]])  # time goes back: a new episode
    write_frames(tmp_path / "frames.bin", frames, t_s)
    done = subprocess.run([made, tmp_path / "frames.bin"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [list(map(float, line.split())) for line in done.stdout.splitlines()]
    assert len(rows) == 12
    for i, row in enumerate(rows):
        if i in (0, 7):
            policy.reset()
        policy.step(frames[i], float(t_s[i]))
        np.testing.assert_allclose(row[5:], policy.last_decision().scores, atol=2e-5)
    timed = subprocess.run([made, tmp_path / "frames.bin", "2"], capture_output=True, text=True, check=True)
    assert timed.stdout.startswith("24 decisions: median ")
    assert subprocess.run([made], capture_output=True, check=False).returncode == 2


@pytest.mark.nightly
def test_the_same_drive_around_a_carracing_track(tmp_path: Path) -> None:
    spec = env_spec("carracing")
    model = shipped("agents") / "carracing" / "nac_steady.pt"
    driven = []
    for policy in (load_policy(model), CompiledPolicy(model, tmp_path)):
        env = spec.make({"max_frames": 240})
        ticks = list(rollout(env, PolicyDriver(policy), 4_000_007))
        env.close()
        driven.append((ticks[-1].episode_return, [tick.action.choice for tick in ticks]))
    assert driven[0] == driven[1]
    assert len(driven[0][1]) == 60 and len(set(driven[0][1])) > 1


def test_a_time_that_cannot_follow_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    policy, model = saved("nac-exact-choices", tmp_path)
    compiled = CompiledPolicy(model, tmp_path, STRICT)
    frames, _ = smooth_frames(policy, 3)
    for p in (policy, compiled):
        p.step(frames[0], 1.0)
    for t in (0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="no time that can follow"):
            compiled.step(frames[1], t)
    policy.step(frames[2], 1.1)
    compiled.step(frames[2], 1.1)
    np.testing.assert_allclose(compiled.outputs, policy.last_decision().scores, atol=CLOSE)
    with pytest.raises(ValueError, match="takes frames of"):
        compiled.step(frames[0][:10], 1.2)


def test_a_layer_without_c_and_a_file_that_is_no_policy_get_one_sentence(tmp_path: Path) -> None:
    for model, options, words in (
        ("ltc", {}, "sequence layer 'ltc' has no export to C or HTML"),
        ("nac-lag", {}, "uses time_features"),
    ):
        policy = Policy.new(PolicyConfig(model=model, options=options, window=4, d_model=16, num_heads=4, **CHOICES))
        save_policy(policy, tmp_path / "policy.pt")
        with pytest.raises(UserError, match=words):
            export_c(tmp_path / "policy.pt", tmp_path)
    with pytest.raises(UserError, match="nacdrive series model"):
        export_c(shipped("agents") / "emnist" / "nac_exact.pt", tmp_path)
    assert not list(tmp_path.glob("*.c")) and not list(tmp_path.glob("*.h"))


def test_weights_that_are_not_finite_are_refused() -> None:
    with pytest.raises(UserError, match="not finite"):
        array("w", np.array([1.0, np.nan], np.float32))


@pytest.mark.parametrize(
    ("given", "made"), [("nac_steady", "nac_steady"), ("9 lives", "policy_9_lives"), ("My-Net", "my_net")]
)
def test_names_become_names_of_c(given: str, made: str) -> None:
    assert identifier(given) == made


def test_a_file_that_is_called_like_a_name_of_c_keeps_its_own() -> None:
    text = '#include "policy_step.h"\nvoid policy_step(policy_state *state); /* POLICY_WINDOW of policy_step-2.c */'
    made = '#include "policy_step.h"\nvoid mine_step(mine_state *state); /* MINE_WINDOW of policy_step-2.c */'
    assert named(text, "mine") == made


def test_numbers_are_written_so_that_they_read_back_as_themselves() -> None:
    values = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32) * 10.0 ** np.arange(
        -20, 30, dtype=np.float32
    )
    text = array("w", values)
    assert text.startswith("static const float w[3][50] = {")
    read = [
        np.float32(item.rstrip("f"))
        for item in text[text.index("=") + 1 :].replace("{", "").replace("}", "").rstrip(";").split(",")
        if item.strip()
    ]
    np.testing.assert_array_equal(np.array(read, np.float32).reshape(3, 50), values)


def test_only_neurons_without_a_say_are_left_out() -> None:
    step = describe(small_policy("nac-exact-choices")).sequence
    assert isinstance(step, NACStep) and step.inter is not None
    pruned = without_idle_neurons(step)
    assert pruned.inter is not None
    assert pruned.motor.shape[1] < step.motor.shape[1] or pruned.inter.shape[1] <= step.inter.shape[1]
    assert (pruned.motor != 0).sum() == (step.motor != 0).sum()


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
def test_the_header_can_be_read_by_cpp(tmp_path: Path) -> None:
    _, model = saved("dense-choices", tmp_path)
    _, header, _ = export_c(model, tmp_path)
    (tmp_path / "use.cpp").write_text(
        f'#include "{header.name}"\nint main() {{ dense_choices_state s; dense_choices_reset(&s); return 0; }}\n'
    )
    subprocess.run(["c++", "-Wall", "-Werror", "-c", "use.cpp", "-o", "use.o"], cwd=tmp_path, check=True)


def test_texts_of_a_model_file_stay_in_their_comment():
    from nacdrive.extras.export.c_source import comment

    said = comment("x */ #error \n#define A /* ??/ \\ \x00\u2028")
    assert not any(part in said for part in ("*/", "/*", "\n", "\\", "??", "\0", "\u2028")) and "#error" in said
