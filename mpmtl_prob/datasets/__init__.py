"""Data to learn on: the papers' synthetic tasks, and loaders for real data."""

from mpmtl_prob.datasets.handwriting import digits
from mpmtl_prob.datasets.ilea import school
from mpmtl_prob.datasets.lsoa import lsoa2
from mpmtl_prob.datasets.synthetic import Synthetic, synthetic_group_sparse, synthetic_low_rank

__all__ = ["Synthetic", "digits", "lsoa2", "school", "synthetic_group_sparse", "synthetic_low_rank"]
