"""The public seat: from a release to the posterior of the covariance that tasks share."""

from __future__ import annotations

import time
from dataclasses import dataclass

import arviz as az
import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from mpmtl_prob._check import one_of, positive
from mpmtl_prob.inference.nuts import run_nuts
from mpmtl_prob.inference.subspace import Subspace, subspace
from mpmtl_prob.models import shared_covariance as model
from mpmtl_prob.privacy.guarantee import Guarantee
from mpmtl_prob.privacy.mechanisms import Wishart
from mpmtl_prob.privacy.release import Release
from mpmtl_prob.tasks import FloatArray

STRUCTURES = ("full",)


@dataclass(frozen=True, eq=False, repr=False)
class SharedPosterior:
    """Posterior of the tasks' shared covariance given a release. Computed from public things alone, and public.

    Attributes:
        release: what it conditions on.
        seconds: wall-clock time of the sampling.
    """

    release: Release
    seconds: float
    _tree: xr.DataTree

    seat = "public"

    @property
    def guarantee(self) -> Guarantee:
        """That of the release: everything after it is post-processing."""
        return self.release.guarantee

    def to_arviz(self) -> xr.DataTree:
        """A DataTree with groups ``posterior``, ``sample_stats``, ``observed_data`` and ``release``.

        ``posterior`` holds ``A``, the second moment behind the release; ``Omega``, the covariance of a task's weights
        (both over (chain, draw, feature, feature_other)); ``spectrum``, Omega's eigenvalues as shares of their sum,
        descending; and ``log_phi``.
        """
        return self._tree.copy()

    @property
    def omega(self) -> FloatArray:
        """Posterior mean of Omega's shape, scaled to mean variance 1, (d, d)."""
        return self.shape()

    def shape(self, sharpness: float = 1.0) -> FloatArray:
        """Posterior mean of the shape of Omega^p, p the sharpness, scaled to mean variance 1, (d, d): what a plug-in needs.

        Messages are estimates, whose errors make their second moment flatter than that of the weights; p > 1 undoes it.
        The power is taken draw by draw, so that where the release says little the mean stays near the identity.

        Raises:
            ValueError: sharpness that is not positive.
        """
        positive("sharpness", sharpness)
        posterior = self._tree.children["posterior"].dataset
        A, phi = posterior["A"].values, np.exp(posterior["log_phi"].values)
        d = A.shape[-1]
        eigenvalues, U = np.linalg.eigh(A + phi[..., None, None] * np.eye(d))  # E[Omega | A, phi] up to a factor
        power = (eigenvalues / eigenvalues[..., -1:]) ** sharpness
        power /= power.sum(axis=-1, keepdims=True)
        # Prior and noise favour no direction, so the posterior is the same when an axis of Sigma's eigenbasis is flipped:
        # in that basis the mean is diagonal, and it grows with Sigma's eigenvalues. What the draws say besides is noise.
        V = np.linalg.eigh(self.release.sigma[0])[1]
        diagonal = np.mean((V.T @ U) ** 2 @ power[..., None], axis=(0, 1))[:, 0]
        return d * (V * isotonic_regression(diagonal).x) @ V.T

    def subspace(self, rank: int, reference: ArrayLike | None = None) -> Subspace:
        """The posterior of the leading subspace of Omega; arguments as :func:`mpmtl_prob.inference.subspace`."""
        draws = self._tree.children["posterior"].dataset["Omega"].values
        return subspace(draws, rank, features=self.release.features, reference=reference)

    def __repr__(self) -> str:
        divergences = int(self._tree.children["sample_stats"].dataset["diverging"].sum())
        worst = az.rhat(self._tree.children["posterior"].to_dataset()[["spectrum", "log_phi"]])
        largest = max(float(v.max()) for v in worst.data_vars.values())
        sizes = self._tree.children["posterior"].sizes
        return (
            f"SharedPosterior({sizes['feature']} features, {sizes['chain']} chains of {sizes['draw']} draws, "
            f"{self.seconds:.3g} s; largest r-hat {largest:.3f}, {divergences} divergences)\n  {self.guarantee}"
        )


