package main

import (
	_ "embed"
	"fmt"

	"github.com/gavel-mcp/gavel/judge"
)

var (
	//go:embed demo/tested-change.yaml
	testedChange []byte
	//go:embed demo/tested-change-sources.yaml
	testedChangeSources []byte
)

// evidencePlay is the demo of evidence.
var evidencePlay = play{
	headline: "An agent claims that all tests pass, and gavel runs them before it believes that.",
	acts: []act{
		{"First act: the agent's word against what the gate sees.", claimScenes},
		{"Second act: the tests cannot be run. Without required evidence nothing is approved.", missingScenes},
	},
}

// The agent's claims.
var (
	claim       = map[string]any{"summary": "The discount is in, and all tests pass."}
	firmerClaim = map[string]any{
		"summary":  "I ran the whole suite twice: 2 of 2 green, exit code 0.",
		"evidence": map[string]any{"tests": map[string]any{"exitCode": 0, "output": "PASS"}},
	}
)

// claimScenes are the first act.
var claimScenes = []scene{
	startChange("It starts a change. The workflow and the source of evidence are the operator's."),
	{
		say: "It claims that all tests pass. The gate runs them.", tool: "workflow.advance", mood: broken,
		args: func(m *memory) map[string]any { return m.advance("finish", claim) },
		must: testsFailed,
	},
	{
		say: "It claims it in other words, and brings evidence of its own. The gate runs the tests.", tool: "workflow.advance",
		args: func(m *memory) map[string]any { return m.advance("finish", firmerClaim) },
		must: testsFailed,
	},
	{
		say: "It mends the file, and claims what it claimed at first. The gate runs the tests.", tool: "workflow.advance", mood: mended,
		args: func(m *memory) map[string]any { return m.advance("finish", claim) },
		must: func(_ *memory, a answer) error {
			return allOf(moved(a, "done", true), equal("assurance", a.text("decision", "assurance"), "validators"), fetched(a, ""))
		},
	},
	{
		say: "What was fetched, when, and how long it took is on record.", tool: "workflow.judge.history",
		args: func(m *memory) map[string]any { return map[string]any{"id": m.instance} },
		must: func(_ *memory, a answer) error {
			return allOf(history(a, "start approve", "finish reject", "finish reject", "finish approve"),
				evidenceHistory(a, "", "", ""))
		},
	},
}

// missingScenes are the second act.
var missingScenes = []scene{
	startChange("A second change."),
	{
		say: "The agent's code makes the tests hang. The gate stops them after three seconds.", tool: "workflow.advance", mood: hanging,
		args: func(m *memory) map[string]any { return m.advance("finish", claim) },
		must: func(_ *memory, a answer) error { return notHad(a, judge.FailureTimeout) },
	},
	{
		say: "The program that runs the tests is gone.", tool: "workflow.advance", mood: gone,
		args: func(m *memory) map[string]any { return m.advance("finish", claim) },
		must: func(_ *memory, a answer) error { return notHad(a, judge.FailureUnavailable) },
	},
	{
		say: "It is back, and the code is mended.", tool: "workflow.advance", mood: mended,
		args: func(m *memory) map[string]any { return m.advance("finish", claim) },
		must: func(_ *memory, a answer) error { return allOf(moved(a, "done", true), fetched(a, "")) },
	},
	{
		say: "All of it is on record.", tool: "workflow.judge.history",
		args: func(m *memory) map[string]any { return map[string]any{"id": m.instance} },
		must: func(_ *memory, a answer) error {
			return allOf(history(a, "start approve", "finish reject", "finish reject", "finish approve"),
				evidenceHistory(a, judge.FailureTimeout, judge.FailureUnavailable, ""))
		},
	},
}

func startChange(say string) scene {
	return scene{
		say: say, tool: "workflow.start",
		args: func(*memory) map[string]any { return map[string]any{"type": "tested-change"} },
		must: func(m *memory, a answer) error {
			m.instance = a.text("id")
			return allOf(granted(a), prefix("id", m.instance, "wf-"), equal("state", a.text("state"), "working"))
		},
	}
}

// testsFailed is a refusal that names the test that fails.
func testsFailed(_ *memory, a answer) error {
	return allOf(refused(a, "working", "script"), names(a, "TestTotal", "total is 20, want 18"), fetched(a, ""))
}

// notHad is a refusal because the evidence could not be had.
func notHad(a answer, why judge.EvidenceFailure) error {
	return allOf(refused(a, "working", "evidence"), equal("code", a.text("decision", "code"), judge.CodeEvidenceMissing),
		names(a, string(why)), fetched(a, why))
}

// fetched checks that a decision says what was fetched: the tests, with this failure.
func fetched(a answer, failure judge.EvidenceFailure) error {
	entries, _ := a.at("decision", "evidence").([]any)
	return evidenceOf(entries, failure)
}

func evidenceOf(entries []any, failure judge.EvidenceFailure) error {
	if len(entries) != 1 {
		return fmt.Errorf("%d pieces of evidence are told, and one was fetched", len(entries))
	}
	entry, _ := entries[0].(map[string]any)
	text := func(key string) string { s, _ := entry[key].(string); return s }
	took, told := entry["tookNs"].(float64)
	size, _ := entry["size"].(float64)
	if !told || took < 0 || text("at") == "" || (size > 0) != (failure == "") {
		return fmt.Errorf("when it was fetched, how long that took or its size is not told: %v", entry)
	}
	return allOf(equal("the evidence", text("name"), "tests"), equal("its failure", text("failure"), string(failure)))
}

// evidenceHistory checks what was fetched for each decision of a history but the start.
func evidenceHistory(a answer, want ...judge.EvidenceFailure) error {
	decisions, _ := a.at("decisions").([]any)
	if len(decisions) != len(want)+1 {
		return fmt.Errorf("%d decisions, want %d", len(decisions), len(want)+1)
	}
	for i, failure := range want {
		entry, _ := decisions[i+1].(map[string]any)
		entries, _ := entry["evidence"].([]any)
		if err := evidenceOf(entries, failure); err != nil {
			return fmt.Errorf("decision %d: %w", i+2, err)
		}
	}
	return nil
}
