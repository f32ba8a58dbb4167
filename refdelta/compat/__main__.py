"""``python -m refdelta.compat install``: ``import deltalake`` is refdelta's in this whole environment.

    python -m refdelta.compat install      write a file .pth into the folder of packages
    python -m refdelta.compat uninstall    remove it
    python -m refdelta.compat status       say whether it is there

With the file, ``REFDELTA_COMPAT=0`` in the environment of a process leaves it the real deltalake.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

_LINE = (
    "import os, sys; os.environ.get('REFDELTA_COMPAT') == '0' or "
    "__import__('refdelta.compat', fromlist=['install']).install()\n"
)


def main(arguments: list[str]) -> int:
    """Run it. Returns the exit status."""
    place = Path(sysconfig.get_path("purelib")) / "refdelta-compat.pth"
    match arguments:
        case ["install"]:
            place.write_text(_LINE)
            said = f"import deltalake is refdelta's in this environment: {place}"
        case ["uninstall"]:
            place.unlink(missing_ok=True)
            said = "import deltalake is what it was"
        case ["status"]:
            said = f"installed: {place}" if place.exists() else "not installed"
        case _:
            sys.stderr.write((__doc__ or "").strip() + "\n")
            return 2
    sys.stdout.write(said + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
