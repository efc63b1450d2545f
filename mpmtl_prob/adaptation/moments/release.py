"""One release: noisy second moments of (x, residual of a public fit) over the target's records. All that follows is free.

Residuals of a public fit are smaller than targets, so that the noise of cross moments is; and the noise in X'X multiplies how
far the target's weights are from the public ones, not the weights.

The weight b of a residual in v = (x / r, b rho / c) says which moments the budget is spent on. A record moves v v' by at most
sqrt2 (1 + b^2), so that noise is 1 + b^2 in X'X and (1 + b^2) / b in X'rho. The second is least at b = 1, and flat there:
b = 3/4 takes 22 % off the noise in X'X for 4 % more in X'rho.
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
#: the longest v = (x / r, rho / u), |(1, b)|
LONGEST = 1.25


@dataclass(frozen=True, eq=False)
class MomentRelease:
    """What left the room: sum v v' + E over the target's records, v = (x / r, rho / u), rho = clip(y - w_0.x, -c, c). Public.

    Attributes:
        sigma: (d + 1, d + 1), read-only.
        mechanism: the law of the noise.
        num_records: n.
        centre: w_0, a fit to public records, (d,).
        residual_bound: c.
        residual_unit: u = c / b.
        row_bound: r.
        features: names, d of them.
        guarantee: of one record of the target.
        lattice: h; v lies on its whole multiples, and ``sigma`` on those of h^2.
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
        """s, of the noise off the diagonal, in units of v v'."""
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
        """The mean squared error of w_0 + v on the target less that on the source, residuals cut at c, of noisy moments."""
        rows = self.ball(1.0).rows(source)
        own = rows.T @ rows / max(source.num_records, 1)
        n = max(self.num_records, 1)
        return Quadratic(self.xx / n - own[:-1, :-1], self.xr / n - own[:-1, -1], self.rr / n - float(own[-1, -1]))

    def ball(self, radius: float) -> Ball:
        """Of predictors round w_0."""
        return Ball(tuple(self.centre.tolist()), radius, self.residual_bound, self.row_bound)

    def discrepancy(self, source: Domain, radius: float) -> Extreme:
        """The discrepancy between target and source over a ball round w_0, of the noisy moments: free, and of any source."""
        return discrepancy(self.difference(source), positive("radius", radius))

    def squared_error(self, w: FloatArray) -> tuple[float, float]:
        """Mean squared error of weights w over the target's records, and the sd of the noise in it; free.

        (rho'rho - 2 delta'X'rho + delta'X'X delta) / n with delta = w - w_0, of residuals of w_0 cut at c and rows shortened
        to r: at w_0 the error without cuts is at least this, and elsewhere it may be on either side. Noise may take it below
        zero. Weights that were fitted to the noise of this release would look better than they are.
        """
        n = max(self.num_records, 1)
        a = np.append((self.centre - w) * self.row_bound, self.residual_unit)
        # E is symmetric Gaussian, of sd s off its diagonal and sqrt2 s on it: a'Ea ~ N(0, 2 s^2 |a|^4)
        return float(a @ self.sigma @ a) / n, float(np.sqrt(2.0) * self.sd * (a @ a)) / n

    def ridge(self, failure: float = 0.05) -> FloatArray:
        """Weights by AdaSSP: least squares with the least ridge that outweighs the noise in X'X, (d,).

        lambda = max(0, s r^2 sqrt(d log(2 d^2 / failure)) - lambda_min), the smallest eigenvalue read off the release.

        Source: Wang (2018), Revisiting differentially private linear regression, Algorithm 2.
        """
        d = len(self.centre)
        in_range("failure", failure, 0, 1)
        least = float(np.linalg.eigvalsh(self.xx)[0])
        size = self.sd * self.row_bound**2 * np.sqrt(d * np.log(2 * d**2 / failure))
        found: FloatArray = self.centre + np.linalg.solve(self.xx + max(0.0, size - least) * np.eye(d), self.xr)
        return found

    def to_xarray(self) -> Dataset:
        """Sigma with dims (entry, entry_other), and the centre; all else as JSON in the attribute ``release``."""
        import xarray as xr  # with pandas, nearly a second to import

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
        """The release that :meth:`to_xarray` turned into data, as :meth:`load`. Raises ValueError for other data."""
        return cls(**files.release_fields(data, weight=WEIGHT, longest=LONGEST))

    def save(self, path: str | os.PathLike[str], *, key: bytes | None = None) -> None:
        """Write to a NetCDF file; ``key`` as in :meth:`mpmtl_prob.Release.save`."""
        files.write(self.to_xarray(), path, key, private=self.guarantee.proved is None)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, key: bytes | None = None) -> MomentRelease:
        """Read what :meth:`save` wrote; the guarantee is worked out anew from the noise law in the file.

        Raises:
            ValueError: a file that holds no such release, or with ``key`` one that its holder did not sign.
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
    """Pay once, then publish the noisy second moments of a private target.

    Args:
        target: private, a Domain or a pair (X, y). A record that is not finite counts as one of zeros.
        centre: w_0, public, (d,).
        residual_bound: c, public, such as a quantile of public residuals; never one of private ones.
        epsilon: > 0.
        delta: in (0, 1); default 1 / n^1.1.
        row_bound: r, public: longer rows are shortened.
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
    """Law of E, in units of v v'."""
    return calibrate_gaussian(epsilon, delta, num_features + 1, clip=LONGEST)


def clipping_bound(scale: float, sd: float, num_records: int, width: float) -> float:
    """c: from 1.5 to 2.5 times the scale of the public residuals, where x'rho says most of a slope. All of it is public.

    Noise grows with c, and what is cut is modelled: without noise 1.5 keeps 96 % of what the records say, and with a lot of
    noise it is worth 1.46 times the budget of 2.5.

    Args:
        scale: t, as if the target were like the source.
        sd: of the noise in X'rho, in units of c.
        num_records: n.
        width: root mean square of a feature.
    """
    c = scale * np.linspace(1.5, 2.5, 21)
    psi = moments(scale, c, np, ndtr)
    variance = (num_records * width**2 * psi.square + (sd * c) ** 2) / psi.kept**2
    return float(c[np.argmin(variance)])


def rows(records: Domain, centre: FloatArray, residual_bound: float, row_bound: float, h: float) -> FloatArray:
    """v of every record, each of its own numbers alone, on the grid: |x / r| <= 1 and |rho / u| <= b, (n, d + 1)."""
    x = records.bounded(row_bound, np.finfo(float).max / 8)
    with np.errstate(all="ignore"):  # a warning would tell of one record
        residual = np.clip(x.y - np.sum(x.X * centre, axis=1), -residual_bound, residual_bound)
        rho = np.clip(residual / residual_bound, -1, 1) * WEIGHT
    return np.column_stack([lattice.sent(x.X.T / row_bound, 1.0, h).T, lattice.cut(rho, h)])
