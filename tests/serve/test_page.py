"""The page, clicked through in a real browser, on a real model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.serve.conftest import listening

from offramp import Classifier
from offramp.runtime.certified import Certified, write

os.environ.setdefault("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is absent: apt-get install chromium")

QUICK = 15_000  # milliseconds after which a step has failed


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        made = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def free(folder: Path) -> Iterator[str]:
    """A server that allows every point of the dial."""
    with listening(folder, allow_uncertified=True) as (host, port):
        yield f"http://{host}:{port}/"


@pytest.fixture
def open_page(browser: Any, address: tuple[str, int]) -> Iterator[Callable[..., Any]]:
    """Opens the page; whatever it says to the console, or asks of another server, fails the test."""
    complaints: list[str] = []
    contexts = []
    home = f"http://{address[0]}:{address[1]}/"

    def opened(url: str = home, expected: tuple[str, ...] = (), **how: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 800}, **how})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(QUICK)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda said: None if any(part in said.text for part in expected) else complaints.append(said.text),
        )
        page.on("request", lambda sent: None if sent.url.startswith((url, "data:")) else complaints.append(sent.url))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints


def ready(page: Any) -> Any:
    page.get_by_text("4 layers, 3 labels, on torch.").wait_for()
    return page


def ask(page: Any, texts: str) -> None:
    page.get_by_label("Texts, one per line").fill(texts)
    page.get_by_role("button", name="Answer").click()
    page.get_by_role("status").filter(has_text="answered in").wait_for()


def test_texts_are_answered_with_label_depth_and_every_exit(open_page: Any, classifier: Any) -> None:
    page = ready(open_page())
    texts = ["good film", "the plot was bad"]
    ask(page, "\n".join(["", *texts, "  "]))
    cards = page.locator("li.answer")
    assert cards.count() == 2
    for place, truth in enumerate(classifier.decide(texts)):
        card = cards.nth(place)
        assert card.locator(".text").inner_text() == texts[place]
        assert card.locator(".label").inner_text() == truth.label
        assert f"left at depth {truth.depth} of 4" in card.inner_text()
        assert card.locator(".track .ran").count() == truth.depth
        assert "certified" in card.locator(".tag").first.inner_text()
    assert cards.nth(0).get_by_role("table").count() == 4
    assert not cards.nth(1).get_by_role("table").first.is_visible()
    cards.nth(1).get_by_text("What every exit says").click()
    assert cards.nth(1).get_by_role("table").first.is_visible()
    shown = cards.nth(0).locator(".exit.left")
    assert shown.get_by_role("table").count() == 1
    wide = [bar.bounding_box()["width"] for bar in shown.locator(".bar:not(.far) b").all()]
    assert wide == sorted(wide, reverse=True)
    assert wide[0] > wide[1]


def test_a_tab_is_part_of_a_text_where_the_model_learnt_single_ones(open_page: Any, classifier: Any) -> None:
    page = ready(open_page())
    assert not page.locator("#pairs-hint").is_visible()
    ask(page, "good\tfilm")
    truth = classifier.decide(["good\tfilm"])[0]
    assert page.locator("li.answer .label").first.inner_text() == truth.label


def test_a_long_text_ends_in_an_ellipsis_and_is_shown_whole_on_request(open_page: Any) -> None:
    page = ready(open_page(viewport={"width": 600, "height": 800}))
    ask(page, "good film\n" + "the plot was bad " * 55)
    short, long = page.locator("li.answer").nth(0), page.locator("li.answer").nth(1)
    text = long.locator(".text").first
    assert text.evaluate("(each) => getComputedStyle(each).webkitLineClamp") == "4"
    folded = text.bounding_box()["height"]
    assert text.evaluate("(each) => each.scrollHeight > each.clientHeight + 1")
    assert not short.get_by_role("button").is_visible()
    button = long.get_by_role("button", name="Show all of it")
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    page.keyboard.press("Enter")
    less = long.get_by_role("button", name="Show less")
    assert less.get_attribute("aria-expanded") == "true"
    assert text.bounding_box()["height"] > 2 * folded
    assert text.evaluate("(each) => each.scrollHeight <= each.clientHeight + 1")
    less.click()
    assert text.bounding_box()["height"] == folded


def test_the_badge_never_stands_alone_on_a_line(open_page: Any) -> None:
    page = ready(open_page(viewport={"width": 1280, "height": 800}))
    ask(page, "good film")
    alone = page.evaluate(
        """() => Array.from({ length: 120 }, (_, letters) => {
          document.querySelector(".answer .label").textContent = "m".repeat(letters + 1);
          const badge = document.querySelector(".answer .tag").getBoundingClientRect();
          const depth = document.querySelector(".answer .track").getBoundingClientRect();
          return badge.top >= depth.bottom ? letters + 1 : 0;
        }).filter(Boolean)"""
    )
    assert alone == []


def test_of_a_set_of_labels_the_page_says_whose_probability_it_shows(open_page: Any, sets: Path) -> None:
    with listening(sets) as (host, port):
        page = open_page(f"http://{host}:{port}/")
        page.get_by_text("on torch.").wait_for()
        ask(page, "dull film")
        told = page.locator("li.answer .result").inner_text()
        truth = Classifier.load(sets, policy="never").decide(["dull film"])[0]
        assert f"least sure label {truth.probability:.3f}" in told
        assert "probability" not in told
        page.context.close()


def test_the_slider_tells_what_is_promised_and_moves_the_depths(open_page: Any, free: str) -> None:
    page = ready(open_page(free))
    slider = page.get_by_role("slider", name="From quality to speed")
    told = page.evaluate("fetch('model').then((reply) => reply.json())")
    chosen = told["dial"]["chosen"]
    assert slider.input_value() == str(chosen)
    assert page.locator("#promise").inner_text() == told["promise"]
    ask(page, "good film")
    slider.focus()
    page.keyboard.press("Home")
    page.get_by_text("Every text runs all layers: nothing is lost against the full model.").wait_for()
    page.get_by_text("left at depth 4 of 4").wait_for()
    page.keyboard.press("End")
    page.get_by_text("Nothing is promised here; measured:").wait_for()
    page.locator("li.answer .tag", has_text="not certified").wait_for()
    last = told["dial"]["points"][-1]
    assert f"{last['mean_depth']:.2f} of 4 layers" in slider.get_attribute("aria-valuetext")


def test_without_leave_the_slider_ends_where_the_certificate_does(open_page: Any) -> None:
    page = ready(open_page())
    told = page.evaluate("fetch('model').then((reply) => reply.json())")
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("End")
    certified = [place for place, point in enumerate(told["dial"]["points"]) if point["certified"]]
    assert slider.input_value() == str(certified[-1])
    assert page.locator("#standing").inner_text() == "certified"


def test_what_goes_wrong_is_said(open_page: Any) -> None:
    page = ready(open_page(expected=("422",)))
    page.get_by_role("button", name="Answer").click()
    alert = page.get_by_role("alert")
    alert.filter(has_text="There should be a text.").wait_for()
    page.get_by_label("Texts, one per line").fill("\n".join(["good"] * 17))
    page.keyboard.press("Control+Enter")
    alert.filter(has_text="There should be at most 16 texts at a time. Found 17.").wait_for()
    page.get_by_label("Texts, one per line").fill("x" * 1001)
    page.keyboard.press("Control+Enter")
    alert.filter(has_text="A text should have at most 1000 characters. Found 1001.").wait_for()
    ask(page, "good film")
    assert alert.inner_text() == ""


def test_a_server_that_is_gone_is_said_to_be(open_page: Any) -> None:
    page = ready(open_page(expected=("ERR_INTERNET_DISCONNECTED",)))
    page.context.set_offline(True)
    page.get_by_label("Texts, one per line").fill("good film")
    page.get_by_role("button", name="Answer").click()
    page.get_by_role("alert").filter(has_text="The server cannot be reached.").wait_for()


def test_it_works_by_keyboard_alone(open_page: Any) -> None:
    page = ready(open_page())
    seen = []
    for _ in range(4):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert seen == ["skip", "texts", "point", "send"]
    page.locator("#texts").focus()
    page.keyboard.type("good film")
    page.keyboard.press("Control+Enter")
    page.locator("li.answer").wait_for()
    page.locator("#send").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Enter")
    assert not page.locator("li.answer table").first.is_visible()


def test_every_control_and_picture_has_a_name(open_page: Any) -> None:
    page = ready(open_page())
    ask(page, "good film")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, textarea, button, svg, table, figure, [role=region]")]
          .filter((each) => !(each.getAttribute("aria-label") || each.getAttribute("aria-labelledby")
            || each.labels?.length || each.caption || each.textContent.trim()))
          .filter((each) => !each.closest("[hidden]")).map((each) => each.outerHTML)"""
    )
    assert nameless == []
    assert page.locator("html").get_attribute("lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scrolling_and_colours_follow_the_scheme(open_page: Any, scheme: str) -> None:
    page = ready(open_page(viewport={"width": 375, "height": 700}, color_scheme=scheme))
    ask(page, "good film\n" + "averylongwordwithoutanybreakinit" * 8)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    shade = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]")
    assert (shade > 128) == (scheme == "light")


