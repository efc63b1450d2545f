"""Commands ``federated step`` and ``federated coordinate``: a run without a curator from files, one stage per call."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpmtl_prob._util.words import plural
from mpmtl_prob.cli.desk import (
    agree,
    check_new,
    held_interrupts,
    own_key,
    read_rows,
    read_study,
    say,
    study_options,
    tell,
    until_written,
    warnings_told,
    write_release,
)
from mpmtl_prob.cli.options import open_ledger

if TYPE_CHECKING:
    from mpmtl_prob.data.tasks import TaskData
    from mpmtl_prob.desk.coordinator import Coordinator
    from mpmtl_prob.desk.site import SiteDesk
    from mpmtl_prob.federated.flower.sites import Config
    from mpmtl_prob.schema import Schema

_AGREED = "agreed.json"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of both commands."""
    group = parser.add_argument_group("step and coordinate")
    study_options(group, required=False)
    group.add_argument("--csv", type=Path, help="step: this site's rows, one a line; sites: those of all")
    group.add_argument("--state", type=Path, help="private folder that keeps what is needed for the next call")
    group.add_argument("--inbox", type=Path, help="folder with files from the others")
    group.add_argument("--outbox", type=Path, help="folder for files to the others, which you bring to them")
    group.add_argument(
        "--no-estimate", action="store_true", help='step: send "no estimate", which says nothing of any row'
    )
    group.add_argument("--key", type=Path, help="step: this site's private key, where the study has its public one")
    group.add_argument("--yes", action="store_true", help="step, sites: agree without being asked, in a script")
    group.add_argument(
        "--close", action="store_true", help="coordinate: go on; sites that have not answered count as vanished"
    )
    group.add_argument("--dropouts", type=int, help="coordinate: number of sites that may vanish; default a third")
    group.add_argument(
        "--colluders", type=int, default=1, help="coordinate: number of sites that may reveal all they know; default 1"
    )
    group.add_argument("--ledger", type=Path, help="file that pays: coordinate's, or a site's with no_curator")
    group.add_argument("--total", type=float, help="with a new --ledger: the eps it declares, at the release's delta")
    group.add_argument("--out", type=Path, help="coordinate: NetCDF file for the release, at the end")


def _needed(options: argparse.Namespace, *names: str) -> None:
    if missing := [name for name in names if getattr(options, name) is None]:
        raise ValueError(f"--{missing[0]}: expected it with federated {options.what}, got none")


def step(options: argparse.Namespace) -> None:
    """Answer the stage that waits in the inbox, if there is one."""
    from mpmtl_prob.desk.site import SiteDesk
    from mpmtl_prob.federated import RunRefused

    _needed(options, "study", "participant", "state", "inbox", "outbox")
    study = read_study(options)
    key, delta = own_key(options, "participant"), study.spec.delta
    ledger = open_ledger(
        options, **({} if delta is None else {"delta": delta}), adjacency=study.spec.adjacency, unit="task"
    )
    site = SiteDesk(study, options.participant, options.state, trust=options.trust, key=key, ledger=ledger)
    asked = site.asked(options.inbox)
    if asked is None:
        say(options, {"answered": None, "written": None}, "nothing in the inbox waits for an answer")
        return
    _agree(options, study, site)
    options.outbox.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with held_interrupts(), warnings_told(options):
            written = site.answer(asked, lambda: _rows(options, study), options.outbox)
    except RunRefused as error:
        raise ValueError(str(error)) from error
    result: dict[str, Any] = {"run": asked.run, "answered": asked.stage, "written": str(written)}
    if site.own_copy.exists():
        result["own_copy"] = str(site.own_copy)
    say(options, result, f"answered {asked.stage}: {written}, for the server")


def _agree(options: argparse.Namespace, study: Schema, site: SiteDesk) -> None:
    """Ask once per study for agreement, before anything leaves, and remember the answer."""
    from mpmtl_prob._util.files import write_text
    from mpmtl_prob.desk import make_message

    place = site.state / _AGREED
    if place.exists() and json.loads(place.read_text())["study"] == study.digest:
        options.no_estimate |= json.loads(place.read_text())["no_estimate"]
        return
    if options.csv is None and not options.no_estimate:
        raise ValueError("--csv: expected this site's rows, or --no-estimate, got neither")
    with warnings_told(options):
        rows = None if options.no_estimate else read_rows(options.csv)
        proposed = make_message(study, rows, options.participant, no_estimate=options.no_estimate)
    for line in proposed.told:
        tell(options, line)
    seen = {
        "curator": "the server",
        "secure_sum": f"nobody; the server sees the sum over all {plural(study.task)}, and adds the noise",
        "no_curator": f"nobody; each {study.task} adds noise, and the sum is seen with it alone",
    }[options.trust]
    agreed = agree(options, proposed, seen)
    options.no_estimate = agreed.says_nothing
    write_text(place, json.dumps({"study": study.digest, "no_estimate": agreed.says_nothing}), private=True)


