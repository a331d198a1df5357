#!/bin/sh
# After the files of the package are there, also of an upgrade: the user, the folder of the store, the unit.
set -e
if command -v systemd-sysusers >/dev/null 2>&1; then
  systemd-sysusers /usr/lib/sysusers.d/gavel.conf
elif ! id gavel >/dev/null 2>&1; then
  if command -v useradd >/dev/null 2>&1; then
    useradd --system --user-group --no-create-home --home-dir /var/lib/gavel --shell /usr/sbin/nologin gavel
  else # busybox
    addgroup -S gavel
    adduser -S -D -H -h /var/lib/gavel -s /sbin/nologin -G gavel gavel
  fi
fi
install -d -m 0700 -o gavel -g gavel /var/lib/gavel
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart gavel.service
fi
