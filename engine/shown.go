package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// view renders recorded decisions for a caller. It masks the values that either the version at that time
// or the present version of the instance marks as sensitive. So a value that becomes sensitive is also
// hidden in older records.
type view struct {
	e *Engine
	p Principal
	// The instance that was loaded last, in its present state. If the instance no longer exists, only the id is
	// set, and only the event's own version is used.
	id     string
	inst   record.Instance
	now    definition
	idOnly bool // only the id of inst is set; now is complete
	// The context at the past revision that was loaded last.
	revision    int64
	contextThen json.RawMessage
}

func (e *Engine) newView(p Principal) *view { return &view{e: e, p: p} }

// withInstance sets the present state of the instance, for callers that have already loaded it.
func (v *view) withInstance(inst instance) *view {
	v.id, v.inst, v.now, v.idOnly, v.revision, v.contextThen = inst.ID, inst.Instance, inst.definition, false, 0, nil
	return v
}

// prepareEvent prepares the view for an event, without loading the instance if possible. If neither version
// marks anything as sensitive, the view depends on the versions alone. That matters for streams, whose pages
// may have an instance per event.
func (v *view) prepareEvent(ctx context.Context, at store.PlacedEvent) error {
	switch {
	case at.Event.Decision == nil && at.Event.Action == "": // needs no definition
		return nil
	case v.id == at.Event.Instance && !v.idOnly:
		return nil
	}
	was, err := v.e.loadDefinition(ctx, at.Event.Workflow, at.Event.Version)
	if err != nil {
		return err
	}
	now, err := v.e.loadDefinition(ctx, at.Event.Workflow, at.Version)
	if err != nil {
		return err
	}
	if len(was.def.Sensitive)+len(now.def.Sensitive) > 0 {
		return v.loadInstance(ctx, at.Event.Instance)
	}
	v.withInstance(instance{Instance: record.Instance{ID: at.Event.Instance}, definition: now}).idOnly = true
	return nil
}

// loadInstance loads the complete instance, if it is not loaded yet.
func (v *view) loadInstance(ctx context.Context, id string) error {
	if v.id == id && !v.idOnly {
		return nil
	}
	inst, err := v.e.load(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		v.withInstance(instance{Instance: record.Instance{ID: id}})
		return nil
	case err != nil:
		return StoreError("load the instance", err)
	}
	now, err := v.e.loadDefinition(ctx, inst.Workflow, inst.Version)
	if err != nil {
		return err
	}
	v.withInstance(instance{Instance: inst, definition: now})
	return nil
}

func (v *view) renderEntry(ctx context.Context, ev record.Event) (HistoryEntry, error) {
	was, now, err := v.loadVersions(ctx, ev)
	if err != nil {
		return HistoryEntry{}, err
	}
	mask, err := v.buildMasking(ctx, ev, was.def, now.def)
	if err != nil {
		return HistoryEntry{}, err
	}
	data := ev.Decision.Data
	if data == nil {
		data = ev.Patch
	}
	if data, err = mask.maskDocument(data); err != nil {
		return HistoryEntry{}, err
	}
	governed := was.stored
	if canGovern(v.p, governed) {
		governed = now.stored
	}
	shown, opinions := decisionView(ev.Decision), opinionsFor(v.p, governed, ev.Decision.Opinions)
	if seesAll(v.p.Role) {
		shown.Evidence = ev.Decision.Evidence
	}
	if mask.scrub != nil {
		shown, opinions = scrubDecision(shown, mask.scrub), scrubOpinions(opinions, mask.scrub)
	}
	shown.Opinions = opinions
	out := HistoryEntry{
		Seq: ev.Seq, Time: ev.Time, Kind: ev.Kind, Precheck: ev.Kind == record.Prechecked,
		Principal: ev.Principal, Role: ev.Role, Action: mask.scrubAction(ev.Action), From: ev.From, To: ev.To, Data: data,
		Decision: shown, Took: ev.Decision.Took, CostUSD: costOf(opinions), Hash: ev.Hash,
	}
	if ev.Review != nil {
		out.ReviewID = ev.Review.ID
	}
	if ev.Call != nil {
		out.Tool = ev.Call.Gate
	}
	return out, nil
}

// costOf returns the cost of the model's opinion; nil if it is unknown or hidden.
func costOf(opinions []judge.Opinion) *float64 {
	for _, o := range opinions {
		if o.Model != nil {
			return o.Model.CostUSD
		}
	}
	return nil
}

// renderWords returns the action of an event and its text as the caller may see them.
func (v *view) renderWords(ctx context.Context, ev record.Event, said string) (action, reason string, err error) {
	if ev.Action == "" && said == "" {
		return "", "", nil
	}
	mask, err := v.maskingFor(ctx, ev)
	return mask.scrubAction(ev.Action), mask.scrubText(said), err
}

func (v *view) renderCheckpoint(ctx context.Context, ev record.Event) (CheckpointResult, error) {
	ev, _, err := v.e.values.OpenEvent(ctx, ev)
	if err != nil {
		return CheckpointResult{}, StoreError("read the checkpoints", err)
	}
	out := checkpointResult(ev)
	if out.Description == "" && len(out.Metadata) == 0 {
		return out, nil
	}
	mask, err := v.maskingFor(ctx, ev)
	if err != nil {
		return out, err
	}
	out.Description = mask.scrubText(out.Description)
	out.Metadata, err = mask.maskDocument(out.Metadata)
	return out, err
}

