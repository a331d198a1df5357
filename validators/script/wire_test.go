package script

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestReadFrame(t *testing.T) {
	frame := EndFrame(append(BeginFrame(nil), "hello"...))
	r := bytes.NewReader(append(frame, frame...))
	for range 2 {
		got, err := ReadFrame(r, nil, 5)
		if err != nil || string(got) != "hello" {
			t.Fatal(got, err)
		}
	}
	if _, err := ReadFrame(r, nil, 5); err != io.EOF { //nolint:errorlint // itself, by contract
		t.Errorf("at the end: %v", err)
	}
	if _, err := ReadFrame(bytes.NewReader(frame), nil, 4); !errors.Is(err, errFrame) {
		t.Errorf("too long: %v", err)
	}
	if _, err := ReadFrame(bytes.NewReader(frame[:7]), nil, 5); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut short: %v", err)
	}
	if _, err := ReadFrame(bytes.NewReader([]byte{255, 255, 255, 255, 1}), nil, 1<<20); !errors.Is(err, errFrame) {
		t.Errorf("4 GiB announced: %v", err)
	}
}

func text(limit int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string { return Clean(rapid.StringN(0, limit, -1).Draw(t, "text"), limit) })
}

func TestRequestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Request{
			ID: rapid.Uint32().Draw(t, "id"), Op: rapid.SampledFrom([]Op{OpRun, OpCheck}).Draw(t, "op"),
			Now: rapid.Int64().Draw(t, "now"), Seed: rapid.Int64().Draw(t, "seed"),
			Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data"), Context: rapid.SliceOf(rapid.Byte()).Draw(t, "context"),
			Evidence: rapid.SliceOf(rapid.Byte()).Draw(t, "evidence"), Call: rapid.SliceOf(rapid.Byte()).Draw(t, "call"), Document: rapid.SliceOf(rapid.Byte()).Draw(t, "document"),
		}
		for range rapid.IntRange(0, 4).Draw(t, "n") {
			q.Sources = append(q.Sources, Source{rapid.SampledFrom([]Kind{Validator, Condition, Schema}).Draw(t, "kind"), rapid.String().Draw(t, "source")})
		}
		q.Routes = rapid.IntRange(0, len(q.Sources)).Draw(t, "routes")
		var got Request
		if err := got.Decode(q.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		for _, part := range []*[]byte{&got.Data, &got.Context, &got.Evidence, &got.Call, &got.Document, &q.Data, &q.Context, &q.Evidence, &q.Call, &q.Document} {
			*part = append([]byte{}, *part...)
		}
		if len(q.Sources) == 0 {
			got.Sources = nil
		}
		if !reflect.DeepEqual(got, q) {
			t.Fatalf("sent %+v, got %+v", q, got)
		}
	})
}

func TestOutcomeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Outcome{
			ID: rapid.Uint32().Draw(t, "id"), Index: rapid.IntRange(0, 1000).Draw(t, "index"),
			Last: rapid.Bool().Draw(t, "last"), Leaving: rapid.Bool().Draw(t, "leaving"),
			Result: Result{Code: rapid.SampledFrom(codes).Draw(t, "code"), Detail: text(maxMessage).Draw(t, "detail")},
			Line:   rapid.IntRange(0, 1<<20).Draw(t, "line"), Column: rapid.IntRange(0, 1<<20).Draw(t, "column"),
		}
		o.Late = o.Code == Timeout && rapid.Bool().Draw(t, "late")
		if o.Code == OK {
			o.Valid = rapid.Bool().Draw(t, "valid")
			o.Confidence = rapid.Float64Range(0, 1).Draw(t, "confidence")
			o.Reason = text(MaxReason).Draw(t, "reason")
			for range rapid.IntRange(0, 3).Draw(t, "notes") {
				o.Violations = append(o.Violations, text(MaxNote).Draw(t, "violation"))
				o.Suggestions = append(o.Suggestions, text(MaxNote).Draw(t, "suggestion"))
				o.Objections = append(o.Objections, ClipViolation(Violation{
					text(400).Draw(t, "path"), text(80).Draw(t, "keyword"), text(400).Draw(t, "schema path"), text(700).Draw(t, "message"), text(400).Draw(t, "hint"),
				}))
			}
		}
		var got Outcome
		if err := got.Decode(o.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, o) {
			t.Fatalf("sent %+v, got %+v", o, got)
		}
	})
}

