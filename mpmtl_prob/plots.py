"""Pictures of what tasks share and of what privacy costs. Every function returns its matplotlib Axes.

What is drawn here is what ArviZ has no picture of, or none that goes on given Axes or gives an intercept a scale of its own;
densities are ArviZ's.
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
from mpmtl_prob.data.prediction import Prediction
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.evaluation import metrics
from mpmtl_prob.evaluation.comparison import ALONE, NON_PRIVATE, STL, Comparison
from mpmtl_prob.inference import (
    OwnerEffects,
    OwnerPosteriors,
    Posterior,
    SharedEffects,
    SharedPosterior,
    Subspace,
)
from mpmtl_prob.inference.public.effects import PER_OWN_SD
from mpmtl_prob.inference.subspace import random_angles

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

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

Weights = Posterior | OwnerPosteriors
Shown = SharedPosterior | SharedEffects | OwnerPosteriors | OwnerEffects | Posterior

_BLUE, _ORANGE = "#2b6cb0", "#dd6b20"
#: A legend beside the Axes: wherever it stood among many things, some data would lie under it.
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
    """Eigenvalues of the shared covariance as shares of their sum, with intervals, against a reference.

    Args:
        posterior: of the shared covariance; or several by name, side by side.
        reference: a covariance or second moment (d, d) to compare with: the truth, or the one without noise.
        reference_label: its name in the legend.
        probability: of the intervals.
        components: only so many, the largest; default all.
        ax: to draw on.
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
    """Forest plot of every feature's inclusion, the share of its variance above the floor of all.

    Args:
        posterior: of structure "group_sparse" or "auto".
        features: at most so many, those with most of it.
        probability: of the intervals.

    Raises:
        ValueError: a posterior of another structure.
    """
    found = posterior.to_arviz()["posterior"].dataset
    if "inclusion" not in found:
        raise ValueError(
            "posterior: expected structure 'group_sparse' or 'auto', whose features have inclusions, "
            f"got {posterior.to_arviz().attrs['structure']!r}"
        )
    order = np.argsort(-found["inclusion"].mean(("chain", "draw")).values, kind="stable")[:features]
    best = found["inclusion"].isel(feature=np.sort(order))
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
) -> list[Axes]:
    """Forest plots of a mixed model's effects in the table's units, a panel for each: an owner's, or the averages alone.

    Of one task: its effect by its own rows alone, with the release, the average effect, and the range of a new task, which
    is no estimate and has no point. Of all tasks, a row for each over the average and that range: such a picture exists only
    where one desk holds all rows, and says that it is not to be published.

    Without reference values averages are per standard deviation of each task's own rows. All effects are then in those units,
    and panels say so; but an intercept, every task's own, has no average, and is in the table's units.

    Args:
        effects: of owners, or the public posterior.
        effect: only this one; default all.
        task: of owners, whose; default all tasks.
        probability: of the intervals.

    Returns:
        The Axes, one for each effect.

    Raises:
        ValueError: another object, an effect or a task that it does not have, or a task of the public posterior.
    """
    if not isinstance(effects, OwnerEffects | SharedEffects):
        raise ValueError(
            "effects: expected OwnerEffects or SharedEffects, as mpmtl_prob.inference.shared_effects and task_posteriors "
            f"make them of messages of effects, got {type(effects).__name__}"
        )
    own, shared = (None, effects) if isinstance(effects, SharedEffects) else (effects, effects.shared)
    known = list(shared.coefficients if own is None else own.features)
    if effect is not None and effect not in known:
        raise ValueError(f"effect: expected one of {known}, got {effect!r}")
    names = known if effect is None else [effect]
    if task is not None and (own is None or task not in own.tasks):
        of = "none of the public posterior" if own is None else f"one of the fit's, such as {own.tasks[0]!r}"
        raise ValueError(f"task: expected {of}, got {task!r}")
    average, new = shared.average_effects(probability), shared.new_task(probability)
    public = {name: (average.loc[name], new.loc[name]) for name in average.index}
    interval = f"{100 * probability:g} % intervals"
    if own is None:
        axes = _public_forest(names, public, f"Average effects and a new task's, {interval}")
    else:
        table = own.coefficients(probability)
        if shared.layout.reference is None:
            unit = own.common_units()
            public = {name: rows for name, rows in public.items() if unit.xs(name, level="effect").notna().all()}
            table = table.div(unit.fillna(1.0), axis=0)
        if task is None:
            axes = _forest_of_all(names, table, public, f"Effects of every task, {interval}: not to be published")
        else:
            axes = _forest_of_one(names, table.xs(task), public, f"Effects of {task}, for its owner, {interval}")
    for ax, name in zip(axes, names, strict=True):
        if name != NAME and min(ax.get_xlim()) < 0 < max(ax.get_xlim()):
            ax.axvline(0, color=GREY, lw=0.8, alpha=0.6, zorder=0)  # of no effect
    in_sds = public if shared.layout.reference is None else {}
    for ax, name in zip(axes, names, strict=True):
        ax.set_xlabel(PER_OWN_SD if name in in_sds else "in the table's units", fontsize=8)
    return axes


