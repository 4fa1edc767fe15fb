"""Verdicts on the statements of the theory, for a problem of ``bilevel_sym``.

Certified constants (``constants``, ``recheck``), certified smoothness of Phi (``smoothness``), certified bounds of any
expression (``bounds``), all stationary points and their kinds (``stationary_points``, ``classify``), a verdict on each
statement (``run``, ``claims``), the paper's errata (``errata``). And a test kit for a user's solver:
``check_hypergradient`` and its siblings, ``assert_ok``, hypothesis strategies (``strategies``, with the extra
``test``), and a gallery of defects (``gallery``).

>>> from bilevel_sym import verify, zoo
>>> print(verify.run(zoo.get("lphi_witness").problem, claims=["grad-Lipschitz"], variant="printed").results[0].verdict)
VIOLATED
"""

import lazy_loader as _lazy

__distribution__ = "bilevel-sym"  # by this line ``bilevel_sym.system.verifier`` knows that it is ours

# imported when first asked for, as __init__.pyi lists them
__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
