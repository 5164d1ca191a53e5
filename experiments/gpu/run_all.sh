#!/usr/bin/env bash
# shellcheck disable=SC2046,SC2086  # rows and bindings are words
#
# What waits for a GPU; no TensorFlow and no network needed.
#
#   experiments/gpu/run_all.sh [TEXT_FOLDER] [RESULTS_FOLDER]
#
# Without more it runs what ten minutes of a bare machine are best spent on, and prints
# beside each number what was predicted of it and what it decides. ROWS="steps chip" picks
# some, by the names below or by those of rows of the chip's tables, in this order:
#   device        what the machine is                                    0.2 minutes
#   memory        a looped copy of 1 GiB, a looped read of 8 GB          0.5
#   steps         a draft's steps under five sets of XLA's flags         2.4
#   token         the kernels of one drafted token, by CUPTI             0.8
#   chip          ende_small_t0 at its gamma: c, prefill, the speed      4
#   updates       what XLA says of its CUDA graphs, counted              0.8
#   verification  five programs of verification, of one text and of 64   1.5
# A row that does not fit into what is left of MINUTES, 10 by default, is left out; one
# that fails is told, and the rest go on. STAGES=all runs everything there is, stage by
# stage, for hours; STAGES="kernels tune" picks some of
#   device equality default sanitizer capture kernels tune torch wagner chip
#   pair table3 table2 smollm2 page
# and ends at the first that fails. Both are resumable: run the same command again after
# a kill, and what is finished is skipped.
#
# TEXT_FOLDER holds news_sentences.train.txt.xz and news_sentences.valid.txt.xz, one
# sentence a line; without it, or as "", the stages that read text are skipped, as are
# torch without a PyTorch that finds the GPU and sanitizer without compute-sanitizer.
# MODELS holds what `specjax fetch smollm2` gets, whole or split into FILE.part*, and
# question.jsonl of Spec-Bench; without it the stage smollm2 is skipped.
# What decodes is timed as it is by default: by kernels, which the stage `default`
# compares with the reference first; KERNELS=reference times without them, into folders
# of their own (RUNS, RESULTS_FOLDER). Every record says what ran, and so does the end.
# The verdicts on all goals come last, before the list of stages. A stage
# has LIMIT seconds, 600 by default. SKIP=triton leaves an implementation out of the
# kernels; STEPS=200 is a trial of the training.
# DRY=1 runs one row of everything that is asked for at tiny sizes on the CPU, into a
# temporary folder, and takes the project's own words for text.
# PYTHON=.venv/bin/python is the interpreter of a checkout; python3 is the default.
set -euo pipefail
cd "$(dirname "$0")/../.."
text=${1:-}
results=${2:-results}
python=${PYTHON:-python3}
dry=${DRY:-}
if [ -n "$dry" ]; then
  export JAX_PLATFORMS=cpu
  work=$(mktemp -d) results=${2:-$work/results} RUNS=${RUNS:-$work/runs}
fi
runs=${RUNS:-runs/paper_pair}
mkdir -p "$runs" "$results"
out=$results
outcomes=()

summary() {
  local status=$? line
  trap - EXIT
  echo "== stages and outcomes, results in $results:"
  for line in ${outcomes[@]+"${outcomes[@]}"}; do echo "$line"; done
  exit $status
}
trap summary EXIT

asked() { # group
  case " $STAGES " in *" $1 "* | " all ") return 0 ;; esac
  note "$1" "not asked for"
  return 1
}

note() { # name, outcome
  echo "== $1: $2"
  outcomes+=("$1: $2")
}

stage() { # name, command...
  local mark="$runs/done.$1"
  if [ -e "$mark" ]; then note "$1" "done before"; return; fi
  limited "$@"
  date -u >"$mark"
}

limited() { # name, command...
  local name=$1 begun=$SECONDS status=0
  shift
  echo "== $name: $(date -u +%H:%M:%S) $*"
  timeout -k 10 "${LIMIT:-600}" "$@" || status=$?
  case $status in
    0) ;;
    124 | 137)
      note "$name" "stopped after $((SECONDS - begun)) s; run again to go on"
      $failed $status ;;
    *)
      note "$name" "FAILED ($status) after $((SECONDS - begun)) s; run again to try it"
      $failed $status ;;
  esac
  note "$name" "ok after $((SECONDS - begun)) s"
}

