package agent

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// MaxInput is the maximum size of a hook's input, in bytes.
const MaxInput = 16 << 20

// Adapter translates between a client and Event. It is a table of the client's names, with functions for
// what a table cannot express.
type Adapter struct {
	// Client is the client's name on the command line and in URLs.
	Client string
	// ProjectVariable is the environment variable in which the client passes the folder where the session
	// began, or "".
	ProjectVariable string
	// toolPrefix is the prefix under which the client's agent sees the tools of gavel's MCP server.
	toolPrefix string
	// events holds the names of the client's hooks, separated by spaces. An unknown name is an error, and
	// therefore denied: it could be the use of a tool under a new name.
	events  map[Phase]string
	members members
	// noSession reports that events may lack the session.
	noSession bool
	tools     []toolForm
	// isServers reports whether a tool that is not in tools belongs to an MCP server, and therefore to the
	// gateway.
	isServers func(tool string, v document.JSON) bool
	// finish decodes the rest of an event: how a tool use or the agent's turn ended.
	finish    func(e *Event, v document.JSON)
	responses responseTemplates
}

// members are the names of the members in the client's events.
type members struct {
	hook, session, folder, call, tool, input, result string
	// line names the member of a tool's input that holds a shell line's working folder, or is "".
	line string
}

// toolForm describes how gates see some of a client's tools.
type toolForm struct {
	builtin string // a builtin of gates, or patch; "" if no gate can apply to the tool
	// member names the required member of the input that holds the tool's subject, or is "". It is the
	// shell line, a file or files, the address, or the text of a patch. anyPath means any member with a
	// name that suggests files, and a.b a member of an object.
	member string
	// names lists tools, separated by spaces. TOOL:MEMBER matches if the input has the member, and
	// TOOL:MEMBER=TEXT if the member has that text. The last matching form wins.
	names string
}

const (
	patch   = "patch" // an edit of the files named in the headers of a patch
	anyPath = "*"
)

// responseTemplates holds the templates of what the client reads. In a JSON template, HOOK is replaced by the hook's name
// and TEXT by the text. In a plain template, LINE is replaced by the text.
type responseTemplates struct {
	neutral    string
	text       string  // a text for the agent, in the phases listed in tells
	textPhases []Phase // in other phases the client takes no text, or continues because of it
	deny       string  // before a tool; "" if the client only reads the exit code
	canAsk     bool    // the client asks its user if "deny" is replaced by "ask"
	hold       string  // at a stop; "" if the client can only warn its user
	note       string  // at a stop that is allowed, a text for the client's user; "" if it shows none
	fail       string  // if the event could not be decoded
}

var adapters = []*Adapter{&claudeCode, &cursor, &gemini, &codex, &copilot, &opencode, &kiro}

// FindAdapter returns the adapter of a client by its name.
func FindAdapter(client string) (*Adapter, bool) {
	i := slices.IndexFunc(adapters, func(a *Adapter) bool { return a.Client == client })
	if i < 0 {
		return nil, false
	}
	return adapters[i], true
}

// Clients returns the names of the clients that have an adapter.
func Clients() []string {
	names := make([]string, len(adapters))
	for i, a := range adapters {
		names[i] = a.Client
	}
	return names
}

// Decode decodes the input that a client writes to a hook.
func (a *Adapter) Decode(input []byte) (Event, error) {
	v, err := readInput(input)
	if err != nil {
		return Event{}, err
	}
	e := Event{Client: a.Client, Session: v.Get(a.members.session).Text(), Transcript: v.Get("transcript_path").Text()}
	if e.Hook, err = requireText(v, a.members.hook); err != nil {
		return Event{}, err
	}
	for phase, names := range a.events {
		if slices.Contains(strings.Fields(names), e.Hook) {
			e.Phase = phase
		}
	}
	if e.Phase == "" {
		return Event{}, fmt.Errorf("unknown hook event %q; update gavel, or remove gavel from that hook", e.Hook)
	}
	if e.Phase == PhaseOther {
		return e, nil
	}
	if err := a.decodeSession(&e, v); err != nil {
		return Event{}, err
	}
	if e.Phase == PhaseBefore || e.Phase == PhaseAfter {
		if err := a.decodeTool(&e, v); err != nil {
			return Event{}, err
		}
	}
	if a.finish != nil {
		a.finish(&e, v)
	}
	return e, nil
}

