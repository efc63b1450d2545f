"""Audits: they find the gap in the papers' mechanism, do not break the repaired one, and touch its proved curve."""

import doctest
from pathlib import Path

import numpy as np
import pytest
from conftest import as_written
from helpers.effort import effort
from helpers.tolerances import RARE
from scipy import stats

from mpmtl_prob.privacy import (
    Bound,
    Gaussian,
    Ledger,
    PaperWishart,
    Quantile,
    VectorLaplace,
    Wishart,
    audit,
    calibrate,
    calibrate_gaussian,
)
from mpmtl_prob.privacy.accounting.composition import profile
from mpmtl_prob.privacy.audit import views
from mpmtl_prob.privacy.lattice import sent, unit_columns
from mpmtl_prob.releases import private_clip_norm, release

pytest.importorskip("matplotlib").use("Agg")

PROMISE = Bound(1.0, 1e-3, "zero_out")
SURE = 1 - 1e-9  # confidence of an interval that decides about a test


def repaired(d, epsilon=1.0):
    return calibrate(epsilon, 1e-3, d, adjacency="zero_out")


SIZES = pytest.mark.parametrize(
    ("epsilon", "d"),
    [
        (0.1, 5),
        (1.0, 1),
        (3.0, 20),
        *(
            pytest.param(e, d, marks=pytest.mark.evidence)
            for e, d in ((0.1, 1), (0.1, 20), (1.0, 5), (1.0, 20), (3.0, 5))
        ),
    ],
)


@SIZES
@pytest.mark.parametrize("view", [views.billboard(), views.others(), views.coalition(40)], ids=lambda view: view.name)
def test_the_support_gives_the_papers_mechanism_away(epsilon, d, view):
    report = audit.support(
        PaperWishart(d, epsilon), Bound(epsilon, 0.0, "zero_out"), view=view, num_tasks=60, progress_bar=False, exact=False,
        confidence=SURE, trials=effort(3000 if epsilon < 1 else 2000, 3000),
    )  # fmt: skip
    truth = -np.expm1(-epsilon)
    assert truth in report.delta_at(epsilon, threshold=0.5)
    assert report.present.sum() == 0  # never a false alarm
    assert report.broken
    assert "BROKEN" in repr(report)


@SIZES
def test_the_support_attack_works_at_the_papers_delta_on_school(epsilon, d):
    """The support gives the papers' noise away at the papers' own delta on the School data too."""
    claim = Bound(epsilon, 1.5e-3, "zero_out")
    assert audit.support(PaperWishart(d, epsilon), claim, trials=3000, progress_bar=False, exact=False).broken


@pytest.mark.parametrize("d", [1, 5, pytest.param(20, marks=pytest.mark.evidence)])
def test_no_audit_breaks_the_repaired_mechanism(d):
    law = repaired(d)
    options = {"trials": effort(3000, 5000), "progress_bar": False, "exact": False, "num_tasks": 45}
    reports = [
        test(law, PROMISE, view=view, **options)
        for test in (audit.support, audit.likelihood_ratio, audit.tracing)
        for view in (views.billboard(), views.others())
    ]
    reports += [
        test(law, PROMISE, view=view, **options)
        for test in (audit.support, audit.tracing)
        for view in (views.single(), views.coalition(2))
    ]
    assert [repr(one) for one in reports if one.broken] == []


@pytest.mark.parametrize(
    "law",
    [
        repaired(1),
        repaired(5),
        pytest.param(repaired(20), marks=pytest.mark.evidence),
        Wishart(4, 3 + 2 * 1.5, 1.2),
        PaperWishart(3, 0.7),
        Gaussian(4, 1.5),
    ],
    ids=lambda law: f"{law.kind} {law.num_features}",
)
def test_the_likelihood_ratio_touches_the_proved_curve(law):
    """The likelihood ratio touches the proved curve and stays under it."""
    report = audit.likelihood_ratio(
        law, audit.own_claim(law, adjacency="zero_out"), progress_bar=False, exact=False, confidence=SURE
    )
    curve = profile((law,), "zero_out")
    for epsilon in (0.0, 0.2, 0.5, 1.0):
        assert curve.add(epsilon) in report.delta_at(epsilon)
        assert curve.remove(epsilon) in report.delta_at(epsilon, direction="remove")
    fpr, tpr = report.roc()
    band = np.sqrt(np.log(2 / 1e-8) / (2 * len(report.absent)))  # Dvoretzky, Kiefer, Wolfowitz: the whole curve at once
    proved = audit.proved_power(report.mechanisms, np.minimum(fpr + band, 1.0), "zero_out")
    assert np.all(tpr - band <= proved)
    fpr, tpr = fpr[1:], tpr[1:]  # the curve leaves the axis where the first test does
    assert np.all(tpr + band >= audit.proved_power(report.mechanisms, np.maximum(fpr - band, 0.0), "zero_out") - 5e-3)


