"""Digitised curves of the papers' figures, if the file with them is available."""

from __future__ import annotations

import csv

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob.datasets.files import DataFile
from studies.papers.settings import DP_AGGR, DP_MTRL, GROUP_SPARSE, LOW_RANK, RIDGE, TRACE

FILE = DataFile(
    name="figures.csv",
    sha256="fb3d832c09ab5e53ece14a57f10a45510361f18b136e47d0e77b78b924825c94",
    title="digitised curves of the papers' figures",
    source="read off the supplement of January 2018, by hand",
)

_PANELS = {
    "synthetic low rank": "Synthetic low-rank",
    "synthetic group sparse": "Synthetic group-sparse (",
    "School 30 %": "School 30%",
    "LSOA II 30 %": "LSOA 30%",
}
_SERIES = {
    "STL": RIDGE,
    "MTL": TRACE,
    "MP-MTL-LR": LOW_RANK,
    "MP-MTL-GS": GROUP_SPARSE,
    "DP-MTRL": DP_MTRL,
    "DP-AGGR": DP_AGGR,
}

#: log10 of noise over signal of DP-MTRL at eps = 0.1, as stated in the text (TPAMI 2022, section 5.4.2)
DP_MTRL_RATIO = 0.2670

#: budgets eps, and the values there
Curve = tuple[FloatArray, FloatArray]


def curves(data: str) -> dict[str, Curve]:
    """Return the papers' curves on a data set by arm; empty if the file or the panel is missing.

    If two panels show a series, the one with more points is used. STL and MTL are the papers' best of several methods.
    """
    if data not in _PANELS:
        return {}
    try:
        path = FILE.locate()
    except FileNotFoundError:
        return {}
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["panel"].startswith(_PANELS[data]):
                at = (10 ** float(row["log10_eps"]), float(row["value"]))
                points.setdefault((row["series"], row["panel"]), []).append(at)
    by_arm: dict[str, Curve] = {}
    for (series, _), values in sorted(points.items(), key=lambda item: len(item[1])):
        if series in _SERIES:
            eps, value = np.array(sorted(values)).T
            by_arm[_SERIES[series]] = (eps, value)
    return by_arm


def at(curve: Curve, epsilon: float) -> float | None:
    """Return the value at eps, interpolated in log eps; None outside the digitised range."""
    eps, value = curve
    if not eps[0] * 0.99 <= epsilon <= eps[-1] * 1.01:
        return None
    return float(np.interp(np.log(epsilon), np.log(eps), value))