// decodeSession decodes the origin of an event.
func (a *Adapter) decodeSession(e *Event, v document.JSON) (err error) {
	m := a.members
	if e.CallID, err = optionalText(v, m.call); err != nil {
		return err
	}
	read := requireText
	if a.noSession {
		read = optionalText
	}
	if _, err = read(v, m.session); err != nil {
		return err
	}
	for _, root := range v.Get("workspace_roots").Elements() { // for editors, which may have no working folder
		if filepath.IsAbs(root.Text()) {
			e.Project = root.Text()
			break
		}
	}
	if e.Project != "" && v.Get(m.folder).Text() == "" {
		e.Folder = e.Project
		return nil
	}
	if e.Folder, err = requireText(v, m.folder); err == nil && !filepath.IsAbs(e.Folder) {
		err = fmt.Errorf("%s must be an absolute path", m.folder)
	}
	return err
}

// decodeTool decodes which tool is used, and how gates see it.
func (a *Adapter) decodeTool(e *Event, v document.JSON) (err error) {
	if e.Tool, err = requireText(v, a.members.tool); err != nil {
		return err
	}
	input := v.Get(a.members.input)
	if input.Kind() == 0 {
		return fmt.Errorf("%s is missing", a.members.input)
	}
	if e.Tool == a.toolPrefix+"workflow_advance" || e.Tool == a.toolPrefix+"workflow_judge_validate" {
		e.Instance = input.Get("id").Text()
	}
	if form, known := a.findForm(e.Tool, input); known && form.builtin != "" || !known && !a.isServers(e.Tool, v) {
		if err := form.classify(e, input, a.members.line); err != nil {
			return fmt.Errorf("the input of the tool %q: %w", e.Tool, err)
		}
	}
	if e.Phase == PhaseAfter {
		e.Ended, e.Result = EndedOK, strictResult(v.Get(a.members.result))
		if strings.HasSuffix(e.Hook, "Failure") {
			e.Ended = EndedFailed
		}
	}
	return nil
}

// findForm returns the form of a tool.
func (a *Adapter) findForm(tool string, input document.JSON) (form toolForm, known bool) {
	for _, f := range a.tools {
		for name := range strings.FieldsSeq(f.names) {
			name, condition, conditional := strings.Cut(name, ":")
			member, text, exact := strings.Cut(condition, "=")
			if name == tool && (!conditional || input.Get(member).Kind() != 0) && (!exact || input.Get(member).Is(text)) {
				form, known = f, true
			}
		}
	}
	return form, known
}

// classify sets the fields that gates use. The zero form describes an unknown tool. A missing required
// member is an error, because gates could not decide without it.
func (f toolForm) classify(e *Event, input document.JSON, lineFolder string) error {
	strict, err := readStrict(input)
	if err != nil {
		return err
	}
	e.Input, e.Builtin, e.Unknown = strict, f.builtin, f.names == ""
	if e.Unknown {
		return nil
	}
	if strict.Kind() != document.Object {
		return errors.New("it is not an object")
	}
	if f.builtin == gate.BuiltinShell {
		e.Command, err = requireText(strict, f.member)
		if folder := strict.Get(lineFolder).Text(); folder != "" { // Event.Folder remains the session's folder
			e.Command = "cd '" + strings.ReplaceAll(folder, "'", `'\''`) + "' && " + e.Command
		}
		return err
	}
	if e.Paths, err = f.appendPaths(nil, "", strict); err != nil {
		return err
	}
	switch {
	case f.builtin == gate.BuiltinFetch && f.member != "":
		e.URL, err = requireText(strict, f.member)
	case f.builtin == patch:
		var text string
		text, err = requireText(strict, f.member)
		patched := findPatchPaths(text)
		if err == nil && len(patched) == 0 {
			err = fmt.Errorf("%s names no file", f.member)
		}
		e.Builtin, e.Paths = gate.BuiltinEdit, append(e.Paths, patched...)
	case f.member == anyPath && len(e.Paths) == 0:
		err = errors.New("no member names a file")
	case f.member != "" && len(e.Paths) == 0:
		err = fmt.Errorf("%s is missing", f.member)
	}
	return err
}

func (f toolForm) isAboutFiles() bool {
	return f.builtin == gate.BuiltinEdit || f.builtin == gate.BuiltinRead
}

// findPatchPaths returns the files named in the headers of a patch in the apply_patch format.
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

