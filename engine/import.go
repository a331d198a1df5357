package engine

import (
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

// ImportRequest brings definitions and instances here that were kept elsewhere.
type ImportRequest struct {
	// Source names where they come from, in the records and in messages.
	Source string
	// Owner is the principal that the instances belong to afterwards, and whose steps
	// theirs are said to be; "" is the caller.
	Owner string
	// Counts lets the states that were visited count toward mustPassThrough. Nobody here
	// saw them visited.
	Counts bool
	// DryRun reports what would happen and writes nothing.
	DryRun bool
	// Definitions come first, the older versions of a name before the newer ones.
	Definitions []ImportDefinition
	// Instances may be nil. An error of the sequence refuses the instance that stands
	// beside it, of which File is known at least.
	Instances iter.Seq2[ImportInstance, error]
}

// ImportDefinition is one definition of an import.
type ImportDefinition struct {
	File     string // for messages
	Document []byte
	// Err is why it could not be read; it refuses the definition.
	Err error
}

// ImportInstance is one instance of an import: where it stands, and how it got there.
type ImportInstance struct {
	File, Log    string // for messages
	ID, Workflow string
	// DefinitionHash chooses a version; "" is the newest one of the import, or of the store.
	DefinitionHash       string
	State                string
	Cancelled            bool
	Context              json.RawMessage // a JSON object; nil is {}
	CreatedAt, UpdatedAt time.Time       // zero when not told
	// Hash is the hex SHA-256 of the file's bytes.
	Hash        string
	Lines       []ImportLine
	Checkpoints []ImportCheckpoint
	// Extra holds what has no place here, as a JSON object; nil for nothing.
	Extra json.RawMessage
	// Torn says that the log ends in the beginning of a line, which was skipped.
	Torn bool
}

// ImportLine is one step of a history that was kept elsewhere.
type ImportLine struct {
	Number int    // in the log, from 1
	Hash   string // hex SHA-256 of the line's bytes
	Time   time.Time
	Action string
	// From is "" for a start; To is "" where the line does not tell it.
	From, To string
	// Data was merged into the context; Context is the whole of it afterwards, or before
	// Data was merged. Either may be nil.
	Data, Context json.RawMessage
	// CheckpointID is the checkpoint that a rollback restores.
	CheckpointID string
	// Kind and Status are those of the event that an export of this program wrote the line
	// for; "" for others. EventHashes are by which it is known again.
	Kind        record.Kind
	Status      record.Status
	EventHashes []string
	// Extra holds what has no place here, as a JSON object; nil for nothing.
	Extra json.RawMessage
}

// ImportCheckpoint is one checkpoint of an instance.
type ImportCheckpoint struct {
	File, ID, State, Description string
	Context, Metadata            json.RawMessage // nil when not told
	Time                         time.Time
	Hash                         string // hex SHA-256 of the file's bytes
	Extra                        json.RawMessage
}

// ImportStatus says what came of a part of an import.
type ImportStatus string

// What can come of it. In a dry run it is what would.
const (
	ImportNew       ImportStatus = "imported"
	ImportContinued ImportStatus = "continued" // what had been imported before goes on
	ImportPresent   ImportStatus = "present"   // there was nothing to do
	ImportRefused   ImportStatus = "refused"
)

// ImportReport says what came of an import.
type ImportReport struct {
	Source      string             `json:"source"`
	Owner       string             `json:"owner"`
	DryRun      bool               `json:"dryRun"`
	Counts      bool               `json:"counts"`
	Definitions []DefinitionImport `json:"definitions"` // never nil
	Instances   []InstanceImport   `json:"instances"`   // never nil
	// Refused and Differed count the entries that were refused and that have differences.
	Refused  int `json:"refused"`
	Differed int `json:"differed"`
}

// DefinitionImport is what came of one definition.
type DefinitionImport struct {
	File    string           `json:"file"`
	Name    string           `json:"name,omitempty"`
	Version int              `json:"version,omitempty"`
	Hash    string           `json:"hash,omitempty"`
	Status  ImportStatus     `json:"status"`
	Reason  string           `json:"reason,omitempty"` // of a refusal
	Issues  []workflow.Issue `json:"issues,omitempty"`
}

// InstanceImport is what came of one instance.
type InstanceImport struct {
	File     string       `json:"file"`
	ID       string       `json:"id,omitempty"`
	Workflow string       `json:"workflow,omitempty"`
	Version  int          `json:"version,omitempty"`
	State    string       `json:"state,omitempty"`
	Status   ImportStatus `json:"status"`
	Reason   string       `json:"reason,omitempty"` // of a refusal
	// Events counts what was appended, Checkpoints those among them.
	Events      int `json:"events"`
	Checkpoints int `json:"checkpoints"`
	// Differences are where the parts contradict one another; Notes what else is to be known.
	Differences []string `json:"differences,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

// The bounds of what is imported of one instance. It is planned as a whole before any of
// it is written, so that what is refused leaves nothing behind: all of this is held in
// memory, but the context of no step other than the last one.
const (
	MaxImportLines       = 100_000
	MaxImportCheckpoints = 10_000
	// MaxImportBytes bounds its documents together, and the changes that its steps make
	// together: a short line that restores a checkpoint can change much.
	MaxImportBytes = 64 << 20
)

// mostRemarks bounds what is said of one instance.
const mostRemarks = 20

func remark(list *[]string, format string, args ...any) {
	switch len(*list) {
	case mostRemarks:
		*list = append(*list, "and more of the kind")
	case mostRemarks + 1:
	default:
		*list = append(*list, fmt.Sprintf(format, args...))
	}
}

// importing is one import while it goes on.
type importing struct {
	e   *Engine
	p   Principal
	req ImportRequest
	out ImportReport
	at  time.Time
	// brought are the versions that came along by name, the newest last; refused the
	// names of which one did not pass.
	brought map[string][]loaded
	refused map[string]string
}

// Import brings definitions and histories here that were kept elsewhere. Definitions
// become the caller's, an operator's; every line of a history becomes an imported event,
// and where the history does not lead to what the instance is said to be, a reconciled
// event makes up for it. What was imported before is known again, line by line, and
// stays: a history that has grown meanwhile is continued.
//
// One part that is refused keeps no other from being imported; the report says what and
// why. The error is that the import could not go on, and what is there by then stays.
func (e *Engine) Import(ctx context.Context, p Principal, req ImportRequest) (ImportReport, error) {
	if err := authorize(p, RightImport); err != nil {
		return ImportReport{}, err
	}
	if req.Source == "" {
		return ImportReport{}, missing("source", "A name for where the histories come from.")
	}
	if req.Owner == "" {
		req.Owner = p.ID
	}
	if err := e.text("owner", req.Owner); err != nil {
		return ImportReport{}, err
	}
	im := &importing{
		e: e, p: p, req: req, at: e.now(), brought: map[string][]loaded{}, refused: map[string]string{},
		out: ImportReport{
			Source: req.Source, Owner: req.Owner, DryRun: req.DryRun, Counts: req.Counts,
			Definitions: []DefinitionImport{}, Instances: []InstanceImport{},
		},
	}
	for _, d := range req.Definitions {
		result, err := im.definition(ctx, d)
		if err != nil {
			return im.out, err
		}
		im.out.Definitions = append(im.out.Definitions, result)
		im.count(result.Status, nil)
	}
	if req.Instances == nil {
		return im.out, nil
	}
	for in, err := range req.Instances {
		result, err := im.instance(ctx, in, err)
		if err != nil {
			return im.out, err
		}
		im.out.Instances = append(im.out.Instances, result)
		im.count(result.Status, result.Differences)
	}
	return im.out, nil
}

func (im *importing) count(status ImportStatus, differences []string) {
	if status == ImportRefused {
		im.out.Refused++
	}
	if len(differences) > 0 {
		im.out.Differed++
	}
}

// definition stores a definition as the caller's, unless it has that already.
func (im *importing) definition(ctx context.Context, in ImportDefinition) (DefinitionImport, error) {
	out := DefinitionImport{File: in.File, Status: ImportRefused}
	if in.Err != nil {
		out.Reason = in.Err.Error()
		return out, nil
	}
	req := DefineRequest{Source: in.File, Document: in.Document}
	d, _, err := im.e.examine(ctx, im.p, req)
	var known *Error
	switch {
	case errors.As(err, &known) && known.Code == CodeInvalidDefinition:
		out.Reason, out.Issues = known.Message, known.Issues
		if out.Name = nameIn(in); out.Name != "" {
			im.refused[out.Name] = in.File
		}
		return out, nil
	case err != nil:
		return out, err
	}
	out.Name, out.Hash = d.Name, d.Hash
	l, newest, err := im.stored(ctx, d.Name, d.Hash)
	switch {
	case err != nil:
		return out, err
	case l.def != nil:
		out.Status = ImportPresent
	case im.req.DryRun:
		l = loaded{stored: store.Definition{Name: d.Name, Version: newest + 1, Hash: d.Hash, Document: d.Document, Owner: im.p.ID, Operator: true}, def: d}
		out.Status = ImportNew
	default:
		made, err := im.e.Define(ctx, im.p, req)
		if err != nil {
			return out, err
		}
		if l, err = im.e.definition(ctx, made.Name, made.Version); err != nil {
			return out, err
		}
		out.Status = ImportNew
	}
	out.Version = l.stored.Version
	im.brought[d.Name] = append(im.brought[d.Name], l)
	return out, nil
}

// nameIn is the name in a document that is no definition, "" when it cannot be told.
func nameIn(in ImportDefinition) string {
	if d, err := workflow.Parse(in.File, in.Document); err == nil {
		return d.Name
	}
	var named struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(in.Document, &named) != nil {
		return ""
	}
	return named.Name
}

// stored looks for an operator's version of a definition with a hash: it has no def when
// there is none. newest is the highest version, counting those of a dry run.
func (im *importing) stored(ctx context.Context, name, hash string) (_ loaded, newest int, err error) {
	for _, l := range im.brought[name] {
		if l.stored.Hash == hash {
			return l, l.stored.Version, nil
		}
		newest = max(newest, l.stored.Version)
	}
	s, err := im.e.rules.definition(ctx, name, 0)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return loaded{}, newest, nil
	case err != nil:
		return loaded{}, 0, storeError("read the definition", err)
	}
	newest = max(newest, s.Version)
	for v := s.Version; v >= 1; v-- {
		l, err := im.e.definition(ctx, name, v)
		if err != nil {
			return loaded{}, 0, err
		}
		if l.stored.Hash == hash && l.stored.Operator {
			return l, newest, nil
		}
	}
	return loaded{}, newest, nil
}

// pinned is the version of its definition that an instance gets; a sentence says why
// there is none.
func (im *importing) pinned(ctx context.Context, in ImportInstance) (loaded, string, error) {
	if in.Workflow == "" {
		return loaded{}, "it names no workflow", nil
	}
	if in.DefinitionHash != "" {
		l, _, err := im.stored(ctx, in.Workflow, in.DefinitionHash)
		switch {
		case err != nil:
			return loaded{}, "", err
		case l.def == nil:
			return loaded{}, fmt.Sprintf("the version of %q that it had (%.19s...) is neither in the folder nor in the store", in.Workflow, in.DefinitionHash), nil
		}
		return l, "", nil
	}
	if file, bad := im.refused[in.Workflow]; bad {
		return loaded{}, fmt.Sprintf("its definition %s was refused; mend it and import again", file), nil
	}
	if all := im.brought[in.Workflow]; len(all) > 0 {
		return all[len(all)-1], "", nil
	}
	l, err := im.e.definition(ctx, in.Workflow, 0)
	if CodeOf(err) == CodeUnknownWorkflow {
		return loaded{}, fmt.Sprintf("there is no definition %q, neither in the folder nor in the store", in.Workflow), nil
	}
	return l, "", err
}

// instanceID is what an id of another program must look like to be kept.
var instanceID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)

// maxImportID is the greatest length of an id that is kept, in bytes.
const maxImportID = 128

func goodID(id string) bool { return len(id) <= maxImportID && instanceID.MatchString(id) }

// instance imports one instance; the error is that the import cannot go on.
func (im *importing) instance(ctx context.Context, in ImportInstance, bad error) (InstanceImport, error) {
	out := InstanceImport{File: in.File, ID: in.ID, Workflow: in.Workflow, State: in.State, Status: ImportRefused}
	if bad != nil {
		out.Reason = bad.Error()
		return out, nil
	}
	if !goodID(in.ID) {
		out.Reason = fmt.Sprintf("the id %.80q cannot be kept: an id has letters, digits, '_', '-' and single dots, and at most %d bytes", in.ID, maxImportID)
		return out, nil
	}
	if in.Torn {
		remark(&out.Notes, "%s ends in the beginning of a line, which was skipped", in.Log)
	}
	l, reason, err := im.pinned(ctx, in)
	if err != nil || reason != "" {
		out.Reason = reason
		return out, err
	}
	out.Version = l.stored.Version
	if _, ok := l.def.States[in.State]; !ok {
		out.Reason = fmt.Sprintf("it is in %.80q, which is no state of %s", in.State, l.def.Name)
		return out, nil
	}
	if out.Reason = tooMuch(in); out.Reason != "" {
		return out, nil
	}
	if err := checkDocuments(&in); err != nil {
		out.Reason = err.Error()
		return out, nil
	}
	for {
		again, err := im.append(ctx, in, l, &out)
		if err != nil || !again {
			return out, err
		}
	}
}

// append plans what is missing of an instance here, and commits it. again is true when
// the instance moved meanwhile.
func (im *importing) append(ctx context.Context, in ImportInstance, l loaded, out *InstanceImport) (again bool, err error) {
	here, err := im.e.historyOf(ctx, in.ID)
	if err != nil {
		return false, err
	}
	attempt := *out
	attempt.Differences, attempt.Notes = append([]string(nil), out.Differences...), append([]string(nil), out.Notes...)
	pl := &plan{im: im, in: in, l: l, here: here, out: &attempt}
	reason, err := pl.make(ctx)
	switch {
	case err != nil:
		return false, err
	case reason != "":
		out.Reason, out.Status = reason, ImportRefused
		return false, nil
	}
	if !im.req.DryRun {
		switch err := pl.commit(ctx); {
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrKeyTaken):
			return true, nil // somebody imports the same, or the instance went on: look again
		case err != nil:
			return false, storeError("record the history", err)
		}
	}
	*out = attempt
	return false, nil
}
