"""Who may import whom, what `import offramp` costs, and what a file must say of itself."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import offramp

ROOT = Path(offramp.__file__).parent

STAGES = {
    "data": "TEXT -> TOKENS",
    "encoder": "TOKENS -> LAYER STATES",
    "exits": "STATES -> REPRESENTATION, LOGITS AT EACH DEPTH",
    "objectives": "REPRESENTATION, LOGITS -> LOSS",
    "optimise": "LOSS -> PARAMETERS",
    "policies": "LOGITS SO FAR -> LEAVE OR STAY",
    "report": "DECISIONS -> NUMBERS, PICTURES",
    "runtime": "MODEL -> FAST MODEL",
    "serve": "MODEL -> PEOPLE",
}
"""The folders the data flows through, from left to right, and what each makes of it."""

ABOVE = {"cluster", "study", "verbs"}
"""Folders that sit on top of the stages."""

BASE = {"__init__", "config", "disk", "errors", "lock", "reading", "sealed", "types"}

MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "types": set(),
    "reading": set(),
    "config": {"errors"},
    "disk": set(),
    "lock": {"errors"},
    "sealed": set(),
    "data": BASE,
    "encoder": BASE | {"data"},
    "exits": BASE | {"encoder"},
    "objectives": {"errors", "reading", "types"},
    "optimise": BASE | {"data", "exits", "objectives"},
    "policies": {"errors", "reading", "types"},
    "report": BASE | {"data", "encoder", "exits", "objectives", "policies"},
    "runtime": BASE | {"data", "exits", "policies"},
    "serve": BASE | {"classifier", "data", "optimise", "policies", "report", "runtime"},
    # on top of the stages
    "sample_weights": BASE | {"data", "optimise"},
    "preparation": BASE | {"data", "exits", "objectives"},
    "calibration": BASE | {"data", "policies", "runtime"},
    "speed_curve": BASE | {"data", "report", "runtime"},
    "beginning": BASE | {"data", "encoder", "exits", "optimise", "preparation"},
    "growing": BASE | {"data", "encoder"},
    "autoload": set(),
    "model_card": BASE | {"classifier", "encoder", "optimise", "report"},
    "hub": BASE | {"classifier", "exits", "model_card", "runtime"},
    "hugging_face": BASE | set(STAGES) - {"serve"} | {"beginning", "classifier", "preparation"},
    "classifier": BASE
    | set(STAGES) - {"serve"}
    | {"beginning", "calibration", "growing", "preparation", "sample_weights", "speed_curve"},
    "cluster": BASE | {"classifier", "data", "runtime"},
    "progress": BASE,
    "spaces": BASE,
    "trials": BASE | {"cluster", "data", "optimise"},
    "tuning": BASE | {"classifier", "cluster", "data", "exits", "optimise", "report", "spaces", "trials"},
    "demo": set(),
    "answers": BASE | {"runtime"},
    "process": {"errors"},
    "study": BASE | set(STAGES) - {"serve"} | {"classifier", "cluster", "preparation"},
    "verbs": BASE
    | set(STAGES) - {"serve"}
    | {"answers", "classifier", "cluster", "demo", "hub", "model_card", "progress", "spaces", "tuning"},
    "cli": BASE | {"process", "serve", "study", "verbs"},
    "__main__": {"cli"},
}
"""For each folder and module: which others of ours it may import. Its own folder is always allowed."""

LIBRARIES: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "config": set(),
    "disk": set(),
    "lock": set(),
    "sealed": set(),
    "demo": set(),
    "types": {"torch"},
    "reading": {"torch"},
    "objectives": {"torch"},
    "policies": {"torch"},
}
"""Where it is told: which libraries besides Python's own may be imported."""

CALIBRATION = ("bounds", "calibrate", "certificate", "evidence", "logistic", "path", "selection", "terms")
ALSO = {f"offramp.policies.{name}": {"numpy", "scipy", "mapie", "sklearn"} for name in CALIBRATION}
"""And single files: what chooses thresholds and fits policies; a policy that runs needs none of it."""

FILES = sorted(ROOT.rglob("*.py"))


def part(module: str) -> str:
    """The folder or module right below `offramp` that a dotted name lies in."""
    _, _, rest = module.partition(".")
    return rest.partition(".")[0] or "__init__"