def test_rounds_together_touch_the_composed_curve():
    rounds = (repaired(3, 0.5), Wishart(3, 12.0, 1.5), Gaussian(3, 2.5))
    report = audit.likelihood_ratio(
        rounds, Bound(3.0, 0.05, "zero_out"), progress_bar=False, exact=False, confidence=SURE
    )
    curve = profile(rounds, "zero_out")
    for epsilon in (0.0, 0.3, 1.0):
        assert curve.add(epsilon) in report.delta_at(epsilon)
        assert curve.remove(epsilon) in report.delta_at(epsilon, direction="remove")
    assert not report.broken


@pytest.mark.parametrize(
    "laws",
    [
        (Wishart(4, 3 + 2 * 96, 0.1),),
        (Wishart(2, 1 + 2 * 3072, 0.02),),
        (Gaussian(4, 1.5),),
        (VectorLaplace(4, 1.5, 1.0),),
        (Wishart(3, 2 + 2 * 96, 0.2), Gaussian(3, 2.5), VectorLaplace(2, 0.5, 2.0)),
    ],
    ids=lambda laws: " ".join(law.kind for law in laws),
)
def test_a_replacement_touches_the_theorems_curve(laws):
    """Replacing a task touches the theorem's curve and stays under it."""
    report = audit.likelihood_ratio(
        laws, audit.own_claim(laws, adjacency="replace"), progress_bar=False, exact=False, confidence=SURE
    )
    curve = profile(laws, "replace")
    slack = 5e-3  # what the theorem gives up at k = 96, and the grid of a composition
    for epsilon in (0.0, 0.2, 0.5, 1.0):
        for direction in ("add", "remove"):
            measured = report.delta_at(epsilon, direction=direction)
            assert measured.lower <= getattr(curve, direction)(epsilon) <= measured.upper + slack
    fpr, tpr = report.roc()
    band = np.sqrt(np.log(2 / 1e-8) / (2 * len(report.absent)))
    assert np.all(tpr - band <= audit.proved_power(report.mechanisms, np.minimum(fpr + band, 1.0), "replace"))
    touched = audit.proved_power(report.mechanisms, np.maximum(fpr[1:] - band, 0.0), "replace") - slack
    assert np.all(tpr[1:] + band >= touched)
    assert not report.broken


@pytest.mark.parametrize("law", [Wishart(3, 2 + 2 * 4.0, 0.5), PaperWishart(3, 0.7), Quantile(2.0)])
def test_a_replacement_stays_under_a_loose_curve(law):
    """A replacement stays under the theorem's curve where the theorem gives something up."""
    report = audit.likelihood_ratio(
        law,
        audit.own_claim(law, adjacency="replace"),
        trials=effort(3000, 5000),
        progress_bar=False,
        exact=False,
        confidence=SURE,
    )
    curve = profile((law,), "replace")
    for epsilon in (0.0, 0.5, 1.0):
        assert report.delta_at(epsilon).lower <= curve.add(epsilon)
        assert report.delta_at(epsilon, direction="remove").lower <= curve.remove(epsilon)
    assert not report.broken


def test_a_replacement_shows_more_than_a_zeroed_task_does():
    # what is proved of a zeroed task does not hold for a replaced one
    law = Wishart(3, 2 + 2 * 96, 0.1)
    promise = profile((law,), "zero_out").delta(0.0)
    for adjacency, more in (("zero_out", False), ("replace", True)):
        report = audit.likelihood_ratio(
            law, Bound(1.0, 0.05, adjacency), progress_bar=False, exact=False, confidence=SURE
        )
        assert (report.delta_at(0.0).lower > promise) == more


