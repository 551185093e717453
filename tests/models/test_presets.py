"""What a name given to ``--model`` makes of a policy that drives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nacdrive.models.config import PolicyConfig
from nacdrive.models.driving import DrivingNetwork
from nacdrive.models.presets import LAYERS, driving_form
from nacdrive.tasks.udacity import UDACITY_NETWORK

CARRACING: dict[str, Any] = {"task": "carracing", "actions": ((0.0, 0.0, 0.0),) * 5, "strides": (3, 2, 2)}
UDACITY: dict[str, Any] = {"task": "udacity", "actions": (), **UDACITY_NETWORK}


def network(model: str, task: dict[str, Any], *, paper: bool = False) -> DrivingNetwork:
    form = driving_form(model, paper=paper)
    more = {"model": form.layer, "options": form.options, "window": form.window, **form.sizes}
    torch.manual_seed(0)
    return DrivingNetwork(PolicyConfig(**{**task, **more})).eval()


@pytest.mark.parametrize(("task", "most"), [(CARRACING, 150_000), (UDACITY, 253_177)])
def test_a_policy_has_no_more_parameters_than_its_roads_need(task: dict[str, Any], most: int) -> None:
    assert sum(p.numel() for p in network("nac-steady", task).parameters()) <= most
    pilotnet = network("dense", UDACITY)
    assert sum(p.numel() for p in pilotnet.parameters()) == 253_177


@pytest.mark.parametrize("model", LAYERS)
def test_a_policy_feels_order_and_age_of_the_frames_before(model: str) -> None:
    net = network(model, CARRACING)
    assert net.config.window > net.config.options.get("topk", 0)
    frames = torch.randint(0, 256, (1, 6, 96, 96, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    t = torch.arange(6.0)[None] * 0.08
    shuffled = frames[:, [3, 0, 4, 2, 1, 5]]
    older = t - torch.tensor([1.0, 0.6, 0.3, 0.2, 0.1, 0.0])
    with torch.inference_mode():
        y = net(frames, t)[0, -1]
        assert (net(shuffled, t)[0, -1] - y).abs().max() > 1e-4
        assert (net(frames, older)[0, -1] - y).abs().max() > 1e-4
        # The clock's zero counts for nothing.
        torch.testing.assert_close(net(frames, t + 1000)[0, -1], y, atol=1e-4, rtol=0)


@pytest.mark.parametrize("model", LAYERS)
def test_the_form_of_the_paper_is_the_registered_layer_as_published(model: str) -> None:
    net = network(model, CARRACING, paper=True)
    assert (net.config.model, net.config.window, net.config.options) == (model, 4, {})
    assert sum(p.numel() for p in net.parameters()) == 425_583  # those of the files in agents/carracing
