"""Escaping saddle points in bilevel optimization: labels, constants, schedules, experiments."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, submodules={"constants", "experiments", "paper", "schedules"})
