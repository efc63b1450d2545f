"""Limit of one BLAS thread for small or thin matrices, on which a second thread mostly waits."""

from threadpoolctl import threadpool_limits

one_thread = threadpool_limits.wrap(limits=1, user_api="blas")
