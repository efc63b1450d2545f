"""Commands ``release``, ``fit`` and ``compare`` of ``mpmtl-prob``: from a table of tasks to a release and posteriors."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpmtl_prob.cli import desk
from mpmtl_prob.cli.options import (
    check_budgets,
    exclude_option,
    open_ledger,
    print_json,
    read_reference,
    reference_option,
    shows_progress,
    tell_features,
)

if TYPE_CHECKING:
    from mpmtl_prob.data.estimates import Estimates
    from mpmtl_prob.data.tasks import TaskData
    from mpmtl_prob.inference import OwnerEffects, OwnerPosteriors
    from mpmtl_prob.releases import Release

#: Options that describe the columns of a CSV file.
_OF_CSV = ("task", "target", "features", "exclude", "exposure", "weights", "intercept")
#: Number of tasks whose coefficients are printed; those of more tasks go to a file.
_PRINTED = 5


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the three commands and their options."""
    _add_release(command)
    readers = _add_fit(command), _add_compare(command)
    for reader in readers:
        reader.add_argument(
            "--likelihood",
            help="gaussian, the default; student_t; or bernoulli, for labels -1 and 1; with reference values that "
            "of their outcome: for counts negative_binomial or poisson",
        )


def _add_release(command: Callable[..., argparse.ArgumentParser]) -> None:
    publish = command("release", release, "publish the tasks' second moment with noise, once")
    data_options(publish, estimates=True)
    publish.add_argument(
        "--epsilon", type=float, required=True, help="the budget: the smaller, the less a release can reveal"
    )
    publish.add_argument(
        "--delta", type=float, default=None, help="the budget's other number; default 1 / (m log m) of m tasks"
    )
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
        help="scaling of features by every task's own rows: unit_variance, the default for a CSV file; pareto; none",
    )
    reference_option(publish)
    publish.add_argument(
        "--clip",
        type=float,
        help="bound of the messages' lengths, a public number; by default messages have length 1",
    )
    publish.add_argument(
        "--rounds",
        type=int,
        default=1,
        help="rounds that share the budget, paid for at once: after the first, messages answer the release before; default 1",
    )
    publish.add_argument(
        "--likelihood", help="with --rounds: of the targets in those answers, such as bernoulli for labels -1 and 1"
    )
    publish.add_argument(
        "--ledger", type=Path, help="ledger file that pays for the release, and refuses it if that exceeds the total"
    )
    publish.add_argument("--total", type=float, help="with a new --ledger: the eps it declares, at the release's delta")
    publish.add_argument(
        "--adaptive",
        action="store_true",
        help="with a new --ledger: count adaptively, for budgets that are chosen by looking at releases",
    )
    publish.add_argument("--out", type=Path, required=True, help="NetCDF file to write")


def _add_fit(command: Callable[..., argparse.ArgumentParser]) -> argparse.ArgumentParser:
    fitting = command("fit", fit, "posteriors of every task's weights from its own rows and a release")
    data_options(fitting, estimates=True)
    fitting.add_argument(
        "--release", type=Path, required=True, help="file that release, publish or federated has written"
    )
    fitting.add_argument(
        "--newcomers",
        "--newcomer",
        action="store_true",
        help="the tasks are not in the release, so no message is taken out of it",
    )
    _add_study_fit(fitting)
    fitting.add_argument(
        "--structure",
        help="without --study: of the covariance between tasks: full, the default; low_rank; group_sparse; auto; "
        "paper; paper_group_sparse; of a release of effects full, diagonal, group_sparse or low_rank",
    )
    fitting.add_argument("--chains", type=int, default=4, help="chains of NUTS, side by side; default 4")
    fitting.add_argument(
        "--draws", type=int, default=300, help="draws of NUTS per chain; warmup takes as many, up to 140; default 300"
    )
    fitting.add_argument(
        "--coefficients",
        type=Path,
        metavar="CSV",
        help="with a release of effects: file for every task's coefficients, alone and with the release, for their owners",
    )
    fitting.add_argument(
        "--out",
        type=Path,
        required=True,
        help="NetCDF file to write, which holds the owners' weights; with --study a folder, for a hospital alone: the model "
        "without any row or outcome (but --keep-rows), coefficients.csv, average_effects.csv and a picture",
    )
    return fitting


