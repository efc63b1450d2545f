"""Arms of the panel. Every arm gets training rows and public numbers, and returns coefficients for every task.

No arm sees a test row or a true coefficient, except ``told``, which is marked as knowing the truth. The constants were set
before the panel was run, from public numbers alone, and were not tuned on its cells. The shrinkage, the clip and the owners'
grids of :func:`released_average` are those of an earlier experiment on data sets like those of the ``few-`` cells, under
other seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from random_effects import mixed, owners
from random_effects.rival import summaries

QUANTILE = 1.6448536269514722  #: of the standard normal law, for central 90 % intervals
PENALTIES = np.geomspace(1e-3, 1e4, 60)  #: of ridge


@dataclass(frozen=True)
class Public:
    """Public numbers before a release.

    Attributes:
        epsilon: budget of one release, with whole tasks replaced.
        m: number of tasks.
        rows: declared rows of a task.
        row_range: declared least and greatest number of rows.
        square: declared mean square of the targets.
        intercept: whether the first column is the constant one.
        own_levels: whether a task alone leaves its intercept unpenalised, as one does where nothing is known of levels.
    """

    epsilon: float
    m: int
    rows: int
    row_range: tuple[int, int]
    square: float
    intercept: bool = False
    own_levels: bool = False

    @property
    def delta(self) -> float:
        """The library's default, 1 / (m log m)."""
        return float(1 / (self.m * np.log(self.m)))


@dataclass(frozen=True)
class Train:
    """Training rows in declared units: X, (n_i, d) each, and y, (n_i,) each."""

    X: list[np.ndarray]
    y: list[np.ndarray]


@dataclass(frozen=True)
class Fit:
    """Result of an arm.

    Attributes:
        beta: coefficients, (d, m).
        low: lower ends of 90 % intervals, (d, m), or None where the arm has none.
        high: their upper ends.
        mu: average effects, (d,), or None.
        mu_low: lower ends of their 90 % intervals, or None.
        mu_high: their upper ends.
        tau_low: lower ends of 90 % intervals of effects' standard deviations between tasks, (d,), or None.
        tau_high: their upper ends.
        sound: whether the fit passes its own diagnosis, or None.
    """

    beta: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    mu: np.ndarray | None = None
    mu_low: np.ndarray | None = None
    mu_high: np.ndarray | None = None
    tau_low: np.ndarray | None = None
    tau_high: np.ndarray | None = None
    sound: bool | None = None


def normal(beta: np.ndarray, variance: np.ndarray, mu: np.ndarray | None = None, mu_variance: Any = None) -> Fit:
    """Return a fit with normal intervals of given variances, (d, m) and (d,)."""
    half = QUANTILE * np.sqrt(variance)
    if mu is None:
        return Fit(beta, beta - half, beta + half)
    about = QUANTILE * np.sqrt(mu_variance)
    return Fit(beta, beta - half, beta + half, mu, mu - about, mu + about)


def noise_sd(public: Public, sensitivity: float) -> float:
    """Return the exact standard deviation of Gaussian noise for a sensitivity to the replacement of one task."""
    from mpmtl_prob.privacy.accounting.calibration import calibrate_gaussian

    # its matrix is moved by sqrt 2 and has entries N(0, sd^2) off and N(0, 2 sd^2) on the diagonal: mu = 1 / sd
    return sensitivity * calibrate_gaussian(public.epsilon, public.delta, 2).sd


def ridge(X: np.ndarray, y: np.ndarray, intercept: bool = False) -> np.ndarray:
    """Fit ridge (d,) with the penalty that predicts left-out rows best, and an unpenalised intercept in front.

    Leave-one-out residuals are y - yhat over 1 - h (Allen, 1974). With one row, or with an intercept and two, nothing is
    left to tune on: the penalty is then that of the middle of the grid.
    """
    if intercept:
        if len(y) < 2:
            return np.r_[y.mean(), np.zeros(X.shape[1] - 1)]
        x, t = X[:, 1:], y
        centre, level = x.mean(axis=0), t.mean()
        slopes = _tuned(x - centre, t - level, used=1)
        return np.r_[level - centre @ slopes, slopes]
    return _tuned(X, y, used=0)


def _tuned(X: np.ndarray, y: np.ndarray, used: int) -> np.ndarray:
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    r = U.T @ y
    share = s**2 / (s**2 + PENALTIES[:, None])
    if len(y) < 2 + used:
        best = len(PENALTIES) // 2
    else:
        leverage = share @ (U**2).T + used / len(y)
        left_out = (y - (share * r) @ U.T) / np.maximum(1 - leverage, 1e-8)
        best = int(np.argmin((left_out**2).sum(axis=1)))
    return Vt.T @ (s / (s**2 + PENALTIES[best]) * r)


def alone(train: Train, public: Public, seed: int) -> Fit:
    """Fit every task alone, by ridge with its own penalty."""
    return Fit(np.array([ridge(x, v, public.own_levels) for x, v in zip(train.X, train.y, strict=True)]).T)


