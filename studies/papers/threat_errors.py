"""Errors under every threat model: exact curves, and simulations that check them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.threat_models import (
    BillboardMeans,
    HardPrior,
    NoisyMeans,
    Plan,
    generalisation_gap,
    mean_loss,
    mu_within,
    newcomers_error,
    one_of_each,
    sign_loss,
    signs,
    to_metalearner,
    views,
)
from studies.papers.chance import FALSE_ALARM, Row, agree, beside, far, measured, part, verdict

if TYPE_CHECKING:
    from studies.papers.threat_settings import ThreatModels

EPSILON, DELTA = 1.0, 1e-6
_QUESTIONS = 10_000  # number of questions in the errors against people
_PEOPLE = 1000  # number of people in the errors against questions
_STRAIGHT = 0.05  # largest difference of an exact slope from the paper's, which omits lower orders
_PAPER = {"one other": -2.0, "all others": -1.0, "billboard": -2.0}
#: people needed for an error of .01 at (1, 1e-6), by questions, computed independently beforehand
STATED = {1000: (25, 57, 1349, 1349), 10_000: (25, 57, 1809, 4238)}


def losses(rng: np.random.Generator, mechanisms: Mapping[str, NoisyMeans], replications: int) -> dict[str, FloatArray]:
    """Simulate mean losses of all people by mechanism, (replications,), with new p ~ U[-1, 1] and questions in each.

    The entry "newcomers" is for as many new people who read the billboard.
    """
    t, d = (getattr(mechanisms["billboard"], name) for name in ("num_people", "num_features"))
    by_mechanism: dict[str, list[float]] = {name: [] for name in (*mechanisms, "newcomers")}
    for _ in range(replications):
        drawn = HardPrior(t, d).population(rng)
        totals = drawn.totals(rng)[0]
        for name, mechanism in mechanisms.items():
            if not mechanism.on_billboard:
                by_mechanism[name].append(mean_loss(mechanism.simulate(rng, totals, drawn.index), drawn.asked).mean())
                continue
            board = mechanism.board(rng, totals)
            by_mechanism[name].append(mean_loss(board[drawn.index], drawn.asked).mean())
            if name == "billboard":
                new_questions = rng.integers(d, size=t)
                by_mechanism["newcomers"].append(mean_loss(board[new_questions], drawn.p[new_questions]).mean())
    return {name: np.array(values) for name, values in by_mechanism.items()}


def against_people(settings: ThreatModels) -> Row:
    """Compare errors against t, their slopes, and their ratios between threat models with theory."""
    rng, mu, runs = np.random.default_rng(1), mu_within(EPSILON, DELTA), settings.replications
    errors, ratios, prices = list[Row](), list[Row](), dict[str, list[Any]]()
    for t in settings.people:
        mechanisms = one_of_each(mu, t, _QUESTIONS, clipped=False)
        measured_losses = losses(rng, mechanisms, settings.replications)
        errors += [
            {"people": t, "noise against": name} | measured(m.uniform_error(), measured_losses[name])
            for name, m in mechanisms.items()
        ]
        # Both losses have the same answers, so that sampling errors cancel.
        price = {name: measured_losses[name] - measured_losses["none"] for name in _PAPER}
        for name, m in mechanisms.items():
            if m.sd:
                prices.setdefault(name, []).append((t, m.sd**2 / 4, price[name]))
        for above, below, exact in (
            ("all others", "one other", float(t - 1)),
            ("billboard", "all others", _QUESTIONS / (t - 1)),
        ):
            off, size = price[above] - exact * price[below], price[below].mean()
            se = off.std(ddof=1) / np.sqrt(len(off)) / size
            formula = (mechanisms[above].sd / mechanisms[below].sd) ** 2
            row = {"people": t, "ratio": f"{above} / {below}", "of the noises": formula}
            ratios.append(row | beside(exact, exact + off.mean() / size, se))
    slopes: list[Row] = [
        {"noise against": name, "paper": _PAPER[name]} | _slope(points) for name, points in prices.items()
    ]
    data = f"({EPSILON:g}, {DELTA:g}), {_QUESTIONS} questions"
    straight = all(abs(row["exact"] - row["paper"]) <= _STRAIGHT for row in slopes)
    equal = all(abs(row["of the noises"] / row["exact"] - 1) < 1e-9 for row in ratios)
    steps = ", ".join(f"{row['exact']:.2f} against {row['noise against']}" for row in slopes)
    return part(
        "Error against people",
        f"p uniform, {data}, not clipped. The price of privacy is the error beyond that of the same people without privacy.",
        (errors, slopes, ratios),
        (
            agree("Thms 4.2-4.4", "Errors are what the formula says: (2 / (3 t) + s^2) / 4.", data, errors, runs),
            agree("Table 1", "Privacy costs 1/t^2 before one other person and on a billboard, 1/t before all others.",
                  data, slopes, runs, straight, f"the exact slopes are {steps}"),
            agree("Table 1, ratios", "Before all others privacy costs t - 1 times what it costs before one; a billboard "
                  "d / (t - 1) times as much again.", data, ratios, runs, equal, "exactly so for the noises"),
        ),
    )  # fmt: skip


def _slope(points: list[Any]) -> Row:
    """Return the least-squares slope of log price against log t or log d: exact, and measured to first order around it."""
    x = np.log([at for at, _, _ in points])
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    off = np.array([sample.mean() / value - 1 for _, value, sample in points])
    se = np.array([sample.std(ddof=1) / np.sqrt(len(sample)) / value for _, value, sample in points])
    exact = float(weights @ np.log([value for _, value, _ in points]))
    return beside(exact, exact + float(weights @ off), float(np.linalg.norm(weights * se)))


def against_questions(settings: ThreatModels) -> Row:
    """Compare errors against d with theory, for means, and for signs where they are hardest."""
    rng, mu, t, runs = np.random.default_rng(2), mu_within(EPSILON, DELTA), _PEOPLE, settings.replications
    means, wrong, prices = list[Row](), list[Row](), dict[str, list[Any]](means=[], signs=[])
    for d in settings.features:
        mechanisms = one_of_each(mu, t, d, clipped=False)
        measured_losses = losses(rng, mechanisms, runs)
        for name, m in mechanisms.items():
            at = {"questions": d, "noise against": name}
            means.append(at | measured(m.uniform_error(), measured_losses[name]))
            v = np.sqrt((m.sd**2 + 1 / t) / (1 + signs.WORST_MEAN**2 / t))  # |p| = .75 v, v^2 = s^2 + (1 - p^2) / t
            p = min(float(signs.WORST_MEAN * v), 1.0)
            totals = 2 * rng.binomial(t, (1 + p) / 2, (-(-settings.signs // d), d)) - t  # the same p for every question
            loss = sign_loss(signs.sign(m.board(rng, totals)), p).ravel()
            wrong.append(at | {"p": p} | measured(float(signs.sign_error(m, p)), loss))
            if name == "billboard":
                prices["means"].append((d, m.sd**2 / 4, measured_losses[name] - measured_losses["none"]))
                prices["signs"].append((d, wrong[-1]["exact"], loss))
    slopes: list[Row] = [
        {"billboard": what, "paper": {"means": 1.0, "signs": 0.5}[what]} | _slope(p) for what, p in prices.items()
    ]
    data = f"({EPSILON:g}, {DELTA:g}), {t} people"
    flat = all(
        len({row["exact"] for row in means if row["noise against"] == name}) == 1 for name in ("none", *_PAPER)[:3]
    )
    straight = all(abs(row["exact"] - row["paper"]) <= _STRAIGHT for row in slopes)
    return part(
        "Error against questions",
        f"{data}, not clipped; means with p uniform, signs where a mechanism's are hardest, at p of the table.",
        (means, wrong, slopes),
        (
            agree("Thms 4.2-4.4", "Only on a billboard does the error grow with d: means like d, signs like its root.",
                  data, [*means, *slopes], runs, flat and straight, "the others' exact errors do not change with d"),
            agree("section 5", "Errors of signs are the sums over counts that they should be.", data, wrong, settings.signs),
        ),
    )  # fmt: skip


def newcomers(settings: ThreatModels) -> Row:
    """Check Theorem 3.2: the error of newcomers, who read a billboard, against that of participants."""
    t, d, runs = 100, 300, settings.replications
    rng, rows, gaps = np.random.default_rng(3), list[Row](), list[float]()
    for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0):
        mechanism = NoisyMeans.within(epsilon, DELTA, t, d, view=views.billboard())
        learner, pairs = to_metalearner(BillboardMeans(mechanism)), list[tuple[float, float]]()
        for run in range(runs):
            drawn = HardPrior(t, d).population(rng)
            h, fresh = learner.learn(drawn.people(rng), run), rng.integers(d, size=t)
            there = mean_loss(learner.adapt(h, drawn.index), drawn.asked).mean()
            pairs.append((float(mean_loss(learner.adapt(h, fresh), drawn.p[fresh]).mean()), float(there)))
        new, old = np.array(pairs).T
        implied = generalisation_gap(new, old, DELTA, 1 - FALSE_ALARM)
        beyond = new - np.exp(epsilon) * old - DELTA
        gaps.append(beyond.mean() / (beyond.std(ddof=1) / np.sqrt(len(beyond))))
        limits = {"those on it": old.mean(), "at most": newcomers_error(old.mean(), epsilon, DELTA)}
        rows.append(
            {"eps": epsilon}
            | limits
            | measured(mechanism.uniform_error(), new)
            | {"implied eps at least": implied.lower}
        )
    data, room = f"{t} people, {d} questions, clipped", far(len(rows), runs)
    within = max(gaps) <= room and all(row["implied eps at least"] <= row["eps"] for row in rows)
    why = (
        f"the error of newcomers is below the bound in all {len(rows)} cases" if max(gaps) < 0 else "a bound is passed"
    )
    return part(
        "Newcomers",
        f"{data}, delta = {DELTA:g}: the error of newcomers, and the most that Theorem 3.2 allows. For noisy means those on "
        "the billboard have the same error: e^eps is slack of the proof.",
        (rows,),
        (
            verdict("Thm 3.2", "Newcomers err at most e^eps times as much as those who took part, plus delta.", data, within,
                    {"largest z": max(gaps)}, why),
            agree("Thm 3.2, exact", "For noisy means newcomers err as much as those who took part.", data, rows, runs),
        ),
    )  # fmt: skip


def needed(settings: ThreatModels) -> Row:
    """Check the numbers of people needed for an error of .01."""
    rows = list[Row]()
    for d, stated in STATED.items():
        plan = Plan(EPSILON, DELTA, d, error=0.01)
        for (name, people), beforehand in zip((plan.needed or {}).items(), stated, strict=True):
            at = {"questions": d, "noise against": name, "people": people, "stated": beforehand}
            rows.append(at | {"their error": plan.errors(people)[name], "of one fewer": plan.errors(people - 1)[name]})
    right = all(row["people"] == row["stated"] and row["their error"] <= 0.01 < row["of one fewer"] for row in rows)
    data = f"({EPSILON:g}, {DELTA:g}), error .01"
    summary = ", ".join(f"{row['people']} ({row['noise against']})" for row in rows if row["questions"] == _QUESTIONS)
    statement = "People needed are the stated numbers, and one fewer would not do."
    why = f"{summary} with {_QUESTIONS} questions; exact, nothing is drawn"
    note = (
        f"{data}, worst p, not clipped (`mpmtl-prob plan`). Where others outnumber questions a billboard costs no more."
    )
    return part("People needed", note, (rows,), (verdict("people", statement, data, right, {}, why),))


def check(settings: ThreatModels) -> Row:
    """Check one setting whose exact and measured errors were computed beforehand."""
    t, d, rho = 100, 2000, 0.05
    mechanisms = one_of_each(np.sqrt(2 * rho), t, d, clipped=False)
    measured_losses = losses(np.random.default_rng(4), mechanisms, settings.replications)
    stated = {"none": (0.00167, 0.00165), "one other": (0.00267, 0.00266), "all others": (0.1007, 0.1010),
              "billboard": (2.002, 1.990), "newcomers": (2.002, 2.002)}  # fmt: skip
    rows = list[Row]()
    for name, (exact, theirs) in stated.items():
        error = mechanisms[name if name in mechanisms else "billboard"].uniform_error()
        rows.append(
            {"noise against": name, "stated": exact, "measured then": theirs} | measured(error, measured_losses[name])
        )
    rounded = all(abs(row["exact"] / row["stated"] - 1) < 5e-3 for row in rows)
    data = f"{t} people, {d} questions, rho = {rho:g}"
    statement = "Errors are the stated ones, to the digits stated, and are measured as such."
    note = f"{data}, p uniform, not clipped; newcomers read the billboard. Measured then: {400} replications."
    return part("A check run", note, (rows,), (agree("check", statement, data, rows, settings.replications, rounded),))
