package replay

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/values"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/sharedcache"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
)

// Archive is the part of a Store that Questions reads.
type Archive interface {
	engine.Histories
	Definition(ctx context.Context, name string, version int) (store.Definition, error)
	JudgeConfigs(ctx context.Context, workflow string) ([]store.JudgeConfig, error)
	Instances(ctx context.Context, q store.InstanceQuery) iter.Seq2[record.Instance, error]
	Reviews(ctx context.Context, q store.ReviewQuery) iter.Seq2[store.Review, error]
}

// Missing says why a question cannot be put again as it was put; "" when it can.
type Missing string

// What can be missing; Says explains it.
const (
	MissingSensitive Missing = "sensitive_digests"
	MissingData      Missing = "data_not_kept"
	// MissingHistory: Question.Removed says how many events are gone; which of them were
	// decisions is no longer known.
	MissingHistory     Missing = "history_shortened"
	MissingContext     Missing = "context_not_available"
	MissingSameContext Missing = "context_differs"
	MissingDefinition  Missing = "definition_unknown"
	MissingJudgeConfig Missing = "judge_config_unknown"
	MissingPerson      Missing = "decided_by_person"
	// MissingValues: sensitive values were destroyed, or QuestionQuery.Values is nil.
	MissingValues Missing = "values_not_available"
	// MissingGate: it was about a call of another server's tool, of which only a digest is kept.
	MissingGate           Missing = "gated_call"
	MissingEvidence       Missing = "evidence_not_kept"
	MissingEvidenceMasked Missing = "evidence_masked"
)

// QuestionQuery selects recorded decisions.
type QuestionQuery struct {
	// Workflow "" is all.
	Workflow string
	// Since is inclusive, Until exclusive; zero is no bound.
	Since, Until time.Time
	// Digester, when not nil, is the store's: then the context of each question is held
	// against the digest that the decision recorded.
	Digester engine.Digester
	// Values opens what is sealed, nil where there is no key for it.
	Values *values.Keyring
}

// Question is a recorded decision with what it was about, as it was put to the judge.
type Question struct {
	// Event recorded the decision. Of MissingHistory only its instance and workflow are set.
	Event   record.Event
	Missing Missing
	// Removed is how many events are gone, with MissingHistory.
	Removed int64
	// Definition is the version that was in force, and Stored how it is kept.
	Definition *workflow.Definition
	Stored     store.Definition
	// Input is what Definition.Case needs.
	Input workflow.CaseInput
	// Evidence is what was fetched.
	Evidence []HeldEvidence
	// By is the person on whose word the judge was asked again; nil for none.
	By *judge.Review
}

// HeldEvidence is a piece of evidence with what is left of it.
type HeldEvidence struct {
	judge.Evidence
	// Content as it was fetched; nil with a Failure, or when it is Missing.
	Content json.RawMessage
	Missing Missing
}

// Questions yields every recorded decision as the question that was put to the judge:
// instance by instance, the newest first, and each along its history. It writes nothing,
// judges nothing, and holds one instance at a time. What a question lacks, it says.
//
// It checks no rights: it is for callers that hold the store itself. Input and contents hold
// sensitive values.
func Questions(ctx context.Context, from Archive, q QuestionQuery) iter.Seq2[Question, error] {
	return func(yield func(Question, error) bool) {
		a := asker{ctx: ctx, from: from, query: q, definitions: sharedcache.New[definitionKey, definition](definitionBytes, definitionBytes), configs: map[string][]store.JudgeConfig{}}
		for inst, err := range from.Instances(ctx, store.InstanceQuery{Workflow: q.Workflow}) {
			if err != nil {
				yield(Question{}, engine.StoreError("list the instances", err))
				return
			}
			if !q.Since.IsZero() && inst.UpdatedAt.Before(q.Since) || !q.Until.IsZero() && !inst.CreatedAt.Before(q.Until) {
				continue
			}
			if !a.askInstance(inst, yield) {
				return
			}
		}
	}
}

