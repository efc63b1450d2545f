"""The command line: thin, over the same functions as the library."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpmtl_prob import cli_federated, cli_reproduce

if TYPE_CHECKING:
    from mpmtl_prob.privacy import Ledger
    from mpmtl_prob.tasks import TaskData

_EXAMPLES = """examples:
  mpmtl-prob demo                                   the papers' synthetic data, every arm, about a minute
  mpmtl-prob demo --data school --epsilon 0.3 1 3
  mpmtl-prob release --csv marks.csv --task school --target mark --epsilon 1 --ledger ledger.db --total 2 --out release.nc
  mpmtl-prob fit     --csv marks.csv --task school --target mark --release release.nc --out posterior.nc
  mpmtl-prob compare --csv marks.csv --task school --target mark --epsilon 1
  mpmtl-prob plan --error .01 --epsilon 1 --delta 1e-6 --features 10000      people needed, before whose eyes
  mpmtl-prob adapt --source public.csv --target private.csv --label y --epsilon 1     public data, private records
  mpmtl-prob federated demo                         one release over many sites: who saw what, and what it cost
  mpmtl-prob federated sites --folder out/sites     the same by a Flower link and three nodes on this machine
  mpmtl-prob reproduce fig9 --fast                  one of the papers' experiments; 'all' for all, 'page' for docs/results.md
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
        if sys.stdout is not None:  # which was closed before the start
            sys.stdout.flush()
    except BrokenPipeError:
        return _unread()
    except (ValueError, OSError, ImportError) as error:
        print(f"mpmtl-prob {options.name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"mpmtl-prob {options.name}: interrupted", file=sys.stderr)
        return 130
    return 0


def _unread() -> int:
    """Nobody reads what is printed any more, and has no use for a word about it, which Python would add at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _run(options: argparse.Namespace) -> None:
    import jax

    from mpmtl_prob.inference.sampling.runs import uninterrupted

    jax.config.update("jax_enable_x64", True)  # before it computes anything
    with nullcontext() if options.command is _fit else uninterrupted():  # of a fit a part is worth having
        options.command(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mpmtl-prob",
        description="Multi-task learning in which no task's model leaks to the others.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name, help=text, description=text, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        sub.set_defaults(command=run, name=name)
        sub.add_argument("--json", action="store_true", help="print JSON instead of a table or a sentence")
        sub.add_argument("--seed", type=int, default=0, help="of splits, folds and samplers; never of a release")
        sub.add_argument("--quiet", action="store_true", help="no progress bars")
        return sub

    demo = command("demo", _demo, "run the whole product on one data set and write figures, numbers and a posterior")
    demo.add_argument(
        "--data", default="synthetic_low_rank", help="synthetic_low_rank, synthetic_group_sparse or school"
    )
    demo.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0, 10.0], help="budgets")
    demo.add_argument("--draws", type=int, default=300, help="of NUTS per chain, and as many to adapt, up to 140")
    demo.add_argument("--out", type=Path, default=Path("out"), help="folder for figures, NetCDF and JSON")

    publish = command("release", _release, "let out the tasks' perturbed second moment, once")
    _data_options(publish)
    publish.add_argument("--epsilon", type=float, required=True)
    publish.add_argument("--delta", type=float, default=None, help="default 1 / (m log m)")
    publish.add_argument(
        "--adjacency",
        default="replace",
        help="replace, the default (any other task in its place), or zero_out (no task)",
    )
    publish.add_argument(
        "--mechanism", default="wishart", help="wishart, the default; gaussian; or paper, whose eps is only claimed"
    )
    publish.add_argument(
        "--scaling",
        help="of features by every task's own rows: unit variance (unit), the default of a CSV file; pareto; none",
    )
    publish.add_argument("--clip", type=float, help="messages up to this length, a public number, and no directions")
    publish.add_argument("--ledger", type=Path, help="file that pays for the release; refuses what is over its total")
    publish.add_argument("--total", type=float, help="with a new --ledger: the eps it declares, at the release's delta")
    publish.add_argument(
        "--adaptive",
        action="store_true",
        help="with a new --ledger: for budgets that are chosen by looking at releases",
    )
    publish.add_argument("--out", type=Path, required=True, help="NetCDF file to write")

    fit = command("fit", _fit, "posteriors of every task's weights from its own rows and a release")
    _data_options(fit)
    fit.add_argument("--release", type=Path, required=True, help="file written by the release command")
    fit.add_argument(
        "--newcomers", action="store_true", help="the tasks are not in the release: no message is taken out"
    )
    fit.add_argument("--chains", type=int, default=4)
    fit.add_argument("--draws", type=int, default=300, help="of NUTS per chain, and as many to adapt, up to 140")
    fit.add_argument("--out", type=Path, required=True, help="NetCDF file to write; holds the owners' weights")

    table = command("compare", _compare, "all estimators side by side on held-out rows")
    _data_options(table)
    table.add_argument("--epsilon", type=float, nargs="+", default=[1.0], help="budgets")
    table.add_argument("--fraction", type=float, default=0.3, help="share of every task's rows to train on")
    table.add_argument("--adjacency", default="replace", help="replace, the default, or zero_out")
    table.add_argument("--draws", type=int, default=300, help="of NUTS per chain, and as many to adapt, up to 140")

    for reader in (fit, table):
        reader.add_argument("--likelihood", help="gaussian, the default; student_t; or bernoulli, of labels -1 and 1")

    plan = command(
        "plan", _plan, "how many people a wanted error needs: before one other person, all others, everybody"
    )
    plan.add_argument("--error", type=float, help="that is wanted: the expectation of (estimate - mean)^2 / 4, at most")
    plan.add_argument("--people", type=int, help="the error that so many people have, with or without --error")
    plan.add_argument("--epsilon", type=float, required=True, help="of one person")
    plan.add_argument("--delta", type=float, required=True)
    plan.add_argument("--features", type=int, required=True, help="questions to which everybody has a yes/no answer")
    plan.add_argument("--out", type=Path, default=Path("out/plan.png"), help="picture to write")

    adapt = command(
        "adapt",
        _adapt,
        "a private model from public data: one release of a private table, and all that follows from it",
    )
    adapt.add_argument(
        "--source", type=Path, nargs="+", required=True, help="public tables; every file is a domain of its own"
    )
    adapt.add_argument(
        "--target",
        type=Path,
        required=True,
        help="private table with the same columns, one record a line; one record is protected",
    )
    adapt.add_argument("--label", required=True, help="the column to predict; all others of --source are features")
    _exclude_option(adapt, "columns of --source that are no features, such as another outcome")
    adapt.add_argument("--epsilon", type=float, required=True)
    adapt.add_argument("--delta", type=float, default=None, help="default 1 / n^1.1 of n private records")
    adapt.add_argument("--no-intercept", action="store_true", help="a model through the origin; default with intercept")
    adapt.add_argument("--ledger", type=Path, help="file that pays for it; refuses what is over its total")
    adapt.add_argument("--total", type=float, help="with a new --ledger: the eps it declares, at the release's delta")
    adapt.add_argument("--out", type=Path, help="folder for model.json and a picture; default none")

    cli_federated.add(command)
    cli_reproduce.add(command)
    return parser


class _Version(argparse.Action):
    """Reads the version when it is asked for, which takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"mpmtl-prob {version('mpmtl-prob')}")
        parser.exit()


