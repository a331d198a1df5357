package engine_test

import (
	"testing"

	"github.com/gavel-mcp/gavel/engine"
)

// Only an operator may take a name that looks like an operator's.
func TestNamesThatLookAlike(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(operator, named(simple, "refund-claim"))
	define := func(p engine.Principal, name string) error {
		_, err := b.Define(t.Context(), p, engine.DefineRequest{Document: []byte(named(simple, name))})
		return err
	}
	decide := func(p engine.Principal, name string) error {
		_, err := b.Decide(t.Context(), p, engine.DecideRequest{Definition: []byte(named(simple, name)), State: "a", Action: "go"})
		return err
	}
	for _, name := range []string{"Refund-Claim", "refund_claim", "refundclaim", "refund.claim", "refund-c1aim", "refund-cIaim", "refund-clairn", "refund-claim-", "--refund-claim"} {
		wantCode(t, define(agent, name), engine.CodeForbidden)
		wantCode(t, decide(agent, name), engine.CodeForbidden)
	}
	wantCode(t, decide(agent, "refund-claim"), engine.CodeForbidden) // it would be unclear whose rules decided
	for _, name := range []string{"refund", "refund-claims", "claim-refund"} {
		if err := define(agent, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := define(agent, "Refund-Claims"); err != nil {
		t.Errorf("what looks like one's own: %v", err)
	}
	if err := define(operator, "Refund-Claim"); err != nil {
		t.Errorf("an operator: %v", err)
	}
	narrow := agent
	narrow.Workflows = "Refund*"
	if e := wantCode(t, define(narrow, "Refund_claim"), engine.CodeForbidden); e.Message != `The name "Refund_claim" could be taken for the operator's workflow "Refund-Claim".` && e.Message != `The name "Refund_claim" could be taken for an operator's workflow.` {
		t.Errorf("told: %s", e.Message)
	}
}

// Agents cannot take the names of gavel's own records; operators can.
func TestNamesOfRecords(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, kept := range map[string]bool{"kept.pay": true, "gavel.schedule": true, "kept": false, "keeps.pay": false, "my.kept.pay": false} {
		_, err := b.Define(t.Context(), agent, engine.DefineRequest{Document: []byte(named(simple, name))})
		if kept {
			if e := wantCode(t, err, engine.CodeForbidden); e.Message != "Names that begin with kept. or gavel. are reserved for gavel's own records." {
				t.Errorf("%s: %v", name, e)
			}
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := b.Define(t.Context(), operator, engine.DefineRequest{Document: []byte(named(simple, name))}); err != nil {
			t.Errorf("%s of an operator: %v", name, err)
		}
	}
}
