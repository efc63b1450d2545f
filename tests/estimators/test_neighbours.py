"""Two data sets that differ in one task: whatever did not pass the noisy door is equal bit for bit, or nothing is proved."""

import dataclasses
import hashlib
from functools import partial

import jax
import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import TaskData, estimators
from mpmtl_prob.convex.losses import LogisticTable
from mpmtl_prob.estimators import (
    DPMTRL,
    L1,
    MPMTL,
    MTRL,
    DPAggr,
    FrankWolfe,
    GroupLasso,
    GroupSparse,
    Lasso,
    LeastSquares,
    LocalGradientDescent,
    Logistic,
    LowRank,
    LowRankPlusSparse,
    LowRankSparse,
    MultiTask,
    Noise,
    Proximal,
    Ridge,
    RidgeLogistic,
    RowProtection,
    TaskRelations,
    TraceNorm,
)
from mpmtl_prob.estimators.framework import clip_columns, first_round
from mpmtl_prob.estimators.plan import Plan
from mpmtl_prob.inference import NoiseAware
from mpmtl_prob.inference.owner import methods
from mpmtl_prob.inference.owner.answers import posterior_draws
from mpmtl_prob.single_task.conjugate import gaussian_posteriors
from mpmtl_prob.single_task.posterior_means import posterior_means

CHANGED = 2
ROWS = (6, 9, 5, 3, 11, 7)


def make(binary, rows=ROWS, d=3):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, d)) * np.geomspace(0.3, 2, d) for n in rows]
    y = [x @ rng.standard_normal(d) + 0.5 * rng.standard_normal(len(x)) for x in X]
    return X, [np.where(v > 0, 1.0, -1.0) for v in y] if binary else y


def other_targets(X, y):
    return X, -y[::-1]


CHANGES = {
    "more rows": lambda X, y: (np.tile(X, (2, 1)) + 0.1, np.tile(y, 2)),
    "many more rows, and more padding": lambda X, y: (np.tile(X, (20, 1)) * 1.01, np.tile(y, 20)),
    "one row": lambda X, y: (X[:1], y[:1]),
    "rows x 10": lambda X, y: (10 * X, y),
    "rows x 1e150": lambda X, y: (X / np.abs(X).max() * 1e150, y),
    "other targets": other_targets,
    "duplicated rows": lambda X, y: (np.repeat(X[:1], len(X), axis=0), np.repeat(y[:1], len(y))),
    "a constant column": lambda X, y: (np.column_stack([X[:, :-1], np.ones(len(X))]), y),
    "rows that say nothing": lambda X, y: (0 * X, y),
}


def pair(change, binary=False, changed=CHANGED, **shape):
    """A data set, and one in which a task is another."""
    X, y = make(binary, **shape)
    one = TaskData.from_lists(X, y)
    X[changed], y[changed] = CHANGES[change](X[changed], y[changed])
    return one, TaskData.from_lists(X, y)


def bits(tree):
    """Every array and number of a pytree, as bytes: -0 is not 0 here, and nan is nan."""
    return [(np.shape(leaf), np.asarray(leaf).tobytes()) for leaf in jax.tree.leaves(tree)]


def rest(W, axis=-1):
    """All tasks but the changed one."""
    return np.delete(np.asarray(W), CHANGED, axis=axis)


def same(one, other):
    assert bits(one) == bits(other)


def nothing_is_shared(estimator, one, other):
    """Check that every other task gets a function of its own rows alone."""
    fits = [estimator.fit(tasks) for tasks in (one, other)]
    for fit in fits:
        assert fit.guarantee.proved == mp.privacy.guarantee.NOTHING_SHARED.proved
        assert fit.release is None
    same(*(rest(fit.W) for fit in fits))
    same(*({name: rest(value) for name, value in fit.history.items()} for fit in fits))


def nothing_is_proved(estimator, one, other):
    for tasks in (one, other):
        fit = estimator.fit(tasks)
        assert fit.guarantee.proved is None
        assert fit.row_guarantee is None or fit.row_guarantee.proved is None


