"""MODEL -> PEOPLE: counters and histograms, in the format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from offramp.serve.answering import Answer
from offramp.serve.batcher import Ran

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128)
CERTIFICATE = ("certified", "measured", "void", "none")
"""In force with a promise; in force for a budget, without one; beside a model that it is not about; absent."""


class Metrics:
    """What a server counts."""

    def __init__(self, layers: int, certificate: str, waiting: Callable[[], float]) -> None:
        home = self.registry = CollectorRegistry()
        self.requests = Counter("offramp_requests", "Requests by path and status.", ["path", "status"], registry=home)
        self.seconds = Histogram(
            "offramp_request_seconds", "From the request to its answer.", ["path"], buckets=SECONDS, registry=home
        )
        self.depths = Histogram(
            "offramp_exit_depth", "Depths at which texts left.", buckets=tuple(range(1, layers + 1)), registry=home
        )
        self.cut = Counter("offramp_texts_cut", "Texts that were longer than the model takes.", registry=home)
        self.batches = Histogram("offramp_batch_texts", "Texts that ran together.", buckets=TEXTS, registry=home)
        self.running = Histogram("offramp_batch_seconds", "How long a batch ran.", buckets=SECONDS, registry=home)
        self.waited = Histogram(
            "offramp_queue_seconds", "How long the first text of a batch waited.", buckets=SECONDS, registry=home
        )
        Gauge("offramp_queue_texts", "Texts that wait.", registry=home).set_function(waiting)
        state = Gauge("offramp_certificate", "1 for the state that the certificate is in.", ["state"], registry=home)
        for name in CERTIFICATE:
            state.labels(name).set(name == certificate)

    def ran(self, ran: Ran) -> None:
        """A batch was run."""
        self.batches.observe(ran.items)
        self.running.observe(ran.seconds)
        self.waited.observe(ran.waited)

    def answered(self, answers: Iterable[Answer]) -> None:
        """Texts were answered."""
        for answer in answers:
            self.depths.observe(answer.depth)
            if answer.cut:
                self.cut.inc()

    def replied(self, path: str, status: int, seconds: float) -> None:
        """A request was replied to."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self.registry)