#: The average effect and the effects of a new task, by name of the effect.
Public = Mapping[Hashable, tuple["pd.Series", "pd.Series"]]


def _public_forest(names: list[Any], public: Public, title: str) -> list[Axes]:
    """The average effect and a new task's range."""
    axes = panels(names, ["average", "a new task"], title)
    for ax, name in zip(axes, names, strict=True):
        average, new = public[name]
        _interval(ax, 0, average, "", _ORANGE)
        _range(ax, 1, new)
    return axes


def _forest_of_one(names: list[Any], table: pd.DataFrame, public: Public, title: str) -> list[Axes]:
    """One task's effects, alone and with the release, beside the averages that are in its units."""
    labels = ["alone", "with the release"] + ["average", "a new task"] * any(name in public for name in names)
    axes = panels(names, labels, title)
    for ax, name in zip(axes, names, strict=True):
        _interval(ax, 0, table.loc[name], "alone", GREY)
        _interval(ax, 1, table.loc[name], "", _BLUE)
        if name in public:
            average, new = public[name]
            _interval(ax, 2, average, "", _ORANGE)
            _range(ax, 3, new)
    return axes


def _forest_of_all(names: list[Any], table: pd.DataFrame, public: Public, title: str) -> list[Axes]:
    """Every task's effects, in the order of the first one's; the average and the range of a new task behind them."""
    order = table.xs(names[0], level="effect")["mean"].sort_values().index
    axes = panels(names, [str(each) for each in order], title, per_row=0.17)
    for ax, name in zip(axes, names, strict=True):
        rows = table.xs(name, level="effect").loc[order]
        if name in public:
            average, new = public[name]
            ax.axvspan(new["lower"], new["upper"], color=_ORANGE, alpha=0.1, lw=0, label="range of a new task")
            ax.axvspan(average["lower"], average["upper"], color=_ORANGE, alpha=0.3, lw=0, label="average")
        y = np.arange(len(rows))
        for prefix, label, color, shift in (("alone", "alone", GREY, -0.18), ("", "with the release", _BLUE, 0.18)):
            low, high = (rows[f"{prefix}_{end}" if prefix else end] for end in ("lower", "upper"))
            ax.hlines(y + shift, low, high, color=color, lw=1.4, alpha=0.6)
            inside = "white" if prefix else color
            ax.plot(rows[prefix or "mean"], y + shift, "o", color=color, mfc=inside, ms=4, label=label)
    legend = max((ax.get_legend_handles_labels() for ax in axes), key=lambda found: len(found[1]))
    columns = 4 if len(axes) > 1 else 2
    axes[0].figure.legend(*legend, frameon=False, fontsize=8, ncols=columns, loc="outside lower center")
    return axes


def _interval(ax: Axes, row: int, of: pd.Series, prefix: str, color: str) -> None:
    """A mean and its interval, of a table's row."""
    low, high = (of[f"{prefix}_{end}" if prefix else end] for end in ("lower", "upper"))
    ax.hlines(row, low, high, color=color, lw=2.5, alpha=0.6)
    ax.plot(of[prefix or "mean"], row, "o", color=color, mfc="white" if prefix else color, ms=6)


def _range(ax: Axes, row: int, of: pd.Series) -> None:
    """An interval in which nothing was estimated."""
    ax.hlines(row, of["lower"], of["upper"], color=_ORANGE, lw=9, alpha=0.2)


