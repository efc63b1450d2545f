"""Owners' posteriors: every task's weights given its own rows and the public posterior."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import one_of, whole
from mpmtl_prob._util.former import former_arguments
from mpmtl_prob.data.cells import label_text
from mpmtl_prob.data.estimates import Estimates
from mpmtl_prob.data.matching import in_order, match_positions, task_data
from mpmtl_prob.data.prediction import Prediction
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.owner import methods
from mpmtl_prob.inference.owner.effects import OwnerEffects, effect_posteriors
from mpmtl_prob.inference.owner.leave_one_out import leave_one_out_posteriors
from mpmtl_prob.inference.owner.likelihoods import Likelihood, NormalErrors, likelihood_of
from mpmtl_prob.inference.owner.posterior import OwnerPosterior
from mpmtl_prob.inference.public.effects import SharedEffects
from mpmtl_prob.inference.public.posterior import NO_AVERAGES, refused_names
from mpmtl_prob.inference.public.shared import SharedPosterior
from mpmtl_prob.inference.public.structures import Full, Structure
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.diagnostics import Diagnosis, Remedies, diagnose, khat_advice
from mpmtl_prob.sampling.importance import num_proposals
from mpmtl_prob.single_task import intercepts

if TYPE_CHECKING:
    import xarray as xr

METHODS = ("plug_in", "mixture", "joint")
LEAVE_ONE_OUT = ("auto", "exact", "not_in_release", "off")
_PREDICTIVE_DRAWS = 400
#: With structure "full", an owner's own message influences what it learns from all tasks, where tasks per feature are at most
#: this many (studies/benchmarks/own_message.py),
_TASKS_PER_FEATURE = 5
#: and the noise's standard deviation is at most this share of the message's square.
_MESSAGE = 0.5
#: Advice of a diagnosis of :func:`task_posteriors` with method="joint".
REMEDIES_OF_JOINT = Remedies(
    "Call task_posteriors with more draws.",
    lambda more, draws: f"task_posteriors(..., draws={more + draws}) should do.",
    "Use method='plug_in' or 'mixture'.",
    "use method='plug_in' or 'mixture'.",
)


@dataclass(frozen=True, eq=False, repr=False)
class OwnerPosteriors(OwnerPosterior[SharedPosterior]):
    """Posterior of every task's weights. Column i of W belongs to the owner of task i.

    Attributes:
        shared: the public posterior that the owners used.
        W: posterior mean of the weights, (d, m): exact, or that of an approximation, corrected by importance weights. With a
            single row neither sigma nor the weights have a mean; then it is the weights' mean given sigma, averaged.
        seconds: wall-clock time, that of the public posterior included.
        likelihood: of the targets.
        tasks: names of W's columns, by which :meth:`predict` matches tasks; strings after loading from a file.
        features: names of W's rows; strings after loading from a file.
    """

    name = "noise-aware posterior"
    _contents = "owners' posteriors"
    _packed = ("posterior", "observed_data")
    _rows_are = "features"
    if not TYPE_CHECKING:  # type checkers would accept any attribute
        __getattr__ = refused_names(NO_AVERAGES, "coefficients", "standing", "common_units")

    def to_arviz(self, tasks: TaskData | None = None, *, pointwise: bool = True) -> xr.DataTree:
        """Return a DataTree of draws, data and the public posterior.

        Its groups are ``posterior``, ``posterior_predictive``, ``log_likelihood``, ``observed_data``, ``constant_data``,
        ``shared`` and ``release``.

        ``posterior`` has ``W`` (chain, draw, feature, task), ``snr`` and, for numbers, ``sigma`` (chain, draw, task); the
        draws are independent. Where they were weighted, ``constant_data`` has the Pareto k of every task, below .7 if the
        weights can be trusted: ``khat`` of the mixture over Omega, and ``khat_draws`` of the correction of approximate draws.
        ``shared`` is the public posterior. ``observed_data`` has the targets ``y`` (observation,), one task after another,
        and ``constant_data`` their numbers, ``rows_per_task``. ``posterior_predictive`` and ``log_likelihood`` have a ``y``
        (chain, draw, observation) with tasks' names as coordinate ``task_of``, for ``az.loo``, ``az.compare`` and
        ``az.plot_ppc_dist``; leave-one-out of a row does not change the release. A likelihood of your own has these groups if
        it has ``pointwise``. All groups are as private as the rows.

        Args:
            tasks: rows for these groups, of some of the fit's tasks, matched by name; default: the fit's rows, which
                posteriors from a file or a pickle do not have.
            pointwise: include the two groups with a number per draw and row.

        Raises:
            ValueError: data with other tasks or features, or groups of more than four gibibytes.
        """
        return self._with_rows(tasks, pointwise)

    def predict(self, tasks: TaskData, seed: int = 0) -> Prediction:
        """Return the posterior predictive distribution of every row, of some of the fit's tasks, which are matched by name.

        For numbers the mean is exact, and intervals come from 400 draws of weights and noise. For labels it is the
        probability of a 1, averaged over all draws of the weights; intervals are the probability's, from 400 draws.

        Raises:
            ValueError: data with other tasks or features.
        """
        feature, task = match_positions(tasks, self.tasks, self.features)
        tasks, draws = self._of_rows(tasks)
        total = len(draws["W"])
        pick = np.linspace(0, total - 1, min(_PREDICTIVE_DRAWS, total)).astype(int)
        return self.likelihood.predict(tasks, self.W[feature][:, task], draws, pick, seed)

    def _of_rows(self, tasks: TaskData) -> tuple[TaskData, dict[str, FloatArray]]:
        feature, task = match_positions(tasks, self.tasks, self.features)
        posterior = self._tree.children["posterior"].dataset
        draws = {str(k): v.values.reshape(-1, *v.shape[2:])[..., task] for k, v in posterior.items()}
        return tasks, draws | {"W": draws["W"][:, feature]}

    def diagnose(self) -> Diagnosis:
        """Say in words how far the owners' posteriors can be trusted, by the draws that they use and the k-hat of weights.

        With "plug_in" and "mixture" the owners' draws are independent, so that the draws of the public posterior are judged;
        with "joint" those of every owner's chains.
        """
        constants = self._tree["constant_data"].to_dataset()
        if self._tree.attrs["method"] == "joint":
            draws = {str(k): v.values for k, v in self._tree["posterior"].to_dataset().items()}
            functionals = {name: np.log(draws[name]) for name in ("sigma", "snr") if name in draws} | {"W": draws["W"]}
            return diagnose(functionals, {"diverging": constants["divergences"].values}, remedies=REMEDIES_OF_JOINT)
        public = self.shared.diagnose()
        advice = list(public.advice)
        if "khat" in constants:
            failing = f"{methods.MIXED} draws of the public posterior are too few for the weights of such a task"
            advice += khat_advice(constants["khat"].values, methods.MIXED, failing, "Use method='plug_in'.")
        if "khat_draws" in constants:
            sizes = self._tree["posterior"].to_dataset().sizes
            drawn = num_proposals(sizes["chain"] * sizes["draw"])
            failing = "the approximation to the posterior of such a task is too far off for its draws to be corrected"
            joint = "Use method='joint', or take" if self._joint_may_be_used() else "Take"
            remedy = f"{joint} the intervals of these tasks as rough."
            advice += khat_advice(constants["khat_draws"].values, drawn, failing, remedy)
        if self._tree.attrs.get("counted_twice", 0):
            release = self.shared.release
            advice.append(
                f"{release.num_tasks} tasks with {release.num_features} features and little noise: the release holds much of "
                "an owner's own message, its rows count twice, and its intervals are too narrow. Use method='plug_in'."
            )
        remarks = list(public.remarks)
        if self._tree.attrs.get("own_message") == "roughly out":
            remarks.append(
                "Owners' own messages are taken out of what the release says, so that their rows count once."
            )
        return replace(public, advice=tuple(advice), remarks=tuple(remarks))

    def _joint_may_be_used(self) -> bool:
        release, structure = self.shared.release, self.shared.structure
        intercept = len(self.features) > release.num_features
        known = self.likelihood.jointly(np.zeros((1, len(self.features))), np.ones(1)) is not None
        return known and not intercept and joinable(structure, release.num_tasks, release.num_features, release.rounds)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        structure: Structure | None = None,
        likelihood: Likelihood | None = None,
    ) -> Self:
        """Read posteriors that :meth:`save` wrote.

        Args:
            path: the file.
            structure: structure of the public posterior, if it is the user's own.
            likelihood: likelihood of the targets, if it is the user's own.

        Raises:
            ValueError: a file without posteriors, or with those of another structure or likelihood.
        """
        return cls._load(path, lambda tree: SharedPosterior.from_tree(tree, structure), likelihood)

    def __repr__(self) -> str:
        d, m = self.W.shape
        return f"OwnerPosteriors({m} tasks, {d} features, {self.likelihood}, {self.seconds:.3g} s)\n  {self.guarantee}"


@overload
def task_posteriors(tasks: TaskData, shared: SharedPosterior, **options: Any) -> OwnerPosteriors: ...
@overload
def task_posteriors(tasks: TaskData | Estimates, shared: SharedEffects, **options: Any) -> OwnerEffects: ...
@overload
def task_posteriors(
    tasks: TaskData | Estimates, shared: SharedPosterior | SharedEffects, **options: Any
) -> OwnerPosteriors | OwnerEffects: ...
@former_arguments(  # type: ignore[misc] # the overloads leave the options to it
    sharpness="power",
    exclude_own=("leave_one_out", {True: "exact", False: "not_in_release", None: "auto"}),
)
def task_posteriors(
    tasks: TaskData | Estimates,
    shared: SharedPosterior | SharedEffects,
    *,
    method: str = "plug_in",
    likelihood: str | Likelihood | None = None,
    power: float | None = None,
    leave_one_out: str = "auto",
    chains: int = 4,
    draws: int = 300,
    seed: int = 0,
    progress_bar: bool = True,
    covariates: Any = None,
) -> OwnerPosteriors | OwnerEffects:
    """Compute every owner's posterior, a simulation of all owners at once.

    Args:
        tasks: the owners' rows. Task i's posterior depends on its own rows and on ``shared`` alone. If there is an intercept,
            a task with one row has no information on slopes; its posterior is that of a new task, with a warning. For average
            effects tasks may be :class:`~mpmtl_prob.Estimates` of models that were fitted elsewhere.
        shared: the public posterior. With one of average effects, by :func:`shared_effects`, the result is
            :class:`OwnerEffects`, and there is no method and no power.
        method: "plug_in" replaces Omega by the posterior mean of its shape (empirical Bayes). The Gaussian model is then
            conjugate given the local signal-to-noise ratio and the power, which are integrated on grids; other models are
            approximated, and corrected by importance weights. "mixture" weights 64 draws of the shape by each task's own
            evidence, with Pareto smoothing; its k-hat is in the tree. "joint" runs NUTS on the owner's model and the public
            one together, one owner at a time. It is slow, and exact except that the owner's message counts in addition to
            its rows. It needs structure "full", one round and power 1.
        likelihood: of the targets: "gaussian"; "student_t" for outliers, with four degrees of freedom; or "bernoulli" for
            labels -1 and 1, as with the estimators' logistic loss. Default: "gaussian", but it must be given if all targets
            are -1 or 1, which may be numbers or labels.
        power: p of :meth:`SharedPosterior.shape`; with 1, messages are treated as the weights themselves. Default: unknown,
            with a log-normal prior around 1.5, because errors of estimates make their second moment flatter than that of the
            weights. Every owner averages over it by its own evidence.
        leave_one_out: whether an owner conditions on the release without its own message, so that its rows count once.

            - "auto", the default: approximately, by :meth:`SharedPosterior.leave_one_out`, where it matters. This is with
              "plug_in" and structure "full", up to five tasks per feature, and a noise whose standard deviation is at most
              half the message's square.
            - "exact": by Sigma - w~_i w~_i', with "plug_in" and a public posterior for every owner, for releases of
              directions.
            - "not_in_release": for tasks that are not in the release, or whose messages were not made from these rows, but
              given as a matrix, or made without the intercept that tasks have now. There is nothing to leave out.
            - "off": the owner's message stays in the release, and its rows count twice; for comparison.
        chains: number of chains into which the independent draws are arranged.
        draws: number of draws of every chain.
        seed: seed of the draws.
        progress_bar: show one, where owners are sampled one at a time.
        covariates: of tasks that are not in the release, where average effects depend on covariates, as for
            :func:`mpmtl_prob.release`; tasks in the release have theirs from there.

    Raises:
        ValueError: a method that does not suit the release or another argument, tasks with other features than the release,
            or an argument outside its range.

    Models: :func:`mpmtl_prob.models.task.gaussian` and :func:`mpmtl_prob.models.task.bernoulli`.

    >>> train, test, W = mp.datasets.synthetic_low_rank(num_tasks=40, num_features=3, rows=10)
    >>> release = mp.release(train, epsilon=1.0)
    >>> shared = mp.inference.shared_covariance(release, chains=2, warmup=200, draws=200, progress_bar=False)
    >>> own = mp.inference.task_posteriors(train, shared)
    >>> own.W.shape  # posterior means of the weights, a column per task
    (3, 40)
    >>> own.predict(test).to_pandas().columns.to_list()
    ['task', 'row', 'mean', 'lower', 'upper']
    """
    one_of("leave_one_out", leave_one_out, LEAVE_ONE_OUT)
    if isinstance(shared, SharedEffects):
        for name, value, default in (("method", method, "plug_in"), ("power", power, None)):
            if value != default:
                raise ValueError(
                    f"{name}: expected none with a posterior of effects, of which owners average over all, got {value!r}"
                )
        return effect_posteriors(
            tasks, shared, likelihood=likelihood, leave_one_out=leave_one_out, chains=chains, draws=draws, seed=seed,
            covariates=covariates,
        )  # fmt: skip
    tasks = task_data(tasks)
    _check_shared(shared, covariates)
    release = shared.release
    kind = likelihood_of(likelihood, tasks)
    check_method(method, tasks, kind, shared.structure, release.num_tasks, release.rounds, power)
    whole("chains", chains)
    whole("draws", draws)
    whole("seed", seed, 0)
    check_features(tasks, release)
    _warn_of_single_rows(tasks, kind)
    begin = time.perf_counter()
    scale = methods.scales(tasks, release.scaling)
    total = chains * draws
    twice = leave_one_out == "auto" and method != "joint" and _counts_twice(tasks, shared)
    exact = leave_one_out == "exact"
    if exact:
        _check_exclusion(tasks, shared, method)
    if exact or (twice and method == "plug_in"):
        results = leave_one_out_posteriors(tasks, shared, scale, power, total, seed, progress_bar, kind, exactly=exact)
    elif method == "mixture":
        results = methods.mixture(tasks, methods.drawn_shapes(shared, power), scale, total, seed, kind)
    elif method == "joint":
        results = methods.joint(tasks, release, scale, chains, total, seed, progress_bar, kind)
    else:
        results = methods.plug_in(tasks, *methods.raised_shapes(shared, power, kind), scale, total, seed, kind)
    by_name = dict(results.draws)
    if "log_snr" in by_name:
        by_name["snr"] = np.exp(by_name["log_snr"], out=by_name.pop("log_snr"))
    by_chain = {k: v.reshape(chains, draws, *v.shape[1:]) for k, v in by_name.items()}
    W = results.W
    W.setflags(write=False)
    seconds = shared.seconds + time.perf_counter() - begin
    tree = _tree(tasks, shared, by_chain, results)
    tree.attrs |= {"seat": OwnerPosteriors.seat, "method": method, "counted_twice": int(twice and method == "mixture")}
    tree.attrs["own_message"] = "out" if exact else "roughly out" if twice and method == "plug_in" else "in"
    return OwnerPosteriors(shared, W, seconds, tree, kind, tasks.tasks, tasks.features, tasks)


def _check_shared(shared: object, covariates: object) -> None:
    """Raise ValueError unless the argument is a posterior of a covariance, and for covariates, which it cannot use."""
    if not isinstance(shared, SharedPosterior):
        got = type(shared).__name__
        raise ValueError(
            f"shared: expected a SharedPosterior, got {got}; make one with mpmtl_prob.inference.shared_covariance"
        )
    if covariates is not None:
        raise ValueError("covariates: expected none with a posterior of a covariance, which has no averages, got some")


def _warn_of_single_rows(tasks: TaskData, likelihood: Likelihood) -> None:
    """Warn of tasks with an intercept and one row, which has no information on slopes."""
    if not isinstance(likelihood, NormalErrors) or not (which := np.flatnonzero(intercepts.lone(tasks))).size:
        return
    shown = ", ".join(repr(tasks.tasks[i]) for i in which[:5]) + (
        f" and {len(which) - 5} more" if which[5:].size else ""
    )
    warnings.warn(
        f"tasks: {len(which)} of them have one row, which says nothing of slopes beside an intercept: {shown}. Their "
        "posteriors are those of new tasks: the mean is their target, slopes are known up to a factor, and as nothing says "
        "how large errors are, intervals hold all numbers that could be meant",
        UserWarning,
        stacklevel=3,
    )


def check_features(tasks: TaskData, release: Release) -> None:
    """Raise ValueError unless the tasks have the features of the release in its order, apart from an intercept."""
    in_order(task_data(tasks).slopes.features, release.features, "the release")


def check_method(
    method: str,
    tasks: TaskData,
    likelihood: Likelihood,
    structure: Structure,
    num_tasks: int,
    rounds: int,
    power: float | None = None,
) -> None:
    """Raise ValueError for a method that does not suit the tasks, or a release of so many tasks and rounds."""
    if one_of("method", method, METHODS) != "joint":
        return
    if tasks.intercept:
        raise ValueError("method: 'joint' knows no intercept; take 'plug_in' or 'mixture', or tasks without")
    if not joinable(structure, num_tasks, tasks.num_features, rounds) or (power or 1.0) != 1.0:
        raise ValueError(
            "method: 'joint' needs a posterior of structure 'full', of one round of at least as many tasks as features, and "
            "power 1"
        )
    methods.jointly(likelihood, *tasks.rows_of(0))


def joinable(structure: Structure, num_tasks: int, num_features: int, rounds: int) -> bool:
    """Return whether the method "joint" has a model for this structure and a release of these sizes."""
    return isinstance(structure, Full) and rounds == 1 and num_tasks >= num_features


def _counts_twice(tasks: TaskData, shared: SharedPosterior) -> bool:
    """Return whether an owner's message influences the public posterior so much that its rows nearly count twice."""
    release = shared.release
    if type(shared.structure.resolve(release)) is not Full or release.rounds > 1 or not _can_exclude(tasks, release):
        return False
    law = release.mechanisms[0]
    few = release.num_tasks <= _TASKS_PER_FEATURE * release.num_features
    return few and bool(np.sqrt(law.variance) <= _MESSAGE * law.clip**2)


