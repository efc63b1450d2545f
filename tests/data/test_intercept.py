"""Every task's own intercept: what is fitted, what is sent, and what an interval says of it."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.special as sp
import scipy.stats as st
import sklearn.linear_model
from helpers.tolerances import RARE, surprise
from numpy.testing import assert_allclose

import mpmtl_prob as mp
from mpmtl_prob import TaskData, evaluation
from mpmtl_prob.cli.main import _parser
from mpmtl_prob.cli.tasks import read_tasks
from mpmtl_prob.estimators import (
    MTRL,
    Lasso,
    Logistic,
    LowRank,
    LowRankPlusSparse,
    MultiTask,
    Ridge,
    RidgeLogistic,
    TraceNorm,
)
from mpmtl_prob.inference import posterior_draws, shared_covariance, task_posteriors
from mpmtl_prob.inference.owner import leave_one_out as own_message
from mpmtl_prob.inference.owner import methods
from mpmtl_prob.inference.owner.posteriors import OwnerPosteriors
from mpmtl_prob.releases.messages import messages
from mpmtl_prob.sampling.importance import resampled
from mpmtl_prob.single_task import conjugate, intercepts, laplace

ROWS = (9, 12, 7, 30, 2, 16)
CHANGED = 2


def rows(binary=False):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 3)) * [0.5, 1.0, 2.0] + [0.0, 3.0, -2.0] for n in ROWS]
    y = [x @ rng.standard_normal(3) + rng.standard_normal() + 0.5 * rng.standard_normal(len(x)) for x in X]
    return X, [np.where(v > np.median(v), 1.0, -1.0) for v in y] if binary else y


def tasks_of(X, y):
    return TaskData.from_lists(X, y).with_intercept()


def moved(X, y):
    """Every task's origin elsewhere, by its own and exactly representable numbers."""
    far = [(64.0 * (i + 1), -100.0 + 8.0 * i) for i in range(len(X))]
    return [x + a for x, (a, _) in zip(X, far, strict=True)], [v + b for v, (_, b) in zip(y, far, strict=True)]


def centred(X, y):
    return TaskData.from_lists([x - x.mean(axis=0) for x in X], [v - v.mean() for v in y])


@pytest.mark.parametrize(
    ("estimator", "other"),
    [
        (Ridge(0.7), lambda n: sklearn.linear_model.Ridge(alpha=0.7)),
        (Lasso(0.9), lambda n: sklearn.linear_model.Lasso(alpha=0.9 / n, tol=1e-12, max_iter=100_000)),
    ],
)
def test_the_penalty_leaves_it_alone_as_in_scikit_learn(estimator, other):
    X, y = moved(*rows())
    W = estimator.fit(tasks_of(X, y)).W
    for i in range(len(X)):
        alone = other(len(X[i])).fit(X[i], y[i])
        assert_allclose(W[:-1, i], alone.coef_, atol=2e-5)
        assert_allclose(W[-1, i], alone.intercept_, atol=2e-5 * 500)


@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_a_column_of_ones_is_worse_where_targets_are_far_away(far):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 30, 4))
    W = rng.standard_normal((600, 4)) / 2
    y = np.einsum("tni,ti->tn", X, W) + far + rng.standard_normal((600, 1)) + 0.5 * rng.standard_normal((600, 30))
    ones = np.concatenate([X, np.ones((600, 30, 1))], axis=2)
    (column, of_column), (own, of_own) = (scores(Ridge().fit(train).predict(test), test) for train, test in (
        (TaskData.from_lists(list(ones[:, :10]), list(y[:, :10])), TaskData.from_lists(list(ones[:, 10:]), list(y[:, 10:]))),
        (tasks_of(list(X[:, :10]), list(y[:, :10])), tasks_of(list(X[:, 10:]), list(y[:, 10:]))),
    ))  # fmt: skip
    # over data sets: own is .415, sd .012; column / own is 1.02, sd .014, where targets are near; and where they are far
    # the column is worse for .77 of the tasks, sd .015
    assert own < 0.5
    assert np.mean(of_column > of_own) > 0.65 if far else column < 1.15 * own


def scores(prediction, test):
    """Return the scores of all tasks together and of every task."""
    return evaluation.nmse_within(prediction, test), np.mean((prediction.mean - test.y) ** 2, axis=1)


