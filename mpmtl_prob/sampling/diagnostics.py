"""Diagnostics in words: what r-hat, effective sample sizes and divergences mean for the reader, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import xarray as xr

#: Largest r-hat of a sound run. This limit and the next one are from Vehtari et al. (2021), Bayesian Analysis 16.
RHAT_LIMIT = 1.01
#: Smallest number of effective draws per chain of a sound run.
ESS_PER_CHAIN = 100
#: Limit of the largest of many r-hats, as over the entries of W, which is larger in sound runs too.
RHAT_LIMIT_OF_MANY = 1.05
#: Quantiles whose effective sample sizes are those of the tails. ArviZ's defaults follow its rcParams, which differ between
#: users.
TAILS = (0.05, 0.95)
#: Draws of a chain, with fewer of which ArviZ computes neither measure.
_ARVIZ_NEEDS = 4


class Remedies(NamedTuple):
    """Advice on draws that are too few or wrong, in the words of the function that drew them.

    Attributes:
        settle: advice where chains disagree.
        more: from the number of missing draws per chain, and the number there are, to advice on how to draw them.
        smaller: advice where transitions diverge.
        scale: advice where trajectories reach their limit.
    """

    settle: str
    more: Callable[[int, int], str]
    smaller: str
    scale: str


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of draws: how far they can be trusted.

    Attributes:
        rhat: the largest rank-normalised split r-hat of every functional; empty for weighted points.
        ess: the smallest bulk or tail effective sample size of every functional.
        divergences: number of transitions that diverged.
        draws: number of draws of all chains; for weighted points, the number of points.
        advice: what is wrong and what to do about it; empty if nothing is wrong.
        remarks: what the draws say, where they can be trusted.
        asks_for_draws: whether something is wrong, and more draws alone may mend all of it.
        khat: the Pareto k of the weights, where the draws are weighted points instead of chains.
    """

    rhat: Mapping[str, float]
    ess: Mapping[str, float]
    divergences: int
    draws: int
    advice: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    asks_for_draws: bool = False
    khat: float | None = None

    @property
    def sound(self) -> bool:
        """True if nothing is wrong."""
        return not self.advice

    def __str__(self) -> str:
        least = min(self.ess, key=self.ess.__getitem__)
        if self.khat is not None:
            figures = (
                f"k-hat {self.khat:.2f}, effective sample size {self.ess[least]:.0f} of {self.draws} weighted points"
            )
        else:
            worst = max(self.rhat, key=self.rhat.__getitem__)
            figures = (
                f"largest r-hat {self.rhat[worst]:.3f} ({worst}), smallest effective sample size {self.ess[least]:.0f} of "
                f"{self.draws} ({least}), {self.divergences} divergences"
            )
        lines = self.advice or ("Nothing is wrong with the draws.",)
        return "\n".join([figures, *(f"- {line}" for line in (*lines, *self.remarks))])

    __repr__ = __str__


def diagnose(
    functionals: Mapping[str, NDArray[np.floating]],
    statistics: Mapping[str, NDArray[Any]],
    *,
    remedies: Remedies,
    exact: bool = True,
    remarks: Sequence[str] = (),
) -> Diagnosis:
    """Judge draws by functionals that the data identify.

    Args:
        functionals: by name, (chain, draw, ...). Factor loadings must not be among them, because their signs and order are
            arbitrary.
        statistics: of the sampler, (chain, draw).
        remedies: advice, in the words of the function that drew.
        exact: whether the sampler targets the posterior itself.
        remarks: sentences to add to the diagnosis.
    """
    # imported here because it takes two seconds
    from arviz_stats import ess as effective_sample_size
    from arviz_stats import rhat as split_rhat

    data = _data_set(functionals)
    compared = _data_set({k: _compared(v) for k, v in functionals.items()})
    chains, draws = data.sizes["chain"], data.sizes["draw"]

    def rhat_of(k: str) -> float:
        return _worst(split_rhat(compared[[k]]), k, np.nanmax)

    def ess_of(k: str) -> float:
        bulk = effective_sample_size(data[[k]], method="bulk")
        tail = effective_sample_size(data[[k]], method="tail", prob=TAILS)
        return min(_worst(bulk, k, np.nanmin), _worst(tail, k, np.nanmin))

    rhat = {k: rhat_of(k) if compared.sizes["draw"] >= _ARVIZ_NEEDS else np.nan for k in functionals}
    ess = {k: ess_of(k) if draws >= _ARVIZ_NEEDS else np.nan for k in functionals}
    divergences = int(np.sum(statistics.get("diverging", np.zeros(1))))
    limit = {k: RHAT_LIMIT if v.ndim == 2 else RHAT_LIMIT_OF_MANY for k, v in functionals.items()}
    # the negated comparisons count nan as wrong
    disagreeing = [k for k, v in rhat.items() if not v <= limit[k]]
    few = [k for k, v in ess.items() if not v >= ESS_PER_CHAIN * chains]
    advice = tuple(_advice(rhat, disagreeing, ess, few, divergences, chains, draws, statistics, exact, remedies))
    asks_for_draws = 0 < len(advice) == bool(disagreeing) + bool(few)
    return Diagnosis(rhat, ess, divergences, chains * draws, advice, tuple(remarks), asks_for_draws)


