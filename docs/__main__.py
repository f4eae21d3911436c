"""Documents from results: `python -m docs record` runs what the README shows, `python -m docs render` writes it in.

The README's outputs and `docs/settings.md` are never typed: they come from `results/readme.json`, which `record`
writes, and from the configuration's own help texts. `tests/test_documents.py` fails when a document has drifted.
"""

from __future__ import annotations

import sys

from docs.documents import record, render

if __name__ == "__main__":
    verbs = {"record": record, "render": render}
    if len(sys.argv) != 2 or sys.argv[1] not in verbs:
        sys.exit("usage: python -m docs record|render")
    verbs[sys.argv[1]]()
