"""Command ``mpmtl-prob bounds``: the papers' theorems and membership odds, from public numbers alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mpmtl_prob.cli.options import print_json


class Said(NamedTuple):
    """A table with its meaning, as a command prints it.

    Attributes:
        rows: of a table, the same keys in each.
        text: what it means.
    """

    rows: Sequence[Mapping[str, Any]]
    text: str


WHAT = {
    "utility": "rates of Algorithms 2 and 3, with the rounds that achieve them (--tasks --features --epsilon)",
    "people": "errors of t people before every view, at least and at most (--people --features --epsilon --delta)",
    "metalearning": "newcomers' errors by a private billboard (--people --features --epsilon --delta)",
    "adaptation": "CnvxAdap's bound, its steps, and the eps that its printed noise really has "
    "(--public --private --features --epsilon --delta)",
    "ncnvx": "how near NCnvxAdap comes to a point where it stands still, with logistic loss, and the best number of steps "
    "(--public --private --features --epsilon --delta)",
    "odds": "how far an attacker's belief that a task took part can move (--features --epsilon --delta); or a person, "
    "with --people",
}


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = command("bounds", run, "the papers' theorems as numbers, and membership odds: no data are read")
    parser.add_argument("what", metavar="WHAT", help="; ".join(f"{name}: {text}" for name, text in WHAT.items()))
    parser.add_argument("--epsilon", type=float, required=True, help="the budget")
    parser.add_argument(
        "--delta", type=float, help="the budget's other number; utility: default 0, which adds budgets up"
    )
    parser.add_argument("--features", type=int, help="number of columns or questions, d")
    parser.add_argument("--tasks", type=int, help="utility: number of tasks, m")
    parser.add_argument("--people", type=int, help="number of people, t")
    parser.add_argument("--norm", default="low rank", help="utility: 'low rank', the default, or 'group sparse'")
    parser.add_argument("--clip", type=float, default=1.0, help="K, the largest length of a message; default 1")
    parser.add_argument(
        "--strong-convexity",
        type=float,
        default=0.0,
        help="utility: mu, with a largest curvature L of 1; default 0, losses that are convex alone",
    )
    parser.add_argument("--not-accelerated", action="store_true", help="utility: steps without momentum")
    parser.add_argument("--composition", default="best", help="utility, with --delta: 'best', the default, or 'plain'")
    parser.add_argument(
        "--index", type=int, default=1, help="utility: k, singular values or rows above the threshold; default 1"
    )
    parser.add_argument("--public", type=int, help="adaptation, ncnvx: number of public records, m")
    parser.add_argument("--private", type=int, help="adaptation, ncnvx: number of private records, n")
    parser.add_argument(
        "--steps",
        type=int,
        help="adaptation, ncnvx: number of steps, T; default the fewest, or the best, of the theorem",
    )
    parser.add_argument(
        "--source-weight", type=float, default=0.5, help="adaptation, ncnvx: share of public records, alpha; default .5"
    )
    parser.add_argument("--kappa", type=float, default=0.05, help="adaptation: kappa_1, default .05")
    parser.add_argument("--penalty", type=float, default=2.0, help="ncnvx: lambda_1, default 2")
    parser.add_argument(
        "--weight-bound",
        type=float,
        default=1.0,
        help="adaptation, ncnvx: largest length of a predictor, Lambda; default 1",
    )
    parser.add_argument("--mechanism", help="odds of a task: wishart, the default; gaussian; or paper")
    parser.add_argument("--adjacency", help="odds of a task: replace, the default, or zero_out")
    parser.add_argument("--prior", type=float, default=0.5, help="odds: the belief before, default .5")


def run(options: argparse.Namespace) -> None:
    """Print a table with its meaning. Raises ValueError for an unknown WHAT, or a missing number."""
    ways = {
        "utility": _utility,
        "people": _people,
        "metalearning": _metalearning,
        "adaptation": _adaptation,
        "ncnvx": _ncnvx,
        "odds": _odds,
    }
    if options.what not in ways:
        raise ValueError(f"WHAT: expected one of {', '.join(WHAT)}, got {options.what!r}")
    tell(options, ways[options.what](options))


def tell(options: argparse.Namespace, said: Said) -> None:
    """Print rows and their meaning, as a table or as JSON."""
    from mpmtl_prob._util.tables import aligned

    if options.json:
        print_json({"rows": [dict(row) for row in said.rows], "text": said.text})
        return
    if said.rows:
        print(aligned([tuple(said.rows[0]), *(tuple(map(_cell, row.values())) for row in said.rows)]) + "\n")
    print(said.text)


def needed(options: argparse.Namespace, *names: str) -> None:
    """Raise ValueError for a number that this part of the command needs and did not get."""
    if missing := [name for name in names if getattr(options, name) is None]:
        raise ValueError(f"--{missing[0].replace('_', '-')}: expected a number with {options.what}, got none")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _utility(options: argparse.Namespace) -> Said:
    from mpmtl_prob.theory.utility import UtilityBound

    needed(options, "tasks", "features")
    bound = UtilityBound(
        options.tasks, options.features, options.epsilon, 0.0 if options.delta is None else options.delta,
        norm=options.norm, accelerated=not options.not_accelerated, strong_convexity=options.strong_convexity,
        clip=options.clip, index=options.index, composition=options.composition,
    )  # fmt: skip
    growth = "alpha, eps_t ~ t^alpha" if options.strong_convexity == 0 else "Q, eps_t ~ Q^-t"
    row = {
        growth: float(bound.best_growth),
        "noise M": bound.noise(),
        "power": bound.power(),
        "rounds T": bound.rounds(),
        "error": bound.rate(),
        "T saved by momentum": bound.rounds_saved,
        "tasks needed": bound.tasks_needed,
    }
    enough = "" if bound.enough_tasks() else " There are fewer tasks than Assumption 1 needs at C = 1."
    small = (
        "It says something, as M is far below 1." if bound.noise() < 0.1 else "M is not far below 1: it says nothing."
    )
    return Said(
        [row], f"Rates up to constants, at the best budgets over rounds (MP-MTL, Theorems 2 to 16). {small}{enough}"
    )


def _people(options: argparse.Namespace) -> Said:
    from mpmtl_prob.theory.people import BILLBOARD, NEWCOMERS, OTHERS, lower_bounds, upper_bound
    from mpmtl_prob.threat_models import rho_within

    needed(options, "people", "features", "delta")
    t, d = options.people, options.features
    rho = rho_within(options.epsilon, options.delta)
    seen = {OTHERS: max(min(t - 1, d), 0), NEWCOMERS: d, BILLBOARD: d}
    rows = [
        {
            "loss": bound.loss,
            "before": bound.against,
            "at least": bound.value,
            "at most": upper_bound(bound.loss, seen[bound.against], t, rho),
            "conditions not met": "; ".join(bound.unmet) or "-",
        }
        for bound in lower_bounds(t, d, options.epsilon, options.delta)
    ]
    return Said(rows, "Worst-case errors: no private algorithm is below the first, and Gaussian noise is below the second. "
                "A lower bound holds where all its conditions are met.")  # fmt: skip


def _metalearning(options: argparse.Namespace) -> Said:
    from mpmtl_prob.theory.people import LOSSES
    from mpmtl_prob.threat_models import metalearning_error

    needed(options, "people", "features", "delta")
    rows = []
    for loss in LOSSES:
        error = metalearning_error(loss, options.people, options.features, options.epsilon, options.delta)
        rows.append({"loss": loss, "participants": error.participants, "newcomers, at most": error.newcomers,
                     "as the paper bounds it": error.printed})  # fmt: skip
    return Said(
        rows, "Expected losses at the worst mean, of people who read a private billboard (Corollaries 4.5 and 5.7)."
    )


def _adaptation(options: argparse.Namespace) -> Said:
    from mpmtl_prob.adaptation.paper import accounting
    from mpmtl_prob.adaptation.paper.losses import Squared
    from mpmtl_prob.adaptation.paper.objective import Convex, Sizes
    from mpmtl_prob.theory.adaptation import convex_steps, convex_utility, optimal_rate

    needed(options, "public", "private", "features", "delta")
    loss, penalties = Squared(1.0, options.weight_bound), Convex(options.kappa)
    sizes = Sizes(options.public, options.private, options.source_weight)
    if not sizes.each_private:
        raise ValueError(
            "--source-weight: expected a number below 1, as the theorem is about noise on private records, got 1"
        )
    given = {"epsilon": options.epsilon, "delta": options.delta, "num_features": options.features}
    steps = convex_steps(loss, penalties, sizes, **given) if options.steps is None else options.steps
    parts = convex_utility(loss, penalties, sizes, **given, steps=steps, private_distance=0.0, public_distance=0.0)
    optimal = optimal_rate(loss, penalties, sizes, **given, private_distance=0.0, public_distance=0.0)
    row = {
        "steps T": steps,
        "predictor": parts.predictor,
        "private weights": parts.private_weights,
        "public weights": parts.public_weights,
        "excess of F": parts.total,
        "optimal rate": optimal.rate,
        "from n": optimal.private_records,
        "true eps of the printed noise": accounting.printed_epsilon(options.epsilon, options.delta),
    }
    enough = f"The printed noise is enough up to eps = {accounting.valid_up_to(options.delta):.3g} at this delta."
    assumed = "CnvxAdap (Theorem 4.2) from w = 0, with weights that do not move, as the printed ones hardly do."
    return Said([row], f"{assumed} {enough}")


def _ncnvx(options: argparse.Namespace) -> Said:
    from mpmtl_prob._util.checks import fraction, positive, whole
    from mpmtl_prob.adaptation.paper.losses import Logistic
    from mpmtl_prob.adaptation.paper.objective import Sizes, Smoothed, objective_range, smoothness
    from mpmtl_prob.theory.adaptation import stationarity

    needed(options, "public", "private", "features", "delta")
    loss, penalties = Logistic(1.0, options.weight_bound), Smoothed(positive("--penalty", options.penalty))
    sizes = Sizes(options.public, whole("--private", options.private), options.source_weight)
    if not sizes.each_private:
        raise ValueError(
            "--source-weight: expected a number below 1, as the theorem is about noise on private records, got 1"
        )
    if options.steps is not None:
        whole("--steps", options.steps)
    squared, steps = stationarity(
        loss, penalties, sizes, epsilon=positive("--epsilon", options.epsilon), delta=fraction("--delta", options.delta),
        steps=options.steps, num_features=whole("--features", options.features),
    )  # fmt: skip
    row = {
        "steps T": steps,
        "E ||G_J||^2, at most": squared,
        "smoothness": smoothness(loss, penalties, sizes),
        "range of J": objective_range(loss, penalties, sizes),
    }
    text = (
        "NCnvxAdap (Theorem 5.2, constants mended): the squared length of J's gradient at one of T steps that is drawn at "
        "random, at most, on average. Rows have length 1 and the loss is logistic."
    )
    return Said([row], text)


def _odds(options: argparse.Namespace) -> Said:
    needed(options, "features", "delta")
    if options.people is not None:
        from mpmtl_prob.threat_models import NoisyMeans, odds, views

        for name in ("adjacency", "mechanism"):
            if (given := getattr(options, name)) is not None:
                raise ValueError(
                    f"--{name}: expected it without --people, got {given!r}: people's means have Gaussian "
                    "noise, and a new person takes the place of one who did not take part; leave it out"
                )
        rows = []
        texts = []
        for view in (views.single(), views.others()):
            mechanism = NoisyMeans.within(options.epsilon, options.delta, options.people, options.features, view=view)
            person = odds.participant(mechanism, options.epsilon, prior=options.prior, seed=options.seed)
            rows.append({"before": view.name, "typical": person.typical, "one in ten above": person.tenth,
                         "e^eps": person.most, "passed with probability": person.passed})  # fmt: skip
            texts.append(str(person))
        return Said(rows, "\n".join(texts))
    from mpmtl_prob.privacy.accounting.curves import membership_odds

    adjacency = "replace" if options.adjacency is None else options.adjacency
    law = noise_law(options, "wishart" if options.mechanism is None else options.mechanism, adjacency)
    moved = membership_odds((law,), adjacency, options.epsilon, options.prior)
    return Said([], str(moved))


def noise_law(options: argparse.Namespace, mechanism: str, adjacency: str) -> Any:
    """Return the noise law of one release for (eps, delta), by the name of its kind."""
    from mpmtl_prob._util.checks import one_of
    from mpmtl_prob.privacy import PaperWishart, calibrate, calibrate_gaussian

    kinds: dict[str, Any] = {"wishart": calibrate, "gaussian": calibrate_gaussian}
    if one_of("mechanism", mechanism, (*kinds, "paper")) == "paper":
        return PaperWishart(options.features, options.epsilon, clip=options.clip)
    return kinds[mechanism](options.epsilon, options.delta, options.features, clip=options.clip, adjacency=adjacency)
