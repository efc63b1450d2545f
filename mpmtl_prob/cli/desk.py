"""Commands ``schema``, ``keys``, ``message``, ``publish`` and ``predict`` of ``mpmtl-prob``: each role, from files."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpmtl_prob._util.words import plural
from mpmtl_prob.cli.options import exclude_option, on_terminal, open_ledger, print_json, shows_progress

if TYPE_CHECKING:
    import pandas as pd

    from mpmtl_prob.desk import Inbox, Message, OwnModel
    from mpmtl_prob.releases import Release
    from mpmtl_prob.schema import Schema

#: Bytes of disk space that are reserved for a release before it is paid for.
_ROOM = 2_000_000
#: Signals that end a process from outside: by hand, by a scheduler, or when a connection is lost.
_INTERRUPTS = [
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
]
MODEL, COEFFICIENTS, AVERAGES, PICTURE = "model.nc", "coefficients.csv", "average_effects.csv", "forest.png"
SLOPES = "covariate_slopes.csv"


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands and their options."""
    _add_schema(command)
    keys = command("keys", write_keys, "a pair of keys: the private one in a file, the public one for the study's file")
    keys.add_argument(
        "--role", required=True, help="curator, to whom messages are encrypted; or participant, who signs them"
    )
    keys.add_argument("--out", type=Path, required=True, help="file for the private key, mode 0600")
    _add_message(command)
    _add_publish(command)
    predicting = command("predict", predict, "predictions for rows without a target, by a hospital's own model")
    predicting.add_argument("--model", type=Path, required=True, help="model.nc that fit --study has written")
    predicting.add_argument("--csv", type=Path, required=True, help="rows with the study's columns, one a line")
    predicting.add_argument("--probability", type=float, default=0.9, help="probability of the intervals, default .9")
    predicting.add_argument(
        "--out", type=Path, required=True, help="CSV file to write, in the order of --csv; mode 0600"
    )


def _add_schema(command: Callable[..., argparse.ArgumentParser]) -> None:
    drafting = command("schema", schema, "a draft of a study's file, which all agree on before anybody looks at a row")
    drafting.add_argument("--from", dest="example", type=Path, required=True, help="CSV file with the study's columns")
    drafting.add_argument("--task", required=True, help="the column that says whose a row is, such as hospital")
    drafting.add_argument("--target", required=True, help="the column that is explained")
    drafting.add_argument("--tasks", type=int, help="how many take part; default those in the example")
    drafting.add_argument("--row", default="row", help="what a row is called, such as patient; default row")
    drafting.add_argument("--epsilon", type=float, required=True, help="the budget that is promised")
    drafting.add_argument("--delta", type=float, help="default 1 / (m log m) of m tasks, from 30 on")
    drafting.add_argument(
        "--public-example",
        action="store_true",
        help="the example is public or made up, so that centres and scales may be taken from it; else levels and types alone",
    )
    exclude_option(drafting, "columns that explain nothing, such as another outcome")
    drafting.add_argument("--out", type=Path, required=True, help="TOML file to write")


def _add_message(command: Callable[..., argparse.ArgumentParser]) -> None:
    sending = command(
        "message",
        message,
        "a hospital's message, from its own rows: shown before it is written, and written if you agree",
        "The file is the hospital's model in clear, unless the study has a curator's key: it is then encrypted, for "
        "the curator alone. Without participants' keys a file that was damaged is noticed, but not one that was edited on "
        "purpose, nor one that somebody else wrote in this hospital's name.",
    )
    study_options(sending)
    sending.add_argument("--csv", type=Path, help="this hospital's rows, one a line")
    sending.add_argument(
        "--no-estimate", action="store_true", help='send the message of "no estimate", which says nothing of any row'
    )
    sending.add_argument("--key", type=Path, help="this hospital's private key, where the study has its public one")
    sending.add_argument("--yes", action="store_true", help="agree without being asked, in a script")
    sending.add_argument("--out", type=Path, required=True, help="JSON file to write, mode 0600")


def _add_publish(command: Callable[..., argparse.ArgumentParser]) -> None:
    publishing = command(
        "publish", publish, "the curator's release, from everybody's messages; paid for once all is checked"
    )
    study_options(publishing, participant=False)
    publishing.add_argument(
        "--messages", type=Path, required=True, help="folder with one JSON file of every participant"
    )
    publishing.add_argument(
        "--without",
        nargs="+",
        default=[],
        metavar="ID",
        help="participants who never answered, which the guarantee does not hide; not for leaving out unwelcome messages",
    )
    publishing.add_argument("--key", type=Path, help="the curator's private key, where the study has its public one")
    publishing.add_argument(
        "--ledger", type=Path, help="ledger file that pays for the release, and refuses it if that exceeds the total"
    )
    publishing.add_argument(
        "--total", type=float, help="with a new --ledger: the eps it declares, at the release's delta"
    )
    publishing.add_argument("--out", type=Path, required=True, help="NetCDF file to write, which is not there yet")


