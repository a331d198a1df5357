package main

import (
	"fmt"
	"strings"
	"testing"
)

// badInput is a client's mistake and the expected error.
type badInput struct {
	name string
	tool string
	args string // may contain {RUNNING} and {DONE}, the ids of two instances
	code string
	says []string // substrings of the error
	// recorded is true for an illegal action: its refusal is a result and is recorded.
	recorded bool
}

// defining completes the arguments of a workflow.define call.
func defining(rest string) string {
	return `{"name":"bad","initialState":"a",` + rest + `}`
}

func badInputs() []badInput {
	return []badInput{
		{name: "unknown key", tool: "workflow.define", args: defining(`"statez":{},"states":{"a":{"final":true}}`), code: "invalid_definition", says: []string{"statez", "states"}},
		{name: "unknown key in a state", tool: "workflow.define", args: defining(`"states":{"a":{"finl":true}}`), code: "invalid_definition", says: []string{"finl", "final"}},
		{name: "unknown target", tool: "workflow.define", args: defining(`"states":{"a":{"transitions":{"go":"nowhere"}},"b":{"final":true}}`), code: "invalid_definition", says: []string{"nowhere"}},
		{name: "unknown initial state", tool: "workflow.define", args: `{"name":"bad","initialState":"x","states":{"a":{"final":true}}}`, code: "invalid_definition", says: []string{`"x"`}},
		{name: "dead end", tool: "workflow.define", args: defining(`"states":{"a":{"transitions":{"go":"b"}},"b":{}}`), code: "invalid_definition", says: []string{`"b"`}},
		{name: "schema that does not compile", tool: "workflow.define", args: defining(`"states":{"a":{"transitions":{"go":{"target":"b","schema":{"type":"strin"}}}},"b":{"final":true}}`), code: "invalid_definition", says: []string{"schema"}},
		{name: "script that does not compile", tool: "workflow.define", args: defining(`"states":{"a":{"transitions":{"go":{"target":"b","validator":"(data => {"}}},"b":{"final":true}}`), code: "invalid_definition", says: []string{"validator"}},
		{name: "remote reference in a schema", tool: "workflow.define", args: defining(`"states":{"a":{"transitions":{"go":{"target":"b","schema":{"$ref":"https://example.com/s.json"}}}},"b":{"final":true}}`), code: "invalid_definition", says: []string{"$ref"}},
		{name: "duplicate key in a definition", tool: "workflow.define", args: `{"name":"bad","name":"worse","initialState":"a","states":{"a":{"final":true}}}`, code: "invalid_", says: []string{"name"}},
		{name: "unknown workflow", tool: "workflow.start", args: `{"type":"ping-pog"}`, code: "unknown_workflow", says: []string{"ping-pog", "ping-pong"}},
		{name: "unknown instance", tool: "workflow.status", args: `{"id":"wf-00000000-0000-7000-8000-000000000000"}`, code: "unknown_instance", says: []string{"wf-00000000"}},
		{name: "advance of an unknown instance", tool: "workflow.advance", args: `{"id":"wf-nope","action":"go"}`, code: "unknown_instance", says: []string{"wf-nope"}},
		{name: "unknown action", tool: "workflow.advance", args: `{"id":"{RUNNING}","action":"goo"}`, code: "illegal_action", says: []string{"reject", `"goo"`, `"go"`}, recorded: true},
		{name: "action of another state", tool: "workflow.advance", args: `{"id":"{RUNNING}","action":"back"}`, code: "illegal_action", says: []string{"reject", `"back"`, `"go"`}, recorded: true},
		{name: "advance on a finished instance", tool: "workflow.advance", args: `{"id":"{DONE}","action":"go"}`, code: "instance_ended", says: []string{"reject", "final"}, recorded: true},
		{name: "unknown checkpoint", tool: "workflow.rollback", args: `{"id":"{RUNNING}","checkpointId":"cp-nope"}`, code: "unknown_checkpoint", says: []string{"cp-nope"}},
		{name: "cancel of a finished instance", tool: "workflow.cancel", args: `{"id":"{DONE}"}`, code: "instance_ended", says: []string{"end"}},
		{name: "2 MB of data", tool: "workflow.advance", args: `{"id":"{RUNNING}","action":"go","data":{"x":"` + strings.Repeat("a", 2<<20) + `"}}`, code: "too_large", says: []string{"data"}},
		{name: "100 KB of data", tool: "workflow.advance", args: `{"id":"{RUNNING}","action":"go","data":{"x":"` + strings.Repeat("a", 100<<10) + `"}}`, code: "too_large", says: []string{"data", "65536"}},
		{name: "100 KB of start context", tool: "workflow.start", args: `{"type":"ping-pong","context":{"x":"` + strings.Repeat("a", 100<<10) + `"}}`, code: "too_large", says: []string{"context"}},
		{name: "duplicate keys in data", tool: "workflow.advance", args: `{"id":"{RUNNING}","action":"go","data":{"amount":1,"amount":2}}`, code: "invalid_", says: []string{"amount"}},
		{name: "duplicate arguments", tool: "workflow.advance", args: `{"id":"{RUNNING}","action":"go","action":"stop"}`, code: "invalid_", says: []string{"action"}},
		{name: "a number no float64 keeps", tool: "workflow.advance", args: `{"id":"{RUNNING}","action":"go","data":{"n":9007199254740993}}`, code: "invalid_data", says: []string{"/n"}},
		{name: "invalid UTF-8", tool: "workflow.advance", args: "{\"id\":\"{RUNNING}\",\"action\":\"go\",\"data\":{\"x\":\"\xff\xfe\"}}", says: []string{"UTF-8"}},
		{name: "a lone surrogate", tool: "workflow.advance", args: `{"id":"{RUNNING}","action":"go","data":{"x":"\ud800"}}`, says: []string{"data"}},
		{name: "a key that is too long", tool: "workflow.advance", args: `{"id":"{RUNNING}","action":"go","idempotencyKey":"` + strings.Repeat("k", 201) + `"}`, code: "too_large", says: []string{"idempotencyKey"}},
		{name: "an unknown argument", tool: "workflow.advance", args: `{"id":"{RUNNING}","acton":"go","action":"go"}`, code: "invalid_argument", says: []string{"acton", "action"}},
		{name: "a missing argument", tool: "workflow.advance", args: `{"id":"{RUNNING}"}`, code: "invalid_argument", says: []string{"action"}},
		{name: "arguments that are no object", tool: "workflow.advance", args: `[1]`, says: []string{"object"}},
	}
}

