package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// separator stands between the name of an upstream and the name of its tool or prompt.
const separator = "__"

// maxPublicName leaves clients that put mcp__gavel__ before a name with the 64 characters that
// providers of models accept.
const maxPublicName = 64 - len("mcp__gavel__")

// publicName is what clients call an item. Tools and prompts are UPSTREAM__NAME, made safe.
// Resources and templates get the upstream before their scheme: UPSTREAM+URI.
func publicName(upstream string, kind Kind, name string) string {
	if kind == KindResource || kind == KindTemplate {
		return upstream + "+" + name
	}
	return SafeName(upstream+separator, name)
}

// SafeName is a prefix and a name in the characters that every client accepts; a longer one is
// cut and ends with a digest of the name.
func SafeName(prefix, name string) string {
	safe := prefix + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	if len(safe) <= maxPublicName {
		return safe
	}
	sum := sha256.Sum256([]byte(name))
	end := "_" + hex.EncodeToString(sum[:4])
	return safe[:maxPublicName-len(end)] + end
}

// splitURI is the upstream and the URI of a public one.
func splitURI(public string) (upstream, uri string, ok bool) {
	upstream, uri, ok = strings.Cut(public, "+")
	return upstream, uri, ok && isServerName(upstream) && uri != ""
}
