"""Damaged model folders: each loads as it was written, or is refused with an error of ours."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from tests.faults.damage import damage_folder, edit_json
from tests.faults.isolated import outcomes
from tests.faults.small import QUESTIONS, Small

from offramp import Classifier
from offramp.data.sources import read
from offramp.disk import sha256
from offramp.errors import OfframpError
from offramp.exits import manifest
from offramp.runtime.certified import VoidCertificate

LOADED, REFUSED = "loaded as it was", "refused"
UNCERTIFIED = "loaded as it was, without its certificate"
WRONG = "loaded wrong"
GOOD = {LOADED, REFUSED, UNCERTIFIED}
FORGED = "JSON edited, manifest forged"


class Folders:
    """A trained model with a certificate, the same exported, and what both answer."""

    def __init__(self, small: Small, home: Path, exported: bool = True) -> None:
        self.home = home
        self.bases = [home / "model"]
        classifier = Classifier("2st", str(small.backbone), small.settings["two-stage"])
        classifier.fit_table(read(small.data), folder=self.bases[0])
        classifier.calibrate(read(small.held_out), max_drop=0.5, confidence=0.6)
        classifier.save_certificate(self.bases[0])
        for training in self.bases[0].glob("training"):
            shutil.rmtree(training)
        if exported:
            self.bases.append(home / "exported")
            classifier.export(self.bases[1])
        whole = [Classifier.load(base, threads=1) for base in self.bases]
        self.wanted = [each.predict_proba(QUESTIONS).tolist() for each in whole]
        self.full = [_full(each) for each in whole]
        self.weights = whole[0].model_.state_dict()
        self.certificate = whole[0].certificate
        assert self.certificate is not None

    def attempt(self, number: int) -> tuple[str, str]:
        """Damage a copy and load it; what was done, and what came of it."""
        chance = random.Random(f"folder {number}")
        which = 0 if len(self.bases) == 1 or chance.random() < 0.8 else 1
        copy = self.home / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.bases[which], copy)
        forged = which == 0 and chance.random() < 0.1
        if forged:
            file = copy / chance.choice(("config.json", "tokenizer_config.json", "tokenizer.json"))
            file.write_bytes(edit_json(chance, file.read_bytes()))
            manifest.write(copy, {name: sha256(copy / name) for name in manifest.read(copy)})
        kind = FORGED if forged else damage_folder(chance, copy)
        return kind, self._outcome(copy, which, forged)

    def _outcome(self, copy: Path, which: int, forged: bool) -> str:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                # A forged model is another one, for which the certificate is void.
                warnings.simplefilter("ignore", VoidCertificate)
                found = Classifier.load(copy, threads=1)
                if forged:
                    return LOADED if _same(found.model_.state_dict(), self.weights) else WRONG
                if which == 0 and not _same(found.model_.state_dict(), self.weights):
                    return WRONG
                if which == 0 and found.certificate != self.certificate:
                    return UNCERTIFIED if found.certificate is None and _full(found) == self.full[0] else WRONG
                return LOADED if found.predict_proba(QUESTIONS).tolist() == self.wanted[which] else WRONG
        except OfframpError:
            return REFUSED
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]


def damaged_folders(count: int, small: Small, home: Path, exported: bool = True) -> Iterator[tuple[int, str, str]]:
    """Number, kind of damage and outcome of each."""
    return outcomes(count, Folders(small, home, exported).attempt)


def _full(classifier: Classifier) -> list[list[float]]:
    """What the last exit answers."""
    classifier.set_params(policy="never")
    found: list[list[float]] = classifier.predict_proba(QUESTIONS).tolist()
    classifier.set_params(policy=None)
    return found


def _same(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
