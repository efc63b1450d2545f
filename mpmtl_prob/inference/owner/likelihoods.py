"""What the owners' targets are: numbers with normal errors, or one of two labels."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from mpmtl_prob._check import one_of
from mpmtl_prob.inference.sampling.chains import Draws
from mpmtl_prob.tasks import FloatArray, TaskData
from mpmtl_prob.taskwise import conjugate, intercepts, laplace

LIKELIHOODS = ("gaussian", "bernoulli")


class Posteriors(Protocol):
    """All tasks' posteriors given one Omega: exact, or with the ratios that make them so."""

    @property
    def mean(self) -> FloatArray:
        """Of W, (d, m)."""
        ...

    @property
    def log_evidence(self) -> FloatArray:
        """log p(y_i | Omega) up to a constant of the task, (m,)."""
        ...

    def sample(self, rng: np.random.Generator, num_samples: int) -> Draws:
        """Independent draws by name, (S, ..., m); with ``log_ratio`` where they are of an approximation."""
        ...


def chosen(likelihood: str | None, tasks: TaskData) -> str:
    """The likelihood that a user means. None means "gaussian", but where every target is -1 or 1 it has to be said.

    Raises:
        ValueError: an unknown name, "bernoulli" with other targets than -1 and 1, or none with these.
    """
    y = tasks.y[tasks.mask]
    labels = bool(np.all((y == 1) | (y == -1)))
    if likelihood is None:
        if labels:
            raise ValueError(
                "likelihood: all targets are -1 or 1; give likelihood='bernoulli' if these are two labels, 'gaussian' if "
                "they are numbers"
            )
        return "gaussian"
    one_of("likelihood", likelihood, LIKELIHOODS)
    if likelihood == "bernoulli" and not labels:
        raise ValueError("tasks: expected targets -1 and 1 for likelihood='bernoulli', got others")
    return likelihood


def given(likelihood: str, tasks: TaskData, omega: FloatArray | None, scale: FloatArray | None) -> Posteriors:
    """All tasks' posteriors given the shape of the shared covariance, by :mod:`conjugate` or :mod:`laplace`.

    Where tasks have intercepts, omega and scale are of the other features.
    """
    if tasks.intercept:
        return (intercepts.bernoulli if likelihood == "bernoulli" else intercepts.gaussian)(tasks, omega, scale)
    if likelihood == "bernoulli":
        return laplace.task_posteriors(tasks, omega, scale)
    return conjugate.task_posteriors(tasks.gram, omega, scale)
