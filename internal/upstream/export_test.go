package upstream

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/validators/document"
)

var (
	NewItem    = newItem
	PublicName = publicName
	IsPlainURI = isPlainURI
)

// ParseFrame reads a message; ok is false of one that is refused.
func ParseFrame(raw []byte) (id string, result, failure []byte, ok bool) {
	f, err := parseFrame(raw)
	return f.id, f.result, f.failure, err == nil
}

// ReadLines reads lines, and the edges of those that are too long.
func ReadLines(r io.Reader) (lines, tooLong []string) {
	l := lineReader{bufio.NewReaderSize(r, 16)}
	for {
		line, err := l.next(nil)
		switch {
		case errors.Is(err, errTooLong):
			tooLong = append(tooLong, guessID(line))
		case err != nil:
			return lines, tooLong
		default:
			lines = append(lines, string(line))
		}
	}
}

// MaxDepth is how deep JSON may be nested.
const MaxDepth = maxDepth

// RewriteMembers replaces members of an object.
var RewriteMembers = rewriteMembers

// MaxFrame is how long a message may be.
const MaxFrame = maxFrame

// NewPins returns pins without a file.
func NewPins() *Pins { return &Pins{servers: map[string][]Item{}} }

// ReadParams returns what a server gets for the params of a call of a tool, and the arguments in
// them as gavel reads them.
func ReadParams(params, definition []byte) (sent json.RawMessage, arguments document.JSON, err error) {
	item, err := newItem("a", KindTool, definition)
	if err != nil {
		return nil, document.JSON{}, err
	}
	m := Manager{states: clientstate.New()}
	sent, _, err = m.readParams(engine.Principal{}, Request{Upstream: "a", Method: "tools/call", Kind: KindTool, Name: item.Name, Params: params}, item)
	return sent, readChecked(params).Get("arguments"), err
}

// Receive has a session in which one call waits receive messages. It returns what the call was
// answered, and how many calls still wait.
func Receive(lines ...string) (answers []string, waiting int) {
	p := &pending{answer: make(chan frame, 1), failed: make(chan *linkError, 1)}
	s := &session{pending: map[string]*pending{"1": p}}
	for _, line := range lines {
		f, err := parseFrame([]byte(line))
		if err != nil {
			panic(err)
		}
		s.receive(f)
	}
	for len(p.answer) > 0 {
		answers = append(answers, string((<-p.answer).result))
	}
	return answers, len(s.pending)
}
