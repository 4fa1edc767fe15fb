"""``python -m bilevel_sym``: the command line."""

import sys
from pathlib import Path

# Python puts the current folder first, and a ``verify.py`` in it would be taken for ours: behind what is installed it
# can still be imported by those who ask for it
if Path(sys.path[0]).resolve() != Path(__file__).resolve().parent.parent:
    sys.path.append(sys.path.pop(0))

from bilevel_sym.cli import main

sys.exit(main())
