"""Nothing that is private stands in what objects show of themselves: all public estimators, kernels and results.

Private numbers are made so large that nothing public is: every number of their size in a text is looked up among them.
"""

import inspect
import logging
import pickle
import re
from dataclasses import dataclass

import jax
import numpy as np
import pandas as pd
import pytest

import mpmtl_prob as mp
from mpmtl_prob import TaskData, adaptation, estimators, evaluation, inference
from mpmtl_prob.convex import penalties
from mpmtl_prob.inference.curator.private import Rounds, RoundState
from mpmtl_prob.inference.owner import methods
from mpmtl_prob.models import penalised
from mpmtl_prob.privacy import lattice
from mpmtl_prob.single_task import posterior_means as evidence

D, M, ROWS = 3, 6, 9
rng = np.random.default_rng(7)
X = rng.standard_normal((M, ROWS, D)) * 77_712.345
W = rng.standard_normal((D, M)) * 44_417.264
Y = np.einsum("tnj,jt->tn", X, W) + rng.standard_normal((M, ROWS)) * 5.5518293e8
DATA = TaskData.from_lists(list(X), list(Y))

#: Settings, protocols and penalties, and what is the public's in every number.
WITHOUT_ROWS = {
    "Carry", "Noise", "Run",  # below, by name
    "ConvergenceWarning", "Interrupted", "SharingRule", "ReleaseSpec", "Structure", "Likelihood", "NormalErrors", "SnrPrior",
    "Reference", "Schema", "EffectsPrior", "StudyPlan",
    "LeastSquares", "Logistic", "ConditionalGradient", "Proximal", "ProximalSum", "TaskRelations", "RowProtection",
    *(name for name, kind in vars(penalties).items() if inspect.isclass(kind)),
    "Diagnosis", "Information", "Membership", "FirstLook", "Until", "ReleaseComparison", "ProximalLangevin", "Comparison",
}  # fmt: skip


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """An instance of everything that has seen rows, by the name of its class."""
    options = {"penalty": 1.0, "epsilon": 1.0, "clip": 1e6, "rounds": 3, "curvature": 1e12}
    by_name = {kind.__name__: kind(**options, start=W) for kind in (estimators.LowRank, estimators.GroupSparse)}
    by_name["MPMTL"] = estimators.MPMTL(estimators.Proximal(estimators.TraceNorm()), **options, start=W)
    by_name["LowRankSparse"] = estimators.LowRankSparse(**options | {"penalty": (1.0, 1.0)}, start=W)
    by_name["LocalGradientDescent"] = estimators.LocalGradientDescent(rounds=1, start=W, step_size=abs(W[0]))
    by_name["FrankWolfe"] = estimators.FrankWolfe(1.0, radius=1.0, rounds=3, clip=1e6)
    for kind in (estimators.DPAggr, estimators.RidgeLogistic, estimators.Ridge, estimators.Lasso):
        by_name[kind.__name__] = kind(1.0)
    by_name |= {"DPMTRL": estimators.DPMTRL(1.0, 1.0), "MTRL": estimators.MTRL(1.0, 1.0)}
    by_name["MultiTask"] = estimators.MultiTask(estimators.TraceNorm(), 1.0)
    by_name["LowRankPlusSparse"] = estimators.LowRankPlusSparse((1.0, 1.0))

    plan = by_name["LowRank"].plan(DATA)
    noise = estimators.Noise(np.multiply.outer(np.ones(3), W @ W.T))
    rounds = Rounds(plan.run, plan.W0, noise, 1.0)
    kernel = inference.MPMTLKernel(by_name["LowRank"].sharing, rounds)
    state = kernel.init(jax.random.key(0), 0, None, (), {})
    by_name |= {
        "plan": plan,
        "Run": plan.run,
        "Noise": noise,
        "Carry": state.carry,
        "RoundState": state,
        "Rounds": rounds,
    }
    by_name |= {"Rows": by_name["LowRank"].bind(DATA), "MPMTLKernel": kernel, "Gram": DATA.gram}
    by_name |= {"Observed": penalised.observe(penalised.low_rank, DATA), "Means": evidence.posterior_means(DATA)}

    release = mp.release(DATA, epsilon=1.0)
    shared = inference.shared_covariance(release, chains=2, warmup=200, draws=20, progress_bar=False)
    own = inference.task_posteriors(DATA, shared, draws=20)
    reference = mp.Reference(dict.fromkeys(range(D), (0, 8e4)), target=(0, 8e9))
    effects = inference.shared_effects(
        mp.release(DATA, 1.0, reference=reference), chains=2, warmup=200, draws=20, progress_bar=False
    )
    own_estimates = mp.Estimates([mp.Estimate(w, 1e9 * (np.eye(D) + 0.1 * np.outer(x, x) / (x @ x)))
                                  for w, x in zip(W.T, X[:, 0], strict=True)])  # fmt: skip
    by_name |= {"Estimates": own_estimates, "Estimate": own_estimates.estimates[0]}
    joined = inference.task_posteriors(own_estimates, effects, draws=20)
    by_name["OwnerEffects of estimates"] = joined
    fitted = by_name["LowRank"].fit(DATA)
    posterior = inference.private_langevin(by_name["LowRank"], DATA, progress_bar=False)
    grid = [by_name["LowRank"], estimators.LowRank(**options, start=2 * W)]
    by_name["Results"] = methods.Results(own.W, {"W": np.array([own.W])})
    results = (
        DATA,
        release,
        shared,
        own,
        effects,
        inference.task_posteriors(DATA, effects, draws=20),
        fitted,
        posterior,
        own.predict(DATA),
        own.subspace(2),
    )
    by_name |= {type(each).__name__: each for each in results}
    folder = tmp_path_factory.mktemp("rows")
    DATA.to_pandas().rename(columns=str).to_parquet(folder / "part.parquet")
    by_name["NoiseAware"] = inference.NoiseAware()
    by_name["TaskShards"] = mp.TaskShards.from_parquet(folder, task="task", target="y")
    by_name["Selection"] = evaluation.cross_validate(grid, DATA, folds=2, progress_bar=False)
    return by_name