// definitionBytes is how much memory is kept for parsed definitions.
const definitionBytes = 64 << 20

type definitionKey struct {
	name    string
	version int
}

type definition struct {
	stored store.Definition
	def    *workflow.Definition
}

type asker struct {
	ctx         context.Context //nolint:containedctx // it lives as long as one iteration
	from        Archive
	query       QuestionQuery
	definitions *sharedcache.Cache[definitionKey, definition]
	configs     map[string][]store.JudgeConfig
}

// askInstance yields the questions of one instance and reports whether to go on.
func (a *asker) askInstance(inst record.Instance, yield func(Question, error) bool) bool {
	var at record.Instance // before the event
	lost := false          // at is not known any more
	for ev, err := range a.from.Events(a.ctx, store.EventQuery{Instance: inst.ID}) {
		if err != nil {
			yield(Question{}, engine.StoreError("read the history", err))
			return false
		}
		if at.Seq == 0 && ev.Seq > 1 && !lost {
			if at, err = a.loadFloor(ev); err != nil {
				yield(Question{}, err)
				return false
			}
			lost = at.Seq == 0
			gone := Question{
				Event: record.Event{Instance: inst.ID, Workflow: inst.Workflow, Version: inst.Version}, Missing: MissingHistory, Removed: ev.Seq - 1,
			}
			if (lost || !at.UpdatedAt.Before(a.query.Since)) && !yield(gone, nil) {
				return false
			}
		}
		if ev.Decision != nil && !ev.IsStop() && (a.query.Since.IsZero() || !ev.Time.Before(a.query.Since)) && (a.query.Until.IsZero() || ev.Time.Before(a.query.Until)) {
			question, err := a.buildQuestion(at, ev, lost)
			if !yield(question, err) || err != nil {
				return false
			}
		}
		if !lost {
			next, err := record.Fold(at, ev, func(r int64) (record.Instance, error) { return engine.FoldTo(a.ctx, a.from, ev.Instance, r, 0) })
			lost = err != nil
			at = next
		}
	}
	return true
}

// loadFloor is the instance right before the first event that is left, the zero Instance when
// nothing says what it was.
func (a *asker) loadFloor(first record.Event) (record.Instance, error) {
	revision := first.Revision
	if first.Kind.Revises() {
		revision--
	}
	inst, err := engine.FoldTo(a.ctx, a.from, first.Instance, revision, first.Seq-1)
	switch engine.CodeOf(err) {
	case engine.CodeUnknownRevision, engine.CodeInternal:
		return record.Instance{}, nil
	default:
		return inst, err
	}
}

// buildQuestion rebuilds one. The error is of the store.
func (a *asker) buildQuestion(at record.Instance, ev record.Event, lost bool) (Question, error) {
	q := Question{Event: ev}
	if ev.Kind == record.Reviewed || ev.Kind != record.Advanced && ev.Decision.DecidedBy == judge.ByReviewer { // perhaps again
		q.Missing = MissingPerson
		return q, nil
	}
	if ev.Call != nil {
		q.Missing = MissingGate
		return q, nil
	}
	l, known, err := a.loadDefinition(ev)
	if err != nil {
		return q, err
	}
	q.Definition, q.Stored = l.def, l.stored
	switch {
	case !known:
		q.Missing = MissingDefinition
		return q, nil
	case lost:
		q.Missing = MissingContext
		return q, nil
	}
	owner := at.Owner
	if ev.Kind == record.Started {
		owner = ev.Principal
	}
	overlays, known, err := a.loadOverlays(l, owner, ev.JudgeConfigHash)
	if err != nil {
		return q, err
	}
	if !known {
		q.Missing = MissingJudgeConfig
		return q, nil
	}
	open, err := a.openReview(ev)
	if err != nil {
		return q, err
	}
	if at, ev, open, err = a.openValues(at, ev, open); err != nil || ev.Seq == 0 {
		q.Missing = MissingValues
		return q, err
	}
	q.Input = inputOf(at, ev, l)
	q.Input.Overlays = overlays
	if ev.Review != nil && ev.Kind == record.Advanced {
		q.By = &judge.Review{By: ev.Review.By, Reason: ev.Review.Reason}
	}
	q.Evidence = heldEvidence(ev.Decision.Evidence, open.Evidence)
	if q.Input.Data, q.Missing = dataOf(ev, l.def, open.Data); q.Missing == "" && !a.sameContext(q, owner) {
		q.Missing = MissingSameContext
	}
	return q, nil
}

