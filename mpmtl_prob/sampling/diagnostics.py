"""Diagnostics in words: what r-hat, effective sample sizes and divergences mean for the reader, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import xarray as xr

#: Vehtari et al. (2021), Bayesian Analysis 16: r-hat below 1.01 and 100 effective draws per chain.
RHAT_LIMIT = 1.01
#: The largest of many r-hats, as over the entries of W, is larger in sound runs too.
RHAT_LIMIT_OF_MANY = 1.05
ESS_PER_CHAIN = 100
#: Quantiles whose effective sample size is that of the tails; ArviZ's own follow its rcParams, so differ between users.
TAILS = (0.05, 0.95)


class Remedies(NamedTuple):
    """Advice on what to do about draws that are too few or wrong, in the words of whoever drew them.

    Attributes:
        settle: where chains disagree.
        more: for that many draws per chain besides those there are, given their number.
        smaller: where transitions diverge.
        scale: where trajectories reach their limit.
    """

    settle: str
    more: Callable[[int, int], str]
    smaller: str
    scale: str


@dataclass(frozen=True)
class Diagnosis:
    """Diagnosis of draws: how far they can be trusted.

    Attributes:
        rhat: the largest rank-normalised split r-hat of every functional; none of weighted points.
        ess: the smallest bulk or tail effective sample size of every functional.
        divergences: transitions that diverged.
        draws: kept, of all chains; of weighted points, how many were weighted.
        advice: what is wrong and what to do about it; empty if nothing is.
        remarks: what the draws say, where they can be trusted.
        asks_for_draws: whether something is wrong, and more draws alone may mend all of it.
        khat: where draws are weighted points and no chains, the Pareto k of the weights.
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
        functionals: by name, (chain, draw, ...). Never factor loadings, whose signs and order are arbitrary.
        statistics: of the sampler, (chain, draw).
        remedies: what to do about it, in the words of whoever drew.
        exact: whether the sampler targets the posterior itself.
        remarks: to add to what is said of the draws.
    """
    from arviz_stats import ess as effective  # which take two seconds to import
    from arviz_stats import rhat as agreement

    data, compared = _data_set(functionals), _data_set({k: _compared(v) for k, v in functionals.items()})
    chains, draws = data.sizes["chain"], data.sizes["draw"]
    enough = lambda of: of.sizes["draw"] >= 4  # for ArviZ
    rhat = {k: _worst(agreement(compared[[k]]), k, np.nanmax) if enough(compared) else np.nan for k in functionals}
    ess = {
        k: min(
            _worst(effective(data[[k]], method="bulk"), k, np.nanmin),
            _worst(effective(data[[k]], method="tail", prob=TAILS), k, np.nanmin),
        )
        if enough(data)
        else np.nan
        for k in functionals
    }
    divergences = int(np.sum(statistics.get("diverging", np.zeros(1))))
    limit = {k: RHAT_LIMIT if v.ndim == 2 else RHAT_LIMIT_OF_MANY for k, v in functionals.items()}
    apart = [k for k, v in rhat.items() if not v <= limit[k]]  # nan counts
    few = [k for k, v in ess.items() if not v >= ESS_PER_CHAIN * chains]
    advice = tuple(_advice(rhat, apart, ess, few, divergences, chains, draws, statistics, exact, remedies))
    asks_for_draws = 0 < len(advice) == bool(apart) + bool(few)
    return Diagnosis(rhat, ess, divergences, chains * draws, advice, tuple(remarks), asks_for_draws)


def diagnose_weights(khat: float, ess: float, points: int, *, remarks: Sequence[str] = ()) -> Diagnosis:
    """Judge draws that are weighted points and no chains: they are there only where their weights can be trusted.

    Args:
        khat: the Pareto k of the weights.
        ess: how many draws they are worth.
        points: that were weighted.
        remarks: to add to what is said of the draws.
    """
    said = "Draws are weighted points of a normal law that was fitted to the posterior, and no chains."
    return Diagnosis({}, {"weighted points": ess}, 0, points, (), (said, *remarks), khat=khat)


def khat_advice(khat: NDArray[np.floating], num_draws: int, failing: str, remedy: str) -> tuple[str, ...]:
    """Say what the Pareto k of every task's weights (m,) means.

    Args:
        khat: of every task; nan counts as too large.
        num_draws: that were weighted.
        failing: what is then wrong, a clause.
        remedy: what to do, a sentence.

    Source: Vehtari et al. (2024), JMLR 25(72): S draws bear k-hat up to min(1 - 1 / log10 S, 0.7).
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
    apart: list[str],
    ess: Mapping[str, float],
    few: list[str],
    divergences: int,
    chains: int,
    draws: int,
    statistics: Mapping[str, NDArray[Any]],
    exact: bool,
    remedies: Remedies,
) -> list[str]:
    lines = []
    if apart:
        who = "Chains disagree on" if chains > 1 else "The chain has not settled on"
        worst = float(np.max([rhat[k] for k in apart]))  # nan if one is
        then = "means can be used, intervals not yet" if worst <= RHAT_LIMIT_OF_MANY else "do not use these draws yet"
        lines.append(f"{who} {_and(apart)} (r-hat up to {worst:.3f}, expected near 1): {then}. {remedies.settle}")
    if few:
        least = min(ess[k] for k in few)
        if np.isfinite(least):
            more = (int(np.ceil(ESS_PER_CHAIN * chains / max(least, 1.0))) - 1) * draws
            rest = f"rest on {least:.0f} effective draws, and {ESS_PER_CHAIN * chains} are enough"
        else:
            more = max(draws, 3 * ESS_PER_CHAIN - draws)
            rest = f"cannot be judged by {draws} draws of a chain"
        lines.append(f"Intervals of {_and(few)} {rest}: {remedies.more(more, draws)}")
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
    import xarray as xr

    named = lambda k, v: (("chain", "draw", *(f"{k}_{i}" for i in range(v.ndim - 2))), v)
    return xr.Dataset({k: named(k, v) for k, v in functionals.items()})


def _compared(v: NDArray[np.floating]) -> NDArray[np.floating]:
    """Chains to compare with each other: of a single one its halves."""
    half = v.shape[1] // 2
    return v if len(v) > 1 else v[0, : 2 * half].reshape(2, half, *v.shape[2:])


def _worst(found: xr.Dataset | xr.DataTree, name: str, of: object) -> float:
    values = np.asarray(found[name].values, dtype=float)
    return float(of(values)) if np.isfinite(values).any() else np.nan  # type: ignore[operator]


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
