"""A fit learns, stops, and resumes with the numbers of an uninterrupted one."""

import copy
import dataclasses
import errno
import json
import math
from pathlib import Path

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.layers import build
from nacdrive.tasks import Sample
from nacdrive.tasks.base import Metric
from nacdrive.training import fit as fit_module
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import Fitting, Progress, checkpoint_path, fit, layer_optimizer_options, make_optimizer
from nacdrive.training.log import MetricsLog, read_rows
from tests.helpers.nightly import daily


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


@pytest.mark.parametrize("stop_after", daily([1, 2, 5, 9], ["2", "9"]))
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


def test_a_resumed_fit_keeps_the_best_epoch_from_before_it_was_interrupted(
    network, task, samples, config, tmp_path, monkeypatch
):
    told_losses(task, monkeypatch, [0.1])

    def stop(update):
        if update.progress.epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(copy.deepcopy(network), task, samples[1:], samples[:1], config, tmp_path, on_step=stop)
    kept = torch.load(checkpoint_path(tmp_path, 0), weights_only=True)["best"]
    result = fit(network, task, samples[1:], samples[:1], config, tmp_path)
    assert (result.progress.epoch, result.progress.best_epoch) == (config.epochs, 0)
    for name, value in network.state_dict().items():
        assert torch.equal(value, kept[name]), name


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


def test_a_loss_that_is_not_finite_in_the_validation_stops_in_a_sentence(network, task, samples, config, tmp_path):
    class Poisoned(type(network)):
        def forward(self, frames, t, padding):
            return super().forward(frames, t, padding) * (1.0 if self.training else torch.inf)

    network.__class__ = Poisoned
    with pytest.raises(UserError, match=r"epoch 0, validation: stopped; the last checkpoint is .*checkpoint-0\.pt"):
        fit(network, task, samples[1:], samples[:1], config, tmp_path)


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
        fitting.mean[name] = torch.zeros_like(parameter)
        fitting.update_ema()
        torch.testing.assert_close(fitting.mean[name], (1 - decay) * parameter.detach())
    # What a network has learnt before counts from its first step on.
    fitting.config, fitting.progress.total_steps = dataclasses.replace(config, schedule="hat"), 1
    fitting.mean[name] = torch.zeros_like(parameter)
    fitting.update_ema()
    torch.testing.assert_close(fitting.mean[name], (1 - config.average) * parameter.detach())
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
    fitting.config = dataclasses.replace(config, schedule="hat")
    rates = [fitting.learning_rate(share) / config.learning_rate for share in (0.0, 0.5, 1.0)]
    assert rates == pytest.approx([0.02, 1.0, 0.02])
    fitting.config = dataclasses.replace(config, schedule="plateau")
    fitting.progress.factor = 0.81
    assert fitting.learning_rate(0.5) == pytest.approx(0.81 * config.learning_rate)
    fitting.log.close()


def test_the_running_mean_is_what_is_validated_and_kept(network, task, samples, config, tmp_path):
    plain = dataclasses.replace(config, average=0.0)
    fitting = Fitting(network, task, samples[1:], samples[:1], plain, tmp_path, 0, torch.device("cpu"))
    fitting.epoch(lambda update: None)
    for name, parameter in network.named_parameters():
        assert torch.equal(fitting.mean[name], parameter)
    fitting.config = config
    fitting.epoch(lambda update: None)
    assert any(not torch.equal(fitting.mean[name], p) for name, p in network.named_parameters())
    assert all(torch.equal(fitting.best[name], value) for name, value in fitting.mean.items())
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
    criterion = None

    def balance(self, samples):
        return 0.5

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


def fitting_of(network, task, samples, config, folder, valid=None, round_=0):
    return Fitting(network, task, samples, valid or [], config, folder, round_, torch.device("cpu"))


