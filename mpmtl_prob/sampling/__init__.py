"""Sampling: chains of any kernel of NumPyro, their files, their diagnoses, and calibration by simulation."""

from mpmtl_prob.sampling.diagnostics import Diagnosis
from mpmtl_prob.sampling.langevin import ProximalLangevin
from mpmtl_prob.sampling.runs import Interrupted, Until

__all__ = ["Diagnosis", "Interrupted", "ProximalLangevin", "Until"]
