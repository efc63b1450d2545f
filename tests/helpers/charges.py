"""Walk over every public call that may charge a ledger, with arguments that it takes and values that spoil one of them.

The walk takes in every public function, method and class with an argument ``ledger``. One that is neither in ``DOORS`` nor in
``ELSEWHERE`` fails the test, so that a new one is walked too.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from decimal import Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import mpmtl_prob as mp
from mpmtl_prob import adaptation, estimators, federated, releases
from mpmtl_prob.adaptation import adapt as report
from mpmtl_prob.adaptation import arms
from mpmtl_prob.adaptation.paper import private as descents
from mpmtl_prob.federated import protocol
from mpmtl_prob.federated.flower.persistent_site import PersistentSite
from mpmtl_prob.inference.curator import private as curator
from mpmtl_prob.privacy import Ledger
from mpmtl_prob.privacy import charge_and_draw as door
from mpmtl_prob.privacy.mechanisms import Gaussian, GaussianShares, VectorGaussian, VectorLaplace, exact
from mpmtl_prob.releases.publish import publish_rounds
from mpmtl_prob.threat_models import NoisyMeans, views
from mpmtl_prob.threat_models.problems import People

#: A number that only private data hold: an error that shows it shows somebody's data.
SECRET = 0.7734501


class Door(NamedTuple):
    """A call that may charge a ledger.

    Attributes:
        call: takes a ledger and the arguments.
        good: makes arguments that it takes, besides those that have defaults.
        signatures: whose arguments are walked.
        ledger: what its ledger is declared with.
        often: arguments to spoil in every run of the tests; None for all, where a call takes milliseconds.
    """

    call: Callable[..., Any]
    good: Callable[[], dict[str, Any]]
    signatures: tuple[Any, ...]
    ledger: Mapping[str, Any] = MappingProxyType({})
    often: tuple[str, ...] | None = None

    @property
    def arguments(self) -> list[str]:
        """Return the names of all arguments."""
        names = dict.fromkeys(self.good())
        for each in self.signatures:
            for name, argument in inspect.signature(each).parameters.items():
                if argument.kind not in (argument.VAR_KEYWORD, argument.VAR_POSITIONAL):
                    names.setdefault(name)
        return [name for name in names if name not in ("self", "ledger")]


def values() -> dict[str, Any]:
    """Return values that spoil an argument, by their kind; made anew each time, as a generator is used up."""
    return {
        "None": None,
        "nan": np.nan,
        "inf": np.inf,
        "-inf": -np.inf,
        "-1": -1,
        "0": 0,
        "a tiny number": 5e-324,
        "a huge number": 1e308,
        "a half": 0.5,
        "three": 3,
        "a huge whole number": 10**30,
        "more than memory": 10**13,
        "True": True,
        "a word": "a",
        "a number in words": "1",
        "no words": "",
        "bytes": b"1",
        "a complex number": 1j,
        "a decimal": Decimal("0.5"),
        "a short number": np.float32(0.5),
        "a NumPy integer": np.int8(2),
        "an array of one": np.array([0.5]),
        "an array of none": np.array(0.5),
        "an empty list": [],
        "an empty tuple": (),
        "an empty dictionary": {},
        "a list": [1.0, 2.0],
        "a ragged list": [[1.0], [1.0, 2.0]],
        "a pair of words": ("a", "b"),
        "an array": np.full((4, 5), SECRET),
        "an array of nan": np.full((2, 2), np.nan),
        "a cube": np.full((2, 2, 2), SECRET),
        "an object": object(),
        "a class": Ledger,
        "a generator": (x for x in (1.0, 2.0)),
        "a function": lambda *_: None,
        "a function of nothing": lambda: np.full((2, 2), SECRET),
    }


class Outcome(NamedTuple):
    """Outcome of a call.

    Attributes:
        error: the one that it raised, if any.
        charges: how many the ledger holds.
        drawn: whether noise was drawn.
        kept: whether the error has what was paid for as its ``release``.
    """

    error: BaseException | None
    charges: int
    drawn: bool
    kept: bool

    @property
    def held(self) -> bool:
        """Whatever was refused cost nothing and drew no noise; a site that drops out leaves the others to draw theirs."""
        drawn = self.drawn and not isinstance(self.error, DroppedOut)
        return self.error is None or not (self.charges or drawn)


class DroppedOut(ValueError):
    """Error of a site that was refused by its own checks: the run went on without it."""


class Endless(BaseException):
    """A call that takes longer than any of its arguments deserves."""


#: Arguments that are a user's functions: their answers are known late, and what was paid for by then must not be lost.
ANSWERS = {"respond", "source"}  # for other tasks than the source's, an answer has another shape
#: The library's own: it gives what :func:`publish_rounds` publishes, and nothing of it can be kept where it does not.
INSIDE = {("releases.publish.publish_rounds", "run")}


def fault(name: str, outcome: Outcome, argument: str) -> bool:
    """Tell whether something was charged and then refused because of an argument."""
    if (name, argument) in INSIDE and outcome.charges:
        return False
    return not (outcome.held or (argument in ANSWERS and outcome.kept))


def tried(door: Door, ledger: Any = None, **bad: Any) -> Outcome:
    """Call with good arguments except these, and return what became of it."""
    book = Ledger(**{"epsilon": 20.0, "delta": 0.2} | door.ledger)
    error: BaseException | None = None
    with warnings.catch_warnings(), watched() as drawn:
        warnings.simplefilter("ignore")
        try:
            door.call(book if ledger is None else ledger, **door.good() | bad)
        except (Exception, Endless) as caught:
            error = caught
    return Outcome(error, len(book.charges()), bool(drawn), hasattr(error, "release"))


@contextmanager
def watched() -> Iterator[list[str]]:
    """Watch whether noise is drawn from the system meanwhile."""
    drawn: list[str] = []
    system = exact.system

    def noticed(*asked: Any) -> bytes:
        drawn.append("noise")
        return system(*asked)

    exact.system = noticed
    try:
        yield drawn
    finally:
        exact.system = system


@cache
def _tasks() -> mp.TaskData:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6, 5, 2))
    y = rng.standard_normal((6, 5))
    X[0, 0, 0] = y[1, 1] = SECRET
    return mp.TaskData.from_lists(list(X), list(y))


@cache
def _domains(labels: bool = False) -> tuple[adaptation.Domain, adaptation.Domain]:
    rng = np.random.default_rng(1)
    parts = []
    for n in (30, 12):
        X = rng.standard_normal((n, 2)) / 2
        y = np.clip(X @ [0.5, -0.3] + 0.1 * rng.standard_normal(n), -1, 1)
        parts.append((X, (y > 0).astype(float) if labels else y))
    X, y = parts[1]
    X[0, 0] = SECRET
    return adaptation.Domain(*parts[0]), adaptation.Domain(X, y)


def _pair(labels: bool = False, **more: Any) -> Callable[[], dict[str, Any]]:
    return lambda: dict(zip(("source", "target"), _domains(labels), strict=True)) | more


def _adapted(kind: Any, labels: bool = False, **more: Any) -> Door:
    def call(ledger: Any, source: Any, target: Any, **params: Any) -> Any:
        return kind(ledger=ledger, **params).fit(source, target)

    return Door(call, _pair(labels, **more), (kind,), {"unit": "target record"})


def _estimator(kind: Any, **more: Any) -> Door:
    def call(ledger: Any, tasks: Any, **params: Any) -> Any:
        return kind(ledger=ledger, **params).fit(tasks)

    return Door(call, lambda: {"tasks": _tasks()} | more, (kind,))


_ROUNDS: dict[str, Any] = {"rounds": 2, "clip": 1.0, "mechanism": "calibrated", "curvature": 4.0, "start": "zero"}


def _rows(ledger: Any, tasks: Any, **params: Any) -> Any:
    protection = estimators.RowProtection(ledger=ledger, **params)
    return estimators.LowRank(0.1, epsilon=None, rows=protection, **_ROUNDS | {"mechanism": "paper"}).fit(tasks)


def _terms(**change: Any) -> releases.Terms:
    return releases.terms(**{"epsilon": 1.0, "num_tasks": 6, "features": 2, "delta": 0.1, "message": "clip", "clip": 1.0}
                          | {"scaling": "none"} | change)  # fmt: skip


def _moment() -> np.ndarray:
    V = _terms().bounded(np.random.default_rng(2).standard_normal((2, 6)))
    return V @ V.T


def _perturbed(ledger: Any, **arguments: Any) -> Any:
    return publish_rounds(ledger=ledger, **arguments)


def _noise_aware(ledger: Any, tasks: Any, **params: Any) -> Any:
    return mp.NoiseAware(ledger=ledger, **params).fit(tasks)


def _invitation(**options: Any) -> federated.Invitation:
    return federated.invite(1.0, 6, 2, 0.1, sites=3, scaling="none", **{"colluders": 0} | options)


def _sites(**options: Any) -> list[federated.Site]:
    W = np.random.default_rng(3).standard_normal((2, 6))
    return [federated.Site(i, W[:, 2 * i : 2 * i + 2], **options) for i in range(3)]


def _in_process(ledger: Any, **arguments: Any) -> Any:
    return federated.run(ledger=ledger, **arguments)


def _site(ledger: Any, runs: Any = 1, **options: Any) -> Any:
    """Run a federation with one site that has the ledger; its refusals are the run's."""
    source, path = options.pop("source"), options.pop("path", None)
    with TemporaryDirectory() as folder, chdir(folder):  # where a path that is a word may be made
        one = federated.Site(0, source, federated.RunLog(path, runs=runs, ledger=ledger), **options)
        return _with_others(one)