def _can_exclude(tasks: TaskData, release: Release) -> bool:
    """Return whether messages can be computed from these tasks' rows and taken out of the release."""
    return release.message == "direction" and tasks.num_tasks <= release.num_tasks


def _check_exclusion(tasks: TaskData, shared: SharedPosterior, method: str) -> None:
    if method != "plug_in":
        raise ValueError(f"leave_one_out: expected method='plug_in' with 'exact', got {method!r}")
    if not _can_exclude(tasks, shared.release):
        raise ValueError("leave_one_out: expected, with 'exact', a release of these tasks' own directions")


def _tree(
    tasks: TaskData, shared: SharedPosterior, draws: dict[str, NDArray[Any]], results: methods.Results
) -> xr.DataTree:
    """Return the tree of :meth:`OwnerPosteriors.to_arviz`, without pointwise groups."""
    import arviz_base as az  # imported here because it takes nearly a second, with xarray and pandas

    public = shared.to_arviz()
    of_tasks = {"rows_per_task": tasks.row_counts} | results.of_tasks
    tree = az.from_dict(
        {
            "posterior": draws,
            "observed_data": {"y": tasks.targets.copy()},
            "constant_data": of_tasks,
        },
        dims={name: ["task"] for name in (*draws, *of_tasks)} | {"W": ["feature", "task"], "y": ["observation"]},
        coords={"feature": list(map(label_text, tasks.features)), "task": list(map(label_text, tasks.tasks))},
    )
    tree["shared"] = public.children["posterior"].copy()
    tree["release"] = public.children["release"].copy()
    return tree
