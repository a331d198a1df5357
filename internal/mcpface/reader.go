package mcpface

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// lineReader passes on the lines that are sound requests and answers the others
// itself.
type lineReader struct {
	in      *bufio.Reader
	max     int
	feed    io.Writer
	answers *lineWriter
	pending *pending
	asks    *asker
	ended   <-chan struct{} // closed when the server stops
	tools   catalog
	role    engine.Role // of the client
}

// run reads until the end of in. A last line without a newline counts.
func (r *lineReader) run() error {
	for {
		l, err := r.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read from the client: %w", err)
		}
		if l.tooLong > 0 {
			r.answers.refuse(edgeID(l.text, l.tail), r.tooLarge(l.tooLong))
		} else if line := bytes.Trim(l.text, " \t\r\n"); len(line) > 0 {
			if werr := r.pass(line); werr != nil {
				return nil //nolint:nilerr // the server is ending and reads no more
			}
		}
		if err != nil {
			return nil
		}
	}
}

// edge is how much is kept of either end of a line that is too long.
const edge = 1 << 10

// rawLine is one line; of one that is too long only its ends, and its length.
type rawLine struct {
	text, tail []byte
	tooLong    int
}

func (r *lineReader) next() (rawLine, error) {
	var l rawLine
	for {
		part, err := r.in.ReadSlice('\n')
		switch {
		case l.tooLong > 0:
			l.tooLong += len(part)
			l.tail = append(l.tail, part...)
		case len(l.text)+len(part) > r.max+1:
			whole := append(l.text, part...)
			l = rawLine{text: bytes.Clone(whole[:min(edge, len(whole))]), tail: whole, tooLong: len(whole)}
		default:
			l.text = append(l.text, part...)
		}
		l.tail = l.tail[max(0, len(l.tail)-edge):]
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l, err
		}
	}
}

// pass answers one line itself or passes it on.
func (r *lineReader) pass(line []byte) error {
	m, bad := examine(line)
	switch {
	case bad != nil:
		r.answers.refuse(m.id, bad)
		return nil
	case m.response:
		r.asks.answered(m)
		return nil
	case m.method == methodCancelled:
		return r.passCancel(m)
	case m.id == nil:
		return r.write(line)
	}
	if f := r.tools.unknown(m, r.role); f != nil {
		r.answers.refuse(m.id, f)
		return nil
	}
	passed := standIn(m.id)
	if m.method == methodListen && !bytes.Equal(passed, m.id) {
		r.answers.refuse(m.id, badStreamID())
		return nil
	}
	c, err := r.pending.add(passed, m)
	if err != nil {
		r.answers.refuse(m.id, r.notNow(err))
		return nil
	}
	if err := r.write(slices.Concat(line[:m.idAt.start], passed, line[m.idAt.end:])); err != nil {
		return err
	}
	if m.method == methodInitialize { // what follows must find it done, and each request runs on its own
		select {
		case <-c.done:
		case <-r.ended:
		}
	}
	return nil
}

// badStreamID refuses an id that names a subscription and would not survive.
func badStreamID() *fault {
	return invalid("The id names the subscription in every notification, and a 64-bit float would change it.", "Send a string, or a smaller integer.")
}

// passCancel marks the request before the server hears of it: from then on its
// answer is not written.
func (r *lineReader) passCancel(m message) error {
	if m.cancels == nil || checkID(m.cancels) != nil {
		return nil // no request has such an id
	}
	passed := standIn(m.cancels)
	r.pending.cancel(passed)
	return r.write(cancelLine(passed))
}

// cancelLine is notifications/cancelled for a request that was passed on.
func cancelLine(passed json.RawMessage) []byte {
	return []byte(`{"jsonrpc":"2.0","method":"` + methodCancelled + `","params":{"requestId":` + string(passed) + `}}`)
}

// write passes a line on. White space may hold line ends within JSON.
func (r *lineReader) write(line []byte) error {
	out := make([]byte, 0, len(line)+1)
	out = append(out, line...)
	for i, c := range out {
		if c == '\r' || c == '\n' {
			out[i] = ' '
		}
	}
	_, err := r.feed.Write(append(out, '\n'))
	return err
}

func (r *lineReader) tooLarge(n int) *fault {
	return &fault{
		codeInvalidRequest, "too_large", fmt.Sprintf("The message has %d bytes; at most %d are taken in one line.", n, r.max),
		"Send less; keep large content elsewhere and refer to it.",
	}
}

func (r *lineReader) notNow(err error) *fault {
	switch {
	case errors.Is(err, errSameID):
		return invalid("A request with this id is being answered.", "Give every request its own id.")
	case errors.Is(err, errBusy):
		return &fault{codeNotNow, "busy", fmt.Sprintf("%d requests are waiting already.", r.pending.max), "Wait for answers before sending more."}
	default:
		return &fault{codeNotNow, "unavailable", "The server is ending.", "Start it again and send the request anew."}
	}
}

// unknown is the one trouble with a tool that the protocol answers with an error of
// its own. The role's tools are named.
func (c catalog) unknown(m message, role engine.Role) *fault {
	if m.method != methodCallTool || m.tool == "" || c.has(m.tool) {
		return nil
	}
	names := c.listed(role)
	if strings.Contains(m.tool, "_") && !strings.Contains(m.tool, ".") { // the style that the client was told
		for i, name := range names {
			names[i] = underscored(name)
		}
	}
	message := fmt.Sprintf("There is no tool %s.", clipped(m.tool))
	if near := document.Suggest(m.tool, names); near != "" {
		message = fmt.Sprintf("There is no tool %s; did you mean %q?", clipped(m.tool), near)
	}
	return &fault{codeInvalidParams, "unknown_tool", message, "The tools: " + strings.Join(names, ", ") + "."}
}
