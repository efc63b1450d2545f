"""Write docs/reference.md and docs/api: public objects by the place from which users import them, and internals by module.

    python docs/make_reference.py

``PAGES`` says under which heading of which page a public object is. What is public follows from ``__all__``: of the package,
of the modules in it, and so on. The tests ask that every public name is in the reference, and nothing twice.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import mpmtl_prob

DOCS = Path(__file__).parent
#: public packages that are imported by their own name, as they need other packages
BY_NAME = ("federated", "scikit")


#: what another package puts into ours, and type aliases that cannot be documented
EXCLUDED = {
    "scikit.MultiTaskRegressor": ("set_score_request",),
    "scikit.MultiTaskClassifier": ("set_score_request",),
    "mpmtl_prob.adaptation.paper.solver": ("Problem",),
}


class Page(NamedTuple):
    """A page of the reference: its title, a sentence, and groups of names, without ``mpmtl_prob``, by their heading."""

    title: str
    text: str
    groups: dict[str, str]


PAGES = {
    "data": Page(
        "Tasks and tables",
        "What goes in, and what comes out. [From a table to a release](../guide.md) shows it.",
        {
            "Tasks": "TaskData TaskShards Reference",
            "Estimates from elsewhere": "Estimate Estimates",
            "Predictions": "Prediction",
            "A study's columns": "Schema schema.StudyRows schema.read_rows",
            "Data sets": "datasets.example_study datasets.ExampleStudy datasets.school datasets.lsoa2 datasets.digits "
            "datasets.synthetic_low_rank datasets.synthetic_group_sparse datasets.Synthetic",
        },
    ),
    "releases": Page(
        "Releases",
        "What is public before, what one owner sends, and the noisy sum that everybody may read.",
        {
            "The way of most users": "ReleaseSpec release Release",
            "Step by step": "releases.terms releases.Terms releases.message releases.publish releases.private_clip_norm "
            "releases.PrivateClipNorm releases.EffectsLayout releases.default_delta",
        },
    ),
    "privacy": Page(
        "Privacy",
        "What is promised, what it costs, and attempts to refute it. [What a release gives away](../privacy.md) explains it.",
        {
            "The guarantee": "privacy.Guarantee privacy.Bound privacy.NOT_PRIVATE privacy.NOTHING_SHARED "
            "privacy.Unit privacy.Adjacency",
            "The budget": "privacy.Ledger privacy.Charge privacy.BudgetExceeded privacy.LedgerAltered",
            "How much noise": "privacy.calibrate privacy.calibrate_gaussian privacy.schedule privacy.composition_bound",
            "How much privacy": "privacy.compute_delta privacy.compute_epsilon privacy.delta_bracket privacy.Bracket "
            "privacy.compute_profile privacy.PrivacyProfile privacy.MembershipOdds",
            "Mechanisms for second moments": "privacy.Wishart privacy.PaperWishart privacy.PaperWishart2018 "
            "privacy.PaperWishart2018Unit privacy.PaperTaskWishart "
            "privacy.Gaussian privacy.GaussianShares",
            "Mechanisms for vectors and numbers": "privacy.VectorGaussian privacy.VectorLaplace "
            "privacy.IndependentLaplace privacy.Quantile privacy.draw_vectors",
            "Mechanisms of one's own": "privacy.Mechanism privacy.MatrixMechanism privacy.VectorMechanism privacy.register",
            "Audits": "privacy.audit.Audit privacy.audit.Drawn privacy.audit.Interval privacy.audit.Sampler "
            "privacy.audit.controls privacy.audit.drawn privacy.audit.ledger privacy.audit.likelihood_ratio "
            "privacy.audit.own_claim privacy.audit.published privacy.audit.reachable privacy.audit.representable "
            "privacy.audit.support privacy.audit.tracing privacy.audit.proved_power",
            "Thresholds of audits": "privacy.audit.Threshold privacy.audit.Bonferroni privacy.audit.Explicit "
            "privacy.audit.Split privacy.audit.clopper_pearson privacy.audit.TRIALS privacy.audit.IN_DOUBLES",
        },
    ),
    "inference": Page(
        "Posteriors",
        "Bayesian inference from three seats: the public sees the release, an owner its own rows too, a curator all rows.",
        {
            "All in one": "NoiseAware",
            "The public: average effects": "inference.shared_effects inference.SharedEffects inference.observed_effects "
            "inference.EffectsPrior",
            "The public: shared directions": "inference.shared_covariance inference.SharedPosterior inference.structure_for "
            "inference.Structure inference.first_look inference.FirstLook",
            "An owner": "inference.task_posteriors inference.OwnerPosteriors inference.OwnerEffects "
            "inference.posterior_draws inference.SnrPrior inference.Likelihood inference.NormalErrors",
            "A curator": "inference.fit inference.Posterior inference.MPMTLKernel inference.ProximalLangevin "
            "inference.private_langevin",
            "What a release says": "inference.Information inference.compare_releases inference.ReleaseComparison "
            "inference.membership inference.Membership inference.subspace inference.Subspace",
            "Chains": "inference.Diagnosis inference.Until inference.Interrupted",
        },
    ),
    "models": Page(
        "Models",
        "NumPyro models and the distributions in them.",
        {
            "Models": "models.random_effects models.low_rank models.group_sparse models.low_rank_sparse "
            "models.shared_covariance models.latent_weights models.task models.penalised",
            "Priors": "models.TraceNormPrior models.GroupLaplace models.EntrywiseLaplace",
            "Noise of a release": "models.ShiftedWishart models.ShiftedGaussian models.MatrixBeta models.BoundedMatrix "
            "models.between_zero_and models.positive_definite_above",
        },
    ),
    "estimators": Page(
        "Estimators",
        "Point estimates: the papers' algorithms and what they are compared with. [The guide](../estimators.md).",
        {
            "Each task alone": "estimators.Ridge estimators.Lasso estimators.RidgeLogistic "
            "estimators.LocalGradientDescent",
            "Multi-task, no privacy": "estimators.MultiTask estimators.MTRL estimators.LowRankPlusSparse",
            "Multi-task, private": "estimators.LowRank estimators.GroupSparse estimators.LowRankSparse "
            "estimators.FrankWolfe estimators.MPMTL estimators.DPAggr estimators.DPMTRL estimators.RowProtection",
            "What fits return": "estimators.Fitted estimators.ConvergenceWarning",
            "Losses": "estimators.LeastSquares estimators.Logistic",
            "Penalties": "estimators.L1 estimators.GroupLasso estimators.ColumnGroupLasso estimators.TraceNorm "
            "estimators.SquaredTraceNorm estimators.SquaredFrobenius estimators.NoPenalty",
            "Algorithm 1 in parts": "estimators.framework estimators.first_round estimators.one_round estimators.Run "
            "estimators.Carry estimators.Noise estimators.SharingRule estimators.Proximal estimators.ProximalSum "
            "estimators.TaskRelations estimators.ConditionalGradient",
            "In scikit-learn": "scikit.MultiTaskRegressor scikit.MultiTaskClassifier",
        },
    ),
    "evaluation": Page(
        "Evaluation and plots",
        "Scores, choices by cross-validation, comparisons, plans for a study, and pictures.",
        {
            "Before a study": "evaluation.plan_study evaluation.StudyPlan",
            "Comparisons": "evaluation.compare evaluation.Comparison evaluation.standard_fits evaluation.fits_by_name "
            "evaluation.noise_aware",
            "Choices": "evaluation.cross_validate evaluation.Selection evaluation.grids",
            "Scores": "evaluation.nmse evaluation.nmse_within evaluation.auc evaluation.coverage evaluation.log_score",
            "Plots": "plots.forest plots.weights plots.coverage plots.reliability plots.error_against_epsilon "
            "plots.error_by_task plots.ladder plots.inclusion plots.angles plots.projector plots.shift plots.spectrum",
        },
    ),
    "desk": Page(
        "A study from start to end",
        "Every role at its own desk, with files. [The guide](../study.md); `Schema` is among the "
        "[tasks and tables](data.md).",
        {
            "A hospital": "desk.make_message desk.Message desk.fit desk.OwnModel desk.report",
            "The curator": "desk.collect desk.Inbox desk.publish",
        },
    ),
    "federated": Page(
        "Without a curator",
        "A release of many sites that trust no curator. [The guide](../federated.md).",
        {
            "The plan": "federated.invite federated.Invitation federated.Trust",
            "A site": "federated.Site federated.SitePolicy federated.Signer federated.new_key federated.write_key",
            "A run": "federated.run federated.Outcome federated.serve federated.settle federated.RunLog "
            "federated.RunRefused federated.TooFewOwners",
            "How well it went": "federated.invite_report federated.report_message federated.read_report federated.Report",
        },
    ),
    "adaptation": Page(
        "A private table and public ones",
        "Domain adaptation with a private target. [The guide](../adaptation.md).",
        {
            "One release": "adaptation.MomentAdaptation adaptation.AdaptedPosterior adaptation.release_moments "
            "adaptation.MomentRelease adaptation.infer adaptation.approximate_posterior adaptation.ApproximatePosterior",
            "The paper's algorithms": "adaptation.CnvxAdap adaptation.NCnvxAdap adaptation.NetworkAdap "
            "adaptation.private_discrepancy adaptation.Ball adaptation.accounting",
            "Baselines": "adaptation.SourceOnly adaptation.Unprotected adaptation.NoisyGradient adaptation.WarmDescent "
            "adaptation.AdaSSP adaptation.KMM adaptation.DiscrepancyMinimisation adaptation.PrivateDiscrepancyMinimisation "
            "adaptation.RandomFeatures adaptation.tilted",
            "Data": "adaptation.Domain adaptation.problems adaptation.real adaptation.paper_files",
        },
    ),
    "threat_models": Page(
        "Many questions to many people",
        "Who sees which answers, and what it costs. [The guide](../threat_models.md).",
        {
            "The problem": "threat_models.Population threat_models.People threat_models.HardPrior threat_models.mean_loss "
            "threat_models.sign_loss",
            "Answers": "threat_models.NoisyMeans threat_models.Published threat_models.one_of_each threat_models.signs",
            "How many people": "threat_models.Plan threat_models.people_needed threat_models.rho_within "
            "threat_models.mu_within threat_models.epsilon_of",
            "Newcomers": "threat_models.Metalearner threat_models.to_metalearner threat_models.BillboardMeans "
            "threat_models.BillboardRelease threat_models.leave_out threat_models.newcomers_error "
            "threat_models.metalearning_error threat_models.generalisation_gap",
            "Views and attacks": "threat_models.views threat_models.scores threat_models.audits",
            "What somebody may come to know": "threat_models.odds threat_models.posterior",
        },
    ),
    "theory": Page(
        "What the papers prove",
        "Bounds and lemmas as functions.",
        {"Bounds": "theory.utility theory.people theory.adaptation theory.projection"},
    ),
    "extend": Page(
        "Protocols",
        "What somebody may implement, all in `mpmtl_prob.extend`. [Extending](../extend.md) shows how. `Mechanism`, "
        "`MatrixMechanism`, `VectorMechanism` and `register` are on the page of [privacy](privacy.md), `Structure` and "
        "`Likelihood` on that of [posteriors](inference.md), `SharingRule` and `Fitted` on that of "
        "[estimators](estimators.md).",
        {
            "Losses and penalties": "extend.Loss extend.Smooth extend.Penalty extend.SharedPenalty extend.AdaptationLoss",
            "Estimators": "extend.Estimator extend.Fit extend.SingleTask extend.Billboard",
            "Posteriors": "extend.ModelAndInit extend.Kernel extend.Posteriors extend.Jointly extend.RowDraws "
            "extend.KeptDraws",
            "Noise and its price": "extend.NoisyRelease extend.of_law extend.Purchase extend.InParts extend.PaddedTasks",
        },
    ),
}  # fmt: skip


def get(name: str) -> Any:
    """Return the object at a place such as "privacy.audit.Audit"."""
    thing: Any = mpmtl_prob
    for part in name.split("."):
        if not hasattr(thing, part):  # a module that nothing has imported yet
            importlib.import_module(f"{thing.__name__}.{part}")
        thing = getattr(thing, part)
    return thing


def is_package(thing: Any) -> bool:
    """Return whether it is a module whose public names are documented one by one."""
    return isinstance(thing, ModuleType) and hasattr(thing, "__path__")


def public(place: str = "") -> Iterator[str]:
    """Yield every public name of a package and of the packages in it."""
    names = [*mpmtl_prob.__all__, *BY_NAME] if not place else [f"{place}.{name}" for name in get(place).__all__]
    for name in names:
        thing = get(name)
        if is_package(thing) or (not place and isinstance(thing, ModuleType)):
            yield from public(name)
        else:
            yield name


def documented() -> list[str]:
    """Return the names in the reference, in its order."""
    return [name for page in PAGES.values() for names in page.groups.values() for name in names.split()]


def members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield what Sphinx documents of a module: the names in its ``__all__``, or those of what is defined in it."""
    listed = getattr(module, "__all__", None)
    for name, thing in vars(module).items():
        own = getattr(thing, "__module__", None) == module.__name__ and not name.startswith("_")
        if own if listed is None else name in listed:
            yield name, thing


