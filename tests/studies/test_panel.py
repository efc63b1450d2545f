"""The panel for mixed models with privacy: its cells, its arms and how it is run."""

import json
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

ROOT = Path(__file__).parents[2]
NAMES = ("d", "m", "rows", "mean", "tau", "columns", "residual", "epsilon")
LEVELS = {
    "d": (1, 3, 10, 27),
    "m": (12, 20, 60, 160, 600),
    "rows": ("d/2", "d", "8", "30", "100", "unequal"),
    "mean": (0.0, 0.7),
    "tau": (0.2, 0.5, 0.7),
    "columns": ("independent", "correlated"),
    "residual": ("equal", "unequal"),
    "epsilon": (0.3, 1.0, 3.0, 10.0),
}
#: One feature has neither half a row nor another one to be correlated with.
IMPOSSIBLE = [{"d": 1, "rows": "d/2"}, {"d": 1, "columns": "correlated"}]


@pytest.fixture
def panel(monkeypatch):
    """Import a module of the benchmarks by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "studies" / "benchmarks"))

    def module(name):
        imported = __import__(name)
        for part in name.split(".")[1:]:
            imported = getattr(imported, part)
        return imported

    return module


@pytest.fixture
def public(panel):
    return panel("random_effects.arms").Public(1.0, 30, 12, (12, 12), 2.0)


# -- cells -----------------------------------------------------------------------------------------------------------------


def test_the_table_has_every_pair_of_levels(panel):
    grid = [cell for cell in panel("random_effects.cells").cells() if not cell.name.startswith("few-")]
    seen = {
        frozenset({(a, getattr(cell, a)), (b, getattr(cell, b))}) for cell in grid for a, b in combinations(NAMES, 2)
    }
    for a, b in combinations(NAMES, 2):
        for pair in product(LEVELS[a], LEVELS[b]):
            levels = dict(zip((a, b), pair, strict=True))
            assert frozenset(levels.items()) in seen or levels in IMPOSSIBLE, levels


def test_the_short_run_has_ten_cells_and_names_are_unique(panel):
    cells = panel("random_effects.cells")
    names = [cell.name for cell in cells.cells()]
    assert len(names) == len(set(names)) == 63
    assert len(cells.cells(fast=True)) == 10
    with pytest.raises(ValueError, match=r"expected names of cells\.csv, got nowhere; --list"):
        cells.cells(names=["nowhere"])


@pytest.mark.parametrize("name", ["few-b-m190-n16-eps1", "few-c-m190-n16-eps1"])
def test_features_have_the_second_moment_of_the_error_measure(panel, name):
    """Features have the second moment in which errors are measured."""
    cells = panel("random_effects.cells")
    (cell,) = cells.cells(names=[name])
    X = np.concatenate(cells.features(cell, np.full(20, 1000), np.random.default_rng(0)))
    assert_allclose(X.T @ X / len(X), cells.second_moment(cell), atol=5 * np.sqrt(2 / len(X)))


def test_a_cells_data_follow_from_its_name_and_the_seed(panel):
    cells = panel("random_effects.cells")
    one, other = cells.cells(names=["d3-m20-n30-mean.7-tau.2-eps3", "d3-m60-n30-mean.7-tau.2-eps1"])
    first = cells.draw(one, 0)
    assert_allclose(first.beta, cells.draw(one, 0).beta, rtol=0)
    assert not np.allclose(first.beta, cells.draw(one, 1).beta)
    assert not np.allclose(first.mu, cells.draw(other, 0).mu)
    assert_allclose(np.linalg.norm(first.mu), 0.7)


# -- the mixed model ---------------------------------------------------------------------------------------------------------


def grouped(seed=0, tasks=15):
    """Rows (n_i, 2) with an intercept, and targets, of tasks of unequal sizes."""
    rng = np.random.default_rng(seed)
    X = [np.column_stack([np.ones(n), rng.standard_normal(n)]) for n in rng.integers(4, 12, tasks)]
    L = np.array([[0.8, 0.0], [0.3, 0.5]])
    beta = np.array([1.0, -0.5]) + rng.standard_normal((tasks, 2)) @ L.T
    return X, [x @ b + 0.7 * rng.standard_normal(len(x)) for x, b in zip(X, beta, strict=True)]


def test_em_has_the_estimates_of_statsmodels(panel):
    """EM has the restricted likelihood and the estimates of statsmodels."""
    mixed = panel("random_effects.mixed")
    model = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    X, y = grouped()
    ours = mixed.fit(mixed.statistics(X, y), iterations=20_000, tolerance=1e-14)
    every, groups = np.concatenate(X), np.repeat(np.arange(len(X)), [len(x) for x in X])
    theirs = model.MixedLM(np.concatenate(y), every, groups, exog_re=every).fit(reml=True, gtol=1e-8)
    assert theirs.converged
    assert_allclose(ours.log_likelihood, theirs.llf, rtol=1e-8)
    assert_allclose(ours.mu, theirs.fe_params, rtol=1e-4)
    assert_allclose(ours.sigma2, theirs.scale, rtol=1e-4)
    assert_allclose(ours.Omega, theirs.cov_re, rtol=1e-3)
    # their standard errors invert the Hessian of all parameters together; these are generalised least squares'
    V = [x @ np.asarray(theirs.cov_re) @ x.T + theirs.scale * np.eye(len(x)) for x in X]
    exact = np.linalg.inv(sum(x.T @ np.linalg.solve(v, x) for x, v in zip(X, V, strict=True)))
    assert_allclose(ours.mu_covariance, exact, rtol=1e-3)
    effects = np.array([theirs.random_effects[k] for k in range(len(X))])
    assert_allclose(ours.beta.T - ours.mu, effects, atol=1e-3)


def one_way(mixed, tasks=12, rows=6):
    """A balanced one-way layout: its EM fit, and mu, tau^2, sigma^2 and the standard error of mu in closed form."""
    rng = np.random.default_rng(3)
    y = 2 + rng.standard_normal((tasks, 1)) + 0.8 * rng.standard_normal((tasks, rows))
    data = mixed.statistics([np.ones((rows, 1))] * tasks, list(y))
    within = y.var(axis=1, ddof=1).mean()
    between = rows * y.mean(axis=1).var(ddof=1)
    exact = [y.mean(), (between - within) / rows, within, np.sqrt(between / tasks / rows)]
    estimate = mixed.fit(data, iterations=20_000, tolerance=1e-15)
    return [estimate.mu[0], estimate.Omega[0, 0], estimate.sigma2, np.sqrt(estimate.mu_covariance[0, 0])], exact


def test_em_of_a_balanced_layout_is_the_analysis_of_variance(panel):
    assert_allclose(*one_way(panel("random_effects.mixed")), rtol=1e-5)


@pytest.mark.parametrize("forgotten", ["what mu's uncertainty adds", "the effects' own variance"])
def test_a_wrong_e_step_is_noticed(panel, monkeypatch, forgotten):
    mixed = panel("random_effects.mixed")
    right = mixed.expected

    def wrong(data, Omega, sigma2):
        E = right(data, Omega, sigma2)
        H = np.linalg.inv(data.gram / sigma2 + np.linalg.inv(Omega))  # without the term of mu: maximum likelihood
        return E._replace(u_covariance=H if forgotten.startswith("what") else 0 * H)

    monkeypatch.setattr(mixed, "expected", wrong)
    estimates, exact = one_way(mixed)
    assert not np.allclose(estimates[1], exact[1], rtol=1e-2)


def test_columns_that_say_the_same_leave_a_fit_as_it_is(panel):
    mixed = panel("random_effects.mixed")
    X, y = grouped()
    twice = [np.column_stack([x, x[:, 1]]) for x in X]
    fit = mixed.fit(mixed.statistics(twice, y), iterations=50)
    assert np.isfinite(fit.log_likelihood)
    assert_allclose(fit.mu[1], fit.mu[2])


# -- owners ------------------------------------------------------------------------------------------------------------------


def test_owners_average_as_densities_of_their_targets_say(panel):
    mixed, owners = panel("random_effects.mixed"), panel("random_effects.owners")
    X, y = grouped(tasks=3)
    rng = np.random.default_rng(1)
    residuals = np.array([0.3, 1.0])
    weights = np.array([0.7, 0.3])
    priors = [
        owners.Prior(rng.standard_normal(2), np.array([[1.0, 0.4], [0.4, 0.5]]), np.array([0.5, 2.0]), weight)
        for weight in (0.8, 0.2)
    ]
    mean, variance = owners.posteriors(mixed.statistics(X, y), priors, residuals, weights)
    for i, (x, v) in enumerate(zip(X, y, strict=True)):
        parts = []
        for prior, scale, (s2, chance) in product(priors, (0, 1), zip(residuals, weights, strict=True)):
            Omega = prior.scales[scale] * prior.Omega
            V = x @ Omega @ x.T + s2 * np.eye(len(v))
            gain = Omega @ x.T @ np.linalg.inv(V)
            density = stats.multivariate_normal.pdf(v, x @ prior.mu, V) * prior.weight * chance
            parts.append((density, prior.mu + gain @ (v - x @ prior.mu), np.diag(Omega - gain @ x @ Omega)))
        share, means, variances = (np.array(part) for part in zip(*parts, strict=True))
        share = share / share.sum()
        assert_allclose(mean[:, i], share @ means)
        assert_allclose(variance[:, i], share @ (variances + (means - share @ means) ** 2))


# -- privacy of the arms -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sensitivity", [np.sqrt(2), 5.0])
def test_noise_has_the_standard_deviation_of_its_budget(panel, public, sensitivity):
    """Noise has the standard deviation that the budget asks for."""
    mu = sensitivity / panel("random_effects.arms").noise_sd(public, sensitivity)
    delta = stats.norm.cdf(mu / 2 - public.epsilon / mu) - np.exp(public.epsilon) * stats.norm.cdf(
        -mu / 2 - public.epsilon / mu
    )  # Balle and Wang (2018), Theorem 8
    assert_allclose(delta, public.delta, rtol=1e-6)


def test_one_site_moves_the_rivals_summaries_as_covered(panel, public):
    """One site moves the rival's summaries by no more than is covered."""
    rival = panel("random_effects.rival")
    longest = rival.size(public.rows, 3)
    rng = np.random.default_rng(0)
    of = lambda X, y: rival.clipped(X, y, public.square, longest)
    moved = []
    for scale in (0.1, 1.0, 30.0):
        sites = [of(scale * rng.standard_normal((n, 3)), 9 * rng.standard_normal(n)) for n in (1, 12, 200)]
        moved += [np.linalg.norm(a - b) for a, b in combinations(sites, 2)]
    assert max(moved) <= np.sqrt(2) * longest * (1 + 1e-12)
    one, other = (of(1e3 * np.eye(3)[[k]], np.zeros(1)) for k in (0, 1))
    assert_allclose(np.linalg.norm(one - other), np.sqrt(2) * longest)  # and it can be that much


