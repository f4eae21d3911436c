"""A connection to Ray: started on this machine, or to a cluster that is there.

Ray is imported here and nowhere else, and only when somebody asks for it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from offramp.errors import ClusterError, ConfigError, MissingExtra, UserError

RETRIES = 5
"""How often work is begun again whose worker ended without a word."""

STORE = 256 * 2**20
"""Bytes of Ray's object store on this machine: plans and receipts pass through it, texts and models do not."""


@dataclass(frozen=True)
class Cluster:
    """Where work is done, and by how many."""

    address: str = ""  # of a cluster; empty: Ray is started on this machine
    workers: int = 0  # at a time; 0: as many as there are cores for
    threads: int = 1  # of each worker, which keeps so many cores for itself

    def __post_init__(self) -> None:
        if self.workers < 0 or self.threads < 1:
            raise ConfigError(
                f"`workers` should be 0 or more and `threads` 1 or more. Found {self.workers} and {self.threads}."
            )


@dataclass(frozen=True)
class Session:
    """A connection that is open."""

    ray: Any
    workers: int
    threads: int


@contextmanager
def connected(cluster: Cluster) -> Iterator[Session]:
    """Be connected to Ray; a process that already is stays so, before and after."""
    ray = _ray()
    ours = not ray.is_initialized()
    if ours:
        _begin(ray, cluster)
    try:
        cores = int(ray.cluster_resources().get("CPU", 1))
        yield Session(ray, cluster.workers or max(1, cores // cluster.threads), cluster.threads)
    finally:
        if ours:
            ray.shutdown()


def gone(what: str) -> ClusterError:
    """The error for work that was given up."""
    return ClusterError(
        f"The worker of {what} ended without a word {RETRIES + 1} times, as one does that is killed or has no memory "
        "left. Run the same command again: it goes on where it was."
    )


def _begin(ray: Any, cluster: Cluster) -> None:
    listener = signal.getsignal(signal.SIGTERM)
    told = {name: value for name, value in os.environ.items() if name.startswith(("OFFRAMP_", "HF_"))}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    here: dict[str, Any] = {
        "address": "local",  # not the cluster that an environment variable may name
        "num_cpus": max(cores, cluster.workers * cluster.threads),
        "object_store_memory": STORE,
        "include_dashboard": False,
    }
    there: dict[str, Any] = {"address": cluster.address, "runtime_env": {"env_vars": told}}
    try:
        ray.init(**(there if cluster.address else here), log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        what = f"A Ray cluster should answer at `{cluster.address}`" if cluster.address else "Ray should start here"
        raise UserError(f"{what}. Found: {reason}. Check the address and `ray status`.") from error
    finally:
        # Ray takes the signal for itself, and its exit code is not ours.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, listener)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told that Ray runs here
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingExtra("ray", "ray") from None
    return ray
