package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/dop251/goja"

	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
	"github.com/gavel-mcp/gavel/validators/script"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

const reference = "(data, context) => ({ valid: data.comments?.length >= 20, confidence: 0.9, reason: 'Detailed comments required' })"

// newDocument returns a JSON object of about size bytes that resembles agents' data.
func newDocument(size int) json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"comments":"0123456789012345678901234","items":[`)
	for i := 0; b.Len() < size-110; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"name":"item number %d","price":%d.25,"tags":["a","b"],"ok":true,"note":null}`, i, i, i)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

func BenchmarkRoundTrip(b *testing.B) {
	now := time.Unix(1_700_000_000, 0)
	for _, size := range []struct {
		name  string
		bytes int
	}{{"1KB", 1 << 10}, {"100KB", 100 << 10}} {
		data, state := newDocument(size.bytes), json.RawMessage(`{"state":"draft","actor":"u1"}`)
		b.Run(size.name+"/worker", func(b *testing.B) {
			p := pool(b)
			batch := script.Batch{
				Caller: "o", Owner: script.Owner{ID: "o"}, Now: now, Data: data, Context: state,
				Validators: []script.Script{{Name: "v", Kind: script.Validator, Source: reference}},
			}
			b.ReportAllocs()
			for b.Loop() {
				r, err := p.Run(context.Background(), batch)
				if err != nil || !r.Results[0].Valid {
					b.Fatal(err, r)
				}
			}
		})
		b.Run(size.name+"/in-process-same-evaluator", func(b *testing.B) {
			e := worker.NewInProcess()
			q := script.Request{Op: script.OpRun, Now: now.UnixNano(), Data: data, Context: state}
			s := script.Source{Kind: script.Validator, Text: reference}
			b.ReportAllocs()
			for b.Loop() {
				if o := e.Evaluate(&q, s); !o.Valid {
					b.Fatal(o)
				}
			}
		})
		b.Run(size.name+"/in-process-goja", func(b *testing.B) {
			program := goja.MustCompile("", "("+reference+")", true)
			b.ReportAllocs()
			for b.Loop() {
				if !plainGoja(b, program, data, state) {
					b.Fatal("not valid")
				}
			}
		})
	}
}

// plainGoja does what a program does that calls goja in its own process: a fresh runtime, a cached program,
// and JSON parsed by the interpreter so that scripts see plain objects.
func plainGoja(b *testing.B, program *goja.Program, data, state []byte) bool {
	b.Helper()
	vm := goja.New()
	f, err := vm.RunProgram(program)
	if err != nil {
		b.Fatal(err)
	}
	parse, _ := goja.AssertFunction(vm.Get("JSON").ToObject(vm).Get("parse"))
	d, err := parse(nil, vm.ToValue(string(data)))
	if err != nil {
		b.Fatal(err)
	}
	c, err := parse(nil, vm.ToValue(string(state)))
	if err != nil {
		b.Fatal(err)
	}
	call, _ := goja.AssertFunction(f)
	v, err := call(goja.Undefined(), d, c)
	if err != nil {
		b.Fatal(err)
	}
	o := v.ToObject(vm)
	return o.Get("valid").ToBoolean() && o.Get("confidence").ToFloat() > 0 && o.Get("reason").String() != ""
}

// BenchmarkFloor measures a round trip for a trivial script, that is, the cost of the process boundary.
func BenchmarkFloor(b *testing.B) {
	p := pool(b)
	batch := batchOf("() => true")
	for b.Loop() {
		ask(b, p, batch)
	}
}

// BenchmarkIdle measures a round trip to a worker that has slept for 2 ms, so both ends must be woken.
func BenchmarkIdle(b *testing.B) {
	p := pool(b)
	batch := batchOf(reference)
	batch.Data = newDocument(1 << 10)
	var total time.Duration
	for b.Loop() {
		time.Sleep(2 * time.Millisecond)
		began := time.Now()
		ask(b, p, batch)
		total += time.Since(began)
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/call")
}

// BenchmarkTransition measures a typical transition: two routes and three validators.
func BenchmarkTransition(b *testing.B) {
	p := pool(b)
	batch := batchOf(reference, "(d) => d.items.length > 1", "(d, c) => c.state === 'draft'")
	batch.Data, batch.Context = newDocument(1<<10), json.RawMessage(`{"state":"draft"}`)
	for _, text := range []string{"data.items.length > 1000", "true"} {
		batch.Routes = append(batch.Routes, script.Script{Kind: script.Condition, Source: text})
	}
	for b.Loop() {
		ask(b, p, batch)
	}
}

// BenchmarkStart measures the time from creating a pool to its first answer.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		p, err := script.NewPool(script.Config{})
		if err != nil {
			b.Fatal(err)
		}
		ask(b, p, batchOf("() => true"))
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAfterDeath measures the first good answer after a script has ended its worker, without the time
// until that death.
func BenchmarkAfterDeath(b *testing.B) {
	p, err := script.NewPool(script.Config{Logger: slog.New(slog.DiscardHandler), ScriptStrikes: 1 << 30, OwnerStrikes: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	bomb, good := batchOf("() => 'x'.repeat(1e9)"), batchOf("() => true")
	var total time.Duration
	for b.Loop() {
		if _, err := p.Run(context.Background(), bomb); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		ask(b, p, good)
		total += time.Since(began)
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/call")
}

// BenchmarkSchema measures an untrusted schema in the worker, and the same schema in this process.
func BenchmarkSchema(b *testing.B) {
	const text = `{"type":"object","required":["comments"],"properties":{"comments":{"type":"string","minLength":20},"items":{"type":"array","items":{"type":"object","required":["id"]}}}}`
	data := newDocument(1 << 10)
	b.Run("worker", func(b *testing.B) {
		p := pool(b)
		batch := batchOf()
		batch.Schema, batch.Document = &script.Script{Name: "s", Kind: script.Schema, Source: text}, data
		for b.Loop() {
			if r, err := p.Run(context.Background(), batch); err != nil || !r.Schema.Passes() {
				b.Fatal(err, r)
			}
		}
	})
	b.Run("in-process", func(b *testing.B) {
		s, err := schema.Compile(json.RawMessage(text))
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if v, err := s.Validate(document.ReadTrusted(data)); err != nil || len(v) > 0 {
				b.Fatal(err, v)
			}
		}
	})
}

func pool(b *testing.B) *script.Pool {
	b.Helper()
	p, err := script.NewPool(script.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close() })
	return p
}

func batchOf(sources ...string) script.Batch {
	b := script.Batch{Caller: "o", Owner: script.Owner{ID: "o"}, Now: time.Unix(1_700_000_000, 0)}
	for _, s := range sources {
		b.Validators = append(b.Validators, script.Script{Kind: script.Validator, Source: s})
	}
	return b
}

func ask(b *testing.B, p *script.Pool, batch script.Batch) {
	b.Helper()
	r, err := p.Run(context.Background(), batch)
	if err != nil {
		b.Fatal(err)
	}
	for _, result := range r.Results {
		if result.Code != script.OK || !result.Valid {
			b.Fatal(result)
		}
	}
}
