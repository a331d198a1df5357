package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ExportRequest selects what is exported; zero fields select all.
type ExportRequest struct {
	Instance string // one instance
	Workflow string // the instances and versions of one workflow
}

// Exported is what Export found: definitions, and instances that are read while they
// are asked for.
type Exported struct {
	Definitions []ExportedDefinition
	// Instances are in the order of the store, newest first. An error ends them.
	Instances iter.Seq2[ExportedInstance, error]
}

// ExportedDefinition is one version of a definition.
type ExportedDefinition struct {
	Name    string
	Version int
	Newest  bool
	// Document is compact JSON in the order of its author, in which agents see states and
	// actions.
	Document json.RawMessage
}

// ExportedInstance is one instance in the form of a .workflows folder. Documents are
// canonical JSON (RFC 8785); sensitive values are keyed digests in all of them, with a salt
// of the export: equal ones can be told within one export, owner, workflow and path only.
type ExportedInstance struct {
	ID string
	// State says where the instance stands and what it knows, Lines how it got there.
	State       json.RawMessage
	Lines       []json.RawMessage
	Checkpoints []ExportedCheckpoint
}

// ExportedCheckpoint is one checkpoint with what was in force then.
type ExportedCheckpoint struct {
	ID       string
	Document json.RawMessage
}

// Export returns definitions and instances in the form in which Import takes them. What
// was imported is exported as it came, so that exporting it again changes nothing.
func (e *Engine) Export(ctx context.Context, p Principal, req ExportRequest) (Exported, error) {
	if err := authorize(p, RightExport); err != nil {
		return Exported{}, err
	}
	name := req.Workflow
	if req.Instance != "" {
		inst, _, err := e.loadInstance(ctx, p, req.Instance)
		if err != nil {
			return Exported{}, err
		}
		if name != "" && name != inst.Workflow {
			return Exported{}, &Error{
				Code: CodeInvalidArgument, Path: "/workflow", Message: fmt.Sprintf("The instance %s is of the workflow %q, not of %q.", inst.ID, inst.Workflow, name),
				Hint: "Give one of the two.",
			}
		}
		name = inst.Workflow
	}
	definitions, err := e.exportDefinitions(ctx, p, name)
	if err != nil {
		return Exported{}, err
	}
	return Exported{Definitions: definitions, Instances: e.exportInstances(ctx, p, req, record.NewSalt())}, nil
}

func (e *Engine) exportDefinitions(ctx context.Context, p Principal, name string) ([]ExportedDefinition, error) {
	all, err := e.rules.definitions(ctx)
	if err != nil {
		return nil, storeError("list the definitions", err)
	}
	var out []ExportedDefinition
	found := false
	for _, newest := range all {
		if name != "" && newest.Name != name {
			continue
		}
		found = true
		hashes := map[string]bool{}
		for v := 1; v <= newest.Version; v++ {
			s, err := e.rules.definition(ctx, newest.Name, v)
			if err != nil {
				return nil, storeError("read the definition", err)
			}
			if hashes[s.Hash] && v < newest.Version {
				continue // another owner's version of the same document
			}
			hashes[s.Hash] = true
			out = append(out, ExportedDefinition{Name: s.Name, Version: v, Newest: v == newest.Version, Document: s.Document})
		}
	}
	if name != "" && !found {
		return nil, e.noWorkflow(ctx, p, name, 0)
	}
	return out, nil
}

func (e *Engine) exportInstances(ctx context.Context, p Principal, req ExportRequest, salt string) iter.Seq2[ExportedInstance, error] {
	return func(yield func(ExportedInstance, error) bool) {
		ctx, read, err := e.beginBulkRead(ctx, p)
		if err != nil {
			yield(ExportedInstance{}, err)
			return
		}
		defer read.end()
		if req.Instance != "" {
			inst, err := e.cfg.Store.Load(ctx, req.Instance)
			if err != nil {
				yield(ExportedInstance{}, storeError("load the instance", err))
				return
			}
			yield(e.exportInstance(ctx, inst, salt))
			return
		}
		for inst, err := range e.cfg.Store.Instances(ctx, store.InstanceQuery{Workflow: req.Workflow}) {
			if err != nil {
				yield(ExportedInstance{}, storeError("list the instances", err))
				return
			}
			out, err := e.exportInstance(ctx, inst, salt)
			read.pause() // whoever asks may write it to a slow disk
			if !yield(out, err) || err != nil {
				return
			}
			if err := read.acquire(ctx); err != nil {
				yield(ExportedInstance{}, err)
				return
			}
		}
	}
}