@pytest.mark.parametrize("test", [audit.support, audit.likelihood_ratio, audit.tracing])
def test_no_audit_breaks_what_is_calibrated_for_a_replacement(test):
    law, promise = calibrate(1.0, 1e-3, 5), Bound(1.0, 1e-3, "replace")
    for view in (views.billboard(), views.others()):
        assert not test(law, promise, view=view, trials=3000, progress_bar=False, exact=False, confidence=SURE).broken


def test_a_tenth_of_the_noise_is_found_out():
    """An audit finds out a tenth of the noise that a replacement needs."""
    law, promise = calibrate(1.0, 1e-3, 5), Bound(1.0, 1e-3, "replace")
    tenth = Wishart(5, law.df, law.scale / 10)
    assert audit.likelihood_ratio(tenth, promise, trials=3000, progress_bar=False, exact=False, confidence=SURE).broken


def test_a_coalition_of_d_owners_knows_as_much_as_everybody():
    law = Wishart(4, 9.0, 0.4)
    options = {"trials": 500, "progress_bar": False, "exact": False, "num_tasks": 12}
    everybody, owners = (
        audit.likelihood_ratio(law, PROMISE, view=view, **options) for view in (views.billboard(), views.coalition(4))
    )
    assert np.allclose(everybody.absent, owners.absent, rtol=1e-4, atol=1e-4)


FEW = 10  # features where not one entry of any release may show anything: exact draws of 27 take long


@pytest.mark.parametrize("least", [calibrate, calibrate_gaussian], ids=["Wishart", "Gaussian"])
def test_sums_of_doubles_leak_and_lattice_sums_do_not(least):
    """A sum of doubles shows what was added, and a sum on the lattice does not."""
    claim, options = Bound(0.1, 1.46e-3, "replace"), {"trials": 100, "progress_bar": False}
    doubles = audit.representable(least(0.1, 1.46e-3, 27), claim, exact=False, num_tasks=139, **options)
    assert doubles.absent.min() > 0 > doubles.present.max()  # the data set is named, every time
    assert doubles.broken
    lattice = audit.representable(least(0.1, 1.46e-3, FEW), claim, **options)
    assert not lattice.absent.any()
    assert not lattice.present.any()
    assert not lattice.broken


def test_summation_order_hides_little_in_doubles():
    """Another order of summation hides little in doubles and changes nothing on the lattice."""
    claim, options = Bound(0.1, 1.46e-3, "replace"), {"progress_bar": False, "shuffled": True}
    doubles = options | {"num_tasks": 139, "trials": effort(1000, 3000), "exact": False, "confidence": SURE}
    assert audit.representable(calibrate(0.1, 1.46e-3, 27), claim, **doubles).broken
    lattice = audit.representable(calibrate(0.1, 1.46e-3, FEW), claim, trials=100, **options)
    assert not lattice.absent.any()
    assert not lattice.present.any()


def test_a_release_is_reachable_from_both_data_sets():
    """A published release can be reached from both data sets."""
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((5, 40)) for _ in range(2))
    second[:, 1:] = first[:, 1:]
    out = release(first, 1.0, 1e-3)
    for W in (first, second):
        W = sent(unit_columns(W), 1.0, out.lattice)
        assert audit.reachable(out.sigma[0], W @ W.T).all()


def test_a_double_is_reachable_where_a_sum_ends_there():
    rng = np.random.default_rng(1)
    A, E = rng.standard_normal((2, 10_000)) * np.geomspace(1e-3, 1e3, 10_000)
    assert audit.reachable(A + E, A).all()
    assert not audit.reachable(np.array([2.0**-60]), np.array([1.0]))[0]  # no double lies so near to -1


