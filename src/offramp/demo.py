"""The demonstration: the built-in support-desk messages, from file to answers."""

from __future__ import annotations

from importlib import resources
from pathlib import Path


def data_file(part: str, desk: str = "support_desk") -> Path:
    """The built-in data's file for `train`, `validation`, `calibration` or `test`.

    The messages of the `mixed_desk` concern several queues, or none, and have no `validation`. Those of the
    `tagged_desk` have a tag for each word.
    """
    suffix = "jsonl" if desk == "tagged_desk" else "csv"
    return Path(str(resources.files("offramp") / "data" / desk / f"{part}.{suffix}"))


QUESTIONS = (
    "the parcel says delivered but my porch is empty",
    "took 79 off my card twice this month, why",
    "Screen went black after the update, the app just closes on me.",
    "Does the indoor camera work with a 2.4 GHz network, before I order three?",
    "somebody logged in from a city I have never been to",
)
"""New messages, in no part of the data, for the demonstration to answer."""

MAX_DROP = 0.02
"""The accuracy that leaving early may lose in the demonstration: its few texts cannot certify much less."""
