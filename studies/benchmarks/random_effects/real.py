"""Real tables of the panel: classic multilevel data, in declared units, split within tasks.

Declared units are pooled values, the same for all arms: every column and the target are centred and scaled by the mean and
the standard deviation of all rows, and a column of ones is put in front. This is what somebody who knows the field would
declare, not something that a release has paid for. Errors are squared errors over squared deviations within tasks.

Files are looked for in a folder that is named, in the folder MPMTL_DATA and in ../shared/data beside the repository. The
CSV files are those of Rdatasets: mlmRev's Exam, HLMdiag's radon, lme4's sleepstudy; school.mat is that of MALSAR.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from random_effects import arms

SPLITS, RELEASES = 10, 5
EPSILONS = (1.0, 3.0, 10.0)
FEWEST_ROWS = 8  #: of a task that takes part


@dataclass(frozen=True)
class Table:
    """A multilevel table.

    Attributes:
        file: its name.
        task: column that says whose row it is.
        target: column.
        columns: features.
        share: of every task's rows for training.
    """

    file: str
    task: str
    target: str
    columns: tuple[str, ...]
    share: float = 0.4


TABLES = {
    "exam": Table("exam.csv", "school", "normexam", ("standLRT", "girl", "vrm", "vrb")),
    "radon": Table("radon.csv", "county", "log.radon", ("basement",)),
    "radon, uranium": Table("radon.csv", "county", "log.radon", ("basement", "uranium")),
    "sleepstudy": Table("sleepstudy.csv", "Subject", "Reaction", ("Days",)),
    "school": Table("school.mat", "", "", (), 0.3),
}


@dataclass(frozen=True)
class Split:
    """Training rows, and test rows that no arm sees: (X, y) of every task."""

    train: arms.Train
    test: list[tuple[np.ndarray, np.ndarray]]
    public: arms.Public


def locate(file: str, folder: Path | None = None) -> Path:
    """Find a file.

    Raises:
        FileNotFoundError: it is nowhere; the message says where to put it.
    """
    beside = Path(__file__).resolve().parents[4] / "shared" / "data"
    named = [Path(os.environ["MPMTL_DATA"])] if "MPMTL_DATA" in os.environ else []
    for place in [folder] if folder is not None else [*named, beside]:
        if (place / file).is_file():
            return place / file
    raise FileNotFoundError(f"data: expected {file} in the folder of --data or of MPMTL_DATA, found it in neither; "
                            "CSV files of this kind are in the collection Rdatasets")  # fmt: skip


@cache
def rows(name: str, folder: Path | None = None) -> list[np.ndarray]:
    """Return the rows (n_i, columns + 1) of every task in declared units, with the target last."""
    of = TABLES[name]
    path = locate(of.file, folder)
    if path.suffix == ".mat":
        from scipy.io import loadmat

        cells = loadmat(path)
        pairs = zip(cells["X"][0], cells["Y"][0], strict=True)
        tasks = [np.column_stack([x[:, :-1].astype(float), y.astype(float)]) for x, y in pairs]  # the last column is 1
    else:
        import pandas as pd

        frame = pd.read_csv(path)
        if name == "exam":
            taken_in = frame["intake"]
            frame = frame.assign(girl=frame["sex"] == "F", vrm=taken_in == "mid 50%", vrb=taken_in == "bottom 25%")
        frame = frame.dropna(subset=[of.task, of.target, *of.columns])
        groups = frame.groupby(of.task)[[*of.columns, of.target]]
        tasks = [group.to_numpy(dtype=float) for _, group in groups if len(group) >= FEWEST_ROWS]
    every = np.concatenate(tasks)
    return [(task - every.mean(axis=0)) / every.std(axis=0) for task in tasks]


def split(name: str, number: int, epsilon: float, folder: Path | None = None) -> Split:
    """Shuffle every task's rows and split them; the same number gives the same split."""
    rng, of = np.random.default_rng([number, 7]), TABLES[name]
    X, y, test = [], [], []
    for task in rows(name, folder):
        shuffled = rng.permutation(task)
        A, k = np.column_stack([np.ones(len(task)), shuffled[:, :-1]]), max(int(of.share * len(task)), 2)
        X.append(A[:k])
        y.append(shuffled[:k, -1])
        test.append((A[k:], shuffled[k:, -1]))
    counts = [len(v) for v in y]
    declared = arms.Public(
        epsilon, len(y), int(np.median(counts)), (min(counts), max(counts)), 1.0, intercept=True, own_levels=True
    )
    return Split(arms.Train(X, y), test, declared)


def nmse(beta: np.ndarray, test: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Return the squared error of coefficients (d, m) on test rows, over squared deviations from every task's test mean."""
    wrong = sum(((v - x @ b) ** 2).sum() for (x, v), b in zip(test, beta.T, strict=True))
    return float(wrong / sum(((v - v.mean()) ** 2).sum() for _, v in test))
