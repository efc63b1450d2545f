"""Report of a private domain adaptation, which ``mpmtl-prob adapt`` prints and writes.

One release is paid for. The report compares several fits: public ones, which cost no privacy, and fits computed from the
release, which cost nothing further (post-processing). Their errors on the private records are private too, and are estimated
from the release alone.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import flag
from mpmtl_prob._util.files import atomic_write, check_place, write_text
from mpmtl_prob._util.tables import aligned
from mpmtl_prob.adaptation.data.domain import Domain, numbers, pair, several, stacked
from mpmtl_prob.adaptation.data.scaling import ROW_QUANTILE, Scaling
from mpmtl_prob.adaptation.moments.feature_moment import shape
from mpmtl_prob.adaptation.moments.grid_posterior import Prior
from mpmtl_prob.adaptation.moments.moment_adaptation import AdaptedPosterior, MomentAdaptation
from mpmtl_prob.adaptation.moments.release import MomentRelease
from mpmtl_prob.privacy.ledger import Ledger

MODEL, PICTURE = "model.json", "adaptation.png"
PROBABILITY = 0.9
_WIDTH = 110
_SHOWN = 30  # at most so many weights are printed and plotted
_ERRORS = (
    "Mean squared errors on the target, where the public labels' {spread} is 1. No private record was looked at to measure "
    'them. "At least" is computed from the release, +- the sd of its noise, for the fit whose residuals were released. These '
    "are cut at {cut:.2g} sd of the labels, so that the error is too small, most of all where the shift is large. Weights "
    'fitted to the release would look better by it than they are. "By the posterior" is a mean and a 90 % interval under the '
    "model. The posterior mean has the least error there by construction, which does not show that the model is right."
)
_SETTLED = (
    "From public records alone: features and label are scaled by their means and sd; rows{intercept} are shortened to "
    "length {rows:.3g} ({quantile:g} % quantile of public rows). A private record with a cell that is not a number counts as "
    "zeros; whether there is one is not reported."
)


class Arm(NamedTuple):
    """One fit in the report, with its error on the target in units of the public labels' variance.

    Attributes:
        name: the fit's name.
        charge: its privacy cost, in words.
        w: scaled weights, (d,).
        read_off: a lower bound on the mean squared error from the release's moments, and the sd of its noise, for the public
            fit whose residuals were released; None for other fits.
        expected: posterior mean and ends of the 90 % interval of the mean squared error.
    """

    name: str
    charge: str
    w: FloatArray
    read_off: tuple[float, float] | None
    expected: tuple[float, float, float]


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Public report of one adaptation: the release, the posterior, and the fits side by side.

    Attributes:
        label: name of the column that is predicted.
        records: number of records by public domain.
        scaling: the units of all weights here.
        release: the release that was paid for.
        prior: the prior from the public records.
        posterior: the posterior of the target's weights.
    """

    label: str
    records: dict[Hashable, int]
    scaling: Scaling
    release: MomentRelease
    prior: Prior
    posterior: AdaptedPosterior

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """The public fits, AdaSSP on residuals, and the posterior mean; the last two cost one release together."""
        public = {"source only": self.release.centre}
        if len(self.records) > 1:
            public |= {f"source only, {k}": w for k, w in zip(self.records, self.prior.means, strict=False)}
        fitted = {"AdaSSP on residuals": self.release.ridge(), "one release, posterior": self.posterior.mean}
        at_least = self.release.squared_error(self.release.centre)
        free = [
            Arm(k, "nothing", w, at_least if w is self.release.centre else None, self._expected(w))
            for k, w in public.items()
        ]
        return (*free, *(Arm(k, "the release", w, None, self._expected(w)) for k, w in fitted.items()))

    @cached_property
    def _second_moment(self) -> FloatArray:
        """Estimate the second moment of the target's scaled rows from the release, (d, d)."""
        out, n = self.release, self.release.num_records
        return shape(out.xx, out.sd * out.row_bound**2, n, self.prior.second_moment).mean / max(n, 1)

    def _expected(self, w: FloatArray) -> tuple[float, float, float]:
        off = self.posterior.w - w
        # E (y - x.w)^2 = sigma^2 + (w* - w)'C (w* - w)
        errors = self.posterior.sigma**2 + np.einsum("si,ij,sj->s", off, self._second_moment, off)
        tail = (1 - PROBABILITY) / 2
        low, high = np.quantile(errors, [tail, 1 - tail])
        return float(errors.mean()), float(low), float(high)

    @cached_property
    def weights(self) -> dict[Hashable, dict[str, float]]:
        """Weights in the units of the table, by feature: source only, posterior mean, and ends of the 90 % interval."""
        draws, tail = self.scaling.original(self.posterior.w), (1 - PROBABILITY) / 2
        low, high = np.quantile(draws, [tail, 1 - tail], axis=0)
        columns = (self.scaling.original(self.release.centre), draws.mean(axis=0), low, high)
        rows = np.stack(columns, axis=-1).tolist()
        names = ("source_only", "mean", "low", "high")
        return {k: dict(zip(names, row, strict=True)) for k, row in zip(self.scaling.features, rows, strict=True)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and texts for JSON, with the release, from which further results can be computed."""
        arms = [
            {"name": a.name, "charge": a.charge}
            | {"read_off": a.read_off and dict(zip(("error", "noise_sd"), a.read_off, strict=True))}
            | {"expected": dict(zip(("mean", "low", "high"), a.expected, strict=True))}
            | {"weights": self.scaling.original(a.w).tolist()}
            for a in self.arms
        ]
        units, out = self.scaling, self.release
        return {
            "label": self.label,
            "guarantee": out.guarantee.to_dict(),
            "private_records": out.num_records,
            "public_records": {str(k): m for k, m in self.records.items()},
            "resembles": {str(k): p for k, p in self.posterior.domain_weights.items()},
            "arms": arms,
            "weights": {str(k): row for k, row in self.weights.items()},
            "scaling": {
                "features": [str(k) for k in units.features],
                "intercept": units.intercept,
                "centre": units.centre.tolist(),
                "scale": units.scale.tolist(),
                "label_centre": units.label_centre,
                "label_scale": units.label_scale,
                "row_bound": units.row_bound,
            },
            "release": {
                "sigma": out.sigma.tolist(),
                "noise_sd": out.sd,
                "centre": out.centre.tolist(),
                "residual_bound": out.residual_bound,
                "residual_unit": out.residual_unit,
            },
        }

    def __str__(self) -> str:
        return "\n\n".join(self._parts())

    def _parts(self) -> Iterator[str]:
        units, public = self.scaling, sum(self.records.values())
        p, constant = len(units.scale), " and an intercept" if units.intercept else ", no intercept"
        yield (
            f"{self.label} from {p} feature{'s' * (p != 1)}{constant}: {public} public records, "
            f"{self.release.num_records} private ones"
        )
        head = ("arm", "costs", "error, at least", "by the posterior")
        rows = [(a.name, a.charge, _read_off(a), "{:.3f} [{:.3f}, {:.3f}]".format(*a.expected)) for a in self.arms]
        yield aligned([head, *rows])
        spread = "variance" if units.intercept else "mean square"
        yield fill(_ERRORS.format(spread=spread, cut=self.release.residual_bound), _WIDTH)
        resembles = [(str(k), str(self.records.get(k, "-")), f"{p:.2f}") for k, p in self._resembles()]
        yield aligned([("the private records resemble", "records", "probability"), *resembles])
        if p < _SHOWN:
            lines = [
                (str(k), *(f"{row[c]:.4g}" for c in ("source_only", "mean", "low", "high")))
                for k, row in self.weights.items()
            ]
            yield aligned([("weight", "source only", "posterior mean", "5 %", "95 %"), *lines])
        with_one = " with their intercept" if units.intercept else ""
        scaled_by = _SETTLED.format(intercept=with_one, rows=units.row_bound, quantile=100 * ROW_QUANTILE)
        yield fill(scaled_by, _WIDTH)
        yield fill(f"One charge, {self.release.guarantee}", _WIDTH)

    def _resembles(self) -> list[tuple[Hashable, float]]:
        return sorted(self.posterior.domain_weights.items(), key=lambda domain: -domain[1])

    def errors_on(self, test: Domain) -> dict[str, float]:
        """Compute mean squared errors on records that may be looked at, by arm, in units of the public labels' variance.

        They are computed without noise: no guarantee covers them.
        """
        scaled = self.scaling.scaled(numbers("test", test))
        return {arm.name: float(np.mean((scaled.y - scaled.X @ arm.w) ** 2)) for arm in self.arms}

    def save(self, out: Path) -> list[str]:
        """Write the model, and a picture if matplotlib is installed, and return the files' names.

        If no guarantee is proved for the release, only their owner can read the files (mode 0600).
        """
        private = self.release.guarantee.proved is None
        write_text(folder(out) / MODEL, json.dumps(self.to_dict(), indent=2) + "\n", private=private)
        try:
            from matplotlib.figure import Figure
        except ImportError:
            return [MODEL]
        page = Figure(figsize=(8.0, 4.0), layout="constrained")
        self.plot(page.subplots(1, 2, width_ratios=(2, 1)))
        with atomic_write(out / PICTURE, private=private) as unfinished:
            page.savefig(unfinished, format="png", dpi=120, metadata={"Software": None})
        return [MODEL, PICTURE]

    def plot(self, axes: Any) -> None:
        """Plot on two axes: scaled weights with intervals beside the source's, and the domains' probabilities."""
        left, right = axes
        low, high = self.posterior.interval(PROBABILITY)
        every = np.argsort(-np.abs(self.posterior.mean))[:_SHOWN][::-1]
        at, names = np.arange(len(every)), [str(self.scaling.features[i]) for i in every]
        left.axvline(0.0, color="0.8", lw=0.8, zorder=0)
        left.hlines(at, low[every], high[every], color="tab:blue", lw=2, label="90 % interval")
        left.plot(self.posterior.mean[every], at, "o", color="tab:blue", ms=5, label="posterior mean")
        left.plot(self.release.centre[every], at, "x", color="0.3", ms=6, label="source only")
        left.set_yticks(at, names)
        left.set(xlabel="weight, of scaled features", title=str(self.release.guarantee.proved or "not private"))
        left.title.set_fontsize(9)
        left.legend(frameon=False, fontsize=8)
        shares = {str(k): p for k, p in reversed(self._resembles())}
        right.barh(list(shares), list(shares.values()), color="tab:blue")
        right.set(xlim=(0, 1), xlabel="probability", title="the private records resemble")
        right.title.set_fontsize(9)
        for panel in axes:
            panel.spines[["top", "right"]].set_visible(False)


def adapt(
    source: Any,
    target: Any,
    *,
    label: str,
    epsilon: float,
    delta: float | None = None,
    intercept: bool = True,
    ledger: Ledger | None = None,
    unsafe_seed: int | None = None,
    seed: int = 0,
) -> Report:
    """Adapt a model to a private target: scale by public records, pay once, release, and compute the report.

    Args:
        source: a public Domain, or several by name.
        target: private, a Domain or a pair (X, y).
        label: name of the column that is predicted.
        epsilon: > 0.
        delta: default 1 / n^1.1.
        intercept: add a column of ones, which counts in the bound of a row.
        ledger: of unit "target record", pays, on disk, before noise is drawn.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.
        seed: of the draws from the posterior.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range, or data that do not match. Nothing was charged.
    """
    flag("intercept", intercept)
    public: Mapping[Hashable, Domain] = several(source)
    every = stacked(public)
    _, private = pair(every, target)
    units = Scaling.of(every, intercept=intercept)
    scaled = {name: units.scaled(part) for name, part in public.items()}
    most = max(float(np.abs(part.y).max()) for part in scaled.values())
    model = MomentAdaptation(
        epsilon, delta, row_bound=units.row_bound, target_bound=max(most, 1.0),
        ledger=ledger, unsafe_seed=unsafe_seed, seed=seed,
    ).fit(scaled, units.scaled(private))  # fmt: skip
    records = {name: part.num_records for name, part in public.items()}
    return Report(label, records, units, model.release_, model.prior_, model.posterior_)


def folder(out: Path) -> Path:
    """Return the folder, created if it does not exist. Raises ValueError if it cannot be created or written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise ValueError(f"out: expected a folder, or a place for one, got {str(out)!r}") from None
    check_place("out", out / "model.json")
    return out


def _read_off(arm: Arm) -> str:
    return "-" if arm.read_off is None else "{:.3f} +- {:.3f}".format(*arm.read_off)
