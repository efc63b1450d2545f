"""The only code that turns models into something that may be published, with noise from :mod:`mpmtl_prob.privacy.door`.

A curator holds one vector per task, or their second moment. :func:`release` and :func:`publish` let out the perturbed second
moment, Sigma = W W' + E, and nothing else; iterative algorithms send all their rounds through :func:`perturb`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._check import function, in_range, numbers, one_of, positive
from mpmtl_prob._discreet import shown
from mpmtl_prob._files import write_netcdf
from mpmtl_prob._html import card
from mpmtl_prob.privacy.accounting.calibration import calibrate
from mpmtl_prob.privacy.accounting.curves import MembershipOdds
from mpmtl_prob.privacy.door import draw_matrices
from mpmtl_prob.privacy.guarantee import DISCRETE, Guarantee, of_release
from mpmtl_prob.privacy.laws import Law, MatrixNoise
from mpmtl_prob.privacy.ledger import Ledger
from mpmtl_prob.privacy.units import Adjacency
from mpmtl_prob.releases import files, signatures
from mpmtl_prob.releases.messages import MESSAGES, BoughtClip, clip_norm, messages, scaling_of
from mpmtl_prob.releases.rounds import checked_answer, how_many, kept
from mpmtl_prob.releases.silent import silent_tasks, tell
from mpmtl_prob.releases.streamed import second_moment as streamed
from mpmtl_prob.releases.terms import Terms, check_lattice, check_laws, default_delta, terms
from mpmtl_prob.shards import TaskShards
from mpmtl_prob.tasks import FloatArray, TaskData

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """What left the room: the perturbed second moments of T rounds, and the law of their noise. Public.

    Attributes:
        sigma: Sigma^(1:T), (T, d, d), read-only.
        mechanisms: the noise law of each round; its ``clip`` is K.
        num_tasks: m.
        features: feature names, d of them.
        guarantee: claimed and proved.
        message: "direction" (every column of W has unit length or is zero) or "clip" (length at most K).
        scaling: the coordinates of the messages: "pareto" or "unit" (every owner scaled its features by its own rows), or
            "none".
        library_version: of the code that made it.
        besides: what else was bought for this release and is in its guarantee, such as the clip norm.
        lattice: h, the grid of the messages; Sigma lies on that of its square. None where noise was drawn in doubles.

    Raises:
        ValueError: Sigma that is not finite and symmetric, or not positive definite where its noise is; shapes that
            disagree.
    """

    sigma: FloatArray
    mechanisms: tuple[MatrixNoise, ...]
    num_tasks: int
    features: tuple[Hashable, ...]
    guarantee: Guarantee
    message: str
    scaling: str
    library_version: str
    besides: tuple[Law, ...] = ()
    lattice: float | None = None

    def __post_init__(self) -> None:
        d = len(self.features)
        sigma = np.array(self.sigma, dtype=np.float64)
        if sigma.shape != (len(self.mechanisms), d, d):
            raise ValueError(f"sigma: expected shape {(len(self.mechanisms), d, d)} (round, feature, feature), "
                             f"got {sigma.shape}")  # fmt: skip
        if not np.all(np.isfinite(sigma)):
            raise ValueError("sigma: expected finite numbers")
        if not np.allclose(sigma, np.swapaxes(sigma, 1, 2), rtol=1e-10, atol=0):
            raise ValueError("sigma: expected symmetric matrices")
        definite = np.array([mechanism.positive_definite for mechanism in self.mechanisms])
        if np.any(definite) and (smallest := np.linalg.eigvalsh(sigma[definite])[:, 0].min()) <= 0:
            raise ValueError(f"sigma: expected positive definite matrices, got an eigenvalue {smallest:.3g}")
        check_laws(self.mechanisms, d, self.message)
        sigma.setflags(write=False)
        object.__setattr__(self, "sigma", sigma)

    def membership_odds(self, prior: float = 0.5) -> MembershipOdds:
        """How far the strongest attacker's odds that a task is in the release can move; in words if printed.

        Args:
            prior: the attacker's probability before the release, in (0, 1).

        Raises:
            ValueError: a prior outside (0, 1), or nothing is proved.
        """
        return self.guarantee.membership_odds(prior)

    def explain(self) -> str:
        """For people: what was let out, what is promised, what a participant can be told, and what is not covered."""
        return f"{self._what()}.\n\n{self.guarantee.explain()}"

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.mechanisms)

    @property
    def num_features(self) -> int:
        """d."""
        return len(self.features)

    def to_xarray(self) -> xr.Dataset:
        """The release as a data set with dims (round, feature, feature_other); all else in the attribute ``release``."""
        return files.to_dataset(self)

    def save(self, path: str | os.PathLike[str], *, key: bytes | None = None) -> None:
        """Write the release to a NetCDF file; for its owner alone (mode 0600) where nothing is proved of it.

        Args:
            path: of the file; one that was there stays until the new one is whole.
            key: signs all that is in it (HMAC-SHA256), for readers who share the key: at least 16 secret bytes.

        Raises:
            ValueError: a key that is none.
        """
        data = self.to_xarray()
        write_netcdf(data if key is None else signatures.sign(data, key), path, private=self.guarantee.proved is None)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, key: bytes | None = None) -> Release:
        """Read a release that :meth:`save` wrote.

        The guarantee is worked out anew from the file's own numbers; what they do not give is not called proved. That
        Sigma is what its noise laws made of the messages, and that the noise was fresh, rests on who wrote the file: with a
        ``key`` it must be signed by it.

        Raises:
            ValueError: a file that holds no release, or a law of no name here; with ``key``, one that it did not sign.
        """
        data = files.read(path)
        if key is not None:
            signatures.check(data, key, path)
        try:
            return cls.from_xarray(data)
        except ValueError as error:
            raise ValueError(f"path: {os.fspath(path)!r} holds no release of mpmtl_prob: {error}") from error

    @classmethod
    def from_xarray(cls, data: xr.Dataset) -> Release:
        """The release that :meth:`to_xarray` turned into data, as :meth:`load`. Raises ValueError for other data."""
        return cls(**files.fields(data))

    def __repr__(self) -> str:
        return f"Release({self._what()})\n  {self.guarantee}"

    def _what(self) -> str:
        rounds = "one round" if self.rounds == 1 else f"{self.rounds} rounds"
        return f"{self.num_features} x {self.num_features} second moment of {self.num_tasks} tasks, {rounds}"

    def _repr_html_(self) -> str:
        length = "unit length" if self.message == "direction" else f"length at most {self.mechanisms[0].clip:.3g}"
        facts = {
            "published": f"{self.num_features} x {self.num_features} second moment of {self.num_tasks} tasks' vectors",
            "rounds": self.rounds,
            "vectors": length,
            "noise": ", ".join(sorted({law.kind for law in self.mechanisms})),
        }
        return card("Release", facts | self.guarantee.facts(), self.guarantee.reason)


def release(
    source: TaskData | TaskShards | ArrayLike,
    epsilon: float,
    delta: float | None = None,
    *,
    message: str = "direction",
    clip: float | BoughtClip | None = None,
    mechanism: str | MatrixNoise = "wishart",
    adjacency: str = "replace",
    scaling: str | None = None,
    rounds: int | str = 1,
    respond: Callable[[Release], ArrayLike] | None = None,
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
) -> Release:
    """Let out the tasks' perturbed second moment, and spend the whole budget on it.

    Args:
        source: TaskData, whose messages are every task's own ridge estimate (its penalty averaged over the task's own
            evidence, so that no hyper-parameter is chosen on other tasks' rows); TaskShards, the same of tasks on disk, in
            one round; or the messages themselves, d x m.
        epsilon: > 0.
        delta: in (0, 1); default 1 / (m log m).
        message: "direction" scales every message to unit length, so that K = 1 is public and nothing about norms is
            spent or leaked; "clip" shortens longer messages to ``clip``. One feature has no direction to speak of: there it
            has to be "clip". Of tasks that say nothing, which send zeros, a warning tells you, who hold the rows.
        clip: K, only with message="clip": a number chosen without looking at the messages, or one from :func:`buy_clip`,
            whose price is then part of the total.
        mechanism: "wishart" (the least Wishart noise that is (epsilon, delta)-private, also called "calibrated"),
            "gaussian" (the least Gaussian noise that is), "paper" (the papers' noise, whose guarantee is weaker than
            claimed), or a :class:`Wishart` or :class:`Gaussian` of your own, taken as it is: it must keep a given ``delta``.
        adjacency: what a task's data are compared with: "replace" (any other task) or "zero_out" (no task).
        scaling: with TaskData, "unit" lets every owner scale its features by its own rows to unit variance, whatever their
            units, which is the default for tasks that come from a table; "pareto" by the root of that, which makes tasks
            alike whose features have one unit, the default for tasks that come from arrays; "none" leaves them. It is
            public, and never follows from the rows. Messages that you bring are taken as they are.
        rounds: T: the budget is spread evenly over T releases, paid for at once. The first message is the estimate, later
            ones answer the releases before, and a posterior reads the last. "auto" is 2 with at least 100 tasks whose second
            moment's average eigenvalue, K^2 m/d, one round's noise moves by less than two thirds; else, or of your law, 1.
        respond: the owners' messages, d x m, after the rounds so far, with more than one round: with TaskData
            ``mpmtl_prob.inference.posterior_draws(tasks)``, draws from their posteriors. It is asked when all rounds are paid
            for: an error of it has the rounds so far as its ``release``. A ``shape`` that it has is checked before.
        unsafe_seed: draws the noise from this seed, for demonstrations: the release then guarantees nothing.
        ledger: pays for the release, on disk, before any noise is drawn.

    Returns:
        A :class:`Release` of T rounds.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
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
    one_of("message", message, MESSAGES)
    scaling = scaling_of(source, scaling)
    epsilon = positive("epsilon", epsilon)
    adjacency = Adjacency.of(adjacency)
    if isinstance(source, TaskShards):
        if rounds not in (1, "auto") or respond is not None:
            raise ValueError(f"rounds: expected 1 with TaskShards, whose messages are read once, got {shown(rounds)}")
        settled = terms(
            epsilon, source.num_tasks, source.slopes, delta,
            message=message, clip=clip, mechanism=mechanism, adjacency=adjacency, scaling=scaling,
        )  # fmt: skip
        A, rows = streamed(source, settled)
        return publish(A, settled, unsafe_seed=unsafe_seed, ledger=ledger, data=rows)
    W, features, scaling = messages(source, scaling)
    d, m = W.shape
    K, purchases = clip_norm(message, clip)
    promised = default_delta(m) if delta is None else in_range("delta", delta, 0, 1)
    prices = tuple(purchase.law for purchase in purchases)
    one_round = partial(calibrate, epsilon, promised, d, clip=K, adjacency=adjacency, besides=prices)
    T = how_many(rounds, (d, m), respond, one_round if isinstance(mechanism, str) else None)
    settled = terms(
        epsilon, m, features, delta,
        message=message, clip=clip, mechanism=mechanism, adjacency=adjacency, scaling=scaling, rounds=T,
    )  # fmt: skip
    W = settled.bounded(W)
    tell(silent_tasks(W, source), W @ W.T, features, message)
    noise, guarantee = _drawn(settled, unsafe_seed, ledger, source)
    sigma = [W @ W.T + noise[0]]
    for each in noise[1:]:
        assert respond is not None  # a single round asks nobody
        with kept(so_far := _published(sigma, settled, guarantee)):
            W = settled.bounded(checked_answer(respond(so_far), W.shape))
        sigma.append(W @ W.T + each)
    return _published(sigma, settled, guarantee)