def test_the_rivals_noise_is_for_what_one_site_moves(panel, public, monkeypatch):
    arms, rival = panel("random_effects.arms"), panel("random_effects.rival")
    drawn = []
    monkeypatch.setattr(rival, "noise", lambda d, sd, rng: drawn.append(sd) or np.zeros((d, d)))
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((12, 3)) for _ in range(30)]
    arms.noisy_summaries(arms.Train(X, [x[:, 0] for x in X]), public, 0)
    assert_allclose(drawn, arms.noise_sd(public, np.sqrt(2) * rival.size(12, 3)))  # one draw a site


def test_the_rivals_noise_is_as_large_in_every_direction(panel):
    rival = panel("random_effects.rival")
    rng = np.random.default_rng(0)
    sd = 2.0
    count = 4000
    E = np.array([rival.noise(3, sd, rng) for _ in range(count)])
    assert_allclose(E, np.swapaxes(E, 1, 2))
    for direction in (
        np.diag([1.0, 0, 0]),
        np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]) / np.sqrt(2),
        np.eye(3) / np.sqrt(3),
    ):
        along = np.einsum("kij,ij->k", E, direction)
        assert abs(along.var() / sd**2 - 1) < 5 * np.sqrt(2 / count)


def test_the_rival_without_noise_is_robust_least_squares(panel):
    """Without noise, the rival has the coefficients and robust errors of least squares."""
    rival = panel("random_effects.rival")
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((8, 2)) for _ in range(20)]
    y = [x @ [1.0, -1.0] + rng.standard_normal() * x[:, 0] + rng.standard_normal(8) for x in X]
    T = np.array([np.column_stack([x, v]).T @ np.column_stack([x, v]) for x, v in zip(X, y, strict=True)])
    mu, error, rho = rival.read(T, 0.0, intercept=False)
    every, targets = np.concatenate(X), np.concatenate(y)
    exact = np.linalg.lstsq(every, targets)[0]
    scores = np.array([x.T @ (v - x @ exact) for x, v in zip(X, y, strict=True)])
    bread = np.linalg.inv(every.T @ every)
    assert rho == 0
    assert_allclose(mu, exact)
    assert_allclose(error, np.sqrt(np.diag(bread @ scores.T @ scores @ bread)))


