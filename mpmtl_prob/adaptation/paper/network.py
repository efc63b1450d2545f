"""NCnvxAdap with a network of one hidden layer: neither B nor G is known, so that every record's gradient is shortened to C.

A network's loss has no bound, no Lipschitz constant and no curvature that anybody could state. What sensitivities need is
made: a private record's gradient by the weights is shortened to a public length C, so that a replacement moves their weighted
sum by at most 2C, and its loss is cut to [0, B] where weights of records move by it. Both happen to each record alone, before
anything is summed. The convergence theorems say nothing of it.

Source: Bassily, Cortes, Mao and Mohri (2023), section 5; Abadi et al. (2016), Algorithm 1, for shortened gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from mpmtl_prob._util.arrays import FloatArray
from mpmtl_prob._util.checks import MANY, moderate, normalise_fields, whole
from mpmtl_prob._util.forks import check_not_forked
from mpmtl_prob.adaptation.data.domain import Domain
from mpmtl_prob.adaptation.paper import descent
from mpmtl_prob.adaptation.paper.losses import Loss
from mpmtl_prob.adaptation.paper.ncnvx import NCnvxAdap

#: of the squared length of the weights, in the fit to public records
_DECAY = 1e-4


@dataclass(frozen=True)
class Network(Loss):
    """-log softmax(A' tanh(M'x + b) + a)_y, y = 0..k-1, weights flat: M (d, h), b (h,), A (h, k), a (k,).

    Attributes:
        outputs: k, number of classes.
        hidden: h.
        gradient_bound: C, which stands for G.
        loss_bound: B.
    """

    outputs: int = 2
    hidden: int = 8
    gradient_bound: float = 1.0
    loss_bound: float = 4.0
    convex = False

    def __post_init__(self) -> None:
        normalise_fields(self, moderate, "row_bound", "weight_bound", "gradient_bound", "loss_bound")
        normalise_fields(self, whole, "outputs", "hidden")
        whole("hidden", self.hidden, upto=MANY // self.outputs)

    @property
    def bound(self) -> float:
        return self.loss_bound

    @property
    def lipschitz(self) -> float:
        return self.gradient_bound

    @property
    def smoothness(self) -> float:
        return float(np.inf)  # none is known

    def size(self, num_features: int) -> int:
        return (num_features + 1) * self.hidden + (self.hidden + 1) * self.outputs

    def scores(self, w: FloatArray, X: FloatArray) -> FloatArray:
        return self._call("scores", w, X)

    def values(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        return self._call("values", w, X, y)

    def slopes(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        return self._call("slopes", w, X, y)

    def gradients(self, w: FloatArray, X: FloatArray, y: FloatArray) -> FloatArray:
        return self._call("gradients", w, X, y)

    def start(self, source: Domain, seed: int) -> FloatArray:
        """A fit to public records, flat: a network that starts from zero stays there.

        Args:
            source: public, with labels 0..k-1.
            seed: of the weights from which it starts.
        """
        from scipy.optimize import minimize  # a quarter of a second to import

        d, h, k = source.num_features, self.hidden, self.outputs
        rng = np.random.default_rng(seed)
        M, A = rng.standard_normal((d, h)) / self.row_bound, rng.standard_normal((h, k)) / np.sqrt(h)
        first = descent.project(np.concatenate([M.ravel(), np.zeros(h), A.ravel(), np.zeros(k)]), self.weight_bound)

        def mean(w: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = self._call("mean", w, source.X, source.y)
            return float(value) + _DECAY * float(w @ w), gradient + 2 * _DECAY * w

        found = minimize(mean, first, jac=True, method="L-BFGS-B", options={"maxiter": 200})
        return descent.project(found.x, self.weight_bound)

    def _call(self, what: str, w: FloatArray, X: FloatArray, *y: FloatArray) -> Any:
        import jax

        check_not_forked()
        with jax.enable_x64(True):
            found = _functions(self.hidden, self.outputs)[what](w, X, *(each.astype(int) for each in y))
        return tuple(map(np.asarray, found)) if isinstance(found, tuple) else np.asarray(found)


@lru_cache(maxsize=32)
def _functions(h: int, k: int) -> dict[str, Callable[..., Any]]:
    """Of weights, rows and labels, compiled once for every shape. A record's numbers are computed of its row alone."""
    import jax
    import jax.numpy as jnp

    def scores(w: Any, x: Any) -> Any:
        d = x.shape[0]
        M, b, A, a = jnp.split(w, np.cumsum([d * h, h, h * k]))
        hidden = jnp.tanh(jnp.sum(x[:, None] * M.reshape(d, h), axis=0) + b)
        return jnp.sum(hidden[:, None] * A.reshape(h, k), axis=0) + a

    def of_scores(s: Any, y: Any) -> Any:
        return jax.nn.logsumexp(s) - s[y]

    def value(w: Any, x: Any, y: Any) -> Any:
        return of_scores(scores(w, x), y)

    def mean(w: Any, X: Any, y: Any) -> Any:
        return jnp.mean(jax.vmap(value, (None, 0, 0))(w, X, y))

    each = (None, 0, 0)
    return {
        "scores": jax.jit(jax.vmap(scores, (None, 0))),
        "values": jax.jit(jax.vmap(value, each)),
        "slopes": jax.jit(jax.vmap(lambda w, x, y: jax.grad(of_scores)(scores(w, x), y), each)),
        "gradients": jax.jit(jax.vmap(jax.grad(value), each)),
        "mean": jax.jit(jax.value_and_grad(mean)),
    }


