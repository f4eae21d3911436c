"""The matching exit is LaCon-vanilla: it answers with the label whose embedding is nearest by angle."""

from __future__ import annotations

import pytest
import torch
from tests.exits.drawn import HIDDEN, drawn, make_exit, make_states
from tests.reference import exits as reference

from offramp.exits.label_embeddings import LabelEmbeddings, cosine
from offramp.exits.match import MatchExit


@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
def test_the_exit_is_the_slow_loop_of_the_paper(temperature: float) -> None:
    exit = drawn(MatchExit(HIDDEN, 4, temperature, 0.1)).double()
    states, mask = make_states()
    wanted = reference.match(dict(exit.state_dict()), temperature, states.double(), mask)
    found = exit(states.double(), mask)
    torch.testing.assert_close(found.representation, wanted.representation, atol=1e-9, rtol=0)
    torch.testing.assert_close(found.logits, wanted.logits, atol=1e-9, rtol=0)


@pytest.mark.parametrize("reads", ["first", "mean"])
def test_without_a_projection_what_is_read_is_what_is_matched(reads: str) -> None:
    exit = make_exit("match", exit_projection="none", exit_reads=reads)
    states, mask = make_states()
    found = exit(states, mask)
    assert torch.equal(found.representation, exit.one_vector(states, mask))
    wanted = torch.nn.functional.cosine_similarity(found.representation[:, None], found.label_embeddings[None], dim=2)
    torch.testing.assert_close(found.logits, wanted / 0.1, atol=1e-5, rtol=0)
    assert [name for name, _ in exit.named_parameters()] == ["labels.weight"]


@pytest.mark.parametrize("kind", ["match", "fusion"])
def test_the_answer_is_the_nearest_label_embedding(kind: str) -> None:
    exit = make_exit(kind, classes=6)
    found = exit(*make_states((5,) * 40))
    unit = torch.nn.functional.normalize(found.representation, dim=1)
    anchors = torch.nn.functional.normalize(found.label_embeddings, dim=1)
    nearest = torch.cdist(unit, anchors).argmin(dim=1)
    assert torch.equal(found.logits.argmax(dim=1), nearest)
    assert len(nearest.unique()) > 1


@pytest.mark.parametrize("kind", ["match", "fusion"])
def test_the_length_of_a_label_embedding_says_nothing(kind: str) -> None:
    exit = make_exit(kind)
    states, mask = make_states()
    wanted = exit(states, mask).logits
    with torch.no_grad():
        exit.label_parameter.mul_(torch.tensor([[0.01], [1.0], [100.0]]))
    torch.testing.assert_close(exit(states, mask).logits, wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["match", "fusion"])
@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_no_logit_exceeds_one_over_the_temperature(kind: str, temperature: float) -> None:
    exit = make_exit(kind, exit_temperature=temperature)
    logits = exit(*make_states((5,) * 40)).logits
    assert 0.3 / temperature < logits.abs().max() <= (1 + 1e-6) / temperature


def test_a_representation_that_is_a_label_embedding_has_cosine_one() -> None:
    vectors = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    found = cosine(vectors, vectors)
    torch.testing.assert_close(found.diag(), torch.ones(5), atol=1e-6, rtol=0)
    peer = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=2)
    torch.testing.assert_close(found, peer, atol=1e-6, rtol=0)


def test_the_cosine_is_float32_under_autocast_and_of_bfloat16_vectors() -> None:
    vectors = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(cosine(vectors, vectors), cosine(vectors.clone(), vectors))
        assert cosine(vectors, vectors).dtype == torch.float32
        assert cosine(vectors.bfloat16(), vectors).dtype == torch.float32
    assert cosine(vectors.bfloat16(), vectors.bfloat16()).dtype == torch.float32
    assert cosine(vectors.double(), vectors).dtype == torch.float64


def test_new_label_embeddings_are_drawn_as_torch_draws_a_linear_layer() -> None:
    torch.manual_seed(0)
    found = LabelEmbeddings(200, 100).weight
    theirs = torch.nn.Linear(100, 200).weight
    assert found.abs().max() <= 0.1
    torch.testing.assert_close(found.std(), theirs.std(), atol=2e-3, rtol=0)
    assert abs(found.mean().item()) < 2e-3