def told_losses(task, monkeypatch, losses):
    """A validation that finds ``losses`` one after the other, then 0.9 for ever."""
    told = iter(losses)
    real = task.loss

    def loss(outputs, batch, weights, options):
        total, weight = real(outputs, batch, weights, options)
        # The validation has no gradient.
        return (total, weight) if outputs.requires_grad else (torch.tensor(next(told, 0.9)), torch.tensor(1.0))

    monkeypatch.setattr(task, "loss", loss)


def test_without_validation_all_epochs_are_done_and_the_mean_of_the_last_is_kept(
    network, task, samples, config, tmp_path
):
    updates = []
    result = fit(
        network,
        task,
        samples,
        [],
        dataclasses.replace(config, patience=1, chunk=40, batch_size=2),
        tmp_path,
        on_step=lambda update: updates.append((update.steps, update.epochs, update.train_loss)),
    )
    assert (result.progress.epoch, result.progress.best_epoch, result.progress.best_loss) == (3, 2, float("inf"))
    assert (result.train_steps, result.valid_steps) == (240, 0)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [row["epoch"] for row in rows] == [0, 1, 2] and not any("valid_loss" in row for row in rows)
    kept = torch.load(checkpoint_path(tmp_path, 0), weights_only=True)
    for name, value in network.named_parameters():
        assert torch.equal(value, kept["mean"][name]) and torch.equal(value, kept["best"][name])
    # What a display is shown last is the mean loss of the epoch, as in its row.
    per_epoch = updates[0][0]
    assert {(steps, epochs) for steps, epochs, _ in updates} == {(per_epoch, 3)}
    assert [updates[(k + 1) * per_epoch - 1][2] for k in range(3)] == [row["train_loss"] for row in rows]
    assert [row["steps"] for row in rows] == [per_epoch, 2 * per_epoch, 3 * per_epoch]


def test_what_was_learnt_and_validated_on_is_counted(network, task, samples, config, tmp_path):
    result = fit(network, task, samples[1:], samples[:1], dataclasses.replace(config, epochs=1), tmp_path)
    assert (result.train_steps, result.valid_steps) == (200, 40)


def test_a_loss_that_is_only_as_low_as_before_is_no_gain(network, task, samples, config, tmp_path, monkeypatch):
    told_losses(task, monkeypatch, [0.5, 0.5, 0.4, 0.4])
    result = fit(network, task, samples[1:], samples[:1], dataclasses.replace(config, epochs=4), tmp_path)
    assert (result.progress.best_loss, result.progress.best_epoch) == (pytest.approx(0.4), 2)


def test_without_patience_nothing_stops_early(network, task, samples, config, tmp_path, monkeypatch):
    told_losses(task, monkeypatch, [0.1])
    config = dataclasses.replace(config, epochs=12, patience=0)
    assert fit(network, task, samples[1:], samples[:1], config, tmp_path).progress.epoch == 12


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("plateau", [1, 1, 1, 0.9, 0.9, 0.81, 0.81, 0.81, 0.729]),
        ("steep-plateau", [1, 1, 1, 1, 0.3, 0.3, 0.3, 0.3, 0.3]),
    ],
)
def test_the_rate_on_a_plateau_falls_after_two_or_three_epochs_without_gain(
    network, task, samples, config, tmp_path, monkeypatch, schedule, factors
):
    told_losses(task, monkeypatch, [0.5, 0.6, 0.6, 0.6, 0.6, 0.4, 0.6, 0.6])
    config = dataclasses.replace(config, epochs=9, patience=0, schedule=schedule)
    fit(network, task, samples[1:], samples[:1], config, tmp_path)
    rates = [row["learning_rate"] / config.learning_rate for row in numbers(tmp_path)]
    assert rates == pytest.approx(factors)