// exporting is the export of one instance.
type exporting struct {
	e    *Engine
	salt string          // of the digests of this export
	inst record.Instance // the fold so far
	// versions are all that the instance ever had: what one of them calls sensitive is
	// masked everywhere.
	versions map[int]*workflow.Definition
	// brought says that digests of another store may stand where values should.
	brought bool
	// scrub removes sensitive values from text, whatever way they came there; nil when no
	// version has any.
	scrub func(string) string
	kept  map[int64]record.Instance // by revision, where something goes back to it
	extra json.RawMessage           // what the file of an imported instance held
	// asBrought says that nothing happened since the import.
	asBrought bool
	out       ExportedInstance
}

// exportInstance reads an instance again when its beginning was removed meanwhile.
func (e *Engine) exportInstance(ctx context.Context, inst record.Instance, salt string) (ExportedInstance, error) {
	for {
		out, err := e.exportOnce(ctx, inst, salt)
		if err == nil {
			return out, nil
		}
		now, lerr := e.cfg.Store.Load(ctx, inst.ID)
		if lerr != nil || now.Seq == inst.Seq {
			return ExportedInstance{}, err
		}
		inst = now
	}
}

func (e *Engine) exportOnce(ctx context.Context, inst record.Instance, salt string) (ExportedInstance, error) {
	x := &exporting{e: e, salt: salt, out: ExportedInstance{ID: inst.ID}, versions: map[int]*workflow.Definition{}, kept: map[int64]record.Instance{}}
	events, err := x.read(ctx, inst)
	if err != nil {
		return ExportedInstance{}, err
	}
	for _, ev := range events {
		if err := yieldBulkRead(ctx); err != nil {
			return ExportedInstance{}, err
		}
		if err := x.event(ctx, ev); err != nil {
			return ExportedInstance{}, err
		}
	}
	if err := x.state(); err != nil {
		return ExportedInstance{}, err
	}
	return x.out, nil
}

// read holds the history in memory, up to where inst was seen, and begins with what is
// left of it.
func (x *exporting) read(ctx context.Context, inst record.Instance) ([]record.Event, error) {
	var events []record.Event
	versions := map[int]bool{inst.Version: true}
	for ev, err := range x.e.cfg.Store.Events(ctx, store.EventQuery{Instance: inst.ID}) {
		if err == nil {
			err = yieldBulkRead(ctx)
		}
		if err != nil {
			return nil, storeError("read the history", err)
		}
		if ev.Seq > inst.Seq {
			break
		}
		if ev.Import != nil {
			x.brought = true
		}
		if ev.Rollback != nil {
			x.kept[ev.Rollback.Restores] = record.Instance{}
		}
		versions[ev.Version] = true
		events = append(events, ev)
	}
	for v := range versions {
		l, err := x.e.loadDefinition(ctx, inst.Workflow, v)
		if err != nil {
			return nil, err
		}
		x.versions[v] = l.def
	}
	if len(events) == 0 || events[0].Seq == 1 {
		x.scrub = scrubberOf(x.versions, append(documentsOf(events), x.inst.Context))
		return events, nil
	}
	cut, err := x.e.loadTruncation(ctx, inst.ID)
	if err != nil {
		return nil, err
	}
	if x.inst, err = x.e.foldTo(ctx, inst.ID, cut.Revision, cut.UpTo); err != nil {
		return nil, err
	}
	if first := events[0].Seq; first != cut.UpTo+1 {
		return nil, internalError("read the history", fmt.Errorf("instance %s begins at event %d, and was cut behind %d", inst.ID, first, cut.UpTo))
	}
	x.scrub = scrubberOf(x.versions, append(documentsOf(events), x.inst.Context))
	x.keep()
	return events, x.floor(cut)
}

func (x *exporting) keep() {
	if _, needed := x.kept[x.inst.Revision]; needed {
		x.kept[x.inst.Revision] = x.inst
	}
}