LEAST_SQUARES = [
    Ridge(),
    MultiTask(TraceNorm(), 0.5, tolerance=1e-8),
    LowRankPlusSparse((0.5, 0.2), tolerance=1e-8),
    MTRL(0.1, 0.1, tolerance=1e-8),
    LowRank(0.5, rounds=3, clip=5.0, curvature=300.0, start="zero", epsilon=None),
]


@pytest.mark.parametrize("estimator", LEAST_SQUARES, ids=lambda e: type(e).__name__)
def test_tasks_share_slopes_and_the_origin_does_not_matter(estimator):
    """Estimators tie the slopes of tasks together, and the origin of the targets does not matter."""
    X, y = rows()
    W, elsewhere = (estimator.fit(tasks_of(*data)).W for data in (rows(), moved(*rows())))
    assert_allclose(W[:-1], elsewhere[:-1], rtol=1e-6, atol=1e-8)
    for i in range(len(X)):
        assert_allclose(W[-1, i], y[i].mean() - X[i].mean(axis=0) @ W[:-1, i])
    if isinstance(estimator, MultiTask | LowRank | LowRankPlusSparse):  # sums over rows: centred rows are as good
        assert_allclose(W[:-1], estimator.fit(centred(X, y)).W, rtol=1e-6, atol=1e-8)
    if isinstance(estimator, MultiTask):
        *_, on_path = estimator.path(tasks_of(X, y), [8.0, 4.0, 2.0, 1.0, 0.7, 0.5])
        assert_allclose(on_path.W, W, atol=1e-7)


def test_cross_validation_fits_as_the_estimators_do():
    six = [0, 1, 2, 3, 5, 0]  # with rows to hold back
    tasks, elsewhere = (tasks_of([X[i] for i in six], [y[i] for i in six]) for X, y in (rows(), moved(*rows())))
    for candidates in (
        [Ridge(0.1), *evaluation.grids.lasso(tasks)[-6:]],
        [replace(each, tolerance=1e-8) for each in evaluation.grids.multi_task(TraceNorm(), tasks)[-6:]],
        [replace(each, epsilon=None) for each in evaluation.grids.rounds(LowRank, tasks)[:2]],
    ):
        results = [
            evaluation.cross_validate(candidates, data, folds=2, metric="nmse_within", progress_bar=False)
            for data in (tasks, elsewhere)
        ]
        assert_allclose(results[0].scores, results[1].scores, rtol=1e-4)
        train, held = tasks.folds(2, 0)[0]
        fits = [candidate.fit(train).predict(held) for candidate in candidates]
        assert_allclose(results[0].scores[:, 0], [evaluation.nmse_within(fit, held) for fit in fits], rtol=1e-4)


@pytest.mark.parametrize(
    "estimator", [RidgeLogistic(0.3), Lasso(0.3, Logistic()), MultiTask(TraceNorm(), 0.3, Logistic())]
)
def test_other_losses_take_the_column_for_a_feature(estimator):
    X, y = rows(binary=True)
    X = [x[:, :2] for x in X]
    column = TaskData.from_lists([np.column_stack([x, np.ones(len(x))]) for x in X], y)
    assert_allclose(estimator.fit(tasks_of(X, y)).W, estimator.fit(column).W)


def test_evidence_and_posterior_are_those_under_a_flat_prior():
    X, y = moved(*rows())
    tasks = tasks_of(X, y)
    rng = np.random.default_rng(1)
    omegas = [np.eye(3), np.cov(rng.standard_normal((3, 9)))]
    posteriors = [intercepts.gaussian(tasks, omega) for omega in omegas]
    for i in range(len(X)):
        n, one = len(y[i]), np.ones(len(y[i]))
        evidence = []
        for omega in omegas:
            middle = X[i] - X[i].mean(axis=0)
            signal = np.einsum("ni,ij,nj->", middle, omega, middle) / (n - 1)
            log_snr = np.log(conjugate.SLOPES.median) + conjugate.SLOPES.log_sd * np.linspace(-3, 3, 73)
            each = []
            for c in np.exp(log_snr) / signal:  # b and sigma integrated out: generalised least squares
                V = np.eye(n) + c * middle @ omega @ middle.T
                fit = one @ np.linalg.solve(V, y[i]) / (one @ np.linalg.solve(V, one))
                rest = y[i] - fit
                each.append(
                    -0.5 * np.linalg.slogdet(V)[1]
                    - 0.5 * np.log(one @ np.linalg.solve(V, one))
                    - 0.5 * (n - 1) * np.log(rest @ np.linalg.solve(V, rest))
                )
            evidence.append(sp.logsumexp(np.array(each) - 0.5 * np.linspace(-3, 3, 73) ** 2))
        assert_allclose(
            posteriors[1].log_evidence[i] - posteriors[0].log_evidence[i], evidence[1] - evidence[0], atol=1e-6
        )


