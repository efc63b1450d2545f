"""Base classes of mechanisms (noise laws): the interface for accounting, ledgers, releases and audits.

A mechanism is a frozen dataclass of plain numbers that derives from :class:`MatrixMechanism`, :class:`VectorMechanism` or
:class:`Mechanism`. :func:`register` makes its name known to files and ledgers. A new mechanism needs nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import positive
from mpmtl_prob._util.former import FormerName, accept_former_methods, former_names
from mpmtl_prob.privacy.mechanisms.exact import Source
from mpmtl_prob.privacy.mechanisms.profile import PrivacyProfile


class Mechanism(ABC):
    """Mechanism, or noise law: its privacy loss, the explanation of its guarantee, and its fields for files."""

    #: Why nothing is proved about this law; empty where there is a proof.
    unproved: ClassVar[str] = ""
    #: Whether the loss distribution comes from a quadrature, whose errors are about 1e-12 in delta for every draw.
    by_quadrature: ClassVar[bool] = False

    together = FormerName("compose_closed_form")
    pure = FormerName("max_loss")
    against = FormerName("adversary")
    reason = FormerName("justification")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        accept_former_methods(
            cls,
            together="compose_closed_form",
            pure="max_loss",
            against="adversary",
            reason="justification",
            fluctuation="operator_norm",
        )

    @property
    def kind(self) -> str:
        """The name of the law."""
        return type(self).__name__

    @property
    def adversary(self) -> str:
        """The only attackers against whom the guarantee holds, in words; empty if it holds against anybody."""
        return ""

    @property
    @abstractmethod
    def loss_spread(self) -> float:
        """The width of the privacy loss, which sets the grid of composition."""

    @abstractmethod
    def loss_distribution(self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True) -> Any:
        """Return the privacy loss of one draw, "add" and "remove"; its ``to_dp_accounting()`` is that of dp-accounting.

        It is a :class:`~mpmtl_prob.privacy.mechanisms.pld.LossDistribution`. A mechanism of one's own may return a
        ``PrivacyLossDistribution`` of dp-accounting instead.

        Args:
            adjacency: "zero_out" or "replace".
            interval: grid spacing; default a thousandth of the width of the loss.
            pessimistic: round so that delta(eps) is never too small; otherwise so that it is never too large.
        """

    @abstractmethod
    def justification(self, adjacency: str, rounds: int) -> str:
        """Explain in a sentence why the guarantee of this number of draws holds."""

    def max_loss(self, adjacency: str) -> float:
        """Return the largest privacy loss of one draw; infinite where it is not bounded."""
        return float(np.inf)

    @staticmethod
    def compose_closed_form(laws: Sequence[Mechanism], adjacency: str) -> PrivacyProfile | None:
        """Return the privacy profile of several draws where a closed form is known; None otherwise."""
        return None

    def fields(self) -> dict[str, Any]:
        """Return the mechanism's plain numbers, for :meth:`from_fields`."""
        assert is_dataclass(self)
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Build the mechanism from its plain numbers. Raises TypeError or ValueError for invalid ones."""
        return cls(**fields)

    def _interval(self, interval: float | None) -> float:
        return self.loss_spread / 1000 if interval is None else positive("interval", interval)


class MatrixMechanism(Mechanism):
    """Noise E on a symmetric matrix A = W W', (d, d), where the columns of W are at most ``clip`` long: Sigma = A + E.

    Releases draw from it exactly (``draw``), simulations in doubles (``sample``). Models use its density (``log_prob``).
    ``sample`` and ``log_prob`` accept batches, that is any leading axes.

    Attributes:
        num_features: d.
        clip: K, the largest norm of a column of W, in units of the weights.
    """

    num_features: int
    clip: float

    #: Whether every release is positive definite.
    positive_definite: ClassVar[bool] = False

    fluctuation = FormerName("operator_norm")

    @property
    @abstractmethod
    def mean(self) -> FloatArray:
        """The mean of the noise, E[Sigma - A], (d, d)."""

    @property
    @abstractmethod
    def operator_norm(self) -> float:
        """Size of Sigma - A - mean in operator norm, in squared units of the weights."""

    @property
    def variance(self) -> float:
        """The variance of w' E w, for w of length 1 in any direction; estimated from draws, unless a subclass knows it."""
        d = self.num_features
        rng = np.random.default_rng(0)
        zero = np.zeros((d, d))
        return float(np.var([np.diag(self.sample(rng, zero)) for _ in range(max(20, -(-4000 // d)))]))

    @abstractmethod
    def draw(self, unit: float, source: Source) -> FloatArray:
        """Draw E in whole multiples of ``unit``, (d, d): a real draw, correctly rounded. Releases use this method."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, A: FloatArray) -> FloatArray:
        """Return A + E for A of shape (..., d, d), with fresh symmetric noise for each; in doubles, for simulations."""

    @abstractmethod
    def log_prob(self, sigma: FloatArray, A: FloatArray) -> FloatArray:
        """Return the log density of the release sigma given A, (...)."""


class VectorMechanism(Mechanism):
    """Noise b on a vector (d,) which a change of one unit moves by at most ``sensitivity``.

    Attributes:
        num_features: d.
        scale: size of an entry of b, in units of the vector.
        sensitivity: s, in units of the vector; a zeroed vector moves by half of it.
    """

    num_features: int
    sensitivity: float

    if TYPE_CHECKING:  # at run time a dataclass would use the property as the default of a field

        @property
        def scale(self) -> float: ...

    @abstractmethod
    def draw(self, unit: float, source: Source) -> FloatArray:
        """Draw b in whole multiples of ``unit``, (d,): a real draw, correctly rounded. Releases use this method."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, w: FloatArray) -> FloatArray:
        """Return w + b for vectors of shape (..., d), with fresh noise for each; in doubles, for simulations."""

    @abstractmethod
    def log_prob(self, released: FloatArray, w: FloatArray) -> FloatArray:
        """Return the log density of the released vectors given w, (...)."""


_registered: dict[str, type[Mechanism]] = {}


def register[L: type[Mechanism]](law: L) -> L:
    """Register a law for files and ledgers under the name of its class; a class decorator.

    Raises:
        ValueError: not a noise law, or the name of another registered law.
    """
    if not (isinstance(law, type) and issubclass(law, Mechanism) and is_dataclass(law)):
        raise ValueError(f"law: expected a dataclass that derives from Mechanism, got {law!r}")
    known = _registered.get(law.__name__)
    if known is not None and (known.__module__, known.__qualname__) != (law.__module__, law.__qualname__):
        raise ValueError(f"law: expected a name that no other law has, got {law.__name__!r} of {known.__module__}")
    _registered[law.__name__] = law
    return law


def write_mechanism(law: Mechanism) -> dict[str, Any]:
    """Return a law as plain numbers and its ``kind``, for a file.

    Raises:
        ValueError: a law that could not be read back from a file or a ledger.
    """
    if not isinstance(law, Mechanism):
        raise ValueError(f"law: expected a noise law, got {type(law).__name__}")
    fields = {"kind": law.kind} | {
        name: value.item() if isinstance(value, np.generic) else value for name, value in law.fields().items()
    }
    try:
        again: Mechanism | None = read_mechanism(fields)
    except ValueError:
        again = None
    if again != law:
        raise ValueError(f"law: expected one that files can hold, got {law.kind}; register it, and see its fields()")
    return fields


def read_mechanism(fields: Mapping[str, Any]) -> Mechanism:
    """Return the law that :func:`write_mechanism` wrote. Raises ValueError for anything else."""
    numbers = dict(fields)
    law = _registered.get(numbers.pop("kind", "Wishart"))
    try:
        if law is None:
            raise TypeError
        return law.from_fields(numbers)
    except TypeError:
        raise ValueError(f"mechanism: expected a law of mpmtl_prob or a registered one, got {dict(fields)!r}") from None


__getattr__ = former_names(
    __name__,
    {
        "Law": "Mechanism",
        "MatrixNoise": "MatrixMechanism",
        "VectorNoise": "VectorMechanism",
        "read_law": "read_mechanism",
        "write_law": "write_mechanism",
    },
)
