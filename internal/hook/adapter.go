package hook

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/validators/document"
)

// MaxInput is what a client may write to a hook, in bytes.
const MaxInput = 16 << 20

var adapters = []Adapter{claudeCode{}, cursor{}, gemini{}, codex{}, copilot{}, opencode{}, kiro{}}

// FindAdapter finds the adapter of a client by its name.
func FindAdapter(client string) (Adapter, bool) {
	i := slices.IndexFunc(adapters, func(a Adapter) bool { return a.Client() == client })
	if i < 0 {
		return nil, false
	}
	return adapters[i], true
}

// Clients are the names of the clients that have an adapter.
func Clients() []string {
	names := make([]string, len(adapters))
	for i, a := range adapters {
		names[i] = a.Client()
	}
	return names
}

// toolForm says what a client's tool is to gates, and which members of its input name what it is
// about; those that are set must be present. The zero toolForm is a tool that no gate can be on.
type toolForm struct {
	builtin string
	command string // the member with the shell line
	folder  string // the member with the folder that the line runs in; may be absent
	path    string // the member with the file or files; anyPath for one with a telling name
	url     string // the member with the address; a.b in an object
	patch   string // the member with the text of a patch, whose headers name files
	// pick chooses the form by the input, where one tool does several things.
	pick func(input document.JSON) toolForm
}

const anyPath = "*"

// toolTable maps a client's names of its own tools to their forms.
type toolTable map[string]toolForm

// free are tools that act on nothing outside the agent but through other tools.
func (t toolTable) free(names ...string) toolTable {
	for _, name := range names {
		t[name] = toolForm{}
	}
	return t
}

// readInput reads what a client writes to a hook. Only its own members must be unambiguous: what a
// tool was given is checked by classify, and what it returned may hold anything.
func readInput(input []byte) (document.JSON, error) {
	if len(input) > MaxInput { // of more, a caller reads no more than that
		return document.JSON{}, fmt.Errorf("it has more than %d MiB", MaxInput>>20)
	}
	for range 2 { // byte order marks: Cursor on Windows writes one, or two
		input = bytes.TrimPrefix(input, []byte("\ufeff"))
	}
	v, err := document.ReadJSON(input, document.Limits{Bytes: MaxInput, Depth: 256, Lax: true})
	if err != nil {
		return document.JSON{}, err
	}
	if v.Kind() != document.Object {
		return document.JSON{}, errors.New("the input is no JSON object")
	}
	if name := v.Duplicate(); name.Kind() != 0 {
		return document.JSON{}, fmt.Errorf("duplicate key %q", name.Text())
	}
	return v, nil
}

// requireText reads a member, a.b in an object, that must be a string with something in it.
func requireText(v document.JSON, name string) (string, error) {
	switch m := v.At(strings.Split(name, ".")...); {
	case m.Kind() == 0:
		return "", fmt.Errorf("%s is missing", name)
	case m.Text() == "":
		return "", fmt.Errorf("%s must be a string that is not empty", name)
	default:
		return m.Text(), nil
	}
}

// optionalText reads a member that may be absent or null, and else must be a string.
func optionalText(v document.JSON, name string) (string, error) {
	m := v.Get(name)
	if kind := m.Kind(); kind != 0 && kind != document.Null && kind != document.String {
		return "", fmt.Errorf("%s must be a string", name)
	}
	return m.Text(), nil
}

// requireFolder reads the working folder.
func requireFolder(v document.JSON, name string) (string, error) {
	folder, err := requireText(v, name)
	if err == nil && !filepath.IsAbs(folder) {
		err = fmt.Errorf("%s must be an absolute path", name)
	}
	return folder, err
}

// classify fills in what a tool of the client's own is to gates. A tool that the table does not have
// is unknown. What an input must say and does not is an error: a gate could not decide by it.
func (t toolTable) classify(e *Event, input document.JSON) error {
	form, known := t[e.Tool]
	if form.pick != nil {
		form = form.pick(input)
	}
	if known && form.builtin == "" {
		return nil
	}
	strict, err := document.ReadJSON(input.Raw(), document.Limits{Bytes: MaxInput, Depth: 256, Literals: true})
	if err != nil {
		return fmt.Errorf("the input of the tool %q: %w", e.Tool, err)
	}
	e.Input, e.Builtin, e.Unknown = strict, form.builtin, !known
	if !known {
		return nil
	}
	if strict.Kind() != document.Object {
		return fmt.Errorf("the input of the tool %q is no object", e.Tool)
	}
	if err := form.fill(e, strict); err != nil {
		return fmt.Errorf("the input of the tool %q: %w", e.Tool, err)
	}
	return nil
}

