"""Planning: the accuracy that a study may expect of a release before anybody looks at a row."""

import json

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob.cli import main
from mpmtl_prob.evaluation import expected_errors, plan_study
from mpmtl_prob.evaluation.planning import EPSILONS

QUIET = {"progress_bar": False}


@pytest.fixture
def few_simulated(monkeypatch):
    """Simulate a hundred tasks: as many as a plan of many coefficients does, and enough for what is not about accuracy."""
    monkeypatch.setattr(expected_errors, "_MOST", expected_errors._FEWEST)


def test_an_example_says_how_columns_go_together():
    """Errors of predictions alone and with a release, over three releases, are those that a plan with an example expects.

    One column is constant within tasks, and two others are correlated: a plan without an example is far from it.
    """
    m, n, explained, common, between = 60, 12, 0.5, 0.8, 0.1
    rng = np.random.default_rng(3)

    def draw_columns():
        X = rng.standard_normal((n, 3)) @ np.linalg.cholesky(np.array([[1, 0.8, 0], [0.8, 1, 0], [0, 0, 1]])).T
        X[:, 2] = rng.standard_normal()
        return X

    reference = mp.Reference(dict.fromkeys("abc", (0.0, 1.0)), target=(0.0, 1.0))
    spec = mp.ReleaseSpec(3.0, reference=reference)
    example = mp.TaskData.from_lists([draw_columns() for _ in range(m)], None, features=list("abc"))
    guess = {"explained": explained, "common": common, "between": between, "epsilons": [3.0]} | QUIET
    expected = plan_study(spec, m, [*"abc", "intercept"], example=example, **guess).by_epsilon[0]
    without = plan_study(spec, m, [*"abc", "intercept"], n, **guess).by_epsilon[0]
    errors = np.zeros(2)
    for k in range(3):
        mu = rng.standard_normal(3)
        mu *= np.sqrt(common * explained * (1 - between)) / np.linalg.norm(mu)
        spread = np.sqrt([(1 - common) * explained * (1 - between) / 3] * 3 + [between])
        X = [np.column_stack([draw_columns(), np.ones(n)]) for _ in range(m)]
        beta = [np.append(mu, 0.0) + spread * rng.standard_normal(4) for _ in range(m)]
        sigma = np.sqrt((1 - explained) * (1 - between))
        y = [x @ b + sigma * rng.standard_normal(n) for x, b in zip(X, beta, strict=True)]
        tasks = mp.TaskData.from_lists([x[:, :3] for x in X], y, features=list("abc")).with_intercept()
        release = mp.release(tasks, spec, unsafe_seed=k)
        shared = mp.inference.shared_effects(release, sampler="weighted", draws=200, chains=1, seed=k, **QUIET)
        weights = mp.inference.task_posteriors(tasks, shared).W.T
        for x, b, targets, with_release in zip(X, beta, y, weights, strict=True):
            centre, level = x.mean(axis=0), targets.mean()
            own = ridge_of_own_rows(x[:, :2] - centre[:2], targets - level)
            alone = np.array([*own, 0.0, level - centre[:2] @ own])
            new_rows = np.outer(centre, centre)
            new_rows[:2, :2] += [[1, 0.8], [0.8, 1]]
            for i, estimate in enumerate((alone, with_release)):
                errors[i] += (estimate - b) @ new_rows @ (estimate - b) / (3 * m)
    assert np.isclose(expected.alone, errors[0], rtol=0.15)
    assert np.isclose(expected.ratio, errors[1] / errors[0], rtol=0.15)
    assert without.ratio < 0.85 * errors[1] / errors[0]


def ridge_of_own_rows(X, y):
    """Return slopes by ridge with the prior variance and residual variance of the largest evidence, from a grid."""
    best = (-np.inf, np.zeros(X.shape[1]))
    for prior in np.geomspace(0.01, 5, 7):
        for residual in np.geomspace(0.1, 2, 7):
            covariance = prior * X @ X.T + residual * np.eye(len(y))
            log = -0.5 * (np.linalg.slogdet(covariance)[1] + y @ np.linalg.solve(covariance, y))
            best = max(best, (log, prior * X.T @ np.linalg.solve(covariance, y)), key=lambda pair: pair[0])
    return best[1]


