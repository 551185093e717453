"""Tasks by name: nacdrive's, a user's own as module:Name, and the one that recordings belong to."""

import sys

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.extras.bench.config import TableConfig
from nacdrive.extras.bench.grid import compute, plan
from nacdrive.models.series import load_series
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.tasks import TASKS, load_driving_task, load_task, task_of
from nacdrive.tasks.base import Size, Task
from nacdrive.tasks.driving import Imitation
from nacdrive.tasks.registry import EVALUATED_WITH, PAPER_TASKS
from tests.helpers.udacity_logs import make_log

torch.set_num_threads(1)
OWN = '''
"""Which of two tones a noisy sound is."""
import torch
from nacdrive.tasks import Sample
from nacdrive.tasks.base import Size
from nacdrive.tasks.series import Classification

class Tones(Classification):
    data_folders = ()
    outputs, read, window = 2, "last", 16
    sizes = {"smoke": Size(3, 60, 20), "cpu": Size(), "full": Size()}
    settings = {"batch_size": 8, "epochs": 20, "learning_rate": 1e-2}

    def load(self, folders):
        made = torch.Generator().manual_seed(0)
        samples = []
        for i in range(100):
            t = torch.arange(16) / 16.0
            x = torch.sin(6.28 * (1 + 2 * (i % 2)) * t) + torch.randn(16, generator=made) / 5
            samples.append(Sample(f"tone {i}", {"x": x[:, None], "t": t}, {"target": torch.tensor(i % 2)}))
        return samples

class NotATask:
    pass

class Unfinished(Classification):
    def score(self, task, outputs, samples):
        return {}
    score.__isabstractmethod__ = True
'''


