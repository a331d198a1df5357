package record

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// TestOlderSchemasAreBroughtUp reads an event of schema 1 with a program of
// schema 3: the fields are today's, the hash stays that of the stored bytes.
func TestOlderSchemasAreBroughtUp(t *testing.T) {
	e, _, err := Seal(Instance{}, Event{
		Kind: Started, Instance: "wf-1", Workflow: "doc", Version: 1, To: "draft", Principal: "p", Time: time.Unix(0, 0),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	renumber := func(from, to, old, new string) upcaster {
		return func(body []byte) ([]byte, error) {
			body = bytes.Replace(body, []byte(`"schema":`+from), []byte(`"schema":`+to), 1)
			return bytes.Replace(body, []byte(old), []byte(new), 1), nil
		}
	}
	ups := map[int]upcaster{1: renumber("1", "2", `"draft"`, `"drafted"`), 2: renumber("2", "3", `"drafted"`, `"first draft"`)}
	got, err := decode(e.Body(), 3, ups)
	if err != nil {
		t.Fatal(err)
	}
	if got.To != "first draft" || got.Schema != 3 || got.seal.schema != 1 || !bytes.Equal(got.Body(), e.Body()) {
		t.Errorf("got to %q, schema %d, sealed in %d, body %s", got.To, got.Schema, got.seal.schema, got.Body())
	}
	hash, err := hashOf(got.seal.schema, "", got.Body())
	if err != nil || hash != e.Hash {
		t.Errorf("the hash of the upcast event is %s, %v, want %s", hash, err, e.Hash)
	}
	delete(ups, 2)
	if _, err := decode(e.Body(), 3, ups); !errors.Is(err, ErrMalformed) {
		t.Errorf("a missing step: got %v", err)
	}
	ups[2] = func(body []byte) ([]byte, error) { return body, nil } // forgets the number
	if _, err := decode(e.Body(), 3, ups); !errors.Is(err, ErrMalformed) {
		t.Errorf("a step that leads nowhere: got %v", err)
	}
	for v := 1; v < SchemaVersion; v++ {
		if upcasters[v] == nil {
			t.Errorf("there is no upcaster from schema %d", v)
		}
	}
}
