"""The pipeline of ``bench``, of one engine alone, on a cluster of this machine.

python -m cluster.pipeline_on FOLDER ARGUMENT...
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from pipeline import program

from cluster import sessions


def main(folder: Path, *arguments: str) -> int:
    program.oracle = SimpleNamespace(session=partial(sessions.cluster, folder))
    scratch = folder / "scratch"
    scratch.mkdir()
    return program.work(scratch, program._arguments(["--alone", *arguments]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
