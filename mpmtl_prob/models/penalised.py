"""Models of the curator's seat: penalised multi-task regressions as priors on W (d x m), given the rows of all tasks.

    y_i ~ N(X_i w_i, sigma^2 I),   p(W | sigma) ~ exp(-(rate / sigma) g(W)),   rate, sigma log-normal or known

Given rate and sigma the mode is the optimum of ``sum_i 0.5 ||X_i w_i - y_i||^2 + rate * sigma * g(W)``, the problem that
:class:`mpmtl_prob.estimators.MultiTask` solves. The prior scales with sigma, so that rate has no units of y and the posterior
of (W, sigma) keeps a single mode (Park and Casella, 2008, section 2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.data.gram import Gram, grams
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.models.local import LocalCoordinates, local_coordinates
from mpmtl_prob.models.noise import NoisyRelease, of_law
from mpmtl_prob.models.priors import EntrywiseLaplace, GroupLaplace, PenaltyPrior, TraceNormPrior
from mpmtl_prob.releases.release import Release
from mpmtl_prob.single_task import conjugate

#: Prior sd of log(rate) and log(sigma) where they are learnt, which allows a factor of 7 either way with 95 %.
LOG_SD = 1.0

#: Default share of the prior's scale over which its kinks are rounded.
SMOOTHING = 0.1

Model = Callable[..., None]
#: A positive hyper-parameter: None learns it, (median, log_sd) gives its log-normal prior, a number fixes it.
Positive = float | tuple[float, float] | None


class Known(NamedTuple):
    """Hyper-parameter with a fixed value."""

    value: ArrayLike


class Learnt(NamedTuple):
    """Hyper-parameter with a log-normal prior."""

    median: ArrayLike
    log_sd: ArrayLike


class Part(NamedTuple):
    """Settings of one penalised matrix: W itself, or P or Q of W = P + Q."""

    rate: Known | Learnt
    smoothing: Any  #: smoothing of the prior's gradient, as a share of its scale; None for the plain gradient
    local: LocalCoordinates | None  #: coordinates in which the matrix is sampled; None for its entries

    def __repr__(self) -> str:
        return shown(self)


class ReleasedMoments(NamedTuple):
    """Release as the models read it: Sigma^(1:T), and how its messages were bounded."""

    sigma: Any  #: (T, d, d)
    noise: tuple[NoisyRelease, ...]  #: the noise of every round
    clip: ArrayLike  #: K
    direction: ArrayLike  #: whether messages have length K exactly
    coordinates: ArrayLike  #: messages are w_i / coordinates_i, (m, d)

    def __repr__(self) -> str:
        return shown(self)


class ObservedTasks(NamedTuple):
    """Sufficient statistics of all tasks' rows, around a rough estimate. Leaves are traced arrays."""

    xx: ArrayLike  #: X_i'X_i, (m, d, d)
    centre: ArrayLike  #: the estimate, (m, d)
    slope: ArrayLike  #: X_i'(y_i - X_i centre_i), (m, d)
    residual: ArrayLike  #: sum_i ||y_i - X_i centre_i||^2
    rows: ArrayLike  #: n, of all tasks
    sigma: Known | Learnt
    parts: tuple[Part, ...]
    release: ReleasedMoments | None

    def __repr__(self) -> str:
        return shown(self)


def low_rank(data: TaskData | ObservedTasks, **options: Any) -> None:
    """Model trace-norm regression, in which tasks share a subspace: the Bayesian form of Algorithm 2's problem.

    Sites: ``sigma`` and ``rate`` (deterministic where known) and ``W`` (d, m), or ``W_local`` and the deterministic ``W`` in
    local coordinates.

    Args:
        data: tasks, or the result of :func:`observe`.
        options: of :func:`observe`, where data are tasks.
    """
    _penalised(_ready(low_rank, data, options), PRIORS[low_rank])


def group_sparse(data: TaskData | ObservedTasks, **options: Any) -> None:
    """Model l2,1 regression, in which tasks share features: the Bayesian form of Algorithm 3's problem.

    Sites and arguments as :func:`low_rank`.
    """
    _penalised(_ready(group_sparse, data, options), PRIORS[group_sparse])


def low_rank_sparse(data: TaskData | ObservedTasks, **options: Any) -> None:
    """Model W = P + Q, in which tasks share a subspace with exceptions: the Bayesian form of Algorithm 4's problem.

    P has a trace-norm prior, and Q one on absolute values. The data identify W, but not its parts.

    Sites: ``sigma``, ``rate`` of P, ``rate_own`` of Q, ``P`` and ``Q`` as ``W`` in :func:`low_rank`, the deterministic ``W``.
    Arguments as :func:`low_rank`.
    """
    _penalised(_ready(low_rank_sparse, data, options), PRIORS[low_rank_sparse])


