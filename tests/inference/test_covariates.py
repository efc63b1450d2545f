"""Covariates of tasks: what a release of them holds and refuses, and its posterior against simulation and closed forms."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
import pytest
from helpers.effort import effort
from helpers.quickly import quickly
from numpyro.handlers import substitute
from numpyro.infer.util import log_density as log_density_of

import mpmtl_prob as mp
from mpmtl_prob import Reference, TaskData
from mpmtl_prob.data.covariates import Covariates, grouped
from mpmtl_prob.federated import invite
from mpmtl_prob.inference import EffectsPrior, SharedEffects, observed_effects, shared_effects, task_posteriors
from mpmtl_prob.inference.owner.effects import _Public
from mpmtl_prob.inference.owner.posteriors import SharedPosterior, _check_shared
from mpmtl_prob.inference.owner.sent_messages import as_sent
from mpmtl_prob.inference.public.effects import _ACCEPTANCE
from mpmtl_prob.inference.public.effects_draws import start_of
from mpmtl_prob.models import effects as model
from mpmtl_prob.models.effects_release import ACCURACY
from mpmtl_prob.privacy.mechanisms import Gaussian
from mpmtl_prob.releases import message
from mpmtl_prob.releases.effects import CONSTANTS, EffectsLayout, effect_messages
from mpmtl_prob.sampling.calibration import chain_for_each, uniformity
from mpmtl_prob.sampling.nuts import kernel

D, M, Q = 2, 40, 2
NAMES = tuple(f"H{i:02d}" for i in range(M))
BEDS, TRAUMA = np.random.default_rng(1).normal(300, 200, M), np.arange(M) % 2
TABLE = pd.DataFrame({"beds": BEDS, "trauma": TRAUMA, "city": "x"}, index=list(NAMES))
DECLARED = {"beds": (300, 200), "trauma": (0.5, 0.5)}
REFERENCE = Reference({"a": (0, 1), "b": (0, 1)}, covariates=DECLARED)
Z = np.column_stack([np.ones(M), (BEDS - 300) / 200, 2 * TRAUMA - 1.0])
MU = np.array([0.5, -0.2])
SLOPES = np.array([[0.3, 0.0], [0.0, -0.2]])
TAU = 0.15
SIGMA = 0.5
PRIOR = EffectsPrior()


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def rows(seed=0, n=20, slopes=SLOPES):
    rng = np.random.default_rng(seed)
    beta = MU + Z[:, 1:] @ slopes.T + TAU * rng.standard_normal((M, D))
    X = [rng.standard_normal((n, D)) for _ in NAMES]
    return X, [x @ b + SIGMA * rng.standard_normal(n) for x, b in zip(X, beta, strict=True)]


def tasks_of(X, y, names=NAMES):
    return TaskData.from_lists(X, y, tasks=names, features=["a", "b"])


TASKS = tasks_of(*rows())
SHORT = {"chains": 2, "warmup": 150, "draws": 150, "progress_bar": False}


def layout_of(values, constants="number", d=D):
    """The layout of tasks with these covariates (m, q), in common units already, with the constants of an outcome."""
    names = [f"z{j}" for j in range(values.shape[1])]
    columns = list("abcdef"[:d])
    reference = Reference(dict.fromkeys(columns, (0, 1)), covariates=dict.fromkeys(names, (0, 1)))
    table = Covariates(tuple(names), tuple(map(str, range(len(values)))), tuple(map(tuple, values.tolist())))
    return EffectsLayout(tuple(columns), reference, *CONSTANTS[constants], table)


def drawn_messages(rng, layout, mu, slopes, Omega, accuracy, many=()):
    """Messages (..., m, D) of all tasks, each scaled to length one exactly, by NumPy alone."""
    z = layout.z
    d = len(mu)
    level, spread, errors = accuracy
    shape = (*many, len(z))
    p = 1 / (1 + np.exp(-(level + spread * rng.standard_normal((*shape, 1)))))
    beta = mu + z[:, 1:] @ slopes.T + rng.standard_normal((*shape, d)) @ np.linalg.cholesky(Omega).T
    eta = p * beta + np.sqrt(errors * layout.effect_variance * p * (1 - p)) * rng.standard_normal((*shape, d))
    parts = [layout.effect_size * eta, layout.determined_size * p @ layout.averages.T]
    u = np.concatenate([*parts, np.broadcast_to(z, (*shape, z.shape[1]))], axis=-1)
    return u / np.linalg.norm(u, axis=-1, keepdims=True)


def as_read(sigma, law, layout):
    m, guarantee = len(layout.z), mp.privacy.Guarantee(None, None, "a test")
    return observed_effects(
        mp.Release(sigma[None], (law,), m, layout.coordinates, guarantee, "effects", "none", "", effects=layout)
    )


LAWS = {
    "two groups": np.where(np.arange(30) % 2, 1.0, -1.0)[:, None],
    "many values": np.random.default_rng(3).standard_normal((60, 1)),
    "two covariates": np.random.default_rng(4).standard_normal((60, 2)),
}


@pytest.mark.parametrize(
    ("values", "constants", "share"),
    [*((values, "binary", 1 / 3) for values in LAWS), ("two covariates", "number", 1 / 2)],
)
def test_law_of_the_sum_is_that_of_simulated_tasks(values, constants, share):
    """Mean, and the log density up to what the first order of scaling leaves, beside simulated sums.

    That is more where effects are a larger part of a message, as those of numbers are.
    """
    rng, layout = np.random.default_rng(0), layout_of(LAWS[values], constants)
    z, q = layout.z, layout.z.shape[1] - 1
    mu = np.array([0.5, -0.2])
    slopes = np.array([[0.3, 0.1], [-0.1, 0.25]])[:, :q]
    Omega = np.array([[0.08, 0.03], [0.03, 0.05]])
    accuracy = model.Accuracy(np.array([1.5, 0.7]), 0.4, 0.8)
    v = drawn_messages(rng, layout, mu, slopes, Omega, accuracy, (effort(4000, 20_000),))
    A, noise = np.einsum("rmi,rmj->rij", v, v), 1.0
    seen = as_read(A[0], Gaussian(A.shape[1], noise), layout)
    centres, covariance = model._law_of_messages(seen, mu, Omega, accuracy, slopes)
    mean = len(z) * np.asarray(model._mean_of_products(seen, centres, covariance))
    assert np.all(np.abs(mean - A.mean(axis=0)) < 0.25 * np.sqrt(A.var(axis=0) + noise**2))
    i, j = np.tril_indices(A.shape[1])
    products = A[:, i, j]
    middle, total = products.mean(axis=0), np.cov(products.T) + noise**2 * np.diag(1.0 + (i == j))
    likelihood = quickly(lambda sigma: model.log_likelihood(seen._replace(sigma=sigma), mu, Omega, accuracy, slopes))
    ours, exact = [], []
    for sigma in rng.multivariate_normal(middle, total, size=100):
        full = np.zeros(A.shape[1:])
        full[i, j] = full[j, i] = sigma
        ours.append(float(likelihood(full)))
        exact.append(-0.5 * (sigma - middle) @ np.linalg.solve(total, sigma - middle))
    assert np.std(np.array(ours) - np.array(exact)) < np.std(exact) * share


def test_basis_has_principal_axes_of_what_covariates_tell_last():
    seen = of_two_covariates(1.0)
    accuracy = model.Accuracy(jnp.array([1.5, 0.7]), jnp.asarray(0.2), jnp.asarray(1.0))
    law = model._law_of_messages(seen, jnp.array([0.5, -0.2]), 0.05 * jnp.eye(D), accuracy, jnp.asarray(SLOPES))
    basis = np.asarray(model._basis_given_covariates(seen.covariates, model._weights(seen), *law))
    np.testing.assert_allclose(basis.T @ basis, np.eye(D + 4), atol=1e-10)
    by_group = np.einsum("k,gkj->gj", model.WEIGHTS, np.reshape(law[0], (len(seen.covariates.counts), -1, D + 4)))
    told = np.einsum("g,ga,gb->ab", seen.covariates.counts, by_group @ basis, by_group @ basis)
    np.testing.assert_allclose(told - np.diag(np.diag(told)), 0, atol=1e-8)
    assert (
        np.abs(told[: -1 - Q]).max() < 1e-8 * told.max()
    )  # of what is left z tells nothing: as means are linear in it


def drawn_parameters(rng, q):
    """mu, slopes, Omega and accuracy from the prior, by NumPy alone."""
    weight = np.exp(np.log(model.LENGTHS) - 0.5 * model.LENGTHS**2)
    lengths = rng.choice(model.LENGTHS, size=1 + q, p=weight / weight.sum())
    effects = lengths * np.array([PRIOR.average, *[PRIOR.slope] * q]) / np.sqrt(D) * rng.standard_normal((D, 1 + q))
    tau = PRIOR.spread * PRIOR.spread_factor ** rng.standard_normal() / np.sqrt(D)
    logit = lambda p: np.log(p / (1 - p))
    uneven = 1 / (1 + np.exp(-(logit(PRIOR.correlation) + 1.5 * rng.standard_normal())))
    Omega = np.diag((tau * np.exp(uneven * rng.standard_normal(D))) ** 2)
    level = logit(PRIOR.determined) + 1.5 * rng.standard_normal()
    level = level + np.abs(0.5 * rng.standard_normal()) * rng.standard_normal(D)
    spread = np.abs(0.5 * rng.standard_normal())
    errors = np.exp(PRIOR.errors * np.mean(1 / (1 + np.exp(level))) * rng.standard_normal())
    return effects[:, 0], effects[:, 1:], Omega, model.Accuracy(level, spread, errors)


def ranks(values, noise, replications, model_function, believed=lambda seen: seen):
    """Ranks of true values among posterior draws: uniform where the posterior is right."""
    rng, layout = np.random.default_rng(1), layout_of(values)
    law = Gaussian(D + 2 + values.shape[1], noise)
    truths, data = [], []
    for _ in range(replications):
        truth = drawn_parameters(rng, values.shape[1])
        v = drawn_messages(rng, layout, *truth)
        E = rng.standard_normal((law.num_features,) * 2)
        data.append(believed(as_read(v.T @ v + noise * (E + E.T) / np.sqrt(2), law, layout)))
        truths.append(truth)
    drawn, _ = chain_for_each(
        kernel(model_function, _ACCEPTANCE), data, start=lambda seen: start_of(seen, "diagonal"), warmup=150, draws=19,
        thin=effort(8, 20),
    )  # fmt: skip
    mu, slopes, Omega = (np.array([truth[k] for truth in truths]) for k in range(3))
    level = np.array([truth[3].level for truth in truths])
    pairs = {
        "mu": (drawn["mu"][..., 0], mu[:, 0]),
        "slope": (drawn["slopes"][..., 0, 0], slopes[:, 0, 0]),
        "length of slopes": (np.linalg.norm(drawn["slopes"], axis=(-2, -1)), np.linalg.norm(slopes, axis=(-2, -1))),
        "size": (np.trace(drawn["Omega"], axis1=-2, axis2=-1), np.trace(Omega, axis1=-2, axis2=-1)),
        "accuracy": (drawn["determined"].mean(axis=-1), level.mean(axis=-1)),
    }
    return {name: (of_draws < true[:, None]).sum(axis=1) for name, (of_draws, true) in pairs.items()}


FOUR = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])[np.arange(28) % 4]


@pytest.mark.parametrize(
    ("values", "noise"),
    [
        (LAWS["two groups"], 1.0),
        pytest.param(FOUR, 1.0, marks=pytest.mark.evidence),
        pytest.param(FOUR, 0.1, marks=pytest.mark.evidence),
        pytest.param(LAWS["many values"], 1.0, marks=pytest.mark.evidence),
    ],
    ids=["two groups", "two covariates", "little noise", "many values"],
)
def test_posterior_is_calibrated_on_simulated_tasks(values, noise):
    ranks_by_name = ranks(values, noise, effort(30, 400), model.model_of("diagonal"))
    assert min(uniformity(rank) for rank in ranks_by_name.values()) > 1e-3


@pytest.mark.evidence
def test_calibration_catches_slopes_without_their_jacobian(monkeypatch):
    def slopes(covariates, prior, p):
        transformed = of_model(covariates, prior, p)
        numpyro.factor("no Jacobian", transformed.shape[1] * jnp.log(p).sum())
        return transformed

    of_model = model._slopes
    monkeypatch.setattr(model, "_slopes", slopes)
    ranks_by_name = ranks(FOUR, 1.0, effort(40, 200), lambda release: model.random_effects(release, "diagonal"))
    assert min(uniformity(rank) for rank in ranks_by_name.values()) < 1e-3


def of_two_covariates(noise):
    return as_read(60 * np.eye(D + 4) / (D + 4), Gaussian(D + 4, noise), layout_of(LAWS["two covariates"]))


def test_density_is_prior_times_likelihood_times_jacobian():
    """The density over what is sampled is prior times likelihood times the Jacobian of the coordinates.

    By autodiff of where slopes are; up to a constant, hence of two places. All else is the model without slopes.
    """
    seen = of_two_covariates(1.0)
    sample = model.model_of("diagonal")
    expected = []
    ours = []
    plain = seen._replace(covariates=None, sigma=seen.sigma[:-Q, :-Q])
    for away, level in ((np.zeros((D, Q)), 0.3), (np.array([[0.4, -0.2], [0.1, 0.7]]), -0.8)):
        site = start_of(plain, "diagonal") | {"level": jnp.asarray([level])}
        of_rest, trace = log_density_of(sample, (plain,), {}, site)
        mu, Omega, *parts = (trace[name]["value"] for name in ("mu", "Omega", *ACCURACY))
        accuracy, p = model.Accuracy(*parts), jax.nn.sigmoid(parts[0])
        given = lambda x, p=p: substitute(lambda: model._slopes(seen.covariates, PRIOR, p), {"slopes_away": x})()
        slopes = given(jnp.asarray(away))
        jacobian = jax.jacobian(given)(jnp.asarray(away)).reshape(D * Q, D * Q)
        prior = sum(model.log_prior_of_average(column, PRIOR.slope) for column in slopes.T)
        likelihoods = model.log_likelihood(seen, mu, Omega, accuracy, slopes), trace["log_likelihood"]["value"]
        expected.append(of_rest + likelihoods[0] - likelihoods[1] + prior + jnp.linalg.slogdet(jacobian)[1])
        ours.append(log_density_of(sample, (seen,), {}, site | {"slopes_away": jnp.asarray(away)})[0])
    assert float(ours[1] - ours[0]) == pytest.approx(float(expected[1] - expected[0]), rel=1e-8)


def test_two_releases_have_the_same_slopes():
    """Their joint density is the first's times the second's likelihood, but for the prior of the second's accuracy."""
    first, second = of_two_covariates(1.0), of_two_covariates(2.0)
    sample, ratios = model.model_of("diagonal"), []
    for away in (np.zeros((D, Q)), np.array([[0.4, -0.2], [0.1, 0.7]])):
        alone = start_of(first, "diagonal") | {"slopes_away": jnp.asarray(away)}
        of_both, trace = log_density_of(sample, (first, (second,)), {}, start_of(first, "diagonal", [second]) | alone)
        of_first, _ = log_density_of(sample, (first,), {}, alone)
        names = ("mu", "Omega", "slopes", *(f"other_0/{name}" for name in ACCURACY))
        mu, Omega, slopes, *accuracy = (trace[name]["value"] for name in names)
        likelihood = model.log_likelihood(second, mu, Omega, model.Accuracy(*accuracy), slopes)
        ratios.append(float(of_both - of_first - likelihood))
    assert ratios[0] == pytest.approx(ratios[1], abs=1e-8)


