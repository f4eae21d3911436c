"""TEXT -> TOKENS, presence: whether a source is there, told before anything is loaded that would read it."""

from __future__ import annotations

from offramp.data.files import existing, not_found, path_of, remote
from offramp.data.rows import dataset_name, reader_of
from offramp.data.task_rows import is_task


def check_data(source: str | None) -> None:
    """Refuse labelled texts that `read` would not find on this machine; a name on the hub may be there."""
    if source is None or is_task(source) or remote(source):
        return
    if reader_of(source) is None or path_of(source).is_dir():
        dataset_name(source)
    else:
        existing(path_of(source))


def check_texts(source: str) -> None:
    """Refuse a file of texts that `stream` would not find; `-` is standard input."""
    if source != "-" and not is_task(source) and not remote(source) and not path_of(source).exists():
        raise not_found(path_of(source))
