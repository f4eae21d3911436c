"""STATES -> REPRESENTATION, LOGITS AT EACH DEPTH: the exits by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from transformers import PreTrainedConfig

from offramp.encoder.layers import family_of
from offramp.exits.base import Exit
from offramp.exits.fusion import FusionExit
from offramp.exits.leam import LeamExit
from offramp.exits.linear import LinearExit
from offramp.exits.lsan import LsanExit
from offramp.exits.match import MatchExit
from offramp.exits.mha import MhaExit
from offramp.exits.residual import ResidualExit

if TYPE_CHECKING:
    from offramp.exits.model import MultiExitConfig


def _linear(config: MultiExitConfig, inner: PreTrainedConfig) -> Exit:
    activation, projection = family_of(inner).pool_activation, config.exit_projection
    exit = LinearExit(inner.hidden_size, len(config.labels), config.exit_dropout, activation, projection)
    return _reading(config, exit)


def _mha(config: MultiExitConfig, inner: PreTrainedConfig) -> Exit:
    return MhaExit(inner.hidden_size, len(config.labels), config.exit_size, config.exit_heads, config.exit_dropout)


def _residual(config: MultiExitConfig, inner: PreTrainedConfig) -> Exit:
    return ResidualExit(inner.hidden_size, len(config.labels), config.exit_size, config.exit_heads, config.exit_dropout)


def _match(config: MultiExitConfig, inner: PreTrainedConfig) -> Exit:
    classes, temperature = len(config.labels), config.exit_temperature
    exit = MatchExit(inner.hidden_size, classes, temperature, config.exit_dropout, config.exit_projection)
    return _reading(config, exit)


def _fusion(config: MultiExitConfig, inner: PreTrainedConfig) -> Exit:
    classes, window = len(config.labels), config.exit_window
    return FusionExit(inner.hidden_size, classes, window, config.exit_temperature, config.exit_dropout)


def _leam(config: MultiExitConfig, inner: PreTrainedConfig) -> Exit:
    return LeamExit(inner.hidden_size, len(config.labels), config.exit_window, config.exit_dropout)


def _lsan(config: MultiExitConfig, inner: PreTrainedConfig) -> Exit:
    return LsanExit(inner.hidden_size, len(config.labels), config.exit_size, config.exit_dropout)


def _reading(config: MultiExitConfig, exit: Exit) -> Exit:
    exit.reads = config.exit_reads
    return exit


EXITS: dict[str, Callable[[MultiExitConfig, PreTrainedConfig], Exit]] = {
    "linear": _linear,
    "mha": _mha,
    "residual": _residual,
    "match": _match,
    "fusion": _fusion,
    "leam": _leam,
    "lsan": _lsan,
}
"""Names to the functions that build one exit for a backbone of this configuration."""
