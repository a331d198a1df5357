package portable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ExportRequest selects what to export; zero fields select everything.
type ExportRequest struct {
	Instance string // one instance
	Workflow string // the instances and versions of one workflow
}

// Exported is the result of Export: definitions, and instances that are read as they are
// requested.
type Exported struct {
	Definitions []ExportedDefinition
	// Instances are in the order of the store, newest first. An error ends the sequence.
	Instances iter.Seq2[ExportedInstance, error]
}

// ExportedDefinition is one version of a definition.
type ExportedDefinition struct {
	Name    string
	Version int
	Newest  bool
	// Document is compact JSON in the author's order, which determines the order in which agents see states
	// and actions.
	Document json.RawMessage
}

// ExportedInstance is one instance in the form of a .workflows folder. Documents are canonical JSON
// (RFC 8785). All sensitive values are replaced by keyed digests with a salt of the export: equal
// values can be recognised only within one export, owner, workflow and path.
type ExportedInstance struct {
	ID string
	// State is the instance's present state and context, Lines its history.
	State       json.RawMessage
	Lines       []json.RawMessage
	Checkpoints []ExportedCheckpoint
}

// ExportedCheckpoint is one checkpoint with the state and context at that time.
type ExportedCheckpoint struct {
	ID       string
	Document json.RawMessage
}

// Export returns definitions and instances in the form that Import accepts. db is the store
// of the engine.
func Export(ctx context.Context, e *engine.Engine, db store.Store, p engine.Principal, req ExportRequest) (Exported, error) {
	if err := engine.Authorize(p, engine.RightExport); err != nil {
		return Exported{}, err
	}
	x := exporter{e, db, p, record.NewSalt()}
	name := req.Workflow
	var one *record.Instance
	if req.Instance != "" {
		inst, err := db.Load(ctx, req.Instance)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return Exported{}, engine.UnknownInstance(req.Instance)
		case err != nil:
			return Exported{}, engine.StoreError("load the instance", err)
		}
		if name != "" && name != inst.Workflow {
			return Exported{}, &engine.Error{
				Code: engine.CodeInvalidArgument, Path: "/workflow", Message: fmt.Sprintf("The instance %s belongs to the workflow %q, not to %q.", inst.ID, inst.Workflow, name),
				Hint: "Give only one of the two.",
			}
		}
		name, one = inst.Workflow, &inst
	}
	definitions, err := x.exportDefinitions(ctx, name)
	if err != nil {
		return Exported{}, err
	}
	return Exported{Definitions: definitions, Instances: x.exportInstances(ctx, name, one)}, nil
}

type exporter struct {
	e    *engine.Engine
	db   store.Store
	p    engine.Principal
	salt string // for its digests
}

// exportDefinitions returns all versions of one workflow, or of all workflows for "".
func (e exporter) exportDefinitions(ctx context.Context, name string) ([]ExportedDefinition, error) {
	names := []string{name}
	if name == "" {
		all, err := e.e.List(ctx, e.p)
		if err != nil {
			return nil, err
		}
		names = names[:0]
		for _, d := range all {
			names = append(names, d.Name)
		}
	}
	var out []ExportedDefinition
	for _, name := range names {
		newest, _, err := e.e.LoadDefinition(ctx, e.p, engine.RightExport, name, 0)
		if err != nil {
			return nil, err
		}
		hashes := map[string]bool{}
		for v := 1; v <= newest.Version; v++ {
			s, _, err := e.e.LoadDefinition(ctx, e.p, engine.RightExport, name, v)
			if err != nil {
				return nil, err
			}
			if hashes[s.Hash] && v < newest.Version {
				continue // the same document, defined by another owner
			}
			hashes[s.Hash] = true
			out = append(out, ExportedDefinition{Name: s.Name, Version: v, Newest: v == newest.Version, Document: s.Document})
		}
	}
	return out, nil
}

