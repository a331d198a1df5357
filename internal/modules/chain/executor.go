package chain

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// Upstreams is the only way to other servers; *upstream.Manager implements it.
type Upstreams interface {
	// List returns the pinned items that the principal may use.
	List(p engine.Principal, kind upstream.Kind) []upstream.Item
	Call(ctx context.Context, p engine.Principal, req upstream.Request) (upstream.Reply, error)
}

// Completer has a configured model answer the messages of a prompt, within the budget of the principal.
type Completer interface {
	CompletePrompt(ctx context.Context, p engine.Principal, model string, messages []Message) (string, error)
}

// Message is one message of a prompt; Role is user or assistant.
type Message struct{ Role, Text string }

// Executor performs the commands of runs: calls through the upstreams, moves of workflows, model completions,
// and scripts in the sandbox. It uses the rights of the principal for which the run acts. Nil fields
// disable the steps that need them.
type Executor struct {
	Upstreams Upstreams
	Scripts   script.Runner
	Workflows Workflows
	Models    Completer
	// AsksPeople reports that a person can be asked for input that a server requires.
	AsksPeople bool
	// Rights returns the principal that a command acts for, with its current rights; the error reports that
	// it no longer has any. It is called before every step, and again after a step has waited. If nil, the
	// rights from the start of the run apply.
	Rights func(ctx context.Context, c Command) (engine.Principal, error)
}

// ErrRightsUnknown is returned by Executor.Rights if the rights cannot be read at the moment. The step waits
// until they can.
var ErrRightsUnknown = errors.New("the rights cannot be read")

// Do implements Effects.
func (d Executor) Do(ctx context.Context, c Command) Outcome {
	if o := d.authorize(ctx, &c); o.Err != nil {
		return o
	}
	switch c.Op {
	case OpCall:
		return d.call(ctx, c)
	case OpTest:
		return d.test(ctx, c)
	case OpMove:
		return d.move(ctx, c)
	case OpComplete:
		return d.complete(ctx, c)
	case OpSleep, OpWait, OpAsk:
	}
	return refuse(CodeNotAllowed, "this run cannot perform the operation %s", c.Op)
}

// authorize sets the current rights on a command, or fails if there are none left.
func (d Executor) authorize(ctx context.Context, c *Command) Outcome {
	if d.Rights == nil {
		return Outcome{}
	}
	now, err := d.Rights(ctx, *c)
	for ; errors.Is(err, ErrRightsUnknown); now, err = d.Rights(ctx, *c) { // this does not mean that the rights are gone
		select {
		case <-time.After(maxPoll):
			continue
		case <-attemptOf(ctx).stop:
		case <-ctx.Done():
		}
		return Outcome{Err: &StepError{Code: CodeTimeout, Message: fmt.Sprintf("the rights of %s could not be read: %v", c.Principal.ID, err)}}
	}
	if err != nil {
		return refuse(CodeNotAllowed, "%s, the principal of the run, no longer has the rights to continue: %v", c.Principal.ID, err)
	}
	c.Principal = now
	return Outcome{}
}

// refuse returns a final error outcome: retrying cannot change it.
func refuse(code, format string, args ...any) Outcome {
	return Outcome{Err: &StepError{Code: code, Message: fmt.Sprintf(format, args...), Final: true}}
}

// The members of _meta in every call: which execution of a step makes the call, and the idempotency key by
// which a server recognises a repeated call.
const (
	metaStep = "io.github.gavel-mcp/step"
	metaKey  = "gavel/idempotencyKey"
)

// stepMeta identifies to a server the execution of a step that calls it.
type stepMeta struct {
	Run       string `json:"run"`
	Step      string `json:"step"`
	Iteration []int  `json:"iteration,omitempty"` // index in each enclosing loop, outermost first
	Attempt   int    `json:"attempt"`
}

var (
	iterationPart = regexp.MustCompile(`#([0-9]+)/`)
	attemptPart   = regexp.MustCompile(`~([0-9]+)(?:\+[0-9]+)?$`)
)

