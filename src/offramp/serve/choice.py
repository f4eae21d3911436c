"""MODEL -> PEOPLE: the policy that a request asks for, and whether it may.

Where a certificate is in force, a request may only be stricter than it: leave at the last exit, at a point of the dial
that is certified, or by the certificate's own policy with a threshold that is nowhere below the certificate's.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import lru_cache

from offramp.classifier import Classifier
from offramp.errors import ConfigError
from offramp.policies import check_choice
from offramp.policies.certificate import Certificate
from offramp.types import Policy


class Bolder(ConfigError):
    """A request asks to leave earlier than the certificate lets it, and the server does not allow that."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a request says of when to leave; nothing: what is in force."""

    policy: str | None = None
    threshold: float | None = None
    depth: int | None = None
    point: int | None = None  # of the dial


@dataclass(frozen=True, slots=True)
class Chosen:
    """A policy that may run, and whether a certificate keeps its risk."""

    policy: Policy
    certified: bool


class Choices:
    """The policies of one model, made when they are first asked for."""

    def __init__(self, classifier: Classifier, allow_uncertified: bool = False) -> None:
        self.classifier, self.allow = classifier, allow_uncertified
        self.find = lru_cache(maxsize=256)(self._find)  # a threshold is any number: they must not pile up

    def _find(self, choice: Choice) -> Chosen:
        """The policy of a choice; one that cannot be, or may not, is refused."""
        if choice.point is not None:
            return self._point(choice)
        check_choice(choice.policy, choice.threshold, choice.depth)
        model = copy.copy(self.classifier)  # the same engine under another policy
        if choice != Choice():
            model.policy, model.threshold, model.depth = choice.policy, choice.threshold, choice.depth
        told, made = model.policy_in_force(), model.make_policy()
        if told["name"] == "fixed" and told["depth"] not in model.engine_.exits:
            known = ", ".join(map(str, model.engine_.exits))
            raise ConfigError(f"`depth` should be an exit that can answer: {known}. Found {told['depth']}.")
        certificate = self.classifier.certificate
        if choice != Choice() and certificate is not None and not self.allow and not model.runs_all_layers():
            self._refuse_bolder(told, certificate)
        return Chosen(made, model.is_certified())

    def _point(self, choice: Choice) -> Chosen:
        certified = self.classifier.certified_
        dial = None if certified is None else certified.dial
        if choice != Choice(point=choice.point):
            raise ConfigError("`point` should come without policy, threshold and depth. Found both.")
        if certified is None or dial is None:
            raise ConfigError("`point` should be asked of a model with a dial. Found none: run `offramp calibrate`.")
        if not 0 <= (choice.point or 0) < len(dial.points):
            raise ConfigError(f"`point` should be between 0 and {len(dial.points) - 1}. Found {choice.point}.")
        point = dial.points[choice.point or 0]
        if not point.certified and certified.certificate.certified and not self.allow:
            last = max(place for place, other in enumerate(dial.points) if other.certified)
            raise Bolder(
                f"`point` should be a certified one, at most {last}. Found {choice.point}. "
                "The server may allow others: `offramp serve --allow-uncertified`."
            )
        return Chosen(certified.policy(choice.point), point.certified)

    def _refuse_bolder(self, told: dict[str, object], certificate: Certificate) -> None:
        name, layers = told["name"], self.classifier.engine_.depth
        below = [depth for depth in self.classifier.engine_.trained if depth < layers]
        # One threshold is read at every trained exit, also where the certificate lets nobody leave.
        least = max((certificate.rule.get(depth, float("inf")) for depth in below), default=float("inf"))
        threshold, patience = told.get("threshold"), told.get("patience", 0)
        strict = isinstance(threshold, float | int) and threshold >= least
        patient = isinstance(patience, int) and patience >= int(certificate.settings.get("patience", 0))
        if name == certificate.policy and strict and patient:
            return
        wanted = "never"
        if least != float("inf"):
            wanted += f", or {certificate.policy} with a threshold of at least {least:.6g}"
        if self.classifier.certified_ is not None and self.classifier.certified_.dial is not None:
            wanted += ", or a certified point of the dial"
        raise Bolder(
            f"The policy should be stricter than the certificate: {wanted}. Found {_shown(told)}. "
            "The server may allow others: `offramp serve --allow-uncertified`."
        )


def _shown(told: dict[str, object]) -> str:
    return " ".join(f"{value}" if key == "name" else f"{key} {value}" for key, value in told.items())