names() { # file of gin: its rows, FILE.gin:ROW a line
  sed -n "s|^    '\([^']*\)': {.*|$1:\1|p" "$1"
}

rows() { # group, files of gin or FILE.gin:ROW, then -- and bindings of a trial on a CPU
  local group=$1 every=() row name tiny=() one
  shift
  asked "$group" || return 0
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case " ${every[*]-} " in
      *" $1 "*) ;; # named before, to be first
      *) every+=("$1") ;;
    esac
    shift
  done
  if [ ${#every[@]} = 0 ]; then note "$group" "skipped: there are no such rows"; return; fi
  if [ -n "$dry" ]; then
    every=("${every[0]}")
    shift
    for one in "$@"; do tiny+=(--set "$one"); done
  elif [ "$group" = kernels ] && [ -n "${SKIP:-}" ]; then
    tiny=(--set "SKIP = ('${SKIP// /\', \'}',)")
  fi
  case $group in
    wagner | chip | table2 | table3) tiny+=(--set "KERNELS = '${KERNELS:-auto}'") ;;
  esac
  for row in "${every[@]}"; do
    name=$(basename "${row##*:}" .gin)
    stage "$group.$(basename "$(dirname "${row%:*}")").$name" "$python" \
      -m experiments.run --out "$out" ${tiny[@]+"${tiny[@]}"} "$row"
  done
}

small() { # configs of T5: bindings that make them small
  local model size
  for model in "$@"; do
    for size in vocab=64 pieces=60 dim=16 mlp_dim=32 encoder_layers=1 decoder_layers=1 \
      num_heads=2 head_width=8; do
      echo "$model/t5.Config.${size%=*} = ${size#*=}"
    done
  done
}

s=gin_configs/chip_steps/steps.gin
chip=gin_configs/chip/chip.gin
shapes=gin_configs/kernels/shapes.gin

places() { # a name of ROWS: tenths of a minute, and the rows that it stands for
  local row found=""
  case $1 in
    device) echo 2 device ;;
    memory) echo 5 gin_configs/chip_steps/memory.gin ;;
    steps)
      for row in default device_trips while_in_graphs no_graphs skip_temp; do found+=" $s:$row"; done
      echo "24$found" ;;
    chip) echo "40 $chip:ende_small_t0" ;;
    verification) echo 15 verification ;;
    *)
      for row in $(names $s) $(names $chip) $(names $shapes); do
        case $row in
          "$s:$1") echo "8 $row" ;;
          "$chip:$1") echo "40 $row" ;;
          "$shapes:$1") echo "7 $row" ;;
        esac
      done ;;
  esac
}

measure() { # a name of ROWS, then its rows
  local name=$1 more=() sets=() one target=tiny
  shift
  case $1 in
    device | verification)
      one=aot.device
      if [ "$name" = verification ]; then one=kernels.goals; fi
      attempt "$name" "$python" -m "experiments.gpu.$one" "$results"
      return ;;
    "$chip"*)
      more=("GAMMAS = (%GAMMA,)" "KERNELS = '${KERNELS:-auto}'")
      if [ -n "$dry" ]; then
        target=${1#*:*_} # its draft's size, between its task and T
        mapfile -t -O 2 more < <(small t5_1_1_xxl "t5_1_1_${target%_t*}")
        more+=("TEXTS = 2" "OTHERS = 1" "ROUNDS = 1" "LOOPS = 2" "NEW_TOKENS = 16")
        more+=("COPIED = 65536" "READ = 65536" "INPUT_TOKENS = 4")
      fi ;;
    "$s"*)
      # They run in processes of their own, which need the device's memory.
      local -x XLA_PYTHON_CLIENT_PREALLOCATE=false
      more=("KERNELS = '${KERNELS:-auto}'")
      if [ -n "$dry" ]; then
        if [ "$name" = updates ]; then target=t5_1_1_large; fi
        mapfile -t -O 1 more < <(small t5_1_1_small $target)
        more+=("TEXTS = 1" "ROUNDS = 1" "LOOPS = 2" "NEW_TOKENS = 8" "INPUT_TOKENS = 4")
        more+=("SECONDS = 600")
        if [ "$name" = steps ]; then set -- "$1" "${@: -1}"; fi
      fi ;;
    *memory.gin) if [ -n "$dry" ]; then more=("COPIED = 65536" "READ = 65536"); fi ;;
    "$shapes"*)
      more=("GRID = ((4096,), (4,), (False,))" "ACCEPTANCES = (0.7,)")
      if [ -n "$dry" ]; then more=("${small_kernels[@]}") && set -- "$1"; fi ;;
  esac
  for one in ${more[@]+"${more[@]}"}; do sets+=(--set "$one"); done
  attempt "$name" "$python" -m experiments.run --out "$results" ${sets[@]+"${sets[@]}"} "$@"
}

