// Package portable imports definitions and instances from other programs and stores, and exports them in the same
// form.
//
// It promises:
//
//   - An instance is imported whole or not at all.
//   - Imported steps are recorded as imported, not as judged.
//   - An export discloses no sensitive value.
//
// It reads and writes no files: package folder does. It uses the engine, which never imports
// it.
package portable

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// ImportRequest describes an import of definitions and instances from another program or store.
type ImportRequest struct {
	// Source names the origin in records and messages.
	Source string
	// Owner is the principal that owns the instances and is recorded as performing their steps; "" is the
	// caller.
	Owner string
	// DefinitionsOwner is the agent that owns the definitions; "" is the caller, an operator.
	DefinitionsOwner string
	// Rename is a prefix for the ids of instances and the names of definitions.
	Rename string
	// Counts lets imported visits of states count toward mustPassThrough.
	Counts bool
	// DryRun reports what would happen and writes nothing.
	DryRun bool
	// Definitions list the older versions of a name before the newer ones.
	Definitions []Definition
	// Instances may be nil. An error in the sequence rejects the instance that it comes with, of which
	// only File must be set.
	Instances iter.Seq2[Instance, error]
}

// Definition is one definition of an import.
type Definition struct {
	File     string // for messages
	Document []byte // JSON
	// Err is why the definition could not be read; the definition is then rejected.
	Err error
}

// Instance is one instance of an import: its present state and its history. Its documents must have
// passed workflow.CheckDocument.
type Instance struct {
	File, Log    string // for messages
	ID, Workflow string
	// DefinitionHash selects a version; "" is the newest one of the import, or of the store.
	DefinitionHash       string
	State                string
	Cancelled            bool
	Context              json.RawMessage // a JSON object; nil is {}
	CreatedAt, UpdatedAt time.Time       // zero when unknown
	// Hash is the hex SHA-256 of the file's bytes.
	Hash        string
	Lines       []Line
	Checkpoints []Checkpoint
	// Torn is true if the log ends in an incomplete line, which was skipped.
	Torn bool
}

// Line is one step of an imported history.
type Line struct {
	Number int    // in the log, from 1
	Hash   string // hex SHA-256 of the line's bytes
	Time   time.Time
	Action string
	// From is "" for a start.
	From, To string
	// Data was merged into the context; Context is the whole context after the step. Either may be
	// nil.
	Data, Context json.RawMessage
	// CheckpointID is the checkpoint that a rollback restores.
	CheckpointID string
	// Kind is the kind of the event for which a gavel export wrote the line; "" for other lines.
	Kind      record.Kind
	Cancelled bool
	// Seq orders the lines and checkpoints of a gavel export; 0 in other folders.
	Seq int64
	// Call is the call that such a line is about: its id, gate and outcome; nil if there is none.
	Call *record.Call
}

// Checkpoint is one checkpoint of an instance.
type Checkpoint struct {
	File, ID, State, Description string
	Context, Metadata            json.RawMessage // nil when absent
	Time                         time.Time
	Seq                          int64  // as in Line
	Hash                         string // hex SHA-256 of the file's bytes
}

// Status is the result for one definition or instance. In a dry run, it is the result that
// an import would have.
type Status string

// The results.
const (
	Imported Status = "imported"
	Differs  Status = "differs" // imported, but its files contradict each other; see the notes
	Present  Status = "present" // the store already had the definition
	// SetAside is an invalid definition that was kept for its instances. Everything that its errors affect
	// is rejected until someone fixes it.
	SetAside Status = "setAside"
	Refused  Status = "refused"
)

// ImportReport is the result of an import.
type ImportReport struct {
	Source      string             `json:"source"`
	Owner       string             `json:"owner"`
	DryRun      bool               `json:"dryRun"`
	Counts      bool               `json:"counts"`
	Definitions []DefinitionReport `json:"definitions"` // never nil
	Instances   []InstanceReport   `json:"instances"`   // never nil
	// Refused, Differed and SetAside count the entries with that status.
	Refused  int `json:"refused"`
	Differed int `json:"differed"`
	SetAside int `json:"setAside"`
}

// DefinitionReport is the result for one definition.
type DefinitionReport struct {
	File    string           `json:"file"`
	Name    string           `json:"name,omitempty"`
	Version int              `json:"version,omitempty"` // 0 if a dry run cannot know it
	Hash    string           `json:"hash,omitempty"`
	Status  Status           `json:"status"`
	Reason  string           `json:"reason,omitempty"` // why it was rejected or set aside
	Issues  []workflow.Issue `json:"issues,omitempty"`
}

// InstanceReport is the result for one instance.
type InstanceReport struct {
	File     string `json:"file"`
	ID       string `json:"id,omitempty"`
	Workflow string `json:"workflow,omitempty"`
	Version  int    `json:"version,omitempty"` // 0 if a dry run cannot know it
	State    string `json:"state,omitempty"`
	Status   Status `json:"status"`
	Reason   string `json:"reason,omitempty"` // why it was rejected
	// Events counts the events written, including Checkpoints.
	Events      int `json:"events"`
	Checkpoints int `json:"checkpoints"`
	// Notes describe data that could not be imported unchanged.
	Notes []string `json:"notes,omitempty"`
}

