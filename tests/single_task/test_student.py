"""Errors with heavy tails: evidence and draws against quadrature, coverage on data from the model, what an outlier can do."""

import numpy as np
import pytest
import scipy.stats as st
from helpers.quickly import quickly
from helpers.tolerances import FAR, RARE, surprise
from numpy.testing import assert_allclose
from numpyro.infer.util import log_density
from scipy.special import logsumexp

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.inference import shared_covariance, task_posteriors
from mpmtl_prob.inference.owner.likelihoods import LIKELIHOODS
from mpmtl_prob.inference.owner.methods import plug_in
from mpmtl_prob.inference.public.init import observed
from mpmtl_prob.inference.public.structures import model_for
from mpmtl_prob.models import task
from mpmtl_prob.sampling.importance import resampled, smoothed
from mpmtl_prob.single_task import conjugate, student

HEAVY = LIKELIHOODS["student_t"]


@pytest.fixture(scope="module")
def one_task():
    """Sixty rows, two of them far off: of nine, the weights of draws may have no variance, and their means no error."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 2)) * [1.0, 2.0]
    y = X @ [1.0, -0.5] + 2.5 * rng.standard_normal(60)
    y[:2] += [15.0, -10.0]
    return TaskData.from_lists([X], [y])


OMEGAS = (np.array([[1.0, 0.4], [0.4, 0.5]]), np.diag([0.2, 3.0]))


def quadrature(tasks, omega):
    """Log of the joint density on a grid over w and sigma, the grid over snr summed: axis (k,), of u, and weights (k, k).

    ``w = sinh(u) / 100``: where snr is small the density is a spike at 0, a hundredth as wide as the rest of it.
    """
    X, y = tasks.rows_of(0)
    axis, log_sigma = np.linspace(-7.4, 7.4, 90), np.linspace(-4.0, 3.0, 40)
    w = np.stack(np.meshgrid(weight(axis), weight(axis), indexing="ij"), axis=-1)
    log_snr = conjugate.log_grid(conjugate.SnrPrior())[::2]  # which leaves evidences within 1e-4 of each other
    log_prior = -0.5 * conjugate.GRID[::2] ** 2
    form = np.einsum("abi,ij,abj->ab", w, np.linalg.inv(omega), w)
    unit = np.trace(X @ omega @ X.T) / len(y)
    square = (y - w @ X.T) ** 2 / student.FREEDOM
    total = np.full(form.shape, -np.inf)
    for each in log_sigma:
        rows = -0.5 * (student.FREEDOM + 1) * np.log1p(square * np.exp(-2 * each)).sum(axis=-1) - len(y) * each
        c = np.exp(log_snr + 2 * each) / unit
        normal = -0.5 * form[..., None] / c - np.log(c) - 0.5 * np.linalg.slogdet(omega)[1]
        total = np.logaddexp(total, rows + logsumexp(normal + log_prior, axis=-1))
    return axis, total + np.log(np.cosh(axis)) + np.log(np.cosh(axis))[:, None]


def weight(u):
    return np.sinh(u) / 100


@pytest.fixture(scope="module")
def joint(one_task):
    return [quadrature(one_task, omega) for omega in OMEGAS]


def test_evidence_times_the_mean_ratio_is_the_exact_integral(one_task, joint):
    """The evidence times the mean ratio is the integral of the joint density."""
    exact, estimated, error = [], [], []
    for omega, (_, on_grid) in zip(OMEGAS, joint, strict=True):
        exact.append(logsumexp(on_grid))
        posterior = student.student_posteriors(one_task, omega)
        ratio = np.exp(posterior.sample(np.random.default_rng(0), 100_000)["log_ratio"][:, 0])
        estimated.append(posterior.log_evidence[0] + np.log(ratio.mean()))
        error.append(ratio.std() / ratio.mean() / np.sqrt(len(ratio)))
    assert abs((estimated[0] - estimated[1]) - (exact[0] - exact[1])) < FAR * np.hypot(*error) + 2e-3
    assert max(error) < 0.02
    bound = [student.student_posteriors(one_task, omega).log_evidence[0] for omega in OMEGAS]
    assert_allclose(np.subtract(*bound), np.subtract(*exact), atol=0.2)


@pytest.mark.parametrize("k", range(2))
def test_corrected_draws_have_the_posteriors_law(one_task, joint, k):
    axis, log_density = joint[k]
    density = np.exp(log_density - log_density.max())
    posteriors = student.student_posteriors(one_task, OMEGAS[k])
    proposals = posteriors.sample(np.random.default_rng(0), 40_000)
    share = np.exp(proposals["log_ratio"][:, 0])
    share /= share.sum()
    W, draws, khat = resampled(proposals, posteriors.mean, 4000, np.random.default_rng(1))
    assert khat[0] < 0.7
    for j in range(2):
        marginal = density.sum(axis=1 - j)
        centre, step = weight(axis), axis[1] - axis[0]
        mean = marginal @ centre / marginal.sum()
        sd = np.sqrt(marginal @ (centre - mean) ** 2 / marginal.sum())
        error = np.sqrt(np.sum((share * (proposals["W"][:, j, 0] - mean)) ** 2))
        assert abs(W[j, 0] - mean) < FAR * error < 0.05 * sd
        rng = np.random.default_rng(2)
        exact = weight(rng.choice(axis, 4000, p=marginal / marginal.sum()) + step * (rng.random(4000) - 0.5))
        assert surprise(draws["W"][:, j, 0], exact) > RARE
        # the same test sees a posterior that is a quarter of an sd off
        assert surprise(draws["W"][:, j, 0] + 0.25 * sd, exact) < RARE


def mean_of_one_weight(x, y):
    """Compute E[w | rows x (n,) and y (n,)], Omega = 1: w is integrated out at every sigma first, which matters at n = 1."""
    nodes = conjugate.GRID[::2]
    root = np.sqrt(np.exp(np.log(conjugate.SNR_MEDIAN) + conjugate.SNR_LOG_SD * nodes) / np.mean(x**2))[:, None]
    u = np.linspace(-7.0, 7.0, 701)
    total = 0.0
    above = 0.0
    prior, size = -0.5 * (u**2 + nodes[:, None] ** 2), np.abs(y).max()
    for relative in np.exp(np.linspace(-8.0, 16.0, 120)):  # sigma / size, by its logarithm
        away = y[:, None, None] / (size * relative) - x[:, None, None] * root * u
        rows = -0.5 * (student.FREEDOM + 1) * np.log1p(away**2 / student.FREEDOM).sum(axis=0)
        density = np.exp(prior + rows) / relative ** len(y)
        total += density.sum()
        above += size * relative * np.sum(density * root * u)
    return above / total


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_mean_with_few_rows_is_that_of_quadrature(n):
    """The mean of a task with few rows is that of quadrature, whatever the seed."""
    rng = np.random.default_rng(n)
    x = rng.standard_normal((3, n))
    y = 1.5 * x + 0.5 * rng.standard_normal((3, n))
    exact = np.array([mean_of_one_weight(*rows) for rows in zip(x, y, strict=True)])
    tasks = TaskData.from_lists(list(x[..., None]), list(y))
    for seed in range(2):
        drawn = plug_in(tasks, np.ones((1, 1, 1)), np.ones(1), None, 4000, seed, HEAVY)
        assert set(drawn.draws) == {"W", "sigma", "log_snr"}
        # a mean of conditional means, which vary a third as much as draws, and of one row less than .03 when draws do not end
        error = np.minimum(drawn.draws["W"][:, 0].std(axis=0) / 3 / np.sqrt(4000), 0.03)
        assert (np.abs(drawn.W[0] - exact) < FAR * error + 1e-3).all()


def test_tasks_of_few_and_many_rows_have_the_means_of_each_alone():
    """Tasks of few rows and of many, side by side, have the means that they have alone."""
    rng = np.random.default_rng(0)
    rows = [(rng.standard_normal((n, 2)), rng.standard_normal(n)) for n in (30, 1)]
    draw = lambda *which: student.student_posteriors(TaskData.from_lists(*zip(*which, strict=True)))
    both, many = (draw(*which).sample(np.random.default_rng(0), 300) for which in (rows, rows[:1]))
    assert np.isnan(both["centre"][..., 0]).all()
    assert "centre" not in many
    means = [resampled(each, np.zeros((2, 1)), 100, np.random.default_rng(0))[0][:, 0] for each in (both, many)]
    assert_allclose(*means, rtol=1e-12)


def test_with_many_degrees_of_freedom_errors_are_normal(one_task, monkeypatch):
    monkeypatch.setattr(student, "FREEDOM", 1e9)
    heavy = [student.student_posteriors(one_task, omega).log_evidence[0] for omega in OMEGAS]
    normal = [conjugate.gaussian_posteriors(one_task.gram, omega).log_evidence[0] for omega in OMEGAS]
    assert_allclose(np.subtract(*heavy), np.subtract(*normal), atol=1e-5)


def simulate(m, n, seed):
    """Tasks from the model, with three features and Omega of rank about two; sigma = 1."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((3, 2)) * [3.0, 1.5]
    omega = root @ root.T + 0.05 * np.eye(3)
    X = rng.standard_normal((m, n, 3))
    snr = np.exp(np.log(conjugate.SNR_MEDIAN) + conjugate.SNR_LOG_SD * rng.standard_normal(m))
    c = snr * 12 / np.einsum("tni,ij,tnj->t", X[:, :12], omega, X[:, :12])
    W = np.linalg.cholesky(omega) @ rng.standard_normal((3, m)) * np.sqrt(c)
    y = np.einsum("tni,it->tn", X, W) + rng.standard_t(student.FREEDOM, (m, n))
    train, test = (TaskData.from_lists(list(X[:, part]), list(y[:, part])) for part in (slice(12), slice(12, n)))
    return train, test, W, omega


