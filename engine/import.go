package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// ImportRequest brings definitions and instances into the store that were kept elsewhere.
type ImportRequest struct {
	// Source names where they come from, in records and messages.
	Source string
	// Owner is the principal that owns the instances and performed their steps; "" is the
	// caller.
	Owner string
	// Rename is put before the ids of instances and the names of definitions.
	Rename string
	// Counts lets imported visits of states count toward mustPassThrough.
	Counts bool
	// DryRun reports what would happen and writes nothing.
	DryRun bool
	// Definitions list the older versions of a name before the newer ones.
	Definitions []ImportDefinition
	// Instances may be nil. An error of the sequence refuses the instance beside it, of
	// which only File need be set.
	Instances iter.Seq2[ImportInstance, error]
}

// ImportDefinition is one definition of an import.
type ImportDefinition struct {
	File     string // for messages
	Document []byte // JSON
	// Err is why the definition could not be read; it refuses the definition.
	Err error
}

// ImportInstance is one instance of an import: its position and how it got there.
type ImportInstance struct {
	File, Log    string // for messages
	ID, Workflow string
	// DefinitionHash chooses a version; "" is the newest one of the import, or of the store.
	DefinitionHash       string
	State                string
	Cancelled            bool
	Context              json.RawMessage // a JSON object; nil is {}
	CreatedAt, UpdatedAt time.Time       // zero when unknown
	// Hash is the hex SHA-256 of the file's bytes.
	Hash        string
	Lines       []ImportLine
	Checkpoints []ImportCheckpoint
	// Extra holds members that have no field here, as a JSON object; nil for none.
	Extra json.RawMessage
	// Torn says that the log ends in an incomplete line, which was skipped.
	Torn bool
}

// ImportLine is one step of an imported history.
type ImportLine struct {
	Number int    // in the log, from 1
	Hash   string // hex SHA-256 of the line's bytes
	Time   time.Time
	Action string
	// From is "" for a start; To is "" where the line does not name it.
	From, To string
	// Data was merged into the context; Context is the whole context after that. Either
	// may be nil.
	Data, Context json.RawMessage
	// CheckpointID is the checkpoint that a rollback restores.
	CheckpointID string
	// Kind and Status are those of the event that a gavel export wrote the line for; ""
	// for other lines.
	Kind   record.Kind
	Status record.Status
	// Extra holds members that have no field here, as a JSON object; nil for none.
	Extra json.RawMessage
}

// ImportCheckpoint is one checkpoint of an instance.
type ImportCheckpoint struct {
	File, ID, State, Description string
	Context, Metadata            json.RawMessage // nil when absent
	Time                         time.Time
	Hash                         string // hex SHA-256 of the file's bytes
	Extra                        json.RawMessage
}

// ImportStatus is the result for one definition or instance; of a dry run, the result that
// an import would have.
type ImportStatus string

// The results.
const (
	ImportNew     ImportStatus = "imported"
	ImportPresent ImportStatus = "present" // the store had the definition already
	ImportRefused ImportStatus = "refused"
)

// ImportReport is the result of an import.
type ImportReport struct {
	Source      string             `json:"source"`
	Owner       string             `json:"owner"`
	DryRun      bool               `json:"dryRun"`
	Counts      bool               `json:"counts"`
	Definitions []DefinitionImport `json:"definitions"` // never nil
	Instances   []InstanceImport   `json:"instances"`   // never nil
	// Refused and Differed count entries that were refused and that have differences.
	Refused  int `json:"refused"`
	Differed int `json:"differed"`
}

// DefinitionImport is the result for one definition.
type DefinitionImport struct {
	File    string           `json:"file"`
	Name    string           `json:"name,omitempty"`
	Version int              `json:"version,omitempty"`
	Hash    string           `json:"hash,omitempty"`
	Status  ImportStatus     `json:"status"`
	Reason  string           `json:"reason,omitempty"` // of a refusal
	Issues  []workflow.Issue `json:"issues,omitempty"`
}

