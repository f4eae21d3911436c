"""Documents are true: rendered ones have not drifted, links lead somewhere, names exist."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from transformers import BertConfig

from offramp.config import CHOICES, describe, load_recipe, override, recipes
from offramp.exits.kinds import EXITS
from offramp.objectives import OBJECTIVES
from offramp.optimise.coherence import check
from offramp.policies import POLICIES
from offramp.types import ExitOutput

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.documents import rendered  # noqa: E402
from docs.pictures import drawn  # noqa: E402
from docs.results import figures  # noqa: E402

DOCS = ROOT / "docs"
DOCUMENTS = [*ROOT.glob("*.md"), *sorted(DOCS.glob("**/*.md"))]
PAGES = {
    **{name: DOCS / "objectives" / f"{name}.md" for name in OBJECTIVES},
    **{name: DOCS / "exits" / f"{name}.md" for name in CHOICES["exits.kind"]},
    **{name: DOCS / "policies" / f"{name}.md" for name in POLICIES},
}
"""Every objective, exit and policy with its page."""


def section(file: Path, heading: str) -> str:
    """What stands under a heading of a page, up to the next."""
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", file.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None, f"{file.name} has no heading {heading}"
    return found[1]


def anchor(heading: str) -> str:
    """The name under which GitHub links to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


RENDERED = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "benchmarks",
            "faults",
            "multi-label",
            "ray",
            "results",
            "sequence-labelling",
            "settings",
            "strategies",
            "studies",
            "verbs",
            "which-objective",
        )
    ),
]


@pytest.fixture(scope="module")
def as_rendered() -> dict[Path, str]:
    """Every document and picture as it should be: all of them, made once, since that takes seconds."""
    return rendered()


@pytest.mark.parametrize("name", [*RENDERED, *(f"docs/{place}" for place in (*figures(), *drawn()))])
def test_a_rendered_document_has_not_drifted_from_its_results(as_rendered: dict[Path, str], name: str) -> None:
    assert as_rendered[ROOT / name] == (ROOT / name).read_text("utf-8"), "run: python -m docs render"


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: f.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_to_a_file(file: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", file.read_text("utf-8"))
    missing = [link for link in links if "://" not in link and not (file.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: f.relative_to(ROOT).as_posix())
def test_every_link_within_a_document_leads_to_a_heading(file: Path) -> None:
    text = file.read_text("utf-8")
    anchors = {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]+)", text)) <= anchors


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: f.relative_to(ROOT).as_posix())
def test_every_field_that_a_document_names_exists(file: Path) -> None:
    stages = "|".join({key.partition(".")[0] for key in describe()})
    named = re.findall(rf"`((?:{stages})\.\w+)(?:=[^`]*)?`", file.read_text("utf-8"))
    assert set(named) <= set(describe())


@pytest.mark.parametrize("file", DOCUMENTS, ids=lambda f: f.relative_to(ROOT).as_posix())
def test_every_training_command_has_settings_that_go_together(file: Path) -> None:
    for line in re.findall(r"^offramp train \S.* --recipe .*$", file.read_text("utf-8"), re.MULTILINE):
        words = shlex.split(line)
        recipe = words[words.index("--recipe") + 1]
        settings = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
        check(override(load_recipe(recipe), settings))


def test_every_objective_exit_and_policy_has_its_page_and_no_page_lacks_one() -> None:
    folders = ("objectives", "exits", "policies")
    found = {file for folder in folders for file in (DOCS / folder).glob("*.md")}
    assert found - {DOCS / folder / "README.md" for folder in folders} == set(PAGES.values())
    assert all(file.read_text("utf-8").startswith(f"# `{name}`\n") for name, file in PAGES.items())


