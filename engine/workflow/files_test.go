package workflow_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// withFiles is a definition with a validator, a keyed validator and a criterion.
func withFiles(validator, keyed, criterion string) []byte {
	return []byte(`{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":{"target":"b","validator":` + validator +
		`,"criteria":["first",` + criterion + `],"useLLM":true}}},"b":{"final":true}},"transitionValidators":{"go":` + keyed + `}}`)
}

// A definition with files has the same document and hash as one with the texts inlined.
func TestFilesAreInlinedBeforeHashing(t *testing.T) {
	files := fstest.MapFS{
		"checks/release.js": {Data: []byte("(data) => data.ok\r\n\n")},
		"keyed.js":          {Data: []byte("(data) => true")},
		"tone.md":           {Data: []byte("It is friendly.\nIt is short.\n")},
	}
	read := func(name string) ([]byte, error) { return fs.ReadFile(files, name) }
	doc := withFiles(`{"file":"checks/release.js"}`, `{"file":"keyed.js"}`, `{"file":"tone.md"}`)
	got, err := workflow.ParseWithFiles("w.json", doc, read)
	if err != nil {
		t.Fatal(err)
	}
	want, err := workflow.Parse("w.json", withFiles(`"(data) => data.ok"`, `"(data) => true"`, `"It is friendly.\nIt is short."`))
	if err != nil {
		t.Fatal(err)
	}
	if got.Hash != want.Hash || string(got.Document) != string(want.Document) {
		t.Errorf("%s %s\nwant %s %s", got.Hash, got.Document, want.Hash, want.Document)
	}
	if again, err := workflow.Parse("stored", got.Document); err != nil || again.Hash != got.Hash {
		t.Errorf("the stored document: %v", err)
	}
	if v, err := format(t).Validate(document.ReadTrusted(json.RawMessage(doc))); err != nil || len(v) > 0 {
		t.Errorf("the format's schema refuses files: %v, %v", v, err)
	}
	files["checks/release.js"].Data = []byte("(data) => !data.ok")
	if changed, err := workflow.ParseWithFiles("w.json", doc, read); err != nil || changed.Hash == got.Hash {
		t.Errorf("a changed file gives the same definition: %v", err)
	}
}

func TestFilesAreRefused(t *testing.T) {
	files := fstest.MapFS{
		"empty.js": {Data: []byte(" \n")}, "latin1.js": {Data: []byte("'\xe9'")}, "nul.js": {Data: []byte("'\x00'")},
		"long.js": {Data: []byte(strings.Repeat("x", workflow.MaxScript+1))},
		"ok.js":   {Data: []byte("() => true")},
	}
	asked := ""
	read := func(name string) ([]byte, error) { asked += name + " "; return fs.ReadFile(files, name) }
	const fine = `"() => true"`
	for name, c := range map[string]struct {
		doc   []byte
		files workflow.Files
		says  string
	}{
		"nobody loads from disk": {withFiles(`{"file":"ok.js"}`, fine, `"x"`), nil, `/states/a/transitions/go/validator: only a definition that an operator loads from disk can name a file`},
		"a criterion, neither":   {withFiles(fine, fine, `{"file":"ok.js"}`), nil, "/states/a/transitions/go/criteria/1: only a definition that"},
		"nor a keyed one":        {withFiles(fine, `{"file":"ok.js"}`, `"x"`), nil, "/transitionValidators/go: only a definition that"},
		"the folder above":       {withFiles(`{"file":"../ok.js"}`, fine, `"x"`), read, `"../ok.js" is not a path below the definition's folder`},
		"above by a detour":      {withFiles(`{"file":"checks/../../ok.js"}`, fine, `"x"`), read, "is not a path below"},
		"an absolute path":       {withFiles(`{"file":"/etc/passwd"}`, fine, `"x"`), read, "is not a path below"},
		"a backslash":            {withFiles(`{"file":"..\\ok.js"}`, fine, `"x"`), read, "is not a path below"},
		"the folder itself":      {withFiles(`{"file":"./ok.js"}`, fine, `"x"`), read, "is not a path below"},
		"no such file":           {withFiles(`{"file":"ko.js"}`, fine, `"x"`), read, `cannot read the file "ko.js"`},
		"an empty file":          {withFiles(`{"file":"empty.js"}`, fine, `"x"`), read, `the file "empty.js" is empty`},
		"no UTF-8":               {withFiles(`{"file":"latin1.js"}`, fine, `"x"`), read, "is not UTF-8"},
		"NUL":                    {withFiles(`{"file":"nul.js"}`, fine, `"x"`), read, "is not UTF-8"},
		"a long file":            {withFiles(`{"file":"long.js"}`, fine, `"x"`), read, "at most 16384 are allowed"},
		"no name":                {withFiles(`{"file":""}`, fine, `"x"`), read, `"file" is empty`},
		"no file":                {withFiles(`{}`, fine, `"x"`), read, `missing`},
		"another key":            {withFiles(`{"file":"ok.js","then":"x"}`, fine, `"x"`), read, `unknown key "then"`},
		"a number":               {withFiles(`{"file":1}`, fine, `"x"`), read, "expected a string"},
	} {
		asked = ""
		_, err := workflow.ParseWithFiles("w.json", c.doc, c.files)
		pe, ok := errors.AsType[*workflow.ParseError](err)
		if !ok || len(pe.Issues) != 1 || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want one issue with %q", name, err, c.says)
		}
		if strings.Contains(c.says, "is not a path") && asked != "" {
			t.Errorf("%s: %s was looked for", name, asked)
		}
	}
	// A condition is one line and must be written where it is used.
	doc := strings.ReplaceAll(string(withFiles(fine, fine, `"x"`)), `"target":"b"`, `"target":[{"condition":{"file":"ok.js"},"target":"b"}]`)
	if _, err := workflow.ParseWithFiles("w.json", []byte(doc), read); err == nil {
		t.Error("a condition was read from a file")
	}
}

func TestSchemaIsAKnownKey(t *testing.T) {
	doc := strings.Replace(string(withFiles(`"() => true"`, `"() => true"`, `"x"`)), `{"name"`, `{"$schema":"./definition.schema.json","name"`, 1)
	if _, err := workflow.Parse("w.json", []byte(doc)); err != nil {
		t.Error(err)
	}
}
