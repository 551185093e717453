"""The network for series, its losses, its files, and the ways to hold data out."""

import dataclasses

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.common.tensor_file import CHECKSUM
from nacdrive.models.series import SeriesConfig, SeriesNetwork, load_series, margins, save_series
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.series import UNKNOWN, Classification, Regression, mean_gap, scale_of
from nacdrive.tasks.splits import rotate, stratified

torch.set_num_threads(1)
CONFIG = SeriesConfig(
    task="emnist", protocol="sequence", model="lstm", channels_in=3, outputs=4, read="steps", window=5,
    channels=(8, 8), kernels=(3, 2), strides=(1, 1), d_model=16, num_heads=4, dense=(8,),
    mean=(0.0, 1.0, 2.0), std=(1.0, 2.0, 3.0), gap_s=0.5, about={"classes": ["a", "b", "c", "d"]},
)  # fmt: skip


def batch_of(T=12):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, T, 3, generator=generator)
    return x, torch.rand(2, T, generator=generator).cumsum(1), torch.zeros(2, T, dtype=torch.bool)


@pytest.mark.parametrize("model", ["lstm", "mha", "nac-exact"])
def test_no_answer_depends_on_what_comes_later(model):
    torch.manual_seed(0)
    network, (x, t, padding) = SeriesNetwork(dataclasses.replace(CONFIG, model=model)).eval(), batch_of()
    changed = x.clone()
    changed[:, 7] += 1
    moved = (network(changed, t, padding) - network(x, t, padding)).abs().amax(dim=(0, 2)) > 1e-6
    assert not moved[:7].any()
    assert moved[7]


@pytest.mark.parametrize("read", ["steps", "last"])
def test_padding_behind_a_sequence_changes_no_answer(read):
    torch.manual_seed(0)
    network, (x, t, padding) = SeriesNetwork(dataclasses.replace(CONFIG, read=read)).eval(), batch_of()
    short = network(x[:, :8], t[:, :8], padding[:, :8])
    padding[:, 8:] = True
    x[:, 8:] = 99.0
    longer = network(x, t, padding)
    torch.testing.assert_close(longer if read == "last" else longer[:, :8], short)


def test_only_gaps_between_times_matter_to_a_network():
    network, (x, t, padding) = SeriesNetwork(dataclasses.replace(CONFIG, model="nac-exact")).eval(), batch_of()
    torch.testing.assert_close(network(x, t + 1000, padding), network(x, t, padding), atol=1e-3, rtol=1e-3)
    assert (network(x, 5 * t, padding) - network(x, t, padding)).abs().max() > 1e-4


def test_strides_of_the_paper_make_eleven_steps_of_256():
    length = 256
    for _ in range(2):
        length = (length + sum(margins(length, 5, 5)) - 5) // 5 + 1
    assert length == 11


def test_scale_and_gap_come_from_the_samples_given():
    fields = {"x": torch.tensor([[1.0, 7.0], [3.0, 7.0]]), "t": torch.tensor([0.0, 4.0])}
    assert scale_of([Sample("a", fields)]) == ((2.0, 7.0), (1.0, 1.0))
    assert mean_gap([Sample("a", fields)]) == 4.0


def test_steps_without_a_label_or_behind_the_end_count_for_nothing():
    outputs = torch.zeros(1, 3, 2)
    outputs[0, :, 1] = 50.0
    batch = {"target": torch.tensor([[1, UNKNOWN, 0]]), "padding": torch.tensor([[False, False, True]])}
    total, count = Classification().loss(outputs, batch, torch.ones(1), 1.0)
    assert (float(total), int(count)) == (pytest.approx(0.0, abs=1e-6), 1)
    assert [int(v) for v in Classification().measure(outputs, batch)] == [1, 1]
    numbers = {"target": torch.tensor([[1.0, torch.nan, 9.0]]), "padding": batch["padding"]}
    total, count = Regression().loss(torch.full((1, 3, 1), 3.0), numbers, torch.ones(1), 1.0)
    assert (float(total), int(count)) == (4.0, 1)


def test_a_model_file_gives_the_same_answers(tmp_path):
    network, inputs = SeriesNetwork(CONFIG).eval(), batch_of()
    save_series(network, tmp_path / "model.pt", {"epochs": 3})
    loaded, meta = load_series(tmp_path / "model.pt", task="emnist")
    assert loaded.config == network.config
    assert meta == {"epochs": 3}
    torch.testing.assert_close(loaded(*inputs), network(*inputs))


def test_an_older_file_of_a_network_that_was_given_gaps_gives_the_same_answers(tmp_path):
    """Before, times came to the layer divided by the typical gap, and its own unit of time was 1."""
    config = dataclasses.replace(CONFIG, model="nac-exact")
    network, (x, t, padding) = SeriesNetwork(config).eval(), batch_of()
    now = network(x, t, padding)
    save_series(network, tmp_path / "new.pt", {})
    content = torch.load(tmp_path / "new.pt", weights_only=True)
    assert content.pop("time") == "seconds"
    content.pop(CHECKSUM)
    content["tensors"]["sequence.nac.time_scale"] = torch.tensor(1.0)
    torch.save(content, tmp_path / "old.pt")
    for file in ("new.pt", "old.pt"):
        torch.testing.assert_close(load_series(tmp_path / file, task="emnist")[0](x, t, padding), now)
    assert network.sequence.nac.time_scale == 0.5


def test_a_model_for_something_else_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "model.pt"
    save_series(SeriesNetwork(CONFIG), path, {})
    with pytest.raises(UserError, match="trained for 'emnist', not for 'par'"):
        load_series(path, task="par")
    save_series(SeriesNetwork(dataclasses.replace(CONFIG, protocol="paper")), path, {})
    with pytest.raises(UserError, match="under the paper protocol"):
        load_series(path, task="emnist")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match="truncated"):
        load_series(path, task="emnist")


def test_a_policy_is_no_series_model():
    from nacdrive.common.paths import shipped

    with pytest.raises(UserError, match="is no series model of nacdrive: it is a nacdrive policy"):
        load_series(shipped("agents") / "carracing/nac_steady.pt", task="emnist")


def test_every_item_is_held_out_exactly_once():
    labels = np.array([0] * 13 + [1] * 7 + [2] * 4)
    for splits in (rotate(24, 5, 0), stratified(labels, 5, 0)):
        assert sorted(i for _, held in splits for i in held) == list(range(24))
        assert all(sorted(learn + held) == list(range(24)) for learn, held in splits)
    counts = [np.bincount(labels[held], minlength=3) for _, held in stratified(labels, 5, 0)]
    assert np.ptp(counts, axis=0).max() <= 1