@pytest.mark.parametrize(
    ("law", "adjacency"),
    [
        pytest.param(Wishart(2, 9.0, 1.2), "zero_out", marks=pytest.mark.evidence),  # its noise is found wrong below
        (Gaussian(2, 1.5), "replace"),
        (VectorLaplace(2, 1.0, 1.0), "replace"),
    ],
    ids=["Wishart", "Gaussian", "VectorLaplace"],
)
def test_what_is_published_is_audited_like_what_is_simulated(law, adjacency):
    options = {"trials": effort(1000, 3000), "progress_bar": False, "exact": True, "confidence": SURE}
    claim, curve = audit.own_claim(law, adjacency=adjacency), profile((law,), adjacency)
    report = audit.likelihood_ratio(law, claim, **options)
    assert not report.broken
    for epsilon in (0.0, 0.5):
        assert curve.add(epsilon) in report.delta_at(epsilon)
        assert curve.remove(epsilon) in report.delta_at(epsilon, direction="remove")


def test_a_draw_of_too_little_noise_is_found():
    law = Wishart(2, 40.0, 0.25)
    wrong = audit.published(Wishart(2, 40.0, 0.05), 2.0**-26)
    options = {"trials": effort(700, 3000), "progress_bar": False, "confidence": SURE}
    assert audit.likelihood_ratio(
        law, audit.own_claim(law, adjacency="zero_out"), exact=True, sampler=wrong, **options
    ).broken
    right = audit.published(law, 2.0**-26)
    assert not audit.likelihood_ratio(law, audit.own_claim(law, adjacency="zero_out"), sampler=right, **options).broken


def test_a_clip_norm_that_costs_more_than_said_is_found_out():
    """An audit finds a private clip norm that costs more than is said."""

    class Dearer(Quantile):
        def draw(self, norms, grid, quantile, source):
            return Quantile(20 * self.epsilon).draw(norms, grid, quantile, source)

    options = {"trials": effort(1000, 2000), "progress_bar": False, "confidence": SURE}
    for law, broken in ((Quantile(0.5), False), (Dearer(0.5), True)):
        assert audit.likelihood_ratio(law, Bound(0.5, 0.0, "replace"), **options).broken == broken


@pytest.mark.parametrize("adjacency", ["replace", "zero_out"])
def test_a_ledger_counts_all_it_paid_and_audits_find_no_more(adjacency):
    """A ledger counts all that it paid for, and an audit finds no more than that."""
    book = Ledger(epsilon=5.0, delta=0.05, adjacency=adjacency)
    W = np.random.default_rng(0).standard_normal((3, 8))
    for epsilon in (0.5, 0.8):
        release(W, epsilon, 0.05, adjacency=adjacency, ledger=book)
    book.charge((Gaussian(3, 2.5), VectorLaplace(3, 0.5, 1.0)))
    options = {"progress_bar": False, "exact": False, "confidence": SURE}
    report, laws = audit.ledger(book, **options), [law for charge in book.charges() for law in charge.mechanisms]
    assert report.claim == book.spent
    assert report.mechanisms == tuple(laws)
    assert not report.broken
    curve = profile(tuple(laws), adjacency)
    for epsilon in (0.0, 0.5, 1.0):
        measured = report.delta_at(epsilon)
        assert measured.lower <= curve.add(epsilon) <= measured.upper + 0.02
    private_clip_norm(W, 1.0, low=0.1, high=10.0, ledger=book)
    assert not audit.ledger(book, trials=effort(2000, 5000), **options).broken


def test_a_ledger_that_forgets_a_charge_is_found():
    class Forgetful(Ledger):
        @property
        def spent(self):
            return audit.own_claim(self.charges()[0].mechanisms, adjacency=self.adjacency)

    book = Forgetful(epsilon=20.0, delta=0.05)
    for _ in range(4):
        book.charge(Gaussian(3, 1.0))
    assert audit.ledger(book, trials=5000, progress_bar=False, confidence=SURE).broken


def test_a_single_owner_sees_far_less():
    claim, options = Bound(0.1, 0.0, "zero_out"), {"progress_bar": False, "exact": False, "trials": 5000}
    reports = [
        audit.support(PaperWishart(5, 1.0), claim, view=view, **options)
        for view in (views.single(), views.coalition(3), views.others())
    ]
    assert all(one.present.sum() == 0 for one in reports)  # 1 - c/sqrt(x) is operator monotone: never a false alarm
    power = [one.absent.mean() for one in reports]
    assert power[0] < 0.01 < power[2]
    assert power[0] <= power[1] < power[2]