def study_options(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, *, participant: bool = True, required: bool = True
) -> None:
    """Add ``--study`` and the options that belong to it."""
    parser.add_argument("--study", type=Path, required=required, help="the study's file, TOML or JSON")
    parser.add_argument(
        "--accept-draft", action="store_true", help="accept a study that has sections with settled = false"
    )
    if participant:
        parser.add_argument("--participant", metavar="ID", help="whose rows; default the only one in --csv")


def read_study(options: argparse.Namespace, *, check_promise: bool = True) -> Schema:
    """Read the study by :meth:`Schema.read`. Raises ValueError for another kind of file, or one that is still a draft."""
    from mpmtl_prob.schema import Schema

    try:
        study = Schema.read(options.study, check_promise=check_promise)
    except ValueError as error:
        raise ValueError(f"--study: {error}") from None
    if study.unsettled and not options.accept_draft:
        raise ValueError(
            f"--study: expected a study that all have agreed on, got a draft: {', '.join(study.unsettled)} say "
            "settled = false; settle these sections, or say --accept-draft"
        )
    return study


def read_rows(path: Path) -> pd.DataFrame:
    """Read a private table, with every cell as it is written."""
    from mpmtl_prob._util.files import read_cells

    return read_cells("--csv", path)


def tell(options: argparse.Namespace, text: str) -> None:
    """Print a remark to standard error."""
    print(f"mpmtl-prob {options.name}: {text}", file=sys.stderr)


@contextmanager
def warnings_told(options: argparse.Namespace) -> Iterator[None]:
    """Print warnings as one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        tell(options, f"warning: {warning.message}")


def check_new(option: str, path: Path) -> None:
    """Raise ValueError if the file exists already, or cannot be written."""
    from mpmtl_prob._util.files import check_place

    if os.path.lexists(path):
        raise ValueError(
            f"{option}: expected a file that is not there yet, got {str(path)!r}; nothing was written over it"
        )
    check_place(option, path)


def schema(options: argparse.Namespace) -> None:
    """Write a draft of a study's file."""
    from mpmtl_prob._util.files import read_cells, write_text
    from mpmtl_prob.data.cells import label_text
    from mpmtl_prob.schema.draft import Example, draft

    check_new("--out", options.out)
    frame = read_cells("--from", options.example)
    example = Example(
        {label_text(name): frame[name].tolist() for name in frame},
        options.task,
        options.target,
        options.tasks,
        options.public_example,
    )
    text = draft(example, epsilon=options.epsilon, delta=options.delta, row=options.row, exclude=options.exclude or ())
    write_text(options.out, text)
    if not options.public_example:
        tell(
            options,
            "levels and types alone were taken from the example; --public-example takes numbers from one that is public",
        )
    say(
        options,
        {"out": str(options.out)},
        f"written to {options.out}: a draft. Settle every section that says settled = false",
    )


def write_keys(options: argparse.Namespace) -> None:
    """Write a private key, and print the public one."""
    from mpmtl_prob._util.checks import one_of
    from mpmtl_prob.desk.keys import KINDS, write_key

    one_of("--role", options.role, tuple(KINDS))
    check_new("--out", options.out)
    public = write_key(options.out, options.role)
    say(options, {"public": public, "out": str(options.out)}, public)
    tell(
        options,
        f"the private key is in {options.out}; the line above goes to [keys] in the study's file, by a way you trust",
    )


def say(options: argparse.Namespace, said: dict[str, Any], text: str) -> None:
    """Print the result of a command, as JSON or in words."""
    if options.json:
        print_json(said)
    else:
        print(text, flush=True)


