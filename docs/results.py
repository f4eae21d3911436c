"""What the studies found, rendered from their results: a page with every table and figure, and a summary."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from offramp.study.claims import claims_table, judged, tally
from offramp.study.digest import digest
from offramp.study.document import as_markdown
from offramp.study.kinds import SCALES
from offramp.study.pictures import picture
from offramp.study.runner import load_study, plan, studies
from offramp.study.views import Shown

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
SCALE = "cpu"
HEAD = """# Results

The papers' tables and figures, made again at the scale `cpu`: a small backbone (all-MiniLM-L6-v2, 6 layers) and capped
data, sized for two cores. What the papers print is of larger backbones and all data and stands beside ours for
orientation: the question is whether the *differences* show here too. A difference is called one where a paired
Wilcoxon test with Holm's correction says so; otherwise it is a null result, and is told as one.

The runs start from the recipes for small backbones, which differ from the papers in more than the backbone: where ACL
has attention exits these have [`residual`](exits/residual.md) ones, LaCon's exit reads the mean of all states, rates
are higher, and the cross entropy smooths its labels a little. Linear exits read the first token, as in the papers,
where a study does not say otherwise.

This page is rendered from the JSON files in `results/`, one for each run, by `python -m docs render`.
`offramp study run NAME` makes what is missing of a study, with as many threads for each run as those that are there
had; on the same machine a result that is deleted is made again to the same bits, times apart. `--scale paper` has the
papers' own backbones and sizes.

In the tables bold is the highest mean of a column, whether or not by more than chance. Where ours are of other tasks or
values than the paper's, its numbers stand in a table of their own."""
FOUND = """## What shows of the papers here, and what does not

In brackets: the difference in points, and where it is more than chance its p, corrected within its study. Above 0 a
number speaks for the claim, below 0 against it; what the words mean stands below."""
CLAIMS = """## Every claim, with its numbers

Every claim, of the papers or in a study of our own, is held against our runs in pairs that share task and seed;
where a study goes through several values, a pair has the mean of their differences, for they share most of their
texts.
*Shows*: the differences lie on the claimed side, and a paired Wilcoxon test says that this is more than chance, after
Holm's correction for the claims of its study. *Clearly*: after a correction for all the claims of this table too, of
which some would show by luck. *Does not show* is no proof that there is nothing: the interval, by Student's t, tells
how large a difference may still be for other seeds on these tasks and these scored texts; other texts or other tasks
are not in it. *Not learnt* names the tasks on which the answers of neither have to do with the texts: their Matthews
correlation at the last exit, 0 for any answer without a look, is not above 0 by more than a standard deviation. Their
pairs count like the others, and can hardly show a difference. *Too few pairs to tell*: even if all of them lay on one
side, that could be chance. Numbers above 0 speak for a claim, those below 0 against it. A claim that nothing is lost is
*contradicted*, or not, which is no support where the interval is wide; one that no more than a standard
deviation is lost *holds* on every task, or names those on which it does not. For a trend the numbers are points per
step along the values, or along the depths; where it is asked how much the values matter, they are the difference of how
far the scores of the two reach. What a study asks besides its paper has the study's name in the first column, and is
counted with our own. The p here is corrected for the claims of a study; that beside the rows of a
table further down, for those rows."""


@cache
def measured() -> tuple[Shown, ...]:
    """The studies that have results."""
    shown = (Shown.of(load_study(name), SCALE, RESULTS) for name in studies())
    return tuple(each for each in shown if each.results)


@cache
def document() -> str:
    """The whole page."""
    claimed = claims_table(measured())
    verdicts = judged(measured())
    told = [FOUND, tally(verdicts), digest(verdicts), CLAIMS] if claimed else []
    parts = [HEAD, *told, *([claimed.markdown()] if claimed else [])]
    for shown in measured():
        name = shown.study.name
        parts.append(f"{as_markdown(shown, claims=False).rstrip()}\n\n![{name}]({_place(name)})")
    if _waiting():
        parts.append(f"## Not measured yet\n\n{_waiting()}")
    return "\n\n".join(parts) + "\n"


def _waiting() -> str:
    """The studies without results, in a sentence; empty where there are none."""
    there = {shown.study.name for shown in measured()}
    waiting = [f"`{name}`" for name in studies() if name not in there]
    return f"Not measured yet: {', '.join(waiting)}." if waiting else ""


def tables_of(name: str) -> str:
    """What a study found, for another page: its tables and how they were measured."""
    for shown in measured():
        if shown.study.name == name:
            body = as_markdown(shown, claims=False).split("\n", 1)[1]
            return f"{body.strip()}\n\nWritten by `offramp study run {name}`."
    return f"Not measured yet: `offramp study run {name}`."


@cache
def figures() -> dict[str, str]:
    """The figures' files below `docs`, with their SVG."""
    return {_place(shown.study.name): f"{picture(shown).svg()}\n" for shown in measured()}


def summary() -> str:
    """What shows of the papers' claims."""
    if not measured():
        return "Not measured yet."
    verdicts = judged(measured())
    parts = [tally(verdicts), digest(verdicts, "docs/results.md"), _waiting()]
    return "\n\n".join(part for part in parts if part)


@cache
def listing() -> str:
    """Every study, with how many runs it has at each scale."""
    rows = []
    for study in map(load_study, studies()):
        runs = " | ".join(str(len(plan(study, scale))) for scale in SCALES)
        rows.append(f"| `{study.name}` | {study.title} | {runs} |")
    head = f"| study | shows | {' | '.join(f'runs at `{scale}`' for scale in SCALES)} |"
    return "\n".join([head, f"|{' --- |' * (2 + len(SCALES))}", *rows])


def _place(name: str) -> str:
    return f"images/results/{name}.svg"