def publish(
    second_moment: ArrayLike,
    terms: Terms,
    *,
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
    data: TaskData | ArrayLike | None = None,
) -> Release:
    """A curator's step: let out a second moment with noise, without ever seeing a message.

    Args:
        second_moment: the sum of v v' over all tasks, (d, d), v as :func:`message` gave it to its owner.
        terms: of one round.
        unsafe_seed: as in :func:`release`.
        ledger: pays for the release, on disk, before any noise is drawn.
        data: what the release is about, for the ledger's fingerprint.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: terms of several rounds, or a matrix that is no second moment of such messages. Nothing was charged.
    """
    A, d = numbers("second_moment", second_moment), len(terms.features)
    if len(terms.mechanisms) != 1:
        raise ValueError(f"terms: expected those of one round, got {len(terms.mechanisms)}")
    if A.shape != (d, d) or not np.array_equal(A, A.T):
        raise ValueError(f"second_moment: expected a symmetric {d} x {d} matrix, got shape {A.shape}")
    if not (_on_lattice(A, terms) and np.trace(A) <= terms.num_tasks * terms.clip**2):
        raise ValueError("second_moment: expected a sum of v v' over the messages of these terms, got another matrix")
    return perturb(lambda noise: (A + noise, None), terms, unsafe_seed=unsafe_seed, ledger=ledger, data=data)[0]


