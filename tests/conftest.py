"""What all tests share: small random backbones and a tokenizer built in memory. No network."""

from __future__ import annotations

import os

# A test that reaches for the hub by mistake fails at once instead of waiting.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# The models here are too small for threads, which only wait for each other on a busy machine.
os.environ["OMP_NUM_THREADS"] = "1"

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.command_line import offramp  # noqa: F401  a fixture for all
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedModel, PreTrainedTokenizerFast

from offramp.exits.model import MultiExitModel, build

torch.set_num_threads(1)

FILLERS = [
    "the",
    "film",
    "plot",
    "was",
    "is",
    "very",
    "not",
    "dull",
    "bright",
    "slow",
    "quick",
    "story",
    "who",
    "where",
]
LABELS = ("bad", "fine", "good")
WORDS = [*FILLERS, *LABELS]


def data_folder() -> Path | None:
    """Real data sets, when they are there: `OFFRAMP_DATA`, or `shared/data` beside the checkout."""
    named = os.environ.get("OFFRAMP_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = data_folder()
    if folder is None:
        pytest.skip("real data sets are absent; OFFRAMP_DATA names their folder")
    return folder


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer over a few words and all letters, with BERT's special tokens."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    vocabulary = {w: i for i, w in enumerate([*special, *WORDS, *letters, *(f"##{x}" for x in letters)])}
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def small_bert(layers: int = 4, seed: int = 0, **fields: Any) -> PreTrainedModel:
    """A random BERT, `layers` deep and 32 wide, without dropout unless asked."""
    torch.manual_seed(seed)
    settings: dict[str, Any] = {
        "vocab_size": 128,
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,  # large enough that texts differ in their states
    }
    return BertModel(BertConfig(**{**settings, **fields}), add_pooling_layer=True)


@pytest.fixture
def make_model() -> Callable[..., MultiExitModel]:
    """Builds a small model; keyword arguments go to the exits, `layers` and `seed` to the backbone."""

    def make(layers: int = 4, seed: int = 0, labels: tuple[str | int, ...] = LABELS, **exits: Any) -> MultiExitModel:
        settings = {"exit_size": 16, "exit_heads": 2, **exits}
        model = build(small_bert(layers, seed), labels, **settings)
        model.train(False)
        return model

    return make


@pytest.fixture(scope="session")
def backbone_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerFast) -> Path:
    """A small backbone with its tokenizer on disk, as a user's own folder would be."""
    folder = tmp_path_factory.mktemp("backbone")
    small_bert().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def toy_texts(n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts whose label is told by one word among others, and their labels: learnable in seconds."""
    draw = torch.Generator().manual_seed(seed)
    texts, labels = [], []
    for _ in range(n):
        label = LABELS[int(torch.randint(len(LABELS), (), generator=draw))]
        length = int(torch.randint(2, 12, (), generator=draw))
        words = [FILLERS[int(i)] for i in torch.randint(len(FILLERS), (length,), generator=draw)]
        words.insert(int(torch.randint(length + 1, (), generator=draw)), label)
        texts.append(" ".join(words))
        labels.append(label)
    return texts, labels


def fresh_texts(n: int, seed: int, trained: int) -> tuple[list[str], list[str]]:
    """At most n toy texts to calibrate on: each once, and none of the first `trained` of seed 0."""
    seen = set(toy_texts(trained)[0])
    found = {text: label for text, label in zip(*toy_texts(2 * n, seed), strict=True) if text not in seen}
    return list(found)[:n], list(found.values())[:n]