def test_intervals_cover_weights_as_often_as_they_say():
    train, _, W, omega = simulate(300, 18, 0)
    own = plug_in(train, omega[None], np.ones(1), None, 600, 0, HEAVY)

    def away(draws):
        inside = np.abs(np.mean(draws < W, axis=0) - 0.5)
        # weights of one task are dependent: the error is that of 300 tasks, not of 900 weights
        return max(abs(np.mean(inside < p / 2) - p) / np.sqrt(p * (1 - p) / 300) for p in (0.5, 0.8, 0.95))

    assert away(own.draws["W"]) < 3.3
    assert away(own.W + 0.75 * (own.draws["W"] - own.W)) > 3.3
    assert np.mean(own.khat_draws > 0.7) < 0.2


@pytest.fixture(scope="module")
def fitted():
    train, test, W, _ = simulate(100, 40, 1)
    release = mp.release(train, epsilon=3.0, unsafe_seed=1)
    shared = shared_covariance(release, chains=2, warmup=200, draws=150, progress_bar=False)
    return train, test, W, shared, task_posteriors(train, shared, likelihood="student_t", draws=100)


def test_from_rows_to_predictions(fitted, tmp_path):
    train, test, W, shared, own = fitted
    normal = task_posteriors(train, shared, likelihood="gaussian", draws=10)
    assert np.mean((own.W - W) ** 2) < np.mean((normal.W - W) ** 2)
    assert abs(mp.evaluation.coverage(own.predict(test), test) - 0.9) < 0.04
    assert "student_t" in repr(own)
    own.save(tmp_path / "own.nc")
    again = type(own).load(tmp_path / "own.nc")
    assert_allclose(again.predict(test, seed=3).mean, own.predict(test, seed=3).mean)


