package script

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/validators/document"
)

// Case is one row of a table test of validators, in the format of `gavel script test`.
type Case struct {
	Name  string `json:"name"`
	Class string `json:"class,omitempty"`
	Note  string `json:"note,omitempty"`
	// Kind is "validator" if empty.
	Kind Kind `json:"kind,omitempty"`
	// The source is Source, the concatenated Parts, or the content of File. For the kind "schema" it can also
	// be the JSON of Schema.
	Source string          `json:"source,omitempty"`
	Parts  []Part          `json:"parts,omitempty"`
	File   string          `json:"file,omitempty"`
	Schema json.RawMessage `json:"schema,omitempty"`
	// Data, Context and Evidence are JSON objects, {} if absent. A schema is applied to Data.
	Data     json.RawMessage `json:"data,omitempty"`
	Context  json.RawMessage `json:"context,omitempty"`
	Evidence json.RawMessage `json:"evidence,omitempty"`
	// Call is {"tool", "arguments"}, or undefined if absent.
	Call json.RawMessage `json:"call,omitempty"`
	// Must lists the allowed endings, separated by "|". It is "ok" if empty. The endings are:
	//
	//   - ok: the script returned a verdict
	//   - reject: the source was rejected
	//   - error: the script threw, returned something else, or used too much memory
	//   - timeout: the script ran out of time
	Must string `json:"must,omitempty"`
	// Expect is the required verdict if the case ends "ok".
	Expect *Expectation `json:"expect,omitempty"`
	// Then is a validator that must return a valid verdict on the same input immediately afterwards, which
	// shows that the first script changed nothing.
	Then string `json:"then,omitempty"`
}

// Part is a text and how often it is repeated; in JSON, a list of both.
type Part struct {
	Text  string
	Count int
}

// maxParts limits the total length of a case's parts, in bytes.
const maxParts = 256 << 20

// UnmarshalJSON reads a list such as ["text", 3].
func (p *Part) UnmarshalJSON(raw []byte) error {
	pair := [2]any{&p.Text, &p.Count}
	list := pair[:]
	if err := json.Unmarshal(raw, &list); err != nil || len(list) != 2 {
		return fmt.Errorf(`a part is ["text", count], not %s`, Clean(string(raw), 80))
	}
	if p.Count < 0 || p.Count > maxParts || len(p.Text)*p.Count > maxParts {
		return fmt.Errorf("a part of %d times %d bytes is more than %d MiB", p.Count, len(p.Text), maxParts>>20)
	}
	return nil
}

// MarshalJSON writes a list such as ["text", 3].
func (p Part) MarshalJSON() ([]byte, error) { return json.Marshal([2]any{p.Text, p.Count}) }

// Expectation is the verdict that a case requires.
type Expectation struct {
	Valid      *bool    `json:"valid,omitempty"`
	Confidence *float64 `json:"confidence,omitempty"`
	Reason     *string  `json:"reason,omitempty"`
}

// CaseReport describes how a case ended.
type CaseReport struct {
	Name  string `json:"name"`
	Class string `json:"class,omitempty"`
	Must  string `json:"must"`
	Got   string `json:"got"` // ok, reject, error or timeout
	Pass  bool   `json:"pass"`
	// Miss describes the mismatch; it is "" if Pass is true.
	Miss   string                `json:"miss,omitempty"`
	Result Result                `json:"result"`
	Took   document.Milliseconds `json:"tookMs"`
}

// CaseSummary is the summary of a table test.
type CaseSummary struct {
	Passed int                   `json:"passed"`
	Failed int                   `json:"failed"`
	Took   document.Milliseconds `json:"tookMs"`
	// PeakMemory is the largest resident size of any worker in bytes, or 0 if the platform does not report it.
	PeakMemory int64 `json:"peakMemory"`
}

