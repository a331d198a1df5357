package folder_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/storetest"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/folder"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/portable"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/testdata"
	"github.com/gavel-mcp/gavel/validators/document"
)

func TestMain(m *testing.M) {
	storetest.SampleProperties(20) // single-goroutine histories
	os.Exit(enginetest.Main(m))
}

var (
	operator = engine.Principal{ID: "op:eve", Role: engine.RoleOperator}
	agent    = engine.Principal{ID: "local:agent", Role: engine.RoleAgent}
)

// house is an engine with a store in memory and a clock that advances by itself.
type house struct {
	*engine.Engine
	t     testing.TB
	store store.Store
	clock time.Time
	ids   int
}

// newHouse returns a house with the given key for its digests.
func newHouse(t testing.TB, key string) *house {
	t.Helper()
	return newHouseOn(t, key, memory.New())
}

func newHouseOn(t testing.TB, key string, db store.Store) *house {
	t.Helper()
	h := &house{t: t, store: db, clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	h.Engine = enginetest.New(t, judge.Config{}, func(cfg *engine.Config) {
		cfg.Store, cfg.Digester = h.store, record.NewDigester([]byte(key))
		cfg.Now = func() time.Time { h.clock = h.clock.Add(time.Millisecond); return h.clock }
		cfg.NewID = func() string { h.ids++; return fmt.Sprintf("%s-%04d", key, h.ids) }
	})
	return h
}

// opened returns an instance with its values opened, not as they are stored.
func (h *house) opened(id string) record.Instance {
	h.t.Helper()
	inst, err := h.Values().OpenInstance(h.t.Context(), h.load(id))
	if err != nil {
		h.t.Fatal(err)
	}
	return inst
}

func (h *house) bring(fsys fs.FS, change func(*portable.ImportRequest)) portable.ImportReport {
	h.t.Helper()
	req := h.request(fsys)
	if change != nil {
		change(&req)
	}
	report, err := portable.Import(h.t.Context(), h.Engine, h.store, operator, req)
	if err != nil {
		h.t.Fatal(err)
	}
	return report
}

func (h *house) request(fsys fs.FS) portable.ImportRequest {
	h.t.Helper()
	from, err := folder.Open(fsys)
	if err != nil {
		h.t.Fatal(err)
	}
	return portable.ImportRequest{Source: "dfa", Owner: agent.ID, Definitions: from.Definitions(), Instances: from.Instances()}
}

// files is a Target in memory.
type files map[string]string

func (f files) Put(name string, content []byte) error {
	f[name] = string(content)
	return nil
}

func (f files) fs() fs.FS {
	out := fstest.MapFS{}
	for name, content := range f {
		out[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o600}
	}
	return out
}

func (h *house) export() files {
	h.t.Helper()
	exported, err := portable.Export(h.t.Context(), h.Engine, h.store, operator, portable.ExportRequest{})
	if err != nil {
		h.t.Fatal(err)
	}
	out := files{}
	if _, err := folder.Write(out, exported); err != nil {
		h.t.Fatal(err)
	}
	return out
}

func (h *house) load(id string) record.Instance {
	h.t.Helper()
	inst, err := h.store.Load(context.Background(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return inst
}

func (h *house) events(id string) []record.Event {
	h.t.Helper()
	var out []record.Event
	for ev, err := range h.store.Events(context.Background(), store.EventQuery{Instance: id}) {
		if err != nil {
			h.t.Fatal(err)
		}
		out = append(out, ev)
	}
	return out
}

// sound checks that every history verifies and folds to the stored instance.
func (h *house) sound() {
	h.t.Helper()
	for inst, err := range h.store.Instances(context.Background(), store.InstanceQuery{}) {
		if err != nil {
			h.t.Fatal(err)
		}
		events := h.store.Events(context.Background(), store.EventQuery{Instance: inst.ID})
		if err := record.Verify(events); err != nil {
			h.t.Errorf("%s: %v", inst.ID, err)
		}
		folded, err := record.FoldAt(events, 0)
		if err != nil {
			h.t.Errorf("%s: %v", inst.ID, err)
		}
		if a, b := text(folded), text(inst); a != b {
			h.t.Errorf("%s folds to\n%s\nand is\n%s", inst.ID, a, b)
		}
	}
}

func (h *house) advance(id, action, data string) engine.AdvanceResult {
	h.t.Helper()
	r, err := h.Advance(context.Background(), agent, engine.AdvanceRequest{ID: id, Action: action, Data: document.ReadTrusted([]byte(data))})
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func text(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// dfa returns one of the shared folders.
func dfa(t testing.TB, name string) files {
	t.Helper()
	out := files{}
	root := path.Join("dfa", name)
	err := fs.WalkDir(testdata.DFA, root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(testdata.DFA, file)
		out[strings.TrimPrefix(file, root+"/")] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// differing lists the files that differ between two exports.
func differing(a, b files) []string {
	var out []string
	for name := range maps.Keys(a) {
		if a[name] != b[name] {
			out = append(out, name+":\n"+a[name]+"---\n"+b[name])
		}
	}
	for name := range maps.Keys(b) {
		if _, ok := a[name]; !ok {
			out = append(out, name+" is new")
		}
	}
	slices.Sort(out)
	return out
}
