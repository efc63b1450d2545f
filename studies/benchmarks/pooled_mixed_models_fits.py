"""One mixed model by one tool, from a CSV file of rows to one of estimates: see pooled_mixed_models.py, which starts it.

    python studies/benchmarks/pooled_mixed_models_fits.py "NumPyro, centred" rows.csv estimates.csv --seed 0

The rows have columns hospital, y, x1, x2, ...; the estimates a line for every hospital and coefficient, and lines with an
empty hospital for the average effects: hospital, coefficient, estimate, lower, upper (90 % intervals). What else is to be
said of the fit is printed as one line of JSON. A tool is imported when it is asked for, as PyMC and bambi are in an
environment of their own, without this library.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

QUANTILE = 1.6448536269514722  #: of the standard normal law, for central 90 % intervals
CHAINS, WARMUP, DRAWS = 4, 500, 500  #: of PyMC, bambi and NumPyro
#: declared scale of the target: the root of .7^2 + .5^2 + 1, which is the mean square that the study has on average
TARGET_SCALE = 1.32
PYMC: dict[str, Any] = {"draws": DRAWS, "tune": WARMUP, "chains": CHAINS, "cores": 1, "progressbar": False}


class Estimates(NamedTuple):
    """What a tool says.

    Attributes:
        beta: coefficients of every hospital, in the order in which hospitals come in the file, (m, d).
        low: lower ends of their 90 % intervals, (m, d).
        high: upper ends, (m, d).
        mu: average effects, (d,).
        mu_low: lower ends of their 90 % intervals, (d,).
        mu_high: upper ends, (d,).
        said: of the fit: whether it converged, r-hat, packages' versions.
    """

    beta: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mu: np.ndarray
    mu_low: np.ndarray
    mu_high: np.ndarray
    said: dict[str, Any]


def design(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[str]]:
    """Columns with a constant one in front (n, d), targets (n,), numbers of the hospitals (n,) and the hospitals' names."""
    hospital, names = pd.factorize(frame["hospital"])
    X = np.column_stack([np.ones(len(frame)), frame.drop(columns=["hospital", "y"]).to_numpy()])
    return X, frame["y"].to_numpy(), hospital, list(names)


def normal(beta: np.ndarray, variance: np.ndarray, mu: np.ndarray, mu_variance: np.ndarray, said: Any) -> Estimates:
    """Estimates with normal intervals of given variances, (m, d) and (d,)."""
    half, about = QUANTILE * np.sqrt(variance), QUANTILE * np.sqrt(mu_variance)
    return Estimates(beta, beta - half, beta + half, mu, mu - about, mu + about, said)


def of_draws(beta: np.ndarray, mu: np.ndarray, said: dict[str, Any]) -> Estimates:
    """Means and central 90 % intervals of draws: (chain, draw, m, d) and (chain, draw, d). The largest r-hat is noted."""
    rhat = max(float(split_rhat(beta).max()), float(split_rhat(mu).max()))
    (low, high), (mu_low, mu_high) = (np.quantile(draws, (0.05, 0.95), axis=(0, 1)) for draws in (beta, mu))
    said = said | {"r-hat": rhat, "converged": rhat < 1.05}
    return Estimates(beta.mean(axis=(0, 1)), low, high, mu.mean(axis=(0, 1)), mu_low, mu_high, said)


def split_rhat(draws: np.ndarray) -> np.ndarray:
    """R-hat of draws (chain, draw, ...), every chain in two halves (Gelman et al., Bayesian Data Analysis, 2013, 11.4)."""
    n = draws.shape[1] // 2
    halves = np.concatenate([draws[:, :n], draws[:, n : 2 * n]])
    within, between = halves.var(axis=1, ddof=1).mean(axis=0), halves.mean(axis=1).var(axis=0, ddof=1)
    return np.sqrt((n - 1) / n + between / within)


