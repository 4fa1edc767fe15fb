"""``python -m bilevel_sym.cli``."""

import sys

from bilevel_sym.cli import main

sys.exit(main())
