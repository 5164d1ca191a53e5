#!/usr/bin/env bash
# Makes the .venv of a checkout with these extras, unless it is there and works:
#   experiments/launch/environment.sh tpu,experiments
# A Python of 3.11 or later is taken where there is one, and fetched by uv elsewhere:
# images of Cloud TPUs have 3.10.
set -euo pipefail
if [ $# -ne 1 ]; then
  echo "usage: $0 EXTRAS" >&2
  exit 2
fi
cd "$(dirname "$0")/../.."
serves() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
works() { serves .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; }
for python in python3 python3.13 python3.12 python3.11; do
  if works; then break; fi
  rm -rf .venv # half made, or of an older Python
  if serves "$python"; then "$python" -m venv .venv >/dev/null 2>&1 || true; fi
done
if ! works; then
  rm -rf .venv
  uv=$(command -v uv || echo "$HOME/.local/bin/uv")
  if [ ! -x "$uv" ]; then curl --location --silent --show-error --fail https://astral.sh/uv/install.sh | sh; fi
  "$uv" venv --quiet --seed --python 3.12 .venv
fi
.venv/bin/python -m pip install --quiet --editable ".[$1]"
