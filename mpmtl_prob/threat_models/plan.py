"""Planning of studies: people needed for an error, and error of a number of people, by threat model (``mpmtl-prob plan``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, normalise_fields, positive, whole
from mpmtl_prob._util.tables import aligned
from mpmtl_prob.privacy import views
from mpmtl_prob.threat_models.calibration import mu_within
from mpmtl_prob.threat_models.means import AGAINST, NoisyMeans, people_needed

#: The attackers that each mechanism of :func:`one_of_each` protects against.
NAMES = {
    "none": "nobody: no privacy",
    "one other": "any one other person",
    "all others": "all others together",
    "billboard": "everybody: a billboard",
}
COLORS = {"none": "0.45", "one other": "#1b6ca8", "all others": "#e08a1e", "billboard": "#c8472b"}
_NOTHING_KNOWN = 0.25  # the expected loss, in the worst case, of answering 0 without any data


@dataclass(frozen=True)
class Plan:
    """Plan of a study: people and errors in every threat model; str() is a table.

    Errors are expected losses, (estimate - mean)^2 / 4, at the worst p and not clipped, as in
    :func:`~mpmtl_prob.threat_models.people_needed`. An answer of 0 without any data has an error of at most 1/4. So where the
    noise would lead to a larger error, 1/4 is reported. Newcomers who read a billboard have the same error as participants.

    Attributes:
        epsilon: of the guarantee for one person, > 0.
        delta: of the same, in (0, 1).
        num_features: d, the number of questions.
        error: the wanted error, in (0, 1/4); None to compute errors only.
        num_people: t, to compute the errors of this number of people; None to compute numbers of people only.

    Raises:
        ValueError: an argument outside its range, or neither an error nor people.

    >>> from mpmtl_prob.threat_models import Plan
    >>> Plan(1.0, 1e-6, 10_000, error=0.01).needed
    {'none': 25, 'one other': 57, 'all others': 1809, 'billboard': 4238}
    """

    epsilon: float
    delta: float
    num_features: int
    error: float | None = None
    num_people: int | None = None

    def __post_init__(self) -> None:
        normalise_fields(self, positive, "epsilon")
        object.__setattr__(self, "delta", in_range("delta", self.delta, 0, 1))
        normalise_fields(self, whole, "num_features")
        if self.error is None and self.num_people is None:
            raise ValueError("error: expected an error or num_people, got neither")
        if self.error is not None:
            normalise_fields(self, positive, "error")
            if self.error >= _NOTHING_KNOWN:
                least = f"less than {_NOTHING_KNOWN}, which answering 0 has without any data"
                raise ValueError(f"error: expected {least}, got {self.error}")
        if self.num_people is not None:
            normalise_fields(self, whole, "num_people")

    @property
    def needed(self) -> dict[str, int] | None:
        """Numbers of people for the wanted error, by threat model; None if no error was given."""
        if self.error is None:
            return None
        error, eps, d = self.error, self.epsilon, self.num_features
        private = {name: people_needed(error, eps, self.delta, d, view) for name, view in AGAINST.items()}
        return {"none": people_needed(error, None, None, d, views.billboard())} | private

    def errors(self, num_people: int) -> dict[str, float | None]:
        """Return the errors of a number of people, at most 1/4; None for one person alone in views of other people."""
        return {
            name: None if m is None else min(float(m.error(0.0)), _NOTHING_KNOWN)
            for name, m in self._mechanisms(num_people)
        }

    def _mechanisms(self, t: int) -> Iterator[tuple[str, NoisyMeans | None]]:
        d = self.num_features
        yield "none", NoisyMeans(t, d, 0.0, views.billboard(), clipped=False)
        for name, view in AGAINST.items():
            alone = t == 1 and view.owners is not None
            yield name, None if alone else NoisyMeans.at(self._mu, t, d, view=view, clipped=False)

    @cached_property
    def _mu(self) -> float:
        return mu_within(self.epsilon, self.delta)

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments and a row per threat model as plain values, for JSON; None for what was not computed."""
        needed, errors = self.needed, None if self.num_people is None else self.errors(self.num_people)
        rows = [
            {"name": name, "against": who}
            | {
                "people_needed": None if needed is None else needed[name],
                "error": None if errors is None else errors[name],
            }
            for name, who in NAMES.items()
        ]
        asked = {"epsilon": self.epsilon, "delta": self.delta, "num_features": self.num_features}
        return asked | {"error": self.error, "num_people": self.num_people, "threat_models": rows}

    def __str__(self) -> str:
        columns = [("people_needed", f"people for an error of {self.error:g}", "d")] if self.error is not None else []
        if self.num_people is not None:
            columns.append(("error", f"error of {self.num_people} people", ".3g"))
        cell = lambda value, form: "-" if value is None else format(value, form)
        rows = [
            (row["against"], *(cell(row[key], form) for key, _, form in columns))
            for row in self.to_dict()["threat_models"]
        ]
        promise = f"eps = {self.epsilon:g}, delta = {self.delta:g}"
        head = f"{promise} for one person, {self.num_features} questions; errors are expected losses at the worst mean"
        table = aligned([("noise against", *(title for _, title, _ in columns)), *rows])
        known = self.num_people is None or _NOTHING_KNOWN not in self.errors(self.num_people).values()
        note = "" if known else f"\n\n{_NOTHING_KNOWN}: answering 0 without any data, as an estimate is no better"
        return f"{head}\n\n{table}{note}"

    def plot(self, ax: Any) -> None:
        """Plot errors over numbers of people on matplotlib axes, and mark the wanted error and number of people."""
        needed, t = self.needed, self.num_people
        errors = {} if t is None else self.errors(t)
        people = self._people_on_axis()
        curves = [self.errors(int(number)) for number in people]
        for name, who in NAMES.items():
            label = who if needed is None else f"{who}, {needed[name]} people"
            ax.plot(people, [curve[name] for curve in curves], color=COLORS[name], lw=1.8, label=label)
            if needed is not None:
                ax.plot(needed[name], self.error, "o", color=COLORS[name], ms=6, zorder=3)
            if errors.get(name) is not None:
                ax.plot(t, errors[name], "o", color=COLORS[name], mfc="white", ms=6, zorder=3)
        for value, text in ((_NOTHING_KNOWN, "answering 0 without any data"), (self.error, "wanted")):
            if value is not None:
                ax.axhline(value, color="0.6", lw=0.8, ls=":", zorder=0)
                place = (0.99, value)
                ax.annotate(
                    text, place, (0, 2), ax.get_yaxis_transform(), "offset points", ha="right", fontsize=8, color="0.4"
                )
        if t is not None:
            ax.axvline(t, color="0.6", lw=0.8, ls=":", zorder=0)
        low = min(v for v in curves[-1].values() if v is not None)
        scales = {"xscale": "log", "yscale": "log", "ylim": (low / 1.5, 4 * _NOTHING_KNOWN)}
        ax.set(xlabel="people", ylabel="expected loss, worst case", **scales)
        promise = f"({self.epsilon:g}, {self.delta:g}), {self.num_features:,} questions"
        ax.set_title(f"Error by the attackers that the noise protects against\n{promise}", fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=8, loc="lower left")

    def _people_on_axis(self) -> FloatArray:
        """Return numbers of people for a logarithmic axis, from 2 to beyond all numbers in the plan."""
        most = max(*(self.needed or {"": 1}).values(), self.num_people or 1, 100)
        return np.unique(np.geomspace(2, 3 * most, 80).round())

    def picture(self, path: Path) -> None:
        """Save the plot as a file. Raises ImportError without matplotlib."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("pictures need matplotlib: pip install 'mpmtl-prob[plots]'") from None
        page = Figure(figsize=(6.4, 4.2), layout="constrained")
        self.plot(page.subplots())
        path.parent.mkdir(parents=True, exist_ok=True)
        page.savefig(path, dpi=120, metadata={"Software": None})
