"""Domain adaptation from one release: a public fit, one noisy second moment of the target's records, and a posterior.

It is not an algorithm of the paper. At the same budget it beats the paper's algorithms, and no parameter needs tuning on
private records.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import MANY, flag, in_range, moderate, one_of, optional, whole
from mpmtl_prob._util.files import write_netcdf
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob._util.former import FormerName, former_arguments, former_names
from mpmtl_prob._util.threads import one_thread
from mpmtl_prob.adaptation.data.domain import Domain, domain, pair, several, stacked, tell_of_cuts
from mpmtl_prob.adaptation.data.scaling import INTERCEPT, ROUNDING, ROW_QUANTILE, Scaling
from mpmtl_prob.adaptation.estimator import Adaptation
from mpmtl_prob.adaptation.moments import files, task_prior
from mpmtl_prob.adaptation.moments.grid_posterior import NONE_BEFORE, SAME_BEFORE, Prior
from mpmtl_prob.adaptation.moments.grid_posterior import posterior as on_grid
from mpmtl_prob.adaptation.moments.release import WEIGHT, MomentRelease, clipping_bound, noise, release_moments
from mpmtl_prob.adaptation.paper.accounting import default_delta
from mpmtl_prob.adaptation.public_fit import FEW, least_scale, robust, shift_scale
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.units import Unit
from mpmtl_prob.releases.release import Release
from mpmtl_prob.releases.rounds import attach_paid_release

#: domain of targets that resemble no public domain
NONE = "none"
#: domain of all public records together
ALL = "all"
_DRAWS = ("w", "tau", "sigma", "domain")
_UNITS = ("centre", "scale", "label_centre", "label_scale")
#: Beyond these limits the posterior would fail numerically, so they are checked before anything is paid for: the scale of
#: shifts and the residuals' bound, relative to the public records'; the rows' bound, relative to the longest public row.
_WIDEST, _NARROWEST, _SHORTEST = 1e3, 0.2, 1e-6
#: share of n c^2 in rho'rho from which nearly all residuals are clipped; normal residuals 20 times as long as c have .973
_CUT = 0.97
#: squared mean over mean square of the clipped residuals, from which a shift of level is overstated
_LEVEL = 0.6
_NEAR = 0.65  # mean of the clipped residuals, relative to c, beyond which many were clipped on one side


@dataclass(frozen=True, eq=False)
class AdaptedPosterior:
    """Public posterior of the target's weights given the release, as draws.

    Attributes:
        w: weights, (S, d).
        tau: scale of the shift from the domain that the target resembles, (S,), for weights in the release's units.
        sigma: standard deviation of the noise in a target, (S,).
        domain: index of the domain, (S,).
        domains: names of the public domains, and "none"; one name may stand for several.
        statistics: the sampler's statistics, (chain, draw); empty without a sampler.
    """

    w: FloatArray
    tau: FloatArray
    sigma: FloatArray
    domain: FloatArray
    domains: tuple[Hashable, ...]
    statistics: dict[str, FloatArray]

    @property
    def mean(self) -> FloatArray:
        """Posterior mean of w, (d,)."""
        return self.w.mean(axis=0)

    @property
    def domain_weights(self) -> dict[Hashable, float]:
        """P(k | release): probabilities that the private records resemble each public domain, or none."""
        counts = np.bincount(self.domain.astype(int), minlength=len(self.domains))
        probabilities = dict.fromkeys(self.domains, 0.0)
        for name, count in zip(self.domains, counts, strict=True):
            probabilities[name] += float(count / len(self.w))
        return probabilities

    def interval(self, probability: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Compute central intervals of the weights, a pair of (d,)."""
        return between(self.w, probability)

    def predictive(self, X: ArrayLike, probability: float = 0.9, *, seed: int = 0) -> tuple[FloatArray, FloatArray]:
        """Compute central predictive intervals of targets at rows X, a pair of (n,).

        Args:
            X: an array (n, d), with its columns in the order of w, the intercept's included. For a table use
                :meth:`MomentAdaptation.interval`, which matches columns by name.
            probability: probability of every interval.
            seed: of the targets' noise.

        Raises:
            ValueError: X of another shape, or a table.
        """
        if hasattr(X, "columns"):
            raise ValueError("X: expected an array, got a table; `MomentAdaptation.interval` finds its columns by name")
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.w.shape[1]:
            raise ValueError(f"X: expected shape (records, {self.w.shape[1]}), got {rows.shape}")
        scores = self.w @ rows.T
        noise = np.random.default_rng(seed).standard_normal(scores.shape) * self.sigma[:, None]
        return between(scores + noise, probability)


