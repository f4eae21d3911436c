"""Documents from results: `python -m docs record` runs what the README shows, `python -m docs render` writes it in.

The README's outputs, `docs/settings.md` and `docs/verbs.md` are never typed: they come from `results/readme.json`,
which `record` writes, and from the help texts of the configuration and of the command line. Pictures are drawn.
`tests/test_documents.py` fails when a document has drifted.
"""

from __future__ import annotations

import sys

from docs.documents import PARTS, record, render

if __name__ == "__main__":
    verb, *parts = sys.argv[1:] or [""]
    if verb == "record" and set(parts) <= set(PARTS):
        record(*parts)
    elif verb == "render" and not parts:
        render()
    else:
        sys.exit(f"usage: python -m docs record [{'|'.join(PARTS)}] or python -m docs render")