def _add_study_fit(fitting: argparse.ArgumentParser) -> None:
    """Add the options of a hospital's own fit of a study."""
    desk.study_options(fitting, required=False)
    fitting.add_argument("--message", type=Path, help="with --study: the message that this hospital has sent")
    fitting.add_argument(
        "--covariate",
        action="append",
        metavar="NAME=NUMBER",
        help="with --study and --newcomer: a public number of this hospital, such as beds=300, where the study's file has "
        "those of others and does not name it; once for every covariate",
    )
    fitting.add_argument(
        "--keep-rows",
        action="store_true",
        help="with --study: also keep every outcome in model.nc (mode 0600), with posterior predictive draws and log "
        "likelihoods for ArviZ's comparisons and checks; whoever has the file then has the outcomes, so it is "
        "never to leave the hospital",
    )
    fitting.add_argument(
        "--sampler",
        help="with --study: weighted, the default, points of a normal distribution that is fitted to what the release says, "
        "or Markov chains that start from it where such points will not do; or nuts",
    )


def _add_compare(command: Callable[..., argparse.ArgumentParser]) -> argparse.ArgumentParser:
    table = command("compare", compare, "estimators side by side on held-out rows")
    data_options(table)
    table.add_argument("--epsilon", type=float, nargs="+", default=[1.0], help="budgets; default 1")
    table.add_argument(
        "--arms",
        nargs="+",
        metavar="ARM",
        help="some of ridge, lasso, alone, trace_norm, group_lasso, low_rank_plus_sparse, mtrl; with noise, at every budget: "
        "low_rank (Algorithm 2), group_sparse (3), low_rank_sparse (4), frank_wolfe, dp_mtrl, dp_aggr, "
        "noise_aware; default ridge, alone, trace_norm, low_rank, group_sparse, noise_aware",
    )
    table.add_argument(
        "--rounds",
        type=int,
        help="of Algorithms 2 to 4, Frank-Wolfe and the posterior; default several, of which one is chosen",
    )
    table.add_argument(
        "--row-epsilon",
        type=float,
        help="Algorithm 5: a second budget, for one row against a curator who is not trusted, in Algorithms 2 to 4 and "
        "Frank-Wolfe; default none",
    )
    table.add_argument(
        "--logistic",
        action="store_true",
        help="for labels: the logistic loss in every arm that has it, and the choice by AUC; otherwise labels are numbers",
    )
    table.add_argument("--fraction", type=float, default=0.3, help="share of every task's rows to train on; default .3")
    table.add_argument("--adjacency", default="replace", help="replace, the default, or zero_out")
    reference_option(table)
    table.add_argument(
        "--draws", type=int, default=300, help="draws of NUTS per chain; warmup takes as many, up to 140; default 300"
    )
    return table


