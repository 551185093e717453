"""What CarRacing's tyres hold, by Gymnasium's numbers; lengths in the simulator's units, times in seconds."""

from gymnasium.envs.box2d import car_dynamics as dynamics
from gymnasium.envs.box2d import car_racing as official

WHEELBASE = (dynamics.WHEELPOS[0][1] - dynamics.WHEELPOS[2][1]) * dynamics.SIZE
WHEEL_RADIUS = dynamics.WHEEL_R * dynamics.SIZE
FULL_LOCK = 0.4
"""Radians, the limit of the joints of the front wheels: steering is given in radians too."""
MASS = 7.302
"""Of hull and wheels; a test asks Box2D."""
WHEEL_MASS = dynamics.WHEEL_MOMENT_OF_INERTIA / WHEEL_RADIUS**2
"""What a turning wheel adds to the mass that is to be driven: of all four, three times the car's own."""
FRICTION = 4 * dynamics.FRICTION_LIMIT / MASS
"""Acceleration sideways, and deceleration, at which all wheels use all of the road's friction."""
DRIVE = 2 * dynamics.FRICTION_LIMIT / (MASS + 2 * WHEEL_MASS)
"""Acceleration at which the driven wheels do; they turn the front wheels too."""
GAS_AT_LIMIT = (dynamics.FRICTION_LIMIT * WHEEL_RADIUS + dynamics.WHEEL_MOMENT_OF_INERTIA * DRIVE / WHEEL_RADIUS) / (
    dynamics.ENGINE_POWER
)
"""Gas for that, per radian a second that the wheel turns, and ``GAS_FROM`` more; more of it makes the wheel slip."""
GAS_FROM = 5.0
BRAKE_AT_LIMIT = (
    dynamics.FRICTION_LIMIT * WHEEL_RADIUS / dynamics.WHEEL_MOMENT_OF_INERTIA + FRICTION / WHEEL_RADIUS
) / (15 * official.FPS)
"""Brake for a deceleration of ``FRICTION``; more makes the wheels slip."""
