"""Verdicts on the papers' claims: one pure function per claim, of a data set from :func:`runner.run`.

Arms are compared by paired differences over replications. An arm *is worse* if the mean difference is positive in a one-sided
t test at 5 %, and better likewise. With fewer than two replications there is no test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from mpmtl_prob._util.arrays import FloatArray
from studies.papers.contrasts import LEVEL, Difference, arm_of, best_of, gap_share, loss, pairs_of, shared
from studies.papers.settings import (
    DP_AGGR,
    DP_MTRL,
    GROUP_SPARSE,
    LOW_RANK,
    LOW_RANK_2018,
    LOW_RANK_UNIT,
    MTL,
    OF_2018,
    POSTERIOR,
    STL,
    Shared,
)

HOLDS, FAILS, UNTESTED = "holds", "does not hold", "not testable"
HOLDS_2018 = "holds with the noise of 2018, which is not private at that eps"


@dataclass(frozen=True)
class Verdict:
    """Verdict on one claim for one data set.

    Attributes:
        claim: its number on the results page, or the figure that shows it.
        statement: the claim in words.
        data: the data set.
        verdict: "holds", "does not hold" or "not testable"; or, of the noise of 2018, that it holds with that.
        statistic: the numbers behind it, by name.
        why: the reason in words.
    """

    claim: str
    statement: str
    data: str
    verdict: str
    statistic: dict[str, Any]
    why: str


def _by_eps(differences: dict[float, Difference]) -> dict[str, list[float]]:
    return {f"{eps:g}": [difference.mean, difference.se] for eps, difference in differences.items()}


def _list(epsilons: list[float]) -> str:
    return ", ".join(f"{eps:g}" for eps in epsilons)


def between(results: xr.Dataset) -> list[Verdict]:
    """Test claim 1: MP-LR lies between STL and MTL at every eps and reaches MTL by eps = 10."""
    return _between(results, "1", LOW_RANK)


def of_both_noises(results: xr.Dataset) -> list[Verdict]:
    """Test claim 1 with the journal's noise and with both forms of that of 2018, on real data too."""
    return [verdict for arm in (LOW_RANK, LOW_RANK_2018, LOW_RANK_UNIT) for verdict in _between(results, "noise", arm)]


def _between(results: xr.Dataset, claim: str, arm: str) -> list[Verdict]:
    statement = f"{arm} lies between STL and MTL at every eps, and reaches MTL by eps = 10."
    claims = []
    for data in results["data"].values:
        errors = loss(results, data)
        ours = arm_of(errors, arm)
        above, below = pairs_of(ours, best_of(errors, STL)), pairs_of(ours, best_of(errors, MTL))
        share = gap_share(results, data, arm)
        if not above or not below or share is None or float(share["epsilon"].max()) < 10:
            why = f"needs STL, MTL and {arm} at eps >= 10, MTL better than STL, and two replications."
            claims.append(Verdict(claim, statement, data, UNTESTED, {}, why))
            continue
        worse = [eps for eps, d in above.items() if d.is_worse]
        better = [eps for eps, d in below.items() if d.is_better]
        reached = float(share.where(share["epsilon"] >= 10, drop=True).min())
        shares = {f"{eps:g}": float(share.sel(epsilon=eps)) for eps in share["epsilon"].values}
        statistic = {"share of the STL-to-MTL gap": shares, "against STL, mean and s.e.": _by_eps(above)}
        why = (
            (f"worse than STL at eps = {_list(worse)}; " if worse else "never worse than STL; ")
            + (f"better than MTL at eps = {_list(better)}; " if better else "")
            + f"from eps = 10 on it closes {reached:.2f} of the gap."
        )
        holds = HOLDS_2018 if arm in OF_2018 else HOLDS
        verdict = holds if not worse and not better and reached >= 0.9 else FAILS
        claims.append(Verdict(claim, statement, data, verdict, statistic, why))
    return claims