// exportInstances returns the instances of one workflow, or of all for "", or only the given one.
func (e exporter) exportInstances(ctx context.Context, workflow string, one *record.Instance) iter.Seq2[ExportedInstance, error] {
	return func(yield func(ExportedInstance, error) bool) {
		ctx, read, err := e.e.BeginBulkRead(ctx, e.p)
		if err != nil {
			yield(ExportedInstance{}, err)
			return
		}
		defer read.End()
		if one != nil {
			yield(e.exportInstance(ctx, *one))
			return
		}
		for inst, err := range e.db.Instances(ctx, store.InstanceQuery{Workflow: workflow}) {
			if err != nil {
				yield(ExportedInstance{}, engine.StoreError("list the instances", err))
				return
			}
			out, err := e.exportInstance(ctx, inst)
			read.Pause() // the consumer may write to a slow disk
			if !yield(out, err) || err != nil {
				return
			}
			if err := read.Resume(ctx); err != nil {
				yield(ExportedInstance{}, err)
				return
			}
		}
	}
}

// exportInstance exports an instance. After an error, it tries again if the instance has changed in the meantime: its
// beginning may have been removed.
func (e exporter) exportInstance(ctx context.Context, inst record.Instance) (ExportedInstance, error) {
	for {
		out, err := e.exportOnce(ctx, inst)
		if err == nil {
			return out, nil
		}
		now, lerr := e.db.Load(ctx, inst.ID)
		if lerr != nil || now.Seq == inst.Seq {
			return ExportedInstance{}, err
		}
		inst = now
	}
}

type instanceExport struct {
	exporter
	inst      record.Instance           // the fold so far
	mask      *engine.ExportMask        // masks values that any version of the instance's definition marks as sensitive
	revisions map[int64]record.Instance // by revision, if an event restores it
	out       ExportedInstance
}

func (e exporter) exportOnce(ctx context.Context, inst record.Instance) (ExportedInstance, error) {
	one := &instanceExport{exporter: e, out: ExportedInstance{ID: inst.ID}, revisions: map[int64]record.Instance{}}
	events, err := one.readHistory(ctx, inst)
	if err != nil {
		return ExportedInstance{}, err
	}
	for _, ev := range events {
		if err := engine.YieldBulkRead(ctx); err != nil {
			return ExportedInstance{}, err
		}
		if err := one.addEvent(ctx, ev); err != nil {
			return ExportedInstance{}, err
		}
	}
	return one.out, one.writeState()
}

// readHistory reads the history into memory, up to the seq of inst. A shortened history begins with its
// first remaining event.
func (e *instanceExport) readHistory(ctx context.Context, inst record.Instance) ([]record.Event, error) {
	inst, err := e.e.Values().OpenInstance(ctx, inst)
	if err != nil {
		return nil, engine.StoreError("load the instance", err)
	}
	cfg := engine.ExportMaskConfig{Owner: inst.Owner, Workflow: inst.Workflow, Salt: e.salt, Documents: []json.RawMessage{inst.Context}}
	var events []record.Event
	versions := map[int]bool{inst.Version: true}
	for ev, err := range e.db.Events(ctx, store.EventQuery{Instance: inst.ID}) {
		if err == nil {
			err = engine.YieldBulkRead(ctx)
		}
		if err != nil {
			return nil, engine.StoreError("read the history", err)
		}
		if ev.Seq > inst.Seq {
			break
		}
		if ev.Rollback != nil {
			e.revisions[ev.Rollback.Restores] = record.Instance{}
		}
		// Decisions have values in plain text that the version at that time did not mark as sensitive.
		told, _, err := e.e.Values().OpenEvent(ctx, ev)
		if err != nil {
			return nil, engine.StoreError("read the history", err)
		}
		cfg.Documents = append(cfg.Documents, told.Patch)
		if ev.Decision != nil {
			cfg.Documents = append(cfg.Documents, ev.Decision.Data)
		}
		versions[ev.Version] = true
		events = append(events, ev)
	}
	for _, v := range slices.Sorted(maps.Keys(versions)) {
		_, d, err := e.e.LoadDefinition(ctx, e.p, engine.RightExport, inst.Workflow, v)
		if err != nil {
			return nil, err
		}
		cfg.Definitions = append(cfg.Definitions, d)
	}
	e.mask = e.e.NewExportMask(cfg)
	if len(events) == 0 || events[0].Seq == 1 {
		return events, nil
	}
	cut, err := engine.LoadTruncation(ctx, e.db, inst.ID)
	if err != nil {
		return nil, err
	}
	if e.inst, err = engine.FoldTo(ctx, e.db, inst.ID, cut.Revision, cut.UpTo); err != nil {
		return nil, err
	}
	if e.inst, err = e.e.Values().OpenInstance(ctx, e.inst); err != nil {
		return nil, engine.StoreError("read the history", err)
	}
	if first := events[0].Seq; first != cut.UpTo+1 {
		return nil, engine.InternalError("read the history", fmt.Errorf("instance %s begins at event %d, but was cut after %d", inst.ID, first, cut.UpTo))
	}
	e.keepRevision()
	return events, e.addRemoved(cut)
}