// openValues opens what a question is made of; the zero Event where that cannot be had any more, or
// there is no key.
func (a *asker) openValues(at record.Instance, ev record.Event, open store.Review) (record.Instance, record.Event, store.Review, error) {
	keys := a.query.Values
	at, err := keys.OpenInstance(a.ctx, at)
	gone, lost := false, at.IsDestroyed()
	if err == nil {
		ev, gone, err = keys.OpenEvent(a.ctx, ev)
		lost = lost || gone
	}
	if err == nil {
		open, gone, err = keys.OpenReview(a.ctx, open)
		lost = lost || gone
	}
	if lost || keys == nil && errors.Is(err, values.ErrUnreadable) {
		return record.Instance{}, record.Event{}, store.Review{}, nil
	}
	if err != nil {
		return record.Instance{}, record.Event{}, store.Review{}, engine.StoreError("read the history", err)
	}
	return at, ev, open, nil
}

// loadDefinition is the version that an event names; not known when it is not that any more.
func (a *asker) loadDefinition(ev record.Event) (l definition, known bool, err error) {
	l, cached := a.definitions.Get(definitionKey{ev.Workflow, ev.Version})
	if !cached {
		stored, err := a.from.Definition(a.ctx, ev.Workflow, ev.Version)
		if errors.Is(err, store.ErrNotFound) {
			return definition{}, false, nil
		}
		if err != nil {
			return definition{}, false, engine.StoreError("read the definition", err)
		}
		def, err := workflow.Parse(stored.Name, stored.Document)
		if err != nil {
			return definition{}, false, nil //nolint:nilerr // it was written by another program, or changed
		}
		l = definition{stored: stored, def: def.WithoutLines()}
		a.definitions.Put(definitionKey{ev.Workflow, ev.Version}, "", l.def.Size(), l)
	}
	return l, l.stored.Hash == ev.DefinitionHash && l.def.Hash == ev.DefinitionHash, nil
}

// loadOverlays are the judge-config revisions that a hash names.
func (a *asker) loadOverlays(l definition, owner, hash string) ([]workflow.Overlay, bool, error) {
	s := l.stored
	if hash == "" {
		return nil, true, nil
	}
	revisions, cached := a.configs[s.Name]
	if !cached {
		var err error
		if revisions, err = a.from.JudgeConfigs(a.ctx, s.Name); err != nil {
			return nil, false, engine.StoreError("read the judge configuration", err)
		}
		if len(a.configs) == 256 {
			clear(a.configs)
		}
		a.configs[s.Name] = revisions
	}
	for n := len(revisions); n > 0; n-- {
		if engine.HashJudgeConfigs(owner, revisions[:n]) == hash {
			return engine.OverlaysInForce(s, l.def.Agents, owner, revisions[:n]), true, nil
		}
	}
	delete(a.configs, s.Name) // a revision may have been made since
	return nil, false, nil
}

// openReview is the review that an event opened, while it still waits: then it holds
// what events do not. The zero store.Review otherwise.
func (a *asker) openReview(ev record.Event) (store.Review, error) {
	if ev.Kind != record.Escalated {
		return store.Review{}, nil
	}
	row, err := store.FindReview(a.ctx, a.from, ev.Review.ID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Review{}, nil
	case err != nil:
		return store.Review{}, engine.StoreError("read the review", err)
	case row.Status != record.ReviewOpen || row.Instance != ev.Instance || row.Seq != ev.Seq:
		return store.Review{}, nil
	}
	return row, nil
}

