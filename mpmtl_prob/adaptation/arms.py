"""Arms of an adaptation by name: the paper's estimators and their baselines side by side, each with the whole budget.

Scales come from public records: features and labels are centred and scaled, then divided by public bounds, so that rows and
labels have at most length 1. Every arm with noise is a release of its own, and all of them together cost what their
composition costs. Before anything is paid, all arms are fitted to public records in the target's place, against a copy of
the ledger: what would be refused is refused then.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import flag, one_of, positive
from mpmtl_prob._util.files import write_text
from mpmtl_prob._util.tables import aligned
from mpmtl_prob.adaptation.data.domain import Domain, domain, pair, public_domain, several, stacked
from mpmtl_prob.adaptation.data.scaling import Scaling
from mpmtl_prob.adaptation.estimator import Adaptation
from mpmtl_prob.adaptation.moments.adassp import AdaSSP
from mpmtl_prob.adaptation.moments.moment_adaptation import MomentAdaptation
from mpmtl_prob.adaptation.moments.private_matching import PrivateDiscrepancyMinimisation
from mpmtl_prob.adaptation.paper.accounting import default_delta
from mpmtl_prob.adaptation.paper.baselines import NoisyGradient, SourceOnly, Unprotected, WarmDescent
from mpmtl_prob.adaptation.paper.cnvx import CnvxAdap
from mpmtl_prob.adaptation.paper.matching import KMM, DiscrepancyMinimisation
from mpmtl_prob.adaptation.paper.ncnvx import NCnvxAdap
from mpmtl_prob.adaptation.paper.network import NetworkAdap
from mpmtl_prob.adaptation.public_fit import robust
from mpmtl_prob.privacy.accounting.composition import compute_epsilon
from mpmtl_prob.privacy.guarantee import Bound, Guarantee
from mpmtl_prob.privacy.ledger import Charge, Ledger, check_ledger
from mpmtl_prob.privacy.units import Unit

FILE = "arms.json"
#: multiple of the length of a public fit's weights to which private fits are confined
_ROOM = 1.5
_WIDTH = 110
#: total of a ledger in memory that only counts
_ANY = 1e9


class Settings(NamedTuple):
    """Settings of all arms.

    Attributes:
        paid: epsilon, delta, ledger and unsafe_seed.
        descent: steps and source_weight, where the user named them.
        accounting: "exact" or "printed".
        weight_bound: Lambda of linear regression, from public records.
        seed: of draws and candidates.
    """

    paid: dict[str, Any]
    descent: dict[str, Any]
    accounting: str
    weight_bound: float
    seed: int

    @property
    def steps(self) -> dict[str, Any]:
        """The steps alone, where the user named them."""
        return {name: value for name, value in self.descent.items() if name == "steps"}

    def cnvx(self, **options: Any) -> CnvxAdap:
        """Return the estimator of Algorithm 1."""
        return CnvxAdap(
            **{"weight_bound": self.weight_bound, "accounting": self.accounting, **self.paid, **self.descent, **options}
        )

    def labels(self, kind: type[NCnvxAdap], **options: Any) -> NCnvxAdap:
        """Return an estimator of Algorithm 2."""
        return kind(**{"accounting": self.accounting, "seed": self.seed, **self.paid, **self.descent, **options})


class Kind(NamedTuple):
    """One arm.

    Attributes:
        text: what it is, in words.
        make: the estimator from settings.
        private: False for an arm that looks at private records without any noise.
        apart: True if it takes the public domains apart.
    """

    text: str
    make: Callable[[Settings], Adaptation]
    private: bool = True
    apart: bool = False


_WITHOUT: dict[str, Any] = {"epsilon": None, "ledger": None, "unsafe_seed": None}
REGRESSION: dict[str, Kind] = {
    "source": Kind("a robust fit to public records", lambda s: SourceOnly()),
    "moments": Kind(
        "one release of moments, posterior mean",
        lambda s: MomentAdaptation(**s.paid, row_bound=1.0, target_bound=1.0, seed=s.seed, progress_bar=False),
        apart=True,
    ),
    "adassp": Kind("AdaSSP on residuals of a public fit", lambda s: AdaSSP(**s.paid)),
    "noisy_gradient": Kind(
        "noisy gradient descent on the target alone",
        lambda s: NoisyGradient(weight_bound=s.weight_bound, **s.paid, **s.steps),
    ),
    "cnvx": Kind("CnvxAdap, best weights inserted (profiled)", lambda s: s.cnvx()),
    "cnvx_frozen": Kind("CnvxAdap, private weights frozen", lambda s: s.cnvx(variant="frozen")),
    "cnvx_rescaled": Kind("CnvxAdap, steps of weights rescaled", lambda s: s.cnvx(variant="rescaled")),
    "cnvx_printed": Kind("CnvxAdap as printed (Algorithm 1)", lambda s: s.cnvx(variant="printed")),
    "cnvx_source": Kind("CnvxAdap at alpha = 1: the discrepancy alone is paid", lambda s: s.cnvx(source_weight=1.0)),
    "warm": Kind(
        "profiled descent from a public fit, without a discrepancy",
        lambda s: WarmDescent(weight_bound=s.weight_bound, accounting=s.accounting, **s.paid, **s.descent),
    ),
    "dm": Kind(
        "discrepancy minimisation from a private second moment", lambda s: PrivateDiscrepancyMinimisation(**s.paid)
    ),
    "target": Kind("ridge on private records", lambda s: Unprotected(), False),
    "pooled": Kind("ridge on all records", lambda s: Unprotected("pooled"), False),
    "kmm": Kind("kernel mean matching", lambda s: KMM(), False),
    "dm_not_private": Kind("discrepancy minimisation", lambda s: DiscrepancyMinimisation(), False),
    "cnvx_not_private": Kind("the optimum of CnvxAdap's objective", lambda s: s.cnvx(**_WITHOUT), False),
}
CLASSIFICATION: dict[str, Kind] = {
    "source": Kind(
        "descent on public records alone",
        lambda s: s.labels(NCnvxAdap, source_weight=1.0, discrepancy=0.0),
    ),
    "ncnvx": Kind("NCnvxAdap, best weights inserted (profiled)", lambda s: s.labels(NCnvxAdap)),
    "ncnvx_printed": Kind("NCnvxAdap as printed (Algorithm 2)", lambda s: s.labels(NCnvxAdap, variant="printed")),
    "network": Kind("NetworkAdap, one hidden layer", lambda s: s.labels(NetworkAdap)),
    "ncnvx_not_private": Kind("NCnvxAdap without noise", lambda s: s.labels(NCnvxAdap, **_WITHOUT), False),
    "network_not_private": Kind("NetworkAdap without noise", lambda s: s.labels(NetworkAdap, **_WITHOUT), False),
}


class FittedArm(NamedTuple):
    """One arm's result.

    Attributes:
        name: its name in :data:`REGRESSION` or :data:`CLASSIFICATION`.
        text: what it is.
        guarantee: for one record of the target.
        weights: of the table's units by feature, the intercept last, (d,) or (d, classes); None for a network.
        model: the estimator, of scaled records.
        error: on test records: the mean squared error in units of the public labels' variance, or the share of wrong labels.
    """

    name: str
    text: str
    guarantee: Guarantee
    weights: FloatArray | None
    model: Adaptation
    error: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Arms:
    """Arms side by side, with what they cost together; str() is a table.

    Attributes:
        label: name of the column that is predicted.
        records: number of public records by domain.
        num_records: number of private records, n.
        scaling: the units, from public records.
        fits: one per arm.
        total: what all arms cost together; None if nothing is guaranteed.
        test: what the test records are, in words; None without.
        classification: whether labels are classes.
    """

    label: str
    records: dict[Hashable, int]
    num_records: int
    scaling: Scaling
    fits: tuple[FittedArm, ...]
    total: Bound | None
    test: str | None
    classification: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and texts for JSON."""
        arms = [
            {"name": fit.name, "what": fit.text, "guarantee": fit.guarantee.to_dict(), "error": fit.error}
            | {"weights": None if fit.weights is None else fit.weights.tolist()}
            for fit in self.fits
        ]
        return {
            "label": self.label,
            "features": [str(name) for name in self.scaling.features],
            "public_records": {str(name): number for name, number in self.records.items()},
            "private_records": self.num_records,
            "classification": self.classification,
            "test": self.test,
            "total": None if self.total is None else {"epsilon": self.total.epsilon, "delta": self.total.delta},
            "arms": arms,
        }

    def __str__(self) -> str:
        return "\n\n".join(self._parts())

    def _parts(self) -> Iterator[str]:
        yield (
            f"{self.label} from {len(self.scaling.scale)} features: {sum(self.records.values())} public records, "
            f"{self.num_records} private ones"
        )
        head = ("arm", "costs", *(("error on test",) if self.test else ()))
        rows = [
            (f"{fit.name}: {fit.text}", _cost(fit.guarantee), *((f"{fit.error:.4f}",) if self.test else ()))
            for fit in self.fits
        ]
        yield aligned([head, *rows])
        if self.test:
            unit = (
                "share of wrong labels" if self.classification else "mean squared error, variance of public labels = 1"
            )
            yield fill(f"Errors on test: {unit}. {self.test}", _WIDTH)
        if any(fit.guarantee.proved is None for fit in self.fits):
            yield fill("An arm that costs \"no privacy\" has looked at private records without noise: its weights and "
                       "errors are for the records' owner alone.", _WIDTH)  # fmt: skip
        if self.total is not None:
            yield fill(f"All arms together: {self.total}. Each is a release of its own; no eps is shared.", _WIDTH)

    def save(self, out: Path) -> list[str]:
        """Write the numbers into a folder, and return the file's name; for their owner alone unless all of it is proved."""
        private = self.total is None or bool(self.test) or any(fit.guarantee.proved is None for fit in self.fits)
        write_text(out / FILE, json.dumps(self.to_dict(), indent=2) + "\n", private=private)
        return [FILE]


