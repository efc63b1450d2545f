"""Second moment of the features: what is learnt of it where the source suggests it and noise hides it."""

import numpy as np
import pytest

from mpmtl_prob.adaptation import Domain, MomentAdaptation
from mpmtl_prob.adaptation.moments import shift_model
from mpmtl_prob.adaptation.moments.feature_moment import above, shape
from mpmtl_prob.privacy import Gaussian

#: bounds of data that are made to keep to them, so that weights and release are in their units
AS_THEY_COME = {"row_bound": 1.0, "target_bound": 1.0}

RNG = np.random.default_rng(3)


def test_shorter_target_rows_have_their_own_second_moment():
    """A target whose rows are shorter has its own second moment."""
    source, law = np.diag(np.linspace(0.3, 0.05, 6)), Gaussian(6, 2.0)
    true = 0.5 * 200 * source
    estimates = [shape(law.sample(RNG, true), 2.0, 200, source) for _ in range(150)]
    relative = np.array([np.diag(each.mean) / np.diag(true) - 1 for each in estimates])
    assert np.abs(relative.mean(0)).max() < 0.1  # without a common factor they were a quarter too large
    misses = [
        (each.mean - true)[i, j] / np.sqrt(each.variance[i, j]) for each in estimates for i, j in [(0, 0), (4, 1)]
    ]
    assert 0.5 < np.std(misses) < 1.8  # 1.15, give or take .07


def test_hidden_features_are_as_near_as_the_whole_model_says():
    """Features that noise hides are as near the source's as the whole model has them."""
    d, rng, size = 8, np.random.default_rng(0), 20_000
    estimate = shape(np.eye(d), 1e6, 1, np.eye(d))
    bend = shift_model.BEND * np.abs(rng.standard_normal(size)) / np.sqrt(d)
    # entry (2, 1) of A A', A = I + bend where the diagonal is left alone: bend (z_21 + bend z_20 z_10)
    z = rng.standard_normal((3, size))
    theirs = np.mean((bend * (z[0] + bend * z[1] * z[2])) ** 2)
    assert 0.5 < estimate.variance[2, 1] / theirs < 2.0


def test_a_positive_second_moment_is_no_further_from_the_truth():
    """A second moment is no further from the truth for being made positive."""
    distance = lambda A, B: np.linalg.norm(A - B)
    for _ in range(50):
        least, root = np.diag(RNG.exponential(size=5) ** 4), RNG.standard_normal((2, 5))
        true = least + root.T @ root
        E = RNG.standard_normal((5, 5))
        projected = above(true + E + E.T, least)
        assert distance(projected, true) <= distance(E + E.T, 0.0) * (1 + 1e-12)
        assert np.linalg.eigvalsh(projected - least)[0] > -1e-9


def test_a_slightly_turned_second_moment_beats_its_release():
    """A second moment that is turned a little is known better than its release says."""
    source, law = np.diag(np.geomspace(0.5, 1e-5, 12)), Gaussian(12, 9.0)
    for _ in range(5):
        Q = np.linalg.qr(np.eye(12) + 0.1 * RNG.standard_normal((12, 12)))[0]
        true = 1000 * Q @ source @ Q.T  # along axes that the source hardly has the target has hundreds of times as much
        noisy = law.sample(RNG, true)
        estimate = shape(noisy, 9.0, 1000, source).mean
        # .6; it was 9 when no axis had less than a share of the source's variances, in units of these
        assert np.linalg.norm(estimate - true) < 0.9 * np.linalg.norm(noisy - true)


def test_columns_no_public_record_has_are_learnt():
    """A column that no public record has is learnt from the release."""
    rng = np.random.default_rng(12)
    rows = lambda n, new: np.column_stack([0.4 * rng.standard_normal((n, 3)), np.full(n, new)])
    w = np.array([0.5, -0.3, 0.2, 0.8])
    records = lambda X: Domain(X, X @ w + 0.1 * rng.standard_normal(len(X)))
    source, target = records(rows(2000, 0.0)), records(rows(2000, 0.5))
    model = MomentAdaptation(**AS_THEY_COME, epsilon=10.0, delta=1e-3, residual_bound=0.8, unsafe_seed=1).fit(
        source, target
    )
    assert model.coef_[3] == pytest.approx(0.8, abs=0.1)  # its variance in the source is nought; the target's is not
