package llm

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/gavel-mcp/gavel/validators/document"
)

const redacted = "[redacted]"

// keyPattern matches keys of the known providers, complete or masked with stars as in their error messages,
// and bearer tokens, possibly after a JSON escape. It may match too much, which is harmless. It never matches
// a quote or a backslash, so JSON remains valid.
var keyPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(^|[^A-Za-z0-9_]|\\[bfnrt]|\\u[0-9a-fA-F]{4})(?:` +
		`sk-[A-Za-z0-9_*-]{12,}` +
		`|AIza[A-Za-z0-9_*-]{16,}` +
		`|(?:gsk|hf|pplx|r8|nvapi)[_-][A-Za-z0-9_*-]{12,}` +
		`|xai-[A-Za-z0-9_*-]{12,}` +
		`|(?i:bearer)\s+[A-Za-z0-9._~+/=*-]{8,})`)
})

// secrets are keys in use. They are redacted even if they do not look like keys.
type secrets []string

// minSecret is the length of the shortest key worth hiding. Local servers often get a word such as "none"
// as the key.
const minSecret = 8

func secretsOf(req *http.Request) secrets {
	var found secrets
	add := func(s string) {
		if len(s) < minSecret {
			return
		}
		found = append(found, s)
		// Also in its JSON-escaped form.
		if b, err := json.Marshal(s); err == nil && string(b[1:len(b)-1]) != s {
			found = append(found, string(b[1:len(b)-1]))
		}
		if slashed := strings.ReplaceAll(s, "/", `\/`); slashed != s {
			found = append(found, slashed)
		}
	}
	for _, name := range []string{"Authorization", "Api-Key", "X-Api-Key", "X-Goog-Api-Key", "Cookie"} {
		for _, value := range req.Header.Values(name) {
			scheme, token, two := strings.Cut(value, " ")
			if two && strings.EqualFold(scheme, "bearer") {
				value = token
			}
			add(strings.TrimSpace(value))
		}
	}
	return found
}

func (s secrets) redact(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	return keyPattern().ReplaceAllString(text, "${1}"+redacted)
}

// redactAnswer redacts the secrets in an answer and leaves the rest as it is, because its format matters to
// readers.
func (s secrets) redactAnswer(raw []byte) []byte {
	out := []byte(s.redact(string(raw)))
	if json.Valid(raw) && !json.Valid(out) {
		return s.redactJSON(raw) // a secret overlapped an escape
	}
	return out
}

// redactJSON redacts secrets in the strings of a JSON text and returns it in canonical form.
func (s secrets) redactJSON(body json.RawMessage) json.RawMessage { return rewriteBody(body, s.redact) }

// canonicalBody returns a body as JSON with sorted keys, without spaces, and with numbers as written. A body
// that is not JSON becomes a JSON string.
func canonicalBody(body []byte) json.RawMessage {
	return rewriteBody(body, func(s string) string { return s })
}

// rewriteBody returns a body in canonical form, with change applied to every string and key.
func rewriteBody(body []byte, change func(string) string) json.RawMessage {
	var value any = change(string(body))
	if v := document.ReadTrusted(body); v.Kind() != 0 {
		value = rewriteValue(v.Any(), change)
	}
	out, err := document.Marshal(value)
	if err != nil {
		return json.RawMessage("null") // cannot happen: the value came from JSON
	}
	return out
}

func rewriteValue(v any, change func(string) string) any {
	switch v := v.(type) {
	case string:
		return change(v)
	case []any:
		for i, e := range v {
			v[i] = rewriteValue(e, change)
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[change(k)] = rewriteValue(e, change)
		}
		return out
	}
	return v
}
