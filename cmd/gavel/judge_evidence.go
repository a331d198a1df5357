package main

import (
	"encoding/json"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
)

// pretend puts evidence into a case as if the gate had fetched it, masked. What the
// action does not ask for is refused: the model would never see it.
func pretend(c *judge.Case, evidence json.RawMessage) error {
	doc, err := json.Marshal(map[string]json.RawMessage{"evidence": evidence})
	if err != nil {
		return term.UsageErrorf("", "--evidence: %w", err)
	}
	if c.Mask != nil {
		if doc, err = c.Mask(doc); err != nil {
			return term.UsageErrorf("", "--evidence: %w", err)
		}
	}
	var masked struct {
		Evidence map[string]json.RawMessage `json:"evidence"`
	}
	if err := json.Unmarshal(doc, &masked); err != nil {
		return term.UsageErrorf("", "--evidence holds nothing that may be shown: all of it is sensitive")
	}
	for _, r := range c.Evidence {
		content, given := masked.Evidence[r.Name]
		if !given {
			continue
		}
		c.Fetched = append(c.Fetched, judge.Evidence{Name: r.Name, Source: r.Source, Required: r.Required, Content: content, Size: len(content)})
		delete(masked.Evidence, r.Name)
	}
	for name := range masked.Evidence {
		return term.UsageErrorf("", "--evidence: this action does not ask for the evidence %q", name)
	}
	return nil
}