def _kept_site(ledger: Any, **options: Any) -> Any:
    with TemporaryDirectory() as folder, chdir(folder):
        number, source = options.pop("number"), options.pop("source")
        return _with_others(PersistentSite(number, source, **{"folder": Path(folder)} | options, ledger=ledger))


def _with_others(one: Any) -> Any:
    outcome = federated.run(_invitation(trust="no_curator"), [one, *_sites()[1:]], progress_bar=False)
    if outcome.refused:
        raise DroppedOut(f"{one.failure or outcome.refused[0]}")
    return outcome


def _total() -> np.ndarray:
    A = np.eye(2)
    return protocol.in_units(A, _invitation().terms.lattice ** 2, 6)


def _people() -> People:
    answers = np.random.default_rng(4).choice([-1, 1], size=(4, 1, 3)).astype(np.int8)
    return People(answers, np.array([0, 1, 2, 0]))


def _wrapped(ledger: Any, X: Any, y: Any, **params: Any) -> Any:
    from mpmtl_prob.scikit import MultiTaskRegressor

    estimator = estimators.DPAggr(0.5, rows=(5, 5), target_bound=1.0, ledger=ledger)
    return MultiTaskRegressor(**{"estimator": estimator} | params).fit(X, y)


def _table() -> dict[str, Any]:
    tasks = _tasks()
    X = np.column_stack([np.repeat(np.arange(6.0), 5), tasks.X[tasks.mask]])
    return {"X": X, "y": tasks.y[tasks.mask], "task": 0}