@pytest.fixture(scope="module")
def secrets(objects):
    arrays = [X, Y, W, W @ W.T, DATA.gram.xx, DATA.gram.xy, DATA.gram.yy, np.linalg.norm(W, axis=0)]
    arrays += [objects[name].W for name in ("Fitted", "OwnerPosteriors", "OwnerEffects", "Posterior")]
    arrays += [objects["OwnerEffects of estimates"].W, *(each.covariance for each in objects["Estimates"].estimates)]
    arrays += [objects["Prediction"].mean, objects["plan"].W0]
    arrays += [leaf for name in ("Rows", "Observed", "RoundState") for leaf in jax.tree.leaves(objects[name])[:6]]
    every = np.concatenate([np.abs(np.ravel(np.asarray(a, dtype=float))) for a in arrays])
    return np.unique(every[np.isfinite(every) & (every > 2e3) & (every != 1e6)])


def given_away(text, secrets):
    """Numbers of a text that are private ones, as far as they are written out."""
    leaks = []
    # digits of addresses, and of a border's colour, are chance
    text = re.sub(r"0x[0-9a-f]+|(?<=1px solid )#[0-9a-f]+", "", text)
    for token in re.findall(r"\d+\.?\d*(?:[eE][+-]?\d+)?", text):
        written = (
            token.rstrip("0") if token.isdigit() else token
        )  # 20000 iterations are one digit, and no private number
        digits = len(re.sub(r"[eE].*|\.", "", written).lstrip("0"))
        value = float(token)
        if digits >= 3 and np.any(np.abs(secrets / value - 1) < 10.0 ** (1 - digits) if value else False):
            leaks.append(token)
    return leaks


def test_every_public_class_was_looked_at(objects):
    public = {
        name
        for room in (mp, estimators, inference, evaluation)
        for name in room.__all__
        if inspect.isclass(getattr(room, name))
    }
    assert public - set(objects) <= WITHOUT_ROWS


