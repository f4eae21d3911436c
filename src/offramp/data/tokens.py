"""TEXT -> TOKENS, tokens: token ids of a whole data set in flat arrays, and padded batches of them."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from offramp.data.words import Words, begun, words_of
from offramp.errors import ConfigError, DataError, ModelError
from offramp.types import Batch, Example

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

CHUNK = 1024
"""Texts tokenised at once: only so many are ever lists of Python ints."""


class TruncationWarning(UserWarning):
    """Some texts were longer than the model takes and lost their end."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token ids of N texts, one after the other, without padding."""

    ids: Ids  # (all tokens,)
    offsets: Integers  # (N + 1,), text i has ids[offsets[i] : offsets[i + 1]]
    pad: int  # id that fills a batch
    types: Ids | None = None  # (all tokens,), for tokenizers that give token types
    labels: Integers | None = None  # (N,); of sets (N, C), 1 where a text has a label; of tags (all read words,)
    weights: Floats | None = None  # (N,), where they differ
    truncated: int = 0  # texts that were cut
    words: Words | None = None  # where words have tags

    @classmethod
    def of(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        examples: Sequence[Example],
        max_length: int,
        labels: Sequence[Any] | Integers | None = None,
        warn: bool = True,
        windows: int = 1,
        overlap: int = 0,
        tags: bool = False,
        pairs: bool | None = None,
    ) -> Tokens:
        """Tokenise texts or pairs, cut to `max_length` tokens, special tokens included; one warning counts the cuts.

        Without `warn`, the caller counts them over several calls and calls `warn_of_cuts`.

        The end of a text is cut; of a pair, the longer text first. The cut happens here, because a fast tokenizer
        that truncates also builds everything it cuts off: for pairs that grows with the square of the length.

        With several `windows`, a longer text becomes so many of them at most, each of `max_length` tokens with special
        tokens of its own, one after the other in one row; `overlap` tokens of each stand again in the next.

        With `tags` it is told which tokens begin a word; `labels` are then one for each word of each text, and those of
        words that were cut off are left out. Texts are tokenised as their words with blanks between them, so that a
        text that comes as a list of words and one that does not are read alike.

        Where `pairs` says what the model learnt, texts of the other kind are refused.
        """
        paired = _paired(examples)
        if examples and pairs is not None:
            check_kind(paired, pairs)
        if paired and windows > 1:
            raise DataError("Texts that are read in windows should be single texts. Found pairs: set data.windows=1.")
        if tokenizer.pad_token_id is None:
            raise ModelError("The tokenizer should have a padding token. Found none. Set its `pad_token`.")
        if tags and not getattr(tokenizer, "is_fast", False):
            raise ModelError(
                "The tokenizer should be a fast one, to tell where words begin. Found a slow one: choose another."
            )
        if tags and (paired or windows > 1):
            raise DataError("Texts whose words have tags should be single texts, read in one window. Found otherwise.")
        if labels is not None and len(labels) != len(examples):
            raise DataError(f"There should be one label per text. Found {len(labels)} for {len(examples)} texts.")
        least = tokenizer.num_special_tokens_to_add(pair=paired) + (2 if paired else 1)
        if max_length < least:
            raise ConfigError(
                f"`max_length` should be at least {least}, so that something of the text is left beside "
                f"the special tokens. Found {max_length}."
            )
        ids: list[Ids] = [np.empty(0, np.int32)]
        types: list[Ids] = [np.empty(0, np.int32)]
        lengths: list[Integers] = [np.zeros(1, np.int64)]
        typed, truncated = False, 0
        begin: list[Integers] = []
        counts: list[int] = []
        for start in range(0, len(examples), CHUNK):
            part = examples[start : start + CHUNK]
            words = [words_of(example) for example in part] if tags else []
            encoded = tokenizer(
                [" ".join(own) for own in words] if tags else [example.text for example in part],
                [example.pair for example in part] if paired else None,
                padding=False,
                truncation=False,
                return_special_tokens_mask=True,
                return_attention_mask=False,
                **({"return_offsets_mapping": True} if tags else {}),
                verbose=False,
            )
            typed = "token_type_ids" in encoded
            rows, row_types = encoded["input_ids"], encoded["token_type_ids"] if typed else []
            for place, row in enumerate(rows):
                if tags:
                    ends = [end for _, end in encoded["offset_mapping"][place]]
                    begin.append(begun(words[place], ends, encoded["special_tokens_mask"][place]))
                    counts.append(len(words[place]))
                if len(row) > max_length:
                    special = np.asarray(encoded["special_tokens_mask"][place])
                    if windows > 1:
                        kept, whole = in_windows(special, max_length, windows, overlap)
                        truncated += not whole
                    else:
                        kept = np.flatnonzero(_kept(special, max_length))
                        truncated += 1
                    rows[place] = np.asarray(row)[kept].tolist()
                    if tags:
                        begin[-1] = begin[-1][kept]
                    if typed:
                        row_types[place] = np.asarray(row_types[place])[kept].tolist()
            lengths.append(np.fromiter(map(len, rows), np.int64, len(rows)))
            total = int(lengths[-1].sum())
            ids.append(np.fromiter(chain.from_iterable(rows), np.int32, total))
            if typed:
                types.append(np.fromiter(chain.from_iterable(row_types), np.int32, total))
        marked = Words.of(begin, counts) if tags else None
        if warn:
            warn_of_cuts(truncated, len(examples), max_length * windows, marked.unread if marked else 0)
        if labels is not None and marked is not None:
            labels = marked.read(list(labels))
        return cls(
            ids=np.concatenate(ids),
            offsets=np.cumsum(np.concatenate(lengths)),
            pad=int(tokenizer.pad_token_id),
            types=np.concatenate(types) if typed else None,
            labels=None if labels is None else np.asarray(labels, np.int64),
            weights=_weights(examples),
            truncated=truncated,
            words=marked,
        )

    @property
    def answers(self) -> int:
        """How many answers are wanted: one for each text, or for each word that is read."""
        return len(self) if self.words is None else len(self.words.places)

    def answers_of(self, rows: Sequence[int] | Integers) -> Integers:
        """The places among all answers of those for these texts: the rows themselves, or their words'."""
        places = np.asarray(rows, np.int64)  # (B,)
        return places if self.words is None else self.words.of_texts(places)

    @cached_property
    def lengths(self) -> Integers:
        """Tokens of each text, (N,)."""
        return np.diff(self.offsets)

    def batch(self, rows: Sequence[int] | Integers) -> Batch:
        """These texts, padded on the right to the longest of them."""
        places = np.asarray(rows, np.int64)  # (B,)
        lengths = self.lengths[places]  # (B,)
        columns = np.arange(lengths.max(initial=0))  # (T,)
        mask = columns < lengths[:, None]  # (B, T)
        flat = (self.offsets[places][:, None] + columns)[mask]  # (tokens of the batch,)
        return Batch(
            input_ids=_fill(mask, self.ids[flat], self.pad),
            mask=torch.from_numpy(mask.astype(np.int64)),
            token_types=None if self.types is None else _fill(mask, self.types[flat], 0),
            labels=None if self.labels is None else torch.from_numpy(self.labels[self.answers_of(places)]),
            rows=torch.from_numpy(places.copy()),
            weights=None if self.weights is None else torch.from_numpy(self.weights[places]),
            words=None if self.words is None else _fill(mask, self.words.marks[flat], 0),
        )

    def labels_or_raise(self) -> list[Any]:
        """The class numbers of the texts or words, or rows of 0 and 1, for whoever cannot go on without them."""
        if self.labels is None:
            raise DataError("Every text should have a label here. Found texts without labels.")
        found: list[Any] = self.labels.tolist()
        return found

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.offsets) - 1


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of how texts become token ids."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    facts = dict(tokenizer.get_vocab()) if backend is None else json.loads(backend.to_str())
    for setting in ("truncation", "padding"):  # of the last call, not of the tokenizer
        facts.pop(setting, None)
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def warn_of_cuts(truncated: int, texts: int, max_length: int, unread: int = 0) -> None:
    """One warning that counts the texts that were cut, where there are any, and the words that are not read."""
    if truncated:
        message = f"{truncated} of {texts} texts are longer than {max_length} tokens and were cut."
        lost = f" {unread} of their words are not read." if unread else ""
        warnings.warn(message + lost, TruncationWarning, stacklevel=3)