def _curator(ledger: Any, tasks: Any, estimator: Any = None, **options: Any) -> Any:
    held = estimators.LowRank(0.1, ledger=ledger, **_ROUNDS) if estimator is None else estimator
    return curator.private_langevin(held, tasks, **options)


def doors() -> dict[str, Door]:
    """Return every call that is walked, by its name without the package's."""
    adapt = lambda ledger, **arguments: report.adapt(ledger=ledger, **arguments)
    called = lambda function: lambda ledger, **arguments: function(ledger=ledger, **arguments)
    record = {"unit": "target record"}
    vectors = {"mechanisms": [VectorLaplace(2, 1.0, 1.0)], "lattice": 2.0**-20, "epsilon": 1.0}
    return {
        "adaptation.moments.adassp.AdaSSP": _adapted(adaptation.AdaSSP),
        "adaptation.moments.private_matching.PrivateDiscrepancyMinimisation": _adapted(
            adaptation.PrivateDiscrepancyMinimisation
        ),
        "adaptation.arms.fit_arms": Door(
            called(arms.fit_arms),
            _pair(names=["adassp", "cnvx"], label="y", epsilon=1.0, steps=4), (arms.fit_arms,), record,
        ),
        "adaptation.paper.baselines.NoisyGradient": _adapted(adaptation.NoisyGradient, steps=4),
        "adaptation.paper.baselines.WarmDescent": _adapted(adaptation.WarmDescent, steps=4),
        "adaptation.paper.cnvx.CnvxAdap": _adapted(adaptation.CnvxAdap, steps=4),
        "adaptation.paper.cnvx.CnvxAdap, printed": _adapted(adaptation.CnvxAdap, steps=4, variant="printed"),
        "adaptation.paper.cnvx.CnvxAdap, frozen": _adapted(adaptation.CnvxAdap, steps=4, variant="frozen", discrepancy=0.1),
        "adaptation.paper.cnvx.CnvxAdap, all public": _adapted(adaptation.CnvxAdap, steps=4, source_weight=1.0),
        "adaptation.paper.ncnvx.NCnvxAdap": _adapted(adaptation.NCnvxAdap, labels=True, steps=4),
        "adaptation.paper.ncnvx.NCnvxAdap, printed": _adapted(
            adaptation.NCnvxAdap, True, steps=4, variant="printed", discrepancy=0.1
        ),
        "adaptation.paper.network.NetworkAdap": _adapted(
            adaptation.NetworkAdap, True, steps=2, hidden=2, discrepancy=0.1
        )._replace(often=("step_size", "hidden", "gradient_bound", "loss_bound", "seed", "lambda_1")),
        "adaptation.moments.moment_adaptation.MomentAdaptation": _adapted(adaptation.MomentAdaptation, draws=5, chains=1),
        "adaptation.paper.discrepancy.private_discrepancy": Door(
            called(adaptation.private_discrepancy),
            _pair(ball=adaptation.Ball((0.0, 0.0), 0.5), epsilon=1.0),
            (adaptation.private_discrepancy,), record,
        ),
        "adaptation.moments.release.release_moments": Door(
            called(adaptation.release_moments),
            lambda: {"target": _domains()[1], "centre": np.zeros(2), "residual_bound": 1.0, "epsilon": 1.0},
            (adaptation.release_moments,), record,
        ),
        "adaptation.paper.private.draw": Door(
            called(descents.draw),
            _pair(budget=descents.Budget(1.0, 0.1, "exact", 0.5), discrepancy_choice=0.1, steps=3, size=2, queries=1,
                  unsafe_seed=None),
            (descents.draw,), record,
        ),
        "adaptation.adapt.adapt": Door(adapt, _pair(label="y", epsilon=1.0), (report.adapt,), record),
        "estimators.dp_aggr.DPAggr": _estimator(estimators.DPAggr, penalty=0.5, rows=(5, 5), target_bound=1.0),
        "estimators.mp_mtl.MPMTL": _estimator(
            estimators.MPMTL, sharing=estimators.Proximal(estimators.TraceNorm()),
            penalty=0.1, **_ROUNDS,
        ),
        "estimators.mp_mtl.LowRank": _estimator(estimators.LowRank, penalty=0.1, **_ROUNDS),
        "estimators.mp_mtl.GroupSparse": _estimator(estimators.GroupSparse, penalty=0.1, **_ROUNDS),
        "estimators.mp_mtl.LocalGradientDescent": _estimator(estimators.LocalGradientDescent, rounds=2),
        "estimators.mp_mtl.LowRankSparse": _estimator(estimators.LowRankSparse, penalty=(0.1, 0.1), **_ROUNDS),
        "estimators.mp_mtl.FrankWolfe": _estimator(
            estimators.FrankWolfe, radius=0.1, rounds=2, clip=1.0, mechanism="calibrated"
        ),
        "estimators.plan.RowProtection": Door(
            _rows, lambda: {"tasks": _tasks(), "epsilon": 1.0}, (estimators.RowProtection,), {"unit": "row"}
        ),
        "inference.noise_aware.NoiseAware": Door(
            _noise_aware, lambda: {"tasks": _tasks(), "chains": 1, "warmup": 2, "draws": 2, "progress_bar": False},
            (mp.NoiseAware,), {},
            ("epsilon", "delta", "adjacency", "scaling", "rounds", "structure", "method", "likelihood", "chains", "warmup",
             "draws", "seed"),
        ),
        "inference.curator.private": Door(
            _curator, lambda: {"tasks": _tasks(), "progress_bar": False}, (curator.private_langevin,), {},
            ("temperature", "skip", "seed"),
        ),
        "privacy.charge_and_draw.draw_matrices": Door(
            called(door.draw_matrices),
            lambda: {"mechanisms": [Gaussian(2, 1.0)], "epsilon": 1.0, "adjacency": "replace", "lattice": 2.0**-12},
            (door.draw_matrices,),
        ),
        "privacy.charge_and_draw.draw_vectors": Door(
            called(door.draw_vectors), lambda: vectors | {"vectors": 3}, (door.draw_vectors,), {"unit": "row"}
        ),
        "privacy.charge_and_draw.draw_each": Door(
            called(door.draw_each),
            lambda: {"mechanisms": [VectorGaussian(2, 1.0, 1.0)], "lattices": [2.0**-20], "epsilon": 1.0, "unit": "row"},
            (door.draw_each,), {"unit": "row"},
        ),
        "privacy.charge_and_draw.draw_share": Door(
            called(door.draw_share),
            lambda: {"law": GaussianShares(2, 1.0, 3, 2.0**-12, 0), "adjacency": "replace"}, (door.draw_share,),
        ),
        "releases.messages.private_clip_norm": Door(
            called(mp.releases.private_clip_norm), lambda: {"source": _tasks(), "epsilon": 1.0, "low": 0.1, "high": 10.0},
            (mp.releases.private_clip_norm,),
        ),
        "releases.publish.release": Door(
            called(mp.release), lambda: {"source": _tasks(), "epsilon": 1.0, "delta": 0.1}, (mp.release, mp.ReleaseSpec)
        ),
        "releases.publish.release, two rounds": Door(
            called(mp.release),
            lambda: {"source": _tasks(), "epsilon": 1.0, "delta": 0.1, "rounds": 2, "respond": lambda _: np.ones((2, 6))},
            (mp.release, mp.ReleaseSpec),
        ),
        "releases.publish.publish": Door(
            called(releases.publish), lambda: {"second_moment": _moment(), "terms": _terms()}, (releases.publish,)
        ),
        "releases.publish.publish_rounds": Door(
            _perturbed, lambda: {"run": lambda noise: (_moment() + noise, None), "terms": _terms()}, (publish_rounds,)
        ),
        "threat_models.means.NoisyMeans.publish": Door(
            lambda ledger, people, epsilon, **options: NoisyMeans(4, 3, 1.0, views.billboard()).publish(
                people, epsilon, ledger=ledger, **options
            ),
            lambda: {"people": _people(), "epsilon": 1.0}, (NoisyMeans.publish,), {"unit": "person"},
        ),
        "federated.run_log.RunLog": Door(
            _site, lambda: {"source": np.ones((2, 2))}, (federated.RunLog,),
        ),
        "federated.flower.persistent_site.PersistentSite": Door(
            _kept_site, lambda: {"number": 0, "source": np.ones((2, 2))}, (PersistentSite,),
        ),
        "federated.local.run": Door(
            _in_process, lambda: {"invitation": _invitation(), "sites": _sites(), "progress_bar": False}, (federated.run,)
        ),
        "federated.protocol.settle": Door(
            called(protocol.settle), lambda: {"invitation": _invitation(), "total": _total(), "sites": 3}, (protocol.settle,)
        ),
        "scikit.MultiTaskRegressor": Door(_wrapped, _table, ()),
    }  # fmt: skip


