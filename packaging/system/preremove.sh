#!/bin/sh
# Before a removal, but not before an upgrade: dpkg says remove, upgrade or another word, rpm says 0 or 1, apk says a version and does not
# run this for an upgrade.
set -e
case "${1:-}" in upgrade | failed-upgrade | deconfigure | 1) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
  systemctl disable --now gavel.service
fi