def name_of(file: Path) -> str:
    """`offramp.exits.model` for `src/offramp/exits/model.py`; a folder's `__init__` has the folder's name."""
    parts = ("offramp", *file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, package: str) -> Iterator[str]:
    """Dotted names of all modules a source imports: at the top, in functions, for type checkers, by name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            if base != "offramp":
                yield base
                continue
            for alias in node.names:
                # `from offramp import x`: a module, a lazy public name, or something of `__init__` itself.
                yield offramp._HOMES.get(alias.name, f"offramp.{alias.name}" if _is_module(alias.name) else "offramp")
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield str(node.args[0].value)


def _is_module(name: str) -> bool:
    return (ROOT / f"{name}.py").is_file() or (ROOT / name / "__init__.py").is_file()


def imported(file: Path) -> set[str]:
    name = name_of(file)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    return set(imports(file.read_text("utf-8"), package))


def test_the_reader_of_imports_sees_them_wherever_they_hide() -> None:
    source = """
from __future__ import annotations
import offramp.report.page as page, torch
from offramp.exits.model import build
from offramp import Classifier, __version__, config
from . import figures
from ..runtime import torch_engine
if TYPE_CHECKING:
    from offramp.optimise.loop import Loop
def late():
    import transformers.utils
    importlib.import_module("offramp.cli")
    "from offramp import nothing"
"""
    assert set(imports(source, "offramp.report")) == {
        "__future__",
        "offramp.report.page",
        "torch",
        "offramp.exits.model",
        "offramp.classifier",
        "offramp",
        "offramp.config",
        "offramp.report",
        "offramp.runtime",
        "offramp.optimise.loop",
        "transformers.utils",
        "offramp.cli",
    }


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_a_file_imports_only_what_its_stage_may(file: Path) -> None:
    own = part(name_of(file))
    found = {part(name) for name in imported(file) if name.partition(".")[0] == "offramp"} - {own}
    if own == "__init__":
        found = set()  # only for type checkers and when a name is used, which the tests below hold
    assert own in MAY_IMPORT, f"{own} should have a line in MAY_IMPORT"
    assert found <= MAY_IMPORT[own]


@pytest.mark.parametrize("file", [f for f in FILES if part(name_of(f)) in LIBRARIES], ids=name_of)
def test_what_anybody_may_use_in_a_loop_of_their_own_needs_torch_only(file: Path) -> None:
    found = {name.partition(".")[0] for name in imported(file)} - sys.stdlib_module_names - {"offramp"}
    assert found <= LIBRARIES[part(name_of(file))] | ALSO.get(name_of(file), set())


def test_the_data_flows_from_left_to_right() -> None:
    assert list(STAGES) == sorted(STAGES)
    for stage in STAGES:
        right = {other for other in STAGES if other > stage}
        assert not MAY_IMPORT[stage] & right, stage
    assert "optimise" not in MAY_IMPORT["report"]
    on_top = set(MAY_IMPORT) - BASE - set(STAGES)
    for stage in STAGES:
        assert MAY_IMPORT[stage] & on_top <= ({"classifier"} if stage == "serve" else set()), stage


def test_every_folder_with_code_is_a_stage() -> None:
    folders = {file.parent.name for file in FILES if file.parent != ROOT}
    assert folders - ABOVE <= STAGES.keys()
    assert folders >= {"data", "encoder", "exits", "objectives", "optimise", "policies", "report", "runtime"}


@pytest.mark.parametrize("file", [f for f in FILES if part(name_of(f)) in STAGES], ids=name_of)
def test_the_first_line_of_a_file_names_its_stage(file: Path) -> None:
    first = (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").partition("\n")[0]
    stage = STAGES[part(name_of(file))]
    assert first.startswith((f"{stage}: ", f"{stage}, ")), first


@pytest.mark.parametrize("file", [f for f in FILES if part(name_of(f)) not in STAGES], ids=name_of)
def test_every_other_file_says_what_it_is(file: Path) -> None:
    assert ast.get_docstring(ast.parse(file.read_text("utf-8")))


def test_no_file_is_a_drawer_for_everything() -> None:
    folders = [ROOT, *(ROOT.parents[1] / name for name in ("tests", "benchmarks", "examples", "docs"))]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    assert len(files) > len(FILES)
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [str(file) for file in files if drawers & {file.stem, file.parent.name}]


# --- what an import costs

COST = """
import json, sys
{body}
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""

HELP = """
from offramp.cli import app, main
verbs = [command.name or command.callback.__name__ for command in app.registered_commands]
assert len(verbs) > 3
groups = [group.typer_instance.registered_commands for group in app.registered_groups]
inner = [("study", command.name) for commands in groups for command in commands]
assert len(inner) > 3
for arguments in (["--help"], ["-h"], *([verb, "--help"] for verb in verbs), *([*verb, "--help"] for verb in inner)):
    sys.argv = ["offramp", *arguments]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0, arguments
"""