// InstanceImport is the result for one instance.
type InstanceImport struct {
	File     string       `json:"file"`
	ID       string       `json:"id,omitempty"`
	Workflow string       `json:"workflow,omitempty"`
	Version  int          `json:"version,omitempty"`
	State    string       `json:"state,omitempty"`
	Status   ImportStatus `json:"status"`
	Reason   string       `json:"reason,omitempty"` // of a refusal
	// Events counts the events written, including Checkpoints.
	Events      int `json:"events"`
	Checkpoints int `json:"checkpoints"`
	// Differences are contradictions between the parts; Notes are other remarks.
	Differences []string `json:"differences,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

// Limits of one imported instance. All its events are made before the first is written, so
// they are held in memory together.
const (
	MaxImportLines       = 100_000
	MaxImportCheckpoints = 10_000
	// MaxImportBytes bounds its documents together, and the patches of its events together:
	// a short line that restores a checkpoint can change much.
	MaxImportBytes = 64 << 20
)

// importRefusalError is why a definition or an instance is not imported.
type importRefusalError string

func (r importRefusalError) Error() string { return string(r) }

func refuseImport(format string, args ...any) error {
	return importRefusalError(fmt.Sprintf(format, args...))
}

type importer struct {
	e   *Engine
	p   Principal
	req ImportRequest
	at  time.Time
	// versions are the definitions of the import by their names in the source, the newest
	// last; refused has the files of those that were refused.
	versions map[string][]importedVersion
	refused  map[string]string
}

type importedVersion struct {
	hash string // of the definition in the source
	loaded
}

// Import adds definitions and instances that were kept elsewhere. Definitions become the
// caller's, an operator's. An instance is imported whole or not at all, and only when the
// store has none with its id: each line of its history becomes an imported event, and where
// the history does not lead to the instance's state and context, a reconciled event does.
//
// One part that is refused does not keep others from being imported; the report says what
// was refused and why. An error ends the import; what was imported before it stays.
func (e *Engine) Import(ctx context.Context, p Principal, req ImportRequest) (ImportReport, error) {
	if err := authorize(p, RightImport); err != nil {
		return ImportReport{}, err
	}
	if req.Source == "" {
		return ImportReport{}, missingField("source", "Name the folder or program that the histories come from.")
	}
	if req.Owner == "" {
		req.Owner = p.ID
	}
	if err := e.checkText("owner", req.Owner); err != nil {
		return ImportReport{}, err
	}
	im := &importer{e: e, p: p, req: req, at: e.now(), versions: map[string][]importedVersion{}, refused: map[string]string{}}
	report := ImportReport{
		Source: req.Source, Owner: req.Owner, DryRun: req.DryRun, Counts: req.Counts,
		Definitions: []DefinitionImport{}, Instances: []InstanceImport{},
	}
	for _, in := range req.Definitions {
		out, err := im.importDefinition(ctx, in)
		if err != nil {
			return report, err
		}
		report.Definitions = append(report.Definitions, out)
		if out.Status == ImportRefused {
			report.Refused++
		}
	}
	if req.Instances == nil {
		return report, nil
	}
	for in, bad := range req.Instances {
		out, err := im.importInstance(ctx, in, bad)
		if err != nil {
			return report, err
		}
		report.Instances = append(report.Instances, out)
		if out.Status == ImportRefused {
			report.Refused++
		}
		if len(out.Differences) > 0 {
			report.Differed++
		}
	}
	return report, nil
}

// importDefinition stores a definition as the caller's, unless the store has the same one
// of an operator.
func (im *importer) importDefinition(ctx context.Context, in ImportDefinition) (DefinitionImport, error) {
	out := DefinitionImport{File: in.File, Status: ImportRefused}
	if in.Err != nil {
		out.Reason = in.Err.Error()
		return out, nil
	}
	d, err := im.examine(ctx, in, &out)
	if d == nil || err != nil {
		return out, err
	}
	name, hash := d.Name, d.Hash
	if im.req.Rename != "" {
		in.Document = renameDefinition(in.Document, im.req.Rename+name)
		if d, err = im.examine(ctx, in, &out); d == nil || err != nil {
			im.refused[name] = in.File
			return out, err
		}
	}
	out.Name, out.Hash = d.Name, d.Hash
	l, newest, err := im.findVersion(ctx, d.Name, d.Hash)
	if err != nil {
		return out, err
	}
	for _, v := range im.versions[name] {
		if newest = max(newest, v.stored.Version); v.hash == hash {
			l = v.loaded
		}
	}
	switch {
	case l.def != nil:
		out.Status = ImportPresent
	case im.req.DryRun:
		out.Status = ImportNew
		l = loaded{stored: store.Definition{Name: d.Name, Version: newest + 1, Hash: d.Hash, Document: d.Document, Owner: im.p.ID, Operator: true}, def: d}
	default:
		out.Status = ImportNew
		made, err := im.e.Define(ctx, im.p, DefineRequest{Source: in.File, Document: in.Document})
		if err != nil {
			return out, err
		}
		if l, err = im.e.loadDefinition(ctx, made.Name, made.Version); err != nil {
			return out, err
		}
	}
	out.Version = l.stored.Version
	im.versions[name] = append(im.versions[name], importedVersion{hash, l})
	return out, nil
}

// examine reads and lints a definition; one with errors is nil, and out says why.
func (im *importer) examine(ctx context.Context, in ImportDefinition, out *DefinitionImport) (*workflow.Definition, error) {
	d, _, err := im.e.examineDefinition(ctx, im.p, DefineRequest{Source: in.File, Document: in.Document})
	invalid, ok := errors.AsType[*Error](err)
	if !ok || invalid.Code != CodeInvalidDefinition {
		return d, err
	}
	out.Reason, out.Issues = invalid.Message, invalid.Issues
	var named struct{ Name string }
	if json.Unmarshal(in.Document, &named) == nil && named.Name != "" {
		out.Name = named.Name
		im.refused[named.Name] = in.File
	}
	return nil, nil
}

// renameDefinition replaces the name in a definition that is JSON.
func renameDefinition(doc []byte, name string) []byte {
	dec := json.NewDecoder(bytes.NewReader(doc))
	if _, err := dec.Token(); err != nil {
		return doc
	}
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return doc
		}
		if end := int(dec.InputOffset()); key == "name" {
			return bytes.Join([][]byte{doc[:end-len(value)], quoteJSON(name), doc[end:]}, nil)
		}
	}
	return doc
}

// findVersion looks in the store for the version of a definition that has a hash and is an
// operator's. Without one, the result has no def. newest is the newest version there.
func (im *importer) findVersion(ctx context.Context, name, hash string) (_ loaded, newest int, err error) {
	s, err := im.e.rules.definition(ctx, name, 0)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return loaded{}, 0, nil
	case err != nil:
		return loaded{}, 0, storeError("read the definition", err)
	}
	for v := s.Version; v >= 1; v-- {
		l, err := im.e.loadDefinition(ctx, name, v)
		if err != nil || l.stored.Hash == hash && l.stored.Operator {
			return l, s.Version, err
		}
	}
	return loaded{}, s.Version, nil
}

// findDefinition is the version of its definition that an instance gets.
func (im *importer) findDefinition(ctx context.Context, in ImportInstance) (loaded, error) {
	versions := im.versions[in.Workflow]
	switch file := im.refused[in.Workflow]; {
	case in.DefinitionHash != "":
		for _, v := range versions {
			if v.hash == in.DefinitionHash {
				return v.loaded, nil
			}
		}
		l, _, err := im.findVersion(ctx, in.Workflow, in.DefinitionHash)
		if err == nil && l.def == nil {
			err = refuseImport("the version of %q that it had (%.19s...) is neither in the folder nor in the store", in.Workflow, in.DefinitionHash)
		}
		return l, err
	case file != "":
		return loaded{}, refuseImport("its definition %s was refused; fix it and import again", file)
	case len(versions) > 0:
		return versions[len(versions)-1].loaded, nil
	}
	l, err := im.e.loadDefinition(ctx, in.Workflow, 0)
	if CodeOf(err) == CodeUnknownWorkflow {
		err = refuseImport("there is no definition %q, neither in the folder nor in the store", in.Workflow)
	}
	return l, err
}

// keptID is what an id of another program must look like to be kept.
var keptID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)

// maxImportID is the greatest length of an id that is kept, in bytes.
const maxImportID = 128

func isKeptID(id string) bool { return len(id) <= maxImportID && keptID.MatchString(id) }

// importInstance imports one instance. bad is why it could not be read.
func (im *importer) importInstance(ctx context.Context, in ImportInstance, bad error) (InstanceImport, error) {
	if in.ID != "" {
		in.ID = im.req.Rename + in.ID
	}
	out := InstanceImport{File: in.File, ID: in.ID, Workflow: in.Workflow, State: in.State, Status: ImportRefused}
	if bad != nil {
		out.Reason = bad.Error()
		return out, nil
	}
	d, err := im.draft(ctx, in)
	if err == nil && !im.req.DryRun {
		err = im.commitDraft(ctx, d)
	}
	if reason, refused := errors.AsType[importRefusalError](err); refused {
		out.Reason = string(reason)
		return out, nil
	}
	if err != nil {
		return out, err
	}
	return d.report(), nil
}

func (im *importer) draft(ctx context.Context, in ImportInstance) (*importDraft, error) {
	if !isKeptID(in.ID) {
		return nil, refuseImport("the id %.80q cannot be kept: an id has letters, digits, '_', '-' and single dots, and at most %d bytes", in.ID, maxImportID)
	}
	l, err := im.findDefinition(ctx, in)
	if err != nil {
		return nil, err
	}
	if _, known := l.def.States[in.State]; !known {
		return nil, refuseImport("it is in %.80q, which is no state of %s", in.State, l.def.Name)
	}
	switch _, err := im.e.cfg.Store.Load(ctx, in.ID); {
	case err == nil:
		return nil, alreadyHere(in.ID)
	case !errors.Is(err, store.ErrNotFound):
		return nil, storeError("load the instance", err)
	}
	if err := checkImported(&in); err != nil {
		return nil, err
	}
	return draftInstance(ctx, im, in, l)
}

func (im *importer) commitDraft(ctx context.Context, d *importDraft) error {
	err := im.e.cfg.Store.Commit(ctx, store.Commit{Events: d.events, Next: d.inst})
	switch {
	case errors.Is(err, store.ErrConflict):
		return alreadyHere(d.in.ID)
	case err != nil:
		return storeError("record the history", err)
	}
	im.e.observe(ctx, d.events...)
	return nil
}

func alreadyHere(id string) error {
	return refuseImport("the store already has the instance %s; --rename PREFIX imports it under another id", id)
}
