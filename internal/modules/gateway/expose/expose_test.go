package expose_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/enginetest"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/modules/gateway/expose"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

func parseConfig(t testing.TB, section string) (expose.Config, error) {
	t.Helper()
	file, err := document.Parse("gavel.yaml", []byte("expose: "+section), document.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return expose.ParseConfig(file.Get("expose"))
}

func mustParse(t testing.TB, section string) expose.Config {
	t.Helper()
	cfg, err := parseConfig(t, section)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestMistakesOfTheSection(t *testing.T) {
	t.Parallel()
	for section, want := range map[string]string{
		`{tagKey: "", tagValue: x}`:                `gavel.yaml:1:18: /expose/tagKey: "tagKey" is empty; remove it to select without it`,
		`{tagKye: mcp, tagValue: x}`:               `gavel.yaml:1:10: /expose/tagKye: unknown key "tagKye"; did you mean "tagKey"?`,
		`{prefix: ""}`:                             `gavel.yaml:1:18: /expose/prefix: "prefix" is empty; remove it to select without it`,
		`{prefix: 7}`:                              `gavel.yaml:1:18: /expose/prefix: expected a string, got a number`,
		`{workflows: []}`:                          `gavel.yaml:1:21: /expose/workflows: "workflows" is empty; to expose none, remove the section "expose"`,
		`{workflows: a}`:                           `gavel.yaml:1:21: /expose/workflows: expected an array, got a string`,
		`{workflows: [a, {name: a}]}`:              `gavel.yaml:1:25: /expose/workflows/1: the workflow "a" is listed twice; remove one of the two`,
		`{workflows: [{mode: express}]}`:           `gavel.yaml:1:22: /expose/workflows/0: missing key "name"`,
		`{workflows: [{name: a, mode: sync}]}`:     `gavel.yaml:1:38: /expose/workflows/0/mode: "mode" must be one of "standard", "express"`,
		`{workflows: [{name: a, moed: standard}]}`: `gavel.yaml:1:32: /expose/workflows/0/moed: unknown key "moed"; did you mean "mode"?`,
		`{workflows: [4]}`:                         `gavel.yaml:1:22: /expose/workflows/0: expected an object, got a number`,
		`{chains: []}`:                             `gavel.yaml:1:18: /expose/chains: "chains" is empty; to expose none, remove the section "expose"`,
		`{chains: [a, a]}`:                         `gavel.yaml:1:22: /expose/chains/1: the chain "a" is listed twice; remove one of the two`,
		`{mode: expres}`:                           `gavel.yaml:1:16: /expose/mode: "mode" must be one of "standard", "express"; did you mean "express"?`,
		`{wait: 6m}`:                               `gavel.yaml:1:16: /expose/wait: "wait" is a duration from 1s to 5m, such as 30s`,
		`{wait: 30}`:                               `gavel.yaml:1:16: /expose/wait: expected a string, got a number`,
		`true`:                                     `gavel.yaml:1:9: /expose: expected an object, got a boolean`,
		`null`:                                     `gavel.yaml:1:9: /expose: expected an object, got null`,
	} {
		_, err := parseConfig(t, section)
		all, _ := errors.AsType[document.Errors](err)
		if got := linesOf(all); got != want {
			t.Errorf("%s:\n got %s\nwant %s", section, got, want)
		}
	}
}

func linesOf(issues document.Errors) string {
	var lines []string
	for _, i := range issues {
		lines = append(lines, i.Error())
	}
	return strings.Join(lines, "\n")
}

// define returns a small workflow with additional top-level members.
func define(name, more string) string {
	return fmt.Sprintf(`{"name":%q,"initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true,"outcome":"success"}}%s}`, name, more)
}

func parseAll(t testing.TB, documents ...string) (all []*workflow.Definition) {
	t.Helper()
	for _, doc := range documents {
		d, err := workflow.Parse("definition", []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

func namesOf(tools []expose.Tool) string {
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
		if tool.Mode == expose.Express {
			names[len(names)-1] += "!"
		}
	}
	return strings.Join(names, " ")
}

func TestSelect(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64)
	all := parseAll(t,
		define("release.v2", `,"tags":{"mcp":"yes"}`), define("release-notes", `,"tags":{"mcp":"no"}`), define("onboard", `,"tags":{"mcp":"yes","":"x"}`),
		define(long, ""), define("_a..b_", ""))
	for section, want := range map[string]string{
		`{}`:                     "_a_b_ onboard release-notes release_v2 " + strings.Repeat("x", 43) + "_7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c"[:9],
		`{prefix: release}`:      "release-notes release_v2",
		`{prefix: releases}`:     "",
		`{workflows: [onboard]}`: "onboard",
		`{prefix: release-, workflows: [onboard]}`:                                  "onboard release-notes",
		`{tagKey: mcp, tagValue: "yes"}`:                                            "onboard release_v2",
		`{tagKey: mcp, tagValue: ""}`:                                               "",
		`{prefix: release, tagKey: mcp, tagValue: "yes"}`:                           "release_v2",
		`{workflows: [release-notes], tagKey: mcp, tagValue: "yes"}`:                "",
		`{prefix: release, mode: express}`:                                          "release-notes! release_v2!",
		`{prefix: release, workflows: [{name: release.v2, mode: express}]}`:         "release-notes release_v2!",
		`{workflows: [onboard, {name: release.v2, mode: standard}], mode: express}`: "onboard! release_v2",
	} {
		tools, bad, missing := mustParse(t, section).Select(all, nil)
		if got := namesOf(tools); got != want || bad != nil || (missing != nil) != (want == "") {
			t.Errorf("%s: %q, want %q (%v, %v)", section, got, want, bad, missing)
		}
		for _, tool := range tools {
			if len("mcp__gavel__"+tool.Name) > 64 || strings.Contains(tool.Name, "__") {
				t.Errorf("unsafe name %q", tool.Name)
			}
		}
	}
	if tools, _, _ := (expose.Config{}).Select(all, nil); tools != nil {
		t.Errorf("no section selects %s", namesOf(tools))
	}
}

func TestCollisions(t *testing.T) {
	t.Parallel()
	all := parseAll(t, define("a.b", ""), define("a_b", ""), define("a-b", ""), define("workflow.start", ""))
	for section, want := range map[string]string{
		`{}`: `gavel.yaml:1:9: /expose: the workflow "workflow.start" would be the tool "workflow_start", which is gavel's own; rename the workflow, or do not expose it` + "\n" +
			`gavel.yaml:1:9: /expose: the workflows a.b and a_b would have the same tool name "a_b"; rename or expose only one`,
		`{workflows: [a_b, a.b, a-b]}`:    `gavel.yaml:1:22: /expose/workflows/0: the workflows a.b and a_b would have the same tool name "a_b"; rename or expose only one`,
		`{tagKey: mcp}`:                   `gavel.yaml:1:18: /expose/tagKey: "tagKey" alone is an incomplete filter, so nothing is exposed; add "tagValue", or remove "tagKey" to select by name alone`,
		`{workflows: [a-b], tagValue: x}`: `gavel.yaml:1:38: /expose/tagValue: "tagValue" alone is an incomplete filter, so nothing is exposed; add "tagKey", or remove "tagValue" to select by name alone`,
		`{prefix: c}`:                     `gavel.yaml:1:9: /expose: no operator's workflow and no chain matches the section, so nothing is exposed`,
		`{workflows: [a.b, ab]}`:          `gavel.yaml:1:27: /expose/workflows/1: no workflow of an operator has the name "ab"; did you mean "a_b"?`,
	} {
		tools, bad, missing := mustParse(t, section).Select(all, nil)
		if got := linesOf(slices.Concat(bad, missing)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", section, got, want)
		}
		for _, tool := range tools {
			if bad != nil && tool.Name != "a-b" {
				t.Errorf("%s: %s is a tool", section, tool.Name)
			}
		}
	}
}

// TestSelectChains: chains are selected by name, and named like workflows.
func TestSelectChains(t *testing.T) {
	t.Parallel()
	all := parseAll(t, define("a.b", ""), define("c", `,"tags":{"mcp":"yes"}`))
	chains := []operation.Procedure{
		{Name: "pay", Description: " Pays. ", InputSchema: json.RawMessage(`{"properties":{"to":{"type":"string"}},"required":["to","sum"],"additionalProperties":false}`)},
		{Name: "a_b", Tags: map[string]string{"mcp": "yes"}},
		{Name: "workflow.start"},
	}
	for section, want := range map[string]string{
		`{chains: [pay]}`:                                    "pay",
		`{chains: [{name: pay, mode: express}]}`:             "pay!",
		`{chains: [pay], workflows: [c], mode: express}`:     "c! pay!",
		`{chains: [pay], prefix: a_}`:                        "a_b pay",
		`{prefix: p}`:                                        "pay",
		`{chains: [pay, a_b], tagKey: mcp, tagValue: "yes"}`: "a_b",
		`{tagKey: mcp, tagValue: "yes"}`:                     "a_b c",
		`{}`:                                                 "a_b c",
		`{chains: [a_b, pay], workflows: [a.b]}`:             "pay\ngavel.yaml:1:42: /expose/workflows/0: the chain a_b and the workflow a.b would have the same tool name \"a_b\"; rename or expose only one",
		`{chains: [workflow.start]}`:                         "\ngavel.yaml:1:19: /expose/chains/0: the chain \"workflow.start\" would be the tool \"workflow_start\", which is gavel's own; rename the chain, or do not expose it",
		`{chains: [pai]}`:                                    "\ngavel.yaml:1:19: /expose/chains/0: no chain of the section chains has the name \"pai\"; did you mean \"pay\"?",
	} {
		tools, bad, missing := mustParse(t, section).Select(all, chains)
		got := namesOf(tools)
		if wrong := linesOf(slices.Concat(bad, missing)); wrong != "" {
			got += "\n" + wrong
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", section, got, want)
		}
	}
	tools, _, _ := mustParse(t, `{chains: [pay]}`).Select(nil, chains)
	if got, want := string(tools[0].InputSchema), `{"type":"object","properties":{"to":{"type":"string"},"sum":{"description":"Required by the chain."}},"additionalProperties":false,"required":["to","sum"]}`; got != want || tools[0].Description != "Pays." {
		t.Errorf("%q\n got %s\nwant %s", tools[0].Description, got, want)
	}
}

// chainList holds chains that are visible to principals with a matching scope; they can be replaced.
type chainList struct {
	all atomic.Pointer[[]operation.Procedure]
}

func (c *chainList) ListProcedures(_ context.Context, p engine.Principal) ([]operation.Procedure, error) {
	return slices.DeleteFunc(slices.Clone(*c.all.Load()), func(v operation.Procedure) bool { return !p.InScope("chain." + v.Name) }), nil
}

// TestListProcedures: each principal sees the chains that it may run, and is notified of changes. gavel's
// internal workflows are not tools.
func TestListProcedures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.New(t, judge.Config{})
		defineAs(t, e, engine.Principal{ID: "gavel:schedules", Role: engine.RoleOperator}, define("gavel.schedule", ""))
		chains := &chainList{}
		chains.all.Store(&[]operation.Procedure{{Name: "pay", Hash: "1"}})
		tools := expose.New(e, expose.Config{}, slog.New(slog.DiscardHandler))
		defer tools.Close()
		tools.UseChains(chains)
		list := func(want ...string) {
			t.Helper()
			for i, p := range []engine.Principal{operator, agent, limited, reviewer} {
				if got := namesOf(tools.List(t.Context(), p)); got != want[i] {
					t.Errorf("%v sees %q, want %q", p, got, want[i])
				}
			}
		}
		if err := tools.Use(t.Context(), mustParse(t, "{}")); err != nil {
			t.Fatal(err)
		}
		list("", "", "", "")
		if err := tools.Use(t.Context(), mustParse(t, "{chains: [pay]}")); err != nil {
			t.Fatal(err)
		}
		list("pay", "pay", "", "")
		changed, not := tools.Changed(agent), tools.Changed(limited)
		chains.all.Store(&[]operation.Procedure{{Name: "pay", Hash: "2", Description: "Pays."}})
		<-time.After(2 * time.Second) // the fake clock of synctest
		select {
		case <-changed:
		default:
			t.Error("a changed chain is not announced")
		}
		select {
		case <-not:
			t.Error("a change is announced to somebody who does not see it")
		default:
		}
	})
}

