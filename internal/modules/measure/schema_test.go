package measure

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/schema"
)

// The schema of golden cases accepts those of this repository.
func TestSchemaAcceptsTheGoldenCases(t *testing.T) {
	t.Parallel()
	compiled, err := schema.Compile(goldenSchema)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../testdata/golden/*.jsonl")
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if v, err := compiled.Validate(document.ReadTrusted([]byte(line))); err != nil || len(v) > 0 {
				t.Errorf("%s: %v %v: %s", file, v, err, line)
			}
		}
	}
}

// Each object of the schema has exactly the keys that are read.
func TestSchemaHasTheKeysThatAreRead(t *testing.T) {
	t.Parallel()
	type object struct {
		Properties map[string]json.RawMessage
		Items      json.RawMessage
	}
	read := func(raw json.RawMessage) (o object) {
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	golden := read(goldenSchema)
	for _, part := range []struct {
		schema object
		of     any
	}{
		{golden, eval.Case{}},
		{read(golden.Properties["expect"]), eval.Expect{}},
		{read(golden.Properties["label"]), eval.Label{}},
		{read(read(golden.Properties["history"]).Items), eval.Step{}},
	} {
		var keys []string
		for field := range reflect.TypeOf(part.of).Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
				keys = append(keys, name)
			}
		}
		slices.Sort(keys)
		if has := slices.Sorted(maps.Keys(part.schema.Properties)); !slices.Equal(has, keys) {
			t.Errorf("%T: the schema has %q, read are %q", part.of, has, keys)
		}
	}
}
