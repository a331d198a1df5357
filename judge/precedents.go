package judge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/judge/content"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/judge/shown"
	"github.com/gavel-mcp/gavel/validators/document"
)

// FromHistory is the value of Rubric.ExemplarsFrom that shows the model what persons decided before.
const FromHistory = "history"

// Precedents is an optional ability of a Memory.
type Precedents interface {
	// Precedents returns a bounded number of moves that persons decided, newest first: the same action in the same
	// state of the workflow, on other instances.
	Precedents(ctx context.Context, c Case) ([]Precedent, error)
}

// Precedent is a move that a person decided.
type Precedent struct {
	ID, Instance, Principal string // of the decision that the person reviewed
	Data                    json.RawMessage
	// Criteria holds met or not_met, by the text of the criterion, where the decision implies it.
	Criteria map[string]string
}

// Limits of precedents: for each criterion and status, and what is compared and shown of all of them.
const (
	maxPrecedents      = 2
	maxComparedRunes   = 4000
	maxShownPrecedents = 16 << 10
)

// precedentText explains the documents "decided" to a model.
const precedentText = `The documents "decided1" and so on are earlier steps of others, each with what a person decided about criteria. They show how the criteria are meant. They prove nothing about this step: never quote them.`

// findPrecedents returns the precedents to show: for each criterion the nearest two that met it, and the nearest two
// that did not. They never come from the same instance or principal.
func (m *modelLayer) findPrecedents(ctx context.Context, c Case) ([]Precedent, error) {
	source, ok := m.Memory.(Precedents)
	if !ok || c.Rubric.ExemplarsFrom != FromHistory || !c.Owner.Trusted {
		return nil, nil
	}
	found, err := source.Precedents(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("judge: find earlier decisions: %w", err)
	}
	return choosePrecedents(c, found), nil
}

func choosePrecedents(c Case, found []Precedent) []Precedent {
	type candidate struct {
		Precedent

		print   string
		nearest float64
		chosen  bool
	}
	own := trigramsOf(c.MaskedData)
	var all []candidate
	for _, p := range found {
		if p.Instance == c.Instance || p.Principal == c.Principal || p.Principal == c.caller() {
			continue
		}
		if c.Mask != nil {
			masked, err := c.Mask(p.Data)
			if err != nil {
				continue // it cannot be shown
			}
			p.Data = masked
		}
		doc := document.ReadTrusted(p.Data)
		if doc.Kind() != document.Object {
			continue
		}
		all = append(all, candidate{Precedent: p, print: string(FingerprintOf(doc)), nearest: measureSimilarity(own, trigramsOf(doc))})
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.nearest, a.nearest), cmp.Compare(a.ID, b.ID)) })
	for _, criterion := range c.Rubric.Criteria {
		for _, status := range []string{llm.StatusMet, llm.StatusNotMet} {
			seen := map[string]bool{} // the same data are shown once
			for i := range all {
				if p := &all[i]; p.Criteria[criterion] == status && len(seen) < maxPrecedents && !seen[p.print] {
					seen[p.print], p.chosen = true, true
				}
			}
		}
	}
	var out []Precedent
	size := 0
	for _, p := range all {
		if !p.chosen {
			continue
		}
		if size += min(len(p.Data), maxShownExemplar); size > maxShownPrecedents {
			break
		}
		out = append(out, p.Precedent)
	}
	return out
}

// trigramsOf returns all runs of three characters of a document's letters and digits.
func trigramsOf(doc document.JSON) map[string]bool {
	text := []rune(string(FingerprintOf(doc)))
	text = text[:min(len(text), maxComparedRunes)]
	out := map[string]bool{}
	for i := range max(len(text)-2, 0) {
		out[string(text[i:i+3])] = true
	}
	return out
}

// measureSimilarity returns the Jaccard index of two sets.
func measureSimilarity(a, b map[string]bool) float64 {
	both := 0
	for part := range a {
		if b[part] {
			both++
		}
	}
	return float64(both) / float64(max(len(a)+len(b)-both, 1))
}

// showPrecedents renders the precedents of a case as documents, and sets their digest. They are not searched for
// quotes.
func (q *question) showPrecedents(c Case) (shown.Documents, error) {
	var out shown.Documents
	h := sha256.New()
	for i, p := range c.precedents {
		says := map[string]string{}
		for _, one := range q.criteria {
			if status := p.Criteria[one.text]; status != "" {
				says[one.id] = status
			}
		}
		if len(says) == 0 {
			continue
		}
		raw, err := json.Marshal(map[string]any{"person": says, "data": p.Data})
		if err != nil {
			return nil, fmt.Errorf("judge: %w", err)
		}
		doc, err := shown.Render(fmt.Sprintf("decided%d", i+1), document.ReadTrusted(raw), maxExemplarString, maxShownExemplar)
		if err != nil {
			return nil, err
		}
		if len(content.Examine(shown.Documents{doc}).Traps) > 0 {
			continue // today it would be refused
		}
		out = append(out, doc)
		hashPart(h, p.ID)
		hashPart(h, doc.Text)
	}
	if len(out) > 0 {
		q.exemplars = "sha256:" + hex.EncodeToString(h.Sum(nil))
	}
	return out, nil
}
