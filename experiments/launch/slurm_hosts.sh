#!/usr/bin/env bash
# Rows on a mesh over the GPUs of several hosts, a process each:
#   sbatch experiments/launch/slurm_hosts.sh --gin.MESH="'data=4,model=4'" FILE.gin[:ROW] ...
# Two minutes before its time ends, or when it is preempted, Slurm sends SIGTERM, which
# goes on to all processes; the job goes back into the queue and on from there.
#SBATCH --job-name=specjax
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")/../..}"
# shellcheck disable=SC1091  # beside this script
. experiments/launch/interpreter.sh
again() {
  kill -TERM "$rows" 2>/dev/null || true
  wait "$rows" || true
  scontrol requeue "$SLURM_JOB_ID"
}
trap again TERM
# Where one process is lost the others end too.
srun --kill-on-bad-exit=1 "$PYTHON" -m experiments.run --out runs/hosts "$@" --distributed &
rows=$!
wait "$rows"
