"""A certificate beside its model: it comes back as it was, is void beside another, and is whole or refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from offramp.errors import ModelError
from offramp.exits.model import MultiExitModel
from offramp.policies import POLICIES
from offramp.policies.certificate import Certificate
from offramp.policies.dial import Dial, DialPoint
from offramp.policies.learned import Learned
from offramp.policies.patient_confidence import PatientConfidence
from offramp.policies.scored import Scored
from offramp.runtime.certified import Certified, VoidCertificate, digest, read, write
from offramp.runtime.torch_engine import TorchEngine


@pytest.fixture
def engine(make_model: Callable[..., MultiExitModel]) -> TorchEngine:
    return TorchEngine(make_model())


def certificate(engine: TorchEngine, /, **changes: Any) -> Certificate:
    fields: dict[str, Any] = {
        "policy": "confidence",
        "settings": {},
        "thresholds": {1: 0.9, 3: 0.1 + 0.2},
        "exits": (1, 2, 3),
        "layers": 4,
        "risk": "accuracy drop",
        "epsilon": 0.2,
        "confidence": 0.95,
        "tried": 1,
        "budget": None,
        "within_budget": None,
        "selection": 30,
        "certification": 70,
        "harms": 7,
        "measured": 0.1,
        "bound": 0.18,
        "accuracy_full": 0.9,
        "accuracy_early": 0.85,
        "mean_depth": 2.5,
        "cost": 2.6,
        "method": "a method",
        "engine": "torch",
        "fingerprint": engine.fingerprint(),
        "data": "texts – übrig.csv",
        "sha256": "0" * 64,
    }
    return Certificate(**fields | changes)


def heads() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    weights = {f"{depth}.weight": torch.randn(35, generator=draw) for depth in (1, 2, 3)}
    return weights | {f"{depth}.bias": torch.randn((), generator=draw) for depth in (1, 2, 3)}


def learned(engine: TorchEngine) -> Certified:
    return Certified(certificate(engine, policy="learned", settings={"fitted": digest(heads())}), heads())


def test_a_certificate_comes_back_as_it_was(engine: TorchEngine, tmp_path: Path) -> None:
    assert read(tmp_path, engine.name, engine.fingerprint()) is None
    write(tmp_path, Certified(certificate(engine)))
    found = read(tmp_path, engine.name, engine.fingerprint())
    assert found is not None
    assert found.certificate == certificate(engine)
    assert dict(found.tensors) == {}
    assert [file.name for file in tmp_path.iterdir()] == ["certificate.json"]
    policy = found.policy()
    assert isinstance(policy, Scored)
    assert policy.thresholds == {1: 0.9, 2: float("inf"), 3: 0.1 + 0.2}


def test_tensors_come_back_to_the_bit(engine: TorchEngine, tmp_path: Path) -> None:
    write(tmp_path, learned(engine))
    found = read(tmp_path, engine.name, engine.fingerprint())
    assert found is not None
    assert set(found.tensors) == set(heads())
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in heads().items())
    policy = found.policy()
    assert isinstance(policy, Learned)
    assert [policy.reads(depth) for depth in (1, 2, 3, 4)] == [True, True, True, False]
    assert found.tensors_of("learned") == found.tensors
    assert found.tensors_of("prior") is None


def test_the_patience_is_the_certificates(engine: TorchEngine, tmp_path: Path) -> None:
    write(tmp_path, Certified(certificate(engine, policy="patient-confidence", settings={"patience": 3})))
    found = read(tmp_path, engine.name, engine.fingerprint())
    assert found is not None
    policy = found.policy()
    assert isinstance(policy, PatientConfidence)
    assert policy.patience == 3


def test_writing_replaces_and_writing_none_removes(engine: TorchEngine, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    write(tmp_path, learned(engine))
    write(tmp_path, Certified(certificate(engine)))
    assert {file.name for file in tmp_path.iterdir()} == {"mine.txt", "certificate.json"}
    write(tmp_path, None)
    write(tmp_path, None)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(ModelError, match="cannot be written to"):
        write(tmp_path / "mine.txt", Certified(certificate(engine)))


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.exits[2].classifier.bias.data.add_(1e-6),
        lambda model: model.encoder.backbone.embeddings.word_embeddings.weight.data[7, 3].mul_(-1),
        lambda model: setattr(model.config, "labels", ["good", "fine", "bad"]),
        lambda model: setattr(model.config, "max_tokens", 63),
        lambda model: setattr(model.config, "trained_exits", [4]),
        lambda model: setattr(model.config, "exit_heads", 1),
        lambda model: setattr(model.config, "exit_temperature", 0.2),
        lambda model: setattr(model.config, "exit_window", 3),
        lambda model: setattr(model.config, "exit_reads", "mean"),
        lambda model: setattr(model.config, "exit_projection", "none"),
    ],
)
def test_a_certificate_is_void_beside_a_model_that_differs_in_anything(
    engine: TorchEngine, tmp_path: Path, change: Callable[[MultiExitModel], None]
) -> None:
    write(tmp_path, Certified(certificate(engine)))
    assert read(tmp_path, engine.name, engine.fingerprint()) is not None
    change(engine.model)
    with pytest.warns(VoidCertificate, match=r"is void.*Run `offramp calibrate` again\."):
        assert read(tmp_path, engine.name, engine.fingerprint()) is None


@pytest.mark.parametrize("name", ["onnx", "onnx int8"])
def test_a_certificate_of_another_engine_is_void(engine: TorchEngine, tmp_path: Path, name: str) -> None:
    write(tmp_path, Certified(certificate(engine, engine=name)))
    with pytest.warns(VoidCertificate, match=f"{name}, not torch"):
        assert read(tmp_path, engine.name, engine.fingerprint()) is None


def test_a_fingerprint_is_the_same_after_disk(engine: TorchEngine, tmp_path: Path) -> None:
    engine.model.save_pretrained(tmp_path)
    loaded = MultiExitModel.from_pretrained(tmp_path)
    assert TorchEngine(loaded).fingerprint() == engine.fingerprint()
    assert TorchEngine(loaded.train()).fingerprint() == engine.fingerprint()


@pytest.mark.parametrize(
    "changes",
    [
        {"thresholds": {1: 0.8, 3: 0.3}},
        {"epsilon": 0.1901},
        {"confidence": 0.99},
        {"data": "other.csv"},
        {"settings": {"patience": 4}},
    ],
)
def test_a_certificate_that_was_changed_is_refused_though_it_could_be_one(
    engine: TorchEngine, tmp_path: Path, changes: dict[str, Any]
) -> None:
    write(tmp_path, Certified(certificate(engine)))
    file = tmp_path / "certificate.json"
    record = json.loads(file.read_text("utf-8"))
    other = json.loads(certificate(engine, **changes).to_json())
    file.write_text(json.dumps(other | {"seal": record["seal"]}, indent=1, ensure_ascii=False) + "\n", "utf-8")
    with pytest.raises(ModelError, match="it is not what was written"):
        read(tmp_path, engine.name, engine.fingerprint())
    file.write_text(certificate(engine).to_json(), "utf-8")  # without a seal
    with pytest.raises(ModelError, match="it is not what was written"):
        read(tmp_path, engine.name, engine.fingerprint())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": "confidense"}, "Did you mean 'confidence'"),
        ({"thresholds": {1: 7.0}}, "should be between 0 and 1. Found 7"),
        ({"policy": "learned"}, "should be fitted"),
        ({"policy": "patient-confidence", "settings": {"patience": "two"}}, "two"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_when_it_is_read(
    engine: TorchEngine, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    write(tmp_path, Certified(certificate(engine, **changes)))
    with pytest.raises(ModelError, match=f"The certificate in `.*` cannot be read: .*{message}"):
        read(tmp_path, engine.name, engine.fingerprint())


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: b"", lambda c: c[:40] + b"x" + c[41:], None])
def test_tensors_that_are_not_those_that_were_written_are_refused(
    engine: TorchEngine, tmp_path: Path, damage: Callable[[bytes], bytes] | None
) -> None:
    write(tmp_path, learned(engine))
    file = tmp_path / "policy.safetensors"
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ModelError, match=r"policy\.safetensors` (is not what was written|cannot be read)"):
        read(tmp_path, engine.name, engine.fingerprint())


def test_every_policy_that_can_be_certified_is_made_again_from_its_certificate(
    engine: TorchEngine, tmp_path: Path
) -> None:
    fitted = {
        "learned": heads(),
        "prior": {"weight": torch.zeros(8, 3), "length": torch.zeros(3), "bias": torch.zeros(3)},
    }
    for name in set(POLICIES) - {"never", "fixed"}:
        tensors = fitted.get(name, {})
        settings = {"fitted": digest(tensors)} if tensors else {}
        limits = {1: 1.0, 3: 1.0}
        write(tmp_path, Certified(certificate(engine, policy=name, thresholds=limits, settings=settings), tensors))
        found = read(tmp_path, engine.name, engine.fingerprint())
        assert found is not None
        assert type(found.policy()) is POLICIES[name]


# The dial beside a certificate.


def dial() -> Dial:
    safe = DialPoint({}, (), 4.0, 0, 0.9, True)
    chosen = DialPoint({1: 0.9, 3: 0.1 + 0.2}, (1, 2, 3), 2.5, 7, 0.85, True)
    bold = DialPoint({1: 0.5}, (1,), 1.2, 20, None, False)
    return Dial((safe, chosen, bold), 1, 70, {1: 0.5, 4: 0.9})


def test_a_dial_comes_back_as_it_was_and_turns_the_policy(engine: TorchEngine, tmp_path: Path) -> None:
    write(tmp_path, Certified(certificate(engine), dial=dial()))
    found = read(tmp_path, engine.name, engine.fingerprint())
    assert found is not None
    assert found.dial == dial()
    rules = [found.policy(point) for point in range(3)]
    assert [getattr(rule, "thresholds", None) for rule in rules] == [{}, {1: 0.9, 2: math.inf, 3: 0.1 + 0.2}, {1: 0.5}]
    write(tmp_path, Certified(certificate(engine)))
    assert not (tmp_path / "dial.json").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"certified": false', b'"certified": true'),
        (b'"mean_depth": 1.2', b'"mean_depth": 1.1'),
        (b'"chosen": 1', b'"chosen": 9'),
        (b'"points"', b'"pints"'),
        (b"{", b""),
    ],
)
def test_a_dial_that_was_changed_is_refused(engine: TorchEngine, tmp_path: Path, before: bytes, after: bytes) -> None:
    write(tmp_path, Certified(certificate(engine), dial=dial()))
    file = tmp_path / "dial.json"
    content = file.read_bytes()
    assert before in content
    file.write_bytes(content.replace(before, after, 1))
    with pytest.raises(ModelError, match="offramp calibrate"):
        read(tmp_path, engine.name, engine.fingerprint())


def test_a_dial_of_another_certificate_is_refused(engine: TorchEngine, tmp_path: Path) -> None:
    write(tmp_path, Certified(certificate(engine), dial=dial()))
    kept = (tmp_path / "dial.json").read_bytes()
    write(tmp_path, Certified(certificate(engine, epsilon=0.3)))
    (tmp_path / "dial.json").write_bytes(kept)
    with pytest.raises(ModelError, match="not what was written"):
        read(tmp_path, engine.name, engine.fingerprint())
