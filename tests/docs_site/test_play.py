"""The page to play with, in a browser that opened it as a file."""

from __future__ import annotations

import random
from itertools import product

import pytest

from docs_site.conftest import PRESETS, WHOLE, most
from docs_site.histories import Choice, live, orders, outcomes, play, shown
from refdelta.conformance import cases
from refdelta.conformance.expected import Expectation

pytestmark = pytest.mark.tier("test")

FOLLOW = """async addresses => {
    const found = [];
    for (const one of addresses) found.push(await refdeltaFollow(one));
    return found;
}"""


@pytest.fixture
def opened(page, site):
    """A call that opens the page with a choice, and returns what the page then has."""

    def go(address=""):
        page.goto("about:blank")
        page.goto(f"file://{site}/docs/play/index.html#{address}")
        page.wait_for_selector("#play[aria-busy=false]")
        return page.evaluate("refdeltaPlayed")

    return go


def test_every_preset_can_be_shown_and_is_what_the_core_decides(opened, page):
    opened()
    for name, choice in PRESETS.items():
        assert len(choice.operations) == 2 or (choice.level, choice.table) == WHOLE, name
        if len(choice.operations) > most():
            continue
        page.select_option("#play-preset", name)
        page.wait_for_function("state => refdeltaPlayed.state === state", arg=str(choice))
        played = page.evaluate("refdeltaPlayed")
        expected = play(outcomes.PlayedCore(choice.level, outcomes.LAYOUTS[choice.table]), choice)
        assert [shown(result) for result in played["results"]] == expected.results, name
        assert live(played["versions"][-1]) == expected.files, name
        kinds = [card.get_attribute("data-kind") for card in page.locator("#play .play-result").all()]
        assert kinds == [result["kind"] for result in expected.results], name
        assert page.locator("[data-refused]").count() == kinds.count("refused")
        assert page.url.endswith(f"#{choice}")


def test_the_page_finds_the_outcome_of_every_choice(opened, page):
    """All pairs, and random histories of three and four transactions, are looked up in the right place of the table."""
    level, table = WHOLE
    opened()
    names = [one.id for one in outcomes.OPERATIONS]
    few = [one.id for one in outcomes.OPERATIONS if one.among_four]
    rng = random.Random(7)
    choices = [Choice(level, table, pair, order) for pair in product(names, repeat=2) for order in orders(2)]
    for count, offered, times in ((3, names, 150), (4, few, 100))[: most() - 2]:
        every = orders(count)
        for _ in range(times):
            choices.append(Choice(level, table, tuple(rng.choices(offered, k=count)), rng.choice(every)))
    core = outcomes.PlayedCore(level, outcomes.LAYOUTS[table])
    for choice, played in zip(choices, page.evaluate(FOLLOW, [str(choice) for choice in choices]), strict=True):
        expected = play(core, choice)
        assert [shown(result) for result in played["results"]] == expected.results, choice
        assert live(played["versions"][-1]) == expected.files, choice


def test_a_link_holds_the_choices_and_what_cannot_be_chosen_is_left_out(opened, page):
    address = "level=Serializable&table=files&do=append,delete-row&order=BAab"
    assert opened(address)["state"] == address
    assert page.locator("#play-level").input_value() == "Serializable"
    for wrong in ("level=Serializable", address.replace("BAab", "aABb"), address.replace("append", "nothing"), "%%%"):
        assert opened(wrong)["state"] == str(PRESETS["two-writers"]), wrong


