"""Public posterior of a mixed model: average effects and their spread between tasks, given releases."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob._util.checks import fraction, one_of
from mpmtl_prob.data.cells import file_name
from mpmtl_prob.data.covariates import Covariates, standardised
from mpmtl_prob.data.units import Units
from mpmtl_prob.inference.public.effects_draws import (
    density_of,
    in_table,
    judged_of,
    per_table_unit,
    start_of,
    stored_of,
    watched_of,
)
from mpmtl_prob.inference.public.observed_effects import check_prior, checked_releases, layout_of, observed_effects
from mpmtl_prob.inference.public.posterior import Chains, PublicPosterior, check_sampling
from mpmtl_prob.models.effects_release import EffectsPrior
from mpmtl_prob.releases.effects import EffectsLayout
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.diagnostics import (
    ESS_PER_CHAIN,
    Diagnosis,
    Remedies,
    diagnose,
    diagnose_short_chains,
    diagnose_weights,
)
from mpmtl_prob.sampling.extent import WARMUP, Until
from mpmtl_prob.sampling.short_chains import Agreement, short_chains
from mpmtl_prob.sampling.weighted import Weights, fitted, weighted_draws

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

#: Units of tables, for ``attrs["units"]``; and the head of columns of tables without reference values.
TABLE_UNITS = "of the table"
OWN_UNITS = "standard deviations of each task's own rows"
PER_OWN_SD = "per sd of own rows"
STRUCTURES = ("full", "diagonal", "group_sparse", "low_rank")
SAMPLERS = ("nuts", "weighted")
#: Short chains are drawn until there are this many times the effective draws that are needed, as both are estimates.
_MARGIN = 1.25
#: Acceptance probability that step sizes aim at, as in :func:`shared_covariance`.
_ACCEPTANCE = 0.9
_REMEDIES = Remedies(
    "Call shared_effects with more draws, or a longer warmup.",
    lambda more, draws: f"shared_effects(..., draws={more + draws}) should do.",
    "Call shared_effects with a longer warmup, or with structure='diagonal'.",
    "call shared_effects with a longer warmup.",
)
#: Prefix of the tree's groups of further releases.
_OTHER = "other_release_"
#: If standard deviations of average effects are at least this share of the prior's, the release says next to nothing.
_SAYS_LITTLE = 0.8


@dataclass(frozen=True, eq=False, repr=False)
class SharedEffects(PublicPosterior[str]):
    """Posterior of average effects and their spread between tasks, computed from public information alone, and so public.

    Attributes:
        release: the release that it conditions on.
        structure: structure of Omega, one of those of :func:`shared_effects`.
        prior: prior of average effects and spread.
        others: further releases that it conditions on, of other tasks.
        seconds: wall-clock time of the sampling.
        sampler: the sampler of the draws, "nuts", "weighted" or "short chains".
        weights: diagnosis of the weights, where weighted points were requested; otherwise None.
        agreement: diagnosis of the draws of short chains; otherwise None.
    """

    prior: EffectsPrior = field(kw_only=True)
    others: tuple[Release, ...] = field(default=(), kw_only=True)
    sampler: str = field(default="nuts", kw_only=True)
    weights: Weights | None = field(default=None, kw_only=True)
    agreement: Agreement | None = field(default=None, kw_only=True)

    _contents = "posterior of effects"
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
        """Number of tasks in all releases together."""
        return sum(release.num_tasks for release in self.releases)

    @cached_property
    def units(self) -> Units:
        """Units of the effects: the reference's; without one those of every task's own rows, which are not released."""
        d = len(self.coefficients)
        if self.layout.reference is None:
            return Units(np.zeros(d), np.ones(d), 0.0, 1.0, np.zeros(d))
        return self.layout.reference.units(self.coefficients)

    @property
    def omega(self) -> FloatArray:
        """Posterior mean of the shape of the effects' covariance between tasks, scaled to mean variance 1, (d, d).

        Effects, among them an intercept, are in common units, as in :meth:`subspace`.
        """
        Omega = self.draws("Omega")
        return np.mean(Omega / np.trace(Omega, axis1=-2, axis2=-1)[:, None, None] * Omega.shape[-1], axis=0)

    @property
    def _varying(self) -> Sequence[Hashable]:
        return self.coefficients

    def average_effects(self, probability: float = 0.9) -> pd.DataFrame:
        """Return a table of average effects over tasks, a row per effect.

        Effects are in the units of the table: the change of the target for one unit of the column. The intercept is the
        target where every column is at its reference's centre. Without a reference, effects are per standard deviation of
        each task's own rows (root mean square, of tasks without intercept), of the column and of the target. The head of
        the table and ``attrs["units"]`` say so. Where effects depend on covariates, averages are of tasks whose covariates
        are at their centres, and ``tau`` is the standard deviation that covariates do not explain.

        Columns are ``mean``, ``sd``, ``lower`` and ``upper`` of the average effect; ``positive``, the probability that it
        is above zero; ``tau``, the standard deviation of the effect between tasks, with its interval; ``i2``, the share of
        heterogeneity between tasks in the variance of tasks' own estimates (I^2 of meta-analysis).

        Args:
            probability: of central intervals.
        """
        return self._table(np.eye(len(self.coefficients)), list(self.coefficients), probability)

    def contrasts(self, weights: Mapping[str, Mapping[Hashable, float]], probability: float = 0.9) -> pd.DataFrame:
        """Return a table of weighted sums of average effects, with the columns of :meth:`average_effects`.

        Args:
            weights: by name of a contrast, a mapping from names of effects to their weights, such as
                ``{"old against young": {"age 80+": 1, "age 50-": -1}}``.
            probability: of central intervals.

        Raises:
            ValueError: a name that is no effect's, or a weight that is not finite.
        """
        if not isinstance(weights, Mapping) or not all(isinstance(parts, Mapping) for parts in weights.values()):
            raise ValueError(
                "weights: expected a mapping from every contrast to weights by effect, such as {'a less b': {'a': 1}}"
            )
        known = list(self.coefficients)
        rows = np.zeros((len(weights), len(known)))
        for i, (name, parts) in enumerate(weights.items()):
            for effect, weight in parts.items():
                if effect not in known:
                    raise ValueError(f"weights: {name!r}: expected names of effects {known}, got {effect!r}")
                if isinstance(weight, str) or not np.isfinite(weight):
                    raise ValueError(f"weights: {name!r}: expected finite numbers, got {weight!r}")
                rows[i, known.index(effect)] = weight
        return self._table(rows, list(weights), probability).drop(columns="i2")

    def covariate_slopes(self, probability: float = 0.9) -> pd.DataFrame:
        """Return a table of the slopes of average effects in tasks' covariates, a row per effect and covariate.

        Units are the table's: the change of the effect for one unit of the covariate. Columns are ``mean``, ``sd``,
        ``lower``, ``upper`` and ``positive`` as in :meth:`average_effects`.

        Args:
            probability: of central intervals.

        Raises:
            ValueError: a release without covariates.
        """
        import pandas as pd

        low, high = _tails(probability)
        units = self._covariate_units
        d = len(self.coefficients)
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
        """Return a table of the effects of a new task, by their predictive distribution N(mu, Omega) over all draws.

        Args:
            probability: of central intervals.
            covariates: of the task, such as ``{"beds": 300}``, where effects depend on them; default: their centres.

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
            of_task = Covariates.of_table({"the new task": covariates}, tuple(units)).of(["the new task"])
            ((_, *covariate_values),) = standardised(of_task, units)  # after a one
            mu = mu + self.draws("slopes") @ np.array(covariate_values)
        z = np.random.default_rng(0).standard_normal(mu.shape)
        effects = in_table(mu + np.einsum("sij,sj->si", np.linalg.cholesky(Omega), z), self.units)
        lower, upper = np.quantile(effects, [low, high], axis=0)
        columns = {"mean": effects.mean(axis=0), "sd": effects.std(axis=0), "lower": lower, "upper": upper}
        return self._in_units(pd.DataFrame(columns, index=pd.Index(list(self.coefficients), name="effect")))

    def _in_units(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the table with its units in ``attrs`` and, without a reference, in the head of its columns."""
        table.attrs["units"] = self.units_in_words
        if self.layout.reference is None:
            table.columns.name = PER_OWN_SD
        return table

    @property
    def units_in_words(self) -> str:
        """Units of average effects: of the table, or standard deviations of each task's own rows."""
        return OWN_UNITS if self.layout.reference is None else TABLE_UNITS

    def _table(self, weights: FloatArray, names: list[Any], probability: float) -> pd.DataFrame:
        """Return the table of weighted sums of average effects, weights (contrasts, d)."""
        import pandas as pd

        low, high = _tails(probability)
        effects = in_table(self.draws("mu"), self.units) @ weights.T
        scale = per_table_unit(self.units)
        Omega = self.draws("Omega") * scale[:, None] * scale
        between = np.einsum("cj,sjk,ck->sc", weights, Omega, weights)
        tau = np.sqrt(between)
        p = 1 / (1 + np.exp(-self.draws("determined")))
        # error variance of an unbiased estimate, c v (1 - p) / p
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
        """Return a DataTree with groups ``posterior``, ``sample_stats``, ``log_prior``, ``log_likelihood`` and ``release``.

        ``posterior`` has, in common units over (chain, draw, effect), ``mu``, the average effects less the reference's
        guess; ``tau``, the standard deviations between tasks; ``determined``, the logit of how far a task's rows determine
        an effect; ``Omega`` over (effect, effect_other); with covariates of tasks ``slopes`` over (effect, covariate), for
        a change by one of their scales; and in the table's units ``average_effect``. ``arviz_stats.psense_summary`` reads
        the groups ``log_prior`` and ``log_likelihood``.
        """
        return self._tree.copy(deep=True)  # so that changes of the tree do not change the posterior

    def sensitivity(self) -> pd.DataFrame:
        """Return a table of how far average effects and spread depend on their prior, and on the release.

        It is computed by power scaling: how the posterior changes where the prior, or the likelihood, is a little stronger
        or weaker. Values above .05 are a visible dependence.

        Source: Kallioinen et al. (2024), Statistics and Computing 34.
        """
        from arviz_stats import psense_summary

        names = ["mu", "tau"] if self.layout.covariates is None else ["mu", "slopes", "tau"]
        return psense_summary(self.to_arviz(), var_names=names)

    def diagnose(self) -> Diagnosis:
        """Return r-hat and effective sample sizes, what they mean, and what the release says, in words.

        They refer to average effects, the size of the spread and the accuracy of estimates. Of weighted points the weights
        are judged instead; short chains are judged by their agreement, all of them together.
        """
        if self.weights is not None and self.sampler == "weighted":
            return diagnose_weights(*self.weights[:3], remarks=[self.says()])
        statistics = {str(k): v.values for k, v in self._tree["sample_stats"].to_dataset().items()}
        drew = "NUTS" if self.sampler == "nuts" else "Short chains"
        remarks = [] if self.weights is None else [f"{drew}, as weighted points would not do: {self.weights}."]
        remarks.append(self.says())
        if self.agreement is not None:
            return diagnose_short_chains(*self.agreement, statistics, remedies=_REMEDIES, remarks=remarks)
        posterior = self._tree["posterior"].to_dataset()
        judged = judged_of({str(name): values.values for name, values in posterior.items()})
        return diagnose(judged, statistics, remedies=_REMEDIES, remarks=remarks)

    def says(self) -> str:
        """Say in words how much the release tells about average effects, by intervals relative to those before it."""
        before = self.prior.average / np.sqrt(len(self.coefficients))  # sd of one effect: the root of E[L^2] / d
        ratio = float(np.sqrt(self.draws("mu").var(axis=0).mean()) / before)
        if ratio >= _SAYS_LITTLE:
            return (
                f"The release says next to nothing of average effects: intervals are {ratio:.0%} as wide as before it. "
                "Owners rely on their own rows."
            )
        return f"By the prior alone, before the release, intervals of averages were {1 / ratio:.2g} times as wide."

    def settings(self) -> dict[str, Any]:
        """Return the structure, the prior, and where weighted points were requested the diagnosis of their weights."""
        weights = {} if self.weights is None else {"sampler": self.sampler, "weights": list(map(float, self.weights))}
        agreement = {} if self.agreement is None else {"agreement": list(self.agreement)}
        return {"structure": self.structure, "prior": [float(value) for value in self.prior], **weights, **agreement}

    @classmethod
    def from_tree(cls, tree: xr.DataTree) -> Self:
        """Make the posterior from a tree as :meth:`save` wrote it. Raises KeyError, TypeError or ValueError otherwise."""
        structure = one_of("structure", str(tree.attrs["structure"]), STRUCTURES)
        prior = EffectsPrior(*(float(value) for value in tree.attrs["prior"]))
        release, drawn = cls._release_and_tree(tree, structure)
        # by number, because files of owners' posteriors may have them in any order
        names = sorted((name for name in tree.children if name.startswith(_OTHER)), key=lambda name: (len(name), name))
        for name in names:
            drawn[name] = tree.children[name].copy()
        others = tuple(Release.from_xarray(tree.children[name].to_dataset()) for name in names)
        checked_releases([release, *others])
        sampler = one_of("sampler", str(tree.attrs.get("sampler", "nuts")), (*SAMPLERS, "short chains"))
        weights = None
        if "weights" in tree.attrs:
            khat, ess, points, far_out = map(float, tree.attrs["weights"])
            weights = Weights(khat, ess, int(points), far_out)
        agreement = Agreement(*map(float, tree.attrs["agreement"])) if "agreement" in tree.attrs else None
        seconds = float(tree.attrs["seconds"])
        return cls(
            release, structure, seconds, drawn,
            prior=prior, others=others, sampler=sampler, weights=weights, agreement=agreement,
        )  # fmt: skip

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
        release: a release of messages of effects: ``mpmtl_prob.release(tasks, epsilon, reference=...)``; or several, the
            owners' first, with the same columns and reference values, as of another consortium or next year. Every task
            in them counts as a different one: if the same tasks are in two of them, intervals of average effects are those
            of twice as many tasks, which are too narrow where the spread between tasks is large relative to the noise.
        structure: of the covariance between tasks:

            - "full": effects may be correlated, and differ in size.
            - "diagonal": effects are not correlated.
            - "group_sparse": effects are not correlated, and few of them differ much between tasks.
            - "low_rank": tasks differ along a few directions, above a floor.
        prior: of average effects, spread and accuracy; default: :class:`EffectsPrior`. :meth:`SharedEffects.sensitivity`
            shows how far the result depends on it.
        chains: number of chains.
        warmup: iterations of adaptation per chain.
        draws: number of draws of every chain; default: 300, or as many as ``until`` takes, up to 10 000.
        until: stop as soon as there are enough, of average effects and the size of the spread.
        seed: seed of the sampler. The result is a function of the arguments.
        progress_bar: show one, with effective draws.
        sampler: "nuts"; or "weighted", importance resampling from a normal distribution that is fitted to the posterior. It
            takes less time. If its weights cannot be trusted, many short chains start from that distribution; if these do
            not agree, NUTS is used. :attr:`SharedEffects.sampler` says which was used.

    Raises:
        ValueError: a release of other messages, ``until`` with weighted points, or an argument outside its range.
        KeyboardInterrupt: an interrupt during warm-up. A later one ends the run with a warning, and returns the draws so far.

    Model: :func:`mpmtl_prob.models.random_effects`.

    >>> train, test, W = mp.datasets.synthetic_low_rank(num_tasks=40, num_features=3, rows=10)
    >>> release = mp.release(train, epsilon=1.0, reference=mp.Reference.standard(3))
    >>> shared = mp.inference.shared_effects(release, chains=2, warmup=200, draws=200, progress_bar=False)
    >>> shared.average_effects().columns.to_list()
    ['mean', 'sd', 'lower', 'upper', 'positive', 'tau', 'tau_lower', 'tau_upper', 'i2']
    """
    first, others = checked_releases(release)
    one_of("structure", structure, STRUCTURES)
    checked = check_prior(EffectsPrior() if prior is None else prior)
    begin = time.perf_counter()
    most = check_sampling(chains, warmup, draws, seed, until)
    args = (observed_effects(first, checked), tuple(observed_effects(other, checked) for other in others))
    start = start_of(args[0], structure, args[1])
    weights = None

    def posterior(
        drawn: Draws, statistics: Draws, seconds: float, extend: Callable[..., SharedEffects] | None, **drew: Any
    ) -> SharedEffects:
        tree = _as_tree(first, others, drawn, statistics)
        tree.attrs |= {"seat": SharedEffects.seat, "structure": structure}
        return SharedEffects(
            first, structure, seconds, tree, extend, prior=checked, others=others, weights=weights, **drew
        )

    if one_of("sampler", sampler, SAMPLERS) == "weighted":
        if until is not None:
            raise ValueError("until: expected none with sampler='weighted', which knows when it has enough, got one")
        wanted = ESS_PER_CHAIN * int(chains)
        shape, rng = (int(chains), most), np.random.default_rng(seed)
        density = density_of(structure, args, start)
        law = fitted(density, density.start, rng)
        drawn, weights = weighted_draws(density, law, shape=shape, wanted=wanted, rng=rng)
        if weights.bear(wanted):
            statistics = {"lp": drawn.pop("lp")}
            return posterior(drawn, statistics, time.perf_counter() - begin, None, sampler="weighted")
        drawn, statistics, agreement = short_chains(
            density, law, judged_of, shape=shape, wanted=_MARGIN * wanted, rng=rng, progress_bar=progress_bar
        )
        if agreement.bear(wanted):
            drew = {"sampler": "short chains", "agreement": agreement}
            return posterior(drawn, statistics, time.perf_counter() - begin, None, **drew)
    from mpmtl_prob.models.effects import model_of  # imported here, as weighted points may do without NumPyro
    from mpmtl_prob.sampling.nuts import kernel
    from mpmtl_prob.sampling.runs import Sampling

    run = Sampling(kernel(model_of(structure), _ACCEPTANCE), args, int(warmup), watched=watched_of, keep=stored_of)
    return Chains(run, True, posterior).start(int(chains), seed, start, most, until, progress_bar, begin)


def _tails(probability: float) -> tuple[float, float]:
    tail = (1 - fraction("probability", probability)) / 2
    return tail, 1 - tail


def _as_tree(release: Release, others: Sequence[Release], drawn: Draws, statistics: Draws) -> xr.DataTree:
    """Return the groups of :meth:`SharedEffects.to_arviz`, from draws and statistics by name, (chain, draw, ...)."""
    import arviz_base as az  # imported here because it takes nearly a second, with xarray and pandas
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
    log_prior = {"average": drawn["log_prior_mu"], "spread": drawn["log_prior_tau"]}
    coords = {}
    if layout.covariates is not None:
        posterior["slopes"] = drawn["slopes"]
        log_prior["covariates"] = drawn["log_prior_slopes"]
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
    for number, other in enumerate(others):
        tree[f"{_OTHER}{number}"] = xr.DataTree(other.to_xarray())
    return tree
