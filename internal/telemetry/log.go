package telemetry

import (
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
)

// Redacted stands where a secret was.
const Redacted = "[redacted]"

// NewLogger writes messages as lines of text, or of JSON, without what looks like a
// credential: values under telling keys, and whatever has the form of a bearer token, an
// API key or a password in a URL, wherever it stands. It is the last net, and no reason to
// log what callers sent. Of warnings and errors with the same cause, it writes one line a
// second, with how many it stands for.
func NewLogger(w io.Writer, level slog.Leveler, asJSON bool) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: redactAttr}
	if asJSON {
		return slog.New(newRepeats(slog.NewJSONHandler(w, options)))
	}
	return slog.New(newRepeats(slog.NewTextHandler(w, options)))
}

// secretKeys are parts of keys whose values are never shown.
var secretKeys = []string{"authorization", "password", "passwd", "secret", "api_key", "apikey", "bearer", "cookie", "credential_value", "private"}

// secretForms are what credentials look like: gavel's own tokens, the common providers'
// keys, JWTs, bearer headers, and passwords in URLs.
var secretForms = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`gvl_[A-Za-z0-9_-]{8,}|sk-[A-Za-z0-9_-]{16,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*|(?i:bearer) +[A-Za-z0-9._~+/=-]{8,}|://[^/\s:@]+:[^/\s@]+@`)
})

func redactAttr(_ []string, a slog.Attr) slog.Attr {
	key := strings.ToLower(a.Key)
	for _, secret := range secretKeys {
		if strings.Contains(key, secret) {
			return slog.String(a.Key, Redacted)
		}
	}
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		if clean := Scrub(v.String()); clean != v.String() {
			return slog.String(a.Key, clean)
		}
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			return slog.String(a.Key, Scrub(err.Error()))
		}
	default:
	}
	return a
}

// Scrub replaces what has the form of a credential.
func Scrub(text string) string { return secretForms().ReplaceAllString(text, Redacted) }