@pytest.mark.parametrize(
    ("folder", "names"),
    [("objectives", tuple(OBJECTIVES)), ("exits", CHOICES["exits.kind"]), ("policies", tuple(POLICIES))],
)
def test_the_index_has_one_row_for_each_page_in_the_order_of_the_code(folder: str, names: tuple[str, ...]) -> None:
    text = (DOCS / folder / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| \[`([\w-]+)`\]\(([\w-]+)\.md\) \|", text, re.MULTILINE)
    assert rows == [(name, name) for name in names]


@pytest.mark.parametrize("folder", ["objectives", "exits", "policies"])
def test_the_pages_of_a_folder_have_the_same_headings(folder: str) -> None:
    files = [file for file in PAGES.values() if file.parent.name == folder]
    headings = {file.name: re.findall(r"^## .*$", file.read_text("utf-8"), re.MULTILINE) for file in files}
    assert len({tuple(found) for found in headings.values()}) == 1, headings


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_page_of_an_objective_tells_the_settings_it_reads_and_no_others(name: str) -> None:
    rows = re.findall(r"^\| (`.*?`) \|", section(PAGES[name], "Settings"), re.MULTILINE)
    assert set(re.findall(r"`objective\.(\w+)`", " ".join(rows))) == set(OBJECTIVES[name].hyper)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_python_of_an_objective_page_gives_gradients(name: str) -> None:
    code = re.search(r"```python\n(.*?)```", section(PAGES[name], "Run it"), re.DOTALL)
    assert code is not None

    def outputs(texts: int) -> ExitOutput:
        return ExitOutput(*(torch.randn(*shape, requires_grad=True) for shape in ((texts, 12), (texts, 3), (3, 12))))

    torch.manual_seed(0)
    given: dict[str, Any] = {"labels": torch.tensor([0, 1, 1, 2]), "teacher": outputs(4)}
    given |= {"output": outputs(4), "views": outputs(8)}
    exec(compile(code[1], PAGES[name].name, "exec"), given)
    used = given["views" if OBJECTIVES[name].views > 1 else "output"]
    assert any(tensor.grad is not None for tensor in (used.representation, used.logits, used.label_embeddings))


def test_the_python_of_the_alignment_page_gives_a_step() -> None:
    code = re.search(r"```python\n(.*?)```", (DOCS / "alignment.md").read_text("utf-8"), re.DOTALL)
    assert code is not None
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = SimpleNamespace(
        main=weight.sum(), auxiliary=-weight.sum(), main_weight=0.9, auxiliary_weight=0.1
    )  # the two terms are opposite: the auxiliary one is dropped
    given: dict[str, Any] = {"loss": loss, "parameters": [weight]}
    exec(compile(code[1], "alignment.md", "exec"), given)
    assert given["angle"].degrees == pytest.approx(180.0)
    torch.testing.assert_close(given["step"][0], torch.tensor([0.9, 0.9]))


@pytest.mark.parametrize("name", CHOICES["exits.kind"])
def test_the_page_of_an_exit_counts_its_parameters(name: str) -> None:
    formula = re.search(r"```text\n(.*?)\n```", section(PAGES[name], "Parameters"), re.DOTALL)
    assert formula is not None
    sizes = {"H": 12, "C": 5, "D": 8, "W": 3}
    settings = SimpleNamespace(
        labels=range(sizes["C"]),
        exit_size=sizes["D"],
        exit_heads=2,
        exit_dropout=0.1,
        exit_window=sizes["W"],
        exit_temperature=0.1,
        exit_reads="first",
        exit_projection="own",
    )
    built: Any = EXITS[name](settings, BertConfig(hidden_size=sizes["H"]))
    assert eval(formula[1], {}, sizes) == sum(parameter.numel() for parameter in built.parameters())


def test_the_page_on_which_objective_names_only_what_there_is() -> None:
    text = (DOCS / "which-objective.md").read_text("utf-8")
    known = {*recipes(), *OBJECTIVES, *(choice for choices in CHOICES.values() for choice in choices)}
    assert set(re.findall(r"`([a-z][a-z0-9_-]*)`", text)) <= known
    for setting in re.findall(r"`(\w+\.\w+=[^`]*)`", text):
        override(load_recipe("acl"), [setting])


def test_every_row_on_which_objective_names_a_recipe() -> None:
    text = (DOCS / "which-objective.md").read_text("utf-8")
    rows = re.findall(r"^\| \[.*?\]\(#.*?\) \| (.*?) \|", text, re.MULTILINE)
    assert rows
    for cell in rows:
        named = set(re.findall(r"`([\w-]+)`", cell))
        assert named
        assert named <= set(recipes())


def test_the_readme_lists_every_recipe_and_policy() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    rows = set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE))
    tuned = {name for name in recipes() if not name.endswith("-paper")}
    assert rows == {*tuned, *POLICIES}


def test_a_recipe_of_a_papers_objective_has_a_twin_with_the_papers_values() -> None:
    tuned = {name for name in recipes() if not name.endswith("-paper")}
    single = {name for name in tuned if load_recipe(name).optimise.strategy == "single"}
    assert {*recipes()} - tuned == {f"{name}-paper" for name in {*single, "acl-multi-exit"}}


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