def diagnose_weights(khat: float, ess: float, points: int, *, remarks: Sequence[str] = ()) -> Diagnosis:
    """Describe draws that are weighted points instead of chains, where their weights can be trusted.

    Args:
        khat: the Pareto k of the weights.
        ess: effective number of draws.
        points: number of weighted points.
        remarks: sentences to add to the diagnosis.
    """
    origin = "Draws are weighted points of a normal law that was fitted to the posterior, and no chains."
    return Diagnosis({}, {"weighted points": ess}, 0, points, (), (origin, *remarks), khat=khat)


def diagnose_short_chains(
    ess: float, rhat: float, statistics: Mapping[str, NDArray[Any]], *, remedies: Remedies, remarks: Sequence[str] = ()
) -> Diagnosis:
    """Describe draws of short chains that agree.

    Args:
        ess: least effective number of draws of a number that they were judged by.
        rhat: largest nested r-hat of such a number.
        statistics: of the sampler, (chain, draw).
        remedies: advice, in the words of the function that drew.
        remarks: sentences to add to the diagnosis.
    """
    diverging = statistics["diverging"]
    divergences = int(np.sum(diverging))
    advice = tuple(_advice({}, [], {}, [], divergences, 0, 0, {}, True, remedies))
    return Diagnosis({"short chains": rhat}, {"short chains": ess}, divergences, diverging.size, advice, tuple(remarks))


def khat_advice(khat: NDArray[np.floating], num_draws: int, failing: str, remedy: str) -> tuple[str, ...]:
    """Return advice where the Pareto k of a task's weights is too large; empty where none is.

    Args:
        khat: Pareto k of every task's weights, (m,); nan counts as too large.
        num_draws: number of weighted draws.
        failing: a clause that says what is wrong with such a task.
        remedy: a sentence that says what to do.

    Source: Vehtari et al. (2024), JMLR 25(72): averages over S draws can be trusted up to a k-hat of
    min(1 - 1 / log10 S, 0.7).
    """
    limit = min(1 - 1 / np.log10(num_draws), 0.7)
    bad = ~(khat <= limit)
    if not bad.any():
        return ()
    worst = np.nanmax(khat[bad], initial=limit)
    return (
        f"k-hat is above {limit:.2g} for {bad.sum()} of {len(khat)} tasks (up to {worst:.2g}): {failing}. {remedy}",
    )


def _advice(
    rhat: Mapping[str, float],
    disagreeing: list[str],
    ess: Mapping[str, float],
    few: list[str],
    divergences: int,
    chains: int,
    draws: int,
    statistics: Mapping[str, NDArray[Any]],
    exact: bool,
    remedies: Remedies,
) -> list[str]:
    """Return a sentence or two on everything that is wrong with draws."""
    lines = []
    if disagreeing:
        subject = "Chains disagree on" if chains > 1 else "The chain has not settled on"
        worst = float(np.max([rhat[k] for k in disagreeing]))  # nan if one is nan
        usable = "means can be used, intervals not yet" if worst <= RHAT_LIMIT_OF_MANY else "do not use these draws yet"
        lines.append(
            f"{subject} {_and(disagreeing)} (r-hat up to {worst:.3f}, expected near 1): {usable}. {remedies.settle}"
        )
    if few:
        least = float(np.min([ess[k] for k in few]))  # nan if one is nan
        if np.isfinite(least):
            more = (int(np.ceil(ESS_PER_CHAIN * chains / max(least, 1.0))) - 1) * draws
            problem = f"rest on {least:.0f} effective draws, and {ESS_PER_CHAIN * chains} are enough"
        else:
            more = max(draws, 3 * ESS_PER_CHAIN - draws)
            problem = f"cannot be judged by {draws} draws of a chain"
        lines.append(f"Intervals of {_and(few)} {problem}: {remedies.more(more, draws)}")
    if divergences:
        lines.append(
            f"{divergences} {'transition' if divergences == 1 else 'transitions'} diverged: some region is not explored and "
            f"intervals may be too narrow. {remedies.smaller}"
        )
    if np.mean(statistics.get("reached_max_treedepth", 0.0)) > 0.1:
        longest = np.max(statistics["n_steps"])
        lines.append(
            f"Trajectories reach their limit of {longest} steps: the coordinates are badly scaled; {remedies.scale}"
        )
    if not exact:
        lines.append(
            "The sampler is not adjusted: its law differs from the posterior by a bias that more draws do not remove. Use "
            "ProximalLangevin(adjusted=True) or NUTS to check what matters."
        )
    return lines


def _data_set(functionals: Mapping[str, NDArray[np.floating]]) -> xr.Dataset:
    """Return functionals as ArviZ expects them: each with dimensions of its own after chain and draw."""
    import xarray as xr

    def dims(name: str, ndim: int) -> tuple[str, ...]:
        return ("chain", "draw", *(f"{name}_{i}" for i in range(ndim - 2)))

    return xr.Dataset({name: (dims(name, values.ndim), values) for name, values in functionals.items()})


def _compared(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the chains that r-hat compares with each other; of a single chain its two halves."""
    half = values.shape[1] // 2
    return values if len(values) > 1 else values[0, : 2 * half].reshape(2, half, *values.shape[2:])


def _worst(measure: xr.Dataset | xr.DataTree, name: str, extreme: Callable[[NDArray[Any]], Any]) -> float:
    """Return the extreme value of a measure over all entries of a functional; nan where no value is finite."""
    values = np.asarray(measure[name].values, dtype=float)
    return float(extreme(values)) if np.isfinite(values).any() else np.nan


def _and(names: list[str]) -> str:
    """Join names by commas and a last "and"."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
