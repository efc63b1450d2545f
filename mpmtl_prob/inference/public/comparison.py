"""Comparison of public posteriors, as of several budgets: how well they determine the subspace that tasks share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range
from mpmtl_prob.inference.public.shared import SharedPosterior
from mpmtl_prob.inference.subspace import random_angles
from mpmtl_prob.privacy.tables import Table, pair


@dataclass(frozen=True, repr=False)
class ReleaseComparison(Table):
    """Table that compares releases by how well they determine the leading subspace.

    Attributes:
        rows: one mapping per posterior: ``name``; mean, ``_low`` and ``_high`` (the ends of a central interval) of
            ``effective_rank``, ``smallest_angle`` and ``largest_angle`` (principal angles to the reference, degrees);
            ``width_to_noiseless`` and ``width_to_prior``, the widths of the spectrum's intervals relative to those without
            noise and before the release (nan where not known, see :class:`Information`); ``claimed`` and ``proved``.
        rank: dimension of the subspace.
        chance: the angles of a random subspace, under the same names.
        to: what angles refer to: "mean", each posterior's mean subspace, or "given".
        probability: of the intervals.
    """

    rank: int
    chance: Mapping[str, float]
    to: str
    probability: float

    def _cells(self) -> Iterator[tuple[str, ...]]:
        def times(ratio: float) -> str:
            return "-" if np.isnan(ratio) else f"{ratio:.2f} x"

        yield (
            "",
            "effective rank",
            "smallest angle",
            "largest angle",
            "width to noiseless",
            "width to prior",
            "proved (eps, delta)",
        )
        for row in self.rows:
            yield (
                row["name"],
                _interval(row, "effective_rank", 1),
                _interval(row, "smallest_angle", 0),
                _interval(row, "largest_angle", 0),
                times(row["width_to_noiseless"]),
                times(row["width_to_prior"]),
                pair(row["proved"]),
            )

    def in_words(self) -> str:
        """Say what the table shows, one sentence per posterior."""
        lines = []
        for row in self.rows:
            ratio = row["width_to_noiseless"]
            width = "" if np.isnan(ratio) else f"; intervals of the spectrum {ratio:.1f} times as wide as without noise"
            lines.append(
                f"{row['name']}: effective rank {row['effective_rank']:.1f}; {self._verdict(row)} (largest angle "
                f"{row['largest_angle']:.0f} degrees, by chance {self.chance['largest_angle']:.0f}){width}."
            )
        return "\n".join(lines)

    def _verdict(self, row: Mapping[str, Any]) -> str:
        """Say whether the intervals of the angles end below those of a random subspace."""

        def below_chance(angle: str) -> bool:
            return bool(row[f"{angle}_high"] < self.chance[f"{angle}_low"])

        if below_chance("largest_angle"):
            return f"{self._leading} found"
        if below_chance("smallest_angle"):
            return f"{self._leading} found in part"
        return f"{self._leading} not to be told from random ones"

    @property
    def _leading(self) -> str:
        return f"the leading {self.rank} directions" if self.rank > 1 else "the leading direction"

    def __str__(self) -> str:
        reference = "the reference" if self.to == "given" else "a posterior's own mean subspace"
        note = (
            f"Mean and {100 * self.probability:g} % interval; angles of {self._leading} to {reference}, in "
            "degrees; widths are those of the spectrum's intervals."
        )
        return f"{super().__str__()}\n\n{note}\n\n{self.in_words()}"

    def _repr_html_(self) -> str:
        lines = "".join(f"<div>{escape(line)}</div>" for line in self.in_words().split("\n"))
        return f"{super()._repr_html_()}{lines}"


def compare_releases(
    posteriors: Mapping[float | str, SharedPosterior],
    rank: int = 1,
    reference: ArrayLike | None = None,
    *,
    probability: float = 0.9,
) -> ReleaseComparison:
    """Compare public posteriors, as of one data set at several eps.

    Args:
        posteriors: posteriors by eps or by name, all of the same number of features.
        rank: dimension of the subspace.
        reference: as in :func:`mpmtl_prob.inference.subspace`. With a covariance without noise, which is the curator's, the
            table is the curator's too.
        probability: of the intervals.

    Raises:
        ValueError: no posteriors, those of different numbers of features, or an argument outside its range.
    """
    if len(posteriors) == 0:
        raise ValueError("posteriors: expected at least one, got none")
    sizes = {posterior.release.num_features for posterior in posteriors.values()}
    if len(sizes) > 1:
        raise ValueError(f"posteriors: expected the same number of features in all, got {sorted(sizes)}")
    (num_features,) = sizes
    in_range("probability", probability, 0, 1)
    tail = (1 - probability) / 2
    rows = []
    for name, posterior in posteriors.items():
        leading = posterior.subspace(rank, reference)
        information = posterior.information
        row: dict[str, Any] = {"name": name if isinstance(name, str) else f"eps = {name:g}"}
        row |= _summary("effective_rank", leading.effective_rank.values, tail) | _angles(leading.angles.values, tail)
        row["width_to_noiseless"] = information.noise.get("the spectrum", np.nan)
        row["width_to_prior"] = information.prior.get("the spectrum", np.nan)
        row |= {"claimed": posterior.guarantee.claimed, "proved": posterior.guarantee.proved}
        rows.append(row)
    chance = _angles(random_angles(num_features, rank), tail)
    return ReleaseComparison(tuple(rows), rank, chance, "mean" if reference is None else "given", probability)


def _angles(angles: FloatArray, tail: float) -> dict[str, float]:
    return _summary("smallest_angle", angles[..., 0], tail) | _summary("largest_angle", angles[..., -1], tail)


def _summary(name: str, values: FloatArray, tail: float) -> dict[str, float]:
    low, high = np.quantile(values, [tail, 1 - tail])
    return {name: float(values.mean()), f"{name}_low": float(low), f"{name}_high": float(high)}


def _interval(row: Mapping[str, Any], key: str, digits: int) -> str:
    return f"{row[key]:.{digits}f} [{row[f'{key}_low']:.{digits}f}, {row[f'{key}_high']:.{digits}f}]"
