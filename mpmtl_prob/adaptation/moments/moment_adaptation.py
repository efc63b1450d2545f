"""Adaptation by one release: a public fit, one noisy second moment of the target's records, and Bayes.

It is no algorithm of the paper; at the same budget it beats the paper's, and has nothing to tune on private records.
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
from mpmtl_prob._util.former import former_names
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

#: the domain of targets that resemble no public one
NONE = "none"
#: the domain of all public records together
ALL = "all"
_DRAWS = ("w", "tau", "sigma", "domain")
_UNITS = ("centre", "scale", "label_centre", "label_scale")
#: Beyond these the posterior's arithmetic has no digits left, which must not be found out when the release is paid for: the
#: scale of shifts and the cut of residuals, in units of the public records'; the bound of rows, of the longest public one.
_WIDEST, _NARROWEST, _SHORTEST = 1e3, 0.2, 1e-6
#: of n c^2, rho'rho from which on nearly all residuals are cut: of normal ones twenty times as long as c it is .973
_CUT = 0.97
#: of their mean square, the square of their mean from which on a shift of level is taken for a larger one
_LEVEL = 0.6
_NEAR = 0.65  # of the cut, a mean of cut residuals beyond which many of them were cut on one side


@dataclass(frozen=True, eq=False)
class AdaptedPosterior:
    """What anybody who reads the release knows of the target: draws from the posterior. Public.

    Attributes:
        w: weights, (S, d).
        tau: how far they are from the domain that they resemble, (S,); of weights in the units of the release.
        sigma: of a target's noise, (S,).
        domain: index of the domain, (S,).
        domains: names of the public domains, and "none"; one name may stand for several.
        statistics: of the sampler, (chain, draw); empty where there was none.
    """

    w: FloatArray
    tau: FloatArray
    sigma: FloatArray
    domain: FloatArray
    domains: tuple[Hashable, ...]
    statistics: dict[str, FloatArray]

    @property
    def mean(self) -> FloatArray:
        """Of w, (d,)."""
        return self.w.mean(axis=0)

    @property
    def domain_weights(self) -> dict[Hashable, float]:
        """P(k | release): which public domain the private records resemble, or none."""
        counts, found = (
            np.bincount(self.domain.astype(int), minlength=len(self.domains)),
            dict.fromkeys(self.domains, 0.0),
        )
        for name, count in zip(self.domains, counts, strict=True):
            found[name] += float(count / len(self.w))
        return found

    def interval(self, probability: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central intervals of the weights, a pair of (d,)."""
        return between(self.w, probability)

    def predictive(self, X: ArrayLike, probability: float = 0.9, *, seed: int = 0) -> tuple[FloatArray, FloatArray]:
        """Central intervals of targets at rows X, a pair of (n,).

        Args:
            X: an array (n, d), its columns in the order of w, the intercept's among them. :meth:`MomentAdaptation.interval`
                takes a table, whose columns it finds by name.
            probability: of an interval.
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
    """Regression on a private target that starts from public domains, with intervals and the domains' posterior weights.

    Attributes:
        epsilon: the budget.
        delta: default 1 / n^1.1.
        posterior: "conditional", in any dimension (0.03 CPU seconds at d = 8, 0.4 at 30, 40 at 100); or "nuts", the whole
            model, for at most 30 features.
        residual_bound: c, in the units of the table; default 1.5 to 2.5 times the scale of the public residuals, by how loud
            the noise is.
        shift_scale: median of tau, in units of the release's weights; default where the shift explains four times as
            much as noise does: less would say of larger shifts that they are unlikely, and miss them where n is small.
        power: p of other tasks' Omega^p, as in :func:`mpmtl_prob.inference.task_posteriors`; 1 takes their messages for
            their weights, default learnt.
        row_bound: r, public: longer rows are shortened. Default: features and targets of any size are scaled by means and sd
            of the public records, and r is the 99 % quantile of their lengths then. A number is in the units of the table,
            which is left as it is, and so is the 99 % quantile where ``source`` holds other tasks too.
        intercept: a last feature that is 1; the bound of a row with it is sqrt(r^2 + 1).
        target_bound: of the targets' sizes, public, in the units of the table; default that of the public ones. It is c where
            there is no public record.
        draws: kept per chain; "conditional" has as many in all, and independent.
        chains: run side by side.
        warmup: of a chain.
        ledger: of unit "target record", pays, on disk, before noise is drawn.
        unsafe_seed: draws the noise from this seed, for demonstrations: nothing is then guaranteed.
        seed: of the draws.
        progress_bar: of the sampler.

    A fit has ``release_`` (public), ``posterior_``, ``coef_`` and ``intercept_`` (its mean), ``guarantee_`` of the target's
    records, ``guarantees_`` by unit, that of other tasks' covariance too, ``source_``, ``prior_`` and ``others_``. With an
    intercept it is the last of the posterior's weights. Weights are in the units of the table; ``release_``, ``prior_`` and
    ``source_`` are in those of ``scaling_``, which is public, and whose ``scaled`` brings other records there, or in those of
    the table where it is None.

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

    def fit(self, source: Any, target: Any) -> Self:
        """Fit to public domains and a private target.

        Args:
            source: a Domain or a pair (X, y); the posterior of a covariance that other, private tasks share
                (:func:`mpmtl_prob.inference.shared_covariance`); several by name; or None.
            target: private, a Domain or a pair.

        Raises:
            BudgetExceeded: the ledger's total does not cover it.
            ValueError: an argument outside its range, or data that do not go together. Nothing was charged.
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
            next((each.release for each in others.values()), None),
        )
        with attach_paid_release(self.release_):
            for name, shared in others.items():
                self.prior_, nodes = task_prior.beside(
                    self.prior_, shared, self.release_,
                    power=self.power, intercept=self.intercept, target_bound=bounds[1],
                )  # fmt: skip
                names += [name] * nodes
            found = infer(self.release_, self.prior_, (*names, NONE), **sampling)
        self.posterior_ = found if self.scaling_ is None else _unscaled(found, self.scaling_)
        _tell_of_residuals(self.release_, self._label_scale)
        self._read()
        return self

    def _sampling(self) -> dict[str, Any]:
        """What :func:`infer` is told. Raises ValueError for arguments that would end a fit after it is paid for."""
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
        """Central intervals of targets at rows X, a pair of (n,)."""
        self.decision(X)
        rows = self._rows(X, len(self.coef_))
        rows = np.column_stack([rows, np.ones(len(rows))]) if self.intercept else rows
        return self.posterior_.predictive(rows, probability, seed=self.seed)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write release, prior and posterior to a NetCDF file: all of it public. Raises ValueError before a fit.

        Of the parameters only ``intercept`` and ``row_bound`` are kept, and no public record.
        Where nothing is proved of a release in it, the file is for its owner alone (mode 0600).
        """
        import xarray as xr  # with pandas, nearly a second to import

        if not hasattr(self, "posterior_"):
            raise ValueError("MomentAdaptation: expected a fit before it is saved; call fit(source, target)")
        found = self.posterior_
        groups = {
            "release": self.release_.to_xarray(),
            "prior": files.arrays({k: np.asarray(v) for k, v in self.prior_._asdict().items()}),
            "posterior": files.arrays({k: getattr(found, k) for k in _DRAWS}, found.domains),
            "statistics": files.arrays(found.statistics, tuple(found.statistics)),
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
        """Read what :meth:`save` wrote; the guarantee is worked out anew. Raises ValueError for a file of something else."""
        with files.named("model", path):
            tree = files.tree(path)
            if absent := {"release", "prior", "posterior", "statistics"} - set(tree.children):
                raise ValueError(f"expected the groups that save writes, got none called {sorted(absent)[0]!r}")
            r = tree.attrs.get("row_bound")
            model = cls(row_bound=None if r is None else float(r), intercept=bool(tree.attrs["intercept"]))
            group = lambda name: tree[name].to_dataset()
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
            held, _ = files.from_arrays(group("prior"), Prior._fields)
            model.prior_ = Prior(**held | {"sigma": float(held["sigma"])})  # type: ignore[arg-type]
            draws, domains = files.from_arrays(group("posterior"), _DRAWS)
            statistics, _ = files.from_arrays(group("statistics"), tuple(map(str, group("statistics").data_vars)))
            model.posterior_ = AdaptedPosterior(**draws, domains=domains, statistics=statistics)
            model._read()
        return model

    def _domains(
        self, source: Any, target: Any, *, scaled: bool
    ) -> tuple[dict[Hashable, Domain], Domain, tuple[float, float]]:
        """Public domains, bounded, the private records, and (r, t) of both; ``scaling_`` is set. Of public records alone."""
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
        """r without an intercept. Raises ValueError for one next to which public rows are endless."""
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
        """Scale of the public residuals, or what stands in for it, and c where it does not follow from that."""
        c = optional(moderate, "residual_bound", self.residual_bound)
        c = None if c is None else c / self._label_scale
        if sigma > (1 + 1e-9) * least_scale(every.y):
            return sigma, c
        if c is None and np.ptp(every.y) <= ROUNDING * float(np.abs(every.y).max()):
            c = t  # of targets that never vary, residuals are the fit's own doing, and say nothing
        if c is not None:
            return max(sigma, c / 4), c  # as where there is no public record
        warnings.warn(
            "source: residuals of the public fit are next to nothing; private ones that are longer are cut, and how long "
            "they are will not be known. State a residual_bound that is publicly known",
            UserWarning,
            stacklevel=4,
        )
        return sigma, None

    def _settled(
        self, public: dict[Hashable, Domain], n: int, d: int, r: float, t: float
    ) -> tuple[FloatArray, float, Prior]:
        """w_0, c and the prior, of public records and sizes alone."""
        if not public:
            flat = r**2 / (2 * d) * np.eye(d)  # rows half as long as they may be
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
        far = max(float(np.sqrt(np.mean(every.y**2))), sigma) / width
        wanted = optional(moderate, "shift_scale", self.shift_scale)
        if wanted is not None and wanted > _WIDEST * far:
            raise ValueError(f"shift_scale: expected at most {_WIDEST * far:.3g}, {_WIDEST:g} times the weights that the "
                             f"public targets' size allows, got {wanted!r}")  # fmt: skip
        near = shift_scale(sigma, width) if wanted is None else wanted
        means = np.stack([*(fit.w for fit in fits), np.zeros(d)])
        covariances = np.stack([*(fit.covariance for fit in fits), np.zeros((d, d))])
        log_odds = np.log([(1 - NONE_BEFORE) / len(fits)] * len(fits) + [NONE_BEFORE])
        shapes, scales = np.broadcast_to(np.eye(d), covariances.shape), np.array([near] * len(fits) + [far])
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
    """The posterior of a release: post-processing, as often as anybody likes."""
    grid = on_grid(release, prior)
    if posterior == "nuts":
        from mpmtl_prob.adaptation.moments.shift_model import sample  # JAX and NumPyro, which nothing else here needs

        found, statistics = sample(
            release, grid, chains=chains, warmup=warmup, draws=draws, seed=seed, progress_bar=progress_bar
        )
        return AdaptedPosterior(found["w"], found["tau"], found["sigma"], found["domain"], domains, statistics)
    w, k, tau, sigma = grid.draw(np.random.default_rng(seed), chains * draws)
    return AdaptedPosterior(w, tau, sigma, k, domains, {})


def between(values: FloatArray, probability: float) -> tuple[FloatArray, FloatArray]:
    """Central intervals of draws (S, ...), a pair of (...)."""
    tail = (1 - in_range("probability", probability, 0, 1)) / 2
    lower, upper = np.quantile(values, [tail, 1 - tail], axis=0)
    return lower, upper


def _unscaled(found: AdaptedPosterior, units: Scaling) -> AdaptedPosterior:
    """The posterior in the units of the table."""
    return replace(found, w=units.original(found.w), sigma=found.sigma * units.label_scale)


def _tell_of_residuals(release: MomentRelease, label_scale: float) -> None:
    """Warn where the release itself, which is public, says that private residuals are cut as the model does not know."""
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
    # the residuals' mean square beside the square of their mean, both as they were cut, and the noise in each
    n, level = release.num_records, abs(release.xr[-1]) / release.num_records
    unsure = 3 * release.sd * release.row_bound * release.residual_unit / n
    shift = max(level - unsure, 0.0)
    if shift > _NEAR * release.residual_bound and shift**2 > _LEVEL * (release.rr + 3 * noise_sd) / n:
        warnings.warn(
            "source: private targets are on another level than the public ones, by about as much as residuals are cut at "
            f"({cut_at:.3g}) or more; the model takes what is cut for symmetric, and overstates the shift. "
            "Intervals are not to be trusted; another release needs a residual_bound several times the shift",
            UserWarning,
            stacklevel=3,
        )


__getattr__ = former_names(__name__, {"OneRelease": "MomentAdaptation"})