@pytest.mark.parametrize(("higher", "best"), [(True, 3), (False, 1)])
def test_a_criterion_chooses_the_epoch_and_not_the_loss(
    network, task, samples, config, tmp_path, monkeypatch, higher, best
):
    told_losses(task, monkeypatch, [0.1, 0.2, 0.3, 0.4, 0.5])
    values = iter([0.6, 0.5, 0.6, 0.9, 0.9])
    sizes = []

    def score(name, outputs, samples):
        sizes.append((name, len(outputs), len(samples)))
        return {"auroc": next(values), "loss": 0.0}

    monkeypatch.setattr(task, "score", score)
    monkeypatch.setattr(task, "criterion", Metric("auroc", "AUROC", higher=higher))
    config = dataclasses.replace(config, epochs=5, patience=0)
    result = fit(network, task, samples[1:], samples[:1], config, tmp_path)
    assert (result.progress.best_epoch, result.progress.best_measure) == (best, 0.9 if higher else 0.5)
    assert result.progress.best_loss == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5][best])
    assert sizes == [(task.name, 1, 1)] * 5
    assert [row[f"valid_{task.measure_name}"] for row in numbers(tmp_path)] == [0.6, 0.5, 0.6, 0.9, 0.9]


def test_the_config_names_the_optimizer(network, config):
    kinds = {name: type(make_optimizer(network, dataclasses.replace(config, optimizer=name))).__name__
             for name in ("adamw", "adam", "rmsprop")}  # fmt: skip
    assert kinds == {"adamw": "AdamW", "adam": "Adam", "rmsprop": "RMSprop"}


def test_the_rate_follows_half_a_cosine_step_by_step(network, task, samples, config, tmp_path):
    config = dataclasses.replace(config, epochs=2, chunk=40, batch_size=2)
    fitting = fitting_of(network, task, samples, config, tmp_path)
    # By hand: 2 % at the end, and cos(pi/2) = 0 and cos(pi/3) = 1/2 on the way.
    shares = [fitting.learning_rate(share) / config.learning_rate for share in (0.0, 1 / 3, 0.5, 1.0)]
    assert shares == pytest.approx([1.0, 0.755, 0.51, 0.02])
    seen = []
    fitting.learning_rate = lambda share: seen.append(share) or 1e-3
    fitting.run(lambda update: None)
    count = len(seen) // 2
    assert count == 3 and seen == pytest.approx([k / 6 for k in range(6)])
    assert all(group["lr"] == 1e-3 for group in fitting.optimizer.param_groups)
    constant = fitting_of(
        network, task, samples, dataclasses.replace(config, schedule="constant"), folder_of(tmp_path, "constant")
    )
    constant.progress.factor = 0.5
    assert constant.learning_rate(0.9) == config.learning_rate
    constant.log.close()


@pytest.mark.parametrize(("every", "expected"), [(2, [2, 4]), (5, []), (3, [3]), (100, [])])
def test_a_checkpoint_is_made_every_so_many_steps_and_at_the_end_of_each_epoch(
    network, task, samples, config, tmp_path, every, expected
):
    config = dataclasses.replace(config, epochs=1, checkpoint_steps=every, chunk=40)
    fitting = fitting_of(network, task, [*samples, *samples, *samples, samples[0], samples[1]], config, tmp_path)
    saved = []
    real = fitting.save
    fitting.save = lambda: (saved.append((fitting.progress.epoch, fitting.progress.step)), real())
    fitting.run(lambda update: None)
    # Twenty episodes in batches of four: five steps. The first one is of the untrained network.
    assert saved == [(0, 0), *((0, step) for step in expected), (1, 0)]


def test_no_step_is_larger_than_the_largest_norm_allows(network, task, samples, config, tmp_path):
    fitting = fitting_of(network, task, samples, dataclasses.replace(config, clip=1e-3), tmp_path)
    fitting.step(fitting.train.epoch(0, 0)[0], 0, 1e-3)
    norm = torch.sqrt(sum((p.grad**2).sum() for p in network.parameters()))
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)
    fitting.log.close()


