"""Plots of what tasks share and of the cost of privacy. Every function returns its matplotlib Axes.

These are plots that ArviZ does not have, or cannot draw on given Axes or with a separate scale for an intercept. Densities
are computed by ArviZ.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from mpmtl_prob._util.checks import whole
from mpmtl_prob._util.figures import GREY, axes_of, panels, tree_of
from mpmtl_prob._util.figures import forest as forest_of
from mpmtl_prob.data.cells import label_text
from mpmtl_prob.data.contrasts import NAME
from mpmtl_prob.data.matching import match_positions
from mpmtl_prob.data.prediction import Prediction, check_rows
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.inference.owner.effects import OwnerEffects
from mpmtl_prob.inference.public.effects import PER_OWN_SD, SharedEffects
from mpmtl_prob.inference.subspace import Subspace, random_angles

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

    from mpmtl_prob.evaluation.comparison import Comparison
    from mpmtl_prob.inference import OwnerPosteriors, Posterior, SharedPosterior

    type Weights = Posterior | OwnerPosteriors
    type Shown = SharedPosterior | SharedEffects | OwnerPosteriors | OwnerEffects | Posterior

__all__ = [
    "angles",
    "coverage",
    "error_against_epsilon",
    "error_by_task",
    "forest",
    "inclusion",
    "ladder",
    "projector",
    "reliability",
    "shift",
    "spectrum",
    "weights",
]

_BLUE, _ORANGE = "#2b6cb0", "#dd6b20"
#: Places a legend next to the Axes, where it covers no data.
_BESIDE = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}


def spectrum(
    posterior: Shown | Mapping[str, Shown],
    reference: ArrayLike | None = None,
    *,
    reference_label: str = "without noise",
    probability: float = 0.9,
    components: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot eigenvalues of the shared covariance as shares of their sum, with intervals, against a reference.

    Args:
        posterior: posterior of the shared covariance; or several by name, side by side.
        reference: a covariance or second moment (d, d) to compare with: the truth, or the one without noise.
        reference_label: its name in the legend.
        probability: probability of the intervals.
        components: number of largest eigenvalues to show; default all.
        ax: Axes to draw on.
    """
    ax = axes_of(ax)
    from matplotlib.ticker import MaxNLocator

    several = isinstance(posterior, Mapping)
    shown: Mapping[str, Shown] = posterior if isinstance(posterior, Mapping) else {"posterior median": posterior}
    tail, bottom = (1 - probability) / 2, 1.0
    for j, (name, one) in enumerate(shown.items()):
        draws = one.subspace(1).spectrum.values[..., :components]
        low, middle, high = np.quantile(draws, [tail, 0.5, 1 - tail], axis=(0, 1))
        x = np.arange(1.0, len(middle) + 1) + 0.6 * ((j + 0.5) / len(shown) - 0.5)
        color = f"C{j}" if several else _BLUE
        label = "" if several else f"{100 * probability:g} % interval"
        ax.vlines(x, low, high, color=color, lw=3 if several else 5, alpha=0.35, label=label)
        ax.plot(x, middle, "o", color=color, ms=4, label=name)
        bottom = min(bottom, max(low[low > 0].min() / 3, 1e-6))
    if reference is not None:
        eigenvalues = np.linalg.eigvalsh(np.asarray(reference, dtype=np.float64))[::-1]
        share = (np.maximum(eigenvalues, 0) / eigenvalues.sum())[:components]
        x = np.arange(1.0, len(share) + 1)
        color = "0.2" if several else _ORANGE
        ax.plot(x, np.where(share > 0, share, np.nan), "x", color=color, ms=6, mew=1.8, label=reference_label)
    ax.set(yscale="log", xlabel="component", ylabel="share of variance", title="Spectrum of the shared covariance")
    if several:
        ax.set_title(f"Spectrum of the shared covariance: median and {100 * probability:g} % interval")
    ax.set_ylim(bottom=bottom)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False, **(_BESIDE if several else {}))
    return ax


