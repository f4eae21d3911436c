"""What the documents show, recorded and rendered."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from docs import benchmarks, cluster, faults, pictures, results, verbs
from offramp.config import describe
from offramp.demo import data_file

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "results" / "readme.json"
STUDIED = {"which-objective": ("objectives", "paper-values"), "strategies": ("strategies",)}
"""Pages with tables of studies in them."""
BUILT_IN = {"sequence-labelling": ("tagged_desk", "acl-tags"), "multi-label": ("mixed_desk", "acl-multi-label")}
"""Pages that tell what a recipe reaches on built-in messages, with the messages and the recipe."""
ALLOWED = "0.05"
QUESTION = "my doorbell was fine until the update, now the app says it is offline"


def record(*parts: str) -> None:
    """Run the README's commands, or the named ones, and keep what they printed."""
    found = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
    for part in parts or PARTS:
        found |= PARTS[part]()
        RECORDED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    render()


def _record_demo() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        demo = _run([sys.executable, "-m", "offramp", "demo", "--out", "offramp-demo"], folder)
        answer = _run([sys.executable, "-m", "offramp", "predict", "offramp-demo", "--json"], folder, QUESTION)
    return {"demo": demo, "predict": answer}


def _record_reached() -> dict[str, str]:
    return {page: _reached(*given) for page, given in BUILT_IN.items()}


def _reached(messages: str, recipe: str) -> str:
    """What `evaluate` prints of a model of a recipe that was trained and calibrated on built-in messages."""
    parts = ("train", "validation", "calibration", "test")
    train, validation, calibration, test = (data_file(part, messages) for part in parts)
    held_out = ["--validation", str(validation)] if validation.exists() else []
    offramp = [sys.executable, "-m", "offramp"]
    with tempfile.TemporaryDirectory() as folder:
        _run([*offramp, "train", str(train), *held_out, "--out", "model", "--recipe", recipe], folder)
        _run([*offramp, "calibrate", "model", str(calibration), "--max-drop", ALLOWED], folder)
        return _run([*offramp, "evaluate", "model", str(test)], folder)


PARTS = {"demo": _record_demo, "reached": _record_reached}


def render() -> None:
    """Write every rendered document."""
    for file, text in rendered().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


def rendered() -> dict[Path, str]:
    """Each rendered document with the text it should have."""
    readme = ROOT / "README.md"
    text = readme.read_text("utf-8")
    recorded = json.loads(RECORDED.read_text("utf-8"))
    blocks = {
        "demo": f"$ make demo\n{recorded['demo'].rstrip()}",
        "predict": f'$ echo "{QUESTION}" | offramp predict offramp-demo --json\n{recorded["predict"].rstrip()}',
    }
    for name, block in blocks.items():
        text = _filled(text, name, f"```text\n{block}\n```")
    text = _filled(text, "results", f"\n{results.summary()}\n")
    text = _filled(text, "speed", f"\n{benchmarks.speed()}\n")
    pages = {page: {name: results.tables_of(name) for name in names} for page, names in STUDIED.items()}
    return {
        readme: text,
        **{_page(name): _with(name, blocks) for name, blocks in pages.items()},
        _page("studies"): _with("studies", {"studies": results.listing()}),
        **{_page(name): _with(name, {"reached": _told(recorded.get(name))}) for name in BUILT_IN},
        _page("ray"): _with("ray", {"cost": cluster.cost()}),
        _page("settings"): _settings(),
        _page("results"): results.document(),
        _page("benchmarks"): benchmarks.document(),
        _page("faults"): faults.document(),
        _page("verbs"): verbs.document(),
        **{ROOT / "docs" / place: drawn for place, drawn in (results.figures() | pictures.drawn()).items()},
    }


def _told(printed: str | None) -> str:
    if printed is None:
        return "Not recorded yet: `python -m docs record reached`."
    return f"```text\n{printed.rstrip()}\n```"


def _page(name: str) -> Path:
    return ROOT / "docs" / f"{name}.md"


def _with(page: str, blocks: dict[str, str]) -> str:
    text = _page(page).read_text("utf-8")
    for name, block in blocks.items():
        text = _filled(text, name, f"\n{block}\n")
    return text


def _filled(text: str, name: str, block: str) -> str:
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"The document should have the marks {begin} and {end}.")
    return pattern.sub(lambda _: f"{begin}\n{block}\n{end}", text)


def _settings() -> str:
    lines = [
        "# Settings",
        "",
        "Every field of a recipe, with its default. `--set FIELD=VALUE` changes one; `offramp recipes NAME` shows a",
        "recipe with all fields written out. This page is rendered from the configuration itself.",
    ]
    stage = ""
    for key, (default, help_text) in describe().items():
        if key.partition(".")[0] != stage:
            stage = key.partition(".")[0]
            lines += ["", f"## {stage}", "", "| field | default | what it says |", "| --- | --- | --- |"]
        shown = json.dumps(list(default) if isinstance(default, tuple) else default)
        lines.append(f"| `{key}` | `{shown}` | {help_text} |")
    return "\n".join(lines) + "\n"


def _run(command: list[str], folder: str, given: str | None = None) -> str:
    done = subprocess.run(command, cwd=folder, input=given, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout
