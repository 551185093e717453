"""Panda3D's software renderer, taken into memory: no display, no graphics driver, no system library."""

from __future__ import annotations

from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from panda3d import core

from nacdrive.common.camera_mount import FIELD_OF_VIEW, HEIGHT, SCENE, WIDTH, hpr
from nacdrive.common.errors import UserError
from nacdrive.envs.udacity_track.car import RIDE_HEIGHT

NEAR, FAR = 0.3, 360.0
CAMERAS = {"center": (0.0, 1.0, 1.2), "left": (-0.806, 0.984, 1.2), "right": (0.825, 0.999, 1.2)}
"""Places in the car, metres: right, forward, up."""


@lru_cache(maxsize=1)
def offscreen_pipe() -> core.GraphicsPipe:
    """The software renderer's pipe without a display; the same one for all environments of the process."""
    # The transform cache replaces a matrix with a nearly equal one that lives: pictures would depend on earlier ones.
    settings = "load-display p3tinydisplay\naudio-library-name null\nsync-video 0\nnotify-level-x11display fatal"
    core.load_prc_file_data("nacdrive", settings + "\ntransform-cache 0")
    # Its auxiliary modules stay out: with EGL loaded, SDL and so pygame find no way to draw without a display.
    pipe = core.GraphicsPipeSelection.get_global_ptr().make_pipe("TinyOffscreenGraphicsPipe")
    if pipe is None:
        raise UserError("Panda3D's software renderer (p3tinydisplay) did not load: reinstall panda3d from its wheel.")
    return pipe


class Cameras:
    """The car's cameras, drawn side by side into one picture in memory; ``mount``: see ``common.camera_mount``."""

    def __init__(self, cameras: tuple[str, ...], mount: str = SCENE) -> None:
        self.cameras = cameras
        # An engine of its own: drawing one environment does not draw the others of the process.
        self.engine = core.GraphicsEngine()
        form = core.FrameBufferProperties()
        form.set_rgba_bits(8, 8, 8, 8)
        form.set_depth_bits(24)
        size = core.WindowProperties.size(WIDTH, HEIGHT * len(cameras))
        self.buffer: core.GraphicsOutput = self.engine.make_output(
            offscreen_pipe(), "cameras", 0, form, size, core.GraphicsPipe.BF_refuse_window
        )
        if self.buffer is None:
            raise UserError("Panda3D could not open a picture in memory: is another program's panda3d configured here?")
        self.picture = core.Texture()
        self.buffer.add_render_texture(self.picture, core.GraphicsOutput.RTM_copy_ram)
        self.buffer.set_clear_color_active(False)
        self.buffer.set_clear_depth_active(True)
        self.rig = core.NodePath("rig")
        self._scene_parts: list[core.NodePath] = []
        for number, name in enumerate(cameras):
            lens = core.PerspectiveLens()
            lens.set_aspect_ratio(WIDTH / HEIGHT)
            lens.set_min_fov(FIELD_OF_VIEW)
            lens.set_near_far(NEAR, FAR)
            camera = self.rig.attach_new_node(core.Camera(name, lens))
            camera.set_pos(*CAMERAS[name])
            camera.set_hpr(*hpr(mount))
            top = 1 - number / len(cameras)
            self.buffer.make_display_region(0, 1, top - 1 / len(cameras), top).set_camera(camera)

    def enter(self, scene: core.NodePath, sky: core.NodePath, *parts: core.NodePath) -> None:
        """Move into ``scene``; ``sky`` follows the car without turning, ``parts`` belong to the car."""
        self.rig.detach_node()
        for old in self._scene_parts:
            old.remove_node()
        self._scene_parts = [scene, sky, *parts]
        self.rig.reparent_to(scene)
        sky.reparent_to(scene)
        self.sky = sky
        for part in parts:
            part.reparent_to(self.rig)

    def follow(self, car: core.NodePath) -> None:
        """Stand where the car stands; its origin is ``RIDE_HEIGHT`` above the ground."""
        self.rig.set_pos_quat(car.get_pos() - car.get_quat().get_up() * RIDE_HEIGHT, car.get_quat())
        self.sky.set_pos(car.get_pos())

    def look(self) -> dict[str, NDArray[np.uint8]]:
        """Draw; uint8 [160, 320, 3] RGB of every camera, by name."""
        self.engine.render_frame()
        raw = np.frombuffer(self.picture.get_ram_image(), dtype=np.uint8)
        # Panda's rows run upwards, its channels are BGRA.
        upwards = raw.reshape(HEIGHT * len(self.cameras), WIDTH, 4)
        copies = cv2.flip(cv2.cvtColor(upwards, cv2.COLOR_BGRA2RGB), 0).reshape(-1, HEIGHT, WIDTH, 3)
        return dict(zip(self.cameras, copies, strict=True))

    def close(self) -> None:
        self.engine.remove_all_windows()
