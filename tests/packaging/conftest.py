"""The wheels, each built from its source distribution, which was built from the tree, and installed apart from it."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


def distribution(tree, folder):
    """Build the distributions of a project file: the paths of the source distribution and of the wheel."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(tree)]
    release = {**os.environ, "REFDELTA_RELEASE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=release)
    assert done.returncode == 0, done.stdout + done.stderr
    return SimpleNamespace(wheel=next(folder.glob("*.whl")), sdist=next(folder.glob("*.tar.gz")))


@pytest.fixture(scope="session")
def built_core(tmp_path_factory):
    """The distributions of refdelta-core."""
    return distribution(ROOT / "refdelta" / "core", tmp_path_factory.mktemp("dist-core"))


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The distributions of refdelta."""
    return distribution(ROOT, tmp_path_factory.mktemp("dist"))


def environment(folder, *wanted):
    """A new environment for which pip is given these arguments, and a call ``run(*arguments)`` of its Python."""
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "-c", str(ROOT / "constraints.txt"), *map(str, wanted)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}

    def run(*arguments):
        return subprocess.run(
            [python, *arguments], capture_output=True, text=True, check=False, cwd=folder, env=clean, timeout=120
        )

    return SimpleNamespace(run=run, python=python, folder=folder)


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory, built, built_core):
    """An environment with both wheels, from a folder of its own."""
    return environment(tmp_path_factory.mktemp("elsewhere"), built.wheel, built_core.wheel)


@pytest.fixture(scope="session")
def editable(tmp_path_factory):
    """An environment with an editable install of the tree."""
    return environment(tmp_path_factory.mktemp("editable"), "-e", ROOT)


@pytest.fixture(scope="session")
def core_alone(tmp_path_factory, built_core):
    """An environment with the wheel of the core."""
    return environment(tmp_path_factory.mktemp("core-alone"), built_core.wheel)


@pytest.fixture(scope="session")
def from_the_tree(tmp_path_factory):
    """An environment in which the tree is installed by its path."""
    return environment(tmp_path_factory.mktemp("from-the-tree"), ROOT)
