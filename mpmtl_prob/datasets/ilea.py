"""The ILEA examination scores ("School data"): 15,362 students in 139 London schools."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
from scipy.io import loadmat

from mpmtl_prob.tasks import TaskData

_FILE = "school.mat"
_SHA256 = "57fb3238fdd03a9aa17276e2ce18d9bbb5d128c3261e794fe6233b58b6909068"
_URL = "https://raw.githubusercontent.com/jiayuzhou/MALSAR/master/data/school.mat"

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
    """Examination scores (1 to 70) of students in 139 schools, one task a school, 27 attributes of student and school.

    The MP-MTL papers' preprocessing: the attributes as circulated with MALSAR, without its constant column, and every
    row scaled to unit length. It moves the error of single-task ridge by .09, so it is an option with a name.

    The file is looked for at ``path``, in the folder ``MPMTL_DATA``, in ``../shared/data``, and in the download cache,
    in that order, and then downloaded (with pooch, from the extra ``data``). Its checksum is verified.

    Args:
        path: of school.mat, or of the folder that holds it.
        unit_rows: scale every row of X to Euclidean length 1.

    Raises:
        FileNotFoundError: the file is nowhere and cannot be downloaded; the message says where to put it.
        ValueError: a file with another checksum.

    Source: Goldstein (1991), Inner London Education Authority; circulated with MALSAR (Zhou, Chen and Ye, 2012).
    """
    file = _locate(path)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != _SHA256:
        raise ValueError(f"{file}: not the School data; expected sha256 {_SHA256[:12]}..., got {digest[:12]}...")
    cells = loadmat(file)
    X = [np.asarray(x, dtype=np.float64)[:, :-1] for x in cells["X"][0]]  # the last column is the constant 1
    y = [np.asarray(v, dtype=np.float64)[:, 0] for v in cells["Y"][0]]
    tasks = TaskData.from_lists(X, y, tasks=[f"school_{i:03d}" for i in range(1, len(X) + 1)], features=FEATURES)
    return tasks.unit_rows() if unit_rows else tasks


def _locate(path: str | os.PathLike[str] | None) -> Path:
    if path is not None:
        given = Path(path)
        file = given / _FILE if given.is_dir() else given
        if not file.is_file():
            raise FileNotFoundError(f"path: no file {file}; expected {_FILE} or the folder that holds it")
        return file
    repository = Path(__file__).resolve().parents[2]
    folders = [Path("../shared/data"), repository.parent / "shared" / "data", _cache()]
    if "MPMTL_DATA" in os.environ:
        folders.insert(0, Path(os.environ["MPMTL_DATA"]))
    for folder in folders:
        if (folder / _FILE).is_file():
            return folder / _FILE
    return _download()


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mpmtl_prob"


def _download() -> Path:
    place = f"put {_FILE} (from {_URL}) into a folder and set MPMTL_DATA to that folder, or pass its path: school('{_FILE}')"
    try:
        import pooch
    except ImportError:
        raise FileNotFoundError(
            f"{_FILE} was not found. Install the extra 'data' (pip install 'mpmtl-prob[data]') to download it, or {place}."
        ) from None
    try:
        return Path(pooch.retrieve(_URL, known_hash=f"sha256:{_SHA256}", fname=_FILE, path=_cache(), progressbar=False))
    except Exception as error:  # any network failure: what the user needs to know is where the file goes
        raise FileNotFoundError(f"{_FILE} was not found and could not be downloaded ({error}). Or {place}.") from error
