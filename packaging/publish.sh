#!/usr/bin/env bash
# Uploads what make release left in dist. Each registry has its own client, which finds its credentials where it always does
# (GH_TOKEN, npm's and Docker's settings). After a failure it can run again: it skips what is there. GitHub's release is a draft
# until all the rest is published.
#
#   IMAGE=REPOSITORY packaging/publish.sh
set -euo pipefail

version=$(node -p 'require("./dist/metadata.json").version')
[[ "$version" != *snapshot* && -f dist/gavel_${version}_checksums.txt.minisig ]] ||
  { echo "dist has no signed release, but $version: make release builds one" >&2; exit 1; }
npm_tag=latest mark=--latest
[[ "$version" != *-* ]] || npm_tag=next mark=--prerelease

draft=$(gh release view "v$version" --json isDraft --jq .isDraft 2>/dev/null) || draft=none
case $draft in
  false)
    echo "v$version is published already"
    exit
    ;;
  none) gh release create "v$version" --draft --verify-tag --title "gavel $version" --notes 'See CHANGELOG.md.' ;;
esac
gh release upload "v$version" --clobber \
  dist/*.tar.gz dist/*.zip dist/*.deb dist/*.rpm dist/*.apk dist/*.cdx.json dist/*_checksums.txt dist/*.minisig dist/homebrew/Formula/gavel.rb

# The platforms' packages come before the one that names them.
for file in dist/npm/gavel-mcp-[!0-9]*.tgz dist/npm/gavel-mcp-[0-9]*.tgz; do
  name=${file#dist/npm/} name=${name%"-$version.tgz"}
  there=$(npm view "$name@$version" dist.shasum 2>/dev/null) || there=""
  case $there in
    "") npm publish --access public --tag $npm_tag "./$file" ;;
    "$(sha1sum "$file" | cut -d ' ' -f 1)") echo "$name@$version is there" ;;
    *)
      echo "npm has another $name@$version than $file" >&2
      exit 1
      ;;
  esac
done

if [ -n "${GITHUB_ACTOR:-}" ]; then regctl registry login "${IMAGE%%/*}" -u "$GITHUB_ACTOR" --pass-stdin <<<"$GH_TOKEN"; fi
regctl image copy --referrers "ocidir://dist/image:$version" "$IMAGE:$version"

gh release edit "v$version" --draft=false $mark
