"""Notebooks as pages: their cells are run, and each is followed by its output."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]


def run(notebook: Path) -> nbformat.NotebookNode:
    """A notebook with its outputs, run by a fresh Python in an empty folder. Raises ``CellExecutionError``."""
    cells = nbformat.read(notebook, as_version=4)
    path = os.pathsep.join([str(ROOT), str(ROOT / "storage"), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            cells,
            timeout=120,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            extra_arguments=["--IPKernelApp.log_level=ERROR"],  # not the advice to encrypt what stays on this machine
        )
        client.execute(env={**os.environ, "PYTHONPATH": path})
    return cells


def page_of(notebook: Path) -> str:
    """The page of a notebook, in Markdown."""
    parts = []
    for cell in run(notebook).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code":
            parts.append(f"```python\n{cell.source}\n```")
            parts += [shown for output in _joined(cell.outputs) if (shown := _shown(output))]
    name = notebook.name
    parts.append(f"This page is the notebook `docs/notebooks/{name}`, with its output of the build.")
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Print the page of the notebook that is named."""
    print(page_of(Path(sys.argv[1])), end="")
    return 0


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs, those printed one after the other as one."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def _shown(output: nbformat.NotebookNode) -> str:
    """An output in Markdown: a picture or HTML where there is one, else its text."""
    data = output.get("data", {})
    if picture := data.get("image/svg+xml") or data.get("text/html"):
        return f'<div class="output" markdown="0">\n{picture}\n</div>'
    text = output.get("text") or data.get("text/plain") or ""
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


if __name__ == "__main__":
    sys.exit(main())
