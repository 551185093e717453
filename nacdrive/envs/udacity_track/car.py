"""The simulator's car on Bullet: its mass, torques, caps and helpers, in steps of 0.02 s.

Numbers are those of the Udacity simulator's ``Car.prefab`` and ``CarController.cs`` as far as they are known; the
damping of motion (0.1, Unity's usual car) and the springs are ours. Its traction control is what it does while no wheel
slips: full torque takes a second from rest.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from panda3d import bullet
from panda3d.core import NodePath, Point3, TransformState, Vec3

from nacdrive.common.units import MPH_PER_MPS
from nacdrive.envs.udacity_track.blocks import CAR as PARKED
from nacdrive.envs.udacity_track.meshes import Quads, geometry
from nacdrive.envs.udacity_track.options import USUAL_TOP_SPEED_MPH
from nacdrive.envs.udacity_track.road import surface
from nacdrive.envs.udacity_track.terrain import terrain_of
from nacdrive.envs.udacity_track.track import Array, Track

STEP_S = 0.02
MASS = 1000.0
FULL_LOCK = 25.0
"""Degrees that the front wheels turn at steering 1."""
TORQUE = 500.0
"""Nm at each of the four wheels."""
TORQUE_GROWS = 0.02
"""Share of it that each step from rest adds: ``AdjustTorque`` is called for four wheels and adds 10 of 2000 Nm each."""
BRAKE_TORQUE = 20_000.0
REVERSE_TORQUE = 150.0
"""Nm at each of the four wheels."""
TOP_SPEED = USUAL_TOP_SPEED_MPH / MPH_PER_MPS
SLOW = 5.0 / MPH_PER_MPS
"""Speed below which the brake pedal reverses."""
DOWNFORCE = 100.0
"""Newton per metre per second."""
STEER_HELPER = 0.774
"""Share of the car's turning by which its velocity turns along."""
WHEELBASE, TRACK_WIDTH = 2.87, 2.0
FRONT_RADIUS, REAR_RADIUS = 0.335, 0.37
"""Metres, of the wheels."""
HANG = 0.05
"""Metres by which the wheels' middles hang below the car's origin, springs relaxed, if their radius were none."""
RIDE_HEIGHT = 0.42
"""Metres from the ground to the car's origin, at rest on its springs."""
ABOVE_GROUND = np.array((0.0, 0.0, RIDE_HEIGHT))
FRICTION = 1.5
BRAKE_GRIP = 1.0
"""Largest braking force of a wheel over its load."""
WHEELS = [(x * TRACK_WIDTH / 2, y * WHEELBASE / 2) for y in (1, -1) for x in (-1, 1)]
"""Right and forward of the car's middle, metres: front left, front right, rear left, rear right."""


