"""Saliency, neuron traces, sides and figures of a small policy on a few frames."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import from_parquet, to_parquet
from nacdrive.datasets.images import encode_png
from nacdrive.datasets.recording import RecordingWriter
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.camera_noise import CameraNoise, NoisyCamera
from nacdrive.envs.carracing.env import make_carracing, to_action
from nacdrive.extras.explain.figures import neurons_figure, saliency_figure, telling_moments
from nacdrive.extras.explain.sides import auc, report, separation, separations
from nacdrive.extras.explain.wiring import wiring_figure
from nacdrive.extras.export.html import lap_record
from nacdrive.extras.export.network_description import describe
from nacdrive.extras.what_if.moments import moment_of
from nacdrive.models.config import PolicyConfig
from nacdrive.models.files import save_policy
from nacdrive.models.policy import Policy
from nacdrive.rollout.recorder import EpisodeBuffer, executed_action
from nacdrive.rollout.rollout import rollout
from nacdrive.viz.figures import save
from nacdrive.viz.recorded import recorded_ticks
from nacdrive.viz.saliency import GradCam
from nacdrive.viz.trace import Trace, retrace, why_of
from tests.helpers.ticks import make_tick

ACTIONS = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.8))


def make_policy(window: int = 4, model: str = "nac-steady") -> Policy:
    torch.manual_seed(0)
    config = PolicyConfig("carracing", model, ACTIONS, window=window, d_model=16, num_heads=4)
    return Policy.new(config, model)


def make_episode(steps: int = 8, seed: int = 3) -> Episode:
    rng = np.random.default_rng(seed)
    frames = rng.integers(0, 255, (steps, 96, 96, 3), dtype=np.uint8)
    zeros = np.zeros(steps)
    return Episode(
        frames=[encode_png(frame) for frame in frames],
        t_s=np.arange(steps) * 0.08,
        choice=np.full(steps, 3),
        steering=zeros,
        throttle=zeros + 1,
        brake=zeros,
        reward=zeros + 1,
        speed_mps=zeros + 20,
        expert_choice=np.full(steps, 3),
        expert_logits=None,
        seed=seed,
        source="carracing",
        driver="ppo",
        episode_return=float(steps),
    )


@pytest.mark.parametrize("window", [1, 4])
def test_saliency_has_the_frames_size_and_lies_between_0_and_1(window: int) -> None:
    policy = make_policy(window)
    cam = GradCam(policy)
    for i, frame in enumerate(make_episode().decoded()):
        policy.step(frame, i * 0.08)
        map_ = cam(frame)
        assert map_.shape == (96, 96) and map_.dtype == np.float32
        assert map_.min() >= 0 and map_.max() <= 1


def test_saliency_equals_grad_cam_written_out() -> None:
    policy = make_policy(1)
    (frame,) = make_episode(1).decoded()
    policy.step(frame, 0.0)
    kept: list[torch.Tensor] = []
    handle = policy.last_conv.register_forward_hook(lambda _m, _i, out: (out.retain_grad(), kept.append(out))[0])
    images = torch.from_numpy(frame.copy()).float()[None, None].requires_grad_()
    policy.network(images, torch.zeros(1, 1))[0, -1, 1].backward()
    handle.remove()
    (out,) = kept
    assert out.grad is not None
    weights = out.grad.mean(dim=(2, 3), keepdim=True)
    cam = (weights * out).sum(1, keepdim=True).relu()
    expected = torch.nn.functional.interpolate(cam, (96, 96), mode="bilinear")[0, 0].detach().numpy()
    assert np.allclose(GradCam(policy)(choice=1), expected / (expected.max() or 1), atol=1e-4)


def test_saliency_leaves_the_policys_memory_and_gradients_alone() -> None:
    one, two = make_policy(), make_policy()
    cam = GradCam(one)
    for i, frame in enumerate(make_episode().decoded()):
        a, b = one.step(frame, i * 0.08), two.step(frame, i * 0.08)
        cam()
        assert a.logits is not None and b.logits is not None and np.array_equal(a.logits, b.logits)
    assert all(parameter.grad is None for parameter in one.network.parameters())


def test_retracing_gives_the_decisions_of_live_driving() -> None:
    policy, episode = make_policy(), make_episode()
    ticks = retrace(policy, episode, saliency_every=3)
    policy.reset()
    for i, (tick, frame) in enumerate(zip(ticks, episode.decoded(), strict=True)):
        assert tick.action.choice == policy.step(frame, float(episode.t_s[i])).choice
        assert (tick.saliency is not None) == (i % 3 == 0)
    assert ticks[0].expert is not None and ticks[0].expert.choice == 3


def test_through_an_irregular_camera_a_recorded_drive_is_retraced_as_it_was_driven() -> None:
    env = NoisyCamera(make_carracing(max_frames=160), CameraNoise(dropped=0.3, late=2, delay_steps=1))
    buffer = EpisodeBuffer(executed_action)
    driven = []
    with closing(env):
        for tick in rollout(env, PolicyDriver(make_policy()), 5):
            buffer(tick)
            driven.append(tick)
    episode = from_parquet(to_parquet(buffer.episode(source="carracing", driver="nac-steady", meta={})))
    policy = make_policy()
    ticks = retrace(policy, episode)
    assert [tick.held for tick in ticks] == [tick.held for tick in driven] and 5 < sum(t.held for t in ticks) < 35
    for again, tick in zip(ticks, driven, strict=True):
        assert (again.taken_s, again.t_s) == (tick.taken_s, tick.t_s)
        np.testing.assert_array_equal(again.action.logits, tick.action.logits)
    step = next(i for i in range(20, 40) if ticks[i].held)
    moment = moment_of(ticks, [tick.action for tick in driven], step + 1, policy.config.window)
    assert moment is not None and len(moment.past) == step and len(set(moment.times)) == policy.config.window + 1
    policy.reset()
    for frame, t_s in zip(moment.frames, moment.times, strict=True):
        action = policy.step(frame, t_s)
    np.testing.assert_allclose(action.logits, ticks[step].action.logits, atol=1e-5)
    why, plain = (
        why_of(policy, policy.meter(), seen, step, list("abcde")) for seen in (ticks, recorded_ticks(episode))
    )
    assert why == plain
    lap = lap_record(describe(policy), episode, 60.0)
    assert lap["t_s"] == [tick.taken_s for tick in driven if not tick.held] and len(lap["frames"]) == len(lap["t_s"])


def test_a_trace_weighs_the_pairs_as_the_attention_does() -> None:
    ticks = retrace(make_policy(), make_episode())
    trace = Trace.of(ticks, head=2)
    last = ticks[-1].neurons
    assert trace.states["omega"][-1] == pytest.approx(float(last["weights"][2] @ last["omega"][2]), rel=1e-5)
    assert trace.states["k"].shape == (8, 4)
    assert trace.states["inter"].ndim == 2


def test_a_policy_without_circuit_or_head_is_one_sentence() -> None:
    with pytest.raises(UserError, match="NAC"):
        Trace.of(retrace(make_policy(model="lstm"), make_episode(2)), 0)
    with pytest.raises(UserError, match="heads 1 to 4"):
        Trace.of(retrace(make_policy(), make_episode(2)), 9)


def test_frames_of_another_size_are_one_sentence() -> None:
    config = PolicyConfig("carracing", "nac-steady", ACTIONS, height=64, width=64, d_model=16, num_heads=4)
    with pytest.raises(UserError, match="cannot look"):
        retrace(Policy.new(config), make_episode(2))


@given(
    st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=30),
    st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=30),
)
def test_auc_is_the_share_of_pairs_in_order(low: list[float], high: list[float]) -> None:
    a, b = np.array(low, np.float32), np.array(high, np.float32)
    pairs = (b[:, None] > a[None, :]) + 0.5 * (b[:, None] == a[None, :])
    assert auc(a, b) == pytest.approx(pairs.mean())


def test_an_omega_that_tells_the_sides_is_found() -> None:
    steering = np.array([-1, -1, 0, 1, 1], dtype=np.float32)
    side = separation(0, "omega", np.array([0.9, 1.0, 1.2, 1.4, 1.5], np.float32), steering)
    assert side is not None and side.strength == 1.0
    assert (side.left, side.right) == (pytest.approx(0.95), pytest.approx(1.45))
    assert "separates the sides: AUC 1.00" in report([side])


def test_a_policy_that_never_turns_says_nothing_of_sides() -> None:
    policy = make_policy()
    with torch.no_grad():
        policy.network.head[-1].bias[3] += 100
    sides = separations([retrace(policy, make_episode())])
    assert sides == []
    assert "nothing can be said" in report(sides)


@pytest.mark.nightly
def test_figures_are_written_whole(tmp_path: Path) -> None:
    policy = make_policy()
    ticks = retrace(policy, make_episode(), saliency_every=1)
    for figure in (
        saliency_figure(ticks[:2], "x"),
        neurons_figure(Trace.of(ticks, 0), "x"),
        wiring_figure(policy, 0),
    ):
        save(figure, tmp_path / "figure.png")
        assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_the_commands_write_figures_and_refuse_other_endings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nacdrive.extras.explain import effect
    from nacdrive.extras.explain import verb as explain

    model, data = tmp_path / "small.pt", tmp_path / "carracing-sample"
    save_policy(make_policy(), model)
    RecordingWriter(data, source="carracing", fps=12.5, expert="ppo").add(make_episode())
    # The strongest head is asked of this lap in the place of the shipped ones, which are a hundred times as long.
    monkeypatch.setattr(effect, "shipped", {"recordings": tmp_path}.__getitem__)
    for name, (config, run) in explain.VERBS.items():
        where = {} if name == "wiring" else {"data": data}
        result = run(config(model=str(model), out=tmp_path / f"{name}.png", **where))
        assert (result is None) == (name != "effect"), "effect alone has numbers"
        assert (tmp_path / f"{name}.png").exists()
        with pytest.raises(UserError, match=r"\.png"):
            run(config(model=str(model), out=tmp_path / "x.gif", **where))
    with pytest.raises(UserError, match="--episode"):
        explain.saliency(explain.SaliencyConfig(model=str(model), data=data, episode=7, out=tmp_path / "a.png"))
    assert "figure:" in capsys.readouterr().out


@pytest.mark.parametrize(("ending", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_a_figure_has_the_format_that_its_name_says(tmp_path: Path, ending: str, magic: bytes) -> None:
    target, figure = tmp_path / f"figure{ending}", Figure((2, 1))
    figure.subplots().plot([1, 2])
    save(figure, target)
    assert target.read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_moments_that_tell_most_are_shown_first_and_lie_apart() -> None:
    straight, turn = to_action(3, np.float32([0, 0, 0, 4, 0])), to_action(1, np.float32([0, 4, 0, 0, 0]))
    ticks = [
        replace(make_tick(i), t_s=i * 0.1, action=turn if i in (20, 21) else straight, expert=turn if i == 40 else None)
        for i in range(60)
    ]
    assert 40 in telling_moments(ticks, 1), "the expert would have turned"
    two = telling_moments(ticks, 2)
    assert two in ([20, 40], [21, 40])
    many = telling_moments(ticks, 8)
    assert len(many) == 8 and many == sorted(many)
    assert min(np.diff([ticks[i].t_s for i in many])) >= 0.5 - 1e-9
