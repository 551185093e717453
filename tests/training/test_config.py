"""Numbers that no training can be made with are refused before it begins."""

import math

import pytest

from nacdrive.common.errors import UserError
from nacdrive.training.config import FitConfig


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("learning_rate", (0.0, -1e-3, math.nan, math.inf)),
        ("weight_decay", (-0.1, math.nan, math.inf)),
        ("soft", (-0.1, 1.1, math.nan)),
        ("patience", (-1, 2**31)),
        ("epochs", (0, -3, 2**40)),
    ],
)
def test_a_number_that_no_training_can_be_made_with_is_refused(name, values):
    for value in values:
        with pytest.raises(UserError, match=f"--{name.replace('_', '-')} is .*: give "):
            FitConfig(**{name: value})


def test_the_limits_themselves_are_allowed():
    FitConfig(weight_decay=0.0, class_weights=0.0, patience=0, seed=2**31 - 1, soft=1.0, average=0.0, valid_share=0.0)


def test_the_recipe_without_options_is_what_commands_leave_out():
    """Those of the model cards and the result pages."""
    assert FitConfig() == FitConfig(
        epochs=30,
        batch_size=8,
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
        soft=1.0,
        class_weights=None,
        augment=True,
        precision="auto",
        checkpoint_steps=100,
        seed=0,
    )