func TestDescriptionAndSchema(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ more, description, schema string }{
		"nothing said": {"", "States of the workflow w: a (first), b (final, success).", `{"type":"object","properties":{}}`},
		"words": {
			`,"description":" Ships it. ","comment":"Twice."`, "Ships it.\n\nTwice.\n\nStates of the workflow w: a (first), b (final, success).", `{"type":"object","properties":{}}`,
		},
		"the same words twice": {`,"description":"Ships it.","comment":"Ships it."`, "Ships it.\n\nStates of the workflow w: a (first), b (final, success).", `{"type":"object","properties":{}}`},
		"a schema": {
			`,"inputSchema":{"$defs":{"s":{"type":"string"}},"type":["object","null"],"properties":{"n":{"$ref":"#/$defs/s"},"big":{"const":12345678901234567000}},"required":["n"],"additionalProperties":false}`,
			"", `{"type":"object","properties":{"n":{"$ref":"#/$defs/s"},"big":{"const":12345678901234567000}},"$defs":{"s":{"type":"string"}},"additionalProperties":false,"required":["n"]}`,
		},
		"one of several": {
			`,"inputSchema":{"$defs":{"s":{"type":"string"}},"properties":{"n":{"$ref":"#/$defs/s"}},"anyOf":[{"required":["n"]},{"required":["m"]}]}`,
			"", `{"type":"object","properties":{"input":{"type":"object","properties":{"n":{"$ref":"#/$defs/s"}},"anyOf":[{"required":["n"]},{"required":["m"]}]}},"$defs":{"s":{"type":"string"}},"required":["input"],"additionalProperties":false}`,
		},
		"no object": {`,"inputSchema":{"type":"array"}`, "", `{"type":"object","properties":{"input":{"type":"array"}},"required":["input"],"additionalProperties":false}`},
		"that of the first state": {
			`,"stateValidators":{"a":{"schema":{"properties":{"n":{}}},"requiredFields":["n","m","customer.name"]}}`,
			"States of the workflow w: a (first), b (final, success).\n\nA start requires customer.name.",
			`{"type":"object","properties":{"n":{},"m":{"description":"Required by the workflow."}},"required":["n","m"]}`,
		},
		"both": {
			`,"inputSchema":{"properties":{"a.b":{}},"required":["a.b"]},"stateValidators":{"a":{"schema":{"required":["q"]}}}`,
			"", `{"type":"object","properties":{"a.b":{},"q":{"description":"Required by the workflow."}},"required":["a.b","q"]}`,
		},
	} {
		tools, _, _ := mustParse(t, "{}").Select(parseAll(t, define("w", c.more)), nil)
		if got := string(tools[0].InputSchema); got != c.schema {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.schema)
		}
		if got := tools[0].Description; c.description != "" && got != c.description {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.description)
		}
	}
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf(`"s%d":{"final":true}`, i)
	}
	tools, _, _ := mustParse(t, "{}").Select(parseAll(t, `{"name":"w","initialState":"s0","description":"`+strings.Repeat("é", 2000)+`","states":{`+strings.Join(many, ",")+`}}`), nil)
	if d := tools[0].Description; !strings.Contains(d, "é...\n") || !strings.HasSuffix(d, "s29 (final), and 10 more.") || len(d) > 3000 {
		t.Errorf("a long description: %q", d)
	}
}

