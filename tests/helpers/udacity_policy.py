"""The paper's Udacity network, untrained."""

import torch

from nacdrive.models import Policy, PolicyConfig

UDACITY = {
    "repeat": 1,
    "gap_s": 0.07,
    "height": 160,
    "width": 320,
    "crop": (60, 135),
    "resize": (66, 200),
    "yuv": True,
    "activation": "elu",
    "channels": (24, 36, 48, 64, 64),
    "kernels": (5, 5, 5, 3, 3),
    "strides": (2, 2, 2, 1, 1),
    "dropout": 0.5,
    "d_model": 100,
    "num_heads": 20,
    "dense": 64,
}


def udacity_policy(model="nac-steady", window=3):
    torch.manual_seed(0)
    return Policy.new(PolicyConfig("udacity", model, (), window=window, **UDACITY))
