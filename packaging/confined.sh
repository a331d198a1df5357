#!/usr/bin/env bash
# Runs gavel as the container does, without a container engine: in a root of its own that
# holds what the image holds and cannot be written to, as user 65532, without capabilities,
# with no-new-privileges. Needs root, for the mounts.
#
#   packaging/confined.sh BINARY
set -euo pipefail

# in_there TOKEN: sets IN to what runs gavel in there, with the environment of the image.
in_there() {
  IN=(env -i GAVEL_LISTEN=0.0.0.0:4285 GAVEL_INSECURE_PLAIN_HTTP=true GAVEL_TOKEN="$1"
    setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setuid,+setgid,+dac_read_search
    "$(type -P unshare)" --root="$ROOT" --wd=/data --setgid=65532 --setuid=65532 /gavel)
}

ask() { curl -fsS --noproxy '*' --max-time 60 -H "Authorization: Bearer $1" -H 'Content-Type: application/json' "${@:3}" "http://127.0.0.1:4285$2"; }

inside() { # in namespaces of its own: mounts, network and processes end with it
  ip link set lo up
  mount --bind "$ROOT" "$ROOT"
  mount -t tmpfs -o size=64m,mode=0700,uid=65532,gid=65532 data "$ROOT/data"
  mount -t tmpfs -o size=16m,mode=0700,uid=65532,gid=65532,noexec,nosuid,nodev tmp "$ROOT/tmp"
  mount -t proc proc "$ROOT/proc"
  mount -o remount,bind,ro "$ROOT"

  local ops agent id decision server
  in_there ""
  "${IN[@]}" token create ops --role operator --out ops.token
  "${IN[@]}" token create agent --out agent.token
  ops=$(cat "$ROOT/data/ops.token")
  agent=$(cat "$ROOT/data/agent.token")
  in_there "$ops"
  "${IN[@]}" serve --definitions /definitions 2>"$LOG" &
  server=$!
  for _ in $(seq 300); do # the health check of the image
    "${IN[@]}" health >/dev/null 2>&1 && break
    kill -0 $server || { cat "$LOG"; return 1; }
    sleep 0.1
  done
  id=$(ask "$agent" /v1/instances -d '{"type":"ticket"}' | grep -oE 'wf-[0-9a-f-]{36}' | head -n 1)
  decision=$(ask "$agent" "/v1/instances/$id/advance" -d '{"action":"close","data":{"why":"done"}}')
  grep -qE '"(newState|state)": ?"closed"' <<<"$decision" || { echo "not closed: $decision"; return 1; }
  # A decision names the walls that its sandbox lacked.
  echo "the sandbox lacks: $(grep -oE '"sandbox": ?[^]]*]' <<<"$decision" || echo nothing)"
  if "${IN[@]}" backup /definitions/copy.db 2>/dev/null; then echo "the root can be written to"; return 1; fi
  kill -TERM $server
  wait $server || { echo "it ended with $?"; cat "$LOG"; return 1; }
  echo "ok: serves as user 65532 on a root that cannot be written to"
}

if [ "${1:-}" = --inside ]; then
  inside
  exit
fi
[ $# = 1 ] || { echo "usage: confined.sh BINARY" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export ROOT=$dir/root LOG=$dir/log
mkdir -p "$ROOT"/{data,tmp,proc,definitions}
install -m 0755 "$1" "$ROOT/gavel"
cat >"$ROOT/definitions/ticket.json" <<'JSON'
{"name": "ticket", "initialState": "open",
 "states": {"open": {"transitions": {"close": "closed"}}, "closed": {"final": true}},
 "transitionValidators": {"close": "(data, context) => ({ valid: data.why === 'done', reason: 'Say why' })"}}
JSON
chmod -R go+rX "$dir"
unshare --mount --net --pid --fork --kill-child --mount-proc bash "$0" --inside
