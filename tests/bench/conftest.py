"""The programs of ``bench`` are beside the package, not in it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "bench"))
