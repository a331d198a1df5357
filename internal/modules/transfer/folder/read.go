// Package folder reads and writes a .workflows folder, in the form of the Generic DFA server and of gavel's exports.
// It contains definitions and checkpoints, and for each instance a file with its present state and a log with its
// history.
//
// It promises:
//
//   - Damage is reported. An incomplete line at the end of a log is skipped and reported, and anything else that is
//     invalid is an error with file and line. Unknown members are left out.
//   - Nothing outside the folder is ever read or written, whatever ids and links contain.
//   - No file can cost more than its limit.
//
// It must never decide what a history means: package portable does.
package folder

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/modules/transfer/portable"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The limits, in bytes.
const (
	MaxDefinition = 256 << 10
	MaxFile       = 1 << 20 // an instance or a checkpoint
	MaxLine       = 1 << 20
	MaxLog        = 64 << 20 // also the limit for all checkpoints of one instance together
)

// The limits on numbers for one instance, which is held in memory as a whole.
const (
	MaxLines       = 100_000
	MaxCheckpoints = 10_000
)

// The subfolders of a folder.
const (
	definitionsDir = "definitions"
	checkpointsDir = "checkpoints"
)

// The patterns of a folder's files.
const (
	definitionFiles = definitionsDir + "/*.json"
	checkpointFiles = checkpointsDir + "/*.json"
	instanceFiles   = "wf-*.json"
	logFiles        = "wf-*.log"
)

// Folder is a .workflows folder that is read on demand.
type Folder struct {
	fsys        fs.FS
	files       map[string][]string // sorted, by pattern
	checkpoints map[string][]string // by the id of their instance
	strays      map[string]error    // files that belong to no definition or instance, with the reason
}

// Open lists a folder. It fails only if the listing does; Definitions and Instances report damaged
// files. The file system must not follow links out of the folder: see os.Root.
func Open(fsys fs.FS) (*Folder, error) {
	f := &Folder{fsys: fsys, files: map[string][]string{}, checkpoints: map[string][]string{}, strays: map[string]error{}}
	if err := fs.WalkDir(fsys, ".", f.listFile); err != nil {
		return nil, fmt.Errorf("read the folder: %w", err)
	}
	for _, file := range f.files[checkpointFiles] {
		_, owner, _, err := f.readCheckpoint(file)
		if err == nil {
			f.checkpoints[owner] = append(f.checkpoints[owner], file)
			err = fmt.Errorf("there is no instance %.80q in the folder", owner)
		}
		f.strays[file] = err
	}
	for _, log := range f.files[logFiles] {
		f.strays[log] = fmt.Errorf("there is no %s.json in the same folder, so its workflow is unknown", strings.TrimSuffix(log, ".log"))
	}
	return f, nil
}

func (f *Folder) listFile(file string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	for _, pattern := range []string{definitionFiles, checkpointFiles, instanceFiles, logFiles} {
		if ok, _ := path.Match(pattern, file); ok {
			f.files[pattern] = append(f.files[pattern], file)
		}
	}
	isOurs := file == definitionsDir || file == checkpointsDir
	switch {
	case isOurs && !entry.IsDir():
		f.strays[file] = errors.New("it is not a folder; links are not followed")
	case entry.IsDir() && path.Dir(file) == checkpointsDir:
		f.strays[file] = errors.New("it is a folder; only files directly in " + checkpointsDir + " are read")
		return fs.SkipDir
	case entry.IsDir() && file != "." && !isOurs:
		return fs.SkipDir
	}
	return nil
}

// Empty reports whether the folder has nothing to import.
func (f *Folder) Empty() bool { return len(f.files)+len(f.strays) == 0 }

// Definitions returns the definitions of the folder, the older versions of a name first.
func (f *Folder) Definitions() []portable.Definition {
	files := slices.Clone(f.files[definitionFiles])
	slices.SortFunc(files, func(a, b string) int {
		an, av := versionOf(a)
		bn, bv := versionOf(b)
		return cmp.Or(strings.Compare(an, bn), cmp.Compare(av, bv))
	})
	var out []portable.Definition
	for _, file := range files {
		document, err := f.readFile(file, MaxDefinition)
		out = append(out, portable.Definition{File: file, Document: document, Err: err})
	}
	return out
}

