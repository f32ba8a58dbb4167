"""``python -m refdelta`` is the command ``refdelta``."""

import sys

from refdelta.cli import main

sys.exit(main())