def inclusion(posterior: SharedPosterior, *, features: int = 40, probability: float = 0.9) -> Axes:
    """Plot every feature's inclusion (forest plot): the share of its variance above the floor common to all features.

    Args:
        posterior: posterior with structure "group_sparse" or "auto".
        features: number of features to show at most, those with the largest inclusion.
        probability: probability of the intervals.

    Raises:
        ValueError: a posterior with another structure.
    """
    draws = posterior.to_arviz()["posterior"].dataset
    if "inclusion" not in draws:
        raise ValueError(
            "posterior: expected structure 'group_sparse' or 'auto', whose features have inclusions, "
            f"got {posterior.to_arviz().attrs['structure']!r}"
        )
    order = np.argsort(-draws["inclusion"].mean(("chain", "draw")).values, kind="stable")[:features]
    best = draws["inclusion"].isel(feature=np.sort(order))
    ax = forest_of(
        tree_of("inclusion", best.values, "feature", best["feature"].values.tolist()), "feature", probability
    )
    ax.axvline(0.5, color=GREY, lw=1, ls=":")
    ax.set(xlim=(-0.03, 1.03), xlabel="inclusion; .5 before the release")
    ax.figure.suptitle("Which features matter")
    return ax


def forest(
    effects: OwnerEffects | SharedEffects,
    *,
    effect: Hashable | None = None,
    task: Hashable | None = None,
    probability: float = 0.9,
    units: Mapping[Hashable, str] | None = None,
    task_word: str = "task",
) -> list[Axes]:
    """Plot a mixed model's effects in the table's units (forest plots, a panel each): of tasks, or the averages only.

    For one task the plot shows its effect by its own rows alone, the effect with the release, the average effect, and the
    range of a new task, which is not an estimate and has no point. For all tasks it shows a row each over the average and
    that range. This second plot needs the rows of all tasks in one place, and its title says that it is not to be
    published.

    Without reference values, averages are per standard deviation of each task's own rows. All effects are then in those
    units, and panels say so. An intercept then belongs to its task, has no average, and is in the table's units.

    Args:
        effects: the owners' effects, or the public posterior.
        effect: only this effect; default all.
        task: only this task, with owners' effects; default all tasks.
        probability: probability of the intervals.
        units: units in words, by effect, such as ``{"age": "days (age in years)"}``.
        task_word: word for a task, such as "hospital".

    Returns:
        The Axes, one for each effect.

    Raises:
        ValueError: another object, an unknown effect or task, or a task with the public posterior.
    """
    if not isinstance(effects, OwnerEffects | SharedEffects):
        raise ValueError(
            "effects: expected OwnerEffects or SharedEffects, as mpmtl_prob.inference.shared_effects and task_posteriors "
            f"make them of messages of effects, got {type(effects).__name__}"
        )
    owners, shared = (None, effects) if isinstance(effects, SharedEffects) else (effects, effects.shared)
    known = list(shared.coefficients if owners is None else owners.features)
    if effect is not None and effect not in known:
        raise ValueError(f"effect: expected one of {known}, got {effect!r}")
    names = known if effect is None else [effect]
    if task is not None and (owners is None or task not in owners.tasks):
        of = "none of the public posterior" if owners is None else f"one of the fit's, such as {owners.tasks[0]!r}"
        raise ValueError(f"task: expected {of}, got {task!r}")
    average, new = shared.average_effects(probability), shared.new_task(probability)
    public = {name: (average.loc[name], new.loc[name]) for name in average.index}
    centres = {} if shared.layout.reference is None else shared.layout.reference.covariates
    at = "".join(f", averages at {name} {centre:g}" for name, (centre, _) in centres.items())
    interval = f"{100 * probability:g} % intervals{at}"
    if owners is None:
        axes = _public_forest(names, public, f"Average effects and a new {task_word}'s, {interval}", task_word)
    else:
        table = owners.coefficients(probability)
        if shared.layout.reference is None:
            unit = owners.common_units()
            public = {name: rows for name, rows in public.items() if unit.xs(name, level="effect").notna().all()}
            table = table.div(unit.fillna(1.0), axis=0)
        if task is None:
            axes = _forest_of_all(
                names, table, public, f"Effects of every {task_word}, {interval}: not to be published", task_word
            )
        else:
            axes = _forest_of_one(
                names, table.xs(task), public, f"Effects of {task}, for its owner, {interval}", task_word
            )
    for ax, name in zip(axes, names, strict=True):
        if name != NAME and min(ax.get_xlim()) < 0 < max(ax.get_xlim()):
            ax.axvline(0, color=GREY, lw=0.8, alpha=0.6, zorder=0)  # the line of no effect
    in_sds = public if shared.layout.reference is None else {}
    for ax, name in zip(axes, names, strict=True):
        unit = (units or {}).get(name, "the table's units")
        ax.set_xlabel(PER_OWN_SD if name in in_sds else f"in {unit}", fontsize=8)
    return axes