// Instances returns the instances of the folder, followed by files that belong to no instance. An
// error is about the File of the instance that it comes with.
func (f *Folder) Instances() iter.Seq2[portable.Instance, error] {
	return func(yield func(portable.Instance, error) bool) {
		strays := maps.Clone(f.strays)
		for _, file := range f.files[instanceFiles] {
			in, err := f.readInstance(file)
			delete(strays, in.Log)
			for _, file := range f.checkpoints[in.ID] {
				delete(strays, file)
			}
			if !yield(in, err) {
				return
			}
		}
		for _, file := range slices.Sorted(maps.Keys(strays)) {
			if !yield(portable.Instance{File: file}, strays[file]) {
				return
			}
		}
	}
}

// readFile returns a whole file of at most limit bytes.
func (f *Folder) readFile(name string, limit int64) ([]byte, error) {
	info, err := fs.Lstat(f.fsys, name)
	if err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file; links are not followed")
	}
	file, err := f.fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open it: %w", err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read it: %w", err)
	case int64(len(content)) > limit:
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return content, nil
}

func (f *Folder) readInstance(file string) (portable.Instance, error) {
	stem := strings.TrimSuffix(file, ".json")
	in := portable.Instance{File: file, Log: stem + ".log"}
	content, err := f.readFile(file, MaxFile)
	if err != nil {
		return in, err
	}
	if in, err = parseInstance(content, in); err != nil {
		return in, err
	}
	if in.ID = cmp.Or(in.ID, stem); !isStemOf(stem, in.ID) {
		return in, fmt.Errorf("its id is %.80q, which does not match its name", in.ID)
	}
	content, err = f.readFile(in.Log, MaxLog)
	switch {
	case err == nil:
		if in.Lines, in.Torn, err = ParseLog(in.Log, content); err != nil {
			return in, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return in, fmt.Errorf("%s: %w", in.Log, err)
	}
	bytes := 0
	for _, file := range f.checkpoints[in.ID] {
		cp, _, size, err := f.readCheckpoint(file)
		if err != nil {
			return in, fmt.Errorf("%s: %w", file, err)
		}
		if bytes += size; bytes > MaxLog || len(in.Checkpoints) == MaxCheckpoints {
			return in, fmt.Errorf("its checkpoints exceed %d in number or %d bytes in total", MaxCheckpoints, MaxLog)
		}
		in.Checkpoints = append(in.Checkpoints, cp)
	}
	return in, nil
}

// readCheckpoint reads a checkpoint and returns the id of its instance and the size of its file.
func (f *Folder) readCheckpoint(file string) (portable.Checkpoint, string, int, error) {
	content, err := f.readFile(file, MaxFile)
	if err != nil {
		return portable.Checkpoint{}, "", 0, err
	}
	cp, owner, err := parseCheckpoint(file, content)
	return cp, owner, len(content), err
}

// ParseLog reads a log with one JSON object per line; name is used in errors. An incomplete last line,
// which a crash can leave, is skipped and sets torn. Any other line that cannot be read is an error.
// Empty lines are skipped.
func ParseLog(name string, content []byte) (lines []portable.Line, torn bool, err error) {
	number := 0
	for raw := range bytes.Lines(content) {
		number++
		text, whole := bytes.CutSuffix(raw, []byte("\n"))
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		line, err := ParseLine(text)
		if err == nil && len(lines) == MaxLines {
			err = fmt.Errorf("the log has more than %d lines, the limit for one instance", MaxLines)
		}
		switch {
		case err != nil && !whole && !json.Valid(text):
			return lines, true, nil
		case err != nil:
			return nil, false, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		line.Number = number
		lines = append(lines, line)
	}
	return lines, false, nil
}

// exportMeta is the content of the member "gavel" in an export. If it is malformed, the readable parts
// are used.
type exportMeta struct {
	Kind           record.Kind
	Status         record.Status
	Seq            int64
	DefinitionHash string
	Call           *record.Call
	Import         struct { // about the event that an imported line came from
		Kind record.Kind
		Call *record.Call
	}
}

// ParseLine reads one line of a log. Unknown members are left out.
func ParseLine(raw []byte) (portable.Line, error) {
	o, err := parseObject(raw, MaxLine)
	if err != nil {
		return portable.Line{}, err
	}
	line := portable.Line{
		Hash:   hashOf(raw),
		Time:   o.takeTime("timestamp", "time"),
		Action: o.takeText("action", "transition"),
		From:   o.takeText("from", "fromState"),
		To:     o.takeText("to", "toState"),
		Data:   o.takeObject("data", "payload"), Context: o.takeObject("context"),
	}
	about := o.readExportMeta()
	line.Seq, line.Cancelled = about.Seq, about.Status == record.Cancelled
	line.Kind = cmp.Or(about.Import.Kind, about.Kind)
	if c := cmp.Or(about.Import.Call, about.Call); c != nil {
		line.Call = &record.Call{ID: c.ID, Gate: c.Gate, Outcome: c.Outcome}
	}
	if line.Action == "rollback" {
		_ = json.Unmarshal(o.members["checkpointId"], &line.CheckpointID) // an id of another type is ignored
	}
	return line, o.err
}

// parseInstance reads a wf-*.json file, in the documented form or the older one.
func parseInstance(content []byte, in portable.Instance) (portable.Instance, error) {
	o, err := parseObject(content, MaxFile)
	if err != nil {
		return in, err
	}
	about := o.readExportMeta()
	in.DefinitionHash, in.Cancelled = about.DefinitionHash, about.Status == record.Cancelled
	in.Hash = hashOf(content)
	in.ID = o.takeText("id")
	in.Workflow = o.takeText("type", "definitionName")
	in.State = o.takeText("state", "currentState")
	in.Context = o.takeObject("context")
	in.CreatedAt, in.UpdatedAt = o.takeTime("createdAt"), o.takeTime("updatedAt")
	if in.Workflow == "" {
		o.addError(`the workflow is missing ("type", or "definitionName")`)
	}
	if in.State == "" {
		o.addError(`the state is missing ("state", or "currentState")`)
	}
	return in, o.err
}

func parseCheckpoint(file string, content []byte) (portable.Checkpoint, string, error) {
	o, err := parseObject(content, MaxFile)
	if err != nil {
		return portable.Checkpoint{}, "", err
	}
	cp := portable.Checkpoint{
		File: file, Hash: hashOf(content), Seq: o.readExportMeta().Seq,
		ID: o.takeText("checkpointId"), State: o.takeText("state"), Description: o.takeText("description"),
		Context: o.takeObject("context"), Time: o.takeTime("timestamp"), Metadata: o.takeObject("metadata"),
	}
	owner := o.takeText("workflowId")
	return cp, owner, o.err
}

// object is a JSON object from which members are taken.
type object struct {
	members map[string]json.RawMessage
	err     error // the first error
}

func parseObject(raw []byte, limit int) (*object, error) {
	doc, err := document.ReadJSON(raw, document.Limits{Bytes: limit})
	if issue, ok := errors.AsType[*document.Issue](err); ok {
		return nil, fmt.Errorf("it is not valid JSON: %s", issue.Message)
	}
	if doc.Kind() != document.Object {
		return nil, errors.New("it is not a JSON object")
	}
	o := &object{members: map[string]json.RawMessage{}}
	for name, value := range doc.Members() {
		o.members[name.Text()] = value.Raw()
	}
	return o, nil
}

func (o *object) addError(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

// take returns and removes the first member with one of the names that is not null. It also removes null
// members with these names before it.
func (o *object) take(names ...string) (string, json.RawMessage) {
	for _, name := range names {
		value, known := o.members[name]
		delete(o.members, name)
		if known && string(value) != "null" {
			return name, value
		}
	}
	return "", nil
}

func (o *object) takeText(names ...string) (text string) {
	name, value := o.take(names...)
	if value != nil && json.Unmarshal(value, &text) != nil {
		o.addError("%q is not a string", name)
	}
	return text
}

func (o *object) takeObject(names ...string) json.RawMessage {
	name, value := o.take(names...)
	if value != nil && document.ReadTrusted(value).Kind() != document.Object {
		o.addError("%q is not an object", name)
	}
	return value
}

// takeTime takes a time in RFC 3339, or in milliseconds since 1970; zero for any other value.
func (o *object) takeTime(names ...string) time.Time {
	_, value := o.take(names...)
	var at time.Time
	var millis int64
	if json.Unmarshal(value, &millis) == nil {
		at = time.UnixMilli(millis)
	} else {
		_ = json.Unmarshal(value, &at) // zero for any other value
	}
	if at.Year() < 1970 || at.Year() > 2200 {
		return time.Time{}
	}
	return at.UTC()
}

func (o *object) readExportMeta() (about exportMeta) {
	_ = json.Unmarshal(o.members["gavel"], &about)
	return about
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
