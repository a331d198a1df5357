package telemetry

import (
	"context"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Redacted replaces secrets.
const Redacted = "[redacted]"

// NewLogger returns a logger that writes lines of text or JSON and removes apparent credentials. These are values of
// keys such as "password", and texts that look like a bearer token, an API key or a password in a URL. This is a last
// safeguard; callers' data must not be logged anyway. For warnings and errors with the same cause, it writes at most
// one line per second, with the number of lines that it represents.
func NewLogger(w io.Writer, level slog.Leveler, asJSON bool) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: redactAttr}
	if asJSON {
		return slog.New(newRepeats(slog.NewJSONHandler(w, options)))
	}
	return slog.New(newRepeats(slog.NewTextHandler(w, options)))
}

// secretKeys are parts of keys whose values are never shown.
var secretKeys = []string{"authorization", "password", "passwd", "secret", "api_key", "apikey", "bearer", "cookie", "credential_value", "private"}

// secretForms matches credentials: gavel's own tokens, keys of common providers, JWTs, bearer headers, and passwords
// in URLs.
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

// Scrub replaces texts that look like credentials.
func Scrub(text string) string { return secretForms().ReplaceAllString(text, Redacted) }

// repeatWindow is the minimum time between lines with the same cause.
const repeatWindow = time.Second

// maxRepeats limits the number of causes that are tracked concurrently.
const maxRepeats = 256

// causeKeys are the attributes that name a cause. A line without one is never delayed.
var causeKeys = []string{"cause", "error"}

// variable matches the parts in which lines with the same cause differ: numbers, ids, hashes.
var variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[0-9a-f]{8,}(-[0-9a-f]+)*|\d+(\.\d+)?`) })

// repeats writes the first line of each cause immediately, and combines those of the next second into one line with
// their number. A failure that affects every request must not also fill the disk.
type repeats struct {
	slog.Handler
	seen *recentLines
}

type recentLines struct {
	mu   sync.Mutex
	open map[string]*heldBackLines
}

// heldBackLines are the lines of one cause that were held back in the current window.
type heldBackLines struct {
	count int
	last  slog.Record
	to    slog.Handler
}

func newRepeats(h slog.Handler) slog.Handler {
	return repeats{h, &recentLines{open: map[string]*heldBackLines{}}}
}

// Handle implements slog.Handler.
func (r repeats) Handle(ctx context.Context, line slog.Record) error {
	key, ok := causeOf(line)
	if !ok {
		return r.Handler.Handle(ctx, line)
	}
	r.seen.mu.Lock()
	if _, open := r.seen.open[key]; !open && len(r.seen.open) >= maxRepeats {
		key = "" // too many causes: the rest share one key
	}
	if held, open := r.seen.open[key]; open {
		held.count++
		held.last, held.to = line.Clone(), r.Handler
		r.seen.mu.Unlock()
		return nil
	}
	r.seen.open[key] = &heldBackLines{}
	r.seen.mu.Unlock()
	time.AfterFunc(repeatWindow, func() { r.seen.endWindow(key) })
	return r.Handler.Handle(ctx, line)
}

// endWindow writes the lines that were held back for a cause and starts another window, or ends if there are none.
func (s *recentLines) endWindow(key string) {
	s.mu.Lock()
	held := s.open[key]
	if held.count == 0 {
		delete(s.open, key)
		s.mu.Unlock()
		return
	}
	s.open[key] = &heldBackLines{}
	s.mu.Unlock()
	time.AfterFunc(repeatWindow, func() { s.endWindow(key) })
	held.last.AddAttrs(slog.Int("lines", held.count))
	_ = held.to.Handle(context.Background(), held.last) // errors of the log itself cannot be reported
}

// WithAttrs implements slog.Handler.
func (r repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	return repeats{r.Handler.WithAttrs(attrs), r.seen}
}

// WithGroup implements slog.Handler.
func (r repeats) WithGroup(name string) slog.Handler {
	return repeats{r.Handler.WithGroup(name), r.seen}
}

// causeOf returns the key by which lines with the same cause are combined. ok is false for lines without a cause.
func causeOf(line slog.Record) (key string, ok bool) {
	if line.Level < slog.LevelWarn {
		return "", false
	}
	line.Attrs(func(a slog.Attr) bool {
		for _, k := range causeKeys {
			if a.Key == k {
				key, ok = line.Message+"\x00"+variable().ReplaceAllString(a.Value.String(), "#"), true
				return false
			}
		}
		return true
	})
	return key, ok
}