def test_expected_errors_are_those_that_a_release_has():
    """Errors of made-up tasks alone and with a release, over four releases, beside what was expected of them."""
    m, d, n, explained, common = 40, 3, 30, 0.4, 0.8
    centre = np.array([60, 0.4, 7e3])  # years, a share, cells
    scale = np.array([15, 0.02, 1e3])
    of_target = 4.0
    columns = dict(zip(range(d), zip(centre, scale, strict=True), strict=True))
    spec = mp.ReleaseSpec(3.0, reference=mp.Reference(columns, (9.0, of_target)))
    plan = plan_study(spec, m, d, n, explained=explained, common=common, epsilons=[3.0], **QUIET)
    expected, in_table = plan.by_epsilon[0], plan.standard_errors()[3.0].to_numpy()
    rng = np.random.default_rng(0)
    errors = np.zeros(2)
    ours = []
    of_columns = []
    for k in range(4):
        mu = rng.standard_normal(d)
        mu *= np.sqrt(common * explained) / np.linalg.norm(mu)
        W = mu[:, None] + np.sqrt((1 - common) * explained / d) * rng.standard_normal((d, m))
        X = [rng.standard_normal((n, d)) for _ in range(m)]
        y = [x @ w + np.sqrt(1 - explained) * rng.standard_normal(n) for x, w in zip(X, W.T, strict=True)]
        tasks = mp.TaskData.from_lists([centre + scale * x for x in X], [9 + of_target * each for each in y])
        release = mp.release(tasks, spec, unsafe_seed=k)
        shared = mp.inference.shared_effects(release, sampler="weighted", draws=200, chains=1, seed=k, **QUIET)
        own = mp.inference.task_posteriors(tasks, shared)
        common_units = scale[:, None] / of_target
        alone, with_release = own.alone()["mean"].to_numpy().reshape(m, d).T * common_units, own.W * common_units
        errors += ((alone - W) ** 2).sum(axis=0).mean() / 4, ((with_release - W) ** 2).sum(axis=0).mean() / 4
        ours.append(((shared.draws("mu").mean(axis=0) - mu) ** 2).mean())
        of_columns.append((shared.average_effects()["mean"] - mu * of_target / scale) / in_table)
    assert np.isclose(expected.alone, errors[0], rtol=0.15)
    assert np.isclose(expected.release, errors[1], rtol=0.2)
    # twelve squared errors of average effects: chi-squared within a factor of two
    assert 0.5 < np.mean(ours) / expected.standard_error**2 < 2
    # and in days for one year, for one share, for one cell: four of each column
    assert (np.abs(of_columns) < 3).all()
    assert (np.sqrt(np.mean(np.square(of_columns), axis=0)) > 0.1).all()


@pytest.mark.usefixtures("few_simulated")
@pytest.mark.parametrize("m", [5, 5000])
@pytest.mark.parametrize("d", [1, 8])
def test_a_tiny_budget_makes_every_study_hear_it_says_nothing(m, d):
    """At a budget of a millionth, every study is told that a release says nothing."""
    plan = plan_study(1e-6, m, d, (10, 60), epsilons=[1e-6], delta=1e-3 if m < 30 else None, **QUIET)
    assert plan.by_epsilon[0].says == "no: the release says nothing above its noise"
    assert plan.least_epsilon is None
    assert "At none of these eps is the release worth it" in str(plan)


@pytest.mark.usefixtures("few_simulated")
def test_unrelated_tasks_never_make_a_release_worth_it():
    """No release is called worth it where tasks have little in common."""
    plan = plan_study(1.0, 30, 5, 200, common=0.0, epsilons=[0.3, 1.0], delta=1e-3, **QUIET)
    assert all(each.says != "worth it" for each in plan.by_epsilon)


def test_more_budget_and_more_tasks_say_more():
    plan = plan_study(1.0, 60, 4, (20, 200), **QUIET)
    errors = [each.standard_error for each in plan.by_epsilon]
    assert [each.epsilon for each in plan.by_epsilon] == list(EPSILONS)
    assert errors == sorted(errors, reverse=True)
    assert [number for number, _ in plan.by_tasks] == [15, 30, 60, 120, 240]
    ratios = [each.ratio for _, each in plan.by_tasks]
    assert ratios[0] > ratios[2] > ratios[4] > plan.by_epsilon[-1].mixed / plan.by_epsilon[-1].alone * 0.9