@dataclass(repr=False, eq=False)
class NetworkAdap(NCnvxAdap):
    """Classification by a small network, from a public fit on, with private gradients shortened record by record.

    Attributes are those of :class:`NCnvxAdap`, and

    Attributes:
        hidden: units of the hidden layer; every weight takes noise.
        gradient_bound: C, public: private records' gradients are shortened to it.
        loss_bound: B, public: private losses are cut to [0, B] in the discrepancy, and where weights of records move.
        step_size: of every block; there is no curvature by which to settle it. Settle it on public records.
        epsilon: None descends without noise and without shortening.

    A fit has ``coef_``, all weights, flat (``loss_.size(d)``,), and else what :class:`NCnvxAdap` has.

    >>> from mpmtl_prob.adaptation import NetworkAdap
    >>> from mpmtl_prob.adaptation.data import problems
    >>> data = problems.shifted((300, 200), 0.3, num_features=3, seed=0)
    >>> source, target = ((each.X, each.y > 0) for each in (data.source, data.target))
    >>> model = NetworkAdap(epsilon=2.0, delta=1e-3, steps=20, discrepancy=0.0).fit(source, target)
    >>> print(model.guarantee_.proved)
    eps = 2, delta = 0.001 (replace, one target record)
    """

    steps: int = 100
    step_size: float | None = 0.5
    weight_bound: float = 20.0
    hidden: int = 8
    gradient_bound: float = 1.0
    loss_bound: float = 4.0

    def fit(self, source: Any, target: Any) -> Self:
        """Fit as :class:`NCnvxAdap` does, with its errors, and one for a step size that is not said."""
        if self.step_size is None:
            raise ValueError("step_size: expected a number for a network, whose curvature nobody knows, got None")
        moderate("step_size", self.step_size)
        return super().fit(source, target)

    def decision(self, X: ArrayLike) -> FloatArray:
        """Scores, (n, classes). Raises ValueError before a fit, or for other features."""
        if not hasattr(self, "coef_"):
            raise ValueError("NetworkAdap: expected a fit before a prediction; call fit(source, target)")
        d = (len(self.coef_) - self.loss_.size(0)) // self.hidden
        return self.loss_.scores(self.coef_, self._rows(X, d))

    def _loss(self, classes: int) -> Loss:
        return Network(*self._bounds, classes, self.hidden, self.gradient_bound, self.loss_bound)

    def _shaped(self, w: FloatArray, loss: Loss) -> FloatArray:
        return w

    def _public_fit(self, loss: Loss, public: Domain) -> FloatArray:
        assert isinstance(loss, Network)
        return loss.start(public, self.seed)

    def _first(self, loss: Loss, public: Domain) -> FloatArray:
        return self._public_fit(loss, public)
