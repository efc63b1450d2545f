"""The public seat of a mixed model: from a release of messages of effects to average effects and the spread between tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import fraction, in_range, one_of, positive
from mpmtl_prob.data.cells import file_name
from mpmtl_prob.data.covariates import Covariates, grouped, standardised
from mpmtl_prob.data.units import Units
from mpmtl_prob.inference.public.effects_draws import KEPT, kept, start_of, watched_of
from mpmtl_prob.inference.public.posterior import Chains, PublicPosterior, check_sampling
from mpmtl_prob.models.effects import (
    CovariateGroups,
    EffectsPrior,
    EffectsRelease,
    model_of,
)
from mpmtl_prob.releases.effects import EffectsLayout
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.chains import Draws
from mpmtl_prob.sampling.diagnostics import ESS_PER_CHAIN, Diagnosis, Remedies, diagnose, diagnose_weights
from mpmtl_prob.sampling.nuts import WARMUP, kernel
from mpmtl_prob.sampling.runs import Sampling, Until
from mpmtl_prob.sampling.weighted import Weights, weighted_draws

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

#: Units of tables, as ``attrs["units"]`` says them; and the head of those without reference values, which says it in print.
TABLE_UNITS = "of the table"
OWN_UNITS = "standard deviations of each task's own rows"
PER_OWN_SD = "per sd of own rows"
STRUCTURES = ("full", "diagonal", "group_sparse", "low_rank")
SAMPLERS = ("nuts", "weighted")
#: What step sizes aim at, as of :func:`shared_covariance`.
_ACCEPTANCE = 0.9
_REMEDIES = Remedies(
    "Call shared_effects with more draws, or a longer warmup.",
    lambda more, draws: f"shared_effects(..., draws={more + draws}) should do.",
    "Call shared_effects with a longer warmup, or with structure='diagonal'.",
    "call shared_effects with a longer warmup.",
)
#: Groups of the tree that hold further releases.
_OTHER = "other_release_"
#: A posterior whose standard deviations are at least this share of the prior's says so.
_SAYS_LITTLE = 0.8


@dataclass(frozen=True, eq=False, repr=False)
class SharedEffects(PublicPosterior[str]):
    """Posterior of tasks' average effects and their spread given a release. Computed from public things alone, and public.

    Attributes:
        release: what it conditions on.
        structure: of Omega, one of those of :func:`shared_effects`.
        prior: of average effects and spread.
        others: further releases that it conditions on, of other tasks.
        seconds: wall-clock time of the sampling.
        sampler: which the draws are of, "nuts" or "weighted".
        weights: what those of weighted points say of themselves, where they were asked for; None where they were not.
    """

    prior: EffectsPrior = field(kw_only=True)
    others: tuple[Release, ...] = field(default=(), kw_only=True)
    sampler: str = field(default="nuts", kw_only=True)
    weights: Weights | None = field(default=None, kw_only=True)

    _held = "posterior of effects"
    _groups = _drawn = ("posterior", "sample_stats", "log_prior", "log_likelihood")

    @property
    def layout(self) -> EffectsLayout:
        """Layout of the release's messages."""
        return layout_of(self.release)

    @property
    def coefficients(self) -> tuple[Hashable, ...]:
        """Names of the effects, d of them."""
        return self.layout.coefficients

    @property
    def releases(self) -> tuple[Release, ...]:
        return (self.release, *self.others)

    @property
    def num_tasks(self) -> int:
        """Tasks in all releases together."""
        return sum(each.num_tasks for each in self.releases)

    @cached_property
    def units(self) -> Units:
        """Units of the effects: the reference's; without one those of every task's own rows, which are not told."""
        d = len(self.coefficients)
        if self.layout.reference is None:
            return Units(np.zeros(d), np.ones(d), 0.0, 1.0, np.zeros(d))
        return self.layout.reference.units(self.coefficients)

    @property
    def omega(self) -> FloatArray:
        """Posterior mean of the shape of the effects' covariance between tasks, scaled to mean variance 1, (d, d).

        Effects are in common units, in which :meth:`subspace` compares them too; an intercept is one of them.
        """
        Omega = self.draws("Omega")
        return np.mean(Omega / np.trace(Omega, axis1=-2, axis2=-1)[:, None, None] * Omega.shape[-1], axis=0)

    @property
    def _varying(self) -> Sequence[Hashable]:
        return self.coefficients

    def average_effects(self, probability: float = 0.9) -> pd.DataFrame:
        """Table of average effects over tasks, a row per effect.

        Effects are in the units of the table: the change of the target for one unit of the column. The intercept is the
        target where every column is at its reference's centre. Without a reference effects are per standard deviation of
        each task's own rows (root mean square, of tasks without intercept), of the column and of the target: so say the
        head of the table and, of every table, ``attrs["units"]``. Where effects differ with covariates, averages are of tasks
        whose covariates are at their centres, and ``tau`` is what covariates leave.

        Columns are ``mean``, ``sd``, ``lower`` and ``upper`` of the average effect; ``positive``, the probability that it
        is above zero; ``tau``, the standard deviation of the effect between tasks, with its interval; ``i2``, the share of
        the variance of tasks' own estimates that is between tasks, and not error of estimation.

        Args:
            probability: of central intervals.
        """
        return self._table(np.eye(len(self.coefficients)), list(self.coefficients), probability)

    def contrasts(self, weights: Mapping[str, Mapping[Hashable, float]], probability: float = 0.9) -> pd.DataFrame:
        """Table of weighted sums of average effects, as :meth:`average_effects`.

        Args:
            weights: of every contrast by its name, weights of effects by theirs, such as
                ``{"old against young": {"age 80+": 1, "age 50-": -1}}``.
            probability: of central intervals.

        Raises:
            ValueError: a name that is no effect's, or a weight that is not finite.
        """
        if not isinstance(weights, Mapping) or not all(isinstance(parts, Mapping) for parts in weights.values()):
            raise ValueError(
                "weights: expected a mapping from every contrast to weights by effect, such as {'a less b': {'a': 1}}"
            )
        rows, known = np.zeros((len(weights), len(self.coefficients))), list(self.coefficients)
        for i, (name, parts) in enumerate(weights.items()):
            for effect, weight in parts.items():
                if effect not in known:
                    raise ValueError(f"weights: {name!r}: expected names of effects {known}, got {effect!r}")
                if isinstance(weight, str) or not np.isfinite(weight):
                    raise ValueError(f"weights: {name!r}: expected finite numbers, got {weight!r}")
                rows[i, known.index(effect)] = weight
        return self._table(rows, list(weights), probability).drop(columns="i2")

    def covariate_slopes(self, probability: float = 0.9) -> pd.DataFrame:
        """Table of how average effects change with tasks' covariates, a row per effect and covariate.

        Units are the table's: the change of the effect for one unit of the covariate. Columns are ``mean``, ``sd``,
        ``lower``, ``upper`` and ``positive`` as of :meth:`average_effects`.

        Args:
            probability: of central intervals.

        Raises:
            ValueError: a release without covariates.
        """
        import pandas as pd

        low, high = _tails(probability)
        units, d = self._covariate_units, len(self.coefficients)
        scale = per_table_unit(self.units)[:, None] / np.array([scale for _, scale in units.values()])
        slopes = (self.draws("slopes") * scale).reshape(-1, d * len(units))
        lower, upper = np.quantile(slopes, [low, high], axis=0)
        columns = {"mean": slopes.mean(axis=0), "sd": slopes.std(axis=0), "lower": lower, "upper": upper}
        index = pd.MultiIndex.from_product([list(self.coefficients), list(units)], names=["effect", "covariate"])
        return self._in_units(pd.DataFrame(columns | {"positive": (slopes > 0).mean(axis=0)}, index=index))

    @property
    def _covariate_units(self) -> Mapping[Hashable, tuple[float, float]]:
        """Centre and scale of every covariate of tasks."""
        if self.layout.covariates is None or self.layout.reference is None:
            raise ValueError(
                "covariates: expected a release with covariates of tasks, got one without; make one with "
                "mpmtl_prob.release(tasks, epsilon, reference=mp.Reference(..., covariates=...), covariates=table)"
            )
        return self.layout.reference.covariates

    def new_task(self, probability: float = 0.9, *, covariates: Mapping[Hashable, float] | None = None) -> pd.DataFrame:
        """Table of the effects of a task that is not in the release: their predictive law, N(mu, Omega) over all draws.

        Args:
            probability: of central intervals.
            covariates: of the task, such as ``{"beds": 300}``, where effects differ with them; default their centres.

        Raises:
            ValueError: other covariates than the release's.
        """
        import pandas as pd

        low, high = _tails(probability)
        mu, Omega = self.draws("mu"), self.draws("Omega")
        if covariates is not None:
            units = self._covariate_units
            if not isinstance(covariates, Mapping) or set(map(file_name, covariates)) != set(units):
                got = list(covariates) if isinstance(covariates, Mapping) else type(covariates).__name__
                raise ValueError(f"covariates: expected one number of each of {list(units)}, got {got}")
            (own,) = standardised(
                Covariates.of_table({"the new task": covariates}, tuple(units)).of(["the new task"]), units
            )
            mu = mu + self.draws("slopes") @ own[1:]
        z = np.random.default_rng(0).standard_normal(mu.shape)
        effects = in_table(mu + np.einsum("sij,sj->si", np.linalg.cholesky(Omega), z), self.units)
        lower, upper = np.quantile(effects, [low, high], axis=0)
        columns = {"mean": effects.mean(axis=0), "sd": effects.std(axis=0), "lower": lower, "upper": upper}
        return self._in_units(pd.DataFrame(columns, index=pd.Index(list(self.coefficients), name="effect")))

    def _in_units(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table, which says in which units it is."""
        table.attrs["units"] = self.units_in_words
        if self.layout.reference is None:
            table.columns.name = PER_OWN_SD
        return table

    @property
    def units_in_words(self) -> str:
        """Units of average effects: of the table, or standard deviations of each task's own rows."""
        return OWN_UNITS if self.layout.reference is None else TABLE_UNITS

    def _table(self, weights: FloatArray, names: list[Any], probability: float) -> pd.DataFrame:
        import pandas as pd

        low, high = _tails(probability)
        effects = in_table(self.draws("mu"), self.units) @ weights.T
        scale = per_table_unit(self.units)
        Omega = self.draws("Omega") * scale[:, None] * scale
        between = np.einsum("cj,sjk,ck->sc", weights, Omega, weights)
        tau = np.sqrt(between)
        p = 1 / (1 + np.exp(-self.draws("determined")))
        # of an unbiased estimate, c v (1 - p) / p
        error = self.draws("errors")[:, None] * self.layout.effect_variance * (1 - p) / p * scale**2
        lower, upper = np.quantile(effects, [low, high], axis=0)
        tau_lower, tau_upper = np.quantile(tau, [low, high], axis=0)
        columns = {
            "mean": effects.mean(axis=0),
            "sd": effects.std(axis=0),
            "lower": lower,
            "upper": upper,
            "positive": (effects > 0).mean(axis=0),
            "tau": tau.mean(axis=0),
            "tau_lower": tau_lower,
            "tau_upper": tau_upper,
            "i2": (between / (between + error @ (weights**2).T)).mean(axis=0),
        }
        return self._in_units(pd.DataFrame(columns, index=pd.Index(names, name="effect")))

    def to_arviz(self) -> xr.DataTree:
        """A DataTree with groups ``posterior``, ``sample_stats``, ``log_prior``, ``log_likelihood`` and ``release``.

        ``posterior`` holds, in common units over (chain, draw, effect), ``mu``, the average effects less what the reference
        says of them; ``tau``, the standard deviations between tasks; ``determined``, the logit of how far a task's rows
        determine an effect; ``Omega`` over (effect, effect_other); with covariates of tasks ``slopes`` over (effect,
        covariate), of one of their scales; and in the table's units ``average_effect``. The groups
        ``log_prior`` and ``log_likelihood`` are what ``arviz_stats.psense_summary`` reads: is it the prior or the release
        that decides?
        """
        return self._tree.copy(deep=True)  # what is done to the tree is not done to the posterior

    def sensitivity(self) -> pd.DataFrame:
        """Table of how far average effects and spread depend on their prior, and on the release.

        Power scaling: what the posterior would be were the prior, or the likelihood, a little stronger or weaker. Values
        above .05 are a dependence that one sees.

        Source: Kallioinen et al. (2024), Statistics and Computing 34.
        """
        from arviz_stats import psense_summary

        names = ["mu", "tau"] if self.layout.covariates is None else ["mu", "slopes", "tau"]
        return psense_summary(self.to_arviz(), var_names=names)

    def diagnose(self) -> Diagnosis:
        """r-hat and effective sample sizes, what they mean, and what the release says, in words.

        Judged are average effects, the size of the spread and the accuracy of estimates; of weighted points the weights.
        """
        if self.weights is not None and self.sampler == "weighted":
            return diagnose_weights(*self.weights[:3], remarks=[self.says()])
        posterior = self._tree["posterior"].to_dataset()
        judged = {
            "average effects": posterior["mu"].values,
            "spread": np.log(np.trace(posterior["Omega"].values, axis1=-2, axis2=-1)),
            "accuracy": posterior["determined"].values.mean(axis=-1),
        }
        if "slopes" in posterior:
            judged["slopes"] = posterior["slopes"].values
        statistics = {str(k): v.values for k, v in self._tree["sample_stats"].to_dataset().items()}
        remarks = [] if self.weights is None else [f"NUTS, as weighted points would not do: {self.weights}."]
        return diagnose(judged, statistics, remedies=_REMEDIES, remarks=[*remarks, self.says()])

    def says(self) -> str:
        """Say in words how much the release tells of average effects: their intervals against those before it."""
        before = self.prior.average / np.sqrt(len(self.coefficients))  # of a length that is half-normal
        ratio = float(np.sqrt(self.draws("mu").var(axis=0).mean()) / before)
        if ratio >= _SAYS_LITTLE:
            return (
                f"The release says next to nothing of average effects: intervals are {ratio:.0%} as wide as before it. "
                "Owners rely on their own rows."
            )
        return f"Before the release, intervals of average effects were {1 / ratio:.2g} times as wide."

    def settings(self) -> dict[str, Any]:
        """The structure, the prior, and where weighted points were asked for what they said of themselves."""
        weights = {} if self.weights is None else {"sampler": self.sampler, "weights": list(map(float, self.weights))}
        return {"structure": self.structure, "prior": [float(value) for value in self.prior], **weights}

    @classmethod
    def from_tree(cls, tree: xr.DataTree) -> Self:
        """The posterior of a tree as :meth:`save` wrote it. Raises KeyError, TypeError or ValueError for another tree."""
        structure = one_of("structure", str(tree.attrs["structure"]), STRUCTURES)
        prior = EffectsPrior(*(float(value) for value in tree.attrs["prior"]))
        release, own = cls._own_tree(tree, structure)
        stored = [tree.children[name] for name in tree.children if name.startswith(_OTHER)]
        others = tuple(Release.from_xarray(each.to_dataset()) for each in stored)
        for number, each in enumerate(stored):
            own[f"{_OTHER}{number}"] = each.copy()
        checked_releases([release, *others])
        sampler, weights = one_of("sampler", str(tree.attrs.get("sampler", "nuts")), SAMPLERS), None
        if "weights" in tree.attrs:
            khat, ess, points, far_out = map(float, tree.attrs["weights"])
            weights = Weights(khat, ess, int(points), far_out)
        seconds = float(tree.attrs["seconds"])
        return cls(release, structure, seconds, own, prior=prior, others=others, sampler=sampler, weights=weights)

    def __repr__(self) -> str:
        sizes = self._tree.children["posterior"].sizes
        return (
            f"SharedEffects({len(self.coefficients)} effects of {self.num_tasks} tasks, {sizes['chain']} chains of "
            f"{sizes['draw']} draws, {self.seconds:.3g} s)\n  {self.guarantee}"
        )

    def _facts(self) -> Mapping[str, object]:
        return {
            "effects": ", ".join(map(str, self.coefficients)),
            "tasks": self.num_tasks,
            **({"releases": len(self.releases)} if self.others else {}),
            "seat": self.seat,
        }


def shared_effects(
    release: Release | Sequence[Release],
    *,
    structure: str = "full",
    prior: EffectsPrior | None = None,
    chains: int = 4,
    warmup: int = WARMUP,
    draws: int | None = None,
    until: Until | None = None,
    seed: int = 0,
    progress_bar: bool = True,
    sampler: str = "nuts",
) -> SharedEffects:
    """Sample average effects, their spread between tasks and the accuracy of tasks' estimates given releases.

    Args:
        release: of messages of effects: ``mpmtl_prob.release(tasks, epsilon, reference=...)``; or several, that of the owners
            first, of the same columns and reference values: another consortium's, or next year's. Every task in them counts
            as one of its own: where the same tasks are in two of them, average effects have an interval as of twice as many
            tasks, which is too narrow where the spread between tasks is large beside the noise.
        structure: of the covariance between tasks:

            - "full": effects may go together, and differ in size.
            - "diagonal": they do not go together.
            - "group_sparse": nor do they, and few of them differ between tasks by much.
            - "low_rank": tasks differ along a few directions, above a floor.
        prior: of average effects, spread and accuracy; default :class:`EffectsPrior`. :meth:`SharedEffects.sensitivity`
            says how much of the result it is.
        chains: number of chains.
        warmup: iterations of adaptation per chain.
        draws: kept iterations per chain; default 300, or as many as ``until`` takes, up to 10 000.
        until: stop as soon as there are enough, of average effects and the size of the spread.
        seed: of the sampler. The result is a function of the arguments.
        progress_bar: show one, in effective draws.
        sampler: "nuts"; or "weighted", points of a normal law that is fitted to the posterior, as often as that asks: in less
            time, most of it compilation. Their weights say how far they are to be trusted, and where they say no, NUTS
            takes their place. :attr:`SharedEffects.sampler` says which it was.

    Raises:
        ValueError: a release of other messages, ``until`` with weighted points, or an argument outside its range.
        KeyboardInterrupt: during warm-up. Later an interrupt ends the run with a warning, and what was drawn is returned.

    Model: :func:`mpmtl_prob.models.random_effects`.

    >>> train, test, W = mp.datasets.synthetic_low_rank(num_tasks=40, num_features=3, rows=10)
    >>> release = mp.release(train, epsilon=1.0, reference=mp.Reference.standard(3))
    >>> shared = mp.inference.shared_effects(release, chains=2, warmup=200, draws=200, progress_bar=False)
    >>> shared.average_effects().columns.to_list()
    ['mean', 'sd', 'lower', 'upper', 'positive', 'tau', 'tau_lower', 'tau_upper', 'i2']
    """
    own, others = checked_releases(release)
    one_of("structure", structure, STRUCTURES)
    checked = check_prior(EffectsPrior() if prior is None else prior)
    begin, most = time.perf_counter(), check_sampling(chains, warmup, draws, seed, until)
    seen = observed_effects(own, checked)
    given = (seen, tuple(observed_effects(each, checked) for each in others))
    start = start_of(seen, structure, given[1])
    weights = None

    def posterior(
        drawn: Draws,
        statistics: Draws,
        seconds: float,
        extend: Callable[..., SharedEffects] | None,
        sampler: str = "nuts",
    ) -> SharedEffects:
        import xarray as xr  # with pandas, nearly a second to import

        tree = _as_tree(own, drawn, statistics)
        for number, each in enumerate(others):
            tree[f"{_OTHER}{number}"] = xr.DataTree(each.to_xarray())
        tree.attrs |= {"seat": SharedEffects.seat, "structure": structure}
        return SharedEffects(
            own, structure, seconds, tree, extend, prior=checked, others=others, sampler=sampler, weights=weights
        )

    if one_of("sampler", sampler, SAMPLERS) == "weighted":
        if until is not None:
            raise ValueError("until: expected none with sampler='weighted', which knows when it has enough, got one")
        wanted = ESS_PER_CHAIN * int(chains)
        with jax.enable_x64(True):
            drawn, weights = weighted_draws(
                model_of(structure), given, start=start, keep=KEPT, shape=(int(chains), most), wanted=wanted, seed=seed
            )
        if weights.bear(wanted):
            statistics = {"lp": drawn.pop("lp")}
            return posterior(drawn, statistics, time.perf_counter() - begin, None, "weighted")
    run = Sampling(kernel(model_of(structure), _ACCEPTANCE), given, int(warmup), watched=watched_of, keep=kept)
    return Chains(run, True, posterior).start(int(chains), seed, start, most, until, progress_bar, begin)


def checked_releases(given: Any) -> tuple[Release, tuple[Release, ...]]:
    """Return the owners' release and others. Raises ValueError for what are no releases of the same effects, in one unit."""
    release, *others = given if isinstance(given, list | tuple) and given else [given]
    for each in (release, *others):
        if not isinstance(each, Release):
            raise ValueError(
                f"release: expected a Release, got {type(each).__name__}; make one with mpmtl_prob.release"
            )
    layout = layout_of(release)
    for number, each in enumerate(others, 2):
        other = layout_of(each)
        same = (other.coefficients, other.reference) == (layout.coefficients, layout.reference)
        if not same or other.coordinates != layout.coordinates:
            raise ValueError(
                f"release: expected the effects {list(layout.coefficients)} in the same units in all releases, got others in "
                f"release {number}; their columns and reference values have to be the same"
            )
    return release, tuple(others)


def layout_of(release: Release) -> EffectsLayout:
    """The layout of a release's messages. Raises ValueError for a release that has no average effects in it."""
    if release.effects is None:
        raise ValueError(
            f"release: expected one of messages of effects, which holds average effects, got message={release.message!r}; "
            "make one with mpmtl_prob.release(tasks, epsilon, reference=...) or message='effects'"
        )
    return release.effects


def check_prior(prior: EffectsPrior) -> EffectsPrior:
    """The prior in numbers. Raises ValueError for one outside its range."""
    if not isinstance(prior, EffectsPrior):
        raise ValueError(f"prior: expected an EffectsPrior, got {type(prior).__name__}")
    return EffectsPrior(
        positive("prior: average", prior.average),
        positive("prior: spread", prior.spread),
        in_range("prior: spread_factor", prior.spread_factor, 1, np.inf),
        fraction("prior: correlation", prior.correlation),
        fraction("prior: determined", prior.determined),
        positive("prior: slope", prior.slope),
        positive("prior: errors", prior.errors),
    )


def observed_effects(release: Release, prior: EffectsPrior | None = None) -> EffectsRelease:
    """A release of messages of effects, as :func:`mpmtl_prob.models.random_effects` reads it.

    Args:
        release: of messages of effects.
        prior: default :class:`EffectsPrior`.

    Raises:
        ValueError: a release of other messages.
    """
    layout, law = layout_of(release), release.mechanisms[-1]
    d, m, sigma = len(layout.coefficients), float(release.num_tasks), release.sigma[-1] - law.mean
    noise = law.variance / 2
    checked = EffectsPrior() if prior is None else prior
    if layout.covariates is not None:
        return _observed_with_covariates(layout, sigma, m, noise, checked)
    # the last column over the last entry is the mean of g eta, as far as noise lets it be seen
    column, one = sigma[-1], float(np.clip(sigma[-1, -1], 0.15 * m, 0.9 * m))
    start = column[:d] / one / layout.effect_size
    scale = np.sqrt(noise) / (one * layout.effect_size) + 0.3 / np.sqrt(m * d)
    start *= max(0.0, 1 - d * scale**2 / max(float(start @ start), 1e-12)) if d > 2 else 1.0  # James and Stein
    return EffectsRelease(
        sigma, m, noise, layout.averages, layout.effect_size, layout.determined_size, layout.effect_variance, start, scale,
        checked,
    )  # fmt: skip


def _observed_with_covariates(
    layout: EffectsLayout, sigma: FloatArray, m: float, noise: float, prior: EffectsPrior
) -> EffectsRelease:
    """Do as :func:`observed_effects`, for tasks with covariates z."""
    Z, d = layout.z, len(layout.coefficients)
    number = Z.shape[1]
    # the last columns over their last rows are g eta's regression on z. Those rows are the sum of z z' / |u|^2: it is noisy,
    # and here made of z, which is public, and of one number, how much longer u is than z, by the noisy sum of |z|^2 / |u|^2
    longer, squares = np.geomspace(0.1, 6.0, 60), (Z**2).sum(axis=1)
    share = (squares / (squares + longer[:, None])).sum(axis=1)
    weight = 1 / (squares + longer[np.abs(share - np.trace(sigma[-number:, -number:])).argmin()])
    inverse = np.linalg.inv((Z.T * weight) @ Z)
    start = sigma[:d, -number:] @ inverse / layout.effect_size
    scale = np.sqrt(noise) * np.linalg.norm(inverse, axis=0) / layout.effect_size + 0.3 / np.sqrt(m * d)
    if d > 2:  # James and Stein
        start *= np.maximum(0.0, 1 - d * scale**2 / np.maximum((start**2).sum(axis=0), 1e-12))
    groups = grouped(Z)
    return EffectsRelease(
        sigma, m, noise, layout.averages, layout.effect_size, layout.determined_size, layout.effect_variance,
        start[:, 0], scale[0], prior, CovariateGroups(groups.values, groups.counts, start[:, 1:], scale[1:]),
    )  # fmt: skip


def in_table(effects: FloatArray, units: Units) -> FloatArray:
    """Effects (..., d) less the reference's guess, in the table's units; an intercept at the reference's centres."""
    out: FloatArray = (effects + units.guess) * per_table_unit(units)
    if units.intercept:
        out[..., -1] += units.target_centre
    return out


def per_table_unit(units: Units) -> FloatArray:
    """Return the factors from effects in common units to those in the table's units, (d,)."""
    return units.target_scale / units.scale


def _tails(probability: float) -> tuple[float, float]:
    tail = (1 - fraction("probability", probability)) / 2
    return tail, 1 - tail


def _as_tree(release: Release, drawn: Draws, statistics: Draws) -> xr.DataTree:
    """The groups of :meth:`SharedEffects.to_arviz`, of draws and statistics by name, (chain, draw, ...)."""
    import arviz_base as az  # with xarray and pandas, nearly a second to import
    import xarray as xr

    layout = layout_of(release)
    names = [str(name) for name in layout.coefficients]
    drawn = {name: values.astype(np.float64) for name, values in drawn.items()}
    posterior = {
        "mu": drawn["mu"],
        "tau": np.sqrt(np.diagonal(drawn["Omega"], axis1=-2, axis2=-1)),
        "Omega": drawn["Omega"],
        "determined": drawn["determined"],
        "determined_spread": drawn["determined_spread"],
        "errors": drawn["errors"],
    }
    log_prior, coords = {"average": drawn["log_prior_mu"], "spread": drawn["log_prior_tau"]}, {}
    if layout.covariates is not None:
        posterior["slopes"], log_prior["covariates"] = drawn["slopes"], drawn["log_prior_slopes"]
        coords["covariate"] = [str(name) for name in layout.covariates.names]
    if layout.reference is not None:
        posterior["average_effect"] = in_table(drawn["mu"], layout.reference.units(layout.coefficients))
    dims = {"Omega": ["effect", "effect_other"], "slopes": ["effect", "covariate"]} | {
        name: ["effect"] for name in ("mu", "tau", "determined", "average_effect") if name in posterior
    }
    tree = az.from_dict(
        {
            "posterior": posterior,
            "sample_stats": statistics,
            "log_prior": log_prior,
            "log_likelihood": {"sigma": drawn["log_likelihood"]},
        },
        dims=dims,
        coords={"effect": names, "effect_other": names, **coords},
    )
    tree["release"] = xr.DataTree(release.to_xarray())
    return tree
