"""A recording names its licence and carries a card, computed from its files."""

import fcntl
import hashlib
import json
import re
import shutil

import numpy as np
import pytest

from nacdrive.cli.main import dispatch
from nacdrive.common.errors import UserError
from nacdrive.common.result_folder import LOCK
from nacdrive.datasets.check import check_recording
from nacdrive.datasets.recording import Recording, RecordingWriter, merge_recordings
from nacdrive.extras.exchange.card import card_text, write_card
from nacdrive.rollout.record_config import RecordConfig
from tests.helpers.exchange import SAMPLE, drive, write


@pytest.fixture
def sample(tmp_path):
    return shutil.copytree(SAMPLE, tmp_path / "sample")


def front_matter(folder):
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    return yaml.safe_load((folder / "README.md").read_text().split("\n---\n")[0])


def test_the_card_says_what_the_files_hold(sample):
    assert dispatch(["recordings", "card", str(sample), "--license", "CC-BY-4.0"]) == 0
    found = front_matter(sample)
    assert found["license"] == "cc-by-4.0"
    assert found["task_categories"] == ["robotics", "reinforcement-learning"]
    assert found["size_categories"] == ["n<1K"]
    assert found["configs"] == [{"config_name": "default", "data_files": "episode-*.parquet"}]
    assert found["nacdrive"]["environment"] == "carracing"
    assert found["nacdrive"]["frames"] == 647
    files = sorted(sample.glob("*.parquet"))
    lines = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    assert found["nacdrive"]["sha256"] == hashlib.sha256(lines.encode()).hexdigest()
    text = (sample / "README.md").read_text()
    recording = Recording.open(sample)
    speed = np.concatenate([recording.load(i).speed_mps for i in range(3)]).astype(float)
    row = re.search(r"^\| `speed_mps` \| (.*) \|$", text.split("## Actions")[1], re.MULTILINE)[1]
    measured = [speed.min(), speed.max(), speed.mean(), speed.std()]
    assert [float(value) for value in row.split(" | ")] == pytest.approx(measured, rel=1e-3)
    gas = (np.concatenate([recording.load(i).choice for i in range(3)]) == 3).mean()
    assert f"3: {gas:.1%}" in text
    for words in ("647 of 96 x 96 PNG", "expert_sha256", "metres per second", "910.6 on average", "CC-BY-4.0"):
        assert words in text


def test_the_licence_stands_in_the_recording_and_the_recording_is_whole(sample, capsys):
    dispatch(["recordings", "card", str(sample), "--license", "CC-BY-4.0"])
    assert json.loads((sample / "recording.json").read_text())["license"] == "CC-BY-4.0"
    assert check_recording(sample).problems == []
    dispatch(["recordings", "info", str(sample)])
    assert "licence CC-BY-4.0" in capsys.readouterr().out
    dispatch(["recordings", "card", str(sample)])
    assert "licence CC-BY-4.0" in capsys.readouterr().out


def test_no_licence_is_given_while_another_process_records(sample):
    # It would write what it read before, without the licence.
    with (sample / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another nacdrive writes into"):
            write_card(sample, license="MIT")
        assert "license" not in Recording.open(sample).meta and not (sample / "README.md").exists()
        write_card(sample)


def test_a_recording_without_a_licence_opens_unchanged_and_its_card_says_so(sample, capsys):
    before = (sample / "recording.json").read_bytes()
    dispatch(["recordings", "card", str(sample)])
    assert "nobody else may use" in capsys.readouterr().out
    assert (sample / "recording.json").read_bytes() == before
    assert "license" not in front_matter(sample)


def test_a_card_of_ours_is_replaced_and_a_persons_is_not(sample):
    path, _ = write_card(sample)
    write_card(sample, license="MIT")
    assert "MIT" in path.read_text()
    path.write_text(path.read_text().replace("# Driving", "# My driving"))
    edited = path.read_text()
    with pytest.raises(UserError, match=r"README\.md was written or edited by somebody: give --overwrite"):
        write_card(sample, license="Apache-2.0")
    assert path.read_text() == edited
    assert json.loads((sample / "recording.json").read_text())["license"] == "MIT"
    write_card(sample, license="Apache-2.0", overwrite=True)
    assert "My driving" not in path.read_text()


def test_overwriting_a_recording_takes_its_own_card_along_and_spares_a_persons(tmp_path):
    folder = write(tmp_path / "recording", [drive(1)])
    write_card(folder)
    write(folder, [drive(2)], overwrite=True)
    assert not (folder / "README.md").exists()
    (folder / "README.md").write_text("mine")
    with pytest.raises(UserError, match=r"README\.md"):
        write(folder, [drive(3)], overwrite=True)
    assert (folder / "README.md").read_text() == "mine"
    assert Recording.open(folder).episodes[0].seed == 2


def test_a_damaged_recording_gets_no_card(sample):
    path = sample / "episode-3000001.parquet"
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="altered since it was recorded"):
        write_card(sample, license="MIT")
    assert not (sample / "README.md").exists()
    assert "license" not in json.loads((sample / "recording.json").read_text())


