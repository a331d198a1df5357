package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/shell"
	"github.com/gavel-mcp/gavel/validators/document"
)

// beforeUse decides about the use of a tool.
func (d *decision) beforeUse(ctx context.Context) (Answer, error) {
	if d.Instance != "" && len(d.rules.Transcripts) > 0 {
		return d.beforeOwnMove(ctx)
	}
	if !d.rules.Gates.HasBuiltin() {
		return Answer{}, nil
	}
	if d.Unknown {
		return d.answerUnknown(), nil
	}
	uses := d.match()
	if len(uses) == 0 {
		return Answer{}, nil
	}
	recording := slices.DeleteFunc(slices.Clone(uses), func(u gatedUse) bool { return u.Unknown != "" || u.Gate.IsCheckOnly() })
	if len(recording) > 1 {
		var names []string
		for _, u := range recording {
			names = append(names, d.rules.Gates.Describe(u.Gate.Tool))
		}
		return Refuse(d.Event, fmt.Sprintf("This use of %s does several things that have gates of their own: %s. Do one at a time.", d.Tool, strings.Join(names, "; "))), nil
	}
	if err := d.open(ctx); err != nil {
		return Answer{}, err
	}
	var at gateState // the place of the gate that records
	for _, u := range uses {
		if u.Unknown != "" {
			continue
		}
		entered, reason, err := d.findGateState(ctx, u)
		switch {
		case err != nil || reason != "":
		case !u.Gate.IsCheckOnly():
			at = entered
		case !u.Gate.Allows(entered.Position):
			reason, err = d.refuseCall(ctx, u, entered)
		}
		if err != nil || reason != "" {
			return Refuse(d.Event, reason), err
		}
	}
	if a, err := d.decideUnknown(ctx, uses); err != nil || a.Verdict != "" || len(recording) == 0 {
		return a, err
	}
	return d.beginCall(ctx, recording[0], at)
}

// decideUnknown decides about a shell line of which it is unclear whether gates apply to it. It returns no verdict
// if their states allow the line and nothing needs recording.
func (d *decision) decideUnknown(ctx context.Context, uses []gatedUse) (a Answer, err error) {
	for _, u := range uses {
		if u.Unknown == "" || u.Gate.Unknown == gate.UnknownLineAllow {
			continue
		}
		at, reason, err := d.findGateState(ctx, u)
		if err != nil {
			return a, err
		}
		switch {
		case reason != "":
		case !u.Gate.Allows(at.Position):
			reason = d.explain(d.rules.Gates.Refuse(u.Gate, at.definition, at.Position, d.principal.Role, mayUse), at.Position)
		case u.Gate.IsCheckOnly():
			continue
		}
		verdict := Ask
		if u.Gate.Unknown == gate.UnknownLineDeny {
			verdict = Deny
		}
		if a.Verdict == "" || verdict == Deny && a.Verdict == Ask {
			text := fmt.Sprintf("It is unclear whether this line involves %s: %s %s", u.Gate.Uses(), u.Unknown, reason)
			a = Answer{Verdict: verdict, Reason: strings.TrimSpace(text)}
		}
	}
	return a, nil
}

// answerUnknown decides about a tool that the adapter does not know: it may be a shell.
func (d *decision) answerUnknown() Answer {
	reason := fmt.Sprintf("gavel does not know the tool %.80q of %s, so it cannot tell which gates apply. Use another tool. Operators can update gavel, or set hooks.unknownTools.", d.Tool, d.Client)
	switch d.rules.Hooks.UnknownTools {
	case gate.UnknownNeutral:
		return Answer{}
	case gate.UnknownDeny:
		return Answer{Verdict: Deny, Reason: reason}
	default:
		return Answer{Verdict: Ask, Reason: reason}
	}
}

// gatedUse is the use of a tool as one gate sees it.
type gatedUse struct {
	gate.Match
	// named is the gate with a name for this use, for messages.
	named gate.Gate
	// site is where the use acts; problem is why that is unknown.
	site    site
	problem string
	// settles reports that the end of the use shows how the gated command ended.
	settles bool
}

