package record_test

import (
	"bytes"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
)

// An earlier merge is used only for the same context in memory: an event that is sealed onto
// another context is merged again.
func TestSetMerged(t *testing.T) {
	h := history{tb: t}
	h.seal(started(`{"a":1}`), nil)
	is := h.last()
	e := advanced("go", "review", `{"b":2}`)
	e.Time, e.Principal, e.Role = epoch, "local:agent", "agent"
	e.SetMerged(is.Context, []byte(`{"merged":true}`))
	_, next, err := record.Seal(is, e, nil)
	if err != nil || string(next.Context) != `{"merged":true}` {
		t.Errorf("onto the very context: %s, %v", next.Context, err)
	}
	for _, other := range []string{`{"a":1}`, `{"c":3}`} {
		is.Context = bytes.Clone([]byte(other))
		if _, next, err = record.Seal(is, e, nil); err != nil || string(next.Context) != other[:len(other)-1]+`,"b":2}` {
			t.Errorf("onto %s: %s, %v", other, next.Context, err)
		}
	}
}