def _rows(options: argparse.Namespace, study: Schema) -> TaskData | None:
    """Return the rows of this site; None if it sends no estimate, or no row is left."""
    from mpmtl_prob.schema import read_rows as rows_of

    if options.no_estimate:
        return None
    if options.csv is None:
        raise ValueError("--csv: expected this site's rows at this stage, got none")
    rows = rows_of(study, read_rows(options.csv), options.participant)
    return rows.tasks(study) if len(rows.kept) else None


def coordinate(options: argparse.Namespace) -> None:
    """Ask all sites for the next stage once they have answered the last; write the release at the end."""
    from mpmtl_prob.desk.coordinator import Coordinator
    from mpmtl_prob.federated import TooFewOwners

    _needed(options, "study", "state", "inbox", "outbox", "out")
    study = read_study(options)
    check_new("--out", options.out)
    server = Coordinator(
        study, options.state, trust=options.trust, dropouts=options.dropouts, colluders=options.colluders
    )
    if not server.begun:
        _told_stage(options, server, server.ask(options.outbox), [])
        return
    if server.summed is None:
        waiting = server.waiting(options.inbox)
        if waiting and not options.close:
            _told_stage(options, server, [], waiting)
            return
        try:
            server.close(options.inbox)
        except TooFewOwners as error:
            advice = "wait for more, or begin anew with more --dropouts, in another --state"
            raise ValueError(f"--close: {error}; {advice}") from error
        if waiting:
            tell(options, f"went on without {', '.join(waiting)}")
    if server.summed is None:
        _told_stage(options, server, server.ask(options.outbox), [])
        return
    _finish(options, study, server)


def _told_stage(options: argparse.Namespace, server: Coordinator, written: list[Path], waiting: list[str]) -> None:
    facts = {"run": server.run, "stage": server.stage, "written": [str(path) for path in written], "waiting": waiting}
    if waiting:
        say(options, facts, f"stage {server.stage}: waiting for {', '.join(waiting)}; or go on without them by --close")
    else:
        say(options, facts, f"stage {server.stage}: {len(written)} files in {options.outbox}, one for every site")


def _finish(options: argparse.Namespace, study: Schema, server: Coordinator) -> None:
    from mpmtl_prob.releases.spec import default_delta

    delta = study.promise["delta"] or default_delta(study.num_tasks)
    ledger = open_ledger(options, delta=delta, adjacency=study.spec.adjacency, unit="task")
    with until_written(options.out):
        release = server.settle(ledger=ledger)
        written = write_release(options, release)
    assert server.summed is not None
    facts = {"run": server.run, "stage": None, "sites": server.summed.sites, "out": str(written)}
    say(options, facts | {"guarantee": release.guarantee.to_dict()}, f"{release}\nwritten to {written}, for everybody")


def of_study(options: argparse.Namespace) -> tuple[list[Config], Config]:
    """Return configurations of nodes and of a run of ``sites``, for a study with all rows in one table on this machine."""
    _needed(options, "csv")
    study = read_study(options)
    if not study.participants:
        raise ValueError("--study: expected a file that lists its participants, who are shared out among the nodes")
    if not 2 <= options.nodes <= study.num_tasks:
        raise ValueError(
            f"--nodes: expected 2 to {study.num_tasks}, the number of {plural(study.task)}, got {options.nodes}"
        )
    study.tasks(read_rows(options.csv))  # finds what a node would refuse, before any node starts
    if not options.yes:
        raise ValueError(
            f"--yes: expected it, as messages of all {study.num_tasks} {plural(study.task)} leave their nodes; what "
            "leaves one, and what is promised, mpmtl-prob message shows"
        )
    common = {
        "study": str(options.study.resolve()),
        "data": str(options.csv.resolve()),
        "trust": options.trust,
        "agreed": study.digest,
    }
    ids = [study.participants[i :: options.nodes] for i in range(options.nodes)]
    parts: list[Config] = [common | {"participants": ",".join(names)} for names in ids]
    return parts, {"study": common["study"], "trust": options.trust, "timeout": options.timeout, "dropouts": 0}
