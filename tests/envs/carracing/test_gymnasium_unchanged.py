"""What nacdrive overrides or computes again of Gymnasium's CarRacing is what it was when that was written."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap

import gymnasium
import pytest
from gymnasium.envs.box2d import car_dynamics, car_racing

DIGESTS = {
    "FrictionDetector._contact": ("cf2f3bc220ab",),
    "CarRacing.__init__": ("55ad5fee3174",),
    "CarRacing._destroy": ("b67e42d19f32",),
    "CarRacing._init_colors": ("ee08e06b13c5",),
    "CarRacing._create_track": (
        "8d325ccf4393",
        "bae7c3624a82",
    ),
    "CarRacing.reset": ("960a75257a8b",),
    "CarRacing.step": ("603d131d64b8",),
    "CarRacing._render": (
        "34f2cd6e8823",
        "3b11e840f3f1",
        "1c0d9376197e",
    ),
    "CarRacing._render_road": ("3024babfcb9c",),
    "CarRacing._render_indicators": ("0730f24505a8",),
    "CarRacing._draw_colored_polygon": ("499185392672",),
    "CarRacing._create_image_array": ("65a82a618431",),
    "Car.__init__": (
        "a6ca226b1169",
        "de391fae48e3",
    ),
    "Car.gas": ("021c4c104552",),
    "Car.brake": ("3f843d8815ae",),
    "Car.steer": ("f6d90c2dd38b",),
    "Car.step": ("8df338553601",),
    "Car.draw": ("7139c345d659",),
    "constants": ("008197653109",),
}
"""Of the code without comments, docstrings and layout, first that of 1.4.0. The others are of 1.3.0 and 1.2.3, which
differ in nothing that we do: how messages and particles are made, and how many digits the score below the picture has.
"""
MIRRORS = "nacdrive/envs/carracing (rules, lazy, fast_renderer) and nacdrive/drivers/racing_line.py"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def code_of(function: object) -> str:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))  # type: ignore[arg-type]
    (body,) = tree.body
    assert isinstance(body, ast.FunctionDef)
    if ast.get_docstring(body) is not None:
        body.body = body.body[1:]
    # Annotations say nothing of what is done.
    body.returns = None
    for argument in (*body.args.args, *body.args.kwonlyargs):
        argument.annotation = None
    return ast.unparse(tree)


def constants() -> str:
    found = {}
    for module in (car_racing, car_dynamics):
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, (int, float, list, tuple)):
                found[f"{module.__name__}.{name}"] = value
    return repr(sorted(found.items()))


@pytest.mark.parametrize("name", DIGESTS)
def test_gymnasium_does_what_it_did(name: str) -> None:
    if name == "constants":
        found = digest(constants())
    else:
        owner, method = name.split(".")
        module = car_dynamics if owner == "Car" else car_racing
        found = digest(code_of(getattr(getattr(module, owner), method)))
    assert found in DIGESTS[name], (
        f"Gymnasium {gymnasium.__version__} has another {name} than the one that nacdrive overrides or computes again: "
        f"compare the two, mend {MIRRORS} where it matters, run tests/envs/carracing and tests/rl, then put {found} "
        "here and raise the bound of gymnasium in pyproject.toml."
    )


def test_a_changed_line_would_be_noticed() -> None:
    def before(x: int) -> int:
        """One."""
        return x + 1

    def after(x: int) -> int:
        return x + 2

    def same(x):  # type: ignore[no-untyped-def]
        # Two.
        return x + 1

    as_one = [code_of(function).split(":", 1)[1] for function in (before, after, same)]
    assert as_one[0] == as_one[2] != as_one[1]