class Car:
    """One car in one Bullet world."""

    def __init__(self, track: Track, top_speed_mps: float = TOP_SPEED) -> None:
        self.top_speed_mps = top_speed_mps
        self.ground = bullet.BulletRigidBodyNode("ground")
        self.ground.add_shape(ground(track))
        self.ground.set_friction(0.8)
        self.path = NodePath(bullet.BulletRigidBodyNode("car"))
        self.body: bullet.BulletRigidBodyNode = self.path.node()
        self.body.set_mass(MASS)
        # The box hangs above the origin, so that the centre of mass is low and the car does not tip over.
        self.body.add_shape(bullet.BulletBoxShape(Vec3(0.85, 2.0, 0.25)), TransformState.make_pos(Point3(0, 0, 0.45)))
        self.body.set_inertia(Vec3(1600, 500, 1900))
        self.body.set_linear_damping(0.1)
        self.body.set_angular_damping(0.05)
        self.body.set_deactivation_enabled(False)
        self.parked: list[bullet.BulletRigidBodyNode] = []
        self.place(np.zeros(3), 0.0)

    def place(self, point: Array, heading: float, speed: float = 0.0, pitch: float = 0.0) -> None:
        """Put the car on the ground at ``point`` [3]; radians counter-clockwise from east, m/s, radians uphill."""
        # A fresh world: nothing of what was driven before stays in Bullet's memory.
        self.world = bullet.BulletWorld()
        self.world.set_gravity(Vec3(0, 0, -9.81))
        self.world.attach(self.ground)
        for node in self.parked:
            self.world.attach(node)
        self.path.set_pos(*(point + ABOVE_GROUND))
        self.path.set_hpr(math.degrees(heading) - 90, math.degrees(pitch), 0)
        self.body.clear_forces()
        self.body.set_linear_velocity(self.forward * speed)
        self.body.set_angular_velocity(Vec3(0))
        self.world.attach(self.body)
        self.vehicle = bullet.BulletVehicle(self.world, self.body)
        self.vehicle.set_coordinate_system(bullet.ZUp)
        for x, y in WHEELS:
            self._add_wheel(x, y)
        self.world.attach(self.vehicle)
        self.brake_torque = 0.0
        # Who is set down in motion has been driving.
        self.torque_share = 1.0 if speed else 0.0
        self._heading = self.path.get_h()

    def _add_wheel(self, x: float, y: float) -> None:
        wheel = self.vehicle.create_wheel()
        radius = FRONT_RADIUS if y > 0 else REAR_RADIUS
        # Higher by what the wheel is larger: the car stands level.
        wheel.set_chassis_connection_point_cs(Point3(x, y, radius - HANG))
        wheel.set_wheel_direction_cs(Vec3(0, 0, -1))
        wheel.set_wheel_axle_cs(Vec3(1, 0, 0))
        wheel.set_wheel_radius(radius)
        wheel.set_max_suspension_travel_cm(25)
        wheel.set_suspension_stiffness(80.0)
        wheel.set_wheels_damping_relaxation(6.0)
        wheel.set_wheels_damping_compression(5.0)
        wheel.set_friction_slip(FRICTION)
        wheel.set_roll_influence(0.05)
        wheel.set_front_wheel(y > 0)

    def park(self, places: Array, turns: Array) -> None:
        """Other cars stand at ``places`` [n, 3], along ``turns`` [n] radians, from the next ``place`` on."""
        self.parked = []
        for place, turn in zip(places, turns, strict=True):
            node = bullet.BulletRigidBodyNode("parked")
            node.add_shape(bullet.BulletBoxShape(Vec3(*PARKED) / 2))
            path = NodePath(node)
            path.set_pos(*place[:2], place[2] + PARKED[2] / 2)
            path.set_h(math.degrees(turn) - 90)
            self.parked.append(node)

    def touched(self) -> list[bullet.BulletRigidBodyNode]:
        """Those of ``parked`` that it touches."""
        contacts = self.world.contact_test(self.body).get_contacts() if self.parked else ()
        nodes = [node for contact in contacts for node in (contact.get_node0(), contact.get_node1())]
        return [node for node in nodes if node in self.parked]

    @property
    def forward(self) -> Vec3:
        """Unit vector to the front."""
        return self.path.get_quat().get_forward()

    @property
    def up(self) -> Vec3:
        """Unit vector through the roof."""
        return self.path.get_quat().get_up()

    @property
    def position(self) -> Array:
        """East, north and up of the car's middle on the ground, metres."""
        return np.asarray(np.array(self.path.get_pos()) - ABOVE_GROUND)

    @property
    def heading(self) -> float:
        """Radians counter-clockwise from east."""
        forward = self.forward
        return math.atan2(forward.y, forward.x)

    @property
    def speed(self) -> float:
        """Metres per second over the ground, never negative."""
        velocity = self.body.get_linear_velocity()
        # Bullet's velocity at rest still holds one step of gravity, upright on the ground.
        return float((velocity - self.up * self.up.dot(velocity)).length())

    @property
    def upright(self) -> bool:
        """False when it lies on its side or its roof."""
        return bool(self.up.z > 0.3)

    def wheels(self) -> Array:
        """East and north of the four wheels, [4, 2] metres."""
        turn, (east, north, _) = self.heading, self.position
        forward = np.array((math.cos(turn), math.sin(turn)))
        right = np.array((math.sin(turn), -math.cos(turn)))
        return np.array([(east, north) + x * right + y * forward for x, y in WHEELS])

    def step(self, steering: float, throttle: float) -> None:
        """0.02 s with ``steering`` -1 .. 1 (right is positive) and ``throttle`` -1 .. 1 (below 0: brake, reverse)."""
        steering, throttle = max(-1.0, min(1.0, steering)), max(-1.0, min(1.0, throttle))
        for wheel in (0, 1):
            self.vehicle.set_steering_value(-FULL_LOCK * steering, wheel)
        self._help_steering()
        self._drive(max(0.0, throttle), max(0.0, -throttle))
        velocity = self.body.get_linear_velocity()
        if velocity.length() > self.top_speed_mps:
            self.body.set_linear_velocity(velocity * (self.top_speed_mps / velocity.length()))
        self.body.apply_central_force(-self.up * DOWNFORCE * self.speed)
        # No sub-steps of Bullet's own: exactly one step, whatever the rounding of its clock.
        self.world.do_physics(STEP_S, 0)

    def _drive(self, accelerator: float, pedal: float) -> None:
        velocity = self.body.get_linear_velocity()
        ahead = velocity.length() > 0 and self.forward.dot(velocity) > math.cos(math.radians(50)) * velocity.length()
        self.torque_share = min(1.0, self.torque_share + TORQUE_GROWS)
        torque = accelerator * TORQUE * self.torque_share
        if self.speed > SLOW and ahead:
            self.brake_torque = BRAKE_TORQUE * pedal
        elif pedal > 0:
            self.brake_torque = 0.0
            torque = -REVERSE_TORQUE * pedal
        # As in the simulator, nothing lets go of the brakes below 5 mph but the pedal itself.
        for number, wheel in enumerate(self.vehicle.get_wheels()):
            radius = wheel.get_wheel_radius()
            self.vehicle.apply_engine_force(0.0 if self.brake_torque else torque / radius, number)
            # Bullet's brake is an impulse per step, and in a straight line it knows no limit of the tyres.
            force = min(self.brake_torque / radius, BRAKE_GRIP * wheel.get_wheels_suspension_force())
            self.vehicle.set_brake(max(0.0, force) * STEP_S, number)

    def _help_steering(self) -> None:
        turned = (self.path.get_h() - self._heading + 180) % 360 - 180
        self._heading = self.path.get_h()
        if abs(turned) < 10 and all(wheel.get_raycast_info().is_in_contact() for wheel in self.vehicle.get_wheels()):
            angle = math.radians(turned * STEER_HELPER)
            v = self.body.get_linear_velocity()
            cos, sin = math.cos(angle), math.sin(angle)
            self.body.set_linear_velocity(Vec3(cos * v.x - sin * v.y, sin * v.x + cos * v.y, v.z))


@lru_cache(maxsize=4)
def ground(track: Track) -> bullet.BulletTriangleMeshShape:
    """The road and the land as one shape that does not move, for all cars on it."""
    corners = terrain_of(track).corners()
    flat = Quads(corners, np.zeros_like(corners), np.zeros((len(corners), 4, 2)))
    mesh = bullet.BulletTriangleMesh()
    for quads in (surface(track), flat):
        mesh.add_geom(geometry(quads))
    return bullet.BulletTriangleMeshShape(mesh, dynamic=False)
