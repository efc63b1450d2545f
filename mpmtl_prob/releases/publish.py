"""Publication of releases: the only code that turns models into something that may be published.

Noise comes from :mod:`mpmtl_prob.privacy.charge_and_draw`.

A curator has one vector per task, or their second moment. :func:`release` and :func:`publish` publish the perturbed second
moment, Sigma = W W' + E, and nothing else. Iterative algorithms publish all their rounds by :func:`publish_rounds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import as_float_array, function
from mpmtl_prob._util.hidden_arrays import shown
from mpmtl_prob.data.estimates import Estimates
from mpmtl_prob.data.shards import TaskShards
from mpmtl_prob.data.tasks import TaskData
from mpmtl_prob.privacy.accounting.calibration import calibrate
from mpmtl_prob.privacy.charge_and_draw import draw_matrices
from mpmtl_prob.privacy.guarantee import DISCRETE, Guarantee, of_release
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.mechanisms import MatrixMechanism, Wishart
from mpmtl_prob.releases.effects import check_intercept, coefficients_of
from mpmtl_prob.releases.files import library_version
from mpmtl_prob.releases.messages import clip_norm, messages, scaling_of
from mpmtl_prob.releases.release import Release
from mpmtl_prob.releases.rounds import attach_paid_release, checked_answer, how_many
from mpmtl_prob.releases.sharded import second_moment as streamed
from mpmtl_prob.releases.silent import silent_tasks, tell
from mpmtl_prob.releases.spec import ReleaseSpec, Terms, check_lattice, default_delta, message


def release(
    source: TaskData | TaskShards | Estimates | ArrayLike,
    epsilon: float | ReleaseSpec,
    delta: float | None = None,
    *,
    respond: Callable[[Release], ArrayLike] | None = None,
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
    **options: Any,
) -> Release:
    """Publish the tasks' perturbed second moment, and spend the whole budget on it.

    Args:
        source: TaskData, whose messages are by default directions of every task's own ridge estimate (its penalty is averaged
            over the task's own evidence, so that no hyper-parameter depends on other tasks' rows); TaskShards, the same for
            tasks on disk, in one round; :class:`~mpmtl_prob.Estimates`, whose messages of effects need a ``reference``; or
            the messages themselves, d x m. Tasks without information send zeros, and a warning names them, since you
            hold the rows.
        epsilon: > 0; or a :class:`ReleaseSpec`, which then specifies everything.
        delta: in (0, 1); default 1 / (m log m).
        respond: with more than one round, a function from the rounds so far to the owners' next messages, d x m. With
            TaskData it may be ``mpmtl_prob.inference.posterior_draws(tasks)``, draws from their posteriors. It is called
            after all rounds are paid for: an error in it carries the rounds so far as its ``release``. If it has a
            ``shape``, this is checked before.
        unsafe_seed: draw the noise from this seed, for demonstrations: the release then guarantees nothing.
        ledger: pays for the release, on disk, before any noise is drawn.
        options: further fields of :class:`ReleaseSpec`: ``reference``, ``covariates``, ``message``, ``clip``, ``mechanism``,
            ``adjacency``, ``scaling`` and ``rounds``.

    Returns:
        A :class:`Release` of T rounds.

    Raises:
        BudgetExceeded: the price exceeds what is left in the ledger.
        ValueError: an argument outside its range, or messages that are not finite. Nothing was charged.

    Source: TPAMI 2022, Algorithm 1, steps 3 to 5, with T = 1.

    >>> train, test, W = mp.datasets.synthetic_low_rank(num_tasks=40, num_features=3, rows=10)
    >>> release = mp.release(train, epsilon=1.0)
    >>> release.sigma.shape
    (1, 3, 3)
    >>> proved = release.guarantee.proved
    >>> print(f"eps = {proved.epsilon:g}, delta = {proved.delta:.4f} = 1 / (40 log 40)")
    eps = 1, delta = 0.0068 = 1 / (40 log 40)
    """
    spec = ReleaseSpec.of(epsilon, delta, **options)
    if spec.kind == "effects":
        if respond is not None:
            raise ValueError("respond: expected none with message='effects', of one round")
        return _of_effects(source, replace(spec, rounds=1), unsafe_seed, ledger)
    scaling = scaling_of(source, spec.scaling)
    spec = replace(spec, scaling=scaling)
    if isinstance(source, TaskShards):
        if spec.rounds not in (1, "auto") or respond is not None:
            raise ValueError(
                f"rounds: expected 1 with TaskShards, whose messages are read once, got {shown(spec.rounds)}"
            )
        agreed = replace(spec, rounds=1).terms(source.num_tasks, source.slopes)
        A, rows = streamed(source, agreed)
        return publish(A, agreed, unsafe_seed=unsafe_seed, ledger=ledger, data=rows)
    W, features, scaling = messages(source, scaling)
    spec = replace(spec, scaling=scaling)
    d, m = W.shape
    one_round = None if isinstance(spec.mechanism, MatrixMechanism) else partial(_calibrated, spec, d, m)
    agreed = replace(spec, rounds=how_many(spec.rounds, (d, m), respond, one_round)).terms(m, features)
    W = agreed.bounded(W)
    tell(silent_tasks(W, source), W @ W.T, features, spec.kind)
    noise, guarantee = _drawn(agreed, unsafe_seed, ledger, source)
    sigma = [W @ W.T + noise[0]]
    for later_noise in noise[1:]:
        assert respond is not None  # a single round asks nobody
        with attach_paid_release(so_far := _published(sigma, agreed, guarantee)):
            W = agreed.bounded(checked_answer(respond(so_far), W.shape))
        sigma.append(W @ W.T + later_noise)
    return _published(sigma, agreed, guarantee)


def _of_effects(
    source: TaskData | TaskShards | Estimates | ArrayLike,
    spec: ReleaseSpec,
    unsafe_seed: int | None,
    ledger: Ledger | None,
) -> Release:
    """Publish one round of messages of effects."""
    if isinstance(source, Estimates):
        features = coefficients_of(source, spec.reference)
    elif isinstance(source, TaskData | TaskShards):
        check_intercept(source.features, source.intercept)
        features = source.features
    else:
        raise ValueError(
            "source: expected TaskData or TaskShards with message='effects', or Estimates, as a message is made of rows or "
            f"of an estimate, got {type(source).__name__}"
        )
    names = (
        source.tasks if not isinstance(source, TaskShards) else [name for part in source.parts for name in part.tasks]
    )
    agreed = spec.among(names).terms(source.num_tasks, features)
    if isinstance(source, TaskShards):
        A, rows = streamed(source, agreed)
        return publish(A, agreed, unsafe_seed=unsafe_seed, ledger=ledger, data=rows)
    W = message(source, agreed)
    noise, guarantee = _drawn(agreed, unsafe_seed, ledger, source)
    return _published([W @ W.T + noise[0]], agreed, guarantee)


def _calibrated(spec: ReleaseSpec, d: int, m: int) -> Wishart:
    """Return the noise law that one round of m messages would have."""
    K, purchases = clip_norm(spec.kind, spec.clip)
    delta = default_delta(m) if spec.delta is None else spec.delta
    prices = tuple(purchase.law for purchase in purchases)
    return calibrate(spec.epsilon, delta, d, clip=K, adjacency=spec.adjacency, composed_with=prices)


def publish(
    second_moment: ArrayLike,
    terms: Terms,
    *,
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
    data: TaskData | Estimates | ArrayLike | None = None,
) -> Release:
    """Publish a second moment with noise: the curator's step, which sees no single message.

    Args:
        second_moment: the sum of v v' over all tasks, (d, d), with v as :func:`message` returned it to the data owner.
        terms: terms of one round.
        unsafe_seed: as in :func:`release`.
        ledger: pays for the release, on disk, before any noise is drawn.
        data: the data behind the release, for the ledger's fingerprint.

    Raises:
        BudgetExceeded: the price exceeds what is left in the ledger.
        ValueError: terms of several rounds, or a matrix that cannot be a second moment of such messages. Nothing was charged.
    """
    A, d = as_float_array("second_moment", second_moment), len(terms.features)
    if len(terms.mechanisms) != 1:
        raise ValueError(f"terms: expected those of one round, got {len(terms.mechanisms)}")
    if A.shape != (d, d) or not np.array_equal(A, A.T):
        raise ValueError(f"second_moment: expected a symmetric {d} x {d} matrix, got shape {A.shape}")
    if not (_on_lattice(A, terms) and np.trace(A) <= terms.num_tasks * terms.clip**2):
        raise ValueError("second_moment: expected a sum of v v' over the messages of these terms, got another matrix")
    return publish_rounds(lambda noise: (A + noise, None), terms, unsafe_seed=unsafe_seed, ledger=ledger, data=data)[0]


def from_noisy_sum(sigma: ArrayLike, terms: Terms, *, seeded: bool = False) -> Release:
    """Return a release from a sum that already contains noise: owners added shares of it, see :mod:`mpmtl_prob.federated`.

    Args:
        sigma: the sum of v v' and of the shares of noise, (d, d).
        terms: terms of one round, with the total noise of those who are in the sum.
        seeded: True if the shares were drawn from a seed, for demonstrations.

    Raises:
        ValueError: numbers that are not on the lattice.
    """
    check_lattice(terms)
    guarantee = of_release(
        terms.mechanisms,
        epsilon=terms.epsilon,
        adjacency=terms.adjacency,
        claimed=None,
        seeded=seeded,
        arithmetic=DISCRETE,
    )
    return _published([np.asarray(sigma, dtype=np.float64)], terms, guarantee)


def publish_rounds[Private](
    run: Callable[[FloatArray], tuple[ArrayLike, Private]],
    terms: Terms,
    *,
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
    data: TaskData | Estimates | ArrayLike | None = None,
) -> tuple[Release, Private]:
    """Pay, draw the noise of T rounds, let ``run`` add it to its second moments, publish the sums.

    Args:
        run: maps the noise (T, d, d) to Sigma^(1:T) = A^(t) + E^(t), (T, d, d), and to private results. It must bound its
            messages as the terms say and cut them to the lattice, and must not keep the noise.
        terms: terms of all rounds, which are paid for at once.
        unsafe_seed: as in :func:`release`.
        ledger: pays for all rounds, on disk, before any noise is drawn.
        data: the data behind the release, for the ledger's fingerprint.

    Returns:
        The release, and the private results of ``run``.

    Raises:
        BudgetExceeded: the price exceeds what is left in the ledger.
        ValueError: an argument outside its range. Nothing was charged, nothing drawn.
    """
    function("run", run, "from the noise to second moments with it, and what stays in the room")
    noise, guarantee = _drawn(terms, unsafe_seed, ledger, data)
    sigma, private = run(noise)
    return _published(sigma, terms, guarantee), private


def _drawn(
    terms: Terms, unsafe_seed: int | None, ledger: Ledger | None, data: TaskData | Estimates | ArrayLike | None
) -> tuple[FloatArray, Guarantee]:
    check_lattice(terms)
    return draw_matrices(
        terms.mechanisms,
        epsilon=terms.epsilon,
        adjacency=terms.adjacency,
        lattice=terms.lattice,
        claimed=terms.claimed,
        unsafe_seed=unsafe_seed,
        ledger=ledger,
        data=data,
        purchases=terms.purchases,
    )


def _published(sigma: ArrayLike, terms: Terms, guarantee: Guarantee) -> Release:
    """Return the rounds up to now as a release. Raises ValueError for matrices off the lattice, and publishes nothing."""
    published = np.asarray(sigma)
    if published.dtype != np.float64 or not _on_lattice(published, terms):
        raise ValueError("run: expected second moments of messages on the lattice, got others")
    return Release(
        sigma=published,
        mechanisms=terms.mechanisms[: len(published)],
        num_tasks=terms.num_tasks,
        features=terms.features,
        guarantee=guarantee,
        message=terms.message,
        scaling=terms.scaling,
        library_version=library_version(),
        composed_with=tuple(purchase.law for purchase in terms.purchases),
        lattice=terms.lattice,
        effects=terms.effects,
    )


def _on_lattice(sigma: FloatArray, terms: Terms) -> bool:
    return bool(np.all(np.mod(sigma, terms.lattice**2) == 0))
