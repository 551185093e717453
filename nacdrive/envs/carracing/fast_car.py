"""The car of CarRacing with the same dynamics to the last bit, computed without NumPy's scalars."""

from __future__ import annotations

import math
from typing import Any

from gymnasium.envs.box2d.car_dynamics import ENGINE_POWER, FRICTION_LIMIT, SIZE, WHEEL_MOMENT_OF_INERTIA, Car

GRASS_FRICTION = FRICTION_LIMIT * 0.6
STIFFNESS = 205000 * SIZE * SIZE
BRAKE_FORCE = 15
"""Radians per second."""


class FastCar(Car):
    """``Car`` whose step takes half the time; equal states are tested. Skid marks, which no observation shows, are
    left out.
    """

    @classmethod
    def patch(cls, car: Car) -> None:
        """Turn an official car into a fast one, in place: the environment builds its car itself."""
        if type(car) is Car:
            car.__class__ = cls

    def gas(self, gas: float) -> None:
        """Open the throttle of the rear wheels, 0 .. 1; up at a tenth a frame, down at once."""
        gas = min(max(float(gas), 0.0), 1.0)
        for wheel in self.wheels[2:4]:
            wheel.gas += min(gas - wheel.gas, 0.1)

    def step(self, dt: float) -> None:
        for wheel in self.wheels:
            self._steer(wheel)
            friction_limit = max((FRICTION_LIMIT * tile.road_friction for tile in wheel.tiles), default=0.0)
            friction_limit = max(friction_limit, GRASS_FRICTION)

            side_x, side_y = wheel.GetWorldVector((1, 0))
            ahead_x, ahead_y = -side_y, side_x
            velocity_x, velocity_y = wheel.linearVelocity
            forward = ahead_x * velocity_x + ahead_y * velocity_y
            sideways = side_x * velocity_x + side_y * velocity_y

            omega = wheel.omega
            omega += dt * ENGINE_POWER * wheel.gas / WHEEL_MOMENT_OF_INERTIA / (abs(omega) + 5.0)
            self.fuel_spent += dt * ENGINE_POWER * wheel.gas
            if wheel.brake >= 0.9:
                omega = 0.0
            elif wheel.brake > 0:
                slowing = min(BRAKE_FORCE * wheel.brake, abs(omega))
                omega += -slowing if omega > 0 else slowing if omega < 0 else 0.0
            wheel.phase += omega * dt

            f_force = (-forward + omega * wheel.wheel_rad) * STIFFNESS
            p_force = -sideways * STIFFNESS
            force = math.sqrt(f_force * f_force + p_force * p_force)
            if force > friction_limit:
                f_force = f_force / force * friction_limit
                p_force = p_force / force * friction_limit
            wheel.omega = omega - dt * f_force * wheel.wheel_rad / WHEEL_MOMENT_OF_INERTIA
            wheel.ApplyForceToCenter(
                (p_force * side_x + f_force * ahead_x, p_force * side_y + f_force * ahead_y),
                True,
            )

    @staticmethod
    def _steer(wheel: Any) -> None:
        joint = wheel.joint
        error = wheel.steer - joint.angle
        speed = min(50.0 * abs(error), 3.0)
        joint.motorSpeed = speed if error > 0 else -speed if error < 0 else 0.0