def test_given_slopes_and_error_it_is_normal():
    X, y = moved(*rows())
    draws = intercepts.gaussian(tasks_of(X, y)).sample(np.random.default_rng(0), 4000)
    for i in range(len(X)):
        W, sigma = draws["W"][:, :, i], draws["sigma"][:, i]
        z = (W[:, -1] - y[i].mean() + W[:, :-1] @ X[i].mean(axis=0)) / sigma * np.sqrt(len(y[i]))
        assert st.kstest(z, "norm").pvalue > RARE
        assert abs(st.spearmanr(z, sigma).statistic) < 5.5 / np.sqrt(4000)


def test_intervals_cover_a_target_that_is_far_away():
    rng = np.random.default_rng(0)
    m, d, n = 1500, 3, 6  # few rows: what they leave open of the intercept counts
    X = 20 + rng.standard_normal((m, n + 1, d))
    middle = X[:, :n] - X[:, :n].mean(axis=1, keepdims=True)
    snr = np.exp(np.log(conjugate.SLOPES.median) + conjugate.SLOPES.log_sd * rng.standard_normal(m))
    W = rng.standard_normal((m, d)) * np.sqrt(snr * (n - 1) / np.sum(middle**2, axis=(1, 2)))[:, None]  # sigma = 1
    b = 100 + 3 * rng.standard_normal(m)
    y = np.einsum("tni,ti->tn", X, W) + b[:, None] + rng.standard_normal((m, n + 1))
    train, test = (tasks_of(list(X[:, part]), list(y[:, part])) for part in (slice(n), slice(n, None)))
    draws = intercepts.gaussian(train).sample(rng, 500)
    tail = 5.1 * np.sqrt(0.09 / m)
    for values, truth in (
        (draws["W"][:, -1], b),  # at the origin, far from the rows
        (draws["W"][:, -1] + np.einsum("sit,ti->st", draws["W"][:, :-1], X[:, :n].mean(axis=1)), y[:, :n].mean(axis=1)
         - (y[:, :n] - np.einsum("tni,ti->tn", X[:, :n], W) - b[:, None]).mean(axis=1)),  # among the rows
        (np.einsum("sit,ti->st", draws["W"], test.X[:, 0]) + draws["sigma"] * rng.standard_normal((500, m)), y[:, n]),
    ):  # fmt: skip
        low, high = np.quantile(values, [0.05, 0.95], axis=0)
        assert abs(np.mean((low <= truth) & (truth <= high)) - 0.9) < tail


def test_labels_give_it_half_of_the_log_odds_prior_variance():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((7, 1)) + 2, np.array([1.0, 1, 1, 1, -1, 1, 1])
    tasks = tasks_of([x], [y])
    posterior = intercepts.bernoulli(tasks, scale=np.array([[1.7]]))
    draws = posterior.sample(rng, 40_000)
    mean, draws, _ = resampled(draws, posterior.mean, 10_000, rng)

    middle = (x - x.mean())[:, 0]
    sd = np.sqrt(np.mean(middle**2))  # half of snr is the slopes' part, averaged over rows, half the intercept's
    log_snr = np.log(laplace.SNR_MEDIAN) + laplace.SNR_LOG_SD * np.linspace(-3, 3, 25)
    u = np.linspace(-7, 7, 281)
    w0, b0 = np.meshgrid(u / sd, u, indexing="ij")
    total, moments = 0.0, np.zeros(2)
    for log, z in zip(log_snr, np.linspace(-3, 3, 25), strict=True):
        w, b = np.exp(log / 2) * w0 / np.sqrt(2), np.exp(log / 2) * b0 / np.sqrt(2)
        density = np.exp(-0.5 * (u[:, None] ** 2 + u**2 + z**2))
        for a, label in zip(middle, y, strict=True):
            density *= sp.expit(label * (b + a * w))
        total += density.sum()
        moments += [(density * w).sum(), (density * (b - x.mean() * w)).sum()]
    error = draws["W"][:, :, 0].std(axis=0) / np.sqrt(2000)  # of at least 2000 effective draws
    assert (np.abs(mean[:, 0] - moments / total) < 6 * error).all()


