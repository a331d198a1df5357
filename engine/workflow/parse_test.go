package workflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// everything uses every key of the format, in every form.
const everything = `{
  "name": "every.thing_1-x", "description": "All of it.", "comment": "For tests.", "tags": {"team": "docs"},
  "initialState": "draft",
  "inputSchema": {"type": "object"},
  "states": {
    "draft": {"description": "Being written.", "transitions": {"submit": "reviewing"}},
    "reviewing": {"transitions": {
      "approve": {
        "target": "approved", "description": "Say yes.", "requiredFields": ["comments", "/a/b"], "schema": {"type": "object"},
        "validator": "(data) => true", "roles": ["agent", "reviewer", "operator", "auditor"], "notBy": "submit",
        "writes": ["comments"], "freezes": ["/documentId"], "evidence": [{"name": "ci", "source": "build-server", "timeout": "30s", "maxAge": "2d", "required": false}], "onEvidenceMissing": "escalate", "review": {"priority": "high", "expiresAfter": "12h", "onExpire": "raise"},
        "enabled": true, "useLLM": true, "strictMode": false, "minConfidence": 0.5, "mode": "shadow", "onJudgeUnavailable": "reject",
        "requireAssurance": "llm", "risk": "high", "criteria": ["It says what was read."], "model": "big"
      },
      "sort": [{"condition": "context.n > 1", "target": "draft", "description": "Long."}, {"condition": "true", "target": "approved"}],
      "file": {"target": [{"condition": "true", "target": "approved"}], "notBy": ["submit", "sort"], "risk": "normal"},
      "reject": "draft"
    }},
    "approved": {"final": true, "outcome": "success"}
  },
  "judgeConfig": {"enabled": true, "useLLM": false, "strictMode": true, "minConfidence": 1, "mode": "enforce",
    "onJudgeUnavailable": "escalate", "requireAssurance": "none", "risk": "normal", "criteria": ["A", "B"], "model": "small"},
  "stateValidators": {"reviewing": {"requiredFields": ["documentId"], "schema": {"type": "object"}}},
  "transitionValidators": {"approve": "(data) => true", "draft.submit": "() => true"},
  "sensitive": ["/customer/ssn", "/list/*/key"],
  "mustPassThrough": {"approved": ["reviewing"]},
  "retention": {"events": "90d"}
}`

