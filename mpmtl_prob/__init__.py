"""Multi-task learning in which no task's model leaks to the others, with the uncertainty of every estimate.

Tasks come from lists or from a table, and estimators have a ``fit``:

>>> mp.TaskData.from_lists([np.eye(2), np.ones((3, 2))], [[1.0, 2.0], [3.0, 4.0, 5.0]], tasks=["north", "south"])
TaskData(2 tasks, 2 features, 5 rows, 2 to 3 per task)
>>> frame = pd.DataFrame({"school": ["A", "A", "B"], "hours": [1, 2, 3], "mark": [5, 6, 7]})
>>> tasks = mp.TaskData.from_pandas(frame, task="school", target="mark")
>>> mp.estimators.Ridge(penalty=1.0).fit(tasks).predict(tasks).to_pandas().round(2)
  task  row  mean
0    A    0  2.27
1    A    1  4.53
2    B    0  3.50
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpmtl_prob._moved import install

if TYPE_CHECKING:
    from mpmtl_prob import (
        adaptation,
        data,
        datasets,
        desk,
        estimators,
        evaluation,
        extend,
        inference,
        models,
        plots,
        privacy,
        releases,
        sampling,
        schema,
        theory,
        threat_models,
    )
    from mpmtl_prob.data import Estimate, Estimates, Prediction, Reference, TaskData, TaskShards
    from mpmtl_prob.inference import NoiseAware
    from mpmtl_prob.releases import Release, ReleaseSpec, release
    from mpmtl_prob.schema import Schema

__all__ = [
    "Estimate",
    "Estimates",
    "NoiseAware",
    "Prediction",
    "Reference",
    "Release",
    "ReleaseSpec",
    "Schema",
    "TaskData",
    "TaskShards",
    "adaptation",
    "data",
    "datasets",
    "desk",
    "estimators",
    "evaluation",
    "extend",
    "inference",
    "models",
    "plots",
    "privacy",
    "release",
    "releases",
    "sampling",
    "schema",
    "theory",
    "threat_models",
]

#: Packages of the names that are none. Everything is imported when somebody first asks for it (PEP 562), so that a part,
#: such as the accountant, needs no package that only others need.
_LIVES_IN = {
    "Estimate": "data",
    "Estimates": "data",
    "NoiseAware": "inference",
    "Prediction": "data",
    "Reference": "data",
    "Release": "releases",
    "ReleaseSpec": "releases",
    "Schema": "schema",
    "TaskData": "data",
    "TaskShards": "data",
    "release": "releases",
}


import_module(f"{__name__}._util.forks")  # sees forks from now on
install()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = import_module(f"{__name__}.{_LIVES_IN.get(name, name)}")
    return globals().setdefault(name, getattr(room, name) if name in _LIVES_IN else room)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
