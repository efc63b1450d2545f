"""The noise laws: densities that integrate to one, draws that follow them, and what a mechanism refuses."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.tolerances import RARE
from scipy import stats

from mpmtl_prob.privacy import (
    Gaussian,
    PaperTaskWishart,
    PaperWishart,
    PaperWishart2018,
    PaperWishart2018Unit,
    Wishart,
    calibrate,
    compute_delta,
)
from mpmtl_prob.privacy.accounting.calibration import calibrate_gaussian

LAWS = [Wishart(3, 4.0, 0.5), Wishart(3, 11.0, 0.2, clip=2.0), PaperWishart(3, 0.7), Gaussian(3, 0.8)]
A = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]])


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_draws_have_the_mean_and_the_covariance_of_the_law(law):
    n = 60_000
    sigma = law.sample(np.random.default_rng(0), np.broadcast_to(A, (n, 3, 3)))
    assert np.array_equal(sigma, np.swapaxes(sigma, 1, 2))
    E = sigma - A
    variance = np.full((3, 3), law.sd**2) if law.kind == "Gaussian" else np.full((3, 3), law.df * law.scale**2)
    variance[np.diag_indices(3)] *= 2
    assert np.all(np.abs(E.mean(axis=0) - law.mean) < 5 * np.sqrt(variance / n))
    assert np.allclose(E.var(axis=0), variance, rtol=0.06)


@pytest.mark.parametrize("law", LAWS[:3], ids=lambda law: law.kind)
def test_wishart_density_is_scipys(law):
    sigma = law.sample(np.random.default_rng(1), np.broadcast_to(A, (5, 3, 3)))
    expected = [stats.wishart.logpdf(s - A, law.df, law.scale * np.eye(3)) for s in sigma]
    assert np.allclose(law.log_prob(sigma, A), expected, rtol=1e-10)
    assert law.log_prob(sigma[0], A) == pytest.approx(expected[0])
    assert law.log_prob(sigma[0], sigma[0] + 1e-3 * np.eye(3)) == -np.inf


def test_gaussian_density_integrates_to_one_over_free_entries():
    """The Gaussian density integrates to one over the free entries."""
    at, step = np.linspace(-6, 6, 41, retstep=True)  # on which a sum of so smooth a density is its integral
    x, y, z = np.meshgrid(at, at, at)
    density = np.exp(Gaussian(2, 0.8).log_prob(np.stack([x, y, y, z], axis=-1).reshape(-1, 2, 2), np.zeros((2, 2))))
    assert density.sum() * step**3 == pytest.approx(1, abs=1e-6)


def test_gaussian_noise_is_rotation_invariant():
    law, rng = Gaussian(3, 0.8), np.random.default_rng(2)
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    E = law.sample(rng, A) - A
    assert law.log_prob(rotation @ E @ rotation.T, 0 * A) == pytest.approx(law.log_prob(E, 0 * A))


@pytest.mark.parametrize("d", [1, 2, 6])
def test_what_a_release_says_of_a_task_is_one_gamma_variable(d):
    # X = |w|^2 / (w'(Sigma - A')^{-1} w) is Gamma(k, theta) without the task, |w|^2 + Gamma(k, theta) with it
    rng, n = np.random.default_rng(3), 20_000
    law = Wishart(d, d - 1 + 2 * 3.5, 0.4)
    w = rng.standard_normal(d)
    w /= np.linalg.norm(w)
    for present in (0.0, 1.0):
        sigma = law.sample(rng, np.broadcast_to(present * np.outer(w, w), (n, d, d)))
        X = 1 / (np.linalg.solve(sigma, np.broadcast_to(w[:, None], (n, d, 1)))[..., 0] @ w)
        assert stats.kstest(X - present, stats.gamma(law.shape, scale=law.theta).cdf).pvalue > RARE


def test_the_papers_law_is_the_one_they_print():
    law = PaperWishart(5, 0.5, clip=2.0)
    assert (law.df, law.scale) == (6.0, 4.0)  # d + 1, K^2 / (2 eps)
    assert (law.shape, law.epsilon) == (1.0, 0.5)
    assert "both signs" in PaperTaskWishart(5, 0.5).unproved
    assert not law.unproved


@pytest.mark.parametrize(
    ("law", "scale", "lost"),
    [
        (PaperWishart2018(3, 0.3, clip=4.0), 4.0 / 0.3, 4.0 / 2 * 0.3),  # K / eps, and K eps / 2
        (PaperWishart2018Unit(3, 0.05, clip=4.0), 1 / 0.05, 4.0**2 / 2 * 0.05),  # 1 / eps, and K^2 eps / 2
        (PaperWishart2018(3, 0.3), 1 / 0.3, 0.3 / 2),  # less is lost than the papers say, where K is below 2
    ],
    ids=["K", "unit", "short models"],
)
def test_noise_of_2018_has_its_scale_and_loss(law, scale, lost):
    assert (law.df, law.scale) == (4.0, pytest.approx(scale))
    assert law.shape == 1.0
    assert type(law).from_fields(law.fields()) == law
    assert law.epsilon == pytest.approx(0.05 if scale == 20 else 0.3)
    for adjacency in ("zero_out", "replace"):
        for epsilon in (0.0, 3.0, 50.0):
            assert compute_delta(epsilon, law, adjacency) == pytest.approx(-np.expm1(-lost), rel=1e-12)
    # Drawn: a release without the task from which its square cannot be subtracted shows that it was absent.
    rng, n = np.random.default_rng(5), 20_000
    w = rng.standard_normal(3)
    w *= law.clip / np.linalg.norm(w)
    released = law.sample(rng, np.zeros((n, 3, 3)))
    impossible = int((np.linalg.eigvalsh(released - np.outer(w, w))[:, 0] < 0).sum())
    assert stats.binomtest(impossible, n, -np.expm1(-lost)).pvalue > RARE


@pytest.mark.parametrize("clip", [np.uint8(20), np.int32(100_000), np.float16(300)])
@pytest.mark.parametrize("least", [calibrate, calibrate_gaussian], ids=["wishart", "gaussian"])
def test_noise_follows_the_square_of_a_clip_norm_of_any_type(clip, least):
    law, expected = least(1.0, 1e-3, 3, clip=clip), least(1.0, 1e-3, 3, clip=float(clip))
    assert law == expected
    assert type(law.clip) is float
    assert expected.operator_norm == pytest.approx(least(1.0, 1e-3, 3).operator_norm * float(clip) ** 2)
    assert replace(law, clip=clip).clip ** 2 == expected.clip**2


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: Wishart(0, 3.0, 1.0), "num_features"),
        (lambda: Wishart(3, 3.9, 1.0), "df"),
        (lambda: Wishart(3, np.nan, 1.0), "df"),
        (lambda: Wishart(3, 5.0, 0.0), "scale"),
        (lambda: Wishart(3, 5.0, 1.0, clip=-1.0), "clip"),
        (lambda: PaperWishart(3, 0.0), "epsilon"),
        (lambda: PaperWishart(3, 1.0, clip=np.inf), "clip"),
        (lambda: PaperWishart(2.5, 1.0), "num_features"),
        (lambda: Gaussian(3, "wide"), "sd"),
        (lambda: Gaussian(3, 1.0, clip=0), "clip"),
    ],
)
def test_a_bad_argument_is_named(build, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        build()