def test_an_outlying_row_matters_under_normal_errors_alone():
    """A row that is far off hardly matters, and under normal errors it does."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    X[4] = 1.0  # else the row that is far off may be one that says next to nothing
    y = X @ [1.0, -1.0] + 0.3 * rng.standard_normal(30)
    wild = np.where(np.arange(30) == 4, y + 50.0, y)
    with_all, without = (TaskData.from_lists([X], [each]) for each in (wild, y))
    heavy = [student.student_posteriors(tasks).mean for tasks in (with_all, without)]
    normal = [conjugate.gaussian_posteriors(tasks.gram).mean for tasks in (with_all, without)]
    assert np.abs(heavy[0] - heavy[1]).max() < 0.1
    assert np.abs(normal[0] - normal[1]).max() > 0.5


def test_tasks_whose_numbers_are_none_spoil_no_other():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2, 8, 2)), rng.standard_normal((2, 8))
    posteriors = student.student_posteriors(
        TaskData.from_lists([X[0], 1e150 * np.sign(X[1])], [y[0], 1e150 * np.sign(y[1])])
    )
    alone = student.student_posteriors(TaskData.from_lists([X[0]], [y[0]]))
    assert posteriors.mean[:, 0].tobytes() == alone.mean[:, 0].tobytes()
    ratios = [each.sample(np.random.default_rng(0), 300)["log_ratio"] for each in (posteriors, alone)]
    assert np.isfinite(smoothed(ratios[0].T)[1][0])


def test_an_intercept_is_refused_by_name(fitted):
    train, _, _, shared, _ = fitted
    with pytest.raises(ValueError, match="likelihood: 'student_t' knows no intercept"):
        task_posteriors(train.with_intercept(), shared, likelihood="student_t")


def test_the_joint_model_differs_by_the_law_of_the_errors(fitted):
    """The joint model differs from the normal one by the law of the errors."""
    train, _, _, shared, _ = fitted
    X, y = train.rows_of(0)
    jointly = HEAVY.jointly(X, y)
    public = observed(shared.release)
    rng = np.random.default_rng(0)
    difference = []
    expected = []
    rows = (X, y, np.ones(len(y)), np.ones(3))
    start = {name: np.asarray(value) for name, value in model_for("full", shared.release).start.items()}

    @quickly
    def densities(public, rows, site):
        heavy, trace = log_density(jointly.model, (public, *rows), {}, site)
        return heavy, log_density(task.joint, (public, *rows), {}, site)[0], trace["w"]["value"]

    for _ in range(2):
        own = {"log_snr": 1.0 + rng.random(), "log_sigma": rng.random(), "u": rng.standard_normal(3)}
        assert own.keys() == jointly.start.keys()
        heavy, normal, w = map(np.asarray, densities(public, rows, start | own))
        away = (y - X @ w) / np.exp(own["log_sigma"])
        difference.append(heavy - normal)
        expected.append(np.sum(st.t(student.FREEDOM).logpdf(away) - st.norm.logpdf(away)))
    assert_allclose(np.diff(difference), np.diff(expected), rtol=1e-5)