def message(options: argparse.Namespace) -> None:
    """Compute a message, show it, ask, and write it."""
    from mpmtl_prob import desk

    study, key = read_study(options), own_key(options, "participant")
    check_new("--out", options.out)
    if options.csv is None and not options.no_estimate:
        raise ValueError("--csv: expected this hospital's rows, or --no-estimate with --participant, got neither")
    with warnings_told(options):
        rows = None if options.no_estimate else read_rows(options.csv)
        proposed = desk.make_message(study, rows, options.participant, no_estimate=options.no_estimate)
    for line in proposed.told:
        tell(options, line)
    agreed = agree(options, proposed)
    written = agreed.save(options.out, key)
    result = {
        "participant": agreed.participant,
        "study": study.digest,
        "rows": agreed.rows,
        "no_estimate": agreed.says_nothing,
        "written": [str(path) for path in written],
    }
    own = f"; {written[1]} is your own copy, which fit needs and nobody else gets" if len(written) > 1 else ""
    say(options, result, f"written to {written[0]}, for the curator{own}")


def agree(options: argparse.Namespace, proposed: Message, seen: str | None = None) -> Message:
    """Show the message and ask for agreement; return the message that leaves. ``seen`` says who sees it.

    Raises:
        ValueError: nobody agreed.
    """
    from mpmtl_prob.desk import make_message

    if options.yes:
        print(proposed.describe(seen=seen), file=sys.stderr)
        return proposed
    if not (sys.stdin is not None and sys.stdin.isatty() and on_terminal()):
        raise ValueError("--yes: expected it where there is no terminal to ask on, got none; nothing was written")
    print(proposed.describe(numbers=True, seen=seen), file=sys.stderr)
    print(
        'Write this message? "yes"; or "no estimate", which says nothing of your rows while you still take part; or "stop": ',
        end="", file=sys.stderr, flush=True,
    )  # fmt: skip
    answer = sys.stdin.readline().strip().lower()
    if answer == "yes":
        return proposed
    if answer == "no estimate":
        return make_message(proposed.schema, None, proposed.participant, no_estimate=True)
    raise ValueError("nobody said yes, and nothing was written")


def own_key(options: argparse.Namespace, role: str) -> Any:
    """Read the private key that the option names, if it is given."""
    from mpmtl_prob.desk.keys import read_key

    return None if options.key is None else read_key(options.key, role)


def publish(options: argparse.Namespace) -> None:
    """Check everything, pay, and write the release."""
    from mpmtl_prob import desk

    study = read_study(options)
    check_new("--out", options.out)
    inbox = desk.collect(study, options.messages, without=options.without, key=own_key(options, "curator"))
    if inbox.without:
        tell(
            options,
            f"without {', '.join(inbox.without)}: the release is of {len(inbox.messages)}, and its noise and delta are those "
            "of so many. That they are not in it is not covered by the guarantee",
        )
    terms = inbox.terms
    delta = study.promise["delta"] or _delta(len(inbox.messages))
    if options.ledger is not None and options.total is None and not options.ledger.exists():
        raise ValueError("--total: expected the eps that a new ledger declares, such as --total 2, got none")
    ledger = open_ledger(options, delta=delta, adjacency=terms.adjacency, unit="task")
    with until_written(options.out):
        release = desk.publish(inbox, ledger=ledger)
        written = write_release(options, release)
    say(options, _facts(inbox, release, written), f"{release}\nwritten to {written}")
    if ledger is not None and not options.json:
        print(f"\n{ledger}")
    if written != options.out:
        raise OSError(
            f"--out: {str(options.out)!r} could not be written; the release, which is paid for, is in {str(written)!r}"
        )


def _delta(num_tasks: int) -> float:
    from mpmtl_prob.releases.spec import default_delta

    return default_delta(num_tasks)


