"""The section of the benchmarks page about mixed models with privacy."""

from __future__ import annotations

from collections.abc import Iterable

from tables import Report, as_table

NOT_PRIVATE = ("alone", "alone, evidence", "pooled, not private", "mixed", "mixed, isotropic", "told the truth")


def panel(report: Report) -> Iterable[str]:
    """Errors of every arm, cell by cell; shares of a distance; coverage; real tables."""
    cells, tables = report["cells"], report["tables"]
    arms = list(dict.fromkeys(arm for row in cells for arm in row["errors"]))
    yield (
        "Tasks have coefficients beta_i ~ N(mu, Omega); one release at (eps, 1 / (m log m)) protects a task whose data are "
        "replaced by any other. A cell's name has d (columns), m (tasks), rows of a task (half and square: d / 2 and d), the "
        "length of mu, and tau, the size of beta_i - mu; *correlated* columns; *noisy*: unequal residual variances; *few*: "
        "about as many rows as columns. Errors are of a test row's mean, (b - beta)'E[xx'](b - beta), averaged over tasks "
        "and seeds. *linear* is the mixed model's error plus the least that the noise of mu adds if a release of unit "
        "messages is read linearly (studies/benchmarks/random_effects/limits.py). Without privacy, or without a release: "
        f"{', '.join(arm for arm in arms if arm in NOT_PRIVATE)}. *0.3.0* is that version, commit {report['before']}."
    )
    head = ("cell", "seeds", *arms, "noise of mu adds", "linear")
    yield as_table(
        head, [(row["cell"]["name"], str(row["seeds"]), *_errors(row, arms), *_limits(row)) for row in cells]
    )
    shares = [arm for arm in arms if any(arm in row.get("shares", {}) for row in cells)]
    if shares:
        yield (
            "Share of the distance between 0.3.0 and the mixed model that an arm closes, with a 90 % bootstrap interval over "
            "seeds, where that distance is more than a tenth of 0.3.0's error:"
        )
        kept = [row for row in cells if "shares" in row and _apart(row)]
        rows = [(row["cell"]["name"], *(_share(row["shares"].get(arm)) for arm in shares)) for row in kept]
        yield as_table(("cell", *shares), rows)
    beside = list(dict.fromkeys(arm for row in cells for arm in row.get("ratios", {})))
    if beside:
        yield "Error of the library as it is, *default*, over those of others, with the same intervals:"
        rows = [
            (row["cell"]["name"], *(_ratio(row["ratios"].get(arm)) for arm in beside))
            for row in cells
            if "ratios" in row
        ]
        yield as_table(("cell", *beside), rows)
    covering = [arm for arm in arms if any("covered" in row["errors"].get(arm, {}) for row in cells)]
    if covering:
        yield "What 90 % intervals of beta cover, over a cell, and for the worst and the best coefficient:"
        rows = [(row["cell"]["name"], *(_covered(row["errors"].get(arm, {})) for arm in covering)) for row in cells]
        yield as_table(("cell", *covering), rows)
    judged = [row for row in cells if "sound" in row["errors"].get("default", {})]
    if judged:
        yield from _judged(judged)
    if tables:
        yield (
            "Real tables, in units of the pooled rows with an intercept as a coefficient: squared error over squared "
            "deviations within tasks, mean over splits and its standard error. *linear* as above, with what the mixed model "
            "found for truth."
        )
        real = list(dict.fromkeys(arm for row in tables for arm in row["errors"]))
        about = [(row["table"], f"{row['epsilon']:g}", str(row["splits"])) for row in tables]
        values = [[*(_table(row["errors"].get(arm)) for arm in real), _limits(row)[1]] for row in tables]
        yield as_table(
            ("table", "eps", "splits", *real, "linear"), [(*a, *f) for a, f in zip(about, values, strict=True)]
        )
        gaining = list(dict.fromkeys(arm for row in tables for arm in row.get("gains", {})))
        if gaining:
            yield "Share of the mixed model's gain over *alone* that an arm has, with a 90 % bootstrap interval over splits:"
            values = [[_share(row.get("gains", {}).get(arm)) for arm in gaining] for row in tables]
            yield as_table(("table", "eps", "splits", *gaining), [(*a, *f) for a, f in zip(about, values, strict=True)])


def _judged(cells: list[Report]) -> Iterable[str]:
    """Tell the coverage of intervals of mu and tau, and how many fits pass their own diagnosis."""
    fits = sum(row["errors"]["default"]["count"] for row in cells)
    mean = lambda name: sum(row["errors"]["default"][name] * row["errors"]["default"]["count"] for row in cells) / fits
    yield (
        f"Of {fits} fits of the library as it is, {mean('sound'):.0%} pass their own diagnosis. Over all cells its 90 % "
        f"intervals of mu cover {mean('mu covered'):.0%}, and those of tau {mean('tau covered'):.0%}. Cell by cell, over "
        "coefficients:"
    )
    names = ("mu covered", "tau covered", "sound")
    rows = [(row["cell"]["name"], *(f"{row['errors']['default'][name]:.0%}" for name in names)) for row in cells]
    yield as_table(("cell", "mu", "tau", "fits that pass"), rows)


def _errors(row: Report, arms: Iterable[str]) -> list[str]:
    refused = dict.fromkeys(row["missing"], "refused")
    return [f"{row['errors'][arm]['mean']:.3f}" if arm in row["errors"] else refused.get(arm, "-") for arm in arms]


def _limits(row: Report) -> list[str]:
    return [f"{row[name]:.3f}" if name in row else "-" for name in ("noise of mu adds", "linear")]


def _apart(row: Report) -> bool:
    before, ideal = row["errors"].get("0.3.0"), row["errors"].get("mixed")
    return bool(before and ideal and before["mean"] - ideal["mean"] > 0.1 * before["mean"])


def _share(interval: Report | None) -> str:
    return "-" if interval is None else f"{interval['value']:.0%} ({interval['low']:.0%} to {interval['high']:.0%})"


def _ratio(interval: Report | None) -> str:
    return "-" if interval is None else f"{interval['value']:.2f} ({interval['low']:.2f} to {interval['high']:.2f})"


def _covered(row: Report) -> str:
    if "covered" not in row:
        return "-"
    return f"{row['covered']:.0%} ({row['covered, least']:.0%} to {row['covered, most']:.0%})"


def _table(row: Report | None) -> str:
    if not row:
        return "-"
    error = row["standard error"]
    return f"{row['mean']:.3f}" + (f" ({error:.3f})" if error is not None else "")
