package record

import (
	"bytes"
	"errors"
	"testing"
	"time"
)

// TestOlderSchemasAreBroughtUp reads an event of today's schema with a program that
// is two schemas newer: the fields are today's, the hash stays that of the stored bytes.
func TestOlderSchemasAreBroughtUp(t *testing.T) {
	e, _, err := Seal(Instance{}, Event{
		Kind: Started, Instance: "wf-1", Workflow: "doc", Version: 1, To: "draft", Principal: "p", Time: time.Unix(0, 0),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const now = SchemaVersion
	renaming := func(from int, old, new string) upcaster {
		return func(body []byte) ([]byte, error) {
			body, err := newRenumbering(from)(body)
			return bytes.Replace(body, []byte(old), []byte(new), 1), err
		}
	}
	ups := map[int]upcaster{now: renaming(now, `"draft"`, `"drafted"`), now + 1: renaming(now+1, `"drafted"`, `"first draft"`)}
	got, err := decodeVersion(e.Body(), now+2, ups)
	if err != nil {
		t.Fatal(err)
	}
	if got.To != "first draft" || got.Schema != now+2 || got.seal.schema != now || !bytes.Equal(got.Body(), e.Body()) {
		t.Errorf("got to %q, schema %d, sealed in %d, body %s", got.To, got.Schema, got.seal.schema, got.Body())
	}
	hash, err := computeHash(got.seal.schema, "", got.Body())
	if err != nil || hash != e.Hash {
		t.Errorf("the hash of the upcast event is %s, %v, want %s", hash, err, e.Hash)
	}
	delete(ups, now+1)
	if _, err := decodeVersion(e.Body(), now+2, ups); !errors.Is(err, ErrMalformed) {
		t.Errorf("a missing step: got %v", err)
	}
	ups[now+1] = func(body []byte) ([]byte, error) { return body, nil } // forgets the number
	if _, err := decodeVersion(e.Body(), now+2, ups); !errors.Is(err, ErrMalformed) {
		t.Errorf("a step that leads nowhere: got %v", err)
	}
	for v := 1; v < SchemaVersion; v++ {
		if upcasters[v] == nil {
			t.Errorf("there is no upcaster from schema %d", v)
		}
	}
}