def test_one_task_moves_the_released_average_as_covered(panel, public, monkeypatch):
    """One task moves the released average by no more than is covered."""
    arms = panel("random_effects.arms")
    covered = []
    monkeypatch.setattr(arms, "noise_sd", lambda public, sensitivity: covered.append(sensitivity) or 0.0)
    rng = np.random.default_rng(0)
    X, y = [rng.standard_normal((12, 3)) for _ in range(30)], [rng.standard_normal(12) for _ in range(30)]
    far = 1e4 * X[0][:, 0]
    ends = [arms.released_average(arms.Train(X, [sign * far, *y[1:]]), public, 0).mu for sign in (1, -1)]
    _, left, _ = arms.clip(public, 3)
    assert_allclose(np.linalg.norm(ends[0] - ends[1]) * 30 * left, covered[0])


def test_shrinkage_is_what_ridge_leaves_on_average(panel):
    rng, d, n = np.random.default_rng(0), 40, 60
    G = [(x := rng.standard_normal((n, d))).T @ x for _ in range(40)]
    left = np.mean([np.trace(np.linalg.solve(g + 5 * np.eye(d), g)) / d for g in G])
    assert_allclose(panel("random_effects.arms").shrinkage(5.0, n, d), left, rtol=0.01)


# -- limits ------------------------------------------------------------------------------------------------------------------


