"""NCnvxAdap with a neural network of one hidden layer, with gradients clipped per record.

No bound, Lipschitz constant or smoothness of a network's loss is known, so that the sensitivities come from clipping. A
private record's gradient by the weights is clipped to a public length C, so that a replacement changes their weighted sum by
at most 2C. Its loss is clipped to [0, B] where the weights of records depend on it. Each record is clipped alone, before
anything is summed. The convergence theorems do not cover this estimator.

Source: Bassily, Cortes, Mao and Mohri (2023), section 5; Abadi et al. (2016), Algorithm 1, for clipped gradients.
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

#: ridge penalty on the squared length of the weights, in the fit to public records
_DECAY = 1e-4


@dataclass(frozen=True)
class Network(Loss):
    """Loss of a network, -log softmax(A' tanh(M'x + b) + a)_y, y = 0..k-1.

    The weights are flat: M (d, h), b (h,), A (h, k), a (k,).

    Attributes:
        outputs: k, number of classes.
        hidden: h, number of hidden units.
        gradient_bound: C, in place of G.
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
        return float(np.inf)  # no finite bound is known

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
        """Fit the network to public records; return the flat weights. A descent from zero would stay at zero.

        Args:
            source: public, with labels 0..k-1.
            seed: of the random starting weights.
        """
        from scipy.optimize import minimize  # slow to import

        d, h, k = source.num_features, self.hidden, self.outputs
        rng = np.random.default_rng(seed)
        M, A = rng.standard_normal((d, h)) / self.row_bound, rng.standard_normal((h, k)) / np.sqrt(h)
        first = descent.project(np.concatenate([M.ravel(), np.zeros(h), A.ravel(), np.zeros(k)]), self.weight_bound)

        def mean(w: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = self._call("mean", w, source.X, source.y)
            return float(value) + _DECAY * float(w @ w), gradient + 2 * _DECAY * w

        optimum = minimize(mean, first, jac=True, method="L-BFGS-B", options={"maxiter": 200})
        return descent.project(optimum.x, self.weight_bound)

    def _call(self, name: str, w: FloatArray, X: FloatArray, *y: FloatArray) -> Any:
        import jax

        check_not_forked()
        with jax.enable_x64(True):
            result = _functions(self.hidden, self.outputs)[name](w, X, *(labels.astype(int) for labels in y))
        return tuple(map(np.asarray, result)) if isinstance(result, tuple) else np.asarray(result)


@lru_cache(maxsize=32)
def _functions(h: int, k: int) -> dict[str, Callable[..., Any]]:
    """Return functions of weights, rows and labels, compiled once per shape. Each record is computed from its row alone."""
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

    over_records = (None, 0, 0)
    return {
        "scores": jax.jit(jax.vmap(scores, (None, 0))),
        "values": jax.jit(jax.vmap(value, over_records)),
        "slopes": jax.jit(jax.vmap(lambda w, x, y: jax.grad(of_scores)(scores(w, x), y), over_records)),
        "gradients": jax.jit(jax.vmap(jax.grad(value), over_records)),
        "mean": jax.jit(jax.value_and_grad(mean)),
    }


@dataclass(repr=False, eq=False)
class NetworkAdap(NCnvxAdap):
    """Classification by a small neural network that starts from a public fit, with gradients clipped per record.

    Attributes are those of :class:`NCnvxAdap`, and

    Attributes:
        hidden: number of hidden units; all their weights get noise.
        gradient_bound: C, public: gradients of private records are clipped to it.
        loss_bound: B, public: private losses are clipped to [0, B] in the discrepancy and in the weights of records.
        step_size: step size of all weights. No default follows from a smoothness constant; choose it on public records.
        epsilon: None descends without noise and without clipping.

    A fit has ``coef_``, all weights, flat (``loss_.size(d)``,), and the other attributes of :class:`NCnvxAdap`.

    >>> from mpmtl_prob.adaptation import NetworkAdap
    >>> from mpmtl_prob.adaptation.data import problems
    >>> data = problems.shifted((300, 200), 0.3, num_features=3, seed=0)
    >>> source, target = ((part.X, part.y > 0) for part in (data.source, data.target))
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
        """Fit as :class:`NCnvxAdap` does. Raises its errors, and ValueError without a step size."""
        if self.step_size is None:
            raise ValueError("step_size: expected a number for a network, whose curvature nobody knows, got None")
        moderate("step_size", self.step_size)
        return super().fit(source, target)

    def decision(self, X: ArrayLike) -> FloatArray:
        """Return the scores, (n, classes). Raises ValueError before a fit, or if the features differ."""
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