def test_constant_and_single_labels_have_a_posterior():
    """Labels that agree, and a single row of labels, have a posterior."""
    X, _ = rows()
    tasks = tasks_of([X[0], X[1][:1], X[2]], [np.ones(9), np.ones(1), -np.ones(7)])
    posteriors = intercepts.bernoulli(tasks)
    middle = (
        np.sum([x.mean(axis=0) for x in (X[0], X[1][:1], X[2])] * posteriors.mean[:-1].T, axis=1) + posteriors.mean[-1]
    )
    assert middle[0] > middle[1] > 0 > middle[2]
    assert np.isfinite(posteriors.sample(np.random.default_rng(0), 50)["W"]).all()


@pytest.fixture(scope="module")
def public():
    X, y = rows()
    release = mp.release(tasks_of(X, y), epsilon=3.0, unsafe_seed=0)
    assert release.features == (0, 1, 2)
    return shared_covariance(release, chains=2, warmup=200, draws=100, progress_bar=False)


@pytest.mark.parametrize("method", ["plug_in", "mixture"])
def test_owners_posteriors_move_with_their_origin(public, method, tmp_path):
    own, elsewhere = (task_posteriors(tasks_of(*data), public, method=method) for data in (rows(), moved(*rows())))
    assert_allclose(own.W[:-1], elsewhere.W[:-1], rtol=1e-6, atol=1e-9)
    here, there = (one.predict(tasks_of(*data)) for one, data in ((own, rows()), (elsewhere, moved(*rows()))))
    shift = tasks_of(*moved(*rows())).y - tasks_of(*rows()).y
    assert_allclose(there.mean, (here.mean + shift) * here.mask, atol=1e-6)
    settled = here.mask & (np.array(ROWS) > 3)[:, None]
    assert_allclose(there.draws[:, settled], (here.draws + shift)[:, settled], rtol=0, atol=1e-5)
    # two rows leave two directions open: rounding turns the axes and the signs in which draws are made, not their law
    i = ROWS.index(2)
    for j in range(2):
        assert surprise(here.draws[:, i, j] + shift[i, j], there.draws[:, i, j]) > RARE
    assert own.to_arviz()["posterior/W"].feature.values.tolist() == ["0", "1", "2", "intercept"]
    own.save(tmp_path / "own.nc")
    loaded = OwnerPosteriors.load(tmp_path / "own.nc").predict(tasks_of(*rows())).draws
    assert (np.abs(loaded - here.draws) <= 1e-6 * np.ptp(here.draws, axis=0)).all()  # a file holds single precision


def test_intervals_are_as_exact_far_from_zero_as_at_it(public):
    X, y = rows()
    near, far = (tasks_of(X, [v + offset for v in y]) for offset in (0.0, 1e8))
    here, there = (np.stack(task_posteriors(t, public).predict(t).interval()) for t in (near, far))
    settled = near.mask & (np.array(ROWS) > 3)[:, None]
    width = (here[1] - here[0])[settled]
    assert (np.abs(there - 1e8 - here)[:, settled] < 1e-6 * width).all()


def test_an_owner_knows_what_it_sent(public):
    sent = own_message.as_sent(tasks_of(*rows()), public.release)
    assert (np.linalg.norm(sent, axis=0) <= 1).all()
    assert (np.linalg.norm(sent, axis=0) > 0.99).all()  # a coarse lattice
    assert own_message.leave_one_out(public.release, sent[:, 0]).num_tasks == len(ROWS) - 1


def test_what_has_no_answer_is_named(public):
    X, y = rows()
    with pytest.raises(ValueError, match="method: 'joint' knows no intercept"):
        task_posteriors(tasks_of(X, y), public, method="joint")
    with pytest.raises(ValueError, match="features: expected 3 as in the release, got 2"):
        task_posteriors(tasks_of([x[:, :2] for x in X], y), public)


def with_a_lone_row():
    X, y = rows()
    X[CHANGED], y[CHANGED] = X[CHANGED][:1], y[CHANGED][:1]
    return X, y


LONE = "tasks: 1 of them have one row, which says nothing of slopes beside an intercept: 2. Their posteriors are those of new"


