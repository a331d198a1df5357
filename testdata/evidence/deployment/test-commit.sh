#!/bin/sh
# Runs the tests of one commit: test-commit.sh SHA, of the repository that REPOSITORY
# names. Nothing counts but the commit. It is fetched into a repository of the gate's own,
# which lasts as long as the run, so that nothing plays a part that somebody has put
# beside it: a work tree, excludes, flags in the index, replaced objects, a configuration
# with filters and hooks. What arrives is checked against the commit's name on the way.
# Submodules and files in LFS are not fetched. The last line says what the tests are.
set -eu

# What runs left behind that were killed at their timeout, which is 10 minutes at most.
find "${TMPDIR:-/tmp}" -maxdepth 1 -type d -name 'gavel-commit.*' -mmin +60 -exec rm -rf {} + 2>/dev/null || true
folder=$(mktemp -d "${TMPDIR:-/tmp}/gavel-commit.XXXXXXXXXX")
trap 'rm -rf "$folder"' EXIT
repository=$(cd "$REPOSITORY" && pwd -P)

# Git reads this configuration and no other; the repository may belong to another user.
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL="$folder/config"
export GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=file
for name in "$repository" "$repository/.git"; do
	git config --file "$folder/config" --add safe.directory "$name"
done
git config --file "$folder/config" core.hooksPath /dev/null
git config --file "$folder/config" core.fsmonitor false

export GIT_DIR="$folder/git" GIT_WORK_TREE="$folder/tree"
mkdir "$folder/tree"
git -c init.defaultBranch=main init --quiet --template=
git fetch --quiet --depth=1 --no-tags --no-auto-maintenance --no-write-fetch-head "$repository" "$1" || {
	echo "The repository has no commit $1, or does not give it away whole."
	exit 1
}
if [ "$(git cat-file -t "$1")" != commit ]; then
	echo "$1 is no commit."
	exit 1
fi
git read-tree "$1"
(cd "$folder/tree" && git checkout-index --all)
unset GIT_CONFIG_NOSYSTEM GIT_CONFIG_GLOBAL GIT_NO_REPLACE_OBJECTS GIT_NO_LAZY_FETCH GIT_ALLOW_PROTOCOL GIT_DIR GIT_WORK_TREE

cd "$folder/tree"
go test ./...
