"""An mp4 of a drive that every browser plays: what the policy saw, what it decided, how far it got."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from nacdrive.common.errors import UserError, instead_of, quoted
from nacdrive.common.files import atomic_path
from nacdrive.drivers.tick import Listener, Tick
from nacdrive.viz.overlay import HEIGHT, WIDTH, FrameOverlay

HOLD_LAST_S = 1.0
"""The last picture of an episode stands for so long."""
# yuv420p, faststart: what browsers play, from the first byte on. One thread: evaluation films episodes side by side.
# The file's temporary name does not end in .mp4, so the container is named.
ENCODING = "-c:v libx264 -pix_fmt yuv420p -crf 20 -preset fast -threads 1 -movflags +faststart -f mp4"


@contextlib.contextmanager
def video(target: Path, title: str, fps: float, caption: str = "", actions: Sequence[str] = ()) -> Iterator[Listener]:
    """Yield a listener that films Ticks into ``target``; an interrupted drive gives a shorter, whole video.

    Args:
        target: The file.
        title: Over the panel.
        fps: Pictures per second of the video, which runs in real time: a Tick is shown until the next one; of those
            that come faster some are left out.
        caption: See ``FrameOverlay``.
        actions: Names of the environment's discrete actions.
    """
    if target.suffix != ".mp4":
        raise UserError(f"{target}: videos are written as .mp4, give a name such as {target.with_suffix('.mp4')}.")
    with contextlib.ExitStack() as stack:
        film = VideoWriter(stack, target, FrameOverlay(title, caption, actions), fps)
        try:
            yield film
        except KeyboardInterrupt:
            film.close()
            stack.close()
            raise
        film.close()


class VideoWriter:
    """Listener that paints Ticks and hands the pictures to ffmpeg; the file begins with the first Tick."""

    __name__ = "film"  # as people are told of it if it fails

    def __init__(self, stack: contextlib.ExitStack, target: Path, overlay: FrameOverlay, fps: float) -> None:
        self._stack, self._target, self._overlay, self._fps = stack, target, overlay, fps
        self._ffmpeg: subprocess.Popen[bytes] | None = None
        self._last: Tick | None = None
        self._picture, self._began_s, self._sent = b"", 0.0, 0

    def __call__(self, tick: Tick) -> None:
        if self._last is None or tick.episode != self._last.episode or tick.t_s < self._last.t_s:
            self._began_s, self._sent = tick.t_s, 0
        self._last, due = tick, round((tick.t_s - self._began_s) * self._fps) + 1
        # A long pause is not filmed.
        count, self._sent = min(due - self._sent, max(1, int(self._fps))), due
        for _ in range(count - 1):
            self._send(self._picture)
        if count > 0 or tick.done:
            self._picture = self._overlay.paint(tick)
        for _ in range(min(count, 1) + (round(HOLD_LAST_S * self._fps) if tick.done else 0)):
            self._send(self._picture)

    def _open(self) -> subprocess.Popen[bytes]:
        partial = self._stack.enter_context(atomic_path(self._target))
        self._errors: IO[bytes] = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        source = f"-f rawvideo -pix_fmt rgb24 -s {WIDTH}x{HEIGHT} -r {self._fps:g} -i -"
        # A session of its own: Ctrl-C is for us, ffmpeg is to finish the file.
        process = subprocess.Popen(
            [ffmpeg(), "-y", "-loglevel", "error", *source.split(), *ENCODING.split(), str(partial)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
        )  # fmt: skip
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def _send(self, picture: bytes) -> None:
        self._ffmpeg = self._ffmpeg or self._open()
        assert self._ffmpeg.stdin is not None
        try:
            self._ffmpeg.stdin.write(picture)
        except BrokenPipeError as error:
            self._ffmpeg.wait()
            raise self._failure() from error

    def close(self) -> None:
        """End the film: ffmpeg writes the rest, the file gets its name."""
        if self._ffmpeg is None:
            return
        assert self._ffmpeg.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._ffmpeg.stdin.close()
        if self._ffmpeg.wait() != 0:
            raise self._failure()

    def _failure(self) -> UserError:
        self._errors.seek(0)
        rows = self._errors.read().decode(errors="replace").strip().split("\n")
        if any("No space left" in row for row in rows):
            # What it says last is only what came of that.
            return UserError(f"no space left on the disk while writing {self._target}: free some, and film it again.")
        return UserError(f"ffmpeg could not write {self._target}: {rows[-1] or 'it ended without a word'}.")


def ffmpeg() -> str:
    """Path of the ffmpeg that imageio-ffmpeg carries."""
    with instead_of(RuntimeError, "there is no ffmpeg: run pip install --force-reinstall imageio-ffmpeg."):
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())


def ffmpeg_version() -> str:
    """Version of the ffmpeg that is used."""
    advice = "): run pip install --force-reinstall imageio-ffmpeg."
    with quoted("ffmpeg does not run (", advice, OSError, subprocess.CalledProcessError):
        done = subprocess.run([ffmpeg(), "-hide_banner", "-encoders"], capture_output=True, text=True, check=True)
    if "libx264" not in done.stdout:
        raise UserError("this ffmpeg cannot write H.264 (no libx264): unset IMAGEIO_FFMPEG_EXE to use the shipped one.")
    import imageio_ffmpeg

    return str(imageio_ffmpeg.get_ffmpeg_version())
