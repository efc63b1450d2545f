"""Units in which an adaptation is computed, settled on public records alone, for features and labels of any size.

z = (x - mean) / sd of the public records, with a 1 at its end for the intercept, which counts in the length of a row. Private
records are scaled by the same numbers, so that nothing of them is looked at.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range
from mpmtl_prob.adaptation.data.domain import Domain, public_domain
from mpmtl_prob.data.prediction import power_above

#: of the lengths of public rows, at which rows are shortened: unlike cut residuals, shortened rows are not in the model
ROW_QUANTILE = 0.99
INTERCEPT = "intercept"
#: of the largest value: values that differ by less are one
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Scaling:
    """Of public records.

    Attributes:
        features: names, with the intercept's at the end if there is one.
        centre: subtracted from the features, (p,).
        scale: by which they are divided, (p,).
        label_centre: subtracted from labels.
        label_scale: by which they are divided.
        row_bound: r, of scaled rows with their intercept.
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
        """From public records.

        Args:
            public: all of them.
            intercept: without one nothing is centred.
            quantile: of the lengths of public rows, which is r.

        Raises:
            ValueError: records that are not finite, none, or a feature that has the intercept's name.
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
        """Records in these units. What is not finite stays so, and is a record of zeros once it is bounded."""
        with np.errstate(all="ignore"):  # a warning would tell of one record
            X, y = (records.X - self.centre) / self.scale, (records.y - self.label_centre) / self.label_scale
        found = Domain(X, y, records.features)
        return found.with_intercept() if self.intercept else found

    def original(self, w: FloatArray) -> FloatArray:
        """Weights in the units of the table, of weights in these, (..., d)."""
        p = len(self.scale)
        slopes = self.label_scale * w[..., :p] / self.scale
        if not self.intercept:
            return slopes
        constant = self.label_centre + self.label_scale * w[..., p] - slopes @ self.centre
        return np.concatenate([slopes, constant[..., None]], axis=-1)


def _spread(values: FloatArray, centre: FloatArray | float) -> FloatArray:
    """Root mean square round the centre; where that is nothing but rounding errors, of the largest value, and of zeros 1."""
    largest = np.abs(values).max(axis=0)
    unit = power_above(largest)  # so that squares are doubles
    found = unit * np.sqrt(np.mean(((values - centre) / unit) ** 2, axis=0))
    return np.where(found > ROUNDING * largest, found, np.where(largest > 0, largest, 1.0))