#: The priors of each model's parts.
PRIORS: dict[Model, tuple[type[PenaltyPrior], ...]] = {
    low_rank: (TraceNormPrior,),
    group_sparse: (GroupLaplace,),
    low_rank_sparse: (TraceNormPrior, EntrywiseLaplace),
}


def observe(
    model: Model,
    tasks: TaskData,
    *,
    rate: Positive = None,
    rate_own: Positive = None,
    sigma: Positive = None,
    smoothing: float | None = SMOOTHING,
    precondition: bool = True,
    with_release: Release | None = None,
) -> ObservedTasks:
    """Prepare tasks for a model of this module.

    Args:
        model: :func:`low_rank`, :func:`group_sparse` or :func:`low_rank_sparse`.
        tasks: rows of all tasks, so that the result is the curator's.
        rate: strength of the penalty relative to sigma, in units of y over units of g(W): a number, a log-normal prior
            (median, log_sd), or None for a prior whose median is a rough estimate.
        rate_own: the same for Q, in :func:`low_rank_sparse` only.
        sigma: residual sd, in units of y; given as rate.
        smoothing: of the proximal gradient. Gradients of singular values, rows or entries are reduced below this share of the
            prior's scale sigma/rate; None for plain gradients.
        precondition: sample in local coordinates, w_i = mu_i + L_i z_i.
        with_release: a release to add as an observed site: in every round Sigma given ``W~ W~'`` by
            :mod:`mpmtl_prob.models.noise`, where W~ has the columns of W bounded as the messages were. This is exact if the
            messages were the weights themselves. A release of estimates that were computed from these same rows has no new
            information for a curator: do not add it.

    Raises:
        ValueError: an argument outside its range, ``rate_own`` for a model without Q, a release of other tasks or features,
            or noise without a known density.
    """
    gram = grams(tasks.rows_of, tasks.num_tasks, tasks.num_features)
    priors = PRIORS[model]
    if rate_own is not None and len(priors) == 1:
        raise ValueError(f"rate_own: expected None, as {model.__name__} has one penalty only, got {rate_own!r}")
    rough = _rough_fit(gram, priors[0])
    noise = _positive_prior("sigma", sigma, rough.sigma)
    typical = float(np.asarray(noise[0]))
    m, d = gram.xy.shape
    share = None if smoothing is None else np.asarray(positive("smoothing", smoothing))
    parts = []
    for name, value, prior in zip(("rate", "rate_own"), (rate, rate_own), priors, strict=False):
        # the exceptions in Q are assumed to have a tenth of the second moment
        moment = rough.moment if name == "rate" else 0.1 * rough.moment
        touching = prior.majoriser(moment, m)
        size = np.trace(touching @ moment)  # roughly g(W)
        strength = _positive_prior(name, value, d * m * typical / size)
        local = None
        if precondition:
            # P is centred at the fit, and Q at 0
            fitted = gram.xy if name == "rate" else np.zeros_like(gram.xy)
            local = local_coordinates(gram.xx, fitted, typical / float(np.asarray(strength[0])) * touching)
        parts.append(Part(strength, share, local))
    slope = gram.xy - np.einsum("tij,tj->ti", gram.xx, rough.mean)
    residual = np.asarray(np.sum(gram.yy) - np.sum(rough.mean * (gram.xy + slope)))
    rows = float(gram.n.sum())
    return ObservedTasks(gram.xx, rough.mean, slope, residual, rows, noise, tuple(parts), _moments(with_release, tasks))


class _Rough(NamedTuple):
    """Rough empirical Bayes fit."""

    mean: FloatArray  # of the weights, (m, d)
    moment: FloatArray  # E[W W'], (d, d)
    sigma: float


def _rough_fit(gram: Gram, prior: type[PenaltyPrior]) -> _Rough:
    """Fit by empirical Bayes, with the penalty replaced by a quadratic that touches it from above (an EM algorithm).

    The fit gives local coordinates and medians of default priors. The posterior given those does not depend on its accuracy.
    """
    m, d = gram.xy.shape
    signal = np.sum(gram.yy) / gram.n.sum()
    sigma = np.sqrt(signal)
    precision = 10 * d * np.trace(gram.xx.mean(0)) / gram.n.mean() / signal * np.eye(d)
    for _ in range(10):
        V = np.linalg.inv(gram.xx / sigma**2 + precision)
        mean = np.einsum("tij,tj->ti", V, gram.xy) / sigma**2
        moment = mean.T @ mean + V.sum(0)
        fit = np.sum(mean * (np.einsum("tij,tj->ti", gram.xx, mean) - 2 * gram.xy)) + np.sum(gram.xx * V)
        sigma = np.sqrt((np.sum(gram.yy) + fit) / gram.n.sum())
        touching = prior.majoriser(moment, m)
        precision = d * m / np.trace(touching @ moment) * touching  # (rate / sigma) C with rate / sigma = dm / g
    return _Rough(mean, moment, float(sigma))