// keepRevision stores the present revision if an event restores it.
func (e *instanceExport) keepRevision() {
	if _, needed := e.revisions[e.inst.Revision]; needed {
		e.revisions[e.inst.Revision] = e.inst
	}
}

// exportedEvent is the member "gavel" of a line: the data that the folder's form has no field for.
type exportedEvent struct {
	Kind           record.Kind        `json:"kind"`
	Seq            int64              `json:"seq"`
	Revision       int64              `json:"revision"`
	Status         record.Status      `json:"status"`
	Principal      string             `json:"principal,omitempty"`
	Role           string             `json:"role,omitempty"`
	DefinitionHash string             `json:"definitionHash"`
	Decision       *engine.Decision   `json:"decision,omitempty"`
	Data           json.RawMessage    `json:"data,omitempty"` // data that was not applied
	Reason         string             `json:"reason,omitempty"`
	Review         *record.Review     `json:"review,omitempty"`
	Call           *record.Call       `json:"call,omitempty"`
	Grant          *workflow.Grant    `json:"grant,omitempty"`
	Rollback       *record.Rollback   `json:"rollback,omitempty"`
	Migration      *record.Migration  `json:"migration,omitempty"`
	Truncation     *record.Truncation `json:"truncation,omitempty"`
	Import         *record.Import     `json:"import,omitempty"`
	PrevHash       string             `json:"prevHash"`
	Hash           string             `json:"hash"`
}

// addEvent exports one event as a line or a checkpoint.
func (e *instanceExport) addEvent(ctx context.Context, ev record.Event) error {
	before := e.inst
	next, err := record.Fold(e.inst, ev, func(r int64) (record.Instance, error) {
		if then, ok := e.revisions[r]; ok && then.Seq > 0 {
			return then, nil
		}
		return engine.FoldTo(ctx, e.db, ev.Instance, r, 0)
	})
	if err != nil {
		return engine.InternalError("fold the history", err)
	}
	if next, err = e.e.Values().OpenInstance(ctx, next); err == nil {
		ev, _, err = e.e.Values().OpenEvent(ctx, ev)
	}
	if err != nil {
		return engine.StoreError("read the history", err)
	}
	e.inst = next
	e.keepRevision()
	if ev.Kind == record.Checkpointed {
		return e.addCheckpoint(ev)
	}
	patch := ev.Patch
	if ev.Kind.Revises() && ev.Kind != record.Reconciled && len(patch) == 0 { // a rollback only names a revision
		patch = encodeObject(diffContexts(before.Context, next.Context))
	}
	return e.addLine(ev, patch)
}

func (e *instanceExport) addLine(ev record.Event, patch json.RawMessage) error {
	fields := map[string]any{"timestamp": ev.Time.UTC(), "to": ev.To}
	if ev.From != "" {
		fields["from"] = ev.From
	}
	action := e.mask.Action(ev.Action)
	if action == "" && (ev.Import == nil || ev.Import.Line == 0) {
		action = string(ev.Kind)
	}
	if action != "" {
		fields["action"] = action
	}
	if len(patch) > 0 && string(patch) != "{}" {
		masked, err := e.mask.Document(patch)
		if err != nil {
			return err
		}
		fields["data"] = masked
	}
	var err error
	if fields["gavel"], err = e.describeEvent(ev); err != nil {
		return err
	}
	doc, err := encodeCanonical(fields)
	e.out.Lines = append(e.out.Lines, doc)
	return err
}

