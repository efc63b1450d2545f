"""The numbers and the picture of docs/threat_models.md: ``python -m mpmtl_prob.threat_models [picture.png]``, in seconds."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mpmtl_prob.privacy import views
from mpmtl_prob.threat_models import audits, odds
from mpmtl_prob.threat_models.means import NoisyMeans, one_of_each, people_needed
from mpmtl_prob.threat_models.problems import HardPrior, mean_loss

EPSILON, DELTA = 1.0, 1e-6
RHO = 0.2  # of the matrix, with 50 people and 100 questions
COLORS = {"none": "0.45", "one other": "#1b6ca8", "all others": "#e08a1e", "billboard": "#c8472b"}
NAMES = {
    "none": "no privacy",
    "one other": "one other person",
    "all others": "all others",
    "billboard": "everybody: a billboard",
}


def needed() -> None:
    """People needed for an error of .01."""
    print(f"People needed for an error of .01 at ({EPSILON:g}, {DELTA:g}):")
    print(f"  no privacy {people_needed(0.01, None, None, 1, views.billboard())}")
    for d in (1000, 10_000):
        found = [people_needed(0.01, EPSILON, DELTA, d, v) for v in (views.single(), views.others(), views.billboard())]
        print(f"  d = {d}: one other {found[0]}, all others {found[1]}, billboard {found[2]}")


def attacked() -> None:
    """Every mechanism before every view."""
    print(
        f"\nRecognised (AUC) at rho = {RHO:g}, t = 50, d = 100: tracing by who knows p, and by who knows all others' answers"
    )
    for row in audits.matrix(one_of_each(np.sqrt(2 * RHO), 50, 100), EPSILON, 2e-2):
        tried = "not covered" if row["auc"] is None else f"{row['auc']:.2f} {row['likelihood_ratio']:.3f}"
        print(f"  noise against {row['mechanism']:<11} seen by {row['view']:<20} mu {row['mu']:5.2f}  {tried}")


def told() -> None:
    """What a participant is told."""
    print()
    for view in (views.single(), views.others(), views.billboard()):
        print(odds.participant(NoisyMeans.within(1.0, 1e-3, 50, 100, view=view), 1.0, trials=500))


def picture(path: str) -> None:
    """Error against people: exact curves, and what simulations measure on them."""
    import matplotlib.pyplot as plt

    d, reps, rng = 10_000, 40, np.random.default_rng(0)
    figure, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for name, color in COLORS.items():
        exact, measured = [], []
        people = np.unique(np.geomspace(10, 10_000, 25).astype(int))
        at: Any = lambda t, name=name: _mechanism(name, int(t), d)
        exact = [at(t).uniform_error() for t in people]
        ax.plot(people, exact, color=color, lw=1.8, label=NAMES[name])
        for t in (10, 100, 1000, 10_000):
            few = HardPrior(t, d).population(rng)
            index = few.index[:1000]
            outputs = at(t).simulate(rng, few.totals(rng, reps), index)
            measured.append(mean_loss(outputs, few.p[index]).mean())
        ax.plot([10, 100, 1000, 10_000], measured, "o", color=color, ms=5)
    ax.axhline(1 / 12, color="0.7", lw=0.8, ls=":")
    ax.text(3000, 1 / 12 * 1.2, "answering 0", fontsize=8, color="0.5")
    ax.set(
        xscale="log", yscale="log", xlabel="people", ylabel="mean loss, not clipped", ylim=(1e-5, 1e4),
        title=f"Who is to learn nothing decides what it costs: (1, 1e-6), {d:,} questions",
    )  # fmt: skip
    ax.title.set_fontsize(10)
    ax.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)


def _mechanism(name: str, t: int, d: int) -> NoisyMeans:
    view = {"one other": views.single(), "all others": views.others()}.get(name, views.billboard())
    if name == "none":
        return NoisyMeans(t, d, 0.0, view, clipped=False)
    return NoisyMeans.within(EPSILON, DELTA, t, d, view=view, clipped=False)


if __name__ == "__main__":
    needed()
    attacked()
    told()
    if sys.argv[1:]:
        picture(sys.argv[1])
