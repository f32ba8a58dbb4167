"""``make docs``: the site, ``docs/site``, by MkDocs Material. Neither the build nor the reader needs a network.

The pages and what they link to are copied into a folder, at the places that they have in the project, so that the links
between them hold. Source files that a page links to become pages; the two notebooks are run and become pages, too;
the outcomes that the page to play with shows are computed by the commit core. Pages of the reference that only the
site has show each public name with its docstring; mkdocstrings makes them (``docstrings.py``). The order of the pages
is that of ``docs/README.md``. A link that leads nowhere fails the build.

    python docs/make_site.py                      the whole site
    python docs/make_site.py --transactions 2     outcomes of two transactions only, which takes seconds
    python docs/make_site.py --to FOLDER          instead of docs/site
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from notebooks.pages import page_of
from play import outcomes, suite

from by_path import generator

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PAGES = (
    *("*.md", "docs/**/*.md", "refdelta/core/README.md", "bench/*.md", "findings/*.md", "tests/README.md"),
    "spec_notes/**/*.md",
)
ASSETS = ("LICENSE", "bench/**/*.svg", *(f"docs/**/*.{ending}" for ending in ("svg", "png", "js", "css")))
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )(?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?(\)|$)", re.MULTILINE)
EVIDENCE = (
    *("docs/engines.md", "docs/field.md", "docs/findings/*", "docs/decisions/*", "spec_notes/*", "bench/*", "tests/*"),
    *("CHANGELOG.md", "SECURITY.md", "findings/*"),
)
BOOSTS = {**dict.fromkeys(EVIDENCE, 0.2), "docs/guide/*": 3, "docs/*.md": 2, "docs/reference/*": 2}
"""How much more a page counts in the search than others, by the first pattern: the guide before the evidence."""
FENCE = re.compile(r"^ *(```|~~~)")
reference = generator("reference")
ITEM = re.compile(r"^ {0,3}([-*+]|\d+\.) ")


def main() -> int:
    """Build the site; 1 and the warnings where one was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, default=DOCS / "site", help="the folder of the site")
    parser.add_argument(
        "--transactions", type=int, default=4, choices=(2, 3, 4), help="the most that can be played with"
    )
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pages"
        stage(source)
        played = outcomes.write(source / "docs/play/outcomes", most=arguments.transactions)
        shown = suite.write(source / "docs/play/outcomes")
        warnings = make(source, Path(folder) / "site")
        if warnings:
            print("\n".join(warnings), file=sys.stderr)
            return 1
        shutil.rmtree(arguments.to, ignore_errors=True)
        shutil.copytree(Path(folder) / "site", arguments.to)
    size = sum(path.stat().st_size for path in arguments.to.rglob("*") if path.is_file())
    print(f"{played:,} outcomes of transactions, computed by the core or found in the cache; {shown} cases")
    print(f"{os.path.relpath(arguments.to / 'index.html')}: {size / 1e6:.1f} MB in {time.monotonic() - started:.0f} s")
    return 0


def stage(source: Path) -> None:
    """Copy the pages, and whatever they show or link to, into a folder."""
    for pattern in (*PAGES, *ASSETS):
        for path in ROOT.glob(pattern):
            if "site" not in path.relative_to(ROOT).parts[:-1]:
                copy(path, source)
    for notebook in sorted((DOCS / "notebooks").glob("*.ipynb")):
        page = source / notebook.relative_to(ROOT).with_suffix(".md")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(page_of(notebook))
    add_reference(source)
    folders: set[Path] = set()
    for page in list(source.rglob("*.md")):
        page.write_text(prepared(page.read_text(), page.relative_to(source), source, folders))
    for folder in folders:
        list_modules(folder, source)


def add_reference(source: Path) -> None:
    """Write the pages with docstrings; the sections of the short reference link to them."""
    short = source / "docs/reference.md"
    text = short.read_text()
    for title, sections, page in reference.site_pages():
        path = source / reference_page(title)
        path.parent.mkdir(exist_ok=True)
        path.write_text(page)
        for section in sections:
            # The search finds the page, and not the section that it spells out.
            heading = rf"^(#+ {section})\n"
            link = rf"\1 {{ data-search-exclude }}\n\n[Arguments, types, errors](reference/{path.name})\n"
            text = re.sub(heading, link, text, count=1, flags=re.MULTILINE)
    short.write_text(text)


def reference_page(title: str) -> Path:
    """The place of a page that only the site has."""
    return Path("docs/reference", f"{title.lower().replace(' ', '-')}.md")


def copy(path: Path, source: Path) -> None:
    """Copy a file to the place that it has in the project."""
    target = source / path.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)


def prepared(text: str, page: Path, source: Path, folders: set[Path]) -> str:
    """A page for MkDocs: links to source files lead to pages of them, and lists are as Python-Markdown wants them.
    Folders that the page links to are added to ``folders``.
    """

    def link(found: re.Match[str]) -> str:
        opening, target, anchor, closing = found.groups()
        path = Path(os.path.normpath(page.parent / target))
        if (ROOT / path).is_dir():
            folders.add(path)
            return f"{opening}{os.path.relpath(folder_page(path), page.parent)}{closing}"
        if path.suffix == ".ipynb":
            return f"{opening}{Path(target).with_suffix('.md')}{anchor or ''}{closing}"
        if path.suffix in {".py", ".sh", ".toml", ".qnt"} and (ROOT / path).is_file():
            source_page(path, source)
            return f"{opening}{target}.md{closing}"
        return found[0]

    boost = next((boost for pattern, boost in BOOSTS.items() if page.match(pattern)), 1)
    head = "" if boost == 1 or text.startswith("---") else f"---\nsearch:\n  boost: {boost}\n---\n\n"
    return head + "\n".join(_lists(_diagrams(LINK.sub(link, text)).split("\n")))