def _directive(name: str, of_objects: frozenset[int]) -> str:
    thing, place = get(name), f"mpmtl_prob.{name}"
    if isinstance(thing, ModuleType):
        return f"### {name}\n\n" + _block(_module(thing, of_objects))
    if inspect.isclass(thing):
        options = ["   :inherited-members:"] if _bases_are_ours(thing) else []
        options += [f"   :exclude-members: {member}" for member in EXCLUDED.get(name, ())]
        return _block([f".. autoclass:: {place}", *options])
    if inspect.isfunction(thing):
        return _block([f".. autofunction:: {place}"])
    return _block([f".. autodata:: {place}", "   :no-value:"])


def _bases_are_ours(thing: type) -> bool:
    """Return whether methods that a class inherits are the library's, and there are any."""
    bases = [base for base in thing.__mro__[1:] if base.__module__ not in ("builtins", "typing", "abc")]
    return (
        bool(bases) and all(base.__module__.startswith("mpmtl_prob.") for base in bases) and tuple not in thing.__mro__
    )


def _module(module: ModuleType, of_objects: frozenset[int]) -> list[str]:
    """Return the directive of a module, without what stands elsewhere in the reference."""
    elsewhere = [name for name, thing in members(module) if id(thing) in of_objects]
    elsewhere += EXCLUDED.get(module.__name__, ())
    options = [f"   :exclude-members: {', '.join(elsewhere)}"] if elsewhere else []
    if module.__name__.removeprefix("mpmtl_prob.") in documented():  # a function has the name of its module
        options.append("   :no-index:")
    return [f".. automodule:: {module.__name__}", *options]


