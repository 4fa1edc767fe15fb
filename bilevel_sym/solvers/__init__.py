"""Solvers: the paper's three algorithms and their baselines, one trajectory or thousands at once."""

import lazy_loader as _lazy

# imported when first asked for, as __init__.pyi lists them: algorithms have names (``named``) before they are loaded
__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
