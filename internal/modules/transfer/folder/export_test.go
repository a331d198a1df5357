package folder_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/portable"
	"github.com/gavel-mcp/gavel/validators/document"
)

const secretive = `{"name":"secretive","initialState":"open","sensitive":["/customer/ssn","/token"],"states":{
	"open":{"transitions":{"note":"open","hold":"held","close":"closed"}},
	"held":{"transitions":{"free":"open"}},
	"closed":{"final":true}}}`

// An export has no sensitive value in plain text, in any place; a store with another key can import it.
func TestExportMasks(t *testing.T) {
	const ssn, token = "078-05-1120", "tok-55512345"
	from := files{
		"definitions/secretive.json": secretive,
		"wf-1.json":                  `{"id":"wf-1","type":"secretive","state":"open","context":{"customer":{"ssn":"` + ssn + `"},"n":1},"last":"` + ssn + `"}`,
		"wf-1.log": `{"to":"open","data":{"customer":{"ssn":"` + ssn + `"}}}` + "\n" +
			`{"from":"open","action":"note","to":"open","data":{"n":1,"token":"` + token + `"},"said":["the token is ` + token + `"]}` + "\n" +
			`{"from":"open","action":"note","to":"open","data":{"token":null}}` + "\n",
		"checkpoints/c.json": `{"checkpointId":"c","workflowId":"wf-1","state":"open","context":{"customer":{"ssn":"` + ssn + `"},"n":1},"description":"` + ssn + ` asked","metadata":{"for":"` + ssn + `"}}`,
	}
	a := newHouse(t, "a")
	if r := a.bring(from.fs(), nil); r.Refused+r.Differed > 0 {
		t.Fatalf("%s", text(r))
	}
	a.advance("wf-1", "note", `{"token":"`+token+`"}`)
	a.advance("wf-1", "nonsense", `{"token":"`+token+`"}`)
	if _, err := a.Cancel(t.Context(), agent, engine.CancelRequest{ID: "wf-1", Reason: "it was " + token}); err != nil {
		t.Fatal(err)
	}
	first := a.export()
	for name, content := range first {
		if strings.Contains(content, ssn) || strings.Contains(content, token) {
			t.Errorf("%s tells:\n%s", name, content)
		}
	}
	if !strings.Contains(first["wf-1.json"], `"ssn":"hmac-sha256-v2:`) {
		t.Errorf("no digest in %s", first["wf-1.json"])
	}
	comesWhole(t, t, first)
	// Importing its own export takes nothing away from a store.
	report := a.bring(first.fs(), nil)
	if got := report.Instances[0]; got.Status != portable.Refused || report.Differed > 0 {
		t.Errorf("%s", text(report))
	}
	if got := string(a.opened("wf-1").Context); !strings.Contains(got, ssn) {
		t.Errorf("the import of its own export masked the store: %s", got)
	}
}

// comesWhole checks that an export is imported whole into another store, and from there into a third:
// in the same states, with the same number of events.
func comesWhole(t *testing.T, tb interface{ Fatalf(string, ...any) }, first files) {
	b, c := newHouse(t, "b"), newHouse(t, "c")
	for _, round := range []struct {
		into *house
		from files
	}{{b, first}, {c, nil}} {
		if round.from == nil {
			round.from = b.export()
		}
		if r := round.into.bring(round.from.fs(), nil); r.Refused+r.Differed > 0 {
			tb.Fatalf("%s", text(r))
		}
		round.into.sound()
	}
	for inst, err := range b.store.Instances(t.Context(), store.InstanceQuery{}) {
		if is := c.load(inst.ID); err != nil || is.State != inst.State || is.Status != inst.Status || is.Seq != inst.Seq {
			tb.Fatalf("%s is %s %s at event %d, and was %s %s at %d (%v)", inst.ID, is.State, is.Status, is.Seq, inst.State, inst.Status, inst.Seq, err)
		}
	}
}

