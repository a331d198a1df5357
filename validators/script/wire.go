package script

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// This file is the protocol between Pool and worker, exported for the package
// worker alone. Each message is one frame: its length as 4 bytes, little endian,
// then that many bytes: a line of JSON, and behind it documents as they came. Both ends take the other
// for hostile: every length is checked before it is used, and a message must be used up to its
// last byte.

// The names of worker processes are their argument zero: how worker.Main recognises that it
// was started to serve, and what a process list shows. A worker that runs scripts and schemas
// is never asked to read documents, so that its program can leave the reader out of its start.
const (
	WorkerName  = "gavel-script-worker" // runs scripts and schemas
	CheckerName = "gavel-check-worker"  // checks what is registered, and reads documents
)

// IsWorker reports whether a program with these arguments was started as a worker.
func IsWorker(args []string) bool {
	return len(args) > 0 && (args[0] == WorkerName || args[0] == CheckerName)
}

// Version of the protocol. Both ends must agree, since Config.WorkerPath may name another build.
const Version = 4

// MaxReplyFrame bounds what the host reads from a worker: the violations of a
// schema, in full length and of the six bytes that JSON may need for a unit.
const MaxReplyFrame = 256 << 10

// maxHello bounds the frames exchanged at start.
const maxHello = 8 << 10

// errFrame reports bytes that are not a frame, or a frame that is not the message expected.
var errFrame = errors.New("malformed frame")

// Op says what a Request wants done.
type Op byte

// What a worker can do.
const (
	OpRun   Op = 1 // evaluate on the input
	OpCheck Op = 2 // compile, and call once with empty input
)

// Setup is the first message to a worker: its limits.
type Setup struct {
	Version      int           `json:"version"`
	Soft         time.Duration `json:"soft"`
	Hard         time.Duration `json:"hard"`
	Read         time.Duration `json:"read"`
	ScriptMemory int64         `json:"scriptMemory"`
	WorkerMemory int64         `json:"workerMemory"`
	MaxRequest   int           `json:"maxRequest"`
}

// Hello is a worker's first message: it is ready.
type Hello struct {
	Version int  `json:"version"`
	Ready   bool `json:"ready"` // which an echo of Setup does not say
	// Reads says that it answers OpRead.
	Reads bool `json:"reads,omitempty"`
	// Unhardened names the protections that could not be applied.
	Unhardened []string `json:"unhardened,omitempty"`
}

// Source is a script as it travels: where it stands is the host's business.
type Source struct {
	Kind Kind
	Text string
}

// Request asks a worker for the outcome of each script, in order.
type Request struct {
	ID   uint32
	Op   Op
	Now  int64 // the clock that scripts see, in nanoseconds since 1970 UTC
	Seed int64
	// Of Sources, a Schema may be the first, behind which the worker stops unless it passes.
	// The Conditions of one route list end before Routes, 0 for none: the worker
	// stops behind them unless one is true, and at the first fault.
	Routes  int
	Sources []Source
	// Console has what scripts write to console come back with their outcomes.
	Console bool `json:",omitempty"`
	// Data, Context and Evidence are JSON objects; empty is {}. So is Call; empty is none. A Schema
	// applies to Document, which is any JSON document; empty is {}. They travel behind the line of
	// JSON, as they are.
	Data, Context, Evidence, Call, Document []byte `json:"-"`
	Sizes                                   [5]int // of these, in bytes
}

// Outcome is what a worker found out about one script. It is sent as soon as it
// is known, so that the host knows which script ran when a worker dies.
type Outcome struct {
	ID    uint32
	Index int // of the script in Request.Sources
	// Last says that no outcome follows for this request.
	Last bool
	// Leaving says that the worker exits after this message, whatever is left.
	Leaving bool
	// Late says of a Timeout that the machine did not let the script run: it used
	// much less processor time than its limit.
	Late bool
	Result
	// Objections are a schema's Violations.
	Objections []Violation
	// Line and Column say where a BadSource is wrong, 0 when unknown.
	Line, Column int
}

// BadInput is the code of an Outcome that refuses the input, which is not a JSON object. It
// is on the wire only.
const BadInput Code = "bad_input"

// codes are those that may travel.
var codes = []Code{OK, Threw, BadResult, BadSource, Timeout, Memory, Internal, BadInput}

// ReadFrame reads one frame of at most limit bytes into buf, growing it as
// needed, and returns its content. io.EOF means that the other end closed
// between frames.
func ReadFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if uint64(n) > uint64(limit) { //nolint:gosec // a positive constant or setting
		return nil, fmt.Errorf("%w: %d bytes, more than %d", errFrame, n, limit)
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, fmt.Errorf("%w: cut short: %w", errFrame, err)
	}
	return buf, nil
}