// exportedEvent is the member "gavel" of a line: what the folder's form has no place for.
type exportedEvent struct {
	Kind           record.Kind        `json:"kind"`
	Seq            int64              `json:"seq"`
	Revision       int64              `json:"revision"`
	Status         record.Status      `json:"status"`
	Principal      string             `json:"principal,omitempty"`
	Role           string             `json:"role,omitempty"`
	DefinitionHash string             `json:"definitionHash"`
	Decision       *Decision          `json:"decision,omitempty"`
	Data           json.RawMessage    `json:"data,omitempty"` // of what was not applied
	Reason         string             `json:"reason,omitempty"`
	Review         *record.Review     `json:"review,omitempty"`
	Rollback       *record.Rollback   `json:"rollback,omitempty"`
	Migration      *record.Migration  `json:"migration,omitempty"`
	Truncation     *record.Truncation `json:"truncation,omitempty"`
	Import         *exportedImport    `json:"import,omitempty"`
	// Origin is what the line said that the event was imported from: claims, not records.
	Origin   json.RawMessage `json:"origin,omitempty"`
	PrevHash string          `json:"prevHash"`
	Hash     string          `json:"hash"`
}

type exportedImport struct {
	Source     string `json:"source"`
	Line       int    `json:"line"`
	SourceHash string `json:"sourceHash,omitempty"`
	By         string `json:"by,omitempty"`
	Counts     bool   `json:"counts,omitempty"`
}

// event exports one event: as a line, or as a checkpoint.
func (x *exporting) event(ctx context.Context, ev record.Event) error {
	before := x.inst
	next, err := record.Fold(x.inst, ev, func(r int64) (record.Instance, error) {
		if then, ok := x.kept[r]; ok && then.Seq > 0 {
			return then, nil
		}
		return x.e.instanceAt(ctx, ev.Instance, r)
	})
	if err != nil {
		return internalError("fold the history", err)
	}
	x.inst = next
	x.keep()
	x.asBrought = ev.Import != nil
	if extra := extraPart(ev.Import, "instance"); extra != nil {
		x.extra = extra
	}
	if ev.Kind == record.Checkpointed {
		return x.checkpoint(ev)
	}
	patch := ev.Patch
	if ev.Kind.Revises() && ev.Kind != record.Imported && ev.Kind != record.Started && ev.Kind != record.Advanced && ev.Kind != record.Reconciled {
		if patch, err = diffContexts(before.Context, next.Context); err != nil {
			return internalError("compare contexts", err)
		}
	}
	return x.line(ev, patch)
}

// exportClaim is what a line of an export says of its event.
type exportClaim struct {
	Kind   record.Kind     `json:"kind"`
	Import json.RawMessage `json:"import"`
}

// isImported reports whether the fields of a line or a checkpoint say that its event was
// imported: then what they say of it stays.
func isImported(fields map[string]json.RawMessage) bool {
	var said exportClaim
	if json.Unmarshal(fields["gavel"], &said) != nil {
		return false
	}
	return said.Kind == record.Imported || said.Kind == record.Reconciled || said.Kind == record.Checkpointed && len(said.Import) > 0
}

func (x *exporting) line(ev record.Event, patch json.RawMessage) error {
	fields := map[string]json.RawMessage{
		"timestamp": timeText(ev.Time),
		"from":      quoteJSON(ev.From),
		"to":        quoteJSON(ev.To),
	}
	action := x.action(ev.Action)
	if action == "" && (ev.Import == nil || ev.Import.Line == 0) {
		action = string(ev.Kind)
	}
	if action != "" {
		fields["action"] = quoteJSON(action)
	}
	if ev.From == "" {
		delete(fields, "from")
	}
	if len(patch) > 0 && string(patch) != "{}" {
		masked, err := x.mask(patch)
		if err != nil {
			return err
		}
		fields["data"] = masked
	}
	if err := x.overlay(fields, extraPart(ev.Import, "line")); err != nil {
		return err
	}
	if err := x.about(fields, ev); err != nil {
		return err
	}
	doc, err := document.Canonical(encodeObject(fields))
	if err != nil {
		return internalError("write a line", err)
	}
	x.out.Lines = append(x.out.Lines, doc)
	return nil
}

