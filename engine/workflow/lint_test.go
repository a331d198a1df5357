package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators"
)

// machine is a sound definition as JSON text, each section on its own line:
// 2 document, 3 state a, 4 transition go, 5 state b, 6 more states.
func machine(document, a, goes, b, more string) string {
	join := func(s string) string {
		if s == "" {
			return ""
		}
		return "," + s
	}
	return "{\"name\":\"w\",\"initialState\":\"a\"\n" + join(document) + ",\"states\":{\n\"a\":{\"description\":\"x\"" + join(a) + ",\"transitions\":{\n\"go\":{\"target\":\"b\"" + join(goes) +
		"}}},\n\"b\":{\"final\":true" + join(b) + "}\n" + join(more) + "}}"
}

// proving is a machine with a criterion that has a proof, about the required field result.
func proving(proof, schema string) string {
	return machine("", "", `"useLLM":true,"criteria":[{"text":"The result says so","proof":`+proof+`}],"requiredFields":["result"],"schema":{"properties":{"result":{"type":"string",`+schema+`}}}`, "", "")
}

// lintCases each break one rule and no other; the issues are "rule path line".
var lintCases = []struct {
	name, doc, issues, says string
	models, sources         []string
	operator                bool
}{
	{name: "sound", doc: machine("", "", "", "", "")},
	{name: "unknown initial state", doc: strings.Replace(machine("", "", "", "", ""), `"initialState":"a"`, `"initialState":"A"`, 1), issues: "unknown-initial-state /initialState 1", says: `unknown state "A"; did you mean "a"?`},
	{name: "unknown target", doc: machine("", "", "", "", `"c":{"transitions":{"stop":"bb","go":"c","end":"b"}},"d":{"transitions":{"go":"a"}}`), issues: "unknown-target /states/c/transitions/stop 6", says: `leads to the unknown state "bb"`},
	{name: "unknown target alone", doc: strings.Replace(machine("", "", "", "", ""), `"go":{"target":"b"}`, `"go":{"target":"b"},"stop":{"target":"bee"}`, 1), issues: "unknown-target /states/a/transitions/stop/target 4", says: `known are "a", "b"`},
	{name: "unknown target of a route", doc: strings.Replace(machine("", "", "", "", ""), `"go":{"target":"b"}`, `"go":[{"condition":"true","target":"b"},{"condition":"true","target":"d"}]`, 1), issues: "unknown-target /states/a/transitions/go/1/target 4", says: `"d"`},
	{name: "unknown target of a route list in target", doc: strings.Replace(machine("", "", "", "", ""), `"target":"b"`, `"target":[{"condition":"true","target":"b"},{"condition":"true","target":"d"}]`, 1), issues: "unknown-target /states/a/transitions/go/target/1/target 4", says: `"d"`},
	{name: "dead end", doc: strings.Replace(machine("", "", "", "", `"c":{"description":"nothing"}`), `"go":{"target":"b"}`, `"go":{"target":"b"},"get":"c"`, 1), issues: "dead-end /states/c 6", says: `"c" is not final and has no transition`},
	{name: "final with transitions", doc: machine("", "", "", `"transitions":{"back":"a"}`, ""), issues: "final-with-transitions /states/b 5"},
	{name: "validator of an unknown state", doc: machine(`"stateValidators":{"B":{"requiredFields":["x"]}}`, "", "", "", ""), issues: "unknown-validator /stateValidators/B 2", says: `did you mean "b"?`},
	{name: "validator of an unknown action", doc: machine(`"transitionValidators":{"go":"()=>true","a.go":"()=>true","b.go":"()=>true"}`, "", "", "", ""), issues: "unknown-validator /transitionValidators/b.go 2", says: `did you mean "a.go"?`},
	{name: "unknown notBy", doc: machine("", "", `"notBy":"goo"`, "", ""), issues: "unknown-not-by /states/a/transitions/go/notBy 4", says: `did you mean "go"?`},
	{name: "unknown notBy in a list", doc: machine("", "", `"notBy":["go","x"]`, "", ""), issues: "unknown-not-by /states/a/transitions/go/notBy/1 4"},
	{name: "unknown state to pass", doc: machine(`"mustPassThrough":{"b":["A1"]}`, "", "", "", ""), issues: "unknown-must-pass /mustPassThrough/b 2"},
	{name: "unknown state to guard", doc: machine(`"mustPassThrough":{"c":["a"]}`, "", "", "", ""), issues: "unknown-must-pass /mustPassThrough/c 2"},
	{name: "passing through the initial state", doc: machine(`"mustPassThrough":{"b":["a"]}`, "", "", "", "")},
	{name: "passing through the only way", doc: `{"name":"w","initialState":"a","mustPassThrough":{"c":["a","b"]},"states":{"a":{"transitions":{"x":"b"}},"b":{"transitions":{"y":"c","z":"a"}},"c":{"final":true}}}`},
	{name: "a way past it", doc: `{"name":"w","initialState":"a","mustPassThrough":{"c":["b"]},"states":{"a":{"transitions":{"x":"b","d":"d"}},"b":{"transitions":{"y":"c"}},"d":{"transitions":{"leap":"c","z":"b"}},"c":{"final":true}}}`, issues: "must-pass-through /mustPassThrough/c 1", says: `"c" can be entered without passing through "b": "a" -(d)-> "d" -(leap)-> "c"`},
	{name: "past it by a route", doc: `{"name":"w","initialState":"a","mustPassThrough":{"c":["b"]},"states":{"a":{"transitions":{"x":[{"condition":"context.n > 1","target":"b"},{"condition":"true","target":"c"}]}},"b":{"transitions":{"y":"c"}},"c":{"final":true}}}`, issues: "must-pass-through /mustPassThrough/c 1", says: `"a" -(x)-> "c"`},
	{name: "through itself", doc: machine(`"mustPassThrough":{"b":["b"]}`, "", "", "", ""), issues: "must-pass-through /mustPassThrough/b 2", says: `"a" -(go)-> "b"`},
	{name: "the initial state after another", doc: machine(`"mustPassThrough":{"a":["b"]}`, "", "", "", ""), issues: "must-pass-through /mustPassThrough/a 2", says: `start -> "a"`},
	{name: "a state that is never entered", doc: machine(`"mustPassThrough":{"c":["b"]}`, "", "", "", `"c":{"transitions":{"x":"b"}}`), issues: "unreachable-state /states/c 6", says: `no path leads from "a" to "c"`},
	{name: "what agents may do with an agent's", doc: machine(`"agents":{"rollback":true}`, "", "", "", ""), issues: "agents-not-operator /agents 2", says: "it has no effect"},
	{name: "applies only to an operator's definition", operator: true, doc: machine(`"agents":{"rollback":true,"redefine":false,"configureJudge":"tighten"}`, "", "", "", "")},
	{name: "schema", doc: machine("", "", `"schema":{"type":"strin"}`, "", ""), issues: "schema-invalid /states/a/transitions/go/schema/type 4", says: "the schema does not compile"},
	{name: "start schema", doc: machine(`"inputSchema":{"properties":{"a":{"minLength":-1}}}`, "", "", "", ""), issues: "schema-invalid /inputSchema/properties/a/minLength 2"},
	{name: "state schema", doc: machine(`"stateValidators":{"b":{"schema":{"$ref":"http://example.org/s"}}}`, "", "", "", ""), issues: "schema-invalid /stateValidators/b/schema/$ref 2"},
	{name: "script", doc: machine("", "", `"validator":"(data) => {"`, "", ""), issues: "script-invalid /states/a/transitions/go/validator 4"},
	{name: "script without end", doc: machine("", "", `"validator":"() => { while (true); }"`, "", ""), issues: "script-invalid /states/a/transitions/go/validator 4", says: "the script compiles, but fails its trial run on {}: it ran longer than"},
	{name: "keyed script", doc: machine(`"transitionValidators":{"a.go":"(data) => {","go":"async () => true"}`, "", "", "", ""), issues: "script-invalid /transitionValidators/a.go 2, script-invalid /transitionValidators/go 2"},
	{name: "condition", doc: strings.Replace(machine("", "", "", "", ""), `"target":"b"`, `"target":[{"condition":"context.n >","target":"b"}]`, 1), issues: "script-invalid /states/a/transitions/go/target/0/condition 4"},
	{name: "field", doc: machine("", "", `"requiredFields":["a","/~9"]`, "", ""), issues: "field-invalid /states/a/transitions/go/requiredFields/1 4"},
	{name: "sensitive without a slash", doc: machine(`"sensitive":["/a","ssn"]`, "", "", "", ""), issues: "malformed-pointer /sensitive/1 2", says: "begins with a slash"},
	{name: "sensitive everything", doc: machine(`"sensitive":[""]`, "", "", "", ""), issues: "malformed-pointer /sensitive/0 2"},
	{name: "freezes a wildcard", doc: machine("", "", `"freezes":["/list/*"]`, "", ""), issues: "malformed-pointer /states/a/transitions/go/freezes/0 4", says: "works only in sensitive"},
	{name: "writes a pointer", doc: machine("", "", `"writes":["x","/a/b"]`, "", ""), issues: "malformed-write /states/a/transitions/go/writes/1 4", says: `"a" instead of "/a/b"`},
	{name: "no key is reserved", doc: machine("", "", `"writes":["review","evidence"],"freezes":["/gavel/x"],"requiredFields":["evidence.ci"],"validator":"(data) => data.evidence.ci === 'green'"`, "", ""), issues: ""},
	{name: "evidence of a stranger", doc: machine("", "", `"evidence":[{"name":"ci","source":"ci"}]`, "", ""), issues: "evidence-not-operator /states/a/transitions/go/evidence 4", says: "only for definitions owned by an operator"},
	{name: "retention of a stranger", doc: machine(`"retention":{"events":"90d"}`, "", "", "", ""), issues: "retention-not-operator /retention 2", says: "only an operator"},
	{name: "access of a stranger", doc: machine(`"access":"shared"`, "", "", "", ""), issues: "access-not-operator /access 2", says: "only an operator"},
	{name: "a key that was added", doc: machine("", `"awaits":{"gate":"g"}`, "", "", "")},
	{name: "a rule that was added", doc: machine("", `"awaits":{"gate":"never"}`, "", "", ""), issues: "awaits-never /states/a/awaits 3", says: "\"a\" waits, and the owner is an operator: false"},
	{name: "retention of an operator", doc: machine(`"retention":{"events":"90d"}`, "", "", "", ""), operator: true},
	{name: "access of an operator", doc: machine(`"access":"shared"`, "", "", "", ""), operator: true},
	{name: "no way to an end", doc: strings.Replace(machine("", "", "", "", `"c":{"transitions":{"x":"d"}},"d":{"transitions":{"y":"c"}}`), `"go":{"target":"b"}`, `"go":{"target":"b"},"get":"c"`, 1), issues: "no-path-to-final /states/c 6, no-path-to-final /states/d 6"},
	{name: "no end at all is fine", doc: `{"name":"w","initialState":"a","states":{"a":{"transitions":{"x":"b"}},"b":{"transitions":{"y":"a"}}}}`},
	{name: "outcome of a state that is not final", doc: machine("", `"outcome":"success"`, "", "", ""), issues: "outcome-not-final /states/a/outcome 3"},
	{name: "model asked for, none configured", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"]}`, "", "", "", ""), issues: "llm-without-model /judgeConfig/useLLM 2", says: "none is configured: without one the other layers decide alone, and the criteria are not judged"},
	{name: "strict, none configured", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"strictMode":true,"minConfidence":0.7}`, "", "", "", ""), issues: "llm-without-model /judgeConfig/useLLM 2", says: "every such move waits for a person, or is refused where reviews are off"},
	{name: "reject, none configured", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"onJudgeUnavailable":"reject"}`, "", "", "", ""), issues: "llm-without-model /judgeConfig/useLLM 2", says: "without one every such move is refused"},
	{name: "assurance, none configured", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"requireAssurance":"llm"}`, "", "", "", ""), issues: "llm-without-model /judgeConfig/useLLM 2", says: "no such move is approved"},
	{name: "model asked for by a transition", doc: machine("", "", `"useLLM":true,"criteria":["c"]`, "", ""), issues: "llm-without-model /states/a/transitions/go/useLLM 4"},
	{name: "another model configured", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"model":"smal"}`, "", "", "", ""), models: []string{"small"}, issues: "llm-without-model /judgeConfig/model 2", says: `did you mean "small"?`},
	{name: "model configured", doc: machine(`"judgeConfig":{"useLLM":true,"strictMode":true,"criteria":["c"],"model":"small"}`, "", "", "", ""), models: []string{"small"}, issues: "shrunk-confidence /judgeConfig/minConfidence 2"},
	{name: "model not asked while disabled", doc: machine(`"judgeConfig":{"useLLM":true,"enabled":false}`, "", "", "", "")},
	{name: "criteria of a transition", doc: machine("", "", `"criteria":["c"]`, "", ""), issues: "criteria-without-llm /states/a/transitions/go/criteria 4"},
	{name: "reference, exemplars and samples of a transition", doc: machine("", "", `"reference":"r","exemplars":[{"data":{},"outcome":"reject"}],"samples":3`, "", ""), issues: "criteria-without-llm /states/a/transitions/go/reference 4, criteria-without-llm /states/a/transitions/go/exemplars 4, criteria-without-llm /states/a/transitions/go/samples 4"},
	{name: "criteria of all", doc: machine(`"judgeConfig":{"criteria":["c"]}`, "", "", "", ""), issues: "criteria-without-llm /judgeConfig/criteria 2"},
	{name: "criteria of all, asked by one", doc: machine(`"judgeConfig":{"criteria":["c"]}`, "", `"useLLM":true`, "", ""), models: []string{"m"}},
	{name: "a criterion for evidence that nothing fetches", doc: machine("", "", `"useLLM":true,"criteria":[{"text":"the tests passed","basis":"evidence"}]`, "", ""), models: []string{"m"}, issues: "never-approves /states/a/transitions/go/criteria 4", says: "fetches no evidence"},
	{name: "bar above an uncalibrated model", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"strictMode":true,"minConfidence":0.9}`, "", "", "", ""), models: []string{"m"}, issues: "never-approves /judgeConfig/minConfidence 2", says: "0.892"},
	{name: "an outage with a criterion for evidence", doc: machine("", "", `"useLLM":true,"criteria":[{"text":"the tests passed","basis":"evidence"}],"evidence":[{"name":"ci","source":"ci"}]`, "", ""), models: []string{"m"}, sources: []string{"ci"}, operator: true, issues: "outage-refuses /states/a/transitions/go/criteria 4", says: "refused (judge_unavailable)"},
	{name: "its outage goes to a person", doc: machine("", "", `"useLLM":true,"onJudgeUnavailable":"escalate","criteria":[{"text":"the tests passed","basis":"evidence"}],"evidence":[{"name":"ci","source":"ci"}]`, "", ""), models: []string{"m"}, sources: []string{"ci"}, operator: true},
	{name: "an unknown model of a panel", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"panel":{"models":["m","n"]}}`, "", "", "", ""), models: []string{"m"}, issues: "llm-without-model /judgeConfig/panel 2", says: `"n" is not configured`},
	{name: "a model instead of the panel", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"panel":{"models":["n","o"]}}`, "", `"model":"m"`, "", ""), models: []string{"m"}},
	{name: "too few for the threshold", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"strictMode":true,"panel":{"models":["m","n"]}}`, "", "", "", ""), models: []string{"m", "n"}, issues: "never-approves /judgeConfig/minConfidence 2, shrunk-confidence /judgeConfig/minConfidence 2", says: "2 answers give at most 0.750"},
	{name: "a panel without a model", doc: machine("", "", `"panel":{"models":["m","n"]}`, "", ""), models: []string{"m", "n"}, issues: "criteria-without-llm /states/a/transitions/go/panel 4"},
	{name: "bar at an uncalibrated model", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"strictMode":true,"minConfidence":0.892}`, "", "", "", ""), models: []string{"m"}, issues: "shrunk-confidence /judgeConfig/minConfidence 2", says: "at least 0.99"},
	{name: "the usual bar of a strict judge", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"strictMode":true}`, "", `"minConfidence":0.8`, "", ""), models: []string{"m"}, issues: "shrunk-confidence /states/a/transitions/go/minConfidence 4", says: "must state at least 0.875"},
	{name: "high bar without strictMode", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"minConfidence":1}`, "", "", "", ""), models: []string{"m"}},
	{name: "structural under strict", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"strictMode":true}`, "", `"onJudgeUnavailable":"structural"`, "", ""), models: []string{"m"}, issues: "shrunk-confidence /judgeConfig/minConfidence 2, never-approves /states/a/transitions/go/onJudgeUnavailable 4", says: "0.5"},
	{name: "structural under a low bar", doc: machine(`"judgeConfig":{"useLLM":true,"criteria":["c"],"strictMode":true,"minConfidence":0.5,"onJudgeUnavailable":"structural"}`, "", "", "", ""), models: []string{"m"}},
	{name: "assurance of a model that is not asked", doc: machine(`"judgeConfig":{"requireAssurance":"llm"}`, "", `"validator":"()=>true"`, "", ""), issues: "never-approves /judgeConfig/requireAssurance 2", says: `needs assurance "llm" and can reach at most "validators"`},
	{name: "assurance while disabled", doc: machine(`"judgeConfig":{"useLLM":true,"enabled":false,"requireAssurance":"llm"}`, "", "", "", ""), models: []string{"m"}, issues: "never-approves /judgeConfig/requireAssurance 2", says: `"enabled": false`},
	{name: "risk while disabled", doc: machine(`"judgeConfig":{"useLLM":true,"enabled":false}`, "", `"risk":"high"`, "", ""), models: []string{"m"}, issues: "never-approves /states/a/transitions/go/risk 4"},
	{name: "risk with a model", doc: machine("", "", `"risk":"high","useLLM":true,"criteria":["c"]`, "", ""), models: []string{"m"}},
	{name: "structure that nothing has", doc: machine("", "", `"requireAssurance":"structural"`, "", ""), issues: "never-approves /states/a/transitions/go/requireAssurance 4", says: `at most "none"`},
	{name: "structure by the state entered", doc: machine(`"stateValidators":{"b":{"requiredFields":["x"]}}`, "", `"requireAssurance":"structural"`, "", "")},
	{name: "structure by fields", doc: machine("", "", `"requireAssurance":"structural","requiredFields":["x"]`, "", "")},
	{name: "validators by keyed ones", doc: machine(`"transitionValidators":{"a.go":"()=>true"}`, "", `"requireAssurance":"validators"`, "", "")},
	{name: "a person is meant", doc: machine("", "", `"requireAssurance":"human"`, "", "")},
	{name: "nothing to judge", doc: machine(`"judgeConfig":{"useLLM":true}`, "", "", "", `"c":{"transitions":{"x":"b"}}`), models: []string{"m"}, issues: "model-not-asked /judgeConfig/useLLM 2, unreachable-state /states/c 6", says: "leaves the model nothing to judge"},
	{name: "nothing to judge by a transition", doc: machine("", "", `"useLLM":true,"schema":{"type":"object"}`, "", ""), models: []string{"m"}, issues: "model-not-asked /states/a/transitions/go/useLLM 4"},
	{name: "nothing to judge, two moves on", doc: `{"name":"w","initialState":"a","states":{"a":{"transitions":{"x":"b"}},"b":{"transitions":{"y":{"target":"c","useLLM":true}}},"c":{"final":true}}}`, models: []string{"m"}, issues: "model-not-asked /states/b/transitions/y/useLLM 1"},
	{name: "a misspelt keyword", doc: machine(`"inputSchema":{"properties":{"t":{"minlength":3}}},"stateValidators":{"b":{"schema":{"additionalProperty":false}}}`, "", `"schema":{"requred":["x"]}`, "", ""), issues: "misspelt-keyword /inputSchema/properties/t/minlength 2, misspelt-keyword /stateValidators/b/schema/additionalProperty 2, misspelt-keyword /states/a/transitions/go/schema/requred 4", says: `did you mean "required"?`},
	{name: "a proof that short fields can meet", doc: proving(`{"minWords":1}`, `"maxLength":8`), models: []string{"m"}},
	{name: "a proof that a long field can meet", doc: proving(`{"minWords":6}`, `"maxLength":80`), models: []string{"m"}},
	{name: "a proof that an unbounded field can meet", doc: proving(`{"minWords":40,"figure":true,"from":"/data/result"}`, `"minLength":1`), models: []string{"m"}},
	{name: "a proof that a short field cannot meet", doc: proving(`{"minWords":6}`, `"maxLength":8`), models: []string{"m"}, issues: "proof-too-strict /states/a/transitions/go/criteria 4", says: `no value of "result" that the schema allows`},
	{name: "a figure that no value has", doc: proving(`{"figure":true,"from":"/data/result"}`, `"enum":["passed","failed"]`), models: []string{"m"}, issues: "proof-too-strict /states/a/transitions/go/criteria 4"},
	{name: "a pattern that no value has", doc: proving(`{"pattern":"^[0-9]+ passed","minWords":1}`, `"const":"all passed"`), models: []string{"m"}, issues: "proof-too-strict /states/a/transitions/go/criteria 4"},
	{name: "a pattern that a value has", doc: proving(`{"pattern":"passed","minWords":1}`, `"enum":["all passed"]`), models: []string{"m"}},
	{name: "a proof from a field that is not required", doc: proving(`{"from":"/data/comments"}`, `"maxLength":80`), models: []string{"m"}, issues: "proof-too-strict /states/a/transitions/go/criteria 4", says: `add it to "requiredFields"`},
	{name: "nothing to judge only past data", doc: `{"name":"w","initialState":"a","states":{"a":{"transitions":{"x":{"target":"b","requiredFields":["n"]}}},"b":{"transitions":{"y":{"target":"c","useLLM":true}}},"c":{"final":true}}}`, models: []string{"m"}},
	{name: "something to judge by the start", doc: machine(`"judgeConfig":{"useLLM":true},"inputSchema":{"required":["title"]}`, "", "", "", ""), models: []string{"m"}},
	{name: "something to judge by the first state", doc: machine(`"judgeConfig":{"useLLM":true},"stateValidators":{"a":{"requiredFields":["title"]}}`, "", "", "", ""), models: []string{"m"}},
	{name: "something to judge by the state entered", doc: machine(`"judgeConfig":{"useLLM":true},"stateValidators":{"b":{"schema":{"required":["title"]}}}`, "", "", "", ""), models: []string{"m"}},
	{name: "something to judge by a validator", doc: machine(`"judgeConfig":{"useLLM":true}`, "", `"validator":"()=>true"`, "", ""), models: []string{"m"}},
	{name: "something to judge by evidence", operator: true, doc: machine(`"judgeConfig":{"useLLM":true}`, "", `"evidence":[{"name":"ci","source":"ci"}]`, "", ""), models: []string{"m"}},
	{name: "evidence of an operator", operator: true, sources: []string{"ci"}, doc: machine("", "", `"requiredFields":["sha"],"evidence":[{"name":"ci","source":"ci","arguments":{"sha":"{{data.sha}}","n":5}}]`, "", "")},
	{name: "evidence from elsewhere", operator: true, sources: []string{"tests"}, doc: machine("", "", `"evidence":[{"name":"ci","source":"test"}]`, "", ""), issues: "unknown-source /states/a/transitions/go/evidence/0/source 4", says: `did you mean "tests"?`},
	{name: "evidence asked with what nothing requires", operator: true, doc: machine("", "", `"evidence":[{"name":"ci","source":"ci","arguments":{"sha":"at {{data.sha}}"}}]`, "", ""), issues: "evidence-unbound /states/a/transitions/go/evidence/0/arguments 4", says: `add "sha" to requiredFields`},
	{name: "evidence is read where the agent writes", operator: true, doc: machine("", "", `"evidence":[{"name":"ci","source":"ci"}],"validator":"(data, context) => data?.evidence?.ci.passed"`, "", ""), issues: "claimed-evidence /states/a/transitions/go/validator 4", says: "(data, context, evidence)"},
	{name: "evidence is read from the context by a keyed validator", operator: true, doc: machine(`"transitionValidators":{"go":"(data, context) => context.evidence.ci.passed"}`, "", `"evidence":[{"name":"ci","source":"ci"}]`, "", ""), issues: "claimed-evidence /transitionValidators/go 2"},
	{name: "evidence is read where the gate puts it", operator: true, doc: machine("", "", `"evidence":[{"name":"ci","source":"ci"}],"validator":"(data, context, evidence) => evidence.ci.passed /* not data.evidence */"`, "", ""), issues: ""},
	{name: "evidence asked with what anybody may change", operator: true, doc: machine("", "", `"evidence":[{"name":"ci","source":"ci","arguments":{"sha":"{{context.pr.sha}}"}}]`, "", ""), issues: "evidence-unbound /states/a/transitions/go/evidence/0/arguments 4", says: "freeze /pr/sha"},
	{name: "evidence asked with what is frozen", operator: true, doc: strings.Replace(machine("", "", `"evidence":[{"name":"ci","source":"ci","arguments":{"sha":"{{context.pr.sha}}"}}]`, "", ""), `"go":{`, `"open":{"target":"a","freezes":["/pr"]},"go":{`, 1)},
	{name: "required but not writable", doc: machine("", "", `"requiredFields":["a","c.d"],"writes":["a"]`, "", ""), issues: "required-not-writable /states/a/transitions/go/requiredFields/1 4", says: `"c" may not be written`},
	{name: "unchecked field", doc: machine("", "", `"validator":"(data) => data.total > 0"`, "", ""), issues: "unchecked-field /states/a/transitions/go/validator 4", says: "data.total"},
	{name: "unchecked field of a keyed validator", doc: machine(`"transitionValidators":{"go":"(data) => data.total > 0"}`, "", "", "", ""), issues: "unchecked-field /transitionValidators/go 2"},
	{name: "unchecked field of a condition", doc: strings.Replace(machine("", "", "", "", ""), `"target":"b"`, `"target":[{"condition":"data.n > 1","target":"b"}]`, 1), issues: "unchecked-field /states/a/transitions/go/target/0/condition 4"},
	{name: "field checked by requiredFields", doc: machine("", "", `"requiredFields":["total.net"],"validator":"(data) => data.total.net > 0"`, "", "")},
	{name: "field checked by the schema", doc: machine("", "", `"schema":{"required":["total"]},"validator":"(data) => data.total > 0"`, "", "")},
}

