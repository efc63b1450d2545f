"""Slopes that go with the size of the errors: where they come from, and what they are worth."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mpmtl_prob.adaptation import Domain, MomentAdaptation, public_fit
from mpmtl_prob.adaptation.moments import grid_posterior as conditional
from mpmtl_prob.adaptation.moments.grid_posterior import posterior
from mpmtl_prob.adaptation.public_fit import PublicFit

#: bounds of data that are made to keep to them, so that weights and release are in their units
AS_THEY_COME = {"row_bound": 1.0, "target_bound": 1.0}


def calmer(seed, d=6, least=0.4):
    """A source, and a target of the same level that varies ``least`` as much, in its slopes and in its noise."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(d) / 2
    kinds = []
    for n, size in ((2000, 1.0), (500, least), (2000, least)):
        X = np.column_stack([rng.standard_normal((n, d)) / np.sqrt(d + 1), np.full(n, 1 / np.sqrt(d + 1))])
        X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
        kinds.append(Domain(X, X @ np.append(size * w, -1.0) + size * 0.3 * rng.standard_normal(n)))
    return kinds


def test_less_varied_targets_suggest_smaller_slopes(monkeypatch):
    """Slopes are believed to be smaller where targets vary less."""

    def errors():
        for seed in range(8):
            source, target, test = calmer(seed)
            fitted = MomentAdaptation(**AS_THEY_COME, epsilon=0.5, delta=1e-2, unsafe_seed=seed, draws=200).fit(
                source, target
            )
            grid = posterior(fitted.release_, fitted.prior_)
            yield np.mean((test.y - test.X @ grid.mean) ** 2) - 0.12**2

    with_both = np.array(list(errors()))
    monkeypatch.setattr(conditional, "RESCALED_BEFORE", 1e-9)
    assert np.mean(with_both / np.array(list(errors()))) < 0.95


def test_the_size_of_the_noise_is_read_off_the_release():
    source, target, _ = calmer(0)
    fitted = MomentAdaptation(**AS_THEY_COME, epsilon=4.0, delta=1e-2, unsafe_seed=0).fit(source, target)
    assert posterior(fitted.release_, fitted.prior_).typical_sigma == pytest.approx(0.12, rel=0.15)


def test_a_fit_takes_one_thread_and_restores_the_others(monkeypatch):
    """A fit takes one thread, and leaves the others as they were."""
    threads = lambda: {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}
    inside = []
    for room, name in ((conditional, "_domain"), (public_fit, "huber")):
        work = getattr(room, name)
        watched = lambda *given, work=work, **named: (inside.append(threads()), work(*given, **named))[1]
        monkeypatch.setattr(room, name, watched)
    with threadpool_limits(2, "blas"):
        before = threads()
        source, target, _ = calmer(0)
        MomentAdaptation(unsafe_seed=0, draws=10).fit(source, target)
        assert threads() == before
    assert inside
    assert all(each == {1} for each in inside)


def test_a_level_is_what_an_intercept_says():
    records = Domain(
        np.column_stack([np.random.default_rng(3).standard_normal((50, 2)), np.full(50, 0.5)]), np.zeros(50)
    )
    w = np.array([1.0, 2.0, -1.0])
    mean = float((records.X @ w).mean()) / 0.5
    np.testing.assert_allclose(PublicFit(w, np.eye(3), 1.0).slopes(records), w - [0.0, 0.0, mean], atol=1e-9)