def test_an_intercept_that_differs_is_a_coefficient_of_its_own():
    """An intercept in which tasks differ is a coefficient of its own.

    With no other column and without any noise, its level is shrunk as a mean is whose variances are known.
    """
    rows, between = 8, 0.3
    plan = plan_study(1.0, 10_000, ["intercept"], rows, between=between, explained=1e-6, epsilons=[50.0], **QUIET)
    expected, of_mean = plan.by_epsilon[0], (1 - between) / rows
    assert np.isclose(expected.alone, of_mean, rtol=0.1)
    assert np.isclose(expected.mixed, 1 / (1 / of_mean + 1 / between), rtol=0.1)
    assert "30% of the target's variance lies between tasks" in str(plan)
    assert plan_study(1.0, 60, 3, rows, between=0.3, epsilons=[1.0], **QUIET).between is None


@pytest.mark.usefixtures("few_simulated")
def test_the_eps_of_a_wanted_standard_error_reaches_it():
    plan = plan_study(1.0, 60, 4, 50, epsilons=[1.0], wanted=0.05, **QUIET)
    at = plan_study(1.0, 60, 4, 50, epsilons=[plan.epsilon_wanted], **QUIET).by_epsilon[0]
    assert np.isclose(at.standard_error, 0.05, rtol=0.01)
    assert plan_study(1.0, 60, 4, 50, epsilons=[1.0], wanted=1e-6, **QUIET).epsilon_wanted is None


def test_delta_is_asked_for_with_few_tasks():
    with pytest.raises(ValueError, match=r"delta: expected one with fewer than 30 tasks"):
        plan_study(1.0, 12, 3, 50, **QUIET)


@pytest.mark.usefixtures("few_simulated")
def test_a_column_that_never_varies_is_not_learnt():
    """Nothing is learnt of a column that is constant in an example; standard errors of the others are as without it."""
    rng = np.random.default_rng(0)
    X = [np.column_stack([rng.standard_normal((40, 2)), np.zeros(40)]) for _ in range(20)]
    spec = mp.ReleaseSpec(1.0, reference=mp.Reference.standard(["a", "b", "constant"]))
    example = mp.TaskData.from_lists(X, None, features=["a", "b", "constant"])
    errors = plan_study(spec, 60, ["a", "b", "constant"], example=example, epsilons=[1.0], **QUIET).standard_errors()[
        1.0
    ]
    assert errors["constant"] > 5 * errors["a"]
    assert np.isclose(errors["a"], errors["b"], rtol=0.2)


@pytest.mark.usefixtures("few_simulated")
def test_the_least_eps_is_the_smallest_that_is_worth_it():
    plan = plan_study(1.0, 60, 2, 20, epsilons=[10.0, 0.3], **QUIET)
    assert [expected.says for expected in plan.by_epsilon] == ["worth it", "worth it"]
    assert plan.least_epsilon == 0.3