func TestLint(t *testing.T) {
	for _, c := range lintCases {
		t.Run(c.name, func(t *testing.T) {
			d := parse(t, c.doc)
			issues, err := d.Lint(t.Context(), workflow.LintOptions{Compiler: compiler(), Owner: validators.Owner{ID: "test", Trusted: c.operator}, Models: c.models, Sources: c.sources})
			if err != nil {
				t.Fatal(err)
			}
			var got, all []string
			for _, i := range issues {
				got = append(got, fmt.Sprintf("%s %s %d", i.Rule, i.Path, i.Line))
				all = append(all, i.Message)
			}
			if s := strings.Join(got, ", "); s != c.issues {
				t.Errorf("issues: %s\nwant:   %s\n%v", s, c.issues, all)
			}
			if !strings.Contains(strings.Join(all, "\n"), c.says) {
				t.Errorf("%q does not say %q", all, c.says)
			}
		})
	}
}

// Every rule has a case in which it is the only issue, and the table is well-formed.
func TestEveryRuleIsTested(t *testing.T) {
	alone := map[string]bool{}
	for _, c := range lintCases {
		var rules []string
		for i := range strings.SplitSeq(c.issues, ", ") {
			rule, _, _ := strings.Cut(i, " ")
			rules = append(rules, rule)
		}
		if rules = slices.Compact(rules); len(rules) == 1 {
			alone[rules[0]] = true
		}
	}
	for _, c := range rejected {
		rule, _, _ := strings.Cut(c.issues, " ")
		alone[rule] = true
	}
	alone["nul"] = true           // TestCheckDocument
	alone["script-throws"] = true // TestScriptsAreTried
	seen := map[string]bool{}
	for _, r := range workflow.Rules() {
		switch {
		case seen[r.ID]:
			t.Errorf("rule %s stands twice", r.ID)
		case !alone[r.ID]:
			t.Errorf("no test triggers %s alone", r.ID)
		case r.Doc == "" || !strings.HasSuffix(r.Doc, "."), !slices.Contains([]workflow.Severity{workflow.SeverityError, workflow.SeverityWarning, workflow.SeverityNote}, r.Severity):
			t.Errorf("rule %+v", r)
		}
		seen[r.ID] = true
	}
	for rule := range alone {
		if rule != "" && !seen[rule] {
			t.Errorf("%s is not in the table", rule)
		}
	}
}

