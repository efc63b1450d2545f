"""The made-up study that comes with the package: its tables follow the law that it tells, and its files read them."""

import json
import tomllib

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import mpmtl_prob as mp
from mpmtl_prob.cli import main
from mpmtl_prob.datasets.example_study import HOSPITALS, LAWS, NEWCOMER, RESIDUAL

STUDY = mp.datasets.example_study()


def schema_of(name):
    return mp.Schema.from_dict(tomllib.loads(STUDY.files[name]))


def test_it_is_the_same_every_time_and_another_for_another_seed():
    again = mp.datasets.example_study()
    pd.testing.assert_frame_equal(again.patients, STUDY.patients)
    assert not mp.datasets.example_study(seed=1).patients.equals(STUDY.patients)
    assert "patients" in repr(STUDY)
    assert "H01-001" not in repr(STUDY)


def test_both_codes_of_missing_values_are_read_as_missing():
    """Missing values are coded in two ways, and both are read as missing."""
    rows = STUDY.patients
    assert 0.05 < rows["albumin"].isin(["", "-9"]).mean() < 0.12
    assert {"", "-9"} < set(rows["albumin"])
    empty = rows["albumin"] == ""
    assert set(rows.loc[empty, "hospital"].str[-1]) <= set("02468")
    kept = schema_of("study.toml").tasks(rows)
    assert sum(len(kept.rows_of(i)[1]) for i in range(30)) == (~rows["albumin"].isin(["", "-9"])).sum()


def design(rows):
    """Columns less the centres of the study's file, and an intercept: written out here, and not read from there."""
    admission = rows["admission"].to_numpy()
    others = [(admission == "emergency") - 0.4, (admission == "transfer") - 0.1, np.ones(len(rows))]
    return np.column_stack([rows["age"] - 60, rows["albumin"].astype(float) - 38, *others])


@pytest.mark.parametrize("outcome", list(LAWS))
def test_patients_follow_the_truth_of_their_hospital(outcome):
    """The score at the truth, X' (y - mean), has variance X' V X in every family: thirty chi-squares."""
    total = freedom = 0
    for name, rows in STUDY.patients[~STUDY.patients["albumin"].isin(["", "-9"])].groupby("hospital"):
        X = design(rows)
        eta = X @ STUDY.truth[outcome][name].to_numpy()
        if outcome == "stay":
            mean = eta
            variance = np.full(len(eta), RESIDUAL**2)
            y = rows["stay"]
        elif outcome == "readmitted":
            mean = 1 / (1 + np.exp(-eta))
            variance, y = mean * (1 - mean), rows["readmitted"] == "yes"
        else:
            mean = rows["months"].to_numpy() * np.exp(eta)
            variance, y = mean, rows["visits"]
        score, information = X.T @ (y.to_numpy() - mean), X.T @ (variance[:, None] * X)
        total += score @ np.linalg.solve(information, score)
        freedom += len(score)
    assert 1e-3 < scipy.stats.chi2.sf(total, freedom) < 1 - 1e-3


def test_hospitals_effects_come_from_the_law_that_is_told():
    for outcome, (average, spread) in LAWS.items():
        table = STUDY.truth[outcome]
        z = (table[list(HOSPITALS)].to_numpy() - np.array(average)[:, None]) / np.array(spread)[:, None]
        assert scipy.stats.kstest(z.ravel(), "norm").pvalue > 1e-3
        assert table["average"].tolist() == list(average)


@pytest.mark.parametrize(
    ("name", "kind"), [("study.toml", "number"), ("study-readmitted.toml", "binary"), ("study-visits.toml", "count")]
)
def test_every_file_is_a_study_with_the_centres_of_the_truth(name, kind):
    """Every file is a study of its outcome, and has the centres of the true effects."""
    schema = schema_of(name)
    assert schema.target.kind == kind
    assert schema.unsettled == ()
    assert schema.participants == HOSPITALS
    outcome = schema.target.column
    assert list(STUDY.truth[outcome].index) == list(schema.coefficients)
    centres = [schema.reference.features[effect][0] for effect in schema.coefficients[:-1]]
    assert centres == [60, 38, 0.4, 0.1]
    assert schema.tasks(STUDY.patients).num_tasks == 30


def test_a_shell_writes_a_folder_for_every_hospital(tmp_path, capsys):
    folder = tmp_path / "trial"
    assert main(["example", str(folder)]) == 0
    assert "truth.json" in capsys.readouterr().out
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {*HOSPITALS, NEWCOMER, "inbox"}
    for name in HOSPITALS:
        read = pd.read_csv(folder / name / "patients.csv", dtype={"albumin": str}, keep_default_na=False)
        assert set(read["hospital"]) == {name}
        assert len(read) == (STUDY.patients["hospital"] == name).sum()
    assert {path.name for path in folder.glob("*.toml")} == set(STUDY.files)
    truth = json.loads((folder / "truth.json").read_text())
    assert truth["stay"]["H07"] == STUDY.truth["stay"]["H07"].to_dict()
    assert main(["example", str(folder)]) == 2
    assert "folder: expected one that is new or empty" in capsys.readouterr().err