def _facts(inbox: Inbox, release: Release, written: Path) -> dict[str, Any]:
    return {
        "study": release.study,
        "messages": len(inbox.messages),
        "without": list(inbox.without),
        "guarantee": release.guarantee.to_dict(),
        "out": str(written),
    }


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Defer interrupts until the block is done, and raise KeyboardInterrupt then."""
    deferred: list[int] = []
    before: dict[int, Any] = {}
    try:
        for number in _INTERRUPTS:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores a signal
                before[number] = signal.signal(number, lambda number, _: deferred.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if deferred:
        raise KeyboardInterrupt


@contextmanager
def until_written(path: Path) -> Iterator[None]:
    """Reserve disk space for a release before it is paid for, and defer interrupts until it is written."""
    reserved = Path(f"{path}.{os.getpid()}.reserved")
    try:
        with open(reserved, "wb") as file:
            file.write(bytes(_ROOM))
            file.flush()
            os.fsync(file.fileno())
        with held_interrupts():
            reserved.unlink()
            yield
    finally:
        reserved.unlink(missing_ok=True)


def write_release(options: argparse.Namespace, release: Release) -> Path:
    """Write a release that is paid for, in another place if necessary; return the path."""
    try:
        if os.path.lexists(options.out):  # created since it was checked
            raise FileExistsError(options.out)
        release.save(options.out)
    except OSError:
        elsewhere = Path(tempfile.mkdtemp(prefix="mpmtl-prob-")) / options.out.name
        release.save(elsewhere)
        return elsewhere
    written: Path = options.out
    return written


def fit(options: argparse.Namespace) -> None:
    """Fit a hospital's own model, and write its results to a folder."""
    from mpmtl_prob import Release, desk
    from mpmtl_prob.sampling.extent import WARMUP

    study = read_study(options, check_promise=False)  # the release of this file is there
    if there := [
        name for name in (MODEL, COEFFICIENTS, AVERAGES, SLOPES, PICTURE) if os.path.lexists(options.out / name)
    ]:
        raise ValueError(f"--out: expected a folder without {there[0]}, got {str(options.out)!r}; take another")
    covariates = _numbers_of_newcomer(options.covariate)
    release = Release.load(options.release)
    desk.model.check_release(study, release)
    own_message = _own_message(options, study, release.lattice)
    rows = read_rows(options.csv)
    with results_folder(options.out), warnings_told(options):
        own = desk.fit(
            study, rows, release, own_message, newcomer=options.newcomers, covariates=covariates,
            participant=options.participant,
            likelihood=options.likelihood, chains=options.chains, warmup=min(options.draws, WARMUP), draws=options.draws,
            seed=options.seed, keep_rows=options.keep_rows, progress_bar=shows_progress(options),
            sampler=options.sampler or "weighted",
        )  # fmt: skip
    if options.keep_rows:
        tell(options, f"{MODEL} holds every outcome, as --keep-rows asks: keep it where the rows may be")
    for line in own.told:
        tell(options, line)
    _tell_model(options, own)
    if own.shared.num_draws < options.draws:  # interrupted: the files have the draws up to then
        raise KeyboardInterrupt


@contextmanager
def results_folder(folder: Path) -> Iterator[None]:
    """Make a folder that only its owner can read before anything is sampled; remove a new one if there are no results."""
    new = not folder.exists()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if new:
            folder.rmdir()
        raise