func TestParseEverything(t *testing.T) {
	d := parse(t, everything)
	want := &workflow.Definition{
		Name: "every.thing_1-x", Description: "All of it.", Comment: "For tests.", Tags: map[string]string{"team": "docs"},
		InitialState: "draft", InputSchema: raw(`{"type":"object"}`), StateNames: []string{"draft", "reviewing", "approved"},
		States: map[string]*workflow.State{
			"draft": {
				Name: "draft", Description: "Being written.", Actions: []string{"submit"},
				Transitions: map[string]*workflow.Transition{"submit": {Action: "submit", Routes: []workflow.Route{{Target: "reviewing"}}}},
			},
			"reviewing": {Name: "reviewing", Actions: []string{"approve", "sort", "file", "reject"}, Transitions: map[string]*workflow.Transition{
				"approve": {
					Action: "approve", Description: "Say yes.", Routes: []workflow.Route{{Target: "approved"}},
					RequiredFields: []string{"comments", "/a/b"}, Schema: raw(`{"type":"object"}`), Validator: "(data) => true",
					Roles: []string{"agent", "reviewer", "operator", "auditor"}, NotBy: []string{"submit"}, Writes: []string{"comments"},
					Freezes: []string{"/documentId"}, Evidence: []workflow.Evidence{{Name: "ci", Source: "build-server", Timeout: 30 * time.Second, MaxAge: 48 * time.Hour}},
					Judge: workflow.JudgeSettings{
						Enabled: new(true), UseLLM: new(true), StrictMode: new(false), MinConfidence: new(0.5), Mode: new(judge.Shadow),
						OnJudgeUnavailable: new(judge.UnavailableReject), RequireAssurance: new(judge.AssuranceLLM), Risk: new(judge.RiskHigh),
						Criteria: []string{"It says what was read."}, Model: new("big"), OnEvidenceMissing: new(judge.Escalate),
						Review: &workflow.ReviewSettings{Priority: "high", ExpiresAfter: 12 * time.Hour, OnExpire: "raise"},
					},
				},
				"sort": {Action: "sort", Routes: []workflow.Route{
					{Condition: "context.n > 1", Target: "draft", Description: "Long."}, {Condition: "true", Target: "approved"},
				}},
				"file": {
					Action: "file", Routes: []workflow.Route{{Condition: "true", Target: "approved"}},
					NotBy: []string{"submit", "sort"}, Judge: workflow.JudgeSettings{Risk: new(judge.RiskNormal)},
				},
				"reject": {Action: "reject", Routes: []workflow.Route{{Target: "draft"}}},
			}},
			"approved": {Name: "approved", Final: true, Outcome: "success", Transitions: map[string]*workflow.Transition{}},
		},
		Judge: &workflow.JudgeSettings{
			Enabled: new(true), UseLLM: new(false), StrictMode: new(true), MinConfidence: new(1.0), Mode: new(judge.Enforce),
			OnJudgeUnavailable: new(judge.UnavailableEscalate), RequireAssurance: new(judge.AssuranceNone), Risk: new(judge.RiskNormal),
			Criteria: []string{"A", "B"}, Model: new("small"),
		},
		StateValidators:      map[string]workflow.StateChecks{"reviewing": {RequiredFields: []string{"documentId"}, Schema: raw(`{"type":"object"}`)}},
		TransitionValidators: map[string]string{"approve": "(data) => true", "draft.submit": "() => true"},
		Sensitive:            []string{"/customer/ssn", "/list/*/key"},
		Retention:            workflow.Retention{Events: 90 * 24 * time.Hour},
		MustPassThrough:      map[string][]string{"approved": {"reviewing"}},
	}
	if diff := cmp.Diff(want, d, cmpopts.IgnoreUnexported(workflow.Definition{}), cmpopts.IgnoreFields(workflow.Definition{}, "Hash", "Document")); diff != "" {
		t.Errorf("definition (-want +got):\n%s", diff)
	}
	var one, two any
	if json.Unmarshal(d.Document, &one) != nil || json.Unmarshal([]byte(everything), &two) != nil || !cmp.Equal(one, two) {
		t.Errorf("the document changed: %s", d.Document)
	}
}

func TestParseKeepsTheOrderOfTheDocument(t *testing.T) {
	d := parse(t, `{"states":{"z":{"transitions":{"y":"a","x":"a","b":"a"}},"a":{"final":true}},"name":"w","initialState":"z"}`)
	if got := fmt.Sprint(d.StateNames, d.NextActions("z", "agent")); got != "[z a] [y x b]" {
		t.Error(got)
	}
	if !strings.HasPrefix(string(d.Document), `{"states":{"z":{"transitions":{"y":`) {
		t.Errorf("document: %s", d.Document)
	}
}

func TestHash(t *testing.T) {
	base := parse(t, `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}},"judgeConfig":{"minConfidence":0.5}}`).Hash
	if len(base) != len("sha256:")+64 || !strings.HasPrefix(base, "sha256:") {
		t.Fatalf("hash: %s", base)
	}
	for name, doc := range map[string]string{
		"spaces":      `{ "name": "w", "initialState": "a", "states": {"a": {"transitions": {"go": "b"}}, "b": {"final": true}}, "judgeConfig": {"minConfidence": 0.5}}`,
		"other order": `{"judgeConfig":{"minConfidence":0.5},"states":{"b":{"final":true},"a":{"transitions":{"go":"b"}}},"initialState":"a","name":"w"}`,
		"number":      `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}},"judgeConfig":{"minConfidence":5e-1}}`,
		"escapes":     `{"name":"\u0077","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}},"judgeConfig":{"minConfidence":0.50}}`,
		"YAML":        "# a comment\nname: w\ninitialState: a\nstates:\n  a: {transitions: {go: b}}\n  b: {final: true}\njudgeConfig: {minConfidence: 0.5}\n",
	} {
		if got := parse(t, doc).Hash; got != base {
			t.Errorf("%s: another hash", name)
		}
	}
	for name, doc := range map[string]string{
		"another name": `{"name":"v","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}},"judgeConfig":{"minConfidence":0.5}}`,
		"a comment":    `{"comment":"x","name":"w","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}},"judgeConfig":{"minConfidence":0.5}}`,
	} {
		if got := parse(t, doc).Hash; got == base {
			t.Errorf("%s: the same hash", name)
		}
	}
}

