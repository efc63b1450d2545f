"""Example study: thirty simulated hospitals in natural units, with the true effects, as tables and as the study's files.

Patients differ in age (years), albumin (g/l, a laboratory value) and type of admission. Each has three outcomes: days of
stay, a number; readmission, a binary one; and outpatient visits in the months of follow-up, a count. In hospital i the mean
of a stay, the log odds of a readmission and the log rate of visits a month are

    b_i0 + b_i1 (age - 60) + b_i2 (albumin - 38) + b_i3 (emergency - .4) + b_i4 (transfer - .1),

    b_ij ~ N(average_j, spread_j^2),

with emergency and transfer 1 or 0. So an intercept refers to the centres that the study's file declares, as in all tables of
this package. Albumin is missing at random in one patient of twelve: hospitals with an even number leave the cell empty, and
the others write -9, as tables of different hospitals do.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mpmtl_prob._util.arrays import FloatArray

if TYPE_CHECKING:
    import pandas as pd

HOSPITALS = tuple(f"H{i:02d}" for i in range(1, 31))
NEWCOMER = "H31"
EFFECTS = ("age", "albumin", "admission[emergency]", "admission[transfer]", "intercept")
#: Average over hospitals and standard deviation between them of every effect: days, log odds, log rate a month.
LAWS: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "stay": ((0.08, -0.15, 1.5, 2.0, 10.0), (0.02, 0.05, 0.4, 0.6, 1.0)),
    "readmitted": ((0.03, -0.06, 0.5, 0.6, -1.4), (0.01, 0.02, 0.2, 0.3, 0.4)),
    "visits": ((0.012, -0.03, 0.3, 0.2, -0.9), (0.005, 0.01, 0.1, 0.15, 0.3)),
}
#: Residual standard deviation of a stay, in days.
RESIDUAL = 2.5
_SHARES = (0.5, 0.4, 0.1)
_FEWEST, _MOST = 40, 90
_MISSING = 1 / 12
#: Text that replaces the target in the study's file, by outcome.
_TARGETS = {
    "readmitted": (
        "Readmission within 30 days",
        'column = "readmitted"\nkind = "binary"\nlabels = ["no", "yes"]  # the second is what is predicted\n'
        "baseline = 0.2         # a public guess of its probability, where all columns are at their centres\n",
    ),
    "visits": (
        "Outpatient visits",
        'column = "visits"\nkind = "count"\nbaseline = 0.4         # a public guess of the rate for one unit of exposure\n'
        'exposure = "months"\n',
    ),
}


@dataclass(frozen=True, eq=False, repr=False)
class ExampleStudy:
    """Example study: its tables, its files and the true effects.

    Attributes:
        patients: patients of the thirty hospitals, a row each: hospital, patient, age, albumin, admission, stay, readmitted,
            visits, months.
        newcomer: the same for a hospital that does not take part, H31.
        example: the same for two hundred fictitious patients, from which the study's file can be drafted.
        truth: for every outcome a table of effects, a row each, in the units of the tables, with the intercept at the centres
            of the study's file: average, spread between hospitals, and the value in each.
        files: texts of the study's files by name: study.toml for the stay, study-readmitted.toml, study-visits.toml.
    """

    patients: pd.DataFrame
    newcomer: pd.DataFrame
    example: pd.DataFrame
    truth: Mapping[str, pd.DataFrame]
    files: Mapping[str, str]

    def __repr__(self) -> str:
        hospitals, rows = self.patients["hospital"].nunique(), len(self.patients)
        return f"ExampleStudy({hospitals} hospitals, {rows} patients; {', '.join(self.files)})"

    def write(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write everything to a folder as if to many sites, and return the paths of the files.

        Every hospital, also the newcomer, has a folder with its own ``patients.csv``. Next to these are the study's files,
        ``example.csv``, ``truth.json`` and an empty ``inbox``.

        Args:
            folder: an empty folder, or one to be made.

        Raises:
            ValueError: a folder that is not empty.
        """
        root = Path(folder)
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise ValueError(f"folder: expected one that is new or empty, got {str(root)!r}")
        texts = dict(self.files)
        texts["example.csv"] = self.example.to_csv(index=False)
        texts["truth.json"] = json.dumps({name: table.to_dict() for name, table in self.truth.items()}, indent=1) + "\n"
        for name, rows in [*self.patients.groupby("hospital"), (NEWCOMER, self.newcomer)]:
            texts[f"{name}/patients.csv"] = rows.to_csv(index=False)
        (root / "inbox").mkdir(parents=True)
        for name, text in texts.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return [root / name for name in texts]