@partial(jax.jit, static_argnums=0)
def step(sharing, carry, t, run, published):
    """Return the messages of a round, and the state after it."""
    sent = clip_columns(carry.W, run.clip)
    history = carry.history.at[t].set(published[t])
    own = jax.numpy.where(run.unclipped, carry.W, sent)
    W, _, state = sharing.update(sharing.mapping(history, t, run), own, carry.state, t, run)
    return sent, carry._replace(W=W, state=state, history=history)


def messages(estimator, tasks):
    """Return what the owners of a run send in every round, given the same noise, and everything that the plan lets see."""
    plan: Plan = estimator.plan(tasks)
    size, T, m = plan.size, estimator.rounds, tasks.num_tasks
    rng = np.random.default_rng(1)
    half = rng.standard_normal((T, size, size + 2))
    noise = Noise(half @ np.swapaxes(half, 1, 2), rng.standard_normal((T, size, m)) if plan.row_mechanisms else None)
    with jax.enable_x64(True):  # the releases of both runs are the same, so that what owners do next is theirs alone
        run, W0, noise = jax.tree.map(jax.numpy.asarray, (plan.run, plan.W0, noise))
        carry, sent = first_round(estimator.sharing, run, W0, noise), []
        for t in range(T):
            W, carry = step(estimator.sharing, carry, t, run, noise.moment)
            sent.append(rest(W))
    public = {name: getattr(plan.run, name) for name in ("threshold", "beta", "clip", "offset")}
    laws = [dataclasses.asdict(law) for law in (*plan.mechanisms, *plan.row_mechanisms)]
    return sent, public, laws, plan.size, rest(plan.run.step_size)


def all_but_what_passed_the_door(estimator, one, other):
    """Laws, schedules, thresholds, and in every round the messages of all other tasks."""
    same(*(messages(estimator, tasks) for tasks in (one, other)))
    fits = [estimator.fit(tasks) for tasks in (one, other)]
    assert fits[0].guarantee == fits[1].guarantee
    proved = fits[0].guarantee.proved
    assert proved.delta == mp.privacy.compute_delta(proved.epsilon, fits[0].release.mechanisms, proved.adjacency)
    assert fits[0].row_guarantee == fits[1].row_guarantee
    labels = [fit.release.to_xarray().attrs for fit in fits]  # all but Sigma
    assert labels[0] == labels[1]


def an_average(estimator, one, other):
    """DP-AGGR: the law of the noise, and the models of all others."""
    fits = [estimator.fit(tasks) for tasks in (one, other)]
    same(*(rest(fit.history["local"]) for fit in fits))
    assert fits[0].guarantee == fits[1].guarantee
    proved = fits[0].guarantee.proved
    assert proved.delta == mp.privacy.compute_delta(proved.epsilon, fits[0].guarantee.mechanisms, proved.adjacency)