def test_no_object_shows_what_is_private(objects, secrets):
    assert len(secrets) > 200
    for name, each in objects.items():
        html = each._repr_html_() if hasattr(each, "_repr_html_") else ""
        texts = [repr(each), str(each), f"{each}", repr((each,)), repr({"a": each}), html]
        assert given_away("\n".join(texts), secrets) == [], name
    assert given_away(objects["Selection"].to_pandas().to_string(), secrets) == []


def test_the_search_finds_private_numbers(secrets):
    for text in (repr(W), str(Y), f"{X[0, 0, 1]:.4g}", repr(W.tolist()), f"a norm of {np.linalg.norm(W[:, 1]):.1f}"):
        assert given_away(text, secrets)


def test_estimators_with_matrices_compare_by_identity(objects):
    one, copy = (estimators.LowRank(penalty=1.0, start=start) for start in (W, W.copy()))
    assert one == estimators.LowRank(penalty=1.0, start=W)
    assert hash(one) == hash(estimators.LowRank(penalty=1.0, start=W))
    assert one != copy
    assert one != estimators.GroupSparse(penalty=1.0, start=W)
    assert estimators.LowRank(penalty=1.0) == estimators.LowRank(penalty=1.0)
    kernel = objects["MPMTLKernel"]
    assert kernel == inference.MPMTLKernel(kernel.sharing, kernel.rounds)
    assert kernel != inference.MPMTLKernel(kernel.sharing, Rounds(*kernel.rounds))
    assert objects["plan"] == objects["plan"] != objects["LowRank"].plan(DATA)
    assert "start=Ridge(" in repr(estimators.LowRank(penalty=1.0))  # hyper-parameters are shown
    assert repr(pickle.loads(pickle.dumps(one))) == repr(one)


def test_a_subclass_with_a_repr_of_its_own_is_as_quiet(secrets):
    @dataclass(frozen=True)
    class Mine(estimators.MPMTL):
        more: int = 0

    assert (
        given_away(repr(Mine(estimators.Proximal(estimators.TraceNorm()), 1.0, start=W, step_size=W[0])), secrets) == []
    )


def test_tuples_of_numbers_are_arrays_and_pairs_are_settings(secrets):
    rows, row = tuple(map(tuple, W.tolist())), tuple(W[0].tolist())
    for kind in (tuple, lambda part: tuple(map(np.float64, part))):
        sharing = estimators.LowRank(penalty=1.0, start=tuple(map(kind, rows)), step_size=kind(row))
        assert "start=<tuple of 3>" in repr(sharing)
        assert given_away(repr(sharing), secrets) == []
    table = evaluation.cross_validate(
        [estimators.LowRank(1.0, None, 3, start=start, step_size=1e-14) for start in (rows, rows[::-1])],
        DATA, folds=2, progress_bar=False,
    )  # fmt: skip
    assert given_away(repr(table) + table.to_pandas().to_string(), secrets) == []
    for epsilon in (row[:2], row, rows, (row,)):
        with pytest.raises(ValueError, match=r"^epsilon: expected a number, got <tuple of \d>$"):
            mp.release(DATA, epsilon)
    assert "penalty=(1.0, 0.5)" in repr(estimators.LowRankSparse(penalty=(1.0, 0.5)))
    assert "features=('a', 1, 2.5)" in repr(adaptation.Domain(np.ones((1, 3)), np.ones(1), ("a", 1, 2.5)))


def test_errors_and_logs_name_shapes(secrets, caplog):
    caplog.set_level(logging.DEBUG, "mpmtl_prob")
    texts = []
    for wrong in (
        lambda: estimators.LowRank(penalty=1.0, epsilon=None, step_size=W).fit(DATA),
        lambda: estimators.LowRank(penalty=W, epsilon=None).fit(DATA),
        lambda: estimators.LowRank(penalty=1.0, start=W.T).fit(DATA),
        lambda: estimators.Ridge(W[0]).fit(DATA),
        lambda: mp.release(DATA, epsilon=W[0]),
        lambda: mp.release(DATA, 1.0, adjacency=W),
        lambda: evaluation.cross_validate([estimators.Ridge(1.0)], DATA, folds=2, metric=W),
    ):
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the text is examined
            wrong()
        texts.append(str(error.value))
    assert given_away("\n".join([*texts, caplog.text]), secrets) == []