def alone_evidence(train: Train, public: Public, seed: int) -> Fit:
    """Fit every task alone, by ridge with penalty and residual variance averaged over its own evidence.

    An intercept of its own is free: rows are centred by their task, which leaves n_i - 1 of them.
    """
    if not public.own_levels:
        beta, variance = _owners(mixed.statistics(train.X, train.y), public, np.zeros(train.X[0].shape[1]))
        return normal(beta, variance)
    centres = np.array([x[:, 1:].mean(axis=0) for x in train.X])
    levels = np.array([y.mean() for y in train.y])
    X = [x[:, 1:] - c for x, c in zip(train.X, centres, strict=True)]
    data = mixed.statistics(X, [y - level for y, level in zip(train.y, levels, strict=True)])
    slopes, _ = _owners(data._replace(rows=data.rows - 1), public, np.zeros(centres.shape[1]))
    return Fit(np.vstack([levels - (centres.T * slopes).sum(axis=0), slopes]))


def pooled(train: Train, public: Public, seed: int) -> Fit:
    """Fit one ridge regression to all rows, without privacy."""
    one = ridge(np.concatenate(train.X), np.concatenate(train.y), public.intercept)
    return Fit(np.repeat(one[:, None], len(train.X), axis=1))


def shrinkage(penalty: float, rows: int, d: int) -> float:
    """Return the average factor by which ridge shrinks a coefficient, f = 1 / (1 + kappa), for independent features.

    kappa = (penalty + kappa / (1 + kappa) d) / rows, the deterministic equivalent of large random matrices (Marchenko and
    Pastur, 1967).
    """
    kappa = penalty / rows + d / rows
    for _ in range(500):
        kappa = penalty / rows + kappa / (1 + kappa) * d / rows
    return float(1 / (1 + kappa))


def clip(public: Public, d: int) -> tuple[float, float, float]:
    """Return the ridge penalty of a released average, its shrinkage, and the longest estimate, which are all public."""
    penalty = d / 16
    left = shrinkage(penalty, public.rows, d)
    return penalty, left, float(np.sqrt(public.square * left * (0.5 + 0.4 * d / public.rows)))


def released_average(train: Train, public: Public, seed: int) -> Fit:
    """Release the average of clipped estimates with Gaussian noise, and plug it in: the method to beat by a matrix.

    A task's estimate is ridge under a declared penalty, cut to a declared length C; a replacement moves the sum by 2 C.
    The average shrinkage is undone publicly, and the noise, whose variance v is known, by the factor 1 - d v / |average|^2,
    at least zero. Owners then have the prior N(average, c I) with c and the residual variance averaged over by their own
    evidence.
    """
    data, d = mixed.statistics(train.X, train.y), train.X[0].shape[1]
    penalty, left, longest = clip(public, d)
    estimates = np.linalg.solve(data.gram + penalty * np.eye(d), data.cross[..., None])[..., 0]
    lengths = np.linalg.norm(estimates, axis=1, keepdims=True)
    total = (estimates * np.minimum(1, longest / np.maximum(lengths, 1e-300))).sum(axis=0)
    sd = noise_sd(public, 2 * longest)
    average = (total + sd * np.random.default_rng([seed, 1]).standard_normal(d)) / len(train.X) / left
    average = average * max(0.0, 1 - d * (sd / len(train.X) / left) ** 2 / (average @ average))
    beta, variance = _owners(data, public, average)
    return Fit(**vars(normal(beta, variance)) | {"mu": average})


