"""TEXT -> TOKENS, back-translation: texts said otherwise, by a translation into another language and back.

Reference: SCL 4.2, after Edunov et al. (2018): WMT'18 models for English and German, words drawn at random with a
temperature that sets the noise, three noisy texts beside each given one (`protocol.copies`).
Differences: any two Marian models that the user has, such as `Helsinki-NLP/opus-mt-en-de` and `-de-en`; the temperature
is that of both. A translation that comes back empty leaves the text as it was.

Needs: models with safetensors weights; most Marian tokenizers need `sentencepiece`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from offramp.errors import ConfigError, ModelError

Translate = Callable[[Sequence[str], float, torch.Generator], list[str]]
"""Texts, temperature and generator to texts in another language."""

BATCH = 16
LONGEST = 2.0
"""Tokens a translation may have, per token of its text."""


def back_translated(
    texts: Sequence[str], there: Translate, back: Translate, temperature: float, generator: torch.Generator
) -> list[str]:
    """Each text after the way there and back, or as it was where nothing came back."""
    returned = back(there(texts, temperature, generator), temperature, generator)
    return [new if new.strip() else old for new, old in zip(returned, texts, strict=True)]


def load_pair(names: str) -> tuple[Translate, Translate]:
    """The two translators of `there,back`, names or folders of Marian models."""
    there, comma, back = (part.strip() for part in names.partition(","))
    if not (there and comma and back):
        raise ConfigError(
            "`protocol.back_translation` should name two models, such as "
            f"Helsinki-NLP/opus-mt-en-de,Helsinki-NLP/opus-mt-de-en. Found `{names}`."
        )
    return load_translator(there), load_translator(back)


def load_translator(name: str) -> Translate:
    """A Marian model as a function; its weights are safetensors, code from the hub is never run."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        model = AutoModelForSeq2SeqLM.from_pretrained(name, use_safetensors=True, trust_remote_code=False).eval()
    except Exception as error:  # transformers has no common base of errors
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            "`protocol.back_translation` should name Marian models with safetensors weights, and their tokenizers may "
            f"need `pip install sentencepiece`. Found `{name}`: {first}"
        ) from error

    def translate(texts: Sequence[str], temperature: float, generator: torch.Generator) -> list[str]:
        return _translate(model, tokenizer, texts, temperature, generator)

    return translate


def _translate(
    model: Any, tokenizer: Any, texts: Sequence[str], temperature: float, generator: torch.Generator
) -> list[str]:
    most = int(model.config.max_position_embeddings)
    # A temperature of 0 is the limit: the likeliest word each time.
    how = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature > 0 else {"do_sample": False}
    found: list[str] = []
    # transformers draws from torch's own generator, which is put back afterwards.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        for start in range(0, len(texts), BATCH):
            batch = tokenizer(
                list(texts[start : start + BATCH]), padding=True, truncation=True, max_length=most, return_tensors="pt"
            )
            ids = batch["input_ids"]  # (B, T)
            longest = min(int(LONGEST * ids.shape[1]) + 8, most - 1)
            given = {"input_ids": ids, "attention_mask": batch["attention_mask"]}
            out = model.generate(**given, num_beams=1, max_new_tokens=longest, **how)
            found += tokenizer.batch_decode(out, skip_special_tokens=True)
    return found
