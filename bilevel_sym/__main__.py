"""``python -m bilevel_sym``: the command line."""

import sys

from bilevel_sym.cli import main

sys.exit(main())