// about puts into fields what a line says of its event. What was imported from an export
// keeps what stood there, if that says no more than that it was imported; else it stands
// in origin.
func (x *exporting) about(fields map[string]json.RawMessage, ev record.Event) error {
	origin := fields["gavel"]
	if isImported(fields) {
		return nil
	}
	out := exportedEvent{
		Kind: ev.Kind, Seq: ev.Seq, Revision: ev.Revision, Status: ev.Status, Principal: ev.Principal, Role: ev.Role,
		DefinitionHash: ev.DefinitionHash, Reason: x.clean(ev.Reason), Rollback: ev.Rollback, Migration: ev.Migration,
		Truncation: ev.Truncation, PrevHash: ev.PrevHash, Hash: ev.Hash, Origin: origin,
	}
	if ev.Decision != nil {
		d := decisionView(*ev.Decision)
		if x.scrub != nil {
			d = scrubbedDecision(d, x.scrub)
		}
		d.Evidence = withoutContent(ev.Decision.Evidence)
		for i := range d.Evidence {
			d.Evidence[i].Digest, d.Evidence[i].SameDigest = x.salted(d.Evidence[i].Digest), x.salted(d.Evidence[i].SameDigest)
		}
		out.Decision = &d
		if !ev.Decision.Applied || !ev.Kind.Revises() {
			masked, err := x.maskRecorded(ev.Decision.Data)
			if err != nil {
				return err
			}
			out.Data = masked
		}
	}
	if ev.Review != nil {
		r := *ev.Review
		r.Reason, r.Digest = x.clean(r.Reason), x.salted(r.Digest)
		out.Review = &r
	}
	if ev.Import != nil {
		out.Import = &exportedImport{Source: ev.Import.Source, Line: ev.Import.Line, SourceHash: ev.Import.SourceHash, By: ev.Import.By, Counts: ev.Import.Counts}
	}
	var err error
	if fields["gavel"], err = json.Marshal(out); err != nil {
		return internalError("write a line", err)
	}
	return nil
}

// floor is a line for what was removed from the beginning of the history.
func (x *exporting) floor(cut record.Truncation) error {
	masked, err := x.mask(x.inst.Context)
	if err != nil {
		return err
	}
	about, err := json.Marshal(map[string]any{
		"kind": record.Started, "seq": x.inst.Seq, "revision": x.inst.Revision, "status": x.inst.Status,
		"definitionHash": x.inst.DefinitionHash, "removed": cut.Count, "hash": x.inst.Head, "prevHash": "",
	})
	if err != nil {
		return internalError("write a line", err)
	}
	doc, err := document.Canonical(encodeObject(map[string]json.RawMessage{
		"timestamp": timeText(x.inst.UpdatedAt), "action": quoteJSON("truncated"),
		"to": quoteJSON(x.inst.State), "data": masked, "gavel": about,
	}))
	if err != nil {
		return internalError("write a line", err)
	}
	x.out.Lines = append(x.out.Lines, doc)
	return nil
}

func (x *exporting) checkpoint(ev record.Event) error {
	context, err := x.mask(x.inst.Context)
	if err != nil {
		return err
	}
	fields := map[string]json.RawMessage{
		"checkpointId": quoteJSON(ev.Checkpoint.ID), "workflowId": quoteJSON(ev.Instance), "state": quoteJSON(ev.To),
		"context": context, "timestamp": timeText(ev.Time),
	}
	if ev.Checkpoint.Description != "" {
		fields["description"] = quoteJSON(x.clean(ev.Checkpoint.Description))
	}
	if len(ev.Checkpoint.Metadata) > 0 {
		if err := x.overlay(fields, encodeObject(map[string]json.RawMessage{"metadata": ev.Checkpoint.Metadata})); err != nil {
			return err
		}
	}
	if err := x.overlay(fields, extraPart(ev.Import, "checkpoint")); err != nil {
		return err
	}
	if err := x.about(fields, ev); err != nil {
		return err
	}
	doc, err := document.Canonical(encodeObject(fields))
	if err != nil {
		return internalError("write a checkpoint", err)
	}
	x.out.Checkpoints = append(x.out.Checkpoints, ExportedCheckpoint{ID: ev.Checkpoint.ID, Document: doc})
	return nil
}

// state is the file that says where the instance stands.
func (x *exporting) state() error {
	context, err := x.mask(x.inst.Context)
	if err != nil {
		return err
	}
	about := map[string]string{"definitionHash": x.inst.DefinitionHash, "status": string(x.inst.Status)}
	fields := map[string]json.RawMessage{
		"id": quoteJSON(x.inst.ID), "type": quoteJSON(x.inst.Workflow), "state": quoteJSON(x.inst.State), "context": context,
		"createdAt": timeText(x.inst.CreatedAt),
		"updatedAt": timeText(x.inst.UpdatedAt),
	}
	if fields["gavel"], err = json.Marshal(about); err != nil {
		return internalError("write an instance", err)
	}
	updated := fields["updatedAt"]
	if err := x.overlay(fields, x.extra); err != nil {
		return err
	}
	if !x.asBrought { // the file's own time is of what it was then
		fields["updatedAt"] = updated
	}
	if x.out.State, err = document.Canonical(encodeObject(fields)); err != nil {
		return internalError("write an instance", err)
	}
	return nil
}
