package workflow_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

func withArguments(arguments string) string {
	return machine(`"sensitive":["/secret"]`, "", `"evidence":[{"name":"e","source":"s","arguments":`+arguments+`}]`, "", "")
}

func asked(t testing.TB, arguments, data, context string) judge.EvidenceRequest {
	t.Helper()
	d, err := workflow.Parse("test", []byte(withArguments(arguments)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Case(workflow.CaseInput{
		Operation: judge.Advance, State: "a", Action: "go", Data: json.RawMessage(data), Context: json.RawMessage(context),
		Principal: "p", Role: "agent", Owner: validators.Owner{ID: "o", Trusted: true},
	})
	if err != nil || len(c.Evidence) != 1 {
		t.Fatalf("%+v, %v", c.Evidence, err)
	}
	return c.Evidence[0]
}

func TestEvidenceArguments(t *testing.T) {
	t.Parallel()
	const data = `{"n":7,"s":"it","deep":{"list":[10,"x"],"no":null},"yes":true,"big":1e3,"secret":"hush-hush"}`
	const context = `{"s":"from context","pr":{"sha":"abc"}}`
	for name, c := range map[string]struct{ arguments, want, masked, missing string }{
		"literals":                     {arguments: `{"a":"text","b":5,"c":true,"d":1.50}`, want: `{"a":"text","b":5,"c":true,"d":1.50}`},
		"types are kept":               {arguments: `{"a":"{{data.n}}","b":"{{ data.yes }}","c":"{{data.big}}","d":"{{data.s}}"}`, want: `{"a":7,"b":true,"c":1e3,"d":"it"}`},
		"context":                      {arguments: `{"a":"{{context.s}}","b":"{{context.pr.sha}}"}`, want: `{"a":"from context","b":"abc"}`},
		"text around one is text":      {arguments: `{"a":"#{{data.n}}","b":"{{data.s}}{{data.yes}}"}`, want: `{"a":"#7","b":"ittrue"}`},
		"into a list":                  {arguments: `{"a":"{{data.deep.list.0}}"}`, want: `{"a":10}`},
		"absent and null":              {arguments: `{"a":"{{data.none}}","b":"{{data.deep.no}}","e":1}`, want: `{"e":1}`, missing: "a b"},
		"structures":                   {arguments: `{"c":"{{data.deep}}","d":"{{data.deep.list}}"}`, want: `{"c":{"list":[10,"x"],"no":null},"d":[10,"x"]}`},
		"structures inside of text":    {arguments: `{"c":"<{{data.deep}}>","d":"<{{data.deep.list}}>","e":1}`, want: `{"e":1}`, missing: "c d"},
		"within structures":            {arguments: `{"a":{"of":["{{data.n}}",{"x":"{{data.s}}!","k{{data.n}}":null}],"none":[],"nothing":{}}}`, want: `{"a":{"of":[7,{"x":"it!","k{{data.n}}":null}],"none":[],"nothing":{}}}`},
		"absent within structures":     {arguments: `{"a":{"of":["{{data.none}}"]},"b":[1,{"x":"{{data.deep.no}}"}],"c":[]}`, want: `{"c":[]}`, missing: "a b"},
		"sensitive within structures":  {arguments: `{"a":["{{data.secret}}"]}`, want: `{"a":["hush-hush"]}`, masked: `{"a":["[masked]"]}`},
		"absent inside of text":        {arguments: `{"a":"x{{data.none}}"}`, want: `{}`, missing: "a"},
		"what is sensitive":            {arguments: `{"a":"{{data.secret}}","b":"k={{data.secret}}"}`, want: `{"a":"hush-hush","b":"k=hush-hush"}`, masked: `{"a":"[masked]","b":"k=[masked]"}`},
		"braces that are no reference": {arguments: `{"a":"{x}","b":"}} {"}`, want: `{"a":"{x}","b":"}} {"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := asked(t, c.arguments, data, context)
			if c.masked == "" {
				c.masked = c.want
			}
			if string(got.Arguments) != c.want || string(got.MaskedArguments) != c.masked || strings.Join(got.Missing, " ") != c.missing {
				t.Errorf("%s, masked %s, missing %v", got.Arguments, got.MaskedArguments, got.Missing)
			}
		})
	}
}

// The content of a field is never read as a reference, and never ends an argument.
func TestEvidenceArgumentsAreData(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		value := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{`{{context.secret}}`, `","b":"x`, "\n--flag", `\"}`})).Draw(rt, "value")
		doc, err := json.Marshal(map[string]string{"v": value})
		if err != nil {
			rt.Fatal(err)
		}
		r := asked(t, `{"a":"{{data.v}}","b":"<{{data.v}}>"}`, string(doc), `{"secret":"s3cret"}`)
		var got map[string]string
		if err := json.Unmarshal(r.Arguments, &got); err != nil {
			rt.Fatalf("%s: %v", r.Arguments, err)
		}
		var want map[string]string
		_ = json.Unmarshal(doc, &want) // invalid Unicode was replaced when it was encoded
		if len(got) != 2 || got["a"] != want["v"] || got["b"] != "<"+want["v"]+">" {
			rt.Fatalf("%q became %q", value, got)
		}
	})
}

func TestReviewSettings(t *testing.T) {
	t.Parallel()
	week := 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		judge, goes string
		want        workflow.ReviewSettings
	}{
		"by default":             {"", "", workflow.ReviewSettings{Priority: "normal", ExpiresAfter: week, OnExpire: "reject"}},
		"of the definition":      {`"review":{"priority":"low","expiresAfter":"1h"}`, "", workflow.ReviewSettings{Priority: "low", ExpiresAfter: time.Hour, OnExpire: "reject"}},
		"of the transition":      {`"review":{"priority":"low","expiresAfter":"1h"}`, `"review":{"priority":"urgent","onExpire":"raise"}`, workflow.ReviewSettings{Priority: "urgent", ExpiresAfter: time.Hour, OnExpire: "raise"}},
		"for ever":               {"", `"review":{"expiresAfter":"never"}`, workflow.ReviewSettings{Priority: "normal", ExpiresAfter: -1, OnExpire: "reject"}},
		"for days":               {"", `"review":{"expiresAfter":"30d"}`, workflow.ReviewSettings{Priority: "normal", ExpiresAfter: 30 * 24 * time.Hour, OnExpire: "reject"}},
		"empty means by default": {"", `"review":{}`, workflow.DefaultReview()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := parse(t, machine(`"judgeConfig":{`+c.judge+`}`, "", c.goes, "", ""))
			if got := d.Review("a", "go"); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}