// TestForgedOutcome: Decode rejects or cleans the messages of a worker under foreign control.
func TestForgedOutcome(t *testing.T) {
	good := Outcome{ID: 1, Last: true, Result: Result{Code: OK, Valid: true, Confidence: 0.5}}
	for name, lie := range map[string]func(*Outcome){
		"confidence NaN":  func(o *Outcome) { o.Confidence = math.NaN() },
		"confidence 2":    func(o *Outcome) { o.Confidence = 2 },
		"confidence -1":   func(o *Outcome) { o.Confidence = -1 },
		"confidence +Inf": func(o *Outcome) { o.Confidence = math.Inf(1) },
		"21 violations":   func(o *Outcome) { o.Violations = make([]string, MaxNotes+1) },
		"22 objections":   func(o *Outcome) { o.Objections = make([]Violation, maxViolations+1) },
		"index below 0":   func(o *Outcome) { o.Index = -1 },
		"unknown code":    func(o *Outcome) { o.Code = "made up" },
		"quarantined":     func(o *Outcome) { o.Code = Quarantined },
	} {
		o := good
		lie(&o)
		if err := new(Outcome).Decode(o.AppendTo(nil)); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	valid := good.AppendTo(nil)
	for name, raw := range map[string][]byte{
		"nothing": {}, "cut": valid[:len(valid)-2], "longer": append(bytes.Clone(valid), 0),
		"confidence NaN": bytes.Replace(valid, []byte("0.5"), []byte("NaN"), 1),
		"valid maybe":    bytes.Replace(valid, []byte(`"valid":true`), []byte(`"valid":"true"`), 1),
	} {
		if err := new(Outcome).Decode(raw); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := []byte(`{"ID":` + strings.Repeat("9", MaxReplyFrame-20) + "}\n") // the error goes to the log
	for _, err := range []error{new(Outcome).Decode(long), new(Report).Decode(long)} {
		if !errors.Is(err, errFrame) || len(err.Error()) > 1000 {
			t.Errorf("a long number: an error of %d bytes", len(err.Error()))
		}
	}
	fault := Outcome{ID: 1, Result: Result{Code: Threw, Valid: true, Confidence: 1, Reason: "approve it", Violations: []string{"x"}, Detail: strings.Repeat("\x1b😀", 2000)}}
	var got Outcome
	if err := got.Decode(fault.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	if got.Valid || got.Confidence != 0 || got.Reason != "" || got.Violations != nil {
		t.Errorf("a fault carries a verdict: %+v", got)
	}
	if len([]rune(got.Detail)) > maxMessage || strings.Contains(got.Detail, "\x1b") {
		t.Errorf("detail of %d bytes", len(got.Detail))
	}
}

func TestLargestOutcomeFits(t *testing.T) {
	for _, letter := range []string{"中", "<"} { // three bytes for each unit; six in JSON
		wide := strings.Repeat(letter, 5000)
		said := Outcome{Result: Result{Code: OK, Reason: Clean(wide, MaxReason), Detail: Clean(wide, maxMessage)}}
		for range MaxNotes {
			said.Violations = append(said.Violations, Clean(wide, MaxNote))
			said.Suggestions = append(said.Suggestions, Clean(wide, MaxNote))
		}
		objected := Outcome{Result: Result{Code: OK, Detail: Clean(wide, maxMessage)}}
		for range maxViolations {
			objected.Objections = append(objected.Objections, ClipViolation(Violation{wide, wide, wide, wide, wide}))
		}
		for _, o := range []Outcome{said, objected} {
			if n := len(o.AppendTo(nil)); n > MaxReplyFrame {
				t.Errorf("an outcome full of %s has %d bytes, the frame %d", letter, n, MaxReplyFrame)
			}
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(EndFrame(append(BeginFrame(nil), "hello"...)))
	f.Add([]byte{255, 255, 255, 127})
	f.Fuzz(func(t *testing.T, raw []byte) {
		content, err := ReadFrame(bytes.NewReader(raw), nil, 1<<10)
		if err == nil && (len(content) > 1<<10 || len(content) != int(binary.LittleEndian.Uint32(raw))) {
			t.Fatalf("%d bytes of %d", len(content), len(raw))
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	q := Request{ID: 7, Op: OpRun, Routes: 1, Sources: []Source{{Condition, "a"}, {Validator, "b"}}, Data: []byte("{}")}
	f.Add(q.AppendTo(nil))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got Request
		if err := got.Decode(raw); err != nil {
			return
		}
		if got.Routes > len(got.Sources) || got.Op != OpRun && got.Op != OpCheck && got.Op != OpRead {
			t.Fatalf("%+v", got)
		}
	})
}

func FuzzDecodeOutcome(f *testing.F) {
	o := Outcome{ID: 7, Last: true, Result: Result{Code: OK, Valid: true, Confidence: 1, Reason: "r", Violations: []string{"v"}}}
	f.Add(o.AppendTo(nil))
	f.Add([]byte(`{"code":"ok","violations":[],"console":[]}`)) // the same as an outcome without these lists
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got Outcome
		if err := got.Decode(raw); err != nil {
			return
		}
		if !(got.Confidence >= 0 && got.Confidence <= 1) || got.Valid && got.Code != OK || got.Index < 0 {
			t.Fatalf("%+v", got)
		}
		for _, s := range append(append([]string{got.Reason, got.Detail}, got.Violations...), got.Suggestions...) {
			if s != Clean(s, MaxReason) {
				t.Fatalf("%q is not clean", s)
			}
		}
		var again Outcome
		if err := again.Decode(got.AppendTo(nil)); err != nil || !cmp.Equal(again, got, cmpopts.EquateEmpty()) {
			t.Fatalf("%+v, then %+v (%v)", got, again, err)
		}
	})
}
