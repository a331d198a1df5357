package llm

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// redacted stands where a secret was.
const redacted = "[redacted]"

// keyPattern finds what looks like a key of one of the known providers, whole or with
// stars in it as in their error messages, and bearer tokens. What stands before it may
// be an escape of JSON. What it takes too much of is harmless; it can take neither a
// quote nor a backslash, so JSON stays JSON.
var keyPattern = regexp.MustCompile(`(^|[^A-Za-z0-9_]|\\[bfnrt]|\\u[0-9a-fA-F]{4})(?:` +
	`sk-[A-Za-z0-9_*-]{12,}` +
	`|AIza[A-Za-z0-9_*-]{16,}` +
	`|(?:gsk|hf|pplx|r8|nvapi)[_-][A-Za-z0-9_*-]{12,}` +
	`|xai-[A-Za-z0-9_*-]{12,}` +
	`|(?i:bearer)\s+[A-Za-z0-9._~+/=*-]{8,})`)

// secrets are the keys in use, which are replaced whatever they look like.
type secrets []string

// leastSecret is the length from which a key is worth hiding: local servers are given
// words such as "none".
const leastSecret = 8

// secretsOf are the keys that a request carries.
func secretsOf(req *http.Request) secrets {
	var found secrets
	add := func(s string) {
		if len(s) < leastSecret {
			return
		}
		found = append(found, s)
		// And as it stands in JSON.
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

// redact replaces secrets in a text.
func (s secrets) redact(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, redacted)
	}
	return keyPattern.ReplaceAllString(text, "${1}"+redacted)
}

// redactAnswer replaces secrets in an answer's bytes, which stay as they are otherwise:
// how an answer is written matters to whoever reads it.
func (s secrets) redactAnswer(raw []byte) []byte {
	out := []byte(s.redact(string(raw)))
	if json.Valid(raw) && !json.Valid(out) {
		return s.redactJSON(raw) // a secret that lies across an escape
	}
	return out
}

// redactJSON replaces secrets in the strings of a JSON text and writes it as canonical.
func (s secrets) redactJSON(body json.RawMessage) json.RawMessage { return rewriteBody(body, s.redact) }

// rewriteBody writes a body in its canonical form, with every string and key changed.
func rewriteBody(body []byte, change func(string) string) json.RawMessage {
	var value any = change(string(body))
	if v := document.Known(body); v.Kind() != 0 {
		value = rewriteValue(v.Any(), change)
	}
	out, err := marshalPlain(value)
	if err != nil {
		return json.RawMessage("null") // what was JSON can be written
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