def test_one_row_ends_the_fit_of_nobody_and_its_owner_is_told(public, tmp_path):
    X, y = with_a_lone_row()
    with pytest.warns(UserWarning, match=LONE):
        own = task_posteriors(tasks_of(X, y), public, draws=50)
    assert bits(own.W) == bits(task_posteriors(tasks_of(*rows()), public, draws=50).W)
    assert np.isfinite(own.predict(tasks_of(X, y)).draws).all()
    assert_allclose(own.W[:, CHANGED], [0, 0, 0, y[CHANGED][0]], atol=1e-9 * abs(y[CHANGED][0]))
    low, high = own.predict(tasks_of(X, y)).interval()
    assert low[CHANGED, 0] < -1e80
    assert high[CHANGED, 0] > 1e80
    own.save(tmp_path / "own.nc")
    assert np.isfinite(OwnerPosteriors.load(tmp_path / "own.nc").to_arviz()["posterior"].dataset["W"].values).all()
    assert_allclose(OwnerPosteriors.load(tmp_path / "own.nc").W, own.W)
    with pytest.warns(UserWarning, match=LONE):
        task_posteriors(tasks_of(X, y), public, likelihood=mp.inference.NormalErrors(conjugate.SnrPrior(1.0, 1.0)))
    task_posteriors(tasks_of(X, [np.sign(v) for v in y]), public, likelihood="bernoulli", draws=20)  # a proper prior


@pytest.mark.parametrize("size", [1.0, 1e-60, 1e60])
def test_one_row_leaves_slopes_at_their_prior(size):
    """Given sigma and the signal-to-noise ratio they are normal with the covariance that the release says."""
    X, y = [np.array([[1.0, -2.0]])], [np.array([3.0 * size])]
    omega, scale = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[0.5, 4.0]])
    drawn = intercepts.gaussian(tasks_of(X, y), omega, scale).sample(np.random.default_rng(0), 4000)
    root = np.linalg.cholesky(scale.T * omega * scale)
    signal = X[0][0] @ (scale.T * omega * scale) @ X[0][0]
    factor = drawn["sigma"][:, 0] * np.exp(drawn["log_snr"][:, 0] / 2) / np.sqrt(signal)
    for z in np.linalg.solve(root, drawn["W"][:, :-1, 0].T) / factor:
        assert st.kstest(z, "norm").pvalue > RARE
    prior = st.norm(np.log(conjugate.SLOPES.median), conjugate.SLOPES.log_sd)
    assert abs(np.mean(prior.cdf(drawn["log_snr"])) - 0.5) < 6 / np.sqrt(12 * 4000)
    assert drawn["sigma"].min() > 1e20 * abs(y[0][0])  # an interval says nothing
    z = (drawn["W"][:, -1, 0] + drawn["W"][:, :-1, 0] @ X[0][0] - y[0][0]) / drawn["sigma"][:, 0]
    assert st.kstest(z, "norm").pvalue > RARE


def test_a_lone_row_is_in_the_release_as_declared_and_silent():
    tasks = tasks_of(*with_a_lone_row())
    with pytest.warns(
        UserWarning, match="tasks: 1 of them send the zero vector, as their rows say nothing of weights, .*: 2"
    ):
        release = mp.release(tasks, 3.0, unsafe_seed=0)
    assert release.num_tasks == len(ROWS)
    others = np.delete(messages(tasks, "pareto")[0], CHANGED, axis=1)
    with pytest.warns(UserWarning, match="send the zero vector"):
        sent = own_message.as_sent(tasks, release), mp.releases.message(tasks, mp.releases.terms(3.0, 6, 3))
    for W in sent:
        assert not W[:, CHANGED].any()
        assert np.delete(W, CHANGED, axis=1).any(axis=0).all()
    rest = mp.release(others, 3.0, mp.releases.default_delta(6), unsafe_seed=0)
    assert_allclose(release.sigma, rest.sigma, atol=1e-6)


CHANGES = {
    "another intercept": lambda X, y: (X, y + 1000),
    "another origin": lambda X, y: (X - 1e6, y),
    "one row": lambda X, y: (X[:1], y[:1]),
    "two rows": lambda X, y: (X[:2], y[:2]),
    "more rows": lambda X, y: (np.tile(X, (20, 1)) + 0.1, np.tile(y, 20)),
    "rows x 1e150": lambda X, y: (X / np.abs(X).max() * 1e150, y / np.abs(y).max() * 1e150),
    "the same row": lambda X, y: (np.repeat(X[:1], len(X), axis=0), np.repeat(y[:1], len(y))),
}


