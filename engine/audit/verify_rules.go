package audit

import (
	"context"
	"fmt"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// checkRules follows the chain of definitions and judge configurations: each has a seal
// that was made with the key and covers it, none is missing, and none was put in.
func (v *verification) checkRules(ctx context.Context) error {
	wrong := func(format string, args ...any) {
		v.addProblem(Problem{Kind: BreakRule, Message: fmt.Sprintf(format, args...)})
	}
	var end store.RuleHead
	var unsealed []store.Rule
	_, all, err := v.store.Rules(ctx, store.UnsealedRules)
	if err != nil {
		return v.problemOf(err, Problem{}, "the chain of definitions and judge configurations")
	}
	for _, rule := range all {
		v.report.Rules++
		seal := rule.Seal()
		if seal.Place < 1 {
			unsealed = append(unsealed, rule)
			continue
		}
		if err := end.CheckNext(rule); err != nil {
			wrong("%v", err)
		}
		if err := v.engine.CheckRule(rule); err != nil {
			wrong("%s: %v", rule, err)
		}
		end = store.RuleHead{Place: seal.Place, Hash: seal.Hash}
		v.rules[seal.Place] = seal.Hash
	}
	v.ruleEnd = end.Place
	if end.Place == 0 && !v.req.Sealed {
		v.report.UnsealedRules = int64(len(unsealed))
		return nil
	}
	for _, rule := range unsealed {
		wrong("%s has no seal: gavel did not write it, or its seal was removed", rule)
	}
	return nil
}

func (v *verification) checkRuleHead(number int64, head record.Head) {
	if v.req.Instance != "" {
		return // then it was not read
	}
	v.mu.Lock()
	hash, there := v.rules[head.Seq]
	v.ruleAnchored = max(v.ruleAnchored, head.Seq)
	v.mu.Unlock()
	switch {
	case !there && head.Seq > v.ruleEnd:
		v.addProblem(Problem{Anchor: number, Kind: BreakRule, Message: fmt.Sprintf(
			"anchor %d was signed over place %d of the chain of definitions and judge configurations, which ends at place %d: the newest were removed, or an older store was put in place", number, head.Seq, v.ruleEnd)})
	case hash != head.Hash:
		v.addProblem(Problem{Anchor: number, Kind: BreakRule, Message: fmt.Sprintf(
			"at place %d of the chain of definitions and judge configurations is another one than anchor %d was signed over: it was written or sealed anew", head.Seq, number)})
	}
}