@pytest.mark.parametrize("license", ["", "CC BY", "a\nb", "x" * 65, "../x", "\N{COPYRIGHT SIGN}"])
def test_what_is_no_identifier_is_refused_before_anything_is_driven(sample, tmp_path, license):
    for make in (
        lambda: RecordConfig(license=license),
        lambda: write_card(sample, license=license),
        lambda: write(tmp_path / "new", [drive(1)], license=license),
    ):
        with pytest.raises(UserError, match="no identifier of a licence"):
            make()


def test_a_licence_that_the_hub_does_not_know_is_called_other(tmp_path):
    folder = write(tmp_path / "recording", [drive(1)], license="LicenseRef-ours")
    write_card(folder)
    assert front_matter(folder)["license"] == "other"
    assert front_matter(folder)["license_name"] == "licenseref-ours"


def test_a_recording_that_goes_on_keeps_its_licence(tmp_path):
    folder = write(tmp_path / "recording", [drive(1)], license="MIT")
    write(folder, [drive(2)], resume=True)
    assert Recording.open(folder).meta["license"] == "MIT"
    with pytest.raises(UserError, match=r"is under MIT, not CC0-1\.0"):
        write(folder, [drive(3)], resume=True, license="CC0-1.0")
    assert len(Recording.open(folder)) == 2
    bare = write(tmp_path / "bare", [drive(1)])
    write(bare, [drive(2)], resume=True, license="MIT")
    assert Recording.open(bare).meta["license"] == "MIT"


def test_a_merge_keeps_a_common_licence_and_warns_of_different_ones(tmp_path):
    a, b, c = (
        write(tmp_path / name, [drive(seed)], license=license)
        for name, seed, license in (("a", 1, "MIT"), ("b", 2, "MIT"), ("c", 3, None))
    )
    merge_recordings([a, b], tmp_path / "ab")
    assert Recording.open(tmp_path / "ab").meta["license"] == "MIT"
    with pytest.warns(UserWarning, match=r"different licences \(MIT, none\)"):
        merge_recordings([a, c], tmp_path / "ac")
    assert "license" not in Recording.open(tmp_path / "ac").meta


def test_a_damaged_licence_is_told(tmp_path):
    folder = write(tmp_path / "recording", [drive(1)], license="MIT")
    path = folder / "recording.json"
    path.write_text(path.read_text().replace('"MIT"', '["MIT"]'))
    with pytest.raises(UserError, match="license is"):
        Recording.open(folder)


def test_names_that_would_break_a_table_or_yaml_do_not(tmp_path):
    name = 'a|b: "c" #d\n- e\u2028'
    episode = drive(1, source=name, driver=name, sides=True, jpeg=True, label=True, speed=False)
    folder = tmp_path / "recording"
    RecordingWriter(folder, source=name, fps=12.5, expert=name).add(episode)
    write_card(folder)
    found = front_matter(folder)
    assert found["nacdrive"]["environment"] == name
    assert found["pretty_name"] == f"nacdrive: {name} by {name}"
    text = card_text(Recording.open(folder), None)
    assert "12 of 16 x 12 JPEG" in text
    assert "`speed_mps` |" not in text.split("## Actions")[1].split("##")[0]
    assert all(line.count("|") - line.count("\\|") == 3 for line in text.splitlines() if line.startswith("| Driven by"))


def test_the_hub_and_datasets_read_the_card(sample):
    hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")
    write_card(sample, license="CC-BY-4.0")
    card = hub.DatasetCard.load(sample / "README.md")
    assert card.data.license == "cc-by-4.0"
    assert card.data.size_categories == ["n<1K"]
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    rows = datasets.load_dataset(str(sample), split="train", cache_dir=str(sample.parent / "cache"))
    assert (len(rows), rows[0]["frame"].size) == (647, (96, 96))