var (
	operator = engine.Principal{ID: "ops", Role: engine.RoleOperator}
	agent    = engine.Principal{ID: "ann", Role: engine.RoleAgent}
	limited  = engine.Principal{ID: "ann", Role: engine.RoleAgent, Workflows: "other-*"}
	reviewer = engine.Principal{ID: "rev", Role: engine.RoleReviewer}
)

func defineAs(t testing.TB, e *engine.Engine, p engine.Principal, doc string) {
	t.Helper()
	if _, err := e.Define(t.Context(), p, engine.DefineRequest{Source: "definition", Document: []byte(doc)}); err != nil {
		t.Fatal(err)
	}
}

// TestListAndChanges: each principal sees which of the operator's workflows it may start, and is notified
// of changes by any process.
func TestListAndChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.New()
		shared := func(c *engine.Config) { c.Store = db }
		e, served := enginetest.New(t, judge.Config{}, shared), enginetest.New(t, judge.Config{}, shared)
		var log bytes.Buffer
		tools := expose.New(served, mustParse(t, "{prefix: re, workflows: [other-one, other-on]}"), slog.New(slog.NewTextHandler(&log, nil)))
		defer tools.Close()
		changed := map[engine.Principal]<-chan struct{}{}
		everybody := []engine.Principal{operator, agent, limited, reviewer}
		// sees compares the lists of all principals, and who was notified.
		sees := func(step string, want ...string) {
			t.Helper()
			synctest.Wait()
			for i, p := range everybody {
				names, announced := want[i], false
				if changed[p] != nil {
					names, announced = strings.CutSuffix(want[i], "*")
					select {
					case <-changed[p]:
						if !announced {
							t.Errorf("%s: a change is announced to %v", step, p)
						}
					default:
						if announced {
							t.Errorf("%s: no change is announced to %v", step, p)
						}
					}
				}
				if got := namesOf(tools.List(t.Context(), p)); got != names {
					t.Errorf("%s: %v sees %q, want %q", step, p, got, names)
				}
				for _, name := range []string{"release", "other-one", "own"} {
					if _, found := tools.Find(t.Context(), p, name); found != slices.Contains(strings.Fields(names), name) {
						t.Errorf("%s: %v finds %s: %v", step, p, name, found)
					}
				}
			}
			for _, p := range everybody {
				changed[p] = tools.Changed(p)
			}
		}
		look := func() { <-time.After(2 * time.Second) } // the fake clock of synctest
		sees("nothing is defined", "", "", "", "")
		defineAs(t, e, agent, define("relay", ""))
		look()
		sees("an agent's workflow", "", "", "", "")
		defineAs(t, e, operator, define("release", ""))
		look()
		sees("one out of a scope", "release*", "release*", "", "")
		defineAs(t, e, operator, define("other-one", ""))
		look()
		sees("one in every scope", "other-one release*", "other-one release*", "other-one*", "")
		defineAs(t, e, operator, define("unrelated", ""))
		look()
		sees("one that is not selected", "other-one release", "other-one release", "other-one", "")
		defineAs(t, e, operator, define("other-one", `,"description":"Another."`))
		look()
		sees("another description", "other-one release*", "other-one release*", "other-one*", "")
		defineAs(t, e, operator, define("release", `,"agents":{"redefine":true}`))
		look()
		sees("agents may redefine it", "other-one release", "other-one release", "other-one", "")
		defineAs(t, e, agent, define("release", `,"description":"Mine."`))
		look()
		sees("an agent redefined it", "other-one*", "other-one*", "other-one", "")
		defineAs(t, e, operator, define("re.a", ""))
		defineAs(t, e, operator, define("re_a", ""))
		look()
		sees("two of one name", "other-one", "other-one", "other-one", "")
		for _, said := range []string{`has the name \"other-on\"; did you mean \"other-one\"?`, `the workflows re.a and re_a would have the same tool name`} {
			if n := strings.Count(log.String(), said); n != 1 {
				t.Errorf("the log says %s %d times: %s", said, n, log.String())
			}
		}

		if err := tools.Use(t.Context(), mustParse(t, "{}")); err == nil || !strings.Contains(err.Error(), "re.a and re_a") {
			t.Errorf("a Config with a collision: %v", err)
		}
		sees("the Config before", "other-one", "other-one", "other-one", "")
		if err := tools.Use(t.Context(), mustParse(t, "{prefix: unre}")); err != nil {
			t.Error(err)
		}
		sees("another Config", "unrelated*", "unrelated*", "*", "")
		if err := tools.Use(t.Context(), expose.Config{}); err != nil {
			t.Error(err)
		}
		sees("no section", "*", "*", "", "")
	})
}
