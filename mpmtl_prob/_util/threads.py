"""One BLAS thread where matrices are small or thin: a second one mostly waits."""

from threadpoolctl import threadpool_limits

one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
