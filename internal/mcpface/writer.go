package mcpface

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
)

// lineWriter is the one writer of stdout: whole lines, one at a time. It drops
// the answers of cancelled requests, and gives ids back as they came.
type lineWriter struct {
	out     io.Writer
	pending *pending
	mu      sync.Mutex
	broken  chan struct{} // closed after the first failure
	err     error         // that failure; read after broken
}

func newLineWriter(out io.Writer, p *pending) *lineWriter {
	return &lineWriter{out: out, pending: p, broken: make(chan struct{})}
}

// maxAnswer bounds one message, in bytes: the TypeScript SDK's clients end with a
// larger one than 10 MiB.
const maxAnswer = 9 << 20

// Write takes one whole message, as mcp-go writes them.
func (w *lineWriter) Write(line []byte) (int, error) {
	n := len(line)
	if at := responseID(line); !at.empty() {
		c := w.pending.answered(at.of(line))
		if c != nil && c.cancelled {
			return n, nil
		}
		line = finished(line, at, c)
	}
	if err := w.write(line); err != nil {
		return 0, err
	}
	return n, nil
}

// finished is an answer as the client gets it: with the error that it carries, and
// with the id of the call that it answers.
func finished(line []byte, at span, c *call) []byte {
	switch line = reworded(restored(line, at), at); {
	case len(line) > maxAnswer:
		return tooLong(line, at, c)
	case c != nil && !bytes.Equal(c.id, at.of(line)):
		return slices.Concat(line[:at.start], c.id, line[at.end:])
	}
	return line
}

// tooLong is what is answered instead of a line that is too long.
func tooLong(line []byte, at span, c *call) []byte {
	e := errorAnswer{
		Code: engine.CodeTooLarge, Message: fmt.Sprintf("The answer has %d bytes; at most %d are sent in one message.", len(line), maxAnswer),
		Hint: "Ask for fewer entries at a time, with limit.",
	}
	id := at.of(line)
	if c != nil {
		id = c.id
	}
	var part any = rpcError{Code: codeInternal, Message: e.Message + " " + e.Hint, Data: rpcData{Code: string(e.Code), Message: e.Message, Hint: e.Hint}}
	key := "error"
	if c != nil && c.tool {
		result, err := answer{line: fmt.Sprintf("ERROR %s: %s %s", e.Code, e.Message, e.Hint), content: errorContent{Error: e}, refused: true}.result()
		if err == nil {
			result.ResultType = mcp.ResultTypeComplete // which older clients do not look at
			key, part = "result", result
		}
	}
	return slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"`+key+`":`), encode(part), []byte("}\n"))
}

func (w *lineWriter) write(line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure() != nil {
		return w.err
	}
	if _, err := w.out.Write(line); err != nil {
		w.err = err
		close(w.broken)
	}
	return w.err
}

// failure is why nothing can be written any more, nil while all is well.
func (w *lineWriter) failure() error {
	select {
	case <-w.broken:
		return w.err
	default:
		return nil
	}
}

// refuse answers a message that was not passed on. A client that is gone is
// noticed by whoever waits for broken.
func (w *lineWriter) refuse(id json.RawMessage, f *fault) {
	if line := f.line(id); line != nil {
		_ = w.write(append(line, '\n')) // kept as w.err
	}
}

// line is the answer to a message that was not passed on.
func (f *fault) line(id json.RawMessage) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	line, err := json.Marshal(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   rpcError        `json:"error"`
	}{"2.0", id, rpcError{Code: f.code, Message: f.message + " " + f.hint, Data: rpcData{Code: f.name, Message: f.message, Hint: f.hint}}})
	if err != nil {
		return nil
	}
	return line
}

// rpcError is a JSON-RPC error with what a program needs. As an error it carries
// itself through the protocol library, which has one code for every handler's
// error: restored takes it out again.
type rpcError struct {
	Code    int     `json:"code"`
	Message string  `json:"message"`
	Data    rpcData `json:"data"`
}

// rpcData is what the tools' errors have too.
type rpcData struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// carried marks the text of an rpcError.
const carried = "gavel.error:"

// Error is for the writer to find; it never reaches the client.
func (e rpcError) Error() string {
	doc, err := json.Marshal(e)
	if err != nil {
		return e.Message
	}
	return carried + string(doc)
}

var errorStart = []byte(`,"error":{"code":`)

// restored puts an rpcError back into the answer that carries it; every other
// line stays as it is.
func restored(line []byte, id span) []byte {
	if !bytes.HasPrefix(line[id.end:], errorStart) || !bytes.Contains(line, []byte(carried)) {
		return line
	}
	var m struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(line, &m) != nil {
		return line
	}
	_, text, ok := strings.Cut(m.Error.Message, carried) // the library may have put words before it
	doc := []byte(text)
	if !ok || !json.Valid(doc) {
		return line
	}
	return slices.Concat(line[:id.end], []byte(`,"error":`), doc, []byte("}\n"))
}

// unparsable begins what the library says of params that it cannot decode.
var (
	unparsable = []byte(`"message":"unparsable `)
	wrongType  = regexp.MustCompile(`cannot unmarshal ([a-z]+) into Go (?:struct field [A-Za-z.]*?\.(params[A-Za-z_.]*) )?`)
)

// reworded says in the protocol's words what the library says in Go's; every other line
// stays as it is.
func reworded(line []byte, id span) []byte {
	if !bytes.HasPrefix(line[id.end:], errorStart) || !bytes.Contains(line, unparsable) {
		return line
	}
	f := &fault{codeInvalidParams, "invalid_request", "The params of the request are not what its method takes.", "Look at the method in the specification of the Model Context Protocol."}
	if found := wrongType.FindSubmatch(line); found != nil && len(found[2]) > 0 {
		kind := string(found[1])
		if kind == "bool" {
			kind = "boolean"
		}
		f.message = fmt.Sprintf("The member %s of the request must not be of the type %s.", found[2], kind)
	}
	return append(f.line(id.of(line)), '\n')
}

var responseStart = []byte(`{"jsonrpc":"2.0","id":`)

// responseID is where the id of a response stands, as mcp-go writes it; empty for
// anything else.
func responseID(line []byte) span {
	if !bytes.HasPrefix(line, responseStart) {
		return span{}
	}
	at := span{len(responseStart), skipValue(line, len(responseStart))}
	if bytes.HasPrefix(line[at.end:], []byte(`,"method":`)) || string(at.of(line)) == "null" {
		return span{}
	}
	return at
}