// around puts keys into an otherwise valid definition, each section on its own line:
// 2 the document's own keys, 4 the state, 5 the transition.
func around(document, state, transition string) string {
	comma := func(s string) string {
		if s == "" {
			return ""
		}
		return "," + s
	}
	return "{\"name\":\"w\",\"initialState\":\"a\"\n" + comma(document) + "\n,\"states\":{\"b\":{\"final\":true},\"a\":{\n\"description\":\"x\"" + comma(state) +
		",\"transitions\":{\n\"go\":{\"target\":\"b\"" + comma(transition) + "}}}}}"
}

// rejected are definitions that do not parse: the issues are "rule path line".
var rejected = []struct {
	name, doc, issues string
	says              string // in a message
}{
	{"empty", "", "syntax  1", "empty"},
	{"broken", `{"name":`, "syntax /name 1", ""},
	{"a list", `[]`, "type  1", "expected an object, got an array"},
	{"duplicate key", around(`"comment":"x","comment":"y"`, "", ""), "duplicate-key /comment 2", `duplicate key "comment"`},
	{"invalid UTF-8", around("\"comment\":\"\xff\"", "", ""), "utf8 /comment 2", "UTF-8"},
	{"number", around(`"judgeConfig":{"minConfidence":0.1000000000000000055}`, "", ""), "number /judgeConfig/minConfidence 2", ""},
	{"too deep", around(`"inputSchema":`+strings.Repeat(`{"not":`, 70)+"{}"+strings.Repeat("}", 70), "", ""), "depth", ""},
	{"missing keys", `{}`, "missing  1, missing  1, missing  1", `"initialState"`},
	{"unknown key", around(`"initalState":"a"`, "", ""), "unknown-key /initalState 2", `unknown key "initalState"; did you mean "initialState"?`},
	{"unknown far key", around(`"xyz":1`, "", ""), "unknown-key /xyz 2", `known are "name", "description"`},
	{"unknown key of a state", around("", `"onEntry":[]`, ""), "unknown-key /states/a/onEntry 4", ""},
	{"unknown key of a transition", around("", "", `"requiredField":["x"]`), "unknown-key /states/a/transitions/go/requiredField 5", `did you mean "requiredFields"?`},
	{"unknown key of judgeConfig", around(`"judgeConfig":{"minconfidence":1}`, "", ""), "unknown-key /judgeConfig/minconfidence 2", `did you mean "minConfidence"?`},
	{"unknown key of a state validator", around(`"stateValidators":{"a":{"required":["x"]}}`, "", ""), "unknown-key /stateValidators/a/required 2", ""},
	{"unknown key of a route", around("", "", `"target2":[]`), "unknown-key /states/a/transitions/go/target2 5", `did you mean "target"?`},
	{"even samples", around(`"judgeConfig":{"samples":2}`, "", ""), "value /judgeConfig/samples 2", "odd number from 1 to 9"},
	{"many samples", around("", "", `"samples":11`), "value /states/a/transitions/go/samples 5", "odd number"},
	{"samples is a text", around("", "", `"samples":"3"`), "type /states/a/transitions/go/samples 5", ""},
	{"long reference", around("", "", `"reference":"`+strings.Repeat("x", 4001)+`"`), "value /states/a/transitions/go/reference 5", "4000 characters"},
	{"many exemplars", around("", "", `"exemplars":[`+strings.Repeat(`{"data":{},"outcome":"approve"},`, 3)+`{"data":{},"outcome":"reject"}]`), "value /states/a/transitions/go/exemplars 5", "at most 3"},
	{"exemplar without data", around("", "", `"exemplars":[{"outcome":"approve"}]`), "missing /states/a/transitions/go/exemplars/0 5", `missing key "data"`},
	{"exemplar of an escalation", around("", "", `"exemplars":[{"data":{},"outcome":"escalate"}]`), "value /states/a/transitions/go/exemplars/0/outcome 5", ""},
	{"exemplar with text for data", around("", "", `"exemplars":[{"data":"x","outcome":"reject"}]`), "type /states/a/transitions/go/exemplars/0/data 5", ""},
	{"shadow models", around("", "", `"shadowModels":[]`), "not-supported /states/a/transitions/go/shadowModels 5", "not supported"},
	{"panel", around("", "", `"panel":[]`), "type /states/a/transitions/go/panel 5", "expected an object"},
	{"panel of one", around("", "", `"panel":{"models":["a"]}`), "value /states/a/transitions/go/panel 5", "name 2 to 9"},
	{"panel with another rule", around("", "", `"panel":{"models":["a","b"],"rule":"weighted"}`), "value /states/a/transitions/go/panel/rule 5", ""},
	{"panel with weights", around("", "", `"panel":{"models":["a","b"],"weights":[1,2]}`), "unknown-key /states/a/transitions/go/panel/weights 5", `unknown key "weights"`},
	{"panel and samples", around("", "", `"samples":3,"panel":{"models":["a","b"]}`), "value /states/a/transitions/go/samples 5", "remove one of the two"},
	{"a cascade of models", around("", "", `"cascade":[{"model":"a","acceptAbove":0.9}]`), "unknown-key /states/a/transitions/go/cascade 5", `unknown key "cascade"`},
	{"empty name", around("", "", "")[:9] + around("", "", "")[10:], "value /name 1", "1 to 64"},
	{"name with a space", strings.Replace(around("", "", ""), `"w"`, `"a b"`, 1), "value /name 1", "letters, digits"},
	{"long name", strings.Replace(around("", "", ""), `"w"`, `"`+strings.Repeat("w", 65)+`"`, 1), "value /name 1", ""},
	{"name is a number", strings.Replace(around("", "", ""), `"w"`, `1`, 1), "type /name 1", "expected a string, got a number"},
	{"null", around(`"description":null`, "", ""), "type /description 2", ""},
	{"tags", around(`"tags":{"a":1}`, "", ""), "type /tags/a 2", ""},
	{"no states", `{"name":"w","initialState":"a","states":{}}`, "value /states 1", "at least one state"},
	{"states is a list", `{"name":"w","initialState":"a","states":["a"]}`, "type /states 1", ""},
	{"state is a string", `{"name":"w","initialState":"a","states":{"a":"b"}}`, "type /states/a 1", ""},
	{"empty state name", `{"name":"w","initialState":"a","states":{"":{"final":true}}}`, "value /states/ 1", "the state name is empty"},
	{"hidden state name", `{"name":"w","initialState":"a","states":{"a\u202e":{"final":true}}}`, "value /states/a\u202e 1", "invisible"},
	{"long action", around("", "", "")[:len(around("", "", ""))-4] + `,"` + strings.Repeat("x", 129) + `":"b"}}}}`, "value /states/a/transitions/" + strings.Repeat("x", 129) + " 5", "128"},
	{"final is a string", around("", `"final":"no"`, ""), "type /states/a/final 4", "expected a boolean"},
	{"transition is a number", `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":1}}}}`, "type /states/a/transitions/go 1", "a state, a list of routes or an object"},
	{"transition without target", `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":{}}}}}`, "missing /states/a/transitions/go 1", `missing key "target"`},
	{"empty target", `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":""}}}}`, "value /states/a/transitions/go 1", "empty"},
	{"target is an object", `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":{"target":{}}}}}}`, "type /states/a/transitions/go/target 1", "a state or a list of routes"},
	{"no routes", `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":[]}}}}`, "value /states/a/transitions/go 1", "at least one"},
	{"route without condition", `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":[{"target":"a"}]}}}}`, "missing /states/a/transitions/go/0 1", `missing key "condition"`},
	{"route is a string", `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":["a"]}}}}`, "type /states/a/transitions/go/0 1", ""},
	{"empty condition", `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":[{"condition":"","target":"a"}]}}}}`, "value /states/a/transitions/go/0/condition 1", "the script is empty"},
	{"condition is a boolean", `{"name":"w","initialState":"a","states":{"a":{"transitions":{"go":[{"condition":true,"target":"a"}]}}}}`, "type /states/a/transitions/go/0/condition 1", ""},
	{"long script", around("", "", `"validator":"`+strings.Repeat("x", 16<<10+1)+`"`), "size /states/a/transitions/go/validator 5", "16384"},
	{"validator is an object", around(`"transitionValidators":{"go":{}}`, "", ""), "missing /transitionValidators/go 2", `missing key "file"`},
	{"validator in a file", around("", "", `"validator":{"file":"a.js"}`), "file /states/a/transitions/go/validator 5", "only a definition that an operator loads"},
	{"schema is a boolean", around("", "", `"schema":true`), "type /states/a/transitions/go/schema 5", ""},
	{"required is a string", around("", "", `"requiredFields":"a"`), "type /states/a/transitions/go/requiredFields 5", "expected an array"},
	{"empty required", around("", "", `"requiredFields":["a",""]`), "value /states/a/transitions/go/requiredFields 5", ""},
	{"notBy is a number", around("", "", `"notBy":1`), "type /states/a/transitions/go/notBy 5", "a string or an array of strings"},
	{"unknown role", around("", "", `"roles":["agnet"]`), "value /states/a/transitions/go/roles/0 5", `did you mean "agent"?`},
	{"no roles", around("", "", `"roles":[]`), "value /states/a/transitions/go/roles 5", "name a role"},
	{"evidence is an object", around("", "", `"evidence":{}`), "type /states/a/transitions/go/evidence 5", ""},
	{"evidence without a source", around("", "", `"evidence":[{"name":"ci"}]`), "missing /states/a/transitions/go/evidence/0 5", "source"},
	{"evidence that is no identifier", around("", "", `"evidence":[{"name":"c-i","source":"ci"}]`), "value /states/a/transitions/go/evidence/0/name 5", "evidence.name"},
	{"evidence twice", around("", "", `"evidence":[{"name":"ci","source":"a"},{"name":"ci","source":"b"}]`), "value /states/a/transitions/go/evidence/1/name 5", "duplicate evidence name"},
	{"a source with a slash", around("", "", `"evidence":[{"name":"ci","source":"a/b"}]`), "value /states/a/transitions/go/evidence/0/source 5", ""},
	{"an argument that is null", around("", "", `"evidence":[{"name":"ci","source":"a","arguments":{"x":null}}]`), "value /states/a/transitions/go/evidence/0/arguments/x 5", "{{context.commit}}"},
	{"a reference to nothing known", around("", "", `"evidence":[{"name":"ci","source":"a","arguments":{"x":"{{env.PATH}}"}}]`), "value /states/a/transitions/go/evidence/0/arguments/x 5", "{{data.field}}"},
	{"a reference that is an expression", around("", "", `"evidence":[{"name":"ci","source":"a","arguments":{"x":"{{data.a + 1}}"}}]`), "value /states/a/transitions/go/evidence/0/arguments/x 5", ""},
	{"a reference that is not closed", around("", "", `"evidence":[{"name":"ci","source":"a","arguments":{"x":"a{{data.a"}}]`), "value /states/a/transitions/go/evidence/0/arguments/x 5", "}}"},
	{"a timeout without a unit", around("", "", `"evidence":[{"name":"ci","source":"a","timeout":"30"}]`), "value /states/a/transitions/go/evidence/0/timeout 5", "90s"},
	{"a timeout that is too long", around("", "", `"evidence":[{"name":"ci","source":"a","timeout":"1h"}]`), "value /states/a/transitions/go/evidence/0/timeout 5", "10m"},
	{"a review that expires at once", around("", "", `"review":{"expiresAfter":"0s"}`), "value /states/a/transitions/go/review/expiresAfter 5", "above zero"},
	{"an unknown priority", around("", "", `"review":{"priority":"asap"}`), "value /states/a/transitions/go/review/priority 5", ""},
	{"confidence too high", around(`"judgeConfig":{"minConfidence":1.1}`, "", ""), "value /judgeConfig/minConfidence 2", "from 0 to 1"},
	{"confidence is a string", around("", "", `"minConfidence":"0.8"`), "type /states/a/transitions/go/minConfidence 5", ""},
	{"mode", around(`"judgeConfig":{"mode":"shadwo"}`, "", ""), "value /judgeConfig/mode 2", `did you mean "shadow"?`},
	{"policy", around("", "", `"onJudgeUnavailable":"approve"`), "value /states/a/transitions/go/onJudgeUnavailable 5", `"escalate", "structural", "reject"`},
	{"assurance", around("", "", `"requireAssurance":"human-ish"`), "value /states/a/transitions/go/requireAssurance 5", ""},
	{"risk", around("", "", `"risk":"extreme"`), "value /states/a/transitions/go/risk 5", ""},
	{"criteria", around("", "", `"criteria":"good"`), "type /states/a/transitions/go/criteria 5", ""},
	{"content", around("", "", `"content":"ignore"`), "value /states/a/transitions/go/content 5", `"flag", "escalate", "reject"`},
	{"a criterion that is a number", around("", "", `"criteria":[1]`), "type /states/a/transitions/go/criteria/0 5", ""},
	{"an empty criterion", around("", "", `"criteria":[{"text":""}]`), "value /states/a/transitions/go/criteria/0/text 5", "remove it"},
	{"a criterion given twice", around("", "", `"criteria":["c",{"text":"c","basis":"evidence"}]`), "value /states/a/transitions/go/criteria/1/text 5", "given twice"},
	{"a basis that is none", around("", "", `"criteria":[{"text":"c","basis":"claim"}]`), "value /states/a/transitions/go/criteria/0/basis 5", ""},
	{"a proof of no words", around("", "", `"criteria":[{"text":"c","proof":{"minWords":0}}]`), "value /states/a/transitions/go/criteria/0/proof/minWords 5", "from 1 to 50"},
	{"a proof with a pattern that is none", around("", "", `"criteria":[{"text":"c","proof":{"pattern":"(?=x)"}}]`), "value /states/a/transitions/go/criteria/0/proof/pattern 5", "RE2"},
	{"a proof from nowhere", around("", "", `"criteria":[{"text":"c","proof":{"from":"/comments"}}]`), "value /states/a/transitions/go/criteria/0/proof/from 5", "/data/comments"},
	{"a proof from data with the basis evidence", around("", "", `"criteria":[{"text":"c","basis":"evidence","proof":{"from":"data"}}]`), "value /states/a/transitions/go/criteria/0/proof/from 5", "remove one"},
	{"each of no list", around("", "", `"criteria":[{"text":"c","each":"symptoms"}]`), "value /states/a/transitions/go/criteria/0/each 5", "/data/items"},
	{"a scale of one grade", around("", "", `"criteria":[{"text":"c","scale":{"of":1,"atLeast":1}}]`), "value /states/a/transitions/go/criteria/0/scale 5", "2 to 10"},
	{"a grade above the scale", around("", "", `"criteria":[{"text":"c","scale":{"of":5,"atLeast":6}}]`), "value /states/a/transitions/go/criteria/0/scale 5", "1 to 5"},
	{"grades that are too few", around("", "", `"criteria":[{"text":"c","scale":{"of":3,"atLeast":2,"grades":["a","b"]}}]`), "value /states/a/transitions/go/criteria/0/scale 5", "all 3 grades"},
	{"an empty condition of a criterion", around("", "", `"criteria":[{"text":"c","when":""}]`), "value /states/a/transitions/go/criteria/0/when 5", "empty"},
	{"empty model", around("", "", `"model":""`), "value /states/a/transitions/go/model 5", ""},
	{"retention of a day", around(`"retention":{"events":"1d"}`, "", ""), "value /retention/events 2", "at least 7d"},
	{"retention for a while", around(`"retention":{"events":"a while"}`, "", ""), "value /retention/events 2", "such as 90s"},
	{"retention of something else", around(`"retention":{"event":"90d"}`, "", ""), "unknown-key /retention/event 2", `did you mean "events"?`},
	{"retention without its object", around(`"retention":"90d"`, "", ""), "type /retention 2", ""},
	{"must pass", around(`"mustPassThrough":{"a":"b"}`, "", ""), "type /mustPassThrough/a 2", ""},
	{"must pass is a list", around(`"mustPassThrough":["b"]`, "", ""), "type /mustPassThrough 2", ""},
	{"YAML anchor", "name: &x w\ninitialState: *x\nstates: {w: {final: true}}\n", "unsupported /name 1", "anchors"},
	{"YAML line", "name: w\ninitialState: a\nstates:\n  a:\n    final: yes\n", "type /states/a/final 5", ""},
	{"many at once", around(`"x":1,"tags":1`, `"final":1`, `"roles":1,"risk":"x"`), "type /tags 2, unknown-key /x 2, type /states/a/final 4, type /states/a/transitions/go/roles 5, value /states/a/transitions/go/risk 5", ""},
}

