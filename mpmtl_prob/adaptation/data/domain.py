"""Records of one domain, with the bounds that are put on private records before anything is computed from them."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive
from mpmtl_prob._util.hidden_arrays import HidesArrays
from mpmtl_prob.data.cells import as_matrix, as_vector, column_names
from mpmtl_prob.data.matching import by_position, default, tell_of_positions
from mpmtl_prob.privacy.lattice import clipped

_LARGEST = 1e100  # its square, and sums of many such squares, do not overflow
_ENOUGH = 3  # records per feature from which least squares tell the length of the weights
_LONG = 2.0  # weights longer than this multiple of their bound get a warning
_MANY_CUT = 0.25  # share of public records beyond a bound from which there is a warning


@dataclass(frozen=True, eq=False, repr=False)
class Domain(HidesArrays):
    """Records (x_i, y_i) of one domain.

    Attributes:
        X: features, (n, d): an array, a data frame or a list of rows. A cell in X or y that is not a number, such as text or
            a date, becomes NaN. So does a row of a list that has more or fewer cells than most rows.
        y: targets or labels, (n,).
        features: names of the columns; default 0, 1, ...

    Raises:
        ValueError: shapes that do not match.

    >>> from mpmtl_prob.adaptation import Domain
    >>> frame = pd.DataFrame({"age": [1.0, 2.0, 3.0], "dose": [0.1, 0.2, 0.1], "effect": [0.5, 0.7, 0.4]})
    >>> Domain.from_pandas(frame, target="effect")
    Domain(X=<ndarray of shape (3, 2)>, y=<ndarray of shape (3,)>, features=('age', 'dose'))
    """

    X: FloatArray
    y: FloatArray
    features: tuple[Hashable, ...] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        names = column_names(self.X) or tuple(self.features or ())
        X, y = as_matrix("X", self.X, len(names) or None), as_vector("y", self.y)
        if not X.shape[1]:
            raise ValueError(f"X: expected shape (records, features) with at least one feature, got {X.shape}")
        if y.shape != X.shape[:1]:
            raise ValueError(f"y: expected one target per record, shape {X.shape[:1]}, got {y.shape}")
        if names and len(names) != X.shape[1]:
            raise ValueError(f"features: expected {X.shape[1]} names, got {len(names)}")
        for name, value in (("X", X), ("y", y), ("features", names or tuple(range(X.shape[1])))):
            object.__setattr__(self, name, value)

    @classmethod
    def from_pandas(cls, frame: Any, target: Hashable) -> Domain:
        """Make a domain from a table: one column is the target, the others features. Raises ValueError if it is missing."""
        if target not in frame.columns:
            # The columns' names are not shown: in a table without a header they are its first record.
            raise ValueError(f"target: expected one of the {len(frame.columns)} columns, got {target!r}")
        return cls(frame.drop(columns=[target]), frame[target])

    @property
    def num_records(self) -> int:
        """n, the number of records, which is public."""
        return len(self.y)

    @property
    def num_features(self) -> int:
        """d, the number of features."""
        return self.X.shape[1]

    def with_intercept(self) -> Domain:
        """Return the domain with a last column of ones, which counts in the length of a row."""
        return Domain(np.column_stack([self.X, np.ones(self.num_records)]), self.y, (*self.features, "intercept"))

    def bounded(self, row_bound: float, target_bound: float) -> Domain:
        """Return the domain with rows clipped to Euclidean length r and targets clipped to [-t, t].

        A record that is not finite becomes a record of zeros. There is no error, as it would reveal one record.
        """
        r, t = positive("row_bound", row_bound), positive("target_bound", target_bound)
        fine = np.isfinite(self.X).all(axis=1) & np.isfinite(self.y)
        X, y = np.where(fine[:, None], self.X, 0.0), np.where(fine, self.y, 0.0)
        return Domain(clipped(X.T, r).T if len(y) else X, np.clip(y, -t, t), self.features)


def domain(name: str, value: Any, num_features: int | None = None) -> Domain:
    """Return a Domain, or a pair (X, y) of arrays or of a table and a column, as one.

    Args:
        name: of the argument, for errors.
        value: the Domain or pair.
        num_features: d, where it is public; a row of a list with another number of cells becomes a row of NaN.

    Raises:
        ValueError: anything else, or shapes that do not match.
    """
    if isinstance(value, Domain):
        return value
    if isinstance(value, tuple | list) and len(value) == 2:
        X, y = value
        try:
            return Domain(as_matrix("X", X, num_features) if isinstance(X, list | tuple) else X, y)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    raise ValueError(f"{name}: expected a Domain, or a pair (X, y), got {type(value).__name__}")


def public_domain(name: str, value: Any) -> Domain:
    """Return a public domain. Raises ValueError as :func:`numbers` does, and if there are no records."""
    records = domain(name, value)
    if not records.num_records:
        raise ValueError(f"{name}: expected at least one record, got none")
    return numbers(name, records)


def numbers(name: str, records: Domain) -> Domain:
    """Return the records after a check of their numbers. Use it for public records only, as the errors reveal entries.

    Raises:
        ValueError: entries that are not finite, or so large that sums of their squares overflow.
    """
    largest = np.maximum(np.abs(records.X).max(axis=1), np.abs(records.y))
    if bad := int(np.sum(~np.isfinite(largest))):
        raise ValueError(f"{name}: expected finite numbers, got {bad} records with others")
    if bad := int(np.sum(largest > _LARGEST)):
        raise ValueError(f"{name}: expected numbers up to {_LARGEST:.0e}, got {bad} records with larger ones")
    return records


def pair(source: Any, target: Any) -> tuple[Domain, Domain]:
    """Match a public source and a private target by their features; a domain without names takes the other's.

    Raises:
        ValueError: the features are not the same.
    """
    public = public_domain("source", source)
    private = domain("target", target, public.num_features)
    if public.num_features != private.num_features:
        raise ValueError(f"target: expected the source's {public.num_features} features, got {private.num_features}")
    if public.features != private.features and by_position(private.features, public.features):
        tell_of_positions(private.features, public.features, what="target: features", of="the source")
        if default(public.features):
            return replace(public, features=private.features), private
        return public, replace(private, features=public.features)
    if public.features != private.features:
        # The target's names are not shown: in a table without a header they are its first record.
        raise ValueError(f"target: expected the source's features {list(public.features)} in this order, got others")
    return public, private


def several(source: Any) -> dict[Hashable, Domain]:
    """Return public domains by name, from one or several. Raises ValueError for none, or for different features."""
    named = dict(source) if isinstance(source, Mapping) else {"source": source}
    if not named:
        raise ValueError("source: expected at least one public domain, got none")
    domains = {name: public_domain(f"source {name!r}" if len(named) > 1 else "source", v) for name, v in named.items()}
    if len({records.num_features for records in domains.values()}) > 1:
        raise ValueError("source: expected domains of the same features, got different numbers of them")
    if len({records.features for records in domains.values() if not default(records.features)}) > 1:
        raise ValueError("source: expected domains of the same features in the same order, got others")
    return domains


def stacked(domains: Mapping[Hashable, Domain]) -> Domain:
    """Return all records of several domains as one domain."""
    parts = list(domains.values())
    return Domain(
        np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts]), parts[0].features
    )


def tell_of_cuts(
    public: Mapping[Hashable, Domain],
    row_bound: float | None,
    target_bound: float | None,
    weight_bound: float | None = None,
) -> None:
    """Warn if bounds clip many public records, and so probably many private ones, which are not looked at.

    Args:
        public: domains by name.
        row_bound: r, or None if rows are not clipped.
        target_bound: t, or None if targets are not clipped.
        weight_bound: Lambda, the bound on a linear predictor's weights, or None.
    """
    every = stacked(public) if public else Domain(np.zeros((0, 1)), np.zeros(0))
    lengths = {"row_bound": ("rows", np.linalg.norm(every.X, axis=1)), "target_bound": ("targets", np.abs(every.y))}
    for (name, (what, size)), bound in zip(lengths.items(), (row_bound, target_bound), strict=True):
        if bound is None or not len(size):
            continue
        if (share := float(np.mean(size > bound * (1 + 1e-9)))) > _MANY_CUT:
            warnings.warn(
                f"{name}: {share:.0%} of the public {what} are beyond {bound:g} and cut to it, and private ones as well; "
                f"99 % of the public ones are within {np.quantile(size, 0.99):.3g}",
                UserWarning,
                stacklevel=4,
            )
    if weight_bound is None or every.num_records < _ENOUGH * every.num_features:
        return
    if (longest := float(np.linalg.norm(np.linalg.lstsq(every.X, every.y, rcond=None)[0]))) > _LONG * weight_bound:
        warnings.warn(
            f"weight_bound: least squares of the public records has weights of length {longest:.3g}, and predictors are "
            f"shortened to {weight_bound:g}",
            UserWarning,
            stacklevel=4,
        )
