"""`offramp study`: its verbs, what they print where, and with which code they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.command_line import Run
from tests.study.tiny import names, write_study

from offramp.study.runner import studies


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A study of one run and its results."""
    from offramp.study import runner as study

    home = tmp_path_factory.mktemp("made")
    folder = write_study(home / "studies", study={"note": "It differs in this."})
    study.run(study.load_study(str(folder)), "smoke", home / "results", threads=1)
    return folder, home / "results"


def test_list_names_every_study_with_its_place(offramp: Run) -> None:
    ran = offramp("study", "list")
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in ran.out.splitlines()] == studies()
    assert "ACL, Table 1: " in ran.out


def test_list_as_json_counts_the_runs_of_every_scale(offramp: Run) -> None:
    found = [json.loads(line) for line in offramp("study", "list", "--json").out.splitlines()]
    assert [each["name"] for each in found] == studies()
    assert all(each["runs"].keys() == {"smoke", "cpu", "paper"} for each in found)


def test_run_makes_what_is_missing_with_progress_on_standard_error(offramp: Run, tmp_path: Path) -> None:
    folder, results = write_study(tmp_path / "studies"), tmp_path / "results"
    asked = ("study", "run", folder, "--scale", "smoke", "--results", results, "--threads", 1)
    ran = offramp(*asked, "--limit", 1)
    assert ran.code == 0
    assert ran.out == f"1 runs made, 0 shared with other studies, 0 there before, 1 missing\nresults {results}\n"
    assert ran.err.splitlines()[0] == "tiny at the scale smoke: 2 runs, 0 there, 2 to make"
    assert ran.err.splitlines()[1].startswith("[1/1] ce--sst2--s0  accuracy 0.")
    ran = offramp(*asked, "--json", "--only", "scl/*")
    assert json.loads(ran.out)["made"] == 1
    assert names(results) == ["tiny/smoke/ce--sst2--s0.json", "tiny/smoke/scl--sst2--s0.json"]


def test_table_prints_markdown_or_a_page(offramp: Run, made: tuple[Path, Path], tmp_path: Path) -> None:
    where = (made[0], "--scale", "smoke", "--results", made[1])
    ran = offramp("study", "table", *where)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("## tiny\n\nACL, Table 9: What is asked? Scale smoke, 1 seed;")
    assert ran.out.endswith("It differs in this.\n")
    assert "| CE + SCL | " in ran.out
    assert "alignment" in offramp("study", "table", *where, "--geometry").out
    page = tmp_path / "deep" / "table.html"
    assert offramp("study", "table", *where, "--html", "--out", page).out == ""
    assert page.read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(("suffix", "begins"), [("svg", b"<svg"), ("png", b"\x89PNG")])
def test_figure_writes_a_file(
    offramp: Run, made: tuple[Path, Path], tmp_path: Path, suffix: str, begins: bytes
) -> None:
    out = tmp_path / f"figure.{suffix}"
    ran = offramp("study", "figure", made[0], "--scale", "smoke", "--results", made[1], "--out", out)
    assert (ran.code, ran.out) == (0, f"figure {out}\n")
    assert out.read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "acl-tabel1"), "error: `acl-tabel1` is not a known study. Did you mean 'acl-table1'"),
        (("run", "acl-table1", "--scale", "smal"), "error: `smal` is not a known scale."),
        (("run", "acl-table1", "--jobs", 0), "error: `jobs` should be 1 or more"),
        (
            ("run", "acl-table1", "--only", "nobody"),
            "error: `nobody` is not a known variant of acl-table1.",
        ),
        (("table", "acl-table1", "--results", "nowhere"), "error: `nowhere` should hold results of acl-table1"),
        (("figure", "acl-table1", "--out", "a.pdf"), "error: `--out` should be a file that ends in .svg or .png."),
    ],
)
def test_misuse_is_a_sentence_and_code_2(
    offramp: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[object, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = offramp("study", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(words)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(offramp: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    study, file = write_study(tmp_path), tmp_path / "file"
    ran = offramp("study", "run", study, "--scale", "smoke", "--results", file, "--threads", 1)
    assert ran.code == 2
    sentences = ran.err.splitlines()
    assert sentences[-1].startswith("error: The folder for results should be writable. Found ")
    assert len(sentences) == 2  # after the plan: nothing is begun
