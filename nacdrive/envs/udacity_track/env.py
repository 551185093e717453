"""``nacdrive/UdacityTrack-v0``: drive the built-in tracks by camera, with steering and throttle."""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import numpy as np
from gymnasium import spaces

from nacdrive.common.camera_mount import HEIGHT, SCENE, WIDTH
from nacdrive.common.errors import UserError, check_known, unknown_name
from nacdrive.common.units import MPH_PER_MPS
from nacdrive.envs.base import DrivingEnv, Frame
from nacdrive.envs.seeds import POLICY_RECORDING
from nacdrive.envs.start import MIDDLE, Start
from nacdrive.envs.udacity_track.appearance import Appearance, at_elevation, random_appearance, varied_day
from nacdrive.envs.udacity_track.cameras import CAMERAS, Cameras
from nacdrive.envs.udacity_track.car import STEP_S, Car
from nacdrive.envs.udacity_track.extras import draw_extras
from nacdrive.envs.udacity_track.options import (
    RANDOM,
    ROAD_OPTIONS,
    USUAL_TOP_SPEED_MPH,
    RoadOptions,
    check_track,
    is_random,
    road_seed,
)
from nacdrive.envs.udacity_track.random_road import draw_road
from nacdrive.envs.udacity_track.scene import build_hood, build_scene
from nacdrive.envs.udacity_track.track import TRACKS, Array, Track, TrackPosition, load_track
from nacdrive.envs.udacity_track.traffic import Traffic

OFF_ROAD_PENALTY = 20.0
"""Taken from the reward per second with all wheels off the road."""
TOO_FAR = 4.0
"""Metres beyond the edge at which an episode ends."""
STUCK_S = 4.0
"""Seconds of throttle without motion at which an episode ends."""
ROOM_M = 1.2
"""Metres between the middle of the car and the edge of the road at the outermost random start."""
INTERVENTION_S = 6.0
"""What an intervention counts, in seconds (Bojarski et al., 2016)."""
USUAL_DIFFICULTY = USUAL_VARIETY = 0.5
"""Of random roads, if nobody says otherwise."""
RESTART_MPS = 3.0
"""Speed at which a car that has left the road with all wheels is put back."""


class Score:
    """What evaluations count of a drive: off the road is any wheel beyond the asphalt."""

    def __init__(self, collisions: int | None) -> None:
        self.offsets: list[float] = []
        self.steering: list[float] = []
        self.speeds: list[float] = []
        self.off_road_events = self.interventions = self.clean_laps = 0
        self.collisions = collisions
        """With parked and slow cars; None where there are none."""
        self._spoilt = False

    def note(
        self, info: dict[str, Any], steering: float, left_road: bool, intervention: bool, finished_lap: bool
    ) -> None:
        self.offsets.append(abs(info["lane_offset_m"]))
        self.steering.append(steering)
        self.speeds.append(info["speed_mps"])
        self.off_road_events += left_road
        self.interventions += intervention
        if self.collisions is not None:
            self.collisions += info["hit"]
        self._spoilt |= left_road or intervention
        if finished_lap:
            self.clean_laps += not self._spoilt
            self._spoilt = False

    def numbers(self, info: dict[str, Any]) -> dict[str, float]:
        """The score; ``info`` is that after the last decision."""
        seconds, laps = info["t_s"], info["progress"]
        gap_s = seconds / len(self.steering)
        changes = np.abs(np.diff(self.steering))
        return {
            "laps": laps,
            "clean_laps": self.clean_laps,
            "off_road_events": self.off_road_events,
            "off_road_per_lap": self.off_road_events / max(laps, 0.01),
            "interventions": self.interventions,
            "autonomy": 100 * max(0.0, 1 - self.interventions * INTERVENTION_S / seconds),
            "offset_mean_m": float(np.mean(self.offsets)),
            "offset_max_m": float(np.max(self.offsets)),
            "jitter_per_s": float(changes.mean() / gap_s) if len(changes) else 0.0,
            "speed_mps": float(np.mean(self.speeds)),
            "seconds": seconds,
            **({} if self.collisions is None else {"collisions": self.collisions}),
        }


