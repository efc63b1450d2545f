"""Audits as they come play what is published: a broken draw is found, whatever simulations in doubles show."""

import dataclasses

import numpy as np
import pytest
from helpers.tolerances import RARE

from mpmtl_prob.privacy import Bound, Gaussian, Quantile, VectorLaplace, Wishart, audit
from mpmtl_prob.privacy.mechanisms import GaussianShares, exact

SHARES = GaussianShares(2, 0.6, 3, 2.0**-20, colluders=1)


def with_draw(law, **methods):
    """A law of the same numbers, of which these methods are others."""
    fields = {field.name: getattr(law, field.name) for field in dataclasses.fields(law)}
    return type(law.kind, (type(law),), methods)(**fields)


def scaled(law, factor):
    """The law with published draws of another size."""
    kind = type(law)
    return with_draw(law, draw=lambda self, unit, source: factor * kind.draw(self, unit / factor, source))


@pytest.mark.parametrize(
    "law", [Wishart(2, 40.0, 0.1), Gaussian(2, 0.6), VectorLaplace(2, 2.0, 1.0)], ids=lambda law: law.kind
)
def test_half_the_noise_in_what_is_published_is_found(law):
    claim = audit.own_claim(law)
    assert audit.likelihood_ratio(scaled(law, 0.5), claim, progress_bar=False).broken
    assert not audit.likelihood_ratio(law, claim, progress_bar=False, confidence=1 - RARE).broken


def test_the_same_noise_in_every_release_is_found():
    law = Gaussian(2, 0.6)
    stuck = with_draw(law, draw=lambda self, unit, source: Gaussian.draw(self, unit, exact.seeded(0)))
    assert audit.likelihood_ratio(stuck, audit.own_claim(law), progress_bar=False).broken


@pytest.mark.parametrize("share", ["nothing", "half"])
def test_shares_that_are_too_small_are_found(share):
    half = dataclasses.replace(SHARES, share=SHARES.share / 2)
    draws = {"nothing": lambda self, source: np.zeros((2, 2)), "half": lambda self, source: half.draw_share(source)}
    claim = audit.own_claim(SHARES)
    assert audit.likelihood_ratio(with_draw(SHARES, draw_share=draws[share]), claim, progress_bar=False).broken


def test_sound_shares_pass_and_those_who_collude_are_left_out():
    claim, options = audit.own_claim(SHARES), {"progress_bar": False, "confidence": 1 - RARE}
    assert not audit.likelihood_ratio(SHARES, claim, **options).broken
    nobody = dataclasses.replace(SHARES, colluders=0)  # with all shares the noise is larger than what is proved
    assert not audit.likelihood_ratio(nobody, claim, **options).broken
    most = dataclasses.replace(SHARES, owners=9, colluders=8)  # one share of nine is left
    promise = audit.own_claim(most)
    less = dataclasses.replace(promise, epsilon=0.6 * promise.epsilon)
    assert audit.likelihood_ratio(most, less, progress_bar=False).broken


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_clip_norm_sold_at_twice_its_eps_is_found(epsilon):
    law, twice = Quantile(epsilon), Quantile(2 * epsilon)
    dearer = with_draw(law, draw=lambda self, *arguments: twice.draw(*arguments))
    claim = Bound(epsilon, 0.0, "replace")
    assert audit.likelihood_ratio(dearer, claim, progress_bar=False).broken
    assert not audit.likelihood_ratio(law, claim, progress_bar=False, confidence=1 - RARE).broken


@pytest.mark.parametrize(
    "law", [Wishart(3, 30.0, 0.2), Gaussian(3, 0.6), VectorLaplace(3, 1.0, 1.0), SHARES], ids=lambda law: law.kind
)
def test_noise_of_another_law_than_is_stated_is_found(law):
    sound = audit.drawn(law, trials=5000, confidence=1 - RARE)
    assert not sound.broken
    assert sound.verdict.startswith("not broken; least p-value")
    if law is not SHARES:
        assert audit.drawn(scaled(law, 0.95), trials=5000).broken
        assert audit.drawn(scaled(law, 0.95), trials=5000).verdict.startswith(
            "BROKEN: noise of another law than is stated"
        )
    half = with_draw(SHARES, draw_share=lambda self, source: np.zeros((2, 2)))
    assert law is not SHARES or audit.drawn(half, trials=500).broken


def test_bad_arguments_of_drawn_are_named():
    with pytest.raises(ValueError, match=r"^mechanism: expected noise on second moments or vectors, got Quantile"):
        audit.drawn(Quantile(1.0))
    with pytest.raises(ValueError, match=r"^mechanism: expected noise on second moments, got Quantile"):
        audit.support(Quantile(1.0), Bound(1.0, 0.0, "replace"), progress_bar=False)
    with pytest.raises(ValueError, match=r"^trials: expected"):
        audit.drawn(Gaussian(2, 1.0), trials=3)
