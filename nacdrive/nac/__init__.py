"""The Neuronal Attention Circuit: attention whose logits are the solution of an ODE (arXiv 2512.10282).

    from nacdrive.nac import NAC, Steady
    layer = NAC(64, 16, mode=Steady())
    y = layer(x, t=t, is_causal=True)                    # [B, T, 64] -> [B, T, 64]
    state = layer.init_state(batch_size=1, window=32)
    y, state = layer.step(x[:, 0], t[:, 0], state)       # live

Needs nothing but torch and numpy.
"""

from nacdrive.nac.dynamics import Euler, Exact, Steady
from nacdrive.nac.key import KeyState, NACKey
from nacdrive.nac.layer import NAC
from nacdrive.nac.streaming import State
from nacdrive.nac.variants import ABLATIONS, PRESETS, VARIANTS, variant
from nacdrive.nac.wiring import Wiring, auto_ncp, from_ncps, full_wiring, layered_wiring, ncp, random_wiring

__all__ = [
    "ABLATIONS",
    "NAC",
    "PRESETS",
    "VARIANTS",
    "Euler",
    "Exact",
    "KeyState",
    "NACKey",
    "State",
    "Steady",
    "Wiring",
    "auto_ncp",
    "from_ncps",
    "full_wiring",
    "layered_wiring",
    "ncp",
    "random_wiring",
    "variant",
]
