"""Multi-task learning in which no task's model leaks to the others, with the uncertainty of every estimate."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpmtl_prob import datasets, estimators, evaluation, inference, models, plots, privacy, releases, threat_models
    from mpmtl_prob.inference import NoiseAware
    from mpmtl_prob.releases import Release, release
    from mpmtl_prob.tasks import Prediction, TaskData

__all__ = [
    "NoiseAware",
    "Prediction",
    "Release",
    "TaskData",
    "datasets",
    "estimators",
    "evaluation",
    "inference",
    "models",
    "plots",
    "privacy",
    "release",
    "releases",
    "threat_models",
]

#: where the names live that are no packages; all are imported when somebody asks for them
_LIVES_IN = {
    "NoiseAware": "inference",
    "Prediction": "tasks",
    "Release": "releases",
    "TaskData": "tasks",
    "release": "releases",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = import_module(f"{__name__}.{_LIVES_IN.get(name, name)}")
    return globals().setdefault(name, getattr(room, name) if name in _LIVES_IN else room)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