@pytest.mark.parametrize("law", [repaired(5), Wishart(1, 8.0, 0.6), PaperWishart(4, 0.7)], ids=lambda law: law.kind)
@pytest.mark.parametrize("adjacency", ["zero_out", "replace"])
def test_the_controls_fire(law, adjacency):
    report = audit.controls(law, adjacency, progress_bar=False, exact=False)
    assert set(report) == {"no noise", "half the scale", "the same seed twice"}
    assert [name for name, one in report.items() if not one.broken] == []


def test_the_power_of_a_test_against_the_papers_noise_is_exact():
    rates = np.array([0.0, 0.2, 0.9])  # without the task never below 1, and above it e^-1 times as likely
    power = audit.proved_power((PaperWishart(3, 1.0),), rates, "zero_out")
    np.testing.assert_allclose(power, 1 - np.exp(-1) * (1 - rates), rtol=1e-9)


def test_an_exact_claim_is_hardly_ever_called_broken():
    law = Wishart(3, 9.0, 0.7)
    claim = audit.own_claim(law, adjacency="zero_out")
    alarms = sum(
        audit.likelihood_ratio(law, claim, trials=effort(2000, 4000), seed=s, progress_bar=False, exact=False).broken
        for s in range(20)
    )
    assert alarms <= 6  # confidence 99 %, that is .2 of 20: more, once in a thousand million
    # a claim of half the eps is found out
    assert audit.likelihood_ratio(
        law, Bound(claim.epsilon / 2, claim.delta, "zero_out"), progress_bar=False, exact=False
    ).broken


def test_confidence_limits_are_the_exact_binomial_ones():
    for hits in (0, 1, 37, 199, 200):
        expected = stats.binomtest(hits, 200).proportion_ci(0.98, method="exact")
        assert np.allclose(audit.clopper_pearson(hits, 200, 0.01), (expected.low, expected.high), rtol=1e-9)


def test_tracing_leans_the_right_way():
    report = audit.tracing(Wishart(3, 9.0, 0.05), PROMISE, progress_bar=False, exact=False, trials=4000)
    assert report.absent.mean() > report.present.mean() + 0.5  # by |w|^4 = 1 on average


def test_an_audit_is_deterministic_given_its_seed():
    first, again, other = (
        audit.likelihood_ratio(repaired(3), PROMISE, seed=seed, trials=500, progress_bar=False) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.absent, again.absent)
    assert first.epsilon_lower == again.epsilon_lower
    assert not np.array_equal(first.absent, other.absent)


def test_a_plot_shows_the_measured_curve_under_the_proved_one():
    axes = audit.likelihood_ratio(repaired(3), PROMISE, trials=500, progress_bar=False, exact=False).plot()
    labels = [line.get_label() for line in axes.get_lines()]
    assert [label.split(":")[0] for label in labels] == ["proved", "claimed", "measured"]
    axes.figure.clear()