def _numbers_of_newcomer(given: list[str] | None) -> dict[str, float] | None:
    """Parse texts such as "beds=300". Raises ValueError for others."""
    if given is None:
        return None
    numbers: dict[str, float] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        if name in numbers:
            raise ValueError(f"covariate: expected every covariate once, got {name!r} twice")
        try:
            numbers[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise ValueError(f"covariate: expected a name and a number, such as beds=300, got {text!r}")
    return numbers


def _own_message(options: argparse.Namespace, study: Schema, lattice: float | None) -> Message | None:
    """Read the message that was sent, if any. Raises ValueError if it is not known whether one was."""
    from mpmtl_prob.desk import Message

    if options.message is not None:
        return Message.load(study, options.message, lattice=lattice)
    if options.newcomers:
        return None
    if sys.stdin is None or not (sys.stdin.isatty() and on_terminal()):
        raise ValueError(
            f"--message: expected the file that this {study.task} has sent, or --newcomer of one that has sent none, got "
            "neither, and no terminal to ask on"
        )
    print(
        f"Has this {study.task} sent a message for this release? Its file, or Enter for none: ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    answer = sys.stdin.readline().strip()
    options.newcomers = not answer
    return Message.load(study, answer, lattice=lattice) if answer else None


def write_results(own: OwnModel, folder: Path) -> None:
    """Write the model, its coefficients and the average effects for their owner only."""
    from mpmtl_prob._util.files import write_text

    own.save(folder / MODEL)
    write_text(folder / COEFFICIENTS, own.coefficients().to_csv(), private=True)
    write_text(folder / AVERAGES, own.average_effects().to_csv(), private=True)
    if own.schema.covariates:
        write_text(folder / SLOPES, own.covariate_slopes().to_csv(), private=True)


def draw_results(own: OwnModel, folder: Path) -> bool:
    """Draw the picture; return whether one could be drawn. It takes as long as much of the rest, and comes last."""
    try:
        from mpmtl_prob import plots
        from mpmtl_prob._util.files import atomic_write

        axes = plots.forest(
            own.own, task=own.own.tasks[0], units=_units_in_words(own.schema), task_word=own.schema.task
        )
        with atomic_write(folder / PICTURE, private=True) as unfinished:
            axes[0].figure.savefig(unfinished, format="png", dpi=150)  # type: ignore[union-attr]
    except ImportError:  # pictures are an extra
        return False
    return True


def _units_in_words(study: Schema) -> dict[Hashable, str]:
    """Return the units of effects, by effect, such as "days (age in years)"."""
    from mpmtl_prob.data.contrasts import NAME
    from mpmtl_prob.schema.columns import Category

    target = {"number": study.target.unit, "binary": "log odds", "count": "log rates"}[study.target.kind]
    target = target or "units of the target"
    units: dict[Hashable, str] = {NAME: target}
    for name, column in study.columns.items():
        if isinstance(column, Category):
            units |= {f"{name}[{level}]": f"{target} (against {column.reference})" for level in column.others}
        else:
            units[name] = f"{target} ({name} in {column.unit})" if column.unit else target
    return units


def _tell_model(options: argparse.Namespace, own: OwnModel) -> None:
    """Print the tables, write the files, draw the picture, and say what was written."""
    coefficients, averages, written = own.coefficients(), own.average_effects(), [MODEL, COEFFICIENTS, AVERAGES]
    slopes = own.covariate_slopes() if own.schema.covariates else None
    written += [] if slopes is None else [SLOPES]
    if options.json:
        write_results(own, options.out)
        if draw_results(own, options.out):
            written.append(PICTURE)
        print_json({
            "participant": own.participant,
            "coefficients": coefficients.reset_index().to_dict("records"),
            "average_effects": averages.reset_index().to_dict("records"),
            **({} if slopes is None else {"covariate_slopes": slopes.reset_index().to_dict("records")}),
            "target_unit": own.schema.target.unit,
            "seconds": own.own.seconds,
            "sampler": own.shared.sampler,
            "written": [str(options.out / name) for name in written],
        })  # fmt: skip
        return
    try:  # the files take a while, and are written even if nobody reads the tables to their end
        _print_tables(own, coefficients, averages, slopes)
    finally:
        write_results(own, options.out)
    if draw_results(own, options.out):
        written.append(PICTURE)
    print(f"written to {options.out}/: {', '.join(written)}")
    print(
        f"Private to this {own.schema.task}: the release's guarantee does not cover what it computes from its own rows"
    )
    if PICTURE not in written:
        tell(options, "no picture: pictures need matplotlib: pip install 'mpmtl-prob[plots]'")


def _print_tables(
    own: OwnModel, coefficients: pd.DataFrame, averages: pd.DataFrame, slopes: pd.DataFrame | None
) -> None:
    number, study = "{:.3g}".format, own.schema
    unit = f"{study.target.column}, {study.target.unit}" if study.target.unit else study.target.column
    print(
        f"Coefficients of {own.participant} ({unit}, for one unit of a column), 90 % intervals, with the release and alone"
    )
    print(coefficients.to_string(float_format=number))
    at = "".join(f", at {each.at_centre}" for each in study.covariates)
    print(f"\nAverage effects over {own.shared.release.num_tasks} {plural(study.task)}{at}, public")
    print(averages.to_string(float_format=number))
    print(
        "positive: the probability that the average is above 0. tau: the standard deviation between "
        f"{plural(study.task)}, with its interval. i2: the\nshare of their differences in the variance of their own estimates"
    )
    if slopes is not None:
        print(f"\nChange of average effects with one unit of a covariate of {plural(study.task)}, public")
        print(slopes.to_string(float_format=number))
    print(f"\n{own.own.diagnose()}", flush=True)


def predict(options: argparse.Namespace) -> None:
    """Predict rows without a target, and write them in the order of the table."""
    from mpmtl_prob._util.files import write_text
    from mpmtl_prob.desk import OwnModel
    from mpmtl_prob.schema.columns import Category

    rows = read_rows(options.csv)
    check_new("--out", options.out)
    own = OwnModel.load(options.model)
    predictions = own.predict(rows, options.probability)
    predictions.index = predictions.index + 1
    predictions.index.name = "row"
    write_text(options.out, predictions.to_csv(), private=True)
    none = int(predictions["mean"].isna().sum())
    if none:
        tell(
            options,
            f"{none} of {len(predictions)} {plural(own.schema.row)} have no prediction, as the study drops such rows",
        )
    target, said = own.schema.target, {"rows": len(predictions), "without": none, "out": str(options.out)}
    what = f"the probability of {target.values.levels[1]}" if isinstance(target.values, Category) else target.column
    say(
        options,
        said,
        f"written to {options.out}: {len(predictions)} {plural(own.schema.row)}, "
        f"{100 * options.probability:g} % intervals of {what}",
    )
