package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// MigrateRequest pins running instances to another version of their definition.
type MigrateRequest struct {
	Workflow string
	// FromVersion is the present version of the instances, 0 for any; ToVersion is the new one, 0 for the
	// newest.
	FromVersion, ToVersion int
	// States maps old state names to new ones.
	States map[string]string
	// Instances lists the instances to migrate; empty means all running ones.
	Instances []string
	// DryRun reports what would happen and changes nothing.
	DryRun bool
}

// MigrateOutcome is the result for one instance.
type MigrateOutcome string

// The outcomes.
const (
	Migrated MigrateOutcome = "migrated"
	// MigrateUnchanged: the instance already had the version.
	MigrateUnchanged MigrateOutcome = "unchanged"
	MigrateRefused   MigrateOutcome = "refused"
)

// InstanceMigration is the result of a migration for one instance.
type InstanceMigration struct {
	ID      string         `json:"id"`
	Outcome MigrateOutcome `json:"outcome"`
	// From and To are versions; State is the state before, NewState the state after.
	From     int    `json:"fromVersion"`
	To       int    `json:"toVersion"`
	State    string `json:"state"`
	NewState string `json:"newState,omitempty"`
	// Completes reports that the state is final in the new version.
	Completes bool `json:"completes,omitempty"`
	// Reason is why the instance was refused.
	Reason string `json:"reason,omitempty"`
	// Stale lists the open reviews that became stale.
	Stale []string `json:"staleReviews,omitempty"`
	// Blocked lists later states that the instance can never enter, because it has not visited a state
	// that the new version requires first.
	Blocked []string `json:"blocked,omitempty"`
}

// MigrateResult answers a MigrateRequest.
type MigrateResult struct {
	Workflow string              `json:"workflow"`
	To       int                 `json:"toVersion"`
	DryRun   bool                `json:"dryRun"`
	Entries  []InstanceMigration `json:"instances"` // never nil
	// The number of entries with each outcome.
	Migrated  int `json:"migrated"`
	Unchanged int `json:"unchanged"`
	Refused   int `json:"refused"`
}

// Migrate pins instances to another version of their definition. Only operators may migrate. Each instance
// has its own event and commit, so an interrupted migration is completed by repeating it. An instance that
// already has the version is unchanged.
//
// An instance is refused and stays unchanged in these cases:
//   - It has ended.
//   - The new version does not have its state.
//   - A call of another server's tool is not settled.
//   - The state's validators or mustPassThrough reject an instance with its context and history.
//
// Open reviews of migrated instances become stale.
//
// The error is about the request or the store; instances migrated before it stay migrated, and are in the
// result.
func (e *Engine) Migrate(ctx context.Context, p Principal, req MigrateRequest) (MigrateResult, error) {
	if err := Authorize(p, RightMigrate); err != nil {
		return MigrateResult{}, err
	}
	if req.Workflow == "" {
		return MigrateResult{}, MissingField("workflow", "The name of a defined workflow.")
	}
	to, err := e.loadNamed(ctx, p, req.Workflow, max(req.ToVersion, 0))
	if err != nil {
		return MigrateResult{}, err
	}
	if err := rejectRecorderMade(to, "change its version"); err != nil {
		return MigrateResult{}, err
	}
	if err := e.checkMigrate(ctx, req, to); err != nil {
		return MigrateResult{}, err
	}
	m := migration{e: e, p: p, req: req, to: to, out: MigrateResult{
		Workflow: to.stored.Name, To: to.stored.Version, DryRun: req.DryRun, Entries: []InstanceMigration{},
	}}
	if len(req.Instances) > 0 {
		err = m.migrateNamed(ctx)
	} else {
		err = m.migrateAll(ctx)
	}
	return m.out, err
}

func (lib *library) checkMigrate(ctx context.Context, req MigrateRequest, to definition) error {
	switch {
	case req.FromVersion < 0 || req.ToVersion < 0:
		return &Error{Code: CodeInvalidArgument, Path: "/version", Message: "A version is 1 or more.", Hint: "Leave it out to migrate from any version to the newest."}
	case req.FromVersion == to.stored.Version:
		return &Error{Code: CodeInvalidArgument, Path: "/fromVersion", Message: fmt.Sprintf("Both versions are %d.", req.FromVersion), Hint: "Give two versions, or leave them out."}
	}
	if req.FromVersion > 0 {
		if _, err := lib.loadDefinition(ctx, req.Workflow, req.FromVersion); err != nil {
			return err
		}
	}
	for _, old := range slices.Sorted(maps.Keys(req.States)) {
		if name := req.States[old]; to.def.States[name] == nil {
			return unknownState("/states/"+old, name, to.def)
		}
		if err := lib.checkOldState(ctx, req, old, to.stored.Version); err != nil {
			return err
		}
	}
	return nil
}

