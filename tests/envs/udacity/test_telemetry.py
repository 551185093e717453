"""Numbers in every culture's form, pictures, and what is refused."""

from __future__ import annotations

import base64
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from nacdrive.envs.udacity.telemetry import BadTelemetryError, ForeignTelemetryError, answer, number, picture, read
from nacdrive.extras.simulator.number_format import NUMBER_FORMATS
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


@pytest.mark.parametrize("wrong", ["", "nan", "inf", "1e999", "1e300", "fast", "1,5", None, [], "9" * 400])
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
        (base64.b64encode(PICTURE[: len(PICTURE) // 2]).decode(), "decoded"),
        ("not base64!", "decoded"),
        ("", "decoded"),
        ("A" * 5_000_000, "5.0 MB"),
    ],
)
def test_what_is_no_picture_is_said_so(image: str, words: str) -> None:
    with pytest.raises(BadTelemetryError, match=words):
        picture(image)


def encoded(kind: str, **options: object) -> str:
    buffer = BytesIO()
    Image.fromarray(np.zeros((160, 320, 3), np.uint8)).save(buffer, kind, **options)
    return base64.b64encode(buffer.getvalue()).decode()


def test_a_png_is_a_picture_and_a_progressive_jpeg_or_another_kind_is_none() -> None:
    frame, data = picture(encoded("PNG"))
    assert frame.shape == (160, 320, 3) and data.startswith(b"\x89PNG")
    with pytest.raises(BadTelemetryError, match="progressive"):
        picture(encoded("JPEG", progressive=True))
    with pytest.raises(BadTelemetryError, match="decoded"):
        picture(encoded("BMP"))
    # The width alone is not enough, nor the height.
    for width, height in ((320, 161), (321, 160)):
        with pytest.raises(BadTelemetryError, match=f"is {width} x {height} and not 320 x 160"):
            picture(base64.b64encode(jpeg(width, height)).decode())


def test_a_picture_of_four_mebibytes_is_looked_at_and_a_longer_one_is_not() -> None:
    with pytest.raises(BadTelemetryError, match="decoded"):
        picture("A" * (4 << 20))
    with pytest.raises(BadTelemetryError, match=r"4\.2 MB"):
        picture("A" * ((4 << 20) + 1))


@pytest.mark.parametrize(("data", "said"), [([], "no object but list"), (None, "no object but NoneType"), ("", "str")])
def test_what_is_no_object_is_said_so(data: object, said: str) -> None:
    with pytest.raises(BadTelemetryError, match=said):
        read(data)


@pytest.mark.parametrize("image", [None, 3, b"abc"])
def test_a_report_without_a_picture_is_said_so(image: object) -> None:
    with pytest.raises(BadTelemetryError, match="no camera image"):
        read(report(image=image))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cte": "1"}, "Term 2, PID"),
        ({"ptsx": "1"}, "Term 2, MPC"),
        ({"sensor_fusion": "1"}, "Term 3"),
        ({"steering_angle": 1}, "numbers where the simulator of Term 1 sends strings"),
        ({"speed": 1.5}, "numbers where the simulator of Term 1 sends strings"),
    ],
)
def test_each_foreign_simulator_is_told_by_its_name(changed: dict[str, object], said: str) -> None:
    with pytest.raises(ForeignTelemetryError, match=said):
        read(report(**changed))


def test_a_number_longer_than_a_doubles_digits_is_none_of_the_simulators() -> None:
    assert number("speed", "1" * 27 + ".0000") == pytest.approx(float("1" * 27))
    # Of 33 characters: read as a plain decimal, if it is one.
    assert number("speed", "1" * 28 + ".0000") == pytest.approx(float("1" * 28))
    with pytest.raises(BadTelemetryError, match="no number"):
        number("speed", "1" * 28 + ",0000")
    assert number("speed", "1" * 27 + ",0000") == pytest.approx(float("1" * 27))


@pytest.mark.parametrize("text", ["-1,5000", "1,5000-", "\u22121,5000", "1,5000\u2212"])
def test_a_sign_stands_before_or_behind(text: str) -> None:
    assert number("speed", text) == -1.5


def test_what_is_no_number_is_quoted_cut_short() -> None:
    with pytest.raises(BadTelemetryError, match=f"its speed is no number: '{'x' * 32}'$"):
        number("speed", "x" * 40)


def test_an_answer_has_six_decimals_within_the_range() -> None:
    assert answer(-1.5, 2.0, ",") == {"steering_angle": "-1,000000", "throttle": "1,000000"}
    assert answer(0.12345678, -0.5, ".") == {"steering_angle": "0.123457", "throttle": "-0.500000"}
    # A plain decimal tells no separator: a point is answered.
    assert read(report(steering_angle="12.5")).separator == "."
    assert read(report(steering_angle="-12,5000")).separator == ","


def test_a_jpeg_of_many_scans_is_refused_though_it_is_not_called_progressive() -> None:
    # Three scans of one component each, as a baseline file may have; then as many as fit.
    plain = PICTURE
    first = plain.index(b"\xff\xda")
    many = plain[:first] + plain[first:-2] * 9 + plain[-2:]
    with pytest.raises(BadTelemetryError, match="progressive"):
        picture(base64.b64encode(many).decode())
    assert picture(base64.b64encode(plain).decode())[1] == plain


def test_half_a_character_separates_no_decimals() -> None:
    with pytest.raises(BadTelemetryError, match="steering"):
        read(report(steering_angle="0\ud8000000"))
