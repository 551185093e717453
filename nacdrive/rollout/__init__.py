"""The closed loop: observation, policy, action, Tick; recording, evaluation and DAgger."""

import sys
from types import ModuleType
from typing import Any

from nacdrive.common.optional import named_extras


class _Room(ModuleType):
    """A module of the name of a public function: ``nacdrive.rollout(...)``."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        with named_extras():
            from nacdrive.rollout.loading import rollout

        return rollout(*arguments, **options)


sys.modules[__name__].__class__ = _Room