// An instance that continued in a second store can return to the first one only under another id, next
// to its own past there. A third store imports it unchanged.
func TestComesBack(t *testing.T) {
	a, b := newHouse(t, "a"), newHouse(t, "b")
	a.bring(files{"definitions/secretive.json": secretive}.fs(), nil)
	started, err := a.Start(t.Context(), agent, engine.StartRequest{Type: "secretive", Context: json.RawMessage(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	a.advance(started.ID, "hold", `{"why":"wait"}`)
	b.bring(a.export().fs(), nil)
	b.advance(started.ID, "free", `{"n":2}`)
	b.advance(started.ID, "nothing", `{}`)
	b.advance(started.ID, "close", `{}`)
	b.sound()
	if got := a.bring(b.export().fs(), nil).Instances[0]; got.Status != portable.Refused || a.load(started.ID).State != "held" {
		t.Errorf("two histories were joined: %+v", got)
	}
	c := newHouse(t, "c")
	for prefix, into := range map[string]*house{"b-": a, "": c} {
		report := into.bring(b.export().fs(), func(r *portable.ImportRequest) { r.Rename = prefix })
		if got := report.Instances[0]; got.Status != portable.Imported || got.Events != 5 || got.State != "closed" || report.Differed > 0 {
			t.Errorf("got %s", text(report))
		}
		into.sound()
		if got := into.load(prefix + started.ID); got.Status != record.Complete || string(got.Context) != `{"n":2,"why":"wait"}` {
			t.Errorf("got %+v", got)
		}
	}
}

// Calls and stops keep their meaning. The report lists calls that the other store does not wait for: an
// unsettled call may have happened.
func TestCallsAndStopsComeAlong(t *testing.T) {
	t.Parallel()
	a := newHouse(t, "a")
	a.bring(files{"definitions/secretive.json": secretive}.fs(), nil)
	started, err := a.Start(t.Context(), agent, engine.StartRequest{Type: "secretive", Context: json.RawMessage(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	id := started.ID
	for range 2 {
		if _, err := a.Finish(t.Context(), agent, engine.FinishRequest{ID: id, States: []string{"closed"}, Attempts: 1}); err != nil {
			t.Fatal(err)
		}
	}
	call, err := a.BeginCall(t.Context(), agent, engine.CallRequest{
		ID: id, Gate: "prod__deploy", Upstream: "prod", Tool: "deploy", Arguments: json.RawMessage(`{}`), States: []string{"open"}, Timeout: time.Minute,
	})
	if err != nil || call.Answer != engine.CallGo {
		t.Fatalf("%+v, %v", call, err)
	}
	settle := func(how engine.CallOutcome) {
		t.Helper()
		if _, err := a.SettleCall(t.Context(), agent, engine.SettleRequest{ID: id, CallID: call.CallID, Outcome: how}); err != nil {
			t.Fatal(err)
		}
	}
	notes := func(key string) string {
		t.Helper()
		b := newHouse(t, key)
		exported := a.export()
		got := b.bring(exported.fs(), nil).Instances[0]
		if got.Status != portable.Imported || got.State != "open" {
			t.Fatalf("%s: %+v", key, got)
		}
		b.sound()
		if facts := b.load(id).Facts; facts.Stops.Refused > 0 || len(facts.Reviews)+len(facts.Calls) > 0 {
			t.Errorf("%s: what was said elsewhere counts here: %+v", key, facts)
		}
		b.advance(id, "close", `{}`)
		again := newHouse(t, key+"-again").bring(b.export().fs(), nil).Instances[0]
		if again.Status != portable.Imported || strings.Join(again.Notes, "\n") != strings.Join(got.Notes, "\n") {
			t.Errorf("%s: imported again: %+v", key, again)
		}
		return strings.Join(got.Notes, "\n")
	}
	unsettled := fmt.Sprintf("the call %q of %q was not settled", call.CallID, "prod__deploy")
	if got := notes("b"); !strings.Contains(got, unsettled) || !strings.Contains(got, "do not count toward maxCalls") {
		t.Errorf("while it is open: %s", got)
	}
	settle(engine.CallUnknown)
	if got := notes("c"); !strings.Contains(got, unsettled) {
		t.Errorf("while nobody knows: %s", got)
	}
	settle(engine.CallOK)
	if got := notes("d"); strings.Contains(got, "was not settled") || !strings.Contains(got, "do not count toward maxCalls") {
		t.Errorf("settled: %s", got)
	}
}

// Whatever happened to instances, another store that imports the export reaches the same result and
// exports the same bytes.
func TestRoundTripOfRandomHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := newHouse(t, "a")
		a.bring(files{"definitions/secretive.json": secretive}.fs(), nil)
		var ids []string
		checkpoints := map[string][]string{}
		values := rapid.SampledFrom([]string{`1`, `1.50`, `"x"`, `"<é\u2028>"`, `null`, `{"ssn":"078-05-1120","z":[1,{"a":null}]}`, `"hmac-sha256:ab"`, `[]`, `true`})
		documents := rapid.Custom(func(rt *rapid.T) string {
			fields := map[string]json.RawMessage{}
			for range rapid.IntRange(0, 3).Draw(rt, "keys") {
				fields[rapid.SampledFrom([]string{"a", "b", "customer", "token", "é"}).Draw(rt, "key")] = json.RawMessage(values.Draw(rt, "value"))
			}
			return text(fields)
		})
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			if len(ids) == 0 || rapid.IntRange(0, 9).Draw(rt, "new") == 0 {
				s, err := a.Start(t.Context(), agent, engine.StartRequest{Type: "secretive", Context: json.RawMessage(documents.Draw(rt, "context"))})
				if err != nil {
					rt.Fatal(err)
				}
				ids = append(ids, s.ID)
				continue
			}
			id := rapid.SampledFrom(ids).Draw(rt, "id")
			act(rt, a, id, rapid.SampledFrom([]string{"note", "note", "hold", "free", "close", "nonsense", "?validate", "?checkpoint", "?rollback", "?undo", "?redo", "?cancel"}).Draw(rt, "what"), documents.Draw(rt, "data"), checkpoints)
		}
		first := a.export()
		b := newHouse(t, "b")
		if r := b.bring(first.fs(), nil); r.Refused+r.Differed > 0 {
			rt.Fatalf("%s\n%v", text(r), first)
		}
		b.sound()
		for _, id := range ids {
			was, is := a.load(id), b.load(id)
			if was.State != is.State || was.Status != is.Status {
				rt.Fatalf("%s was %s %s and is %s %s", id, was.State, was.Status, is.State, is.Status)
			}
		}
		comesWhole(t, rt, first)
		if r := b.bring(first.fs(), nil); r.Refused != len(ids) {
			rt.Fatalf("again: %s", text(r))
		}
		for _, id := range ids {
			if got, want := len(b.events(id)), len(a.events(id)); got != want {
				rt.Fatalf("%s has %d events, and had %d", id, got, want)
			}
		}
	})
}

// act performs one operation, which may be refused.
func act(rt *rapid.T, h *house, id, what, data string, checkpoints map[string][]string) {
	ctx := h.t.Context()
	var err error
	switch what {
	case "?validate":
		_, err = h.Validate(ctx, agent, engine.AdvanceRequest{ID: id, Action: "note", Data: document.ReadTrusted([]byte(data))})
	case "?checkpoint":
		var cp engine.CheckpointResult
		if cp, err = h.Checkpoint(ctx, operator, engine.CheckpointRequest{ID: id, Description: "d", Metadata: json.RawMessage(data)}); err == nil {
			checkpoints[id] = append(checkpoints[id], cp.CheckpointID)
		}
	case "?rollback":
		if all := checkpoints[id]; len(all) > 0 {
			_, err = h.Rollback(ctx, operator, engine.RollbackRequest{ID: id, CheckpointID: rapid.SampledFrom(all).Draw(rt, "checkpoint")})
		}
	case "?undo":
		_, err = h.Undo(ctx, operator, engine.UndoRequest{ID: id})
	case "?redo":
		_, err = h.Redo(ctx, operator, engine.UndoRequest{ID: id})
	case "?cancel":
		_, err = h.Cancel(ctx, agent, engine.CancelRequest{ID: id, Reason: "r"})
	default:
		_, err = h.Advance(ctx, agent, engine.AdvanceRequest{ID: id, Action: what, Data: document.ReadTrusted([]byte(data))})
	}
	switch engine.CodeOf(err) {
	case "", engine.CodeNothingToUndo, engine.CodeInstanceEnded, engine.CodeConflict:
	default:
		rt.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}

// A folder from another program, with anything odd in its lines, is imported to the state in its
// files, and its export can be imported again.
func TestRoundTripOfRandomFolders(t *testing.T) {
	states := rapid.SampledFrom([]string{"open", "held", "closed", "gone"})
	actions := rapid.SampledFrom([]string{"start", "note", "hold", "free", "close", "rollback", "checkpoint", "x<y>", ""})
	contexts := rapid.SampledFrom([]string{`{}`, `{"a":1}`, `{"a":1,"customer":{"ssn":"078-05-1120"}}`, `{"b":null,"token":"tok-5551234"}`})
	times := rapid.SampledFrom([]string{`"2025-01-01T00:00:00Z"`, `"2025-01-01T00:00:01.5+01:00"`, `1735689700000`, `"2031-01-01T00:00:00Z"`, `"soon"`, `null`, `-5`})
	line := rapid.Custom(func(rt *rapid.T) string {
		fields := map[string]json.RawMessage{}
		put := func(value string, names ...string) {
			if rapid.IntRange(0, 3).Draw(rt, "there") > 0 {
				fields[rapid.SampledFrom(names).Draw(rt, "name")] = json.RawMessage(value)
			}
		}
		put(times.Draw(rt, "time"), "timestamp", "time")
		put(text(actions.Draw(rt, "action")), "action", "transition")
		put(text(states.Draw(rt, "from")), "from", "fromState")
		fields[rapid.SampledFrom([]string{"to", "toState"}).Draw(rt, "to")] = json.RawMessage(text(states.Draw(rt, "state")))
		put(contexts.Draw(rt, "data"), "data", "payload", "context")
		put(contexts.Draw(rt, "context"), "context", "more")
		put(`"c1"`, "checkpointId")
		put(`{"kind":"refused","hash":"ff","status":"cancelled"}`, "gavel", "other", "judge")
		return text(fields)
	})
	rapid.Check(t, func(rt *rapid.T) {
		from := files{"definitions/secretive.json": secretive}
		from["wf-1.log"] = strings.Join(append(rapid.SliceOfN(line, 0, 6).Draw(rt, "lines"), ""), "\n")
		from["wf-1.json"] = fmt.Sprintf(`{"id":"wf-1","type":"secretive","state":%s,"context":%s,"createdAt":%s,"updatedAt":%s,"kept":[1]}`,
			text(rapid.SampledFrom([]string{"open", "held", "closed"}).Draw(rt, "now")), contexts.Draw(rt, "context"), times.Draw(rt, "created"), times.Draw(rt, "updated"))
		from["checkpoints/c1.json"] = fmt.Sprintf(`{"checkpointId":"c1","workflowId":"wf-1","state":%s,"context":%s,"timestamp":%s}`,
			text(states.Draw(rt, "then")), contexts.Draw(rt, "context then"), times.Draw(rt, "time then"))
		a := newHouse(t, "a")
		counts := rapid.Bool().Draw(rt, "counts")
		report := a.bring(from.fs(), func(r *portable.ImportRequest) { r.Counts = counts })
		if got := report.Instances[0]; got.Status == portable.Refused {
			rt.Fatalf("%s", text(report))
		}
		a.sound()
		var file struct {
			State   string
			Context map[string]any
		}
		if err := json.Unmarshal([]byte(from["wf-1.json"]), &file); err != nil {
			rt.Fatal(err)
		}
		delete(file.Context, "b") // a null
		got := a.opened("wf-1")
		var context map[string]any
		if err := json.Unmarshal(got.Context, &context); err != nil {
			rt.Fatal(err)
		}
		if got.State != file.State || text(context) != text(file.Context) || got.Status == record.Cancelled {
			rt.Fatalf("it is %s %s, %s, and the file says %s %s", got.State, got.Context, got.Status, file.State, text(file.Context))
		}
		if again := a.bring(from.fs(), nil).Instances[0]; again.Status != portable.Refused {
			rt.Fatalf("importing it again: %s", text(again))
		}
		first := a.export()
		for name, content := range first {
			if strings.Contains(content, "078-05-1120") || strings.Contains(content, "tok-5551234") {
				rt.Fatalf("%s tells: %s", name, content)
			}
		}
		b := newHouse(t, "b")
		b.bring(first.fs(), nil)
		b.sound()
		if was, is := a.load("wf-1"), b.load("wf-1"); was.State != is.State || was.Status != is.Status {
			rt.Fatalf("it was %s %s and is %s %s", was.State, was.Status, is.State, is.Status)
		}
	})
}
