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

// NewItem parses a definition.
func NewItem(server string, kind Kind, raw json.RawMessage) (Item, error) {
	item, _, err := readItem(server, kind, raw)
	return item, err
}

// ReadItem parses a definition and returns what was repaired.
var ReadItem = readItem

// ParseFrame parses a message.
func ParseFrame(raw []byte) (id string, result, failure []byte, err error) {
	f, err := parseFrame(raw)
	return f.id, f.result, f.failure, err
}

// IsAnswerError reports whether an error is for an answer that cannot be used.
func IsAnswerError(err error) bool {
	_, ok := errors.AsType[*answerError](err)
	return ok
}

// ReadLines returns the lines, and the ids of lines that are too long.
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

// MaxDepth is the maximum nesting of JSON.
const MaxDepth = maxDepth

// RewriteMembers replaces members of an object.
var RewriteMembers = rewriteMembers

// MaxFrame is the maximum size of a message.
const MaxFrame = maxFrame

// NewPins returns pins without a file.
func NewPins() *Pins { return &Pins{servers: map[string][]Item{}} }

// ReadParams returns the params that a server receives for a tool call, and the arguments in them as gavel reads
// them.
func ReadParams(params, definition []byte) (sent json.RawMessage, arguments document.JSON, err error) {
	item, err := NewItem("a", KindTool, definition)
	if err != nil {
		return nil, document.JSON{}, err
	}
	m := Manager{states: clientstate.New()}
	sent, _, err = m.readParams(engine.Principal{}, Request{Upstream: "a", Method: "tools/call", Kind: KindTool, Name: item.Name, Params: params}, item)
	return sent, readChecked(params).Get("arguments"), err
}

// Receive makes a session receive messages while calls with three ids from first are pending. It returns their
// answers, their failures, and the number of calls that are still pending.
func Receive(first int64, lines ...string) (answers, failures []string, waiting int) {
	s := &session{server: &server{}, pending: map[string]*pending{}}
	s.lastID.Store(first + 3)
	for id := first; id < first+4; id++ {
		if id != first+1 { // this one was answered before
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
