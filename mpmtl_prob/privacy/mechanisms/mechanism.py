"""Base classes of mechanisms: what the accountant, the ledger, releases and audits ask of a noise distribution.

A mechanism is a frozen dataclass of plain numbers that derives from :class:`MatrixMechanism`, :class:`VectorMechanism` or
:class:`Mechanism`. :func:`register` makes its name known to files and ledgers; nothing else has to change for a new one.
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
    """What a draw gives away, in numbers and words, and how it is written down."""

    #: why nothing is proved of this law; empty where something is
    unproved: ClassVar[str] = ""
    #: whether the loss distribution has errors of a quadrature in it, of about 1e-12 in delta for every draw
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
        """Against whom alone what is proved holds; empty for anybody, whatever they know."""
        return ""

    @property
    @abstractmethod
    def loss_spread(self) -> float:
        """The width of the privacy loss, from which composition takes its grid."""

    @abstractmethod
    def loss_distribution(self, adjacency: str, *, interval: float | None = None, pessimistic: bool = True) -> Any:
        """The privacy loss of one draw as a dp-accounting ``PrivacyLossDistribution``, "add" and "remove".

        Args:
            adjacency: "zero_out" or "replace".
            interval: grid spacing; default a thousandth of the width of the loss.
            pessimistic: rounded so that delta(eps) is never too small, else so that it is never too large.
        """

    @abstractmethod
    def justification(self, adjacency: str, rounds: int) -> str:
        """Why the guarantee of so many draws holds, in a sentence."""

    def max_loss(self, adjacency: str) -> float:
        """The largest privacy loss of one draw; infinite where there is none."""
        return float(np.inf)

    @staticmethod
    def compose_closed_form(laws: Sequence[Mechanism], adjacency: str) -> PrivacyProfile | None:
        """delta(eps) of several draws where it is known without a grid; None for laws that this one knows nothing of."""
        return None

    def fields(self) -> dict[str, Any]:
        """Plain numbers, for :meth:`from_fields`."""
        assert is_dataclass(self)
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """The law of these numbers. Raises TypeError or ValueError for others."""
        return cls(**fields)

    def _interval(self, interval: float | None) -> float:
        return self.loss_spread / 1000 if interval is None else positive("interval", interval)


class MatrixMechanism(Mechanism):
    """E on a symmetric matrix A = W W', (d, d), the columns of W at most ``clip`` long: Sigma = A + E.

    The release path draws from it exactly (``draw``), simulations in doubles (``sample``); models read its density.
    ``sample`` and ``log_prob`` take batches: any leading axes.

    Attributes:
        num_features: d.
        clip: K, the largest norm of a column of W, in units of the weights.
    """

    num_features: int
    clip: float

    #: whether every release is positive definite
    positive_definite: ClassVar[bool] = False

    fluctuation = FormerName("operator_norm")

    @property
    @abstractmethod
    def mean(self) -> FloatArray:
        """E[Sigma - A], (d, d)."""

    @property
    @abstractmethod
    def operator_norm(self) -> float:
        """Size of Sigma - A - mean in operator norm, in squared units of the weights."""

    @property
    def variance(self) -> float:
        """Of w' E w, for w of length 1 in any direction; by draws, unless a law knows it."""
        d, rng = self.num_features, np.random.default_rng(0)
        none = np.zeros((d, d))
        return float(np.var([np.diag(self.sample(rng, none)) for _ in range(max(20, -(-4000 // d)))]))

    @abstractmethod
    def draw(self, unit: float, source: Source) -> FloatArray:
        """E in whole multiples of ``unit``, (d, d): the real draw, correctly rounded. This is what is published."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, A: FloatArray) -> FloatArray:
        """A + E for A of shape (..., d, d), with a fresh E each, exactly symmetric: for simulations, in doubles."""

    @abstractmethod
    def log_prob(self, sigma: FloatArray, A: FloatArray) -> FloatArray:
        """log density of the release sigma given A, (...)."""


class VectorMechanism(Mechanism):
    """b on a vector (d,) that the change protected against moves by at most ``sensitivity``.

    Attributes:
        num_features: d.
        scale: size of an entry of b, in units of the vector.
        sensitivity: s, in units of the vector; a zeroed vector moves by half of it.
    """

    num_features: int
    sensitivity: float

    if TYPE_CHECKING:  # else a dataclass would take the property for the default of a field

        @property
        def scale(self) -> float: ...

    @abstractmethod
    def draw(self, unit: float, source: Source) -> FloatArray:
        """b in whole multiples of ``unit``, (d,): the real draw, correctly rounded. This is what is published."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, w: FloatArray) -> FloatArray:
        """w + b for vectors of shape (..., d), with a fresh b for every one: for simulations, in doubles."""

    @abstractmethod
    def log_prob(self, released: FloatArray, w: FloatArray) -> FloatArray:
        """log density of the released vectors given w, (...)."""


_registered: dict[str, type[Mechanism]] = {}


def register[L: type[Mechanism]](law: L) -> L:
    """Make a law known to files and ledgers under the name of its class; a decorator.

    Raises:
        ValueError: what is no law, or a name that another law has.
    """
    if not (isinstance(law, type) and issubclass(law, Mechanism) and is_dataclass(law)):
        raise ValueError(f"law: expected a dataclass that derives from Law, got {law!r}")
    held = _registered.get(law.__name__)
    if held is not None and (held.__module__, held.__qualname__) != (law.__module__, law.__qualname__):
        raise ValueError(f"law: expected a name that no other law has, got {law.__name__!r} of {held.__module__}")
    _registered[law.__name__] = law
    return law


def write_mechanism(law: Mechanism) -> dict[str, Any]:
    """The law as plain numbers and its ``kind``, for a file.

    Raises:
        ValueError: a law that could not be read again; a ledger with it could not be read either.
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
    """The law that :func:`write_mechanism` wrote. Raises ValueError for anything else."""
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