HEAVY = {
    "torch",
    "transformers",
    "numpy",
    "sklearn",
    "accelerate",
    "datasets",
    "pandas",
    "pyarrow",
    "matplotlib",
    "ray",
}


def loaded_by(body: str) -> set[str]:
    """The libraries a fresh Python has loaded after running this."""
    found = subprocess.run([sys.executable, "-c", COST.format(body=body)], capture_output=True, text=True, check=True)
    return set(json.loads(found.stdout.splitlines()[-1]))


def test_importing_offramp_loads_no_heavy_library() -> None:
    loaded = loaded_by("import offramp\nassert offramp.__version__")
    assert "offramp" in loaded
    assert not loaded & HEAVY


def test_help_loads_no_heavy_library() -> None:
    loaded = loaded_by(HELP)
    assert "typer" in loaded
    assert not loaded & HEAVY


TOLD_AT_ONCE = {
    "evaluate none {data}": "There is no folder `none`",
    "calibrate none {data}": "There is no folder `none`",
    "predict none {data}": "There is no folder `none`",
    "export none --out new": "There is no folder `none`",
    "serve none": "There is no folder `none`",
    "card none": "There is no folder `none`",
    "push none me/desk": "There is no folder `none`",
    "evaluate {taken} {data}": "is not an offramp model",
    "evaluate {model} none.csv": "File not found: `none.csv`",
    "calibrate {model} none.csv": "File not found: `none.csv`",
    "predict {model} none.csv": "File not found: `none.csv`",
    "predict {model} {data} --out {data}": "should not exist",
    "predict {model} {data} --out new.txt": "should be a file that ends in one of .csv, .tsv, .jsonl",
    "predict {model} none": "File not found: `none`",
    "card {model} none.csv": "File not found: `none.csv`",
    "export {model} --out new --data none.csv": "File not found: `none.csv`",
    "export {model} --out {taken}": "should be empty or not exist",
    "split none.csv --out new": "File not found: `none.csv`",
    "split {data} --out {taken}": "should be free of parts",
    "train none.csv --out new": "File not found: `none.csv`",
    "train {data} --out new --validation none.csv": "File not found: `none.csv`",
    "train {data} --out {model}": "holds a model already",
    "train {data} --out {taken}": "It holds other files",
    "train {data} --out {exported} --overwrite": "holds an exported model",
    "demo --out {taken}": "It holds other files",
    "tune none.csv --out new": "File not found: `none.csv`",
    "export {model} --out new": "pip install 'offramp[onnx]'",
    "predict {exported} {data}": "pip install 'offramp[onnx]'",
    "serve {exported}": "pip install 'offramp[onnx]'",
    "predict {model} {data} --ray --out new": "pip install 'offramp[ray]'",
    "tune {data} --out new --ray": "pip install 'offramp[ray]'",
    "study run lacon-table2 --ray": "pip install 'offramp[ray]'",
}
"""Commands that cannot work, and what they say."""

MISUSE = """
from offramp.cli import main
sys.modules["ray"] = sys.modules["onnxruntime"] = None
for command in {commands!r}:
    sys.argv = ["offramp", *command.split()]
    try:
        main()
    except SystemExit as end:
        assert end.code == 2, command
"""


def test_what_is_missing_or_taken_is_told_without_a_heavy_library(tmp_path: Path) -> None:
    folders = {"model": ["offramp.json"], "exported": ["offramp.json", "onnx.json"], "taken": ["train.csv"]}
    places = {"data": tmp_path / "data.csv", **{name: tmp_path / name for name in folders}}
    (tmp_path / "data.csv").write_text("text,label\na,b\n")
    for name, files in folders.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text("{}")
    commands = [command.format(**places) for command in TOLD_AT_ONCE]
    body = COST.format(body=MISUSE.format(commands=commands))
    ran = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    told = ran.stderr.splitlines()
    heard = zip(TOLD_AT_ONCE.items(), told, strict=True)
    assert [(command, said) for (command, words), said in heard if words not in said] == []
    assert not set(json.loads(ran.stdout)) & (HEAVY - {"ray"})
    assert not (tmp_path / "new").exists()


def test_the_costs_are_really_seen() -> None:
    assert "numpy" in loaded_by("import numpy")


def test_every_public_name_is_found_where_it_is_said_to_live() -> None:
    for name, home in offramp._HOMES.items():
        assert getattr(offramp, name) is getattr(importlib.import_module(home), name)
    assert set(offramp.__all__) == {*offramp._HOMES, "__version__"}
    with pytest.raises(AttributeError, match="no attribute 'Clasifier'"):
        _ = offramp.Clasifier
