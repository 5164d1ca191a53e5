# shellcheck shell=bash
# Sets PYTHON, for scripts that source this in a checkout: as it is, else the checkout's
# .venv, else python3. Ends them, in one line, where that cannot run specjax.
if [ -z "${PYTHON:-}" ]; then
  PYTHON=python3
  if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; fi
fi
export PYTHON
lacking='import sys
from importlib.util import find_spec
if sys.version_info < (3, 11):
    sys.exit("is Python %d.%d, and specjax needs 3.11" % sys.version_info[:2])
if find_spec("jax") is None:
    sys.exit("has no jax")'
if ! lacking=$("$PYTHON" -c "$lacking" 2>&1); then
  echo "$PYTHON ${lacking##*$'\n'}: experiments/launch/environment.sh cuda,experiments makes" \
    "a .venv, or name another by PYTHON" >&2
  exit 2
fi
