"""DataTree of a public posterior's draws, with draws of Omega where the model has integrated it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpmtl_prob._util.arrays import Draws, FloatArray
from mpmtl_prob.inference.public import inverse_wishart as law
from mpmtl_prob.releases.release import Release

if TYPE_CHECKING:
    import xarray as xr


def as_tree(release: Release, drawn: Draws, statistics: Draws, seed: int) -> xr.DataTree:
    """Return the groups of :meth:`SharedPosterior.to_arviz`.

    Args:
        release: the release.
        drawn: draws by name, (chain, draw, ...).
        statistics: of the sampler, by name, (chain, draw).
        seed: seed of the draws of Omega given A.
    """
    import arviz_base as az  # imported here because it takes nearly a second, with xarray and pandas
    import xarray as xr

    names = [str(feature) for feature in release.features]
    drawn = {k: v.astype(np.float64) for k, v in drawn.items()}
    omega = _omega(release, drawn, seed)
    eigenvalues = np.linalg.eigvalsh(omega)[..., ::-1]
    square = ["feature", "feature_other"]
    posterior = {
        "A": drawn["A"],
        "Omega": omega,
        "spectrum": eigenvalues / eigenvalues.sum(-1, keepdims=True),
        "log_phi": drawn["log_phi"],
    }
    posterior |= {name: drawn[name] for name in ("prior_scale", "inclusion", "kappa") if name in drawn}
    tree = az.from_dict(
        {
            "posterior": posterior,
            "sample_stats": statistics,
            "observed_data": {"sigma": release.sigma[-1]},
        },
        dims={
            "A": square,
            "Omega": square,
            "spectrum": ["component"],
            "sigma": square,
            "inclusion": ["feature"],
            "prior_scale": ["feature"],
        },
        coords={
            "feature": names,
            "feature_other": names,
            "component": np.arange(1, len(names) + 1),
        },
    )
    tree["release"] = xr.DataTree(release.to_xarray())
    return tree


def _omega(release: Release, drawn: Draws, seed: int) -> FloatArray:
    """Return draws of Omega, (chain, draw, d, d): as sampled, from its sampled diagonal, or from its distribution given A."""
    if "omega" in drawn:
        return drawn["omega"][..., None] * np.eye(release.num_features)
    if (conditional := law.given_second_moment(drawn, release.num_tasks)) is None:
        return drawn["Omega"].astype(np.float64)
    rng = np.random.default_rng(seed)
    # one chain at a time, to save memory
    return np.stack([law.inverse_wishart(rng, M, df) for M, df in zip(*conditional, strict=True)])
