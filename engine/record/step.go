package record

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

// IsKnown reports whether this program can apply events of this kind.
func (k Kind) IsKnown() bool { return slices.Contains(kinds, k) }

var kinds = []Kind{
	Started, Advanced, Refused, Prechecked, Checkpointed, RolledBack, KindCancelled, Escalated, Reviewed,
	Undone, Redone, Migrated, Imported, Reconciled, Called, Settled, Heard, Released, Truncated,
}

// Kinds returns all kinds of events that this program can apply.
func Kinds() []Kind { return slices.Clone(kinds) }

// RevisingKinds returns the kinds for which Revises is true.
func RevisingKinds() []Kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return !k.Revises() })
}

// Revises reports whether an event of this kind changes state, status or context, and so
// begins a new revision.
func (k Kind) Revises() bool {
	switch k {
	case Started, Advanced, RolledBack, KindCancelled, Undone, Redone, Migrated, Imported, Reconciled:
		return true
	case Refused, Prechecked, Checkpointed, Escalated, Reviewed, Called, Settled, Heard, Released, Truncated:
	}
	return false
}

func (k Kind) isRestore() bool { return k == RolledBack || k == Undone || k == Redone }

// Seal completes e as the event that follows prev, and returns it with the resulting instance. It is pure.
//
// Seal always sets Schema, Seq, Revision, PrevHash and Hash. It fills in an empty Instance, Workflow,
// Version, DefinitionHash, From, To and Status, and a checkpoint's Revision and State; if they are
// given, they must be correct. prev is the zero Instance for a started event (an ID may be set). A
// rolled-back, undone or redone event needs restored: the instance at the revision that it restores.
//
// Errors: ErrIllegalStep, ErrUnknownKind, ErrMalformed, ErrTooLarge.
func Seal(prev Instance, e Event, restored *Instance) (Event, Instance, error) {
	e = completeEvent(prev, e, restored)
	next, err := applyEvent(prev, e, restored)
	e.merged.before, e.merged.after = nil, nil
	if err != nil {
		return Event{}, Instance{}, err
	}
	if n := len(next.Context); n > MaxContext {
		return Event{}, Instance{}, fmt.Errorf("%w: a context of %d bytes; the limit is %d", ErrTooLarge, n, MaxContext)
	}
	body, err := Encode(e)
	if err != nil {
		return Event{}, Instance{}, err
	}
	if n := len(body); n > MaxEvent {
		return Event{}, Instance{}, fmt.Errorf("%w: an event of %d bytes; the limit is %d", ErrTooLarge, n, MaxEvent)
	}
	e.PrevHash = prev.Head
	if e.Hash, err = computeHash(e.Schema, e.PrevHash, body); err != nil {
		return Event{}, Instance{}, err
	}
	e.seal = seal{schema: e.Schema, body: body}
	next.Head = e.Hash
	return e, next, nil
}

// completeEvent sets the fields that follow from prev.
func completeEvent(prev Instance, e Event, restored *Instance) Event {
	e.Schema, e.seal = SchemaVersion, seal{}
	e.Time = canonicalTime(e.Time)
	e.Seq, e.Revision = prev.Seq+1, prev.Revision
	if e.Kind.Revises() {
		e.Revision++
	}
	fillDefault(&e.Instance, prev.ID)
	fillDefault(&e.Workflow, prev.Workflow)
	fillDefault(&e.Version, prev.Version)
	fillDefault(&e.DefinitionHash, prev.DefinitionHash)
	fillDefault(&e.From, prev.State)
	switch {
	case e.Kind == Started || e.Kind == Advanced || e.Kind == Migrated || e.Kind == Imported || e.Kind == Reconciled:
		fillDefault(&e.Status, Running)
	case e.Kind == KindCancelled:
		fillDefault(&e.Status, Cancelled)
	case e.Kind.isRestore() && restored != nil:
		fillDefault(&e.To, restored.State)
		fillDefault(&e.Status, restored.Status)
	}
	if e.Kind != Advanced {
		fillDefault(&e.To, prev.State)
	}
	fillDefault(&e.Status, prev.Status)
	if e.Checkpoint != nil {
		cp := *e.Checkpoint
		fillDefault(&cp.Revision, e.Revision)
		fillDefault(&cp.State, e.To)
		e.Checkpoint = &cp
	}
	return e
}

func fillDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// applyEvent is the only function that applies an event to an instance. Seal and Fold share it, so that
// reading an instance's events gives the same instance as writing them.
func applyEvent(prev Instance, e Event, restored *Instance) (Instance, error) {
	if err := checkOrder(prev, e); err != nil {
		return Instance{}, err
	}
	if err := checkContent(e); err != nil {
		return Instance{}, err
	}
	if err := checkReview(prev.Facts.Reviews, e); err != nil {
		return Instance{}, err
	}
	if err := checkCall(prev.Facts, e); err != nil {
		return Instance{}, err
	}
	next := prev.StoredForm()
	next.Seq, next.Revision, next.Head, next.UpdatedAt = e.Seq, e.Revision, e.Hash, e.Time
	var err error
	switch e.Kind {
	case Started:
		next.ID, next.Workflow, next.Version = e.Instance, e.Workflow, e.Version
		next.DefinitionHash, next.Owner, next.CreatedAt = e.DefinitionHash, e.Principal, e.Time
		next.State, next.Status = e.To, e.Status
		next.Facts = addVisit(workflow.Facts{}, e)
		next.Subject = e.Subject
		next.Context, err = workflow.Merge(nil, e.Patch)
	case Advanced:
		next.State, next.Status = e.To, e.Status
		next.Facts = addPerformer(addVisit(prev.Facts, e), e)
		if e.To != e.From {
			next.Facts.Called = startVisit(next.Facts.Called, e)
		}
		next.Context, err = e.mergePatch(next.Context)
	case RolledBack, Undone, Redone:
		err = restoreRevision(&next, e, restored)
	case Migrated:
		next.Version, next.DefinitionHash = e.Version, e.DefinitionHash
		next.State, next.Status = e.To, e.Status
		next.Facts = addVisit(RenameVisits(prev.Facts, e.Migration.States), e)
	case Imported:
		next, err = applyImport(next, e)
	case Reconciled:
		next.State, next.Status = e.To, e.Status
		next.Context, err = workflow.Merge(nil, e.Patch)
	case KindCancelled:
		next.Status = Cancelled
	case Escalated, Reviewed:
		next.Facts.Reviews = updateReviews(prev.Facts.Reviews, e)
		next.Facts.Stops = updateStops(prev.Facts.Stops, e)
		if e.Grant != nil {
			next.Facts.Grants = append(slices.Clip(prev.Facts.Grants), *e.Grant)
		}
	case Called, Settled:
		next.Facts = updateCalls(prev.Facts, e)
	case Released:
		next.Subject = ""
	case Refused:
		next.Facts.Stops = updateStops(prev.Facts.Stops, e)
	case Prechecked, Checkpointed, Heard, Truncated:
	}
	if e.Kind.Revises() {
		next.Facts.Grants, next.Facts.Stops = nil, workflow.Stops{} // they belong to the previous revision
	}
	if err != nil {
		return Instance{}, fmt.Errorf("%w: event %d: %w", ErrIllegalStep, e.Seq, err)
	}
	return next, nil
}

