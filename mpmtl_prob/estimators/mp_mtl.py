"""Model-protected multi-task learning (MP-MTL): the papers' Algorithms 1 to 5 as estimators.

The computation of the rounds is in :mod:`mpmtl_prob.estimators.framework`. This module has the hyper-parameters, the budgets
and the publication of the releases.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import jax
import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import MANY, as_float_array, flag, in_range, one_of, positive, whole
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob._util.former import former_names
from mpmtl_prob._util.hidden_arrays import HidesArrays, shown
from mpmtl_prob._util.protocols import implements, named
from mpmtl_prob.convex.losses import LeastSquares, Loss, Smooth
from mpmtl_prob.convex.penalties import GroupLasso, NoPenalty, TraceNorm
from mpmtl_prob.data.prediction import check_weights
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.estimators.fitted import Fitted, by_name, in_units_of_fit, of_tasks, slopes
from mpmtl_prob.estimators.framework import (
    ConditionalGradient,
    Noise,
    Proximal,
    ProximalSum,
    Run,
    SharingRule,
    check_sharing,
)
from mpmtl_prob.estimators.plan import Plan, RowProtection, Rows, Weights, clip_norm, momentum, step_sizes
from mpmtl_prob.estimators.single_task import Ridge
from mpmtl_prob.privacy import lattice
from mpmtl_prob.privacy.accounting.budgets import best_alpha, best_q, schedule
from mpmtl_prob.privacy.accounting.calibration import calibrate, calibrate_gaussian
from mpmtl_prob.privacy.charge_and_draw import draw_vectors
from mpmtl_prob.privacy.guarantee import NOT_PRIVATE, NOTHING_SHARED, Bound, Guarantee
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.mechanisms import (
    PAPERS,
    Gaussian,
    MatrixMechanism,
    PaperTaskWishart,
    VectorLaplace,
    Wishart,
)
from mpmtl_prob.privacy.units import Adjacency
from mpmtl_prob.releases.messages import PrivateClipNorm, purchases_of
from mpmtl_prob.releases.publish import publish_rounds
from mpmtl_prob.releases.release import Release
from mpmtl_prob.releases.spec import MECHANISMS, ReleaseSpec, Terms, check_delta, default_delta

ACCELERATIONS = ("none", "convex", "strongly_convex")
STEP_READ_OFF = (
    "The step size, and with it the threshold of the mapping and the growth of budgets and momentum, follows the largest "
    "curvature of all tasks' rows, which reaches the releases around the noise. Give curvature, or a step_size, chosen "
    "without looking at them."
)
#: Smallest scale of the noise, relative to the squared lattice step times the features; above it rounded sums stay positive
#: definite.
_FINEST = 2.0**10
START_SHARED = "The rounds start from models that depend on other tasks' rows; start from a single-task method."


class SingleTask(Protocol):
    """Protocol class for an estimator whose models can start the rounds."""

    def fit(self, tasks: TaskData) -> Fitted: ...


@dataclass(frozen=True, eq=False, repr=False)
class MPMTL(HidesArrays):
    """Model-protected multi-task learning by Algorithm 1 with any :class:`SharingRule`, the base of Algorithms 2 to 5.

    Attributes:
        sharing: the sharing rule: :class:`Proximal` (Algorithms 2 and 3),
            :class:`ProximalSum` (Algorithm 4), :class:`TaskRelations`, or your own.
        penalty: lambda >= 0, how strongly tasks are coupled; for Algorithm 4 the pair (lambda_1, lambda_2).
        epsilon: the budget for all rounds together; None runs without noise and without privacy. A :class:`ReleaseSpec` with
            message="clip" in its place sets delta, clip, mechanism, adjacency and rounds too.
        rounds: T.
        clip: K, the norm to which models are clipped each round: a number chosen without looking at the models, or one
            from :func:`mpmtl_prob.releases.private_clip_norm`, whose privacy cost is then in the guarantee. It may be
            infinite without noise only.
        delta: default 1 / (m log m).
        loss: L_i, :class:`LeastSquares` or :class:`Logistic`, with its strong convexity.
        acceleration: beta_t: "none" is 0, "convex" (t-1)/(t+2), "strongly_convex" (1 - sqrt(mu/L)) / (1 + sqrt(mu/L));
            True picks one of the last two by the loss; False is "none".
        alpha: eps_t = eps_0 t^alpha. Default, for a loss that is not strongly convex, the papers' best.
        q: eps_t = eps_0 q^{-t} instead. Default, for a strongly convex loss, the papers' best.
        step_size: eta. None is 1/L for all. "per_task" gives every owner its own 1/L_i, and the mapping 1/L (faster where
            tasks differ in size, but without noise the limit is then not the optimum of the penalised problem). Or a number
            1/L, or one per task (m,), of which the mapping uses the smallest.
        curvature: L, a bound on the largest curvature of any task, chosen without looking at the rows; owners with a larger
            one step by their own 1/L_i. It sets mu/L too. None takes max_i L_i, and then nothing is
            proved, as the releases depend on a number that was computed from private rows. A step_size that is a number takes
            its place.
        start: W^(0), by any single-task method: an estimator such as :class:`Ridge`, "zero", or a matrix (d, m).
        mechanism: as for a :class:`ReleaseSpec`: "paper" (Algorithm 1, step 5, whose guarantee is weaker than claimed),
            "paper_2018" and "paper_2018_unit" (the noise with which the papers' figures were made, of scale K / eps_t and
            1 / eps_t, which is smaller, and its guarantee weaker still, for a K above 2 and above sqrt(2), respectively),
            "wishart" (the least Wishart noise whose T rounds are (epsilon, delta)-private, proved; also called "calibrated"),
            "gaussian" (the least Gaussian noise whose rounds are), or a mechanism of your own, for every round and with
            the same ``clip``. With Gaussian noise a release may have negative eigenvalues, which the mapping sets to 0.
        unclipped: apply M to the owners' models as they were before the clip, as the papers did in January 2018. An owner
            does so by itself, with its own model, and what is published is clipped as ever: the guarantee is the same.
        debias: subtract the mean of the noise from the releases before the mapping. Negative eigenvalues are set to 0, and
            Proposition 1 (with enormous noise every task is fitted alone) no longer holds.
        adjacency: adjacency of the proved guarantee: "replace" or "zero_out".
        unsafe_seed: draws the noise from this seed, for demonstrations: the fit then guarantees nothing.
        ledger: pays for all T rounds, on disk, before any noise is drawn.
        record: keep the outputs of all rounds in ``history``; False saves memory where m is large.
        rows: Algorithm 5: protection of single rows against a curator who is not trusted with the models.
    """

    sharing: SharingRule
    penalty: float | tuple[float, float]
    epsilon: float | ReleaseSpec | None = 1.0
    rounds: int = 30
    clip: float | PrivateClipNorm = float("inf")
    delta: float | None = None
    loss: Loss = field(default_factory=LeastSquares)
    acceleration: bool | str = True
    alpha: float | None = None
    q: float | None = None
    step_size: float | str | FloatArray | None = field(default=None, repr=False)
    curvature: float | None = None
    start: SingleTask | str | FloatArray = field(default_factory=Ridge, repr=False)
    mechanism: str | MatrixMechanism = "paper"
    unclipped: bool = False
    debias: bool = False
    adjacency: str = "replace"
    unsafe_seed: int | None = None
    ledger: Ledger | None = None
    record: bool = True
    rows: RowProtection | None = None

    def __post_init__(self) -> None:
        if not isinstance(spec := self.epsilon, ReleaseSpec):
            return
        if spec.message != "clip" or spec.scaling is not None:
            raise ValueError(
                "epsilon: expected a ReleaseSpec with message='clip' and without scaling, as rounds publish models that are "
                f"clipped, got message={spec.message!r} and scaling={spec.scaling!r}"
            )
        for name in ("epsilon", "delta", "clip", "mechanism", "adjacency", "rounds"):
            object.__setattr__(self, name, getattr(spec, name))

    @by_name
    def fit(self, tasks: TaskData) -> Fitted:
        """Fit by T rounds. The result's W is W^^(T), before the last gradient step, as in the papers.

        ``history["W"]`` holds W^^(1:T), (T, d, m), or its last entry only without ``record``.

        Raises:
            BudgetExceeded: a ledger's total does not cover it. With two ledgers, that of the rows is checked and charged
                first.
            ValueError: an argument outside its range. Nothing was charged.
        """
        begin = time.perf_counter()
        check_not_forked()  # before anything is paid for
        slope_rows = slopes(tasks, self.loss)
        estimator, rows, scale = in_units_of_fit(self, slope_rows)
        plan = estimator.plan(rows)
        del rows, estimator  # frees memory for the run, as the plan has a copy
        row_noise, row_guarantee = self._row_noise(slope_rows, plan)
        release, outputs, guarantee = self.publish(slope_rows, plan, row_noise)
        seconds = time.perf_counter() - begin
        result = Fitted(outputs[-1], guarantee, {"W": outputs}, release, seconds, self.name, row_guarantee)
        return of_tasks(result, tasks, slope_rows, scale)

    @property
    def name(self) -> str:
        """Name of the algorithm, for tables."""
        if self._alone:
            return "Algorithm 2, M = I"
        kind = self.sharing.norm if isinstance(self.sharing, Proximal) else self.sharing
        names: dict[type, str] = {
            TraceNorm: "Algorithm 2",
            GroupLasso: "Algorithm 3",
            ProximalSum: "Algorithm 4",
            ConditionalGradient: "Frank-Wolfe",
        }
        name = names.get(type(kind), "Algorithm 1")
        return f"Algorithm 5 on {name}" if self.rows else name

    @property
    def scales_tables(self) -> bool:
        """True if a table's features are scaled by every task's own rows, which row protection does not allow."""
        return self.rows is None

    @property
    def _alone(self) -> bool:
        """True if M = I, which does not use Sigma, so that nothing is published."""
        return isinstance(self.sharing, Proximal) and isinstance(self.sharing.norm, NoPenalty)

    def bind(self, tasks: TaskData) -> Rows:
        """Compute what the run needs from the rows: losses, curvatures and initial models."""
        smooth = self.loss.alone(tasks)
        implements("loss.alone(tasks)", smooth, Smooth, needs=("gradient", "curvature"))
        return Rows(smooth, smooth.curvature(), *self._initial(tasks))

    def plan(self, tasks: TaskData, rows: Rows | None = None) -> Plan:
        """Plan a run before its noise is drawn: the noise distributions, the numbers of the run, and W^(0).

        Raises ValueError for an argument outside its range.
        """
        self._check()
        smooth, curvature, W0, tied = self.bind(tasks) if rows is None else rows
        # The curvature in (P, Q) is 2 L_i, as both parts move.
        parts = 2 if isinstance(self.sharing, ProximalSum) else 1
        bound = None if self.curvature is None else parts * self.curvature
        eta, common = step_sizes(self.step_size, parts * curvature, bound)
        ratio = min(self.loss.strong_convexity * common, 1 - 1e-9)
        size = tasks.num_features if self.sharing.moment == "features" else tasks.num_tasks
        weights = self._weights(ratio)
        mechanisms: tuple[MatrixMechanism, ...] = ()
        if self.epsilon is not None and not self._alone:
            mechanisms = self._mechanisms(size, self._delta(tasks), weights)
        row_mechanisms: tuple[VectorLaplace, ...] = ()
        if self.rows is not None and not self._alone:
            K = positive("clip", clip_norm(self.clip))  # two clipped models are at most 2 K apart
            row_mechanisms = tuple(
                VectorLaplace(tasks.num_features, eps, 2 * K) for eps in weights(*self.rows.total(tasks))
            )
        K = clip_norm(self.clip)
        h = lattice.step(K, tasks.num_features, tasks.num_tasks, mechanisms) if mechanisms or row_mechanisms else None
        # The largest noise may have made the lattice coarser.
        if (
            h
            and h > lattice.step(K, tasks.num_features, tasks.num_tasks, ())
            and min(map(_scale, mechanisms), default=np.inf) < _FINEST * size * h**2
        ):
            raise ValueError(f"{'alpha' if self.q is None else 'q'}: expected budgets that differ less from round to round; "
                             "the largest noise leaves a double no room for the least")  # fmt: skip
        noise_mean = np.array([_level(law) for law in mechanisms]) if self.debias else np.zeros(self.rounds)
        run = Run(
            loss=smooth,
            step_size=eta,
            threshold=common * np.asarray(self.penalty, dtype=np.float64),
            beta=momentum(self._acceleration, self.rounds, ratio),
            clip=np.float64(K if h is None else lattice.bound(K, h)),
            offset=noise_mean if len(noise_mean) else np.zeros(self.rounds),
            lattice=h,
            unclipped=self.unclipped,
        )
        return Plan(run, W0, size, mechanisms, row_mechanisms, self._unproved(tied))

    def _unproved(self, tied: bool) -> str:
        """Return why nothing is proved, or "". Raises ValueError for a ledger that would pay for an unproved run."""
        public = self.curvature is not None or not (self.step_size is None or isinstance(self.step_size, str))
        own = self._alone and self.step_size == "per_task" and self._acceleration != "strongly_convex"
        unproved = START_SHARED if tied else "" if public or own else STEP_READ_OFF
        if unproved and (self.ledger or (self.rows and self.rows.ledger)):
            raise ValueError(f"ledger: expected none, as nothing is proved of this run. {unproved}")
        return unproved

    @property
    def _acceleration(self) -> str:
        if isinstance(self.acceleration, str):
            return self.acceleration
        if not self.acceleration:
            return "none"
        return "strongly_convex" if self.loss.strong_convexity > 0 else "convex"

    def _mechanisms(self, size: int, delta: float, weights: Weights) -> tuple[MatrixMechanism, ...]:
        """Return the noise mechanisms of all rounds: by the papers' budgets, calibrated, or as given."""
        epsilon, K = positive("epsilon", self.epsilon), clip_norm(self.clip)  # type: ignore[arg-type]
        if isinstance(self.mechanism, MatrixMechanism):
            if self.mechanism.num_features != size or self.mechanism.clip != K:
                raise ValueError(f"mechanism: expected num_features = {size} and clip = {K}, got {self.mechanism}")
            given = (self.mechanism,) * self.rounds
            if self.delta is not None:
                check_delta(delta, epsilon, given, purchases_of(self.clip), self.adjacency)
            return given
        budgets = weights(epsilon, delta)  # Algorithm 1, step 1
        if self.sharing.moment == "tasks":
            return tuple(PaperTaskWishart(size, eps, K) for eps in budgets)
        if papers := PAPERS.get(self.mechanism):
            return tuple(papers(size, eps, K) for eps in budgets)
        in_range("delta", delta, 0, 1)
        # Calibrate for K = 1 and rescale, so that a search over K calibrates only once.
        least = calibrate_gaussian if self.mechanism == "gaussian" else calibrate
        laws = least(epsilon, delta, size, schedule=budgets, adjacency=self.adjacency, composed_with=self._besides)
        return tuple(_for_clip(law, K) for law in laws)

    def _weights(self, ratio: float) -> Weights:
        """Return a function from a total (eps, delta) to budgets eps_1..eps_T, for mu/L = ratio."""
        accelerated = self._acceleration != "none"
        strongly = self.alpha is None and self.loss.strong_convexity > 0

        def budgets(epsilon: float, delta: float) -> FloatArray:
            best = best_q(ratio, accelerated=accelerated, pure=delta == 0) if strongly else None
            alpha = best_alpha(accelerated=accelerated, pure=delta == 0) if self.alpha is None else self.alpha
            return schedule(epsilon, delta, self.rounds, alpha=alpha, q=best if self.q is None else self.q)

        return budgets

    def _row_noise(self, tasks: TaskData, plan: Plan) -> tuple[FloatArray | None, Guarantee | None]:
        """Pay for and draw b^(1:T), (T, d, m) (Algorithm 5, step 5)."""
        if self.rows is None or self._alone:
            return None, None
        epsilon, delta = self.rows.total(tasks)
        return draw_vectors(
            plan.row_mechanisms,
            tasks.num_tasks,
            epsilon=epsilon,
            lattice=plan.run.lattice,
            claimed=Bound(epsilon, delta, "replace", "row"),
            unproved=plan.unproved,
            unsafe_seed=None if self.unsafe_seed is None else self.unsafe_seed + 1,  # not the stream of E
            ledger=self.rows.ledger,
            data=tasks,
            purchases=purchases_of(self.clip),
        )

    @property
    def _besides(self) -> tuple[Any, ...]:
        return tuple(purchase.law for purchase in purchases_of(self.clip))

    def _delta(self, tasks: TaskData) -> float:
        if self.delta is None:
            return default_delta(tasks.num_tasks)
        return in_range("delta", self.delta, 0, 1, left_closed=True)

    def publish(
        self, tasks: TaskData, plan: Plan, models: FloatArray | None = None
    ) -> tuple[Release | None, FloatArray, Guarantee]:
        """Run a plan and pay for it; return the release, W^^(1:T) (T, d, m), and the guarantee.

        ``models`` is the noise of Algorithm 5 on the owners' models, (T, d, m), which was paid for before.
        """
        if not plan.mechanisms:
            zero = np.zeros((self.rounds, plan.size, plan.size))
            _, outputs = plan.execute(Noise(zero, models), self.sharing, self.record)
            alone = NOTHING_SHARED if not plan.unproved else Guarantee(None, None, plan.unproved)
            return None, outputs, alone if self._alone else NOT_PRIVATE
        epsilon = positive("epsilon", self.epsilon)  # type: ignore[arg-type]
        claimed = Bound(epsilon, self._delta(tasks), self.adjacency) if _is_of_papers(self.mechanism) else None
        terms = Terms(
            plan.mechanisms,
            epsilon,
            self.adjacency,
            num_tasks=tasks.num_tasks,
            features=tasks.features if self.sharing.moment == "features" else tasks.tasks,
            lattice=plan.run.lattice,
            claimed=claimed,
            purchases=purchases_of(self.clip),
        )
        release, outputs = publish_rounds(
            lambda noise: plan.execute(Noise(noise, models), self.sharing, self.record),
            terms,
            unsafe_seed=self.unsafe_seed,
            ledger=self.ledger,
            data=tasks,
        )
        if plan.unproved and release.guarantee.proved:
            release = replace(release, guarantee=replace(release.guarantee, proved=None, reason=plan.unproved))
        return release, outputs, release.guarantee

    def _initial(self, tasks: TaskData) -> tuple[FloatArray, bool]:
        """Return W^(0), and True if it depends on several tasks. The columns of a user's matrix count as the owners' own."""
        if isinstance(self.start, str):
            one_of("start", self.start, ("zero",))
            return np.zeros((tasks.num_features, tasks.num_tasks)), False
        if np.asarray(self.start, dtype=object).ndim == 0:  # not a matrix
            implements("start", self.start, SingleTask)
        start_fit = self.start.fit(tasks) if hasattr(self.start, "fit") else None
        W0 = as_float_array("start", cast(ArrayLike, self.start)) if start_fit is None else start_fit.W
        check_weights(W0, tasks)
        return W0, start_fit is not None and start_fit.guarantee.proved != NOTHING_SHARED.proved

    def _check(self) -> None:
        check_sharing(self.sharing)
        implements("loss", self.loss, Loss, needs=("alone", "strong_convexity"))
        if self.rows is not None and not isinstance(self.rows, RowProtection):
            raise ValueError(f"rows: expected RowProtection(...) or None, got {shown(self.rows)}")
        whole("rounds", self.rounds, upto=MANY)
        flag("debias", self.debias)
        if flag("unclipped", self.unclipped) and self.rows is not None:
            raise ValueError(
                "unclipped: expected False with rows, as Algorithm 5 goes on from the noisy models, which are clipped"
            )
        flag("record", self.record)
        Adjacency.of(self.adjacency)
        named("mechanism", self.mechanism, MECHANISMS, MatrixMechanism)
        if isinstance(self.acceleration, str):
            one_of("acceleration", self.acceleration, ACCELERATIONS)
        else:
            flag("acceleration", self.acceleration)
        if self._acceleration == "strongly_convex" and not self.loss.strong_convexity > 0:
            raise ValueError("acceleration: 'strongly_convex' needs a loss with strong_convexity > 0, got 0")
        if self.mechanism != "paper" and self.sharing.moment == "tasks":
            raise ValueError("mechanism: expected 'paper' for W'W, of which nothing is proved with any noise")
        pair = isinstance(self.sharing, ProximalSum)
        penalty = as_float_array("penalty", self.penalty)
        if penalty.shape != ((2,) if pair else ()) or not np.all(np.isfinite(penalty) & (penalty >= 0)):
            expected = "two numbers >= 0, (lambda_1, lambda_2)" if pair else "a number >= 0"
            raise ValueError(f"penalty: expected {expected}, got {shown(self.penalty)}")
        if self.curvature is not None:
            positive("curvature", self.curvature)
            if not (self.step_size is None or isinstance(self.step_size, str)):
                raise ValueError("curvature: expected none with a step_size that is a number, which takes its place")
        clip = clip_norm(self.clip)
        if not clip > 0:
            raise ValueError(f"clip: expected a positive number, got {shown(self.clip)}")
        noisy = self.epsilon is not None or self.rows is not None
        if noisy and not (np.isfinite(clip) or self._alone):
            raise ValueError(
                "clip: expected a finite norm K chosen without looking at the models; noise is scaled to it"
            )


