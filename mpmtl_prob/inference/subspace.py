"""Subspace that tasks share, by functionals that the data identify: spectrum, projector, principal angles.

Eigenvectors change sign and order between draws. Therefore they are not averaged, but the projector on the leading ones is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import whole

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False, repr=False)
class Subspace:
    """Posterior of the leading subspace of a covariance (d x d).

    Attributes:
        rank: r, its dimension.
        projector: mean of P_r = U_r U_r', (feature, feature_other).
        projector_sd: its pointwise posterior sd.
        angles: principal angles to the reference, in degrees, ascending, (chain, draw, angle).
        spectrum: eigenvalues as shares of their sum, descending, (chain, draw, component).
        effective_rank: exp of the spectrum's entropy, (chain, draw).
        reference: what the angles refer to: "mean", the leading subspace of the mean projector, or "given".
    """

    rank: int
    projector: xr.DataArray
    projector_sd: xr.DataArray
    angles: xr.DataArray
    spectrum: xr.DataArray
    effective_rank: xr.DataArray
    reference: str

    def __repr__(self) -> str:
        angle = np.quantile(self.angles.values[..., -1], [0.05, 0.5, 0.95])
        share = np.quantile(self.spectrum.values[..., : self.rank].sum(-1), [0.05, 0.5, 0.95])
        effective = np.quantile(self.effective_rank.values, [0.05, 0.5, 0.95])
        return (
            f"Subspace(rank {self.rank}); median and 90 % interval:\n"
            f"  share of variance      {share[1]:.2f} [{share[0]:.2f}, {share[2]:.2f}]\n"
            f"  effective rank         {effective[1]:.1f} [{effective[0]:.1f}, {effective[2]:.1f}]\n"
            f"  largest angle, degrees {angle[1]:.1f} [{angle[0]:.1f}, {angle[2]:.1f}] to the {self.reference} subspace"
        )


def subspace(
    covariance: FloatArray, rank: int, *, features: Sequence[object], reference: ArrayLike | None = None
) -> Subspace:
    """Summarise draws of a covariance by its leading subspace.

    Args:
        covariance: draws (chain, draw, d, d).
        rank: r, 1 <= r <= d.
        features: d names.
        reference: a covariance (d, d) or a basis (d, r), to whose leading subspace the angles are; default: the leading
            subspace of the mean projector.

    Raises:
        ValueError: rank outside 1..d, or a reference of another shape.
    """
    import xarray as xr  # imported here because it takes nearly a second, with pandas

    d = covariance.shape[-1]
    if whole("rank", rank) > d:
        raise ValueError(f"rank: expected at most the number of features, {d}, got {rank}")
    eigenvalues, U = np.linalg.eigh(covariance)
    share = eigenvalues[..., ::-1] / eigenvalues.sum(-1, keepdims=True)
    share = np.maximum(share, 0.0)
    basis = U[..., ::-1][..., :rank]
    projector = basis @ np.swapaxes(basis, -1, -2)
    mean = projector.mean(axis=(0, 1))
    reference_basis = _basis(mean if reference is None else np.asarray(reference, dtype=np.float64), d, rank)
    cosine = np.linalg.svd(reference_basis.T @ basis, compute_uv=False)
    angles = np.degrees(np.arccos(np.clip(cosine, 0.0, 1.0)))
    entropy = -np.sum(share * np.log(np.where(share > 0, share, 1.0)), axis=-1)

    names = [str(feature) for feature in features]

    def square(values: FloatArray) -> xr.DataArray:
        coords = {"feature": names, "feature_other": names}
        return xr.DataArray(values, dims=("feature", "feature_other"), coords=coords)

    return Subspace(
        rank=rank,
        projector=square(mean),
        projector_sd=square(projector.std(axis=(0, 1))),
        angles=xr.DataArray(angles, dims=("chain", "draw", "angle")),
        spectrum=xr.DataArray(share, dims=("chain", "draw", "component")),
        effective_rank=xr.DataArray(np.exp(entropy), dims=("chain", "draw")),
        reference="mean" if reference is None else "given",
    )


def random_angles(num_features: int, rank: int, num_draws: int = 1000, seed: int = 0) -> FloatArray:
    """Return principal angles between random subspaces and a fixed one, in degrees, ascending, (S, rank).

    Angles of a posterior are compared with these, which chance would give.
    """
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((num_draws, num_features, rank)))[0]
    cosine = np.linalg.svd(basis[:, :rank], compute_uv=False)  # to the subspace of the first axes
    return np.degrees(np.arccos(np.clip(cosine, 0.0, 1.0)))


def _basis(reference: FloatArray, d: int, rank: int) -> FloatArray:
    """Return an orthonormal basis (d, r) of a covariance's leading subspace, or of the span of a basis."""
    if reference.shape == (d, d):
        return np.linalg.eigh((reference + reference.T) / 2)[1][:, ::-1][:, :rank]
    if reference.shape == (d, rank):
        return np.linalg.qr(reference)[0]
    raise ValueError(f"reference: expected a covariance {(d, d)} or a basis {(d, rank)}, got shape {reference.shape}")
