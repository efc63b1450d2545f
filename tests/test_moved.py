"""Modules by the names that the documentation of version 0.3.0 gave them."""

import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pytest

import mpmtl_prob
from mpmtl_prob._moved import MOVED, PARTS, new_name

#: Every module that the API reference of version 0.3.0 documented.
DOCUMENTED = """
    adaptation adaptation.accounting adaptation.adassp adaptation.baselines adaptation.bounds adaptation.clipping
    adaptation.cnvx adaptation.conditional adaptation.descent adaptation.discrepancy adaptation.domain
    adaptation.estimator adaptation.files adaptation.label_posterior adaptation.losses adaptation.matching
    adaptation.moments adaptation.ncnvx adaptation.network adaptation.objective adaptation.one_release
    adaptation.paper_files adaptation.private adaptation.problems adaptation.public_fit adaptation.real
    adaptation.report adaptation.scaling adaptation.shape adaptation.shift_model adaptation.solver adaptation.tables
    adaptation.task_prior adaptation.tilting convex.losses convex.penalties datasets.handwriting datasets.ilea
    datasets.lsoa datasets.synthetic estimators.dp_aggr estimators.dp_mtrl estimators.fitted estimators.framework
    estimators.mp_mtl estimators.multi_task estimators.plan estimators.rates estimators.single_task
    evaluation.comparison evaluation.grids evaluation.metrics evaluation.selection federated federated.account
    federated.certificates federated.conditions federated.flower federated.invitation federated.kept federated.local
    federated.node federated.protocol federated.report federated.scattered federated.secure_sum federated.signing
    federated.sites federated.wire inference.curator.fitting inference.curator.posterior inference.curator.private
    inference.noise_aware inference.owner.answers inference.owner.likelihoods inference.owner.methods
    inference.owner.posteriors inference.public.across inference.public.first inference.public.information
    inference.public.odds inference.public.omega inference.public.shared inference.public.starts
    inference.public.structures inference.sampling.diagnostics inference.sampling.importance
    inference.sampling.langevin inference.sampling.runs inference.sampling.simulation inference.subspace intercept
    models.latent_weights models.local models.noise models.normaliser models.observed models.penalised models.priors
    models.rates models.second_moment models.shared_covariance models.task models.wishart plots prediction
    privacy.accounting.budgets privacy.accounting.calibration privacy.accounting.composition
    privacy.accounting.curves privacy.accounting.filters privacy.audit privacy.audit.attempts privacy.audit.found
    privacy.audit.game privacy.audit.views privacy.door privacy.guarantee privacy.lattice privacy.laws
    privacy.laws.closed_forms privacy.laws.exact privacy.laws.gaussian privacy.laws.law
    privacy.laws.loss_distributions privacy.laws.profile privacy.laws.quantile privacy.laws.shares
    privacy.laws.vector_gaussian privacy.laws.vectors privacy.laws.wishart privacy.ledger privacy.ledger_file
    privacy.units releases.files releases.messages releases.release releases.rounds releases.streamed releases.terms
    scikit shards tasks taskwise.intercepts taskwise.laplace threat_models threat_models.audits threat_models.bounds
    threat_models.calibration threat_models.means threat_models.metalearning threat_models.odds threat_models.plan
    threat_models.posterior threat_models.problems threat_models.scores threat_models.signs
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_documented_module_is_found_by_its_former_name(name):
    full = f"mpmtl_prob.{name}"
    sys.modules.pop(full, None) if new_name(full) else None  # it warns once a process
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = import_module(full)
    assert module.__doc__ == import_module(new_name(full) or full).__doc__


@pytest.mark.parametrize(
    ("statement", "new"),
    [
        ("from mpmtl_prob.tasks import FloatArray, Gram, Prediction, TaskData, gram, linear_prediction", "data.tasks"),
        ("from mpmtl_prob.intercept import NAME, contrasts, means", "data.intercepts"),
        ("from mpmtl_prob.adaptation.bounds import convex_utility, smoothness", "theory.adaptation"),
        ("from mpmtl_prob.inference.sampling.langevin import ProximalLangevin", "sampling.langevin"),
        ("import mpmtl_prob.inference.sampling.simulation", "sampling.calibration"),
    ],
)
def test_a_former_name_says_the_new_one(statement, new):
    for name in [name for name in sys.modules if new_name(name)]:
        del sys.modules[name]
    with pytest.warns(DeprecationWarning, match="former name") as warned:
        exec(statement, {})
    assert any(f"is mpmtl_prob.{new} now" in str(warning.message) for warning in warned)


def test_a_name_that_no_module_has_is_missed_as_ever():
    sys.modules.pop("mpmtl_prob.estimators.rates", None)
    with pytest.warns(DeprecationWarning, match="former name"):
        former = import_module("mpmtl_prob.estimators.rates")
    with pytest.raises(AttributeError, match=r"'mpmtl_prob\.theory\.utility' has no attribute 'alpha'"):
        _ = former.alpha
    with pytest.raises(ModuleNotFoundError, match=r"mpmtl_prob\.task"):
        import_module("mpmtl_prob.task")


def test_a_former_name_runs_as_a_program():
    command = [sys.executable, "-m", "mpmtl_prob.federated.node", "--help"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert "DeprecationWarning" in ran.stderr
    said = ran.stdout + ran.stderr
    assert "usage" in said or "No module named 'flwr'" in said


@pytest.mark.parametrize("name", [*MOVED, *PARTS])
def test_what_has_moved_is_no_longer_in_its_place(name):
    place = Path(mpmtl_prob.__file__).parent.joinpath(*name.split("."))
    assert not place.with_suffix(".py").exists()
    assert not list(place.glob("*.py"))


def test_functions_named_like_former_modules_can_be_called():
    """A function that has the name of a former module can still be called."""
    script = (
        "import warnings; warnings.simplefilter('ignore'); import mpmtl_prob as mp; import mpmtl_prob.releases.terms; "
        "print(mp.releases.terms(1.0, 12, 3).num_tasks)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "12\n"
