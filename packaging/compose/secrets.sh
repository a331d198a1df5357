#!/bin/sh
# Creates the secrets of compose.yaml in secrets/, and flows/ for definitions. It never replaces a file.
#
# Compose gives the files to containers with the owner and mode that they have here. The containers run as different users,
# so anyone may read the files, but only you may enter the folder.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p flows
mkdir -p -m 0700 secrets
chmod 0700 secrets
umask 022

[ -e secrets/postgres-password ] || od -An -N 24 -tx1 /dev/urandom | tr -d ' \n' >secrets/postgres-password
[ -e secrets/pgpass ] || printf 'postgres:5432:gavel:gavel:%s\n' "$(cat secrets/postgres-password)" >secrets/pgpass
[ -e secrets/llm.key ] || : >secrets/llm.key
echo "secrets/ is complete"
