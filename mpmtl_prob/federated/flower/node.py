"""Flower SuperNode that runs only the app of its own installation. Takes every option of ``flower-supernode``.

    python -m mpmtl_prob.federated.flower.node --superlink HOST:8000 --root-certificates ca.pem --node-config '...'

Flower sends the app to the nodes, so that whoever submits a run, or controls the link, chooses the code that runs beside a
data owner's rows. This node compares that app, byte for byte, with the one that its own ``mpmtl_prob`` came with, and
refuses any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mpmtl_prob.federated.flower.sites import app


def main() -> None:
    """Start the node.

    Raises:
        ImportError: the extra ``flower`` is missing, or this version of Flower checks apps in another place.
    """
    from flwr.supernode import start_client_internal as flower
    from flwr.supernode.cli.flower_supernode import flower_supernode

    if not all(callable(getattr(flower, name, None)) for name in ("_verify_fab", "_pull_and_store_message")):
        raise ImportError("flwr: expected 1.41, in which a node's check of apps can be replaced")
    flower._verify_fab = lambda fab, _: {fab.hash_str, _digest(fab.content)} == {_own()}
    flower._pull_and_store_message = _verifying(flower._pull_and_store_message)
    flower_supernode()


def _verifying(pull: Callable[..., int | None]) -> Callable[..., int | None]:
    """Wrap Flower's function that fetches an app, so that Flower always verifies the app.

    Flower calls ``_verify_fab`` only if the node names trusted entities and the link reports verified signatures.
    """

    def pulled(*, get_fab: Callable[..., Any], **more: Any) -> int | None:
        def verified(*arguments: Any) -> Any:
            return replace(get_fab(*arguments), verifications={"valid_license": "this node's own app"})

        return pull(get_fab=verified, **more | {"trusted_entities": {"self": ""}})

    return pulled


def _own() -> str:
    """Return the digest of the app that is installed here."""
    from flwr.cli.build import build_fab_from_disk

    return _digest(build_fab_from_disk(app()))


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


if __name__ == "__main__":
    main()
