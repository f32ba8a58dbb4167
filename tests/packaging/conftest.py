"""The wheel, built from the source distribution that was built from the tree, and installed where nothing else is."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The paths of the source distribution and of the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return SimpleNamespace(wheel=next(folder.glob("*.whl")), sdist=next(folder.glob("*.tar.gz")))


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory, built):
    """A call ``run(*arguments)`` of the Python of a new environment that has the wheel, from a folder of its own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "-c", str(ROOT / "constraints.txt"), str(built.wheel)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}

    def run(*arguments):
        return subprocess.run(
            [python, *arguments], capture_output=True, text=True, check=False, cwd=folder, env=clean, timeout=120
        )

    return SimpleNamespace(run=run, python=python, folder=folder)