@pytest.mark.parametrize(
    ("attempt", "name"),
    [
        (lambda: audit.support(repaired(3), PROMISE, trials=3, progress_bar=False), "trials"),
        (lambda: audit.support(repaired(3), PROMISE, confidence=1.0, progress_bar=False), "confidence"),
        (lambda: audit.support(repaired(3), (1.0, 1e-3), progress_bar=False), "claim"),
        (lambda: audit.support(repaired(3), PROMISE, num_tasks=1, progress_bar=False), "num_tasks"),
        (lambda: audit.likelihood_ratio(repaired(3), PROMISE, view=views.single(), progress_bar=False), "view"),
        (lambda: audit.tracing(repaired(3), PROMISE, view=views.coalition(50), progress_bar=False), "view"),
        (lambda: audit.tracing(repaired(3), PROMISE, view=views.single(9), progress_bar=False), "view"),
        (lambda: views.coalition(0), "k"),
        (lambda: audit.ledger(Ledger(epsilon=1.0, delta=1e-3), progress_bar=False), "book"),
    ],
)
def test_a_bad_argument_is_named(attempt, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        attempt()


@as_written
def test_the_documentation_prints_what_the_library_prints():
    """The documentation prints what the library prints."""
    page = Path(__file__).parents[2] / "docs" / "privacy.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert failed == 0 < tried


def test_an_explicit_threshold_gives_the_limits_of_two_counts():
    """An explicit threshold gives the confidence limits of its two counts.

    By SciPy's exact intervals of binomial counts, and by hand: 80 of 100 above without the task, 30 with it.
    """
    scores = lambda above: np.repeat([1.0, -1.0], [above, 100 - above])
    low = stats.binomtest(80, 100).proportion_ci(1 - 2 * 0.0025, "exact").low
    high = stats.binomtest(30, 100).proportion_ci(1 - 2 * 0.0025, "exact").high
    lower = audit.Explicit(0.0).epsilon_lower(scores(80), scores(30), 0.05, 0.99)
    # with the task 70 of 100 are below, without it 20
    other_low = stats.binomtest(70, 100).proportion_ci(1 - 2 * 0.0025, "exact").low
    other_high = stats.binomtest(20, 100).proportion_ci(1 - 2 * 0.0025, "exact").high
    expected = max(np.log((low - 0.05) / high), np.log((other_low - 0.05) / other_high))
    assert lower == pytest.approx(expected, rel=1e-9)
    assert audit.Explicit(0.0).epsilon_lower(scores(30), scores(80), 0.05, 0.99) == 0.0


def test_thresholds_named_beforehand_share_the_confidence():
    """Two thresholds that count the same are one at a confidence with half of what may fail."""
    rng = np.random.default_rng(0)
    absent, present = rng.standard_normal((2, 1000)) + np.array([[1.0], [0.0]])
    twice = audit.Bonferroni((0.7, 0.7)).epsilon_lower(absent, present, 1e-3, 0.98)
    assert twice == audit.Explicit(0.7).epsilon_lower(absent, present, 1e-3, 0.99)
    many = audit.Bonferroni(tuple(np.linspace(0.0, 3.0, 31))).epsilon_lower(absent, present, 1e-3, 0.98)
    best = max(audit.Explicit(level).epsilon_lower(absent, present, 1e-3, 0.98) for level in np.linspace(0.0, 3.0, 31))
    assert 0 < many < best
    with pytest.raises(ValueError, match="levels: expected at least one threshold, got none"):
        audit.Bonferroni(()).epsilon_lower(absent, present, 1e-3, 0.98)


@pytest.mark.parametrize(
    "threshold",
    [audit.Split(), audit.Explicit(0.5), audit.Bonferroni((-0.5, 0.0, 0.5, 1.0, 1.5))],
    ids=lambda of: type(of).__name__,
)
def test_no_threshold_says_more_than_is_true(threshold):
    """N(0, 1) against N(1, 1) has eps(delta) by the normal law: bounds at 90 % may pass it in one case of ten."""
    rng, delta = np.random.default_rng(1), 0.05
    true = stats.norm  # delta(eps) = P(Z > eps/mu - mu/2) - e^eps P(Z > eps/mu + mu/2), at mu = 1
    grid = np.linspace(0.0, 4.0, 4001)
    epsilon = grid[np.argmax(true.sf(grid - 0.5) - np.exp(grid) * true.sf(grid + 0.5) <= delta)]
    absent, present = rng.standard_normal((2, 400, 500)) + np.array([[[1.0]], [[0.0]]])
    bounds = [threshold.epsilon_lower(p, q, delta, 0.9) for p, q in zip(absent, present, strict=True)]
    passed = int(np.sum(np.array(bounds) > epsilon))
    assert stats.binomtest(passed, 400, 0.1, alternative="greater").pvalue > RARE
    assert np.median(bounds) > 0.2 * epsilon


def test_audits_take_thresholds():
    law, options = Gaussian(2, 0.5), {"exact": False, "trials": 300, "progress_bar": False}
    claim = audit.own_claim(law)
    report = audit.likelihood_ratio(law, claim, threshold=audit.Explicit(claim.epsilon), **options)
    usual = audit.likelihood_ratio(law, claim, **options)
    assert report.threshold == audit.Explicit(claim.epsilon)
    assert usual.threshold == audit.Split()
    assert report.epsilon_lower == audit.Explicit(claim.epsilon).epsilon_lower(
        usual.absent, usual.present, claim.delta, 0.99
    )
    with pytest.raises(
        ValueError, match=r"threshold: expected Split\(\), Explicit\(...\) or Bonferroni\(...\), got float"
    ):
        audit.support(law, claim, threshold=0.5, **options)
