"""A model folder on the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from offramp.classifier import Classifier
from offramp.errors import ModelError
from offramp.exits.checkpoint import SEEN, WEIGHTS, verify
from offramp.exits.manifest import MANIFEST
from offramp.model_card import FILE, is_of_another, write_card
from offramp.runtime import onnx_folder
from offramp.runtime.certified import CERTIFICATE, DIAL, FITTED

if TYPE_CHECKING:
    from huggingface_hub import HfApi


OLD = [WEIGHTS, SEEN, MANIFEST, CERTIFICATE, FITTED, DIAL]
OLD += [onnx_folder.MANIFEST, onnx_folder.LABELS, "exit-*.onnx"]
"""What a model of either kind may have left in a repository, and would be read beside or in place of a new one."""


def push(folder: Path, repository: str, private: bool = False, api: HfApi | None = None) -> str:
    """Upload a model folder, trained or exported, with card and certificate, without its training; its address now."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]

    named = [*verify(folder), MANIFEST]
    if onnx_folder.is_exported(folder):
        named += [*onnx_folder.read(folder)[0].files, onnx_folder.MANIFEST]
    _card(folder, Classifier.load(folder))
    wanted = [*named, FILE, CERTIFICATE, FITTED, DIAL]
    hub = api or HfApi()
    try:
        hub.create_repo(repository, private=private, exist_ok=True)
        done = hub.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=wanted,
            delete_patterns=OLD,  # in the same commit, but for those that it brings
            commit_message="Upload an offramp model",
        )
    except (HTTPError, OSError, ValueError) as error:  # a name that no repository can have is a ValueError
        told = str(error).strip().splitlines() or [type(error).__name__]
        # What the hub answered is an HfHubHTTPError; what did not reach it is any other error of the network.
        unheard = isinstance(error, (HTTPError, ConnectionError)) and not isinstance(error, HfHubHTTPError)
        said = f"{told[0].rstrip(' .')}."
        raise ModelError(
            f"`{folder}` should go to `{repository}` on the hub. "
            + (
                f"It was not reached: {said} Check the network, and that HF_HUB_OFFLINE is not set."
                if unheard
                else f"The hub says: {said} Log in with `hf auth login`, and name the repository OWNER/NAME."
            )
        ) from error
    return str(done.repo_url)


def _card(folder: Path, classifier: Classifier) -> None:
    """Write the card where there is none; one that tells of another model, or makes another promise, is refused."""
    if not (folder / FILE).exists():
        write_card(folder, classifier)
    elif is_of_another(folder, classifier):
        raise ModelError(
            f"`{folder / FILE}` should be about this model and its certificate. It was written before the model was "
            f"trained or calibrated anew: write it again with `offramp card {folder}`."
        )
