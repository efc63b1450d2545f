"""ILEA examination scores ("School data"): 15,362 students in 139 London schools."""

from __future__ import annotations

import os

import numpy as np

from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.datasets.files import DataFile

_URL = "https://raw.githubusercontent.com/jiayuzhou/MALSAR/master/data/school.mat"
FILE = DataFile(
    name="school.mat",
    sha256="57fb3238fdd03a9aa17276e2ce18d9bbb5d128c3261e794fe6233b58b6909068",
    title="School data",
    source=f"from {_URL}",
    url=_URL,
)

FEATURES = (
    *("year_1985", "year_1986", "year_1987"),
    *("free_school_meals", "school_vr_band_1"),
    *("female", "male"),
    *("vr_band_1", "vr_band_2", "vr_band_3"),
    *(f"ethnic_group_{i}" for i in range(1, 12)),
    *("school_mixed", "school_boys", "school_girls"),
    *(f"denomination_{i}" for i in range(1, 4)),
)


def school(path: str | os.PathLike[str] | None = None, *, unit_rows: bool = True) -> TaskData:
    """Load examination scores (1 to 70) of students in 139 schools, one task per school, 27 attributes of student and school.

    The preprocessing is that of the MP-MTL papers: the attributes as circulated with MALSAR, without its constant column, and
    every row scaled to unit length. The scaling changes the error of single-task ridge by .09, so it is an option.

    The search for the file goes through ``path``, the folder ``MPMTL_DATA``, ``../shared/data``, and the download cache, in
    that order. Otherwise it is downloaded (with pooch, from the extra ``data``). Its checksum is verified.

    Args:
        path: path of school.mat, or of the folder that contains it.
        unit_rows: scale every row of X to Euclidean length 1.

    Raises:
        FileNotFoundError: the file was not found and cannot be downloaded; the message says where to put it.
        ValueError: a file with another checksum.

    Source: Goldstein (1991), Inner London Education Authority; circulated with MALSAR (Zhou, Chen and Ye, 2012).
    """
    from scipy.io import loadmat  # with scipy.sparse, half a second to import

    cells = loadmat(FILE.locate(path))
    X = [np.asarray(x, dtype=np.float64)[:, :-1] for x in cells["X"][0]]  # the last column is the constant 1
    y = [np.asarray(v, dtype=np.float64)[:, 0] for v in cells["Y"][0]]
    tasks = TaskData.from_lists(X, y, tasks=[f"school_{i:03d}" for i in range(1, len(X) + 1)], features=FEATURES)
    return tasks.unit_rows() if unit_rows else tasks
