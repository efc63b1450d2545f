"""Value of modelling the noise: errors of raw, clipped and posterior means, by seat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.threat_models import HardPrior, NoisyMeans, mean_loss, posterior, views
from mpmtl_prob.threat_models.problems import Population
from studies.papers.chance import FALSE_ALARM, Row, far, part, verdict

if TYPE_CHECKING:
    from studies.papers.threat_settings import ThreatModels

_QUESTIONS, _RHO = 2000, 0.05
_ALIKE = (0.3, 0.15)  # mean and sd of p for similar questions
#: stated errors of raw, clipped and posterior means, for the joint view and for a billboard, by people; p has a known
#: uniform prior
STATED = {100: ((0.100, 0.066, 0.044), (1.99, 0.24, 0.082)), 1000: ((0.0104, 0.0093, 0.0085), (0.0205, 0.0176, 0.0157))}
#: stated errors of raw and posterior means for similar questions: a billboard with a learnt population, and one owner with
#: a flat prior
STATED_ALIKE = {100: ((2.04, 0.0082), (0.100, 0.030)), 1000: ((0.0216, 0.0047), (0.0103, 0.0094))}
_SEATS = {"all others": "an owner", "billboard": "everybody"}


def posteriors(settings: ThreatModels) -> Row:
    """Compute both tables of errors, and the coverage of the learnt posterior's intervals."""
    uniform, alike, gains, covers = list[Row](), list[Row](), list[float](), list[str]()
    rng = np.random.default_rng(9)
    for t in STATED:
        mechanisms = _mechanisms(t)
        for stated, (who, mechanism) in zip(STATED[t], mechanisms.items(), strict=True):
            drawn = [HardPrior(t, _QUESTIONS).population(rng) for _ in range(_runs(settings))]
            losses = np.concatenate([_losses(*_read(rng, mechanism, population)) for population in drawn], axis=1)
            uniform.append(_row(t, who, ("raw", "clipped", "posterior"), stated, losses))
            gain = losses[1] - losses[2]  # a paired difference
            gains.append(float(gain.mean()) / _error(gain))
        population_alike = Population(np.clip(rng.normal(*_ALIKE, _QUESTIONS), -1, 1), rng.integers(_QUESTIONS, size=t))
        owners = [_losses(*_read(rng, mechanisms["all others"], population_alike)) for _ in range(_runs(settings))]
        values, p, learnt = _read(rng, mechanisms["billboard"], population_alike, learn=True)
        sides = {"billboard": _losses(values, p, learnt), "all others": np.concatenate(owners, axis=1)}
        for stated_alike, (who, side_losses) in zip(STATED_ALIKE[t], sides.items(), strict=True):
            alike.append(_row(t, who, ("raw", "posterior"), stated_alike, side_losses[[0, 2]]))
        low, high = learnt.interval()
        covers.append(f"{np.mean((low <= p) & (p <= high)):.0%} with {t} people")
    data = f"{_QUESTIONS} questions, rho = {_RHO:g}"
    separated = [_apart(board, owner) for board, owner in zip(alike[::2], alike[1::2], strict=True)]
    room = far(len(gains) + len(separated), 200)
    note = (
        f"{data}; a quarter of the mean square error. First p uniform, and known to be; then p near {_ALIKE[0]:g} give or "
        f"take {_ALIKE[1]:g}: the billboard's posterior learns that, an owner's has a flat prior. Stated are simulations of "
        "one population each, whose owners did not use their own answers. 90 % intervals of the learnt posterior hold p in "
        f"{' and '.join(covers)}: coverage is over the prior, and these populations are one."
    )
    better = "A posterior errs less than clipping, from every seat."
    together = "Where questions are alike the billboard's posterior beats an owner's."
    return part(
        "What the law of the noise is worth",
        note,
        (uniform, alike),
        (
            verdict("posterior", better, data, min(gains) > room, {"smallest z": min(gains)}, _why(gains, room)),
            verdict("posterior, alike", together, data, min(separated) > room, {"smallest z": min(separated)},
                    _why(separated, room)),
        ),
    )  # fmt: skip


def _mechanisms(t: int) -> dict[str, NoisyMeans]:
    mu = np.sqrt(2 * _RHO)
    view_by_seat = {"all others": views.others(), "billboard": views.billboard()}
    return {who: NoisyMeans.at(mu, t, _QUESTIONS, view=view) for who, view in view_by_seat.items()}


def _runs(settings: ThreatModels) -> int:
    """Return the number of populations."""
    return max(settings.replications // 20, 8)


def _read(
    rng: np.random.Generator, mechanism: NoisyMeans, drawn: Population, learn: bool = False
) -> tuple[FloatArray, FloatArray, posterior.MeanPosterior]:
    """Return the noisy means, the true p, (questions,), and the posterior."""
    t = mechanism.num_people
    if mechanism.on_billboard:
        values, p = mechanism.board(rng, drawn.totals(rng)[0]), drawn.p
        run = {"chains": 2, "warmup": 200, "draws": 200, "progress_bar": False}
        fitted = posterior.public(values, mechanism, population=None if learn else (1.0, 1.0), **run)  # type: ignore[arg-type]
        return values, p, fitted
    # The mean of every owner's question includes the owner's own answer.
    own_answers = np.where(rng.random(t) < (1 + drawn.asked) / 2, 1, -1)
    other_answers = 2 * rng.binomial(t - 1, (1 + drawn.asked) / 2) - (t - 1)
    values = (own_answers + other_answers) / t + mechanism.sd * rng.standard_normal(t)
    flat = np.full((1, 1), 0.5), np.log(np.full((1, 1), 2.0))
    seen = posterior.seen_at(values, mechanism, own_answers, 1)
    return values, drawn.asked, posterior.MeanPosterior("owner", np.arange(t), seen, *flat)


def _losses(values: FloatArray, p: FloatArray, fitted: posterior.MeanPosterior) -> FloatArray:
    """Return losses of raw, clipped and posterior means, (3, questions)."""
    return np.stack([mean_loss(estimate, p) for estimate in (values, np.clip(values, -1, 1), fitted.mean)])


def _row(t: int, who: str, names: tuple[str, ...], stated: tuple[float, ...], losses: FloatArray) -> Row:
    row: Row = {"people": t, "noise against": who, "read by": _SEATS[who]}
    for name, beforehand, values in zip(names, stated, losses, strict=True):
        row |= {f"{name}, stated": beforehand, name: float(values.mean()), f"{name}, s.e.": float(_error(values))}
    return row


def _error(losses: FloatArray) -> float:
    return float(losses.std(ddof=1) / np.sqrt(losses.size))


def _apart(less: Row, more: Row) -> float:
    """Return the difference of two posteriors' errors in standard errors."""
    return float((more["posterior"] - less["posterior"]) / np.hypot(less["posterior, s.e."], more["posterior, s.e."]))


def _why(gains: list[float], room: float) -> str:
    return (
        f"of {len(gains)} the nearest lies {min(gains):.1f} standard errors below; beyond {room:.1f} chance takes nothing "
        f"with a probability of {FALSE_ALARM:.0e}"
    )
