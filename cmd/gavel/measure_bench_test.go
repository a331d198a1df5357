package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/internal/term"
)

// BenchmarkEvalRun measures gavel eval run --structural over many cases of about 1 KB: reading, checking, judging by
// the real pipeline, all figures with 2000 resamples, the report and the file of results. peak-MB is the sampled
// maximum of heap memory in use.
func BenchmarkEvalRun(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("cases=%d", n), func(b *testing.B) {
			dir := b.TempDir()
			size := manyCases(b, dir, n)
			peak := watchHeap(b)
			b.ReportAllocs()
			for b.Loop() {
				var out bytes.Buffer
				code := run(context.Background(), []string{"eval", "run", "--structural", filepath.Join(dir, "cases.jsonl"), "--out", filepath.Join(dir, "r.json")}, strings.NewReader(""), &out, &out)
				if code != term.ExitOK || !strings.Contains(out.String(), fmt.Sprintf("%d scored of %d", n, n)) {
					b.Fatalf("exit code %d\n%s", code, out.String())
				}
			}
			if each := b.Elapsed() / time.Duration(b.N); each > time.Minute {
				b.Errorf("%v for %d cases; it must be less than a minute", each, n)
			}
			b.ReportMetric(float64(peak())/(1<<20), "peak-MB")
			b.ReportMetric(float64(size)/(1<<20), "file-MB")
		})
	}
}

// manyCases writes n cases of a workflow with fields and a schema, and returns their size.
func manyCases(tb testing.TB, dir string, n int) int64 {
	tb.Helper()
	const flow = `{"name": "many", "initialState": "open", "states": {"open": {"transitions": {"close": {"target": "closed", "requiredFields": ["reason"],
		"schema": {"type": "object", "properties": {"reason": {"type": "string", "minLength": 10}}}}}}, "closed": {"final": true}}}`
	if err := os.WriteFile(filepath.Join(dir, "flow.json"), []byte(flow), 0o600); err != nil {
		tb.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "cases.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for i := range n {
		reason, right := strings.Repeat("The pump was replaced. ", 40), "approve"
		if i%2 == 1 {
			reason, right = "done", "reject"
		}
		fmt.Fprintf(w, `{"id": "case-%06d", "group": "group-%06d", "tags": ["many", "part-%d"], "workflow": {"ref": "flow.json#many"}, "state": "open", "action": "close", "data": {"reason": %q}, "context": {"text": %q}, "expect": {"outcome": %q}, "label": {"source": "synthetic"}, "split": "test"}`+"\n",
			i, i/2, i%7, reason, strings.Repeat("context ", 60), right)
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	size, err := f.Seek(0, 1)
	if err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return size
}

// watchHeap samples the heap a hundred times a second until most is called, which returns the maximum.
func watchHeap(tb testing.TB) (most func() uint64) {
	tb.Helper()
	var top uint64
	look := func() {
		at := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(at)
		top = max(top, at[0].Value.Uint64())
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				look()
			case <-done:
				look()
				return
			}
		}
	})
	once := sync.OnceFunc(func() { close(done); wg.Wait() })
	tb.Cleanup(once)
	return func() uint64 { once(); return top }
}