// wrongTypes lists arguments of a type that no tool accepts for them.
var wrongTypes = map[string][]string{
	"workflow.define":          {`{"name":1}`, `{"states":[]}`, `{"initialState":{}}`, `{"description":1}`},
	"workflow.list":            {`{"nope":1}`},
	"workflow.describe":        {`{"name":1}`, `{"name":"ping-pong","version":"one"}`},
	"workflow.start":           {`{"type":1}`, `{"type":"ping-pong","context":[]}`, `{"type":"ping-pong","context":"x"}`, `{"type":"ping-pong","idempotencyKey":1}`},
	"workflow.advance":         {`{"id":1,"action":"go"}`, `{"id":"{RUNNING}","action":1}`, `{"id":"{RUNNING}","action":"go","data":[]}`, `{"id":"{RUNNING}","action":"go","data":"x"}`, `{"id":"{RUNNING}","action":"go","expectedRevision":"x"}`, `{"id":"{RUNNING}","action":"go","expectedRevision":1.5}`, `{"id":"{RUNNING}","action":"go","idempotencyKey":{}}`},
	"workflow.status":          {`{"id":1}`, `{"id":["{RUNNING}"]}`},
	"workflow.cancel":          {`{"id":1}`, `{"id":"{RUNNING}","reason":1}`, `{"id":"{RUNNING}","expectedRevision":true}`},
	"workflow.checkpoint":      {`{"id":1}`, `{"id":"{RUNNING}","description":1}`, `{"id":"{RUNNING}","metadata":[]}`},
	"workflow.rollback":        {`{"id":1,"checkpointId":"x"}`, `{"id":"{RUNNING}","checkpointId":1}`},
	"workflow.listCheckpoints": {`{"id":1}`},
	"workflow.judge.validate":  {`{"id":1,"action":"go"}`, `{"id":"{RUNNING}","action":{}}`, `{"id":"{RUNNING}","action":"go","data":1}`},
	"workflow.judge.config":    {`{"name":1}`, `{"name":"ping-pong","enabled":"yes"}`, `{"name":"ping-pong","strictMode":1}`, `{"name":"ping-pong","minConfidence":"x"}`, `{"name":"ping-pong","minConfidence":2}`},
	"workflow.judge.history":   {`{"id":1}`, `{"id":"{RUNNING}","limit":"x"}`, `{"id":"{RUNNING}","limit":-1}`},
	"workflow.instances":       {`{"workflow":1}`, `{"status":"gone"}`, `{"limit":"x"}`},
	"workflow.canExecute":      {`{"id":1,"states":["a"]}`, `{"id":"{RUNNING}","states":"a"}`, `{"id":"{RUNNING}","states":[1]}`, `{"id":"{RUNNING}","states":[]}`, `{"id":"{RUNNING}","states":["nope"]}`},
	"workflow.diagram":         {`{"name":1}`, `{"id":"{RUNNING}","format":"png"}`, `{}`},
}