// MaxBytes limits the total size of the patches of one instance's events. All of them are held in memory before the
// first is written, and a short line that restores a checkpoint can change much.
const MaxBytes = 64 << 20

type importer struct {
	e  *engine.Engine
	db store.Store
	p  engine.Principal
	// owner owns the definitions: p, or an agent.
	owner engine.Principal
	req   ImportRequest
	at    time.Time
	// versions are the definitions of the import, by their original names.
	versions map[versionKey]version
	// usedNames maps the names that definitions get in this store to their original names.
	usedNames map[string]string
	// definitions are the definitions in the report.
	definitions []DefinitionReport
}

// versionKey is a version's name and hash in the source. The newest version is also stored without a
// hash.
type versionKey struct{ name, hash string }

// version is a version of a definition; if def is nil, there is none.
type version struct {
	stored  store.Definition // has no version number if a dry run would create it
	def     *workflow.Definition
	refused *refusedDefinition
}

// refusedDefinition is a rejected definition, with its index in the report.
type refusedDefinition struct {
	Definition
	index         int
	setAsideTried bool // setting it aside was tried
}

// Import adds definitions and instances from another program or store. The definitions belong to the caller, an
// operator, or to req.DefinitionsOwner, an agent. db is the store of the engine.
//
// An instance is imported whole or not at all, and only if the store has none with its id. Each line of
// its history becomes an imported event. If the history does not lead to the instance's state and
// context, a reconciled event follows.
//
// A rejected part does not prevent the import of other parts; the report lists rejected parts with the
// reasons. An error ends the import; anything imported before it stays.
func Import(ctx context.Context, e *engine.Engine, db store.Store, p engine.Principal, req ImportRequest) (ImportReport, error) {
	if err := engine.Authorize(p, engine.RightImport); err != nil {
		return ImportReport{}, err
	}
	if req.Source == "" {
		return ImportReport{}, engine.MissingField("source", "Set it to the folder or program that the histories come from.")
	}
	req.Owner = cmp.Or(req.Owner, p.ID)
	owner := p
	if req.DefinitionsOwner != "" {
		owner = engine.Principal{ID: req.DefinitionsOwner, Role: engine.RoleAgent}
	}
	if err := cmp.Or(e.CheckText("owner", req.Owner), e.CheckText("definitionsOwner", owner.ID)); err != nil {
		return ImportReport{}, err
	}
	im := &importer{e: e, db: db, p: p, owner: owner, req: req, at: e.Now(), versions: map[versionKey]version{}, usedNames: map[string]string{}}
	for _, in := range req.Definitions {
		name := nameOf(in)
		im.usedNames[name] = name
	}
	report := ImportReport{
		Source: req.Source, Owner: req.Owner, DryRun: req.DryRun, Counts: req.Counts,
		Definitions: []DefinitionReport{}, Instances: []InstanceReport{},
	}
	for _, in := range req.Definitions {
		out := DefinitionReport{File: in.File, Status: Refused}
		err := im.importDefinition(ctx, in, &out)
		if out.Reason, err = splitReason(err); err != nil {
			return report, err
		}
		im.definitions = append(im.definitions, out)
	}
	counts := map[Status]int{}
	if req.Instances == nil {
		req.Instances = func(func(Instance, error) bool) {}
	}
	for in, err := range req.Instances {
		if in.ID != "" {
			in.ID = req.Rename + in.ID
		}
		out := InstanceReport{File: in.File, ID: in.ID, Workflow: in.Workflow, State: in.State, Status: Refused}
		if err == nil {
			err = im.importInstance(ctx, in, &out)
		}
		if out.Reason, err = splitReason(err); err != nil {
			return report, err
		}
		counts[out.Status]++
		report.Instances = append(report.Instances, out)
	}
	for _, out := range im.definitions {
		counts[out.Status]++
	}
	report.Definitions = append(report.Definitions, im.definitions...)
	report.Refused, report.Differed, report.SetAside = counts[Refused], counts[Differs], counts[SetAside]
	return report, nil
}

// splitReason separates errors that end an import, those of the engine, from the reasons for rejecting
// one part.
func splitReason(err error) (reason string, fatal error) {
	if _, ok := errors.AsType[*engine.Error](err); ok || err == nil {
		return "", err
	}
	return err.Error(), nil
}

// nameOf returns the name of a definition in the source.
func nameOf(in Definition) string { return document.ReadTrusted(in.Document).Get("name").Text() }

// importDefinition stores a definition for im.owner, unless the store has the same version from an
// operator or that owner, and sets the result in out.
func (im *importer) importDefinition(ctx context.Context, in Definition, out *DefinitionReport) error {
	out.Name = nameOf(in)
	im.versions[versionKey{name: out.Name}] = version{refused: &refusedDefinition{Definition: in, index: len(im.definitions)}}
	if in.Err != nil {
		return in.Err
	}
	req, d, err := im.examine(ctx, in, out)
	if err != nil {
		return err
	}
	return im.keep(ctx, req, d, out)
}