def test_the_keyboard_moves_beginnings_and_commits(opened, page):
    opened("level=Serializable&table=vectors&do=delete-group,append&order=ABba")
    begin, commit = (page.locator(f"[data-event={event}]") for event in "Aa")
    assert page.locator("#play .play-result[data-kind=refused]").count() == 1
    begin.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert page.evaluate("refdeltaPlayed.state").endswith("order=BbAa")  # not beyond its own commit
    assert begin.get_attribute("aria-valuetext") == "at t2"
    assert page.evaluate("document.activeElement.dataset.event") == "A"
    assert (
        page.locator("#play .play-result[data-kind=refused]").count() == 0
    )  # it begins after the append, and finds the row
    page.keyboard.press("Home")
    commit.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("refdeltaPlayed.state").endswith("order=AaBb")
    assert "commits version 1" in commit.get_attribute("aria-valuetext")


def test_the_pointer_drags_a_commit(opened, page):
    opened("level=WriteSerializable&table=vectors&do=update-row,update-row&order=ABab")
    handle, target = page.locator("[data-event=b]").bounding_box(), page.locator("[data-event=A]").bounding_box()
    page.mouse.move(handle["x"] + 5, handle["y"] + 5)
    page.mouse.down()
    page.mouse.move(target["x"], handle["y"], steps=8)
    page.mouse.up()
    assert page.evaluate("refdeltaPlayed.state").endswith("order=ABba")
    page.mouse.move(10, 10)
    assert page.evaluate("refdeltaPlayed.state").endswith("order=ABba")


def test_a_finger_drags_a_beginning(browser, site):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"file://{site}/docs/play/index.html#{PRESETS['same-row']}")
    page.wait_for_selector("#play[aria-busy=false]")
    page.locator("#play .play-timeline").scroll_into_view_if_needed()
    handle, target = page.locator("[data-event=B]").bounding_box(), page.locator("[data-event=b]").bounding_box()
    y = handle["y"] + 8
    steps = [handle["x"] + 8 + (target["x"] - handle["x"] - 20) * part / 6 for part in range(7)]
    touch = context.new_cdp_session(page)
    for kind, x in zip(["touchStart", *["touchMove"] * 6], steps, strict=True):
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_function("refdeltaPlayed.state.endsWith('order=AaBb')")
    assert page.locator("#play .play-result[data-kind=refused]").count() == 0
    context.close()


@pytest.mark.tier("nightly")
def test_transactions_are_added_and_removed(opened, page):
    opened()
    page.select_option("#play-count", "4")
    page.wait_for_function("refdeltaPlayed.results.length === 4")
    chosen = Choice.of(page.evaluate("refdeltaPlayed.state"))
    assert len(chosen.operations) == 4
    assert set(chosen.operations) <= {one.id for one in outcomes.OPERATIONS if one.among_four}
    assert page.locator("#play-do-0 option[disabled]").count() == sum(not one.among_four for one in outcomes.OPERATIONS)
    page.select_option("#play-count", "2")
    page.wait_for_function("refdeltaPlayed.results.length === 2")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_follows_the_colours_of_the_system(browser, site, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme, has_touch=width < 500)
    page = context.new_page()
    page.goto(f"file://{site}/docs/play/index.html#{PRESETS['cycle']}")
    page.wait_for_selector("#play[aria-busy=false]")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = [handle.bounding_box() for handle in page.locator("#play .play-handle").all()]
    assert len(boxes) == 6
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground.strip("rgba()").split(",")[:3])) < 300) == (scheme == "dark")
    context.close()


def test_every_control_has_a_name(opened, page):
    opened()
    for control in page.locator("#play select, #play button").all():
        assert control.evaluate("e => (e.labels && e.labels.length && e.labels[0].textContent) || e.ariaLabel"), control
    assert page.locator("#play [role=status]").inner_text() == "A commits version 1; B commits version 2."


