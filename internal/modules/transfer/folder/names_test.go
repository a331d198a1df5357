package folder_test

import (
	"encoding/json"
	"errors"
	"iter"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/folder"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/portable"
)

var deviceName = regexp.MustCompile(`^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)

// checkPortable fails unless every name is valid on every system, and unique.
func checkPortable(tb interface{ Fatalf(string, ...any) }, out files) {
	seen := map[string]string{}
	for name := range out {
		if other, taken := seen[strings.ToLower(name)]; taken {
			tb.Fatalf("%s and %s are one file where case does not count", name, other)
		}
		seen[strings.ToLower(name)] = name
		base := path.Base(name)
		if strings.HasPrefix(base, "-") || strings.HasPrefix(base, ".") || strings.HasSuffix(base, ".") || len(base) > 255 ||
			deviceName.MatchString(strings.ToLower(base)) || strings.ContainsAny(base, `<>:"/\|?* `) || strings.Count(name, "/") > 1 {
			tb.Fatalf("%q is no name of a file everywhere", name)
		}
	}
}

// A whole store is exported and read back, whatever agents call their workflows.
func TestNamesOfAnyWorkflow(t *testing.T) {
	names := []string{"-", "..", ".hidden", "a", "A", "Refund", "refund", "REFUND", "con", "CON.x", "Aux", "com1", "a.b", "_", strings.Repeat("W", 64), strings.Repeat("W", 63) + "w"}
	a, b := newHouse(t, "a"), newHouse(t, "b")
	for _, name := range names {
		for _, comment := range []string{"1", "2"} {
			doc := `{"name":"` + name + `","comment":"` + comment + `","initialState":"open","states":{"open":{"final":true}}}`
			if _, err := a.Define(t.Context(), agent, engine.DefineRequest{Source: "test", Document: []byte(doc)}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if _, err := a.Start(t.Context(), agent, engine.StartRequest{Type: name}); err != nil {
			t.Fatal(err)
		}
	}
	out := a.export()
	checkPortable(t, out)
	if r := b.bring(out.fs(), nil); r.Refused+r.Differed > 0 {
		t.Fatalf("%s", text(r))
	}
	list, err := b.List(t.Context(), operator)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range list {
		got = append(got, d.Name)
		if d.Version != 2 {
			t.Errorf("%s has version %d", d.Name, d.Version)
		}
		view, err := b.Describe(t.Context(), operator, d.Name, 0)
		if err != nil || !strings.Contains(string(view.Definition), `"comment":"2"`) {
			t.Errorf("the newest version of %s: %s, %v", d.Name, view.Definition, err)
		}
	}
	slices.Sort(names)
	slices.Sort(got)
	if !slices.Equal(got, names) {
		t.Errorf("got %q", got)
	}
}

// Imported ids are written and read back, whatever other ids exist.
func TestNamesOfAnyInstance(t *testing.T) {
	word := rapid.SampledFrom([]string{"a", "A", "b", "wf-", "-", "_", ".a", ".A", "1", "con", strings.Repeat("X", 60), strings.Repeat("x", 60)})
	good := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)
	id := rapid.Custom(func(rt *rapid.T) string {
		return strings.Join(rapid.SliceOfN(word, 1, 4).Draw(rt, "words"), "")
	}).Filter(func(id string) bool { return good.MatchString(id) && len(id) <= 128 })
	rapid.Check(t, func(rt *rapid.T) {
		want := map[string][]string{}
		for range rapid.IntRange(1, 6).Draw(rt, "instances") {
			want[id.Draw(rt, "id")] = rapid.SliceOfNDistinct(id, 0, 3, rapid.ID).Draw(rt, "checkpoints")
		}
		out := files{}
		if _, err := folder.Write(out, portable.Exported{Instances: exportedAs(want)}); err != nil {
			rt.Fatal(err)
		}
		checkPortable(rt, out)
		in, err := folder.Open(out.fs())
		if err != nil {
			rt.Fatal(err)
		}
		for got, err := range in.Instances() {
			if err != nil {
				rt.Fatalf("%s: %v", got.File, err)
			}
			var checkpoints []string
			for _, cp := range got.Checkpoints {
				checkpoints = append(checkpoints, cp.ID)
			}
			slices.Sort(checkpoints)
			slices.Sort(want[got.ID])
			if _, known := want[got.ID]; !known || !slices.Equal(checkpoints, want[got.ID]) {
				rt.Fatalf("%s in %s has %q, want %q", got.ID, got.File, checkpoints, want[got.ID])
			}
			delete(want, got.ID)
		}
		if len(want) > 0 {
			rt.Fatalf("not read back: %v from %v", want, out)
		}
	})
}

func exportedAs(want map[string][]string) iter.Seq2[portable.ExportedInstance, error] {
	return func(yield func(portable.ExportedInstance, error) bool) {
		for id, checkpoints := range want {
			x := portable.ExportedInstance{ID: id, State: json.RawMessage(`{"id":"` + id + `","type":"w","state":"a","context":{}}`)}
			for _, cp := range checkpoints {
				x.Checkpoints = append(x.Checkpoints, portable.ExportedCheckpoint{
					ID: cp, Document: json.RawMessage(`{"checkpointId":"` + cp + `","workflowId":"` + id + `","state":"a","context":{}}`),
				})
			}
			if !yield(x, nil) {
				return
			}
		}
	}
}

// An export of the older form is not overwritten: its files had other names.
func TestOlderFormIsNotWrittenOver(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".gavel-export"), []byte("gavel export, form 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := folder.OpenDir(dir); !errors.Is(err, folder.ErrForeign) {
		t.Errorf("got %v", err)
	}
}