def example_study(*, seed: int = 0) -> ExampleStudy:
    """Simulate the study; equal seeds give equal studies.

    >>> study = mp.datasets.example_study()
    >>> list(study.patients)
    ['hospital', 'patient', 'age', 'albumin', 'admission', 'stay', 'readmitted', 'visits', 'months']
    >>> study.truth["stay"][["average", "spread"]].loc["age"].tolist()
    [0.08, 0.02]
    """
    import pandas as pd

    rng = np.random.default_rng([seed, 30])
    names = (*HOSPITALS, NEWCOMER)
    truth = {}
    for outcome, (average, spread) in LAWS.items():
        of_hospitals = np.array(average) + np.array(spread) * rng.standard_normal((len(names), len(EFFECTS)))
        columns = {"average": average, "spread": spread} | dict(zip(names, of_hospitals.round(5), strict=True))
        truth[outcome] = pd.DataFrame(columns, index=pd.Index(EFFECTS, name="effect"))
    tables = {
        name: _patients(name, int(rng.integers(_FEWEST, _MOST + 1)), {k: t[name] for k, t in truth.items()}, rng)
        for name in names
    }
    fictitious = _patients("example", 200, {outcome: table["average"] for outcome, table in truth.items()}, rng)
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    files = {"study.toml": text} | {f"study-{outcome}.toml": _of_outcome(text, outcome) for outcome in _TARGETS}
    patients = pd.concat([tables[name] for name in HOSPITALS], ignore_index=True)
    return ExampleStudy(patients, tables[NEWCOMER], fictitious, truth, files)


def _patients(name: str, rows: int, effects: Mapping[str, pd.Series], rng: np.random.Generator) -> pd.DataFrame:
    """Simulate the table of one hospital, as it would export it."""
    import pandas as pd

    age = rng.normal(60, 15, rows).round().clip(18, 110)
    albumin = rng.normal(38, 5, rows).round(1).clip(10, 60)
    admission = rng.choice(3, rows, p=_SHARES)
    X = np.column_stack(
        [age - 60, albumin - 38, (admission == 1) - _SHARES[1], (admission == 2) - _SHARES[2], np.ones(rows)]
    )
    eta: dict[str, FloatArray] = {outcome: X @ effect.to_numpy() for outcome, effect in effects.items()}
    months = rng.integers(3, 13, rows)
    cells = [f"{value:.1f}" for value in albumin]
    empty = "-9" if name[-1] in "13579" else ""
    for row in np.flatnonzero(rng.random(rows) < _MISSING):
        cells[row] = empty
    columns = {
        "hospital": name,
        "patient": [f"{name}-{row + 1:03d}" for row in range(rows)],
        "age": age.astype(int),
        "albumin": cells,
        "admission": np.array(["planned", "emergency", "transfer"])[admission],
        "stay": (eta["stay"] + RESIDUAL * rng.standard_normal(rows)).round(1).clip(0.1),
        "readmitted": np.where(rng.random(rows) < 1 / (1 + np.exp(-eta["readmitted"])), "yes", "no"),
        "visits": rng.poisson(months * np.exp(eta["visits"])),
        "months": months,
    }
    return pd.DataFrame(columns)


def _of_outcome(text: str, outcome: str) -> str:
    """Return the study's file with another target."""
    title, target = _TARGETS[outcome]
    text = re.sub(r"^title = .*$", f'title = "{title}"', text, flags=re.MULTILINE)
    return re.sub(r"^\[target\]\n.*?\n\n", f"[target]\n{target}\n", text, flags=re.MULTILINE | re.DOTALL)