func (v *view) renderReview(ctx context.Context, row store.Review) (ReviewSummary, error) {
	out := *v.e.summarizeReview(row)
	if out.Reason == "" {
		return out, nil
	}
	row, _, err := v.e.values.OpenReview(ctx, row)
	if err != nil {
		return out, StoreError("read the review", err)
	}
	about := record.Event{Instance: row.Instance, Workflow: row.Workflow, Version: row.Version, Revision: row.Revision, Patch: row.Data}
	_, out.Reason, err = v.renderWords(ctx, about, out.Reason)
	return out, err
}

// renderReviews returns the reviews that were open for an instance, in their present state. Removed
// reviews are omitted.
func (v *view) renderReviews(ctx context.Context, then record.Instance) ([]ReviewSummary, error) {
	var out []ReviewSummary
	for _, open := range then.Facts.Reviews {
		row, err := v.e.findReview(ctx, open.ID)
		switch {
		case errors.Is(err, store.ErrNotFound): // removed, or lost by a repair: the request has to be made again
			continue
		case err != nil:
			return nil, StoreError("read the review", err)
		}
		summary, err := v.renderReview(ctx, row)
		if err != nil {
			return nil, err
		}
		out = append(out, summary)
	}
	return out, nil
}

func (v *view) loadVersions(ctx context.Context, ev record.Event) (was, now definition, err error) {
	if v.id != ev.Instance {
		if err := v.loadInstance(ctx, ev.Instance); err != nil {
			return was, now, err
		}
	}
	was, err = v.e.loadDefinition(ctx, ev.Workflow, ev.Version)
	if now = v.now; now.def == nil {
		now = was
	}
	return was, now, err
}

func (v *view) maskingFor(ctx context.Context, ev record.Event) (masking, error) {
	was, now, err := v.loadVersions(ctx, ev)
	if err != nil {
		return masking{}, err
	}
	return v.buildMasking(ctx, ev, was.def, now.def)
}

// buildMasking returns the masking for what either version marks as sensitive. It covers the instance's
// present context and the event's data. If the versions differ, it also covers the context at the time of
// the event.
func (v *view) buildMasking(ctx context.Context, ev record.Event, was, now *workflow.Definition) (masking, error) {
	if len(was.Sensitive)+len(now.Sensitive) == 0 {
		return masking{}, nil
	}
	if err := v.loadInstance(ctx, ev.Instance); err != nil { // only the id may be loaded so far
		return masking{}, err
	}
	ev, _, err := v.e.values.OpenEvent(ctx, ev)
	if err != nil {
		return masking{}, StoreError("read the history", err)
	}
	docs := []json.RawMessage{v.inst.Context, ev.Patch}
	if ev.Decision != nil {
		docs = append(docs, ev.Decision.Data)
	}
	if !slices.Equal(was.Sensitive, now.Sensitive) {
		knew, err := v.contextBefore(ctx, ev)
		if err != nil {
			return masking{}, err
		}
		docs = append(docs, knew)
	}
	return newMasking(docs, was, now), nil
}

// contextBefore returns the context in which an event was decided; nil if it was removed.
func (v *view) contextBefore(ctx context.Context, ev record.Event) (json.RawMessage, error) {
	revision := ev.Revision
	if ev.Kind.Revises() {
		revision--
	}
	if revision == 0 || revision == v.revision {
		return v.contextThen, nil
	}
	then, err := v.e.instanceAt(ctx, ev.Instance, revision)
	if err != nil && CodeOf(err) != CodeUnknownRevision {
		return nil, err
	}
	v.revision, v.contextThen = revision, then.Context
	return v.contextThen, nil
}

func scrubDecision(d Decision, scrub func(string) string) Decision {
	d.Reasoning, d.Violations, d.Findings = scrub(d.Reasoning), scrubTexts(d.Violations, scrub), scrubFindings(d.Findings, scrub)
	d.Suggestions, d.Warnings = scrubTexts(d.Suggestions, scrub), scrubTexts(d.Warnings, scrub)
	d.Evidence = masking{scrub: scrub}.maskEvidence(d.Evidence)
	return d
}

func scrubOpinions(opinions []judge.Opinion, scrub func(string) string) []judge.Opinion {
	out := slices.Clone(opinions)
	for i := range out {
		op := &out[i]
		op.Reasoning, op.Findings, op.Suggestions = scrub(op.Reasoning), scrubFindings(op.Findings, scrub), scrubTexts(op.Suggestions, scrub)
		if op.Model == nil {
			continue
		}
		asked := *op.Model
		asked.Detail, asked.Criteria = scrub(asked.Detail), slices.Clone(asked.Criteria)
		for j := range asked.Criteria {
			c := &asked.Criteria[j]
			c.Text, c.Evidence, c.Why, c.Says = scrub(c.Text), scrub(c.Evidence), scrub(c.Why), scrub(c.Says)
		}
		op.Model = &asked
	}
	return out
}

func scrubFindings(findings []validators.Finding, scrub func(string) string) []validators.Finding {
	out := slices.Clone(findings)
	for i := range out {
		f := &out[i]
		f.Path, f.Message, f.Hint = scrub(f.Path), scrub(f.Message), scrub(f.Hint)
	}
	return out
}

func scrubTexts(texts []string, scrub func(string) string) []string {
	out := slices.Clone(texts)
	for i := range out {
		out[i] = scrub(out[i])
	}
	return out
}

// scrubDocument returns a document without sensitive values; nil if the document cannot be parsed.
func scrubDocument(doc json.RawMessage, scrub func(string) string) json.RawMessage {
	if len(doc) == 0 {
		return doc
	}
	out, err := scrubStrings(doc, scrub)
	if err != nil {
		return nil
	}
	return out
}
