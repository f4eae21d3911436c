"""One process at a time works in a folder; a killed one leaves no lock, and a failed one no empty folder."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from offramp.errors import UserError
from offramp.lock import Busy, held


def test_a_folder_that_is_held_is_refused_and_free_afterwards(tmp_path: Path) -> None:
    with held(tmp_path / "out"):
        with (
            pytest.raises(Busy, match=r"One process at a time should work in `.*out`\. Another one does"),
            held(tmp_path / "out"),
        ):
            pass
        assert not list((tmp_path / "out").iterdir())
    with held(tmp_path / "out"):
        pass


def test_a_process_that_is_killed_leaves_no_lock(tmp_path: Path) -> None:
    ready, told = os.pipe()
    process = os.fork()
    if not process:
        with held(tmp_path):
            os.write(told, b"!")
            signal.pause()
        os._exit(0)
    os.read(ready, 1)
    try:
        with pytest.raises(Busy), held(tmp_path):
            pass
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(ready)
        os.close(told)
    with held(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("written", [False, True])
def test_who_fails_leaves_no_folder_that_is_empty(tmp_path: Path, written: bool) -> None:
    folder = tmp_path / "a" / "b"

    def work() -> None:
        with held(folder):
            if written:
                (folder / "file").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert folder.exists() == written
    assert (tmp_path / "a").exists() == written


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    with pytest.raises(ValueError), held(tmp_path):
        raise ValueError
    assert tmp_path.is_dir()


def test_a_folder_that_was_replaced_is_locked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody removes the folder, and makes it again, between our opening it and our lock."""
    folder, opened = tmp_path / "out", os.open

    def late(path: Path, flags: int) -> int:
        handle = opened(path, flags)
        monkeypatch.setattr(os, "open", opened)
        folder.rename(tmp_path / "aside")
        folder.mkdir()
        return handle

    monkeypatch.setattr(os, "open", late)
    with held(folder), pytest.raises(Busy), held(folder):
        pass


def test_a_file_in_the_way_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="should be writable"), held(tmp_path / "file" / "out"):
        pass