def pair(change, binary=False):
    X, y = rows(binary)
    one = tasks_of(X, y)
    X[CHANGED], y[CHANGED] = CHANGES[change](X[CHANGED], y[CHANGED])
    if binary:
        y[CHANGED] = np.where(y[CHANGED] > 0, 1.0, -1.0)
    return one, tasks_of(X, y)


def bits(W):
    return np.delete(W, CHANGED, axis=-1).tobytes()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.filterwarnings("ignore:tasks. 1 of them send the zero vector")  # on the desk of who holds all rows
def test_no_bit_of_another_task_changes(change):
    one, other = pair(change)
    both = [messages(tasks, scaling)[0] for scaling in ("pareto", "none") for tasks in (one, other)]
    assert bits(both[0]) == bits(both[1])
    assert bits(both[2]) == bits(both[3])
    assert np.isfinite(both[1]).all()
    for estimator in (Ridge(), Ridge(0.3)):
        assert bits(estimator.fit(one).W) == bits(estimator.fit(other).W)
    releases = [mp.release(tasks, epsilon=1.0) for tasks in (one, other)]
    assert releases[0].guarantee == releases[1].guarantee
    m = one.num_tasks
    proved = releases[0].guarantee.proved
    assert (proved.epsilon, proved.delta) == (1.0, pytest.approx(1 / (m * np.log(m)), rel=1e-6))
    assert releases[0].to_xarray().attrs == releases[1].to_xarray().attrs


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("change", ["another intercept", "more rows", "rows x 1e150", "the same row"])
def test_no_bit_of_another_tasks_draws_changes(change, binary):
    posterior = intercepts.bernoulli if binary else intercepts.gaussian
    both = [posterior(tasks) for tasks in pair(change, binary)]
    assert bits(both[0].mean) == bits(both[1].mean)
    draws = [each.sample(np.random.default_rng(0), 20) for each in both]
    for name in draws[0]:
        assert bits(draws[0][name]) == bits(draws[1][name])


@pytest.mark.parametrize("kind", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("change", ["another intercept", "two rows", "more rows", "rows x 1e150", "the same row"])
def test_no_bit_of_another_tasks_later_message_changes(public, monkeypatch, change, kind):
    monkeypatch.setattr("mpmtl_prob.inference.owner.answers.shared_covariance", lambda *_, **__: public)
    both = [posterior_draws(tasks, 0, kind)(public.release) for tasks in pair(change, kind == "bernoulli")]
    assert both[0].shape == (3, len(ROWS))
    assert bits(both[0]) == bits(both[1])
    assert np.isfinite(both[1]).all()


def test_the_intercept_alone_is_in_no_message(public, monkeypatch):
    here, there = (tasks_of(*data) for data in (rows(), moved(*rows())))
    assert_allclose(messages(here, "pareto")[0], messages(there, "pareto")[0], rtol=1e-7)
    drawn = np.arange(24.0).reshape(1, 4, 6)
    monkeypatch.setattr("mpmtl_prob.inference.owner.answers.shared_covariance", lambda *_, **__: public)
    monkeypatch.setattr(
        "mpmtl_prob.inference.owner.answers.plug_in", lambda *_: methods.Results(drawn[0], {"W": drawn})
    )
    later = posterior_draws(here)(public.release)
    assert_allclose(later, drawn[0, :3] / conjugate.scales(there.slopes.gram).T)


def test_a_message_is_the_posterior_mean_under_the_sent_prior():
    """A message is the mean of the same posterior under the prior of what is sent."""
    tasks = tasks_of(*rows())
    sent = intercepts.gaussian(tasks, prior=conjugate.SENT).mean[:-1]
    assert_allclose(messages(tasks, "none")[0], sent, rtol=1e-6, atol=1e-9)


def test_a_shell_may_ask_for_it(tmp_path):
    tasks_of(*rows()).to_pandas(task="task", target="y").to_csv(tmp_path / "table.csv", index=False)
    arguments = ["release", "--csv", str(tmp_path / "table.csv"), "--task", "task", "--target", "y", "--epsilon", "1"]
    for more in (["--intercept"], []):
        options = _parser().parse_args([*arguments, "--out", "x", *more])
        assert read_tasks(options).intercept == bool(more)