PUBLIC = {"rounds": 3, "clip": 1.0, "curvature": 40.0}
STRONG = LeastSquares(strong_convexity=0.5)
#: how every public estimator is tried: its name -> [(estimator, what must hold, whether targets are labels)]
TRIED = {
    "Ridge": [(Ridge(), nothing_is_shared, False), (Ridge(0.3), nothing_is_shared, False),
              (Ridge(0), nothing_is_shared, False)],
    "Lasso": [(Lasso(0.3), nothing_is_shared, False), (Lasso(0.3, Logistic()), nothing_is_shared, True)],
    "RidgeLogistic": [(RidgeLogistic(0.3), nothing_is_shared, True), (RidgeLogistic(), nothing_is_shared, True)],
    "LocalGradientDescent": [
        (LocalGradientDescent(rounds=3), nothing_is_shared, False),
        (LocalGradientDescent(rounds=3, start="zero", loss=Logistic()), nothing_is_shared, True),
        (
            LocalGradientDescent(rounds=3, loss=STRONG, acceleration="strongly_convex", curvature=40.0),
            nothing_is_shared,
            False,
        ),
        (LocalGradientDescent(rounds=3, loss=STRONG), nothing_is_proved, False),
        (LocalGradientDescent(rounds=3, step_size=None), nothing_is_proved, False),
        (LocalGradientDescent(rounds=3, start=MultiTask(TraceNorm(), 0.1)), nothing_is_proved, False),
    ],
    "LowRank": [
        (LowRank(0.5, **PUBLIC), all_but_what_passed_the_door, False),
        (LowRank(0.5, **PUBLIC, loss=STRONG, mechanism="calibrated"), all_but_what_passed_the_door, False),
        (LowRank(0.5, **PUBLIC, mechanism="gaussian"), all_but_what_passed_the_door, False),
        (LowRank(0.5, **PUBLIC | {"clip": 0.2}, mechanism="paper_2018", unclipped=True), all_but_what_passed_the_door, False),
        (LowRank(0.5, **PUBLIC, loss=STRONG, step_size="per_task"), all_but_what_passed_the_door, False),
        (LowRank(0.5, 1.0, 3, 1.0, loss=STRONG, step_size=0.02), all_but_what_passed_the_door, False),
        (LowRank(0.5, **PUBLIC, loss=Logistic(0.5), start="zero"), all_but_what_passed_the_door, True),
        (LowRank(0.5, **PUBLIC, rows=RowProtection(1.0, 1e-3)), all_but_what_passed_the_door, False),
        (LowRank(0.5, rounds=3, clip=1.0), nothing_is_proved, False),
        (LowRank(0.5, rounds=3, clip=1.0, step_size="per_task"), nothing_is_proved, False),
        (LowRank(0.5, rounds=3, clip=1.0, rows=RowProtection(1.0)), nothing_is_proved, False),
        (LowRank(0.5, **PUBLIC, start=MultiTask(TraceNorm(), 0.1)), nothing_is_proved, False),
    ],
    "GroupSparse": [(GroupSparse(0.5, **PUBLIC), all_but_what_passed_the_door, False)],
    "LowRankSparse": [(LowRankSparse((0.5, 0.2), **PUBLIC), all_but_what_passed_the_door, False)],
    "FrankWolfe": [
        (FrankWolfe(radius=2.0, rounds=3, clip=1.0), all_but_what_passed_the_door, False),
        (FrankWolfe(radius=2.0, rounds=3, clip=1.0, mechanism="gaussian"), all_but_what_passed_the_door, False),
        (FrankWolfe(radius=2.0, rounds=3, clip=1.0, loss=Logistic(0.5)), all_but_what_passed_the_door, True),
    ],
    "MPMTL": [
        (MPMTL(Proximal(GroupLasso()), 0.5, **PUBLIC), all_but_what_passed_the_door, False),
        (MPMTL(TaskRelations(), 0.5, **PUBLIC), nothing_is_proved, False),
    ],
    "DPAggr": [
        (DPAggr(0.5, target_bound=3.0, rows=(2, 12)), an_average, False),
        (DPAggr(0.5, target_bound=3.0, rows=(2, 12), noise="tight"), an_average, False),
        (DPAggr(0.5, loss=Logistic(), rows=(2, 12)), an_average, True),
        (DPAggr(0.5, target_bound=3.0), nothing_is_proved, False),
        (DPAggr(0.5, rows=(2, 12)), nothing_is_proved, False),
    ],
    "DPMTRL": [(DPMTRL(0.1, 0.1), nothing_is_proved, False)],
    "MultiTask": [(MultiTask(TraceNorm(), 0.5), nothing_is_proved, False),
                  (MultiTask(L1(), 0.5), nothing_is_proved, False)],
    "LowRankPlusSparse": [(LowRankPlusSparse((0.5, 0.2)), nothing_is_proved, False)],
    "MTRL": [(MTRL(0.1, 0.1), nothing_is_proved, False)],
}  # fmt: skip
#: Longer rows of labels compile every program anew: these have the solver that Lasso has, or the rounds of LowRank.
LIKE_OTHERS = {"RidgeLogistic", "LocalGradientDescent"}
CASES = [
    pytest.param(
        *(estimator, holds, binary, change),
        id=f"{name} {i}, {change}",
        marks=[pytest.mark.evidence] if binary and name in LIKE_OTHERS and "padding" in change else [],
    )
    for name, cases in TRIED.items()
    for i, (estimator, holds, binary) in enumerate(cases)
    for change in (["more rows"] if holds is nothing_is_proved else CHANGES)
]