@pytest.mark.usefixtures("few_simulated")
def test_an_example_is_refused_if_its_columns_are_others():
    example = mp.TaskData.from_lists([np.ones((4, 2))], None, features=["age", "albumin"])
    with pytest.raises(ValueError, match=r"rows: expected a number or two, such as .* or an example"):
        plan_study(1.0, 60, 2, **QUIET)
    with pytest.raises(ValueError, match=r"example: expected TaskData, .* got ndarray"):
        plan_study(1.0, 60, 2, example=np.ones((4, 2)), **QUIET)
    with pytest.raises(ValueError, match=r"example: expected tasks with 3 columns, .* got 2"):
        plan_study(1.0, 60, 3, example=example, **QUIET)
    with pytest.raises(ValueError, match="example: expected those of the coefficients, got others: 'sex'"):
        plan_study(1.0, 60, ["age", "sex"], example=example, **QUIET)
    with pytest.raises(ValueError, match="example: expected columns that vary, got 4 rows"):
        plan_study(1.0, 60, ["age", "albumin"], example=example, **QUIET)
    spec = mp.ReleaseSpec(1.0, reference=mp.Reference({"age": (60, 15)}))
    far = mp.TaskData.from_lists([np.array([[60.0], [6e9]])], None, features=["age"])
    with pytest.raises(ValueError, match="example: expected columns in the units of the reference"):
        plan_study(spec, 60, ["age"], example=far, **QUIET)
    example = mp.TaskData.from_lists([np.arange(8.0).reshape(4, 2)], None, features=["age", "albumin"])
    plan = plan_study(1.0, 60, ["age", "intercept"], example=example, epsilons=[1.0], **QUIET)
    assert plan.rows == (4, 4)
    assert "If its rows are private, so is this plan" in str(plan)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_tasks": 1}, "num_tasks"),
        ({"coefficients": 0}, "coefficients"),
        ({"rows": 0}, "rows"),
        ({"rows": (50, 20)}, "rows"),
        ({"explained": 1.2}, "explained"),
        ({"common": -0.1}, "common"),
        ({"between": 1.5}, "between"),
        ({"residual_spread": -0.5}, "residual_spread"),
        ({"rows": (10, 20, 30)}, "rows: expected a number or two"),
        ({"rows": "20-200"}, "rows: expected a number or two"),
        ({"rows": 20.5}, "rows"),
        ({"coefficients": ["age", "age"]}, "coefficients: .* each is there once"),
        ({"coefficients": "age"}, "coefficients"),
        ({"explained": float("nan")}, "explained"),
        ({"epsilons": [1.0, -1.0]}, "epsilons"),
        ({"epsilons": [float("inf")]}, "epsilons"),
        ({"epsilons": []}, "epsilons: expected at least one"),
        ({"epsilons": 1.0}, "epsilons: expected at least one"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"seed": -1}, "seed"),
        ({"wanted": 0.0}, "wanted"),
        ({"spec": -1.0}, "spec"),
    ],
)
def test_impossible_numbers_are_refused_by_name(change, message):
    arguments = {"spec": 1.0, "num_tasks": 60, "coefficients": 3, "rows": 50} | QUIET | change
    with pytest.raises(ValueError, match=message):
        plan_study(**arguments)


def test_a_binary_outcome_has_no_plan():
    reference = mp.Reference({"a": (0.0, 1.0)}, outcome="binary", baseline=0.2)
    with pytest.raises(ValueError, match="binary"):
        plan_study(mp.ReleaseSpec(1.0, reference=reference), 60, ["a"], 50, **QUIET)


@pytest.mark.usefixtures("few_simulated")
def test_standard_errors_are_told_in_the_units_of_the_table():
    """4 days for 15 years: .27 of what it is in common units; an intercept is at the centres, in days."""
    reference = mp.Reference({"age": (60, 15), "albumin": (38, 5)}, target=(10, 4))
    names = ("age", "albumin", "intercept")
    units = {"target_unit": "days", "column_units": {"age": "years"}}
    plan = plan_study(mp.ReleaseSpec(1.0, reference=reference), 40, names, 50, epsilons=[1.0, 3.0], **units, **QUIET)
    table = plan.standard_errors()
    for each in plan.by_epsilon:
        assert np.allclose(table[each.epsilon], np.array(each.standard_errors) * [4 / 15, 4 / 5, 4])
    said = plan.to_dict()
    assert said["by_epsilon"][1]["standard_errors"] == table[3.0].to_dict()
    assert said["units"] == {"target": "days", "columns": {"age": "years", "albumin": "", "intercept": ""}}
    assert "Standard errors in days, for one unit of a column:" in str(plan)
    assert f"{table.loc['age', 1.0]:.2g}" in next(
        line for line in str(plan).splitlines() if line.startswith("age (years)")
    )


@pytest.mark.usefixtures("few_simulated")
def test_a_plan_without_a_reference_knows_no_units_of_the_table():
    plan = plan_study(1.0, 40, 3, 50, epsilons=[1.0], **QUIET)
    assert "for one unit of a column" not in str(plan)
    assert "units" not in plan.to_dict()
    with pytest.raises(ValueError, match="spec: expected one with a reference"):
        plan.standard_errors()