#: The average effect and the effect of a new task, by name of the effect.
Public = Mapping[Hashable, tuple["pd.Series", "pd.Series"]]


def _public_forest(names: list[Any], public: Public, title: str, word: str) -> list[Axes]:
    """Draw the average effect and a new task's range."""
    axes = panels(names, ["average", f"a new {word}"], title)
    for ax, name in zip(axes, names, strict=True):
        average, new = public[name]
        _interval(ax, 0, average, "", _ORANGE)
        _range(ax, 1, new)
    return axes


def _forest_of_one(names: list[Any], table: pd.DataFrame, public: Public, title: str, word: str) -> list[Axes]:
    """Draw one task's effects, alone and with the release, and the averages that are in its units."""
    labels = ["alone", "with the release"] + ["average", f"a new {word}"] * any(name in public for name in names)
    axes = panels(names, labels, title)
    for ax, name in zip(axes, names, strict=True):
        _interval(ax, 0, table.loc[name], "alone", GREY)
        _interval(ax, 1, table.loc[name], "", _BLUE)
        if name in public:
            average, new = public[name]
            _interval(ax, 2, average, "", _ORANGE)
            _range(ax, 3, new)
    return axes


def _forest_of_all(names: list[Any], table: pd.DataFrame, public: Public, title: str, word: str) -> list[Axes]:
    """Draw every task's effects, sorted by the first effect, over the average and the range of a new task."""
    order = table.xs(names[0], level="effect")["mean"].sort_values().index
    axes = panels(names, [str(name) for name in order], title, per_row=0.17)
    for ax, name in zip(axes, names, strict=True):
        rows = table.xs(name, level="effect").loc[order]
        if name in public:
            average, new = public[name]
            ax.axvspan(new["lower"], new["upper"], color=_ORANGE, alpha=0.1, lw=0, label=f"range of a new {word}")
            ax.axvspan(average["lower"], average["upper"], color=_ORANGE, alpha=0.3, lw=0, label="average")
        y = np.arange(len(rows))
        for prefix, label, color, shift in (("alone", "alone", GREY, -0.18), ("", "with the release", _BLUE, 0.18)):
            low, high = (rows[f"{prefix}_{end}" if prefix else end] for end in ("lower", "upper"))
            ax.hlines(y + shift, low, high, color=color, lw=1.4, alpha=0.6)
            inside = "white" if prefix else color
            ax.plot(rows[prefix or "mean"], y + shift, "o", color=color, mfc=inside, ms=4, label=label)
    legend = max((ax.get_legend_handles_labels() for ax in axes), key=lambda handles: len(handles[1]))
    columns = 4 if len(axes) > 1 else 2
    axes[0].figure.legend(*legend, frameon=False, fontsize=8, ncols=columns, loc="outside lower center")
    return axes


def _interval(ax: Axes, row: int, of: pd.Series, prefix: str, color: str) -> None:
    """Draw a mean and its interval from a table's row."""
    low, high = (of[f"{prefix}_{end}" if prefix else end] for end in ("lower", "upper"))
    ax.hlines(row, low, high, color=color, lw=2.5, alpha=0.6)
    ax.plot(of[prefix or "mean"], row, "o", color=color, mfc="white" if prefix else color, ms=6)


def _range(ax: Axes, row: int, of: pd.Series) -> None:
    """Draw an interval that is not an estimate."""
    ax.hlines(row, of["lower"], of["upper"], color=_ORANGE, lw=9, alpha=0.2)