// appendPaths appends the files named in a value. name is the member that holds the value, or "" for the
// input itself. It considers the tool's known member and all members whose names suggest files, so that a
// second path in a newer version is not missed.
func (f toolForm) appendPaths(paths []string, name string, v document.JSON) (_ []string, err error) {
	before := len(paths)
	switch v.Kind() {
	case document.Null:
		return paths, nil
	case document.String:
		if v.Text() != "" {
			paths = append(paths, v.Text())
		}
		return paths, nil
	case document.Array:
		for _, element := range v.Elements() {
			if paths, err = f.appendPaths(paths, name, element); err != nil {
				return nil, err
			}
		}
		return paths, nil
	case document.Object:
		for member, value := range v.Members() {
			lower := strings.ToLower(member.Text())
			if strings.Contains(lower, "path") || lower == "file" || lower == "files" || f.isAboutFiles() && member.Is(f.member) {
				if paths, err = f.appendPaths(paths, member.Text(), value); err != nil {
					return nil, err
				}
			}
		}
		if name == "" || len(paths) > before {
			return paths, nil
		}
	}
	return nil, fmt.Errorf("%s must name files", name)
}

// readInput parses the input of a hook. Only the client's own members must be unambiguous here: classify checks a
// tool's input, and a tool's result may contain anything.
func readInput(input []byte) (document.JSON, error) {
	if len(input) > MaxInput { // callers read at most one byte more
		return document.JSON{}, fmt.Errorf("the input is larger than %d MiB", MaxInput>>20)
	}
	for range 2 { // Cursor on Windows writes one or two byte order marks
		input = bytes.TrimPrefix(input, []byte("\ufeff"))
	}
	v, err := document.ReadJSON(input, document.Limits{Bytes: MaxInput, Depth: 256, Lax: true})
	if err != nil {
		return document.JSON{}, err
	}
	if v.Kind() != document.Object {
		return document.JSON{}, errors.New("the input is not a JSON object")
	}
	if name := v.Duplicate(); name.Kind() != 0 {
		return document.JSON{}, fmt.Errorf("duplicate key %q", name.Text())
	}
	return v, nil
}

// readStrict parses a value that must be unambiguous and in a form that gavel can record.
func readStrict(v document.JSON) (document.JSON, error) {
	return document.ReadJSON(v.Raw(), document.Limits{Bytes: MaxInput, Depth: 256, Literals: true})
}

// strictResult returns the result of a tool, or an absent value if gavel could not record it.
func strictResult(v document.JSON) document.JSON {
	if strict, err := readStrict(v); err == nil {
		return strict
	}
	return document.JSON{}
}

// requireText returns a member that must be a non-empty string; a.b names a member of an object.
func requireText(v document.JSON, name string) (string, error) {
	switch m := v.At(strings.Split(name, ".")...); {
	case m.Kind() == 0:
		return "", fmt.Errorf("%s is missing", name)
	case m.Text() == "":
		return "", fmt.Errorf("%s must be a non-empty string", name)
	default:
		return m.Text(), nil
	}
}

// optionalText returns a member that must be a string, null or absent.
func optionalText(v document.JSON, name string) (string, error) {
	m := v.Get(name)
	if kind := m.Kind(); kind != 0 && kind != document.Null && kind != document.String {
		return "", fmt.Errorf("%s must be a string", name)
	}
	return m.Text(), nil
}

// markEndUnknown marks that it is not known yet how a tool use or a turn ended.
func (e *Event) markEndUnknown() { e.Phase, e.Ended = PhaseOther, "" }

// setLineEnd sets how a shell line ended, from its exit code. Without an exit code, the line continues in the
// background.
func (e *Event) setLineEnd(exit document.JSON) {
	switch code := cmp.Or(exit.Text(), string(exit.Raw())); {
	case e.Builtin != gate.BuiltinShell || e.Ended != EndedOK:
	case code == "" || code == "null":
		e.markEndUnknown()
	case code != "0":
		e.Ended = EndedFailed
	}
}