def alone(frame: pd.DataFrame, seed: int, arm: str) -> Estimates:
    """Every hospital by least squares of its own, with its own residual variance; the average effects are their mean."""
    from scipy import stats

    X, y, hospital, names = design(frame)
    beta, half = [], []
    for i in range(len(names)):
        x, v = X[hospital == i], y[hospital == i]
        inverse = np.linalg.inv(x.T @ x)
        own = inverse @ (x.T @ v)
        free = len(v) - x.shape[1]
        beta.append(own)
        half.append(stats.t.ppf(0.95, free) * np.sqrt(((v - x @ own) ** 2).sum() / free * np.diag(inverse)))
    b, h = np.array(beta), np.array(half)
    mu, about = b.mean(axis=0), stats.t.ppf(0.95, len(b) - 1) * b.std(axis=0, ddof=1) / np.sqrt(len(b))
    return Estimates(b, b - h, b + h, mu, mu - about, mu + about, {"converged": True})


def statsmodels(frame: pd.DataFrame, seed: int, arm: str) -> Estimates:
    """MixedLM by restricted likelihood, from the spread of hospitals' own least squares.

    From its own start it may say that it has converged where the likelihood is far below its maximum. Intervals of
    coefficients take random and average effects for independent, as those of lme4 do.
    """
    import statsmodels
    from statsmodels.regression.mixed_linear_model import MixedLM, MixedLMParams

    X, y, hospital, names = design(frame)
    d = X.shape[1]
    uncorrelated = arm.endswith("uncorrelated")
    free = MixedLMParams.from_components(fe_params=np.ones(d), cov_re=np.eye(d)) if uncorrelated else None
    each = np.array([np.linalg.lstsq(X[hospital == i], y[hospital == i])[0] for i in range(len(names))])
    start = MixedLMParams.from_components(fe_params=each.mean(axis=0), cov_re=np.diag(each.var(axis=0)))
    fit = MixedLM(y, X, groups=hospital, exog_re=X).fit(start_params=start, reml=True, free=free)
    u, C = fit.random_effects, fit.random_effects_cov
    mu, mu_variance = np.asarray(fit.fe_params), np.diag(np.asarray(fit.cov_params()))[:d]
    beta = mu + np.array([np.asarray(u[i]) for i in range(len(names))])
    variance = np.array([np.diag(np.asarray(C[i])) for i in range(len(names))]) + mu_variance
    said = {"converged": bool(fit.converged), "versions": {"statsmodels": statsmodels.__version__}}
    return normal(beta, variance, mu, mu_variance, said)


def numpyro(frame: pd.DataFrame, seed: int, arm: str) -> Estimates:
    """All coefficients latent, a full covariance, NUTS with the chains side by side."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    X, y, hospital, names = design(frame)
    m, d = len(names), X.shape[1]
    centred = arm.endswith(", centred")

    def model(X: Any, y: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(jnp.zeros(d), 1.0).to_event(1))
        tau = numpyro.sample("tau", dist.HalfNormal(jnp.ones(d)).to_event(1))
        L = tau[:, None] * numpyro.sample("L", dist.LKJCholesky(d, 2.0))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
        with numpyro.plate("hospitals", m):
            if centred:
                beta = numpyro.sample("beta", dist.MultivariateNormal(mu, scale_tril=L))
            else:
                z = numpyro.sample("z", dist.Normal(jnp.zeros(d), 1.0).to_event(1))
                beta = numpyro.deterministic("beta", mu + z @ L.T)
        numpyro.sample("y", dist.Normal((X * beta[hospital]).sum(axis=1), sigma), obs=y)

    run = MCMC(
        NUTS(model),
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    run.run(jax.random.key(seed), X, y)
    draws = run.get_samples(group_by_chain=True)
    return of_draws(np.asarray(draws["beta"]), np.asarray(draws["mu"]), {"versions": {"numpyro": numpyro.__version__}})


def pymc(frame: pd.DataFrame, seed: int, arm: str) -> Estimates:
    """All coefficients latent and not centred, a full covariance, PyMC's own NUTS; priors as of NumPyro."""
    import pymc as pm

    X, y, hospital, names = design(frame)
    d = X.shape[1]
    with pm.Model():
        mu = pm.Normal("mu", 0.0, 1.0, shape=d)
        L, _, _ = pm.LKJCholeskyCov("L", n=d, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, size=d), compute_corr=True)
        sigma = pm.HalfNormal("sigma", 1.0)
        z = pm.Normal("z", 0.0, 1.0, shape=(len(names), d))
        beta = pm.Deterministic("beta", mu + z @ L.T)
        pm.Normal("y", (X * beta[hospital]).sum(axis=1), sigma, observed=y)
        draws = pm.sample(random_seed=seed, **PYMC)["posterior"]
    said = {"versions": {"pymc": pm.__version__}}
    return of_draws(draws["beta"].values, draws["mu"].values, said)


