"""Intervals of coefficients and of average effects over made-up studies that go the whole way from tables: do they cover?"""

import numpy as np
import pandas as pd
import pytest

import mpmtl_prob as mp
from mpmtl_prob import desk

STUDIES, HOSPITALS, FITTED = 20, 30, 3
SAID = {
    "study": {"task": "hospital", "participants": [f"H{i}" for i in range(HOSPITALS)]},
    "columns": {
        "age": {"kind": "number", "centre": 60, "scale": 15},
        "insurance": {"kind": "category", "levels": ["public", "private"], "shares": [0.7, 0.3]},
    },
    "release": {"epsilon": 3},
}
TARGETS = {
    "number": {"column": "y", "kind": "number", "centre": 7, "scale": 5},
    "binary": {"column": "y", "kind": "binary", "labels": ["no", "yes"], "baseline": 0.3},
    "count": {"column": "y", "kind": "count", "baseline": 0.4, "exposure": "days"},
}
#: Mean and standard deviation over hospitals of the effects of age, of private insurance, and of the intercept.
LAWS = {
    "number": ([0.08, -0.6, 6.5], [0.03, 0.5, 1.0]),
    "binary": ([0.03, 0.4, -0.9], [0.01, 0.3, 0.3]),
    "count": ([0.02, 0.2, -0.9], [0.01, 0.2, 0.3]),
}


def study(kind, seed):
    """The rows of all hospitals, their effects (m, 3), and the average of the law that these come from."""
    rng, (mean, spread) = np.random.default_rng([seed, len(kind)]), LAWS[kind]
    average = np.array(mean) + np.array(spread) * 0.5 * rng.standard_normal(3)
    effects, frames = average + np.array(spread) * rng.standard_normal((HOSPITALS, 3)), {}
    for i, effect in enumerate(effects):
        n = int(rng.integers(30, 80))
        frame = pd.DataFrame({"hospital": f"H{i}", "age": rng.normal(60, 15, n), "days": rng.uniform(1, 9, n)})
        frame["insurance"] = rng.choice(["public", "private"], n, p=[0.7, 0.3])
        eta = effect[2] + effect[0] * (frame["age"] - 60) + effect[1] * ((frame["insurance"] == "private") - 0.3)
        if kind == "number":
            frame["y"] = eta + rng.normal(0, 3, n)
        elif kind == "binary":
            frame["y"] = np.where(rng.random(n) < 1 / (1 + np.exp(-eta)), "yes", "no")
        else:
            frame["y"] = rng.poisson(frame["days"] * np.exp(eta))
        frames[f"H{i}"] = frame
    return frames, effects, average


@pytest.mark.evidence
@pytest.mark.parametrize("kind", list(TARGETS))
def test_intervals_cover_over_studies_that_go_the_whole_way(kind):
    schema = mp.Schema.from_dict({**SAID, "target": TARGETS[kind]})
    own_inside = []
    average_inside = []
    errors = {"with": [], "alone": []}
    for seed in range(STUDIES):
        frames, effects, average = study(kind, seed)
        messages = {name: desk.make_message(schema, frame) for name, frame in frames.items()}
        release = desk.publish(desk.Inbox(schema, tuple(messages.values()), (), schema.terms()), unsafe_seed=seed)
        for i in range(FITTED):
            name = f"H{i}"
            own = desk.fit(
                schema, frames[name], release, messages[name], chains=2, warmup=140, draws=200, progress_bar=False
            )
            table, truth = own.coefficients(), effects[i]
            own_inside.append((table["lower"] <= truth) & (truth <= table["upper"]))
            unit = LAWS[kind][1]
            errors["with"].append((table["mean"] - truth) / unit)
            errors["alone"].append((table["alone"] - truth) / unit)
        averages = own.average_effects()
        average_inside.append((averages["lower"] <= average) & (average <= averages["upper"]))
    # 180 and 60 intervals of 90 %, of which some go together: three standard errors of as many halves
    assert 0.8 < np.mean(own_inside) < 0.97
    assert np.mean(average_inside) > 0.76
    rms = {name: np.sqrt(np.mean(np.square(each))) for name, each in errors.items()}
    covered, gain = (np.mean(own_inside), np.mean(average_inside)), 1 - rms["with"] / rms["alone"]
    print(
        f"\n{kind}: coefficients {covered[0]:.0%}, average effects {covered[1]:.0%}, error {gain:.0%} smaller than alone"
    )
    assert rms["with"] < 0.9 * rms["alone"]
