"""The suite runs in float64; what claims to work in float32 is tested there explicitly.

Most of the suite's time is compilation. A compiled sampler is kept on disk and found again where features, chains and warm-up
are the same, so tests of a public posterior take two chains and 200 iterations of warm-up unless there is a reason not to.
"""

import gc

import jax

jax.config.update("jax_enable_x64", True)
gc.set_threshold(20_000, 50, 100)  # tracing leaves a million objects that live on: visit them less often