def test_every_public_estimator_is_tried():
    public = {name for name in estimators.__all__ if hasattr(getattr(estimators, name), "fit")}
    assert public == set(TRIED)


@pytest.mark.parametrize(("estimator", "holds", "binary", "change"), CASES)
@pytest.mark.filterwarnings("ignore::mpmtl_prob.estimators.ConvergenceWarning")
def test_unpublished_values_are_equal_bit_for_bit_or_unproved(estimator, holds, binary, change):
    """Whatever was not published with noise is equal bit for bit, or nothing is proved."""
    holds(estimator, *pair(change, binary))


@pytest.mark.parametrize("estimator", [
    Lasso(0.3, Logistic()),
    RidgeLogistic(0.3),
    LocalGradientDescent(rounds=3, start="zero", loss=Logistic()),
    LowRank(0.5, **PUBLIC, loss=Logistic(0.5), start="zero"),
], ids=lambda estimator: estimator.name if isinstance(estimator, MPMTL) else type(estimator).__name__)  # fmt: skip
@pytest.mark.filterwarnings("ignore::mpmtl_prob.estimators.ConvergenceWarning")
def test_so_it_is_where_tasks_share_subjects(estimator, monkeypatch):
    rng = np.random.default_rng(0)
    X, Y, observed = rng.standard_normal((12, 3)), np.sign(rng.standard_normal((12, 6))), rng.random((12, 6)) < 0.8
    observed[:2] = np.arange(6) == CHANGED  # whom other tasks do not know
    fewer, labels = observed.copy(), Y.copy()
    fewer[:2, CHANGED], labels[:, CHANGED] = False, -Y[:, CHANGED]
    one, other = TaskData.from_targets(X, Y, observed), TaskData.from_targets(X, labels, fewer)
    for tasks in (one, other):
        assert isinstance(Logistic().of(tasks), LogisticTable)
    # through which a task could change the sums of another, in a last bit that may or may not show
    monkeypatch.setattr("mpmtl_prob.convex.losses.LogisticTable", None)
    holds = all_but_what_passed_the_door if isinstance(estimator, LowRank) else nothing_is_shared
    holds(estimator, one, other)


@pytest.mark.parametrize("d", [4, 13])
@pytest.mark.parametrize("scaling", ["pareto", "unit_variance", "none"])
@pytest.mark.parametrize("change", CHANGES)
def test_other_tasks_first_messages_are_equal_bit_for_bit(change, scaling, d):
    both = [posterior_means(tasks, scaling=scaling) for tasks in pair(change, d=d)]
    same(*((rest(means.scaled), rest(means.scale, 0)) for means in both))
    assert all(np.isfinite(means.scaled).all() for means in both)


@pytest.fixture(scope="module")
def public():
    X, y = make(False)
    release = mp.release(TaskData.from_lists(X, y), epsilon=3.0, unsafe_seed=0)
    return mp.inference.shared_covariance(release, chains=2, warmup=200, draws=50, progress_bar=False)


@pytest.mark.parametrize("kind", ["gaussian", "student_t", "bernoulli"])
@pytest.mark.parametrize("change", CHANGES)
def test_other_tasks_later_messages_are_equal_bit_for_bit(public, monkeypatch, change, kind):
    monkeypatch.setattr("mpmtl_prob.inference.owner.answers.shared_covariance", lambda *_, **__: public)
    both = [posterior_draws(tasks, 0, kind)(public.release) for tasks in pair(change, kind == "bernoulli")]
    same(*map(rest, both))
    assert all(np.isfinite(messages).all() for messages in both)
    assert bits(both[0]) != bits(both[1])


