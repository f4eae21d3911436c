"""Tokenizers built in memory, and a Hugging Face library that stays off the network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

WORDS = ["the", "film", "was", "good", "bad", "long", "un", "##good", "##bad", "##est", "a", "b", "c", "."]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


@pytest.fixture
def make_tokenizer() -> Callable[..., PreTrainedTokenizerFast]:
    """Makes a WordPiece tokenizer; with `first` the padding id is not 0, with `types` it gives token types."""

    def make(*, types: bool = True, first: tuple[str, ...] = (), **options: object) -> PreTrainedTokenizerFast:
        vocabulary = {word: place for place, word in enumerate([*first, *SPECIAL, *WORDS])}
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1" if types else "[CLS] $A [SEP] [SEP] $B [SEP]",
            special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
        )
        names = ["input_ids", "token_type_ids", "attention_mask"] if types else ["input_ids", "attention_mask"]
        special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=names, **{**special, **options})

    return make


@pytest.fixture
def tokenizer(make_tokenizer: Callable[..., PreTrainedTokenizerFast]) -> PreTrainedTokenizerFast:
    return make_tokenizer()


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The Hugging Face libraries without network, with a cache of this test's own."""
    import datasets
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