// BeginFrame reserves the length at the start of an empty buffer; EndFrame fills it in.
func BeginFrame(buf []byte) []byte { return append(buf[:0], 0, 0, 0, 0) }

// EndFrame completes a frame begun with BeginFrame.
func EndFrame(buf []byte) []byte {
	binary.LittleEndian.PutUint32(buf, uint32(len(buf)-4)) //nolint:gosec // lengths are bounded by Config
	return buf
}

// appendHead appends what precedes the raw bytes of a message: one line of JSON.
func appendHead(b []byte, head any) []byte {
	line, err := json.Marshal(head)
	if err != nil {
		return b // of a number that is none; the other end refuses the empty line
	}
	return append(append(b, line...), '\n')
}

// decodeHead reads the line of a message into head and returns the raw bytes behind it.
func decodeHead(content []byte, head any) (rest []byte, err error) {
	line, rest, _ := bytes.Cut(content, []byte("\n"))
	if err := json.Unmarshal(line, head); err != nil {
		return nil, fmt.Errorf("%w: %s", errFrame, Clean(err.Error(), MaxNote)) // it quotes numbers, whatever their length
	}
	return rest, nil
}

// AppendTo appends the request to a frame.
func (q *Request) AppendTo(b []byte) []byte {
	q.Sizes = [5]int{len(q.Data), len(q.Context), len(q.Evidence), len(q.Call), len(q.Document)}
	b = appendHead(b, q)
	return append(append(append(append(append(b, q.Data...), q.Context...), q.Evidence...), q.Call...), q.Document...)
}

// Decode fills the request from a frame's content. The documents alias it.
func (q *Request) Decode(content []byte) error {
	*q = Request{}
	rest, err := decodeHead(content, q)
	if err != nil {
		return err
	}
	for i, part := range [...]*[]byte{&q.Data, &q.Context, &q.Evidence, &q.Call, &q.Document} {
		n := q.Sizes[i]
		if n < 0 || n > len(rest) {
			return fmt.Errorf("%w: a request that is cut short", errFrame)
		}
		*part, rest = rest[:n:n], rest[n:]
	}
	if len(rest) > 0 || q.Op != OpRun && q.Op != OpCheck && q.Op != OpRead || q.Routes < 0 || q.Routes > len(q.Sources) {
		return fmt.Errorf("%w: not a request", errFrame)
	}
	return nil
}

// AppendTo appends the outcome to a frame.
func (o *Outcome) AppendTo(b []byte) []byte { return appendHead(b, o) }

// Decode fills the outcome from a frame's content, and holds it to the contract
// of a Result whoever wrote it: the bounds, clean text, and no verdict beside a
// code other than OK.
func (o *Outcome) Decode(content []byte) error {
	*o = Outcome{}
	rest, err := decodeHead(content, o)
	if err != nil {
		return err
	}
	if len(rest) > 0 || !slices.Contains(codes, o.Code) || o.Index < 0 || o.Line < 0 || o.Column < 0 || o.Confidence < 0 || o.Confidence > 1 ||
		max(len(o.Violations), len(o.Suggestions), len(o.Console)) > MaxNotes || len(o.Objections) > maxViolations {
		return fmt.Errorf("%w: not an outcome", errFrame)
	}
	o.Name, o.Detail = "", Clean(o.Detail, maxMessage)
	o.Late = o.Late && o.Code == Timeout
	for i := range o.Console {
		o.Console[i] = Clean(o.Console[i], MaxNote)
	}
	if o.Code != OK {
		o.Result = Result{Code: o.Code, Detail: o.Detail, Console: o.Console}
		o.Objections = nil
		return nil
	}
	o.Reason = Clean(o.Reason, MaxReason)
	for _, notes := range [...][]string{o.Violations, o.Suggestions} {
		for i := range notes {
			notes[i] = Clean(notes[i], MaxNote)
		}
	}
	for i, v := range o.Objections {
		o.Objections[i] = ClipViolation(v)
	}
	return nil
}

// ClipViolation cuts and cleans the strings of a violation to what may travel.
func ClipViolation(v Violation) Violation {
	return Violation{
		Path: Clean(v.Path, MaxNote), Keyword: Clean(v.Keyword, 64), SchemaPath: Clean(v.SchemaPath, MaxNote),
		Message: Clean(v.Message, maxMessage), Hint: Clean(v.Hint, MaxNote),
	}
}
