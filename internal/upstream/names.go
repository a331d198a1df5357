package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// separator separates an upstream's name from the name of its tool or prompt.
const separator = "__"

// maxPublicName limits a public name, in bytes. Model providers accept 64 characters, and some clients add the prefix
// mcp__gavel__.
const maxPublicName = 64 - len("mcp__gavel__")

// publicName returns the name that clients use for an item: UPSTREAM__NAME, as SafeName writes it, for tools and
// prompts, and UPSTREAM+URI for resources and templates.
func publicName(upstream string, kind Kind, name string) string {
	if kind == KindResource || kind == KindTemplate {
		return upstream + "+" + name
	}
	return SafeName(upstream+separator, name)
}

// SafeName joins a prefix and a name using only characters that every client accepts. A result that is too long is
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

// splitURI splits a public URI into the upstream and its own URI.
func splitURI(public string) (upstream, uri string, ok bool) {
	upstream, uri, ok = strings.Cut(public, "+")
	return upstream, uri, ok && isServerName(upstream) && uri != ""
}