// sameContext holds the context against the digest that was recorded of it.
func (a *asker) sameContext(q Question, owner string) bool {
	was := q.Event.Decision.ContextDigest
	if a.query.Digester == nil || was == "" {
		return true
	}
	doc := q.Input.Context
	if len(doc) == 0 {
		doc = json.RawMessage("{}") // as it stands in a judge.Case
	}
	return a.query.Digester.Matches(was, engine.ContextScope(owner, q.Event.Workflow), doc)
}

// inputOf is what Case was given, but for data and overlays. Pure.
func inputOf(at record.Instance, ev record.Event, l definition) workflow.CaseInput {
	in := workflow.CaseInput{
		Operation: judge.Start, Version: ev.Version, Owner: validators.Owner{ID: l.stored.Owner, Trusted: l.stored.Operator},
		Principal: ev.Principal, Role: ev.Role, JudgeConfigHash: ev.JudgeConfigHash, Now: ev.Time,
		ReviewPath: true, Seed: engine.Seed(ev.Workflow, int64(ev.Version), "start"),
	}
	if ev.Kind != record.Started {
		in.Operation, in.Precheck, in.Action = judge.Advance, ev.Kind == record.Prechecked, ev.Action
		in.Instance, in.State, in.Ended, in.Context, in.Facts = at.ID, at.State, engine.HowEnded(at), at.Context, at.Facts
		in.ReviewPath, in.Seed = reviewPath(ev.Decision), engine.Seed(at.ID, at.Revision, ev.Action)
	}
	return in
}

// reviewPath says whether a person could have been asked, as far as the decision shows:
// a refusal that is no layer's, nor onJudgeUnavailable's, was an escalation to nobody.
// Where nothing can be told it made no difference to the decision, and somebody is assumed.
func reviewPath(d *record.Decision) bool {
	if d.Outcome != judge.Reject || d.Code == judge.CodeReviewLimit {
		return true
	}
	if d.DecidedBy != judge.ByPolicy {
		return slices.ContainsFunc(d.Opinions, func(op judge.Opinion) bool { return op.Outcome == judge.Reject })
	}
	return d.Rubric.OnJudgeUnavailable == judge.UnavailableReject && slices.ContainsFunc(d.Opinions, func(op judge.Opinion) bool {
		return op.Trouble == judge.TroubleNotConfigured || op.Trouble == judge.TroubleUnavailable
	})
}

// dataOf is the action's data as it was judged: in the patch of a move that was made,
// in a review that still waits, or in the decision where nothing was sensitive.
func dataOf(ev record.Event, d *workflow.Definition, open json.RawMessage) (json.RawMessage, Missing) {
	switch {
	case ev.Kind == record.Started || ev.Kind == record.Advanced:
		return ev.Patch, ""
	case len(open) > 0:
		return open, ""
	case len(ev.Decision.Data) == 0:
		return nil, MissingData
	}
	sensitive := false
	_, err := d.Mask(ev.Decision.Data, func(string, json.RawMessage) string { sensitive = true; return "" })
	switch {
	case err != nil:
		return nil, MissingData
	case sensitive:
		return nil, MissingSensitive
	}
	return ev.Decision.Data, ""
}

// heldEvidence is the recorded evidence with its contents, of which an open review keeps
// also the large ones.
func heldEvidence(recorded, open []judge.Evidence) []HeldEvidence {
	var out []HeldEvidence
	for _, e := range recorded {
		h := HeldEvidence{Evidence: e}
		if e.Failure == "" {
			h.Missing = MissingEvidence
			for _, kept := range append([]judge.Evidence{e}, open...) {
				if kept.Name != e.Name || len(kept.Content) == 0 {
					continue
				}
				if _, same := e.With(kept.Content); same {
					h.Content, h.Missing = kept.Content, ""
					break
				}
				h.Missing = MissingEvidenceMasked
			}
		}
		out = append(out, h)
	}
	return out
}
