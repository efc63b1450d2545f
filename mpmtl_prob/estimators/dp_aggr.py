"""DP-AGGR: the noisy average of all tasks' own models, which every task uses."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import one_of, positive, whole
from mpmtl_prob._util.devices import without_copies
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.convex.losses import LeastSquares, Logistic, LogisticRows, Loss
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators.fitted import Fitted, by_name
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.charge_and_draw import draw_vectors
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, Bound, Guarantee
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.mechanisms import IndependentLaplace, VectorLaplace

NO_TARGET_BOUND = (
    "The sensitivity of a model to one row depends on the largest target, which was taken from the private rows; give "
    "target_bound, chosen without looking at them."
)


NO_ROW_BOUNDS = (
    "The noise depends on the largest and the least number of rows of a task, which replacing a task can change; give rows, "
    "chosen without looking at the data."
)
#: Smallest lambda, in units of R^2, for which the solver converges on any rows; an error during a fit would reveal a task.
WEAKEST = 1e-7
#: Length of a gradient, in units of R, at which the solver stops, within LEVEL * R / lambda of the minimiser.
LEVEL = 1e-10
FEWER_ROWS = "A task has fewer rows than rows = (n_min, n_max) says, so that one row can change its model more."


@dataclass(frozen=True)
class DPAggr:
    """DP-AGGR, private parameter averaging: w^s = mean_i w_i + b, with regularised models w_i of every task.

    w_i minimises (1/n_i) sum_j l(x_ij'w, y_ij) + (lambda/2) ||w||^2. Changing one row changes w_i by at most
    2 L / (n_i lambda), and the average by at most Delta = 2 L / (m n_min lambda), where L bounds the gradient of l. L follows
    from two public bounds, to which every data owner clips its own training rows and targets.

    Attributes:
        penalty: lambda > 0, in squared units of X.
        epsilon: the budget that the method claims; None runs without noise and without privacy.
        loss: l, :class:`LeastSquares` or :class:`Logistic`, of which only the kind matters.
        noise: "circulated", independent Laplace(2 / (n_min eps lambda)) on every entry, which lacks L and m; or
            "tight", the density exp(-(eps / Delta) ||b||), ||b|| ~ Gamma(d, Delta / eps).
        level: the unit of the claimed epsilon: a "row", or a whole "task" by group privacy, at eps / n per row, n = max n_i.
        rows: (n_min, n_max), public bounds on the rows of a task, to which the noise is scaled. Owners use their first n_max
            rows. If a task has fewer than n_min, the claim for a row does not hold. None counts the rows. Their numbers are
            public if the unit is a row, which is replaced by another one; if it is a task, nothing is proved.
        row_norm: R, the largest ||x_ij||, public; longer training rows are clipped to it.
        target_bound: Y, the largest |y_ij|, public, for least squares; larger training targets are clipped to it. None
            takes it from the rows, and then nothing is proved.
        unsafe_seed: draws the noise from this seed, for demonstrations: the fit then guarantees nothing.
        ledger: pays for what is proved, on disk, before any noise is drawn.

    Source: Pathak, Rane and Raj (2010), section 3.2 and Theorem 4.1; TPAMI 2022, Propositions 2 and 3.
    """

    penalty: float
    epsilon: float | None = 1.0
    loss: Loss = field(default_factory=LeastSquares)
    noise: str = "circulated"
    level: str = "task"
    row_norm: float = 1.0
    target_bound: float | None = None
    rows: tuple[int, int] | None = None
    unsafe_seed: int | None = None
    ledger: Ledger | None = None

    name = "DP-AGGR"
    scales_tables = False  # its bounds are public numbers in the units of the table

    @by_name
    def fit(self, tasks: TaskData) -> Fitted:
        """Fit all tasks. Every column of the result's W is w^s; ``history["local"]`` holds the owners' own models, (1, d, m).

        Raises:
            BudgetExceeded: the ledger's total does not cover it.
            ValueError: an argument outside its range, such as a penalty below 1e-7 R^2, or targets other than -1 and 1 for
                the logistic loss. Nothing was charged.
        """
        begin = time.perf_counter()
        R, lam = positive("row_norm", self.row_norm), positive("penalty", self.penalty)
        if lam < WEAKEST * R * R:
            raise ValueError(f"penalty: expected at least {WEAKEST * R * R:.3g} with rows of length {R:g}, so that the "
                             f"solver converges, got {lam!r}")  # fmt: skip
        if not isinstance(self.loss, LeastSquares | Logistic):
            raise ValueError(f"loss: expected LeastSquares() or Logistic(), got {shown(self.loss)}")
        one_of("noise", self.noise, ("circulated", "tight"))
        one_of("level", self.level, ("task", "row"))
        bounded = self._bounded(tasks)
        local = self._local(bounded)
        average, guarantee = local.mean(axis=1), NOT_PRIVATE
        if self.epsilon is not None:
            longest = self.lipschitz(bounded) / lam
            h = lattice.step(longest, tasks.num_features, tasks.num_tasks, ())
            b, guarantee = self._noise(bounded, positive("epsilon", self.epsilon), h)
            # Sums on the lattice are exact.
            average = (lattice.sent(local, longest, h).sum(axis=1) + b) / tasks.num_tasks
        W = np.repeat(average[:, None], tasks.num_tasks, axis=1)
        return Fitted(W, guarantee, {"local": local[None]}, seconds=time.perf_counter() - begin, name=self.name)

    def _bounded(self, tasks: TaskData) -> TaskData:
        """Return the tasks with at most n_max rows, rows clipped to R, and targets clipped to Y."""
        R, Y, most = positive("row_norm", self.row_norm), np.inf, None
        if not isinstance(self.loss, Logistic) and self.target_bound is not None:
            Y = positive("target_bound", self.target_bound)
        if self.rows is not None:
            least, most = (whole("rows", count) for count in self.rows)
            if least > most:
                raise ValueError(f"rows: expected (n_min, n_max) with n_min <= n_max, got {self.rows!r}")
        parts = [tuple(part[:most] for part in tasks.rows_of(i)) for i in range(tasks.num_tasks)]
        X = [lattice.clipped(x.T, R).T for x, _ in parts]
        return TaskData.from_lists(X, [np.clip(y, -Y, Y) for _, y in parts], tasks=tasks.tasks, features=tasks.features)

    def _local(self, tasks: TaskData) -> FloatArray:
        """Compute w_i of every task, (d, m), in double precision, as the sensitivity holds for the exact minimiser."""
        options: Any = {"strong_convexity": float(self.penalty), "average": True}
        if not isinstance(self.loss, Logistic):
            squared = LeastSquares(**options).alone(tasks)
            return np.linalg.solve(squared.xx, squared.xy[..., None])[..., 0].T
        check_not_forked()
        with jax.enable_x64(True):
            zero = jnp.zeros((tasks.num_features, tasks.num_tasks))
            loss = without_copies(Logistic(**options).alone(tasks))
            return np.asarray(_minimisers(loss, zero, *_steps(float(self.row_norm), float(self.penalty))))

    def _noise(self, tasks: TaskData, epsilon: float, h: float) -> tuple[FloatArray, Guarantee]:
        """Draw noise for the sum of the owners' models, which lie on the lattice with step h."""
        m, d, n = tasks.num_tasks, tasks.num_features, tasks.row_counts
        L, lam = self.lipschitz(tasks), float(self.penalty)
        least, most = (int(n.min()), int(n.max())) if self.rows is None else self.rows
        # The sensitivity to a row, plus the rounding of two models to the lattice, plus the errors of two minimisations.
        row = 2 * L / lam / least + np.sqrt(d) * h + 2e-6 * L / lam
        scale = (2 * m / lam / least if self.noise == "circulated" else row) / epsilon
        if self.level == "task":
            scale *= most  # Proposition 3: eps / n per row
        sensitivity = 2 * L / lam if self.level == "task" else row  # ||w_i|| <= L / lambda for any rows
        law: VectorLaplace
        if self.noise == "tight":
            law = VectorLaplace(d, sensitivity / scale, sensitivity)
        else:  # the l1 norm is at most sqrt(d) times the length
            law = IndependentLaplace(d, np.sqrt(d) * sensitivity / scale, np.sqrt(d) * sensitivity)
        noise, guarantee = draw_vectors(
            (law,),
            1,
            epsilon=law.epsilon,
            lattice=h,
            unit=self.level,
            claimed=Bound(epsilon, 0.0, "replace", self.level),
            unproved=self._unproved(n),
            unsafe_seed=self.unsafe_seed,
            ledger=self.ledger,
            data=tasks,
        )
        return noise[0, :, 0], guarantee

    def _unproved(self, n: NDArray[np.integer[Any]]) -> str:
        if self.target_bound is None and not isinstance(self.loss, Logistic):
            return NO_TARGET_BOUND
        if self.level == "task":
            return NO_ROW_BOUNDS if self.rows is None else ""
        # Row counts are public here, as replacing a row does not change them.
        return FEWER_ROWS if self.rows is not None and n.min() < self.rows[0] else ""

    def lipschitz(self, tasks: TaskData) -> float:
        """Return L, a bound on the gradient of one row's loss at the minimiser for any rows within the bounds."""
        R, lam = float(self.row_norm), float(self.penalty)  # exactly the public bounds
        if isinstance(self.loss, Logistic):
            return R
        Y = np.abs(tasks.targets).max() if self.target_bound is None else float(self.target_bound)
        # ||w|| <= max over singular values s <= R of X / sqrt(n) of s / (s^2 + lambda), times ||y|| / sqrt(n) <= Y
        s = min(R, np.sqrt(lam))
        return float(R * (R * Y * s / (s**2 + lam) + Y))


class Steps(NamedTuple):
    """Parameters of Nesterov's method with constant momentum, valid for all rows within the bounds."""

    curvature: float  #: R^2 / 4 + lambda
    momentum: float
    level: float  #: length of the gradient at which a task is finished
    most: int  #: number of steps after which all tasks are


def _steps(R: float, penalty: float) -> Steps:
    """Return the parameters of the method; the number of steps follows from its rate.

    Source: Nesterov (2004), Theorem 2.2.3: ||V - w*|| <= 6 sqrt(log 2 / lambda) (1 - 1 / sqrt(kappa))^(N/2).
    """
    curvature = R * R / 4 + penalty
    kappa = curvature / penalty
    most = np.sqrt(kappa) * np.log(25 * kappa * curvature / (LEVEL * R) / (LEVEL * R))
    return Steps(curvature, (np.sqrt(kappa) - 1) / (np.sqrt(kappa) + 1), LEVEL * R, int(min(np.ceil(most), 1e6)))


@jax.jit
def _minimisers(
    loss: LogisticRows, start: Array, curvature: Array, momentum: Array, level: Array, most: Array
) -> Array:
    """Minimise the losses of all tasks, (d, m). A finished task is frozen, so that it does not depend on other tasks."""

    def not_done(gradient: Array) -> Array:
        return jnp.linalg.norm(gradient, axis=0) > level

    def step(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        W, V, G, t = state
        new = V - G / curvature
        V = jnp.where(not_done(G), new + momentum * (new - W), V)
        return jnp.where(not_done(G), new, W), V, loss.gradient(V), t + 1

    def unfinished(state: tuple[Array, Array, Array, Array]) -> Array:
        return jnp.any(not_done(state[2])) & (state[3] < most)

    return jax.lax.while_loop(unfinished, step, (start, start, loss.gradient(start), jnp.asarray(0)))[1]
