#!/usr/bin/env bash
# Rows on a Cloud TPU VM, and their records back:
#   experiments/launch/tpu_vm.sh NAME ZONE FILE.gin[:ROW] ...
# The VM is there already (gcloud compute tpus tpu-vm create NAME --zone ZONE ...). The
# checkout is copied as the last commit has it; run again, it goes on.
set -euo pipefail
if [ $# -lt 3 ]; then
  echo "usage: $0 NAME ZONE FILE.gin[:ROW] ..." >&2
  exit 2
fi
name=$1 zone=$2
shift 2
cd "$(dirname "$0")/../.."
tpu() { gcloud compute tpus tpu-vm "$@" --zone "$zone"; }
archive=$(mktemp --suffix .tar.gz)
trap 'rm -f "$archive"' EXIT
git archive --output "$archive" HEAD
tpu scp "$archive" "$name:specjax.tar.gz"
rows=$(printf ' %q' "$@")
tpu ssh "$name" --command "set -e; mkdir -p specjax; tar xzf specjax.tar.gz -C specjax
  cd specjax; test -d .venv || python3 -m venv .venv
  .venv/bin/pip install --quiet --editable '.[tpu,experiments]'
  .venv/bin/python -m experiments.run --out records$rows"
mkdir -p runs/tpu
tpu scp --recurse "$name:specjax/records/*" runs/tpu/