def data_options(parser: argparse.ArgumentParser, *, estimates: bool = False) -> None:
    """Add the options for the source of rows, or of estimates from models fitted elsewhere."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--csv", type=Path, help="table with one row per observation, and one line per row")
    source.add_argument("--data", choices=["school", "lsoa2"], help="a data set of the library; lsoa2 has labels")
    of_estimates = ("", "")
    if estimates:
        source.add_argument(
            "--estimates",
            type=Path,
            help="table of models that were fitted elsewhere, for a mixed model: a row for every task and coefficient, with "
            "the columns task, coefficient, estimate, and the covariance in columns of the coefficients' names",
        )
        of_estimates = (", default task with --estimates", "; with --estimates: the coefficients that are shared")
    parser.add_argument("--task", help="the column that says which task a row belongs to" + of_estimates[0])
    parser.add_argument("--target", help="with --csv: the column to predict")
    parser.add_argument(
        "--features", nargs="+", help="with --csv: feature columns; default all others" + of_estimates[1]
    )
    exclude_option(parser, "with --csv: columns that are not features, such as another outcome")
    parser.add_argument("--exposure", help="with --csv: the column of a count's exposure, such as patient days")
    parser.add_argument("--weights", help="with --csv: the column of how much every row counts, for mixed models")
    parser.add_argument("--intercept", action="store_true", help="with --csv: give every task an intercept of its own")


def read_estimates(options: argparse.Namespace) -> Estimates:
    """Read a table of estimates. Raises ValueError for options that belong to rows, or for another kind of table."""
    from mpmtl_prob import Estimates
    from mpmtl_prob._util.files import read_cells
    from mpmtl_prob.data.cells import numbers_of_text

    if given := [name for name in ("target", "exclude", "intercept") if getattr(options, name)]:
        raise ValueError(f"--{given[0]}: expected it with --csv alone, got --estimates")
    task = options.task or "task"
    frame = read_cells("--estimates", options.estimates, numbers=numbers_of_text, text=[task, "coefficient"])
    try:
        estimates = Estimates.from_pandas(frame, task=task)
        return (
            estimates if options.features is None else Estimates(estimates.estimates, estimates.tasks, options.features)
        )
    except ValueError as error:
        raise ValueError(f"--estimates: {error}") from None


def read_source(options: argparse.Namespace) -> TaskData | Estimates:
    """Read the rows, or the estimates in their place. Raises ValueError for missing or contradictory options."""
    return read_tasks(options) if options.estimates is None else read_estimates(options)


def read_tasks(options: argparse.Namespace) -> TaskData:
    """Read the rows. Raises ValueError for missing or contradictory options."""
    from mpmtl_prob import TaskData, datasets
    from mpmtl_prob._util.files import check_names, read_cells
    from mpmtl_prob.data.cells import numbers_of_text

    if options.data:
        if given := [name for name in _OF_CSV if getattr(options, name)]:
            raise ValueError(f"--{given[0]}: expected it with --csv alone, got --data {options.data}")
        return datasets.school() if options.data == "school" else datasets.lsoa2()
    if not options.task or not options.target:
        raise ValueError("--csv: needs --task and --target, the names of two columns")
    frame = read_cells("--csv", options.csv, numbers=numbers_of_text, text=[options.task])
    if options.features is None:
        check_names("--csv", options.csv, list(frame.columns))
    columns = {"task": options.task, "target": options.target, "features": options.features, "exclude": options.exclude}
    columns |= {"exposure": options.exposure, "weights": options.weights}
    tasks = TaskData.from_pandas(frame, **columns, intercept=options.intercept)
    if options.features is None:
        tell_features(options, tasks.features[: tasks.num_features - tasks.intercept])
    return tasks


def release(options: argparse.Namespace) -> None:
    """Publish the second moment and write it to a file."""
    from mpmtl_prob import Estimates, release
    from mpmtl_prob._util.files import check_place
    from mpmtl_prob.releases import ReleaseSpec, default_delta
    from mpmtl_prob.releases.effects import coefficients_of

    tasks, reference = read_source(options), read_reference(options)
    delta = default_delta(tasks.num_tasks) if options.delta is None else options.delta
    message = None if reference is not None else "direction"
    spec = ReleaseSpec(
        options.epsilon,
        delta,
        adjacency=options.adjacency,
        mechanism=options.mechanism,
        scaling=options.scaling,
        message=message if options.clip is None else "clip",
        clip=options.clip,
        rounds=options.rounds,
        reference=reference,
    )
    respond = _answers(options, tasks)
    if isinstance(tasks, Estimates):
        coefficients_of(tasks, reference)
    elif reference is not None:
        spec.layout(tasks.features)
    if options.out.is_file():  # checked before anything is paid for
        raise ValueError(
            f"--out: expected a new file, got {str(options.out)!r}, which is there and may be a release paid for"
        )
    check_place("--out", options.out)
    if reference is not None:
        _tell_of_desks(options)
    ledger = open_ledger(options, delta=delta, adjacency=options.adjacency)
    try:
        published = release(tasks, spec, respond=respond, ledger=ledger)
    except BaseException as stopped:
        if (paid := getattr(stopped, "release", None)) is not None:  # the rounds up to the one that failed
            paid.save(options.out)
        raise
    published.save(options.out)
    if options.json:
        print(published.to_xarray().attrs["release"])
        return
    print(published)
    if ledger is not None:
        print(ledger)
    print(f"written to {options.out}")


def _answers(options: argparse.Namespace, tasks: TaskData | Estimates) -> Callable[[Release], Any] | None:
    """Return the function by which owners answer a round, or None for one round. Raises ValueError where there is none."""
    from mpmtl_prob import Estimates
    from mpmtl_prob.inference import posterior_draws

    if options.rounds == 1:
        if options.likelihood is not None:
            raise ValueError("--likelihood: expected it with --rounds above 1 alone, whose answers depend on it")
        return None
    if isinstance(tasks, Estimates) or options.reference is not None:
        raise ValueError(f"--rounds: expected 1 with messages of effects, which answer nothing, got {options.rounds}")
    return posterior_draws(tasks, options.seed, options.likelihood)


def _tell_of_desks(options: argparse.Namespace) -> None:
    """Point to the commands for separate sites, as this one needs all rows in one place."""
    desk.tell(
        options, "all tasks are on this desk; where rows never meet, see schema, message, publish and fit --study"
    )


def fit(options: argparse.Namespace) -> None:
    """Sample the posteriors of a release and of every task, and write them to a file."""
    if options.study is not None:
        _check_study_options(options)
        desk.fit(options)
        return
    if given := [
        name
        for name in ("message", "participant", "accept_draft", "keep_rows", "sampler", "covariate")
        if getattr(options, name)
    ]:
        raise ValueError(f"--{given[0].replace('_', '-')}: expected it with --study alone, got no study")
    from mpmtl_prob import Release, inference
    from mpmtl_prob._util.checks import whole
    from mpmtl_prob._util.files import check_place
    from mpmtl_prob.inference import OwnerEffects
    from mpmtl_prob.sampling.extent import WARMUP

    tasks, release = read_source(options), Release.load(options.release)
    whole("--draws", options.draws)
    check_place("--out", options.out)
    _check_fit(options, tasks, release)  # before the sampler runs
    shown = shows_progress(options)
    shared = inference.shared_covariance(
        release,
        structure=options.structure or "full",
        chains=options.chains,
        warmup=min(options.draws, WARMUP),
        draws=options.draws,
        seed=options.seed,
        progress_bar=shown,
    )
    leave_one_out = "not_in_release" if options.newcomers else "auto"
    own = inference.task_posteriors(
        tasks, shared, likelihood=options.likelihood, leave_one_out=leave_one_out, seed=options.seed,
        progress_bar=shown,
    )  # fmt: skip
    own.save(options.out)
    if isinstance(own, OwnerEffects):
        _tell_effects(options, own)
    else:
        _tell_weights(options, own)
    if shared.num_draws < options.draws:  # interrupted: the file has the draws up to then
        raise KeyboardInterrupt


def _check_study_options(options: argparse.Namespace) -> None:
    """Raise ValueError for options that contradict the study's file, or are needed with it."""
    if options.csv is None:
        raise ValueError("--csv: expected this hospital's rows with --study, got none")
    given = [
        name for name in ("task", "target", "features", "exclude", "intercept", "structure") if getattr(options, name)
    ]
    if given:
        raise ValueError(f"--{given[0]}: expected none with --study, whose file has it; leave the option out")
    if options.coefficients is not None:
        raise ValueError("--coefficients: expected none with --study, whose --out is a folder with them")


