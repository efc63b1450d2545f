"""A SuperNode that runs the app of its own installation and no other. Takes every option of ``flower-supernode``.

    python -m mpmtl_prob.federated.flower.node --superlink HOST:8000 --root-certificates ca.pem --node-config '...'

Flower sends the app to the nodes: whoever submits a run, or holds the link, says what runs beside an owner's rows, and a
node takes it. This one compares it, byte for byte, with the app that came with its owner's ``mpmtl_prob``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mpmtl_prob.federated.flower.sites import app


def main() -> None:
    """Start it.

    Raises:
        ImportError: without the extra ``flower``, or with a version of Flower whose nodes check apps in another place.
    """
    from flwr.supernode import start_client_internal as flower
    from flwr.supernode.cli.flower_supernode import flower_supernode

    if not all(callable(getattr(flower, name, None)) for name in ("_verify_fab", "_pull_and_store_message")):
        raise ImportError("flwr: expected 1.41, whose nodes verify apps where this one does")
    flower._verify_fab = lambda fab, _: {fab.hash_str, _digest(fab.content)} == {_own()}
    flower._pull_and_store_message = _verifying(flower._pull_and_store_message)
    flower_supernode()


def _verifying(pull: Callable[..., int | None]) -> Callable[..., int | None]:
    """Flower verifies an app where a node has told it whom to trust, and a link has said that it passes signatures on."""

    def pulled(*, get_fab: Callable[..., Any], **more: Any) -> int | None:
        def told(*which: Any) -> Any:
            return replace(get_fab(*which), verifications={"valid_license": "this node's own app"})

        return pull(get_fab=told, **more | {"trusted_entities": {"self": ""}})

    return pulled


def _own() -> str:
    """Of the app that is installed here."""
    from flwr.cli.build import build_fab_from_disk

    return _digest(build_fab_from_disk(app()))


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


if __name__ == "__main__":
    main()
