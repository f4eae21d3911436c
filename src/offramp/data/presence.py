"""TEXT -> TOKENS, presence: whether a source is there, told before anything is loaded that would read it."""

from __future__ import annotations

from offramp.data.files import existing, path_of, remote
from offramp.data.rows import dataset_name, reader_of
from offramp.data.task_rows import is_task
from offramp.errors import DataError, near_names


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
    if source == "-" or is_task(source) or remote(source):
        return
    path = path_of(source)
    if not path.exists() and any(mark.isspace() for mark in source) and not near_names(path):
        raise DataError(
            f"Texts should stand in a file or on standard input. Found no file `{source}`. Where it is a text itself: "
            f'echo "{source}" | offramp predict MODEL'
        )
    existing(path)
