"""Second Longitudinal Study of Aging ("LSOA II"): 41 yes-or-no questions about the same 3,988 elderly people."""

from __future__ import annotations

import os

import numpy as np

from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.datasets.files import DataFile

FILE = DataFile(
    name="lsoa2.mat",
    sha256="2880e8763a7f3c8b1ba3f85f76e8a25e1defdef8c4c0108892921c470587ba93",
    title="LSOA II data",
    source="data/LSOAII/data_processed_LSOAII.mat of github.com/liangjian12/HERMIT, under this name",
)

_BINARY = 2  # value in the file's task_type; 1 is a continuous target
_PARTS = ("train", "valid", "test")


def lsoa2(path: str | os.PathLike[str] | None = None, *, unit_rows: bool = True) -> TaskData:
    """Load the 41 binary outcomes of LSOA II, one task each: targets -1 and 1, 293 attributes including the constant.

    A task holds the people whose outcome was observed (1,192 to 3,473 of 3,988), and the tasks share the people:
    ``lsoa2().split(0.3, seed)`` sends 30 % of the people to training, with all their observed outcomes. (The papers say
    30 % of each task; two tasks' rows of one person would then fall on both sides.) The attributes are as circulated,
    missing ones imputed or coded by dummy variables; every row is scaled to unit length, the papers' preprocessing.

    The search for the file is that of :func:`mpmtl_prob.datasets.school`, but there is no address for a download. The data
    are for public use, from the US National Center for Health Statistics: for statistics only, with no attempt to identify
    anyone.

    Args:
        path: path of lsoa2.mat, or of the folder that contains it.
        unit_rows: scale every row of X to Euclidean length 1.

    Raises:
        FileNotFoundError: the file was not found; the message says where to put it.
        ValueError: a file with another checksum.

    Source: www.cdc.gov/nchs/lsoa/lsoa2.htm; processed by Liang et al. (TPAMI 2022, section 5.5; two attributes fewer here).
    """
    from scipy.io import loadmat  # with scipy.sparse, half a second to import

    arrays = loadmat(FILE.locate(path))
    X, Y, observed = (np.concatenate([arrays[f"{part}_{what}"] for part in _PARTS]) for what in ("X", "Y", "Omega"))
    binary = np.flatnonzero(arrays["task_type"][0] == _BINARY)
    tasks = TaskData.from_targets(
        X,
        2.0 * Y[:, binary] - 1.0,
        observed[:, binary],
        tasks=[f"outcome_{j + 1:02d}" for j in binary],
        features=["constant", *(f"attribute_{j:03d}" for j in range(1, X.shape[1]))],
    )
    return tasks.unit_rows() if unit_rows else tasks