def _check_fit(options: argparse.Namespace, tasks: TaskData | Estimates, release: Release) -> None:
    """Raise ValueError for tasks or options that do not match the release."""
    from mpmtl_prob._util.files import check_place
    from mpmtl_prob.data.matching import in_order, task_data
    from mpmtl_prob.inference.owner import likelihoods, posteriors
    from mpmtl_prob.inference.owner.effects import check_likelihood

    if release.effects is None:
        if options.coefficients is not None:
            raise ValueError("--coefficients: expected it with a release of effects alone, of --reference, got another")
        tasks = task_data(tasks)
        posteriors.check_features(tasks, release)
        likelihoods.likelihood_of(options.likelihood, tasks)
        return
    in_order(release.effects.of(tasks), release.effects.coefficients, "the release")
    check_likelihood(options.likelihood, tasks, release.effects.outcome)
    if options.coefficients is not None:
        check_place("--coefficients", options.coefficients)


def _tell_weights(options: argparse.Namespace, own: OwnerPosteriors) -> None:
    """Print the owners' posteriors of a release of directions or weights."""
    summary = own.subspace(max(1, min(3, own.shared.release.num_features - 1)))  # a subspace of rank d is everything
    if options.json:
        quantiles = summary.spectrum.quantile([0.05, 0.5, 0.95], dim=("chain", "draw")).values.tolist()
        print_json({"spectrum_05_50_95": quantiles, "seconds": own.seconds, "out": str(options.out)})
    else:
        print(f"{own.shared}\n{own}\n{own.diagnose()}\n{summary}\nwritten to {options.out}")