def _block(lines: Iterable[str]) -> str:
    return "\n".join(["```{eval-rst}", *lines, "```"])


def pages() -> dict[str, str]:
    """Return the text of every page by its path in docs."""
    of_objects = frozenset(id(thing) for name in documented() if not isinstance(thing := get(name), ModuleType))
    texts = {"reference.md": _overview()}
    for name, page in PAGES.items():
        parts = [f"# {page.title}", page.text]
        for heading, names in page.groups.items():
            parts += [f"## {heading}", *(_directive(item, of_objects) for item in names.split())]
        texts[f"api/{name}.md"] = "\n\n".join(parts) + "\n"
    return texts | dict(_internals(of_objects))


def _overview() -> str:
    """Return the page that lists the public names by page and heading."""
    parts = ["# Reference", REFERENCE]
    for name, page in PAGES.items():
        rows = [(heading, ", ".join(map(_link, names.split()))) for heading, names in page.groups.items()]
        parts += [f"## [{page.title}](api/{name}.md)", _table(("", "names"), rows)]
    return "\n\n".join([*parts, _contents(f"api/{name}" for name in PAGES)]) + "\n"


def _link(name: str) -> str:
    role = "py:mod" if isinstance(get(name), ModuleType) else "py:obj"
    return f"{{{role}}}`{name} <mpmtl_prob.{name}>`"


