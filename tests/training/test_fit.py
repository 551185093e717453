"""A fit learns, stops, and resumes with the numbers of an uninterrupted one."""

import copy
import dataclasses
import errno
import json
from pathlib import Path

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.layers import build
from nacdrive.tasks import Sample
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import Fitting, checkpoint_path, fit, make_optimizer
from nacdrive.training.log import read_rows


def numbers(folder):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_rows(folder / "metrics.jsonl")]


def folder_of(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    return folder


def test_a_fit_learns(network, task, samples, config, tmp_path):
    result = fit(network, task, samples[1:], samples[:1], dataclasses.replace(config, epochs=12), tmp_path)
    rows = numbers(tmp_path)
    assert result.progress.best_measure > 0.9
    assert rows[-1]["valid_loss"] < rows[0]["valid_loss"]
    assert (tmp_path / "tensorboard").is_dir()


@pytest.mark.parametrize("stop_after", [1, 2, 5, 9])
@pytest.mark.parametrize("schedule", ["cosine", "plateau"])
def test_a_resumed_fit_gives_the_numbers_of_an_uninterrupted_one(
    network, task, samples, config, tmp_path, stop_after, schedule
):
    config = dataclasses.replace(config, schedule=schedule)
    whole, broken = copy.deepcopy(network), copy.deepcopy(network)
    fit(whole, task, samples[1:], samples[:1], config, folder_of(tmp_path, "whole"))

    def stop(update):
        if update.progress.total_steps == stop_after:
            raise KeyboardInterrupt

    folder = folder_of(tmp_path, "broken")
    with pytest.raises(KeyboardInterrupt):
        fit(broken, task, samples[1:], samples[:1], config, folder, on_step=stop)
    fresh = copy.deepcopy(network)
    torch.manual_seed(999)
    fit(fresh, task, samples[1:], samples[:1], config, folder)
    for (name, one), two in zip(whole.state_dict().items(), fresh.state_dict().values(), strict=True):
        assert torch.equal(one, two), name
    assert numbers(tmp_path / "whole") == numbers(folder)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(network, task, samples, config, tmp_path):
    class Poisoned(type(network)):
        def forward(self, frames, t, padding):
            self.calls = getattr(self, "calls", 0) + self.training
            return super().forward(frames, t, padding) * (torch.nan if self.calls == 4 else 1.0)

    network.__class__ = Poisoned
    with pytest.raises(UserError, match=r"epoch 0, step 3 \(episode-\d+ frames .*checkpoint-0\.pt.*--learning-rate"):
        fit(network, task, samples[1:], samples[:1], dataclasses.replace(config, checkpoint_steps=1), tmp_path)
    kept = torch.load(checkpoint_path(tmp_path, 0), weights_only=True)
    assert kept["progress"]["step"] == 3
    assert all(torch.isfinite(value).all() for value in kept["network"].values())


def test_training_stops_when_the_validation_loss_stops_falling(network, task, samples, config, tmp_path):
    still = dataclasses.replace(config, epochs=50, learning_rate=1e-30, patience=2, augment=False)
    result = fit(network, task, samples[1:], samples[:1], still, tmp_path)
    assert result.progress.epoch <= 4


@pytest.mark.parametrize("patience", [1, 3])
def test_training_stops_after_exactly_so_many_epochs_without_gain(
    network, task, samples, config, tmp_path, patience, monkeypatch
):
    losses = iter([0.9, 0.5, *[0.7] * 40])
    real = task.loss

    def loss(outputs, batch, weights, options):
        total, weight = real(outputs, batch, weights, options)
        # The validation has no gradient.
        return (total, weight) if outputs.requires_grad else (torch.tensor(next(losses)), torch.tensor(1.0))

    monkeypatch.setattr(task, "loss", loss)
    config = dataclasses.replace(config, epochs=40, patience=patience)
    result = fit(network, task, samples[1:], samples[:1], config, tmp_path)
    # Best in epoch 1 (the second), then ``patience`` more.
    assert (result.progress.best_epoch, result.progress.epoch) == (1, 2 + patience)


def test_the_running_mean_moves_faster_at_first(network, task, samples, config, tmp_path):
    fitting = Fitting(network, task, samples[1:], [], config, tmp_path, 0, torch.device("cpu"))
    name, parameter = next(iter(network.named_parameters()))
    for steps, decay in ((1, 2 / 11), (11, 12 / 21), (100_000, config.average)):
        fitting.progress.total_steps = steps
        fitting.weights.mean[name] = torch.zeros_like(parameter)
        fitting.update_ema()
        torch.testing.assert_close(fitting.weights.mean[name], (1 - decay) * parameter.detach())
    fitting.log.close()


def test_the_best_epoch_is_kept_not_the_last(network, task, samples, config, tmp_path):
    result = fit(network, task, samples[1:], samples[:1], config, tmp_path)
    rows = numbers(tmp_path)
    assert result.progress.best_loss == min(row["valid_loss"] for row in rows)
    fitting = Fitting(
        network, task, samples[1:], samples[:1], config, folder_of(tmp_path, "again"), 0, torch.device("cpu")
    )
    assert fitting.validate()["valid_loss"] == pytest.approx(result.progress.best_loss)
    fitting.log.close()


def test_rows_after_the_checkpoint_are_made_again_not_doubled(network, task, samples, config, tmp_path):
    fit(network, task, samples[1:], samples[:1], config, tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as handle:
        handle.write(json.dumps({"round": 0, "epoch": 3, "train_loss": 0.0}) + "\n" + '{"round": 0, "ep')
    fit(network, task, samples[1:], samples[:1], dataclasses.replace(config, epochs=5), tmp_path)
    assert [row["epoch"] for row in numbers(tmp_path)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("what", ["truncated", "foreign"])
def test_a_damaged_checkpoint_is_told_in_one_sentence(network, task, samples, config, tmp_path, what):
    fit(network, task, samples[1:], samples[:1], config, tmp_path)
    path = checkpoint_path(tmp_path, 0)
    if what == "truncated":
        path.write_bytes(path.read_bytes()[:1000])
    else:
        torch.save({"kind": "nacdrive training checkpoint", "version": 1, "network": {"a": torch.ones(1)}}, path)
    with pytest.raises(UserError, match=r"checkpoint-0.*--overwrite"):
        fit(network, task, samples[1:], samples[:1], config, tmp_path)


def test_a_full_disk_is_told_and_the_checkpoint_before_is_kept(network, task, samples, config, tmp_path, monkeypatch):
    fit(network, task, samples[1:], samples[:1], config, tmp_path)
    before = checkpoint_path(tmp_path, 0).read_bytes()

    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"no space left .* --resume"):
        fit(network, task, samples[1:], samples[:1], dataclasses.replace(config, epochs=9), tmp_path)
    assert checkpoint_path(tmp_path, 0).read_bytes() == before


def test_plateau_lowers_the_rate_and_cosine_ends_near_nothing(network, task, samples, config, tmp_path):
    fitting = Fitting(network, task, samples[1:], samples[:1], config, tmp_path, 0, torch.device("cpu"))
    assert fitting.learning_rate(0.0) == pytest.approx(config.learning_rate)
    assert fitting.learning_rate(1.0) == pytest.approx(0.02 * config.learning_rate)
    fitting.config = dataclasses.replace(config, schedule="plateau")
    fitting.progress.factor = 0.81
    assert fitting.learning_rate(0.5) == pytest.approx(0.81 * config.learning_rate)
    fitting.log.close()


def test_the_running_mean_is_what_is_validated_and_kept(network, task, samples, config, tmp_path):
    plain = dataclasses.replace(config, average=0.0)
    fitting = Fitting(network, task, samples[1:], samples[:1], plain, tmp_path, 0, torch.device("cpu"))
    fitting.epoch(lambda update: None)
    for name, parameter in network.named_parameters():
        assert torch.equal(fitting.weights.mean[name], parameter)
    fitting.config = config
    fitting.epoch(lambda update: None)
    assert any(not torch.equal(fitting.weights.mean[name], p) for name, p in network.named_parameters())
    assert all(torch.equal(fitting.weights.best[name], value) for name, value in fitting.weights.mean.items())
    fitting.log.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_mixed_precision_on_cuda_learns(network, task, samples, config, tmp_path):
    result = fit(
        network, task, samples[1:], samples[:1], dataclasses.replace(config, epochs=12), tmp_path, device="cuda"
    )
    assert result.progress.best_measure > 0.9


def test_bfloat16_learns_too(network, task, samples, config, tmp_path):
    result = fit(
        network, task, samples[1:], samples[:1], dataclasses.replace(config, epochs=12, precision="bfloat16"), tmp_path
    )
    assert result.progress.best_measure > 0.9


class Regression:
    """One number per sequence from its values and times: a task without frames, whose measure is an error."""

    name, inputs, measure_name = "slopes", ("t", "values", "padding"), "mae"

    def class_weights(self, samples, power):
        return torch.ones(1)

    def augment(self, batch, generator):
        return batch

    def loss(self, outputs, batch, weights, options):
        return (outputs - batch["slope"]).square().sum(), torch.tensor(float(len(outputs)))

    def measure(self, outputs, batch):
        return (outputs - batch["slope"]).abs().sum(), torch.tensor(float(len(outputs)))


class Fitted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Linear(1, 1)

    def forward(self, t, values, padding):
        present = (~padding).double()
        slope = ((t * values * present).sum(1) / (t.square() * present).sum(1).clamp(min=1e-6)).float()
        return self.gain(slope.unsqueeze(1)).squeeze(1)


def slopes(count):
    lengths = [4 + i % 5 for i in range(count)]
    truth = torch.linspace(-1, 1, count)
    times = [torch.arange(1, n + 1) * 0.1 for n in lengths]
    return [
        Sample(f"line {i}", {"t": t.double(), "values": t.double() * 2 * s}, {"slope": s})
        for i, (t, s) in enumerate(zip(times, truth, strict=True))
    ]


def test_a_task_without_frames_with_one_target_per_sequence_is_fitted_and_measured_by_its_own_measure(config, tmp_path):
    torch.manual_seed(0)
    network = Fitted()
    samples = slopes(40)
    config = dataclasses.replace(config, epochs=60, learning_rate=5e-2, valid_batch=4)
    result = fit(network, Regression(), samples[::2], samples[1::2], config, tmp_path)
    assert network.gain.weight.item() == pytest.approx(0.5, abs=0.05)
    rows = numbers(tmp_path)
    assert rows[-1]["valid_mae"] < 0.05 < rows[0]["valid_mae"]
    assert result.progress.best_measure == pytest.approx(min(row["valid_mae"] for row in rows), abs=1e-2)


def test_checkpoints_from_before_the_measure_had_its_name_are_resumed(network, task, samples, config, tmp_path):
    fit(network, task, samples[1:], samples[:1], config, tmp_path)
    path = checkpoint_path(tmp_path, 0)
    kept = torch.load(path, weights_only=True)
    best = kept["progress"].pop("best_measure")
    # Nor had they a checksum.
    del kept["sha256"]
    torch.save({**kept, "progress": {**kept["progress"], "best_accuracy": best}}, path)
    result = fit(network, task, samples[1:], samples[:1], config, tmp_path)
    assert result.progress.best_measure == best


def test_a_layer_may_ask_for_optimizer_options_of_its_own() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 4), build("s4", 4, 1, 8))
    optimizer = make_optimizer(network, FitConfig(learning_rate=1e-2, weight_decay=0.1))
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    named = dict(network.named_parameters())
    assert set(groups) == {id(p) for p in named.values()}
    assert groups[id(named["1.log_decay"])]["weight_decay"] == 0.0
    assert groups[id(named["1.log_decay"])]["factor"] == pytest.approx(0.1)
    assert groups[id(named["0.weight"])]["weight_decay"] == 0.1
    assert groups[id(named["0.bias"])]["weight_decay"] == 0.0
