"""TEXT -> TOKENS, files: a file's lines, and how files and values are named in messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from offramp.errors import DataError, near_names


def opened(source: str | Path) -> IO[bytes]:
    """A binary handle on a local or remote file."""
    try:
        if not remote(source):
            return existing(path_of(source)).open("rb")
        from huggingface_hub import HfFileSystem

        handle: IO[bytes] = HfFileSystem().open(str(source), "rb")
        return handle
    except DataError:
        raise
    except Exception as error:  # the hub's errors are not all OSError
        raise DataError(f"`{source}` should be a file that can be read. Found: {error}.") from error


def file_lines(source: str | Path) -> Iterator[str]:
    """A file's lines."""
    with opened(source) as handle:
        yield from lines_of(handle, name_of(source))


def lines_of(handle: Iterable[str | bytes], name: str) -> Iterator[str]:
    """Lines with their line ends, the byte order mark removed."""
    number, place = 0, "line 1"
    try:
        for number, raw in enumerate(handle, 1):
            place = f"line {number}"
            line = raw.decode() if isinstance(raw, bytes) else raw
            yield line.removeprefix("\ufeff") if number == 1 else line
            place = f"after line {number}"  # a text handle decodes ahead
    except UnicodeDecodeError as error:
        found = f"0x{error.object[error.start]:02x}"
        raise DataError(
            f"A file should be UTF-8. Found the byte {found} in {name}, {place}. Save the file as UTF-8."
        ) from None


def without_end(lines: Iterator[str]) -> Iterator[str]:
    """The lines without the blank ones at the end."""
    blank: list[str] = []
    for line in lines:
        if not line.strip():
            blank.append(line)
        else:
            yield from blank
            blank.clear()
            yield line


def remote(source: str | Path) -> bool:
    """Whether the source is a file on the hub."""
    return str(source).startswith("hf://")


def path_of(source: str | Path) -> Path:
    """The source as a path that can be looked up."""
    try:
        path = Path(source).expanduser()
        path.exists()  # raises where the path is too long or a folder on the way may not be entered
        return path
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"Data should be a path or a name that can be looked up. Found {shown(source)}: {error}."
        ) from error


def existing(path: Path) -> Path:
    """The path, if there is something."""
    if not path.exists():
        raise not_found(path)
    return path


def name_of(source: str | Path) -> str:
    """What a source is called in messages."""
    return str(source) if remote(source) else Path(source).name


def handle_name(handle: object) -> str:
    """What an open handle is called in messages."""
    name = getattr(handle, "name", None)
    return Path(name).name if isinstance(name, str) and name != "<stdin>" else "standard input"


def listed(columns: Sequence[str]) -> str:
    """Column names for a message."""
    return "the columns " + ", ".join(f"`{column}`" for column in columns) if columns else "no columns"


def shown(value: object) -> str:
    """A value for a message, cut short."""
    written = repr(value)
    return f"{written if len(written) <= 60 else written[:57] + '...'} ({type(value).__name__})"


def not_found(path: Path) -> DataError:
    """The error for a path where nothing is."""
    return DataError(f"File not found: `{path}`. Check the path.{near_names(path)}")


def empty_source(name: str) -> DataError:
    """The error for a source without rows."""
    return DataError(f"Data should hold at least one row. Found {name} to be empty. Check the source.")
