#!/usr/bin/env bash
# Takes the place of gh, npm and regctl, under whose names it is called, for packaging/publish.sh: keeps in the folder REGISTRY
# what is published, and in its file calls what it was asked. While ROOM is set, npm accepts so many packages and no more.
set -euo pipefail

echo "${0##*/} $*" >>"$REGISTRY/calls"
case "${0##*/} $1 $2" in
  "gh release view") cat "$REGISTRY/draft" ;;
  "gh release create")
    [ ! -e "$REGISTRY/draft" ]
    [[ " $* " == *" --draft --verify-tag "* ]]
    echo true >"$REGISTRY/draft"
    ;;
  "gh release upload")
    [ "$(cat "$REGISTRY/draft")" = true ]
    for file in "${@:5}"; do
      sha256sum <"$file" >"$REGISTRY/assets/${file##*/}"
    done
    ;;
  "gh release edit") [[ "$*" == *" --draft=false --latest" ]] && echo false >"$REGISTRY/draft" ;;
  "npm view "*) cat "$REGISTRY/packages/$2" ;;
  "npm publish "*)
    name=$(tar -xOf "${!#}" package/package.json | node -p 'const p = JSON.parse(fs.readFileSync(0)); p.name + "@" + p.version')
    [ ! -e "$REGISTRY/packages/$name" ] || { echo "npm: $name is published already" >&2; exit 1; }
    [ "$(find "$REGISTRY/packages" -type f | wc -l)" -lt "${ROOM:-1000}" ] || { echo "npm does not answer" >&2; exit 1; }
    sha1sum "${!#}" | cut -d ' ' -f 1 >"$REGISTRY/packages/$name"
    ;;
  "regctl image copy") ;;
  *)
    echo "${0##*/}: nobody should ask $*" >&2
    exit 1
    ;;
esac
