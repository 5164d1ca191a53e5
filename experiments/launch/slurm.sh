#!/usr/bin/env bash
# All stages of experiments/gpu/run_all.sh as one job that may be taken off its machine:
#   sbatch experiments/launch/slurm.sh [TEXT_FOLDER] [RESULTS_FOLDER]
# Two minutes before its time ends, or when it is preempted, Slurm sends SIGTERM: what
# runs keeps what it has, and the job goes back into the queue and on from there.
#SBATCH --job-name=specjax
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")/../..}"
# shellcheck disable=SC1091  # beside this script
. experiments/launch/interpreter.sh
again() {
  kill -TERM -- "-$stages" 2>/dev/null || true
  wait "$stages" || true
  scontrol requeue "$SLURM_JOB_ID"
}
trap again TERM
set -m # stages get a group of their own, whose every process is told
export STAGES=${STAGES:-all}
experiments/gpu/run_all.sh "$@" &
stages=$!
wait "$stages"