def _ready(model: Model, data: TaskData | ObservedTasks, options: dict[str, Any]) -> ObservedTasks:
    """Return prepared data, with the options of :func:`observe` for tasks."""
    if isinstance(data, ObservedTasks):
        if options:
            raise ValueError(f"options: expected none with prepared data, got {', '.join(options)}")
        return data
    return observe(model, data, **options)


def _penalised(data: ObservedTasks, priors: tuple[type[PenaltyPrior], ...]) -> None:
    """Sample a penalised regression, of one part or two."""
    sigma = _sample_positive("sigma", data.sigma)
    xx = jnp.asarray(data.xx)
    m, d, _ = xx.shape
    sites = (("W", "rate"),) if len(priors) == 1 else (("P", "rate"), ("Q", "rate_own"))
    W = jnp.zeros((d, m), xx.dtype)
    for (name, rate_name), prior, part in zip(sites, priors, data.parts, strict=True):
        rate = _sample_positive(rate_name, part.rate)
        strength = rate / sigma
        # gamma * strength, at which the prox thresholds, stays a fixed share of the prior's scale 1 / strength. With a fixed
        # gamma the gradient would become too weak wherever the sampler tries a large rate.
        gamma = None if part.smoothing is None else part.smoothing / strength**2
        law = prior(strength, (d, m), smoothing=gamma)
        W = W + (numpyro.sample(name, law) if part.local is None else part.local.sample(name, law, rate, sigma))
    if len(priors) > 1:
        numpyro.deterministic("W", W)
    # sum_i ||y_i - X_i w_i||^2 = residual + sum_i step_i'(X_i'X_i step_i - 2 slope_i), where step_i = w_i - centre_i
    step = W.T - data.centre
    squares = data.residual + jnp.sum(step * (jnp.einsum("tij,tj->ti", xx, step) - 2 * jnp.asarray(data.slope)))
    numpyro.factor("y", -0.5 * squares / sigma**2 - data.rows * (jnp.log(sigma) + 0.5 * jnp.log(2 * jnp.pi)))
    if data.release is not None:
        _observe_release(data.release, W)


def _observe_release(release: ReleasedMoments, W: Array) -> None:
    """Add the density of a release whose messages were the weights, bounded."""
    V = W / jnp.asarray(release.coordinates).T
    square = jnp.sum(V**2, axis=0)
    length = jnp.sqrt(jnp.where(square > 0, square, 1.0)) / release.clip
    bounded = V / jnp.where(jnp.asarray(release.direction), length, jnp.maximum(1.0, length))  # Algorithm 1, step 3
    A = bounded @ bounded.T
    for t, (sigma, noise) in enumerate(zip(release.sigma, release.noise, strict=True), start=1):
        numpyro.sample(f"release_{t}", noise.sampling_distribution(A), obs=jnp.asarray(sigma))


def _sample_positive(name: str, prior: Known | Learnt) -> Array:
    """Sample a hyper-parameter, or record its fixed value."""
    if isinstance(prior, Known):
        return numpyro.deterministic(name, jnp.asarray(prior.value))
    return numpyro.sample(name, dist.LogNormal(jnp.log(prior.median), prior.log_sd))


def _positive_prior(name: str, value: Positive, median: float) -> Known | Learnt:
    """Read the argument for a positive hyper-parameter, whose default prior has this median."""
    if value is None:
        return Learnt(np.asarray(median), np.asarray(LOG_SD))
    if isinstance(value, tuple):
        return Learnt(np.asarray(positive(name, value[0])), np.asarray(positive(name, value[1])))
    return Known(np.asarray(positive(name, value)))


def _moments(release: Release | None, tasks: TaskData) -> ReleasedMoments | None:
    """Prepare a release, if there is one, after a check that it has the sizes of the tasks."""
    if release is None:
        return None
    if (release.num_features, release.num_tasks) != (tasks.num_features, tasks.num_tasks):
        raise ValueError(
            f"with_release: expected {tasks.num_features} features and {tasks.num_tasks} tasks as in the data, "
            f"got {release.num_features} and {release.num_tasks}"
        )
    return ReleasedMoments(
        sigma=release.sigma,
        noise=tuple(of_law(law, sigma) for sigma, law in zip(release.sigma, release.mechanisms, strict=True)),
        clip=np.asarray(release.mechanisms[0].clip),
        direction=np.asarray(release.message == "direction"),
        # an owner sends v = S^{-1} w, where S are the scales of its rows
        coordinates=conjugate.scales_of(tasks.squares, tasks.row_counts, release.scaling),
    )
