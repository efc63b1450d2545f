"""Serialisation of an invitation to JSON, for sites on other machines."""

from __future__ import annotations

import json
from typing import Any

from mpmtl_prob._util.checks import positive, whole
from mpmtl_prob.federated.invitation import Invitation, Trust
from mpmtl_prob.federated.secure_sum import RUN, Agreed
from mpmtl_prob.privacy.mechanisms import MatrixMechanism, read_mechanism, write_mechanism
from mpmtl_prob.releases.effects import EffectsLayout
from mpmtl_prob.releases.spec import Terms

_TERMS = ("epsilon", "adjacency", "num_tasks", "features", "lattice", "message", "scaling")


def write(invitation: Invitation) -> bytes:
    """Return an invitation as JSON. It holds numbers and texts only, so that a reader executes nothing."""
    terms = invitation.terms
    fields: dict[str, Any] = {
        "mechanisms": [write_mechanism(law) for law in terms.mechanisms],
        "terms": {name: getattr(terms, name) for name in _TERMS},
        "trust": invitation.trust,
        "sites": invitation.sites,
        "agreed": [invitation.agreed.run.hex(), *invitation.agreed[1:]],
    }
    if terms.effects is not None:
        fields["effects"] = terms.effects.to_dict()
    if invitation.study is not None:
        fields["study"] = invitation.study
    return json.dumps(fields, sort_keys=True).encode()


def read(text: bytes) -> Invitation:
    """Parse an invitation that :func:`write` wrote. Raises ValueError for anything else."""
    try:
        fields = json.loads(text)
        term_fields = fields["terms"]
        read_laws = [read_mechanism(law) for law in fields["mechanisms"]]
        laws = tuple(law for law in read_laws if isinstance(law, MatrixMechanism))
        if len(laws) < len(read_laws):
            raise TypeError("mechanisms")
        run, length, threshold, partners, least = fields["agreed"]
        if len(bytes.fromhex(run)) != RUN:
            raise ValueError(f"run: expected a name of {RUN} bytes")
        agreed = Agreed(
            bytes.fromhex(run),
            whole("length", length),
            whole("threshold", threshold),
            None if partners is None else whole("partners", partners),
            whole("least", least),
        )
        names = term_fields["features"]
        if not isinstance(names, list) or not all(isinstance(name, str | int | float) for name in names):
            raise TypeError(f"features: expected a list of names, got {type(names).__name__}")
        terms = Terms(
            laws, positive("epsilon", term_fields["epsilon"]), term_fields["adjacency"], term_fields["num_tasks"],
            tuple(names),
            positive("lattice", term_fields["lattice"]), term_fields["message"], term_fields["scaling"],
            effects=EffectsLayout.from_dict(fields["effects"]) if "effects" in fields else None,
        )  # fmt: skip
        study = fields.get("study")
        if study is not None and not isinstance(study, str):
            raise TypeError("study")
        return Invitation(terms, Trust(fields["trust"]), whole("sites", fields["sites"]), agreed, study)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"invitation: expected one that this version wrote: {error}") from error
