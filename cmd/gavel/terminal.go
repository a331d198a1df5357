package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// The rules of the terminal:
//
//   - Only terminal writes to people, and every string that it is given is
//     cleaned: what comes from a definition, an agent or a store cannot move the
//     cursor, change colours, ring the bell or turn text around. Format strings
//     are constants of this program.
//   - Colour is decoration, never information: it is used on a terminal only, and
//     not when NO_COLOR is set or TERM is dumb.
//   - JSON is printed with the same characters escaped, so that it means the same.

// terminal prints for people. It remembers the first write that failed, and run asks
// for it at the end: an answer that did not arrive is no success.
type terminal struct {
	w      *remembering
	tty    bool // somebody looks at it
	colour bool
}

func newTerminal(w io.Writer) *terminal {
	f, ok := w.(*os.File)
	tty := ok && isatty.IsTerminal(f.Fd())
	colour := tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return &terminal{w: &remembering{w: patientWriter(w)}, tty: tty, colour: colour}
}

// remembering is a writer with the first error that it had.
type remembering struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

func (r *remembering) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := r.w.Write(p)
	if r.err == nil {
		r.err = err
	}
	return n, err
}

// failed is the first error, or nil.
func (r *remembering) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func isTTY(t *terminal) bool { return t.tty }

// Write cleans p too, so that a library that prints cannot get around the rule.
func (t *terminal) Write(p []byte) (int, error) {
	if _, err := io.WriteString(t.w, cleanLines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// styled is text that the terminal made itself: cleaned, then coloured.
type styled string

func (t *terminal) style(code, text string) styled {
	text = clean(text)
	if !t.colour {
		return styled(text)
	}
	return styled("\x1b[" + code + "m" + text + "\x1b[0m")
}

func (t *terminal) red(text string) styled   { return t.style("31", text) }
func (t *terminal) green(text string) styled { return t.style("32", text) }
func (t *terminal) bold(text string) styled  { return t.style("1", text) }
func (t *terminal) dim(text string) styled   { return t.style("2", text) }

// printf prints like fmt.Printf; arguments are cleaned, the format is ours.
func (t *terminal) printf(format string, args ...any) {
	for i, a := range args {
		switch v := a.(type) {
		case styled: // was cleaned when it was made
		case string:
			args[i] = clean(v)
		case error:
			args[i] = clean(v.Error())
		case fmt.Stringer:
			args[i] = clean(v.String())
		default:
			if s, ok := textOf(v); ok {
				args[i] = s
			}
		}
	}
	_, _ = fmt.Fprintf(t.w, format, args...)
}

// text prints a document of several lines.
func (t *terminal) text(doc string) { _, _ = io.WriteString(t.w, cleanLines(doc)) }

// table prints rows in columns; the first row is the heading. Cells are cleaned.
func (t *terminal) table(rows [][]string) {
	w := tabwriter.NewWriter(t.w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = clean(cell)
		}
		_, _ = fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	_ = w.Flush()
}

// json prints v as indented JSON.
func (t *terminal) json(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err := io.WriteString(t.w, escapeJSON(b.String()))
	return err
}

// textOf cleans named string types (states, outcomes, codes).
func textOf(v any) (string, bool) {
	s := fmt.Sprintf("%v", v)
	if cleaned := clean(s); cleaned != s {
		return cleaned, true
	}
	return "", false
}

// clean makes one line of text harmless: every character that a terminal could
// obey, every line break, and what is not UTF-8, is shown and not sent.
func clean(s string) string { return replaceUnsafe(s, false) }

// cleanLines is clean for documents: line feeds and tabs stay.
func cleanLines(s string) string { return replaceUnsafe(s, true) }

func replaceUnsafe(s string, lines bool) string {
	if strings.IndexFunc(s, unsafeRune) < 0 && utf8.ValidString(s) {
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
		case unsafeRune(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// unsafeRune reports control characters (C0, DEL, C1), and the format
// characters that reorder or hide text. Joiners stay: languages and emoji use them.
func unsafeRune(r rune) bool {
	const joiners = "\u200c\u200d"
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' ||
		unicode.Is(unicode.Cf, r) && !strings.ContainsRune(joiners, r)
}

// escapeJSON escapes in encoded JSON what unsafeRune reports. Outside of strings
// JSON has none of them but line feeds, which stay.
func escapeJSON(doc string) string {
	if strings.IndexFunc(doc, func(r rune) bool { return r != '\n' && unsafeRune(r) }) < 0 {
		return doc
	}
	var b strings.Builder
	for _, r := range doc {
		switch {
		case r == '\n' || !unsafeRune(r):
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
