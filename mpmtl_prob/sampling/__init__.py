"""Sampling: chains of any kernel of NumPyro, their files, their diagnoses, and calibration by simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpmtl_prob._util.lazy import lazy_names

if TYPE_CHECKING:
    from mpmtl_prob.sampling.diagnostics import Diagnosis
    from mpmtl_prob.sampling.extent import Interrupted, Until
    from mpmtl_prob.sampling.langevin import ProximalLangevin

__all__ = ["Diagnosis", "Interrupted", "ProximalLangevin", "Until"]

#: A public posterior without chains needs no NumPyro, so that everything is imported on request.
__getattr__ = lazy_names(
    __name__,
    {
        "Diagnosis": ".diagnostics",
        "Interrupted": ".extent",
        "ProximalLangevin": ".langevin",
        "Until": ".extent",
    },
)
