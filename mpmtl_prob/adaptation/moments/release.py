"""Release of noisy second moments of (x, residual of a public fit) over the target's records.

It is a sufficient-statistics perturbation, and all that is computed from it is free of further privacy cost. Residuals of a
public fit are smaller than targets, so that the cross moments have less noise. The noise in X'X multiplies the difference
between the target's weights and the public ones, not the weights themselves.

The weight b of a residual in v = (x / r, b rho / c) balances the noise in the moments. A record changes v v' by at most
sqrt2 (1 + b^2), so that the noise is proportional to 1 + b^2 in X'X and to (1 + b^2) / b in X'rho. The second is smallest at
b = 1, and flat there: b = 3/4 has 22 % less noise in X'X and 4 % more in X'rho.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import as_float_array, in_range, moderate, positive
from mpmtl_prob.adaptation.data.domain import Domain, domain
from mpmtl_prob.adaptation.moments import files
from mpmtl_prob.adaptation.moments.clipping import moments
from mpmtl_prob.adaptation.paper.accounting import default_delta
from mpmtl_prob.adaptation.paper.discrepancy import Ball, Extreme, Quadratic, discrepancy
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.accounting.calibration import calibrate_gaussian
from mpmtl_prob.privacy.charge_and_draw import draw_matrices
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.mechanisms import Gaussian, write_mechanism
from mpmtl_prob.privacy.units import Unit

if TYPE_CHECKING:
    from xarray import Dataset  # ``xr`` is X'rho here

#: b, the largest |rho| / u, picked from 1, .85, .75, .65 and .55 on made-up data and on splits 100 to 105 of School
WEIGHT = 0.75
#: largest length of v = (x / r, rho / u), |(1, b)|
LONGEST = 1.25


@dataclass(frozen=True, eq=False)
class MomentRelease:
    """Public release: sum v v' + E over the target's records, v = (x / r, rho / u), rho = clip(y - w_0.x, -c, c).

    Attributes:
        sigma: (d + 1, d + 1), read-only.
        mechanism: the distribution of the noise E.
        num_records: n.
        centre: w_0, a fit to public records, (d,).
        residual_bound: c.
        residual_unit: u = c / b.
        row_bound: r.
        features: names of the d features.
        guarantee: the privacy guarantee for one record of the target.
        lattice: h; entries of v are multiples of h, and those of ``sigma`` of h^2.
    """

    sigma: FloatArray
    mechanism: Gaussian
    num_records: int
    centre: FloatArray
    residual_bound: float
    residual_unit: float
    row_bound: float
    features: tuple[Hashable, ...]
    guarantee: Guarantee
    lattice: float

    def __post_init__(self) -> None:
        d = len(self.centre)
        sigma = np.array(self.sigma, dtype=np.float64)
        if sigma.shape != (d + 1, d + 1) or not np.all(np.isfinite(sigma)) or not np.array_equal(sigma, sigma.T):
            raise ValueError(f"sigma: expected a symmetric matrix of {d + 1} finite rows, got shape {sigma.shape}")
        sigma.setflags(write=False)
        object.__setattr__(self, "sigma", sigma)

    @property
    def sd(self) -> float:
        """s, the sd of the noise off the diagonal, in units of v v'."""
        return self.mechanism.sd

    @property
    def xx(self) -> FloatArray:
        """X'X with noise of sd s r^2, (d, d)."""
        return self.sigma[:-1, :-1] * self.row_bound**2

    @property
    def xr(self) -> FloatArray:
        """X'rho with noise of sd s r u, (d,)."""
        return self.sigma[:-1, -1] * self.row_bound * self.residual_unit

    @property
    def rr(self) -> float:
        """rho'rho with noise of sd sqrt2 s u^2."""
        return float(self.sigma[-1, -1]) * self.residual_unit**2

    def difference(self, source: Domain) -> Quadratic:
        """Return the mean squared error of w_0 + v on the target less that on the source, with residuals clipped at c."""
        rows = self.ball(1.0).rows(source)
        source_moment = rows.T @ rows / max(source.num_records, 1)
        n = max(self.num_records, 1)
        return Quadratic(
            self.xx / n - source_moment[:-1, :-1],
            self.xr / n - source_moment[:-1, -1],
            self.rr / n - float(source_moment[-1, -1]),
        )

    def ball(self, radius: float) -> Ball:
        """Return a ball of predictors around w_0."""
        return Ball(tuple(self.centre.tolist()), radius, self.residual_bound, self.row_bound)

    def discrepancy(self, source: Domain, radius: float) -> Extreme:
        """Compute the discrepancy between target and a source over a ball around w_0, from the noisy moments, at no cost."""
        return discrepancy(self.difference(source), positive("radius", radius))

    def squared_error(self, w: FloatArray) -> tuple[float, float]:
        """Estimate the mean squared error of weights w over the target's records, with the sd of its noise, at no cost.

        It is (rho'rho - 2 delta'X'rho + delta'X'X delta) / n with delta = w - w_0, where residuals of w_0 are clipped at c
        and rows at r. At w_0 the error without clipping is at least as large; elsewhere it may be larger or smaller. Noise
        may make the estimate negative. Weights fitted to this release look better than they are.
        """
        n = max(self.num_records, 1)
        a = np.append((self.centre - w) * self.row_bound, self.residual_unit)
        # E is symmetric Gaussian, with sd s off its diagonal and sqrt2 s on it: a'Ea ~ N(0, 2 s^2 |a|^4)
        return float(a @ self.sigma @ a) / n, float(np.sqrt(2.0) * self.sd * (a @ a)) / n

    def ridge(self, failure: float = 0.05) -> FloatArray:
        """Compute weights by AdaSSP, (d,): least squares with the smallest ridge that outweighs the noise in X'X.

        lambda = max(0, s r^2 sqrt(d log(2 d^2 / failure)) - lambda_min), with the smallest eigenvalue of the noisy X'X.

        Source: Wang (2018), Revisiting differentially private linear regression, Algorithm 2.
        """
        d = len(self.centre)
        in_range("failure", failure, 0, 1)
        least = float(np.linalg.eigvalsh(self.xx)[0])
        size = self.sd * self.row_bound**2 * np.sqrt(d * np.log(2 * d**2 / failure))
        w: FloatArray = self.centre + np.linalg.solve(self.xx + max(0.0, size - least) * np.eye(d), self.xr)
        return w

    def to_xarray(self) -> Dataset:
        """Return sigma with dims (entry, entry_other), the centre, and all else as JSON in the attribute ``release``."""
        import xarray as xr  # slow to import, with pandas

        meta = {
            "kind": "moments",
            "mechanism": write_mechanism(self.mechanism),
            "num_records": self.num_records,
            "residual_bound": self.residual_bound,
            "residual_unit": self.residual_unit,
            "row_bound": self.row_bound,
            "features": list(self.features),
            "guarantee": self.guarantee.to_dict(),
            "lattice": self.lattice,
        }
        return xr.Dataset(
            {"sigma": (("entry", "entry_other"), self.sigma), "centre": ("feature", self.centre)},
            attrs={"release": json.dumps(meta)},
        )

    @classmethod
    def from_xarray(cls, data: Dataset) -> MomentRelease:
        """Return the release that :meth:`to_xarray` turned into data, checked as in :meth:`load`. Raises ValueError."""
        return cls(**files.release_fields(data, weight=WEIGHT, longest=LONGEST))

    def save(self, path: str | os.PathLike[str], *, key: bytes | None = None) -> None:
        """Write to a NetCDF file; ``key`` as in :meth:`mpmtl_prob.Release.save`."""
        files.write(self.to_xarray(), path, key, private=self.guarantee.proved is None)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, key: bytes | None = None) -> MomentRelease:
        """Read a file that :meth:`save` wrote; the guarantee is recomputed from the noise distribution in the file.

        Raises:
            ValueError: the file holds no such release, or is not signed with ``key``.
        """
        with files.named("moment release", path):
            return cls.from_xarray(files.read(path, key))


