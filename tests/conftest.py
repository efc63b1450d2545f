"""The suite runs in float64; what claims to work in float32 is tested there explicitly."""

import jax

jax.config.update("jax_enable_x64", True)
