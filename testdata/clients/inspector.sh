#!/usr/bin/env bash
# Drives a server with the command line of the MCP inspector, over stdio or HTTP.
#
#   inspector.sh COMMAND ARGS...
#   inspector.sh URL
#
# Every call of the inspector starts the server anew, or begins a new session, so the
# calls that follow one another show that the store keeps what was done. COMMAND gets
# "--store FILE" added; the store behind URL must be new.
# Prints one line for each step and closes with "N passed, N failed".
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: inspector.sh (COMMAND ARGS... | URL)" >&2; exit 2; }

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
case $1 in
  http://* | https://*) server=("$1" --transport http) ;;
  *) server=("$@" --store "$dir/gavel.db") ;;
esac
inspector=("$here/node_modules/.bin/mcp-inspector" --cli "${server[@]}" --method)
passed=0 failed=0

# step NAME PATTERN METHOD...: the answer must match, line breaks aside.
step() {
  local name=$1 pattern=$2
  shift 2
  if timeout 60 "${inspector[@]}" "$@" >"$dir/raw" 2>"$dir/err" </dev/null &&
    sed 's/\\"/"/g' "$dir/raw" >"$dir/out" && # the text of an answer is JSON
    tr -s ' \n' '  ' <"$dir/out" | grep -qE "$pattern"; then
    passed=$((passed + 1))
    echo "ok    $name"
  else
    failed=$((failed + 1))
    echo "FAIL  $name: $(cat "$dir/raw" "$dir/err" | tr -s ' \n' '  ' | head -c 600)"
  fi
}

tool() { # NAME PATTERN TOOL [key=value...]
  local name=$1 pattern=$2 tool=$3 args=()
  shift 3
  for a in "$@"; do args+=(--tool-arg "$a"); done
  step "$name" "$pattern" tools/call --tool-name "$tool" "${args[@]}"
}

states='{"draft":{"transitions":{"submit":"review"}},"review":{"transitions":{"approve":"approved","reject":"draft"}},"approved":{"final":true}}'

step 'tools/list' '"name": "workflow.advance"' tools/list
tool 'define' '"version":1' workflow.define name=approval-process 'description=Document approval workflow' initialState=draft "states=$states"
tool 'list, by a new process' '"count":1' workflow.list
tool 'start' '"state":"draft"' workflow.start type=approval-process 'context={"title":"Minutes"}'
id=$(grep -oE '"id":"wf-[^"]+"' "$dir/out" | head -n 1 | cut -d'"' -f4)
tool 'advance' '"state":"review"' workflow.advance "id=$id" action=submit 'data={"pages":3}'
tool 'status' '"state":"review".*"title":"Minutes"|"title":"Minutes".*"state":"review"' workflow.status "id=$id"
tool 'an illegal action is refused' '"outcome":"reject".*"isError": true|"isError": true.*"outcome":"reject"' workflow.advance "id=$id" action=submit
tool 'finish' '"complete":true' workflow.advance "id=$id" action=approve
tool 'history' '"workflowId":"wf-' workflow.judge.history "id=$id"
step 'resources/list' '"resources":' resources/list
step 'resources/templates/list' 'workflow://instances/\{id\}' resources/templates/list
step 'resources/read' 'approval-process' resources/read --uri workflow://definitions/approval-process
step 'prompts/list' '"follow-workflow"' prompts/list

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
