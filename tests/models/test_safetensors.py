"""Model files in the safetensors format: the same model, readable by others, and nothing bad taken for one."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from nacdrive.cli.main import dispatch
from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.common.tensor_file import split, to_safetensors, write_tensor_file
from nacdrive.layers.registry import LAYERS
from nacdrive.models import Policy, PolicyConfig, convert_model, load_policy, save_policy
from nacdrive.models.agents import network
from nacdrive.models.series import load_series

AGENTS = shipped("agents")
ACTIONS = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.8))
FRAMES = np.random.default_rng(0).integers(0, 256, (4, 96, 96, 3), dtype=np.uint8)


def decisions(policy: Policy) -> np.ndarray:
    return np.stack([policy.step(frame, 0.08 * i).logits for i, frame in enumerate(FRAMES)])


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def shipped_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "nac_steady.safetensors"
    convert_model(AGENTS / "carracing/nac_steady.pt", path)
    return path


def test_a_shipped_policy_decides_the_same_from_either_format(shipped_policy: Path) -> None:
    one = load_policy(AGENTS / "carracing/nac_steady.pt")
    other = load_policy(shipped_policy, expect_task="carracing")
    assert (other.name, other.config, other.meta) == (one.name, one.config, one.meta)
    np.testing.assert_array_equal(decisions(other), decisions(one))


def test_others_find_the_tensors_and_what_belongs_to_them(shipped_policy: Path) -> None:
    assert same(load_file(shipped_policy), load_policy(shipped_policy).network.state_dict())
    with safe_open(shipped_policy, framework="numpy") as file:
        metadata = file.metadata()
    assert metadata["kind"] == "nacdrive policy" and metadata["format"] == "pt" and len(metadata["sha256"]) == 64
    assert json.loads(metadata["config"])["model"] == "nac-key" and json.loads(metadata["meta"])["train_frames"] > 0


def test_the_way_there_and_back_loses_nothing(shipped_policy: Path, tmp_path: Path) -> None:
    convert_model(shipped_policy, tmp_path / "back.pt")
    first = torch.load(AGENTS / "carracing/nac_steady.pt", weights_only=True)
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    for content in (first, back):
        content.pop("sha256", None)
    assert same(first.pop("tensors"), back.pop("tensors")) and first == back


def test_networks_for_series_and_the_expert_convert_too(tmp_path: Path) -> None:
    for file in ("pronostia/nac_exact.pt", "carracing/ppo/ppo.pt"):
        convert_model(AGENTS / file, tmp_path / f"{Path(file).stem}.safetensors")
    ours = [
        load_series(p, task="pronostia")
        for p in (AGENTS / "pronostia/nac_exact.pt", tmp_path / "nac_exact.safetensors")
    ]
    assert same(ours[0][0].state_dict(), ours[1][0].state_dict()) and ours[0][1] == ours[1][1]
    nets = [network.load_policy(p) for p in (AGENTS / "carracing/ppo/ppo.pt", tmp_path / "ppo.safetensors")]
    assert same(nets[0][0].state_dict(), nets[1][0].state_dict()) and nets[0][1] == nets[1][1]


@pytest.mark.parametrize("model", sorted(LAYERS.names()))
def test_every_layer_goes_through_the_format(model: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = PolicyConfig("carracing", model, ACTIONS, window=2, channels=(2, 2, 2), d_model=16, num_heads=4, dense=4)
    policy = Policy.new(config)
    save_policy(policy, tmp_path / "m.safetensors", {"seed": 7})
    loaded = load_policy(tmp_path / "m.safetensors")
    assert loaded.config == config and loaded.meta == {"seed": 7}
    assert same(loaded.network.state_dict(), policy.network.state_dict())


def test_tied_and_transposed_weights_are_kept(tmp_path: Path) -> None:
    a = torch.arange(6.0).reshape(2, 3)
    write_tensor_file(tmp_path / "m.safetensors", "nacdrive x", 1, {}, {"a": a, "b": a, "c": a.T, "d": torch.tensor(3)})
    assert same(load_file(tmp_path / "m.safetensors"), {"a": a, "b": a, "c": a.T, "d": torch.tensor(3)})


def test_the_same_model_gives_the_same_bytes_in_every_process(shipped_policy: Path, tmp_path: Path) -> None:
    """The library's own order is another one at each call, so that the digest of an earlier process is not by chance
    that of this one.
    """
    tensors = {f"layer.{i}.weight": torch.arange(6.0).reshape(2, 3) + i for i in range(5)}
    texts = {"config": '{"model": "gru"}', "meta": '{"seed": 7}', "note": "ünïcode"}
    write_tensor_file(tmp_path / "m.safetensors", "nacdrive x", 1, texts, tensors)
    digest = hashlib.sha256((tmp_path / "m.safetensors").read_bytes()).hexdigest()
    assert digest == "671825ad09cd7bf0010a4a74b3ae10294301078cea5f5e70b95ef489cd408a44"
    convert_model(AGENTS / "carracing/nac_steady.pt", tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == shipped_policy.read_bytes()


def with_header(data: bytes, **changes: str | None) -> bytes:
    """``data`` with other metadata; None leaves an entry out."""
    header, numbers = split(data)
    metadata = {key: value for key, value in {**header["__metadata__"], **changes}.items() if value is not None}
    text = json.dumps({**header, "__metadata__": metadata}).encode()
    return len(text).to_bytes(8, "little") + text + numbers


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: data[: len(data) // 2], "truncated or of another kind"),
        (lambda data: b"", "truncated or of another kind"),
        (lambda data: b"not a model at all", "truncated or of another kind"),
        (lambda data: (2**60).to_bytes(8, "little") + data[8:], "truncated or of another kind"),
        (lambda data: with_header(data, kind=None), "written by another program"),
        (lambda data: with_header(data, kind="nacdrive series model"), "it is a nacdrive series model"),
        (lambda data: with_header(data, version="2"), "has version 2, and this nacdrive reads version 1"),
        (lambda data: with_header(data, version="one"), "has version one"),
        (lambda data: with_header(data, config="{}"), "checksum does not match"),
        (lambda data: with_header(data, meta=None), "checksum does not match"),
        (lambda data: with_header(data, sha256=None), "checksum does not match"),
        (lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:], "checksum does not match"),
    ],
)
def test_a_bad_file_is_told_in_one_sentence(shipped_policy: Path, tmp_path: Path, change, told: str) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(change(shipped_policy.read_bytes()))
    with pytest.raises(UserError, match=told) as error:
        load_policy(path)
    assert "bad.safetensors" in str(error.value) and "\n" not in str(error.value)


def test_a_file_of_another_program_is_no_policy(tmp_path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, tmp_path / "theirs.safetensors")
    with pytest.raises(UserError, match="no policy of nacdrive: it was written by another program"):
        load_policy(tmp_path / "theirs.safetensors")
    with pytest.raises(UserError, match="no model file of nacdrive: it was written by another program"):
        convert_model(tmp_path / "theirs.safetensors", tmp_path / "out.pt")


def test_no_flipped_bit_changes_what_is_loaded(tmp_path: Path) -> None:
    config = PolicyConfig("carracing", "gru", ACTIONS, channels=(2, 2, 2), d_model=8, num_heads=2, dense=4)
    policy, path, draw = Policy.new(config), tmp_path / "m.safetensors", random.Random(0)
    save_policy(policy, path)
    data, wrong = path.read_bytes(), 0
    for _ in range(150):
        damaged = bytearray(data)
        # Half of them in the header, which is a small part of the file.
        bit = draw.randrange(8 * draw.choice((len(data), 2000)))
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert same(load_policy(path).network.state_dict(), policy.network.state_dict())
        except UserError as error:
            wrong += 1
            assert "m.safetensors" in str(error) and "\n" not in str(error)
    assert wrong > 140


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    write_tensor_file(tmp_path / "m.safetensors", "nacdrive policy", 1, {}, {"a": torch.tensor([1.0, torch.nan])})
    with pytest.raises(UserError, match=r"not finite numbers \(in a\)"):
        load_policy(tmp_path / "m.safetensors")


def test_what_cannot_be_converted_is_told(shipped_policy: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"call it \.safetensors or \.pt"):
        convert_model(shipped_policy, tmp_path / "m.onnx")
    with pytest.raises(UserError, match="exists: give --overwrite"):
        convert_model(shipped_policy, shipped_policy)
    with pytest.raises(UserError, match="there is no model file"):
        convert_model(tmp_path / "none.pt", tmp_path / "m.safetensors")
    write_tensor_file(tmp_path / "run.pt", "nacdrive checkpoint", 1, {"step": [1, 2]}, {"a": torch.zeros(1)})
    with pytest.raises(UserError, match="keeps text beside the tensors, and step is a list"):
        convert_model(tmp_path / "run.pt", tmp_path / "m.safetensors")
    write_tensor_file(tmp_path / "empty.pt", "nacdrive log", 1, {"text": "x"})
    with pytest.raises(UserError, match="holds no model but a nacdrive log"):
        convert_model(tmp_path / "empty.pt", tmp_path / "m.safetensors")
    with pytest.raises(TypeError, match=r"no numbers of type torch\.complex128"):
        to_safetensors({"tensors": {"a": torch.zeros(1, dtype=torch.complex128)}})
    assert not (tmp_path / "m.safetensors").exists()


@pytest.mark.nightly
def test_the_verbs_drive_with_it(shipped_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in (
        f"drive --env carracing --model {shipped_policy} --headless --max-frames 24 --episodes 1 --expert none",
        f"eval --model {shipped_policy} --episodes 1 --max-frames 24 --expert none --no-videos --workers 1 --out ev",
    ):
        assert dispatch(line.split()) == 0
    assert json.loads((tmp_path / "ev/metrics.json").read_text())["episodes"]
