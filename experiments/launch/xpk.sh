#!/usr/bin/env bash
# Rows on the TPUs of a cluster of xpk's:
#   [TYPE=v5litepod-8] experiments/launch/xpk.sh CLUSTER ZONE IMAGE FILE.gin[:ROW] ...
# IMAGE is a name that the cluster can pull, such as
# us-central1-docker.pkg.dev/PROJECT/REPOSITORY/specjax:tpu: the image is built and pushed
# there. Records are in /kept/results of a Filestore, `specjax`, which is made once and
# mounted; run again, it goes on.
set -euo pipefail
if [ $# -lt 4 ]; then
  echo "usage: $0 CLUSTER ZONE IMAGE FILE.gin[:ROW] ..." >&2
  exit 2
fi
where=(--cluster "$1" --zone "$2") image=$3
shift 3
cd "$(dirname "$0")/../.."
docker build -f experiments/launch/Dockerfile --build-arg DEVICE=tpu -t "$image" .
docker push "$image"
if ! xpk storage list --cluster "${where[1]}" | grep -w specjax >/dev/null; then
  xpk storage create specjax --type=gcpfilestore --tier=BASIC_HDD --size=1024 \
    --vol=default --mount-point=/kept --readonly=false --auto-mount=false "${where[@]}"
fi
xpk workload create --workload "specjax-$(date +%m%d-%H%M%S)" --tpu-type="${TYPE:-v5litepod-8}" \
  --docker-image="$image" --storage=specjax "${where[@]}" \
  --command "python -m experiments.run --out /kept/results$(printf ' %q' "$@")"