def structure(results: xr.Dataset) -> list[Verdict]:
    """Test claim 2: on low-rank data MP-GS is worse than MP-LR; on group-sparse data they rival."""
    claims = []
    for data in results["data"].values:
        rival = shared(results, data) is Shared.FEATURES
        statement = (
            "On group-sparse data Algorithms 2 and 3 rival each other."
            if rival
            else "On low-rank data Algorithm 3 is worse than Algorithm 2."
        )
        errors = loss(results, data)
        first, second = arm_of(errors, GROUP_SPARSE), arm_of(errors, LOW_RANK)
        single, together = best_of(errors, STL), best_of(errors, MTL)
        pooled = (
            None
            if first is None or second is None
            else Difference.of(first.mean("epsilon").values, second.mean("epsilon").values)
        )
        if pooled is None or single is None or together is None:
            why = "needs STL, MTL, both algorithms and two replications."
            claims.append(Verdict("2", statement, data, UNTESTED, {}, why))
            continue
        gap = abs(float(single.mean() - together.mean()))
        statistic = {
            "difference": pooled.mean,
            "se": pooled.se,
            "p": pooled.worse,
            "share of the gap": pooled.mean / gap,
        }
        why = f"Algorithm 3 minus Algorithm 2, mean over eps: {pooled.mean:.4f} (s.e. {pooled.se:.4f})"
        if rival:
            verdict = HOLDS if abs(pooled.mean) <= 0.1 * gap else FAILS
            why += f", {abs(pooled.mean) / gap:.2f} of the STL-to-MTL gap; rivals differ by at most .1 of it."
        else:
            verdict = HOLDS if pooled.is_worse else FAILS
            why += f", one-sided p = {pooled.worse:.2g}."
        claims.append(Verdict("2", statement, data, verdict, statistic, why))
    return claims


def relations_only_when_loose(results: xr.Dataset) -> list[Verdict]:
    """Test claim 3: DP-MTRL beats STL on low-rank data only at large eps, never on group-sparse data."""
    claims = []
    for data in results["data"].values:
        if shared(results, data) not in (Shared.SUBSPACE, Shared.FEATURES):
            continue
        never = shared(results, data) is Shared.FEATURES
        statement = f"DP-MTRL beats STL on {'group-sparse data never' if never else 'low-rank data only at large eps'}."
        errors = loss(results, data)
        pairs = pairs_of(arm_of(errors, DP_MTRL), best_of(errors, STL))
        if not pairs or max(pairs) < 10:
            claims.append(
                Verdict("3", statement, data, UNTESTED, {}, "needs both arms, eps >= 10 and two replications.")
            )
            continue
        wins = [eps for eps, d in pairs.items() if d.is_better]
        verdict = (not wins) if never else (bool(wins) and min(wins) >= 10)
        why = f"better than STL at eps = {_list(wins)}." if wins else "never better than STL."
        statistic = {"DP-MTRL minus STL, mean and s.e.": _by_eps(pairs)}
        claims.append(Verdict("3", statement, data, HOLDS if verdict else FAILS, statistic, why))
    return claims


def averaging(results: xr.Dataset) -> list[Verdict]:
    """Test claim 4: DP-AGGR is far worse than STL except where tasks are alike; on the real data, worse."""
    claims = []
    for data in results["data"].values:
        errors = loss(results, data)
        first, single = arm_of(errors, DP_AGGR), best_of(errors, STL)
        pairs = pairs_of(first, single)
        common = shared(results, data)
        statement = {
            Shared.EVERYTHING: "Where all tasks are alike, DP-AGGR is not far worse than STL at large eps.",
            Shared.UNKNOWN: "DP-AGGR is worse than STL at every eps.",
        }.get(common, "DP-AGGR is far worse than STL, with at least twice its error at every eps.")
        if not pairs or first is None or single is None:
            claims.append(Verdict("4", statement, data, UNTESTED, {}, "needs both arms and two replications."))
            continue
        ratio = (first.mean("replication") / single.mean("replication")).dropna("epsilon")
        ratios = {f"{eps:g}": float(ratio.sel(epsilon=eps)) for eps in ratio["epsilon"].values}
        not_worse = [eps for eps, d in pairs.items() if not d.is_worse]
        verdict = {Shared.EVERYTHING: float(ratio[-1]) < 2, Shared.UNKNOWN: not not_worse}.get(
            common, float(ratio.min()) >= 2
        )
        why = f"its error is {float(ratio.min()):.2f} to {float(ratio.max()):.2f} times that of STL over the budgets"
        why += f"; not worse at eps = {_list(not_worse)}." if not_worse else "."
        claims.append(Verdict("4", statement, data, HOLDS if verdict else FAILS, {"error ratio": ratios}, why))
    return claims


