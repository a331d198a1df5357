package store

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gavel-mcp/gavel/engine/record"
)

// Rule is a version of a definition or a revision of a judge configuration: exactly
// one of them is set. All rules of a store are one chain in the order in which they
// were made (record.RuleSeal).
type Rule struct {
	Definition *Definition // without its document, for which its hash stands
	Config     *JudgeConfig
}

// RuleHead is where the chain of rules ends.
type RuleHead struct {
	// Place and Hash are those of the rule with the highest place; zero when there is none.
	Place int64
	Hash  string
}

// Parts is what the seal of a definition covers; its hash stands for the document.
func (d Definition) Parts() []string {
	return []string{
		"definition", d.Name, strconv.Itoa(d.Version), d.Hash, d.Owner, strconv.FormatBool(d.Operator), strconv.FormatInt(d.CreatedAt.UnixNano(), 10),
	}
}

// Parts is what the seal of a judge configuration covers.
func (c JudgeConfig) Parts() []string {
	settings, err := json.Marshal(c.Settings)
	if err != nil { // numbers are finite, see checkSettings
		settings = []byte(err.Error())
	}
	return []string{
		"judge-config", c.Workflow, strconv.Itoa(c.Revision), c.Hash, c.Principal, c.Role, c.Scope, string(settings), strconv.FormatInt(c.At.UnixNano(), 10),
	}
}

// Parts are what the seal covers: all but the document, for which its hash stands.
func (r Rule) Parts() []string {
	if r.Config != nil {
		return r.Config.Parts()
	}
	return r.Definition.Parts()
}

// Seal is the rule's.
func (r Rule) Seal() record.RuleSeal {
	if r.Config != nil {
		return r.Config.Seal
	}
	return r.Definition.Seal
}

// SetSeal gives the rule a seal.
func (r Rule) SetSeal(seal record.RuleSeal) {
	if r.Config != nil {
		r.Config.Seal = seal
	} else {
		r.Definition.Seal = seal
	}
}

// Workflow is the name that the rule is for.
func (r Rule) Workflow() string {
	if r.Config != nil {
		return r.Config.Workflow
	}
	return r.Definition.Name
}

// Number is the version or revision.
func (r Rule) Number() int {
	if r.Config != nil {
		return r.Config.Revision
	}
	return r.Definition.Version
}

func (r Rule) String() string {
	if r.Config != nil {
		return fmt.Sprintf("revision %d of the judge configuration of %s", r.Config.Revision, r.Config.Workflow)
	}
	return fmt.Sprintf("version %d of the definition %s", r.Definition.Version, r.Definition.Name)
}

// AllRules asks Store.Rules for all rules, also those whose seals were removed: they have no place.
const AllRules = -1

// CheckNext fails unless a rule follows the end of the chain: at the next place, and sealed
// behind the rule there.
func (end RuleHead) CheckNext(rule Rule) error {
	seal := rule.Seal()
	switch {
	case seal.Place > end.Place+1:
		return fmt.Errorf("the rules between place %d and %s (place %d) are missing", end.Place, rule, seal.Place)
	case seal.Place != end.Place+1:
		return fmt.Errorf("%s is at place %d, behind place %d", rule, seal.Place, end.Place)
	case seal.Prev != end.Hash:
		return fmt.Errorf("%s was sealed behind another rule than the one before it", rule)
	}
	return nil
}
