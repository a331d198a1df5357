package workflow_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/workflow"
)

func TestMerge(t *testing.T) {
	for _, c := range []struct{ context, data, want string }{
		{"", "", "{}"},
		{"{}", "{}", "{}"},
		{`{"a":1}`, "", `{"a":1}`},
		{"", `{"a":1}`, `{"a":1}`},
		{`{"a":1,"b":2}`, `{"b":3}`, `{"a":1,"b":3}`},
		{`{"a":1,"b":2,"c":3}`, `{"d":4,"a":9}`, `{"a":9,"b":2,"c":3,"d":4}`},
		{`{"a":1,"b":2}`, `{"a":null}`, `{"b":2}`},
		{`{"a":1}`, `{"b":null}`, `{"a":1}`},
		{`{"a":{"x":1,"y":2}}`, `{"a":{"z":3}}`, `{"a":{"z":3}}`}, // top level only
		{`{"a":{"x":null}}`, `{"b":{"y":null}}`, `{"a":{"x":null},"b":{"y":null}}`},
		{`{"n":1.50}`, `{"m":1e2}`, `{"n":1.50,"m":1e2}`}, // literals stay
		{`{"\u0061":1}`, `{"a":2}`, `{"\u0061":2}`},       // the same key
		{` { "a" : 1 } `, `{ "b" : [ 1 , 2 ] }`, `{"a":1,"b":[1,2]}`},
		{`{"a":" spaced "}`, `{"b":"<&>"}`, `{"a":" spaced ","b":"<&>"}`},
	} {
		got, err := workflow.Merge(raw(c.context), raw(c.data))
		if err != nil || string(got) != c.want {
			t.Errorf("%s + %s = %s, %v; want %s", c.context, c.data, got, err, c.want)
		}
	}
	for _, c := range []struct{ context, data string }{
		{"[]", "{}"}, {"{}", "1"}, {`{"a":1`, "{}"}, {"{}", `{"a":1,"a":2}`}, {"{}", "{}{}"}, {"null", "{}"},
	} {
		if got, err := workflow.Merge(raw(c.context), raw(c.data)); err == nil {
			t.Errorf("%s + %s = %s, want an error", c.context, c.data, got)
		}
	}
}

// objectGrammar generates a JSON object with its keys in a given order.
func objectGrammar(keys []string, nulls bool) *rapid.Generator[[]pair] {
	return rapid.Custom(func(t *rapid.T) []pair {
		n := rapid.IntRange(0, len(keys)).Draw(t, "n")
		var out []pair
		for _, k := range rapid.Permutation(keys).Draw(t, "order")[:n] {
			values := []string{"1", "1.0", "-0.5e3", `"x"`, `"\u00e9 \" "`, "true", "[]", `[1,{"a":2}]`, `{"k":null}`}
			if nulls {
				values = append(values, "null", "null")
			}
			out = append(out, pair{k, rapid.SampledFrom(values).Draw(t, k)})
		}
		return out
	})
}

type pair struct{ key, value string }

func text(list []pair) json.RawMessage {
	parts := make([]string, len(list))
	for i, p := range list {
		k, _ := json.Marshal(p.key)
		parts[i] = string(k) + ":" + p.value
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}")
}

var someKeys = []string{"a", "b", "c", "é", "x y", "", "quote\"", "<tag>", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9", "k10", "k11", "k12"}

// The merge equals that of a plain ordered map.
func TestMergeAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		context, data := objectGrammar(someKeys, false).Draw(t, "context"), objectGrammar(someKeys, true).Draw(t, "data")
		var want []pair
		given := map[string]string{}
		for _, p := range data {
			given[p.key] = p.value
		}
		for _, p := range context {
			if v, ok := given[p.key]; ok {
				delete(given, p.key)
				p.value = v
			}
			if p.value != "null" {
				want = append(want, p)
			}
		}
		for _, p := range data {
			if _, left := given[p.key]; left && p.value != "null" {
				want = append(want, p)
			}
		}
		got, err := workflow.Merge(text(context), text(data))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, text(want)) {
			t.Fatalf("%s + %s = %s, want %s", text(context), text(data), got, text(want))
		}
		again, err := workflow.Merge(got, text(data))
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("merging the same data again changed %s to %s (%v)", got, again, err)
		}
	})
}

func BenchmarkMerge(b *testing.B) {
	context := raw(`{"id":"doc-1","title":"A title","author":"ada@example.org","tags":["a","b"],"n":12.50,"body":"` + strings.Repeat("text ", 150) + `"}`)
	data := raw(`{"comments":"The introduction was reviewed and the figures checked.","approvedAt":"2026-01-02T03:04:05Z","n":13}`)
	b.Run("Merge", func(b *testing.B) {
		b.SetBytes(int64(len(context) + len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := workflow.Merge(context, data); err != nil {
				b.Fatal(err)
			}
		}
	})
	// The baseline decodes both, sets the keys, and encodes; it loses the order.
	b.Run("encoding_json", func(b *testing.B) {
		b.SetBytes(int64(len(context) + len(data)))
		b.ReportAllocs()
		for b.Loop() {
			var x, y map[string]json.RawMessage
			if err := json.Unmarshal(context, &x); err != nil {
				b.Fatal(err)
			}
			if err := json.Unmarshal(data, &y); err != nil {
				b.Fatal(err)
			}
			maps.Copy(x, y)
			if _, err := json.Marshal(x); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestCheckDocument(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{`{}`, `{}`}, {` {"a" : 1.50} `, `{"a":1.50}`}, {`{"a":" x "}`, `{"a":" x "}`},
	} {
		got, err := workflow.CheckDocument(raw(c.doc))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", c.doc, got, err, c.want)
		}
	}
	deep := strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)
	for _, doc := range []string{"", "[]", "1", `"x"`, "null", "true", `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, "{\"a\":\"\xff\"}", `{"a":"\u0000"}`, `{"a":9007199254740993}`, `{"a":1}x`, deep} {
		if got, err := workflow.CheckDocument(raw(doc)); err == nil {
			t.Errorf("%.60q was accepted as %s", doc, got)
		}
	}
	if _, err := workflow.CheckDocument(raw("[]")); err == nil || fmt.Sprint(err) != "expected a JSON object, got an array" {
		t.Errorf("array: %v", err)
	}
}

// TestSizeBoundsTheMemoryOfADefinition compares Size with the heap.
func TestSizeBoundsTheMemoryOfADefinition(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for name, doc := range hostileDefinitions(definitionSize(4)) {
		const copies = 4
		before := heap()
		var kept []*workflow.Definition
		for range copies {
			d, err := workflow.Parse("w.json", []byte(doc))
			if err != nil {
				break // some do not parse
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
