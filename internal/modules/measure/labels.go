package measure

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/measure/eval"
	"github.com/gavel-mcp/gavel/internal/modules/measure/label"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// vote is what a person said about a question.
type vote struct {
	eval.Case

	by, why string
	at      time.Time
}

// votes are what persons said about each question, by the digest of its content.
type votes struct {
	order []string
	of    map[string][]vote
}

func newVotes() *votes { return &votes{of: map[string][]vote{}} }

// add adds the decision of a person. The last one of each person counts.
func (v *votes) add(h *historyReader, m judgedMove) error {
	why := h.findBias(m)
	if why == "" && len(m.asked.Decision.Evidence) > 0 {
		// The review has the whole evidence, as the reader may see it.
		view, err := operation.Review.Do(h.ctx, h.call, operation.IDRequest{ID: m.asked.Review.ID})
		if err != nil {
			return err
		}
		decision := *m.asked.Decision
		decision.Evidence, m.asked.Decision = view.Escalation.Evidence, &decision
	}
	var one eval.Case
	if why == "" {
		var err error
		if one, why, err = h.buildCase(m); err != nil {
			return err
		}
	}
	if why != "" {
		h.leave(why)
		return nil
	}
	key, said := eval.ContentOf(one), vote{one, m.ended.Review.By, m.ended.Review.Reason, m.ended.Time}
	if v.of[key] == nil {
		v.order = append(v.order, key)
	}
	at := slices.IndexFunc(v.of[key], func(other vote) bool { return other.by == said.by })
	switch {
	case at < 0:
		v.of[key] = append(v.of[key], said)
	case v.of[key][at].at.Before(said.at):
		v.of[key][at] = said
	}
	return nil
}

// count returns a case for each outcome that persons gave to a question, and the labels of each person, which are about
// the first case of a question.
func (v *votes) count() (cases []eval.Case, labels map[string][]label.Labelling) {
	labels = map[string][]label.Labelling{}
	for _, key := range v.order {
		all, byOutcome := v.of[key], map[judge.Outcome]int{}
		slices.SortFunc(all, func(a, b vote) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.ID, b.ID)) })
		for _, said := range all {
			labels[said.by] = append(labels[said.by], label.Labelling{Case: all[0].ID, Content: key, By: said.by, Outcome: said.Expect.Outcome, Criteria: said.Expect.Criteria, Why: said.why})
			at, known := byOutcome[said.Expect.Outcome]
			if !known {
				byOutcome[said.Expect.Outcome] = len(cases)
				said.Group, said.Split, said.Expect.Criteria = all[0].Group, all[0].Split, maps.Clone(said.Expect.Criteria)
				cases = append(cases, said.Case)
			} else {
				maps.Copy(cases[at].Expect.Criteria, said.Expect.Criteria)
			}
		}
		for outcome, at := range byOutcome {
			var by []string
			for _, said := range all {
				if said.Expect.Outcome == outcome {
					by = append(by, said.by)
				}
			}
			if len(all) > 1 {
				cases[at].Label = eval.Label{Source: "human", By: strings.Join(by, ", "), Raters: len(all), Agreement: new(float64(len(by)) / float64(len(all)))}
			}
		}
	}
	return cases, labels
}

// writeLabels writes a file for each person. It does not overwrite any.
func writeLabels(folder string, of map[string][]label.Labelling) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return term.UsageErrorf("", "cannot write the labels: %w", err)
	}
	for by, all := range of {
		var lines bytes.Buffer
		for _, one := range all {
			line, err := document.Marshal(one)
			if err != nil {
				return term.UnknownErrorf("", "write the labels of %s: %w", by, err)
			}
			lines.Write(append(line, '\n'))
		}
		file, err := os.OpenFile(filepath.Join(folder, nameFile(by)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = file.Write(lines.Bytes())
			err = cmp.Or(err, file.Close())
		}
		if err != nil {
			return term.UsageErrorf("choose another folder", "cannot write the labels of %s: %w", by, err)
		}
	}
	return nil
}