// ReadCases reads a JSON list of cases. Unknown fields are errors. open returns the content of a case's File;
// if open is nil, cases with a File are errors.
func ReadCases(raw []byte, open func(name string) ([]byte, error)) ([]Case, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var cases []Case
	if err := d.Decode(&cases); err != nil {
		return nil, fmt.Errorf("read cases: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("read cases: text after the list")
	}
	for i := range cases {
		if err := cases[i].checkAndLoad(open); err != nil {
			return nil, fmt.Errorf("case %d (%s): %w", i+1, Clean(cases[i].Name, 80), err)
		}
	}
	return cases, nil
}

var endings = []string{"ok", "reject", "error", "timeout"}

// checkAndLoad checks a case and loads its source.
func (c *Case) checkAndLoad(open func(string) ([]byte, error)) error {
	c.Must = cmp.Or(c.Must, "ok")
	for ending := range strings.SplitSeq(c.Must, "|") {
		if !slices.Contains(endings, ending) {
			return fmt.Errorf("must is %q; use %s", ending, strings.Join(endings, ", "))
		}
	}
	if len(c.Schema) > 0 {
		c.Kind, c.Source = Schema, string(c.Schema)
	}
	c.Kind = cmp.Or(c.Kind, Validator)
	total := 0
	for _, part := range c.Parts {
		if total += len(part.Text) * part.Count; total > maxParts {
			return fmt.Errorf("its parts are more than %d MiB", maxParts>>20)
		}
	}
	switch {
	case c.File == "":
	case c.Source != "" || len(c.Parts) > 0:
		return errors.New("it has a file as well as source or parts; keep one of them")
	case open == nil:
		return fmt.Errorf("its file %q cannot be read here", c.File)
	default:
		text, err := open(c.File)
		if err != nil {
			return err
		}
		c.Source = string(text)
	}
	return nil
}

// Text returns the case's source.
func (c *Case) Text() string {
	if len(c.Parts) == 0 {
		return c.Source
	}
	var b strings.Builder
	for _, part := range c.Parts {
		b.WriteString(strings.Repeat(part.Text, part.Count))
	}
	return b.String()
}

// RunCases runs the cases in sequence, each with its own owner. It calls each, unless nil, with every
// report. The error is a failure of the sandbox itself, or ctx's; a failing case is only reported.
func (p *Pool) RunCases(ctx context.Context, cases []Case, each func(CaseReport)) (CaseSummary, error) {
	began := time.Now()
	var sum CaseSummary
	for i := range cases {
		report, err := p.runCase(ctx, &cases[i], fmt.Sprintf("case %d", i+1))
		if err != nil {
			return sum, fmt.Errorf("case %d (%s): %w", i+1, Clean(cases[i].Name, 80), err)
		}
		if report.Pass {
			sum.Passed++
		} else {
			sum.Failed++
		}
		if each != nil {
			each(report)
		}
	}
	sum.Took, sum.PeakMemory = document.Milliseconds(time.Since(began)), p.Stats().PeakMemory
	return sum, nil
}

func (p *Pool) runCase(ctx context.Context, c *Case, owner string) (CaseReport, error) {
	report := CaseReport{Name: c.Name, Class: c.Class, Must: c.Must}
	s := Script{Name: c.Name, Kind: c.Kind, Source: c.Text()} // assembling 50 MB must not count as sandbox time
	began := time.Now()
	r, err := p.runOne(ctx, c, owner, s)
	report.Took = document.Milliseconds(time.Since(began))
	if err != nil {
		return report, err
	}
	report.Result, report.Got = r, classifyEnding(r.Code)
	report.Miss = c.findMismatch(r)
	if c.Then != "" && report.Miss == "" {
		after, err := p.runOne(ctx, c, owner, Script{Name: c.Name + ", then", Kind: Validator, Source: c.Then})
		if err != nil {
			return report, err
		}
		if after.Code != OK || !after.Valid {
			report.Miss = fmt.Sprintf("the validator run after it ended %s, valid %t: %s%s", after.Code, after.Valid, after.Reason, after.Detail)
		}
	}
	report.Pass = report.Miss == ""
	return report, nil
}

// runOne evaluates one script: a condition as the only route, a schema on the data.
func (p *Pool) runOne(ctx context.Context, c *Case, owner string, s Script) (Result, error) {
	b := Batch{Caller: owner, Owner: Owner{ID: owner}, Now: time.Unix(1_700_000_000, 0), Data: c.Data, Context: c.Context, Evidence: c.Evidence, Call: c.Call}
	if s.Kind == Schema {
		b.Schema, b.Document = &s, c.Data
		reply, err := p.Run(ctx, b)
		return Result{Name: s.Name, Code: reply.Schema.Code, Valid: reply.Schema.Passes(), Confidence: 1, Detail: reply.Schema.Detail}, err
	}
	if s.Kind != Condition {
		b.Validators = []Script{s}
		reply, err := p.Run(ctx, b)
		if err != nil {
			return Result{}, err
		}
		return reply.Results[0], nil
	}
	b.Routes = []Script{s}
	reply, err := p.Run(ctx, b)
	switch {
	case err != nil:
		return Result{}, err
	case reply.RouteFault != nil:
		return *reply.RouteFault, nil
	}
	return Result{Name: s.Name, Code: OK, Valid: reply.Route == 0, Confidence: 1}, nil
}

// classifyEnding returns the ending, as in Case.Must, for a code.
func classifyEnding(c Code) string {
	switch c {
	case OK:
		return "ok"
	case BadSource:
		return "reject"
	case Timeout:
		return "timeout"
	}
	return "error"
}

// findMismatch describes how a result differs from the requirements, or returns "".
func (c *Case) findMismatch(r Result) string {
	got := classifyEnding(r.Code)
	if !slices.Contains(strings.Split(c.Must, "|"), got) {
		return fmt.Sprintf("it ended %s (%s: %s), must be %s", got, r.Code, r.Detail, c.Must)
	}
	e := c.Expect
	if e == nil || got != "ok" {
		return ""
	}
	switch {
	case e.Valid != nil && *e.Valid != r.Valid:
		return fmt.Sprintf("valid is %t, expected %t", r.Valid, *e.Valid)
	case e.Confidence != nil && math.Abs(*e.Confidence-r.Confidence) > 1e-9:
		return fmt.Sprintf("confidence is %v, expected %v", r.Confidence, *e.Confidence)
	case e.Reason != nil && *e.Reason != r.Reason:
		return fmt.Sprintf("reason is %q, expected %q", r.Reason, *e.Reason)
	}
	return ""
}