// checkOldState rejects a state name that no version to migrate from has, which is probably a typo.
func (lib *library) checkOldState(ctx context.Context, req MigrateRequest, state string, target int) error {
	first, last := req.FromVersion, req.FromVersion
	if first == 0 {
		newest, err := lib.loadDefinition(ctx, req.Workflow, 0)
		if err != nil {
			return err
		}
		first, last = 1, newest.stored.Version
	}
	var nearest definition
	for v := first; v <= last; v++ {
		if v == target {
			continue
		}
		l, err := lib.loadDefinition(ctx, req.Workflow, v)
		if err != nil {
			return err
		}
		if l.def.States[state] != nil {
			return nil
		}
		nearest = l
	}
	if nearest.def == nil {
		return &Error{Code: CodeInvalidArgument, Path: "/states/" + state, Message: "There is no other version to migrate from.", Hint: "Define the new version first."}
	}
	return unknownState("/states/"+state, state, nearest.def)
}

type migration struct {
	e   *Engine
	p   Principal
	req MigrateRequest
	to  definition
	out MigrateResult
}

func (m *migration) migrateNamed(ctx context.Context) error {
	for _, id := range m.req.Instances {
		inst, err := m.e.load(ctx, id)
		one := m.newEntry(record.Instance{ID: id})
		switch {
		case errors.Is(err, store.ErrNotFound):
			one.Reason = "There is no such instance."
		case err != nil:
			return StoreError("load the instance", err)
		case inst.Workflow != m.to.stored.Name:
			one = m.newEntry(inst)
			one.Reason = fmt.Sprintf("It is an instance of %q.", inst.Workflow)
		default:
			if one, err = m.migrateOne(ctx, inst); err != nil {
				return err
			}
		}
		m.addEntry(one)
	}
	return nil
}

// migrateAll migrates the running instances page by page, so that no read of the store is open while
// instances are written.
func (m *migration) migrateAll(ctx context.Context) error {
	q := store.InstanceQuery{Workflow: m.to.stored.Name, Status: record.Running, Limit: maxInstancesPage}
	for {
		var page []record.Instance
		for inst, err := range m.e.cfg.Store.Instances(ctx, q) {
			if err != nil {
				return StoreError("list the instances", err)
			}
			page = append(page, inst)
		}
		for _, inst := range page {
			if m.req.FromVersion > 0 && inst.Version != m.req.FromVersion && inst.Version != m.to.stored.Version {
				continue
			}
			inst, err := m.e.values.OpenInstance(ctx, inst)
			if err != nil {
				return StoreError("load the instance", err)
			}
			one, err := m.migrateOne(ctx, inst)
			if err != nil {
				return err
			}
			m.addEntry(one)
		}
		if len(page) < q.Limit {
			return nil
		}
		q.BeforeID = page[len(page)-1].ID
	}
}

func (m *migration) addEntry(one InstanceMigration) {
	m.out.Entries = append(m.out.Entries, one)
	switch one.Outcome {
	case Migrated:
		m.out.Migrated++
	case MigrateUnchanged:
		m.out.Unchanged++
	case MigrateRefused:
		m.out.Refused++
	}
}

// maxMigrateTries limits how often an instance that keeps moving is tried.
const maxMigrateTries = 5

// migrateOne migrates an instance. If the instance moves in the meantime, the migration is planned again.
func (m *migration) migrateOne(ctx context.Context, inst record.Instance) (InstanceMigration, error) {
	for range maxMigrateTries {
		out, err := m.planOne(ctx, inst)
		if err != nil || out.Outcome != Migrated || m.req.DryRun {
			return out, err
		}
		_, err = m.e.commit(ctx, instance{Instance: inst}, change{event: m.newMigrationEvent(inst, out)})
		if err == nil {
			return out, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return InstanceMigration{}, err
		}
		if inst, err = m.e.load(ctx, inst.ID); err != nil {
			return InstanceMigration{}, StoreError("load the instance", err)
		}
	}
	out := m.newEntry(inst)
	out.Reason = "It keeps moving. Migrate it again when it is idle."
	return out, nil
}

func (m *migration) newMigrationEvent(inst record.Instance, out InstanceMigration) record.Event {
	ev := m.e.newEvent(m.p, record.Migrated)
	ev.Version, ev.DefinitionHash = m.to.stored.Version, m.to.stored.Hash
	ev.To, ev.Status = out.NewState, statusIn(m.to.def, out.NewState)
	ev.Migration = &record.Migration{FromVersion: inst.Version, FromHash: inst.DefinitionHash, States: m.req.States}
	return ev
}

func (m *migration) newEntry(inst record.Instance) InstanceMigration {
	return InstanceMigration{ID: inst.ID, Outcome: MigrateRefused, From: inst.Version, To: m.to.stored.Version, State: inst.State}
}