def bambi(frame: pd.DataFrame, seed: int, arm: str) -> Estimates:
    """The formula as one writes it, and its own priors; it has no correlations between effects of a hospital."""
    import bambi as bmb
    import pymc as pm

    _, _, _, names = design(frame)
    columns = list(frame.columns.drop(["hospital", "y"]))
    slopes = " + ".join(columns)
    model = bmb.Model(f"y ~ 1 + {slopes} + (1 + {slopes} | hospital)", frame)
    draws = model.fit(random_seed=seed, **PYMC)["posterior"]
    mu = np.stack([draws[name].values for name in ("Intercept", *columns)], axis=-1)
    own = [draws[f"{name}|hospital"].sel(hospital__factor_dim=names).values for name in ("1", *columns)]
    said = {"versions": {"bambi": bmb.__version__, "pymc": pm.__version__}}
    return of_draws(mu[:, :, None] + np.stack(own, axis=-1), mu, said)


def ours(frame: pd.DataFrame, seed: int, arm: str) -> Estimates:
    """One release, the public posterior of it, and all hospitals' own fits."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import mpmtl_prob as mp

    columns = list(frame.columns.drop(["hospital", "y"]))
    tasks = mp.TaskData.from_pandas(frame, task="hospital", target="y", intercept=True)
    reference = mp.Reference(dict.fromkeys(columns, (0, 1)), target=(0, TARGET_SCALE))
    epsilon, delta = float(arm.rpartition("= ")[2]), 1 / (tasks.num_tasks * np.log(tasks.num_tasks))
    release = mp.release(tasks, epsilon, delta=delta, reference=reference, unsafe_seed=seed)
    shared = mp.inference.shared_effects(release, sampler="weighted", seed=seed, progress_bar=False)
    own = mp.inference.task_posteriors(tasks, shared, seed=seed, progress_bar=False)
    order = ["intercept", *columns]
    _, _, _, names = design(frame)
    average, table = shared.average_effects().loc[order], own.coefficients()
    beta, low, high = (table[name].unstack().loc[names, order].to_numpy() for name in ("mean", "lower", "upper"))
    mu, mu_low, mu_high = (average[name].to_numpy() for name in ("mean", "lower", "upper"))
    said = {"converged": bool(shared.diagnose().sound), "delta": delta, "sampler": shared.sampler}
    return Estimates(beta, low, high, mu, mu_low, mu_high, said)


TOOLS: dict[str, Callable[[pd.DataFrame, int, str], Estimates]] = {
    "alone": alone,
    "statsmodels": statsmodels,
    "NumPyro": numpyro,
    "PyMC": pymc,
    "bambi": bambi,
    "ours": ours,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arm", help=f"one of {', '.join(TOOLS)}; after a comma which kind of it")
    parser.add_argument("rows")
    parser.add_argument("estimates")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # a fit that did not converge says so in its line
    frame = pd.read_csv(options.rows)
    fit = TOOLS[options.arm.partition(",")[0]](frame, options.seed, options.arm)
    X, _, _, names = design(frame)
    every = [np.vstack(pair).ravel() for pair in ((fit.beta, fit.mu), (fit.low, fit.mu_low), (fit.high, fit.mu_high))]
    table = pd.DataFrame(dict(zip(("estimate", "lower", "upper"), every, strict=True)))
    table.insert(0, "hospital", np.repeat([*names, ""], X.shape[1]))
    table.insert(1, "coefficient", np.tile(np.arange(X.shape[1]), len(names) + 1))
    table.to_csv(options.estimates, index=False)
    print(json.dumps(fit.said))


if __name__ == "__main__":
    main()
