package upstream

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"strconv"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/validators/document"
)

var (
	PublicName = publicName
	IsPlainURI = isPlainURI
)

// NewItem reads a definition.
func NewItem(server string, kind Kind, raw json.RawMessage) (Item, error) {
	item, _, err := readItem(server, kind, raw)
	return item, err
}

// ReadItem reads a definition, and says what was repaired.
var ReadItem = readItem

// ParseFrame reads a message.
func ParseFrame(raw []byte) (id string, result, failure []byte, err error) {
	f, err := parseFrame(raw)
	return f.id, f.result, f.failure, err
}

// IsAnswerError reports whether an error is of an answer that cannot be used.
func IsAnswerError(err error) bool {
	_, ok := errors.AsType[*answerError](err)
	return ok
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
	item, err := NewItem("a", KindTool, definition)
	if err != nil {
		return nil, document.JSON{}, err
	}
	m := Manager{states: clientstate.New()}
	sent, _, err = m.readParams(engine.Principal{}, Request{Upstream: "a", Method: "tools/call", Kind: KindTool, Name: item.Name, Params: params}, item)
	return sent, readChecked(params).Get("arguments"), err
}

// Receive has a session receive messages, in which calls with three ids from first wait. It returns what they were
// answered, why they failed, and how many still wait.
func Receive(first int64, lines ...string) (answers, failures []string, waiting int) {
	s := &session{server: &server{}, pending: map[string]*pending{}}
	s.lastID.Store(first + 3)
	for id := first; id < first+4; id++ {
		if id != first+1 { // which was answered before
			s.pending[strconv.FormatInt(id, 10)] = &pending{answer: make(chan frame, 1), failed: make(chan *linkError, 1)}
		}
	}
	all := maps.Clone(s.pending)
	for _, line := range lines {
		f, err := parseFrame([]byte(line))
		if err != nil {
			panic(err)
		}
		s.receive(f)
	}
	for _, id := range sortedKeys(all) {
		select {
		case f := <-all[id].answer:
			answers = append(answers, string(f.result))
		case failure := <-all[id].failed:
			failures = append(failures, id+": "+failure.text)
		default:
		}
	}
	return answers, failures, len(s.pending)
}
