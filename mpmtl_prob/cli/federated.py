"""Command ``mpmtl-prob federated``: one release over many sites, in this process or by processes on this machine."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mpmtl_prob.cli import stages
from mpmtl_prob.cli.options import print_json, shows_progress

if TYPE_CHECKING:
    from mpmtl_prob.data.tasks import TaskData
    from mpmtl_prob.federated.flower.sites import Config

WHAT = {
    "demo": "all owners in this process",
    "sites": "a Flower link and its nodes, processes on this machine",
    "step": "a site of a study, from files: answers one stage a call",
    "coordinate": "the server of a study, from files: asks one stage a call, and writes the release at the end",
}
_TRUST = ("curator", "secure_sum", "no_curator")


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = command("federated", run, "one release over many sites: whom --trust trusts with what, and what each sees")
    parser.add_argument("what", metavar="WHAT", help="; ".join(f"{name}: {text}" for name, text in WHAT.items()))
    parser.add_argument(
        "--data",
        default="synthetic_low_rank",
        help="demo, sites: synthetic_low_rank, the default, synthetic_group_sparse or school",
    )
    parser.add_argument("--epsilon", type=float, default=1.0, help="demo, sites: the budget; default 1")
    parser.add_argument(
        "--trust",
        default="secure_sum",
        help="who sees messages: curator, that one party; secure_sum, the default, nobody, and the server sees their sum, to "
        "which it adds the noise; no_curator, nobody, and each site adds its share of the noise",
    )
    parser.add_argument(
        "--draws",
        type=int,
        default=300,
        help="demo: draws of NUTS per chain; warmup takes as many, up to 140; default 300",
    )
    parser.add_argument("--folder", type=Path, help="sites: folder for all files that they write")
    parser.add_argument(
        "--nodes", type=int, default=3, help="sites: number of nodes, each with its part of the tasks; default 3"
    )
    parser.add_argument("--timeout", type=float, default=300.0, help="sites: seconds for every stage; default 300")
    parser.add_argument("--insecure", action="store_true", help="sites: without TLS, and any node is admitted")
    parser.add_argument("--signed", action="store_true", help="sites: with long-term keys of the sites")
    stages.add(parser)


def run(options: argparse.Namespace) -> None:
    """Run the requested mode. Raises ValueError for an unknown one."""
    from mpmtl_prob.cli import demo

    if options.what not in WHAT:
        raise ValueError(f"WHAT: expected one of {', '.join(WHAT)}, got {options.what!r}")
    if options.data not in demo.DATA:
        raise ValueError(f"--data: expected one of {', '.join(demo.DATA)}, got {options.data!r}")
    if options.trust not in _TRUST:
        raise ValueError(f"--trust: expected one of {', '.join(_TRUST)}, got {options.trust!r}")
    commands = {"demo": _demo, "sites": _sites, "step": stages.step, "coordinate": stages.coordinate}
    commands[options.what](options)


def _demo(options: argparse.Namespace) -> None:
    from mpmtl_prob.cli import demo_federated

    shown = demo_federated.run(
        options.data, options.epsilon, trust=options.trust, draws=options.draws, seed=options.seed,
        progress_bar=shows_progress(options),
    )  # fmt: skip
    if options.json:
        print_json(shown.to_dict())
    else:
        print(f"\n{shown}")


def _sites(options: argparse.Namespace) -> None:
    from mpmtl_prob import Release
    from mpmtl_prob.federated.flower.sites import RunFailed, Sites

    if options.folder is None:
        raise ValueError("--folder: needs one, for what the link and its nodes write")
    if (options.folder / "out" / "release.nc").exists():
        raise ValueError(
            f"--folder: the sites in {str(options.folder)!r} have answered a run, and answer one; take another"
        )
    parts, config = _of_demo(options) if options.study is None else stages.of_study(options)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # exits through `finally`, which ends the processes that were started
    try:
        with Sites(options.folder, parts, tls=not options.insecure, signed=options.signed) as sites:
            outcome = sites.run(config, progress_bar=shows_progress(options))
    except RunFailed as error:
        raise ValueError(str(error)) from error
    if options.json:
        print_json(outcome)
        return
    print(Release.load(options.folder / "out" / "release.nc"))
    print(
        f"{outcome['sites']} sites in {outcome['seconds']:.0f} s, {sum(outcome['moved'].values()) / 1000:.1f} kB moved"
    )
    print(
        f"written to {options.folder / 'out'}/: outcome.json, release.nc; the link and every node have a log beside it"
    )


def _of_demo(options: argparse.Namespace) -> tuple[list[Config], Config]:
    """Return configurations of the nodes and of the run, for a demonstration's data."""
    from mpmtl_prob.cli import demo

    tasks, _, _ = demo.load(options.data, options.seed)
    if not 2 <= options.nodes <= tasks.num_tasks:
        raise ValueError(f"--nodes: expected 2 to {tasks.num_tasks}, the number of tasks, got {options.nodes}")
    parts: list[Config] = [
        {"demo": options.data, "part": i, "parts": options.nodes, "trust": options.trust} for i in range(options.nodes)
    ]
    return parts, {
        "epsilon": options.epsilon, "trust": options.trust, "num-tasks": tasks.num_tasks,
        "features": _names(tasks), "timeout": options.timeout, "dropouts": 0,
    }  # fmt: skip


def _names(tasks: TaskData) -> str:
    """Return names of features as a configuration holds them, or their number."""
    named = all(isinstance(name, str) for name in tasks.features)
    return ",".join(map(str, tasks.features)) if named else str(tasks.num_features)