func checkOrder(prev Instance, e Event) error {
	revision := prev.Revision
	if e.Kind.Revises() {
		revision++
	}
	switch {
	case !e.Kind.IsKnown():
		return fmt.Errorf("%w: %q", ErrUnknownKind, e.Kind)
	case e.Instance == "" || (prev.ID != "" && e.Instance != prev.ID):
		return newIllegalStep("event of instance %q in the history of %q", e.Instance, prev.ID)
	case e.Seq != prev.Seq+1:
		return newIllegalStep("event %d after event %d", e.Seq, prev.Seq)
	case e.Revision != revision:
		return newIllegalStep("event %d (%s) has revision %d, not %d", e.Seq, e.Kind, e.Revision, revision)
	case prev.Seq == 0 && e.Kind != Started && e.Kind != Imported, prev.Seq > 0 && e.Kind == Started:
		return newIllegalStep("event %d is a %s event", e.Seq, e.Kind)
	case e.To == "" || e.Workflow == "" || e.Version < 1:
		return newIllegalStep("event %d (%s) names no state or no workflow version", e.Seq, e.Kind)
	}
	if prev.Seq == 0 {
		if e.From != "" || (e.Status != Running && e.Status != Complete && e.Kind == Started) {
			return newIllegalStep("a start from %q with status %q", e.From, e.Status)
		}
		return nil
	}
	brought := e.Kind == Migrated || e.Kind == Imported || e.Kind == Reconciled
	moves := e.Kind == Advanced || e.Kind.isRestore() || brought
	changes := moves || e.Kind == KindCancelled
	switch {
	case e.Workflow != prev.Workflow, e.Kind != Migrated && (e.Version != prev.Version || e.DefinitionHash != prev.DefinitionHash):
		return newIllegalStep("event %d is for %s version %d, but the instance is at %s version %d", e.Seq, e.Workflow, e.Version, prev.Workflow, prev.Version)
	case e.From != prev.State:
		return newIllegalStep("event %d (%s) starts from %q, but the instance is in %q", e.Seq, e.Kind, e.From, prev.State)
	case !moves && e.To != prev.State:
		return newIllegalStep("event %d (%s) cannot move to %q", e.Seq, e.Kind, e.To)
	case !changes && e.Status != prev.Status:
		return newIllegalStep("event %d (%s) cannot change the status to %q", e.Seq, e.Kind, e.Status)
	case (e.Kind == Advanced || e.Kind == KindCancelled || e.Kind == Escalated && !e.IsStop() || e.Kind == Migrated) && prev.Status != Running:
		return newIllegalStep("event %d (%s) on an instance that is %s", e.Seq, e.Kind, prev.Status)
	case (e.Kind == Advanced || e.Kind == Migrated) && e.Status != Running && e.Status != Complete:
		return newIllegalStep("event %d (%s) leads to status %q", e.Seq, e.Kind, e.Status)
	case e.Kind == KindCancelled && e.Status != Cancelled:
		return newIllegalStep("event %d (%s) leads to status %q", e.Seq, e.Kind, e.Status)
	}
	return nil
}

// checkContent checks that an event has the fields that its kind needs and changes no more than
// its kind may.
func checkContent(e Event) error {
	merges := e.Kind == Started || e.Kind == Advanced
	brought := e.Kind == Imported || e.Kind == Reconciled
	judged := e.Kind == Advanced || e.Kind == Refused || e.Kind == Prechecked || e.Kind == Escalated
	switch {
	case !merges && !brought && (len(e.Patch) > 0 || len(e.Freezes) > 0):
		return newIllegalStep("a %s event with a patch", e.Kind)
	case judged && (e.Decision == nil || e.Action == "" && !e.IsStop() && (e.Kind != Refused || e.Call == nil)):
		return newIllegalStep("a %s event without action or decision", e.Kind)
	case e.IsStop() && e.Decision.Code != workflow.CodeNotFinished:
		return newIllegalStep("a %s event about a stop whose decision has the code %q", e.Kind, e.Decision.Code)
	case merges && e.Decision != nil && !e.Decision.Applied:
		return newIllegalStep("a %s event whose decision was not applied", e.Kind)
	case (e.Kind == Refused || e.Kind == Escalated) && e.Decision.Applied:
		return newIllegalStep("a %s event whose decision was applied", e.Kind)
	case e.Kind == Escalated && e.Decision.Outcome != judge.Escalate:
		return newIllegalStep("an escalated event whose decision is %s", e.Decision.Outcome)
	case (e.Kind == Checkpointed) != (e.Checkpoint != nil):
		return newIllegalStep("a %s event with a missing or unexpected checkpoint", e.Kind)
	case (e.Kind == Heard) != (e.Transcript != nil && len(e.Transcript.Messages) > 0):
		return newIllegalStep("a %s event with missing or unexpected messages", e.Kind)
	case e.Kind.isRestore() != (e.Rollback != nil):
		return newIllegalStep("a %s event with a missing or unexpected rollback", e.Kind)
	case (e.Kind == Migrated) != (e.Migration != nil):
		return newIllegalStep("a %s event with a missing or unexpected migration", e.Kind)
	case brought != (e.Import != nil) && e.Kind != Checkpointed: // a checkpoint may be imported too
		return newIllegalStep("a %s event with a missing or unexpected import", e.Kind)
	case e.Kind != Started && e.Subject != "":
		return newIllegalStep("a %s event with a subject", e.Kind)
	case (e.Kind == Truncated) != (e.Truncation != nil):
		return newIllegalStep("a %s event with a missing or unexpected truncation", e.Kind)
	case e.Truncation != nil && (e.Truncation.UpTo < 1 || e.Truncation.UpTo >= e.Seq || len(e.Truncation.Hash) != 64 || e.Truncation.Count < 1):
		return newIllegalStep("event %d removes %d events up to %d", e.Seq, e.Truncation.Count, e.Truncation.UpTo)
	case e.Checkpoint != nil && (e.Checkpoint.ID == "" || e.Checkpoint.Revision != e.Revision || e.Checkpoint.State != e.To):
		return newIllegalStep("a checkpoint that names another revision or state")
	}
	return nil
}