def fit_arms(
    names: Sequence[str],
    source: Any,
    target: Any,
    *,
    label: str,
    epsilon: float,
    delta: float | None = None,
    classification: bool = False,
    intercept: bool = True,
    steps: int | None = None,
    source_weight: float | None = None,
    accounting: str = "exact",
    not_private: bool = False,
    test: Any = None,
    test_is: str = "",
    ledger: Ledger | None = None,
    unsafe_seed: int | None = None,
    seed: int = 0,
) -> Arms:
    """Fit arms by name, each with the whole budget, after a rehearsal on public records.

    Args:
        names: some of :data:`REGRESSION`, or of :data:`CLASSIFICATION`.
        source: a public Domain, or several by name.
        target: private, a Domain or a pair (X, y).
        label: name of the column that is predicted.
        epsilon: of every arm.
        delta: default 1 / n^1.1.
        classification: whether labels are classes, which are those of the public records.
        intercept: add a column of ones, which counts in the bound of a row.
        steps: T of the descents; default each one's own.
        source_weight: alpha of the paper's algorithms; default each one's own.
        accounting: "exact", or "printed": the paper's noise and claim, of the paper's algorithms.
        not_private: allow arms that look at private records without noise.
        test: records that may be looked at, a Domain or a pair (X, y), on which errors are computed without noise.
        test_is: what they are, in words, for the table.
        ledger: of unit "target record", pays for every arm, on disk, before its noise is drawn.
        unsafe_seed: draws all noise from this seed, for demonstrations: nothing is then guaranteed.
        seed: of draws and candidates.

    Raises:
        BudgetExceeded: the ledger's total does not cover all arms. Nothing was charged.
        ValueError: an argument outside its range, or data that do not match. Nothing was charged.

    Whatever ends it later, such as a full disk, has what is paid for as its attribute ``arms``.
    """
    flag("intercept", intercept)
    chosen = _chosen(names, flag("classification", classification), not_private)
    epsilon = positive("epsilon", epsilon)
    public: Mapping[Hashable, Domain] = several(source)
    every = stacked(public)
    _, private = pair(every, target)
    test = None if test is None else _matching(test, every)
    ball = _Ball.of(every, intercept, classification)
    apart = {name: ball.inside(part) for name, part in public.items()}
    together, own = stacked(apart), ball.inside(private)
    bound = 1.0 if classification else max(1.0, _ROOM * float(np.linalg.norm(robust(together).w)))
    delta = default_delta(private.num_records) if delta is None else delta
    descent = {"steps": steps, "source_weight": source_weight}
    descent = {name: value for name, value in descent.items() if value is not None}

    def fitted(kind: Kind, records: Domain, payer: Ledger | None, noise_seed: int | None) -> Adaptation:
        paid = {"epsilon": epsilon, "delta": delta, "ledger": payer, "unsafe_seed": noise_seed}
        model = kind.make(Settings(paid, descent, accounting, bound, seed))
        return model.fit(apart if kind.apart else together, records)

    rows = np.resize(np.arange(together.num_records), own.num_records)  # as many public records as private ones
    stand_in = Domain(together.X[rows], together.y[rows], together.features)
    _rehearse([partial(fitted, kind, stand_in) for kind in chosen.values()], ledger)
    book = Ledger(epsilon=_ANY, delta=delta, unit=Unit.TARGET_RECORD) if ledger is None else ledger
    payer, already, fits = (None if unsafe_seed is not None else book), len(book.charges()), list[FittedArm]()
    records = {name: part.num_records for name, part in public.items()}

    def so_far() -> Arms:
        total = None if payer is None else _together(book.charges()[already:], delta)
        said = None if test is None else test_is
        return Arms(label, records, private.num_records, ball.units, tuple(fits), total, said, classification)

    check_ledger(ledger, unsafe_seed)
    try:
        for name, kind in chosen.items():
            model = fitted(kind, own, payer, unsafe_seed)
            error = None if test is None else ball.error(model, test)
            fits.append(FittedArm(name, kind.text, model.guarantee_, ball.original(model), model, error))
    except BaseException as stopped:
        if fits:
            stopped.arms = so_far()  # type: ignore[attr-defined]
        raise
    return so_far()