def release_moments(
    target: Any,
    *,
    centre: FloatArray,
    residual_bound: float,
    epsilon: float,
    delta: float | None = None,
    row_bound: float = 1.0,
    ledger: Ledger | None = None,
    unsafe_seed: int | None = None,
) -> MomentRelease:
    """Publish the noisy second moments of a private target, after one charge.

    Args:
        target: private, a Domain or a pair (X, y). A record that is not finite counts as zeros.
        centre: w_0, public, (d,).
        residual_bound: c, public, such as a quantile of public residuals; never one of private ones.
        epsilon: > 0.
        delta: in (0, 1); default 1 / n^1.1.
        row_bound: r, public: longer rows are clipped.
        ledger: of unit "target record", pays, on disk, before noise is drawn.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range. Nothing was charged.
    """
    w = np.array(as_float_array("centre", centre))
    private = domain("target", target, w.size)
    r, c = moderate("row_bound", row_bound), moderate("residual_bound", residual_bound)
    n, d = private.num_records, private.num_features
    if w.shape != (d,) or not np.all(np.isfinite(w)):
        raise ValueError(f"centre: expected {d} finite weights, got shape {w.shape}")
    delta = default_delta(n) if delta is None else in_range("delta", delta, 0, 1)
    law = noise(epsilon, delta, d)
    h = lattice.step(LONGEST, d + 1, max(n, 1), (law,))
    (E,), guarantee = draw_matrices(
        [law],
        epsilon=epsilon,
        adjacency="replace",
        lattice=h,
        unit=Unit.TARGET_RECORD,
        ledger=ledger,
        unsafe_seed=unsafe_seed,
        data=np.column_stack([private.X, private.y]),
    )
    v = rows(private, w, c, r, h)
    return MomentRelease(v.T @ v + E, law, n, w, c, c / WEIGHT, r, private.features, guarantee, h)


