"""Entry point of the command line: parser, examples and exit status."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import textwrap
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

from mpmtl_prob._util.jax_later import once_jax_is_imported
from mpmtl_prob.cli import adapt, audit, bounds, demonstration, desk, federated, ledger, plan, report, reproduce, tasks

_EXAMPLES = """\
  mpmtl-prob demo                                   the papers' synthetic data, every arm, about a minute
  mpmtl-prob demo --data school --epsilon 0.3 1 3
  mpmtl-prob example trial                          a simulated study of thirty hospitals, for the next commands
  mpmtl-prob schema  --from example.csv --task hospital --target stay --tasks 30 --epsilon 1 --out study.toml
  mpmtl-prob message --study study.toml --csv mine.csv --out message.json             every hospital, from its own rows
  mpmtl-prob publish --study study.toml --messages inbox --ledger ledger.db --total 1 --out release.nc        the curator
  mpmtl-prob fit     --study study.toml --csv mine.csv --release release.nc --message message.json --out results
  mpmtl-prob predict --model results/model.nc --csv new.csv --out predictions.csv
  mpmtl-prob release --csv marks.csv --task school --target mark --epsilon 1 --ledger ledger.db --total 2 --out release.nc
  mpmtl-prob fit     --csv marks.csv --task school --target mark --release release.nc --out posterior.nc
  mpmtl-prob compare --csv marks.csv --task school --target mark --epsilon 1
  mpmtl-prob report --release release.nc --study study.toml --out report.html       a page for a board
  mpmtl-prob ledger ledger.db                       what is spent, and what it would still pay for
  mpmtl-prob plan --tasks 30 --features 5 --rows 20-200 --delta .001         is a study worth it, and at which eps
  mpmtl-prob plan --error .01 --epsilon 1 --delta 1e-6 --features 10000      people needed, before whose eyes
  mpmtl-prob adapt --source public.csv --target private.csv --label y --epsilon 1     public data, private records
  mpmtl-prob adapt --source public.csv --target private.csv --label y --epsilon 1 --arms source cnvx --test seen.csv
  mpmtl-prob bounds people --people 1000 --features 10000 --epsilon 1 --delta 1e-7    the papers' theorems as numbers
  mpmtl-prob audit noise --features 3 --epsilon 1 --delta .01                         attacks on a promise
  mpmtl-prob federated demo                         one release over many sites: who saw what, and what it cost
  mpmtl-prob federated sites --folder out/sites     the same by a Flower link and three nodes on this machine
  mpmtl-prob reproduce fig9 --fast                  one of the papers' experiments; 'all' for all, 'page' for docs/results.md
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
        if sys.stdout is not None:  # None if it was closed before the start
            sys.stdout.flush()
    except BrokenPipeError:
        return _unread()
    except (ValueError, OSError, ImportError) as error:
        print(f"mpmtl-prob {options.name}: {_told(options, error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"mpmtl-prob {options.name}: interrupted", file=sys.stderr)
        return 130
    return 0


#: Arguments in Python that have another name on the command line.
_OPTIONS = {"num_features": "features", "num_people": "people", "num_tasks": "tasks", "warmup": "draws"}


def _told(options: argparse.Namespace, error: Exception) -> str:
    """Return what is wrong, under the name of the option that somebody typed, where it is about one."""
    typed = [each for each in options.parser._actions if getattr(options, each.dest, None) not in (None, each.default)]
    names = {each.dest: each.option_strings[0] if each.option_strings else each.dest for each in typed}
    about, _, rest = str(error).partition(": ")
    files: dict[str, str] = {}
    for dest in names:
        values = getattr(options, dest)
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, Path):
                files |= {str(value): names[dest], os.path.abspath(value): names[dest]}
    if isinstance(error, OSError) and error.strerror is not None and error.filename is not None:
        path = os.fspath(error.filename)
        option = files.get(path)
        if isinstance(error, FileNotFoundError) and option is not None and option != "--out":
            return f"{option}: expected a file, got {path!r}, which is not there; check its name and folder"
        return f"{'' if option is None else f'{option}: '}{error.strerror}: {path!r}"
    if about == "path":
        return next((f"{option}: {rest}" for path, option in files.items() if repr(path) in rest), str(error))
    option = names.get(_OPTIONS.get(about, about))
    return str(error) if option is None else f"{option}: {rest}"


def _unread() -> int:
    """Redirect output that nobody reads any more, as Python would print an error about it at exit; return the status."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 141


def _in_doubles() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)


def _run(options: argparse.Namespace) -> None:
    gc.set_threshold(50_000, 50, 100)  # importing and tracing keep a million objects alive: collect less often
    once_jax_is_imported(_in_doubles)
    from mpmtl_prob.sampling.extent import raise_on_interrupt

    with nullcontext() if options.command is tasks.fit else raise_on_interrupt():  # an interrupted fit saves its draws
        options.command(options)


class _Parser(argparse.ArgumentParser):
    """Parser whose errors are one line, as those of the commands are."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where to look, and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help lists what it takes\n")


def _examples(name: str = "") -> str:
    """Return the examples of one command, or of all."""
    lines = [line for line in _EXAMPLES.splitlines() if line.split()[1] == (name or line.split()[1])]
    return "\n".join(["examples:", *lines])


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mpmtl-prob",
        description="Mixed models and multi-task learning for data that nobody may pool: each task, such as a hospital,\n"
        "keeps its rows; one noisy sum is published. eps and delta bound what it can reveal: the smaller, the less.",
        epilog=_examples() + "\n\nmpmtl-prob COMMAND --help explains the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str, more: str = "") -> argparse.ArgumentParser:
        described = "\n".join(textwrap.wrap(f"{text}. {more}" if more else text, 100))
        sub = commands.add_parser(
            name,
            help=text,
            description=f"{described[0].upper()}{described[1:]}",
            epilog=_examples(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.set_defaults(command=run, name=name, parser=sub)
        sub.add_argument("--json", action="store_true", help="print JSON instead of a table or a sentence")
        sub.add_argument(
            "--seed", type=int, default=0, help="of splits, folds and samplers, never of a release's noise; default 0"
        )
        sub.add_argument("--quiet", action="store_true", help="no progress bars")
        return sub

    for family in (demonstration, desk, report, tasks, ledger, plan, bounds, audit, adapt, federated, reproduce):
        family.add(command)
    return parser


class _Version(argparse.Action):
    """Action that reads the version only on request, as this takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"mpmtl-prob {version('mpmtl-prob')}")
        parser.exit()
