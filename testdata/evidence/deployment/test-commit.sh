#!/bin/sh
# Runs the tests of one commit in a folder of its own: what lies about in somebody's
# work tree does not count. It checks out by way of an index of its own, because "git
# archive" leaves out whatever the commit itself says should be left out.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GIT_INDEX_FILE="$folder/index"
git -C "$REPOSITORY" read-tree "$1"
git -C "$REPOSITORY" checkout-index --all --prefix="$folder/tree/"
unset GIT_INDEX_FILE
cd "$folder/tree"
go test ./...