def _chosen(names: Sequence[str], classification: bool, not_private: bool) -> dict[str, Kind]:
    """Return the arms by name.

    Raises:
        ValueError: none, an unknown one, one named twice, or one without privacy that is not allowed.
    """
    known = CLASSIFICATION if classification else REGRESSION
    chosen = {one_of("arms", name, tuple(known)): known[name] for name in names}
    if len(chosen) < len(names):
        twice = next(name for name in chosen if list(names).count(name) > 1)
        raise ValueError(f"arms: expected every arm once, got {twice} more than once; take the repetition out")
    if not chosen:
        raise ValueError(f"arms: expected some of {', '.join(known)}, got none")
    if (bare := [name for name, kind in chosen.items() if not kind.private]) and not not_private:
        raise ValueError(
            f"arms: expected arms with a guarantee, got {', '.join(bare)}, which look at private records without noise; "
            "allow it with not_private (--not-private), for the records' owner alone"
        )
    return chosen


def _matching(test: Any, public: Domain) -> Domain:
    """Return test records after a check of their numbers and features, which may be looked at."""
    records = public_domain("test", domain("test", test))
    if records.num_features != public.num_features:
        raise ValueError(f"test: expected the source's {public.num_features} features, got {records.num_features}")
    return records


class _Ball(NamedTuple):
    """Records in public units, with rows and labels of at most length 1 among most public records.

    Attributes:
        units: centres, scales and the bound of rows.
        largest: by which scaled labels are divided.
    """

    units: Scaling
    largest: float

    @classmethod
    def of(cls, public: Domain, intercept: bool, classification: bool) -> _Ball:
        """Compute the units from public records; classes stay what they are."""
        units = Scaling.of(public, intercept=intercept)
        if classification:
            return cls(replace(units, label_centre=0.0, label_scale=1.0), 1.0)
        return cls(units, max(float(np.abs(units.scaled(public).y).max()), 1e-300))

    def inside(self, records: Domain) -> Domain:
        """Return records in these units."""
        scaled = self.units.scaled(records)
        with np.errstate(all="ignore"):  # a warning would reveal one record
            return Domain(scaled.X / self.units.row_bound, scaled.y / self.largest, scaled.features)

    def error(self, model: Adaptation, test: Domain) -> float:
        """Compute the error on test records, in units of the public labels' variance, or the share of wrong labels."""
        inside = self.inside(test)
        off = model.predict(inside.X) - inside.y
        if model.classes_ is not None:
            return float(np.mean(off != 0))
        return float(np.mean((self.largest * off) ** 2))

    def original(self, model: Adaptation) -> FloatArray | None:
        """Return weights in the units of the table; None of a network."""
        if isinstance(model, NetworkAdap):
            return None
        w = self.largest / self.units.row_bound * model.coef_
        return self.units.original(w) if w.ndim == 1 else self.units.original(w.T).T


