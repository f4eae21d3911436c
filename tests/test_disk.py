from __future__ import annotations

import os
from pathlib import Path

import pytest

from offramp.disk import replace_file


@pytest.mark.parametrize("contents", [("one\n", "", "two\nthree\n"), (b"\xff\x00", b"", "größer")])
def test_a_file_is_replaced_whole(tmp_path: Path, contents: tuple[bytes | str, ...]) -> None:
    file = tmp_path / "log.jsonl"
    for content in contents:
        replace_file(file, content)
        assert file.read_bytes() == (content.encode() if isinstance(content, str) else content)
        assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_who_is_stopped_before_the_end_has_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "facts.json"
    replace_file(file, "old")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, killed)
            with pytest.raises(KeyboardInterrupt):
                replace_file(file, "new")
        assert file.read_text("utf-8") == "old"