// match returns the gates that apply, or may apply, to the use.
func (d *decision) match() (uses []gatedUse) {
	if d.Builtin == "" || d.Unknown {
		return nil
	}
	script := shell.Script{Whole: -1}
	if d.Builtin == gate.BuiltinShell {
		script = shell.Read(d.Command)
	}
	use := NewUse(d.Event, script)
	for _, m := range d.rules.Gates.Match(use) {
		u := gatedUse{Match: m, named: m.Gate, settles: m.IsConclusive(use)}
		if name := d.nameUse(m, script); name != "" {
			u.named = m.Gate.Name(name)
		}
		u.site, u.problem = d.siteOfMatch(m, script)
		uses = append(uses, u)
	}
	return uses
}

// maxNamed limits how much of a use a sentence quotes, in bytes.
const maxNamed = 80

// nameUse returns the name of the use for messages: the gated file, or else the command, the first file or
// the address.
func (d *decision) nameUse(m gate.Match, script shell.Script) string {
	text := d.URL
	switch {
	case len(m.Anchored) > 0 && m.Gate.Builtin != gate.BuiltinShell:
		text = d.nameFile(m.Anchored[0].Name)
	case len(m.Commands) > 0:
		var words []string
		for _, word := range script.Commands[m.Commands[0]].Words {
			words = append(words, word.Text)
		}
		text = strings.Join(words, " ")
	case len(d.Paths) > 0:
		text = d.nameFile(d.Paths[0])
	}
	text = strings.Map(func(r rune) rune {
		if r == '`' || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxNamed {
		text = strings.ToValidUTF8(text[:maxNamed], "") + "..."
	}
	return text
}

// nameFile returns a file's name relative to the project, if it is inside.
func (d *decision) nameFile(name string) string {
	name = cleanPath(name)
	for _, folder := range []string{cleanPath(d.project()), d.projectAt(d.project()).Root} {
		name = strings.TrimPrefix(name, folder+"/")
	}
	return name
}

// refuseCall records a use that the state does not allow, and returns the reason.
func (d *decision) refuseCall(ctx context.Context, u gatedUse, at gateState) (reason string, err error) {
	reason, err = d.record(ctx, u, at)
	if err == nil && reason == "" { // the workflow has moved since
		d.undo(ctx)
		reason = fmt.Sprintf("The workflow %s (%s) has moved since. Try again.", at.Workflow, at.ID)
	}
	return reason, err
}

// beginCall has a use judged and recorded before it happens. If a line contains more than the gated
// command, its result does not show how the command ended. Such a line is not recorded, and it is refused
// if an action must be performed before the call.
func (d *decision) beginCall(ctx context.Context, u gatedUse, at gateState) (a Answer, err error) {
	var reason string
	if u.Gate.Action != "" {
		if err := d.hear(ctx, at.Position); err != nil {
			return a, err
		}
	}
	switch g := u.Gate; {
	case u.settles || g.Success == "" && g.Error == "":
		reason, err = d.record(ctx, u, at)
	case !g.Allows(at.Position):
		reason, err = d.refuseCall(ctx, u, at)
	case g.IsCheckOnlyBefore():
		return Answer{Context: fmt.Sprintf("This line does not count as %s, because its result may be that of something else. %s", g.Uses(), explainRunAlone(g))}, nil
	default:
		reason = fmt.Sprintf("%s was not run: the result of this line may be that of something else. %s", u.named.Uses(), explainRunAlone(g))
	}
	if err != nil || reason != "" {
		return Refuse(d.Event, strings.TrimSpace(reason+" "+d.unheard)), err
	}
	return Answer{}, nil
}

// explainRunAlone explains how to run a gated command so that its result counts.
func explainRunAlone(g gate.Gate) string {
	return fmt.Sprintf("Run %s alone: without other commands, options that change its effect, or a pipe (`set -o pipefail &&` before it allows a pipe).", g.Uses())
}

// gateState is the state of the workflow that a gate uses.
type gateState struct {
	engine.Position
	definition *workflow.Definition
	// wait is the message for any use other than the open one; "" if no call is open.
	wait string
}

// findGateState finds the instance of a gate. While it has an open call, other uses are refused, because the state
// belongs to a use that has not ended. reason is why the gate cannot be used, or "".
func (d *decision) findGateState(ctx context.Context, u gatedUse) (at gateState, reason string, err error) {
	if u.problem != "" {
		return at, u.problem, nil
	}
	var refusal *gate.Refusal
	if at.Position, refusal, err = d.find(ctx, u.site, u.Gate.Workflow, u.named.Uses(), u.Gate.Start); err != nil {
		return at, "", err
	}
	if refusal == nil {
		stored, definition, err := d.engine.LoadDefinition(ctx, ruleReader, engine.RightRead, at.Workflow, at.Version)
		if err != nil {
			return at, "", err
		}
		at.definition, refusal = definition, u.named.RefuseForeign(at.Position, stored.Operator, definition)
	}
	if refusal != nil {
		return at, d.explain(*refusal, at.Position), nil
	}
	open, err := d.findOpen(ctx, &at)
	if err != nil || open == nil {
		return at, "", err
	}
	wait := fmt.Sprintf("You began to %s, and no end of it was reported yet. Until then, the workflow %s (%s) blocks all other uses. Wait for the end. If none is reported by %s, the outcome counts as unknown, and a person must decide.",
		d.rules.Gates.Describe(open.Tool), at.Workflow, at.ID, open.Deadline.UTC().Format(time.RFC3339))
	if u.Gate.IsCheckOnly() {
		return at, wait, nil
	}
	if call, err := d.findCall(ctx, at.ID); err != nil || call != open.CallID {
		return at, wait, err
	}
	at.wait = wait
	return at, "", nil
}

// findCall returns the id of the call that this use began, or "".
func (d *decision) findCall(ctx context.Context, id string) (call string, err error) {
	if key := d.key(); key != "" {
		call, err = d.engine.FindCall(ctx, d.principal, id, key)
	}
	if engine.CodeOf(err) == engine.CodeUnknownCall {
		err = nil
	}
	return call, err
}

// findOpen returns the open call of an instance, or nil. It settles a call whose deadline has passed.
func (d *decision) findOpen(ctx context.Context, at *gateState) (*engine.CallSummary, error) {
	for try := 0; ; try++ {
		status, err := d.engine.Status(ctx, d.principal, at.ID)
		if err != nil {
			return nil, err
		}
		at.Position = status.Position
		i := slices.IndexFunc(status.Calls, func(call engine.CallSummary) bool { return !call.Unknown })
		if i < 0 {
			return nil, nil //nolint:nilnil // no open call is a valid result
		}
		if try > 0 || time.Now().Before(status.Calls[i].Deadline) {
			return &status.Calls[i], nil
		}
		if _, err := d.engine.SettleOverdue(ctx); err != nil {
			return nil, err
		}
	}
}

// record asks the engine to begin the call. If the engine refuses, reason is why. Otherwise reason is "", the use
// may happen, and undo reverts the record.
func (d *decision) record(ctx context.Context, u gatedUse, at gateState) (reason string, err error) {
	g := u.Gate
	values := d.values()
	r, err := d.engine.BeginCall(ctx, d.principal, engine.CallRequest{
		ID: at.ID, Gate: g.Tool, Upstream: d.Client, Tool: d.Tool, Arguments: values.Arguments.Raw(),
		States: g.States, Action: g.Action, Data: g.DataOf(values), Success: g.Success, Error: g.Error,
		Bound: g.Bind, MaxCalls: g.MaxCalls, MaxArguments: g.MaxArguments, Repeatable: g.Repeatable, Timeout: callTimeout, Key: d.key(),
	})
	switch {
	case at.wait != "" && engine.CodeOf(err) == engine.CodeKeyReused:
		return at.wait, nil
	case err != nil:
		return "", err
	case at.wait != "" && r.Answer == engine.CallKnown && r.Outcome == "": // this is the open use itself
		return "", nil
	}
	var refusal gate.Refusal
	switch r.Answer {
	case engine.CallGo:
		d.undo = func(ctx context.Context) {
			if _, err := d.engine.SettleCall(ctx, d.principal, engine.SettleRequest{ID: at.ID, CallID: r.CallID, Outcome: engine.CallNotSent}); err != nil {
				d.decider.Logger.ErrorContext(ctx, "a use that was denied stays recorded as open; after its deadline it counts as unknown", "call", r.CallID, "error", err)
			}
		}
		return "", nil
	case engine.CallParked:
		refusal = u.named.RefuseParked()
		if r.Review != nil {
			refusal.Hint = fmt.Sprintf("They see it with gavel review show %s. Do the same again once it is approved.", r.Review.ID)
		}
	case engine.CallKnown:
		refusal = u.named.RefuseKnown(r.Outcome)
	default:
		_, definition, err := d.engine.LoadDefinition(ctx, ruleReader, engine.RightRead, r.Workflow, r.Version)
		if err != nil {
			return "", err
		}
		refusal = d.rules.Gates.RefuseCall(u.named, definition, r, d.principal.Role, mayUse)
	}
	return d.explain(refusal, r.Position), nil
}

// values returns the data for the gate's templates. For a shell, it contains only the line: the other
// fields differ each time an agent repeats the same request.
func (d *decision) values() gate.Values {
	arguments := struct {
		Tool    string          `json:"tool"`
		Command string          `json:"command,omitempty"`
		Paths   []string        `json:"paths,omitempty"`
		URL     string          `json:"url,omitempty"`
		Folder  string          `json:"folder,omitempty"`
		Input   json.RawMessage `json:"input,omitempty"`
	}{d.Tool, d.Command, d.Paths, d.URL, d.Folder, nil}
	if d.Builtin != gate.BuiltinShell {
		arguments.Input = d.Input.Raw()
	}
	raw, err := document.Marshal(arguments)
	if err != nil {
		panic(err) // strings and parsed JSON always encode
	}
	return gate.Values{Arguments: document.ReadTrusted(raw), Principal: gate.PrincipalValue(d.principal), Result: d.Result}
}

// afterUse records how a use ended.
func (d *decision) afterUse(ctx context.Context) (Answer, error) {
	uses := slices.DeleteFunc(d.match(), func(u gatedUse) bool {
		return u.Unknown != "" || u.Gate.IsCheckOnly() || !u.settles && (u.Gate.Success != "" || u.Gate.Error != "")
	})
	if len(uses) != 1 { // a use with several gates was never begun
		return Answer{}, nil
	}
	u := uses[0]
	if u.problem != "" {
		return Answer{}, nil
	}
	if err := d.open(ctx); err != nil {
		return Answer{}, err
	}
	at, refusal, err := d.find(ctx, u.site, u.Gate.Workflow, u.named.Uses(), false)
	if err != nil || refusal != nil {
		return Answer{}, err
	}
	status, err := d.engine.Status(ctx, d.principal, at.ID)
	if err != nil {
		return Answer{}, err
	}
	begun, err := d.findCall(ctx, at.ID)
	if err != nil {
		return Answer{}, err
	}
	i := slices.IndexFunc(status.Calls, func(call engine.CallSummary) bool { // without call ids, take the open call
		return call.Tool == u.Gate.Tool && (call.CallID == begun || d.CallID == "" && !call.Unknown)
	})
	if i < 0 {
		return Answer{}, nil
	}
	req := engine.SettleRequest{ID: at.ID, CallID: status.Calls[i].CallID, Outcome: outcomes[d.Ended], Result: d.Result.Raw()}
	if req.Outcome == "" {
		req.Outcome = engine.CallUnknown
	}
	if u.Gate.EndAction(req.Outcome) != "" {
		req.Data = u.Gate.ResultOf(d.values())
	}
	r, err := d.engine.SettleCall(ctx, d.principal, req)
	if err != nil || r.Replayed {
		return Answer{}, err
	}
	return Answer{Context: strings.TrimSpace(gate.DescribeRefusedMove(r) + " " + d.describe(ctx, r.Position))}, nil
}

var outcomes = map[Ended]engine.CallOutcome{EndedOK: engine.CallOK, EndedFailed: engine.CallError, EndedNotRun: engine.CallNotSent}