// failing is a compiler whose sandbox is down.
type failing struct{ err error }

func (f failing) Compile(context.Context, string, validators.Owner, validators.Checks) (*validators.Set, []validators.Problem, error) {
	return nil, nil, f.err
}

func TestLintFailsIfItCannotCompile(t *testing.T) {
	d := parse(t, machine("", "", `"validator":"()=>true"`, "", ""))
	if issues, err := d.Lint(t.Context(), workflow.LintOptions{Compiler: failing{validators.ErrUnavailable}}); !errors.Is(err, validators.ErrUnavailable) || issues != nil {
		t.Errorf("%v, %v", issues, err)
	}
	if _, err := d.Lint(t.Context(), workflow.LintOptions{}); err == nil {
		t.Error("no error without a compiler")
	}
}

// counting is a compiler that accepts everything and counts its calls.
type counting struct{ calls, scripts int }

func (c *counting) Compile(_ context.Context, _ string, _ validators.Owner, checks validators.Checks) (*validators.Set, []validators.Problem, error) {
	c.calls++
	c.scripts += len(checks.Validators) + len(checks.Routes)
	return nil, nil, nil
}

func TestLintAsksTheSandboxOnce(t *testing.T) {
	c := &counting{}
	if _, err := parse(t, guarded).Lint(t.Context(), workflow.LintOptions{Compiler: c}); err != nil {
		t.Fatal(err)
	}
	// One call each for the start's schema, one transition's, two states', and one for all scripts together.
	if c.calls != 5 || c.scripts != 6 {
		t.Errorf("%d calls with %d scripts", c.calls, c.scripts)
	}
}