attempt() { # name, command...: within what is left of the minutes
  local left=$((60 * minutes - SECONDS)) mark="$runs/done.row.$1"
  local LIMIT=${LIMIT:-600}
  if [ -e "$mark" ]; then note "$1" "done before"; return; fi
  if [ $left -lt $LIMIT ]; then LIMIT=$left; fi
  if limited "$@"; then date -u >"$mark"; else status=1; fi
}

verdicts() { # of every goal, from the rendered table
  if [ -e "$results/kernels.md" ]; then
    sed -n '/^## Goals/,/^## Predicted/p' "$results/kernels.md" |
      awk -F ' *[|] *' '/^[|]/ && ++row > 2 {
        print "goal " $2 " (" $5 "): " ($8 ~ /^unmeasured/ ? "" : $7 ", ") $8
      }'
  fi
}

small_kernels=("DRY = True" "GAMMA = 2" "VOCAB = 600" "ROUNDS = 1" "LENGTH = 3" "CACHE = 1000"
  "COPIED = 65536" "ACCEPTANCES = (0.7,)" "GRID = ((512,), (2,), (False,))")
failed="exit"
if [ -z "${STAGES:-}" ]; then
  failed="return" status=0
  minutes=${MINUTES:-$([ -n "$dry" ] && echo 60 || echo 10)}
  if [[ ! $minutes =~ ^[1-9][0-9]*$ ]]; then
    echo "error: MINUTES must be a whole number, at least 1; got $minutes" >&2
    exit 2
  fi
  chosen=${ROWS:-device memory steps token chip updates verification}
  for name in $chosen; do
    if [ -z "$(places "$name")" ]; then
      echo "error: no row $name: ROWS may have device, memory, steps, token, chip, updates," \
        "verification, and rows of $s, $chip, $shapes" >&2
      exit 2
    fi
  done
  for name in $chosen; do
    found=$(places "$name") left=$((60 * minutes - SECONDS))
    if [ $left -lt $((6 * ${found%% *})) ]; then
      note "$name" "left out: it needs $((6 * ${found%% *})) s of the $left s that are left; run again to go on"
    else
      measure "$name" ${found#* }
    fi
  done
  "$python" -m experiments.report.predicted "$results" || status=1
  exit $status
fi
k=gin_configs/kernels
if asked device; then stage device "$python" -m experiments.gpu.aot.device "$results"; fi
rows equality $k/equality.gin -- "DRY = True" "ROWS = 8" \
  "BATCH = 8" "TRIALS = 8" "GAMMA = 2"
if asked default; then stage default "$python" -m experiments.gpu.kernels.default "$results"; fi
# These start programs of their own, which need the device's memory.
export XLA_PYTHON_CLIENT_PREALLOCATE=false
if [ -n "$dry" ] || command -v compute-sanitizer >/dev/null; then
  rows sanitizer $k/sanitizer.gin --
elif asked sanitizer; then
  note sanitizer "skipped: compute-sanitizer is not on PATH"
fi
rows capture $k/capture.gin --
unset XLA_PYTHON_CLIENT_PREALLOCATE
# Those that the goals name come first.
goals=(b1_g5_v32000_f32 b64_g5_v128256_f32 b16_g5_v32000_f32 b32_g8_v128256_f32)
rows kernels "${goals[@]/#/$k/shapes.gin:}" $(names $k/shapes.gin) -- "${small_kernels[@]}"
if asked tune; then
  where=()
  if [ -n "$dry" ]; then where=(--trial --out "$results/tuned"); fi
  stage tune "$python" -m experiments.gpu.kernels.tune "$results" ${where[@]+"${where[@]}"}
fi
export XLA_PYTHON_CLIENT_PREALLOCATE=false
able="import sys, torch; sys.exit(not torch.cuda.is_available())"
if [ -n "$dry" ]; then able="import torch"; fi
if "$python" -c "$able" 2>/dev/null; then
  rows torch $k/torch.gin:torch_${goals[0]} $(names $k/torch.gin) -- "DRY = True" \
    "VOCAB = 600" "ROUNDS = 2" \
    "CACHE = 1000"
elif asked torch; then
  note torch "skipped: $python has no torch that finds the device"
fi
unset XLA_PYTHON_CLIENT_PREALLOCATE
if [ -n "$dry" ]; then out=$results/wagner; fi # too few gammas for the page's lines
for name in wagner_{scale,text,time}; do
  rows wagner $(names gin_configs/$name/$name.gin) -- "ROUNDS = 1" "SHARE = 0.01" \
    "GAMMAS = (1, 2)" "NEW_TOKENS = 12" \
    "TIMED = 1" "BATCH = 4" "REPEATS = 1"
done
out=$results
mapfile -t tiny < <(small t5_1_1_xxl t5_1_1_base)
rows chip $(names $chip) -- ${tiny[@]+"${tiny[@]}"} "TEXTS = 2" "OTHERS = 1" \
  "ROUNDS = 1" "LOOPS = 2" "GAMMAS = (1, 3, 5)" \
  "NEW_TOKENS = 8" "COPIED = 65536" "READ = 65536" \
  "INPUT_TOKENS = 4"
if [ -n "$dry" ]; then # on the project's own words
  if asked pair; then
    stage pair "$python" -m experiments.training.paper_pair --out "$runs" --tiny --steps 4 \
      --text README.md --held_out CHANGELOG.md
  fi
  pair=("gpt_97m/sides.model.name = '$runs/97m.safetensors'")
  pair+=("gpt_6m/sides.model.name = '$runs/6m.safetensors'")
  rows table3 gin_configs/table3_paper/gpt.gin:gpt_small_t1 -- "${pair[@]}" "TOKENS = 40"
  rows table2 gin_configs/table2_paper/gpt.gin:gpt_small_t1_b1 -- "${pair[@]}" "TEXTS = 2" \
    "GAMMAS = (0, 1)" "ROUNDS = 1"
elif [ -z "$text" ]; then
  for name in pair table3 table2; do
    if asked $name; then note $name "skipped: no TEXT_FOLDER was named"; fi
  done
else
  if asked pair; then
    stage pair "$python" -m experiments.training.paper_pair --out "$runs" ${STEPS:+--steps "$STEPS"} \
      --text "$text/news_sentences.train.txt.xz" --held_out "$text/news_sentences.valid.txt.xz"
  fi
  # The rows of the paper's T5 need its checkpoints, and are not among these.
  rows table3 $(names gin_configs/table3_paper/gpt.gin) --
  rows table2 $(names gin_configs/table2_paper/gpt.gin) --
fi
if [ -n "${MODELS:-}" ] && [ -z "$dry" ]; then
  if asked smollm2; then
    stage fetch "$python" -m specjax fetch smollm2 --from "$MODELS"
    for row in {mt_bench,math_reasoning,summarization,qa,translation,rag}_t{0,1}; do
      stage "smollm2.$row" "$python" -m experiments.run --out "$out" \
        --set "TASK = '$MODELS/question.jsonl'" --set "KERNELS = '${KERNELS:-auto}'" \
        "gin_configs/spec_bench_gpu/smollm2.gin:$row"
    done
  fi
elif asked smollm2; then
  note smollm2 "skipped: no MODELS was named"
fi
# Never done before: it shows what there is.
if asked page; then
  limited page "$python" -m experiments.report.page "$results"
  "$python" -m experiments.gpu.kernels.default "$results"
  verdicts
fi
