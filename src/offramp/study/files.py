"""Studies on disk: a paper's table or figure as TOML files that say only what differs.

A study is a folder: `study.toml` tells what is shown, at which scales, on which tasks; every other file is a variant,
a row of the table or a line of the figure: the recipe it starts from, and the fields that it changes. The studies
that ship with offramp are known by their name, others by the path of their folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import fields
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from offramp.data.tasks import TASKS
from offramp.errors import ConfigError, unknown_name
from offramp.study.kinds import (
    ALONG,
    BY_LABEL,
    DATA,
    EXITS,
    HOLDS,
    MEASURES,
    METRICS,
    PROBES,
    SCALES,
    TABLES,
    VIEWS,
    Axis,
    Before,
    Claim,
    PaperScore,
    Part,
    Probe,
    Scale,
    Study,
    Variant,
)
from offramp.study.reader import Reader, known, settings

STUDY_KEYS = {f.name for f in fields(Study)} - {"name", "variants", "columns"}
COLUMNS = (*METRICS, *BY_LABEL)
SCALE_KEYS = {f.name for f in fields(Scale)} - {"name", "settings"} | {"set"}
VARIANT_KEYS = {f.name for f in fields(Variant)} - {"name", "before", "tables", "parts"} | {"scales", "backbone_after"}


def studies() -> list[str]:
    """The names of the studies that ship with offramp."""
    home = resources.files("offramp") / "studies"
    if not home.is_dir():
        return []
    return sorted(entry.name for entry in home.iterdir() if (entry / "study.toml").is_file())


def load_study(name: str) -> Study:
    """The study of this name, or in this folder, checked."""
    if name in studies():
        return read_study(resources.files("offramp") / "studies" / name)
    folder = Path(name)
    if (folder / "study.toml").is_file():
        return read_study(folder)
    if folder.is_dir():
        raise ConfigError(f"The folder of a study should hold `study.toml`. Found none in `{folder}`.")
    raise unknown_name("study", name, studies())


def read_study(folder: Traversable) -> Study:
    """The study in a folder."""
    reader = _read(folder / "study.toml", folder.name)
    reader.allow(STUDY_KEYS)
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    variants = [_variant(_read(folder / file, folder.name), file) for file in files if file != "study.toml"]
    names = [variant.name for variant in variants]
    if not names:
        raise ConfigError(f"A study should have a file for each variant. Found none in `{folder.name}`.")
    baseline = reader.text("baseline", "")
    known(f"variant, which {reader.file} names as its baseline", [baseline] if baseline else [], names)
    metrics = reader.inner("metrics")
    known(f"task in {metrics.file}", metrics.tree, TASKS)
    study = Study(
        name=folder.name,
        about=reader.text("about"),
        paper=reader.text("paper", ""),
        place=reader.text("place", ""),
        view=reader.choice("view", VIEWS, "scores"),
        scales=_scales(reader),
        variants=tuple(sorted(variants, key=lambda variant: (variant.order, variant.name))),
        baseline=baseline,
        metric=reader.choice("metric", METRICS) if isinstance(reader.tree.get("metric"), str) else "",
        columns=() if isinstance(reader.tree.get("metric"), str) else reader.names("metric", "metric", COLUMNS),
        metrics={task: metrics.choice(task, METRICS) for task in metrics.tree},
        exit=_exit(reader) or "last",
        note=reader.text("note", "").strip(),
        axis=_axis(reader),
        probe=_probe(reader) or Probe(),
        paper_scores=tuple(_paper_score(inner, names) for inner in reader.inners("paper_scores")),
        claims=tuple(_claim(inner, names) for inner in reader.inners("claims")),
    )
    _check_axes(study, reader.file)
    return study


def _scales(reader: Reader) -> dict[str, Scale]:
    tables = reader.inner("scales")
    tables.allow(SCALES)
    missing = [name for name in SCALES if not tables.has(name)]
    if missing:
        raise ConfigError(f"{reader.file} should have the scales {', '.join(SCALES)}. Missing: {', '.join(missing)}.")
    return {name: _scale(name, tables.inner(name)) for name in SCALES}


def _scale(name: str, reader: Reader) -> Scale:
    reader.allow(SCALE_KEYS)
    overrides = reader.inner("tasks_set")
    known(f"task in {overrides.file}", overrides.tree, TASKS)
    tasks = reader.names("tasks", "task", TASKS)
    if not tasks:
        raise ConfigError(f"{reader.file} should name its tasks in `tasks`. Found none.")
    return Scale(
        name=name,
        tasks=tasks,
        seeds=reader.seeds("seeds", 1),
        values=reader.values("values"),
        axis=_axis(reader),
        settings=reader.settings("set"),
        tasks_set={task: overrides.settings(task) for task in overrides.tree},
        backbone=reader.text("backbone", ""),
        data=reader.choice("data", DATA, "real"),
        test_cap=reader.whole("test_cap", 0),
        validation_cap=reader.whole("validation_cap", 0),
        held_out=reader.whole("held_out", 0),
        probe_batches=reader.whole("probe_batches", 0),
    )


def _variant(reader: Reader, file: str) -> Variant:
    reader.allow([*VARIANT_KEYS, *TABLES])
    name = file.removesuffix(".toml")
    scales = reader.inner("scales")
    scales.allow(SCALES)
    return Variant(
        name=name,
        label=reader.text("label", name),
        recipe=reader.recipe("recipe"),
        paper_recipe=reader.recipe("paper_recipe", ""),
        about=reader.text("about", ""),
        order=reader.whole("order", 0),
        only=reader.names("only", "scale", SCALES),
        skip=reader.names("skip", "scale", SCALES),
        tasks=reader.names("tasks", "task", TASKS),
        values=reader.values("values"),
        exit=_exit(reader),
        axis=_axis(reader),
        probe=_probe(reader),
        before=_before(reader),
        tables={key: dict(reader.inner(key).tree) for key in reader.tree if key in TABLES},
        parts={scale: _part(scales.inner(scale)) for scale in scales.tree},
    )


def _part(reader: Reader) -> Part:
    reader.allow(["set", "tasks", "values", "seeds", "tasks_seeds"])
    by_task = reader.inner("tasks_seeds")
    known(f"task in {by_task.file}", by_task.tree, TASKS)
    return Part(
        settings=reader.settings("set"),
        tasks=reader.names("tasks", "task", TASKS),
        values=reader.values("values"),
        seeds=reader.seeds("seeds"),
        tasks_seeds={task: by_task.seeds(task) for task in by_task.tree},
    )


def _before(reader: Reader) -> Before | None:
    if not reader.has("backbone_after"):
        return None
    inner = reader.inner("backbone_after")
    inner.allow(["task", "recipe", "paper_recipe", "set"])
    task = inner.choice("task", TASKS)
    return Before(task, inner.recipe("recipe"), inner.recipe("paper_recipe", ""), inner.settings("set"))


def _axis(reader: Reader) -> Axis | None:
    if not reader.has("axis"):
        return None
    inner = reader.inner("axis")
    inner.allow(["field", "name"])
    given = inner.values("field") if isinstance(inner.tree.get("field"), list) else (inner.text("field"),)
    names = tuple(str(field) for field in given)
    known(f"field in {inner.file}", names, settings())
    return Axis(names, inner.text("name", names[0]))


def _probe(reader: Reader) -> Probe | None:
    if not reader.has("probe"):
        return None
    inner = reader.inner("probe")
    inner.allow(["objective", "batches"])
    return Probe(inner.choice("objective", PROBES), inner.whole("batches", Probe.batches))


def _exit(reader: Reader) -> str | int:
    """A depth, or a name; empty where nothing is said."""
    found = reader.value("exit")
    if found is None:
        return ""
    if isinstance(found, int) and found > 0:
        return found
    known(f"value of `exit` in {reader.file}, nor a depth", [str(found)], EXITS)
    return str(found)


def _paper_score(reader: Reader, variants: Sequence[str]) -> PaperScore:
    reader.allow(["variant", "task", "value", "metric", "score", "deviation"])
    variant, task = reader.choice("variant", variants), reader.choice("task", TASKS)
    deviation = reader.number("deviation") if reader.has("deviation") else None
    metric = reader.choice("metric", COLUMNS) if reader.has("metric") else ""
    return PaperScore(variant, task, reader.number("score"), reader.value("value"), deviation, metric)


def _claim(reader: Reader, variants: Sequence[str]) -> Claim:
    reader.allow([f.name for f in fields(Claim)])
    return Claim(
        says=reader.text("says"),
        first=reader.choice("first", variants),
        second=reader.choice("second", variants),
        holds=reader.choice("holds", HOLDS, Claim.holds),
        along=reader.choice("along", ALONG, Claim.along),
        measure=reader.choice("measure", MEASURES, Claim.measure),
        exit=_exit(reader),
        metric=reader.choice("metric", COLUMNS) if reader.has("metric") else "",
        beyond=reader.choice("beyond", COLUMNS) if reader.has("beyond") else "",
        own=reader.flag("own"),
    )


def _check_axes(study: Study, file: str) -> None:
    """Where something is swept there should be values for it, and values should sweep something."""
    for scale in study.scales.values():
        for variant in study.variants:
            if not variant.takes_part(scale.name):
                continue
            axis, values = study.axis_of(variant, scale), variant.part(scale.name).values or scale.values
            if bool(values) != (axis is not None):
                found = "values without an [axis]" if values else "an [axis] without values"
                raise ConfigError(
                    f"{file} should have `values` where it has an [axis]. Found {found}, at the scale `{scale.name}` "
                    f"for the variant `{variant.name}`."
                )
            if study.view == "curve" and axis is None:
                raise ConfigError(f"{file} should have an [axis], because its view is `curve`. Found none.")


def _read(file: Traversable, study: str) -> Reader:
    try:
        tree: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{study}/{file.name} should be TOML. Found otherwise: {error}.") from error
    return Reader(f"{study}/{file.name}", tree)
