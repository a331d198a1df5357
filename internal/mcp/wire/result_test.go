package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Results equal those of mcp-go, on one line.
func TestResultsAreThoseOfTheLibrary(t *testing.T) {
	t.Parallel()
	meta := mcp.NewMetaFromMap(map[string]any{"a": "b"})
	for name, r := range map[string]*mcp.CallToolResult{
		"empty":   {},
		"refused": {Content: []mcp.Content{mcp.NewTextContent("REJECTED \"a\" <b>\u2028\x7f\t"), mcp.NewTextContent("")}, StructuredContent: json.RawMessage(`{"a":1.50}`), IsError: true},
		"others":  {Content: []mcp.Content{mcp.TextContent{Type: "text", Text: "x", Meta: meta}, mcp.NewImageContent("QQ==", "image/png"), mcp.NewTextContent("y")}},
		"spaced":  {RawStructuredContent: json.RawMessage("{\n  \"a\": 1\r\n}"), StructuredContent: map[string]any{"a": 1}},
		"values":  {StructuredContent: map[string]any{"a": []int{1}}, Content: []mcp.Content{}},
		"broken":  {Content: []mcp.Content{mcp.NewTextContent("a\xffb")}},
		"modern":  {Result: mcp.Result{Meta: meta, ResultType: mcp.ResultTypeComplete}, Content: []mcp.Content{mcp.NewTextContent("x")}},
		"asks":    server.NewInputRequestBuilder("s").Elicit("k", mcp.ElicitationParams{Message: "m", RequestedSchema: map[string]any{"type": "object"}}).ToolResult(),
	} {
		got, err := encodeResult(r)
		if err != nil || bytes.ContainsAny(got, "\r\n") || !utf8.Valid(got) {
			t.Errorf("%s: %s %v", name, got, err)
		}
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatal(name, err)
		}
		if have, expected := decoded(t, got), decoded(t, want); !reflect.DeepEqual(have, expected) {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
	if got, err := encodeResult(&mcp.CallToolResult{StructuredContent: func() {}}); err == nil {
		t.Errorf("what cannot be encoded is %s", got)
	}
}

func decoded(t *testing.T, doc []byte) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal(doc, &v); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return v
}

// Whatever the number of concurrent calls, few goroutines remain idle, and none after the end.
func TestFewGoroutinesWaitForCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		s := &stdio{ctx: ctx, jobs: make(chan func()), idle: make(chan struct{}, maxIdle)}
		var running, done atomic.Int32
		round := func(n int32, idle int) {
			open := make(chan struct{})
			before := done.Load()
			for range n {
				s.dispatch(func() {
					running.Add(1)
					<-open
					running.Add(-1)
					done.Add(1)
				})
			}
			synctest.Wait()
			if got := running.Load(); got != n || len(s.idle) != idle {
				t.Errorf("%d of %d run at once, and %d wait, not %d", got, n, len(s.idle), idle)
			}
			close(open)
			synctest.Wait()
			if got := done.Load() - before; got != n {
				t.Errorf("%d of %d were run", got, n)
			}
		}
		round(3*maxIdle, 0)
		if got := len(s.idle); got != maxIdle {
			t.Errorf("%d goroutines wait, not %d", got, maxIdle)
		}
		round(maxIdle/2, maxIdle-maxIdle/2)
		round(2*maxIdle, 0)
		if got := len(s.idle); got != maxIdle {
			t.Errorf("%d goroutines wait, not %d", got, maxIdle)
		}
		end() // the bubble ends only when all goroutines have ended
	})
}
