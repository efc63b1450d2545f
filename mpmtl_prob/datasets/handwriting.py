"""Handwritten digits: the small data set of scikit-learn, 1,797 images of 8 x 8 pixels."""

from __future__ import annotations

import numpy as np

from mpmtl_prob.data.tasks import TaskData


def digits(*, unit_rows: bool = True) -> TaskData:
    """Load ten tasks, each to tell one digit from the others: targets -1 and 1, 64 pixel intensities (0 to 16).

    The tasks share the images: ``digits().split(0.3, seed)`` sends 30 % of the images to training, in all ten tasks.
    Needs no network.

    Args:
        unit_rows: scale every row of X to Euclidean length 1.

    Raises:
        ImportError: scikit-learn, of the extra ``data``, is not installed.

    Source: Alpaydin and Kaynak (1998), UCI Machine Learning Repository; the test set, as in scikit-learn.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ImportError(
            "digits needs scikit-learn: install the extra 'data' (pip install 'mpmtl-prob[data]')"
        ) from None
    X, label = load_digits(return_X_y=True)
    tasks = TaskData.from_targets(
        X,
        np.where(label[:, None] == np.arange(10), 1.0, -1.0),
        tasks=[f"digit_{j}" for j in range(10)],
        features=[f"pixel_{row}_{column}" for row in range(8) for column in range(8)],
    )
    return tasks.unit_rows() if unit_rows else tasks