def test_a_batch_in_which_nothing_counts_teaches_nothing_and_stops_nothing(
    network, task, samples, config, tmp_path, monkeypatch
):
    monkeypatch.setattr(task, "loss", lambda outputs, *_: (outputs.sum() * 0, torch.tensor(0.0)))
    fitting = fitting_of(network, task, samples, config, tmp_path)
    assert fitting.step(fitting.train.epoch(0, 0)[0], 0, 1e-3) == (0.0, 0.0)
    fitting.epoch(lambda update: None)
    fitting.log.close()
    assert numbers(tmp_path)[0]["train_loss"] == 0.0


def test_a_layers_own_rate_stays_its_own_when_the_training_goes_on_with_another(
    network, task, samples, config, tmp_path, monkeypatch
):
    monkeypatch.setattr(fit_module, "layer_optimizer_options", lambda net: {"own": {"lr": 1e-3}})
    network.own = torch.nn.Parameter(torch.zeros(1))
    for rate in (1e-3, 1e-4):
        fitting = fitting_of(network, task, samples, dataclasses.replace(config, learning_rate=rate), tmp_path)
        if fitting.path.exists():
            fitting.load()
        fitting.save()
        fitting.log.close()
    factors = [group["factor"] for group in fitting.optimizer.param_groups if "factor" in group]
    assert factors == [pytest.approx(10.0)]


def test_pictures_are_changed_where_that_is_asked_for_and_only_there(
    network, task, samples, config, tmp_path, monkeypatch
):
    calls = []
    real = task.augment
    monkeypatch.setattr(task, "augment", lambda batch, generator: calls.append(1) or real(batch, generator))
    for augment in (True, False):
        calls.clear()
        config = dataclasses.replace(config, epochs=1, augment=augment)
        fit(copy.deepcopy(network), task, samples[1:], samples[:1], config, folder_of(tmp_path, str(augment)))
        assert bool(calls) == augment


def test_every_round_shuffles_anew(network, task, samples, config, tmp_path):
    asked = []
    for round_ in (0, 1):
        fitting = fitting_of(network, task, samples, config, tmp_path, round_=round_)
        real = fitting.train.epoch
        fitting.train.epoch = lambda epoch, seed, real=real: asked.append(epoch) or real(epoch, seed)
        fitting.run(lambda update: None)
    assert len(set(asked)) == len(asked) == 6
    assert checkpoint_path(tmp_path, 1).name == "checkpoint-1.pt" and checkpoint_path(tmp_path, 1).exists()


def test_the_validation_is_the_mean_over_all_that_counts(network, task, samples, config, tmp_path):
    short = Sample("short", {name: value[:7] for name, value in samples[0].fields.items()})
    parts = [short, samples[1]]
    found = fitting_of(network, task, samples[2:], config, tmp_path, valid=parts)
    together = found.validate()
    network.eval()
    right = []
    with torch.no_grad():
        for sample in parts:
            scores = network(sample.fields["frames"][None], None, None)[0]
            right += (scores.argmax(1) == sample.fields["target"]).tolist()
    assert len(right) == 47 and together[f"valid_{task.measure_name}"] == pytest.approx(sum(right) / 47)
    one = [
        fitting_of(network, task, samples[2:], config, folder_of(tmp_path, part.name), valid=[part]) for part in parts
    ]
    alone = [fitting.validate()["valid_loss"] for fitting in one]
    assert min(alone) < together["valid_loss"] < max(alone)
    for fitting in (found, *one):
        fitting.log.close()


@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.parametrize(
    ("precision", "device", "low"),
    [("auto", "cpu", False), ("float32", "cpu", False), ("bfloat16", "cpu", True), ("auto", "cuda", True)],
)
def test_half_precision_is_for_whom_it_is_asked_or_has_a_gpu(
    network, task, samples, config, tmp_path, precision, device, low
):
    fitting = fitting_of(network, task, samples, dataclasses.replace(config, precision=precision), tmp_path)
    fitting.device = torch.device(device)
    found = fitting.autocast()
    assert isinstance(found, torch.autocast) == low and (not low or found.fast_dtype == torch.bfloat16)
    fitting.log.close()