#: Calls that charge nothing by themselves, or are walked as something else.
ELSEWHERE = {
    "privacy.ledger.check_ledger": "a check",
    "releases.messages.PrivateClipNorm": "what was bought; it names the ledger that has paid",
    "federated.flower.apps.run": "ends with protocol.settle; a link over processes has tests of its own",
    "desk.publish.publish": "ends with releases.publish.publish; an inbox has tests of its own, in tests/desk",
    "desk.coordinator.Coordinator.settle": "ends with protocol.settle; stages have tests of their own, in tests/desk",
    "desk.site.SiteDesk": "hands its ledger to a federated.Site, which is walked",
}


def charging() -> set[str]:
    """Name every public function, method and class of the package with an argument ``ledger``."""
    names: set[str] = set()
    for info in pkgutil.walk_packages(mp.__path__, "mpmtl_prob."):
        if "._" in info.name or info.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(info.name)
        except ImportError:  # of an extra that is not there
            continue
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", None) != info.name:
                continue
            methods = {f"{name}.{k}": getattr(v, "__func__", v) for k, v in vars(thing).items() if not k.startswith("_")} \
                if inspect.isclass(thing) else {}  # fmt: skip
            for called, each in {name: thing, **methods}.items():
                if (inspect.isfunction(each) or inspect.isclass(each)) and _takes_a_ledger(each):
                    names.add(f"{info.name}.{called}".removeprefix("mpmtl_prob."))
    return names