def test_a_message_ends_with_the_public_numbers_of_its_task():
    release_terms = mp.releases.terms(1.0, M, TASKS.features, reference=REFERENCE, covariates=TABLE)
    u = effect_messages(TASKS, release_terms.effects)
    plain = effect_messages(TASKS, EffectsLayout(("a", "b"), Reference.standard(["a", "b"])))
    np.testing.assert_array_equal(u[:-Q], plain)
    np.testing.assert_allclose(u[-1 - Q :].T, Z)
    assert release_terms.features == ("a", "b", "determined: columns", "one", "covariate: beds", "covariate: trauma")
    v = message(TASKS, release_terms)
    assert np.all(np.abs(np.linalg.norm(v, axis=0) - 1) < 5e-3)
    X, y = TASKS.rows_of(7)
    np.testing.assert_array_equal(message(tasks_of([X], [y], NAMES[7:8]), release_terms)[:, 0], v[:, 7])


@pytest.mark.filterwarnings("ignore:tasks")
def test_a_task_that_knows_nothing_sends_its_public_numbers():
    X, y = rows()
    X[3], y[3] = 0 * X[3], 0 * y[3]
    X[4] = 1e80 * X[4]
    tiny = Reference({"a": (0, 1e-90), "b": (0, 1)}, covariates=DECLARED)
    layout = mp.ReleaseSpec(1.0, reference=tiny, covariates=TABLE).layout(["a", "b"])
    u = effect_messages(tasks_of(X, y), layout)
    for silent in (3, 4):
        np.testing.assert_array_equal(u[: -1 - Q, silent], 0)
        np.testing.assert_allclose(u[-1 - Q :, silent], Z[silent])