def _owners(data: mixed.Statistics, public: Public, average: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return owners' posteriors under N(average, c I), (d, m) each, with log-normal residual variances."""
    d = data.cross.shape[1]
    prior = owners.Prior(average, public.square / d * np.eye(d), owners.SCALES)
    weights = np.exp(-0.5 * (np.log(owners.RESIDUALS / 0.5) / 0.8) ** 2)
    return owners.posteriors(data, [prior], owners.RESIDUALS * public.square, weights / weights.sum())


def noisy_summaries(train: Train, public: Public, seed: int) -> Fit:
    """Publish every site's cross-products with its own noise: see :mod:`random_effects.rival`."""
    results = summaries(train.X, train.y, public, noise_sd(public, np.sqrt(2)), np.random.default_rng([seed, 2]))
    half = QUANTILE * results.standard_error
    return Fit(results.beta, mu=results.mu, mu_low=results.mu - half, mu_high=results.mu + half)


def dp_aggr(train: Train, public: Public, seed: int) -> Fit:
    """Run DP-AGGR of the library, with whole tasks protected and a penalty by a public rule.

    The rule takes the penalty, in units of the squared length of a row, with the least sum of squared shrinkage of half the
    targets' square and of the noise's squared length.
    """
    from mpmtl_prob import TaskData
    from mpmtl_prob.estimators import DPAggr

    d, (least, most) = train.X[0].shape[1], public.row_range
    tasks = TaskData.from_lists(train.X, train.y)
    longest, largest = 1.25 * np.sqrt(d), 2.5 * np.sqrt(public.square)
    arm = lambda penalty: DPAggr(
        penalty,
        public.epsilon,
        noise="tight",
        row_norm=longest,
        target_bound=largest,
        rows=public.row_range,
        unsafe_seed=seed,
    )

    def expected(penalty: float) -> float:
        scale = 2 * arm(penalty).lipschitz(tasks) * most / (penalty * least * public.epsilon * public.m)
        return (penalty / (1 + penalty)) ** 2 * public.square / 2 + d * (d + 1) * scale**2

    return Fit(arm(min(np.geomspace(0.01, 1e4, 60), key=expected)).fit(tasks).W)


def full_mixed(train: Train, public: Public, seed: int) -> Fit:
    """Fit the mixed model without privacy, with a full Omega."""
    return _mixed(train, isotropic=False)


def isotropic_mixed(train: Train, public: Public, seed: int) -> Fit:
    """Fit the mixed model without privacy, with Omega a multiple of I."""
    return _mixed(train, isotropic=True)


def _mixed(train: Train, isotropic: bool) -> Fit:
    fitted = mixed.fit(mixed.statistics(train.X, train.y), isotropic=isotropic)
    return normal(fitted.beta, fitted.beta_variance, fitted.mu, np.diag(fitted.mu_covariance))


def library(train: Train, public: Public, seed: int) -> Fit:
    """Run NoiseAware with its defaults, of whichever version of the library is imported.

    Where the library has reference values it is told those of the cell: columns in declared units, and the target's square.
    """
    import mpmtl_prob
    from mpmtl_prob.inference import NoiseAware

    options: Any = {"seed": seed, "unsafe_seed": seed, "progress_bar": False}
    if hasattr(mpmtl_prob, "Reference"):
        return _with_reference(
            train, public, NoiseAware(public.epsilon, public.delta, reference=_reference(train, public), **options)
        )
    posteriors = NoiseAware(public.epsilon, public.delta, **options).fit(
        mpmtl_prob.TaskData.from_lists(train.X, train.y)
    )
    draws = posteriors.to_arviz()["posterior/W"].transpose("chain", "draw", "feature", "task").values
    low, high = np.quantile(draws, (0.05, 0.95), axis=(0, 1))
    return Fit(np.asarray(posteriors.W), low, high)


def _reference(train: Train, public: Public) -> Any:
    """Return reference values of a cell, whose columns are in declared units, without the constant column in front."""
    from mpmtl_prob import Reference

    columns = range(train.X[0].shape[1] - public.intercept)
    return Reference(dict.fromkeys(columns, (0.0, 1.0)), target=(0.0, float(np.sqrt(public.square))))


def _with_reference(train: Train, public: Public, estimator: Any) -> Fit:
    """Return the fit with its intercept in front, where the constant column is."""
    from mpmtl_prob import TaskData

    tasks = TaskData.from_lists([x[:, int(public.intercept) :] for x in train.X], train.y)
    posteriors = estimator.fit(tasks.with_intercept() if public.intercept else tasks)
    order = np.roll(np.arange(train.X[0].shape[1]), 1) if public.intercept else slice(None)
    draws = posteriors.to_arviz(pointwise=False)["posterior/W"].transpose("chain", "draw", "feature", "task").values
    low, high = np.quantile(draws, (0.05, 0.95), axis=(0, 1))
    mu = posteriors.shared.draws("mu") * posteriors.shared.units.target_scale
    tau = posteriors.shared.draws("tau") * posteriors.shared.units.target_scale
    mu_low, mu_high = np.quantile(mu[:, order], (0.05, 0.95), axis=0)
    tau_low, tau_high = np.quantile(tau[:, order], (0.05, 0.95), axis=0)
    sound = posteriors.diagnose().sound
    return Fit(
        posteriors.W[order], low[order], high[order], mu.mean(axis=0)[order], mu_low, mu_high, tau_low, tau_high, sound
    )


Arm = Callable[[Train, Public, int], Fit]
ARMS: dict[str, Arm] = {
    "alone": alone,
    "alone, evidence": alone_evidence,
    "pooled, not private": pooled,
    "average released": released_average,
    "noisy summaries": noisy_summaries,
    "DP-AGGR": dp_aggr,
    "mixed": full_mixed,
    "mixed, isotropic": isotropic_mixed,
}
#: Run in processes of their own: the library beside the panel, and version 0.3.0 from a checkout.
NOW, BEFORE = "default", "0.3.0"
TOLD = "told the truth"  #: an owner that knows mu, Omega and its residual variance: nothing is better on average
PRIVATE = ("average released", "noisy summaries", "DP-AGGR", BEFORE, NOW)
ALL = (*ARMS, TOLD, BEFORE, NOW)