def limit(tokenizer: PreTrainedTokenizerBase, config_max_positions: int | None, wanted: int) -> int:
    """The tokens a text may have: what is wanted, but no more than backbone and tokenizer take.

    `config_max_positions` is the usable number: RoBERTa's position table has pad_id + 1 rows more. None: no limit.
    """
    backbone = wanted if config_max_positions is None else config_max_positions
    return int(min(wanted, backbone, tokenizer.model_max_length))  # a tokenizer without a limit says 1e30


def in_windows(
    special: npt.NDArray[np.int64], max_length: int, windows: int, overlap: int = 0
) -> tuple[Integers, bool]:
    """The places of a text's tokens, window after window, and whether all of them found one.

    >>> in_windows(np.array([1, 0, 0, 0, 0, 0, 1]), max_length=4, windows=3)[0].tolist()
    [0, 1, 2, 6, 0, 3, 4, 6, 0, 5, 6]
    """
    ordinary = np.flatnonzero(special == 0)  # special tokens stand around them
    before, after = np.arange(ordinary[0]), np.arange(ordinary[-1] + 1, len(special))
    size = max_length - len(before) - len(after)
    if overlap >= size:
        raise ConfigError(
            f"`data.overlap` should be below {size}, the tokens of a text that a window holds. Found {overlap}."
        )
    places: list[Integers] = []
    for start in range(0, len(ordinary), size - overlap):
        part = ordinary[start : start + size]
        places += [before, part, after]
        whole = start + size >= len(ordinary)
        if whole or len(places) == 3 * windows:
            break
    return np.concatenate(places), whole