// cancelling is a Compiler whose caller cancels.
type cancelling struct{ cancel context.CancelCauseFunc }

func (c cancelling) Compile(context.Context, string, validators.Owner, validators.Checks) (*validators.Set, []validators.Problem, error) {
	c.cancel(errGone)
	return nil, nil, nil
}

var errGone = errors.New("gone")

func TestLintEndsWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := parse(t, guarded).Lint(ctx, workflow.LintOptions{Compiler: cancelling{cancel}}); !errors.Is(err, errGone) {
		t.Errorf("got %v", err)
	}
}

// A definition of the maximum size is linted within a moment, whatever its shape.
func TestLintIsFastOnLargeDefinitions(t *testing.T) {
	var states, must []string
	for i := range 3000 {
		states = append(states, fmt.Sprintf(`"s%d":{"transitions":{"n":"s%d","b":"s0"}}`, i, i+1))
		must = append(must, fmt.Sprintf(`"s%d"`, i))
	}
	doc := `{"name":"w","initialState":"s0","mustPassThrough":{"s3000":[` + strings.Join(must, ",") + `]},"states":{` + strings.Join(states, ",") + `,"s3000":{"final":true}}}`
	d := parse(t, doc)
	start := time.Now()
	issues, err := d.Lint(t.Context(), workflow.LintOptions{Compiler: &counting{}})
	if err != nil || len(issues) > 0 {
		t.Errorf("%v, %v", issues, err)
	}
	bad := parse(t, strings.ReplaceAll(doc, `:"s0"`, `:"state-zero"`))
	if issues, err = bad.Lint(t.Context(), workflow.LintOptions{Compiler: &counting{}}); err != nil || len(issues) != 52 {
		t.Errorf("%d issues, %v", len(issues), err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

// Untrusted schemas never run in gavel's own process. An operator's schema runs there unless it may
// cost more than its data.
func TestListSchemas(t *testing.T) {
	d := parse(t, machine(`"inputSchema":{"uniqueItems":true}`, "", `"schema":{"properties":{"a":{"$ref":"#"}}}`, "", ""))
	for trusted, want := range map[bool][]workflow.SchemaPlace{
		true: {
			{Path: "/inputSchema", Line: 2, Why: "its running time is proportional to the data"},
			{Path: "/states/a/transitions/go/schema", Line: 4, Sandbox: true, Why: `it refers to itself at "/properties/a/$ref"`},
		},
		false: {
			{Path: "/inputSchema", Line: 2, Sandbox: true, Why: "it was not loaded by an operator"},
			{Path: "/states/a/transitions/go/schema", Line: 4, Sandbox: true, Why: "it was not loaded by an operator"},
		},
	} {
		if got := d.ListSchemas(validators.Owner{Trusted: trusted}); !slices.Equal(got, want) {
			t.Errorf("trusted %v: %+v", trusted, got)
		}
	}
}
