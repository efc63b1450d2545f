"""An object of a user's that lacks a method is refused where it is handed over, by the names of method and protocol."""

import ast
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import mpmtl_prob as mp
from mpmtl_prob import TaskData, estimators, evaluation, extend, inference, models, privacy, threat_models
from mpmtl_prob._util.protocols import implements, members
from mpmtl_prob.federated import invite, local, run
from mpmtl_prob.privacy import audit
from mpmtl_prob.scikit import MultiTaskRegressor

PACKAGE = Path(mp.__file__).parent
#: Base classes and protocols that nobody outside is meant to write, or that another one of `extend` stands for.
INSIDE = {"PublicPosterior", "Game", "Table", "Adaptation", "Penalties"}
CHAINS = {"chains": 1, "warmup": 2, "draws": 2, "progress_bar": False}


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 8, 3))
    return TaskData.from_lists(list(X), list(X.sum(axis=2) + rng.standard_normal((12, 8))))


def without(protocol, absent, needs=()):
    """An object with everything that a protocol asks for but one member."""
    held = {name: lambda *_, **__: None for name in needs or members(protocol) if name != absent}
    return type("Halfway", (), held)()


def protect(tasks, **changed):
    return estimators.MPMTL(
        **{"sharing": estimators.Proximal(estimators.TraceNorm()), "penalty": 1.0, "clip": 1.0} | changed
    ).fit(tasks)


def multi(tasks, **changed):
    return estimators.MultiTask(**{"norm": estimators.TraceNorm(), "penalty": 1.0} | changed).fit(tasks)


def both(tasks, **changed):
    return estimators.LowRankPlusSparse((1.0, 1.0), **changed).fit(tasks)


#: Where: the protocol, those of its members that are needed there (default all), and a call with an object.
ENTRANCES = {
    "MultiTask(norm)": (extend.Penalty, (), lambda it, tasks: multi(tasks, norm=it)),
    "MultiTask.path": (extend.Penalty, (), lambda it, tasks: estimators.MultiTask(it, 1.0).path(tasks, [1.0])),
    "MultiTask(loss)": (extend.Loss, ("of",), lambda it, tasks: multi(tasks, loss=it)),
    "LowRankPlusSparse(norm)": (extend.Penalty, (), lambda it, tasks: both(tasks, norm=it)),
    "LowRankPlusSparse(own)": (extend.Penalty, (), lambda it, tasks: both(tasks, own=it)),
    "LowRankPlusSparse(loss)": (extend.Loss, ("of",), lambda it, tasks: both(tasks, loss=it)),
    "MPMTL(sharing)": (extend.SharingRule, (), lambda it, tasks: protect(tasks, sharing=it)),
    "Proximal(norm)": (
        extend.SharedPenalty, ("projection",), lambda it, tasks: protect(tasks, sharing=estimators.Proximal(it)),
    ),
    "ProximalSum(norm)": (
        extend.SharedPenalty, ("projection",), lambda it, tasks: protect(tasks, sharing=estimators.ProximalSum(it)),
    ),
    "ProximalSum(own)": (
        extend.Penalty, ("prox",), lambda it, tasks: protect(tasks, sharing=estimators.ProximalSum(own=it)),
    ),
    "MPMTL(loss)": (extend.Loss, ("alone", "strong_convexity"), lambda it, tasks: protect(tasks, loss=it)),
    "MPMTL(start)": (extend.SingleTask, (), lambda it, tasks: protect(tasks, start=it)),
    "MPMTLKernel(sharing)": (extend.SharingRule, (), lambda it, tasks: inference.MPMTLKernel(it)),
    "release(mechanism)": (extend.MatrixMechanism, (), lambda it, tasks: mp.release(tasks, 1.0, mechanism=it)),
    "releases.spec": (extend.MatrixMechanism, (), lambda it, tasks: mp.releases.terms(1.0, 12, 3, mechanism=it)),
    "NoiseAware(mechanism)": (extend.MatrixMechanism, (), lambda it, tasks: mp.NoiseAware(1.0, mechanism=it).fit(tasks)),
    "Ledger.charge": (extend.Mechanism, (), lambda it, tasks: privacy.Ledger(epsilon=1.0, delta=1e-3).charge(it)),
    "privacy.compute_delta": (extend.Mechanism, (), lambda it, tasks: privacy.compute_delta(1.0, it)),
    "privacy.compute_epsilon": (extend.Mechanism, (), lambda it, tasks: privacy.compute_epsilon(1e-3, [it, it])),
    "privacy.compute_profile": (extend.Mechanism, (), lambda it, tasks: privacy.compute_profile(it)),
    "audit.likelihood_ratio": (
        extend.Mechanism, (), lambda it, tasks: audit.likelihood_ratio(it, privacy.Bound(1.0, 1e-3, "replace"), trials=100),
    ),
    "audit.own_claim": (extend.Mechanism, (), lambda it, tasks: audit.own_claim(it)),
    "shared_covariance(structure)": (
        extend.Structure, (), lambda it, tasks: inference.shared_covariance(_release(tasks), structure=it, **CHAINS),
    ),
    "NoiseAware(structure)": (extend.Structure, (), lambda it, tasks: mp.NoiseAware(1.0, structure=it).fit(tasks)),
    "NoiseAware(likelihood)": (extend.Likelihood, (), lambda it, tasks: mp.NoiseAware(1.0, likelihood=it).fit(tasks)),
    "standard_fits(likelihood)": (
        extend.Likelihood, (), lambda it, tasks: evaluation.standard_fits(tasks, (1.0,), likelihood=it),
    ),
    "fit(kernel)": (extend.Kernel, (), lambda it, tasks: inference.fit(models.low_rank, tasks, kernel=it, **CHAINS)),
    "cross_validate": (extend.Estimator, (), lambda it, tasks: evaluation.cross_validate([it], tasks)),
    "MultiTaskRegressor": (
        extend.Estimator, (), lambda it, tasks: MultiTaskRegressor(it).fit(np.ones((4, 2)), np.ones(4)),
    ),
    "compare": (extend.Fit, ("guarantee", "seconds"), lambda it, tasks: evaluation.compare({"mine": it}, tasks)),
    "to_metalearner": (extend.Billboard, (), lambda it, tasks: threat_models.to_metalearner(it)),
    "federated.run": (local.AnySite, (), lambda it, tasks: run(invite(1.0, 12, 3, sites=2), [it], progress_bar=False)),
}  # fmt: skip
CASES = [
    pytest.param(protocol, needs, absent, call, id=f"{where} without {absent}")
    for where, (protocol, needs, call) in ENTRANCES.items()
    for absent in needs or members(protocol)
]


