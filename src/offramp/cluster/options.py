"""The flags that send work to Ray, the same for every verb that has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from offramp.errors import UserError, need

if TYPE_CHECKING:
    from offramp.cluster.session import Cluster

OnRay = Annotated[bool, typer.Option("--ray", help="Work on Ray: here, or on the cluster of --address (docs/ray.md).")]
Address = Annotated[str | None, typer.Option(help="`--ray`: a cluster, as HOST:PORT or `auto`; here unless given.")]
Workers = Annotated[int | None, typer.Option(help="`--ray`: workers at a time; as many as cores unless given.")]


def cluster_of(
    on_ray: bool,
    address: str | None,
    workers: int | None,
    threads: int | None,
    only: Mapping[str, object] | None = None,
) -> Cluster | None:
    """Where to work; None: in this process. `only` are further flags that mean nothing there."""
    if on_ray:
        from offramp.cluster.session import Cluster

        need("ray", "ray")
        return Cluster(address or "", workers or 0, 1 if threads is None else threads)
    given = [flag for flag, value in {"--address": address, "--workers": workers, **(only or {})}.items() if value]
    if given:
        raise UserError(f"`{given[0]}` should come with `--ray`, which hands the work to Ray's workers.")
    return None
