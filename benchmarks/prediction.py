"""Time of prediction with policy `never` over Hugging Face's own forward pass, on the same batches."""

from __future__ import annotations

import time

import torch
from transformers import AutoModelForSequenceClassification

from benchmarks.record import Ratio
from benchmarks.texts import tokens
from offramp.data.sampling import sorted_batches
from offramp.encoder.load import load_backbone, locate, quiet_loading
from offramp.exits.model import build
from offramp.policies.never import Never
from offramp.runtime.torch_engine import decide

BATCH, ROUNDS, TEXTS = 32, 5, 1600


def run() -> list[Ratio]:
    data, labels = tokens(TEXTS)
    ours = build(load_backbone("minilm-l6"), labels.names, exit_kind="linear")
    ours.train(False)
    with quiet_loading():
        theirs = AutoModelForSequenceClassification.from_pretrained(locate("minilm-l6").name, num_labels=len(labels))
    theirs.eval()
    batches = [data.batch(rows) for rows in sorted_batches(data.lengths, BATCH)]
    policy = Never()
    rounds = []
    for _ in range(ROUNDS):
        spent = {"ours": 0.0, "theirs": 0.0}
        for batch in batches:
            start = time.perf_counter()
            decide(ours, batch, policy)
            middle = time.perf_counter()
            with torch.inference_mode():
                theirs(input_ids=batch.input_ids, attention_mask=batch.mask, token_type_ids=batch.token_types)
            spent["ours"] += middle - start
            spent["theirs"] += time.perf_counter() - middle
        rounds.append(spent["ours"] / spent["theirs"])
    what = "time of prediction with `never` over the plain Hugging Face forward pass"
    return [Ratio(what, rounds, 1.05, at_least=False)]
