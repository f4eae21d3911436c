"""Every block of every page is run, parsed or shown on purpose."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from docs import verbs
from docs.blocks import NEEDS, RUN, SHOWN, STAYS, WRITTEN, Block, blocks
from tests.documents.session import ROOT, Session, assert_printed

from offramp.policies.replay import Pooled
from offramp.types import Batch, ExitOutput

DOCS = ROOT / "docs"
PAGES = {file.relative_to(ROOT).as_posix(): file for file in (*ROOT.glob("*.md"), *sorted(DOCS.glob("**/*.md")))}
WITH_PROGRAMS = [name for name, file in PAGES.items() if any(block.runs for block in blocks(file))]

NOT_RUN = {
    ("README.md", "needs a package index"),
    ("SECURITY.md", "needs a package index"),
    ("docs/coming-from/sentence-transformers.md", "needs sentence-transformers"),
    ("docs/coming-from/setfit.md", "needs SetFit"),
    ("docs/coming-from/trainer.md", "needs the Hugging Face hub"),
    ("docs/hugging-face.md", "needs the Hugging Face hub"),
    ("docs/protocols.md", "needs the Hugging Face hub"),
    ("docs/ray.md", "needs a package index"),
    ("docs/serve.md", "needs a package index"),
    ("docs/serve.md", "needs docker"),
    ("docs/tasks.md", "needs the Hugging Face hub"),
    ("docs/tune.md", "needs a package index"),
    ("docs/tutorial.md", "needs a package index"),
}
"""Every program that is shown and not run: what it needs, a test does not have."""

COMMAND = re.compile(r"^(\$|offramp|pip|python|make|curl|docker|torchrun|accelerate|tensorboard) ", re.MULTILINE)
SYNOPSES = ("README.md", "docs/verbs.md")


def outputs(texts: int) -> ExitOutput:
    """What an exit says of some texts."""
    return ExitOutput(*(torch.randn(*shape, requires_grad=True) for shape in ((texts, 12), (texts, 3), (3, 12))))


def given(name: str) -> dict[str, Any]:
    """The names that a page leaves to its reader's own program."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    batch = Batch(torch.randint(5, 90, (8, 6)), torch.ones(8, 6, dtype=torch.int64))
    said = {depth: ExitOutput(*(tensor.detach() for tensor in vars_of(outputs(8)))) for depth in (1, 2, 3)}
    labels = torch.tensor([0, 1, 1, 2])
    if name.startswith("docs/objectives/"):
        return {"labels": labels, "teacher": outputs(4), "output": outputs(4), "views": outputs(8)}
    if name.startswith("docs/policies/"):
        pooled = Pooled(batch, said)
        return {"depth": 1, "output": said[1], "batch": batch, "pooled": pooled, "labels": labels.repeat(2)}
    if name == "docs/alignment.md":
        loss = {"main": weight.sum(), "auxiliary": -weight.sum(), "main_weight": 0.9, "auxiliary_weight": 0.1}
        return {"loss": SimpleNamespace(**loss), "parameters": [weight]}
    if name == "docs/calibration.md":
        return {"scores": draw.random((5, 900)), "right": draw.random((6, 900)) < 0.9}
    return {}


def vars_of(output: ExitOutput) -> tuple[torch.Tensor, ...]:
    return output.representation, output.logits, output.label_embeddings


def follow(name: str, folder: Path, languages: tuple[str, ...] = (*RUN, *WRITTEN)) -> None:
    """Do what a page says, and hold what is printed against what the page says is printed."""
    with Session(folder, given(name)) as session:
        printed = ""
        for block in blocks(PAGES[name]):
            if block.printed:
                assert_printed(block.code, printed)
            elif block.language in languages and not block.title.startswith(NEEDS):
                printed = session.run(block)


@pytest.mark.parametrize("name", PAGES)
def test_every_fence_says_what_its_block_is(name: str) -> None:
    for block in blocks(PAGES[name]):
        assert block.language in (*RUN, *SHOWN, *WRITTEN), f"line {block.line}"
        if block.language in RUN:
            assert not block.title or block.title == STAYS or block.title.startswith(NEEDS), f"line {block.line}"


def test_what_is_not_run_is_on_the_list() -> None:
    found = {(name, block.title) for name, file in PAGES.items() for block in blocks(file) if _needs(block)}
    assert found == NOT_RUN


def _needs(block: Block) -> bool:
    return block.title.startswith(NEEDS)


@pytest.mark.parametrize("name", [name for name in PAGES if name not in SYNOPSES])
def test_no_command_hides_in_a_block_that_is_only_shown(name: str) -> None:
    hidden = [block.line for block in blocks(PAGES[name]) if block.language in SHOWN and COMMAND.search(block.code)]
    assert not hidden, "commands stand in sh or console"


@pytest.mark.parametrize("name", SYNOPSES)
def test_a_synopsis_names_verbs_and_options_that_there_are(name: str) -> None:
    known = verbs.commands()
    groups = {verb.partition(" ")[0] for verb in known if " " in verb}
    lines = [
        line
        for block in blocks(PAGES[name])
        if block.language == "text" and not block.rendered
        for line in re.sub(r"\n {4,}", " ", block.code).splitlines()
        if line.startswith("offramp ")
    ]
    assert lines
    for line in lines:
        verb = line.split()[1]
        mine = [key for key in known if key == verb or (verb in groups and key.startswith(f"{verb} "))]
        assert mine, line
        options = set().union(*(verbs.options(known[key]) for key in mine))
        assert set(re.findall(r"--[\w-]+", line)) <= options, line


@pytest.mark.parametrize("name", PAGES)
def test_every_extra_that_a_page_installs_exists(name: str) -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
    named = re.findall(r"(?:offramp|'\.)\[([\w,]+)\]", PAGES[name].read_text("utf-8"))
    assert {each for found in named for each in found.split(",")} <= extras


@pytest.mark.parametrize("name", PAGES)
def test_every_toml_and_json_parses(name: str) -> None:
    for block in blocks(PAGES[name]):
        if block.language == "toml":
            tomllib.loads(block.code)
        if block.language == "json":
            json.loads(block.code)


QUICK = [
    *(name for name in WITH_PROGRAMS if name.startswith(("docs/objectives/", "docs/policies/"))),
    *(f"docs/{page}.md" for page in ("alignment", "calibration", "scikit-learn", "static")),
    *(f"docs/concepts/{page}.md" for page in ("aligned-contrast", "certificate")),
]
"""Pages whose Python needs no training."""


@pytest.mark.parametrize("name", QUICK)
def test_the_python_of_a_page_runs(name: str, tmp_path: Path) -> None:
    follow(name, tmp_path, languages=("python",))


FIRST_STEPS = ("README.md", "docs/tutorial.md", *(name for name in PAGES if name.startswith("docs/coming-from/")))
"""Pages that are followed with the backbone itself; elsewhere dozens of trainings, seconds each, would be minutes."""
FOLLOWED = [
    pytest.param(name, marks=pytest.mark.slow if name in FIRST_STEPS else pytest.mark.long) for name in WITH_PROGRAMS
]


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_page_can_be_followed_from_its_first_line_to_its_last(name: str, home: Callable[[str, bool], Path]) -> None:
    text = PAGES[name].read_text("utf-8")
    if "curl " in text and shutil.which("curl") is None:
        pytest.skip("curl is absent")
    follow(name, home(text, name not in FIRST_STEPS))