@pytest.mark.parametrize("change", [lambda X, y: (X[:1], y[:1]), lambda X, y: (1e140 * X, y), lambda X, y: (X, 0 * y)])
@pytest.mark.filterwarnings("ignore:tasks")
def test_neighbours_differ_in_one_message_alone(change):
    """Data sets that differ in one task differ in that task's message and in nothing that is public."""
    X, y = rows()
    X2, y2 = list(X), list(y)
    X2[2], y2[2] = change(X[2], y[2])
    order = [5, 2, *(i for i in range(M) if i not in (5, 2))]  # which task's rows come first is private too
    before = tasks_of(X, y)
    after = tasks_of([X2[i] for i in order], [y2[i] for i in order], [NAMES[i] for i in order])
    releases = [mp.release(data, 1.0, reference=REFERENCE, covariates=TABLE, unsafe_seed=0) for data in (before, after)]
    public = [str(dataclasses.asdict(each) | {"sigma": None}) for each in releases]
    assert public[0] == public[1]
    sent = [effect_messages(data, releases[0].effects) for data in (before, after)]
    np.testing.assert_array_equal(np.delete(sent[0][:, order], 1, axis=1), np.delete(sent[1], 1, axis=1))


def test_files_hold_the_public_numbers(tmp_path):
    release = mp.release(TASKS, 1.0, reference=REFERENCE, covariates=TABLE)
    release.save(tmp_path / "release.nc")
    loaded = mp.Release.load(tmp_path / "release.nc")
    assert loaded.effects == release.effects
    assert loaded.guarantee.proved == release.guarantee.proved
    np.testing.assert_allclose(loaded.effects.covariates.of(["H03"]), [[BEDS[3], TRAUMA[3]]])
    assert Reference.from_dict(REFERENCE.to_dict()) == REFERENCE
    assert "of tasks beds 300 +- 200" in repr(REFERENCE)
    assert "the names of the tasks and their covariates (beds, trauma), which are public" in release.explain()


