#!/usr/bin/env bash
# Rows on a Cloud TPU VM, and their records back:
#   [TYPE=v5litepod-8] [FILES=mine] experiments/launch/tpu_vm.sh NAME ZONE FILE.gin[:ROW] ...
# TYPE makes the VM where none has that name, of the runtime VERSION. The checkout is
# copied as the last commit has it, and FILES, a folder of your own in it, as it is; run
# again, it goes on. A slice of several hosts, such
# as v5litepod-16, runs the same rows on each, as one mesh: --gin.MESH="'data=16'".
set -euo pipefail
if [ $# -lt 3 ]; then
  echo "usage: $0 NAME ZONE FILE.gin[:ROW] ..." >&2
  exit 2
fi
name=$1 zone=$2 type=${TYPE:-}
shift 2
cd "$(dirname "$0")/../.."
tpu() { gcloud compute tpus tpu-vm "$@" --zone "$zone"; }
hosts() { tpu describe "$name" --format 'value(networkEndpoints[].ipAddress)'; }
if ! found=$(hosts 2>/dev/null); then
  if [ -z "$type" ]; then
    echo "$zone has no TPU VM $name: name its kind, such as TYPE=v5litepod-8, to make one" >&2
    exit 2
  fi
  case $type in
    v5lite*) runtime=v2-alpha-tpuv5-lite ;;
    v5p*) runtime=v2-alpha-tpuv5 ;;
    v6e*) runtime=v2-alpha-tpuv6e ;;
    *) runtime=tpu-ubuntu2204-base ;;
  esac
  tpu create "$name" --accelerator-type "$type" --version "${VERSION:-$runtime}"
  found=$(hosts)
fi
rows=$(printf ' %q' "$@")
case $found in *[,\;]*) rows+=' --distributed' ;; esac # several hosts
archive=$(mktemp --suffix .tar.gz)
trap 'rm -f "$archive"' EXIT
git archive --output "$archive" HEAD
tpu scp "$archive" "$name:specjax.tar.gz" --worker=all
if [ -n "${FILES:-}" ]; then
  tpu ssh "$name" --worker=all --command "mkdir -p specjax"
  tpu scp --recurse "$FILES" "$name:specjax/" --worker=all
fi
tpu ssh "$name" --worker=all --command "set -e
  mkdir -p specjax; tar xzf specjax.tar.gz -C specjax; cd specjax
  experiments/launch/environment.sh tpu,experiments
  .venv/bin/python -m experiments.run --out records$rows"
mkdir -p runs/tpu
tpu scp --recurse "$name:specjax/records/*" runs/tpu/