func (f toolForm) fill(e *Event, input document.JSON) (err error) {
	if f.command != "" {
		if e.Command, err = requireText(input, f.command); err != nil {
			return err
		}
		e.Command = inFolder(input.Get(f.folder).Text(), e.Command)
	}
	if f.url != "" {
		if e.URL, err = requireText(input, f.url); err != nil {
			return err
		}
	}
	if e.Paths, err = appendPaths(nil, input, f); err != nil {
		return err
	}
	if f.patch != "" {
		text, err := requireText(input, f.patch)
		if err != nil {
			return err
		}
		patched := findPatchPaths(text)
		if len(patched) == 0 {
			return fmt.Errorf("%s names no file", f.patch)
		}
		e.Paths = append(e.Paths, patched...)
	}
	if f.path != "" && len(e.Paths) == 0 {
		if f.path == anyPath {
			return errors.New("no member names a file")
		}
		return fmt.Errorf("%s is missing", f.path)
	}
	return nil
}

// inFolder is a shell line that begins in a folder of its own. Event.Folder stays the session's.
func inFolder(folder, command string) string {
	if folder == "" {
		return command
	}
	return "cd '" + strings.ReplaceAll(folder, "'", `'\''`) + "' && " + command
}

// findPatchPaths are the files that the headers of a patch in the form of apply_patch name.
func findPatchPaths(text string) []string {
	var paths []string
	for line := range strings.Lines(text) {
		for _, header := range []string{"*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:"} {
			if path, found := strings.CutPrefix(strings.TrimSpace(line), header); found && strings.TrimSpace(path) != "" {
				paths = append(paths, strings.TrimSpace(path))
			}
		}
	}
	return paths
}

// appendPaths collects the files that an input names: the member that its tool is known to have, and
// each whose name says that it is one too, so that a newer version's second path is not missed.
func appendPaths(paths []string, input document.JSON, f toolForm) ([]string, error) {
	for name, value := range input.Members() {
		lower := strings.ToLower(name.Text())
		telling := strings.Contains(lower, "path") || lower == "file" || lower == "files"
		if name.Is(f.folder) || !telling && !name.Is(f.path) {
			continue
		}
		switch value.Kind() {
		case document.String:
			if value.Text() != "" {
				paths = append(paths, value.Text())
			}
		case document.Array:
			for _, element := range value.Elements() {
				var err error
				switch element.Kind() {
				case document.String:
					paths = append(paths, element.Text())
				case document.Object:
					if paths, err = appendPaths(paths, element, f); err != nil {
						return nil, err
					}
				default:
					return nil, fmt.Errorf("%s must name files", name.Text())
				}
			}
		case document.Null:
		default:
			return nil, fmt.Errorf("%s must be a string or an array", name.Text())
		}
	}
	return paths, nil
}

// strictResult is what a tool returned, absent where gavel could not record it.
func strictResult(v document.JSON) document.JSON {
	strict, err := document.ReadJSON(v.Raw(), document.Limits{Bytes: MaxInput, Depth: 256, Literals: true})
	if err != nil {
		return document.JSON{}
	}
	return strict
}

// writeJSON is an output that the client reads as JSON.
func writeJSON(v any) Output {
	body, err := document.Marshal(v)
	if err != nil { // nothing that an adapter writes can fail
		return Output{Stderr: []byte(err.Error()), Exit: 2}
	}
	return Output{Stdout: append(body, '\n')}
}

// reasonOf is what an answer says; some clients take a refusal without a reason for a failure, and go on.
func reasonOf(a Answer) string {
	if strings.TrimSpace(a.Reason) == "" {
		return "gavel refuses this and gives no reason"
	}
	return a.Reason
}

// withExit2 is an output that denies by its exit code too, for clients that cannot read the rest.
func withExit2(o Output, reason string) Output {
	o.Stderr, o.Exit = []byte(reason+"\n"), 2
	return o
}