REFERENCE = (
    "Every public object, by the name under which it is imported from `mpmtl_prob`. What is not here is "
    "[internal](api/internals.md)."
)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    line = lambda cells: f"| {' | '.join(cells)} |"
    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


def _contents(names: Iterable[str]) -> str:
    return "\n".join(["```{toctree}", ":hidden:", "", *names, "```"])


def modules() -> list[str]:
    """Return the modules of the library, but for private ones and those that only collect public names."""
    names = [module.name for module in pkgutil.walk_packages(mpmtl_prob.__path__, "mpmtl_prob.")]
    collections = {f"mpmtl_prob.{name}" for name in (*mpmtl_prob.__all__, *BY_NAME) if not is_package(get(name))}
    return [name for name in names if "._" not in name and name not in collections]


def _internals(of_objects: frozenset[int]) -> Iterator[tuple[str, str]]:
    """Yield a page for the internals of every package, and one that lists these pages."""
    whole = {get(name).__name__ for name in documented() if isinstance(get(name), ModuleType)}
    by_package: dict[str, list[str]] = {}
    for name in modules():
        if name not in whole:
            by_package.setdefault(name.split(".")[1], []).append(name)
    rows = []
    for package, names in by_package.items():
        parts = [f"# Internals of {package}", WARNING]
        for name in names:
            module = importlib.import_module(name)
            is_package_itself = hasattr(module, "__path__")
            lines = [f".. automodule:: {name}", "   :no-members:"] if is_package_itself else _module(module, of_objects)
            parts += [f"## {name.removeprefix('mpmtl_prob.')}", _block(lines)]
        yield f"api/internals/{package}.md", "\n\n".join(parts) + "\n"
        summary = (importlib.import_module(f"mpmtl_prob.{package}").__doc__ or "").partition("\n")[0]
        rows.append((f"[{package}](internals/{package}.md)", summary))
    contents = _contents(f"internals/{package}" for package in by_package)
    yield (
        "api/internals.md",
        "\n\n".join(["# Internals", INTERNALS, _table(("package", "what it is"), rows), contents]) + "\n",
    )


WARNING = "*Internal: may change in any version. [The reference](../../reference.md) has what is public.*"
INTERNALS = (
    "How the library works inside, module by module, for whoever reads or changes it. Nothing here is promised to stay; what "
    "is promised is in [the reference](../reference.md)."
)


if __name__ == "__main__":
    for path in (DOCS / "api").rglob("*.md"):
        path.unlink()
    (DOCS / "api" / "internals").mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (DOCS / name).write_text(text)
