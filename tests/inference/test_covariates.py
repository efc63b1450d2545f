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

import mpmtl_prob as mp
from mpmtl_prob import Reference, TaskData
from mpmtl_prob.data.covariates import Covariates, grouped
from mpmtl_prob.federated import invite
from mpmtl_prob.inference import EffectsPrior, SharedEffects, observed_effects, shared_effects, task_posteriors
from mpmtl_prob.inference.owner.effects import _Public
from mpmtl_prob.inference.owner.leave_one_out import as_sent
from mpmtl_prob.inference.public.effects import _ACCEPTANCE, _start
from mpmtl_prob.models import effects as model
from mpmtl_prob.privacy.mechanisms import Gaussian
from mpmtl_prob.releases import message
from mpmtl_prob.releases.effects import EffectsLayout, effect_messages
from mpmtl_prob.sampling.calibration import chain_for_each, uniformity
from mpmtl_prob.sampling.nuts import kernel

D, M, Q = 2, 40, 2
NAMES = tuple(f"H{i:02d}" for i in range(M))
BEDS, TRAUMA = np.random.default_rng(1).normal(300, 200, M), np.arange(M) % 2
TABLE = pd.DataFrame({"beds": BEDS, "trauma": TRAUMA, "city": "x"}, index=list(NAMES))
DECLARED = {"beds": (300, 200), "trauma": (0.5, 0.5)}
REFERENCE = Reference({"a": (0, 1), "b": (0, 1)}, covariates=DECLARED)
Z = np.column_stack([np.ones(M), (BEDS - 300) / 200, 2 * TRAUMA - 1.0])
MU, SLOPES, TAU, SIGMA = np.array([0.5, -0.2]), np.array([[0.3, 0.0], [0.0, -0.2]]), 0.15, 0.5
PRIOR = EffectsPrior()


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def rows(seed=0, n=20):
    rng = np.random.default_rng(seed)
    beta = MU + Z[:, 1:] @ SLOPES.T + TAU * rng.standard_normal((M, D))
    X = [rng.standard_normal((n, D)) for _ in NAMES]
    return X, [x @ b + SIGMA * rng.standard_normal(n) for x, b in zip(X, beta, strict=True)]


def tasks_of(X, y, names=NAMES):
    return TaskData.from_lists(X, y, tasks=names, features=["a", "b"])


TASKS = tasks_of(*rows())
SHORT = {"chains": 2, "warmup": 150, "draws": 150, "progress_bar": False}


def layout_of(values, d=D):
    """The layout of tasks with these covariates (m, q), in common units already."""
    names = [f"z{j}" for j in range(values.shape[1])]
    columns = list("abcdef"[:d])
    reference = Reference(dict.fromkeys(columns, (0, 1)), covariates=dict.fromkeys(names, (0, 1)))
    table = Covariates(tuple(names), tuple(map(str, range(len(values)))), tuple(map(tuple, values.tolist())))
    return EffectsLayout(tuple(columns), reference, covariates=table)


def drawn_messages(rng, layout, mu, slopes, Omega, level, spread, many=()):
    """Messages (..., m, D) of all tasks, each scaled to length one exactly, by NumPy alone."""
    z, d = layout.z, len(mu)
    shape = (*many, len(z))
    p = 1 / (1 + np.exp(-(level + spread * rng.standard_normal((*shape, 1)))))
    beta = mu + z[:, 1:] @ slopes.T + rng.standard_normal((*shape, d)) @ np.linalg.cholesky(Omega).T
    eta = p * beta + np.sqrt(layout.effect_variance * p * (1 - p)) * rng.standard_normal((*shape, d))
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


@pytest.mark.parametrize("values", LAWS)
def test_law_of_the_sum_is_that_of_simulated_tasks(values):
    """Mean, and the log density up to what the first order of scaling leaves, beside sums of which all moments are simulated."""
    rng, layout = np.random.default_rng(0), layout_of(LAWS[values])
    z, q = layout.z, layout.z.shape[1] - 1
    mu, slopes, Omega = np.array([0.5, -0.2]), np.array([[0.3, 0.1], [-0.1, 0.25]])[:, :q], np.array([[0.08, 0.03], [0.03, 0.05]])
    level, spread = np.array([1.5, 0.7]), 0.4
    v = drawn_messages(rng, layout, mu, slopes, Omega, level, spread, (effort(4000, 20_000),))
    A, noise = np.einsum("rmi,rmj->rij", v, v), 1.0
    seen = as_read(A[0], Gaussian(A.shape[1], noise), layout)
    accuracy = model.Accuracy(jnp.asarray(level), jnp.asarray(spread))
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
    assert np.std(np.array(ours) - np.array(exact)) < np.std(exact) / 3


def drawn_parameters(rng, q):
    """mu, slopes, Omega and accuracy from the prior, by NumPy alone."""
    weight = np.exp(np.log(model._LENGTHS) - 0.5 * model._LENGTHS**2)
    lengths = rng.choice(model._LENGTHS, size=1 + q, p=weight / weight.sum())
    effects = lengths * np.array([PRIOR.average, *[PRIOR.slope] * q]) / np.sqrt(D) * rng.standard_normal((D, 1 + q))
    tau = PRIOR.spread * PRIOR.spread_factor ** rng.standard_normal() / np.sqrt(D)
    logit = lambda p: np.log(p / (1 - p))
    uneven = 1 / (1 + np.exp(-(logit(PRIOR.correlation) + 1.5 * rng.standard_normal())))
    Omega = np.diag((tau * np.exp(uneven * rng.standard_normal(D))) ** 2)
    level = logit(PRIOR.determined) + 1.5 * rng.standard_normal()
    level = level + np.abs(0.5 * rng.standard_normal()) * rng.standard_normal(D)
    return effects[:, 0], effects[:, 1:], Omega, level, np.abs(0.5 * rng.standard_normal())


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
        kernel(model_function, _ACCEPTANCE), data, start=lambda seen: _start(seen, "diagonal"), warmup=150, draws=19,
        thin=effort(8, 20),
    )  # fmt: skip
    mu, slopes, Omega, level, _ = (np.array(part) for part in zip(*truths, strict=True))
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
        (FOUR, 1.0),
        pytest.param(FOUR, 0.1, marks=pytest.mark.evidence),
        pytest.param(LAWS["many values"], 1.0, marks=pytest.mark.evidence),
    ],
    ids=["four groups", "little noise", "many values"],
)
def test_posterior_is_calibrated_on_simulated_tasks(values, noise):
    found = ranks(values, noise, effort(40, 400), model.model_of("diagonal"))
    assert min(uniformity(rank) for rank in found.values()) > 1e-3


def test_calibration_catches_slopes_without_their_jacobian(monkeypatch):
    def slopes(covariates, prior, p):
        found = of_model(covariates, prior, p)
        numpyro.factor("no Jacobian", found.shape[1] * jnp.log(p).sum())
        return found

    of_model = model._slopes
    monkeypatch.setattr(model, "_slopes", slopes)
    found = ranks(FOUR, 1.0, effort(60, 200), lambda release: model.random_effects(release, "diagonal"))
    assert min(uniformity(rank) for rank in found.values()) < 1e-3
