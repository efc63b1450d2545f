"""Audits: they find the gap in the papers' mechanism, do not break the repaired one, and touch its proved curve."""

import doctest
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from mpmtl_prob.privacy import Bound, Gaussian, PaperWishart, Wishart, audit, calibrate, views
from mpmtl_prob.privacy.composition import profile

pytest.importorskip("matplotlib").use("Agg")

PROMISE = Bound(1.0, 1e-3, "zero_out")


def repaired(d, epsilon=1.0):
    return calibrate(epsilon, 1e-3, d, adjacency="zero_out")


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("d", [1, 5, 20])
@pytest.mark.parametrize("view", [views.billboard(), views.others(), views.coalition(40)], ids=lambda view: view.name)
def test_the_support_gives_the_papers_mechanism_away(epsilon, d, view):
    found = audit.support(
        PaperWishart(d, epsilon), Bound(epsilon, 0.0, "zero_out"), view=view, num_tasks=60, trials=3000, progress=False
    )
    truth = -np.expm1(-epsilon)
    assert truth in found.delta_at(epsilon, threshold=0.5)
    assert found.delta_at(epsilon, threshold=0.5).estimate == pytest.approx(truth, abs=0.04)
    assert found.present.sum() == 0  # never a false alarm
    assert found.broken
    assert "BROKEN" in repr(found)
    # and not only at delta = 0: at the papers' own delta on School too
    lenient = audit.support(PaperWishart(d, epsilon), Bound(epsilon, 1.5e-3, "zero_out"), trials=3000, progress=False)
    assert lenient.broken


@pytest.mark.parametrize("d", [1, 5, 20])
def test_no_audit_breaks_the_repaired_mechanism(d):
    law = repaired(d)
    options = {"trials": 5000, "progress": False, "num_tasks": 45}
    found = [
        test(law, PROMISE, view=view, **options)
        for test in (audit.support, audit.likelihood_ratio, audit.tracing)
        for view in (views.billboard(), views.others())
    ]
    found += [
        test(law, PROMISE, view=view, **options)
        for test in (audit.support, audit.tracing)
        for view in (views.single(), views.coalition(2))
    ]
    assert [repr(one) for one in found if one.broken] == []


@pytest.mark.parametrize(
    "law",
    [repaired(1), repaired(5), repaired(20), Wishart(4, 3 + 2 * 1.5, 1.2), PaperWishart(3, 0.7), Gaussian(4, 1.5)],
    ids=lambda law: f"{law.kind} {law.num_features}",
)
def test_the_likelihood_ratio_touches_the_proved_curve_and_stays_under_it(law):
    found = audit.likelihood_ratio(law, audit.own_claim(law), progress=False)
    curve = profile((law,), "zero_out")
    for epsilon in (0.0, 0.2, 0.5, 1.0):
        assert curve.add(epsilon) in found.delta_at(epsilon)
        assert curve.remove(epsilon) in found.delta_at(epsilon, direction="remove")
    fpr, tpr = found.roc()
    band = np.sqrt(np.log(2 / 1e-3) / (2 * len(found.absent)))  # Dvoretzky, Kiefer, Wolfowitz: the whole curve at once
    proved = audit.proved_power(found.mechanisms, np.minimum(fpr + band, 1.0))
    assert np.all(tpr - band <= proved)
    fpr, tpr = fpr[1:], tpr[1:]  # the curve leaves the axis where the first test does
    assert np.all(tpr + band >= audit.proved_power(found.mechanisms, np.maximum(fpr - band, 0.0)) - 5e-3)


def test_rounds_together_touch_the_composed_curve():
    rounds = (repaired(3, 0.5), Wishart(3, 12.0, 1.5), Gaussian(3, 2.5))
    found = audit.likelihood_ratio(rounds, Bound(3.0, 0.05, "zero_out"), progress=False)
    curve = profile(rounds, "zero_out")
    for epsilon in (0.0, 0.3, 1.0):
        assert curve.add(epsilon) in found.delta_at(epsilon)
        assert curve.remove(epsilon) in found.delta_at(epsilon, direction="remove")
    assert not found.broken


