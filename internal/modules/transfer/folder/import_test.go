package folder_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/portable"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

var folders = []string{"documented", "older", "torn", "hostile", "careless"}

// The report for each of the shared folders; importing it again changes nothing.
func TestImportReport(t *testing.T) {
	for _, name := range folders {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, "a")
			dry := h.bring(dfa(t, name).fs(), func(r *portable.ImportRequest) { r.DryRun = true })
			if got := h.export(); len(got) != 0 {
				t.Fatalf("a dry run wrote %d files' worth", len(got))
			}
			first := h.bring(dfa(t, name).fs(), nil)
			h.sound()
			dry.DryRun = false
			for i := range dry.Definitions { // a dry run does not know the versions
				dry.Definitions[i].Version = first.Definitions[i].Version
			}
			for i := range dry.Instances {
				dry.Instances[i].Version = first.Instances[i].Version
			}
			if a, b := text(dry), text(first); a != b {
				t.Errorf("the dry run says\n%s\nand the import\n%s", a, b)
			}
			report, err := json.MarshalIndent(first, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".report.json", string(report)+"\n")

			before := h.export()
			again := h.bring(dfa(t, name).fs(), nil)
			for i, got := range again.Instances {
				if got.Status != portable.Refused || first.Instances[i].Status != portable.Refused && !strings.Contains(got.Reason, "already has the instance "+got.ID+";") {
					t.Errorf("importing it again: %+v", got)
				}
			}
			if d := differing(before, h.export()); len(d) > 0 {
				t.Errorf("importing it again changed %s", strings.Join(d, "\n"))
			}
		})
	}
}

// The export of an import is imported whole into a store with another key.
func TestExportOfAnImport(t *testing.T) {
	for _, name := range folders {
		t.Run(name, func(t *testing.T) {
			a := newHouse(t, "a")
			a.bring(dfa(t, name).fs(), nil)
			first := a.export()
			var all strings.Builder
			for _, file := range slices.Sorted(keys(first)) {
				all.WriteString("-- " + file + " --\n" + first[file])
			}
			golden(t, name+".export.txt", all.String())

			comesWhole(t, t, first)
		})
	}
}

func keys(f files) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range f {
			if !yield(name) {
				return
			}
		}
	}
}

func TestImportedHistoryIsMarked(t *testing.T) {
	h := newHouse(t, "a")
	h.bring(dfa(t, "documented").fs(), nil)
	inst := h.load("wf-123")
	if inst.State != "approved" || inst.Status != record.Complete || inst.Owner != "local:agent" || len(inst.Facts.Visited) != 0 || len(inst.Facts.Performed) != 0 {
		t.Errorf("got %+v", inst)
	}
	if strings.Contains(string(inst.Context), "add tests") {
		t.Errorf("the rollback did not take the comments back: %s", inst.Context)
	}
	if want := time.Date(2025, 7, 11, 9, 0, 0, 0, time.UTC); !inst.CreatedAt.Equal(want) {
		t.Errorf("created at %s, want the first line's %s", inst.CreatedAt, want)
	}
	var kinds []string
	for _, ev := range h.events("wf-123") {
		kinds = append(kinds, string(ev.Kind)+" "+ev.To)
		if ev.Import == nil || ev.Import.By != operator.ID || ev.Principal != agent.ID || ev.Import.Source != "dfa" {
			t.Errorf("event %d: %+v", ev.Seq, ev.Import)
		}
	}
	want := []string{"imported submitted", "imported in_review", "checkpointed in_review", "imported changes_requested", "imported in_review", "imported approved"}
	if !slices.Equal(kinds, want) {
		t.Errorf("got %q, want %q", kinds, want)
	}
	d, err := h.Describe(t.Context(), operator, "code-review", 0)
	if err != nil || !d.Operator || d.Owner != operator.ID {
		t.Errorf("the definition is %+v, %v", d.DefinitionSummary, err)
	}
}

