"""The site builds without a warning, and loads nothing from another host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from docs.doctests import fenced
from docs.reference import REFERENCE, inward, made
from tests.documents.session import ROOT

from offramp.objectives import OBJECTIVES
from offramp.policies import POLICIES

LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class Loads(HTMLParser):
    """What a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in LOADING and named.get("rel") not in ("next", "prev", "canonical"):
            self.places.append(named.get(LOADING[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    told = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.slow
def test_every_document_and_every_page_that_is_made_is_on_the_site(site: Path) -> None:
    written = {file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs").glob("**/*.md")}
    expected = {re.sub(r"\.md$", ".html", page.replace("README.md", "index.md")) for page in {*written, *made()}}
    assert {page.relative_to(site).as_posix() for page in site.glob("**/*.html")} >= expected


@pytest.mark.slow
def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for page in site.glob("**/*.html"):
        loads = Loads()
        loads.feed(page.read_text("utf-8"))
        assert loads.places
        assert not [place for place in loads.places if "//" in place and not place.startswith("data:")], page.name
    styles = "".join(file.read_text("utf-8") for file in site.glob("**/*.css"))
    assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", styles)


@pytest.mark.slow
def test_every_picture_that_a_page_shows_is_there(site: Path) -> None:
    for page in site.glob("**/*.html"):
        for place in re.findall(r'<img [^>]*src="([^":]+)"', page.read_text("utf-8")):
            assert (page.parent / place).exists(), f"{page.name}: {place}"


@pytest.mark.slow
def test_the_search_knows_the_words_of_the_pages(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text("utf-8")
    assert all(word in index for word in ("compaction", "certificate", "AlignedContrastive", "--max-drop"))


@pytest.mark.slow
def test_the_reference_shows_every_objective_and_policy_with_its_docstring(site: Path) -> None:
    for page, table in (("objectives", OBJECTIVES), ("policies", POLICIES)):
        text = (site / "reference" / f"{page}.html").read_text("utf-8")
        for kind in table.values():
            assert f'id="{kind.__module__}.{kind.__qualname__}"' in text
        assert "<blockquote>" not in text  # a doctest that was taken for one


def test_the_reference_names_what_exists() -> None:
    for _, names in REFERENCE.values():
        for name in names:
            module, _, last = name.rpartition(".")
            __import__(module)
            assert last in vars(sys.modules[module]) or __import__(name), name


def test_links_out_of_the_documents_lead_to_pages_that_are_made() -> None:
    assert inward("[a](../../examples/own_loop.py)", 1) == "[a](../examples.md#own_loop)"
    assert inward("[a](other.md) [b](../settings.md)", 1) == "[a](other.md) [b](../settings.md)"


def test_a_doctest_ends_at_the_blank_line() -> None:
    assert fenced("a\n\n>>> 1\n1\n\nb") == "a\n\n```pycon\n>>> 1\n1\n```\n\nb"


def test_the_navigation_names_every_objective_and_policy_in_the_order_of_the_code() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    for folder, table in (("objectives", OBJECTIVES), ("policies", POLICIES)):
        assert re.findall(rf"- {folder}/([\w-]+)\.md", text)[1:] == list(table)
    assert yaml.safe_load(re.sub(r"!!python\S+", "", text))["theme"]["font"] is False