def _rehearse(fits: Sequence[Callable[[Ledger | None, int | None], Adaptation]], ledger: Ledger | None) -> None:
    """Make all fits with noise from a seed, and charge a copy of the ledger. Raises what the fits or the charges would."""
    copy = _copy(ledger)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fits themselves warn
        for fit in fits:
            fit(None, 0)
            if copy is not None:
                with suppress(_Charged):
                    fit(copy, None)


class _Charged(Exception):
    """Signal that a fit has been charged, and is to go no further."""


class _BudgetCheck(Ledger):
    """Ledger in memory that ends a fit as soon as it has been charged, before any noise is drawn."""

    def charge(self, *laws: Any, **options: Any) -> Charge:
        super().charge(*laws, **options)
        raise _Charged


def _copy(ledger: Ledger | None) -> _BudgetCheck | None:
    """Return a ledger in memory with the same total and the same charges."""
    if ledger is None:
        return None
    terms = {name: getattr(ledger, name) for name in ("epsilon", "delta", "adjacency", "unit", "adaptive")}
    copy = _BudgetCheck(None, **terms)
    for charge in ledger.charges():
        with suppress(_Charged):
            copy.charge(charge.mechanisms, unit=charge.unit, adjacency=charge.adjacency)
    return copy


def _together(charges: Sequence[Charge], delta: float) -> Bound:
    """Return what the charges cost together."""
    laws = [law for charge in charges for law in charge.mechanisms]
    return Bound(compute_epsilon(delta, laws) if laws else 0.0, delta, "replace", Unit.TARGET_RECORD)


def _cost(guarantee: Guarantee) -> str:
    if guarantee.proved is None:
        return "no privacy"
    if not guarantee.proved.epsilon:
        return "nothing"
    return f"eps {guarantee.proved.epsilon:.3g}, delta {guarantee.proved.delta:.3g}"
