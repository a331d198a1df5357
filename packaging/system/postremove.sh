#!/bin/sh
# The store, the tokens and the user stay: they are records, not files of the package.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
