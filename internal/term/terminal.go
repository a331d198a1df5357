// Package term prints for people: text, tables, styles, progress, and errors with their exit codes. Only cmd/gavel
// and packages below it may import it.
//
// Guarantees:
//
//   - All output to people goes through Terminal, which cleans every string. Text from a definition, an agent or a
//     store cannot move the cursor, change colours, ring the bell or reverse text. Format strings are constants of
//     this program.
//   - Colour never carries information. It is used only on a terminal, and not if NO_COLOR is set or TERM is dumb.
//   - JSON is printed with the same characters escaped, so its meaning is unchanged.
package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// Terminal prints for people. It keeps the first write error; see AddWriteError.
type Terminal struct {
	w      *errWriter
	file   *os.File // nil if w is not a terminal
	colour bool
}

// New returns a Terminal that writes to w, which need not be a terminal.
func New(w io.Writer) *Terminal {
	t := &Terminal{w: &errWriter{w: BlockingWriter(w)}}
	if f, ok := w.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		t.file = f
		t.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	return t
}

// IsTerminal reports whether the output is a terminal.
func (t *Terminal) IsTerminal() bool { return t.file != nil }

type errWriter struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

func (w *errWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.w.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

// firstError returns the first write error, or nil.
func (w *errWriter) firstError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Write cleans p before it writes it, so that libraries that print cannot bypass cleaning.
func (t *Terminal) Write(p []byte) (int, error) {
	if _, err := io.WriteString(t.w, CleanLines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Styled is text that was cleaned and then coloured.
type Styled string

func (t *Terminal) applyStyle(code, text string) Styled {
	text = Clean(text)
	if !t.colour {
		return Styled(text)
	}
	return Styled("\x1b[" + code + "m" + text + "\x1b[0m")
}

// Red returns text in red if the terminal supports colour; the other styles work likewise.
func (t *Terminal) Red(text string) Styled { return t.applyStyle("31", text) }

// Green returns text in green; see Red.
func (t *Terminal) Green(text string) Styled { return t.applyStyle("32", text) }

// Bold returns text in bold; see Red.
func (t *Terminal) Bold(text string) Styled { return t.applyStyle("1", text) }

// Dim returns text in a dim style; see Red.
func (t *Terminal) Dim(text string) Styled { return t.applyStyle("2", text) }

// Outcome returns text in the colour of its first word: green for approved outcomes, red for refused ones, yellow for
// undecided or unreliable ones.
func (t *Terminal) Outcome(text string) Styled {
	word, _, _ := strings.Cut(text, " ")
	switch strings.TrimRight(word, ",:") {
	case "approve", "approved", "complete", "valid", "done":
		return t.Green(text)
	case "reject", "rejected", "refused", "invalid", "failed", "revoked":
		return t.Red(text)
	case "escalate", "escalated", "not", "open", "stale", "expired", "cancelled":
		return t.applyStyle("33", text)
	}
	return Styled(Clean(text))
}

// Printf prints like fmt.Printf. It cleans arguments; format must be a constant of this program.
func (t *Terminal) Printf(format string, args ...any) {
	for i, a := range args {
		if _, clean := a.(Styled); clean {
			continue
		}
		if s := fmt.Sprint(a); Clean(s) != s {
			args[i] = Clean(s)
		}
	}
	_, _ = fmt.Fprintf(t.w, format, args...)
}

// Text prints a document of several lines.
func (t *Terminal) Text(doc string) { _, _ = io.WriteString(t.w, CleanLines(doc)) }

// JSON prints v as indented JSON.
func (t *Terminal) JSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err := io.WriteString(t.w, EscapeJSON(b.String()))
	return err
}

// Clean makes text safe to print on one line: it replaces characters that a terminal would interpret, line breaks,
// and invalid UTF-8 by visible text.
func Clean(s string) string { return replaceUnsafe(s, false) }

// CleanLines is like Clean, but keeps line feeds and tabs.
func CleanLines(s string) string { return replaceUnsafe(s, true) }

func replaceUnsafe(s string, lines bool) string {
	if strings.IndexFunc(s, isUnsafe) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case lines && (r == '\n' || r == '\t'):
			b.WriteRune(r)
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case isUnsafe(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// isUnsafe reports control characters (C0, DEL, C1), and format characters that reorder or hide text. Joiners are
// safe, because languages and emoji use them.
func isUnsafe(r rune) bool {
	const joiners = "\u200c\u200d"
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' ||
		unicode.Is(unicode.Cf, r) && !strings.ContainsRune(joiners, r)
}

// EscapeJSON escapes characters in encoded JSON that isUnsafe reports, except line feeds. Outside of strings, JSON
// contains no others.
func EscapeJSON(doc string) string {
	if strings.IndexFunc(doc, func(r rune) bool { return r != '\n' && isUnsafe(r) }) < 0 {
		return doc
	}
	var b strings.Builder
	for _, r := range doc {
		switch {
		case r == '\n' || !isUnsafe(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

const progressEvery = 100 * time.Millisecond

// Progress is one line that shows the progress of a long command. A nil Progress prints nothing.
type Progress struct {
	t     *Terminal
	mu    sync.Mutex
	last  time.Time
	width int // of the displayed text
}

// NewProgress returns a Progress, or nil if the output is not a terminal.
func (t *Terminal) NewProgress() *Progress {
	if t.file == nil {
		return nil
	}
	return &Progress{t: t}
}

// Update replaces the line, at most ten times a second.
func (p *Progress) Update(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) < progressEvery {
		return
	}
	p.last = time.Now()
	p.print(fmt.Sprintf(format, args...))
}

// Set replaces the line immediately; "" clears it.
func (p *Progress) Set(line string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print(line)
}

// Printf prints a permanent line in place of the progress line. Set then shows the progress line below it.
func (p *Progress) Printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print("")
	_, _ = fmt.Fprint(p.t.w, "\r")
	p.t.Printf(format, args...)
}

// Finish clears the line, or replaces it with last if that is not "".
func (p *Progress) Finish(last string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print(last)
	if last != "" {
		p.t.Printf("\n")
		return
	}
	_, _ = fmt.Fprint(p.t.w, "\r")
}

func (p *Progress) print(line string) {
	line = Clean(line)
	if width := p.t.width(); width > 0 {
		line = Fit(line, width-1) // a line that wraps cannot be replaced
	}
	_, _ = fmt.Fprintf(p.t.w, "\r%s%s", line, strings.Repeat(" ", max(p.width-len(line), 0)))
	p.width = len(line)
}
