package workflow_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

// TestSizeIsWhatADefinitionTakes holds Size to the heap.
func TestSizeIsWhatADefinitionTakes(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for name, doc := range hostileDefinitions(workflow.MaxDefinition - 1<<10) {
		const copies = 4
		before := heap()
		var kept []*workflow.Definition
		for range copies {
			d, err := workflow.Parse("w.json", []byte(doc))
			if err != nil {
				break // not all of them parse
			}
			kept = append(kept, d.WithoutLines())
		}
		if len(kept) == 0 {
			continue
		}
		took, size := float64(heap()-before)/copies, float64(kept[0].Size())
		t.Logf("%-28s %8.0f KiB, Size says %8.0f", name, took/1024, size/1024)
		if took > size*1.1 || took < size/20 {
			t.Errorf("%s: takes %.0f bytes, Size says %.0f", name, took, size)
		}
		runtime.KeepAlive(kept)
	}
}

func TestExceededBounds(t *testing.T) {
	d := parse(t, `{"name":"w","initialState":"a","inputSchema":{"type":"object"},"states":{
"a":{"transitions":{"go":{"target":"b","schema":{"type":"object"}},"or":[{"condition":"true","target":"a"},{"condition":"false","target":"b"}]}},"b":{"final":true}}}`)
	for _, c := range []struct {
		bounds workflow.Bounds
		want   string
	}{
		{workflow.Bounds{}, ""},
		{workflow.Bounds{States: 2, Transitions: 3, SchemaBytes: 34}, ""},
		{workflow.Bounds{States: 1}, "line 1: /states: the definition has 2 states; at most 1 are allowed [size]"},
		{workflow.Bounds{Transitions: 2}, "line 1: /states: the definition has 3 transitions and routes; at most 2 are allowed [size]"},
		{workflow.Bounds{SchemaBytes: 33}, "line 1: the definition has 34 bytes of schemas; at most 33 are allowed [size]"},
	} {
		var got []string
		for _, i := range d.CheckBounds(c.bounds) {
			got = append(got, i.String())
		}
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%+v: got %q, want %q", c.bounds, got, c.want)
		}
	}
}
