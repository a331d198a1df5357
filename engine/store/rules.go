package store

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/gavel-mcp/gavel/engine/record"
)

// Rule is a version of a definition or a revision of a judge configuration; exactly one of them is set. All rules of
// a store form one chain in the order of their creation (record.RuleSeal).
type Rule struct {
	Definition *Definition // may lack its document, which is represented by its hash
	Config     *JudgeConfig
}

// RuleHead is the end of the chain of rules.
type RuleHead struct {
	// Position and Hash are those of the rule with the highest place; zero if there are no rules.
	Position int64
	Hash     string
}

// Parts returns the values that the seal of a definition covers. The document is covered by its hash.
func (d Definition) Parts() []string {
	return []string{
		"definition", d.Name, strconv.Itoa(d.Version), d.Hash, d.Owner, strconv.FormatBool(d.Operator), strconv.FormatInt(d.CreatedAt.UnixNano(), 10),
	}
}

// Parts returns the values that the seal of a judge configuration covers.
func (c JudgeConfig) Parts() []string {
	settings, err := json.Marshal(c.Settings)
	if err != nil { // never: numbers are finite, see checkSettings
		settings = []byte(err.Error())
	}
	return []string{
		"judge-config", c.Workflow, strconv.Itoa(c.Revision), c.Hash, c.Principal, c.Role, c.Scope, string(settings), strconv.FormatInt(c.At.UnixNano(), 10),
	}
}

// Parts returns the values that the rule's seal covers. A document is covered by its hash.
func (r Rule) Parts() []string {
	if r.Config != nil {
		return r.Config.Parts()
	}
	return r.Definition.Parts()
}

// Seal returns the seal of the rule.
func (r Rule) Seal() record.RuleSeal {
	if r.Config != nil {
		return r.Config.Seal
	}
	return r.Definition.Seal
}

// SetSeal sets the seal of the rule.
func (r Rule) SetSeal(seal record.RuleSeal) {
	if r.Config != nil {
		r.Config.Seal = seal
	} else {
		r.Definition.Seal = seal
	}
}

// Workflow returns the name of the workflow to which the rule applies.
func (r Rule) Workflow() string {
	if r.Config != nil {
		return r.Config.Workflow
	}
	return r.Definition.Name
}

// Number returns the version of the definition or the revision of the configuration.
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

// AllRules makes Store.Rules return all rules, including those without a place because their seal was removed.
const AllRules = -1

// CheckNext returns an error unless a rule directly continues the chain: it must have the next place, and its seal
// must contain the hash of the current end.
func (end RuleHead) CheckNext(rule Rule) error {
	seal := rule.Seal()
	switch {
	case seal.Position > end.Position+1:
		return fmt.Errorf("the rules between place %d and %s (place %d) are missing", end.Position, rule, seal.Position)
	case seal.Position != end.Position+1:
		return fmt.Errorf("%s is at place %d, after place %d", rule, seal.Position, end.Position)
	case seal.Prev != end.Hash:
		return fmt.Errorf("%s does not continue the rule before it", rule)
	}
	return nil
}
