"""The site, built once for a worker, and a browser that opens its pages as files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tiers
from docs_site.histories import Choice, outcomes

ROOT = Path(__file__).resolve().parents[2]
WHOLE = ("WriteSerializable", "vectors")
"""The table that the site of the tests has for more than two transactions. The others are for two, to save time."""


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in a hook of its own
def pytest_collection_modifyitems(config, items):
    """Give the tests of the site to one worker, which builds it."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if "site" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group("site"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Give all tests that want a browser one place, so that the summary says in one line that there is none."""
    report = yield
    if report.skipped and "browser" in item.fixturenames and isinstance(report.longrepr, tuple):
        report.longrepr = (__file__, 1, report.longrepr[2])
    return report


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the site."""
    folder = tmp_path_factory.mktemp("site") / "site"
    run(ROOT / "docs/make_site.py", "--to", folder, "--transactions", "2")
    write = "import sys; sys.path.append('docs'); from pathlib import Path; from play import outcomes; "
    write += f"outcomes.write(Path(sys.argv[1]), most={most()}, only=[{WHOLE!r}])"
    run("-c", write, folder / "docs/play/outcomes")
    return folder


def most():
    """The most transactions of a history: four at night, since their outcomes take ten seconds."""
    return 3 if tiers.chosen() == tiers.TEST else 4


def run(*arguments):
    """Run Python at the root of the project."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "storage", ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=500, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def browser():
    """Chromium. Without one the tests are skipped; the one that ``REFDELTA_BROWSER`` names must start.

    It ends with the module: as long as it runs, this thread has an event loop, which other tests must not meet.
    """
    path = os.environ.get("REFDELTA_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no Chromium: `apt-get install chromium` on Debian, or name one by REFDELTA_BROWSER")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser):
    """A tab. Errors of scripts, and requests that leave the disk, fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    wrong = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda request: request.url.startswith(("file:", "data:")) or wrong.append(request.url))
    yield tab
    context.close()
    assert wrong == []


PRESETS = {one["id"]: Choice.of(one["state"]) for one in outcomes.presets()}
