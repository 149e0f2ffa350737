#!/usr/bin/env bash
# Everything that is measured on a GPU, part by part:
#
#     benchmarks/gpu.sh clips tests random memcheck separation step loader targets inference readers
#
# Python, torch with CUDA, PyNvVideoCodec and PyAV are those of the machine: PYTHON names another one. Clips are kept in
# CLIPS, results are written to RESULTS, a file for each part. A part that fails does not keep the others from being run.
#
# Where a call may take so long only, parts are run in several: TIME is what a call may take, in seconds. A part whose
# time is up ends, and keeps what it had until then; one whose time is up before it begins is left out. Results are also
# kept in CLIPS/results, and GO_ON names a folder of such results, to which a call then adds: tests that were not run,
# cases that were not measured.
#
#     TIME=570 RESULTS=out benchmarks/gpu.sh clips tests
#     TIME=570 RESULTS=out GO_ON=.bench/gpu/results benchmarks/gpu.sh tests random memcheck
#
# Where time is short, parts can be made shorter:
#
#     clips                     SETS: of drive (for separation and step), loader, inference and readers
#     tests                     JOBS: processes
#     random                    RANDOM_MINUTES, for clips and for loaders; SEED
#     loader                    MINUTES without endurance; ENDURANCE: batches; LOADER: further arguments
#     readers                   READERS: names; REPEAT; BATCHES
#     separation                EPOCHS; REPEAT; WORKERS
#     inference, step           INFERENCE, STEP: further arguments
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
PYTHON=${PYTHON:-python3}
CLIPS=${CLIPS:-.bench/gpu}
RESULTS=${RESULTS:-benchmarks/results}
GPU=${GPU:-h200}  # in the names of results
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export FRAMEFEED_REQUIRE_GPU=1  # tests fail here where they would be skipped
LINES_FILE="$RESULTS/gpu-tests-$GPU.jsonl"  # what tests and random clips note, a line each
mkdir -p "$CLIPS/results" "$RESULTS" || exit 2
if [ -n "${GO_ON:-}" ]; then
  for file in "$GO_ON"/*-"$GPU".json*; do
    if [ -e "$file" ] && [ ! -e "$RESULTS/${file##*/}" ]; then cp "$file" "$RESULTS/"; fi
  done
fi

# Seconds that a part may still take; some are needed to write down what it came to.
left() {
  if [ "${TIME:-0}" -gt 0 ]; then echo $((TIME - SECONDS - 15)); else echo 1000000; fi
}

# A command that ends when the time is up, with all that it has started.
limited() {
  local seconds
  if [ "${TIME:-0}" -eq 0 ]; then "$@"; return; fi
  seconds=$(left)
  [ "$seconds" -gt 0 ] || return 124
  timeout --kill-after=10 "$seconds" "$@"
}

# Clips, so that nothing is encoded while something is measured; side by side, as some are encoded by one process.
clips() {
  local set status=0 jobs=()
  for set in ${SETS:-drive loader inference readers}; do
    case $set in
      drive) limited "$PYTHON" -m benchmarks.camera_clips "$CLIPS/drive" & ;;
      loader) limited "$PYTHON" -m benchmarks.gpu --clips "$CLIPS/loader" --only-clips & ;;
      inference) limited "$PYTHON" -m benchmarks.inference --clips "$CLIPS/inference" --device cuda --only-clips & ;;
      readers) limited "$PYTHON" -m framefeed bench --devices cuda --clips "$CLIPS/readers" --readers framefeed \
        --cases in-order --max-batches 1 --repeat 1 --least-seconds 0.01 -o "$CLIPS/readers.json" & ;;
      *) echo "SETS: no clips for $set; possible: drive loader inference readers" >&2; status=2 ;;
    esac
    jobs+=($!)
  done
  for set in "${jobs[@]}"; do wait "$set" || status=1; done
  return $status
}

# Side by side in a few processes: most of the time goes into making clips, and into compiling kernels.
tests() {
  local folder part job code status=0 jobs=()
  folder=$(mktemp -d) || return 1
  [ -n "${GO_ON:-}" ] || rm -f "$LINES_FILE"
  export CLIP_SIZE=192x160 FRAMEFEED_TEST_LINES="$LINES_FILE"
  limited "$PYTHON" -m pytest tests/gpu --collect-only --verbosity=-1 > "$folder/said" 2>&1
  grep :: "$folder/said" > "$folder/all"
  if ! "$PYTHON" -m benchmarks.gpu.tests --lines "$LINES_FILE" --tests "$folder/all" --left > "$folder/left" ||
      [ ! -s "$folder/all" ]; then
    tail -n 30 "$folder/said"
    rm -r "$folder"
    return 1
  fi
  grep -v test_examples "$folder/left" > "$folder/rest"
  split -n "r/${JOBS:-6}" "$folder/rest" "$folder/part."  # neighbours take alike
  grep test_examples "$folder/left" > "$folder/examples"
  split -n r/3 "$folder/examples" "$folder/part.examples."  # each of them takes long
  for part in "$folder"/part.*; do
    limited xargs -r -d '\n' -a "$part" "$PYTHON" -m pytest -rfE --verbosity=0 --durations=3 > "$part.log" 2>&1 &
    jobs+=($!)
  done
  for job in "${jobs[@]}"; do
    wait "$job"
    code=$?
    [ $code -eq 0 ] || status=1
    case $code in
      0 | 1 | 123) ;;  # xargs says 123 where pytest says 1
      124 | 137) echo "the time was up before all tests were run" ;;
      *) echo "{\"ended\": $code}" >> "$LINES_FILE" ;;
    esac
  done
  tail -n 30 "$folder"/part.*.log
  note_tests --tests "$folder/all" --command "JOBS=${JOBS:-6} benchmarks/gpu.sh tests" || status=1
  rm -r "$folder"
  return $status
}

