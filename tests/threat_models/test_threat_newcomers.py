"""Tasks left out of a release: Theorem 3.2 on tasks that are regressions."""

from dataclasses import replace

import numpy as np
import pytest

from mpmtl_prob import datasets
from mpmtl_prob.data.prediction import Prediction, linear_prediction
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.releases import release
from mpmtl_prob.threat_models import metalearning_error, to_metalearner
from mpmtl_prob.threat_models.metalearning import clipped_loss, leave_out


@pytest.fixture(scope="module")
def tasks():
    return datasets.synthetic_low_rank(30, 3, rows=6, test_rows=40, group=15)[:2]


class Remembers:
    """Raw data on the billboard: whoever finds itself there is told the truth, anybody else 1."""

    def learn(self, data, seed):
        return {data.rows_of(i)[0].tobytes() for i in range(data.num_tasks)}

    def personalise(self, h, own):
        return np.array([float(own.rows_of(i)[0].tobytes() not in h) for i in range(own.num_tasks)])


class Ridges:
    """A release, and ridge towards what stands out of its noise: a billboard that needs no sampler."""

    def learn(self, data, seed):
        return release(data, 1.0, 0.01, scaling="none")

    def personalise(self, h, own):
        x, U = np.linalg.eigh(h.sigma[0] - h.mechanisms[0].mean)
        precision = U / np.maximum(x / h.num_tasks, 0.02) @ U.T
        G = own.gram
        return np.linalg.solve(G.xx + 0.01 * precision, G.xy[..., None])[..., 0].T


def test_newcomers_err_no_more_than_the_theorem_allows(tasks):
    """Newcomers to a release err no more than the theorem allows."""
    loss = lambda W, test: clipped_loss(linear_prediction(W, test), test, 8.0)
    losses = leave_out(to_metalearner(Ridges()), *tasks, loss, runs=60)
    allowed = losses.allowed(1.0, 0.01)
    assert allowed == pytest.approx(np.e * losses.participants.mean() + 0.01)
    assert losses.newcomers.mean() < allowed < 1
    assert losses.gap(0.01, 1 - 1e-9).lower == 0.0
    # the same of somebody who does not have the rows of the task that it is asked about
    worse = leave_out(to_metalearner(Ridges()), *tasks, lambda W, test: loss(W[:, ::-1], test), runs=5)
    assert worse.newcomers.mean() > allowed


def test_raw_data_on_the_billboard_are_refuted(tasks):
    losses = leave_out(to_metalearner(Remembers()), *tasks, lambda loss, test: loss, runs=200)
    assert losses.participants.max() == 0.0
    assert losses.newcomers.min() == 1.0
    assert losses.gap(0.01, 1 - 1e-9).lower > 1.0


def test_participants_are_drawn_anew_and_asked_for_their_own(tasks):
    """Participants are drawn anew, and everybody is asked for their own error."""
    train, test = tasks
    seen, asked = [], []

    class Records(Remembers):
        def learn(self, data, seed):
            seen.append((seed, data.tasks))

        def personalise(self, h, own):
            return own

    def loss(own, unseen):
        asked.append(own.tasks)
        assert own.tasks == unseen.tasks
        for data, whole in ((own, train), (unseen, test)):
            at = [train.tasks.index(name) for name in data.tasks]
            np.testing.assert_array_equal(data.X, whole.X[at])
            np.testing.assert_array_equal(data.y, whole.y[at])
        return np.zeros(own.num_tasks)

    leave_out(to_metalearner(Records()), train, test, loss, share=0.3, runs=3, seed=5)
    assert [seed for seed, _ in seen] == [5, 6, 7]
    assert [names for _, names in seen] == asked[::2]
    for took_part, new in zip(asked[::2], asked[1::2], strict=True):
        assert len(new) == 9
        assert set(took_part) | set(new) == set(train.tasks)
        assert not set(took_part) & set(new)
    assert len(set(asked[1::2])) == 3


def test_a_loss_by_hand():
    data = TaskData.from_lists([np.ones((2, 1)), np.ones((1, 1))], [np.array([1.0, 10.0]), np.array([-2.0])])
    prediction = Prediction(np.zeros((2, 2)), data.mask, data.tasks)
    assert clipped_loss(prediction, data, 4.0) == pytest.approx([(1 / 16 + 1) / 2, 4 / 16])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": 1.0}, "share: expected a number in"),
        ({"runs": 0}, "runs: expected a whole number >= 1, got 0"),
        ({"seed": -1}, "seed: expected a whole number >= 0"),
        ({"loss": lambda made, test: [2.0]}, r"loss: expected losses in \[0, 1\]"),
        ({"loss": lambda made, test: [0.5]}, "loss: expected one for each of 24 tasks, got 1"),
        ({"test": "other"}, "test: expected the 30 tasks of train"),
    ],
)
def test_bad_arguments_are_named(tasks, change, message):
    train, test = tasks
    given = {"test": test, "loss": lambda loss, test: loss} | change
    if given["test"] == "other":
        given["test"] = replace(test, tasks=test.tasks[::-1])
    with pytest.raises(ValueError, match=message):
        leave_out(to_metalearner(Remembers()), train, **given)


@pytest.mark.parametrize("loss", ["mean", "sign"])
def test_newcomers_stay_below_the_bound_of_metalearning(loss):
    t, d, eps, delta = 40, 12, 1.0, 1e-4
    bound = metalearning_error(loss, t, d, eps, delta)
    rho = (eps / (np.sqrt(-np.log(delta) + eps) + np.sqrt(-np.log(delta)))) ** 2
    alpha = d / (2 * rho * t**2) + 1 / (4 * t) if loss == "mean" else np.sqrt(2 * d / rho) / t + 1 / np.sqrt(t)
    assert bound.printed == pytest.approx(min(np.exp(eps) * min(alpha, 1.0) + delta, 1.0), rel=1e-12)
    assert bound.newcomers == pytest.approx(np.exp(eps) * bound.participants + delta, rel=1e-12)
    assert bound.newcomers < bound.printed
    rng, losses = np.random.default_rng(0), []
    p = 0.0 if loss == "mean" else 0.75 * np.sqrt(bound.mechanism.sd**2 + 1 / t)  # near the worst mean
    for _ in range(4000):
        totals = 2 * rng.binomial(t, (1 + p) / 2, d) - t
        read = bound.mechanism.estimate(bound.mechanism.board(rng, totals))[rng.integers(d)]
        losses.append((read - p) ** 2 / 4 if loss == "mean" else p * (read < 0))
    mean, error = np.mean(losses), np.std(losses) / np.sqrt(len(losses))
    assert mean < bound.participants + 4 * error  # of the same law as participants' losses
    assert mean > 0.9 * bound.participants - 4 * error
