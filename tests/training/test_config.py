"""Numbers that no training can be made with are refused before it begins."""

import math

import pytest

from nacdrive.common.errors import UserError
from nacdrive.training.config import FitConfig


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("learning_rate", (0.0, -1e-3, math.nan, math.inf)),
        ("clip", (0.0, -1.0, math.nan, math.inf)),
        ("weight_decay", (-0.1, math.nan, math.inf)),
        ("class_weights", (-0.5, math.nan, math.inf)),
        ("soft", (-0.1, 1.1, math.nan)),
        ("average", (-0.1, 1.1, math.nan)),
        ("valid_share", (-0.1, 1.1, math.nan)),
        ("patience", (-1,)),
        ("seed", (-1, 2**31)),
        ("epochs", (0, -3, 2**40)),
        ("batch", (0,)),
        ("chunk", (0,)),
        ("valid_batch", (0,)),
        ("checkpoint_steps", (0,)),
    ],
)
def test_a_number_that_no_training_can_be_made_with_is_refused(name, values):
    for value in values:
        with pytest.raises(UserError, match=f"--{name.replace('_', '-')} is {value}: it must be"):
            FitConfig(**{name: value})


def test_the_limits_themselves_are_allowed():
    FitConfig(weight_decay=0.0, class_weights=0.0, patience=0, seed=2**31 - 1, soft=1.0, average=0.0, valid_share=0.0)


@pytest.mark.parametrize("name", ["epochs", "batch", "chunk", "valid_batch", "checkpoint_steps", "seed", "patience"])
def test_whole_numbers_begin_at_one_or_nought_and_end_where_generators_do(name):
    least = 0 if name in ("seed", "patience") else 1
    for value in (least, 2**31 - 1):
        assert getattr(FitConfig(**{name: value}), name) == value
    for value in (least - 1, 2**31):
        with pytest.raises(UserError, match=f"it must be at least {least} and at most 2147483647"):
            FitConfig(**{name: value})


@pytest.mark.parametrize(("name", "words"), [("clip", "above 0"), ("weight_decay", "at least 0")])
def test_numbers_without_an_upper_limit_are_finite(name, words):
    assert getattr(FitConfig(**{name: 1e30}), name) == 1e30
    with pytest.raises(UserError, match=f"it must be {words} and a finite number"):
        FitConfig(**{name: -1.0})


def test_shares_end_at_one():
    for name in ("valid_share", "soft", "average"):
        assert getattr(FitConfig(**{name: 1.0}), name) == 1.0
        with pytest.raises(UserError, match="at least 0 and at most 1"):
            FitConfig(**{name: 1.0001})


def test_the_recipe_without_options_is_that_of_the_published_results():
    """What the model cards and the result pages leave out of their commands."""
    assert FitConfig() == FitConfig(
        epochs=30,
        batch=8,
        chunk=16,
        valid_batch=1,
        learning_rate=1e-3,
        optimizer="adamw",
        weight_decay=0.01,
        schedule="cosine",
        patience=8,
        valid_share=0.1,
        average=0.99,
        clip=1.0,
        soft=0.5,
        class_weights=0.5,
        augment=True,
        precision="auto",
        checkpoint_steps=100,
        seed=0,
    )
