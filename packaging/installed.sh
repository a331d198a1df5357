#!/usr/bin/env bash
# Installs gavel's deb as an administrator does, and uses it with the files it brings: on a copy of this machine that only this
# process sees and that ends with it (an overlay in a mount namespace). Needs root and dpkg.
#
#   packaging/installed.sh DEB
#
# CHECK, if set, is a command that runs in the copy, in the folder CHECKOUT of this machine, once the package is installed.
set -euo pipefail

readonly URL=http://127.0.0.1:4285 CONFIG=/etc/gavel/gavel.yaml

# as_gavel takes the place of the shell that calls it.
as_gavel() { exec setpriv --reuid gavel --regid gavel --clear-groups --no-new-privs env -i PATH=/usr/bin:/bin "$@"; }

ask() { curl -fsS --noproxy '*' --max-time 30 -H "Authorization: Bearer $(cat /var/lib/gavel/agent.token)" "$URL$1"; }

# In the copy, with a network of its own, in which the port of the unchanged configuration is free.
inside() {
  local server start
  ip link set lo up
  cd /
  dpkg -i "$1" >/dev/null
  dpkg --verify gavel
  for file in $(dpkg -L gavel); do [ -e "$file" ] || { echo "$file is not there"; return 1; }; done
  [ "$(stat -c '%U:%G %a' /var/lib/gavel)" = "gavel:gavel 700" ] || { stat /var/lib/gavel; return 1; }
  gavel version
  gavel config check $CONFIG
  systemd-analyze verify /usr/lib/systemd/system/gavel.service || { echo "the unit has faults"; return 1; }

  if [ -n "${CHECK:-}" ]; then
    (cd "$CHECKOUT" && bash -c "$CHECK")
    return
  fi

  # What the unit starts, in its folder and as its user.
  start=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/gavel.service)
  cd "$(sed -n 's/^WorkingDirectory=//p' /usr/lib/systemd/system/gavel.service)"
  # shellcheck disable=SC2086 # it has arguments
  as_gavel $start 2>/tmp/log &
  server=$!
  for _ in $(seq 100); do
    gavel health >/dev/null 2>&1 && break
    kill -0 $server || { cat /tmp/log; return 1; }
    sleep 0.1
  done
  gavel health
  ask /v1/definitions >/dev/null
  kill -TERM $server
  wait $server || { echo "it ended with $?"; cat /tmp/log; return 1; }
  [ "$(stat -c %U:%a gavel.db)" = gavel:600 ] || { ls -l; return 1; }

  # What an administrator changed outlasts an upgrade, and what is recorded a removal.
  cd /
  echo "# changed here" >>$CONFIG
  dpkg -i "$1" >/dev/null </dev/null
  tail -n 1 $CONFIG | grep -qx "# changed here"
  dpkg -r gavel >/dev/null
  [ ! -e /usr/bin/gavel ] && [ -f $CONFIG ] && [ -f /var/lib/gavel/gavel.db ] || { echo "a removal takes too much or too little"; return 1; }
  echo "ok: the package installs, serves with its own configuration, and keeps what was changed and recorded"
}

case ${1:-} in
  --inside) inside "$2" ;;
  --overlay) # in the mount namespace
    mount -t tmpfs overlay "$COPY"
    mkdir "$COPY"/{above,work,root}
    mount -t overlay -o "lowerdir=/,upperdir=$COPY/above,workdir=$COPY/work" overlay "$COPY/root"
    mount -t proc proc "$COPY/root/proc"
    mount --rbind /dev "$COPY/root/dev"
    mount -t tmpfs tmp "$COPY/root/tmp"
    mount -t tmpfs run "$COPY/root/run"
    [ -z "${CHECK:-}" ] || { mkdir -p "$COPY/root$CHECKOUT" && mount --rbind "$CHECKOUT" "$COPY/root$CHECKOUT"; }
    cp "$0" "$COPY/root/tmp/installed.sh"
    cp "$2" "$COPY/root/tmp/gavel.deb"
    exec chroot "$COPY/root" env TMPDIR=/tmp bash /tmp/installed.sh --inside /tmp/gavel.deb
    ;;
  *.deb)
    COPY=$(mktemp -d)
    trap 'rmdir "$COPY"' EXIT
    export COPY DEBIAN_FRONTEND=noninteractive
    unshare --mount --net --pid --fork --kill-child --mount-proc bash "$0" --overlay "$1"
    ;;
  *)
    echo "usage: installed.sh DEB" >&2
    exit 2
    ;;
esac
