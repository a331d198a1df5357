package shell

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// What one text may cost. Beyond it the text is unknown.
const (
	maxText     = 256 << 10 // of the text, and of each file and inner text
	maxValue    = 16 << 10  // of what a variable holds or a command prints
	maxSteps    = 100_000   // statements, words and characters by the 64
	maxNesting  = 12        // texts in texts, calls in calls
	maxFrames   = 1500      // of the stack while a text is parsed: how deep it nests
	maxCommands = 4096
	maxUnknown  = 16
	maxUnroll   = 64 // words of a loop, lines for xargs
)

// Read says what a text would run.
func Read(text string, o Options) (s Script) {
	r := &reader{options: o, names: map[key]*value{}, assigned: map[string]bool{}, wrote: map[string]bool{}, blurred: map[string]bool{}, unsteady: map[string]bool{}, streams: map[string]stream{}}
	r.set(key{kindFolder, ""}, &value{text: o.Folder})
	defer func() { // a fault in reading hostile text is no reason to say nothing
		if p := recover(); p != nil {
			r.unknown("the text cannot be read: %v", p)
		}
		s = r.script
	}()
	r.readText(text, stream{known: true})
	r.readUncalled()
	return r.script
}

// reader goes through a text in the order in which a shell would, and keeps what is known of names.
// What it does not know is not in names.
type reader struct {
	options   Options
	script    Script
	names     map[key]*value
	assigned  map[string]bool // variables that the text sets anywhere before
	journal   []change        // what was set, so that a scope can be left
	functions []*function
	streams   map[string]stream // process substitutions by the names made up for them
	source    string            // the text that is being read
	steps     int
	nesting   int
	wrote     map[string]bool // base names of the files that the text writes
	unsteady  map[string]bool // variables that do not hold what they are set to: readonly, lower case; "*" for all
	blurred   map[string]bool // those of which it cannot be told where they are; "" for any
	inLoop    bool
	// aliasesNext reports that an alias ends in a space: the word after it may be an alias, too.
	aliasesNext bool
	plain       bool // the shell may be one that knows less than bash
	exhausted   bool
}

// unknown notes what cannot be known.
func (r *reader) unknown(format string, args ...any) {
	sentence := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	if len(sentence) > 300 {
		sentence = strings.ToValidUTF8(sentence[:300], "") + "..."
	}
	sentence = strings.TrimSuffix(sentence, ".") + "."
	for _, u := range r.script.Unknown {
		if u == sentence {
			return
		}
	}
	if len(r.script.Unknown) < maxUnknown {
		r.script.Unknown = append(r.script.Unknown, sentence)
	}
}

// step counts, and reports whether reading may go on.
func (r *reader) step(length int) bool {
	if r.exhausted {
		return false
	}
	r.steps += 1 + length/64
	if r.steps > maxSteps || len(r.script.Commands) >= maxCommands {
		r.exhausted = true
		r.script.Unknown = append(r.script.Unknown, "the text runs more than can be followed.")
	}
	return !r.exhausted
}

// enter goes one text or call deeper; leave must follow where it reports true.
func (r *reader) enter() bool {
	if r.nesting >= maxNesting {
		r.unknown("texts that run texts nest more than %d deep", maxNesting)
		return false
	}
	r.nesting++
	return true
}

func (r *reader) leave() { r.nesting-- }

// readText reads a text as part of the shell that is running, and says what it would print.
func (r *reader) readText(text string, in stream) stream {
	if len(text) > maxText {
		r.unknown("a text of %d bytes is more than can be read", len(text))
		return stream{}
	}
	if !r.step(len(text)) || !r.enter() {
		return stream{}
	}
	defer r.leave()
	file, text, err := parseText(text)
	if err != nil {
		r.unknown("this is no shell that can be read: %v", err)
		return stream{}
	}
	before := r.source
	r.source = text
	defer func() { r.source = before }()
	return r.runAll(file.Stmts, in)
}

// parsers are used again: a line may hold thousands of small texts, and a parser takes 3 KB.
var parsers = sync.Pool{New: func() any { return syntax.NewParser(syntax.KeepComments(true)) }}

// parseText parses a text, and gives it back as it was parsed.
//
// The parser takes a backslash at the end of a comment for a continuation, and one before a carriage
// return too; shells do not, so that a command would hide there.
func parseText(text string) (*syntax.File, string, error) {
	if strings.Contains(text, "\r") {
		return nil, "", errors.New("it has carriage returns, which shells and readers take differently")
	}
	for range 8 {
		parser := parsers.Get().(*syntax.Parser) //nolint:forcetypeassert // New's
		file, err := parser.Parse(&shallow{text: text}, "")
		parsers.Put(parser)
		if err != nil {
			return nil, "", err
		}
		fixed := []byte(text)
		continued := false
		syntax.Walk(file, func(n syntax.Node) bool {
			if c, ok := n.(*syntax.Comment); ok {
				from := int(c.Hash.Offset())
				end := strings.IndexByte(text[from:], '\n')
				if end > 0 && text[from+end-1] == '\\' {
					fixed[from+end-1] = ' '
					continued = true
				}
			}
			return true
		})
		if !continued {
			return file, text, nil
		}
		text = string(fixed)
	}
	return nil, "", errors.New("its comments end in backslashes")
}

// readInner reads a text that a shell of its own runs: it has the exported variables only.
func (r *reader) readInner(text string, params []Word, in stream) stream {
	mark := r.mark()
	defer r.undo(mark)
	r.step(64 * len(r.names))
	for k, v := range r.names {
		if k.kind == kindVariable && !v.exported {
			r.set(k, nil)
		}
	}
	r.set(key{kindParameters, ""}, &value{list: params})
	return r.readText(text, in)
}

// readUncalled reads the functions that nothing called, or that may be called otherwise than seen.
func (r *reader) readUncalled() {
	for i := 0; i < len(r.functions); i++ { // reading may find more
		f := r.functions[i]
		if f.called && !f.lost {
			continue
		}
		f.called, f.lost = true, false
		r.forgetVariables(true)
		r.set(key{kindParameters, ""}, nil)
		r.source = f.source
		r.run(f.body, stream{})
	}
}

// shallow gives a text to the parser in pieces, and ends it where the parser's own recursion, which
// has no bound, has gone too deep.
type shallow struct{ text string }

var errDeep = errors.New("it nests too deep")

func (s *shallow) Read(p []byte) (int, error) {
	if s.text == "" {
		return 0, io.EOF
	}
	var frame [1]uintptr
	if runtime.Callers(maxFrames, frame[:]) > 0 {
		return 0, errDeep
	}
	n := copy(p[:min(len(p), 64)], s.text)
	s.text = s.text[n:]
	return n, nil
}