SECRET = 47_112_233
NO_NUMBERS = {
    "a word": f"HIV+ {SECRET}",
    "a word in a task": [1.0, f"HIV+ {SECRET}"],
    "beyond a double": [1.0, SECRET * 10**400],
    "complex": [1.0, SECRET + 1j],
    "a complex array": np.array([1.0, SECRET + 1j]),
    "an object": [1.0, {"id": SECRET}],
    "rows of all lengths": [[1.0, SECRET], [1.0]],
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bad", NO_NUMBERS)
def test_values_that_are_no_numbers_are_refused_and_not_shown(bad):
    """A value that is not a number is refused by a named error that does not show it."""
    value, good = NO_NUMBERS[bad], [1.0, 2.0]
    frame = {"task": [0, 1], "x": good, "y": good}
    cell = value[1] if isinstance(value, list) else value
    table = lambda name: pd.DataFrame(frame | {name: pd.Series([1.0, cell], dtype=object)})
    for wrong, name in (
        (lambda: TaskData.from_lists([[[1.0], [2.0]], value], [good, good]), "X: task 1"),
        (lambda: TaskData.from_lists([[[1.0], [2.0]]] * 2, [good, value], tasks=["a", "b"]), "y: task 'b'"),
        (lambda: TaskData.from_lists([[[1.0], [2.0]]], [good], subject=[value]), "subject"),
        (lambda: TaskData.from_rows(value, good, [0, 1]), "X"),
        (lambda: TaskData.from_rows([[1.0], [2.0]], value, [0, 1]), "y"),
        (lambda: TaskData.from_targets([[1.0], [2.0]], value), "Y"),
        (lambda: TaskData.from_targets(value, [[1.0], [2.0]]), "X"),
        (lambda: TaskData.from_pandas(table("x"), task="task", target="y"), "features|X"),
        (lambda: TaskData.from_pandas(table("y"), task="task", target="y"), "target"),
        (lambda: mp.release(value, 1.0, 1e-3), "source"),
        (lambda: mp.release([good, value], 1.0, 1e-3), "source"),
    ):
        with pytest.raises(ValueError, match=f"^({name}).*: ") as error:
            wrong()
        assert str(SECRET) not in str(error.value)
        assert "HIV" not in str(error.value)
        assert error.value.__suppress_context__ or error.value.__context__ is None


def test_a_table_without_a_head_does_not_show_its_first_record():
    frame = pd.DataFrame([[1.0, 2.0]], columns=["4711", "3.14"])
    for wrong in (
        lambda: TaskData.from_pandas(frame, task="school", target="mark"),
        lambda: adaptation.Domain.from_pandas(frame, "mark"),
    ):
        with pytest.raises(ValueError, match=r"^(task|target): .*2") as error:
            wrong()
        assert "4711" not in str(error.value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [0.0, 5e-324, 1e-200, 1e200, 1.7e308])
def test_a_bought_clip_norm_warns_of_no_message(size):
    for messages in (np.diag([1.0, 1.0, size]), np.full((3, 3), size)):
        assert 1e-3 <= mp.releases.private_clip_norm(messages, 1.0, low=1e-3, high=1e3).clip <= 1e3 * (1 + 1e-9)
    assert lattice.lengths(np.array([[3e200, 3e-200, 0.0], [4e200, 4e-200, 0.0]])) == pytest.approx([5e200, 5e-200, 0])


def test_nothing_of_a_round_state_is_shown(objects):
    assert isinstance(objects["RoundState"], RoundState)
    assert re.search(r"W0=<\w+ of shape \(3, 6\)>", repr(objects["Rounds"]))
