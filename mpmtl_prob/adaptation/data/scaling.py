"""Scaling of features and labels for an adaptation, computed from public records alone.

z = (x - mean) / sd of the public records, followed by a 1 for the intercept, which counts in the length of a row. Private
records are scaled by the same numbers, which do not depend on them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range
from mpmtl_prob.adaptation.data.domain import Domain, public_domain
from mpmtl_prob.data.prediction import power_above

#: quantile of the lengths of public rows, to which rows are clipped. It is high, as the model does not correct for it.
ROW_QUANTILE = 0.99
INTERCEPT = "intercept"
#: relative to the largest value; values that differ by less count as equal
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Scaling:
    """Units of features and labels, computed from public records.

    Attributes:
        features: names, with the intercept's at the end if there is one.
        centre: subtracted from the features, (p,).
        scale: divisors of the features, (p,).
        label_centre: subtracted from labels.
        label_scale: divisor of the labels.
        row_bound: r, the bound on scaled rows with their intercept.
        intercept: whether there is one.

    >>> from mpmtl_prob.adaptation import Domain
    >>> from mpmtl_prob.adaptation.data.scaling import Scaling
    >>> public = Domain(np.array([[10.0], [20.0], [30.0]]), np.array([1.0, 2.0, 3.0]), ("age",))
    >>> units = Scaling.of(public)
    >>> units.scaled(public).X.round(2).tolist()
    [[-1.22, 1.0], [0.0, 1.0], [1.22, 1.0]]
    >>> units.original(np.array([1.0, 0.0])).round(2).tolist()
    [0.1, 0.0]
    """

    features: tuple[Hashable, ...]
    centre: FloatArray
    scale: FloatArray
    label_centre: float
    label_scale: float
    row_bound: float
    intercept: bool

    @classmethod
    def of(cls, public: Domain, *, intercept: bool = True, quantile: float = ROW_QUANTILE) -> Scaling:
        """Compute the units from public records.

        Args:
            public: all public records.
            intercept: add an intercept; without one nothing is centred.
            quantile: r is this quantile of the lengths of public rows.

        Raises:
            ValueError: records that are not finite, no records, or a feature with the intercept's name.
        """
        records = public_domain("source", public)
        in_range("quantile", quantile, 0, 1)
        if intercept and INTERCEPT in records.features:
            raise ValueError(f"intercept: expected no feature of the name {INTERCEPT!r} beside it, got one")
        p = records.num_features
        centre, label_centre = (records.X.mean(0), float(records.y.mean())) if intercept else (np.zeros(p), 0.0)
        scale, label_scale = _spread(records.X, centre), float(_spread(records.y, label_centre))
        names = (*records.features, INTERCEPT) if intercept else records.features
        units = cls(names, centre, scale, label_centre, label_scale, 1.0, intercept)
        lengths = np.linalg.norm(units.scaled(records).X, axis=1)
        r = float(np.quantile(lengths, quantile))
        return cls(names, centre, scale, label_centre, label_scale, r if r > 0 else 1.0, intercept)

    def scaled(self, records: Domain) -> Domain:
        """Return records in these units. A record that is not finite stays so, and becomes zeros once it is bounded."""
        with np.errstate(all="ignore"):  # a warning would reveal one record
            X, y = (records.X - self.centre) / self.scale, (records.y - self.label_centre) / self.label_scale
        domain = Domain(X, y, records.features)
        return domain.with_intercept() if self.intercept else domain

    def original(self, w: FloatArray) -> FloatArray:
        """Convert weights from these units to those of the table, (..., d)."""
        p = len(self.scale)
        slopes = self.label_scale * w[..., :p] / self.scale
        if not self.intercept:
            return slopes
        constant = self.label_centre + self.label_scale * w[..., p] - slopes @ self.centre
        return np.concatenate([slopes, constant[..., None]], axis=-1)


def _spread(values: FloatArray, centre: FloatArray | float) -> FloatArray:
    """Return the root mean square around the centre.

    Where it is mere rounding error, return the largest value instead, and 1 for a column of zeros.
    """
    largest = np.abs(values).max(axis=0)
    unit = power_above(largest)  # so that squares do not overflow
    root_mean_square = unit * np.sqrt(np.mean(((values - centre) / unit) ** 2, axis=0))
    return np.where(root_mean_square > ROUNDING * largest, root_mean_square, np.where(largest > 0, largest, 1.0))