def test_the_curves_are_drawn_with_their_numbers_as_tables(open_page: Any) -> None:
    page = ready(open_page())
    told = page.evaluate("fetch('model').then((reply) => reply.json())")
    points = len(told["dial"]["points"])
    assert page.locator("#trade circle.dot").count() == points
    assert page.locator("#trade circle.here").count() == 1
    page.locator("#trade summary").click()
    assert page.locator("#trade tbody tr").count() == points
    page.locator("#layers summary").click()
    rows = [row.inner_text().split() for row in page.locator("#layers tbody tr").all()]
    assert rows == [[depth, f"{score:.4f}"] for depth, score in told["scores"]["by_exit"].items()]


def test_without_a_certificate_it_says_so_and_the_slider_is_a_threshold(open_page: Any, bare: Path) -> None:
    with listening(bare) as (host, port):
        page = open_page(f"http://{host}:{port}/")
        page.get_by_text("The model has no certificate: nothing is promised.").first.wait_for()
        page.get_by_text("There is no curve: the model folder has no dial.").wait_for()
        ask(page, "good film")
        page.get_by_text("left at depth 4 of 4").wait_for()
        page.get_by_role("slider").focus()
        page.keyboard.press("End")
        page.get_by_text("left at depth 1 of 4").wait_for()
        page.context.close()


