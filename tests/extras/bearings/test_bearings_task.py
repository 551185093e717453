"""Lives of bearings as series and as the authors' rows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.extras.bearings.features import FeatureTable
from nacdrive.extras.bearings.runs import PublishedBearing, RunToFailure, read_own, read_runs, relative, run_of
from nacdrive.extras.bearings.task import Bearings, row_samples, scaled
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Size
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.splits import field_of, segments
from nacdrive.training.batches import Batches
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit
from nacdrive.training.predict import outputs

torch.set_num_threads(1)
XJTU = Path(__file__).resolve().parents[4] / "shared/data/xjtu_features.tar.xz"


@pytest.fixture(scope="module")
def data_dirs(made_up):
    made_up("hust")
    return {"pronostia": made_up("pronostia")}


def test_segments_judge_every_step_once_and_see_enough_before_it():
    fields = {"x": torch.arange(100.0)[:, None], "t": torch.arange(100.0)}
    cuts = segments("a", fields, scored=30, context=7)
    assert torch.equal(field_of(cuts, "t")["a"], fields["t"])
    for sample in cuts[1:]:
        assert int((~sample.fields["scored"]).sum()) == 7


def test_answers_to_segments_are_those_to_the_whole_life():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    steps = 3 * 32 + 5
    fields = {
        "x": torch.randn(steps, 14, generator=generator),
        "t": torch.rand(steps, generator=generator).cumsum(0) * 20,
        "target": torch.zeros(steps),
    }
    task = load_task("pronostia", "sequence")
    network = task.network("nac-exact", [Sample("a", fields)]).eval()
    (whole,) = outputs(network, task, [Sample("a", fields)])
    cuts = segments("a", fields, scored=32, context=task.context)
    pieces = [y[s.fields["scored"]] for y, s in zip(outputs(network, task, cuts), cuts, strict=True)]
    torch.testing.assert_close(torch.cat(pieces), whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["pronostia", "par"])
def test_segments_are_learnt_from_whole_and_their_context_is_not_learnt_twice(name, made_up):
    task = load_task(name)
    fold = task.folds({name: made_up(name)}, 1, 0)[0]
    batches = Batches(fold.train, task.settings["chunk"], 4)
    assert {(c.start, c.stop) for chunks in batches.epoch(0, 0) for c in chunks} == {(0, len(s)) for s in fold.train}
    batch = batches.load(batches.epoch(None, 0)[-1])
    outputs_ = torch.randn(*batch["padding"].shape, task.outputs, generator=torch.Generator().manual_seed(0))
    total, count = task.loss(outputs_, batch, torch.ones(1), 1.0)
    assert int(count) == int((batch["scored"] & ~batch["padding"]).sum()) < int((~batch["padding"]).sum())
    # What is said of the context changes nothing.
    other = outputs_.masked_fill(~batch["scored"][..., None], 99.0)
    assert float(task.loss(other, batch, torch.ones(1), 1.0)[0]) == pytest.approx(float(total))
    assert task.measure(other, batch) == task.measure(outputs_, batch)


def test_references_are_scored_as_models_are(data_dirs):
    task = load_task("pronostia")
    fold = task.folds(data_dirs, 1, 0)[0]
    references = task.references("pronostia", fold.train, fold.tests["pronostia"])
    assert set(references) == {"always 0", "mean of the training part", "age alone"}
    scores = {name: task.score("pronostia", y, fold.tests["pronostia"]) for name, y in references.items()}
    truth = field_of(fold.tests["pronostia"], "target")["Bearing1_1"]
    assert scores["always 0"]["rmse"] == pytest.approx(float(truth.square().mean().sqrt()), rel=1e-5)
    mean = float(field_of(fold.train, "target")["Bearing1_4"].mean())
    expected = float((truth - mean).square().mean().sqrt())
    assert scores["mean of the training part"]["rmse"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.skipif(not XJTU.is_file(), reason="the published XJTU-SY features are not on this machine")
@pytest.mark.nightly
def test_scaled_time_alone_nearly_is_the_label_of_the_papers_protocol(data_dirs):
    task = load_task("pronostia", "paper")
    tests = task.folds({**data_dirs, "xjtu-sy": XJTU}, 1, 0)[0].tests["xjtu-sy"]
    references = task.references("xjtu-sy", [], tests)
    scores = {name: task.score("xjtu-sy", y, tests)["score_whole"] for name, y in references.items()}
    # docs/results/xjtu_hust.md
    assert scores == {
        "always 0.5": pytest.approx(179.63, abs=0.005),
        "scaled time alone": pytest.approx(0.02, abs=0.005),
    }


def test_no_bearing_is_on_two_sides_and_other_conditions_are_only_tested(data_dirs):
    folds = load_task("pronostia", "sequence").folds(data_dirs, 5, 0)
    assert [fold.name for fold in folds] == ["Bearing1_1", "Bearing1_4"]
    for fold in folds:
        learnt = {s.name for s in [*fold.train, *fold.valid]}
        tested = {s.name for s in fold.tests["pronostia"]}
        assert fold.name in tested
        assert "Bearing2_7" in tested
        assert not learnt & tested


def test_time_since_installation_is_no_input(data_dirs):
    task = load_task("pronostia", "sequence")
    fold = task.folds(data_dirs, 1, 0)[0]
    network = task.network("ct-rnn", fold.train).eval()
    sample = fold.tests["pronostia"][0]
    later = Sample(sample.name, {**sample.fields, "t": sample.fields["t"] + 50_000})
    torch.testing.assert_close(
        outputs(network, task, [later])[0], outputs(network, task, [sample])[0], atol=1e-3, rtol=1e-3
    )


def test_features_are_relative_to_the_past_and_free_of_gain_and_unit():
    generator = np.random.default_rng(0)
    x = np.abs(generator.normal(5, 1, (60, 14))).astype(np.float32)
    scaled = x.copy()
    for axis in (0, 7):
        scaled[:, axis] += np.log10(9.0)
        scaled[:, axis + 1] *= 0.01
        scaled[:, axis + 6] *= 3
    np.testing.assert_allclose(relative(scaled), relative(x), atol=1e-4)
    changed = x.copy()
    changed[40:] += 1
    np.testing.assert_array_equal(relative(changed)[:40], relative(x)[:40])


def test_a_feature_is_its_difference_from_the_median_of_the_first_twenty_snapshots():
    x = np.zeros((30, 14), np.float32)
    x[:, [1, 6, 8, 13]] = 1
    x[:, 0] = np.arange(30)
    x[25, 1], x[25, 13] = np.e, np.e**2
    x[25, [3, 4, 10, 11]] = 500
    x[25, [2, 5, 9, 12]] = 3
    scaled = relative(x)
    # Until the twentieth each snapshot is compared with those before it and itself.
    assert scaled[:4, 0].tolist() == [0.0, 0.5, 1.0, 1.5]
    assert (scaled[19:, 0] == np.arange(19, 30) - 9.5).all()
    # Frequencies and deviations as ratios; a single shock's kurtosis of hundreds as its logarithm, nearly.
    assert scaled[25, [1, 13]] == pytest.approx([1, 2])
    assert scaled[25, [3, 4, 10, 11]] == pytest.approx([np.arcsinh(500)] * 4)
    assert scaled[25, [2, 5, 9, 12]].tolist() == [3.0] * 4


def run_to_failure(snapshots=6, warm=None, windows=2):
    features = np.arange(snapshots * windows * 14, dtype=np.float32).reshape(snapshots, windows, 14)
    temperature = None if warm is None else np.linspace(20, 25, snapshots).astype(np.float32)
    starts = 0.5 * np.arange(windows)
    table = FeatureTable("Bearing1_2", "", features, 10.0 * np.arange(snapshots), starts, temperature)
    return RunToFailure("pronostia", table)


def test_a_part_of_a_life_is_spread_over_it_evenly_and_has_the_wear_of_the_whole():
    run = run_to_failure(400)
    run.table.features[300:, :, [2, 9]] *= 30
    whole, few, kept = run.series(), run.series(9), np.linspace(0, 399, 9).round().astype(int)
    assert few["t"].tolist() == (10 * kept).tolist() and 0 < (whole["target"] > 0).sum() < 400
    assert all(torch.equal(few[name], whole[name][kept]) for name in ("x", "target"))
    assert all(torch.equal(run.series(most)["x"], whole["x"]) for most in (400, 500))


@pytest.mark.parametrize(("warm", "kelvin"), [(True, [293.15, 298.15]), (None, [298.15, 298.15])])
def test_a_row_of_the_paper_is_a_window_with_its_time_and_temperature(warm, kelvin):
    x, ramp = run_to_failure(warm=warm).rows()
    assert x.shape == (12, 16) and x[3, :14].tolist() == list(range(42, 56))
    assert x[:4, 14].tolist() == [0, 0.5, 10, 10.5]
    assert x[[0, -1], 15].tolist() == pytest.approx(kelvin)
    assert ramp.tolist() == pytest.approx([i / 11 for i in range(12)])


def test_a_published_row_keeps_its_own_time_and_temperature():
    features = np.ones((3, 14), np.float32)
    for warm, kelvin in ((None, 298.15), (np.full(3, 30.0, np.float32), 303.15)):
        published = PublishedBearing("Bearing1", "hust", features, np.array([0.0, 60.0, 120.0]), None, warm)
        run = run_of(published)
        assert run.table.t_s.tolist() == [0, 60, 120] and run.published is published
        assert run.rows()[0][:, 14:].tolist() == [[60.0 * i, pytest.approx(kelvin)] for i in range(3)]


def test_lives_that_a_model_learnt_from_are_kept_with_it_but_not_under_the_papers_protocol():
    samples = [
        Sample("a", {"t": torch.tensor([0.0, 50.0])}),
        Sample("a", {"t": torch.tensor([0.0, 70.0])}),
        Sample("b", {"t": torch.tensor([0.0])}),
    ]
    assert Bearings().about(samples) == {"lives_s": {"a": 70.0}}
    assert Bearings("paper").about(samples) == {}


def test_each_protocol_has_measures_for_its_own_tasks_and_a_note_of_what_they_are():
    keys = {
        (protocol, task): [metric.key for metric in Bearings(protocol).metrics_of(task)]
        for protocol in Bearings.protocols
        for task in ("pronostia", "xjtu-sy", "hust")
    }
    wear = ["rmse", "onset_min", "rmse_worn", "score"]
    assert keys.pop(("sequence", "pronostia")) == ["rmse", "rmse_elsewhere", *wear[1:]]
    assert keys.pop(("sequence", "xjtu-sy")) == wear
    assert keys.pop(("challenge", "pronostia"))[0] == "challenge"
    assert {tuple(keys.pop(("paper", task))) for task in ("pronostia", "xjtu-sy", "hust")} == {
        ("score_whole", "score", "rmse")
    }
    assert not any(keys.values())
    for protocol, task, words in (
        ("paper", "pronostia", "in the authors' scripts"),
        ("paper", "xjtu-sy", "1, 10, 100, ...; that is kept here"),
        ("paper", "hust", "its ramp is the paper's"),
        ("challenge", "pronostia", "as it was posed"),
        ("challenge", "hust", "about bearings of PRONOSTIA"),
        ("sequence", "hust", "no remaining life to predict"),
        ("sequence", "pronostia", "Each fold holds out one bearing"),
        ("sequence", "xjtu-sy", "put back into the order of time"),
    ):
        assert words in Bearings(protocol).note_of(task)


def test_columns_are_scaled_with_their_own_mean_and_deviation_and_a_constant_one_is_zero():
    x = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    root = 1.5**0.5
    torch.testing.assert_close(scaled(x), torch.tensor([[-root, 0.0], [0.0, 0.0], [root, 0.0]]))


def test_the_papers_rows_are_scored_together_and_by_batches(tmp_path):
    task = Bearings("paper")
    samples = row_samples("row", torch.zeros(70, 16), torch.linspace(0, 1, 70), None)
    assert [samples[i].name for i in (0, 69)] == ["row 0", "row 69"] and samples[0].fields["x"].shape == (1, 16)
    assert len(row_samples("row", torch.zeros(70, 16), torch.zeros(70), 7)) == 7
    outputs_ = [sample.labels["target"][None] + 1 for sample in samples]
    scores = task.score("pronostia", outputs_, samples)
    # 70 errors of 1: 64 of one batch and 6 of the next.
    assert scores["score_whole"] == pytest.approx(70 * np.expm1(0.1), rel=1e-5)
    assert scores["score"] == pytest.approx(35 * np.expm1(0.1), rel=1e-5) and scores["rmse"] == pytest.approx(1)
    (curve,) = task.curves("hust", outputs_, samples).values()
    assert list(task.curves("hust", outputs_, samples)) == ["Bearing1"] and curve.t_s[-1] == 69
    task.plot("pronostia", outputs_, samples, tmp_path, "Wear")
    assert (tmp_path / "wear-pronostia.png").is_file()


def test_of_three_bearings_one_is_held_out_another_chooses_the_epoch_and_the_rest_are_learnt_from():
    first = [replace(run_to_failure(), table=replace(run_to_failure().table, name=f"Bearing1_{i}")) for i in range(4)]
    other = replace(run_to_failure(), table=replace(run_to_failure().table, name="Bearing2_1"))
    for i, chosen in ((0, 1), (1, 2), (2, 3), (3, 0)):
        fold = Bearings().fold(first[i], first, {"pronostia": [*first, other]})
        sides = [{s.name for s in side} for side in (fold.train, fold.valid, fold.tests["pronostia"])]
        rest = {run.name for run in first} - {f"Bearing1_{i}", f"Bearing1_{chosen}"}
        assert sides == [rest, {f"Bearing1_{chosen}"}, {f"Bearing1_{i}", "Bearing2_1"}]
    alone = Bearings().fold(first[0], first[:2], {"pronostia": first[:2]})
    assert not alone.valid and {s.name for s in alone.train} == {"Bearing1_1"}


def test_the_order_of_the_published_minutes_is_undone():
    # Twelve minutes of two rows; the authors' files hold them as names sort: 1, 10, 11, 12, 2, ...
    order = sorted(range(1, 13), key=str)
    features = np.repeat(np.array(order, np.float32), 2)[:, None].repeat(14, axis=1)
    left = np.repeat(np.arange(12, 0, -1), 2).astype(np.float32)
    bearing = PublishedBearing("Bearing1_1", "xjtu-sy", features, np.arange(24.0), left, None)
    life = run_of(bearing)
    assert life.table.features[:, 0, 6].tolist() == list(range(1, 13))
    assert life.table.t_s.tolist() == [60.0 * minute for minute in range(12)]


@pytest.mark.nightly
@pytest.mark.skipif(not XJTU.is_file(), reason="the published XJTU-SY features are not on this machine")
def test_vibration_of_the_real_xjtu_bearing_grows_once_the_order_is_undone():
    from scipy.stats import spearmanr

    life = next(life for life in read_runs("xjtu-sy", XJTU) if life.name == "Bearing1_1")
    deviation = life.table.features[:, 0, 6]
    assert spearmanr(deviation, life.table.t_s)[0] > 0.9
    published = np.array(
        [life.published.features[life.published.remaining_min == k, 6].mean() for k in range(123, 0, -1)]
    )
    assert abs(spearmanr(published, np.arange(123))[0]) < 0.2


def test_rows_of_the_paper_have_time_and_temperature_and_a_ramp(data_dirs):
    task = load_task("pronostia", "paper")
    (fold,) = task.folds({**data_dirs, "hust": data_dirs["pronostia"].parent / "hust"}, 1, 0)
    assert fold.train[0].fields["x"].shape == (1, 16)
    # The leak is the paper's: the epoch is chosen on rows between those that are learnt from.
    assert {s.name for s in fold.valid}.isdisjoint(s.name for s in fold.train)
    tested = fold.tests["pronostia"]
    ramp = torch.stack([s.labels["target"] for s in tested])
    torch.testing.assert_close(ramp, torch.linspace(0, 1, len(tested)))
    time = torch.cat([s.fields["x"][:, 14] for s in tested])
    assert float(time.mean()) == pytest.approx(0, abs=1e-5)
    assert (time.diff() > 0).all()
    assert fold.tests["hust"]


@pytest.mark.nightly
def test_wear_of_made_up_bearings_is_learnt(data_dirs, tmp_path):
    task = load_task("pronostia", "sequence")
    fold = task.folds(data_dirs, 1, 0)[0]
    torch.manual_seed(0)
    network = task.network("gru", fold.train)
    config = FitConfig(**{**task.settings, "epochs": 60, "learning_rate": 5e-3})
    fit(network, task, fold.train, fold.valid, config, tmp_path)
    scores = task.score("pronostia", outputs(network, task, fold.tests["pronostia"]), fold.tests["pronostia"])
    assert scores["rmse"] < 0.2
    assert set(scores) >= {"rmse_elsewhere", "score", "rmse Bearing2_7"}
    assert {metric.key for metric in task.metrics_of("pronostia")} <= set(scores)
    # Of 20 snapshots with wear, ten seconds apart.
    assert scores["onset_min"] < 2
    assert scores["rmse_worn"] < 0.4


def test_a_bearing_of_ones_own_may_lie_in_any_folder(data_dirs, tmp_path):
    source = data_dirs["pronostia"] / "Full_Test_Set/Bearing2_7"
    own = tmp_path / "pump seven"
    own.mkdir()
    for file in sorted(source.glob("acc_*.csv"))[:6]:
        (own / file.name).write_text(file.read_text())
    (life,) = read_own(own)
    assert life.name == "pump seven"
    assert len(Bearings().cut([life])[0]) == 6
    with pytest.raises(UserError, match="holds no vibration files"):
        read_own(tmp_path / "pump seven" / ".nacdrive")
    with pytest.raises(UserError, match="does not exist"):
        read_own(tmp_path / "nowhere")


def test_one_bearing_is_too_few(data_dirs):
    alone = {"pronostia": data_dirs["pronostia"] / "Full_Test_Set/Bearing1_1"}
    with pytest.raises(UserError, match="holds 1 bearings of the first condition"):
        load_task("pronostia", "sequence").folds(alone, 1, 0)
    with pytest.raises(UserError, match="none is there"):
        load_task("pronostia", "paper").folds(alone, 1, 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("name", "protocol"), [("pronostia", "sequence"), ("xjtu-sy", "sequence"), ("hust", "paper")])
def test_trains_and_answers_on_cuda(data_dirs, made_up, tmp_path, name, protocol):
    task = load_task(name, protocol)
    fold = task.folds({**data_dirs, name: made_up(name)}, 1, 0, Size(max_samples=60, max_tests=60))[0]
    network = task.network("nac-exact", fold.train)
    config = FitConfig(**{**task.settings, "epochs": 1})
    fit(network, task, fold.train, fold.valid, config, tmp_path, device="cuda")
    answers = outputs(network, task, fold.tests[name], device="cuda")
    assert all(y.isfinite().all() for y in answers)