def test_the_limit_is_that_of_many_rows_where_rows_are_many(panel):
    cells, limits = panel("random_effects.cells"), panel("random_effects.limits")
    (cell,) = cells.cells(names=["d10-m160-n100-mean.7-tau.2-eps3"])
    draw = cells.draw(cell, 0)
    sd = limits.release_sd(limits.public(cell), cell.d + 2)
    V = 1 / (100 - cell.d - 1)
    w = V / (V + cell.tau**2 / cell.d)
    b2 = cell.mean**2 + cell.tau**2 + cell.d * V
    assert_allclose(limits.added(cell, draw), w**2 * cell.d * 4 * b2 * sd**2 / cell.m**2, rtol=0.1)


def test_the_mean_of_unit_messages_has_the_limits_variance(panel):
    """The mean that is read from unit messages has the variance of the limit."""
    rng, d, m, sd, b2 = np.random.default_rng(0), 4, 50, 1.5, 0.8
    b = rng.standard_normal((m, d))
    b *= np.sqrt(b2) / np.linalg.norm(b, axis=1, keepdims=True)
    read = {}
    for g in (0.5, 1 / np.sqrt(b2), 3.0):
        v = np.column_stack([g * b, np.ones(m)]) / np.sqrt(1 + g**2 * b2)
        per_task = g / (1 + g**2 * b2)  # of b, that a task adds to the last column
        column = (v.T @ v)[:d, -1] + sd * rng.standard_normal((20_000, d))
        read[g] = (column / per_task / m).var(axis=0).mean()
    assert_allclose(read[1 / np.sqrt(b2)], 4 * b2 * sd**2 / m**2, rtol=0.05)
    assert min(read, key=read.get) == 1 / np.sqrt(b2)


# -- the command -------------------------------------------------------------------------------------------------------------

CHOICE = ["--cells", "d1-m12-n100-mean0-tau.2-eps10", "--arms", "alone", "average released", "mixed", "--tables"]


