"""Information in a release, as widths of intervals relative to those without noise and to those before the release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.inference.public import inverse_wishart as law

if TYPE_CHECKING:
    import xarray as xr

_PRIOR_DRAWS = 2000

#: From the numbers of features and draws and a seed to draws of Omega (S, d, d); None where the prior cannot be drawn from.
Prior = Callable[[int, int, int], FloatArray | None]


@dataclass(frozen=True)
class Information:
    """Relative widths of a release's posterior, by functional: "the spectrum" (shares), "the covariance" (its shape).

    Attributes:
        noise: the posterior sd over the sd that m tasks leave if their second moment is known, by which intervals are wider
            than without noise; 1 for a release without noise. Empty where it is not known, because it needs Omega | A in
            closed form, as with the structures "full" and "auto".
        prior: the posterior sd over the sd before the release; 1 for a release without information. Empty for the papers'
            priors, and for a structure with only one possible shape.
    """

    noise: Mapping[str, float]
    prior: Mapping[str, float]

    def __str__(self) -> str:
        return " ".join(part for part in (self._amount(), self._before()) if part)

    def _amount(self) -> str:
        if not self.noise:
            return ""
        widest = max(self.noise.values())
        much = "nearly all that the tasks could" if widest < 1.25 else "much" if widest < 3 else "little"
        if self.prior and min(self.prior.values()) > 0.9:
            much = "next to nothing"
        others = ", ".join(f"those of {k} {v:.1f} times" for k, v in self.noise.items() if k != "the spectrum")
        return (
            f"The release says {much}: intervals of the spectrum are {self.noise['the spectrum']:.1f} times as wide as "
            f"they would be without noise, {others}."
        )

    def _before(self) -> str:
        if not self.prior:
            return ""
        others = ", ".join(f"those of {k} {v:.2f} times" for k, v in self.prior.items() if k != "the spectrum")
        spectrum = f"intervals of the spectrum are {self.prior['the spectrum']:.2f} times as wide"
        return f"Compared to before the release, {spectrum}, {others}."


def information(posterior: xr.Dataset, prior: Prior, num_tasks: int, seed: int = 0) -> Information:
    """Compare the spread of functionals of Omega with their spread given A, and with their spread before the release.

    By the law of total variance ``Var f(Omega) = E Var(f | A) + Var E(f | A)``, where the first part is the variance that m
    tasks would leave without noise. Half the mean squared difference of two independent draws of Omega for every draw of A
    estimates it without bias. Everything is computed from the public posterior, and so public.

    Args:
        posterior: the group ``posterior`` of :meth:`SharedPosterior.to_arviz`.
        prior: of Omega, as :meth:`Structure.prior`.
        num_tasks: m.
        seed: seed of the second draws, and of those of the prior.
    """
    drawn = functionals(posterior["Omega"].values)
    noise: dict[str, float] = {}
    if (conditional := law.given_second_moment(posterior, num_tasks)) is not None:
        # a spawned stream, because the stream of the posterior's draws with the same seed would repeat those draws
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
        again = functionals(law.inverse_wishart(rng, *conditional))
        for name, first in drawn.items():
            second = again[name]
            within = np.mean((first - second) ** 2, axis=(0, 1)).sum() / 2
            if not within:  # one feature has only one shape
                continue
            total = (_variance(first) + _variance(second)) / 2
            noise[name] = float(np.sqrt(max(total / within, 1.0)))
    before = prior(posterior.sizes["feature"], _PRIOR_DRAWS, seed)
    prior_variance = {} if before is None else {k: _variance(v) for k, v in functionals(before[None]).items()}
    if not all(prior_variance.values()):  # the structure has only one possible shape
        prior_variance = {}
    return Information(noise, {k: float(np.sqrt(_variance(drawn[k]) / v)) for k, v in prior_variance.items()})


def functionals(omega: FloatArray) -> dict[str, FloatArray]:
    """Return the identified functionals of Omega (chain, draw, d, d): shares of its eigenvalues, and Omega over its trace."""
    shape = omega / np.trace(omega, axis1=-2, axis2=-1)[..., None, None]
    return {"the spectrum": np.linalg.eigvalsh(shape)[..., ::-1], "the covariance": shape}


def _variance(values: FloatArray) -> float:
    """Return the sum of the components' variances over (chain, draw)."""
    return float(values.var(axis=(0, 1)).sum())
