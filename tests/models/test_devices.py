"""Where a network may be put."""

from __future__ import annotations

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.models.files import check_device


@pytest.mark.parametrize("is_available", [True, False])
def test_a_gpu_is_taken_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch, is_available: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: is_available)
    assert check_device("cpu") == torch.device("cpu")
    if is_available:
        assert check_device("cuda:1") == torch.device("cuda", 1)
    else:
        with pytest.raises(UserError, match="no CUDA device that this PyTorch can use: give --device cpu"):
            check_device("cuda:1")


@pytest.mark.parametrize("name, what", [("meta", "'meta' is not supported"), ("tpu9:x", "no device 'tpu9:x'")])
def test_other_devices_are_refused_by_name(name: str, what: str) -> None:
    with pytest.raises(UserError, match=what):
        check_device(name)
