"""A table of a study's file, whose keys and kinds are checked where they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from offramp.config import describe, recipes
from offramp.errors import ConfigError, unknown_name
from offramp.study.kinds import Value


@dataclass(frozen=True)
class Reader:
    """A table with the name under which an error speaks of it."""

    file: str
    tree: Mapping[str, Any]

    def allow(self, keys: Iterable[str]) -> None:
        """Refuse any other key."""
        known(f"key of {self.file}", self.tree, keys)

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return key in self.tree

    def text(self, key: str, default: str | None = None) -> str:
        """A text."""
        return str(self._get(key, str, "a text", default))

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number."""
        return int(self._get(key, int, "a whole number", default))

    def flag(self, key: str) -> bool:
        """Whether something is so; it is not where nothing is said."""
        return bool(self._get(key, bool, "true or false", False))

    def number(self, key: str) -> float:
        """A number."""
        return float(self._get(key, (int, float), "a number", None))

    def choice(self, key: str, names: Iterable[str], default: str | None = None) -> str:
        """One of a few names."""
        found = self.text(key, default)
        known(f"value of `{key}` in {self.file}", [found], names)
        return found

    def recipe(self, key: str, default: str | None = None) -> str:
        """The name of a recipe, or the default."""
        found = self.text(key, default)
        known(f"recipe in {self.file}", [found] if found else [], _recipes())
        return found

    def names(self, key: str, kind: str, names: Iterable[str]) -> tuple[str, ...]:
        """A list of known names; empty where the key is not there."""
        found = tuple(str(item) for item in self._get(key, list, "a list of names", []))
        known(f"{kind} in {self.file}", found, names)
        return found

    def values(self, key: str) -> tuple[Value, ...]:
        """A list of numbers or words; empty where the key is not there."""
        found = self._get(key, list, "a list of numbers or words", [])
        if any(isinstance(item, bool) or not isinstance(item, str | int | float) for item in found):
            raise ConfigError(f"`{key}` in {self.file} should hold numbers or words. Found {found!r}.")
        return tuple(found)

    def value(self, key: str) -> Value | None:
        """A number or a word; None where the key is not there."""
        return None if key not in self.tree else self._get(key, (str, int, float), "a number or a word", None)

    def seeds(self, key: str, default: int | None = None) -> tuple[int, ...]:
        """A list of seeds, or how many, from 0 on; empty where the key is not there."""
        given = self.tree.get(key, default)
        if given is None:
            return ()
        found = list(range(given)) if isinstance(given, int) and not isinstance(given, bool) else given
        whole = isinstance(found, list) and all(isinstance(seed, int) and seed >= 0 for seed in found)
        if not whole or not found or len(set(found)) < len(found):
            raise ConfigError(
                f"`{key}` in {self.file} should be a count or a list of different whole numbers. Found {given!r}."
            )
        return tuple(found)

    def settings(self, key: str) -> dict[str, Any]:
        """Dotted fields and their values; TOML reads a dotted name without quotes as a table in a table."""
        found: dict[str, Any] = {}
        for name, item in self._get(key, dict, "a table of dotted fields", {}).items():
            found |= (
                {f"{name}.{last}": value for last, value in item.items()} if isinstance(item, dict) else {name: item}
            )
        known(f"field in {self.file}", found, settings())
        return found

    def inner(self, key: str) -> Reader:
        """A table in this table; an empty one where the key is not there."""
        return Reader(f"{self.file} [{key}]", self._get(key, dict, "a table", {}))

    def inners(self, key: str) -> list[Reader]:
        """A list of tables; empty where the key is not there."""
        tables = self._get(key, list, "a list of tables", [])
        return [Reader(f"{self.file} `{key}` number {place}", inner) for place, inner in enumerate(tables, 1)]

    def _get(self, key: str, kind: type | tuple[type, ...], words: str, default: Any) -> Any:
        found = self.tree.get(key, default)
        if found is None:
            raise ConfigError(f"{self.file} should have `{key}`. Found none.")
        if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
            raise ConfigError(f"`{key}` in {self.file} should be {words}. Found {found!r}.")
        return found


@cache
def settings() -> tuple[str, ...]:
    """The dotted names of all fields of a configuration; finding them out takes long, and they do not change."""
    return tuple(describe())


@cache
def _recipes() -> tuple[str, ...]:
    return tuple(recipes())


def known(kind: str, names: Iterable[str], everything: Iterable[str]) -> None:
    """Refuse a name that is not among the known ones."""
    allowed = list(everything)
    for name in names:
        if name not in allowed:
            raise unknown_name(kind, name, allowed)
