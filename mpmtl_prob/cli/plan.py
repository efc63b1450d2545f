"""Command ``mpmtl-prob plan``: whether a study is worth it and at which eps, or the people that a wanted error needs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mpmtl_prob.cli.options import check_budgets, on_terminal

if TYPE_CHECKING:
    from mpmtl_prob.evaluation.planning import StudyPlan
    from mpmtl_prob.threat_models import Plan

_OF_PEOPLE = ("error", "people")
_OF_STUDIES = (
    "study",
    "tasks",
    "rows",
    "example",
    "explained",
    "common",
    "between",
    "residual_spread",
    "standard_error",
)


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = command("plan", run, "is a study worth it, and at which eps; or how many people a wanted error needs")
    parser.add_argument(
        "--epsilon",
        type=float,
        nargs="+",
        help="budgets to compare, for a study, default .1 .3 1 3 10; one budget, for people",
    )
    parser.add_argument(
        "--delta", type=float, help="the budget's other number; default the study's own, else 1 / (m log m) of m tasks"
    )
    parser.add_argument(
        "--features", type=int, help="columns of a study; or questions to which everybody answers yes or no"
    )
    parser.add_argument("--out", type=Path, help="picture to write; default none")
    study = parser.add_argument_group(
        "a study: what one release is worth to those who take part, from public numbers only"
    )
    study.add_argument("--rows", metavar="FROM-TO", help="rows of a task, such as 20-200 or 50")
    study.add_argument(
        "--example", type=Path, metavar="CSV",
        help="with --study: rows with the study's columns, public, made up, or your own, from which simulated tasks take "
        "theirs, all of them without --rows; if they are private, so is the plan",
    )  # fmt: skip
    study.add_argument("--study", type=Path, help="the study's file; or give --tasks and --features")
    study.add_argument("--tasks", type=int, help="how many take part")
    study.add_argument(
        "--explained", type=float, help="share of the target's variance within a task that columns explain; default .3"
    )
    study.add_argument("--common", type=float, help="share of that which is the same in all tasks; default .7")
    study.add_argument(
        "--between", type=float, help="with --study: share of the target's variance that lies between tasks; default .1"
    )
    study.add_argument(
        "--residual-spread",
        type=float,
        help="standard deviation of the logarithm of tasks' residual variances; default 0",
    )
    study.add_argument(
        "--standard-error",
        type=float,
        help="wanted standard error of an average effect: the plan says at which eps it is reached",
    )
    people = parser.add_argument_group("threat models: before one other person, all others, everybody")
    people.add_argument("--error", type=float, help="wanted error: the expectation of (estimate - mean)^2 / 4, at most")
    people.add_argument(
        "--people", type=int, help="number of people, whose error is then computed, with or without --error"
    )


def run(options: argparse.Namespace) -> None:
    """Print the plan, and draw it if a path for the picture is given."""
    asked = [name for name in _OF_STUDIES if getattr(options, name) is not None]
    of_people = [name for name in _OF_PEOPLE if getattr(options, name) is not None]
    if asked and of_people:
        raise ValueError(f"--{of_people[0]}: expected none with --{asked[0].replace('_', '-')}, which is of a study")
    if not asked and not of_people:
        raise ValueError("plan: expected --rows, with --study or --tasks, of a study; or --error or --people")
    plan = _of_study(options) if asked else _of_people(options)
    text = json.dumps(plan.to_dict(), indent=2) if options.json else str(plan)
    if options.out is not None:
        try:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            plan.picture(options.out)
            text += "" if options.json else f"\n\nwritten to {options.out}"
        except ImportError as error:  # the numbers are printed without a picture
            print(f"mpmtl-prob plan: no picture: {error}", file=sys.stderr)
    print(text)


def _of_people(options: argparse.Namespace) -> Plan:
    from mpmtl_prob.threat_models import Plan

    if missing := [name for name in ("epsilon", "delta", "features") if getattr(options, name) is None]:
        raise ValueError(f"--{missing[0]}: expected it with --error and --people, got none")
    if len(options.epsilon) > 1:
        raise ValueError(f"--epsilon: expected one with --error and --people, got {len(options.epsilon)}")
    return Plan(options.epsilon[0], options.delta, options.features, error=options.error, num_people=options.people)


def _of_study(options: argparse.Namespace) -> StudyPlan:
    from mpmtl_prob._util.checks import positive, whole
    from mpmtl_prob.cli.desk import read_rows
    from mpmtl_prob.evaluation.planning import EPSILONS, plan_study
    from mpmtl_prob.schema import Schema
    from mpmtl_prob.schema.columns import Number
    from mpmtl_prob.schema.rows import example_tasks

    if options.rows is None and options.example is None:
        raise ValueError("--rows: expected rows of a task, such as 20-200, or --example in their place, got neither")
    if options.example is not None and options.study is None:
        raise ValueError("--example: expected it with --study, whose file says what its columns are")
    check_budgets(options.epsilon or ())
    for name, least in (("tasks", 2), ("features", 1)):
        if (number := getattr(options, name)) is not None:
            whole(f"--{name}", number, least)
    if options.standard_error is not None:
        positive("--standard-error", options.standard_error)
    if options.between is not None and options.study is None:
        raise ValueError("--between: expected it with --study, whose file says whether there is a shared intercept")
    guesses = ("explained", "common", "between", "residual_spread")
    given = {name: getattr(options, name) for name in guesses if getattr(options, name) is not None}
    arguments = given | {
        "epsilons": options.epsilon or EPSILONS,
        "delta": options.delta,
        "wanted": options.standard_error,
        "seed": options.seed,
        "progress_bar": not options.quiet and on_terminal(),
    }
    if options.study is not None:
        if doubled := [name for name in ("tasks", "features") if getattr(options, name) is not None]:
            raise ValueError(f"--{doubled[0]}: expected none with --study, whose file has it")
        study = Schema.read(options.study)
        units = {name: column.unit for name, column in study.columns.items() if isinstance(column, Number)}
        arguments |= {"task": study.task, "target_unit": study.target.unit, "column_units": units}
        if options.example is not None:
            arguments["example"] = example_tasks(study, read_rows(options.example))
        rows = None if options.rows is None else _rows(options.rows)
        if study.covariates and not options.quiet:
            print(
                "mpmtl-prob plan: [covariates] are left out; with them effects are somewhat less exact than it says",
                file=sys.stderr,
            )
        return plan_study(study.spec, study.num_tasks, study.coefficients, rows, **arguments)
    if missing := [name for name in ("tasks", "features") if getattr(options, name) is None]:
        raise ValueError(f"--{missing[0]}: expected it, or --study, got none")
    epsilon = 1.0 if not options.epsilon else options.epsilon[len(options.epsilon) // 2]
    return plan_study(epsilon, options.tasks, options.features, _rows(options.rows), **arguments)


def _rows(said: str) -> tuple[int, int]:
    try:
        low, _, high = said.partition("-")
        return int(low), int(high or low)
    except ValueError:
        raise ValueError(f"--rows: expected a number or two, such as 20-200, got {said!r}") from None