// TestBadInput sends every mistake to a real server. Each gets one clear sentence with a stable code, and changes
// neither state nor context.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := launch(t, "--store", storeIn(t), "--tool-names", "dotted")
	s.define(pingPong)
	running := s.must("workflow.start", object{"type": "ping-pong", "context": object{"kept": true}}).field("id")
	done := s.must("workflow.start", object{"type": "ping-pong"}).field("id")
	s.must("workflow.advance", object{"id": done, "action": "go"})
	s.must("workflow.advance", object{"id": done, "action": "stop"})

	rows := badInputs()
	for tool, list := range wrongTypes {
		for _, args := range list {
			rows = append(rows, badInput{name: "wrong type: " + tool + " " + args, tool: tool, args: args, code: "invalid_"})
		}
	}
	fill := strings.NewReplacer("{RUNNING}", running, "{DONE}", done)
	before := positions(s, running, done)
	for _, row := range rows {
		result := s.callRaw(row.tool, fill.Replace(row.args))
		after := positions(s, running, done)
		checkSentence(t, row, result)
		if recorded := after.events - before.events; recorded != 0 && !row.recorded || recorded != 1 && row.recorded {
			t.Errorf("%s: %d events were recorded", row.name, recorded)
		}
		if after.plain != before.plain {
			t.Errorf("%s: it changed something:\n%s\n%s", row.name, before.plain, after.plain)
		}
		before = after
	}
}

func checkSentence(t *testing.T, row badInput, result toolResult) {
	t.Helper()
	text := result.text()
	if !result.IsError {
		t.Errorf("%s: accepted: %s", row.name, text)
		return
	}
	if result.Failure == nil && !strings.HasPrefix(result.code(), row.code) || result.Failure == nil && result.code() == "" {
		t.Errorf("%s: code %q, want %q: %s", row.name, result.code(), row.code, text)
	}
	if result.Failure != nil && row.code != "" {
		t.Errorf("%s: a protocol error %d, want a tool error %q: %s", row.name, result.Failure.Error.Code, row.code, text)
	}
	for _, word := range row.says {
		if !strings.Contains(text, word) {
			t.Errorf("%s: the text does not say %q: %.300s", row.name, word, text)
		}
	}
	if len(text) < 15 || len(text) > 1500 || strings.Contains(text, "goroutine ") {
		t.Errorf("%s: not a clear sentence: %.300q", row.name, text)
	}
}

// standing is the state of two instances and of the definitions.
type standing struct {
	plain  string
	events int
}

func positions(s *server, ids ...string) standing {
	s.t.Helper()
	var out standing
	for _, id := range ids {
		r := s.must("workflow.status", object{"id": id})
		var seq int
		if _, err := fmt.Sscan(r.field("seq"), &seq); err != nil {
			s.t.Fatal(err)
		}
		out.events += seq
		out.plain += fmt.Sprintln(r.field("state"), r.field("status"), r.field("revision"), r.Body["context"])
	}
	out.plain += fmt.Sprintln(s.must("workflow.list", object{}).field("count"), s.must("workflow.instances", object{}).field("count"))
	return out
}