def _weights(examples: Sequence[Example]) -> Floats | None:
    """The weights of the examples, where there are any but 1."""
    given = np.fromiter((example.weight for example in examples), np.float32, len(examples))
    return None if (given == 1.0).all() else given


def _paired(examples: Sequence[Example]) -> bool:
    """Whether the examples are pairs: all of them or none."""
    paired = bool(examples) and examples[0].pair is not None
    for row, example in enumerate(examples):
        if (example.pair is not None) != paired:
            kinds = ("a pair", "a single text") if paired else ("a single text", "a pair")
            raise DataError(
                f"All texts should be pairs, or none. Found {kinds[0]} in row 1 and {kinds[1]} in row {row + 1}. "
                "Keep pairs and single texts in separate data sets."
            )
    return paired


def check_kind(paired: bool, learnt: bool) -> None:
    """Refuse pairs for a model that learnt single texts, and the other way round: its answers would mean nothing."""
    if paired and not learnt:
        raise DataError("The model learnt single texts and should be given those. Found pairs: give one text each.")
    if learnt and not paired:
        raise DataError("The model learnt pairs of texts and should be given those. Found single texts: give two each.")


def _kept(special: npt.NDArray[np.int64], max_length: int) -> npt.NDArray[np.bool_]:
    """Which tokens stay, (T,): the special ones, and the first of each text, as `longest_first` shares them out."""
    keep = special.astype(bool)  # (T,)
    ordinary = np.flatnonzero(~keep)
    # Special tokens stand between the texts of a pair: a gap in the places of ordinary tokens parts the two.
    texts = sorted(np.split(ordinary, np.flatnonzero(np.diff(ordinary) > 1) + 1), key=len)
    room = max_length - int(keep.sum())
    shorter = texts[0][: room // 2] if len(texts) > 1 else texts[0][:0]
    keep[shorter] = True
    keep[texts[-1][: room - len(shorter)]] = True
    return keep


def _fill(mask: npt.NDArray[np.bool_], values: Ids | npt.NDArray[np.bool_], pad: int) -> torch.Tensor:
    filled = np.full(mask.shape, pad, np.int64)  # (B, T)
    filled[mask] = values
    return torch.from_numpy(filled)
