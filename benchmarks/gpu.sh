#!/usr/bin/env bash
# Everything that is measured on a GPU, part by part:
#
#     benchmarks/gpu.sh clips tests random memcheck separation step loader targets inference readers
#
# Python, torch with CUDA, PyNvVideoCodec and PyAV are those of the machine: PYTHON names another one. Clips are kept in
# CLIPS, results are written to RESULTS. A part that fails does not keep the others from being run. Where time is short:
#
#     clips                     SETS: of drive (for separation and step), loader, inference and readers
#     tests                     JOBS: processes
#     random                    RANDOM_MINUTES, for clips and for loaders; SEED
#     loader                    MINUTES without endurance; ENDURANCE: batches; LOADER: further arguments
#     readers                   READERS: names; REPEAT; BATCHES
#     separation                EPOCHS; REPEAT; WORKERS
#     inference, step           INFERENCE, STEP: further arguments
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
CLIPS=${CLIPS:-.bench/gpu}
RESULTS=${RESULTS:-benchmarks/results}
GPU=${GPU:-h200}  # in the names of results
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export FRAMEFEED_REQUIRE_GPU=1  # tests fail here where they would be skipped
mkdir -p "$CLIPS" "$RESULTS"

# Clips, so that nothing is encoded while something is measured; side by side, as some are encoded by one process.
clips() {
  local set status=0 jobs=()
  for set in ${SETS:-drive loader inference readers}; do
    case $set in
      drive) "$PYTHON" -m framefeed.bench.camera_clips "$CLIPS/drive" & ;;
      loader) "$PYTHON" -m framefeed.bench.gpu --clips "$CLIPS/loader" --only-clips & ;;
      inference) "$PYTHON" -m framefeed.bench.inference --clips "$CLIPS/inference" --device cuda --only-clips & ;;
      readers) "$PYTHON" -m framefeed bench --devices cuda --clips "$CLIPS/readers" --readers framefeed \
        --cases in-order --max-batches 1 --repeat 1 --least-seconds 0.01 -o "$CLIPS/readers.json" & ;;
      *) echo "SETS: no clips for $set; possible: drive loader inference readers" >&2; return 2 ;;
    esac
    jobs+=($!)
  done
  for set in "${jobs[@]}"; do wait "$set" || status=1; done
  return $status
}

# Side by side in a few processes: most of the time goes into making clips, and into compiling kernels.
tests() {
  local folder part code ended=0 status=0 jobs=() reports=()
  folder=$(mktemp -d)
  export CLIP_SIZE=192x160
  "$PYTHON" -m pytest tests/gpu --collect-only --verbosity=-1 | grep :: > "$folder/all" || return 1
  grep -v test_examples "$folder/all" > "$folder/rest"
  split -n "r/${JOBS:-6}" "$folder/rest" "$folder/part."  # neighbours take alike
  grep test_examples "$folder/all" | split -n r/3 - "$folder/part.examples."  # each of them takes long
  for part in "$folder"/part.*; do
    xargs -r -d '\n' -a "$part" "$PYTHON" -m pytest -rfE --verbosity=0 --durations=3 \
      --junitxml="$part.xml" > "$part.log" 2>&1 &
    jobs+=($!)
    reports+=("$part.xml")
  done
  for job in "${jobs[@]}"; do
    wait "$job"
    code=$?
    [ $code -eq 0 ] || status=1
    [ $code -le 1 ] || [ $code -eq 123 ] || ended=$((ended + 1))  # xargs says 123 where pytest says 1
  done
  tail -n 30 "$folder"/part.*.log
  "$PYTHON" -m framefeed.bench.gpu_tests --reports "${reports[@]}" --expected "$(wc -l < "$folder/all")" --ended "$ended" \
    --command "JOBS=${JOBS:-6} benchmarks/gpu.sh tests" --output "$RESULTS/gpu-tests-$GPU.json" || status=1
  rm -r "$folder"
  return $status
}

# Clips and loaders that are drawn at random, every frame and every batch compared with the CPU's.
random() {
  local status=0
  export CLIP_SIZE=192x160
  "$PYTHON" tests/random_clips.py --device cuda --minutes "${RANDOM_MINUTES:-1}" --seed "${SEED:-0}" || status=1
  "$PYTHON" tests/random_loaders.py --device cuda --minutes "${RANDOM_MINUTES:-1}" --seed "${SEED:-0}" || status=1
  return $status
}

# The kernels that are compiled for small pictures: under the sanitizer each launch takes long.
memcheck() {
  local log status=0
  local chosen="any_pitch or copies or unused_bits or wide_frames or turned_and_cropped or tables_arrive or every_type or usual_size or at_once"
  log=$(mktemp)
  compute-sanitizer --tool memcheck "$PYTHON" -m pytest tests/gpu/test_kernels.py -k "$chosen" 2>&1 | tee "$log" || status=1
  "$PYTHON" -m framefeed.bench.gpu_tests --memcheck "$log" --command "benchmarks/gpu.sh memcheck" \
    --output "$RESULTS/gpu-tests-$GPU.json" || status=1
  rm "$log"
  return $status
}

separation() {
  "$PYTHON" examples/separation_decode/tables.py --index_file "$CLIPS/drive/index_frame.json" --device cuda \
    --epochs "${EPOCHS:-2}" --repeat "${REPEAT:-1}" --num_workers "${WORKERS:-8}" \
    --output "$RESULTS/separation-$GPU.json"
}

loader() {
  "$PYTHON" -m framefeed.bench.gpu --clips "$CLIPS/loader" --minutes "${MINUTES:-7}" --endurance "${ENDURANCE:-10000}" \
    --output "$RESULTS/gpu-$GPU.json" ${LOADER:-}
}

# What all of this should come to.
targets() {
  "$PYTHON" -m framefeed.bench.gpu_targets "$RESULTS/gpu-$GPU.json" "$RESULTS/gpu-tests-$GPU.json"
}

inference() {
  "$PYTHON" -m framefeed.bench.inference --device cuda --clips "$CLIPS/inference" \
    --output "$RESULTS/inference-$GPU.json" ${INFERENCE:-}
}

readers() {
  "$PYTHON" -m framefeed bench --devices cuda --clips "$CLIPS/readers" --least-seconds 0.3 --repeat "${REPEAT:-3}" \
    --max-batches "${BATCHES:-4}" ${READERS:+--readers "$READERS"} -o "$RESULTS/readers-$GPU.json"
}

# What decoding does to the training step beside it.
step() {
  "$PYTHON" -m framefeed.bench.step --index_file "$CLIPS/drive/index_frame.json" --output "$RESULTS/step-$GPU.json" ${STEP:-}
}

status=0
for part in "$@"; do
  begin=$SECONDS
  case $part in
    clips | tests | random | memcheck | separation | step | loader | targets | inference | readers) "$part" ;;
    *) echo "$part: no such part; possible: clips tests random memcheck separation step loader targets inference \
readers" >&2
       exit 2 ;;
  esac
  code=$?
  echo "== $part: exit status $code, $((SECONDS - begin)) s"
  [ $code -eq 0 ] || status=1
done
exit $status