def arrived(sigma: ArrayLike, terms: Terms, *, seeded: bool = False) -> Release:
    """A release whose noise was in it before anybody saw it: owners added their shares, see :mod:`mpmtl_prob.federated`.

    Args:
        sigma: the sum of v v' and of the shares, (d, d).
        terms: of one round, with the noise of those who are in the sum.
        seeded: the shares were drawn from a seed, for demonstrations.

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


def perturb[Private](
    run: Callable[[FloatArray], tuple[ArrayLike, Private]],
    terms: Terms,
    *,
    unsafe_seed: int | None = None,
    ledger: Ledger | None = None,
    data: TaskData | ArrayLike | None = None,
) -> tuple[Release, Private]:
    """Pay, draw the noise of T rounds, let ``run`` add it to its second moments, publish the sums.

    Args:
        run: maps the noise (T, d, d) to Sigma^(1:T) = A^(t) + E^(t), (T, d, d), and whatever stays in the room. It must
            bound its messages as the terms say and cut them to the lattice, and must not keep the noise.
        terms: of all rounds, which are paid for at once.
        unsafe_seed: as in :func:`release`.
        ledger: pays for all rounds, on disk, before any noise is drawn.
        data: what the release is about, for the ledger's fingerprint.

    Returns:
        The release, and what ``run`` keeps.

    Raises:
        BudgetExceeded: the ledger's total does not cover it.
        ValueError: an argument outside its range. Nothing was charged, nothing drawn.
    """
    function("run", run, "from the noise to second moments with it, and what stays in the room")
    noise, guarantee = _drawn(terms, unsafe_seed, ledger, data)
    sigma, private = run(noise)
    return _published(sigma, terms, guarantee), private


def _drawn(
    terms: Terms, unsafe_seed: int | None, ledger: Ledger | None, data: TaskData | ArrayLike | None
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
        besides=terms.bought,
    )


def _published(sigma: ArrayLike, terms: Terms, guarantee: Guarantee) -> Release:
    """The rounds up to now as a release; whatever is not on the lattice is lost, and nothing is published."""
    found = np.asarray(sigma)
    if found.dtype != np.float64 or not _on_lattice(found, terms):
        raise ValueError("run: expected second moments of messages on the lattice, got others")
    return Release(
        sigma=found,
        mechanisms=terms.mechanisms[: len(found)],
        num_tasks=terms.num_tasks,
        features=terms.features,
        guarantee=guarantee,
        message=terms.message,
        scaling=terms.scaling,
        library_version=files.library_version(),
        besides=tuple(purchase.law for purchase in terms.bought),
        lattice=terms.lattice,
    )


def _on_lattice(sigma: FloatArray, terms: Terms) -> bool:
    return bool(np.all(np.mod(sigma, terms.lattice**2) == 0))
