package workflow_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
	"github.com/gavel-mcp/gavel/validators/script/worker"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	worker.Main()
	os.Exit(m.Run())
}

// compiler is the real one, over one sandbox of this test binary.
var compiler = sync.OnceValue(func() *validators.Compiler {
	pool, err := script.NewPool(script.Config{Soft: time.Second, Hard: 5 * time.Second, Total: 20 * time.Second})
	if err != nil {
		panic(err)
	}
	return validators.NewCompiler(pool, validators.Options{})
})

func parse(t testing.TB, doc string) *workflow.Definition {
	t.Helper()
	d, err := workflow.Parse("test", []byte(doc))
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	return d
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

func readPattern(s string) document.JSON { return document.ReadTrusted(raw(s)) }

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run the test with -update to write it)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs from the golden file (run with -update when it should):\n%s", name, got)
	}
}
