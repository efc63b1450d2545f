"""Multi-task learning in which no task's model leaks to the others, with the uncertainty of every estimate.

Tasks come from lists or from a table, and estimators have a ``fit``:

>>> mp.TaskData.from_lists([np.eye(2), np.ones((3, 2))], [[1.0, 2.0], [3.0, 4.0, 5.0]], tasks=["north", "south"])
TaskData(2 tasks, 2 features, 5 rows, 2 to 3 per task)
>>> frame = pd.DataFrame({"school": ["A", "A", "B"], "hours": [1, 2, 3], "mark": [5, 6, 7]})
>>> tasks = mp.TaskData.from_pandas(frame, task="school", target="mark")
>>> mp.estimators.Ridge(penalty=1.0).fit(tasks).predict(tasks).to_pandas().round(2)
  task  row  mean
0    A    0  2.83
1    A    1  5.67
2    B    0  6.30
"""

from mpmtl_prob import datasets, estimators, evaluation, inference, models, plots, privacy, releases
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
]