def test_where_no_threshold_could_be_certified_the_slider_rests_and_says_why(
    open_page: Any, folder: Path, tmp_path: Path
) -> None:
    home = Path(shutil.copytree(folder, tmp_path / "model"))
    found = Classifier.load(home).certified_
    assert found is not None
    full = found.certificate.accuracy_full
    nobody = {"policy": "never", "settings": {}, "thresholds": {}, "exits": ()}
    measured = {"harms": 0, "measured": 0.0, "accuracy_early": full, "mean_depth": 4.0, "cost": 4.0}
    write(home, Certified(replace(found.certificate, **nobody, **measured)))
    with listening(home) as (host, port):
        page = ready(open_page(f"http://{host}:{port}/"))
        page.get_by_text("There is no curve: no threshold could be certified.").wait_for()
        slider = page.get_by_role("slider")
        assert slider.is_disabled()
        assert slider.get_attribute("title") == "No threshold could be certified."
        assert "no threshold could be certified" in page.locator("#reading").inner_text()
        assert "no threshold could be certified" in slider.get_attribute("aria-valuetext")
        assert "no thresholds could be certified" in page.locator("#promise").inner_text()
        ask(page, "good film")
        assert page.locator("li.answer .tag").inner_text() == "certified"
        page.context.close()


def test_with_a_key_the_page_asks_for_it(open_page: Any, folder: Path) -> None:
    with listening(folder, api_key=b"open-sesame") as (host, port):
        page = open_page(f"http://{host}:{port}/", expected=("401",))
        page.get_by_label("Key").fill("wrong")
        page.get_by_role("button", name="Use it").click()
        page.get_by_label("Key").fill("open-sesame")
        page.get_by_role("button", name="Use it").click()
        ready(page)
        assert not page.get_by_label("Key").is_visible()
        ask(page, "good film")
        page.context.close()