// keep stores an examined definition under its new name.
func (im *importer) keep(ctx context.Context, req engine.DefineRequest, d *workflow.Definition, out *DefinitionReport) error {
	newest := versionKey{name: out.Name}
	key := versionKey{newest.name, d.Hash}
	req, d, err := im.rename(req, d)
	if err != nil {
		return err
	}
	v, err := im.findVersion(ctx, d.Name, d.Hash)
	if err != nil {
		return err
	}
	out.Status = Present
	if v.def == nil {
		out.Status, v = Imported, version{def: d, stored: store.Definition{Name: d.Name, Hash: d.Hash}}
		if !im.req.DryRun {
			made, err := im.e.Define(ctx, im.owner, req)
			if err != nil {
				return err
			}
			v.stored.Version = made.Version
		}
	}
	out.Name, out.Hash, out.Version = d.Name, d.Hash, v.stored.Version
	im.versions[key], im.versions[newest] = v, v
	return nil
}

// rename adds the requested prefix to a definition's name.
func (im *importer) rename(req engine.DefineRequest, d *workflow.Definition) (engine.DefineRequest, *workflow.Definition, error) {
	if im.req.Rename == "" {
		return req, d, nil
	}
	req.Document = withName(req.Document, im.req.Rename+d.Name)
	d, err := workflow.Parse(req.Source, req.Document)
	return req, d, err
}

// findVersion finds the version of a definition with the given hash, if an operator or im.owner owns
// it; without a hash, the newest version.
func (im *importer) findVersion(ctx context.Context, name, hash string) (version, error) {
	for number := 0; ; { // 0 is the newest
		stored, def, err := im.e.LoadDefinition(ctx, im.p, engine.RightImport, name, number)
		if engine.CodeOf(err) == engine.CodeUnknownWorkflow {
			return version{}, nil
		}
		if err != nil || hash == "" || stored.Hash == hash && (stored.Operator || stored.Owner == im.owner.ID) {
			return version{stored: stored, def: def}, err
		}
		if number = stored.Version - 1; number == 0 {
			return version{}, nil
		}
	}
}

func (im *importer) findDefinition(ctx context.Context, in Instance) (version, error) {
	if v := im.versions[versionKey{in.Workflow, in.DefinitionHash}]; v.def != nil {
		return v, nil
	}
	if refused := im.versions[versionKey{name: in.Workflow}].refused; refused != nil {
		if !refused.setAsideTried {
			refused.setAsideTried = true
			if err := im.setAside(ctx, refused); err != nil {
				return version{}, err
			}
		}
		if v := im.versions[versionKey{name: in.Workflow}]; v.def != nil {
			return v, nil
		}
		return version{}, fmt.Errorf("its definition %s was rejected; fix it and import again", refused.File)
	}
	v, err := im.findVersion(ctx, in.Workflow, in.DefinitionHash)
	switch {
	case err != nil || v.def != nil:
	case in.DefinitionHash != "":
		err = fmt.Errorf("its version of %q (%.19s...) is neither in the folder nor in the store", in.Workflow, in.DefinitionHash)
	default:
		err = fmt.Errorf("the definition %q is neither in the folder nor in the store", in.Workflow)
	}
	return v, err
}

// keepableID matches ids of other programs that can be kept.
var keepableID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`) })

// maxImportID is the maximum length of a kept id in bytes.
const maxImportID = 128

func isKeepableID(id string) bool { return len(id) <= maxImportID && keepableID().MatchString(id) }

// importInstance writes the whole history of an instance and sets the result in out.
func (im *importer) importInstance(ctx context.Context, in Instance, out *InstanceReport) error {
	if !isKeepableID(in.ID) {
		return fmt.Errorf("the id %.80q is not valid: use letters, digits, '_', '-' and single dots, at most %d bytes", in.ID, maxImportID)
	}
	v, err := im.findDefinition(ctx, in)
	if err != nil {
		return err
	}
	if _, known := v.def.States[in.State]; !known {
		return fmt.Errorf("its state %.80q is not a state of %s", in.State, v.def.Name)
	}
	switch _, err := im.db.Load(ctx, in.ID); {
	case err == nil:
		return fmt.Errorf(alreadyPresent, in.ID)
	case !errors.Is(err, store.ErrNotFound):
		return engine.StoreError("load the instance", err)
	}
	d := &draft{im: im, in: in, version: v, checkpoints: map[string]Checkpoint{}}
	if err := d.addHistory(ctx); err != nil {
		return err
	}
	if !im.req.DryRun {
		if err := d.sealValues(ctx); err != nil {
			return err
		}
		err := im.db.Commit(ctx, store.Commit{Events: d.events, Next: d.inst})
		switch {
		case errors.Is(err, store.ErrConflict):
			return fmt.Errorf(alreadyPresent, in.ID)
		case err != nil:
			return engine.StoreError("record the history", err)
		}
		im.e.Publish(ctx, d.events...)
	}
	d.fillReport(out)
	return nil
}

const alreadyPresent = "the store already has the instance %s; --rename PREFIX imports it under another id"
