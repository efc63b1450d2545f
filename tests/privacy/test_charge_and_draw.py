"""Charging and drawing: noise is what the law draws, all of it, paid for before, and of the size that is stated."""

import numpy as np
import pytest
from helpers.effort import effort
from helpers.tolerances import FAR

from mpmtl_prob import TaskData
from mpmtl_prob.estimators import LowRank
from mpmtl_prob.privacy import (
    Gaussian,
    GaussianShares,
    IndependentLaplace,
    Ledger,
    VectorLaplace,
    Wishart,
    draw_vectors,
)
from mpmtl_prob.privacy.charge_and_draw import draw_share
from mpmtl_prob.privacy.lattice import bound, sent, unit_columns
from mpmtl_prob.privacy.mechanisms import exact
from mpmtl_prob.releases import Terms, private_clip_norm, release
from mpmtl_prob.releases.publish import publish_rounds
from mpmtl_prob.single_task import conjugate

W = np.random.default_rng(0).standard_normal((3, 8))
UNIT = 2.0**-26


@pytest.mark.parametrize("law", [Wishart(3, 9.0, 0.4), Gaussian(3, 0.8)], ids=lambda law: law.kind)
def test_a_release_is_its_messages_and_the_laws_own_draws(law):
    answers = []

    def respond(so_far):
        answers.append(W[:, ::-1])
        return answers[-1]

    out = release(W, 1.0, mechanism=law, rounds=3, respond=respond, unsafe_seed=5)
    for t, messages in enumerate((W, *answers)):
        V = sent(unit_columns(messages), 1.0, out.lattice)
        assert np.array_equal(out.sigma[t], V @ V.T + law.draw(out.lattice**2, exact.source(5, t)))


def test_an_algorithm_adds_the_laws_own_draws_to_its_rounds():
    laws, h = (Wishart(3, 9.0, 0.4), Gaussian(3, 0.8)), 2.0**-13
    A = np.stack([np.eye(3), 2 * np.eye(3)])
    settled = Terms(laws, 1.0, "replace", num_tasks=8, features=range(3), lattice=h)
    out, kept = publish_rounds(lambda noise: (A + noise, "private"), settled, unsafe_seed=5)
    assert kept == "private"
    for t, law in enumerate(laws):
        assert np.array_equal(out.sigma[t], A[t] + law.draw(h**2, exact.source(5, t)))


def test_noise_on_vectors_is_the_laws_own_draws():
    laws = VectorLaplace(3, 0.8, 2.0), IndependentLaplace(3, 0.5, 1.0)
    noise, _ = draw_vectors(laws, 4, lattice=UNIT, epsilon=1.0, unsafe_seed=5)
    for t, law in enumerate(laws):
        for i in range(4):
            assert np.array_equal(noise[t, :, i], law.draw(UNIT, exact.source(5, t, i)))


def test_a_release_pays_before_it_touches_any_randomness(monkeypatch):
    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(exact, "system", crash)
    book = Ledger(epsilon=1.0, delta=1e-3)
    for attempt in (
        lambda: release(W, 0.5, 1e-3, ledger=book),
        lambda: private_clip_norm(W, 0.1, low=0.1, high=10.0, ledger=book),
    ):
        before = len(book.charges())
        with pytest.raises(KeyboardInterrupt):
            attempt()
        assert len(book.charges()) == before + 1


def test_a_share_from_a_seed_is_not_sold():
    book = Ledger(epsilon=10.0, delta=1e-3)
    with pytest.raises(ValueError, match="unsafe_seed: expected none with a ledger"):
        draw_share(GaussianShares(2, 40.0, 4, 2.0**-7), adjacency="replace", ledger=book, unsafe_seed=0)
    assert book.charges() == []


