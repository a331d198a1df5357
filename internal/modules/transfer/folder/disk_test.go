package folder_test

import (
	"encoding/json"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gavel-mcp/gavel/internal/modules/transfer/folder"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/portable"
)

// write writes the files to disk.
func (f files) write(t *testing.T, dir string) {
	t.Helper()
	for name, content := range f {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesThatAreTooLarge(t *testing.T) {
	big := strings.Repeat(" ", folder.MaxFile)
	from := fstest.MapFS{
		"wf-1.json":          {Data: []byte(`{"id":"wf-1"}` + big)},
		"definitions/d.json": {Data: []byte(guarded + big)},
		"checkpoints/c.json": {Data: []byte(`{}` + big)},
	}
	report := newHouse(t, "a").bring(from, nil)
	if report.Refused != 3 || strings.Count(text(report), "it has more than") != 3 {
		t.Errorf("got %s", text(report))
	}
	if !testing.Short() {
		report := newHouse(t, "a").bring(fstest.MapFS{
			"wf-1.json": {Data: []byte(`{"id":"wf-1","type":"guarded","state":"draft"}`)}, "wf-1.log": {Data: make([]byte, folder.MaxLog+1)},
		}, nil)
		if got := report.Instances[0].Reason; !strings.HasPrefix(got, "wf-1.log: it has more than") {
			t.Errorf("got %s", got)
		}
	}
	// Small enough to read, too large to store: the error names the line.
	value := strings.Repeat("x", 130<<10)
	got := newHouse(t, "a").bring(files{
		"definitions/guarded.json": guarded,
		"wf-1.json":                `{"id":"wf-1","type":"guarded","state":"draft","context":{"v":"` + value + `"}}`,
		"wf-1.log":                 `{"to":"draft"}` + "\n" + `{"from":"draft","action":"check","to":"draft","data":{"v":"` + value + `"}}` + "\n",
	}.fs(), nil).Instances[0]
	if got.Status != portable.Refused || !strings.HasPrefix(got.Reason, "wf-1.log:2: too large") {
		t.Errorf("got %+v", got)
	}
}

func TestWriteRefusesNames(t *testing.T) {
	one := func(in portable.ExportedInstance) iter.Seq2[portable.ExportedInstance, error] {
		return func(yield func(portable.ExportedInstance, error) bool) { yield(in, nil) }
	}
	for name, x := range map[string]portable.Exported{
		"an id":          {Instances: one(portable.ExportedInstance{ID: "../../x", State: json.RawMessage(`{}`)})},
		"an absolute id": {Instances: one(portable.ExportedInstance{ID: "/etc/x", State: json.RawMessage(`{}`)})},
		"a checkpoint": {Instances: one(portable.ExportedInstance{
			ID: "wf-1", State: json.RawMessage(`{}`), Checkpoints: []portable.ExportedCheckpoint{{ID: "../x", Document: json.RawMessage(`{}`)}},
		})},
		"two of one name": {
			Definitions: []portable.ExportedDefinition{{Name: "a", Newest: true}, {Name: "a", Newest: true}}, Instances: one(portable.ExportedInstance{ID: "wf-1"}),
		},
	} {
		out := files{}
		if _, err := folder.Write(out, x); err == nil {
			t.Errorf("%s was written: %v", name, out)
		}
		for file := range out {
			if strings.Contains(file, "..") {
				t.Errorf("%s: wrote %s", name, file)
			}
		}
	}
}

func TestDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "out")
	for range 2 { // an earlier export is overwritten
		to, err := folder.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(to.Put("wf-1.json", []byte("{}\n")), to.Put("checkpoints/c.json", []byte("{}\n")), to.Close()); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	err := filepath.WalkDir(dir, func(file string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, filepath.Base(file))
		}
		return err
	})
	if got := strings.Join(found, " "); err != nil || got != ".gavel-export c.json wf-1.json" {
		t.Errorf("found %s, %v", got, err)
	}
	// Files of another program are never replaced.
	foreign := t.TempDir()
	files{"wf-1.log": "mine"}.write(t, foreign)
	if _, err := folder.OpenDir(foreign); !errors.Is(err, folder.ErrForeign) {
		t.Errorf("got %v", err)
	}
	if content, err := os.ReadFile(filepath.Join(foreign, "wf-1.log")); err != nil || string(content) != "mine" {
		t.Errorf("got %q, %v", content, err)
	}
	// A link in an earlier export is not followed.
	if err := os.Symlink(foreign, filepath.Join(dir, "definitions")); err != nil {
		t.Skip("no links here")
	}
	to, err := folder.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := to.Put("definitions/d.json", []byte("{}\n")); err == nil {
		t.Error("a link was followed out of the folder")
	}
}