def shared_covariance(
    release: Release,
    *,
    structure: str = "full",
    chains: int = 4,
    warmup: int = 300,
    draws: int = 300,
    seed: int = 0,
    progress_bar: bool = True,
) -> SharedPosterior:
    """Sample the posterior of the shared covariance given one release, with NUTS.

    Args:
        release: of one round, by m >= d tasks.
        structure: of Omega; "full" has none.
        chains: number of chains.
        warmup: iterations of adaptation per chain.
        draws: kept iterations per chain.
        seed: of the sampler. The result is a function of the release and the seed.
        progress_bar: show one.

    Raises:
        ValueError: a release of several rounds, or of fewer tasks than features, or an argument outside its range.

    Model: :func:`mpmtl_prob.models.shared_covariance.full`.
    """
    one_of("structure", structure, STRUCTURES)
    if not isinstance(release, Release):
        raise ValueError(f"release: expected a Release, got {type(release).__name__}; make one with mpmtl_prob.release")
    if release.rounds != 1:
        raise ValueError(f"release: expected one round, got {release.rounds}; the posterior reads a single release")
    m, d = release.num_tasks, release.num_features
    if m < d:
        raise ValueError(
            f"release: structure='full' needs at least as many tasks as features, got {m} tasks and {d} features; "
            "use fewer features"
        )
    begin = time.perf_counter()
    law = release.mechanisms[0]
    if not isinstance(law, Wishart):
        raise ValueError(f"release: expected Wishart noise, whose density the model knows, got {law.kind}")
    observed = model.observe(
        release.sigma[0],
        law.df,
        law.scale,
        m,
        phi=law.clip**2 / d,
        trace=float(m) if release.message == "direction" else None,
    )
    start = {"z": 0.0, "log_diagonal": np.zeros(d), "off_diagonal": np.zeros(d * (d - 1) // 2)}
    found, statistics = run_nuts(
        model.full,
        observed,
        start=start,
        chains=chains,
        warmup=warmup,
        draws=draws,
        seed=seed,
        progress_bar=progress_bar,
    )
    A, log_phi = found["A"].astype(np.float64), found["log_phi"].astype(np.float64)
    omega = _sample_omega(np.random.default_rng(seed), A, np.exp(log_phi), m)
    tree = _tree(release, A, omega, log_phi, statistics)
    return SharedPosterior(release, time.perf_counter() - begin, tree)


def _sample_omega(rng: np.random.Generator, A: FloatArray, phi: FloatArray, m: int) -> FloatArray:
    """Omega | A ~ InverseWishart(kappa + m, phi I + A), exactly, (chain, draw, d, d)."""
    d = A.shape[-1]
    df = model.prior_degrees_of_freedom(d) + m
    L = np.linalg.cholesky(A + phi[..., None, None] * np.eye(d))
    T = np.tril(rng.standard_normal(A.shape), -1)  # Bartlett: T T' ~ Wishart(df, I)
    T[..., np.arange(d), np.arange(d)] = np.sqrt(rng.chisquare(df - np.arange(d), size=A.shape[:-1]))
    half = np.linalg.solve(T, np.swapaxes(L, -1, -2))  # Omega = L T'^{-1} T^{-1} L'
    return np.swapaxes(half, -1, -2) @ half


def _tree(
    release: Release, A: FloatArray, omega: FloatArray, log_phi: FloatArray, statistics: dict[str, FloatArray]
) -> xr.DataTree:
    names = [str(feature) for feature in release.features]
    eigenvalues = np.linalg.eigvalsh(omega)[..., ::-1]
    square = ["feature", "feature_other"]
    tree = az.from_dict(
        {
            "posterior": {
                "A": A,
                "Omega": omega,
                "spectrum": eigenvalues / eigenvalues.sum(-1, keepdims=True),
                "log_phi": log_phi,
            },
            "sample_stats": statistics,
            "observed_data": {"sigma": release.sigma[0]},
        },
        dims={"A": square, "Omega": square, "spectrum": ["component"], "sigma": square},
        coords={"feature": names, "feature_other": names, "component": np.arange(1, len(names) + 1)},
    )
    tree["release"] = xr.DataTree(release.to_xarray())
    tree.attrs["seat"] = SharedPosterior.seat
    return tree
