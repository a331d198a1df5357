package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/judge"
)

const testRecorder = "gavel:console-tests"

func init() { engine.AddRecorder(testRecorder, "kept.") }

// runs is a workflow that records runs.
const runs = `{"name":"kept.pay","initialState":"running","states":{
	"running":{"transitions":{"step":{"target":"running","roles":["interpreter"]},"answer":{"target":"running","roles":["interpreter"]},"finish":{"target":"done","roles":["interpreter"]}}},
	"done":{"final":true,"outcome":"success"}}}`

func TestAPersonSaysWhetherAStepHappened(t *testing.T) {
	k := newKit(t)
	r := k.Recorder(testRecorder)
	if err := r.BeginRun(t.Context(), agent, engine.RunRequest{Run: "one", Definition: []byte(runs), Workflow: "kept.pay", Context: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	question := func(key string, input bool) (review string, answer *engine.StepAnswer) {
		review, answer, err := r.AskStep(t.Context(), engine.StepQuestion{
			Run: "one", Key: key, Step: "pay", Principal: agent, Server: "bank", Tool: "transfer", Arguments: []byte(`{}`), Input: input,
		})
		if err != nil {
			t.Fatal(err)
		}
		return review, answer
	}
	v := k.signIn(reviewer)
	happened, _ := question("a", false)
	page := "reviews/" + happened
	wantText(t, v.show(page), "Did the call of bank/transfer (a) happen?", "the run makes the call again", "A call that is made again happens twice", "Give up", "Output")
	if got := v.send(page, "resolve", "decision", "approve", "reason", "It is in the account."); got.status != http.StatusBadRequest {
		t.Errorf("without an output: %d", got.status)
	}
	got := v.send(page, "resolve", "decision", "approve", "reason", "It is in the account.", "output", `{"paid":true}`)
	if got.status != http.StatusSeeOther {
		t.Fatalf("with an output: %d\n%s", got.status, textOf(got.body))
	}
	if _, answer := question("a", false); answer == nil || answer.Decision != judge.Approve || string(answer.Output) != `{"paid":true}` {
		t.Errorf("the run gets %+v", answer)
	}
	wanted, _ := question("b", true)
	wantText(t, v.show("reviews/"+wanted), "What input does bank/transfer (b) get?", "The input is declined")
	if got := v.send("reviews/"+wanted, "resolve", "decision", "give-up", "reason", "No one knows."); got.status != http.StatusSeeOther {
		t.Fatalf("give up: %d\n%s", got.status, textOf(got.body))
	}
	wantText(t, v.show("reviews/"+wanted), "Given up by rev:rob")
	wantText(t, v.show("instances/"+engine.RunInstance("one")), "Calls", "bank/transfer (a)", "call begun")
	wantText(t, k.signIn(operator).send("instances/"+engine.RunInstance("one")+"/cancel", "confirm", "revision", "1").body, "is the record of runs")
}

func TestCallsAreBarsAndStayDone(t *testing.T) {
	k := newKit(t)
	k.define(operator, loop)
	id := k.start(agent, "loop", `{}`)
	k.advance(agent, id, "go", `{}`)
	begun, err := k.BeginCall(t.Context(), agent, engine.CallRequest{
		ID: id, Gate: "mail__<b>send", Upstream: "mail", Tool: "send", Pin: "sha256:1", Arguments: json.RawMessage(`{}`), States: []string{"b"}, Timeout: time.Minute,
	})
	if err != nil || begun.Answer != engine.CallGo {
		t.Fatalf("%+v, %v", begun, err)
	}
	v := k.signIn(operator)
	page := v.show("instances/" + id)
	wantText(t, page, "mail__<b>send is being called by agent:ada", "Calls mail__<b>send open")
	wantText(t, v.show("instances/"+id+"/undo"), "is open until", "nothing can change before it ends")
	if got := v.send("instances/"+id+"/undo", "confirm", "revision", "2"); got.status != http.StatusConflict {
		t.Errorf("an undo while a call is open got %d", got.status)
	}
	if _, err := k.SettleCall(t.Context(), agent, engine.SettleRequest{ID: id, CallID: begun.CallID, Outcome: engine.CallOK, Result: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	page = v.show("instances/" + id)
	wantText(t, page, "Calls mail__<b>send ok")
	if !strings.Contains(page, `<rect class="yes" x="0" width="100" height="8"/>`) {
		t.Error("the call is not drawn as a bar")
	}
	wantText(t, v.show("instances/"+id+"/undo"), "What stays done The call of mail__<b>send")
	if got := v.send("instances/"+id+"/undo", "confirm", "revision", "2"); got.status != http.StatusSeeOther {
		t.Errorf("undo: %d\n%s", got.status, textOf(got.body))
	}
}

func TestTheTimelineFollowsItsInstance(t *testing.T) {
	k := newKit(t)
	k.define(operator, loop)
	id, other := k.start(agent, "loop", `{"n":0}`), k.start(agent, "loop", `{}`)
	v := k.signIn(auditor)
	stream := v.follow("instances/"+id, -1)
	k.advance(agent, other, "go", `{}`)
	k.advance(agent, id, "go", `{"n":1}`)
	stream.waitFor("timeline", "event 2, revision 2")
	k.advance(agent, id, "on", `{"n":2}`)
	stream.waitFor("side", "at revision 3, the present one")
	wantText(t, v.show("instances/"+id+"?revision=2"), "n 0 1")
}
