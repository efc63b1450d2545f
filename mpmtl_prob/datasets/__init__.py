"""Data sets: the papers' synthetic tasks, an example study with its files, and loaders for real data."""

from mpmtl_prob.datasets.example_study import ExampleStudy, example_study
from mpmtl_prob.datasets.handwriting import digits
from mpmtl_prob.datasets.ilea import school
from mpmtl_prob.datasets.lsoa import lsoa2
from mpmtl_prob.datasets.synthetic import Synthetic, synthetic_group_sparse, synthetic_low_rank

__all__ = [
    "ExampleStudy",
    "Synthetic",
    "digits",
    "example_study",
    "lsoa2",
    "school",
    "synthetic_group_sparse",
    "synthetic_low_rank",
]