// applyImport applies a step that was made in another program. The step counts as a visit only if an operator allowed
// that, and adds no performer. The fields that it froze are always frozen: that takes rights away and grants none.
func applyImport(next Instance, e Event) (Instance, error) {
	if next.ID == "" {
		next.ID, next.Workflow, next.Version = e.Instance, e.Workflow, e.Version
		next.DefinitionHash, next.Owner, next.CreatedAt = e.DefinitionHash, e.Principal, e.Time
	}
	next.State, next.Status = e.To, e.Status
	if e.Import.Counts {
		next.Facts = addVisit(next.Facts, e)
	} else {
		next.Facts.Frozen = addFrozen(next.Facts.Frozen, e)
	}
	context, err := workflow.Merge(next.Context, e.Patch)
	next.Context = context
	return next, err
}

func restoreRevision(next *Instance, e Event, restored *Instance) error {
	switch {
	case restored == nil:
		return fmt.Errorf("revision %d is not available", e.Rollback.Restores)
	case restored.ID != e.Instance || restored.Revision != e.Rollback.Restores || restored.Revision >= e.Revision:
		return fmt.Errorf("revision %d of %s does not restore revision %d", restored.Revision, restored.ID, e.Rollback.Restores)
	case e.To != restored.State || e.Status != restored.Status:
		return fmt.Errorf("the event leads to %q, %s; revision %d was in %q, %s", e.To, e.Status, restored.Revision, restored.State, restored.Status)
	}
	from := restored.StoredForm()
	calls, called := next.Facts.Calls, next.Facts.Called // calls are not undone
	next.State, next.Status, next.Context, next.Facts = from.State, from.Status, from.Context, from.Facts
	next.Facts.Reviews = nil // they belong to a past revision
	next.Facts.Calls, next.Facts.Called = calls, mergeCounts(called, from.Facts.Called)
	return nil
}

// addVisit returns the facts with a visit to the state that e leads to. Like addPerformer, it does not modify shared
// memory.
func addVisit(f workflow.Facts, e Event) workflow.Facts {
	f.Visited = appendOnce(f.Visited, e.To)
	f.Frozen = addFrozen(f.Frozen, e)
	return f
}

func addFrozen(pointers []string, e Event) []string {
	for _, pointer := range e.Freezes {
		pointers = appendOnce(pointers, pointer)
	}
	return pointers
}

// RenameVisits returns the facts with visits under the states' new names, because an old name may now belong
// to another state.
func RenameVisits(f workflow.Facts, states map[string]string) workflow.Facts {
	if len(states) == 0 {
		return f
	}
	var visited []string
	for _, name := range f.Visited {
		if now := states[name]; now != "" {
			name = now
		}
		visited = appendOnce(visited, name)
	}
	f.Visited = visited
	return f
}

func addPerformer(f workflow.Facts, e Event) workflow.Facts {
	who := appendOnce(f.Performed[e.Action], e.Principal)
	if e.Review != nil { // the approver took part in the move
		who = appendOnce(who, e.Review.By)
	}
	f.Performed = maps.Clone(f.Performed)
	if f.Performed == nil {
		f.Performed = map[string][]string{}
	}
	f.Performed[e.Action] = who
	return f
}

func appendOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(slices.Clip(list), s)
}
