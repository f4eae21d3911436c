"""MODEL -> FAST MODEL: a calibrated policy beside its model.

`certificate.json` is what the policy promises, with a seal, the SHA-256 of the rest; `policy.safetensors` is what was
fitted to held-out texts, for policies that are; `dial.json`, sealed too, is the path around the policy's thresholds. A
certificate holds for one model on one engine: beside any other it is
void, and says so.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from offramp.data.tokens import tokenizer_digest
from offramp.disk import replace_file
from offramp.errors import ConfigError, ModelError
from offramp.policies import policy
from offramp.policies.certificate import Certificate
from offramp.policies.dial import Dial
from offramp.policies.patient_confidence import PATIENCE
from offramp.reading import SET
from offramp.runtime.engine import Engine
from offramp.types import Policy

CERTIFICATE, FITTED, DIAL = "certificate.json", "policy.safetensors", "dial.json"
SEAL = "seal"


class VoidCertificate(UserWarning):
    """A certificate lies beside a model or an engine that it is not for."""


@dataclass(frozen=True)
class Certified:
    """A certificate and the tensors of its policy."""

    certificate: Certificate
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    dial: Dial | None = None

    def policy(self, point: int | None = None) -> Policy:
        """The policy that the certificate is about, or the same at another point of the dial."""
        told = self.certificate
        rule = told.rule if point is None or self.dial is None else self.dial.points[point].rule
        patience = int(told.settings.get("patience", PATIENCE))
        sets = told.settings.get("labels") == SET
        return policy(told.policy, rule, patience=patience, tensors=self.tensors, sets=sets)

    def tensors_of(self, name: str) -> Mapping[str, Tensor] | None:
        """What was fitted, where it is this policy's."""
        return self.tensors if self.certificate.policy == name else None


def fingerprint(engine: Engine, tokenizer: Any, max_tokens: int) -> str:
    """What tells a model, and how it reads texts, from any other: by it a certificate knows its model."""
    facts = [engine.fingerprint(), tokenizer_digest(tokenizer), max_tokens]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def write(folder: Path, certified: Certified | None) -> None:
    """Put a certificate into a model folder, in place of another; with None, only remove that."""
    try:
        (folder / CERTIFICATE).unlink(missing_ok=True)  # it must not stand beside the new tensors
        (folder / FITTED).unlink(missing_ok=True)
        (folder / DIAL).unlink(missing_ok=True)
        if certified is not None:
            if certified.tensors:
                replace_file(folder / FITTED, _bytes(certified.tensors))
            if certified.dial is not None:
                replace_file(folder / DIAL, _turned(certified.dial, certified.certificate))
            replace_file(folder / CERTIFICATE, _sealed(certified.certificate))
    except OSError as error:
        raise ModelError(f"The certificate cannot be written to `{folder}`: {error.strerror or error}.") from error


def read(folder: Path, engine: str, fingerprint: str) -> Certified | None:
    """The certificate in the folder of this model; None where there is none, or it is about something else."""
    if not (folder / CERTIFICATE).is_file():
        return None
    try:
        certificate = _unsealed((folder / CERTIFICATE).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(folder, error) from error
    if (certificate.fingerprint, certificate.engine) != (fingerprint, engine):
        warnings.warn(
            f"The certificate in `{folder}` is void: it is about another model, or about this one on another engine "
            f"({certificate.engine}, not {engine}). Run `offramp calibrate` again.",
            VoidCertificate,
            stacklevel=2,
        )
        return None
    tensors = _fitted(folder, str(certificate.settings.get("fitted", "")))
    found = Certified(certificate, tensors, _dial(folder, certificate))
    try:
        found.policy()
    except (ConfigError, ValueError) as error:
        raise _damaged(folder, error) from error
    return found


def digest(tensors: Mapping[str, Tensor]) -> str:
    """A hash of fitted tensors, by which a certificate knows them; empty where there are none."""
    return hashlib.sha256(_bytes(tensors)).hexdigest() if tensors else ""


def _bytes(tensors: Mapping[str, Tensor]) -> bytes:
    return save({name: t.contiguous() for name, t in tensors.items()})


def _fitted(folder: Path, wanted: str) -> dict[str, Tensor]:
    if not wanted:
        return {}
    try:
        content = (folder / FITTED).read_bytes()
        if hashlib.sha256(content).hexdigest() != wanted:
            raise ModelError(f"`{folder / FITTED}` is not what was written. Run `offramp calibrate` again.")
        return load(content)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"`{folder / FITTED}` cannot be read: {error}. Run `offramp calibrate` again.") from error


def _dial(folder: Path, certificate: Certificate) -> Dial | None:
    """The dial beside a certificate; None where there is none."""
    if not (folder / DIAL).is_file():
        return None
    try:
        content = (folder / DIAL).read_bytes()
        record = json.loads(content)
        if isinstance(record, dict):
            record.pop(SEAL, None)
        dial = Dial.from_json(json.dumps(record))
        if content != _turned(dial, certificate):
            raise ValueError("it is not what was written")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"`{folder / DIAL}` cannot be read: {error}. Run `offramp calibrate` again.") from error
    return dial


def _turned(dial: Dial, certificate: Certificate) -> bytes:
    """A dial with the seal that ties it to its certificate."""
    content = dial.to_json()
    seal = hashlib.sha256(content.encode() + _sealed(certificate)).hexdigest()
    return (json.dumps(json.loads(content) | {SEAL: seal}, indent=1) + "\n").encode()


def _damaged(folder: Path, error: Exception) -> ModelError:
    said = str(error).rstrip(".")
    return ModelError(f"The certificate in `{folder}` cannot be read: {said}. Run `offramp calibrate` again.")


def _sealed(certificate: Certificate) -> bytes:
    content = certificate.to_json()
    seal = hashlib.sha256(content.encode()).hexdigest()
    return (json.dumps(json.loads(content) | {SEAL: seal}, indent=1, ensure_ascii=False) + "\n").encode()


def _unsealed(content: bytes) -> Certificate:
    """The certificate in a file: one whose numbers were changed would promise what nobody has tested."""
    record = json.loads(content)
    if isinstance(record, dict):
        record.pop(SEAL, None)
    certificate = Certificate.from_json(json.dumps(record))
    if content != _sealed(certificate):
        raise ValueError("it is not what was written")
    return certificate
