"""A window on the drive, and the keyboard beside it."""

from __future__ import annotations

import time

from panda3d.core import (
    ButtonHandle,
    Camera,
    DataGraphTraverser,
    FrameBufferProperties,
    GraphicsPipe,
    GraphicsPipeSelection,
    KeyboardButton,
    MouseAndKeyboard,
    MouseWatcher,
    NodePath,
    PerspectiveLens,
    WindowProperties,
)

from nacdrive.base.errors import UserError
from nacdrive.sims.lake.display import CAMERAS, FAR, FIELD_OF_VIEW, NEAR, PITCH, Eyes, offscreen_pipe

SIZE = 960, 480
KEYS: dict[str, ButtonHandle] = {
    **{name: KeyboardButton.ascii_key(name) for name in "wasd"},
    "up": KeyboardButton.up(),
    "down": KeyboardButton.down(),
    "left": KeyboardButton.left(),
    "right": KeyboardButton.right(),
    "escape": KeyboardButton.escape(),
}


class Screen:
    """A window with the front camera's view, drawn with every picture that ``eyes`` take."""

    def __init__(self, eyes: Eyes, *, pace_s: float = 0.0) -> None:
        """``pace_s``: ``show`` lasts at least this long, so that a drive is seen at its real speed."""
        offscreen_pipe()  # loads the renderer
        pipe = GraphicsPipeSelection.get_global_ptr().make_default_pipe()
        form = FrameBufferProperties()
        form.set_rgba_bits(8, 8, 8, 8)
        form.set_depth_bits(24)
        properties = WindowProperties.size(*SIZE)
        properties.set_title("nacdrive")
        window = None
        if pipe is not None and pipe.get_supported_types() & GraphicsPipe.OT_window:
            window = eyes.engine.make_output(pipe, "screen", 0, form, properties, GraphicsPipe.BF_require_window)
        if window is None:
            raise UserError("no window can be opened here: there is no display. Drive without a window.")
        self.window, self.eyes, self.pace_s = window, eyes, pace_s
        window.set_clear_color_active(False)
        lens = PerspectiveLens()
        lens.set_aspect_ratio(SIZE[0] / SIZE[1])
        lens.set_min_fov(FIELD_OF_VIEW)
        lens.set_near_far(NEAR, FAR)
        self.camera = eyes.rig.attach_new_node(Camera("screen", lens))
        self.camera.set_pos(*CAMERAS["center"])
        self.camera.set_p(PITCH)
        window.make_display_region().set_camera(self.camera)
        devices = NodePath(MouseAndKeyboard(window, 0, "devices"))
        self.watcher = MouseWatcher("watcher")
        devices.attach_new_node(self.watcher)
        self.devices, self.traverser = devices, DataGraphTraverser()
        self._next = time.monotonic()

    def show(self) -> None:
        """Read the keyboard, and wait for the pace."""
        self.traverser.traverse(self.devices.node())
        self._next = max(self._next + self.pace_s, time.monotonic())
        time.sleep(max(0.0, self._next - time.monotonic()))

    @property
    def closed(self) -> bool:
        """True once somebody has closed the window or pressed Escape."""
        return self.window.is_closed() or "escape" in self.pressed()

    def pressed(self) -> set[str]:
        """Names of the keys of ``KEYS`` that are held down."""
        return {name for name, key in KEYS.items() if self.watcher.is_button_down(key)}

    def close(self) -> None:
        """Close the window."""
        self.eyes.engine.remove_window(self.window)
        self.camera.remove_node()