// An imported instance continues here like any other, and its past can be queried.
func TestImportedInstanceContinues(t *testing.T) {
	h := newHouse(t, "a")
	from := dfa(t, "documented")
	h.bring(from.fs(), nil)
	const id = "wf-4c1d2f6e"
	if r := h.advance(id, "approve", `{"comments":"short"}`); r.Decision.Applied {
		t.Error("the definition's validator does not hold of an imported instance")
	}
	if r := h.advance(id, "reject", `{"why":"unclear"}`); r.State != "draft" {
		t.Fatalf("got %+v", r)
	}
	h.sound()
	then, err := h.StatusAt(t.Context(), operator, id, engine.When{At: time.Date(2025, 7, 12, 8, 0, 0, 500e6, time.UTC)})
	if err != nil || then.State != "draft" || string(then.Context) != `{"title":"Käse & <Brot>"}` {
		t.Errorf("at its start it was %s %s, %v", then.State, then.Context, err)
	}
	if got := h.bring(from.fs(), nil).Instances[1]; got.Status != portable.Refused || !strings.Contains(got.Reason, "already has") || h.load(id).State != "draft" {
		t.Errorf("importing the folder again: %+v", got)
	}
}

// A folder can be imported under other names next to anything in the store.
func TestRename(t *testing.T) {
	h := newHouse(t, "a")
	from := dfa(t, "documented")
	h.bring(from.fs(), nil)
	before := h.export()
	rename := func(r *portable.ImportRequest) { r.Rename = "copy-" }
	report := h.bring(from.fs(), rename)
	h.sound()
	if report.Refused+report.Differed > 0 {
		t.Fatalf("%s", text(report))
	}
	was, is := h.load("wf-123"), h.load("copy-wf-123")
	if is.Workflow != "copy-code-review" || is.State != was.State || string(is.Context) != string(was.Context) || report.Definitions[0].Name != "copy-code-review" {
		t.Errorf("got %+v", is)
	}
	after := h.export()
	for name, content := range before {
		if after[name] != content {
			t.Errorf("the import changed %s: %s", name, after[name])
		}
	}
	// An export identifies versions by their hashes, which a new name changes.
	b := newHouse(t, "b")
	report = b.bring(before.fs(), rename)
	if report.Refused+report.Differed > 0 || b.load("copy-wf-4c1d2f6e").Workflow != "copy-document-review" {
		t.Errorf("%s", text(report))
	}
	report = b.bring(before.fs(), rename)
	if got := report.Definitions[0]; got.Status != portable.Present || report.Refused != 2 {
		t.Errorf("again: %s", text(report))
	}
	if got := b.bring(before.fs(), func(r *portable.ImportRequest) { r.Rename = "../" }); got.Refused != 4 {
		t.Errorf("a prefix that no name can have: %s", text(got))
	}
}

