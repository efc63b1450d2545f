"""Plan of a run of Algorithm 1 before its noise is drawn: step sizes, acceleration, and noise distributions."""

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

#: function from a total (eps, delta) to the budgets of all rounds
Weights = Callable[[float, float], FloatArray]


@dataclass(frozen=True)
class RowProtection:
    """Row protection, the second budget of Algorithm 5: owners add noise to their models before the curator sees them.

    The unit of privacy is one row, not one task. The two budgets are separate, and do not add up.

    Attributes:
        epsilon: for all rounds together, > 0.
        delta: default 1 / (N log N), N the number of rows of all tasks, which is public here, as replacing a row does not
            change it; 0 for pure differential privacy.
        ledger: of unit "row"; pays for all rounds, on disk, before any noise is drawn.
    """

    epsilon: float
    delta: float | None = None
    ledger: Ledger | None = None

    def total(self, tasks: TaskData) -> tuple[float, float]:
        """Return (epsilon, delta) for these tasks. Raises ValueError for numbers outside their range."""
        delta = default_delta(tasks.num_rows) if self.delta is None else self.delta
        return positive("rows.epsilon", self.epsilon), in_range("rows.delta", delta, 0, 1, left_closed=True)


class Rows(NamedTuple):
    """Private inputs of a run: the owners' losses, their curvatures (m,), and W^(0) (d, m).

    ``tied`` is True if W^(0) comes from a method that shares between tasks.
    """

    loss: Smooth
    curvature: FloatArray
    W0: FloatArray
    tied: bool = False

    def __repr__(self) -> str:
        return shown(self)


@dataclass(frozen=True, eq=False, repr=False)
class Plan(HidesArrays):
    """Plan of a run, before its noise is drawn.

    Attributes:
        run: the numbers of the run.
        W0: initial models, (d, m).
        size: k, the size of the releases.
        mechanisms: the noise of every round; empty if nothing is published.
        row_mechanisms: the noise that every owner adds to its model in every round; empty if the curator is trusted.
        unproved: why nothing is proved, as private rows influence the releases other than through noise; else "".
    """

    run: Run = field(repr=False)
    W0: FloatArray = field(repr=False)
    size: int
    mechanisms: tuple[MatrixMechanism, ...]
    row_mechanisms: tuple[VectorLaplace, ...] = ()
    unproved: str = ""

    def execute(self, noise: Noise, sharing: SharingRule, record: bool = True) -> tuple[FloatArray, FloatArray]:
        """Run the rounds; return Sigma^(1:T) (T, k, k) and W^^(1:T) (T, d, m), in double precision for any JAX setting."""
        check_not_forked()
        with jax.enable_x64(True):
            run, W0, noise = without_copies((self.run, self.W0, noise))
            sigma, outputs, _ = run_rounds(sharing, run, W0, noise, record=record)
            return np.asarray(sigma), np.asarray(outputs)


def step_sizes(
    step_size: float | str | ArrayLike | None, curvature: FloatArray, bound: float | None
) -> tuple[FloatArray, float]:
    """Return eta of every owner, (m,), and the curator's eta, which the mapping uses.

    Args:
        step_size: as in :class:`MPMTL`.
        curvature: L_i of every task, (m,).
        bound: L, public; None takes max_i L_i, which depends on the rows.
    """
    if step_size is None or isinstance(step_size, str):
        one_of("step_size", step_size or "per_task", ("per_task",))
        common = 1 / float(curvature.max() if bound is None else bound)
        with np.errstate(over="ignore"):
            # Without curvature the gradient is zero.
            per_task = np.divide(1, curvature, out=np.zeros_like(curvature), where=curvature > 0)
        return per_task if step_size else np.minimum(per_task, common), common
    eta = np.asarray(step_size, dtype=np.float64)
    if np.shape(eta) not in ((), curvature.shape) or not np.all(np.isfinite(eta) & (eta > 0)):
        raise ValueError(
            f"step_size: expected a positive number, or one for each of {len(curvature)} tasks, got {shown(step_size)}"
        )
    return np.broadcast_to(eta, curvature.shape), float(np.min(eta))


def momentum(acceleration: str, rounds: int, ratio: float) -> FloatArray:
    """Return beta_t, (T,), for mu/L = ratio."""
    t = np.arange(1, rounds + 1)
    if acceleration == "convex":
        return (t - 1) / (t + 2)
    root = np.sqrt(ratio)
    return np.full(rounds, (1 - root) / (1 + root) if acceleration == "strongly_convex" else 0.0)


def clip_norm(clip: float | PrivateClipNorm) -> float:
    """Return K as a float, as the square of a NumPy integer may overflow."""
    return float(clip.clip if isinstance(clip, PrivateClipNorm) else clip)
