"""Writes the pages, and the blocks of pages, that come from the code: ``make generate NAME=reference``.

Without a name the generators are listed; ``all`` runs those that ask no other engine.
"""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
PICTURES = ROOT / "docs" / "pictures"
GENERATORS = {
    "reference": ("docs/reference.md and docs/functions.md", [FOLDER / "reference.py"]),
    "map": ("the folders in docs/map.md and their drawing, from the imports", [FOLDER / "code_map.py"]),
    "commit-protocol": (
        "the tables, the diagram and the commits of docs/commit-protocol.md",
        [FOLDER / "core_document.py", FOLDER / "commit_examples.py"],
    ),
    "features": ("spec_notes/features.md, from the registry and tests/features.toml", [FOLDER / "features_table.py"]),
    "claims": ("the table of spec_notes/other_writers.md", [FOLDER / "claims_table.py"]),
    "spec-map": ("how many clauses of the contracts have code and a test", [FOLDER / "spec_map.py"]),
    "how-we-know": ("the sizes in docs/how-we-know.md, from the tests", [FOLDER / "how_we_know.py"]),
    "test-times": ("the times in tests/README.md, of recorded runs (ARGS='CHECK TEST')", [FOLDER / "test_times.py"]),
    "corpus": ("the right outcomes of the cases of the conformance suite, by the judge", [FOLDER / "corpus.py"]),
    "pictures": ("docs/pictures", [PICTURES / "two_writers.py", PICTURES / "timeline.py"]),
    "casts": (
        "docs/guide/casts.md, by asking deltalake (ARGS=--spark: delta-spark)",
        [FOLDER / "casts_page.py"],
    ),
    "needed-rules": ("the table of rules in docs/conformance.md, by running all cases", [FOLDER / "needed_rules.py"]),
}
"""For each name what it writes, and its programs."""
SLOW = {"casts", "needed-rules", "test-times"}
"""Those that ask other engines, take minutes or need arguments: ``all`` leaves them out."""


def main(names: list[str]) -> int:
    """List the generators, or run one or all; further arguments go to its programs."""
    if not names:
        print(*(f"{name:16} {about}" for name, (about, _) in GENERATORS.items()), sep="\n")
        return 0
    name, *arguments = names
    if name != "all" and name not in GENERATORS:
        print(f"there is no generator {name!r}; there are: {', '.join(GENERATORS)}, all", file=sys.stderr)
        return 2
    chosen = [one for one in GENERATORS if one not in SLOW] if name == "all" else [name]
    for program in (program for one in chosen for program in GENERATORS[one][1]):
        if code := subprocess.run([sys.executable, program, *arguments], cwd=ROOT, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