def test_a_case_of_the_suite_is_shown_by_its_link(page, site):
    """Tests of docs/play/suite.py: what the page has is what the judge and the corpus say."""
    page.goto(f"file://{site}/docs/play/index.html#case=lost-update@WriteSerializable")
    page.wait_for_selector("#suite[aria-busy=false]")
    shown = page.evaluate("refdeltaCase")
    case = next(one for one in cases() if one.id == "lost-update@WriteSerializable")
    found = Expectation(case).explain(case.commits)
    assert shown["id"] == case.id
    assert (shown["verdicts"], shown["outcomes"]) == (case.expected["verdicts"], case.expected["outcomes"])
    assert [(edge["before"], edge["after"]) for edge in shown["cycle"]] == [(e.before, e.after) for e in found.cycle]
    assert page.locator("#suite [data-cycle]").get_attribute("data-cycle") == " ".join(e.before for e in found.cycle)
    kinds = {card.get_attribute("data-transaction"): card.get_attribute("data-kind")
             for card in page.locator("#suite .play-result").all()}  # fmt: skip
    assert kinds == {"T": "refused", "W": "committed"}
    assert page.locator("#suite .suite-step").count() == 4
    top = "document.getElementById('cases-of-the-conformance-suite').getBoundingClientRect().top"
    assert -1 < page.evaluate(top) < 200


def test_cases_are_chosen_and_the_address_follows(page, site):
    page.goto(f"file://{site}/docs/play/index.html")
    page.wait_for_selector("#suite[aria-busy=false]")
    every = {case.name for case in cases()}
    assert {one.inner_text() for one in page.locator("#suite-case option").all()} == every
    page.select_option("#suite-case", label="delete-over-a-matching-insert")
    assert page.locator("#suite [data-cycle]").count() == 1
    page.select_option("#suite-level", label="WriteSerializable")
    assert page.url.endswith("#case=delete-over-a-matching-insert@WriteSerializable")
    assert page.locator("#suite [data-order]").get_attribute("data-order") == "T W"
    page.evaluate("location.hash = 'case=smallest-copy-copy'")
    page.wait_for_function("refdeltaCase.name === 'smallest-copy-copy'")
    assert page.locator("#suite .play-handle").count() == 4


def one_of_each_kind():
    """A case of each kind: of statements and of actions, of two transactions and of more, with an order and without."""
    found = {}
    for case in cases():
        order = Expectation(case).explain(case.commits).order
        key = case.kind, len(case.transactions) > 2, None if order is None else bool(order)
        found.setdefault(key, case)
    assert len(found) >= 8
    return [*found.values(), next(one for one in cases() if one.name == "delete-of-nulls-over-an-insert-of-one")]


def test_a_case_of_each_kind_is_shown(page, site):
    page.goto(f"file://{site}/docs/play/index.html")
    page.wait_for_selector("#suite[aria-busy=false]")
    for case in one_of_each_kind():
        page.evaluate("id => { location.hash = `case=${id}`; }", case.id)
        page.wait_for_function("id => refdeltaCase.id === id", arg=case.id)
        count = {
            place: page.locator(f"#suite {place}").count() for place in (".play-result", ".suite-step", "tbody tr")
        }
        steps, outcomes = len(case.steps), len(case.expected["outcomes"])
        assert count == {".play-result": len(case.transactions), ".suite-step": steps, "tbody tr": outcomes}, case.id
        order = Expectation(case).explain(case.commits).order
        shown = page.locator("#suite [data-order]" if order is not None else "#suite [data-cycle]")
        assert shown.count() == 1
        assert order is None or shown.get_attribute("data-order") == " ".join(order)
        text = page.locator("#suite").inner_text()
        assert "undefined" not in text
        for one in case.transactions.values():
            assert all(words in text for words in (*one.does, *one.reads, *(each.sql("t") for each in one.statements)))
    rows = page.locator("#suite .suite-files code").first.inner_text()
    assert "null" in rows, "of the last case, whose table has them"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cases_fit_a_phone(browser, site, scheme):
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    page.goto(f"file://{site}/docs/play/index.html#case=longer-cycle-through-a-late-writer")
    page.wait_for_selector("#suite[aria-busy=false]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for control in page.locator("#suite select").all():
        assert control.evaluate("e => e.labels[0].textContent")
    context.close()
