package script_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

// FuzzSource sends arbitrary text through the whole sandbox. This process must survive, and the answer must
// follow the contract and arrive in time.
func FuzzSource(f *testing.F) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "testdata", "hostile", "scripts.json"))
	if err != nil {
		f.Fatal(err)
	}
	cases, err := script.ReadCases(raw, nil)
	if err != nil {
		f.Fatal(err)
	}
	for i := range cases {
		if text := cases[i].Text(); i%8 == 0 && len(text) < 4096 {
			f.Add(text, cases[i].Kind == script.Condition)
		}
	}
	p := newPool(f, script.Config{Soft: 5 * time.Millisecond, Hard: 20 * time.Millisecond, ScriptStrikes: 1 << 30, OwnerStrikes: 1 << 30})
	f.Fuzz(func(t *testing.T, source string, condition bool) {
		b := script.Batch{Caller: "o", Owner: script.Owner{ID: "o"}, Data: json.RawMessage(`{"n":3,"tags":["a"]}`)}
		if condition {
			b.Routes = conditions(source)
		} else {
			b.Validators = validators(source)
		}
		began := time.Now()
		r, err := p.Run(context.Background(), b)
		if err != nil {
			t.Fatalf("%q: %v", source, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("%q took %v", source, took)
		}
		for _, got := range r.Results {
			if got.Valid && got.Code != script.OK || !(got.Confidence >= 0 && got.Confidence <= 1) ||
				(got.Detail == "") != (got.Code == script.OK) || got.Reason != script.Clean(got.Reason, script.MaxReason) {
				t.Fatalf("%q: %+v", source, got)
			}
		}
	})
}