func (m *migration) planOne(ctx context.Context, inst record.Instance) (InstanceMigration, error) {
	out := m.newEntry(inst)
	switch {
	case inst.Status != record.Running:
		out.Reason = fmt.Sprintf("It has ended: it is %s.", inst.Status)
		return out, nil
	case inst.Version == m.to.stored.Version:
		out.Outcome, out.NewState = MigrateUnchanged, inst.State
		return out, nil
	case m.req.FromVersion > 0 && inst.Version != m.req.FromVersion:
		out.Reason = fmt.Sprintf("It has version %d, not %d.", inst.Version, m.req.FromVersion)
		return out, nil
	case len(inst.Facts.Calls) > 0:
		out.Reason = fmt.Sprintf("The call %s of %s is not settled.", inst.Facts.Calls[0].ID, inst.Facts.Calls[0].Gate)
		return out, nil
	}
	out.NewState = inst.State
	if name, ok := m.req.States[inst.State]; ok {
		out.NewState = name
	}
	facts := record.RenameVisits(inst.Facts, m.req.States)
	why, err := explainUnfit(ctx, m.e.cfg.Compiler, m.p, m.to, out.NewState, facts, inst)
	if err != nil {
		return InstanceMigration{}, err
	}
	if why != "" {
		out.Reason, out.NewState = why, ""
		return out, nil
	}
	out.Outcome = Migrated
	out.Completes = statusIn(m.to.def, out.NewState) == record.Complete
	out.Blocked = m.to.def.BlockedStates(out.NewState, facts)
	for _, open := range inst.Facts.Reviews {
		out.Stale = append(out.Stale, open.ID)
	}
	return out, nil
}

// explainUnfit returns why an instance, with its context and the given facts, cannot be in a state of a version. It
// returns "" if it can.
func explainUnfit(ctx context.Context, compiler workflow.Compiler, p Principal, l definition, state string, facts workflow.Facts, inst record.Instance) (string, error) {
	if l.def.States[state] == nil {
		why := fmt.Sprintf("Version %d has no state %q.", l.stored.Version, state)
		if near := document.Suggest(state, l.def.StateNames); near != "" {
			why = fmt.Sprintf("Version %d has no state %q; did it become %q?", l.stored.Version, state, near)
		}
		return why, nil
	}
	entry := l.def.Candidate(state, facts, "")
	findings := entry.Unmet
	if len(entry.Entry.RequiredFields) > 0 || len(entry.Entry.Schema) > 0 {
		set, problems, err := compiler.Compile(ctx, p.ID, l.owner(), entry.Entry)
		if err != nil {
			return "", judgeError(err)
		}
		if len(problems) > 0 {
			return fmt.Sprintf("The validators of %q do not compile: %s.", state, problems[0].Message), nil
		}
		held := document.ReadTrusted(inst.Context)
		report, err := set.CheckSchema(ctx, p.ID, held)
		if err != nil {
			return "", judgeError(err)
		}
		findings = slices.Concat(findings, set.CheckFields(held), report.Findings)
	}
	return joinFindings(state, findings), nil
}

func joinFindings(state string, findings []validators.Finding) string {
	if len(findings) == 0 {
		return ""
	}
	said := make([]string, len(findings))
	for i, f := range findings {
		said[i] = f.Message
	}
	return fmt.Sprintf("It cannot be in %q: %s", state, strings.Join(said, " "))
}

// checkRestorable rejects restoring a state from before a migration if it is not valid in the version that
// the instance has now.
func (e *Engine) checkRestorable(ctx context.Context, inst instance, restored record.Instance) error {
	if restored.Version == inst.Version {
		return nil
	}
	why, err := explainUnfit(ctx, e.cfg.Compiler, inst.by, inst.definition, restored.State, restored.Facts, restored)
	if err == nil && why == "" {
		why, err = e.findRenamedState(ctx, inst.Instance, restored)
	}
	if err == nil && why == "" && restored.Status != statusIn(inst.def, restored.State) {
		why = fmt.Sprintf("In version %d the state %q is not %s.", inst.Version, restored.State, restored.Status)
	}
	if err != nil || why == "" {
		return err
	}
	return newError(CodeInvalidArgument, "/checkpointId", "The checkpoint is of version %d, the instance has version %d now. %s", restored.Version, inst.Version, why).
		withHint(fmt.Sprintf("Migrate the instance to version %d first.", restored.Version))
}

// findRenamedState reports a state that a restored instance is in or has visited and that a migration
// renamed since; "" if there is none. The old name may mean another state in the version that the instance
// has now.
func (past history) findRenamedState(ctx context.Context, inst, restored record.Instance) (string, error) {
	names := append(slices.Clip(restored.Facts.Visited), restored.State)
	now := map[string]string{}
	for _, name := range names {
		now[name] = name
	}
	since := store.EventQuery{Instance: inst.ID, AfterSeq: restored.Seq, MaxRevision: inst.Revision, Kinds: []record.Kind{record.Migrated}}
	for ev, err := range past.store.Events(ctx, since) {
		if err != nil {
			return "", StoreError("read the history", err)
		}
		for name, until := range now {
			if next := ev.Migration.States[until]; next != "" {
				now[name] = next
			}
		}
	}
	for _, name := range names {
		if now[name] != name {
			return fmt.Sprintf("The state %q has since been renamed to %q.", name, now[name]), nil
		}
	}
	return "", nil
}
