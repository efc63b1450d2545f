"""``mpmtl-prob plan``: how many people a wanted error needs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = command(
        "plan", run, "how many people a wanted error needs: before one other person, all others, everybody"
    )
    parser.add_argument(
        "--error", type=float, help="that is wanted: the expectation of (estimate - mean)^2 / 4, at most"
    )
    parser.add_argument("--people", type=int, help="the error that so many people have, with or without --error")
    parser.add_argument("--epsilon", type=float, required=True, help="of one person")
    parser.add_argument("--delta", type=float, required=True)
    parser.add_argument("--features", type=int, required=True, help="questions to which everybody has a yes/no answer")
    parser.add_argument("--out", type=Path, default=Path("out/plan.png"), help="picture to write")


def run(options: argparse.Namespace) -> None:
    """Print the plan, and draw it where matplotlib is there."""
    from mpmtl_prob.threat_models import Plan

    plan = Plan(options.epsilon, options.delta, options.features, error=options.error, num_people=options.people)
    said = json.dumps(plan.to_dict(), indent=2) if options.json else str(plan)
    try:
        plan.picture(options.out)
        said += "" if options.json else f"\n\nwritten to {options.out}"
    except ImportError as error:  # the numbers are all that was asked for
        print(f"mpmtl-prob plan: no picture: {error}", file=sys.stderr)
    print(said)
