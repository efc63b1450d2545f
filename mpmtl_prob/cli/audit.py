"""Command ``mpmtl-prob audit``: attacks that try to refute a promise, on noise, on a ledger, and on many people's answers."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpmtl_prob.cli.bounds import Said, needed, noise_law, tell

WHAT = {
    "noise": "one release's noise, by likelihood ratio, tracing and impossible supports, whether it follows its stated law, "
    "and three broken releases that must be caught (--features --epsilon --delta)",
    "ledger": "all that a ledger has paid for, together (--ledger FILE)",
    "people": "noisy means of many people before every view, and controls (--people --features --epsilon --delta)",
}


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = command("audit", run, "attacks that try to refute a promise; no data are read")
    parser.add_argument("what", metavar="WHAT", help="; ".join(f"{name}: {text}" for name, text in WHAT.items()))
    parser.add_argument("--epsilon", type=float, help="of the promise")
    parser.add_argument(
        "--delta", type=float, help="of the promise; one that few games resolve, such as .01, is tested best"
    )
    parser.add_argument("--features", type=int, help="number of features, d")
    parser.add_argument("--people", type=int, help="people: their number, t")
    parser.add_argument("--mechanism", default="wishart", help="noise: wishart, the default; gaussian; or paper")
    parser.add_argument("--adjacency", default="replace", help="noise: replace, the default, or zero_out")
    parser.add_argument("--clip", type=float, default=1.0, help="noise: largest length of a message, K; default 1")
    parser.add_argument("--ledger", type=Path, help="ledger: the file")
    parser.add_argument("--trials", type=int, default=2000, help="games with either of the two data sets, default 2000")
    parser.add_argument("--confidence", type=float, default=0.99, help="of every bound, default .99")


def run(options: argparse.Namespace) -> None:
    """Play the attacks and print what they show. Raises ValueError for an unknown WHAT, or a missing number."""
    ways = {"noise": _noise, "ledger": _ledger, "people": _people}
    if options.what not in ways:
        raise ValueError(f"WHAT: expected one of {', '.join(WHAT)}, got {options.what!r}")
    tell(options, ways[options.what](options))


_READ = "A claim is broken where the lower bound on eps exceeds the eps that is claimed; that it is not proves nothing."


def _row(name: str, result: Any, must: str = "not broken") -> dict[str, Any]:
    """Return the row of an audit, and what it should find."""
    return {
        "attack": name,
        "claimed eps": result.claim.epsilon,
        "at delta": result.claim.delta,
        "eps at least": result.epsilon_lower,
        "found": "broken" if result.broken else "not broken",
        "expected": must,
    }


def _noise(options: argparse.Namespace) -> Said:
    from mpmtl_prob.privacy import Bound, audit
    from mpmtl_prob.privacy.mechanisms import Wishart

    needed(options, "epsilon", "delta", "features")
    law = noise_law(options, options.mechanism, options.adjacency)
    claim = Bound(options.epsilon, options.delta, options.adjacency)
    given = {"trials": options.trials, "confidence": options.confidence, "seed": options.seed, "progress_bar": False}
    must = "broken" if options.mechanism == "paper" else "not broken"
    rows = [
        _row("likelihood ratio", audit.likelihood_ratio(law, claim, **given), must),
        _row("tracing", audit.tracing(law, claim, **given), "not broken" if must == "not broken" else "either"),
        _row(
            "impossible supports",
            audit.support(law, claim, **given),
            "not broken" if must == "not broken" else "either",
        ),
    ]
    if type(law) is Wishart:
        rows += [_row(f"control: {name}", result, "broken") for name, result in
                 audit.controls(law, options.adjacency, **given).items()]  # fmt: skip
    follows = audit.drawn(law, confidence=options.confidence, seed=options.seed)
    missed = [row["attack"] for row in rows if row["expected"] == "broken" and row["found"] != "broken"]
    more = (
        f"\nNot caught, though it is broken: {', '.join(missed)}. So few games say little; take more --trials."
        if missed
        else ""
    )
    return Said(rows, f"{_READ}{more}\nDraws of the noise beside its stated law: {follows.verdict}.")


def _ledger(options: argparse.Namespace) -> Said:
    from mpmtl_prob.privacy import Ledger, audit

    if options.ledger is None or not options.ledger.is_file():
        got = "none" if options.ledger is None else repr(str(options.ledger))
        raise ValueError(f"--ledger: expected a file that publish or release has charged, got {got}")
    given = {"trials": options.trials, "confidence": options.confidence, "seed": options.seed, "progress_bar": False}
    return Said([_row("likelihood ratio", audit.ledger(Ledger(options.ledger), **given))], _READ)


def _people(options: argparse.Namespace) -> Said:
    from mpmtl_prob.threat_models import audits, mu_within, one_of_each

    needed(options, "people", "features", "epsilon", "delta")
    given = {"trials": options.trials, "confidence": options.confidence, "seed": options.seed}
    mechanisms = one_of_each(mu_within(options.epsilon, options.delta), options.people, options.features)
    rows = audits.matrix(mechanisms, options.epsilon, options.delta, **given)
    shown = [
        {
            "noise against": row["mechanism"],
            "before": row["view"],
            "promise holds": "yes" if row["holds"] else "no",
            "auc, tracing": row["auc"],
            "auc, all known": row["likelihood_ratio"],
            "found": "-" if row["broken"] is None else "broken" if row["broken"] else "not broken",
        }
        for row in rows
    ]
    controls = audits.controls(options.epsilon, options.delta, **given)
    told = ", ".join(
        f"{name}: {'broken' if broken else 'NOT BROKEN, although it is false'}" for name, broken in controls.items()
    )
    return Said(shown, f"Where the promise holds, no attack may break it. Controls, whose promises are false: {told}.")
