package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// separator separates an upstream's name from the name of its tool or prompt.
const separator = "__"

// maxPublicName leaves room for clients that prefix mcp__gavel__, within the 64 characters that model providers
// accept.
const maxPublicName = 64 - len("mcp__gavel__")

// publicName returns the name that clients use for an item. Tools and prompts are UPSTREAM__NAME, made safe.
// Resources and templates are UPSTREAM+URI.
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