def test_shards_send_the_same_messages(tmp_path):
    frame = TASKS.to_pandas()
    for number, part in enumerate((NAMES[:25], NAMES[25:])):
        frame[frame["task"].isin(part)].to_parquet(tmp_path / f"{number}.parquet")
    shards = mp.TaskShards.from_parquet(tmp_path, task="task", target="y", progress_bar=False)
    whole = TaskData.from_pandas(frame, task="task", target="y")
    options = {"reference": REFERENCE, "covariates": TABLE, "unsafe_seed": 0}
    assert np.array_equal(*(mp.release(data, 1.0, **options).sigma for data in (shards, whole)))


NO_COVARIATES = Reference({"a": (0, 1), "b": (0, 1)})
REFUSED = {
    "no table": ({"reference": REFERENCE}, "covariates: expected public values of .'beds', 'trauma'. for every task"),
    "not declared": ({"reference": NO_COVARIATES, "covariates": TABLE}, "expected reference values that declare"),
    "directions": ({"covariates": TABLE}, "expected reference values that declare"),
    "own units": ({"message": "effects", "covariates": TABLE}, "expected reference values that declare"),
    "a task less": ({"reference": REFERENCE, "covariates": TABLE.drop("H03")}, "a row for every task.*none for 'H03'"),
    "a task twice": ({"reference": REFERENCE, "covariates": pd.concat([TABLE, TABLE[:1]])}, "got 'H00' twice"),
    "a column less": ({"reference": REFERENCE, "covariates": TABLE[["beds"]]}, "expected a column 'trauma'"),
    "not finite": ({"reference": REFERENCE, "covariates": TABLE.replace(BEDS[2], np.nan)}, "nan as 'beds' of 'H02'"),
    "constant": (
        {"reference": REFERENCE, "covariates": TABLE.assign(beds=7)},
        "expected 'beds' to differ between tasks",
    ),
    "one of another": (
        {"reference": REFERENCE, "covariates": TABLE.assign(beds=TRAUMA * 9 + 2)},
        "to follow from the others",
    ),
    "other units": ({"reference": REFERENCE, "covariates": TABLE.assign(beds=BEDS * 1000)}, "within 20 scales"),
    "beyond double precision": (
        {
            "reference": Reference(REFERENCE.features, covariates={"beds": (0, 1e-99)}),
            "covariates": TABLE[["beds"]] * 1e250,
        },
        "within 20 scales",
    ),
    "no table of tasks": (
        {"reference": REFERENCE, "covariates": np.ones((M, 2))},
        "a pandas data frame with a row for every",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_unreadable_covariates_are_refused_before_a_charge(kind):
    """Covariates that cannot be read are refused before anything is charged."""
    options, words = REFUSED[kind]
    ledger = mp.privacy.Ledger(epsilon=1.0, delta=0.1)
    with pytest.raises(ValueError, match=f"covariates: .*{words}|{words}"):
        mp.release(TASKS, 1.0, ledger=ledger, **options)
    assert ledger.spent.epsilon == 0


@pytest.mark.parametrize(
    ("covariates", "words"),
    [
        ({"a": (0, 1)}, "expected names that no column has, got 'a'"),
        ({"intercept": (0, 1)}, "expected names that no column has, got 'intercept'"),
        ({"beds": (0, 0)}, "'beds': expected a centre and a positive scale"),
        (["beds"], "expected a mapping from every covariate"),
    ],
)
def test_a_reference_refuses_covariates_that_cannot_be(covariates, words):
    with pytest.raises(ValueError, match=f"covariates: .*{words}|{words}"):
        Reference({"a": (0, 1)}, covariates=covariates)


def test_what_does_not_know_covariates_says_so():
    with pytest.raises(ValueError, match="covariates: expected none of tasks at several sites"):
        invite(1.0, M, ["a", "b"], reference=REFERENCE, covariates=TABLE)
    with pytest.raises(ValueError, match="covariates: expected public values"):
        mp.evaluation.standard_fits(TASKS, [1.0], reference=REFERENCE)
    with pytest.raises(ValueError, match="covariates: expected none with a posterior of a covariance"):
        _check_shared(object.__new__(SharedPosterior), TABLE)
    with pytest.raises(ValueError, match="covariates: expected those of the 39 tasks of the release alone, got 40"):
        mp.releases.terms(1.0, M - 1, ["a", "b"], reference=REFERENCE, covariates=TABLE)


def test_groups_are_all_values_or_as_many_as_say_the_same():
    few, many = Z[:, [0, 2]], np.column_stack([np.ones(200), np.random.default_rng(0).standard_normal((200, 2))])
    assert grouped(few).counts.tolist() == [20, 20]
    np.testing.assert_array_equal(grouped(few).values[grouped(few).members], few)
    groups = grouped(many)
    assert len(groups.counts) == 32
    weighted = groups.values.T * groups.counts
    np.testing.assert_allclose(weighted @ groups.values, many.T @ many)  # the first row and column: counts and sums
    assert np.abs(groups.values[groups.members] - many).std() < 0.25


@pytest.fixture(scope="module")
def shared():
    release = mp.release(TASKS, 3.0, reference=REFERENCE, covariates=TABLE, unsafe_seed=1)
    return shared_effects(release, **SHORT)


def test_with_hardly_any_noise_slopes_are_those_of_all_rows():
    """Beside generalised least squares on the rows, where sigma and Omega are known."""
    X, y = rows(slopes=SLOPES * [0, 1])
    precision, total = 0.0, 0.0
    for x, v, z in zip(X, y, Z[:, [0, 2]], strict=True):
        known = np.linalg.inv(SIGMA**2 * np.linalg.inv(x.T @ x) + TAU**2 * np.eye(D))
        design = np.kron(z, np.eye(D))
        precision = precision + design.T @ known @ design
        total = total + design.T @ known @ np.linalg.solve(x.T @ x, x.T @ v)
    expected = np.linalg.solve(precision, total)
    error = np.sqrt(np.diag(np.linalg.inv(precision)))
    reference = Reference(REFERENCE.features, covariates={"trauma": (0.5, 0.5)})
    release = mp.release(tasks_of(X, y), 1000.0, reference=reference, covariates=TABLE, unsafe_seed=0)
    posterior = shared_effects(release, **SHORT)
    ours = pd.concat([posterior.average_effects(), posterior.covariate_slopes() * 0.5])
    assert np.all(np.abs(ours["mean"] - expected) < error)
    assert (ours["sd"] / error).between(0.6, 1.5).all()


def test_slopes_are_found_and_told_in_everyday_units(shared):
    """Slopes are found, and tables give them in the units that people use."""
    table = shared.covariate_slopes()
    assert table.index.to_list() == [(effect, name) for effect in "ab" for name in ("beds", "trauma")]
    truth = (SLOPES / [200, 0.5]).ravel()
    assert np.all(np.abs(table["mean"] - truth) < 4 * table["sd"])
    np.testing.assert_allclose(table["positive"], (shared.draws("slopes") > 0).mean(axis=0).ravel())
    assert table.loc[("a", "beds"), "positive"] > 0.8 > 0.1 > table.loc[("b", "trauma"), "positive"]
    large, small = (shared.new_task(covariates={"trauma": 1, "beds": beds})["mean"] for beds in (700, 300))
    slope = table["mean"].unstack()
    np.testing.assert_allclose(large - small, 400 * slope["beds"], atol=1e-9)
    centre = shared.new_task()["mean"]
    np.testing.assert_allclose(small - centre, 0.5 * slope["trauma"], atol=1e-9)
    with pytest.raises(
        ValueError, match=r"covariates: expected one number of each of .'beds', 'trauma'., got .'beds'."
    ):
        shared.new_task(covariates={"beds": 3})


def test_a_file_holds_the_posterior(shared, tmp_path):
    shared.save(tmp_path / "shared.nc")
    loaded = SharedEffects.load(tmp_path / "shared.nc")
    pd.testing.assert_frame_equal(loaded.covariate_slopes(), shared.covariate_slopes(), rtol=1e-5)
    assert loaded.prior == shared.prior
    assert loaded.sensitivity().index.str.contains("slopes").sum() == 4
    assert "slopes" in shared._tree["posterior"]


def test_a_prior_of_former_files_has_the_default_slope(shared):
    tree = shared.as_stored()
    tree.attrs["prior"] = tree.attrs["prior"][:5]
    assert SharedEffects.from_tree(tree).prior.slope == PRIOR.slope


def test_without_covariates_there_are_no_slopes():
    plain = shared_effects(mp.release(TASKS, 3.0, reference=NO_COVARIATES, unsafe_seed=1), **SHORT)
    with pytest.raises(ValueError, match="covariates: expected a release with covariates"):
        plain.covariate_slopes()
    with pytest.raises(ValueError, match="covariates: expected a release with covariates"):
        plain.new_task(covariates={"beds": 3})
    with pytest.raises(ValueError, match="covariates: expected none, as effects of this release"):
        task_posteriors(TASKS, plain, covariates=TABLE, leave_one_out="not_in_release")


def test_releases_with_other_covariates_are_refused(shared):
    plain = mp.release(TASKS, 3.0, reference=NO_COVARIATES)
    with pytest.raises(ValueError, match="in the same units in all releases"):
        shared_effects([shared.release, plain])
    turned = Reference(REFERENCE.features, covariates=dict(reversed(DECLARED.items())))
    with pytest.raises(ValueError, match="in the same units in all releases"):
        shared_effects([shared.release, mp.release(TASKS, 3.0, reference=turned, covariates=TABLE)])


def test_owner_without_rows_is_expected_where_its_covariates_say(shared):
    """An owner with hardly a row gets the public law of a task with its covariates.

    A row of zeros says nothing: the posterior is the public law of such a task, and a tenth of it that of a stranger.
    """
    rng = np.random.default_rng(0)
    X = [np.zeros((1, D))] * 2
    newcomers = tasks_of(X, [rng.standard_normal(1) for _ in X], ["N0", "N1"])
    table = {"N0": {"beds": 300, "trauma": 1}, "N1": {"beds": 700, "trauma": 1}}
    own = task_posteriors(newcomers, shared, leave_one_out="not_in_release", covariates=table)
    public = _Public(shared, 100)
    np.testing.assert_allclose(own.W[:, 1] - own.W[:, 0], 0.9 * 2 * public.slopes.mean(axis=0)[:, 0], rtol=1e-6)
    expected = public.mu_at(np.array([1.0, 2.0, 1.0])).mean(axis=0)
    np.testing.assert_allclose(own.W[:, 1], 0.9 * expected, rtol=1e-6)
    np.testing.assert_allclose(own.standing().loc["N1", "difference"], -0.1 * expected, atol=0.06)  # as others like it
    with pytest.raises(ValueError, match="a row for every task, by its name, got none for 'N0', 'N1'"):
        task_posteriors(newcomers, shared, leave_one_out="not_in_release")
    with pytest.raises(ValueError, match="leave_one_out='not_in_release' alone"):
        task_posteriors(TASKS, shared, covariates=TABLE)


def test_weights_of_draws_are_of_the_release_without_the_message(shared):
    """Public draws are weighted as for the release without the owner's own message.

    p(Sigma - v v' | draw) / p(Sigma | draw), of a release of the other tasks, made by hand.
    """
    public, i = _Public(shared, 300), int(np.abs(Z[:, 1]).argmax())
    log_weight, khat = public.leave_one_out(TASKS)
    assert khat.max() < 0.7
    release, v = shared.release, as_sent(TASKS, shared.release)[:, i]
    others = dataclasses.replace(
        release.effects, covariates=release.effects.covariates.among(NAMES[:i] + NAMES[i + 1 :])
    )
    rest = observed_effects(
        mp.Release(release.sigma - np.outer(v, v), release.mechanisms, M - 1, release.features,
                   mp.privacy.Guarantee(None, None, "a test"), "effects", "none", "", effects=others)
    )  # fmt: skip
    seen = observed_effects(release)
    accuracy = [shared.draws(name)[public.pick] for name in ACCURACY]
    of_draw = lambda k: (
        public.mu[k],
        public.Omega[k],
        model.Accuracy(*(part[k] for part in accuracy)),
        public.slopes[k],
    )
    density = lambda now, k: float(model.log_likelihood(now, *of_draw(k)))
    low, middle = np.argsort(log_weight[i])[[0, log_weight.shape[1] // 2]]  # the largest weights are smoothed
    ratio = [density(rest, k) - density(seen, k) for k in (low, middle)]
    assert np.isclose(log_weight[i, middle] - log_weight[i, low], ratio[1] - ratio[0], atol=1e-3)


def test_an_owner_depends_on_its_own_rows_and_on_what_is_public(shared):
    own = task_posteriors(TASKS, shared)
    X, y = rows()
    changed = task_posteriors(tasks_of(X, [v if i == 3 else -v for i, v in enumerate(y)]), shared)
    np.testing.assert_array_equal(changed.W[:, 3], own.W[:, 3])


@pytest.mark.parametrize("outcome", ["binary", pytest.param("count", marks=pytest.mark.evidence)])
def test_other_outcomes_have_covariates_by_the_same_route(outcome):
    rng = np.random.default_rng(0)
    predictor = lambda x, z: -0.5 + z * 0.6 + 0.3 * x[:, 0]
    X = [rng.standard_normal((60, 1)) for _ in range(60)]
    z = np.where(np.arange(60) % 2, 1.0, -1.0)
    eta = [predictor(x, each) for x, each in zip(X, z, strict=True)]
    y = [rng.random(60) < 1 / (1 + np.exp(-e)) if outcome == "binary" else rng.poisson(np.exp(e)) for e in eta]
    tasks = TaskData.from_lists(X, [v.astype(float) for v in y], tasks=[f"t{i}" for i in range(60)], features=["x"])
    baseline = 0.4 if outcome == "binary" else 0.6
    reference = Reference({"x": (0, 1)}, outcome=outcome, baseline=baseline, covariates={"large": (0, 1)})
    table = {f"t{i}": {"large": each} for i, each in enumerate(z)}
    fit = mp.NoiseAware(
        30.0, reference=reference, covariates=table, chains=2, warmup=150, draws=100, unsafe_seed=0, progress_bar=False
    ).fit(tasks.with_intercept())
    slopes = fit.shared.covariate_slopes()
    assert abs(slopes.loc[("intercept", "large"), "mean"] - 0.6) < 4 * slopes.loc[("intercept", "large"), "sd"] < 0.8
    assert abs(slopes.loc[("x", "large"), "mean"]) < 4 * slopes.loc[("x", "large"), "sd"]


def test_estimates_take_covariates_as_rows_do():
    X, y = rows()
    fit = lambda x, v: mp.Estimate(
        np.linalg.lstsq(x, v, rcond=None)[0], SIGMA**2 * np.linalg.inv(x.T @ x), coefficients=["a", "b"]
    )
    estimates = mp.Estimates({name: fit(x, v) for name, x, v in zip(NAMES, X, y, strict=True)})
    layout = mp.ReleaseSpec(1.0, reference=REFERENCE, covariates=TABLE).layout(["a", "b"])
    ours, of_rows = effect_messages(estimates, layout), effect_messages(TASKS, layout)
    np.testing.assert_array_equal(ours[-1 - Q :], of_rows[-1 - Q :])
    assert np.abs(ours - of_rows).max() < 0.3
    assert mp.release(estimates, 3.0, reference=REFERENCE, covariates=TABLE).effects == layout
