"""A run of Algorithm 1 before its noise is drawn: step sizes, acceleration, noise laws, and what it needs of the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import in_range, one_of, positive
from mpmtl_prob._util.devices import without_copies
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob._util.hidden_arrays import HidesArrays, shown
from mpmtl_prob.convex.losses import Smooth
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators.framework import Noise, Run, SharingRule, run_rounds
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.mechanisms import MatrixMechanism, VectorLaplace
from mpmtl_prob.releases.messages import PrivateClipNorm
from mpmtl_prob.releases.spec import default_delta

#: from a total (eps, delta) to the budgets of all rounds
Weights = Callable[[float, float], FloatArray]


@dataclass(frozen=True)
class RowProtection:
    """Algorithm 5's second budget: every owner adds noise to its own model before the curator sees it.

    It protects one row, not one task: the two budgets are kept apart, never added.

    Attributes:
        epsilon: for all rounds together, > 0.
        delta: default 1 / (N log N), N the rows of all tasks together, which are public here: where a row is replaced by
            another their number stays; 0 for pure differential privacy.
        ledger: of rows; pays for all rounds, on disk, before any noise is drawn.
    """

    epsilon: float
    delta: float | None = None
    ledger: Ledger | None = None

    def total(self, tasks: TaskData) -> tuple[float, float]:
        """(epsilon, delta) on these tasks. Raises ValueError for numbers outside their range."""
        delta = default_delta(tasks.num_rows) if self.delta is None else self.delta
        return positive("rows.epsilon", self.epsilon), in_range("rows.delta", delta, 0, 1, left_closed=True)


class Rows(NamedTuple):
    """What a run needs of the owners' rows: their losses, the curvatures of these (m,), and W^(0) (d, m).

    ``tied`` says that W^(0) comes of a method that shares.
    """

    loss: Smooth
    curvature: FloatArray
    W0: FloatArray
    tied: bool = False

    def __repr__(self) -> str:
        return shown(self)


@dataclass(frozen=True, eq=False, repr=False)
class Plan(HidesArrays):
    """A run before its noise is drawn.

    Attributes:
        run: the numbers.
        W0: initial models, (d, m).
        size: k, of the releases.
        mechanisms: the noise law of every round; none where nothing is published.
        row_mechanisms: what every owner adds to its model in every round; none where the curator is trusted with it.
        unproved: what private rows reach the releases around the noise, in words; "" where none do.
    """

    run: Run = field(repr=False)
    W0: FloatArray = field(repr=False)
    size: int
    mechanisms: tuple[MatrixMechanism, ...]
    row_mechanisms: tuple[VectorLaplace, ...] = ()
    unproved: str = ""

    def execute(self, noise: Noise, sharing: SharingRule, record: bool = True) -> tuple[FloatArray, FloatArray]:
        """Sigma^(1:T) (T, k, k) and W^^(1:T) (T, d, m), in double precision whatever the user's JAX setting."""
        check_not_forked()
        with jax.enable_x64(True):
            run, W0, noise = without_copies((self.run, self.W0, noise))
            sigma, outputs, _ = run_rounds(sharing, run, W0, noise, record=record)
            return np.asarray(sigma), np.asarray(outputs)


def step_sizes(
    step_size: float | str | ArrayLike | None, curvature: FloatArray, bound: float | None
) -> tuple[FloatArray, float]:
    """eta of every owner, (m,), and the curator's, by which the mapping shrinks.

    Args:
        step_size: as in :class:`MPMTL`.
        curvature: L_i of every task, (m,).
        bound: L, public; None reads max_i L_i off the rows.
    """
    if step_size is None or isinstance(step_size, str):
        one_of("step_size", step_size or "per_task", ("per_task",))
        common = 1 / float(curvature.max() if bound is None else bound)
        with np.errstate(over="ignore"):
            own = np.divide(1, curvature, out=np.zeros_like(curvature), where=curvature > 0)  # no curvature, no slope
        return own if step_size else np.minimum(own, common), common
    eta = np.asarray(step_size, dtype=np.float64)
    if np.shape(eta) not in ((), curvature.shape) or not np.all(np.isfinite(eta) & (eta > 0)):
        raise ValueError(
            f"step_size: expected a positive number, or one for each of {len(curvature)} tasks, got {shown(step_size)}"
        )
    return np.broadcast_to(eta, curvature.shape), float(np.min(eta))


def momentum(acceleration: str, rounds: int, ratio: float) -> FloatArray:
    """beta_t, (T,), for mu/L = ratio."""
    t = np.arange(1, rounds + 1)
    if acceleration == "convex":
        return (t - 1) / (t + 2)
    root = np.sqrt(ratio)
    return np.full(rounds, (1 - root) / (1 + root) if acceleration == "strongly_convex" else 0.0)


def clip_norm(clip: float | PrivateClipNorm) -> float:
    return float(clip.clip if isinstance(clip, PrivateClipNorm) else clip)  # of a NumPy integer the square may overflow
