"""What became of the claims, paper by paper, in words: which show, which do not, and how sure that is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from offramp.study.claims import CLEARLY, Verdict

OURS = "Our own questions"
FIRST = ("shows", "the opposite shows")
"""What is told first; the rest follows by how often it is."""


def digest(verdicts: Sequence[Verdict], page: str = "") -> str:
    """A list for each paper, then for what is asked besides, and how far all of it can be trusted.

    `page` has a section for each study, to which the numbers point; empty: the page that this stands on.
    """
    by_paper: dict[str, list[Verdict]] = defaultdict(list)
    for each in verdicts:
        by_paper[each.shown.study.paper if each.of_paper else OURS].append(each)
    papers = sorted(by_paper, key=lambda name: name == OURS)
    return "\n\n".join([*(_paper(name, by_paper[name], page) for name in papers), *_trust(verdicts)])


def _paper(name: str, verdicts: Sequence[Verdict], page: str) -> str:
    by_words: dict[str, list[Verdict]] = defaultdict(list)
    for each in verdicts:
        by_words[each.words.removesuffix(CLEARLY)].append(each)
    rest = sorted((words for words in by_words if words not in FIRST), key=lambda words: -len(by_words[words]))
    order = [*(words for words in FIRST if words in by_words), *rest]
    told = [line for words in order for line in _of_words(words, by_words[words], page)]
    many = f"{len(verdicts)} claim{'s' * (len(verdicts) > 1)}"
    return "\n".join([f"**{name}**, {many}:", "", *told])


def _of_words(words: str, verdicts: Sequence[Verdict], page: str) -> list[str]:
    """A line for what these claims have in common, and one for each study."""
    by_study: dict[str, list[Verdict]] = defaultdict(list)
    for each in verdicts:
        study = each.shown.study
        by_study[f"[{study.place if each.of_paper else study.name}]({page}#{study.name})"].append(each)
    told = [f"  - {place}: {'; '.join(map(_told, mine))}." for place, mine in by_study.items()]
    return [f"- *{words.capitalize()}* ({len(verdicts)}):", *told]


def _told(each: Verdict) -> str:
    """A claim with its points, and what of them is more than chance."""
    parts = [each.points]
    parts += [each.found.equation] * each.found.significant
    parts += [f"not learnt: {', '.join(each.unlearnt)}"] * bool(each.unlearnt)
    return f"{each.claim.says} ({', '.join(parts)})"


def _trust(verdicts: Sequence[Verdict]) -> list[str]:
    """What is left of all that shows, one way or the other, when the claims are corrected together."""
    found = [each for each in verdicts if each.found.significant]
    clear = [each for each in found if each.clear]
    if not found or all(each.among_all is None for each in found):
        return []
    stands = f"{len(clear)} of them {'stands' if len(clear) == 1 else 'stand'}" if clear else "none of them stands"
    few = f"Of the {len(found)} that are more than chance within their study, {stands} once all claims are corrected"
    return [f"{few} together. *Does not show* is no proof of the contrary."]
