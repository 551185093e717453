"""Numbers in every culture's form, pictures, and what is refused."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacdrive.envs.udacity.number_format import NUMBER_FORMATS
from nacdrive.envs.udacity.telemetry import BadTelemetryError, ForeignTelemetryError, answer, number, picture, read
from tests.helpers.udacity_simulators import PICTURE, jpeg

cultures = st.sampled_from(list(NUMBER_FORMATS.values()))


def report(**changed: object) -> dict[str, object]:
    image = base64.b64encode(PICTURE).decode()
    return {"steering_angle": "-12.5000", "throttle": "0.5000", "speed": "10.0000", "image": image, **changed}


@given(culture=cultures, value=st.floats(-1e7, 1e7))
def test_a_number_is_read_as_it_was_meant(culture, value: float) -> None:
    assert number("speed", culture.n4(value)) == pytest.approx(value, abs=5.1e-5)


@given(culture=cultures, steering=st.floats(-2, 2), throttle=st.floats(-2, 2))
def test_an_answer_is_read_as_it_was_meant(culture, steering: float, throttle: float) -> None:
    separator = read(report(steering_angle=culture.n4(steering))).separator
    told = answer(steering, throttle, separator)
    assert culture.parse(told["steering_angle"]) == pytest.approx(min(1, max(-1, steering)), abs=1e-6)
    assert culture.parse(told["throttle"]) == pytest.approx(min(1, max(-1, throttle)), abs=1e-6)


def test_a_point_in_a_comma_culture_would_be_full_lock() -> None:
    # Why answers mirror the separator: this is what a simulator in German makes of drive.py's answer.
    assert NUMBER_FORMATS["de-DE"].parse("0.25") == 25
    with pytest.raises(ValueError, match="no number"):
        NUMBER_FORMATS["fr-FR"].parse("0.25")


def test_units_are_converted_here() -> None:
    found = read(report())
    assert (found.steering, found.throttle, found.speed_mps) == (-0.5, 0.5, pytest.approx(4.4704))
    frame, jpeg = picture(found.image)
    assert frame.shape == (160, 320, 3) and jpeg == PICTURE


@pytest.mark.parametrize("text", ["12.5", "-3", "1e-05", " 0.5 ", "1.2345678"])
def test_other_programs_decimals_are_read_too(text: str) -> None:
    assert number("speed", text) == float(text)


@pytest.mark.parametrize("wrong", ["", "nan", "inf", "1e999", "fast", "1,5", None, [], "9" * 400])
def test_what_is_no_number_is_said_so(wrong: object) -> None:
    with pytest.raises(BadTelemetryError, match="speed"):
        number("speed", wrong)


@pytest.mark.parametrize("changed", [{"cte": "0.1"}, {"speed": 3.0}, {"throttle": float("nan")}, {"ptsx": []}])
def test_another_simulator_is_told(changed: dict[str, object]) -> None:
    with pytest.raises(ForeignTelemetryError):
        read(report(**changed))


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (base64.b64encode(jpeg(640, 320)).decode(), "640 x 320"),
        (base64.b64encode(PICTURE[:-4000]).decode(), "decoded"),
        ("not base64!", "decoded"),
        ("", "decoded"),
        ("A" * 5_000_000, "5.0 MB"),
    ],
)
def test_what_is_no_picture_is_said_so(image: str, words: str) -> None:
    with pytest.raises(BadTelemetryError, match=words):
        picture(image)