def test_an_interrupted_run_goes_on_and_has_the_same_numbers(panel, tmp_path, monkeypatch, capsys):
    command = panel("panel")
    units = panel("random_effects.units")
    cells = panel("random_effects.cells")
    monkeypatch.setattr(cells, "SEEDS", 4)

    def run(folder, *more):
        monkeypatch.setattr(
            "sys.argv", ["panel.py", *CHOICE, "--units", str(folder), "--json", f"{folder}.json", *more]
        )
        command.main()
        errors = json.loads(Path(f"{folder}.json").read_text())["cells"][0]["errors"]
        return {arm: {name: value for name, value in each.items() if name != "seconds"} for arm, each in errors.items()}

    whole = run(tmp_path / "whole")
    calls, right = [], units.run

    def interrupted(unit, data):
        calls.append(unit)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return right(unit, data)

    monkeypatch.setattr(units, "run", interrupted)
    part = run(tmp_path / "parts")
    assert "goes on from here" in capsys.readouterr().err
    assert part["alone"]["count"] == part["average released"]["count"] == 2  # over seeds that both have
    assert len(list((tmp_path / "parts").rglob("*.json"))) == 6
    assert run(tmp_path / "parts") == whole
    assert len(calls) == 7 + 6  # nothing twice but the one that was interrupted


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--arms", "best"], "--arms: expected some of 'alone'"),
        (["--seeds", "0", "--tables"], "--seeds: expected a number of at least 1, got 0"),
        (["--tables", "wine"], "--tables: expected some of 'exam'"),
        (["--cells", "d2", "--tables"], "got d2; --list prints them all"),
        (["--tables", "exam", "--data", "nowhere"], "expected exam.csv in the folder of --data"),
        (["--before", "nowhere", "--tables"], "--before: expected a checkout of commit c1158eb"),
    ],
)
def test_wrong_options_are_answered_in_words(panel, capsys, argv, words):
    with pytest.raises(SystemExit):
        panel("panel").parsed(argv)
    assert words in capsys.readouterr().err


def test_a_process_of_the_library_that_fails_says_why(panel, tmp_path):
    command, units = panel("panel"), panel("random_effects.units")
    (tmp_path / "mpmtl_prob").mkdir()
    (tmp_path / "mpmtl_prob" / "__init__.py").write_text("raise ImportError('no such thing')")
    unit = units.Unit("d1-m12-n100-mean0-tau.2-eps10", 10.0, 0, 0, "0.3.0", "c1158eb")
    with pytest.raises(RuntimeError, match=r"0\.3\.0, d1-m12.*no such thing"):
        list(command._elsewhere([unit], tmp_path, None))


def test_a_share_of_a_distance_has_an_interval_over_seeds(panel):
    gone = panel("panel").gone
    assert gone([1, 1], [0.4, 0.4], [0.2, 0.2]) == pytest.approx({"value": 0.75, "low": 0.75, "high": 0.75})
    rng = np.random.default_rng(0)
    interval = gone(1 + 0.1 * rng.standard_normal(20), 0.4 + 0.1 * rng.standard_normal(20), np.full(20, 0.2))
    assert interval["low"] < 0.75 < interval["high"]


def test_real_tables_are_split_within_tasks_in_pooled_units(panel, tmp_path):
    real = panel("random_effects.real")
    rng = np.random.default_rng(0)
    lines = [f"{task},{rng.normal()},{rng.normal()}" for task, n in (("a", 10), ("b", 25), ("c", 7)) for _ in range(n)]
    (tmp_path / "sleepstudy.csv").write_text("\n".join(["Subject,Days,Reaction", *lines]))
    parts = real.split("sleepstudy", 0, 3.0, tmp_path)
    assert [len(y) for y in parts.train.y] == [4, 10]  # 40 %, and a task of seven rows does not take part
    every = np.concatenate([*parts.train.y, *(v for _, v in parts.test)])
    assert len(every) == len(set(every)) == 35
    assert_allclose([every.mean(), every.std()], [0, 1], atol=1e-12)
    assert all((x[:, 0] == 1).all() for x in parts.train.X)
    assert parts.public.row_range == (4, 10)
    zero = np.zeros((2, 2))
    zero[0] = [v.mean() for _, v in parts.test]
    assert_allclose(real.nmse(zero, parts.test), 1)
