"""A made-up study of eight hospitals, with natural units, categories and missing values."""

import numpy as np
import pandas as pd

IDS = [f"H{i}" for i in range(8)]
STUDY = """\
# Length of stay
[study]
title = "Length of stay"
task = "hospital"
row = "patient"
participants = ["H0", "H1", "H2", "H3", "H4", "H5", "H6", "H7"]

[target]
column = "stay"
kind = "number"
unit = "days"
centre = 7
scale = 5
missing = "drop"

[columns.age]
kind = "number"
unit = "years"
centre = 60
scale = 15
missing = "drop"

[columns.insurance]
kind = "category"
levels = ["public", "private"]
shares = [0.7, 0.3]

[release]
epsilon = 3
delta = 0.01
"""


def patients(hospital: str, rows: int = 24, seed: int = 0) -> pd.DataFrame:
    """The patients of one hospital, as it would export them."""
    rng = np.random.default_rng([seed, int(hospital[1:]) if hospital[1:].isdecimal() else 99])
    frame = pd.DataFrame({"hospital": hospital, "age": rng.normal(60, 15, rows).round()})
    frame["insurance"] = rng.choice(["public", "private"], rows, p=[0.7, 0.3])
    stay = 6 + rng.normal(0, 0.7) + 0.08 * (frame["age"] - 60) - 0.5 * (frame["insurance"] == "private")
    frame["stay"] = (stay + rng.normal(0, 3, rows)).round(1)
    return frame
