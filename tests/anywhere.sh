#!/usr/bin/env bash
# The suite as older processors would compute it, each with three seeds: what fails in one of them passes elsewhere by luck.
#
#     tests/anywhere.sh [pytest's arguments]         ARITHMETIC="SSE4_2" SEEDS="7" for one of them
set -uo pipefail
cd "$(dirname "$0")/.."
BIN=${BIN:-.venv/bin} failed=0
for isa in ${ARITHMETIC:-native SSE4_2 AVX}; do
    unset XLA_FLAGS OPENBLAS_CORETYPE
    case $isa in
        native) ;;
        SSE4_2) export XLA_FLAGS=--xla_cpu_max_isa=$isa OPENBLAS_CORETYPE=Nehalem ;;
        # not Haswell: asked for on a newer processor, those of OpenBLAS 0.3.34 crash in (50, 400) @ (400, 32)
        *) export XLA_FLAGS=--xla_cpu_max_isa=$isa OPENBLAS_CORETYPE=Sandybridge ;;
    esac
    for seed in ${SEEDS:-0 1 2}; do
        echo "arithmetic $isa, seed shifted by $seed"
        # compiled programs are a processor's own
        MPMTL_TEST_SEED=$seed JAX_COMPILATION_CACHE_DIR=$PWD/.venv/jax-$isa \
            "$BIN/python" -m pytest -q -n "${WORKERS:-2}" --dist worksteal --durations=0 --durations-min=60 "$@" || failed=1
    done
done
exit $failed
