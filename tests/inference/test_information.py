"""Summaries of a posterior in words: whether to trust it, how much the release says, which structure it found."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats as st
from helpers.stored import said_alike, same_but_for_rounding
from helpers.tolerances import FAR, RARE, worth
from numpy.testing import assert_allclose, assert_array_equal

import mpmtl_prob as mp
from mpmtl_prob import TaskData
from mpmtl_prob.datasets.synthetic import Synthetic
from mpmtl_prob.inference import OwnerPosteriors, SharedPosterior, compare_releases, shared_covariance, task_posteriors
from mpmtl_prob.inference.public import inverse_wishart as law
from mpmtl_prob.inference.public.datatree import as_tree
from mpmtl_prob.inference.public.information import Information, functionals, information
from mpmtl_prob.inference.public.init import observed
from mpmtl_prob.inference.public.shared import REMEDIES
from mpmtl_prob.inference.public.structures import STRUCTURES
from mpmtl_prob.inference.subspace import random_angles
from mpmtl_prob.models.observed import LOG_PHI_SD
from mpmtl_prob.sampling.diagnostics import diagnose, khat_advice

FAST = {"chains": 2, "warmup": 200, "draws": 250, "progress_bar": False}
D, M = 3, 120
NOISELESS = 1e6


@pytest.fixture(scope="module")
def data():
    """Weights along two directions, one twice as long as the other, and hardly any along the third, whatever the seed."""
    rng = np.random.default_rng(3)
    axes = np.linalg.qr(np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0], [0.0, 1.0, 2.0]]))[0]
    W = axes @ (rng.standard_normal((D, M)) * [[10.0], [5.0], [0.5]])
    X = rng.standard_normal((M, 40, D)) / np.sqrt(D)
    y = np.einsum("tnd,dt->tn", X, W) + rng.standard_normal((M, 40))
    halves = (mp.TaskData.from_lists(list(X[:, rows]), list(y[:, rows])) for rows in (slice(20), slice(20, 40)))
    return Synthetic(*halves, W)


@pytest.fixture(scope="module")
def posteriors(data):
    """At budgets from nothing to everything, of the same messages and the same noise but for its size."""
    return {
        epsilon: shared_covariance(mp.release(data.train, epsilon, adjacency="zero_out", unsafe_seed=0), **FAST)
        for epsilon in (0.001, 0.3, 1.0, NOISELESS)
    }


def test_widths_are_those_of_the_posterior_without_noise(posteriors):
    noiseless = spread(posteriors[NOISELESS])
    # seen from the release alone; the truth needs the messages, and over 16 data sets is off by so much (log scale);
    # a ratio of 1 for the covariance at .3 would be off by .5
    sd = {0.3: {"the spectrum": 0.08, "the covariance": 0.045}, 1.0: {"the spectrum": 0.035, "the covariance": 0.02}}
    for epsilon in sd:
        ratios, here = posteriors[epsilon].information.noise, spread(posteriors[epsilon])
        for name, ratio in ratios.items():
            assert abs(np.log(ratio * noiseless[name] / here[name])) < FAR * sd[epsilon][name]


def spread(posterior):
    draws = functionals(posterior.to_arviz()["posterior/Omega"].values)
    return {name: np.sqrt(values.var(axis=(0, 1)).sum()) for name, values in draws.items()}


def test_more_budget_says_more(posteriors):
    nothing, little, much, everything = (p.information for p in posteriors.values())
    for name in everything.noise:
        assert_allclose(everything.noise[name], 1, atol=0.12)
        assert nothing.noise[name] > 3
        assert nothing.noise[name] > little.noise[name] > much.noise[name] > everything.noise[name]
        assert nothing.prior[name] > little.prior[name] > much.prior[name] > everything.prior[name]
    assert "says nearly all that the tasks could" in str(everything)
    assert "says next to nothing" in str(Information(noise={"the spectrum": 5.0}, prior={"the spectrum": 0.95}))


def test_an_empty_release_leaves_the_prior_and_the_trace(posteriors):
    """A release that says nothing leaves the prior, weighted by what the trace says."""
    release = observed(posteriors[0.001].release)
    omega = STRUCTURES["full"].prior(D, 20_000, 0)  # at phi = 1
    before, with_release = functionals(omega[None])["the spectrum"][0], spectrum(posteriors[0.001])
    # tr(A) / m is public and says what phi is: by how much more or less likely that makes these draws
    log_phi = np.log(release.trace / M / np.trace(omega, axis1=1, axis2=2))
    weights = st.norm.pdf(log_phi, release.log_phi_mean, LOG_PHI_SD)
    weights /= weights.sum()
    expected = weights @ before
    for k in range(D):
        error = with_release[..., k].std() / np.sqrt(worth(with_release[..., k]))
        assert abs(with_release[..., k].mean() - expected[k]) < FAR * error
    narrower = np.sqrt(np.sum(weights @ (before - expected) ** 2) / before.var(axis=0).sum())
    assert_allclose(posteriors[0.001].information.prior["the spectrum"], narrower, atol=0.2)


def spectrum(posterior):
    return functionals(posterior.to_arviz()["posterior/Omega"].values)["the spectrum"]


@pytest.mark.parametrize("structure", ["full", "auto", "group_sparse", "low_rank"])
def test_prior_draws_follow_the_prior(structure):
    omega = STRUCTURES[structure].prior(3, 20_000, 1)
    correlation = omega[:, 0, 1] / np.sqrt(omega[:, 0, 0] * omega[:, 1, 1])
    if structure == "group_sparse":  # log(omega_j - 1) / 2 is a half-Cauchy's logarithm
        assert st.kstest(np.sqrt(omega[:, 0, 0] - 1), st.halfcauchy.cdf).pvalue > RARE
        assert_array_equal(correlation, 0)
    elif structure in ("full", "auto"):  # given kappa, correlations have mean 0 and variance 1 / (kappa - d + 2)
        kappa = 4 + np.exp(1 + 2 * np.random.default_rng(0).standard_normal(20_000))
        assert_allclose(np.mean(correlation**2), np.mean(1 / (kappa - 1)), rtol=0.06)
    else:  # a floor of 1 in every direction
        assert np.linalg.eigvalsh(omega)[:, 0].min() >= 1 - 1e-6
        assert abs(np.mean(np.sign(correlation))) < 0.03
    assert STRUCTURES["paper"].prior(3, 10, 0) is None


def test_the_second_draws_are_not_the_first(posteriors):
    # the same stream twice would leave no spread within a draw of A, and ratios without bound
    posterior = posteriors[NOISELESS].to_arviz()["posterior"].to_dataset()
    conditional = law.given_second_moment(posterior, M)
    for seed in range(4):  # of shared_covariance
        posterior["Omega"].values[:] = law.inverse_wishart(np.random.default_rng(seed), *conditional)
        for other in range(4):
            assert information(posterior, lambda *_: None, M, other).noise["the spectrum"] < 1.2


def test_a_diagnosis_judges_the_draws_and_says_what_they_say(posteriors):
    diagnosis = posteriors[1.0].diagnose()
    assert set(diagnosis.rhat) == {"log_phi", "the spectrum", "kappa"}
    assert diagnosis.draws == 500
    assert "times as wide as they would be without noise" in str(diagnosis)
    tree = posteriors[1.0].to_arviz()
    tree["posterior/log_phi"].values[0] += 3  # a chain elsewhere
    tree["sample_stats/diverging"].values[1, :7] = True
    troubled = SharedPosterior.from_tree(tree).diagnose()
    for words in ("Chains disagree on log_phi", "7 transitions diverged", "Call shared_covariance with more draws"):
        assert words in str(troubled)
    assert "extend" not in str(troubled)
    assert not troubled.sound
    assert str(posteriors[1.0].diagnose()) == str(diagnosis)  # the tree was a copy


def test_a_summary_does_not_hide_a_coordinate_without_r_hat(posteriors):
    tree = posteriors[1.0].to_arviz()
    assert "largest r-hat nan" not in repr(SharedPosterior.from_tree(tree))
    tree["posterior/spectrum"].values[..., 0] = 1.0
    assert "largest r-hat nan" in repr(SharedPosterior.from_tree(tree))


@pytest.fixture(scope="module")
def some(data):
    """A few owners."""
    train = data.train
    return TaskData(train.X[:30], train.y[:30], train.mask[:30], train.tasks[:30], train.features)


@pytest.fixture(scope="module")
def mixed(posteriors, some):
    return task_posteriors(some, posteriors[1.0], draws=20, method="mixture")


def test_k_hats_turn_into_advice(posteriors, some, mixed):
    words = ("weights fail", "Do this.")
    assert khat_advice(np.array([0.1, 0.3]), 1000, *words) == ()
    (line,) = khat_advice(np.array([0.1, 0.75, 1.2, np.nan]), 10_000, *words)
    assert line == "k-hat is above 0.7 for 3 of 4 tasks (up to 1.2): weights fail. Do this."
    assert "above 0.45 for 1 of 1" in khat_advice(np.array([0.5]), 64, *words)[0]  # fewer draws bear less
    plugged = task_posteriors(some, posteriors[1.0], draws=20)
    assert str(plugged.diagnose()) == str(posteriors[1.0].diagnose())
    khat = mixed.to_arviz()["constant_data/khat"].values
    bad = int(np.sum(~(khat <= 1 - 1 / np.log10(64))))
    assert (f"for {bad} of 30 tasks" in str(mixed.diagnose())) == (bad > 0)


# -- structure --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def auto():
    """Fit "auto" to weights that use two features, and to weights along two directions across all features."""
    rng = np.random.default_rng(0)
    sparse = np.zeros((4, 480))
    sparse[:2] = rng.standard_normal((2, 480))
    directions = rng.standard_normal((4, 2)) @ rng.standard_normal((2, 480)) + 0.05 * rng.standard_normal((4, 480))
    run = FAST | {"structure": "auto", "warmup": 100, "draws": 100}
    return [
        shared_covariance(mp.release(W, 10.0, adjacency="zero_out", unsafe_seed=0), **run) for W in (sparse, directions)
    ]


def test_auto_says_which_structure_it_found(auto):
    sparse, directions = (posterior.structure_in_words() for posterior in auto)
    assert "diagonal: every feature for itself" in sparse
    assert "2 of 4 features stand out (inclusion above .9): " in sparse
    assert set(sparse[-4:].split(", ")) == {"0", "1"}
    assert "full: weights of different features go together" in directions
    for posterior in auto:
        words = posterior.structure_in_words()
        kappa = np.median(posterior.to_arviz()["posterior/kappa"])
        assert f"kappa {kappa:.0f}, " in words
        assert words in repr(posterior)
        assert words in posterior._repr_html_()
        assert words in str(posterior.diagnose())
        assert set(posterior.diagnose().rhat) == {"log_phi", "the spectrum", "kappa", "inclusion"}


def test_a_structure_that_was_asked_for_is_not_called_found(posteriors):
    assert posteriors[1.0].structure_in_words() == "none assumed"


# -- several releases -------------------------------------------------------------------------------------------------


def test_releases_side_by_side(posteriors, data):
    truth = data.W @ data.W.T
    table = compare_releases(posteriors, rank=2, reference=truth)
    row, subspace = table["eps = 1"], posteriors[1.0].subspace(2, truth)
    assert_allclose(row["effective_rank"], subspace.effective_rank.mean())
    assert_allclose(row["largest_angle"], subspace.angles.values[..., -1].mean())
    low, high = np.quantile(subspace.angles.values[..., 0], [0.05, 0.95])
    assert_allclose([row["smallest_angle_low"], row["smallest_angle_high"]], [low, high])
    assert_allclose(row["width_to_noiseless"], posteriors[1.0].information.noise["the spectrum"])
    assert row["proved"] is posteriors[1.0].guarantee.proved
    angles = [r["largest_angle"] for r in table.rows[:-1]]  # from eps = 1 on the messages' own errors are what is left
    assert angles == sorted(angles, reverse=True)
    words = table.in_words().splitlines()
    assert "the leading 2 directions not to be told from random ones" in words[0]
    assert "the leading 2 directions found" in words[-1]
    assert list(table.to_pandas().index) == [r["name"] for r in table.rows]
    assert json.loads(json.dumps(table.to_dicts()))[0]["proved_epsilon"] is None  # seeded: nothing is proved
    assert "by chance" in str(table)
    assert "<table>" in table._repr_html_()
    with pytest.raises(ValueError, match="posteriors: expected at least one"):
        compare_releases({})
    three, four = (SimpleNamespace(release=SimpleNamespace(num_features=d)) for d in (3, 4))
    with pytest.raises(ValueError, match=r"posteriors: expected the same number of features in all, got \[3, 4\]"):
        compare_releases({0.1: three, 1.0: four})


def test_angles_by_chance_follow_their_law():
    # rank 1: cos^2 of the angle to a fixed direction is Beta(1/2, (d - 1)/2)
    angles = random_angles(5, 1, 4000)[:, 0]
    assert st.kstest(np.cos(np.radians(angles)) ** 2, st.beta(0.5, 2.0).cdf).pvalue > RARE


def test_pictures_of_releases_show_what_they_say(posteriors, auto):
    pytest.importorskip("matplotlib").use("Agg")
    import matplotlib.pyplot as plt

    from mpmtl_prob import plots

    ax = plots.inclusion(auto[0])
    inclusion = auto[0].to_arviz()["posterior/inclusion"].median(("chain", "draw")).values
    points = [dots.get_offsets()[0] for dots in ax.collections if len(dots.get_offsets()) == 1]
    assert_allclose([x for x, _ in sorted(points, key=lambda point: -point[1])], inclusion)  # from the top
    with pytest.raises(ValueError, match="posterior: expected structure 'group_sparse' or 'auto'"):
        plots.inclusion(posteriors[1.0])

    some = {"eps = 0.3": posteriors[0.3], "eps = 1": posteriors[1.0]}
    ax = plots.spectrum(some, np.eye(D), components=3)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [*some, "without noise"]
    drawn = posteriors[1.0].to_arviz()["posterior/spectrum"].median(("chain", "draw")).values[:3]
    assert_allclose(ax.lines[1].get_ydata(), drawn)
    assert_allclose(ax.lines[2].get_ydata(), 1 / D)

    curves = plots.angles({k: p.subspace(1) for k, p in some.items()}, chance=True).lines
    grid, density = curves[-1].get_data()
    assert_allclose(np.trapezoid(density, grid), 1, atol=0.02)
    assert curves[-1].get_label() == "random"
    plt.close("all")


# -- files ------------------------------------------------------------------------------------------------------------


def test_public_posterior_survives_a_file(auto, tmp_path):
    posterior = auto[0]  # of the structure with the most sites; without structure it is in the owners' file below
    posterior.save(tmp_path / "shared.nc")
    loaded = SharedPosterior.load(tmp_path / "shared.nc")
    said_alike(repr(loaded), repr(posterior))
    assert loaded.guarantee == posterior.guarantee
    said_alike(str(loaded.diagnose()), str(posterior.diagnose()))
    assert_allclose(loaded.omega, posterior.omega, rtol=1e-6, atol=1e-7)
    same_but_for_rounding(loaded.to_arviz(), posterior.to_arviz())


def test_owners_posteriors_survive_a_file(posteriors, some, mixed, tmp_path):
    mixed.save(tmp_path / "own.nc")
    loaded = OwnerPosteriors.load(tmp_path / "own.nc")
    said_alike(repr(loaded), repr(mixed))
    said_alike(repr(loaded.shared), repr(mixed.shared))
    assert loaded.shared.guarantee == mixed.shared.guarantee
    assert_allclose(loaded.shared.omega, mixed.shared.omega, rtol=1e-6, atol=1e-7)
    said_alike(str(loaded.diagnose()), str(mixed.diagnose()))
    assert_array_equal(loaded.W, mixed.W)
    assert_allclose(loaded.predict(some).draws, mixed.predict(some).draws, rtol=1e-6, atol=1e-6)
    same_but_for_rounding(loaded.to_arviz(), mixed.to_arviz(pointwise=False))
    (tmp_path / "other.nc").write_bytes(b"nothing")
    for kind, words in ((OwnerPosteriors, "owners' posteriors"), (SharedPosterior, "public posterior")):
        with pytest.raises(ValueError, match=f"holds no {words} of mpmtl_prob"):
            kind.load(tmp_path / "other.nc")
    posteriors[1.0].release.save(tmp_path / "release.nc")
    with pytest.raises(ValueError, match="holds no public posterior"):
        SharedPosterior.load(tmp_path / "release.nc")


@pytest.mark.filterwarnings("error")
def test_one_feature_has_no_spectrum():
    rng, size = np.random.default_rng(0), (2, 50)
    release = mp.release(
        rng.standard_normal((1, M)), epsilon=5.0, mechanism="gaussian", unsafe_seed=0, message="clip", clip=1.0
    )
    draws = {"A": rng.exponential(size=(*size, 1, 1)), "prior_scale": rng.exponential(size=(*size, 1))}
    draws |= {"log_phi": rng.standard_normal(size), "kappa": 3 + rng.exponential(size=size)}
    tree = as_tree(release, draws, {"diverging": np.zeros(size)}, seed=0)
    shared = SharedPosterior(release, STRUCTURES["full"], 0.0, tree)
    assert shared.information == Information({}, {})
    assert "nan" not in str(shared.diagnose())


@pytest.mark.parametrize("order", [("few", "undefined"), ("undefined", "few")])
def test_advice_does_not_depend_on_the_order_of_functionals(order):
    functionals = {"few": np.random.default_rng(0).standard_normal((2, 60)), "undefined": np.full((2, 60), np.nan)}
    advice = str(diagnose({name: functionals[name] for name in order}, {}, remedies=REMEDIES))
    assert "cannot be judged by 60 draws of a chain" in advice


@pytest.mark.parametrize("draws", [1, 3])
def test_too_few_draws_to_judge_name_the_default(draws):
    """Whoever has too few draws to judge is told to take as many as the default."""
    said = diagnose({"log_phi": np.ones((2, draws))}, {}, remedies=REMEDIES)
    assert (
        f"Intervals of log_phi cannot be judged by {draws} draws of a chain: shared_covariance(..., draws=300)"
        in str(said)
    )