def more_tasks(results: xr.Dataset) -> list[Verdict]:
    """Test claim 5: the error of the first tasks falls with m, for m against m/2 and all eps together.

    A replication has the same first tasks for every m, so that paired differences decide. The papers' Mann-Whitney test,
    which ignores the pairing, is reported too.
    """
    statement = "The error of the first tasks falls with every doubling of the number of tasks."
    claims = []
    for data in results["data"].values if "tasks" in results.dims else ():
        for arm in (LOW_RANK, POSTERIOR):
            errors = arm_of(loss(results, data), arm)
            sizes = [] if errors is None else [m for m in errors["tasks"].values if errors.sel(tasks=m).notnull().any()]
            where = f"{data}, {arm}"
            if errors is None or len(sizes) < 2 or int(errors.sel(tasks=sizes[0]).notnull().sum()) < 4:
                why = "needs two numbers of tasks and four values of each."
                claims.append(Verdict("5", statement, where, UNTESTED, {}, why))
                continue
            p, paired = {}, {}
            for few, many in pairwise(sizes):
                before, after = (errors.sel(tasks=m).dropna("epsilon", how="all") for m in (few, many))
                test = stats.mannwhitneyu(*_finite(after, before), alternative="less")
                p[f"{few} to {many}"] = float(test.pvalue)
                difference = Difference.of(after.mean("epsilon").values, before.mean("epsilon").values)
                paired[f"{few} to {many}"] = np.nan if difference is None else difference.better
            means = {str(m): float(errors.sel(tasks=m).mean()) for m in sizes}
            why = "one-sided p of paired t tests and, in brackets, of the papers' Mann-Whitney tests: " + ", ".join(
                f"{step} tasks {paired[step]:.2g} ({p[step]:.2g})" for step in p
            )
            verdict = HOLDS if max(paired.values()) < LEVEL else FAILS
            statistic = {"p of paired t tests": paired, "p of Mann-Whitney tests": p, "mean error": means}
            claims.append(Verdict("5", statement, where, verdict, statistic, why + "."))
    return claims


def _finite(*values: xr.DataArray) -> list[FloatArray]:
    return [array[np.isfinite(array)] for array in (data.values.ravel() for data in values)]


def budgets(results: xr.Dataset) -> list[Verdict]:
    """Test claim 6: acceleration helps; the best exponents are those of Theorem 6: alpha = 2/5, Q = Q_0^(1/5)."""
    claims = []
    data = str(results["data"].values[0])
    errors = results["error"].isel(data=0, epsilon=0, drop=True)
    for kind, best in (("convex", 0.4), ("strongly convex", 0.2)):
        statement = f"With a {kind} loss acceleration helps, and the exponent {best:g} of Theorem 6 is best."
        slow, quick = arm_of(errors, kind), arm_of(errors, f"{kind}, accelerated")
        gain = (
            None
            if slow is None or quick is None
            else Difference.of(quick.min("exponent").values, slow.min("exponent").values)
        )
        if gain is None or quick is None or not np.any(np.isclose(quick["exponent"], best)):
            why = f"needs both arms, the exponent {best:g} and two replications."
            claims.append(Verdict("6", statement, data, UNTESTED, {}, why))
            continue
        mean = quick.mean("replication")
        at = float(mean["exponent"][int(mean.argmin("exponent"))])
        theirs = quick.sel(exponent=best, method="nearest")
        lost = Difference.of(theirs.values, quick.sel(exponent=at).values)
        assert lost is not None
        spread = float(mean.max() - mean.min())
        statistic = {
            "gain of acceleration, mean and s.e.": [-gain.mean, gain.se],
            "best exponent": at,
            "lost by the papers' exponent, mean and s.e.": [lost.mean, lost.se],
            "spread over exponents": spread,
        }
        why = (
            f"acceleration lowers the error by {-gain.mean:.4f} (s.e. {gain.se:.4f}); the best exponent is {at:g}, where it "
            f"is lower by {lost.mean:.4f}, of {spread:.4f} between best and worst; a tenth of that is let pass."
        )
        verdict = HOLDS if gain.is_better and lost.mean <= 0.1 * spread else FAILS
        claims.append(Verdict("6", statement, data, verdict, statistic, why))
    return claims


