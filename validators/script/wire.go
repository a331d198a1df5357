package script

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// This file is the protocol between Pool and worker, exported for the package
// worker alone. Each message is one frame: its length as 4 bytes, little endian,
// then that many bytes. Both ends take the other for hostile: every length is
// checked before it is used, and a message must be used up to its last byte.

// WorkerName is argument zero of a worker process; it is how worker.Main
// recognises that it was started to serve, and what a process list shows.
const WorkerName = "gavel-script-worker"

// Version of the protocol. Both ends must agree, since Config.WorkerPath may name another build.
const Version = 1

// MaxReplyFrame bounds what the host reads from a worker: the violations of a
// schema, in full length and of three bytes a unit, with room to spare.
const MaxReplyFrame = 128 << 10

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
	// The first Routes of Sources are Conditions of one route list: the worker
	// stops behind them unless one is true, and at the first fault.
	Routes  int
	Sources []Source
	// Data, Context and Evidence are JSON objects; empty is {}. A Schema applies
	// to Data, which then is any JSON document.
	Data, Context, Evidence []byte
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
	Code    Code
	Valid   bool
	// Late says of a Timeout that the machine did not let the script run: it used
	// much less processor time than its limit.
	Late bool
	// Confidence, Reason, Violations, Suggestions and Detail are those of Result.
	Confidence  float64
	Reason      string
	Violations  []string
	Suggestions []string
	Detail      string
	// Objections are a schema's Violations.
	Objections []Violation
	// Line and Column say where a BadSource is wrong, 0 when unknown.
	Line, Column int
}

// codeBadInput is on the wire only: the input is not a JSON object.
const codeBadInput Code = "bad_input"

// BadInput is the code of an Outcome that refuses the input, not the script.
const BadInput = codeBadInput

// codes is the one-byte form of every Code that may travel.
var codes = [...]Code{OK, Threw, BadResult, BadSource, Timeout, Memory, Internal, codeBadInput}

// kinds is the one-byte form of every Kind.
var kinds = [...]Kind{Validator, Condition, Schema}

func encodeKind(k Kind) byte {
	for i, known := range kinds {
		if k == known {
			return byte(i)
		}
	}
	return byte(len(kinds)) // refused by the other end
}

func encodeCode(c Code) byte {
	for i, known := range codes {
		if c == known {
			return byte(i)
		}
	}
	return byte(len(codes) - 2) // Internal: an unknown code never reads as OK
}

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

// AppendTo appends the request to a frame.
func (q *Request) AppendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, q.ID)
	b = append(b, byte(q.Op))
	b = binary.AppendVarint(b, q.Now)
	b = binary.AppendVarint(b, q.Seed)
	b = binary.AppendUvarint(b, uint64(q.Routes)) //nolint:gosec // a count
	b = binary.AppendUvarint(b, uint64(len(q.Sources)))
	for _, s := range q.Sources {
		b = append(b, encodeKind(s.Kind))
		b = appendText(b, s.Text)
	}
	b = appendText(b, q.Data)
	b = appendText(b, q.Context)
	return appendText(b, q.Evidence)
}

// Decode fills the request from a frame's content. Data, Context and Evidence alias it.
func (q *Request) Decode(content []byte) error {
	d := decoder{rest: content}
	q.ID = d.readUint32()
	q.Op = Op(d.readByte())
	q.Now = d.readVarint()
	q.Seed = d.readVarint()
	q.Routes = d.readCount(1 << 16)
	n := d.readCount(1 << 16)
	q.Sources = q.Sources[:0]
	for range n {
		kind := d.readByte()
		text := d.readBytes()
		if d.bad = d.bad || int(kind) >= len(kinds); d.bad {
			break
		}
		q.Sources = append(q.Sources, Source{Kind: kinds[kind], Text: string(text)})
	}
	q.Data, q.Context, q.Evidence = d.readBytes(), d.readBytes(), d.readBytes()
	if q.Op != OpRun && q.Op != OpCheck && q.Op != OpRead || q.Routes > len(q.Sources) {
		d.bad = true
	}
	return d.checkEnd("request")
}