def test_names_that_the_reference_does_not_have_are_refused():
    reference = mp.Reference({"age": (60, 15)})
    with pytest.raises(ValueError, match="reference: expected values of the columns"):
        plan_study(mp.ReleaseSpec(1.0, reference=reference), 40, ["bmi"], 50, epsilons=[1.0], **QUIET)


@pytest.mark.usefixtures("few_simulated")
def test_a_number_of_coefficients_is_the_reference_s():
    """Its columns have one each, one more is the intercept, and any other number is refused."""
    spec = mp.ReleaseSpec(1.0, reference=mp.Reference({"age": (60, 15), "albumin": (38, 5)}, target=(10, 4)))
    plan = lambda coefficients: plan_study(spec, 60, coefficients, 50, between=0.2, epsilons=[1.0], **QUIET)
    for number, names in ((2, ["age", "albumin"]), (3, ["age", "albumin", "intercept"])):
        assert plan(number) == plan(names)
        assert list(plan(number).standard_errors().index) == names
    for number in (1, 4):
        with pytest.raises(
            ValueError, match=f"coefficients: expected 2, as many .*, got {number}; or give their names"
        ):
            plan(number)


@pytest.mark.usefixtures("few_simulated")
def test_covariates_of_a_study_are_left_out():
    reference = mp.Reference({"a": (0.0, 1.0)}, covariates={"beds": (0.0, 1.0)})
    spec = mp.ReleaseSpec(1.0, reference=reference, covariates={"x": {"beds": 1.0}, "y": {"beds": 2.0}})
    plans = [plan_study(each, 60, ["a"], 50, epsilons=[1.0], **QUIET) for each in (spec, 1.0)]
    assert (plans[0].by_epsilon, plans[0].by_tasks) == (plans[1].by_epsilon, plans[1].by_tasks)


@pytest.mark.usefixtures("few_simulated")
def test_a_shell_plans_too(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "plan.png"
    told = [
        "plan",
        "--tasks",
        "60",
        "--features",
        "3",
        "--rows",
        "20-80",
        "--epsilon",
        ".3",
        "1",
        "3",
        "--out",
        str(picture),
    ]
    assert main([*told, "--standard-error", ".1"]) == 0
    said = capsys.readouterr().out
    assert "60 tasks with 20 to 80 rows and 3 coefficients each" in said
    assert "A standard error of 0.1 is reached at eps" in said
    assert picture.stat().st_size > 5000
    assert main([*told[:-2], "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each["epsilon"] for each in answer["by_epsilon"]] == [0.3, 1.0, 3.0]
    assert main(["plan", "--tasks", "60", "--rows", "20-80"]) == 2
    assert "--features: expected it" in capsys.readouterr().err
    assert main(["plan", "--rows", "many", "--tasks", "60", "--features", "3"]) == 2
    assert "--rows: expected a number or two" in capsys.readouterr().err
    assert main(["plan", "--rows", "20", "--people", "60"]) == 2
    assert "which is of a study" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--epsilon", "0"),
        ("--tasks", "1"),
        ("--features", "0"),
        ("--standard-error", "-1"),
        ("--rows", "40-20"),
        ("--delta", "2"),
    ],
)
def test_a_shell_refuses_impossible_numbers_by_the_option_s_name(option, value, capsys):
    told = {"--tasks": "60", "--features": "3", "--rows": "20-80"} | {option: value}
    assert main(["plan", *[part for pair in told.items() for part in pair]]) == 2
    assert (
        f"{option.removeprefix('--') if option in ('--rows', '--delta') else option}: expected"
        in capsys.readouterr().err
    )


@pytest.mark.usefixtures("few_simulated")
def test_a_shell_gives_standard_errors_in_the_studys_units(tmp_path, capsys):
    """A shell gives a study's standard errors in the study's own units."""
    mp.datasets.example_study().write(tmp_path / "trial")
    told = ["plan", "--study", str(tmp_path / "trial" / "study.toml"), "--rows", "40-90", "--epsilon", "3", "--quiet"]
    assert main(told) == 0
    said = capsys.readouterr().out
    assert "Standard errors in days" in said
    assert "albumin (g/l)" in said
    assert main([*told, "--json"]) == 0
    errors = json.loads(capsys.readouterr().out)["by_epsilon"][0]["standard_errors"]
    assert 0.005 < errors["age"] < 0.02