# Writes what tests and random clips came to into the results.
note_tests() {
  "$PYTHON" -m benchmarks.gpu.tests --lines "$LINES_FILE" --output "$RESULTS/gpu-tests-$GPU.json" "$@"
}

# Clips and loaders that are drawn at random, every frame and every batch compared with the CPU's.
random() {
  local what status=0
  export CLIP_SIZE=192x160 FRAMEFEED_TEST_LINES="$LINES_FILE"
  for what in clips loaders; do
    limited "$PYTHON" "tests/random_$what.py" --device cuda --minutes "${RANDOM_MINUTES:-1}" --seed "${SEED:-0}" ||
      status=1
  done
  note_tests --command "RANDOM_MINUTES=${RANDOM_MINUTES:-1} SEED=${SEED:-0} benchmarks/gpu.sh random" || status=1
  return $status
}

# The kernels that are compiled for small pictures: under the sanitizer each launch takes long.
memcheck() {
  local log status=0
  local chosen="any_pitch or copies or unused_bits or wide_frames or turned_and_cropped or tables_arrive or every_type or usual_size or at_once"
  log=$(mktemp) || return 1
  PATH="$PATH:/usr/local/cuda/bin" limited compute-sanitizer --tool memcheck "$PYTHON" -m pytest tests/gpu/test_kernels.py -k "$chosen" 2>&1 |
    tee "$log" || status=1
  "$PYTHON" -m benchmarks.gpu.tests --memcheck "$log" --command "benchmarks/gpu.sh memcheck" \
    --output "$RESULTS/gpu-tests-$GPU.json" || status=1
  rm "$log"
  return $status
}

separation() {
  limited "$PYTHON" examples/separation_decode/tables.py --index_file "$CLIPS/drive/index_frame.json" --device cuda \
    --epochs "${EPOCHS:-2}" --repeat "${REPEAT:-1}" --num_workers "${WORKERS:-8}" \
    --output "$RESULTS/separation-$GPU.json"
}

# All cases are measured in MINUTES, so that there is time for the endurance after them: about 100 s.
loader() {
  local minutes=${MINUTES:-7} most go_on=()
  most=$((($(left) - 110) / 60))
  if [ -z "${MINUTES:-}" ] && [ $most -lt 7 ]; then minutes=$((most > 1 ? most : 1)); fi
  if [ -n "${GO_ON:-}" ] && [ -e "$RESULTS/gpu-$GPU.json" ]; then go_on=(--go-on); fi
  # shellcheck disable=SC2086
  limited "$PYTHON" -m benchmarks.gpu --clips "$CLIPS/loader" --minutes "$minutes" \
    --endurance "${ENDURANCE:-10000}" --output "$RESULTS/gpu-$GPU.json" ${go_on[@]+"${go_on[@]}"} ${LOADER:-}
}

# What all of this should come to.
targets() {
  "$PYTHON" -m benchmarks.gpu.targets "$RESULTS/gpu-$GPU.json" "$RESULTS/gpu-tests-$GPU.json"
}

inference() {
  # shellcheck disable=SC2086
  limited "$PYTHON" -m benchmarks.inference --device cuda --clips "$CLIPS/inference" \
    --output "$RESULTS/inference-$GPU.json" ${INFERENCE:-}
}

readers() {
  limited "$PYTHON" -m framefeed bench --devices cuda --clips "$CLIPS/readers" --least-seconds 0.3 \
    --repeat "${REPEAT:-3}" --max-batches "${BATCHES:-2}" ${READERS:+--readers "$READERS"} \
    -o "$RESULTS/readers-$GPU.json"
}

# What decoding does to the training step beside it.
step() {
  # shellcheck disable=SC2086
  limited "$PYTHON" -m benchmarks.step --index_file "$CLIPS/drive/index_frame.json" \
    --output "$RESULTS/step-$GPU.json" ${STEP:-}
}

status=0
for part in "$@"; do
  begin=$SECONDS
  touch "$CLIPS/begin"
  case $part in
    clips | tests | random | memcheck | separation | step | loader | targets | inference | readers) ;;
    *) echo "$part: no such part; possible: clips tests random memcheck separation step loader targets inference \
readers" >&2
       exit 2 ;;
  esac
  if [ "$(left)" -gt 0 ]; then
    "$part"
    code=$?
  else
    code=124
  fi
  find "$RESULTS" -maxdepth 1 -name "*-$GPU.json*" -newer "$CLIPS/begin" -exec cp {} "$CLIPS/results/" \;
  why=""
  [ $code -ne 124 ] || why=": the time was up"
  echo "== $part: exit status $code, $((SECONDS - begin)) s$why"
  [ $code -eq 0 ] || status=1
done
exit $status