func describeExecution(c Command) stepMeta {
	m := stepMeta{Run: c.Run, Step: c.Step, Attempt: 1}
	for _, part := range iterationPart.FindAllStringSubmatch(c.Key, -1) {
		n, _ := strconv.Atoi(part[1])
		m.Iteration = append(m.Iteration, n)
	}
	if part := attemptPart.FindStringSubmatch(c.Key); part != nil {
		m.Attempt, _ = strconv.Atoi(part[1])
	}
	return m
}

// maxKey is the maximum length of an idempotency key; a longer key is replaced by its digest.
const maxKey = 128

func idempotencyKey(run, key string) string {
	return digestLong(run+"/"+key, maxKey)
}

// digestLong returns key, or its digest if key has more than most bytes.
func digestLong(key string, most int) string {
	if len(key) > most {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:])
	}
	return key
}

// requests maps the kind of a step to the method and kind of its request.
var requests = map[Kind]upstream.Request{
	KindTool:     {Method: "tools/call", Kind: upstream.KindTool},
	KindResource: {Method: "resources/read", Kind: upstream.KindResource},
	KindPrompt:   {Method: "prompts/get", Kind: upstream.KindPrompt},
}

// call makes a call. A parked call is made once a person has approved it. A call that its gate has already
// recorded is not sent again.
func (d Executor) call(ctx context.Context, c Command) Outcome {
	key := idempotencyKey(c.Run, c.Key)
	for {
		reply, err := d.send(ctx, c, key)
		failure, known := errors.AsType[*upstream.Error](err)
		switch {
		case known && failure.Code == upstream.CodeCallParked && d.Workflows != nil && failure.Standing.ReviewID != "":
			review := failure.Standing.ReviewID
			if _, o := d.awaitApproval(ctx, &c, review); o.Err != nil {
				return o
			}
			key = idempotencyKey(c.Run, c.Key+"+"+review) // the previous key belongs to the parked call
		case known && failure.Code == upstream.CodeCallRepeated && d.Workflows != nil:
			if o, settled := readRecord(failure); settled {
				return o
			}
			if o := d.await(ctx, &c, func() (bool, error) {
				now, err := d.Workflows.Status(ctx, c.Principal, failure.Standing.ID)
				return !slices.ContainsFunc(now.Calls, func(call engine.CallSummary) bool { return call.CallID == failure.Standing.CallID }), err
			}); o.Err != nil {
				return o
			}
		default:
			return d.readAnswer(c, reply, err)
		}
	}
}

// readRecord returns the outcome that the gate recorded for a call made before gavel stopped. The answer
// itself is lost.
func readRecord(failure *upstream.Error) (o Outcome, settled bool) {
	switch failure.Outcome {
	case engine.CallOK:
		return Outcome{}, true
	case engine.CallError, engine.CallNotSent:
		return Outcome{Err: &StepError{Code: CodeToolError, Message: strings.TrimSpace(failure.Message + " " + failure.Hint), MayHaveRun: failure.Outcome == engine.CallError}}, true
	default:
		return Outcome{}, false
	}
}

func (d Executor) send(ctx context.Context, c Command, key string) (upstream.Reply, error) {
	params := map[string]any{"_meta": map[string]any{metaStep: describeExecution(c), metaKey: key}}
	if c.Kind != KindResource {
		params["arguments"] = c.Arguments
		if c.Arguments == nil {
			params["arguments"] = map[string]any{}
		}
	}
	if c.Input != nil {
		params["inputResponses"] = c.Input.Responses
		if c.Input.State != nil {
			params["requestState"] = c.Input.State
		}
	}
	raw, err := document.Marshal(params)
	if err != nil {
		return upstream.Reply{}, &upstream.Error{Code: upstream.CodeInvalid, Message: "The arguments are not JSON: " + err.Error() + "."}
	}
	req := requests[c.Kind]
	req.Upstream, req.Name, req.Params = c.Server, c.Name, raw
	if renew := attemptOf(ctx).renew; renew != nil {
		req.Progress = func(json.RawMessage) { renew() }
	}
	if d.AsksPeople {
		req.Capabilities = json.RawMessage(`{"elicitation":{}}`)
	}
	return d.Upstreams.Call(ctx, c.Principal, req)
}

