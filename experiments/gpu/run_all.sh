#!/usr/bin/env bash
# Everything that waits for a GPU, stage by stage; no TensorFlow and no network needed.
#
#   experiments/gpu/run_all.sh TEXT_FOLDER [RESULTS_FOLDER]
#
# TEXT_FOLDER holds news_sentences.train.txt.xz and news_sentences.valid.txt.xz, one
# sentence a line. Each stage is resumable: run the same command again after a kill, and
# finished stages are skipped. STAGES="pair table3" picks some; STEPS=200 is a trial.
# STAGES="device chip" reads no text: the sizes of T5-XXL with random weights, 80 GB.
set -euo pipefail
cd "$(dirname "$0")/../.."
text=${1:?usage: experiments/gpu/run_all.sh TEXT_FOLDER [RESULTS_FOLDER]}
results=${2:-results}
runs=${RUNS:-runs/paper_pair}
python=${PYTHON:-python3}
mkdir -p "$runs" "$results"

stage() { # name, command...
  local name=$1 mark="$runs/done.$1"
  shift
  case " ${STAGES:-$name} " in *" $name "*) ;; *) echo "== $name: not asked for"; return ;; esac
  if [ -e "$mark" ]; then echo "== $name: done before"; return; fi
  echo "== $name: $(date -u +%H:%M:%S) $*"
  "$@"
  date -u >"$mark"
}

stage device "$python" -c "import jax; print(jax.devices(), jax.__version__)"
stage pair "$python" -m experiments.gpu.paper_pair --out "$runs" ${STEPS:+--steps "$STEPS"} \
  --text "$text/news_sentences.train.txt.xz" --held_out "$text/news_sentences.valid.txt.xz"
stage table3 "$python" -m experiments.run --out "$results" gin_configs/table3_paper/*.gin
stage table2 "$python" -m experiments.run --out "$results" gin_configs/table2_paper/*.gin
stage chip "$python" -m experiments.run --out "$results" gin_configs/chip/*.gin