def test_wishart_noise_has_the_stated_scale_and_freedom():
    """Drawn Wishart noise has the scale and the degrees of freedom that are stated."""
    law, n = Wishart(3, 9.0, 0.4), effort(1500, 4000)
    E = np.array([law.draw(UNIT, exact.seeded(1, i)) for i in range(n)]) / law.scale
    # tr E ~ chi2(df d), and |E| is a product of chi2(df - i): both pin the law down, one by its scale
    trace = np.trace(E, axis1=1, axis2=2)
    assert abs(trace.mean() - 27) < FAR * np.sqrt(2 * 27 / n)
    roots = np.linalg.eigvalsh(E)
    ratio = np.log(roots).sum(axis=1) - 3 * np.log(trace)  # free of the scale
    rng = np.random.default_rng(2)
    chi = rng.chisquare(9.0 - np.arange(3), (200_000, 3))
    T = np.zeros((200_000, 3, 3))
    T[:, [1, 2, 2], [0, 0, 1]] = rng.standard_normal((200_000, 3))
    expected = np.log(chi).sum(axis=1) - 3 * np.log(chi.sum(axis=1) + (T**2).sum(axis=(1, 2)))
    assert abs(ratio.mean() - expected.mean()) < FAR * np.sqrt(expected.var() * (1 / n + 1 / 200_000))


def test_gaussian_noise_has_the_stated_variances():
    """Drawn Gaussian noise has the stated variances on the diagonal and off it."""
    law, n = Gaussian(3, 0.8), effort(2000, 6000)
    E = np.array([law.draw(UNIT, exact.seeded(1, i)) for i in range(n)]) / law.sd
    for entries, variance in ((E[:, [0, 1, 2], [0, 1, 2]], 2.0), (E[:, [1, 2, 2], [0, 0, 1]], 1.0)):
        assert abs(np.mean(entries**2) / variance - 1) < FAR * np.sqrt(2 / entries.size)


@pytest.mark.parametrize("kind", [VectorLaplace, IndependentLaplace])
def test_drawn_noise_on_vectors_has_the_size_that_is_stated(kind):
    law, n = kind(3, 0.5, 2.0), effort(14_000, 40_000)  # a scale of .95 is ten standard errors off
    b = np.array([law.draw(UNIT, exact.seeded(1, i)) for i in range(n)]) / law.scale
    length = np.linalg.norm(b, axis=1) if kind is VectorLaplace else np.abs(b).sum(axis=1)
    assert abs(length.mean() - 3) < FAR * np.sqrt(3 / n)  # Gamma(d, 1) either way


def test_a_cut_message_stays_within_its_bound_on_the_lattice():
    """A shortened message is not longer than the bound on the lattice."""
    h, clip = 0.25, 0.9  # the bound is .75, and (.75, .25) is shorter than .9
    long = np.array([[0.76, 3.0], [0.26, 1.0]])
    assert np.linalg.norm(sent(long, clip, h), axis=0).max() <= bound(clip, h) == 0.75


def test_no_task_can_raise_a_warning():  # which are errors here
    huge = np.where(np.arange(8) == 3, 1.7e308, W)
    assert np.all(np.isfinite(release(huge, 1.0, 1e-3, message="clip", clip=0.5).sigma))
    assert not np.any(sent(W * (np.arange(8) > 0), 1.0, 2.0))  # a lattice on which K is zero
    tasks = TaskData.from_lists([W.T, np.full((2, 3), 1e-160)], [np.ones(8), np.full(2, 1e150)])
    LowRank(0.5, 1.0, 2, 1.0, 1e-3, curvature=30.0, step_size="per_task").fit(tasks)
    posteriors = conjugate.gaussian_posteriors(tasks.gram, np.eye(3), conjugate.scales(tasks.gram))
    assert np.isfinite(posteriors.sample(np.random.default_rng(0), 2)["W"][..., 0]).all()
    assert np.isfinite(posteriors.mean[:, 0]).all()


def test_rounds_with_a_private_clip_norm_keep_their_promise():
    """Rounds that were calibrated beside a private clip norm keep their promise."""
    rng = np.random.default_rng(0)
    tasks = TaskData.from_lists([rng.standard_normal((6, 3)) for _ in range(8)], list(rng.standard_normal((8, 6))))
    bought = private_clip_norm(tasks, 0.5, low=0.01, high=100.0, scaling="none")
    for adjacency in ("replace", "zero_out"):
        algorithm = LowRank(
            0.5, 1.0, 2, bought, 1e-3, mechanism="calibrated", curvature=30.0, adjacency=adjacency, start="zero"
        )
        assert algorithm.fit(tasks).guarantee.proved.delta <= 1e-3