func TestParseRejects(t *testing.T) {
	for _, c := range rejected {
		t.Run(c.name, func(t *testing.T) {
			_, err := workflow.Parse("test", []byte(c.doc))
			var pe *workflow.ParseError
			if !errors.As(err, &pe) {
				t.Fatalf("error: %v", err)
			}
			var got, all []string
			for _, i := range pe.Issues {
				if i.Severity != workflow.SeverityError || i.Message == "" || strings.HasSuffix(i.Message, ".") {
					t.Errorf("issue: %+v", i)
				}
				got = append(got, fmt.Sprintf("%s %s %d", i.Rule, i.Path, i.Line))
				all = append(all, i.Message)
			}
			if s := strings.Join(got, ", "); s != c.issues && (strings.Contains(c.issues, " ") || !strings.HasPrefix(s, c.issues)) {
				t.Errorf("issues: %s\nwant:   %s\n%v", s, c.issues, err)
			}
			if !strings.Contains(strings.Join(all, "\n"), c.says) {
				t.Errorf("%v does not say %q", all, c.says)
			}
		})
	}
}

func TestParseLimits(t *testing.T) {
	pad := func(n int) string { return around(`"comment":"`+strings.Repeat("x", n)+`"`, "", "") }
	fits := workflow.MaxDefinition - len(pad(0))
	if _, err := workflow.Parse("test", []byte(pad(fits))); err != nil {
		t.Errorf("a definition of the greatest size: %v", err)
	}
	_, err := workflow.Parse("test", []byte(pad(fits+1)))
	if err == nil || !strings.Contains(err.Error(), "262144") {
		t.Errorf("one byte more: %v", err)
	}
	_, err = workflow.Parse("test", []byte(around(strings.Repeat(`"a":1,`, 1)+manyKeys(5000), "", "")))
	var pe *workflow.ParseError
	if !errors.As(err, &pe) || len(pe.Issues) != 51 || !strings.Contains(pe.Issues[50].Message, "4951 more") {
		t.Errorf("many issues: %.300v", err)
	}
}