def test_a_coalition_of_d_owners_knows_as_much_as_everybody():
    law = Wishart(4, 9.0, 0.4)
    options = {"trials": 500, "progress": False, "num_tasks": 12}
    everybody, owners = (
        audit.likelihood_ratio(law, PROMISE, view=view, **options) for view in (views.billboard(), views.coalition(4))
    )
    assert np.allclose(everybody.absent, owners.absent, rtol=1e-4, atol=1e-4)


def test_a_single_owner_sees_far_less():
    claim, options = Bound(0.1, 0.0, "zero_out"), {"progress": False, "trials": 5000}
    found = [
        audit.support(PaperWishart(5, 1.0), claim, view=view, **options)
        for view in (views.single(), views.coalition(3), views.others())
    ]
    assert all(one.present.sum() == 0 for one in found)  # 1 - c/sqrt(x) is operator monotone: never a false alarm
    power = [one.absent.mean() for one in found]
    assert power[0] < 0.01 < power[2]
    assert power[0] <= power[1] < power[2]


@pytest.mark.parametrize("law", [repaired(5), Wishart(1, 8.0, 0.6), PaperWishart(4, 0.7)], ids=lambda law: law.kind)
def test_the_controls_fire(law):
    found = audit.controls(law, progress=False)
    assert set(found) == {"no noise", "half the scale", "the same seed twice"}
    assert [name for name, one in found.items() if not one.broken] == []


def test_an_exact_claim_is_hardly_ever_called_broken():
    law = Wishart(3, 9.0, 0.7)
    claim = audit.own_claim(law)
    alarms = sum(audit.likelihood_ratio(law, claim, trials=4000, seed=s, progress=False).broken for s in range(40))
    assert alarms <= 2  # confidence 99 %
    # a claim of half the eps is found out
    assert audit.likelihood_ratio(law, Bound(claim.epsilon / 2, claim.delta, "zero_out"), progress=False).broken


def test_confidence_limits_are_the_exact_binomial_ones():
    for hits in (0, 1, 37, 199, 200):
        expected = stats.binomtest(hits, 200).proportion_ci(0.98, method="exact")
        assert np.allclose(audit.clopper_pearson(hits, 200, 0.01), (expected.low, expected.high), rtol=1e-9)


def test_tracing_leans_the_right_way():
    found = audit.tracing(Wishart(3, 9.0, 0.05), PROMISE, progress=False, trials=4000)
    assert found.absent.mean() > found.present.mean() + 0.5  # by |w|^4 = 1 on average


def test_an_audit_is_deterministic_given_its_seed():
    first, again, other = (
        audit.likelihood_ratio(repaired(3), PROMISE, seed=seed, trials=500, progress=False) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.absent, again.absent)
    assert first.epsilon_lower == again.epsilon_lower
    assert not np.array_equal(first.absent, other.absent)


def test_a_plot_shows_the_measured_curve_under_the_proved_one():
    axes = audit.likelihood_ratio(repaired(3), PROMISE, trials=500, progress=False).plot()
    labels = [line.get_label() for line in axes.get_lines()]
    assert [label.split(":")[0] for label in labels] == ["proved", "claimed", "measured"]
    axes.figure.clear()


@pytest.mark.parametrize(
    ("attempt", "name"),
    [
        (lambda: audit.support(repaired(3), PROMISE, trials=3, progress=False), "trials"),
        (lambda: audit.support(repaired(3), PROMISE, confidence=1.0, progress=False), "confidence"),
        (lambda: audit.support(repaired(3), (1.0, 1e-3), progress=False), "claim"),
        (lambda: audit.support(repaired(3), PROMISE, num_tasks=1, progress=False), "num_tasks"),
        (lambda: audit.likelihood_ratio(repaired(3), PROMISE, view=views.single(), progress=False), "view"),
        (lambda: audit.tracing(repaired(3), PROMISE, view=views.coalition(50), progress=False), "view"),
        (lambda: audit.tracing(repaired(3), PROMISE, view=views.single(9), progress=False), "view"),
        (lambda: views.coalition(0), "k"),
    ],
)
def test_a_bad_argument_is_named(attempt, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        attempt()


def test_what_the_documentation_prints_is_what_the_library_prints():
    page = Path(__file__).parents[1] / "docs" / "privacy.md"
    assert doctest.testfile(str(page), module_relative=False) == (0, 2)
