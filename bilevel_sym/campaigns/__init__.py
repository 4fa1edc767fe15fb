"""Campaigns: many problems, algorithms, parameters and seeds, stated once, run anywhere, and nothing lost.

>>> import tempfile
>>> plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=["descent"], seeds=2, steps=10)
>>> folder = tempfile.mkdtemp()
>>> print(plan.run(folder, workers=0))  # doctest: +ELLIPSIS
2 of 2 tasks are done...
>>> plan.table(folder).column("seed").to_pylist()
[0, 1]
"""

import lazy_loader as _lazy

# imported when first asked for, as __init__.pyi lists them: help on the command line needs none
__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
