"""Example that the script which wrote these files shares with the tests that read them."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

KEY = b"the key of these fixtures"
HOSPITALS = [f"hospital {i}" for i in range(12)]
FEATURES = ["age", "dose", "risk"]
#: Arguments of the run whose checkpoint is among the files.
RUN = {"chains": 2, "warmup": 20, "draws": 5}


def plain_regressions(tasks):
    """Model every hospital's outcomes by weights of its own with a standard normal prior."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    W = numpyro.sample("W", dist.Normal(0.0, 1.0).expand([tasks.num_features, tasks.num_tasks]).to_event(2))
    mean = jnp.einsum("mnd,dm->mn", tasks.X, W)
    with numpyro.handlers.mask(mask=tasks.mask):
        numpyro.sample("y", dist.Normal(mean, sigma).to_event(0), obs=tasks.y)