def _is_of_papers(mechanism: str | MatrixMechanism) -> bool:
    return isinstance(mechanism, str) and mechanism in PAPERS


def _for_clip(law: Wishart | Gaussian, K: float) -> Wishart | Gaussian:
    """Rescale noise for models of length 1 to models of length K."""
    if isinstance(law, Gaussian):
        return replace(law, sd=law.sd * K**2, clip=K)
    return replace(law, scale=law.scale * K**2, clip=K)


def _scale(law: MatrixMechanism) -> float:
    """Return the size of the noise in one direction, in squared units of the models."""
    return law.scale if isinstance(law, Wishart) else law.operator_norm / law.num_features


def _level(law: MatrixMechanism) -> float:
    """Return c if the mean of the noise is c I. Raises ValueError for another mean."""
    level = float(law.mean[0, 0])
    if not np.array_equal(law.mean, level * np.eye(law.num_features)):
        raise ValueError(f"debias: expected noise whose mean is a multiple of the identity, got {law.kind}")
    return level


@dataclass(frozen=True, eq=False, repr=False)
class LowRank(MPMTL):
    """Low-rank MP-MTL (Algorithm 2): :class:`MPMTL` with the trace norm."""

    sharing: SharingRule = field(default=Proximal(TraceNorm()), init=False)