def _tell_effects(options: argparse.Namespace, own: OwnerEffects) -> None:
    """Print average effects, and write or print the owners' results of a release of effects (a mixed model)."""
    from mpmtl_prob._util.files import write_text

    shared, coefficients = own.shared, own.coefficients()
    if len(own.tasks) > 1:
        _tell_of_desks(options)
    if options.coefficients is not None:
        write_text(options.coefficients, coefficients.to_csv(), private=True)
    if options.json:
        results = {
            "units": {"average_effects": shared.units_in_words, "coefficients": coefficients.attrs["units"]},
            "average_effects": shared.average_effects().reset_index().to_dict("records"),
            "coefficients": coefficients.reset_index().to_dict("records"),
            "seconds": own.seconds,
            "out": str(options.out),
        }
        print_json(results)
        return
    _print_effects(own)
    written = [str(path) for path in (options.out, options.coefficients) if path is not None]
    print(f"written to {' and '.join(written)}, for their owners alone")


def _print_effects(own: OwnerEffects) -> None:
    """Print average effects, and the coefficients of a few tasks."""
    coefficients = own.coefficients()
    shown = coefficients.loc[list(own.tasks[:_PRINTED])]
    print(f"{own.shared}\n{own}\n{own.diagnose()}\n\naverage effects, 90 % intervals")
    print(own.shared.average_effects().to_string(float_format="{:.3g}".format))
    units = "" if own.shared.layout.reference is not None else ", in the table's units"
    print(f"\ncoefficients with the release, and alone{units}")
    print(shown.to_string(float_format="{:.3g}".format))
    if len(own.tasks) > _PRINTED:
        print(f"and of {len(own.tasks) - _PRINTED} tasks more: --coefficients OUT.csv, or --json")


def compare(options: argparse.Namespace) -> None:
    """Fit the estimators and print their scores."""
    from mpmtl_prob import evaluation
    from mpmtl_prob.evaluation import named
    from mpmtl_prob.inference.owner import likelihoods

    check_budgets(options.epsilon)
    tasks, reference = read_tasks(options), read_reference(options)
    arms = named.STANDARD if options.arms is None else tuple(options.arms)
    if reference is None and "noise_aware" in arms:
        likelihoods.likelihood_of(options.likelihood, tasks)
    train, test = tasks.split(options.fraction, seed=options.seed)
    fits = evaluation.fits_by_name(
        arms,
        train,
        options.epsilon,
        rounds=options.rounds,
        row_epsilon=options.row_epsilon,
        logistic=options.logistic,
        adjacency=options.adjacency,
        likelihood=options.likelihood,
        reference=reference,
        draws=options.draws,
        seed=options.seed,
        progress_bar=shows_progress(options),
    )
    comparison = evaluation.compare(fits, test)
    of_rows = {name: row for name, fit in fits.items() if (row := getattr(fit, "row_guarantee", None)) is not None}
    if options.json:
        rows = comparison.to_dicts()
        print_json(
            [row | {"one_row": of_rows[row["name"]].to_dict()} if row["name"] in of_rows else row for row in rows]
        )
    else:
        print(comparison)
        for name, guarantee in of_rows.items():
            print(f"\n{name}: one row, from the curator: {guarantee}")
