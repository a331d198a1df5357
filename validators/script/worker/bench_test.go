package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/dop251/goja"

	"github.com/gavel-mcp/gavel/validators/script"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

const reference = "(data, context) => ({ valid: data.comments?.length >= 20, confidence: 0.9, reason: 'Detailed comments required' })"

// document is a JSON object of about size bytes, of the shapes that agents send.
func document(size int) json.RawMessage {
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
		data, state := document(size.bytes), json.RawMessage(`{"state":"draft","actor":"u1"}`)
		b.Run(size.name+"/worker", func(b *testing.B) {
			p, err := script.NewPool(script.Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			batch := script.Batch{
				Owner: "o", Now: now, Data: data, Context: state,
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

// plainGoja is what a program does that calls goja in its own process: fresh
// runtime, cached program, JSON parsed by the interpreter so that scripts see
// plain objects.
func plainGoja(b *testing.B, program *goja.Program, data, state []byte) bool {
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