def _release(tasks):
    return mp.release(tasks, 1.0, unsafe_seed=0)


@pytest.mark.parametrize(("protocol", "needs", "absent", "call"), CASES)
def test_what_is_missing_is_named_with_its_protocol(tasks, protocol, needs, absent, call):
    held = members(protocol) if needs else ()  # what is not needed here may be there or not
    with pytest.raises(
        ValueError, match=rf"\b{protocol.__name__} of mpmtl_prob\.extend.*Halfway without .*\b{absent}\b"
    ):
        call(without(protocol, absent, held), tasks)


def test_a_class_in_place_of_its_instance_is_named():
    with pytest.raises(ValueError, match=r"norm: expected an instance, such as L1\(\.\.\.\), got the class L1"):
        implements("norm", estimators.L1, extend.Penalty)


def test_what_a_loss_or_a_likelihood_gives_is_looked_at_too(tasks):
    class Loss:
        strong_convexity = 0.0

        def of(self, tasks):
            return object()

        alone = of

    with pytest.raises(ValueError, match=r"loss\.of\(tasks\): .* Smooth of .* object without curvature, gradient"):
        multi(tasks, loss=Loss())
    with pytest.raises(ValueError, match=r"loss\.alone\(tasks\): .* Smooth of .* object without gradient, curvature"):
        protect(tasks, loss=Loss())

    class Nothing(extend.Likelihood):
        name = "nothing"
        posteriors = predict = lambda self, *_: None

    with pytest.raises(ValueError, match=r"likelihood\.posteriors\(\.\.\.\): .* Posteriors of .* NoneType without"):
        inference.owner.likelihoods.posteriors_given(Nothing(), tasks, None, None)


def test_nothing_is_charged_for_what_is_refused(tasks):
    ledger = privacy.Ledger(epsilon=1.0, delta=1e-3)
    for call in (
        partial(mp.release, tasks, 0.5, 1e-3, mechanism=object(), ledger=ledger),
        partial(protect, tasks, sharing=object(), epsilon=0.5, delta=1e-3, curvature=1.0, ledger=ledger),
        partial(ledger.charge, object()),
    ):
        with pytest.raises(ValueError, match=r"mpmtl_prob\.extend"):
            call()
    assert ledger.charges() == []


def test_a_member_of_a_protocol_is_any_name_that_it_declares():
    assert members(extend.SharedPenalty) == ["degree", "optimality", "projection", "prox", "separable", "value"]
    assert members(extend.Likelihood) == ["posteriors", "predict"]


def test_every_protocol_and_base_class_is_exported():
    """Every protocol and base class is exported for extensions."""
    declared = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                bases = {ast.unparse(base).split("[")[0] for base in node.bases}
                if bases & {"ABC", "Protocol"}:
                    declared.add(node.name)
    exported = {getattr(extend, name).__name__ for name in extend.__all__} | {"AnySite"}
    assert declared - exported - INSIDE == set()


def test_the_package_exports_what_it_says():
    assert all(hasattr(extend, name) for name in extend.__all__)
    assert issubclass(extend.AdaptationLoss, object)