def projector(subspace: Subspace, *, sd: bool = False, ax: Axes | None = None) -> Axes:
    """Heat map of the projector on the leading subspace: which features move together, over all tasks.

    Args:
        subspace: a posterior's.
        sd: the posterior sd of every entry instead of its mean.
        ax: to draw on.
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
    """Densities of the principal angles between the leading subspace and its reference.

    Args:
        subspaces: one, of which every angle is drawn; or several by name, of which the largest angle of each is.
        chance: with the largest angle of random subspaces, which know nothing, for comparison.
        ax: to draw on.
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
        if np.ptp(values) < 1e-3:  # subspaces of more than half the dimensions always meet
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
    """Forest plot of every task's root mean squared error on test rows, over the draws of its weights.

    Args:
        posterior: any with draws of W, or several by name.
        test: rows of the posteriors' tasks, found by name.
        limit: at most so many tasks, those with most test rows.
        probability: of the intervals.
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
    """Forest plot of one task's weights in several posteriors: before and after it learnt what tasks share.

    An intercept, whose size has nothing to do with that of slopes, has a panel of its own below.

    Args:
        posteriors: by name.
        task: its name.
        probability: of the intervals.

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
    """What every task learnt: how far its weights moved, and how much surer it became, from one posterior to another.

    Args:
        before: for example every task on its own.
        after: for example with what tasks share.
        ax: to draw on.
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
    """Share of test targets inside central intervals, against the intervals' probability; calibrated is the diagonal.

    Args:
        predictions: of the rows of test, by name, with draws.
        test: the rows.
        ax: to draw on.
    """
    ax = axes_of(ax, figsize=(4.8, 4.4))
    nominal = np.linspace(0.05, 0.95, 19)
    ax.plot([0, 1], [0, 1], ":", color=GREY, lw=1.2, label="calibrated")
    for name, prediction in predictions.items():
        metrics.check_rows(prediction, test)
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
    """Share of test targets that are 1, against the predicted probability of it; calibrated is the diagonal.

    A point is a bin of test rows of all tasks: those with the most alike predictions, equally many in each bin.

    Args:
        predictions: of the rows of test, by name: a posterior's probabilities, or log odds x'w of the logistic loss.
        test: the rows, with targets -1 and 1.
        bins: how many, at least one.
        ax: to draw on.

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
        metrics.check_rows(prediction, test)
        said = prediction.means
        said = said if prediction.quantity == "probability" else expit(said)
        groups = np.array_split(np.argsort(said, kind="stable"), min(bins, len(said)))
        x, share = np.array([(said[rows].mean(), np.mean(target[rows] == 1)) for rows in groups]).T
        ax.plot(x, share, "o-", ms=4, label=name)
    ax.set(xlabel="predicted probability of a 1", ylabel="share of test targets that are 1", xlim=(0, 1), ylim=(0, 1))
    ax.set_title("Do probabilities mean what they say?")
    ax.legend(frameon=False, fontsize=8)
    return ax


def ladder(subspaces: Mapping[float, Subspace], *, probability: float = 0.9, ax: Axes | None = None) -> Axes:
    """The effective rank at several budgets, with intervals: what noise hides, and what it leaves.

    Args:
        subspaces: a posterior's, by eps; infinite for the one without noise.
        probability: of the intervals.
        ax: to draw on.
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
    """Error of every arm of :func:`mpmtl_prob.evaluation.standard_fits` against the budget.

    Args:
        comparison: of the standard fits.
        epsilons: their budgets.
        metric: "nmse" or "nmse_within".
        ax: to draw on.
    """
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
        proved = all(bound is not None and bound.delta < 0.01 for bound in bounds)  # else it is not worth its eps
        ax.plot(order, error, style, color=color, ms=5, label=name if proved else f"{name} (eps only claimed)")
    words = {"nmse": "normalised mean squared error", "nmse_within": "normalised mean squared error within tasks"}
    ax.set(xscale="log", xlabel="privacy budget eps", ylabel=words.get(metric, metric), title="What privacy costs")
    ax.set_xticks(order, [f"{epsilon:g}" for epsilon in order])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8, **_BESIDE)
    return ax


def _weights(posterior: Weights) -> Any:
    """Draws of W, (chain, draw, d, m)."""
    if isinstance(posterior, Posterior):
        return posterior.draws["W"]
    return posterior.to_arviz(pointwise=False)["posterior"].dataset["W"].values


def _called(posterior: Weights) -> list[list[str]]:
    """The names of the tasks and of the features, as text."""
    known = posterior.tasks if isinstance(posterior, Posterior) else posterior
    return [list(map(label_text, names)) for names in (known.tasks, known.features)]