// AppendTo appends the outcome to a frame.
func (o *Outcome) AppendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, o.ID)
	b = binary.AppendUvarint(b, uint64(o.Index)) //nolint:gosec // an index
	b = append(b, packFlags(o.Last, o.Leaving, o.Valid, o.Late), encodeCode(o.Code))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(o.Confidence))
	b = appendText(b, o.Reason)
	b = appendTexts(b, o.Violations)
	b = appendTexts(b, o.Suggestions)
	b = appendText(b, o.Detail)
	b = binary.AppendUvarint(b, uint64(len(o.Objections)))
	for _, v := range o.Objections {
		for _, text := range [...]string{v.Path, v.Keyword, v.SchemaPath, v.Message, v.Hint} {
			b = appendText(b, text)
		}
	}
	b = binary.AppendUvarint(b, uint64(o.Line))      //nolint:gosec // a position
	return binary.AppendUvarint(b, uint64(o.Column)) //nolint:gosec // a position
}

// Decode fills the outcome from a frame's content, and holds it to the contract
// of a Result whoever wrote it: the bounds, clean text, and no verdict beside a
// code other than OK.
func (o *Outcome) Decode(content []byte) error {
	d := decoder{rest: content}
	o.ID = d.readUint32()
	o.Index = d.readCount(1 << 16)
	bits := d.readByte()
	o.Last, o.Leaving, o.Valid, o.Late = bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0
	code := d.readByte()
	o.Confidence = math.Float64frombits(d.readUint64())
	o.Reason = Clean(string(d.readBytes()), MaxReason)
	o.Violations = d.readTexts()
	o.Suggestions = d.readTexts()
	o.Detail = Clean(string(d.readBytes()), maxMessage)
	o.Objections = d.readViolations()
	o.Line, o.Column = d.readCount(math.MaxInt32), d.readCount(math.MaxInt32)
	if bits > 15 || int(code) >= len(codes) || !(o.Confidence >= 0 && o.Confidence <= 1) { // NaN is refused too
		d.bad = true
	}
	if err := d.checkEnd("outcome"); err != nil {
		return err
	}
	o.Code = codes[code]
	o.Late = o.Late && o.Code == Timeout
	if o.Code != OK {
		o.Valid, o.Confidence, o.Reason, o.Violations, o.Suggestions = false, 0, "", nil, nil
		o.Objections = nil
	}
	return nil
}

func packFlags(bits ...bool) (b byte) {
	for i, set := range bits {
		if set {
			b |= 1 << i
		}
	}
	return b
}

func appendText[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendTexts(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

// decoder takes fields off the front of a message; after the first that does not
// fit it is bad and yields zeros.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) takeBytes(n int) []byte {
	if d.bad || n > len(d.rest) {
		d.bad = true
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) readByte() byte {
	if b := d.takeBytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) readUint32() uint32 {
	if b := d.takeBytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) readUint64() uint64 {
	if b := d.takeBytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) readVarint() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.bad = true
		return 0
	}
	d.takeBytes(n)
	return v
}

// readCount reads a number of at most limit.
func (d *decoder) readCount(limit uint64) int {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > limit {
		d.bad = true
		return 0
	}
	d.takeBytes(n)
	return int(v) //nolint:gosec // at most limit
}

func (d *decoder) readBytes() []byte {
	return d.takeBytes(d.readCount(math.MaxInt32))
}

func (d *decoder) readTexts() []string {
	n := d.readCount(MaxNotes)
	if n == 0 || d.bad {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, Clean(string(d.readBytes()), MaxNote))
	}
	return list
}

func (d *decoder) readViolations() []Violation {
	n := d.readCount(maxViolations)
	if n == 0 || d.bad {
		return nil
	}
	list := make([]Violation, n)
	for i := range list {
		list[i] = ClipViolation(Violation{
			Path: string(d.readBytes()), Keyword: string(d.readBytes()), SchemaPath: string(d.readBytes()),
			Message: string(d.readBytes()), Hint: string(d.readBytes()),
		})
	}
	return list
}

// ClipViolation cuts and cleans the strings of a violation to what may travel.
func ClipViolation(v Violation) Violation {
	return Violation{
		Path: Clean(v.Path, MaxNote), Keyword: Clean(v.Keyword, 64), SchemaPath: Clean(v.SchemaPath, MaxNote),
		Message: Clean(v.Message, maxMessage), Hint: Clean(v.Hint, MaxNote),
	}
}

func (d *decoder) checkEnd(what string) error {
	if d.bad || len(d.rest) != 0 {
		return fmt.Errorf("%w: not a %s", errFrame, what)
	}
	return nil
}
