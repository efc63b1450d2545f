"""Every law of the library does what any law must."""

from dataclasses import dataclass

import numpy as np
import pytest
from helpers.conformance import conforms

from mpmtl_prob import privacy
from mpmtl_prob.privacy import Bound, Gaussian, Mechanism, Quantile, Unit, Wishart, calibrate, register
from mpmtl_prob.privacy.mechanisms import mechanism as registry
from mpmtl_prob.releases import PrivateClipNorm

LAWS = [
    calibrate(1.0, 1e-3, 3),
    Wishart(2, 9.0, 0.7, 2.0),
    privacy.PaperWishart(3, 0.7),
    privacy.PaperWishart2018(3, 0.7, 5.0),
    privacy.PaperWishart2018Unit(3, 0.7, 5.0),
    privacy.PaperTaskWishart(4, 0.7),
    Gaussian(3, 2.0),
    privacy.GaussianShares(2, 1.0, 4, 2.0**-20, colluders=1),
    Quantile(0.2),
    privacy.VectorLaplace(3, 0.8, 2.0),
    privacy.VectorGaussian(3, 2.0, 1.5),
    privacy.IndependentLaplace(3, 0.8, 2.0),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.kind)
def test_every_law_conforms(law):
    conforms(law)


def test_every_registered_law_is_in_the_list():
    own = {name for name, law in registry._registered.items() if law.__module__.startswith("mpmtl_prob")}
    assert own == {law.kind for law in LAWS}


@dataclass(frozen=True)
class Quiet(Gaussian):
    """Draws half of the noise that it states."""

    def draw(self, unit, source):
        return np.rint(Gaussian(self.num_features, self.sd / 2).draw(unit, source) / unit) * unit


def test_a_law_that_draws_other_noise_does_not_conform(monkeypatch):
    """A law that draws other noise than it states does not conform."""
    monkeypatch.setitem(registry._registered, "Quiet", Quiet)
    with pytest.raises(AssertionError):
        conforms(Quiet(3, 2.0))


@pytest.mark.parametrize("wrong", [int, "Wishart", type("Gaussian", (Gaussian,), {})])
def test_what_is_no_law_or_takes_anothers_name_is_not_registered(wrong):
    with pytest.raises(ValueError, match=r"^law: expected"):
        register(wrong)


def test_a_law_leaves_nothing_abstract():
    class Bare(Mechanism):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Bare()


def test_units_are_not_added_up():
    for charged, counted in (("row", "task"), ("person", "task"), ("task", "person"), ("target record", "row")):
        book = privacy.Ledger(epsilon=1.0, delta=1e-3, unit=counted)
        with pytest.raises(ValueError, match=rf"^unit: expected '{counted}' in a ledger of {counted}s"):
            book.charge(Quantile(0.1), unit=charged)
        assert book.charges() == []
    for charged, counted in (("task", "row"), ("person", "row"), ("target record", "target record")):
        privacy.Ledger(epsilon=1.0, delta=1e-3, unit=counted).charge(Quantile(0.1), unit=charged)
    persons, bought = privacy.Ledger(epsilon=1.0, delta=1e-3, unit="person"), PrivateClipNorm(1.0, Quantile(0.1))
    with pytest.raises(ValueError, match=r"^clip: expected none in a ledger of persons"):
        persons.charge(Quantile(0.1), unit="person", purchases=[bought])
    assert persons.charges() == []


def test_units_and_adjacencies_have_words_and_go_together():
    for unit in Unit:
        bound = Bound(1.0, 1e-3, "replace", unit)
        guarantee = privacy.Guarantee(None, bound, "because")
        assert unit.compared(bound.adjacency) in guarantee.explain()
        assert unit.alone in guarantee.explain()
    with pytest.raises(ValueError, match=r"^adjacency: expected 'replace' for the unit 'row', got 'zero_out'"):
        Bound(1.0, 1e-3, "zero_out", "row")
    with pytest.raises(
        ValueError, match=r"^unit: expected one of 'task', 'row', 'person', 'target record', got 'team'"
    ):
        Bound(1.0, 1e-3, "replace", "team")
