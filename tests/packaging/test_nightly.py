"""The nightly run: each part's end is on the page, and a part that hangs does not keep the others from running."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import searches
from by_path import loaded

nightly = loaded(Path(__file__).parents[2] / ".ci" / "nightly.py")

ENDS = {
    "passes": ("import os; print('seed', os.environ['REFDELTA_SEED'], '<b>')", 100, "ok"),
    "fails": ("import sys; sys.exit('the reason')", 100, "failed"),
    "hangs": ("import threading; print('begun', flush=True); threading.Event().wait()", 3, "ended after 3 s"),
}


@pytest.mark.tier("test")
def test_the_page_has_the_verdict_and_the_output_of_each_part(tmp_path):
    results = []
    for name, (program, limit, verdict) in ENDS.items():
        part = nightly.Part(name, f"what {name}", (sys.executable, "-c", program), limit)
        results.append(nightly.run(part, 7, tmp_path))
        assert results[-1].verdict == verdict
    page = nightly.page(results, "abc", 7, "today")
    assert "2 of 3 parts failed" in page
    assert "seed 7 &lt;b&gt;" in page
    assert "the reason" in page
    assert all(f"<td>{name}<td" in page for name in ENDS)
    assert (tmp_path / "fails.log").read_text() == "the reason\n"


def test_searches_at_night_have_the_seed_of_the_commit():
    for part in nightly.parts(41):
        assert "{" not in " ".join(part.command)
    assert searches.SEARCHES["histories"].at_night(41) == ["41-60"]
    assert searches.SEARCHES["kills"].at_night(41) == ["300", "41"]
    assert searches.SEARCHES["kills-cluster"].at_night(41) is None


def test_a_search_gets_its_arguments(tmp_path, capfd):
    show = "import os, sys; print(sys.argv[1:], os.environ.get('ASKED'))"
    plain = searches.Search("", ("-c", show))
    assert plain.run(["300", "7"]) == 0
    assert searches.Search("", ("-c", show), variable="ASKED").run(["3-7"]) == 0
    assert capfd.readouterr().out.split(os.linesep)[:2] == ["['300', '7'] None", "[] 3-7"]
    assert searches.main(["no-such-search"]) == 2
    assert "there is no search 'no-such-search'" in capfd.readouterr().err
