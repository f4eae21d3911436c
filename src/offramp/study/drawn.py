"""Drawn tasks and a drawn backbone: what a study needs to run in seconds and without any file.

A drawn task has the shape of the real one, as many labels, one text or two, Chinese characters where it is Chinese, and
can be learnt: every label has words of its own among words that all share. A drawn backbone is a random BERT of four
layers with a WordPiece tokenizer made from the task's texts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from offramp.data.sources import Table
from offramp.data.tasks import Task
from offramp.types import Example

LAYERS = 4
WIDTH = 48  # 1, 2, 3, 4, 6, 8, 12, 16 and 24 heads divide it
SHARED, OWN = 40, 3  # words that every label uses, and that each has for itself
LEAST = {"train": 96, "validation": 48, "test": 48}
PER_LABEL = {"train": 6, "validation": 2, "test": 2}
SYLLABLES = [first + last for first in "bdfgklmnprstvz" for last in "aeiou"]
MOST_WORDS = 2000  # of a tokenizer
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def drawn_table(task: Task, split: str) -> Table:
    """The texts of a split, the same every time; the labels stand in turn, so that each has as many as any other."""
    chance = random.Random(f"{task.name}/{split}")
    count = max(LEAST.get(split, LEAST["test"]), PER_LABEL.get(split, PER_LABEL["test"]) * len(task.labels))
    shared = [_word(place, task.chinese) for place in range(SHARED)]
    examples = []
    for place in range(count):
        label = place % len(task.labels)
        own = [_word(SHARED + OWN * label + number, task.chinese) for number in range(OWN)]
        texts = [_text(chance, shared, own if told else [], task.chinese) for told in _told(task)]
        examples.append(Example(texts[0], texts[1] if len(texts) > 1 else None, task.labels[label]))
    return Table(examples, f"drawn {task.name}/{split}", order=task.labels)


def draw_backbone(folder: Path, texts: Iterable[str], seed: int = 0) -> None:
    """Write a random BERT and its tokenizer into a folder, the same for the same texts."""
    import torch
    from transformers import BertConfig, BertModel

    from offramp.encoder.load import quiet_loading

    tokenizer = draw_tokenizer(list(texts))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertModel(
            BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=WIDTH,
                num_hidden_layers=LAYERS,
                num_attention_heads=4,
                intermediate_size=2 * WIDTH,
                max_position_embeddings=128,
                initializer_range=0.2,  # large enough that texts differ in their states
            )
        )
    with quiet_loading():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def draw_tokenizer(texts: Sequence[str]) -> Any:
    """A WordPiece tokenizer made from texts in any script: their frequent words, and all letters for the others.

    Every Chinese character is a word. The library's own trainer breaks ties as they fall, another way each time.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    normalizer = normalizers.BertNormalizer(lowercase=True, handle_chinese_chars=True)
    pieces = pre_tokenizers.BertPreTokenizer()
    found = Counter(word for text in texts for word, _ in pieces.pre_tokenize_str(normalizer.normalize_str(text)))
    letters = sorted({letter for word in found for letter in word})
    words = sorted((word for word in found if len(word) > 1), key=lambda word: (-found[word], word))[:MOST_WORDS]
    vocabulary = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *words]
    inner = Tokenizer(models.WordPiece({word: number for number, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = normalizer, pieces
    inner.decoder = decoders.WordPiece()
    ends = [(name, inner.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=128,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def _told(task: Task) -> list[bool]:
    """For each text of the task, whether it tells the label: of a pair, the second does."""
    return [False, True] if len(task.columns) > 1 else [True]


def _text(chance: random.Random, shared: Sequence[str], own: Sequence[str], chinese: bool) -> str:
    words = chance.choices(shared, k=chance.randint(3, 8))
    for word in chance.choices(own, k=2) if own else []:
        words.insert(chance.randint(0, len(words)), word)
    return ("" if chinese else " ").join(words)


def _word(place: int, chinese: bool) -> str:
    """The word of this number: a character, or three syllables."""
    if chinese:
        return chr(0x4E00 + place)
    size = len(SYLLABLES)
    return SYLLABLES[place % size] + SYLLABLES[(7 * place + place // size) % size] + SYLLABLES[(3 * place) % size]
