"""`--ray` on the command line: what is refused before anything is started, and what is said when Ray is absent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.command_line import Run

from offramp.cluster.options import cluster_of
from offramp.cluster.session import Cluster, connected
from offramp.errors import ConfigError, MissingExtra, UserError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["predict", "m", "t", "--out", "o"], "or come with `--ray`"),
        (["predict", "m", "t", "--ray", "--out", "o", "--overwrite"], "`--overwrite` should come with `--out FILE`"),
        (["predict", "m", "t", "--overwrite"], "`--overwrite` should come with `--out FILE`"),
        (["predict", "m", "t", "--workers", 2], "`--workers` should come with `--ray`"),
        (["predict", "m", "t", "--ray"], "`--ray` should come with `--out DIR`"),
        (["predict", "m", "t", "--ray", "--out", "o", "--workers", -1], "`workers` should be 0 or more"),
        (["tune", "t", "--out", "o", "--address", "auto"], "`--address` should come with `--ray`"),
        (["tune", "t", "--out", "o", "--threads", 2], "`--threads` should come with `--ray`"),
        (["study", "run", "acl-fig6", "--workers", 2], "`--workers` should come with `--ray`"),
    ],
)
def test_misuse_is_told_before_anything_is_begun(offramp: Run, words: list[object], message: str) -> None:
    ran = offramp(*words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_flags_become_a_cluster() -> None:
    assert cluster_of(False, None, None, 3) is None
    assert cluster_of(True, None, None, None) == Cluster("", 0, 1)
    assert cluster_of(True, "auto", 5, 2) == Cluster("auto", 5, 2)
    with pytest.raises(ConfigError, match=r"`threads` 1 or more. Found 0 and 0"):
        cluster_of(True, None, None, 0)


def test_without_ray_the_extra_is_named(
    offramp: Run, model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'offramp\[ray\]'"), connected(Cluster()):
        pass
    ran = offramp("predict", model, texts, "--ray", "--out", tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert "pip install 'offramp[ray]'" in ran.err


def test_what_answers_no_address_is_an_error_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="ray is absent; the extra `ray` brings it")

    def refused(**_: object) -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refused)
    with (
        pytest.raises(UserError, match=r"should answer at `somewhere:1`. Found: nobody there"),
        connected(Cluster("somewhere:1")),
    ):
        pass
