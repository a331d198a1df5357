package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// unreadableHash is used for a definition that does not match its own hash.
const unreadableHash = "unreadable"

// references holds what the events of a history refer to outside the history.
type references struct {
	definitions map[int]string // the hash of the document, by version
	configs     map[string]int64
}

// addEvent records the references of an event, and of the instance after it.
func (r references) addEvent(i record.Instance, e record.Event) {
	r.definitions[i.Version] = i.DefinitionHash
	if _, known := r.configs[e.JudgeConfigHash]; !known && e.JudgeConfigHash != "" {
		r.configs[e.JudgeConfigHash] = e.Seq
	}
}

// checkReferences compares the definitions that the instance was pinned to with the hashes in its
// events, and checks that the judge configurations in its events exist.
func (h *historyCheck) checkReferences(ctx context.Context) error {
	h.references.definitions[h.row.Version] = h.row.DefinitionHash
	for version, named := range h.references.definitions {
		hash, err := h.v.definitionHash(ctx, h.row.Workflow, version)
		switch {
		case err != nil:
			return err
		case hash == "":
			h.addProblem(BreakRow, 0, "version %d of the definition %s, which its events name, is missing", version, h.row.Workflow)
		case hash != named:
			h.addProblem(BreakRow, 0, "version %d of the definition %s differs from the one that its events name", version, h.row.Workflow)
		}
	}
	for hash, seq := range h.references.configs {
		known, err := h.v.knowsConfig(ctx, h.row.Workflow, h.row.Owner, hash)
		switch {
		case err != nil:
			return err
		case !known:
			h.addProblem(BreakRow, seq, "the judge configuration of %s differs from the one that the event names", h.row.Workflow)
		}
	}
	return nil
}

// definitionHash returns the hash of a stored definition's document, "" if there is none.
func (v *verification) definitionHash(ctx context.Context, name string, version int) (string, error) {
	key := fmt.Sprintf("%d %s", version, name)
	v.mu.Lock()
	hash, known := v.definitions[key]
	v.mu.Unlock()
	if known {
		return hash, nil
	}
	stored, err := v.store.Definition(ctx, name, version)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil && !isDamage(err):
		return "", engine.StoreError("be verified", err)
	default:
		hash = unreadableHash
		if err != nil || stored.Name != name || stored.Version != version {
			break
		}
		if d, err := workflow.Parse(stored.Name, stored.Document); err == nil && d.Hash == stored.Hash {
			hash = stored.Hash
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.definitions[key] = hash
	return hash, nil
}

// maxConfigs limits the cached judge configurations: each owner can have separate ones.
const maxConfigs = 10_000

func (v *verification) knowsConfig(ctx context.Context, workflow, owner, hash string) (bool, error) {
	key := fmt.Sprintf("%q %q %s", workflow, owner, hash)
	known, cached := v.configs.Get(key)
	if cached {
		return known, nil
	}
	revisions, err := v.store.JudgeConfigs(ctx, workflow)
	if err != nil && !isDamage(err) {
		return false, engine.StoreError("be verified", err)
	}
	for n := len(revisions); n > 0 && !known; n-- {
		known = engine.HashJudgeConfigs(owner, revisions[:n]) == hash
	}
	v.configs.Add(key, known)
	return known, nil
}

// checkDefinitions compares every definition and every judge configuration with its own hash, even
// if no instance is pinned to it yet.
func (v *verification) checkDefinitions(ctx context.Context) error {
	checked := map[string]bool{} // workflows whose judge configurations were checked
	_, all, err := v.store.Rules(ctx, store.AllRules)
	if err != nil && isDamage(err) {
		return nil // checkRules reports it
	}
	if err != nil {
		return engine.StoreError("be verified", err)
	}
	for _, rule := range all {
		if d := rule.Definition; d != nil {
			hash, err := v.definitionHash(ctx, d.Name, d.Version)
			if err != nil {
				return err
			}
			if hash == unreadableHash {
				v.addProblem(Problem{Kind: BreakRow, Message: fmt.Sprintf("version %d of the definition %s does not match its hash", d.Version, d.Name)})
			}
		}
		if name := rule.Workflow(); !checked[name] {
			checked[name] = true
			if err := v.checkConfigs(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *verification) checkConfigs(ctx context.Context, workflow string) error {
	revisions, err := v.store.JudgeConfigs(ctx, workflow)
	if err != nil {
		return v.problemOf(err, Problem{}, "the judge configuration of "+workflow)
	}
	for i, c := range revisions {
		if hash, err := engine.HashJudgeConfig(c); err != nil || hash != c.Hash || c.Revision != i+1 {
			v.addProblem(Problem{Kind: BreakRow, Message: fmt.Sprintf("revision %d of the judge configuration of %s does not match its hash", c.Revision, workflow)})
		}
	}
	return nil
}

// checkRules follows the chain of definitions and judge configurations. Each must have a seal that was made with the
// key and covers it, and none may be missing or inserted.
func (v *verification) checkRules(ctx context.Context) error {
	wrong := func(format string, args ...any) {
		v.addProblem(Problem{Kind: BreakRule, Message: fmt.Sprintf(format, args...)})
	}
	var end store.RuleHead
	_, all, err := v.store.Rules(ctx, store.AllRules)
	if err != nil {
		return v.problemOf(err, Problem{}, "the chain of definitions and judge configurations")
	}
	for _, rule := range all {
		v.report.Rules++
		seal := rule.Seal()
		if seal.Position < 1 {
			wrong("%s has no seal: gavel did not write it, or its seal was removed", rule)
			continue
		}
		if err := end.CheckNext(rule); err != nil {
			wrong("%v", err)
		}
		if err := v.engine.CheckRule(rule); err != nil {
			wrong("%s: %v", rule, err)
		}
		end = store.RuleHead{Position: seal.Position, Hash: seal.Hash}
		v.rules[seal.Position] = seal.Hash
	}
	v.ruleEnd = end.Position
	return nil
}

func (v *verification) checkRuleHead(number int64, head record.Head) {
	if v.req.Instance != "" {
		return // the chain was not read
	}
	v.mu.Lock()
	hash, there := v.rules[head.Seq]
	v.ruleAnchored = max(v.ruleAnchored, head.Seq)
	v.mu.Unlock()
	switch {
	case !there && head.Seq > v.ruleEnd:
		v.addProblem(Problem{Anchor: number, Kind: BreakRule, Message: fmt.Sprintf(
			"anchor %d signs place %d of the chain of definitions and judge configurations, which ends at place %d: the newest were removed, or an older store was restored", number, head.Seq, v.ruleEnd)})
	case hash != head.Hash:
		v.addProblem(Problem{Anchor: number, Kind: BreakRule, Message: fmt.Sprintf(
			"place %d of the chain of definitions and judge configurations differs from what anchor %d signs: it was rewritten or resealed", head.Seq, number)})
	}
}