def source_page(path: Path, source: Path) -> Path:
    """The page that shows a source file."""
    page = Path(f"{path}.md")
    if not (source / page).exists():
        (source / page).parent.mkdir(parents=True, exist_ok=True)
        language = {".py": "python", ".sh": "bash", ".qnt": "text"}.get(path.suffix, path.suffix[1:])
        body = (ROOT / path).read_text().rstrip()
        head = f"---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# {path.name}\n\n`{path}`\n\n"
        (source / page).write_text(f'{head}````{language} linenums="1"\n{body}\n````\n')
    return page


def folder_page(path: Path) -> Path:
    """The page that lists the modules of a folder; :func:`list_modules` writes it."""
    return path / "modules.md"


def list_modules(path: Path, source: Path) -> None:
    """Write the list of a folder's modules, each with the first line of its docstring, and with a link to its page."""
    lines = [f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n"]
    for module in sorted((ROOT / path).rglob("*.py")):
        name = module.relative_to(ROOT / path)
        first = module.read_text().lstrip().removeprefix('"""').split("\n")[0].removesuffix('"""').strip()
        shown = f"[{name}]({name}.md)" if (source / path / f"{name}.md").exists() else f"`{name}`"
        lines.append(f"- {shown}: {first}")
    page = source / folder_page(path)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n")


def _lists(lines: list[str]) -> Iterator[str]:
    """A list that follows a line of text gets an empty line before it, as GitHub reads it and Python-Markdown does not;
    what belongs to an item is indented by four.
    """
    fenced, before, in_list = False, "", False
    for line in lines:
        if FENCE.match(line):
            fenced = not fenced
        if not fenced:
            if ITEM.match(line):
                if before.strip() and not in_list:
                    yield ""
                in_list = True
            elif line.strip() and not line.startswith(" "):
                in_list = in_list and bool(before.strip())
        if in_list and re.match(r" {2,3}\S", line) and not ITEM.match(line[2:]):
            line = f"    {line.strip()}"  # noqa: PLW2901
        yield line
        before = line


def _diagrams(text: str) -> str:
    """State diagrams as tables: the program that draws them in a browser would have to be fetched."""

    def table(found: re.Match[str]) -> str:
        steps = re.findall(r"^ *(\S+) --> (\S+?)(?:: (.+))?$", found[1], re.MULTILINE)
        start = next(after for before, after, _ in steps if before == "[*]")
        rows = [f"| `{before}` | {why} | `{after}` |" for before, after, why in steps if why]
        ends = ", ".join(f"`{before}`" for before, after, _ in steps if after == "[*]")
        head = f"It begins with `{start}`, and ends with one of {ends}.\n\n| effect | reply | next |\n|---|---|---|\n"
        return head + "\n".join(rows) + "\n"

    return re.sub(r"^```mermaid\nstateDiagram-v2\n(.*?)^```$", table, text, flags=re.MULTILINE | re.DOTALL)


def navigation() -> list[dict]:
    """The order of ``docs/README.md``, a tab for each of its sections."""
    readme = (DOCS / "README.md").read_text()
    tabs: list[dict] = [{"Start": ["README.md", {"Tutorial": "docs/tutorial.md"}]}]
    seen = {"README.md", "docs/tutorial.md"}
    for section in re.split(r"^## ", readme, flags=re.MULTILINE):
        title, _, body = section.partition("\n")
        pages: list[str | dict[str, str]] = []
        for name, target in re.findall(r"\[([^\]]+)\]\(([^)#]+)\)", body):
            path = Path(os.path.normpath(Path("docs") / target))
            path = path.with_suffix(".md") if path.suffix == ".ipynb" else path
            path = path if path.suffix == ".md" else Path(f"{path}.md")
            if str(path) not in seen and not target.startswith("http"):
                seen.add(str(path))
                # A file's name is no title: MkDocs takes the heading of the page then.
                if path == Path("docs/reference.md"):
                    pages.append({"Summary": str(path)})
                    pages += [{title: str(reference_page(title))} for title, _, _ in reference.site_pages()]
                    continue
                pages.append(str(path) if name.endswith(".md") else {name[0].upper() + name[1:]: str(path)})
        if title.startswith("#"):
            tabs[0]["Start"] += pages
        elif pages:
            tabs.append({title: pages})
    tabs[0]["Start"].append({"All pages": "docs/README.md"})
    rest = [path for path in sorted((ROOT / "spec_notes").rglob("*.md")) if str(path.relative_to(ROOT)) not in seen]
    tabs[-1][next(iter(tabs[-1]))] += [str(path.relative_to(ROOT)) for path in rest]
    return tabs


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


def make(source: Path, site: Path) -> list[str]:
    """Run MkDocs. Returns its warnings; a link that leads nowhere is one."""
    settings = (DOCS / "mkdocs.yml").read_text() + yaml.safe_dump({"nav": navigation()}, sort_keys=False)
    file = source.parent / "mkdocs.yml"
    file.write_text(settings)
    handler = _Warnings()
    logging.getLogger("mkdocs").addHandler(handler)
    try:
        build(load_config(str(file), docs_dir=str(source), site_dir=str(site)))
    finally:
        logging.getLogger("mkdocs").removeHandler(handler)
    # The stemmers of other languages, and what only a debugger of the theme would load.
    shutil.rmtree(site / "assets/javascripts/lunr", ignore_errors=True)
    for path in site.rglob("*.map"):
        path.unlink()
    return handler.found


if __name__ == "__main__":
    sys.exit(main())