// Encode encodes an answer in the client's format. After a tool and at the start of a session nothing can
// be denied, so the reason is passed to the agent as text.
func (a *Adapter) Encode(e Event, answer Answer) Output {
	answer = a.address(e, answer)
	text := answer.Context
	if answer.Verdict != Neutral { // some clients treat a denial without a reason as a failure, and continue
		text = cmp.Or(strings.TrimSpace(answer.Reason), "gavel refuses this without a reason")
	}
	form := a.responses.neutral
	switch {
	case answer.Verdict == Neutral, e.Phase == PhaseStart, e.Phase == PhaseAfter:
		if text != "" && e.Phase == PhaseStop && a.responses.note != "" {
			form = a.responses.note
		} else if text != "" && slices.Contains(a.responses.textPhases, e.Phase) && e.Hook != "PermissionDenied" { // PermissionDenied takes no text
			form = a.responses.text
		}
	case e.Phase == PhaseBefore && answer.Verdict == Ask:
		form = strings.Replace(a.responses.deny, `"deny"`, `"ask"`, 1)
	case e.Phase == PhaseBefore && a.responses.deny != "":
		form = a.responses.deny
	case e.Phase == PhaseStop && a.responses.hold != "":
		form = a.responses.hold
	case e.Phase == PhaseStop:
		return Output{Stderr: []byte(text + "\n"), Exit: 1}
	default:
		return a.EncodeFailure(text)
	}
	return Output{Stdout: writeAnswer(form, e.Hook, text)}
}

// EncodeFailure denies an event that could not be decoded. It uses the exit code, which needs no event
// name. Stdout serves clients that ask over HTTP.
func (a *Adapter) EncodeFailure(reason string) Output {
	return Output{Stdout: writeAnswer(a.responses.fail, "", reason), Stderr: []byte(reason + "\n"), Exit: 2}
}

func writeAnswer(form, hook, text string) []byte {
	if form == "" {
		return nil
	}
	name, err1 := document.Marshal(hook)
	quoted, err2 := document.Marshal(text)
	if err := errors.Join(err1, err2); err != nil {
		panic(err) // strings always encode
	}
	return []byte(strings.NewReplacer("HOOK", string(name), "TEXT", string(quoted), "LINE", text).Replace(form) + "\n")
}

// address adapts an answer to the client. Ask becomes Deny if no person would answer: in a session without
// one, and in clients that cannot ask for a hook. gavel's own tools get the names that the client uses.
func (a *Adapter) address(e Event, answer Answer) Answer {
	if answer.Verdict == Ask && (e.Headless || !a.responses.canAsk) {
		why := "This client cannot ask its user for a hook, so the answer is no."
		if e.Headless {
			why = "This session has no person to ask, so the answer is no."
		}
		answer.Verdict, answer.Reason = Deny, strings.TrimSpace(EndSentence(answer.Reason)+" "+why)
	}
	answer.Reason, answer.Context = a.nameTools(answer.Reason), a.nameTools(answer.Context)
	return answer
}

var ownTools = regexp.MustCompile(`\bworkflow\.(advance|cancel|define|judge\.clear|start|status)\b`)

// nameTools replaces the names of gavel's tools in a text by those under which the client's agent sees
// them.
func (a *Adapter) nameTools(text string) string {
	return ownTools.ReplaceAllStringFunc(text, func(tool string) string { return a.toolPrefix + strings.ReplaceAll(tool, ".", "_") })
}

// IsHeadless reports whether the session has no person to ask, according to the environment that the client
// gives a hook.
func (a *Adapter) IsHeadless(getenv func(string) string) bool {
	if a == &claudeCode {
		if attended := getenv("CLAUDE_CODE_SESSION_ATTENDED"); attended == "0" || attended == "1" {
			return attended == "0"
		}
		// For versions without the variable above.
		if slices.Contains([]string{"sdk-cli", "sdk-ts", "sdk-py", "mcp", "claude-code-github-action"}, getenv("CLAUDE_CODE_ENTRYPOINT")) {
			return true
		}
	}
	return !slices.Contains([]string{"", "0", "false"}, getenv("CI"))
}

// EncodeUnreadable answers an event that could not be decoded. It denies with a reason, unless the rules
// say otherwise. Without rules, how is "".
func (a *Adapter) EncodeUnreadable(how gate.OnFailure, err error) Output {
	if how == gate.OnFailureNeutral {
		return a.Encode(Event{}, Answer{Verdict: Neutral})
	}
	return a.EncodeFailure(fmt.Sprintf(UndecidedText+", so the answer is no: %s; tell the person who runs you that gavel may be too old for this client.", strings.TrimRight(err.Error(), ".")))
}
