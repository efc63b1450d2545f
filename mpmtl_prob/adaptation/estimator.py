"""Base class of the adaptation estimators: parameters in scikit-learn's way, a linear predictor, and a guarantee."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.adaptation.data.domain import Domain, pair
from mpmtl_prob.data.matching import columns
from mpmtl_prob.privacy.guarantee import Guarantee


class Adaptation:
    """Base class of estimators. The data class's fields are its parameters; ``fit`` adds attributes that end in "_".

    Attributes:
        coef_: weights, (d,), or (d, classes).
        intercept_: added to the scores.
        guarantee_: the privacy guarantee for one record of the target.
        classes_: labels of a classifier, in the order of the scores.
        features_: names of the features, by which a table's columns are matched.
    """

    coef_: FloatArray
    guarantee_: Guarantee
    intercept_: float = 0.0
    classes_: FloatArray | None = None
    features_: tuple[Hashable, ...] = ()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, as in scikit-learn."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name. Raises ValueError for an unknown one."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{name}: expected one of {', '.join(sorted(known))}")
            setattr(self, name, value)
        return self

    def fit(self, source: Any, target: Any) -> Self:
        """Fit to a public source and a private target, each a Domain or a pair (X, y)."""
        raise NotImplementedError

    def decision(self, X: ArrayLike) -> FloatArray:
        """Return the scores x'w, (n,) or (n, classes). A table's columns may be in another order.

        Raises:
            ValueError: there was no fit, or the features differ.
        """
        if not hasattr(self, "coef_"):
            raise ValueError(f"{type(self).__name__}: expected a fit before a prediction; call fit(source, target)")
        scores: FloatArray = self._rows(X, self.coef_.shape[0]) @ self.coef_ + self.intercept_
        return scores

    def _rows(self, X: ArrayLike, d: int) -> FloatArray:
        """Return X, (n, d), with its columns in the order of the fit, where both have names."""
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != d:
            raise ValueError(f"X: expected shape (records, {d}), got {rows.shape}")
        names = getattr(X, "columns", None)
        if names is None or not self.features_:
            return rows
        return rows[:, np.argsort(columns(tuple(names), self.features_, what="X: features"))]

    def _pair(self, source: Any, target: Any) -> tuple[Domain, Domain]:
        """Match source and target as :func:`pair` does, and store the features' names."""
        public, private = pair(source, target)
        self.features_ = public.features
        return public, private

    def predict(self, X: ArrayLike) -> FloatArray:
        """Predict targets, or labels of a classifier, (n,)."""
        scores = self.decision(X)
        if self.classes_ is None:
            return scores
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: FloatArray = self.classes_[best]
        return labels

    def __repr__(self) -> str:
        parts = (f"{name}={shown(value)}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({', '.join(parts)})"
