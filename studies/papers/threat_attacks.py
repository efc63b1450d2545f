"""Membership inference attacks under every threat model: coalitions, algorithms by views, and odds of participation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr
from scipy.stats import betabinom, binom, norm

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.privacy import Bound, views
from mpmtl_prob.privacy.audit.views import View
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile
from mpmtl_prob.threat_models import NoisyMeans, audits, odds, one_of_each
from mpmtl_prob.threat_models.means import AGAINST
from mpmtl_prob.threat_models.problems import uniform_nodes
from studies.papers.chance import FALSE_ALARM, Row, agree, beside, measured, part, verdict

if TYPE_CHECKING:
    from studies.papers.threat_settings import ThreatModels

_PEOPLE, _QUESTIONS, _RHO = 50, 100, 0.2
_MU = float(np.sqrt(2 * _RHO))
_EPSILON = 1.0
_SURE = 1 - FALSE_ALARM
_SETTING = f"{_PEOPLE} people, {_QUESTIONS} questions, rho = {_RHO:g}"
#: True if the guarantee holds: algorithms none, one other, all others, billboard; views one other, all others, everybody
_IMPLIED = (False,) * 3 + (True, False, False) + (True, True, False) + (True,) * 3
#: stated and observed probabilities in the calibration's bins, as computed beforehand
_STATED_BINS = ((0.16, 0.17), (0.31, 0.33), (0.50, 0.51), (0.69, 0.67), (0.85, 0.85))


def coalitions(settings: ThreatModels) -> Row:
    """Measure the privacy loss against k colluding people, with noise for k others and with noise for one."""
    rows, errors = list[Row](), list[bool]()
    claim = Bound(_EPSILON, 0.0, "replace", "person")  # any claim, as only the log likelihood ratios are used
    for k in (1, 2, 5, 10, 20, _PEOPLE - 1):
        view = views.coalition(k)
        meant = NoisyMeans.at(_MU, _PEOPLE, _QUESTIONS, view=view, clipped=False)
        formula = k / (2 * _RHO * _PEOPLE**2) + 1 / (4 * _PEOPLE)
        errors.append(abs(float(meant.error(0.0)) / formula - 1) < 1e-9)
        for name, mechanism, mu in (
            ("these k", meant, _MU),
            (
                "one other",
                NoisyMeans.at(_MU, _PEOPLE, _QUESTIONS, view=views.single(), clipped=False),
                _MU * np.sqrt(k),
            ),
        ):
            game = audits.likelihood_ratio(mechanism, claim, view=view, trials=settings.trials, seed=5)
            off = game.absent - game.present  # N(mu^2, 2 mu^2)
            strength = np.sqrt(max(off.mean(), 0.0))
            # Standard error of the square root (delta method).
            se = off.std(ddof=1) / np.sqrt(len(off)) / (strength + mu)
            error = {"worst error": float(mechanism.error(0.0))}
            rows.append({"k": k, "noise against": name} | error | beside(float(mu), strength, se))
    return part(
        "Coalitions",
        f"{_SETTING}. Errors are k / (2 rho t^2) + 1 / (4 t). Measured is mu of the likelihood ratio of k people who "
        "know everybody else's answers.",
        (rows,),
        (
            agree("Def 2.8, k of t", "With noise for k, k people together have mu = sqrt(2 rho); with noise for one, "
                  "sqrt(2 rho k).", _SETTING, rows, settings.trials, all(errors), "errors are those of the formula"),
        ),
    )  # fmt: skip


def matrix(settings: ThreatModels) -> Row:
    """Attack every algorithm under every view, with controls and the statement for participants."""
    mechanisms, delta = one_of_each(_MU, _PEOPLE, _QUESTIONS), PrivacyProfile.gaussian(_MU).delta(_EPSILON)
    trials = settings.trials // 2
    played = audits.matrix(mechanisms, _EPSILON, delta, trials=trials, confidence=_SURE, seed=6)
    looks = len(mechanisms) * tuple(AGAINST.values())
    rows = [_cell(row, mechanisms[row["mechanism"]], view, settings) for row, view in zip(played, looks, strict=True)]
    attacked = [row for row in rows if row["LR AUC"] is not None]
    areas = [beside(a, row["LR AUC"], np.sqrt(a * (1 - a) / trials)) for row in attacked for a in (row["exact"],)]
    controls = audits.controls(_EPSILON, 1e-3, confidence=_SURE, seed=6)

    def cell(row: Row) -> str:
        return f"{row['noise against']} before {row['looks']}"

    odd = [cell(row) for row, passes in zip(rows, _IMPLIED, strict=True) if (row["promise"] == "pass") != passes]
    odd += [cell(row) for row in attacked if row["broken by LR"] != (row["promise"] == "fail")]
    odd += [name for name, detected in controls.items() if not detected]
    beyond = [cell(row) for row in attacked if row["E log BF"] is not None and row["E log BF, lower"] > row["at most"]]
    tries = min(settings.trials // 5, 500)
    promised = (NoisyMeans.within(_EPSILON, 1e-3, _PEOPLE, _QUESTIONS, view=view) for view in AGAINST.values())
    statements = "\n".join(f"- {odds.participant(mechanism, _EPSILON, trials=tries, seed=6)}" for mechanism in promised)
    note = (
        f"{_SETTING}, p uniform. Tracing knows p; the likelihood ratio (LR) knows all others' answers, and its AUC is known "
        "exactly; E log BF is of somebody who knows p, and at most rho before that view. The promise is "
        f"({_EPSILON:g}, {delta:.3g}), of one person. A view without numbers shows everybody's own output, and nothing is "
        f"promised there.\n\nWhat a participant is told, at (1, 1e-3):\n\n{statements}"
    )
    return part(
        "Algorithms before views",
        note,
        (rows, [{"control": name, "found": detected} for name, detected in controls.items()]),
        (
            verdict("Defs 2.1, 2.7, 2.8", "A billboard's promise implies the joint one, that the 1-out-of-t one, and none is "
                    "implied back.", _SETTING, not odd, {},
                    f"but not: {', '.join(odd)}" if odd else "attacks break what does not hold, and nothing else"),
            agree("Def 2.7, attack", "Who knows all other answers does as well as mu says.", _SETTING, areas, trials),
            verdict("odds", "What is learnt is at most rho on average, before every view.", _SETTING, not beyond, {},
                    f"passed by {', '.join(beyond)}" if beyond else "no lower limit is above it"),
        ),
    )  # fmt: skip


def _cell(row: Row, mechanism: NoisyMeans, view: View, settings: ThreatModels) -> Row:
    """Return a row for one algorithm and view: the attacks' success, and if the guarantee holds."""
    is_covered = row["likelihood_ratio"] is not None
    learnt = lower = None
    if is_covered and mechanism.sd:
        trials = max(settings.numbers // (4 * max(mechanism.numbers(view) or 0, 20)), 100)
        bound = odds.suspect(mechanism, view=view, known=True, trials=trials, seed=6).information(_SURE)
        learnt, lower = bound.estimate, bound.lower
    return {
        "noise against": row["mechanism"],
        "looks": _who(view),
        "mu": row["mu"],
        "tracing AUC": row["auc"],
        "LR AUC": row["likelihood_ratio"],
        "exact": float(ndtr(row["mu"] / np.sqrt(2))) if is_covered else None,
        "E log BF": learnt,
        "E log BF, lower": lower,
        "at most": row["mu"] ** 2 / 2,
        "promise": "pass" if row["holds"] else "fail",
        "broken by LR": row["broken"],
    }


def _who(view: View) -> str:
    return {1: "one other", -1: "all others", None: "everybody"}[view.owners]


def mean_log_factor(mechanism: NoisyMeans, view: View, known: bool) -> float:
    """Compute E log BF of a participant, p ~ U[-1, 1], by quadrature over p and the noisy mean, and a sum over counts."""
    t, s = mechanism.num_people, mechanism.sd
    g, h = np.linspace(-1 - 9 * s, 1 + 9 * s, 4001, retstep=True)
    at = norm.pdf(g[:, None], 2 * np.arange(t + 1) / t - 1, s)  # (g, count)
    p, weights = uniform_nodes(size=80) if known else (np.zeros(1), np.ones(1))
    q, total = (1 + p) / 2, 0.0

    def law(n: int, y: int) -> FloatArray:
        """Return the distribution of the count of n answers, given y if p is not known, (count, p)."""
        c = np.arange(n + 1)[:, None]
        return binom.pmf(c, n, q) if known else betabinom.pmf(c, n, 1 + y, 2 - y)

    for y, chance in ((1, q), (0, 1 - q)):
        there, away = at[:, y : t + y] @ law(t - 1, y), at @ law(t, y)
        ratio = np.log(np.maximum(there, 1e-300) / np.maximum(away, 1e-300))
        total += float(h * np.sum(there * ratio, axis=0) @ (chance * weights))
    return (mechanism.numbers(view) or 0) * total


def information(settings: ThreatModels) -> Row:
    """Compare E log BF of three mechanisms with rho, for attackers who know p and who do not."""
    board = NoisyMeans.at(2.0, _PEOPLE, 2000, view=views.billboard())
    joint = NoisyMeans.at(2.0, _PEOPLE, 2000, view=views.others())
    weak = NoisyMeans.at(_MU, _PEOPLE, _QUESTIONS, view=views.single())
    rows, tried, fewest = list[Row](), list[Row](), max(settings.numbers // board.num_features, 30)
    for mechanism, view, rho, stated in (
        (board, views.billboard(), 2.0, 0.31), (joint, views.others(), 2.0, 0.19), (weak, views.others(), _RHO, 0.328),
    ):  # fmt: skip
        for known in (True, False):
            trials = max(settings.numbers // (mechanism.numbers(view) or 1), fewest)
            game = odds.suspect(mechanism, view=view, known=known, trials=trials, seed=7)
            comparison = measured(mean_log_factor(mechanism, view, known), game.inside)
            at = {"noise against": _who(mechanism.view), "looks": _who(view), "rho claimed": rho}
            rows.append(at | {"p": "known" if known else "not known", "stated": stated if known else None} | comparison)
            tried.append(comparison)
    refuted = [row for row in rows if row["exact"] > row["rho claimed"]]
    only = [(row["noise against"], row["p"]) for row in refuted] == [("one other", "known")]
    weak_row, blind = rows[4], rows[5]
    why = (
        f"noise for one other before {_PEOPLE - 1}: {weak_row['exact']:.3f} > {_RHO:g} for who knows p, and "
        f"{blind['exact']:.3f} for who does not"
    )
    statement = (
        "What is learnt is at most rho; noise for one other person, claimed to be joint privacy, is refuted by somebody who "
        "knows p and nothing of the others."
    )
    note = (
        f"Mean log Bayes factor of somebody who was there, {_PEOPLE} people: exact is a quadrature, measured a simulation. "
        "What was stated beforehand was a simulation too, for an attacker who knows p."
    )
    return part(
        "What is learnt of a participant",
        note,
        (rows,),
        (agree("odds, rho", statement, "rho = 2 and .2", tried, fewest, only, why),),
    )


def calibration(settings: ThreatModels) -> Row:
    """Check the calibration of stated probabilities: of the cases with probability 30 %, 30 % took part."""
    t, d, rows = _PEOPLE, _QUESTIONS, list[Row]()
    mechanism = NoisyMeans.at(2.0, t, d, view=views.billboard())
    for known in (True, False):
        game = odds.suspect(mechanism, known=known, trials=max(settings.numbers // 50, 100), seed=8)
        inside, outside = game.probability()
        for low, (said, true) in zip(np.arange(5) / 5, _STATED_BINS, strict=True):
            inside_bin, outside_bin = ((chances >= low) & (chances < low + 0.2) for chances in (inside, outside))
            cases = inside_bin.sum() + outside_bin.sum()
            chance = np.concatenate([inside[inside_bin], outside[outside_bin]])
            # An upper bound, as the two cases of a pair share the others' answers.
            se = np.sqrt(2 * np.sum(chance * (1 - chance))) / max(cases, 1)
            at = {"p": "known" if known else "not known", "said": f"{low:.1f} to {low + 0.2:.1f}", "cases": int(cases)}
            stated = (
                {"stated: said": said, "stated: true": true} if known else {"stated: said": None, "stated: true": None}
            )
            rows.append(at | stated | beside(chance.sum() / max(cases, 1), inside_bin.sum() / max(cases, 1), se))
    data = f"{t} people, {d} questions on a billboard, rho = 2"
    looked = [row for row in rows if row["cases"] >= 50]
    note = (
        f"{data}, even odds beforehand. Exact is the mean probability that was said, measured the share who were in. "
        "Standard errors are the largest possible; the verdict is on bins of 50 cases or more."
    )
    statement = "Probabilities of having taken part are true as often as they say."
    return part(
        "Probabilities that come true",
        note,
        (rows,),
        (agree("odds, calibration", statement, data, looked, len(inside)),),
    )