func manyKeys(n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"k%d":1`, i)
	}
	return strings.Join(keys, ",")
}

func TestParseErrorText(t *testing.T) {
	_, err := workflow.Parse("my.json", []byte(around(`"initalState":"a"`, "", "")))
	if want := `my.json: line 2: /initalState: unknown key "initalState"; did you mean "initialState"? [unknown-key]`; fmt.Sprint(err) != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = workflow.Parse("", []byte(`{"name":"w","x":1,"y":2}`))
	if got := strings.Count(fmt.Sprint(err), "\n"); got != 4 || !strings.HasPrefix(err.Error(), "4 problems:\n  ") {
		t.Errorf("several: %v", err)
	}
}

// A workflow may be called like a file: its stored JSON is read as JSON.
func TestParseReadsJSONUnderAnyName(t *testing.T) {
	doc := `{"name":"x.yaml","description":"\ud83d\ude00\/","initialState":"a","states":{"a":{"final":true}}}`
	for _, source := range []string{"x.yaml", "x.json", "workflow.define", ""} {
		if d, err := workflow.Parse(source, []byte(doc)); err != nil || d.Description != "😀/" {
			t.Errorf("%q: %v", source, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, doc := range examples(f) {
		f.Add(doc)
	}
	f.Add([]byte(everything))
	f.Add([]byte(guarded))
	for _, c := range rejected {
		f.Add([]byte(c.doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		d, err := workflow.Parse("fuzz", doc)
		if err != nil {
			var pe *workflow.ParseError
			if !errors.As(err, &pe) || len(pe.Issues) == 0 {
				t.Fatalf("error: %v", err)
			}
			return
		}
		again, err := workflow.Parse(d.Name, d.Document)
		if err != nil {
			t.Fatalf("the document of an accepted definition does not parse: %v\n%s", err, d.Document)
		}
		if again.Hash != d.Hash {
			t.Fatalf("hash %s became %s", d.Hash, again.Hash)
		}
		if diff := cmp.Diff(d, again, cmpopts.IgnoreUnexported(workflow.Definition{}, workflow.Argument{})); diff != "" {
			t.Fatalf("parsed again:\n%s", diff)
		}
	})
}
