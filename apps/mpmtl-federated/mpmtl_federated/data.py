"""What a node is told by its owner: which rows, where to keep its account, and what it insists upon."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mpmtl_prob import Schema, TaskData, TaskShards
from mpmtl_prob._util.files import read_cells, read_table
from mpmtl_prob.desk import make_message
from mpmtl_prob.desk.site import StudyPolicy
from mpmtl_prob.federated import Signer, SitePolicy
from mpmtl_prob.privacy import Ledger

#: Letters of a study's hash at least.
_AGREED = 8
#: What a node's configuration may say.
KNOWN = {
    "folder", "data", "task", "target", "exclude", "intercept", "part", "parts", "demo", "trust", "epsilon", "delta",
    "adjacency", "least", "colluders", "runs", "signing-key", "known-keys", "unsafe-seed", "partition-id", "num-partitions",
    "study", "participants", "agreed",
}  # fmt: skip


def owner(node: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of :func:`mpmtl_prob.federated.flower.apps.answer`.

    A node of a simulation, which has a ``partition-id`` and no owner, takes its part of the data that the run names; any
    other goes by its own configuration alone.

    Raises:
        ValueError: a configuration that says something else than README.md lists.
    """
    if "partition-id" in node and "folder" not in node:
        number, parts = int(node["partition-id"]), int(node["num-partitions"])
        folder = Path(str(run["out"])) / f"owner-{number}"
        own = {"demo": run["simulated"], "part": number, "parts": parts, "folder": str(folder), "trust": "curator"}
        return owner(own, run)
    if unknown := node.keys() - KNOWN:  # a condition that is misspelt is none
        raise ValueError(f"node configuration: expected {', '.join(sorted(KNOWN))}, got {', '.join(sorted(unknown))}")
    folder = Path(str(node["folder"]))
    ledger = folder / "ledger.db"
    seed = node.get("unsafe-seed", -1)
    return {
        "source": source(node),
        "folder": folder,
        "policy": policy(node),
        "runs": node.get("runs", 1),
        "ledger": Ledger(ledger) if ledger.exists() else None,
        "signer": signer(node),
        "unsafe_seed": None if seed < 0 else seed,
    }


def policy(node: Mapping[str, Any]) -> SitePolicy:
    """What the owner insists upon; of a study at least what its file says."""
    names = ("epsilon", "delta", "adjacency", "least", "colluders")
    said = {name: node[name] for name in names if name in node}
    trust = node.get("trust", "secure_sum")
    return SitePolicy(trust=trust, **said) if "study" not in node else StudyPolicy.of(study(node), trust, **said)


def study(node: Mapping[str, Any]) -> Schema:
    """The study's file, to which the owner has agreed once, by its hash.

    Raises:
        ValueError: nobody has agreed to this file.
    """
    found = Schema.read(str(node["study"]))
    agreed = str(node.get("agreed", ""))
    if len(agreed) < _AGREED or not found.digest.startswith(agreed):
        raise ValueError(
            f"agreed: expected the first {_AGREED} letters of the study's hash or more, of an owner who has read what leaves "
            f"and what is promised (mpmtl-prob message --study shows both, and the hash), got {agreed!r}"
        )
    return found


def _of_study(node: Mapping[str, Any]) -> Any:
    """The rows of the study's participants at this node; their messages where one has no rows that the study keeps."""
    schema, table = study(node), read_cells("data", str(node["data"]))
    ids = [name.strip() for name in str(node["participants"]).split(",")] if "participants" in node else [None]
    made = [make_message(schema, table, name) for name in ids]
    if all(one.rows for one in made):
        return schema.tasks(table, [one.participant for one in made])
    return np.stack([one.vector for one in made], axis=1)


def signer(node: Mapping[str, Any]) -> Signer | None:
    """The owner's long-term key, and those of all sites; None where neither is named."""
    named = [node.get(name) for name in ("signing-key", "known-keys")]
    if named == [None, None]:
        return None
    if None in named:
        raise ValueError("signing-key, known-keys: expected both, got one of them")
    return Signer.read(*map(str, named))


def source(node: Mapping[str, Any]) -> Callable[[], TaskData | TaskShards]:
    """Reads ``data``, a CSV file or a folder of parquet files, with its columns ``task`` and ``target``; or a ``demo``.

    Features are all other columns but those of ``exclude``, names with commas between them; the log lists them.

    Of many tasks ``part`` of ``parts`` is this node's. With ``study``, the file that says everything else, ``participants``
    are whose rows of ``data`` are meant.
    """
    if "study" in node:
        study(node)  # whose owner has agreed, before anything is said
        return lambda: _of_study(node)
    part, parts = int(node.get("part", 0)), int(node.get("parts", 1))
    if "demo" in node:
        return lambda: _some(_demo(str(node["demo"])), part, parts)
    if not isinstance(intercept := node.get("intercept", False), bool):
        raise ValueError(f"intercept: expected true or false, got {intercept!r}")
    path, columns = Path(str(node["data"])), {"task": str(node["task"]), "target": str(node["target"])}
    named = {
        **columns,
        "exclude": [name.strip() for name in str(node["exclude"]).split(",")] if "exclude" in node else None,
        "intercept": intercept,
    }
    if path.is_dir():
        return lambda: _told(_files(TaskShards.from_parquet(path, **named, progress_bar=False), part, parts))
    return lambda: _told(_csv(path, named))


def _demo(name: str) -> TaskData:
    from mpmtl_prob import datasets

    return datasets.school() if name == "school" else datasets.synthetic_low_rank().train


def _some(tasks: TaskData, part: int, parts: int) -> TaskData:
    mine = range(part, tasks.num_tasks, parts)
    return TaskData.from_lists(*zip(*map(tasks.rows_of, mine), strict=True), features=tasks.features)


def _files(shards: TaskShards, part: int, parts: int) -> TaskShards:
    return replace(shards, parts=shards.parts[part::parts])


def _told[T: (TaskData, TaskShards)](data: T) -> T:
    """Log which columns are the features, which are public: another outcome may be among them."""
    print(f"features are all other columns: {', '.join(map(str, data.features))}", file=sys.stderr, flush=True)
    return data


def _csv(path: Path, columns: Mapping[str, Any]) -> TaskData:
    return TaskData.from_pandas(read_table("data", path), **columns)
