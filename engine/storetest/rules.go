//nolint:thelper // see storetest.go

package storetest

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

var sealer = record.NewRuleSealer([]byte("storetest"))

// sealedAt seals a rule at a place, following the rule with hash prev.
func sealedAt(place int64, prev string, rule store.Rule) store.Rule {
	rule.SetSeal(sealer.Seal(place, prev, rule.Parts()...))
	return rule
}

func ofDefinition(d store.Definition) store.Rule { return store.Rule{Definition: &d} }
func ofConfig(c store.JudgeConfig) store.Rule    { return store.Rule{Config: &c} }

// addRules adds two definitions and two judge configurations as one chain.
func addRules(t *testing.T, s store.Store) (all []store.Rule) {
	prev := ""
	for i, rule := range []store.Rule{
		ofDefinition(newDefinition("doc", 1)), ofConfig(judgeConfig("doc", 1)), ofDefinition(newDefinition("doc", 2)), ofConfig(judgeConfig("form", 1)),
	} {
		rule = sealedAt(int64(i+1), prev, rule)
		wantNone(t, s.AddRule(t.Context(), rule))
		prev = rule.Seal().Hash
		all = append(all, rule)
	}
	return all
}

// ruleList returns the rules that a store lists above a place.
func ruleList(t *testing.T, s store.Store, after int64) []store.Rule {
	_, all, err := s.Rules(t.Context(), after)
	wantNone(t, err)
	return all
}

func wantRules(t *testing.T, what string, got, want []store.Rule) {
	bare := make([]store.Rule, len(want))
	for i, rule := range want {
		if bare[i] = rule; rule.Definition != nil {
			d := *rule.Definition
			d.Document = nil
			bare[i] = store.Rule{Definition: &d}
		}
	}
	if !reflect.DeepEqual(got, bare) {
		t.Errorf("%s: got %v, want %v", what, got, bare)
	}
}

func wantHead(t *testing.T, s store.Store, place int64, hash string) {
	if head, _, err := s.Rules(t.Context(), place); err != nil || head != (store.RuleHead{Position: place, Hash: hash}) {
		t.Errorf("the chain ends at %+v, %v; want place %d, %s", head, err, place, hash)
	}
}

func testRules(t *testing.T, _ Driver, s store.Store) {
	wantHead(t, s, 0, "")
	all := addRules(t, s)
	end := all[3].Seal()
	wantHead(t, s, 4, end.Hash)
	wantRules(t, "all", ruleList(t, s, 0), all)
	wantRules(t, "above 2", ruleList(t, s, 2), all[2:])
	wantRules(t, "with what has no place", ruleList(t, s, store.AllRules), all)
	sameDefinition(t, s, 2, *all[2].Definition)
	if configs, err := s.JudgeConfigs(t.Context(), "doc"); err != nil || !reflect.DeepEqual(configs, []store.JudgeConfig{*all[1].Config}) {
		t.Errorf("got %+v, %v, want %+v", configs, err, all[1].Config)
	}
	for _, place := range []int64{1, 4, 6, -1} { // taken, beyond the next one, or invalid
		wantError(t, fmt.Sprint("a definition at place ", place), s.AddRule(t.Context(), sealedAt(place, end.Hash, ofDefinition(newDefinition("doc", 3)))), store.ErrConflict)
		wantError(t, fmt.Sprint("a configuration at place ", place), s.AddRule(t.Context(), sealedAt(place, end.Hash, ofConfig(judgeConfig("doc", 2)))), store.ErrConflict)
	}
	wantHead(t, s, 4, end.Hash)
	bare := ofConfig(judgeConfig("doc", 2))
	wantNone(t, s.AddRule(t.Context(), bare))
	wantHead(t, s, 4, end.Hash)
	wantRules(t, "with one without a place", ruleList(t, s, store.AllRules), append([]store.Rule{bare}, all...))
	wantRules(t, "those with a place", ruleList(t, s, 0), all)
}

func rulesRace(t *testing.T, _ Driver, s store.Store) {
	prev := ""
	for place := int64(1); place <= 5; place++ {
		onlyOne(t, 8, store.ErrConflict, func(i int) error {
			rule := ofDefinition(newDefinition(fmt.Sprint("doc", i, place), 1))
			if i%2 == 1 {
				rule = ofConfig(judgeConfig(fmt.Sprint("doc", i, place), 1))
			}
			return s.AddRule(t.Context(), sealedAt(place, prev, rule))
		})
		all := ruleList(t, s, 0)
		if int64(len(all)) != place {
			t.Fatalf("there are %d rules after place %d", len(all), place)
		}
		prev = all[place-1].Seal().Hash
	}
}

func rulesAreSealed(t *testing.T, _ Driver, s store.Store) {
	for _, rule := range []store.Rule{ofDefinition(newDefinition("doc", 1)), ofConfig(judgeConfig("doc", 1))} {
		wantNone(t, s.AddRule(t.Context(), rule))
	}
	wantHead(t, s, 0, "")
	all := ruleList(t, s, store.AllRules)
	prev := ""
	for i := range all {
		all[i] = sealedAt(int64(i+1), prev, all[i])
		prev = all[i].Seal().Hash
	}
	for what, was := range map[string]store.RuleHead{"another end": {Position: 1}, "another hash": {Hash: "ab"}} {
		wantError(t, what, s.SealRules(t.Context(), was, all), store.ErrConflict)
	}
	wantError(t, "other rules", s.SealRules(t.Context(), store.RuleHead{}, all[:1]), store.ErrConflict)
	wantHead(t, s, 0, "")
	wantNone(t, s.SealRules(t.Context(), store.RuleHead{}, all))
	wantHead(t, s, 2, prev)
	wantRules(t, "sealed", ruleList(t, s, 0), all)
}

func rulesReopened(t *testing.T, s store.Store) func(store.Store) {
	all := addRules(t, s)
	return func(s store.Store) {
		wantHead(t, s, 4, all[3].Seal().Hash)
		wantRules(t, "after reopening", ruleList(t, s, 0), all)
	}
}
