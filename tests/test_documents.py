"""Documents are true: rendered ones have not drifted, links lead somewhere, names exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from offramp.config import recipes
from offramp.objectives import OBJECTIVES
from offramp.policies import POLICIES

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.documents import rendered  # noqa: E402

DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("file", [ROOT / "README.md", ROOT / "docs" / "settings.md"], ids=lambda f: f.name)
def test_a_rendered_document_has_not_drifted_from_its_results(file: Path) -> None:
    assert rendered()[file] == file.read_text("utf-8"), "run: python -m docs render"


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: f.name)
def test_every_relative_link_leads_to_a_file(file: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", file.read_text("utf-8"))
    missing = [link for link in links if "://" not in link and not (file.parent / link).exists()]
    assert not missing


def test_the_readme_lists_every_recipe_and_policy() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE))
    assert rows == {*recipes(), *POLICIES}


def test_the_readme_tree_names_every_objective() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    line = next(line for line in text.splitlines() if line.strip().startswith("objectives/"))
    assert all(re.search(rf"\b{name}\b", line) for name in OBJECTIVES)


def test_the_citation_names_the_three_papers() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert len(citation["references"]) == 3
    assert {"title", "authors", "message", "license"} <= set(citation)


@pytest.mark.slow
def test_the_readme_python_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(code[1], "README.md", "exec"), {})
    assert (tmp_path / "my-model" / "model.safetensors").exists()
