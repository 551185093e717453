"""Is every file of a recording the one that was recorded? Names those that are not; the rest stays usable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nacdrive.common.paths import find_recording
from nacdrive.common.result_folder import locked
from nacdrive.datasets import manifest as manifests
from nacdrive.datasets.episode import content_problem
from nacdrive.datasets.episode_file import NotAnEpisodeError
from nacdrive.datasets.manifest import EPISODE_NAME, MANIFEST, EpisodeInfo, read_manifest, write_manifest
from nacdrive.datasets.recording import DamagedEpisode, read_listed, sort_out
from nacdrive.datasets.writer import set_aside


@dataclass(frozen=True)
class CheckResult:
    """What a check found."""

    sound: list[EpisodeInfo]
    problems: list[DamagedEpisode]  # files that are not, in order of their names


def check_recording(folder: Path) -> CheckResult:
    """Read every file of a recording to its last pixel, and compare it with ``recording.json``."""
    folder = find_recording(folder)
    # Before what is listed, so that an episode that is recorded meanwhile is not foreign.
    there = sorted(folder.glob("*"))
    manifest, listed = read_manifest(folder)
    # A crash may have kept an episode from being listed; it is sound if its content is.
    listed += manifests.unlisted_episodes(folder, manifest["source"], listed)
    sound, problems = sort_out(listed, lambda info: episode_problem(info, manifest["source"]))
    known = {info.path for info in listed} | {folder / MANIFEST}
    for path in there:
        if path.is_file() and path not in known and not path.name.startswith(".") and path.suffix != ".md":
            problems.append(DamagedEpisode(path, "is foreign: no episode of this recording"))
    return CheckResult(sound, sorted(problems, key=lambda problem: problem.path.name))


def keep_sound(folder: Path) -> tuple[CheckResult, list[Path]]:
    """Move every episode with a problem into the recording's folder ``damaged`` and list only the sound ones.

    Files that are no episodes stay. ``UserError`` while another process writes into the folder.
    """
    folder = find_recording(folder)
    with locked(folder):
        result = check_recording(folder)
        manifest, listed = read_manifest(folder)
        broken = {problem.path for problem in result.problems if problem.path.is_file()}
        own = {info.path for info in listed} | {path for path in broken if EPISODE_NAME.fullmatch(path.name)}
        moved = [set_aside(path) for path in sorted(broken & own)]
        write_manifest(folder, manifest, result.sound)
    return result, moved


def episode_problem(info: EpisodeInfo, source: str) -> str | None:
    """What is wrong with a listed episode, or None."""
    try:
        episode = read_listed(info)
    except NotAnEpisodeError as error:
        return str(error)
    if episode.source != source:
        return f"was recorded in '{episode.source}', not in '{source}'"
    if (episode.seed, len(episode)) != (info.seed, info.steps):
        return f"is seed {episode.seed} with {len(episode)} frames, but is listed as {info.seed} with {info.steps}"
    return content_problem(episode)