def projector(subspace: Subspace, *, sd: bool = False, ax: Axes | None = None) -> Axes:
    """Plot a heat map of the projector on the leading subspace: features that vary together across tasks.

    Args:
        subspace: the subspace of a posterior.
        sd: show the posterior sd of every entry instead of its mean.
        ax: Axes to draw on.
    """
    ax = axes_of(ax, figsize=(5.6, 4.8))
    values = subspace.projector_sd.values if sd else subspace.projector.values
    names = [str(name) for name in subspace.projector["feature"].values]
    image = ax.imshow(values, cmap="viridis", vmin=0) if sd else ax.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1)
    step = max(1, len(names) // 30)
    ticks = np.arange(0, len(names), step)
    ax.set_xticks(ticks, [names[t] for t in ticks], rotation=90, fontsize=7)
    ax.set_yticks(ticks, [names[t] for t in ticks], fontsize=7)
    ax.figure.colorbar(
        image, ax=ax, shrink=0.8, label="posterior sd" if sd else "share that two features have in common"
    )
    ax.set(xlabel="feature", ylabel="feature")
    leading = f"leading {subspace.rank} directions" if subspace.rank > 1 else "leading direction"
    ax.set_title(f"Projector on the {leading}: {'sd' if sd else 'mean'}")
    return ax


def angles(subspaces: Subspace | Mapping[str, Subspace], *, chance: bool = False, ax: Axes | None = None) -> Axes:
    """Plot densities of the principal angles between the leading subspace and its reference.

    Args:
        subspaces: one subspace, for a plot of all its angles; or several by name, for a plot of the largest angle of each.
        chance: add the largest angle of random subspaces, for comparison.
        ax: Axes to draw on.
    """
    from arviz_stats.base import array_stats

    ax = axes_of(ax)
    if isinstance(subspaces, Mapping):
        curves = {str(name): one.angles.values[..., -1] for name, one in subspaces.items()}
        what = "largest principal angle"
    else:
        curves = {f"angle {j + 1}": subspaces.angles.values[..., j] for j in range(subspaces.rank)}
        what = "principal angle"
    one = next(iter(subspaces.values())) if isinstance(subspaces, Mapping) else subspaces
    if chance:
        curves["random"] = random_angles(one.projector.shape[0], one.rank, 4000)[:, -1]
    for name, values in curves.items():
        if np.ptp(values) < 1e-3:  # subspaces of more than half the dimensions always intersect
            ax.axvline(values.mean(), color=GREY, lw=2.5, clip_on=False, label=name)
            continue
        grid, density, _ = array_stats.kde(values.ravel(), custom_lims=(0, 90), bound_correction=True)
        color, style = (GREY, ":") if name == "random" else (None, "-")
        (line,) = ax.plot(grid, density, label=name, color=color, ls=style)
        ax.fill_between(grid, density, alpha=0.15, color=line.get_color())
    ax.set(xlabel=f"{what} to the reference, degrees", ylabel="density", xlim=(0, 90), ylim=(0, None))
    ax.set_title("How well the shared subspace is known")
    ax.legend(frameon=False)
    return ax


def error_by_task(
    posterior: Weights | Mapping[str, Weights], test: TaskData, *, limit: int = 30, probability: float = 0.9
) -> Axes:
    """Plot every task's root mean squared error on test rows, over the draws of its weights (forest plot).

    Args:
        posterior: a posterior with draws of W, or several by name.
        test: test rows of the posteriors' tasks, matched by name.
        limit: number of tasks to show at most, those with the most test rows.
        probability: probability of the intervals.
    """
    most = np.argsort(-test.row_counts, kind="stable")[:limit]
    names = [str(test.tasks[i]) for i in most]

    def errors(one: Weights) -> xr.DataTree:
        feature, task = match_positions(test, *_called(one))
        W = _weights(one)[:, :, feature][..., task]
        error = np.empty((*W.shape[:2], len(most)))
        for j, i in enumerate(most):
            X, y = test.rows_of(i)
            error[..., j] = np.sqrt(np.mean((y - W[..., i] @ X.T) ** 2, axis=-1))
        return tree_of("RMSE", error, "task", names)

    shown = {str(k): errors(v) for k, v in posterior.items()} if isinstance(posterior, Mapping) else errors(posterior)
    ax = forest_of(shown, "task", probability)
    ax.set_xlabel("root mean squared error on test rows")
    ax.figure.suptitle("Error by task, over the draws of its weights")
    return ax


def weights(posteriors: Mapping[str, Weights], task: Hashable, *, probability: float = 0.9) -> Axes:
    """Plot one task's weights in several posteriors (forest plot), such as before and after sharing with other tasks.

    An intercept has a panel of its own below, as its size is unrelated to that of slopes.

    Args:
        posteriors: posteriors by name.
        task: name of the task.
        probability: probability of the intervals.

    Raises:
        ValueError: a task that a posterior does not have.
    """
    shown = {}
    for name, posterior in posteriors.items():
        W = posterior.to_arviz(pointwise=False)["posterior"].dataset["W"]
        if str(task) not in (names := W["task"].values):
            raise ValueError(f"task: expected one of the posterior's, such as {str(names[0])!r}, got {task!r}")
        shown[str(name)] = tree_of("W", W.sel(task=str(task)).values, "feature", W["feature"].values.tolist())
    ax = forest_of(shown, "feature", probability, NAME)
    ax.axvline(0, color=GREY, lw=1, ls=":")
    ax.set_xlabel("weight")
    for below in ax.figure.axes[1:]:
        below.set_xlabel("intercept: where every feature is 0")
    ax.figure.suptitle(f"The weights of {task}")
    return ax


def shift(before: Weights, after: Weights, *, ax: Axes | None = None) -> Axes:
    """Plot how much every task learnt: the shift of its weights and the change of their sd from one posterior to another.

    Args:
        before: for example every task by its own rows.
        after: for example with what tasks share.
        ax: Axes to draw on.
    """
    ax = axes_of(ax)
    if _called(before) != _called(after):
        raise ValueError("after: expected the tasks and features of before, in the same order, got others")
    first, second = (_weights(posterior) for posterior in (before, after))
    sd = first.std(axis=(0, 1))
    moved = np.sqrt(np.mean(((second.mean(axis=(0, 1)) - first.mean(axis=(0, 1))) / sd) ** 2, axis=0))
    surer = np.sqrt(np.mean((second.std(axis=(0, 1)) / sd) ** 2, axis=0))
    ax.plot(moved, surer, "o", color=_BLUE, ms=4, alpha=0.7, label="a task")
    ax.axhline(1, color=GREY, lw=1, ls=":", label="as sure as before")
    top = 1.1 * max(1.0, surer.max())
    ax.set(xlabel="shift of the mean, in sds before", ylabel="sd after / sd before", xlim=(0, None), ylim=(0, top))
    ax.set_title("From before to after, one point a task")
    ax.legend(frameon=False, fontsize=8)
    return ax


def coverage(predictions: Mapping[str, Prediction], test: TaskData, *, ax: Axes | None = None) -> Axes:
    """Plot the coverage of central intervals on test targets against their probability; the diagonal is calibrated.

    Args:
        predictions: predictions of the rows of test, by name, with draws.
        test: the rows.
        ax: Axes to draw on.
    """
    ax = axes_of(ax, figsize=(4.8, 4.4))
    nominal = np.linspace(0.05, 0.95, 19)
    ax.plot([0, 1], [0, 1], ":", color=GREY, lw=1.2, label="calibrated")
    for name, prediction in predictions.items():
        check_rows(prediction, test)
        y = test.targets
        inside = [np.mean((low <= y) & (y <= high)) for low, high in prediction.intervals_of_rows(nominal.tolist())]
        ax.plot(nominal, inside, "o-", ms=3, label=name)
    ax.set(xlabel="probability of the interval", ylabel="share of test targets inside", xlim=(0, 1), ylim=(0, 1))
    ax.set_title("Are intervals as wide as they say?")
    ax.legend(frameon=False, fontsize=8)
    return ax


def reliability(
    predictions: Mapping[str, Prediction], test: TaskData, *, bins: int = 10, ax: Axes | None = None
) -> Axes:
    """Plot the share of test targets that are 1 against its predicted probability; the diagonal is calibrated.

    A point is a bin of test rows of all tasks with similar predictions; all bins have equally many rows.

    Args:
        predictions: predictions of the rows of test, by name: a posterior's probabilities, or log odds x'w of the logistic
            loss.
        test: the rows, with targets -1 and 1.
        bins: number of bins, at least one.
        ax: Axes to draw on.

    Raises:
        ValueError: targets that are not -1 or 1, or less than one bin.
    """
    target = test.targets
    if not np.all(np.abs(target) == 1):
        raise ValueError("test: expected targets -1 and 1 for predicted probabilities, got others")
    whole("bins", bins)
    ax = axes_of(ax, figsize=(4.8, 4.4))
    ax.plot([0, 1], [0, 1], ":", color=GREY, lw=1.2, label="calibrated")
    for name, prediction in predictions.items():
        check_rows(prediction, test)
        probability = prediction.means if prediction.quantity == "probability" else expit(prediction.means)
        groups = np.array_split(np.argsort(probability, kind="stable"), min(bins, len(probability)))
        x, share = np.array([(probability[rows].mean(), np.mean(target[rows] == 1)) for rows in groups]).T
        ax.plot(x, share, "o-", ms=4, label=name)
    ax.set(xlabel="predicted probability of a 1", ylabel="share of test targets that are 1", xlim=(0, 1), ylim=(0, 1))
    ax.set_title("Do probabilities mean what they say?")
    ax.legend(frameon=False, fontsize=8)
    return ax


def ladder(subspaces: Mapping[float, Subspace], *, probability: float = 0.9, ax: Axes | None = None) -> Axes:
    """Plot the effective rank at several budgets, with intervals: the effect of noise on what a release shows.

    Args:
        subspaces: subspaces of posteriors by eps; infinite for the one without noise.
        probability: probability of the intervals.
        ax: Axes to draw on.
    """
    ax = axes_of(ax)
    order = sorted(subspaces)
    tail = (1 - probability) / 2
    low, middle, high = np.array(
        [np.quantile(subspaces[eps].effective_rank.values, [tail, 0.5, 1 - tail]) for eps in order]
    ).T
    x = np.arange(len(order))
    ax.vlines(x, low, high, color=_BLUE, lw=5, alpha=0.35, label=f"{100 * probability:g} % interval")
    ax.plot(x, middle, "o", color=_BLUE, ms=5, label="posterior median")
    ax.set_xticks(x, ["no noise" if np.isinf(eps) else f"{eps:g}" for eps in order])
    ax.set(
        xlabel="privacy budget eps",
        ylabel="effective rank",
        ylim=(0, None),
        title="What each budget says of the shared subspace",
    )
    ax.legend(frameon=False)
    return ax


def error_against_epsilon(
    comparison: Comparison, epsilons: Sequence[float], *, metric: str = "nmse", ax: Axes | None = None
) -> Axes:
    """Plot the error of every method of :func:`mpmtl_prob.evaluation.standard_fits` against the budget.

    Args:
        comparison: scores of the standard fits.
        epsilons: their budgets.
        metric: "nmse" or "nmse_within".
        ax: Axes to draw on.
    """
    from mpmtl_prob.evaluation.comparison import ALONE, NON_PRIVATE, STL

    ax = axes_of(ax, figsize=(8.4, 4.0))
    levels = {STL: ("--", GREY), ALONE: (":", GREY), NON_PRIVATE: ("-", GREY)}
    for name, (style, color) in levels.items():
        ax.axhline(comparison[name][metric], ls=style, color=color, lw=1.2, label=name)
    curves = {
        "Algorithm 2": ("s-", _ORANGE),
        "Algorithm 3": ("^-", "#c9a227"),
        "noise-aware posterior": ("o-", _BLUE),
    }
    order = sorted(epsilons)
    for name, (style, color) in curves.items():
        error = [comparison[f"{name}, eps = {epsilon:g}"][metric] for epsilon in order]
        bounds = [comparison[f"{name}, eps = {epsilon:g}"]["proved"] for epsilon in order]
        proved = all(bound is not None and bound.delta < 0.01 for bound in bounds)  # a larger delta devalues eps
        ax.plot(order, error, style, color=color, ms=5, label=name if proved else f"{name} (eps only claimed)")
    words = {"nmse": "normalised mean squared error", "nmse_within": "normalised mean squared error within tasks"}
    ax.set(xscale="log", xlabel="privacy budget eps", ylabel=words.get(metric, metric), title="What privacy costs")
    ax.set_xticks(order, [f"{epsilon:g}" for epsilon in order])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8, **_BESIDE)
    return ax


def _weights(posterior: Weights) -> Any:
    """Return draws of W, (chain, draw, d, m)."""
    from mpmtl_prob.inference import Posterior

    if isinstance(posterior, Posterior):
        return posterior.draws["W"]
    return posterior.to_arviz(pointwise=False)["posterior"].dataset["W"].values


def _called(posterior: Weights) -> list[list[str]]:
    """Return the names of the tasks and of the features, as text."""
    from mpmtl_prob.inference import Posterior

    known = posterior.tasks if isinstance(posterior, Posterior) else posterior
    return [list(map(label_text, names)) for names in (known.tasks, known.features)]