@pytest.mark.filterwarnings("error")
def test_a_later_message_warns_nobody_of_one_tasks_rows(public, monkeypatch):
    """Whoever runs the rounds would learn from a warning that somebody's features are tiny."""
    monkeypatch.setattr("mpmtl_prob.inference.owner.answers.shared_covariance", lambda *_, **__: public)
    X, y = make(binary=True)
    X[CHANGED] = X[CHANGED] * 1e-160
    release = dataclasses.replace(public.release, scaling="none")
    assert np.isfinite(posterior_draws(TaskData.from_lists(X, y), 0, "bernoulli")(release)).all()


def instead_of_a_chain(model, *given, chains, draws, **options):
    """Make draws of the joint models that change as soon as a bit of what the chain would be given does."""
    rng = np.random.default_rng(list(hashlib.sha256(repr((model.__name__, bits((given, options)))).encode()).digest()))
    sampled = {"w": rng.standard_normal((chains, draws, 3)), "sigma": rng.random((chains, draws))}
    return sampled | {"log_snr": rng.random((chains, draws))}, {"diverging": np.zeros((chains, draws), dtype=bool)}


@pytest.mark.parametrize("kind", ["gaussian", "student_t", "bernoulli"])
@pytest.mark.parametrize("method", ["plug_in", "mixture", "joint"])
def test_other_tasks_posteriors_are_equal_bit_for_bit(public, monkeypatch, method, kind):
    monkeypatch.setattr(methods, "run_nuts", instead_of_a_chain)
    few = pair("many more rows, and more padding", kind == "bernoulli", rows=ROWS[:4])
    options = {"method": method, "likelihood": kind, "chains": 1, "draws": 5, "progress_bar": False}
    both = [mp.inference.task_posteriors(tasks, public, **options).to_arviz()["posterior"] for tasks in few]
    same(*({name: rest(draws) for name, draws in each.data_vars.items()} for each in both))
    assert all(np.isfinite(each["W"]).all() for each in both)
    assert bits(dict(both[0].data_vars)) != bits(dict(both[1].data_vars))


@pytest.mark.parametrize("change", ["more rows", "one row"])
def test_other_tasks_draws_are_equal_whatever_their_number(change):
    """Other tasks' draws are equal bit for bit, however many are drawn."""
    # a stream that tasks shared would go out of step, sooner or later, where a gamma variable is drawn again
    both = [gaussian_posteriors(tasks.gram).sample(np.random.default_rng(0), 300) for tasks in pair(change)]
    same(*({name: rest(draws) for name, draws in each.items()} for each in both))


def test_a_release_says_nothing_else_of_a_task():
    releases = [mp.release(tasks, epsilon=1.0) for tasks in pair("many more rows, and more padding")]
    assert releases[0].guarantee == releases[1].guarantee
    assert releases[0].to_xarray().attrs == releases[1].to_xarray().attrs


def test_a_ledger_never_pays_for_an_unproved_run():
    """A ledger never pays for a run of which nothing is proved."""
    tasks, _ = pair("one row")
    for options in (
        {"ledger": mp.privacy.Ledger(epsilon=9.0, delta=0.9)},
        {"rows": RowProtection(1.0, ledger=mp.privacy.Ledger(epsilon=9.0, delta=0.9, unit="row"))},
    ):
        with pytest.raises(ValueError, match="ledger: expected none, as nothing is proved of this run"):
            LowRank(0.5, rounds=3, clip=1.0, mechanism="calibrated", **options).fit(tasks)
        ledger = options.get("ledger") or options["rows"].ledger
        assert ledger.charges() == []


def test_noise_aware_proves_what_its_release_does():
    tasks, _ = pair("more rows")
    fit = NoiseAware(1.0, chains=2, warmup=200, draws=50).fit(tasks)
    release = fit.shared.release
    assert fit.guarantee == release.guarantee
    assert fit.guarantee.proved.epsilon == 1.0
    assert fit.guarantee.proved.delta == mp.privacy.compute_delta(1.0, release.mechanisms)
