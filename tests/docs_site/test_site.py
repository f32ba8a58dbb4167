"""The site: every page is there, links lead somewhere, nothing is fetched from the network, and search finds things."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser

import pytest

from docs_site.conftest import ROOT, run

pytestmark = pytest.mark.tier("test")

LOADING = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
    "use": "href",
}


class Loaded(HTMLParser):
    """The addresses of all that a page loads."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if given.get("rel") not in {"canonical", "next", "prev"} and (address := given.get(LOADING.get(tag, ""))):
            self.found.append(address)


def tracked():
    """The documents of the project."""
    listed = subprocess.run(["git", "ls-files", "docs"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    pages = listed.split() or [str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")]
    return [path for path in pages if path.endswith((".md", ".ipynb"))]


def test_every_document_is_a_page(site):
    pages = [
        *tracked(),
        "SECURITY.md",
        "CHANGELOG.md",
        "tests/README.md",
        "bench/figures.md",
        "spec_notes/concurrency.md",
    ]
    assert len(pages) > 25
    for page in pages:
        there = re.sub(r"\.(md|ipynb)$", ".html", page).replace("README.html", "index.html")
        assert (site / there).is_file(), page
    assert "Two writers, one file, no conflict" in (site / "index.html").read_text()


def test_every_document_is_in_the_navigation(site):
    links = set(re.findall(r'href="([^"#]+)"[^>]*class="md-nav__link"', (site / "docs/tutorial.html").read_text()))
    text = (site / "docs/index.html").read_text()
    for page in tracked():
        there = re.sub(r"\.(md|ipynb)$", ".html", page.removeprefix("docs/")).replace("README.html", "index.html")
        assert there in links | {"tutorial.html"} or f'href="{there}"' in text, page


def test_nothing_is_fetched_from_the_network(site):
    for path in site.rglob("*.html"):
        text = path.read_text()
        away = [address for address in Loaded(text).found if re.match(r"(https?:)?//", address)]
        assert not away, path
        assert 'class="mermaid"' not in text, path  # the theme would fetch the program that draws it
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import", path.read_text()), path


def test_source_files_that_pages_link_to_are_pages(site):
    page = (site / "docs/commit-protocol.html").read_text()
    assert 'href="../refdelta/core/commit/loop.py.html"' in page
    assert "def commit_loop" in re.sub("<[^>]+>", "", (site / "refdelta/core/commit/loop.py.html").read_text())


def test_the_search_index_has_the_documents_and_no_source(site):
    index = json.loads((site / "search/search_index.json").read_text())["docs"]
    found = {one["location"].split("#")[0] for one in index}
    assert {"index.html", "docs/tutorial.html", "docs/guide/spark.html", "docs/notebooks/reading-a-log.html"} <= found
    assert not any(".py." in one for one in found)
    assert any("blind append" in one["text"].lower() for one in index)


def test_links_that_lead_nowhere_fail_the_build(tmp_path):
    page = tmp_path / "pages/docs/isolation-levels.md"
    page.parent.mkdir(parents=True)
    page.write_text("# A page\n\n[no page](../nowhere.md) and [no heading](#no-such-heading)\n")
    program = (
        "import sys; sys.path.append('docs'); from pathlib import Path; import make_site; make_site.navigation = list; "
    )
    program += "print(make_site.make(Path(sys.argv[1]) / 'pages', Path(sys.argv[1]) / 'site'))"
    warnings = run("-c", program, tmp_path)
    assert "nowhere.md" in warnings
    assert "no-such-heading" in warnings


def test_search_works_in_a_page_that_was_opened_as_a_file(site, page):
    page.goto(f"file://{site}/index.html")
    page.keyboard.press("f")
    page.keyboard.type("blind append")
    page.locator(".md-search-result__link").first.wait_for()
    assert "isolation-levels.html" in "".join(
        link.get_attribute("href") for link in page.locator(".md-search-result__link").all()
    )
