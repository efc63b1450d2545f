"""Conformance check of noise laws: what every law has to do, whoever wrote it."""

import json
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import ks_2samp

from helpers.effort import effort
from helpers.tolerances import RARE
from mpmtl_prob.privacy import MatrixMechanism, audit, compute_delta
from mpmtl_prob.privacy.accounting import composition
from mpmtl_prob.privacy.mechanisms import VectorMechanism, exact, read_mechanism, write_mechanism

UNIT = 2.0**-20
DRAWS, CELLS = effort(800, 1500), effort(2000, 4000)


def conforms(law):
    """Raise AssertionError unless the law can be charged, composed, drawn, simulated and audited."""
    assert read_mechanism(json.loads(json.dumps(write_mechanism(law)))) == law
    assert pickle.loads(pickle.dumps(law)) == law
    assert hash(law) == hash(read_mechanism(write_mechanism(law)))
    if law.unproved:
        return
    for adjacency in ("zero_out", "replace"):
        assert law.justification(adjacency, 1).endswith(".")
        for rounds in ((law,), (law, law)):
            _loses_what_it_says(rounds, adjacency)
    for epsilon in (0.0, 0.5, 2.0):
        assert compute_delta(epsilon, law, "zero_out") <= compute_delta(epsilon, law, "replace") * (1 + 1e-9)
    if isinstance(law, MatrixMechanism | VectorMechanism):
        _draws_what_it_simulates(law)
        claim = audit.own_claim(law, delta=0.05, adjacency="replace")
        options = {"trials": DRAWS, "confidence": 1 - RARE, "progress_bar": False}
        assert not audit.likelihood_ratio(law, claim, **options).broken


def _loses_what_it_says(rounds, adjacency):
    at = np.array([0.0, 0.1, 0.5, 1.0, 3.0])
    known = composition.profile(rounds, adjacency)
    curve = np.array([known.delta(epsilon) for epsilon in at])
    assert ((curve >= 0) & (curve <= 1)).all()
    assert (np.diff(curve) <= 1e-9).all()
    pure = sum(law.max_loss(adjacency) for law in rounds)
    if np.isfinite(pure):
        assert known.delta(pure) == 0.0
    # the grid, whatever shortcut there is, from above and from below
    sides = [composition._compose(rounds, adjacency, side, CELLS) for side in (True, False)]
    upper = np.array([max(losses.delta(each).upper for losses in sides[0]) for each in at])
    lower = np.array([max(losses.delta(each).lower for losses in sides[1]) for each in at])
    assert (curve <= upper * (1 + 1e-3) + 1e-9).all()
    assert pure < np.inf or (curve >= lower * (1 - 1e-3) - 1e-9).all()  # else plain addition may be the better bound


def _draws_what_it_simulates(law):
    d, vector = law.num_features, isinstance(law, VectorMechanism)
    shape = (d,) if vector else (d, d)
    drawn = np.stack([law.draw(UNIT, exact.seeded(i)) for i in range(DRAWS)])
    assert_array_equal(drawn[0], law.draw(UNIT, exact.seeded(0)))
    assert not np.array_equal(drawn[0], drawn[1])
    assert drawn.shape == (DRAWS, *shape)
    assert np.all(np.mod(drawn, UNIT) == 0)
    simulated = law.sample(np.random.default_rng(0), np.zeros((DRAWS, *shape)))
    entries = [(0,), (d - 1,)] if vector else [(0, 0), (d - 1, 0), (d - 1, d - 1)]
    for entry in entries:
        assert ks_2samp(drawn[:, *entry], simulated[:, *entry]).pvalue > RARE
    if vector:
        return
    assert_array_equal(drawn, np.swapaxes(drawn, 1, 2))
    assert_array_equal(simulated, np.swapaxes(simulated, 1, 2))
    assert ks_2samp(*(np.linalg.eigvalsh(matrices)[:, -1] for matrices in (drawn, simulated))).pvalue > RARE
    assert np.var(simulated[:, 0, 0]) == pytest.approx(law.variance, rel=8 * np.sqrt(3 / DRAWS))
    spread = np.abs(drawn.mean(axis=0) - law.mean).max()
    assert spread < 8 * law.operator_norm / np.sqrt(DRAWS)
    assert not law.positive_definite or (np.linalg.eigvalsh(drawn)[:, 0] > 0).all()
