"""Programs that run for a moment: to optimise them would take longer than they run."""

from functools import partial

import jax

quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