def noise(epsilon: float, delta: float, num_features: int) -> Gaussian:
    """Calibrate the noise E, in units of v v'."""
    return calibrate_gaussian(epsilon, delta, num_features + 1, clip=LONGEST)


def clipping_bound(scale: float, sd: float, num_records: int, width: float) -> float:
    """Return c, 1.5 to 2.5 times the scale of the public residuals, with the most precise slopes. All inputs are public.

    The noise grows with c, and the model accounts for the clipping. Without noise 1.5 keeps 96 % of the information; under
    strong noise it is worth 1.46 times the budget that 2.5 would need.

    Args:
        scale: t, the scale of the public residuals.
        sd: sd of the noise in X'rho, in units of c.
        num_records: n.
        width: root mean square of a feature.
    """
    c = scale * np.linspace(1.5, 2.5, 21)
    psi = moments(scale, c, np, ndtr)
    variance = (num_records * width**2 * psi.square + (sd * c) ** 2) / psi.kept**2
    return float(c[np.argmin(variance)])


def rows(records: Domain, centre: FloatArray, residual_bound: float, row_bound: float, h: float) -> FloatArray:
    """Return v of every record on the lattice, (n, d + 1), with |x / r| <= 1 and |rho / u| <= b.

    Every row is computed from its own record alone.
    """
    x = records.bounded(row_bound, np.finfo(float).max / 8)
    with np.errstate(all="ignore"):  # a warning would reveal one record
        residual = np.clip(x.y - np.sum(x.X * centre, axis=1), -residual_bound, residual_bound)
        rho = np.clip(residual / residual_bound, -1, 1) * WEIGHT
    return np.column_stack([lattice.sent(x.X.T / row_bound, 1.0, h).T, lattice.cut(rho, h)])
