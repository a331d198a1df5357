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

// This file is the protocol between Pool and worker. It is exported only for package worker.
//
// Each message is one frame: its length as 4 bytes, little endian, then the content: a line of JSON followed
// by raw documents. Each end treats the other as hostile: lengths are checked before use, and a message must
// be consumed to its last byte.

// Names of worker processes. They are argument zero, which tells worker.Main that it was started as a
// worker, and they appear in process lists. A process named WorkerName never reads documents, so its
// program can skip the initialisation of the reader.
const (
	WorkerName  = "gavel-script-worker" // runs scripts and schemas
	CheckerName = "gavel-check-worker"  // checks registrations, and reads documents
)

// IsWorker reports whether a program with these arguments was started as a worker.
func IsWorker(args []string) bool {
	return len(args) > 0 && (args[0] == WorkerName || args[0] == CheckerName)
}

// Version is the version of the protocol. Both ends must agree, because Config.WorkerPath may be another
// build.
const Version = 4

// MaxReplyFrame limits one message from a worker, in bytes. It is large enough for a schema's violations at
// full length, even if JSON needs six bytes for each unit.
const MaxReplyFrame = 256 << 10

// maxHello limits the frames exchanged at start, in bytes.
const maxHello = 8 << 10

// errFrame reports bytes that are not a frame, or an unexpected message.
var errFrame = errors.New("malformed frame")

// Op is the operation of a Request.
type Op byte

// The operations; see also OpRead.
const (
	OpRun   Op = 1 // evaluate on the input
	OpCheck Op = 2 // compile, and call once with empty input
)

// Setup is the first message to a worker. It contains the limits.
type Setup struct {
	Version      int           `json:"version"`
	Soft         time.Duration `json:"soft"`
	Hard         time.Duration `json:"hard"`
	Read         time.Duration `json:"read"`
	ScriptMemory int64         `json:"scriptMemory"`
	WorkerMemory int64         `json:"workerMemory"`
	MaxRequest   int           `json:"maxRequest"`
}

// Hello is a worker's first message. It reports that the worker is ready.
type Hello struct {
	Version int  `json:"version"`
	Ready   bool `json:"ready"` // distinguishes Hello from an echo of Setup
	// Reads is true if the worker accepts OpRead.
	Reads bool `json:"reads,omitempty"`
	// Unhardened names the protections that could not be applied.
	Unhardened []string `json:"unhardened,omitempty"`
}

// Source is a script in a Request. Only the host knows its name.
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
	// Sources are an optional Schema, then the Conditions of one route list, then Validators. Routes is the
	// index after the last Condition, or 0 without Conditions. The worker stops if the schema does not pass,
	// if a Condition fails, or if no Condition is true.
	Routes  int
	Sources []Source
	// Console makes the worker return the scripts' console output with their outcomes.
	Console bool `json:",omitempty"`
	// Data, Context, Evidence and Call are JSON objects. If empty, the first three mean {}, and Call means
	// none. Document is the JSON document to which a Schema is applied; if empty, it means {}. All follow the
	// line of JSON as raw bytes.
	Data, Context, Evidence, Call, Document []byte `json:"-"`
	Sizes                                   [5]int // their lengths in bytes
}

// Outcome is a worker's result for one script. It is sent immediately, so that the host knows which script was
// running if a worker dies.
type Outcome struct {
	ID    uint32
	Index int // of the script in Request.Sources
	// Last reports that no outcome follows for this request.
	Last bool
	// Leaving reports that the worker exits after this message, even if scripts are left.
	Leaving bool
	// Late is true for a Timeout if the script used much less processor time than its limit, so that the
	// machine is the cause.
	Late bool
	Result
	// Objections are a schema's Violations.
	Objections []Violation
	// Line and Column are the position of the fault for BadSource, 0 when unknown.
	Line, Column int
}

// BadInput is the code of an Outcome for input that is not valid. It is used only in this protocol.
const BadInput Code = "bad_input"

// codes are the codes that an Outcome may have.
var codes = []Code{OK, Threw, BadResult, BadSource, Timeout, Memory, Internal, BadInput}

// ReadFrame reads one frame of at most limit bytes into buf, growing it as needed, and returns its content. It
// returns io.EOF if the other end closed between frames.
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

// BeginFrame reserves space for the length in an empty buffer; EndFrame fills it in.
func BeginFrame(buf []byte) []byte { return append(buf[:0], 0, 0, 0, 0) }

// EndFrame completes a frame that was started with BeginFrame.
func EndFrame(buf []byte) []byte {
	binary.LittleEndian.PutUint32(buf, uint32(len(buf)-4)) //nolint:gosec // lengths are bounded by Config
	return buf
}

// appendHead appends the first part of a message: one line of JSON.
func appendHead(b []byte, head any) []byte {
	line, err := json.Marshal(head)
	if err != nil {
		return b // caused by NaN or Inf; the other end rejects the empty line
	}
	return append(append(b, line...), '\n')
}

// decodeHead decodes the JSON line of a message into head and returns the raw bytes after it.
func decodeHead(content []byte, head any) (rest []byte, err error) {
	line, rest, _ := bytes.Cut(content, []byte("\n"))
	if err := json.Unmarshal(line, head); err != nil {
		return nil, fmt.Errorf("%w: %s", errFrame, Clean(err.Error(), MaxNote)) // the error quotes numbers, however long they are
	}
	return rest, nil
}

// AppendTo appends the request to a frame.
func (r *Request) AppendTo(b []byte) []byte {
	r.Sizes = [5]int{len(r.Data), len(r.Context), len(r.Evidence), len(r.Call), len(r.Document)}
	b = appendHead(b, r)
	return append(append(append(append(append(b, r.Data...), r.Context...), r.Evidence...), r.Call...), r.Document...)
}

// Decode fills the request from a frame's content. The documents alias it.
func (r *Request) Decode(content []byte) error {
	*r = Request{}
	rest, err := decodeHead(content, r)
	if err != nil {
		return err
	}
	for i, part := range [...]*[]byte{&r.Data, &r.Context, &r.Evidence, &r.Call, &r.Document} {
		n := r.Sizes[i]
		if n < 0 || n > len(rest) {
			return fmt.Errorf("%w: a request that is cut short", errFrame)
		}
		*part, rest = rest[:n:n], rest[n:]
	}
	if len(rest) > 0 || r.Op != OpRun && r.Op != OpCheck && r.Op != OpRead || r.Routes < 0 || r.Routes > len(r.Sources) {
		return fmt.Errorf("%w: not a request", errFrame)
	}
	return nil
}

// AppendTo appends the outcome to a frame.
func (o *Outcome) AppendTo(b []byte) []byte { return appendHead(b, o) }

// Decode fills the outcome from a frame's content. It enforces the contract of a Result, because the sender is
// not trusted: limits, clean text, and no verdict with a code other than OK.
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

// ClipViolation shortens and cleans the strings of a violation for the protocol.
func ClipViolation(v Violation) Violation {
	return Violation{
		Path: Clean(v.Path, MaxNote), Keyword: Clean(v.Keyword, 64), SchemaPath: Clean(v.SchemaPath, MaxNote),
		Message: Clean(v.Message, maxMessage), Hint: Clean(v.Hint, MaxNote),
	}
}
