"""Modules under the names that version 0.3 documented, each with a DeprecationWarning. This file goes with version 0.5."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

#: Where a module, or a package with all that is in it, is now; without the name of this package.
MOVED: dict[str, str] = {
    "adaptation.accounting": "adaptation.paper.accounting",
    "adaptation.adassp": "adaptation.moments.adassp",
    "adaptation.baselines": "adaptation.paper.baselines",
    "adaptation.bounds": "theory.adaptation",
    "adaptation.clipping": "adaptation.moments.clipping",
    "adaptation.cnvx": "adaptation.paper.cnvx",
    "adaptation.conditional": "adaptation.moments.grid_posterior",
    "adaptation.descent": "adaptation.paper.descent",
    "adaptation.discrepancy": "adaptation.paper.discrepancy",
    "adaptation.domain": "adaptation.data.domain",
    "adaptation.files": "adaptation.moments.files",
    "adaptation.label_posterior": "adaptation.moments.label_posterior",
    "adaptation.losses": "adaptation.paper.losses",
    "adaptation.matching": "adaptation.paper.matching",
    "adaptation.ncnvx": "adaptation.paper.ncnvx",
    "adaptation.network": "adaptation.paper.network",
    "adaptation.objective": "adaptation.paper.objective",
    "adaptation.one_release": "adaptation.moments.moment_adaptation",
    "adaptation.paper_files": "adaptation.data.paper_files",
    "adaptation.private": "adaptation.paper.private",
    "adaptation.problems": "adaptation.data.problems",
    "adaptation.real": "adaptation.data.real",
    "adaptation.report": "adaptation.adapt",
    "adaptation.scaling": "adaptation.data.scaling",
    "adaptation.shape": "adaptation.moments.feature_moment",
    "adaptation.shift_model": "adaptation.moments.shift_model",
    "adaptation.solver": "adaptation.paper.solver",
    "adaptation.tables": "adaptation.data.tables",
    "adaptation.task_prior": "adaptation.moments.task_prior",
    "adaptation.tilting": "adaptation.moments.tilting",
    "estimators.rates": "theory.utility",
    "experiments": "studies.papers",
    "federated.account": "federated.run_log",
    "federated.certificates": "federated.flower.certificates",
    "federated.conditions": "federated.site_policy",
    "federated.kept": "federated.flower.persistent_site",
    "federated.node": "federated.flower.node",
    "federated.scattered": "federated.sharded",
    "federated.sites": "federated.flower.sites",
    "federated.wire": "federated.flower.wire",
    "inference.owner.own_message": "inference.owner.leave_one_out",
    "inference.public.across": "inference.public.comparison",
    "inference.public.first": "inference.public.moment_estimate",
    "inference.public.odds": "inference.public.membership",
    "inference.public.omega": "inference.public.inverse_wishart",
    "inference.public.shapes": "inference.public.covariance_draws",
    "inference.public.starts": "inference.public.init",
    "inference.public.trees": "inference.public.datatree",
    "inference.sampling": "sampling",
    "inference.sampling.simulation": "sampling.calibration",
    "intercept": "data.intercepts",
    "prediction": "data.prediction",
    "privacy.door": "privacy.charge_and_draw",
    "privacy.laws": "privacy.mechanisms",
    "privacy.laws.law": "privacy.mechanisms.mechanism",
    "releases.streamed": "releases.sharded",
    "releases.terms": "releases.spec",
    "shards": "data.shards",
    "tasks": "data.tasks",
    "taskwise": "single_task",
    "taskwise.evidence": "single_task.posterior_means",
    "threat_models.bounds": "theory.people",
}
#: Other modules that hold names of the former one.
PARTS = {
    "adaptation.bounds": ("adaptation.paper.objective",),
    "intercept": ("data.contrasts",),
    "prediction": ("_util.arrays",),
    "tasks": ("data.prediction", "data.gram", "_util.arrays"),
}
_PACKAGE = __name__.rpartition(".")[0]
_PACKAGES = {f"{_PACKAGE}.inference.sampling", f"{_PACKAGE}.experiments"}


def new_name(name: str) -> str | None:
    """Return the new full name of a module, None for one that did not move."""
    if not name.startswith(f"{_PACKAGE}."):
        return None
    for old, new in sorted(MOVED.items(), reverse=True):  # what is in a package before the package
        if f"{name}.".startswith(f"{_PACKAGE}.{old}."):
            package = "" if new.startswith("studies.") else f"{_PACKAGE}."
            return name.replace(f"{_PACKAGE}.{old}", f"{package}{new}", 1)
    return None


class Finder(MetaPathFinder, Loader):
    """Find a module that has moved by its former name. Asked first, as a folder of that name may be left, with bytecode."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for the former name of a module."""
        new = new_name(fullname)
        if new is None:
            return None
        return ModuleSpec(fullname, self, origin=new, is_package=fullname in _PACKAGES)

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and look up every name in the new module."""
        old = module.__name__
        new = new_name(old)
        assert new is not None
        warnings.warn(_said(old, new), DeprecationWarning, stacklevel=2)
        others = PARTS.get(old.removeprefix(f"{_PACKAGE}."), ())
        homes = [import_module(new), *(import_module(f"{_PACKAGE}.{part}") for part in others)]

        def __getattr__(name: str) -> Any:
            for home in homes:
                if hasattr(home, name):
                    return getattr(home, name)
            raise AttributeError(f"module {new!r} has no attribute {name!r}")

        # importing a module sets its name in its package, which may export a function of that name
        same = getattr(homes[0], old.rpartition(".")[2], None)
        if callable(same):
            module.__class__ = type("CallableModule", (ModuleType,), {"__call__": staticmethod(same)})
        module.__doc__ = homes[0].__doc__
        module.__getattr__ = __getattr__  # type: ignore[method-assign]

    def get_code(self, fullname: str) -> CodeType:
        """Return what ``python -m`` runs: the new module."""
        new = new_name(fullname)
        assert new is not None
        warn = f"import warnings; warnings.warn({_said(fullname, new)!r}, DeprecationWarning)"
        return compile(
            f"{warn}; import runpy; runpy.run_module({new!r}, run_name='__main__', alter_sys=True)", fullname, "exec"
        )


def _said(old: str, new: str) -> str:
    return f"{old} is {new} now; the former name goes with version 0.5"


def install() -> None:
    """Have Python ask the finder."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