LAYER = '''
"""An exponential mean of the inputs."""
import torch
from nacdrive.layers import SequenceLayer

class EMA(SequenceLayer):
    def __init__(self, in_features, d_model, num_heads, window, gap_s=1.0):
        super().__init__(in_features, d_model, num_heads, window, gap_s)
        self.linear = torch.nn.Linear(in_features, d_model)

    def forward(self, x, t=None, padding=None):
        y = self.linear(x)
        weights = 0.5 ** torch.arange(self.window, dtype=y.dtype)
        if padding is not None:
            y = y.masked_fill(padding[..., None], 0.0)
        padded = torch.nn.functional.pad(y, (0, 0, self.window - 1, 0)).unfold(1, self.window, 1)
        return (padded * weights.flip(0)).sum(-1)

    def init_state(self, batch_size, window=None):
        return torch.zeros(batch_size, self.window - 1, self.d_model)

    def step(self, x, t, state):
        seen = torch.cat([state, self.linear(x)[:, None]], dim=1)
        weights = 0.5 ** torch.arange(self.window, dtype=seen.dtype)
        return (seen * weights.flip(0)[:, None]).sum(1), seen[:, 1:]
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module beside the user, as ``--tasks my_tones:Tones`` finds it."""
    (tmp_path / "my_tones.py").write_text(OWN)
    (tmp_path / "my_layer.py").write_text(LAYER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("my_tones", "my_layer"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", [*PAPER_TASKS, "imitation"])
@pytest.mark.parametrize("protocol", ["sequence", "paper"])
def test_every_task_says_what_a_table_must_know(name, protocol):
    task = load_task(name, protocol)
    assert isinstance(task, Task)
    assert task.name == EVALUATED_WITH.get(name, name)
    assert set(task.sizes) == {"smoke", "cpu", "full"}
    assert name == "imitation" or task.note_of(name)
    # HUST is offered by the paper's protocol alone, and imitation of anything is no task of the paper.
    assert bool(task.metrics_of(name)) == ((name, protocol) not in {("hust", "sequence"), ("imitation", "paper")})
    keys = [metric.key for metric in task.metrics_of(name)]
    assert len(keys) == len(set(keys))


def test_a_task_of_ones_own_is_trained_and_tested_by_the_bench(own):
    config = TableConfig(
        tasks=("my_tones:Tones",), models=("gru",), data=own / "none", out=own / "out", epochs=15, most=80
    )
    results = compute(plan(config), config, lambda cell, news: None, lambda cell, result: None)
    trained = results["my_tones:Tones/gru/0"]
    assert trained["status"] == "done", trained
    assert trained["scores"]["my_tones:Tones"]["accuracy"] > 80
    chance = results["my_tones:Tones/references/0"]["references"]["most frequent class"]["my_tones:Tones"]
    assert 20 < chance["accuracy"] < 80
    # The model file remembers whose task it is.
    network, _ = load_series(own / "out/cells/my_tones-Tones-gru-0/model.pt", task="my_tones:Tones")
    assert type(load_task(network.config.task)).__name__ == "Tones"


def test_a_layer_of_ones_own_is_compared_and_its_model_file_names_what_is_missing(own, monkeypatch):
    config = TableConfig(
        tasks=("my_tones:Tones",), models=("my_layer:EMA", "gru"), data=own / "none", out=own / "out", epochs=10,
        references=False,
    )  # fmt: skip
    results = compute(plan(config), config, lambda cell, news: None, lambda cell, result: None)
    trained = results["my_tones:Tones/my_layer:EMA/0"]
    assert trained["status"] == "done", trained
    path = own / "out/cells/my_tones-Tones-my_layer-EMA-0/model.pt"
    assert load_series(path, task="my_tones:Tones")[0].config.model == "my_layer:EMA"
    sys.modules.pop("my_layer")
    (own / "my_layer.py").unlink()
    with pytest.raises(UserError, match="no module 'my_layer' for 'my_layer:EMA'"):
        load_series(path, task="my_tones:Tones")
    with pytest.raises(UserError, match="no module 'my_layer'"):
        plan(TableConfig(tasks=("my_tones:Tones",), models=("my_layer:EMA",), out=own / "other"))
    assert not (own / "other").exists()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("my_tones:NotATask", "'my_tones:NotATask' is no task: derive the class"),
        ("my_tones:Unfinished", "lacks score"),
        ("my_tones:Nothing", "has no 'Nothing'"),
        ("gone_module:Task", "no module 'gone_module'"),
        ("emnits", "did you mean 'emnist'"),
    ],
)
def test_what_is_no_task_is_refused_in_one_sentence(own, name, sentence):
    with pytest.raises(UserError, match=sentence):
        load_task(name)


def test_a_task_without_a_policy_is_not_for_train():
    assert load_driving_task("udacity").name == "udacity"
    with pytest.raises(UserError, match="'emnist' has no policy that drives"):
        load_driving_task("emnist")


def test_the_task_of_recordings_follows_from_their_source(tmp_path):
    from tests.tasks.test_carracing_task import record

    assert task_of([shipped("recordings") / "carracing-sample"]) == "carracing"
    assert task_of([make_log(tmp_path / "log", 3)]) == "udacity"
    foreign = record(tmp_path / "foreign", source="my_env:make", episodes=1)
    assert task_of([foreign]) == "imitation"
    assert isinstance(load_driving_task(task_of([foreign])), Imitation)
    assert TrainConfig(task="auto", data=(foreign,)).task == "imitation"
    assert TrainConfig(task="auto", data=(shipped("recordings") / "carracing-sample",)).task == "carracing"
    with pytest.raises(UserError, match="--task auto follows from the recordings"):
        TrainConfig(task="auto")


def test_the_names_of_tasks_are_known_without_torch():
    import subprocess

    script = "import sys; from nacdrive.tasks import TASKS; print(*TASKS.names(), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*TASKS.names(), "False"]


def test_sizes_bound_what_is_learnt_from_and_what_is_tested_on(tmp_path):
    from nacdrive.datasets.synthetic import generate

    generate("emnist", tmp_path)
    task = load_task("emnist")
    (fold,) = task.folds({"emnist": tmp_path}, 1, 0, Size(max_samples=100))
    assert len(fold.train) + len(fold.valid) == 100
    # The whole test part: MNIST's first images are not like the rest.
    assert len(fold.tests["emnist"]) == 200
    (few,) = task.folds({"emnist": tmp_path}, 1, 0, Size(max_tests=10))
    assert [s.name for s in few.tests["emnist"]] == [f"test image {i}" for i in range(10)]
    truth = torch.stack([s.labels["target"] for s in few.tests["emnist"]])
    whole = torch.stack([s.labels["target"] for s in fold.tests["emnist"]])
    assert torch.equal(truth, whole[np.linspace(0, 199, 10).round().astype(int)])
