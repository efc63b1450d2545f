"""Owners' posteriors in a mixed model: every task's effects given its own rows and the public posterior."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob._util.checks import fraction, one_of, whole
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob.data.cells import label_text
from mpmtl_prob.data.covariates import Covariates, grouped
from mpmtl_prob.data.estimates import Estimates
from mpmtl_prob.data.matching import in_order, match_positions, task_data
from mpmtl_prob.data.prediction import Prediction
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.owner.likelihoods import NO_TARGETS, OF_ESTIMATES, Likelihood, OfEstimates, are_labels, named
from mpmtl_prob.inference.owner.own_effects import FromAll, Known, OwnEffects, known_of, own_effects, with_own_intercept
from mpmtl_prob.inference.owner.posterior import OwnerPosterior
from mpmtl_prob.inference.owner.sent_messages import as_sent
from mpmtl_prob.inference.owner.visible_spread import visible_shape
from mpmtl_prob.inference.public.effects import TABLE_UNITS, SharedEffects
from mpmtl_prob.inference.public.observed_effects import observed_effects
from mpmtl_prob.models.effects_density import Law, log_likelihoods
from mpmtl_prob.models.effects_release import ACCURACY, FEW_NUMBERS, CovariateGroups, EffectsRelease
from mpmtl_prob.releases.effects import EffectsLayout, estimates_in_layout, in_layout, row_warnings, warn_owner
from mpmtl_prob.sampling.diagnostics import Diagnosis, khat_advice
from mpmtl_prob.sampling.importance import num_proposals, smoothed
from mpmtl_prob.single_task.random_effects import EffectsPriors

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

#: Draws of the public posterior that owners average over.
_PUBLIC_DRAWS = 100
#: Draws of the public posterior where these are weighted, to leave an owner's message out.
_WEIGHTED_DRAWS = 300
#: Factors of the variance between tasks that an owner averages over too, because tasks are outliers to different degrees.
SCALES = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
SCALE_WEIGHTS = np.full(5, 0.2)
#: Prior probability that a task is unrelated to the average: its effects then have mean zero, a shape between the identity
#: and that of all tasks, and any scale. An owner's evidence decides. The value is from an earlier experiment on simulated
#: studies, and was not tuned for these data.
APART = 0.1
#: Powers of the shape of all tasks that an unrelated task may have.
_POWERS = (0.01, 0.5, 1.0, 1.5)
#: Scales that its effects may have.
APART_SCALES = np.geomspace(3e-3, 10, 12)
#: Largest number of tasks with which messages are left out by default; with more, an owner's message hardly matters.
_LEAVE_OUT_UP_TO = 200
_PREDICTIVE_DRAWS = 400
#: Likelihoods of outcomes, the first of which is the default.
_OF_OUTCOMES = {
    "number": ("gaussian", "student_t"),
    "binary": ("bernoulli",),
    "count": ("negative_binomial", "poisson"),
}


@dataclass(frozen=True, eq=False, repr=False)
class OwnerEffects(OwnerPosterior[SharedEffects]):
    """Posterior of every task's effects. Column i of W belongs to the owner of task i.

    Attributes:
        shared: the public posterior that the owners used.
        W: posterior mean of the effects in the table's units, (d, m), an intercept last, where all columns are 0 in the
            table.
        seconds: wall-clock time, that of the public posterior included.
        likelihood: of the targets.
        tasks: names of W's columns.
        features: names of W's rows.
    """

    name = "noise-aware mixed model"
    _contents = "owners' posteriors of effects"
    _rows_are = "effects"

    def coefficients(self, probability: float = 0.9) -> pd.DataFrame:
        """Return a table of every task's effects with and without the release, a row for each task and effect.

        Effects are in the table's units; an intercept is the target where every column is at its reference's centre. Columns
        are ``mean``, ``sd``, ``lower`` and ``upper``, with the release; ``alone``, ``alone_lower`` and ``alone_upper``, from
        the task's own rows, or from its own estimate. Every owner sees its own part of the table; the whole table exists only
        in a simulation with all rows.

        Args:
            probability: of central intervals.
        """
        import pandas as pd

        tail = (1 - fraction("probability", probability)) / 2
        columns: dict[str, FloatArray] = {}
        for name, label in (("effect", ""), ("alone", "alone_")):
            draws = self._draws(name)
            lower, upper = np.quantile(draws, [tail, 1 - tail], axis=0)
            columns["mean" if not label else "alone"] = draws.mean(axis=0).T.ravel()
            if not label:
                columns["sd"] = draws.std(axis=0).T.ravel()
            columns |= {f"{label}lower": lower.T.ravel(), f"{label}upper": upper.T.ravel()}
        index = pd.MultiIndex.from_product([list(self.tasks), list(self.features)], names=["task", "effect"])
        return _in_table_units(pd.DataFrame(columns, index=index))

    def alone(self, probability: float = 0.9) -> pd.DataFrame:
        """Return a table of every task's effects from its own rows alone, without any release.

        Columns are ``mean``, ``sd``, ``lower`` and ``upper``; units and rows are those of :meth:`coefficients`. It costs no
        budget, and shows how much the release adds.

        Args:
            probability: of central intervals.
        """
        import pandas as pd

        tail = (1 - fraction("probability", probability)) / 2
        draws = self._draws("alone")
        lower, upper = np.quantile(draws, [tail, 1 - tail], axis=0)
        columns = {"mean": draws.mean(axis=0), "sd": draws.std(axis=0), "lower": lower, "upper": upper}
        index = pd.MultiIndex.from_product([list(self.tasks), list(self.features)], names=["task", "effect"])
        return _in_table_units(pd.DataFrame({name: values.T.ravel() for name, values in columns.items()}, index=index))

    def common_units(self) -> pd.Series:
        """Return the size of one common unit of every task's effects in the table's units.

        With a reference it is the same for all tasks. Without one it is the standard deviation of the target over that of the
        column in each task's own rows, and as private as the task's coefficients; an intercept has none (NaN).
        """
        import pandas as pd

        constants = self._tree.children["constant_data"].dataset
        values = constants["unit"].values if "unit" in constants else np.full(self.W.shape, np.nan)
        index = pd.MultiIndex.from_product([list(self.tasks), list(self.features)], names=["task", "effect"])
        return pd.Series(values.T.ravel(), index, name="unit")

    def standing(self, probability: float = 0.9) -> pd.DataFrame:
        """Return a table that compares every task's effects with the average of all tasks.

        Where effects depend on covariates, the average is that of tasks with the same covariates.

        Columns are ``difference``, ``lower`` and ``upper`` of the effect less the average effect, in the table's units, and
        ``above``, the probability that it is larger. There are no ranks of tasks, because nobody sees other tasks' effects.

        Args:
            probability: of the central interval.
        """
        import pandas as pd

        tail = (1 - fraction("probability", probability)) / 2
        difference = self._draws("difference")
        lower, upper = np.quantile(difference, [tail, 1 - tail], axis=0)
        columns = {"difference": difference.mean(axis=0), "lower": lower, "upper": upper}
        columns["above"] = np.where(np.isnan(difference).any(axis=0), np.nan, (difference > 0).mean(axis=0))
        index = pd.MultiIndex.from_product([list(self.tasks), list(self.features)], names=["task", "effect"])
        return _in_table_units(pd.DataFrame({name: values.T.ravel() for name, values in columns.items()}, index=index))

    def predict(self, tasks: TaskData, seed: int = 0) -> Prediction:
        """Return the posterior predictive distribution of every row, of some of the fit's tasks, which are matched by name.

        For numbers the mean is exact, and intervals come from 400 draws of effects and errors. For a binary outcome it is the
        probability, with intervals of that probability. For counts, intervals are of counts.

        Raises:
            ValueError: data with other tasks or features, or posteriors of estimates, which have no residual variance.
        """
        rows, draws = self._of_rows(tasks)
        feature, task = match_positions(tasks, self.tasks, self.features)
        W = self.W[feature][:, task]
        if rows.num_features > tasks.num_features:
            W = np.vstack([W, self._tree.children["constant_data"].dataset["offset_mean"].values[task]])
        pick = np.linspace(0, len(draws["W"]) - 1, min(_PREDICTIVE_DRAWS, len(draws["W"]))).astype(int)
        return self.likelihood.predict(rows, W, draws, pick, seed)

    def _of_rows(self, tasks: TaskData) -> tuple[TaskData, dict[str, FloatArray]]:
        if isinstance(self.likelihood, OfEstimates):
            raise ValueError(NO_TARGETS)
        feature, task = match_positions(tasks, self.tasks, self.features)
        draws = self._draws("W")[:, feature][..., task]
        offset = self._draws("offset")[:, task]
        posterior = self._tree.children["posterior"].dataset
        others = {name: self._draws(name)[:, task] for name in ("sigma", "dispersion") if name in posterior}
        if offset.any():  # units have centres that are not zero, and no intercept contains them
            tasks = tasks.with_intercept()
            draws = np.concatenate([draws, offset[:, None]], axis=1)
        return tasks, {"W": draws, **others}

    def to_arviz(self, tasks: TaskData | None = None, *, pointwise: bool = True) -> xr.DataTree:
        """Return a DataTree of draws, data and the public posterior.

        Its groups are ``posterior``, ``posterior_predictive``, ``log_likelihood``, ``observed_data``, ``constant_data``,
        ``shared`` and ``release``.

        ``posterior`` has, over (chain, draw, feature, task) in the table's units, ``W``; ``effect``, the same with an
        intercept at the reference's centres; ``alone``, from the task's own rows; ``difference``, the effect less the
        average; for numbers ``sigma``, and for counts their ``dispersion``. ``constant_data`` has the ``unit`` of
        :meth:`common_units`. The draws are independent. The groups of targets have ``y``, as in
        :meth:`OwnerPosteriors.to_arviz`; a row of weight w has w times its log likelihood, or for numbers that of an error
        with variance sigma^2 / w. Posteriors of estimates have no rows, and so not these groups. All groups are as private as
        the rows.

        Args:
            tasks: rows for these groups, of some of the fit's tasks, matched by name; default: the fit's rows, which
                posteriors from a file or a pickle do not have.
            pointwise: include the three groups of targets.

        Raises:
            ValueError: data with other tasks or features, rows for posteriors of estimates, or groups of more than four
                gibibytes.
        """
        return self._with_rows(tasks, pointwise)

    def diagnose(self) -> Diagnosis:
        """Say in words how far the owners' posteriors can be trusted, by the public draws and their weights."""
        public = self.shared.diagnose()
        advice = list(public.advice)
        constants = self._tree["constant_data"].to_dataset()
        if "khat" in constants:
            failing = "the draws of the public posterior are too few to leave such a task's own message out"
            advice += khat_advice(constants["khat"].values, _WEIGHTED_DRAWS, failing, "Use leave_one_out='off'.")
        if "khat_draws" in constants:
            sizes = self._tree["posterior"].to_dataset().sizes
            failing = "the approximation to the posterior of such a task is too far off for its draws to be corrected"
            drawn = num_proposals(sizes["chain"] * sizes["draw"])
            advice += khat_advice(constants["khat_draws"].values, drawn, failing, "Take its intervals as rough.")
        return replace(public, advice=tuple(advice))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read posteriors that :meth:`save` wrote. Raises ValueError for a file without posteriors."""
        return cls._load(path, SharedEffects.from_tree)

    def _draws(self, name: str) -> FloatArray:
        """Return all draws of a variable, (S, ...)."""
        values: FloatArray = self._tree.children["posterior"].dataset[name].values
        return values.reshape(-1, *values.shape[2:])

    def __repr__(self) -> str:
        d, m = self.W.shape
        return f"OwnerEffects({m} tasks, {d} effects, {self.likelihood}, {self.seconds:.3g} s)\n  {self.guarantee}"


def _in_table_units(table: pd.DataFrame) -> pd.DataFrame:
    """Mark a table as in the units of the rows, in which it is also where average effects are not."""
    table.attrs["units"] = TABLE_UNITS
    return table


def effect_posteriors(
    tasks: TaskData | Estimates,
    shared: SharedEffects,
    *,
    likelihood: str | Likelihood | None = None,
    leave_one_out: str = "auto",
    chains: int = 4,
    draws: int = 300,
    seed: int = 0,
    sent: FloatArray | None = None,
    covariates: Any = None,
) -> OwnerEffects:
    """Compute every owner's posterior of its effects, as :func:`task_posteriors` for messages of effects.

    An owner averages over draws of the public posterior, factors of the spread, residual variances, and, with a prior
    probability of .1, the possibility that its task is unrelated to the average, all by the evidence of its own rows.

    Args:
        tasks: the owners' rows, or their estimates. Task i's posterior depends on its own rows and on ``shared`` alone, and
            its draws also on i.
        shared: the public posterior.
        likelihood: of the targets: "gaussian" or "student_t" for numbers, "bernoulli" for a binary outcome,
            "negative_binomial" or "poisson" for counts; default: the first of these. None for estimates.
        leave_one_out: whether an owner conditions on the release without its own message, so that its rows count once:
            "auto", up to 200 tasks; "exact", always; "not_in_release", for tasks that are not in it; "off". The public
            draws are weighted by p(Sigma - v v' | draw) / p(Sigma | draw), v the owner's message, which is exact up to the
            Monte Carlo error of the draws.
        chains: number of chains into which the independent draws are arranged.
        draws: number of draws of every chain.
        seed: seed of the draws.
        sent: messages as the release has them, (D, m), where they are not those of these rows; default: computed from the
            rows.
        covariates: of tasks that are not in the release, where effects depend on covariates, as for
            :func:`mpmtl_prob.release`.

    Raises:
        ValueError: tasks with other features than the release, or an argument outside its range.
    """
    if not isinstance(shared, SharedEffects):
        raise ValueError(
            f"shared: expected SharedEffects, got {type(shared).__name__}; make it with shared_effects(release)"
        )
    one_of("leave_one_out", leave_one_out, ("auto", "exact", "not_in_release", "off"))
    total = whole("chains", chains) * whole("draws", draws)
    whole("seed", seed, 0)
    layout = shared.layout
    kind = check_likelihood(likelihood, tasks, layout.outcome)
    if isinstance(tasks, Estimates):
        tasks = estimates_in_layout(tasks, layout)
    else:
        in_order(in_layout(tasks, layout).features, layout.coefficients, "the release")
    z = _covariates(tasks, shared, leave_one_out, covariates)
    begin = time.perf_counter()
    if leave_one_out == "not_in_release":  # owners of other tasks were warned when they sent their messages
        warn_owner([row_warnings(tasks, layout)], layout.outcome)
    left_out = leave_one_out == "exact" or (
        leave_one_out == "auto" and tasks.num_tasks <= shared.release.num_tasks <= _LEAVE_OUT_UP_TO
    )
    public = _Public(shared, _WEIGHTED_DRAWS if left_out else _PUBLIC_DRAWS)
    log_weight = np.zeros((tasks.num_tasks, public.number))
    khat = None
    own_messages: Sequence[FloatArray | None] = [None] * tasks.num_tasks
    if left_out:
        sent = as_sent(tasks, shared.release) if sent is None else sent
        log_weight, khat = public.leave_one_out(tasks, sent)
        own_messages = list(sent.T)

    def of_task(i: int, known: Known) -> OwnEffects:
        mu = public.mu_at(z[i])
        rng = np.random.default_rng([seed, i])
        priors = public.priors(log_weight[i], mu, own_messages[i])
        effects = own_effects(known, priors, FromAll(mu, public.alone), kind, total, rng)
        if isinstance(tasks, Estimates) or tasks.num_features == len(layout.coefficients):
            return effects
        # slopes are in units of the task's own rows, and the intercept is not released
        return with_own_intercept(effects, *tasks.rows_of(i), np.random.default_rng([seed, i, 1]))

    of_tasks = starmap(of_task, enumerate(known_of(tasks, layout)))
    joined, owners = _gathered(of_tasks, tasks.num_tasks, (chains, draws))
    constants = _constants(owners, kind, khat)
    W = np.stack([owner.mean for owner in owners], axis=1)
    W.setflags(write=False)
    tree = _tree(tasks, shared, joined, constants)
    tree.attrs |= {"seat": OwnerEffects.seat, "own_message": "out" if left_out else "in"}
    seconds = shared.seconds + time.perf_counter() - begin
    rows = None if isinstance(tasks, Estimates) else tasks
    return OwnerEffects(shared, W, seconds, tree, kind, tasks.tasks, tasks.features, rows)


def _covariates(tasks: TaskData | Estimates, shared: SharedEffects, leave_one_out: str, covariates: Any) -> FloatArray:
    """Return a one and the covariates of every task, (m, 1 + q).

    Raises:
        ValueError: covariates are missing, or the release has none.
    """
    layout = shared.layout
    if covariates is None:
        return layout.z_of(tasks.tasks)
    if layout.reference is None or not layout.reference.covariates:
        raise ValueError("covariates: expected none, as effects of this release do not differ with any, got some")
    if leave_one_out != "not_in_release":
        raise ValueError(
            "covariates: expected them of tasks with leave_one_out='not_in_release' alone, as the release has those of its "
            "own tasks, got some"
        )
    return layout.z_of(tasks.tasks, Covariates.of_table(covariates, tuple(layout.reference.covariates)))


def _gathered(owners: Iterable[OwnEffects], number: int, shape: tuple[int, int]) -> tuple[Draws, list[OwnEffects]]:
    """Return draws (chain, draw, ..., task) of all owners by name, and the owners without their draws."""
    joined: Draws = {}
    without_draws = []
    # draws are written to their place one owner after another, so that they are never in memory twice
    for i, owner in enumerate(owners):
        for name in owner.draws:
            if i == 0:
                joined[name] = np.empty((*owner.draws[name].shape, number))
            joined[name][..., i] = owner.draws[name]
        without_draws.append(replace(owner, draws={}))
    return {name: values.reshape(*shape, *values.shape[1:]) for name, values in joined.items()}, without_draws


def _constants(owners: Sequence[OwnEffects], kind: Likelihood, khat: FloatArray | None) -> dict[str, Any]:
    """Return the numbers of every task that are not draws, (..., task)."""
    constants: dict[str, Any] = {
        "apart": np.array([owner.apart for owner in owners]),
        "offset_mean": np.array([owner.offset for owner in owners]),
        "unit": np.stack([owner.unit for owner in owners], axis=1),
    }
    if khat is not None:
        constants["khat"] = khat
    if not kind.exact:
        constants["khat_draws"] = np.array([owner.khat for owner in owners])
    return constants


def check_likelihood(
    likelihood: str | Likelihood | None, tasks: TaskData | Estimates, outcome: str = "number"
) -> Likelihood:
    """Return the likelihood of targets with the reference's outcome. Raises ValueError for one of another outcome."""
    if isinstance(tasks, Estimates):
        if likelihood is not None and not isinstance(likelihood, OfEstimates):
            raise ValueError(f"likelihood: expected none with estimates, which have theirs, got {likelihood!s}")
        return OF_ESTIMATES
    task_data(tasks, plain=False)
    known = _OF_OUTCOMES[outcome]
    if likelihood is None and outcome == "number" and are_labels(tasks):
        raise ValueError(
            "likelihood: all targets are -1 or 1; give likelihood='gaussian' if they are numbers. Of two labels say so in "
            "the reference, mp.Reference(..., outcome='binary', baseline=probability)"
        )
    kind = named(likelihood or known[0])
    if kind.name not in known:
        raise ValueError(
            f"likelihood: expected {' or '.join(map(repr, known))} with messages of effects of the outcome {outcome!r}, got "
            f"{kind.name!r}; reference values say the outcome, mp.Reference(..., outcome='binary' or 'count')"
        )
    return kind


class _Public:
    """Draws of the public posterior that owners average over."""

    def __init__(self, shared: SharedEffects, number: int) -> None:
        self.shared = shared
        mu = shared.draws("mu")
        Omega = shared.draws("Omega")
        self.pick = np.linspace(0, len(mu) - 1, min(number, len(mu))).astype(int)
        self.mu = mu[self.pick]
        self.Omega = Omega[self.pick]
        self.slopes = None if shared.layout.covariates is None else shared.draws("slopes")[self.pick]
        self.seen = observed_effects(shared.release, shared.prior)
        self.determined = (1 / (1 + np.exp(-shared.draws("determined")))).mean(axis=0)
        d = mu.shape[1]
        values, U = np.linalg.eigh((mu[:, :, None] * mu[:, None] + Omega).mean(axis=0))
        shapes = [(U * (values**p / (values**p).mean())) @ U.T for p in _POWERS]
        equal_weights = np.full(len(shapes), np.log(APART / len(shapes)))
        scales = APART_SCALES / d
        #: Prior of a task that is unrelated to the average.
        self.apart = EffectsPriors(
            equal_weights,
            np.zeros((len(shapes), d)),
            np.array(shapes),
            scales,
            np.full(len(scales), -np.log(len(scales))),
        )
        #: Prior of a task without other tasks: independent effects of any size.
        self.alone = self.apart._replace(log_weight=np.zeros(1), mean=np.zeros((1, d)), covariance=np.eye(d)[None])

    @property
    def number(self) -> int:
        return len(self.pick)

    def mu_at(self, z: FloatArray) -> FloatArray:
        """Return draws of the average effects, (S, d), of tasks with covariates z (1 + q,), of which the first is a one."""
        return self.mu if self.slopes is None else self.mu + self.slopes @ z[1:]

    def priors(
        self, log_weight: FloatArray, mu: FloatArray, own_message: FloatArray | None = None
    ) -> tuple[EffectsPriors, EffectsPriors]:
        """Return the priors that an owner averages over.

        Args:
            log_weight: of the public draws, (S,).
            mu: their average effects, (S, d).
            own_message: the owner's message, which is taken out of the release, (D,).
        """
        weight = np.exp(log_weight - log_weight.max())
        Omega = self.Omega
        visible = visible_shape(self.seen, self.determined, own_message)
        halves = weight[::2].sum(), weight[1::2].sum()
        if visible is not None and min(halves) > 0:  # every second draw gets the visible shape, and keeps its size
            Omega = Omega.copy()
            Omega[1::2] = visible.shape * np.trace(Omega[1::2], axis1=1, axis2=2)[:, None, None]
            weight[::2] *= (1 - visible.share) / halves[0]
            weight[1::2] *= visible.share / halves[1]
        with np.errstate(divide="ignore"):  # the weight of a draw may be zero
            related = np.log((1 - APART) * weight / weight.sum())
        return EffectsPriors(related, mu, Omega, SCALES, np.log(SCALE_WEIGHTS)), self.apart

    def leave_one_out(
        self, tasks: TaskData | Estimates, sent: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return log weights (m, S) of the draws for owners who leave their messages out, and their Pareto k (m,).

        Messages, (D, m), are computed from the rows unless they are given as ``sent``.
        """
        check_not_forked()
        release = self.shared.release
        sent = as_sent(tasks, release) if sent is None else sent
        seen = self.seen
        law = Law(self.mu, self.Omega, *(self.shared.draws(name)[self.pick] for name in ACCURACY))
        of_release = _log_likelihoods(seen, law, self.slopes)
        ratios = []
        for v, groups in zip(sent.T, _groups_without_task(tasks, self.shared.layout, seen), strict=True):
            without_task = seen._replace(
                sigma=np.asarray(seen.sigma) - np.outer(v, v), num_tasks=release.num_tasks - 1.0, covariates=groups
            )
            ratios.append(_log_likelihoods(without_task, law, self.slopes) - of_release)
        weight, khat = smoothed(np.array(ratios))
        with np.errstate(divide="ignore"):
            return np.log(weight), khat


def _groups_without_task(
    tasks: TaskData | Estimates, layout: EffectsLayout, seen: EffectsRelease
) -> list[CovariateGroups | None]:
    """Return, for every task, the groups by covariates of the other tasks in the release."""
    if layout.covariates is None or seen.covariates is None:
        return [None] * tasks.num_tasks
    groups = grouped(layout.z)
    names = list(layout.covariates.tasks)
    of_tasks = [groups.members[names.index(label_text(task))] for task in tasks.tasks]
    return [seen.covariates._replace(counts=groups.counts - (np.arange(len(groups.counts)) == g)) for g in of_tasks]


def _log_likelihoods(release: EffectsRelease, law: Law, slopes: FloatArray | None) -> FloatArray:
    """Return the log likelihoods of draws of mu, Omega and accuracy, and of slopes (S, d, q) where there are any, (S,)."""
    if slopes is None and len(np.asarray(release.sigma)) > FEW_NUMBERS:
        return log_likelihoods(release, law)
    import jax

    from mpmtl_prob.models.effects import compiled_log_likelihoods

    with jax.enable_x64(True):
        return np.asarray(compiled_log_likelihoods(release, law, slopes))


def _tree(tasks: TaskData | Estimates, shared: SharedEffects, draws: Draws, constants: dict[str, Any]) -> xr.DataTree:
    """Return the tree of :meth:`OwnerEffects.to_arviz`, without pointwise groups."""
    import arviz_base as az  # imported here because it takes nearly a second, with xarray and pandas

    public = shared.to_arviz()
    dims = {name: ["feature", "task"] for name in ("W", "effect", "alone", "difference")}
    dims |= {name: ["task"] for name in ("sigma", "dispersion", "offset", *constants)} | {"unit": ["feature", "task"]}
    tree = az.from_dict(
        {"posterior": draws, "constant_data": constants},
        dims=dims,
        coords={"feature": list(map(label_text, tasks.features)), "task": list(map(label_text, tasks.tasks))},
    )
    tree["shared"] = public.children["posterior"].copy()
    tree["release"] = public.children["release"].copy()
    return tree