func (d Executor) readAnswer(c Command, reply upstream.Reply, err error) Outcome {
	switch failure, known := errors.AsType[*upstream.Error](err); {
	case known && failure.Code == upstream.CodeUnknown: // the upstream's message does not name the item
		return refuse(string(failure.Code), "%s cannot use the %s %s of the server %s: it is not configured, not pinned or not allowed; an operator can check with gavel upstream test %s", c.Principal.ID, c.Kind, quoteName(c.Name), quoteName(c.Server), c.Server)
	case known:
		return Outcome{Err: &StepError{
			Code: string(failure.Code), Message: strings.TrimSpace(failure.Message + " " + failure.Hint),
			Final: !isTransient[failure.Code] && !failure.Retryable, MayHaveRun: failure.MayHaveRun,
		}}
	case err != nil:
		return Outcome{Err: &StepError{Code: CodeTimeout, Message: "the call was abandoned: " + err.Error(), MayHaveRun: true}}
	case len(reply.Error) > 0:
		answer, _ := decodeJSON(reply.Error).(map[string]any)
		text, _ := answer["message"].(string)
		return Outcome{Err: &StepError{Code: CodeServerError, Message: "the server answered with an error: " + script.Clean(text, maxServerText), MayHaveRun: true}}
	}
	return d.readReply(c, decodeJSON(reply.Result))
}

// isTransient holds the failures after which the same call may succeed.
var isTransient = map[upstream.Code]bool{
	upstream.CodeUnavailable: true, upstream.CodeBusy: true, upstream.CodeTimeout: true, upstream.CodeLost: true, upstream.CodeProtocol: true,
}

// maxServerText limits how many bytes of a server's message an error repeats.
const maxServerText = 2 << 10

// readReply extracts the output from a result. For a tool, that is the structured content, or else the
// text. For a resource it is the text, and for a prompt the messages. Several parts, or a part without
// text, stay a list. Where the output is used as text, the text of its parts is used.
func (d Executor) readReply(c Command, result any) Outcome {
	reply, ok := result.(map[string]any)
	if !ok {
		return Outcome{Err: &StepError{Code: string(upstream.CodeProtocol), Message: "the server answered with " + describeKind(result) + ", not with a result", MayHaveRun: true}}
	}
	if reply["resultType"] == "input_required" {
		return requireInput(c.Input, reply)
	}
	if other, _ := reply["resultType"].(string); other != "" && other != "complete" {
		return Outcome{Err: &StepError{Code: string(upstream.CodeProtocol), Message: "the server answered with a result of the unsupported type " + quoteName(other), MayHaveRun: true}}
	}
	switch c.Kind {
	case KindResource:
		return withText(Outcome{Value: joinParts(reply["contents"])}, reply["contents"])
	case KindPrompt:
		return withText(Outcome{Value: reply["messages"]}, reply["messages"])
	case KindTool, KindParallel, KindLoop, KindForEach, KindSwitch, KindWait, KindWorkflow:
	}
	if failed, _ := reply["isError"].(bool); failed {
		text := cmp.Or(strings.Join(listTexts(reply["content"]), " "), "the tool failed without a reason")
		return Outcome{Err: &StepError{Code: CodeToolError, Message: script.Clean(text, maxServerText), MayHaveRun: true}}
	}
	structured, ok := reply["structuredContent"]
	if !ok {
		return withText(Outcome{Value: joinParts(reply["content"])}, reply["content"])
	}
	o := Outcome{Value: structured}
	if object, _ := structured.(map[string]any); len(object) == 1 {
		if value, ok := object[wrapKey]; ok && d.isWrapped(c) {
			o.Value, o.Wrapped = value, true
		}
	}
	return withText(o, reply["content"])
}

// wrapKey is the only member of the object in which SDKs wrap a result that is not an object.
const wrapKey = "result"

// isWrapped reports whether the pinned outputSchema of a tool describes such a wrapper.
func (d Executor) isWrapped(c Command) bool {
	for _, item := range d.Upstreams.List(c.Principal, upstream.KindTool) {
		if item.Upstream == c.Server && item.Name == c.Name {
			return isWrapper(ReadOutputSchema(item.Raw))
		}
	}
	return false
}