def noise(results: xr.Dataset) -> list[Verdict]:
    """Test claim 7: the noise-to-signal ratio of Sigma is large while W^ barely moves."""
    statement = "The noise in Sigma is larger than the signal, and yet W^ moves by less than a tenth of its norm."
    data = str(results["data"].values[0])
    chosen = results.isel(data=0, epsilon=0, drop=True).sel(arm=LOW_RANK)
    if "ratio" not in chosen or not bool(chosen["ratio"].notnull().any()):
        return [Verdict("7", statement, data, UNTESTED, {}, "needs a run of Algorithm 2.")]
    ratio = float(chosen["ratio"].median())
    moved = float(chosen["moved"].dropna("iteration").isel(iteration=-1).mean())
    statistic: dict[str, Any] = {"log10 noise to signal, median": ratio, "W^ moved, relative": moved}
    if "error_without_noise" in chosen:
        statistic["error with and without noise"] = [
            float(chosen["error"].mean()),
            float(chosen["error_without_noise"].mean()),
        ]
    why = (
        f"log10 ||E|| / ||Sigma~|| is {ratio:.2f} in the median round, and W^ ends {moved:.3f} of its norm away from where "
        "the same run ends without noise"
    )
    if "between_draws" in chosen:
        statistic["W^ between two draws, relative"] = float(chosen["between_draws"].mean())
        why += f", {statistic['W^ between two draws, relative']:.3f} between two draws of the noise"
    why += "."
    return [Verdict("7", statement, data, HOLDS if ratio > 0 and moved < 0.1 else FAILS, statistic, why)]


def ordering(results: xr.Dataset) -> list[Verdict]:
    """Test claim 8: same ordering on both real sets: MTL, MP-LR, STL; and MP-LR before DP-MTRL and DP-AGGR."""
    statement = (
        "As on synthetic data: Algorithm 2 between STL and MTL, and better than DP-MTRL and DP-AGGR at small eps."
    )
    claims = []
    for data in results["data"].values:
        errors = loss(results, data)
        ours = arm_of(errors, LOW_RANK)
        sides = (best_of(errors, STL), best_of(errors, MTL), arm_of(errors, DP_MTRL), arm_of(errors, DP_AGGR))
        single, together, mtrl, aggr = (pairs_of(ours, side) for side in sides)
        if not (single and together and mtrl and aggr):
            why = "needs STL, MTL, Algorithm 2, DP-MTRL, DP-AGGR and two replications."
            claims.append(Verdict("8", statement, data, UNTESTED, {}, why))
            continue
        small = min(mtrl)
        broken = [f"worse than STL at eps = {eps:g}" for eps, d in single.items() if d.is_worse]
        broken += [f"better than MTL at eps = {eps:g}" for eps, d in together.items() if d.is_better]
        for name, pairs in ((DP_MTRL, mtrl), (DP_AGGR, aggr)):
            broken += [f"worse than {name} at eps = {eps:g}" for eps, d in pairs.items() if d.is_worse]
            if not pairs[small].is_better:
                broken.append(f"not better than {name} at eps = {small:g}")
        statistic = {
            f"Algorithm 2 minus {name}, mean and s.e.": _by_eps(pairs)
            for name, pairs in (("STL", single), ("MTL", together), (DP_MTRL, mtrl), (DP_AGGR, aggr))
        }
        why = "; ".join(broken) + "." if broken else "nothing contradicts it."
        claims.append(Verdict("8", statement, data, FAILS if broken else HOLDS, statistic, why))
    return claims


