"""The texts of a run: those to learn from, those that choose the epoch, and others that are scored once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from offramp.config import Config
from offramp.data.labels import Labels
from offramp.data.sampling import stratified_sample
from offramp.data.seen import digests, unseen
from offramp.data.sources import Table
from offramp.data.tasks import load_task, task
from offramp.errors import ConfigError, DataError
from offramp.optimise.run_folder import fingerprint
from offramp.preparation import divide, scored
from offramp.study.drawn import drawn_table
from offramp.types import Example


@dataclass(frozen=True)
class Texts:
    """A task's texts under a protocol."""

    config: Config  # with which they are trained on
    train: Table
    validation: Table | None  # None: a part of `train` is held out
    test: Table

    @cached_property
    def divided(self) -> tuple[Labels, list[Example], list[Example]]:
        """The labels, the texts that a run learns from, and those that choose its epoch."""
        return divide(self.train, self.validation, self.config)

    def unseen_by(self, before: Texts) -> Texts:
        """The same, but that what another training, before this one, has seen is not scored."""
        _, learn, held = before.divided
        rows = unseen(digests([*learn, *held]), self.test.examples)[0]
        if not rows:
            raise DataError(
                f"Some texts of {self.test.name} should be new to the model that goes on from another task. Found "
                f"that it has learnt all {len(self.test.examples)} of them there."
            )
        return replace(self, test=self.test.keep(rows))

    def sizes(self) -> dict[str, int]:
        """How many texts there are of each kind."""
        _, learn, held = self.divided
        return {"n_train": len(learn), "n_validation": len(held), "n_test": len(self.test.examples)}

    def hashes(self) -> dict[str, str]:
        """A hash of the texts and labels of each kind."""
        _, learn, held = self.divided
        parts = {"train": learn, "validation": held, "test": self.test.examples}
        return {name: fingerprint(examples) for name, examples in parts.items()}


def texts_of(
    name: str, data: str, config: Config, test_cap: int = 0, validation_cap: int = 0, held_out: int = 0
) -> Texts:
    """The texts of a task, real or drawn, and the configuration that trains on them.

    At most so many texts are scored, and of a validation file choose the epoch: the same ones for every run. Where the
    protocol divides the validation file, it is divided here, and training is given the part that chooses the epoch.
    Where `held_out` is a number, so many texts of the training file are scored, the same ones for every run, in the
    place of the test file's: what is chosen by such scores has not seen the test.
    """
    train, plain = _split(name, "train", data), config.protocol.split != "scl"
    whole = _split(name, task(name).test if plain else "validation", data)
    # A text is learnt from once, and not at all where it is scored or chooses the epoch; most data sets repeat a few.
    train = train.keep(unseen(digests(whole.examples), train.examples)[0])
    if held_out:
        return _held_out(train, config, held_out)
    if plain:
        return Texts(config, train, None, _capped(scored(whole, train, config), test_cap))
    # Of who is held out; noise is for the texts to learn from, and may take long.
    calm = replace(config.protocol, label_noise=0.0, word_dropout=0.0, word_swap=0.0, back_translation="")
    held = replace(whole, examples=divide(train, whole, replace(config, protocol=calm))[2], numbers=())
    test = scored(whole, train, config)
    # A validation file repeats a text now and then: one that is scored chooses no epoch.
    held = held.keep(unseen(digests(test.examples), held.examples)[0])
    undivided = replace(config, protocol=replace(config.protocol, split="none"))
    return Texts(undivided, train, _capped(held, validation_cap), _capped(test, test_cap))


def _held_out(train: Table, config: Config, count: int) -> Texts:
    """So many of the training texts to be scored, the others to learn from."""
    if config.protocol.split == "scl":
        raise ConfigError("`held_out` should not stand with `protocol.split = scl`, which scores validation texts.")
    if count >= len(train.examples):
        raise DataError(f"`held_out` should leave texts to learn from. Found {count} of {len(train.examples)}.")
    test = _capped(train, count)
    learn = train.keep(unseen(digests(test.examples), train.examples)[0])
    return Texts(config, learn, None, scored(test, learn, config))


def _capped(table: Table, most: int) -> Table:
    """At most so many texts, drawn so that the shares of the labels stay."""
    if not 0 < most < len(table.examples):
        return table
    numbers = Labels.of(table.labels, table.name).encode(table.labels)
    return table.keep(sorted(stratified_sample(numbers, most, torch.Generator().manual_seed(0))))


def _split(name: str, split: str, data: str) -> Table:
    return drawn_table(task(name), split) if data == "drawn" else load_task(name, split)
