"""``python -m pipeline``."""

import sys

from pipeline.program import main

if __name__ == "__main__":
    sys.exit(main())