@dataclass(repr=False, eq=False)
class MomentAdaptation(Adaptation):
    """Regression on a private target with public domains as a prior, with intervals and the domains' probabilities.

    Attributes:
        epsilon: the budget.
        delta: default 1 / n^1.1.
        posterior: "conditional", in any dimension (0.03 CPU seconds at d = 8, 0.4 at 30, 40 at 100); or "nuts", the full
            model, for at most 30 features.
        residual_bound: c, in the units of the table; default 1.5 to 2.5 times the scale of the public residuals, less
            the more noise there is.
        shift_scale: median of tau, in units of the release's weights; default a scale at which the shift explains four
            times as much as noise does. A smaller scale would miss large shifts where n is small.
        power: p of other tasks' Omega^p, as in :func:`mpmtl_prob.inference.task_posteriors`; 1 takes their messages as
            their weights; default learnt.
        row_bound: r, public: longer rows are clipped. By default features and targets are scaled by means and sd of the
            public records, and r is the 99 % quantile of the scaled rows' lengths. With a number the table is not scaled, and
            the number is in its units. It is not scaled either where ``source`` holds other tasks too, and r is then the 99 %
            quantile in its units.
        intercept: add a last feature that is 1; the bound of a row with it is sqrt(r^2 + 1).
        target_bound: public bound on the absolute targets, in the units of the table; default that of the public ones.
            Without public records it is c.
        draws: draws per chain; "conditional" has the same number in all, all independent.
        chains: number of chains.
        warmup: warm-up iterations per chain.
        ledger: of unit "target record", pays, on disk, before noise is drawn.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.
        seed: of the draws.
        progress_bar: show one for the sampler.

    A fit has ``release_`` (public), ``posterior_``, ``coef_`` and ``intercept_`` (its mean), ``guarantee_`` of the target's
    records, ``guarantees_`` by unit, which includes that of other tasks' covariance, ``source_``, ``prior_`` and ``others_``.
    The intercept is the last of the posterior's weights. Weights are in the units of the table. ``release_``, ``prior_`` and
    ``source_`` are in the units of ``scaling_``, which is public; its method ``scaled`` converts other records. Where
    ``scaling_`` is None they are in the units of the table.

    >>> from mpmtl_prob.adaptation import MomentAdaptation
    >>> from mpmtl_prob.adaptation.data import problems
    >>> data = problems.two_sources(records=(2000, 500), seed=0)
    >>> model = MomentAdaptation(epsilon=1.0).fit(data.sources, data.target)
    >>> max(model.posterior_.domain_weights, key=model.posterior_.domain_weights.get)
    'good'
    >>> print(model.guarantee_.proved)
    eps = 1, delta = 0.00107 (replace, one target record)
    """

    epsilon: float = 1.0
    delta: float | None = None
    posterior: str = "conditional"
    residual_bound: float | None = None
    shift_scale: float | None = None
    power: float | None = None
    row_bound: float | None = None
    intercept: bool = False
    target_bound: float | None = None
    draws: int = 300
    chains: int = 4
    warmup: int = 300
    ledger: Ledger | None = None
    unsafe_seed: int | None = None
    seed: int = 0
    progress_bar: bool = True

    sharpness = FormerName("power")

    def fit(self, source: Any, target: Any) -> Self:
        """Fit to public domains and a private target.

        Args:
            source: a Domain or a pair (X, y); the posterior of a covariance that other, private tasks share
                (:func:`mpmtl_prob.inference.shared_covariance`); several by name; or None.
            target: private, a Domain or a pair.

        Raises:
            BudgetExceeded: the ledger's total does not cover it.
            ValueError: an argument outside its range, or data that do not match. Nothing was charged.
        """
        sampling = self._sampling()
        if self.posterior == "nuts":
            check_not_forked()  # before anything is paid for
        source, others = task_prior.apart(source)
        public, private, bounds = self._domains(source, target, scaled=not others)
        self._check(others, public, private)
        if self.posterior == "nuts" and private.num_features > 30:
            raise ValueError(f"posterior: expected 'conditional' for more than 30 features, got {private.num_features}")
        centre, c, self.prior_ = self._settled(public, private.num_records, private.num_features, *bounds)
        self.source_ = stacked(public) if public else None
        self.release_ = release_moments(
            private, centre=centre, residual_bound=c, epsilon=self.epsilon, delta=self.delta,
            row_bound=bounds[0], ledger=self.ledger, unsafe_seed=self.unsafe_seed,
        )  # fmt: skip
        names, self.others_ = (
            [*public, *([ALL] if len(public) > 1 else [])],
            next((shared.release for shared in others.values()), None),
        )
        with attach_paid_release(self.release_):
            for name, shared in others.items():
                self.prior_, nodes = task_prior.beside(
                    self.prior_, shared, self.release_,
                    power=self.power, intercept=self.intercept, target_bound=bounds[1],
                )  # fmt: skip
                names += [name] * nodes
            inferred = infer(self.release_, self.prior_, (*names, NONE), **sampling)
        self.posterior_ = inferred if self.scaling_ is None else _unscaled(inferred, self.scaling_)
        _tell_of_residuals(self.release_, self._label_scale)
        self._read()
        return self

    def _sampling(self) -> dict[str, Any]:
        """Return the arguments of :func:`infer`, checked before the charge, as an error after it would waste the budget."""
        draws, chains = whole("draws", self.draws), whole("chains", self.chains)
        if draws * chains > MANY:
            raise ValueError(f"draws: expected at most {MANY // chains} in each of {chains} chains, got {draws}")
        flag("intercept", self.intercept)
        for name in ("row_bound", "target_bound", "power", "shift_scale", "residual_bound"):
            optional(moderate, name, getattr(self, name))
        return {
            "posterior": one_of("posterior", self.posterior, ("conditional", "nuts")),
            "draws": draws,
            "chains": chains,
            "warmup": whole("warmup", self.warmup, upto=MANY),
            "seed": whole("seed", self.seed, 0),
            "progress_bar": self.progress_bar,
        }

    def _read(self) -> None:
        mean, d = self.posterior_.mean, len(self.release_.centre) - self.intercept
        self.coef_, self.intercept_ = mean[:d], float(mean[d]) if self.intercept else 0.0
        self.features_ = self.release_.features[:d]
        self.guarantee_ = self.release_.guarantee
        self.guarantees_: dict[Unit, Guarantee] = {Unit.TARGET_RECORD: self.guarantee_}
        if self.others_ is not None:
            self.guarantees_[self.others_.guarantee.unit] = self.others_.guarantee

    def interval(self, X: ArrayLike, probability: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Compute central predictive intervals of targets at rows X, a pair of (n,)."""
        self.decision(X)
        rows = self._rows(X, len(self.coef_))
        rows = np.column_stack([rows, np.ones(len(rows))]) if self.intercept else rows
        return self.posterior_.predictive(rows, probability, seed=self.seed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write release, prior and posterior to a NetCDF file, all of it public. Raises ValueError before a fit.

        Of the parameters only ``intercept`` and ``row_bound`` are saved, and no public records are. If no guarantee is proved
        for a release in it, only the file's owner can read it (mode 0600).
        """
        import xarray as xr  # slow to import, with pandas

        if not hasattr(self, "posterior_"):
            raise ValueError("MomentAdaptation: expected a fit before it is saved; call fit(source, target)")
        posterior = self.posterior_
        groups = {
            "release": self.release_.to_xarray(),
            "prior": files.arrays({k: np.asarray(v) for k, v in self.prior_._asdict().items()}),
            "posterior": files.arrays({k: getattr(posterior, k) for k in _DRAWS}, posterior.domains),
            "statistics": files.arrays(posterior.statistics, tuple(posterior.statistics)),
        }
        if self.others_ is not None:
            groups["others"] = self.others_.to_xarray()
        if self.scaling_ is not None:
            groups["scaling"] = files.arrays({k: np.asarray(getattr(self.scaling_, k)) for k in _UNITS})
        tree = xr.DataTree.from_dict(groups)
        tree.attrs = {"intercept": int(self.intercept)}
        if self.row_bound is not None:
            tree.attrs["row_bound"] = self.row_bound
        unproved = any(guarantee.proved is None for guarantee in self.guarantees_.values())
        write_netcdf(tree, path, private=unproved)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MomentAdaptation:
        """Read a file that :meth:`save` wrote, and recompute the guarantee. Raises ValueError for any other file."""
        with files.named("model", path):
            tree = files.tree(path)
            if absent := {"release", "prior", "posterior", "statistics"} - set(tree.children):
                raise ValueError(f"expected the groups that save writes, got none called {sorted(absent)[0]!r}")
            r = tree.attrs.get("row_bound")
            model = cls(row_bound=None if r is None else float(r), intercept=bool(tree.attrs["intercept"]))

            def group(name: str) -> Any:
                return tree[name].to_dataset()

            model.release_ = out = MomentRelease.from_xarray(group("release"))
            model.scaling_ = None
            if "scaling" in tree.children:
                units, _ = files.from_arrays(group("scaling"), _UNITS)
                model.scaling_ = Scaling(
                    out.features,
                    units["centre"],
                    units["scale"],
                    float(units["label_centre"]),
                    float(units["label_scale"]),
                    out.row_bound,
                    model.intercept,
                )
            model.others_ = Release.from_xarray(group("others")) if "others" in tree.children else None
            prior_arrays, _ = files.from_arrays(group("prior"), Prior._fields)
            model.prior_ = Prior(**prior_arrays | {"sigma": float(prior_arrays["sigma"])})  # type: ignore[arg-type]
            draws, domains = files.from_arrays(group("posterior"), _DRAWS)
            statistics, _ = files.from_arrays(group("statistics"), tuple(map(str, group("statistics").data_vars)))
            model.posterior_ = AdaptedPosterior(**draws, domains=domains, statistics=statistics)
            model._read()
        return model

    def _domains(
        self, source: Any, target: Any, *, scaled: bool
    ) -> tuple[dict[Hashable, Domain], Domain, tuple[float, float]]:
        """Return bounded public domains, private records, and the bounds (r, t), from public records; set ``scaling_``."""
        public = {} if source is None or (isinstance(source, dict) and not source) else several(source)
        private = domain("target", target, next((records.num_features for records in public.values()), None))
        for name, each in public.items():
            public[name], private = pair(each, private)
        t = self.target_bound
        self.scaling_: Scaling | None = None
        if not public:
            self._tell_of_no_record()
        elif self.row_bound is None and scaled:
            if t is not None:
                tell_of_cuts(public, None, t)
                public = {name: each.bounded(np.finfo(float).max / 8, t) for name, each in public.items()}
            self._tell_of_few(public)
            self.scaling_ = units = Scaling.of(stacked(public), intercept=self.intercept)
            public = {name: units.scaled(each) for name, each in public.items()}
            t = max(float(np.abs(each.y).max()) for each in public.values()) or 1.0
            return self._bounded(public, units.row_bound, t), units.scaled(private), (units.row_bound, t)
        r = self._row_bound(public)
        tell_of_cuts(public, None if self.row_bound is None else r, t)
        if t is None:
            t = max((float(np.abs(each.y).max()) for each in public.values()), default=1.0) or 1.0
        if self.intercept:
            r = float(np.hypot(r, 1.0))
            private, public = private.with_intercept(), {k: each.with_intercept() for k, each in public.items()}
        return self._bounded(public, r, t), private, (r, t)

    def _row_bound(self, public: Mapping[Hashable, Domain]) -> float:
        """Return r without an intercept. Raises ValueError if it is far too small for the public rows."""
        if self.row_bound is None:
            if not public:
                return 1.0
            lengths = np.linalg.norm(stacked(public).X, axis=1)
            return float(np.quantile(lengths, ROW_QUANTILE)) or 1.0
        longest = max((float(np.linalg.norm(each.X, axis=1).max()) for each in public.values()), default=0.0)
        if self.row_bound < _SHORTEST * longest:
            raise ValueError(f"row_bound: expected at least {_SHORTEST * longest:.3g}, {_SHORTEST:g} of the longest public "
                             f"row, got {self.row_bound!r}; left out, features are scaled")  # fmt: skip
        return float(self.row_bound)

    def _bounded(self, public: Mapping[Hashable, Domain], r: float, t: float) -> dict[Hashable, Domain]:
        return {name: each.bounded(r, t) for name, each in public.items()}

    def _tell_of_few(self, public: Mapping[Hashable, Domain]) -> None:
        every = stacked(public)
        if every.num_records < FEW * every.num_features:
            warnings.warn(
                f"row_bound: scales and bounds are settled on {every.num_records} public records of {every.num_features} "
                "features, which hardly say how long rows are; scale features by what is publicly known, and state row_bound",
                UserWarning,
                stacklevel=4,
            )

    def _tell_of_no_record(self) -> None:
        if absent := [name for name in ("row_bound", "target_bound") if getattr(self, name) is None]:
            warnings.warn(
                f"{' and '.join(absent)}: taken to be 1, as there is no public record to settle on; longer rows are "
                "shortened and larger targets cut, and nobody is told how many. State what is publicly known of their sizes",
                UserWarning,
                stacklevel=4,
            )

    def _check(self, others: Mapping[Hashable, Any], public: Mapping[Hashable, Domain], private: Domain) -> None:
        for name, meaning in ((NONE, "no public domain"), (ALL, "all public records")):
            if name in {*others, *public}:
                raise ValueError(f"source: expected other names than {name!r}, which stands for {meaning}")
        task_prior.check(others, private.features[: private.num_features - self.intercept])

    @property
    def _label_scale(self) -> float:
        return 1.0 if self.scaling_ is None else self.scaling_.label_scale

    def _residuals(self, every: Domain, sigma: float, t: float) -> tuple[float, float | None]:
        """Return the scale of the public residuals, or a substitute, and c; None if c follows from the scale."""
        c = optional(moderate, "residual_bound", self.residual_bound)
        c = None if c is None else c / self._label_scale
        if sigma > (1 + 1e-9) * least_scale(every.y):
            return sigma, c
        if c is None and np.ptp(every.y) <= ROUNDING * float(np.abs(every.y).max()):
            c = t  # constant targets have residuals of rounding errors only
        if c is not None:
            return max(sigma, c / 4), c  # as without public records
        warnings.warn(
            "source: residuals of the public fit are almost zero; larger private ones are clipped, and their size "
            "will not be known. State a residual_bound that is publicly known",
            UserWarning,
            stacklevel=4,
        )
        return sigma, None

    def _settled(
        self, public: dict[Hashable, Domain], n: int, d: int, r: float, t: float
    ) -> tuple[FloatArray, float, Prior]:
        """Return w_0, c and the prior, from public records and sizes alone."""
        if not public:
            flat = r**2 / (2 * d) * np.eye(d)  # assume a mean square of half the squared bound
            scale = t / np.sqrt(np.trace(flat) / d)
            prior = Prior(
                np.zeros((1, d)),
                np.zeros((1, d, d)),
                np.eye(d)[None],
                np.array([scale]),
                t / 4,
                flat,
                np.zeros(1),
                np.zeros(1),
                np.zeros((1, d)),
            )
            return np.zeros(d), t if self.residual_bound is None else self.residual_bound, prior
        every = stacked(public)
        whole_fit = robust(every)
        parts, fits = [every], [whole_fit]
        if len(public) > 1:
            parts = [*public.values(), every]
            fits = [*(robust(each, whole_fit) for each in public.values()), whole_fit]
        moment = every.X.T @ every.X / every.num_records
        width = float(np.sqrt(np.trace(moment) / d)) or r / np.sqrt(2 * d)
        sigma, c = self._residuals(every, min(fit.scale for fit in fits), t)
        widest = max(float(np.sqrt(np.mean(every.y**2))), sigma) / width
        given = optional(moderate, "shift_scale", self.shift_scale)
        if given is not None and given > _WIDEST * widest:
            raise ValueError(f"shift_scale: expected at most {_WIDEST * widest:.3g}, {_WIDEST:g} times the weights that the "
                             f"public targets' size allows, got {given!r}")  # fmt: skip
        domain_scale = shift_scale(sigma, width) if given is None else given
        means = np.stack([*(fit.w for fit in fits), np.zeros(d)])
        covariances = np.stack([*(fit.covariance for fit in fits), np.zeros((d, d))])
        log_odds = np.log([(1 - NONE_BEFORE) / len(fits)] * len(fits) + [NONE_BEFORE])
        shapes, scales = (
            np.broadcast_to(np.eye(d), covariances.shape),
            np.array([domain_scale] * len(fits) + [widest]),
        )
        same = np.array([SAME_BEFORE] * len(fits) + [0.0])
        slopes = np.stack([*(fit.slopes(records) for fit, records in zip(fits, parts, strict=True)), np.zeros(d)])
        prior = Prior(means, covariances, shapes, scales, sigma, moment, log_odds, same, slopes)
        if c is not None:
            if c < _NARROWEST * sigma:
                least = _NARROWEST * sigma * self._label_scale
                raise ValueError(f"residual_bound: expected at least {least:.3g}, {_NARROWEST:g} of the scale of the public "
                                 f"residuals, got {self.residual_bound!r}")  # fmt: skip
            return whole_fit.w, c, prior
        delta = default_delta(n) if self.delta is None else in_range("delta", self.delta, 0, 1)
        return whole_fit.w, clipping_bound(sigma, noise(self.epsilon, delta, d).sd * r / WEIGHT, n, width), prior


@one_thread
def infer(
    release: MomentRelease,
    prior: Prior,
    domains: tuple[Hashable, ...],
    *,
    posterior: str = "conditional",
    draws: int = 300,
    chains: int = 4,
    warmup: int = 300,
    seed: int = 0,
    progress_bar: bool = True,
) -> AdaptedPosterior:
    """Compute the posterior given a release. It is post-processing, and costs no privacy."""
    grid = on_grid(release, prior)
    if posterior == "nuts":
        from mpmtl_prob.adaptation.moments.shift_model import sample  # imports JAX and NumPyro, which only this needs

        samples, statistics = sample(
            release, grid, chains=chains, warmup=warmup, draws=draws, seed=seed, progress_bar=progress_bar
        )
        return AdaptedPosterior(samples["w"], samples["tau"], samples["sigma"], samples["domain"], domains, statistics)
    w, k, tau, sigma = grid.draw(np.random.default_rng(seed), chains * draws)
    return AdaptedPosterior(w, tau, sigma, k, domains, {})


def between(values: FloatArray, probability: float) -> tuple[FloatArray, FloatArray]:
    """Compute central intervals of draws (S, ...), a pair of (...)."""
    tail = (1 - in_range("probability", probability, 0, 1)) / 2
    lower, upper = np.quantile(values, [tail, 1 - tail], axis=0)
    return lower, upper


def _unscaled(posterior: AdaptedPosterior, units: Scaling) -> AdaptedPosterior:
    """Convert the posterior to the units of the table."""
    return replace(posterior, w=units.original(posterior.w), sigma=posterior.sigma * units.label_scale)


def _tell_of_residuals(release: MomentRelease, label_scale: float) -> None:
    """Warn if the release, which is public, shows that private residuals are clipped more than the model can correct."""
    cut_at = release.residual_bound * label_scale
    c2, noise_sd = release.residual_bound**2, np.sqrt(2.0) * release.sd * release.residual_unit**2
    if release.rr - 3 * noise_sd > _CUT * release.num_records * c2:
        warnings.warn(
            "source: private targets are far from what the public fit says: by the release nearly all of their residuals are "
            f"cut at {cut_at:.3g}, and how long they are is not in it. Intervals may be too narrow; another "
            "release needs a residual_bound that is publicly known to fit",
            UserWarning,
            stacklevel=3,
        )
        return
    if release.features[-1] != INTERCEPT or not release.num_records:
        return
    # Compare the mean square of the clipped residuals with their squared mean, and allow for the noise in each.
    n, level = release.num_records, abs(release.xr[-1]) / release.num_records
    level_noise = 3 * release.sd * release.row_bound * release.residual_unit / n
    shift = max(level - level_noise, 0.0)
    if shift > _NEAR * release.residual_bound and shift**2 > _LEVEL * (release.rr + 3 * noise_sd) / n:
        warnings.warn(
            "source: private targets are on another level than the public ones, by about as much as residuals are cut at "
            f"({cut_at:.3g}) or more; the model takes what is cut for symmetric, and overstates the shift. "
            "Intervals are not to be trusted; another release needs a residual_bound several times the shift",
            UserWarning,
            stacklevel=3,
        )


MomentAdaptation.__init__ = former_arguments(sharpness="power")(MomentAdaptation.__init__)  # type: ignore[method-assign]

__getattr__ = former_names(__name__, {"OneRelease": "MomentAdaptation"})