def leakage(results: xr.Dataset) -> list[Verdict]:
    """Test the running example: without noise the odd task's profile is in every other; at eps = 0.1 it is not."""
    statement = "With eps = 1e40 the odd task is copied into the others, with eps = 0.1 it is not."
    data = "m = 10, d = 5"
    cosine = results["cosine"].isel(data=0, arm=0, drop=True).mean("replication")
    before = float(results["cosine_before"].mean())
    if len(cosine) < 2:
        return [Verdict("Fig 2", statement, data, UNTESTED, {}, "needs both budgets.")]
    tight, loose = float(cosine.sel(epsilon=0.1)), float(cosine.sel(epsilon=1e40))
    statistic = {"cosine with the odd task": {"before": before, "eps = 0.1": tight, "eps = 1e40": loose}}
    why = f"cosine with the odd task: {before:.3f} before, {tight:.3f} at eps = 0.1, {loose:.3f} at eps = 1e40."
    verdict = HOLDS if loose > 0.99 and abs(tight - before) < 0.1 else FAILS
    return [Verdict("Fig 2", statement, data, verdict, statistic, why)]


def recovered(results: xr.Dataset) -> list[Verdict]:
    """Test Fig 3: MP-MTL finds which tasks are similar, DP-MTRL does not."""
    statement = "The output models show which tasks are similar with Algorithm 2, and do not with DP-MTRL."
    data = str(results["data"].values[0])
    # A single group has no other group to compare with.
    across = results.get("across", xr.full_like(results["within"], np.nan))
    contrast = (results["within"] - across).isel(data=0, epsilon=0, drop=True).mean("replication")
    by_arm = {str(arm): float(contrast.sel(arm=arm)) for arm in contrast["arm"].values}
    if not np.all(np.isfinite([by_arm.get(LOW_RANK, np.nan), by_arm.get(DP_MTRL, np.nan)])):
        return [Verdict("Fig 3", statement, data, UNTESTED, {}, "needs both arms and several groups of tasks.")]
    why = "mean cosine within groups minus across: " + ", ".join(f"{arm} {v:z.2f}" for arm, v in by_arm.items()) + "."
    verdict = HOLDS if by_arm[LOW_RANK] > 0.5 and by_arm[DP_MTRL] < 0.1 else FAILS
    return [Verdict("Fig 3", statement, data, verdict, {"contrast": by_arm}, why)]


Claim = Callable[[xr.Dataset], list[Verdict]]

#: claims that a study tests
CLAIMS: dict[str, tuple[Claim, ...]] = {
    "fig2": (leakage,),
    "fig3": (recovered,),
    "fig4": (budgets,),
    "fig5": (noise,),
    "fig6": (between, structure),
    "fig7": (relations_only_when_loose, averaging),
    "fig8": (more_tasks,),
    "fig9": (ordering, averaging),
    "fig10": (ordering, averaging),
    "non-private": (),
    "noise-2018": (of_both_noises,),
    "noise-2018-synthetic": (of_both_noises,),
    "noise-2018-lsoa2": (of_both_noises,),
    "training": (ordering,),
    "training-lsoa2": (ordering,),
}


def verdicts(results: xr.Dataset) -> list[Verdict]:
    """Return all verdicts from a study's results."""
    return [verdict for claim in CLAIMS[results.attrs["study"]] for verdict in claim(results)]


def once(reports: Iterable[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return every verdict with its report, and of repeated claims on the same data the first, as experiments share runs."""
    results_by_claim: dict[tuple[str, ...], tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
    for report in reports:
        for verdict in report["verdicts"]:
            results_by_claim.setdefault((verdict["claim"], verdict["statement"], verdict["data"]), (report, verdict))
    return list(results_by_claim.values())
