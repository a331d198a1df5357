package console

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// loop is a workflow in which every move changes the context.
const loop = `{"name":"loop","initialState":"a","states":{
	"a":{"transitions":{"go":"b"}},
	"b":{"transitions":{"on":"c","back":"a"}},
	"c":{"transitions":{"round":"a"}}}}`

// visitOf is a request of a page as its functions get it.
func visitOf(k *kit, who engine.Principal, id string, values url.Values) module.Visit {
	return module.Visit{
		Call: operation.Call{Engine: k.Engine, Caller: auth.Identity{Principal: who}}, Values: values,
		Path: func(string) string { return id },
	}
}

func TestWhatAPageAnnouncesIsWhatHappens(t *testing.T) {
	k := newKit(t)
	k.define(operator, loop)
	v := k.signIn(operator)
	random := rand.New(rand.NewPCG(1, 2))
	done := map[string]int{}
	for range 4 {
		id := k.start(agent, "loop", `{"n":0}`)
		for step := range 60 {
			now, err := k.Status(t.Context(), operator, id)
			if err != nil {
				t.Fatal(err)
			}
			if random.IntN(2) > 0 {
				if random.IntN(4) == 0 {
					if _, err := k.Checkpoint(t.Context(), operator, engine.CheckpointRequest{ID: id}); err != nil {
						t.Fatal(err)
					}
				}
				k.advance(agent, id, now.NextActions[random.IntN(len(now.NextActions))], fmt.Sprintf(`{"n":%d}`, step+1))
				continue
			}
			op := takeBacks[1+random.IntN(3)]
			values, query := url.Values{}, ""
			if op.Name == "rollback" {
				made, err := k.ListCheckpoints(t.Context(), operator, id)
				if err != nil || made.Count == 0 {
					continue
				}
				query = "?checkpoint=" + made.Checkpoints[random.IntN(made.Count)].CheckpointID
				values.Set("checkpoint", strings.TrimPrefix(query, "?checkpoint="))
			}
			planned, err := makePlan(t.Context(), visitOf(k, operator, id, values), op)
			if err != nil {
				t.Fatalf("%s: %v", op.Name, err)
			}
			page := "instances/" + id + "/" + op.Name + query
			shown := v.show(page)
			if planned.Problem != "" {
				wantText(t, shown, planned.Problem)
				continue
			}
			wantText(t, shown, now.State+" → "+planned.To.State)
			got := v.send(page, "confirm", "revision", fmt.Sprint(now.Revision), "checkpoint", values.Get("checkpoint"))
			if got.status != http.StatusSeeOther || got.next != "instances/"+id {
				t.Fatalf("%s: %d\n%s", op.Name, got.status, textOf(got.body))
			}
			after, err := k.Status(t.Context(), operator, id)
			if err != nil {
				t.Fatal(err)
			}
			if after.State != planned.To.State || string(after.Context) != string(planned.To.Context) || after.Revision != now.Revision+1 {
				t.Fatalf("%s in %q: announced %q %s, got %q %s", op.Name, now.State, planned.To.State, planned.To.Context, after.State, after.Context)
			}
			if back, again := len(planned.TakenBack), len(planned.MadeAgain); op.Name == "undo" && (back != 1 || again != 0) || op.Name == "redo" && (back != 0 || again != 1) {
				t.Errorf("%s takes back %v and makes %v again", op.Name, planned.TakenBack, planned.MadeAgain)
			}
			done[op.Name]++
		}
	}
	for _, op := range takeBacks[1:] {
		if done[op.Name] < 3 {
			t.Errorf("%s was tried %d times only", op.Name, done[op.Name])
		}
	}
}

func TestACancelEndsAnInstanceOnce(t *testing.T) {
	k := newKit(t)
	k.define(operator, loop)
	id := k.start(agent, "loop", `{}`)
	v, page := k.signIn(operator), "instances/"+id+"/cancel"
	wantText(t, v.show(page), "It ends in a , for good.", "go")
	k.advance(agent, id, "go", `{}`)
	got := v.send(page, "confirm", "revision", "1", "reason", "Too late")
	if got.status != http.StatusConflict {
		t.Errorf("a cancel of an older revision got %d", got.status)
	}
	wantText(t, got.body, "revision", "It ends in b , for good.", "Too late")
	got = v.send(page, "confirm", "revision", "2", "reason", "<b>Wrong</b> order")
	if got.status != http.StatusSeeOther {
		t.Fatalf("cancel: %d\n%s", got.status, textOf(got.body))
	}
	wantText(t, v.show(got.next), "Cancelled in state \"b\".", "cancelled", "<b>Wrong</b> order")
	wantText(t, v.show(page), "It has ended already.")
}