class UdacityTrackEnv(DrivingEnv):
    """One car on one track; no display is needed, several fit in one process.

    Observation: the front camera, uint8 [160, 320, 3] RGB. Action: float32 (steering, throttle), both -1 .. 1;
    steering to the right is positive, negative throttle brakes (and reverses below 5 mph), as on the simulator's wire.
    The same seed and the same actions give the same frames.

    Reward: metres forward along the road, less 20 a second for wheels off the road (in proportion).
    An episode is terminated more than 4 m beyond the road's edge, in the water, overturned, or stuck for 4 s, and
    truncated after ``laps`` laps or ``max_seconds``. With ``recover`` such a car, and one with all four wheels off the
    road, is put back on it instead: an intervention. Hitting another car is treated as leaving the road.

    With the track ``random`` every ``reset`` draws the road of its seed (without one, any of those for training);
    ``random:SEED`` is one of them, whatever the seed of ``reset``.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 10}
    name = "udacity-track"

    def __init__(
        self,
        track: str = "lake",
        *,
        repeat: int = 5,
        cameras: tuple[str, ...] = ("center",),
        randomize: bool = True,
        laps: float = 3,
        max_seconds: float = 600.0,
        recover: bool = False,
        render_mode: str | None = None,
        start: Start = MIDDLE,
        **road: Any,
    ) -> None:
        check_track(track, TRACKS)
        for name in road.keys() - {*ROAD_OPTIONS}:
            known = ("track", *(UdacityTrackEnv.__init__.__kwdefaults__ or ()), *ROAD_OPTIONS)
            raise unknown_name(f"option of {self.name}", name, known)
        self.road = RoadOptions(**road)
        self.road.check(track)
        self.variety = USUAL_VARIETY if self.road.scene_variety is None else self.road.scene_variety
        self._own_road_each = track == RANDOM
        self.track = self._draw(road_seed(track) or 0) if is_random(track) else load_track(track)
        for name in cameras:
            check_known("camera", name, CAMERAS)
        if "center" not in cameras or len(set(cameras)) != len(cameras):
            raise UserError(f"cameras are {cameras}: name 'center', and each of the others at most once.")
        if repeat < 1 or not laps > 0 or not max_seconds > 0:
            raise UserError(f"repeat ({repeat}), laps ({laps}) and max_seconds ({max_seconds}) must be above 0.")
        if render_mode not in (None, "rgb_array", "human"):
            raise unknown_name("render mode", str(render_mode), ("rgb_array", "human"))
        self.repeat, self.randomize, self.laps, self.max_seconds = repeat, randomize, laps, max_seconds
        self.recover, self.render_mode, self.start = recover, render_mode, start.place
        self.step_s = repeat * STEP_S
        # A window where there is none to be opened is no mode: Gymnasium's checker tries all that are named.
        display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        modes = ["rgb_array", "human"] if display or sys.platform in ("win32", "darwin") else ["rgb_array"]
        self.metadata = {"render_modes": modes, "render_fps": 1 / self.step_s}
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        self.car = Car(self.track, (self.road.car_top_speed or USUAL_TOP_SPEED_MPH) / MPH_PER_MPS)
        self.track_position = TrackPosition(self.track)
        self.mount = self.road.camera_mount or SCENE
        self.cameras = Cameras(cameras, self.mount)
        self.window: Any = None
        self.frames: dict[str, Frame] = {}
        self.steps = 0
        self._furnished: Track | None = None
        self.traffic: Traffic

    def _draw(self, seed: int) -> Track:
        difficulty = self.road.road_difficulty
        return draw_road(seed, USUAL_DIFFICULTY if difficulty is None else difficulty, self.variety)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, dict[str, Any]]:
        """A new day and a new start, both by ``seed``; ``options`` may hold arguments of ``place``."""
        super(DrivingEnv, self).reset(seed=seed)
        if self._own_road_each:
            # Whoever gives no seeds is training; roads that policies are judged on are not for that.
            own = int(self.np_random.integers(POLICY_RECORDING.start, POLICY_RECORDING.stop)) if seed is None else seed
            if (track := self._draw(own)) is not self.track:
                self.track, self.track_position = track, TrackPosition(track)
                self.car = Car(track, self.car.top_speed_mps)
        place = {"s": float(self.np_random.uniform(0, self.track.length)), **self.start, **(options or {})}
        self._furnish(place["s"])
        self.steps = 0
        self._stuck_s = 0.0
        self._put_back = False
        self.interventions = 0
        self._action = (0.0, 0.0)
        self._score = Score(0 if self.road.parked_cars or self.road.slow_cars else None)
        self._hit = ""
        self._place(**place)
        self.track_position.driven = 0.0
        frame = self.look()
        self._before = self._info()
        return frame, self._before

    def _step(self, action: Any) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        if not self.frames:
            raise UserError("the drive has not begun: call reset() before step().")
        steering, throttle = (float(x) for x in action)
        if not (math.isfinite(steering) and math.isfinite(throttle)):
            raise UserError(f"the action is ({steering}, {throttle}): both must be finite.")
        self._action = steering, throttle
        before, lost, reward = self.track_position.driven, False, 0.0
        self._put_back, self._hit = False, ""
        for _ in range(self.repeat):
            self.advance(steering, throttle)
            reward -= OFF_ROAD_PENALTY * STEP_S * self.wheels_off()
            touched = self.car.touched()
            is_slow = any(node in self.traffic.bodies for node in touched)
            self._hit = "hit a slow car" if is_slow else "hit a parked car" if touched else ""
            lost = bool(self._hit) or self.is_lost()
            if lost:
                break
        reward += self.track_position.driven - before
        if lost and self.recover:
            self.put_back()
            lost = False
        all_laps = self.track_position.driven >= self.laps * self.track_position.length
        truncated = all_laps or self.t_s >= self.max_seconds
        frame, info = self.look(), self._info()
        if self.recover and info["wheels_off"] == 1.0:
            # After the look: the driver shall see once where it has got to.
            self.put_back(RESTART_MPS)
            info |= {"put_back": True, "interventions": self.interventions}
        finished_lap = info["laps"] > self._before["laps"]
        left_road = info["off_road"] and not self._before["off_road"]
        if lost or truncated:
            info["ended"] = (self._hit or "left the field") if lost else "laps finished" if all_laps else "time is up"
        info["events"] = (
            *("off road",) * left_road,
            *(self._hit,) * info["hit"],
            *("intervention: put back on the road",) * info["put_back"],
            *("lap finished",) * finished_lap,
        )
        self._score.note(info, steering, left_road, lost or info["put_back"], finished_lap)
        self._before = info
        return frame, reward, lost, truncated, info

    def metrics(self) -> dict[str, float]:
        """See ``Score``; empty before the first decision."""
        return self._score.numbers(self._before) if self._score.steering else {}

    def episode_meta(self) -> dict[str, Any]:
        """The track's name, and how the cameras hang; of a random road also its knobs, and how often it was redrawn."""
        about: dict[str, Any] = {"track": self.track.name, **self.road.given, "camera_mount": self.mount}
        if self.track.road_seed is None:
            return about
        usual = {"road_difficulty": USUAL_DIFFICULTY, "scene_variety": USUAL_VARIETY}
        return {**usual, **about, "redraws": self.track.redraws}

    def road_features(self) -> dict[str, float | str]:
        track, style = self.track, self.track.style
        rise = np.diff(track.line[:, 2], append=track.line[0, 2]) / track.spacing
        return {
            "sharpest bend, m": round(float(1 / np.abs(track.curvature).max()), 1),
            "width of the road, m": round(2 * track.half_width, 2),
            "steepest slope, %": round(float(100 * np.abs(rise).max()), 1),
            "surface": style.surface,
            "edge lines": style.edge_line,
            "centre line": style.centre_line,
            "kerbs": style.kerbs,
            "shoulder": style.shoulder,
        }

    def road_edges(self) -> Array:
        middle, across = self.track.line[:, :2], self.track.half_width * self.track.left
        return np.stack([middle + across, middle - across])

    def advance(self, steering: float, throttle: float) -> None:
        """One step of 0.02 s without a picture, for those who keep the time themselves."""
        self.car.step(steering, throttle)
        self.steps += 1
        self.track_position.follow(self.car.position)
        self.traffic.advance(STEP_S, self.track_position.s, self.track_position.offset)
        self._stuck_s = self._stuck_s + STEP_S if abs(throttle) > 0.1 and self.car.speed < 0.3 else 0.0

    def look(self) -> Frame:
        """The front camera's picture now, uint8 [160, 320, 3]; all cameras are in ``frames`` then."""
        self.cameras.follow(self.car.path)
        self.traffic.show()
        self.frames = self.cameras.look()
        if self.render_mode == "human":
            from nacdrive.envs.udacity_track.window import Window

            self.window = self.window or Window(pace_s=self.repeat * STEP_S)
            self.window.show(self.frames["center"])
        return self.frames["center"]

    def is_lost(self) -> bool:
        """Whether the car cannot go on by itself: far off the road, in the water, overturned or stuck."""
        too_far = abs(self.track_position.offset) > self.track.half_width + TOO_FAR
        drowned = self.car.position[2] < self.track.water_level
        return too_far or drowned or not self.car.upright or self._stuck_s > STUCK_S

    def put_back(self, speed: float = 0.0) -> None:
        """An intervention: set the car on the middle of the road where it is, along the road, at ``speed`` m/s."""
        self.traffic.make_room(self.track_position.s)
        self._place(s=self.track_position.s, speed=speed)
        self._put_back = True
        self.interventions += 1

    def place(
        self, s: float, offset: float = 0.0, heading: float = 0.0, speed: float = 0.0
    ) -> tuple[Frame, dict[str, Any]]:
        """Set the car anywhere (no intervention) and look: the frame and ``info`` there.

        It stands ``s`` metres along the lap (wraps), ``offset`` metres to the right of the middle of the road, turned
        by ``heading`` radians to the right of the road's direction, and goes straight ahead at ``speed`` m/s.
        """
        self._place(s, offset, heading, speed)
        return self.look(), self._info()

    def random_start(self, rng: np.random.Generator, top_speed_mps: float) -> dict[str, float]:
        """Options of ``reset`` for a start from which a driver must recover: beside the middle, askew, at any speed."""
        room = self.track.half_width - ROOM_M
        return {
            "offset": float(rng.uniform(-room, room)),
            "heading": float(rng.uniform(-0.2, 0.2)),
            "speed": float(rng.uniform(2.0, top_speed_mps)),
        }

    def _place(self, s: float, offset: float = 0.0, heading: float = 0.0, speed: float = 0.0) -> None:
        point, along = self.track.at(s)
        point[:2] += offset * np.array((math.sin(along), -math.cos(along)))
        rise = self.track.at(s + 2)[0][2] - self.track.at(s - 2)[0][2]
        self.car.place(point, along - heading, speed, pitch=math.atan(rise / 4) * math.cos(heading))
        self.track_position.find(self.car.position)
        self._stuck_s = 0.0

    @property
    def t_s(self) -> float:
        return self.steps * STEP_S

    def wheels_off(self) -> float:
        """Share of the four wheels that stand beyond the edge of the asphalt."""
        return float(self.track_position.beyond_edge(self.car.wheels()).mean())

    def render(self) -> Frame | None:
        if not self.frames:
            raise UserError("there is nothing to render: call reset() first.")
        return None if self.render_mode == "human" else self.frames["center"]

    def close(self) -> None:
        if self.window is not None:
            self.window.close()
            self.window = None
        self.cameras.close()

    def _furnish(self, start_s: float) -> None:
        """Build the day's scene around the cameras; without anything drawn the one there is stays."""
        road = self.road
        wrong = bool(road.missing_marks or road.patches or road.parked_cars or road.slow_cars)
        if self._furnished is self.track and not self.randomize and not wrong:
            return
        if not self.randomize:
            appearance = Appearance()
        elif self.track.road_seed is None:
            appearance = random_appearance(self.np_random)
        else:
            appearance = varied_day(self.np_random, self.variety)
        if road.sun_elevation is not None:
            appearance = at_elevation(appearance, road.sun_elevation)
        own = np.random.default_rng(int(self.np_random.integers(2**32)) if wrong else 0)
        extras = draw_extras(self.track, self.road, own, start_s)
        self.car.park(extras.cars.places, extras.cars.turns)
        scene, sky = build_scene(self.track, appearance, extras)
        self.cameras.enter(scene, sky, build_hood(appearance))
        self.traffic = Traffic(self.track, extras.slow, appearance)
        self.car.parked += self.traffic.bodies
        for path in self.traffic.paths:
            path.reparent_to(scene)
        self._furnished = self.track

    def _info(self) -> dict[str, Any]:
        wheels_off = self.wheels_off()
        steering, throttle = self._action
        info: dict[str, Any] = {
            "t_s": self.t_s,
            "speed_mps": self.car.speed,
            "s_m": self.track_position.s,
            "station_m": self.track_position.driven,
            "lane_offset_m": self.track_position.offset,
            "road_half_width_m": self.track.half_width,
            "heading_error": self.track_position.heading_error(self.car.heading),
            "curvature": self.track_position.curvature(),
            "off_road": wheels_off > 0,
            "wheels_off": wheels_off,
            "progress": self.track_position.driven / self.track_position.length,
            "laps": max(0, int(self.track_position.driven / self.track_position.length)),
            "steering": steering,
            "throttle": throttle,
            "x_m": float(self.car.position[0]),
            "y_m": float(self.car.position[1]),
            "heading_rad": self.car.heading,
            "events": (),
            "put_back": self._put_back,
            "interventions": self.interventions,
            "hit": bool(self._hit),
        }
        if len(self.frames) > 1:
            info["cameras"] = dict(self.frames)
        return info