func (e *instanceExport) addCheckpoint(ev record.Event) error {
	context, err := e.mask.Document(e.inst.Context)
	if err != nil {
		return err
	}
	fields := map[string]any{
		"checkpointId": ev.Checkpoint.ID, "workflowId": ev.Instance, "state": ev.To, "context": context, "timestamp": ev.Time.UTC(),
	}
	if ev.Checkpoint.Description != "" {
		fields["description"] = e.mask.Text(ev.Checkpoint.Description)
	}
	if len(ev.Checkpoint.Metadata) > 0 {
		if fields["metadata"], err = e.mask.ForeignObject(ev.Checkpoint.Metadata); err != nil {
			return engine.InternalError("read imported metadata", err)
		}
	}
	if fields["gavel"], err = e.describeEvent(ev); err != nil {
		return err
	}
	doc, err := encodeCanonical(fields)
	e.out.Checkpoints = append(e.out.Checkpoints, ExportedCheckpoint{ID: ev.Checkpoint.ID, Document: doc})
	return err
}

// addRemoved adds a line for the events removed from the beginning of the history.
func (e *instanceExport) addRemoved(cut record.Truncation) error {
	masked, err := e.mask.Document(e.inst.Context)
	if err != nil {
		return err
	}
	doc, err := encodeCanonical(map[string]any{
		"timestamp": e.inst.UpdatedAt.UTC(), "action": "truncated", "to": e.inst.State, "data": masked,
		"gavel": map[string]any{
			"kind": record.Started, "seq": e.inst.Seq, "revision": e.inst.Revision, "status": e.inst.Status,
			"definitionHash": e.inst.DefinitionHash, "removed": cut.Count, "hash": e.inst.Head, "prevHash": "",
		},
	})
	e.out.Lines = append(e.out.Lines, doc)
	return err
}

func (e *instanceExport) writeState() error {
	context, err := e.mask.Document(e.inst.Context)
	if err != nil {
		return err
	}
	fields := map[string]any{
		"id": e.inst.ID, "type": e.inst.Workflow, "state": e.inst.State, "context": context, "createdAt": e.inst.CreatedAt.UTC(), "updatedAt": e.inst.UpdatedAt.UTC(),
		"gavel": map[string]any{"definitionHash": e.inst.DefinitionHash, "status": e.inst.Status},
	}
	e.out.State, err = encodeCanonical(fields)
	return err
}

func encodeCanonical(fields map[string]any) (json.RawMessage, error) {
	raw, err := json.Marshal(fields)
	if err == nil {
		raw, err = document.Canonical(raw)
	}
	if err != nil {
		return nil, engine.InternalError("encode the export", err)
	}
	return raw, nil
}

// describeEvent returns the data that the folder's form has no field for.
func (e *instanceExport) describeEvent(ev record.Event) (exportedEvent, error) {
	out := exportedEvent{
		Kind: ev.Kind, Seq: ev.Seq, Revision: ev.Revision, Status: ev.Status, Principal: ev.Principal, Role: ev.Role,
		DefinitionHash: ev.DefinitionHash, Reason: e.mask.Text(ev.Reason), Rollback: ev.Rollback, Migration: ev.Migration,
		Truncation: ev.Truncation, PrevHash: ev.PrevHash, Hash: ev.Hash,
	}
	if ev.Decision != nil {
		d := e.mask.Decision(*ev.Decision)
		out.Decision = &d
		if !ev.Decision.Applied || !ev.Kind.Revises() {
			var err error
			if out.Data, err = e.mask.Document(ev.Decision.Data); err != nil {
				return out, err
			}
		}
	}
	if ev.Review != nil {
		r := *ev.Review
		r.Reason, r.Digest = e.mask.Text(r.Reason), e.mask.Digest(r.Digest)
		out.Review = &r
	}
	if ev.Call != nil {
		c := *ev.Call
		c.Arguments, c.Result = e.mask.Digest(c.Arguments), e.mask.Digest(c.Result)
		out.Call = &c
	}
	if ev.Grant != nil {
		g := *ev.Grant
		g.Arguments = e.mask.Digest(g.Arguments)
		out.Grant = &g
	}
	if ev.Import != nil {
		from := *ev.Import
		from.At = time.Time{}
		out.Import = &from
	}
	return out, nil
}