def _takes_a_ledger(thing: Any) -> bool:
    try:
        return "ledger" in inspect.signature(thing).parameters
    except (TypeError, ValueError):
        return False


def commands(name: str, folder: Path) -> Iterator[tuple[list[str], Path]]:
    """Yield a command line as it should be, and then with one option spoilt; each with the ledger that it names."""
    rng = np.random.default_rng(5)
    rows = np.column_stack([np.repeat(np.arange(6), 5), rng.standard_normal((30, 3))])
    rows[0, 1] = SECRET
    table, public, there = folder / "table.csv", folder / "public.csv", folder / "there.nc"
    for path in (table, public):
        np.savetxt(path, rows, delimiter=",", header="task,a,b,y", comments="")
    there.write_text("a release that was paid for")
    if name == "release":
        good = {"--csv": table, "--task": "task", "--target": "y", "--epsilon": 1, "--delta": 0.1, "--total": 2}
        bad = {"--task": ["z", "y", ""], "--target": ["z", "task"], "--features": ["z", "y"], "--adjacency": ["z", ""],
               "--mechanism": ["z", ""], "--scaling": ["z"], "--out": [there, folder, folder / "no" / "a.nc"]}  # fmt: skip
    else:
        good = {"--source": public, "--target": table, "--label": "y", "--epsilon": 1, "--delta": 0.1, "--total": 2}
        bad = {"--label": ["z", ""], "--source": [folder / "no.csv", there], "--target": [folder / "no.csv", there],
               "--out": [there]}  # fmt: skip
    numbers = ["nan", "inf", "-1", "0", "a", "", "1e400", "1e-400"]
    bad |= {
        "--epsilon": numbers,
        "--delta": [*numbers, "1", "2"],
        "--total": [*numbers, "0.5"],
        "--csv": [folder / "no.csv"],
    }
    spoilt = [{}, *({option: value} for option, given in bad.items() for value in given)]
    for number, change in enumerate(spoilt):
        book = folder / f"{name}-{number}.db"
        out = {"--out": folder / f"{name}-{number}.nc"} if name == "release" else {}
        if "--csv" in change and name != "release":
            continue
        options = good | out | {"--ledger": book} | change
        yield [name, "--quiet", *(text for pair in options.items() for text in map(str, pair))], book