// nameFile returns a file name that is safe on every system, and different for each person.
func nameFile(person string) string {
	name := strings.Map(func(r rune) rune {
		if r < 128 && (r == '.' || r == '_' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return '-'
	}, person)
	if name != person || len(name) > 64 {
		name = fmt.Sprintf("%.64s-%x", name, sha256.Sum256([]byte(person)))[:min(len(name), 64)+9]
	}
	return name + ".labels"
}

// LabelService is the key of the LabelReader in operation.Call.Services.
const LabelService = "labels"

// LabelReader reads labels as the caller may see them.
type LabelReader func(context.Context, operation.Call, LabelsRequest) (LabelsResult, error)

// LabelsRequest asks for decisions of persons as golden cases.
type LabelsRequest struct {
	Workflow     string
	Since, Until time.Time
	Cursor       string
	Limit        int
}

// LabelsResult is a page of golden cases.
type LabelsResult struct {
	Cases []json.RawMessage `json:"cases"` // never nil
	Count int               `json:"count"`
	// LeftOut counts the decisions of the page that became no case, by reason.
	LeftOut    []LeftOut `json:"leftOut"`
	NextCursor string    `json:"nextCursor,omitempty"`
}

// LeftOut is a number of decisions that were left out, with the reason.
type LeftOut struct {
	Count int    `json:"count"`
	Why   string `json:"why"`
}

func countLeft(left map[string]int) []LeftOut {
	out := []LeftOut{}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		out = append(out, LeftOut{left[why], why})
	}
	return out
}

// Labels reads the decisions of persons as golden cases.
var Labels = operation.Add(operation.Operation{
	ID: "listLabels", Group: "judge", Title: "Read decisions of persons as golden cases", Right: engine.RightLabel, Service: LabelService,
	Description: "The moves that persons decided in reviews, newest first, as golden cases for gavel eval, with sensitive values masked. Decisions by somebody who was involved, and those made in the agent's own client, are left out and counted. Equal questions on one page are one case; persons who disagree make one for each outcome.",
	Fields:      slices.Concat(operation.Statistics.Fields, []operation.Field{operation.FieldCursor, operation.PageLimit("decisions", maxLabels)}),
	Routes:      []operation.Route{{At: "GET /v1/labels"}},
}, func(ctx context.Context, c operation.Call, req LabelsRequest) (LabelsResult, error) {
	err := engine.Authorize(c.Caller.Principal, engine.RightLabel)
	read, ok := c.Services[LabelService].(LabelReader)
	switch {
	case err != nil:
		return LabelsResult{}, err
	case !ok:
		return LabelsResult{}, engine.InternalError("read the labels", errors.New("no store is connected"))
	}
	return read(ctx, c, req)
})

func (m *measured) readLabels(ctx context.Context, c operation.Call, req LabelsRequest) (out LabelsResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, maxReading)
	defer cancel()
	h, said := newHistoryReader(ctx, m.system.Store, c), newVotes()
	out.NextCursor, err = h.readPage(store.DecisionQuery{Workflow: req.Workflow, Since: req.Since, Until: req.Until}, req.Cursor, req.Limit, func(one judgedMove) error { return said.add(h, one) })
	if err != nil {
		return out, engine.StoreError("read the history", err)
	}
	cases, _ := said.count()
	out.Cases, out.Count, out.LeftOut = []json.RawMessage{}, len(cases), countLeft(h.left)
	for _, one := range cases {
		line, err := document.Marshal(one)
		if err != nil {
			return out, engine.InternalError("write the case", err)
		}
		out.Cases = append(out.Cases, line)
	}
	return out, nil
}

// labelPeriod is how far back a download of the console reads.
const labelPeriod = 90 * 24 * time.Hour

// writeLabelled returns the newest decisions of persons as golden cases: about the workflow of the page, if it has one.
func (m *measured) writeLabelled(ctx context.Context, v module.Visit) (module.File, error) {
	found, err := Labels.Do(ctx, v.Call, LabelsRequest{Workflow: v.Path("name"), Since: time.Now().Add(-labelPeriod), Limit: maxLabels})
	file := module.File{Name: "labels.jsonl", Type: "application/jsonl"}
	for _, one := range found.Cases {
		file.Content = append(append(file.Content, one...), '\n')
	}
	return file, err
}