def test_the_time_of_a_resumed_training_goes_on(network, task, samples, config, tmp_path):
    fitting = fitting_of(network, task, samples, config, tmp_path)
    fitting.began -= 1000
    fitting.save()
    assert 1000 <= fitting.progress.seconds < 1060
    again = fitting_of(network, task, samples, config, tmp_path)
    again.save()
    assert 1000 <= again.progress.seconds < 1060
    fitting.log.close()
    again.log.close()


@pytest.mark.parametrize(("kind", "decay"), [("adamw", 0.1), ("adam", 0.0)])
def test_weights_decay_and_biases_do_not_and_adam_decays_nothing(kind, decay) -> None:
    network = torch.nn.Linear(4, 4)
    optimizer = make_optimizer(network, FitConfig(learning_rate=1e-2, weight_decay=0.1, optimizer=kind))
    assert type(optimizer).__name__.lower() == kind
    found = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    assert [found[id(p)]["weight_decay"] for p in (network.weight, network.bias)] == [decay, 0.0]
    assert {group["lr"] for group in optimizer.param_groups} == {1e-2}
    assert {group.get("factor", 1.0) for group in optimizer.param_groups} == {1.0}


def test_a_network_that_is_a_layer_itself_asks_for_its_own_options() -> None:
    layer = build("s4", 4, 1, 8)
    assert set(layer_optimizer_options(layer)) == set(layer.optimizer_options()) != set()
    inside = layer_optimizer_options(torch.nn.ModuleDict({"memory": layer}))
    assert set(inside) == {f"memory.{name}" for name in layer.optimizer_options()}


def test_a_checkpoint_of_another_network_is_told_in_one_sentence(network, task, samples, config, tmp_path):
    fit(network, task, samples[1:], samples[:1], config, tmp_path)
    with pytest.raises(UserError, match=r"checkpoint-0\.pt belongs to another network \(.*\): train anew"):
        fit(torch.nn.Linear(3, 5), task, samples[1:], samples[:1], config, tmp_path)


def test_a_training_that_has_not_begun_has_done_nothing() -> None:
    empty = Progress()
    assert (empty.round, empty.epoch, empty.step, empty.total_steps, empty.loss_sum, empty.weight_sum) == (0,) * 6
    assert (empty.factor, empty.best_loss, empty.best_epoch) == (1.0, float("inf"), -1)
    assert (empty.best_measure, empty.seconds) == (0.0, 0.0)


def test_rows_from_the_resumed_epoch_on_are_dropped_and_the_board_counts_on(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = MetricsLog(tmp_path, 0, 0)
    for round_, epoch in ((0, 0), (0, 1), (1, 0), (1, 1)):
        log.add({"round": round_, "epoch": epoch, "loss": round_ + epoch / 10})
    log.close()
    log = MetricsLog(tmp_path, 1, 1)
    assert [(row["round"], row["epoch"]) for row in read_rows(log.path)] == [(0, 0), (0, 1), (1, 0)]
    log.add({"round": 1, "epoch": 1, "loss": 7.5})
    with pytest.raises(ValueError, match="JSON"):
        log.add({"round": 1, "epoch": 2, "loss": float("nan")})
    log.close()
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert board.Tags()["scalars"] == ["loss"], "whole numbers are no curve"
    assert [(event.step, event.value) for event in board.Scalars("loss")][-1] == (3, 7.5)
    assert [event.step for event in board.Scalars("loss")] == [0, 1, 2, 3]


def test_where_nothing_is_known_of_the_validation_the_last_epoch_stays(network, task, samples, config, tmp_path):
    unknown = [Sample("unknown", {**samples[0].fields, "target": torch.full((40,), -1)})]
    unknown[0].fields["teacher"] = torch.full((40, 5), math.nan)
    result = fit(network, task, samples[1:], unknown, config, tmp_path)
    assert (result.progress.epoch, result.progress.best_epoch, result.progress.best_loss) == (3, 2, math.inf)
    assert not any("valid_loss" in row for row in read_rows(tmp_path / "metrics.jsonl"))