// ReadOutputSchema returns the outputSchema from the definition of a tool, or nil.
func ReadOutputSchema(tool json.RawMessage) json.RawMessage {
	var definition struct {
		OutputSchema json.RawMessage `json:"outputSchema"`
	}
	_ = json.Unmarshal(tool, &definition) // it was validated when it was pinned
	return definition.OutputSchema
}

func isWrapper(outputSchema json.RawMessage) bool {
	var output struct{ Properties map[string]json.RawMessage }
	_ = json.Unmarshal(outputSchema, &output) // an invalid schema has no wrapper
	properties := output.Properties
	_, has := properties[wrapKey]
	return has && len(properties) == 1
}

// withText sets the text of an outcome to the text of its parts, unless it equals the value.
func withText(o Outcome, parts any) Outcome {
	text := strings.Join(listTexts(parts), "\n")
	if same, err := formatText(o.Value); err != nil || same != text {
		o.Text = text
	}
	return o
}

// listTexts returns the texts of all parts that have one: contents, resources and messages.
func listTexts(parts any) (texts []string) {
	list, isList := parts.([]any)
	if !isList {
		list = []any{parts}
	}
	for _, item := range list {
		part, _ := item.(map[string]any)
		if text, _ := part["text"].(string); text != "" {
			texts = append(texts, text)
		}
		for _, inner := range []string{"content", "resource"} { // the parts of a message, and an embedded resource
			if part[inner] != nil {
				texts = append(texts, listTexts(part[inner])...)
			}
		}
	}
	return texts
}

// joinParts returns the text of a single part, or all parts.
func joinParts(parts any) any {
	if list, ok := parts.([]any); ok && len(list) == 1 {
		if part, ok := list[0].(map[string]any); ok {
			if text, ok := part["text"].(string); ok {
				return text
			}
		}
	}
	return parts
}

// test evaluates a condition in the sandbox.
func (d Executor) test(ctx context.Context, c Command) Outcome {
	fail := func(message string) Outcome {
		return Outcome{Err: &StepError{Code: CodeCondition, Message: message, Final: true}}
	}
	if d.Scripts == nil {
		return fail("no sandbox is available for the script")
	}
	raw, err := document.Marshal(c.Arguments)
	if err != nil {
		return fail("the variables are not JSON: " + err.Error())
	}
	reply, err := d.Scripts.Run(ctx, script.Batch{
		Caller: c.Principal.ID, Owner: script.Owner{ID: c.Principal.ID},
		Routes: []script.Script{{Name: c.Key, Kind: script.Condition, Source: c.Source}}, Data: json.RawMessage(raw),
	})
	switch {
	case err != nil:
		return Outcome{Err: &StepError{Code: CodeCondition, Message: err.Error()}}
	case reply.RouteFault != nil:
		return fail("the script of the condition failed: " + reply.RouteFault.Detail)
	}
	return Outcome{Value: reply.Route == 0}
}

// complete has a model answer the messages of a prompt.
func (d Executor) complete(ctx context.Context, c Command) Outcome {
	if d.Models == nil {
		return refuse(CodeNotAllowed, "no model is available to complete the prompt")
	}
	messages, problem := readMessages(c.Arguments)
	if problem != "" {
		return refuse(CodeNotAllowed, "the prompt cannot be completed: %s", problem)
	}
	text, err := d.Models.CompletePrompt(ctx, c.Principal, c.Name, messages)
	if err != nil {
		return Outcome{Err: &StepError{Code: CodeModel, Message: err.Error()}}
	}
	return Outcome{Value: text}
}

// readMessages reads the result of prompts/get. Models get only text.
func readMessages(value any) (out []Message, problem string) {
	list, _ := value.([]any)
	for i, item := range list {
		message, _ := item.(map[string]any)
		content, _ := message["content"].(map[string]any)
		role, _ := message["role"].(string)
		text, isText := content["text"].(string)
		if !isText || content["type"] != "text" || role != "user" && role != "assistant" {
			return nil, fmt.Sprintf("message %d is not text from the user or the assistant", i+1)
		}
		out = append(out, Message{role, text})
	}
	if len(out) == 0 {
		return nil, "it has no messages"
	}
	return out, ""
}
