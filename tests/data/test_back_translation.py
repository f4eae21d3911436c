"""Back-translation through two small random Marian models with a tokenizer made in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

from offramp.data.back_translation import back_translated, load_pair, load_translator
from offramp.errors import ConfigError, ModelError

WORDS = ["</s>", "<unk>", "<pad>", "the", "film", "was", "good", "bad", "long", "plot", "dull"]
TEXTS = ["the film was good", "the plot was dull", "bad"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two translators on disk, as a user would have them; what they say means nothing."""
    inner = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>", eos_token="</s>", model_max_length=32
    )
    made = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        sizes = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in
                 (("layers", 1), ("attention_heads", 2), ("ffn_dim", 32))}  # fmt: skip
        config = MarianConfig(
            vocab_size=len(WORDS),
            d_model=16,
            max_position_embeddings=32,
            pad_token_id=2,
            eos_token_id=0,
            decoder_start_token_id=2,
            forced_eos_token_id=0,
            init_std=0.5,
            **sizes,
        )
        folder = tmp_path_factory.mktemp(f"marian-{seed}")
        MarianMTModel(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        made.append(folder)
    return made


def test_every_text_comes_back_as_words_of_the_other_language(folders: list[Path]) -> None:
    there, back = load_pair(f"{folders[0]}, {folders[1]}")
    found = back_translated(TEXTS * 8, there, back, 0.7, seeded())  # more than one batch
    assert len(found) == 24
    assert all(text and set(text.split()) <= set(WORDS) for text in found)


def test_the_generator_tells_what_is_drawn_and_torchs_own_is_left_alone(folders: list[Path]) -> None:
    translate = load_translator(str(folders[0]))
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, same, other = (translate(TEXTS, 2.0, seeded(seed)) for seed in (0, 0, 1))
    assert one == same != other
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_temperature_of_0_is_the_likeliest_word_whatever_the_generator(folders: list[Path]) -> None:
    translate = load_translator(str(folders[0]))
    assert translate(TEXTS, 0.0, seeded(0)) == translate(TEXTS, 0.0, seeded(1)) == translate(TEXTS, 1e-3, seeded(2))


def test_what_comes_back_empty_stays_as_it_was() -> None:
    assert back_translated(["a", "b"], lambda t, *_: list(t), lambda *_: [" ", "c"], 0.5, seeded()) == ["a", "c"]


@pytest.mark.parametrize("names", ["one", "one,", ",two", ""])
def test_two_models_should_be_named(names: str) -> None:
    with pytest.raises(ConfigError, match="should name two models"):
        load_pair(names)


def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"should name Marian models.*Found `{tmp_path}`"):
        load_translator(str(tmp_path))
