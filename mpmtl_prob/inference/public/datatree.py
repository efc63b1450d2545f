"""The draws of a public posterior as a tree of named arrays, with Omega drawn where the model left it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.inference.public import inverse_wishart as law
from mpmtl_prob.releases.release import Release
from mpmtl_prob.sampling.chains import Draws

if TYPE_CHECKING:
    import xarray as xr


def as_tree(release: Release, found: Draws, statistics: Draws, seed: int) -> xr.DataTree:
    """The groups of :meth:`SharedPosterior.to_arviz`, of draws and statistics by name, (chain, draw, ...)."""
    import arviz_base as az  # with xarray and pandas, nearly a second to import
    import xarray as xr

    names = [str(feature) for feature in release.features]
    found = {k: v.astype(np.float64) for k, v in found.items()}
    omega = _omega(release, found, seed)
    eigenvalues = np.linalg.eigvalsh(omega)[..., ::-1]
    square = ["feature", "feature_other"]
    posterior = {
        "A": found["A"],
        "Omega": omega,
        "spectrum": eigenvalues / eigenvalues.sum(-1, keepdims=True),
        "log_phi": found["log_phi"],
    }
    posterior |= {name: found[name] for name in ("prior_scale", "inclusion", "kappa") if name in found}
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


def _omega(release: Release, found: Draws, seed: int) -> FloatArray:
    """Draws of Omega, (chain, draw, d, d): sampled, diagonal, or from its law given A."""
    if "omega" in found:
        return found["omega"][..., None] * np.eye(release.num_features)
    if (conditional := law.given_second_moment(found, release.num_tasks)) is None:
        return found["Omega"].astype(np.float64)
    rng = np.random.default_rng(seed)
    return np.stack([law.inverse_wishart(rng, M, df) for M, df in zip(*conditional, strict=True)])  # a chain: memory