@dataclass(frozen=True, eq=False, repr=False)
class GroupSparse(MPMTL):
    """Group-sparse MP-MTL (Algorithm 3): :class:`MPMTL` with the l2,1 norm."""

    sharing: SharingRule = field(default=Proximal(GroupLasso()), init=False)


@dataclass(frozen=True, eq=False, repr=False)
class LocalGradientDescent(MPMTL):
    """Early-stopped gradient descent of every task on its own rows: Algorithm 2 with M = I.

    At tiny eps the papers' methods with the same step_size reduce to exactly this, so it is the baseline for what sharing
    adds. By default every owner steps by its own 1/L_i, so that nothing of another owner reaches it.
    """

    sharing: SharingRule = field(default=Proximal(NoPenalty()), init=False)
    penalty: float | tuple[float, float] = field(default=0.0, init=False)
    step_size: float | str | FloatArray | None = field(default="per_task", repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class LowRankSparse(MPMTL):
    """Low-rank plus sparse MP-MTL (Algorithm 4): W = P + Q with P shared and Q private; penalty is (lambda_1, lambda_2).

    ``sharing`` has the variants in the papers: l2,1 for P; column norms or squared Frobenius for Q; the start.
    """

    sharing: SharingRule = field(default=ProximalSum(), kw_only=True)


@dataclass(frozen=True, eq=False, repr=False)
class FrankWolfe(MPMTL):
    """Frank-Wolfe under Algorithm 1: sum_i L_i(w_i) with ||W||_* <= r, by :class:`ConditionalGradient`.

    Owners send clipped gradients, not models, so that ``clip`` bounds gradients; they all start from zero. Steps are public
    numbers, so that a guarantee is proved without ``curvature``. Without noise, and with a clip that no gradient reaches,
    the loss is at most 2 (2 r)^2 L / (T + 2) above its least value in the ball. As nothing is known of the best budgets, they
    are equal in all rounds. The release is of gradients: no posterior of models follows from it.

    Attributes:
        radius: r > 0, the largest trace norm of W.
    """

    radius: float = field(kw_only=True)
    sharing: SharingRule = field(default=ConditionalGradient(), init=False)
    penalty: float | tuple[float, float] = field(default=0.0, init=False)
    acceleration: bool | str = field(default=False, init=False)
    alpha: float | None = 0.0
    step_size: float | str | FloatArray | None = field(default=1.0, init=False)  # eta lambda is then lambda, which is r
    curvature: float | None = field(default=None, init=False)
    start: SingleTask | str | FloatArray = field(default="zero", init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "penalty", self.radius)

    def bind(self, tasks: TaskData) -> Rows:
        """Compute losses, curvatures, and in the place of W^(0) the first messages: the gradients at zero."""
        rows = super().bind(tasks)
        with jax.enable_x64(True):
            return rows._replace(W0=np.asarray(rows.loss.gradient(rows.W0)))  # type: ignore[arg-type]

    def _check(self) -> None:
        positive("radius", self.radius)
        super()._check()


__getattr__ = former_names(__name__, {"Alone": "LocalGradientDescent"})
