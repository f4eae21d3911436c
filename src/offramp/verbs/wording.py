"""An answer in words, on one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offramp.classifier import Classifier
    from offramp.runtime.predictions import Answered
    from offramp.runtime.tag_predictions import TagPrediction


def in_words(classifier: Classifier, found: Answered) -> str:
    """The label, all labels of a set with the separator between them, or the text with its spans marked."""
    from offramp.runtime.predictions import SetPrediction
    from offramp.runtime.tag_predictions import TagPrediction

    if isinstance(found, TagPrediction):
        return _marked(found)
    if isinstance(found, SetPrediction):
        return classifier.config_.data.label_separator.join(map(str, found.labels))
    return str(found.label)


def _marked(found: TagPrediction) -> str:
    """The text on one line, its spans as [words](label), and how many words were not read."""
    pieces, done = [], 0
    for span in found.spans:
        pieces += [found.text[done : span.start], f"[{span.text}]({span.label})"]
        done = span.end
    rest = found.text[done:]
    unread = found.tags.count(None)
    note = f" [{unread} words not read]" if unread else ""
    return " ".join("".join([*pieces, rest]).split()) + note
