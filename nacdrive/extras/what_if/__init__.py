"""What if? Edits of what a policy sees, remembers and is made of, and what it decides and how it drives on then."""

from nacdrive.extras.what_if.card import WhatIfCard
from nacdrive.extras.what_if.process import WhatIfSource

__all__ = ["WhatIfCard", "WhatIfSource"]