// Definitions that would lose instances are changed with a warning, and the instances continue here.
func TestCarelessDefinitionsGoOn(t *testing.T) {
	h := newHouse(t, "a")
	h.bring(dfa(t, "careless").fs(), nil)
	if r := h.advance("wf-1f6c", "approve", `{"comments":"Checked sections 1 to 4."}`); r.State != "approved" {
		t.Errorf("got %+v", r)
	}
	if r := h.advance("wf-3b77", "批准", `{}`); r.State != "已批准" {
		t.Errorf("got %+v", r)
	}
	if inst := h.load("wf-2a01"); inst.Status != record.Complete {
		t.Errorf("where nothing leads on it is %s", inst.Status)
	}
	if d, err := h.Describe(t.Context(), operator, "workflow-02e1bbea", 0); err != nil || d.Description != "审批流程" {
		t.Errorf("nobody finds it: %+v, %v", d.DefinitionSummary, err)
	}
	for id, does := range map[string]string{"wf-5d11": "go", "wf-6e20": "ship", "wf-7f31": "send"} { // set aside
		if r := h.advance(id, does, `{"approvedBy":"ada"}`); r.Decision.Applied || !strings.Contains(r.Decision.Reasoning, "This action is disabled because the imported definition") {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if r := h.advance("wf-6e20", "park", `{}`); r.State != "parked" {
		t.Errorf("what has no error is refused: %+v", r)
	}
	for was, is := range map[string]string{"Document Review": "Document-Review-522500f7", "审批流程": "workflow-02e1bbea"} { // the folder also has a Document-Review
		if _, err := h.Start(t.Context(), agent, engine.StartRequest{Type: was}); err == nil || !strings.Contains(err.Error(), `did you mean "`+is+`"`) {
			t.Errorf("%s: %v", was, err)
		}
	}
}

// A generated name replaces no other definition, and is the same the next time.
func TestNamesThatAreMadeUp(t *testing.T) {
	const spaced = `{"name":"guarded flow","initialState":"a","states":{"a":{"transitions":{"x":"b"}},"b":{"final":true}}}`
	names := func(r portable.ImportReport) (out []string) {
		for _, d := range r.Definitions {
			out = append(out, string(d.Status)+" "+d.Name)
		}
		return out
	}
	h := newHouse(t, "a")
	if got := names(h.bring(files{"definitions/a.json": spaced}.fs(), nil)); !slices.Equal(got, []string{"imported guarded-flow"}) {
		t.Errorf("got %q", got)
	}
	if got := names(h.bring(files{"definitions/a.json": spaced}.fs(), nil)); !slices.Equal(got, []string{"present guarded-flow"}) {
		t.Errorf("again: %q", got)
	}
	b := newHouse(t, "b")
	taken := strings.Replace(guarded, `"guarded"`, `"guarded-flow"`, 1)
	b.bring(files{"definitions/g.json": taken}.fs(), nil)
	for range 2 {
		b.bring(files{"definitions/a.json": spaced}.fs(), nil)
	}
	if d, err := b.Describe(t.Context(), operator, "guarded-flow", 0); err != nil || d.Version != 1 {
		t.Errorf("the store's own has version %d, %v", d.Version, err)
	}
	both := files{"definitions/a.json": spaced, "definitions/b.json": strings.Replace(spaced, "guarded flow", "guarded/flow", 1), "definitions/g.json": taken}
	if got := names(newHouse(t, "c").bring(both.fs(), nil)); len(slices.Compact(slices.Sorted(slices.Values(got)))) != 3 || !slices.Contains(got, "imported guarded-flow") {
		t.Errorf("in one folder: %q", got)
	}
	if got := names(h.bring(files{"definitions/a.json": spaced}.fs(), func(r *portable.ImportRequest) { r.Rename = "old-" })); !slices.Equal(got, []string{"imported old-guarded-flow"}) {
		t.Errorf("renamed: %q", got)
	}
}

// guarded cannot be bypassed through its transitions, only through a history that was not judged here.
const guarded = `{"name":"guarded","initialState":"draft","mustPassThrough":{"done":["checked"]},"states":{
	"draft":{"transitions":{"check":"checked"}},
	"checked":{"transitions":{"ok":"ready"}},
	"ready":{"transitions":{"finish":"done"}},
	"done":{"final":true}}}`

func TestVisitsCountOnlyIfTheOperatorAllows(t *testing.T) {
	from := files{
		"definitions/guarded.json": guarded,
		"wf-1.json":                `{"id":"wf-1","type":"guarded","state":"ready","context":{}}`,
		"wf-1.log": `{"to":"draft"}` + "\n" + `{"from":"draft","action":"check","to":"checked"}` + "\n" +
			`{"from":"checked","action":"ok","to":"ready"}` + "\n",
	}
	for _, counts := range []bool{false, true} {
		h := newHouse(t, "a")
		report := h.bring(from.fs(), func(r *portable.ImportRequest) { r.Counts = counts })
		if said := len(report.Instances[0].Notes) == 1; said == counts {
			t.Errorf("counts %v: notes %q", counts, report.Instances[0].Notes)
		}
		r := h.advance("wf-1", "finish", `{}`)
		if r.Decision.Applied != counts {
			t.Errorf("counts %v: the move was %s (%s)", counts, r.Decision.Outcome, r.Decision.Code)
		}
	}
}

// A visit that a rollback undid does not count, whether the operator lets visits count or not.
func TestVisitsTakenBackDoNotCount(t *testing.T) {
	start := `{"to":"draft"}` + "\n"
	check := `{"from":"draft","action":"check","to":"checked"}` + "\n"
	back := `{"from":"checked","action":"rollback","to":"draft","checkpointId":"cp-1"}` + "\n"
	from := files{
		"definitions/guarded.json": guarded,
		"checkpoints/cp-1.json":    `{"checkpointId":"cp-1","workflowId":"wf-1","state":"draft","context":{}}`,
		"wf-1.json":                `{"id":"wf-1","type":"guarded","state":"draft","context":{}}`,
		"wf-1.log":                 start + check + back,
	}
	unstarted := maps.Clone(from) // its start is an event of the import
	unstarted["wf-1.log"] = `{"from":"checked","action":"ok","to":"ready"}` + "\n" + back
	for _, from := range []files{from, unstarted} {
		h := newHouse(t, "a")
		h.bring(from.fs(), func(r *portable.ImportRequest) { r.Counts = true })
		if got := h.load("wf-1").Facts.Visited; !slices.Equal(got, []string{"draft"}) {
			t.Errorf("visited %q", got)
		}
	}
}

// A field that an imported step froze is frozen; a step that was refused elsewhere froze nothing.
func TestImportedStepsFreeze(t *testing.T) {
	const freezing = `{"name":"freezing","initialState":"open","states":{
		"open":{"transitions":{"note":"open","fix":{"target":"open","freezes":["/n"]},"close":"closed"}},"closed":{"final":true}}}`
	for gavel, want := range map[string][]string{"": {"/n"}, `,"gavel":{"kind":"refused"}`: nil} {
		h := newHouse(t, "a")
		h.bring(files{
			"definitions/freezing.json": freezing,
			"wf-1.json":                 `{"id":"wf-1","type":"freezing","state":"open","context":{}}`,
			"wf-1.log":                  `{"to":"open"}` + "\n" + `{"from":"open","action":"fix","to":"open"` + gavel + `}` + "\n",
		}.fs(), nil)
		if got := h.load("wf-1").Facts.Frozen; !slices.Equal(got, want) {
			t.Errorf("%q: frozen %q, want %q", gavel, got, want)
		}
	}
}

// A rollback restores the context of its checkpoint; a line of an export has the changes itself.
func TestRollbackRestores(t *testing.T) {
	for gavel, want := range map[string]string{"": `{"n":1}`, `,"gavel":{"kind":"imported"}`: `{"n":2}`} {
		h := newHouse(t, "a")
		got := h.bring(files{
			"definitions/secretive.json": secretive,
			"checkpoints/c.json":         `{"checkpointId":"c","workflowId":"wf-1","state":"open","context":{"n":1,"gone":null}}`,
			"wf-1.json":                  `{"id":"wf-1","type":"secretive","state":"open","context":{"gone":null,` + want[1:] + `}`,
			"wf-1.log":                   `{"to":"open","data":{"n":2}}` + "\n" + `{"from":"open","action":"rollback","to":"open","checkpointId":"c"` + gavel + `}` + "\n",
		}.fs(), nil).Instances[0]
		placed := gavel == "" // its context equals the final one
		if string(h.load("wf-1").Context) != want || (got.Checkpoints == 1) != placed || (got.Status == portable.Imported) != placed || got.Events != 2+got.Checkpoints {
			t.Errorf("%q: got %s, %s", gavel, h.load("wf-1").Context, text(got))
		}
	}
}

// A checkpoint is placed by its time, or else at the end. If state and context do not match there, it is
// left out and reported.
func TestCheckpointsArePlaced(t *testing.T) {
	cp := func(id, state, n, more string) string {
		return `{"checkpointId":"` + id + `","workflowId":"wf-1","state":"` + state + `","context":{"n":` + n + `}` + more + `}`
	}
	from := files{
		"definitions/secretive.json": secretive,
		"wf-1.json":                  `{"id":"wf-1","type":"secretive","state":"open","context":{"n":4},"updatedAt":"2025-01-06T00:00:00Z"}`,
		"wf-1.log": `{"timestamp":"2025-01-01T00:00:00Z","to":"open","data":{"n":1}}` + "\n" +
			`{"timestamp":"2025-01-02T00:00:00Z","from":"open","action":"note","to":"open","data":{"n":2}}` + "\n" +
			`{"timestamp":"2025-01-04T00:00:00Z","from":"open","action":"hold","to":"held","data":{"n":3}}` + "\n",
		"checkpoints/0.json": cp("early", "open", "1", `,"timestamp":"2024-12-31T12:00:00Z"`),
		"checkpoints/1.json": cp("timed", "open", "1", `,"timestamp":"2025-01-01T12:00:00Z"`),
		"checkpoints/2.json": cp("second", "open", "2", `,"timestamp":"2025-01-02T12:00:00Z"`),
		"checkpoints/3.json": cp("lost-step", "held", "3", `,"timestamp":"2025-01-05T00:00:00Z"`),
		"checkpoints/4.json": cp("last", "open", "4", ""),
		"checkpoints/5.json": cp("late", "open", "1", `,"timestamp":"2025-01-02T12:00:00Z"`),
		"checkpoints/6.json": cp("forged", "open", "9", `,"timestamp":"2025-01-02T12:00:00Z"`),
		"checkpoints/7.json": cp("timed", "held", "3", `,"timestamp":"2025-01-04T12:00:00Z"`),
	}
	h := newHouse(t, "a")
	got := h.bring(from.fs(), nil).Instances[0]
	if got.Status != portable.Differs || got.Checkpoints != 5 || len(got.Notes) != 4 || strings.Count(text(got.Notes), "left out") != 3 {
		t.Errorf("got %s", text(got))
	}
	h.sound()
	var order []string
	for _, ev := range h.events("wf-1") {
		if ev.Checkpoint != nil {
			order = append(order, ev.Checkpoint.ID)
		} else {
			order = append(order, strconv.Itoa(ev.Import.Line))
		}
	}
	if want := []string{"1", "early", "timed", "2", "second", "3", "lost-step", "0", "last"}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
	if inst := h.load("wf-1"); inst.State != "open" || string(inst.Context) != `{"n":4}` {
		t.Errorf("a checkpoint changed it: %+v", inst)
	}
	comesWhole(t, t, h.export())
}

// The notes of an instance are bounded, however much there is to report, and the rest is counted.
func TestNotesAreBounded(t *testing.T) {
	from := files{
		"definitions/secretive.json": secretive,
		"wf-1.json":                  `{"id":"wf-1","type":"secretive","state":"open","context":{}}`,
		"wf-1.log":                   `{"to":"open"}` + "\n" + strings.Repeat(`{"from":"held","action":"note","to":"open"}`+"\n", 61),
	}
	got := newHouse(t, "a").bring(from.fs(), nil).Instances[0]
	if got.Status != portable.Differs || len(got.Notes) != 41 || got.Notes[40] != "and 21 more" {
		t.Errorf("%d notes: %q", len(got.Notes), got.Notes)
	}
}

// A line without a target state rejects the instance.
func TestLineWithoutState(t *testing.T) {
	from := files{
		"definitions/secretive.json": secretive,
		"wf-1.json":                  `{"id":"wf-1","type":"secretive","state":"open","context":{}}`,
		"wf-1.log":                   `{"to":"open"}` + "\n" + `{"from":"open","action":"note"}` + "\n",
	}
	got := newHouse(t, "a").bring(from.fs(), nil).Instances[0]
	if got.Status != portable.Refused || got.Reason != "wf-1.log:2: the resulting state is missing" {
		t.Errorf("got %+v", got)
	}
}

func TestIDsThatAreTaken(t *testing.T) {
	h := newHouse(t, "a")
	h.bring(files{"definitions/guarded.json": guarded}.fs(), nil)
	started, err := h.Start(t.Context(), agent, engine.StartRequest{Type: "guarded"})
	if err != nil {
		t.Fatal(err)
	}
	for what, log := range map[string]string{"no log": "", "another log": `{"to":"draft","data":{"a":1}}` + "\n"} {
		from := files{
			"definitions/guarded.json": guarded,
			started.ID + ".json":       `{"id":"` + started.ID + `","type":"guarded","state":"done","context":{}}`,
			started.ID + ".log":        log,
		}
		got := h.bring(from.fs(), nil).Instances[0]
		if got.Status != portable.Refused || !strings.Contains(got.Reason, "already has") || h.load(started.ID).State != "draft" {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

func TestOnlyAnOperatorImports(t *testing.T) {
	h := newHouse(t, "a")
	for _, role := range []engine.Role{engine.RoleAgent, engine.RoleReviewer, engine.RoleAuditor} {
		_, err := portable.Import(t.Context(), h.Engine, h.store, engine.Principal{ID: "x", Role: role}, portable.ImportRequest{Source: "x"})
		if engine.CodeOf(err) != engine.CodeForbidden {
			t.Errorf("%s imports: %v", role, err)
		}
	}
	if _, err := portable.Export(t.Context(), h.Engine, h.store, agent, portable.ExportRequest{}); engine.CodeOf(err) != engine.CodeForbidden {
		t.Errorf("an agent exports: %v", err)
	}
}

// An agent's definition with the same text is not used: imported definitions belong to an operator.
func TestDefinitionOfAnAgentIsTakenOver(t *testing.T) {
	h := newHouse(t, "a")
	if _, err := h.Define(t.Context(), agent, engine.DefineRequest{Source: "x", Document: []byte(guarded)}); err != nil {
		t.Fatal(err)
	}
	got := h.bring(files{"definitions/guarded.json": guarded}.fs(), nil).Definitions[0]
	if got.Status != portable.Imported || got.Version != 2 {
		t.Errorf("got %+v", got)
	}
}

// A line keeps its own time if possible: not in the future, and not before the previous line.
func TestTimes(t *testing.T) {
	h := newHouse(t, "a")
	from := files{
		"definitions/guarded.json": guarded,
		"wf-1.json":                `{"id":"wf-1","type":"guarded","state":"ready","context":{},"createdAt":"2025-01-01T00:00:00Z","updatedAt":"2025-06-01T00:00:00Z"}`,
		"wf-1.log": `{"timestamp":"2025-01-02T00:00:00Z","to":"draft"}` + "\n" +
			`{"timestamp":"2025-01-01T12:00:00Z","from":"draft","action":"check","to":"checked"}` + "\n" +
			`{"timestamp":"2099-01-01T00:00:00Z","from":"checked","action":"ok","to":"ready"}` + "\n",
	}
	h.bring(from.fs(), nil)
	for _, ev := range h.events("wf-1") {
		if want := time.Date(2025, 1, 2, 0, 0, 0, 0, time.UTC); !ev.Time.Equal(want) {
			t.Errorf("event %d has the time %s", ev.Seq, ev.Time)
		}
	}
	// Events that happen here have the time of here.
	h.advance("wf-1", "nonsense", `{}`)
	if got := h.export()["wf-1.json"]; !strings.Contains(got, `"updatedAt":"2026-01-02T`) || !strings.Contains(got, `"createdAt":"2025-01-02T`) {
		t.Errorf("got %s", got)
	}
}

// An instance keeps its version, and older versions are imported too.
func TestVersions(t *testing.T) {
	a := newHouse(t, "a")
	newer := strings.Replace(guarded, `"mustPassThrough":{"done":["checked"]},`, "", 1)
	a.bring(files{"definitions/guarded.json": guarded}.fs(), nil)
	started, err := a.Start(t.Context(), agent, engine.StartRequest{Type: "guarded"})
	if err != nil {
		t.Fatal(err)
	}
	a.bring(files{"definitions/guarded.json": newer}.fs(), nil)
	out := a.export()
	if out["definitions/guarded@1.json"] == "" || out["definitions/guarded.json"] == "" {
		t.Fatalf("got %v", out)
	}
	b := newHouse(t, "b")
	report := b.bring(out.fs(), nil)
	if got := report.Instances[0]; got.Version != 1 || report.Definitions[1].Version != 2 {
		t.Errorf("got %s", text(report))
	}
	if d := differing(out, b.export()); slices.ContainsFunc(d, func(file string) bool { return !strings.HasPrefix(file, started.ID) }) {
		t.Errorf("differs: %q", d)
	}
	delete(out, "definitions/guarded@1.json")
	if got := newHouse(t, "c").bring(out.fs(), nil).Instances[0]; got.Status != portable.Refused || !strings.Contains(got.Reason, "its version of") {
		t.Errorf("an instance got another version: %+v", got)
	}
}

// An instance is imported whole or not at all, even with a long log.
func TestLongLog(t *testing.T) {
	var log strings.Builder
	log.WriteString(`{"to":"open"}` + "\n")
	for range 2500 {
		log.WriteString(`{"from":"open","action":"note","to":"open","data":{"n":1}}` + "\n")
	}
	from := files{
		"definitions/secretive.json": secretive, "wf-1.log": log.String(),
		"wf-1.json": `{"id":"wf-1","type":"secretive","state":"open","context":{"n":1}}`,
	}
	h := newHouse(t, "a")
	for after := range 2 {
		broken := &interrupted{Store: h.store, after: after}
		half := newHouseOn(t, "a", broken)
		_, err := portable.Import(t.Context(), half.Engine, half.store, operator, half.request(from.fs()))
		if failed := err != nil; failed != (after == 0) {
			t.Fatalf("after %d commits: %v", after, err)
		}
		_, err = h.store.Load(t.Context(), "wf-1")
		if gone := errors.Is(err, store.ErrNotFound); gone != (after == 0) {
			t.Errorf("after %d commits: %v", after, err)
		}
	}
	if got := h.load("wf-1").Seq; got != 2501 {
		t.Errorf("%d events", got)
	}
	h.sound()
}

// interrupted is a store that fails after some commits.
type interrupted struct {
	store.Store
	after int
}

func (s *interrupted) Commit(ctx context.Context, c store.Commit) error {
	if s.after--; s.after < 0 {
		return errors.New("out of order")
	}
	return s.Store.Commit(ctx, c)
}

// A history whose beginning was removed is exported from its first remaining event.
func TestShortened(t *testing.T) {
	for name, n := range map[string]int{"as the log says": 2, "reconciled": 3} { // no event of a line is left then
		t.Run(name, func(t *testing.T) { shortened(t, n) })
	}
}

func shortened(t *testing.T, n int) {
	keeping := strings.Replace(secretive, `"initialState"`, `"retention":{"events":"7d"},"initialState"`, 1)
	from := files{
		"definitions/secretive.json": keeping,
		"wf-1.json":                  `{"id":"wf-1","type":"secretive","state":"closed","context":{"n":` + strconv.Itoa(n) + `,"token":"tok-5551234"}}`,
		"wf-1.log": `{"timestamp":"2025-01-01T00:00:00Z","to":"open","data":{"token":"tok-5551234"}}` + "\n" +
			`{"timestamp":"2025-01-01T00:00:01Z","from":"open","action":"note","to":"open","data":{"n":2}}` + "\n" +
			`{"timestamp":"2025-01-01T00:00:02Z","from":"open","action":"close","to":"closed"}` + "\n",
	}
	h := newHouse(t, "a")
	h.bring(from.fs(), nil)
	auditor, err := audit.New(audit.Config{Engine: h.Engine, Store: h.store})
	if err != nil {
		t.Fatal(err)
	}
	retained, err := auditor.Retain(t.Context(), operator, audit.RetainRequest{})
	if err != nil || retained.Events == 0 {
		t.Fatalf("nothing was removed: %+v, %v", retained, err)
	}
	first := h.export()
	if strings.Contains(first["wf-1.log"], "tok-5551234") || !strings.Contains(first["wf-1.log"], `"action":"truncated"`) {
		t.Errorf("got %s", first["wf-1.log"])
	}
	comesWhole(t, t, first)
}
