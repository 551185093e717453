from __future__ import annotations

from nacdrive.common.paths import shipped
from nacdrive.datasets.check import check_recording
from nacdrive.datasets.recording import Recording

SAMPLE = shipped("recordings") / "carracing-sample"


def test_the_sample_is_three_sound_laps_of_the_expert() -> None:
    result = check_recording(SAMPLE)
    assert (len(result.sound), result.problems) == (3, [])
    recording = Recording.open(SAMPLE, source="carracing")
    assert recording.meta["expert"] == "ppo"
    for i, info in enumerate(recording.episodes):
        episode = recording.load(i)
        assert info.episode_return > 850
        assert episode.decoded().shape[1:] == (96, 96, 3)
        assert episode.expert_logits is not None
        assert (episode.expert_logits.argmax(axis=1) == episode.choice).all()