def _data_options(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--csv", type=Path, help="table with one row per observation, and one line per row")
    source.add_argument("--data", choices=["school"], help="a data set of the library")
    parser.add_argument("--task", help="with --csv: the column that says which task a row belongs to")
    parser.add_argument("--target", help="with --csv: the column to predict")
    parser.add_argument("--features", nargs="+", help="with --csv: feature columns; default all others")
    _exclude_option(parser, "with --csv: columns that are no features, such as another outcome")
    parser.add_argument("--intercept", action="store_true", help="with --csv: give every task an intercept of its own")


def _exclude_option(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--exclude", nargs="+", action="extend", metavar="COLUMN", help=text)


def _tell_features(options: argparse.Namespace, features: Sequence[Any]) -> None:
    """Say once, beside what is printed, which columns were taken since nobody named any: an outcome may be among them."""
    print(
        f"mpmtl-prob {options.name}: features are all other columns, {len(features)}: {', '.join(map(str, features))}; "
        "--exclude leaves columns out that are no features, such as another outcome",
        file=sys.stderr,
    )


def _tasks(options: argparse.Namespace) -> TaskData:
    from mpmtl_prob import TaskData, datasets
    from mpmtl_prob._files import check_names, read_cells

    if options.data:
        if given := [name for name in ("task", "target", "features", "exclude", "intercept") if getattr(options, name)]:
            raise ValueError(f"--{given[0]}: expected it with --csv alone, got --data {options.data}")
        return datasets.school()
    if not options.task or not options.target:
        raise ValueError("--csv: needs --task and --target, the names of two columns")
    frame = read_cells("--csv", options.csv)
    if options.features is None:
        check_names("--csv", options.csv, list(frame.columns))
    columns = {"task": options.task, "target": options.target, "features": options.features, "exclude": options.exclude}
    tasks = TaskData.from_pandas(frame, **columns, intercept=options.intercept)
    if options.features is None:
        _tell_features(options, tasks.slopes.features)
    return tasks


def _ledger(options: argparse.Namespace, **declared: Any) -> Ledger | None:
    """What pays, if anything does. Raises ValueError for options that only a ledger could take."""
    from mpmtl_prob.privacy import Ledger

    adaptive = getattr(options, "adaptive", False)
    if options.ledger is None:
        if options.total is not None or adaptive:
            raise ValueError(f"--{'adaptive' if adaptive else 'total'}: expected it with --ledger alone, got none")
        return None
    new = {} if options.ledger.exists() else declared
    return Ledger(options.ledger, epsilon=options.total, adaptive=adaptive or None, **new)


def _budgets(epsilons: Sequence[float]) -> None:
    from mpmtl_prob._check import positive

    for epsilon in epsilons:
        positive("--epsilon", epsilon)


def _demo(options: argparse.Namespace) -> None:
    from mpmtl_prob import demo

    if options.data not in demo.DATA:
        raise ValueError(f"--data: expected one of {', '.join(demo.DATA)}, got {options.data!r}")
    _budgets(options.epsilon)
    comparison, headline = demo.run(
        options.data,
        options.epsilon,
        options.out,
        draws=options.draws,
        seed=options.seed,
        progress_bar=not options.quiet,
    )
    if options.json:
        print((options.out / "comparison.json").read_text(), end="")
        return
    print(
        f"\n{options.data}: test error, honesty of the 90 % intervals, and what protects a task (zero-out adjacency)\n"
    )
    print(comparison)
    print(f"\n{demo.NOT_COVERED}\n\nthe noise-aware posterior")
    for name, value in headline.items():
        print(f"  {name}: {value:.3f}")
    written = sorted(path.name for path in options.out.iterdir())
    print(f"\nwritten to {options.out}/: {', '.join(written)}")


def _release(options: argparse.Namespace) -> None:
    from mpmtl_prob import release
    from mpmtl_prob._files import check_place
    from mpmtl_prob.releases import default_delta

    tasks = _tasks(options)
    delta = default_delta(tasks.num_tasks) if options.delta is None else options.delta
    if options.out.is_file():  # both before anything is paid for
        raise ValueError(
            f"--out: expected a new file, got {str(options.out)!r}, which is there and may be a release paid for"
        )
    check_place("--out", options.out)
    ledger = _ledger(options, delta=delta, adjacency=options.adjacency)
    published = release(
        tasks,
        options.epsilon,
        delta,
        adjacency=options.adjacency,
        mechanism=options.mechanism,
        scaling=options.scaling,
        message="direction" if options.clip is None else "clip",
        clip=options.clip,
        ledger=ledger,
    )
    published.save(options.out)
    if options.json:
        print(published.to_xarray().attrs["release"])
        return
    print(published)
    if ledger is not None:
        print(ledger)
    print(f"written to {options.out}")


def _fit(options: argparse.Namespace) -> None:
    from mpmtl_prob import Release, inference
    from mpmtl_prob._check import whole
    from mpmtl_prob._files import check_place
    from mpmtl_prob.inference.owner import likelihoods, posteriors
    from mpmtl_prob.inference.sampling.nuts import WARMUP

    tasks, release = _tasks(options), Release.load(options.release)
    whole("--draws", options.draws)
    check_place("--out", options.out)  # this and what follows before the sampler runs
    posteriors.check_features(tasks, release)
    likelihoods.likelihood_of(options.likelihood, tasks)
    shared = inference.shared_covariance(
        release,
        chains=options.chains,
        warmup=min(options.draws, WARMUP),
        draws=options.draws,
        seed=options.seed,
        progress_bar=not options.quiet,
    )
    exclude_own = False if options.newcomers else None
    own = inference.task_posteriors(
        tasks, shared, likelihood=options.likelihood, exclude_own=exclude_own, seed=options.seed,
        progress_bar=not options.quiet,
    )  # fmt: skip
    own.save(options.out)
    summary = own.subspace(max(1, min(3, tasks.slopes.num_features - 1)))  # of rank d there is nothing to say
    if options.json:
        quantiles = summary.spectrum.quantile([0.05, 0.5, 0.95], dim=("chain", "draw")).values.tolist()
        print(json.dumps({"spectrum_05_50_95": quantiles, "seconds": own.seconds, "out": str(options.out)}))
    else:
        print(f"{shared}\n{own}\n{own.diagnose()}\n{summary}\nwritten to {options.out}")
    if shared.to_arviz()["posterior"].sizes["draw"] < options.draws:  # the file holds what was drawn by then
        raise KeyboardInterrupt


def _compare(options: argparse.Namespace) -> None:
    from mpmtl_prob import evaluation
    from mpmtl_prob.inference.owner import likelihoods

    _budgets(options.epsilon)
    tasks = _tasks(options)
    likelihoods.likelihood_of(options.likelihood, tasks)
    train, test = tasks.split(options.fraction, seed=options.seed)
    fits = evaluation.standard_fits(
        train,
        options.epsilon,
        adjacency=options.adjacency,
        likelihood=options.likelihood,
        draws=options.draws,
        seed=options.seed,
        progress_bar=not options.quiet,
    )
    comparison = evaluation.compare(fits, test)
    print(json.dumps(comparison.to_dicts(), indent=2) if options.json else comparison)


def _plan(options: argparse.Namespace) -> None:
    from mpmtl_prob.threat_models import Plan

    plan = Plan(options.epsilon, options.delta, options.features, error=options.error, num_people=options.people)
    said = json.dumps(plan.to_dict(), indent=2) if options.json else str(plan)
    try:
        plan.picture(options.out)
        said += "" if options.json else f"\n\nwritten to {options.out}"
    except ImportError as error:  # the numbers are all that was asked for
        print(f"mpmtl-prob plan: no picture: {error}", file=sys.stderr)
    print(said)


def _adapt(options: argparse.Namespace) -> None:
    from mpmtl_prob.adaptation import accounting, report, tables

    sources, target = tables.read(options.source, options.target, options.label, exclude=options.exclude)
    _tell_features(options, target.features)
    delta = accounting.default_delta(target.num_records) if options.delta is None else options.delta
    if options.out and (report.folder(options.out) / report.MODEL).exists():  # before anything is paid for
        raise ValueError(
            f"--out: expected a folder without {report.MODEL}, which may be paid for, got {str(options.out)!r}"
        )
    ledger = _ledger(options, delta=delta, unit="target record")
    found = report.adapt(
        sources, target, label=options.label, epsilon=options.epsilon, delta=delta,
        intercept=not options.no_intercept, ledger=ledger, seed=options.seed,
    )  # fmt: skip
    try:
        written = found.save(options.out) if options.out else []
    finally:  # it is paid for: what becomes of files or of the terminal, the other has it
        print(json.dumps(found.to_dict(), indent=2) if options.json else found, flush=True)
    if ledger is not None and not options.json:
        print(f"\n{ledger}")
    if options.out:
        if not options.json:
            print(f"\nwritten to {options.out}/: {', '.join(written)}")
        if report.PICTURE not in written:
            print(
                "mpmtl-prob adapt: no picture: pictures need matplotlib: pip install 'mpmtl-prob[plots]'",
                file=sys.stderr,
            )


if __name__ == "__main__":
    sys.exit(main())
