"""The suite runs in float64; what claims to work in float32 is tested there explicitly."""

import gc

import jax

jax.config.update("jax_enable_x64", True)
gc.set_threshold(20_000, 50, 100)  # tracing leaves a million objects that live on: visit them less often