func TestOnlyOperatorsTakeBack(t *testing.T) {
	k := newKit(t)
	k.define(operator, loop)
	id := k.start(agent, "loop", `{}`)
	k.advance(agent, id, "go", `{}`)
	checkpoint, err := k.Checkpoint(t.Context(), operator, engine.CheckpointRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	operators := k.signIn(operator).show("instances/" + id)
	for _, who := range []engine.Principal{reviewer, auditor} {
		v := k.signIn(who)
		page := v.show("instances/" + id)
		for _, op := range takeBacks {
			link := "instances/" + id + "/" + op.Name
			if strings.Contains(page, link) || strings.Contains(operators, link) == (op.Name == "redo") { // nothing was undone
				t.Errorf("%s: the link to %s is for operators", who.Role, op.Name)
			}
			if got := v.get(link + "?checkpoint=" + checkpoint.CheckpointID); got.status != http.StatusForbidden {
				t.Errorf("%s: the page %s got %d", who.Role, op.Name, got.status)
			}
			csrf := csrfField.FindStringSubmatch(page)[1]
			got := v.submit(link+"/-/confirm", url.Values{"csrf": {csrf}, "revision": {"2"}, "checkpoint": {checkpoint.CheckpointID}})
			if got.status != http.StatusForbidden {
				t.Errorf("%s: the form of %s got %d", who.Role, op.Name, got.status)
			}
		}
	}
	if now, err := k.Status(t.Context(), operator, id); err != nil || now.Seq != 3 {
		t.Errorf("something was done: %d events, %v", now.Seq, err)
	}
	for _, missing := range []string{"?checkpoint=cp-none", "?checkpoint=", ""} {
		got := k.signIn(operator).get("instances/" + id + "/rollback" + missing)
		if got.status != http.StatusNotFound {
			t.Errorf("%q got %d", missing, got.status)
		}
		wantText(t, got.body, "There is no such checkpoint.")
	}
}

func TestOnlyWhatIsPossibleIsOffered(t *testing.T) {
	k := newKit(t)
	k.define(operator, loop)
	v := k.signIn(operator)
	id := k.start(agent, "loop", `{}`)
	offered := func() (out string) {
		t.Helper()
		page := v.show("instances/" + id)
		for _, op := range takeBacks {
			link := "/console/instances/" + id + "/" + op.Name
			if strings.Contains(page, `href="`+link+`"`) || strings.Contains(page, `href="`+link+"?") {
				out += op.Name + " "
			}
		}
		return out
	}
	check := func(when, want string) {
		t.Helper()
		if got := offered(); got != want {
			t.Errorf("%s: offered %q, want %q", when, got, want)
		}
	}
	check("at the start", "cancel ")
	wantText(t, v.show("instances/"+id+"/undo"), "There is no move to undo.")
	wantText(t, v.show("instances/"+id+"/redo"), "There is no move to redo.")
	k.advance(agent, id, "go", `{}`)
	cp, err := k.Checkpoint(t.Context(), operator, engine.CheckpointRequest{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	check("after a move", "cancel undo rollback ")
	undo := func(revision int64) {
		t.Helper()
		if _, err := k.Undo(t.Context(), operator, engine.UndoRequest{ID: id, ExpectedRevision: &revision}); err != nil {
			t.Fatal(err)
		}
	}
	undo(2)
	check("after an undo", "cancel redo rollback ")
	k.advance(agent, id, "go", `{}`)
	k.advance(agent, id, "on", `{}`)
	undo(5)
	check("between moves", "cancel undo redo rollback ")
	if _, err := k.Cancel(t.Context(), operator, engine.CancelRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	check("after a cancel", "")
	for _, op := range takeBacks {
		page := v.show("instances/" + id + "/" + op.Name + "?checkpoint=" + cp.CheckpointID)
		wantText(t, page, "It has ended already. A cancelled instance never runs again.")
		if strings.Contains(page, `id="confirm-form"`) || strings.Contains(page, "What is taken back") {
			t.Errorf("%s of a cancelled instance shows a plan", op.Name)
		}
	}
}

func TestTheAddressOfAFailedFormLeadsToItsPage(t *testing.T) {
	k := newKit(t)
	k.define(operator, loop)
	id := k.start(agent, "loop", `{}`)
	v := k.signIn(operator)
	if got := v.send("instances/"+id+"/cancel", "confirm", "revision", "7"); got.status != http.StatusConflict {
		t.Fatalf("a cancel of an unknown revision got %d", got.status)
	}
	actions := 0
	for _, p := range k.pages {
		for name := range p.Actions {
			actions++
			path := strings.TrimPrefix(fillPath(p.Path, func(string) string { return "a b%2F" }), "/")
			got := v.get(strings.TrimPrefix(at(path, name), base) + "?checkpoint=cp-1&q=%26")
			if want := path + "?checkpoint=cp-1&q=%26"; p.Place == module.Nowhere && (got.status != http.StatusSeeOther || got.next != want) {
				t.Errorf("%s of %q: %d to %q, want %q", name, p.Path, got.status, got.next, want)
			}
		}
	}
	if actions < 5 {
		t.Errorf("only %d forms were tried", actions)
	}
	for path, want := range map[string]string{"instances/" + id + "/cancel/-/confirm": "instances/" + id + "/cancel", "instances/" + id + "/cancel/-/other": ""} {
		if got := v.get(path); got.next != want {
			t.Errorf("%s leads to %q, want %q", path, got.next, want)
		}
	}
}
