package chain

import (
	"fmt"

	"github.com/gavel-mcp/gavel/internal/upstream"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// maxInputs limits how often one call may ask for input.
const maxInputs = 16

// Input is what a server requires before it does a call, and the responses it gets.
type Input struct {
	// Requests are the server's requests, by its own names; Responses are the answers.
	Requests  map[string]any `json:"inputRequests,omitempty"`
	Responses map[string]any `json:"inputResponses,omitempty"`
	// State is returned to the server unchanged.
	State any `json:"requestState,omitempty"`
}

// requireInput returns the outcome of a call whose server asks for input. given is the input already sent
// for that call, or nil. A person can only fill in forms. A server that requests nothing and only wants its
// state back gets it back, but not twice in a row. Failures must not have CodeInput, which would make the
// call again.
func requireInput(given *Input, result map[string]any) Outcome {
	fail := func(format string, args ...any) Outcome {
		return Outcome{Err: &StepError{Code: string(upstream.CodeProtocol), Message: fmt.Sprintf(format, args...), Final: true, MayHaveRun: true}}
	}
	in := Input{State: result["requestState"]}
	in.Requests, _ = result["inputRequests"].(map[string]any)
	_, isText := in.State.(string)
	switch again := given != nil && len(given.Responses) == 0; {
	case in.State != nil && !isText:
		return fail("the server's \"requestState\" must be a text, not %s", describeKind(in.State))
	case len(in.Requests) == 0 && in.State == nil:
		return fail("the server asks for unspecified input: \"input_required\" has neither \"inputRequests\" nor \"requestState\"")
	case len(in.Requests) == 0 && again:
		return fail("the server asks for unspecified input twice in a row: \"input_required\" has no \"inputRequests\"")
	}
	for name, value := range in.Requests {
		request, _ := value.(map[string]any)
		if method, _ := request["method"].(string); method != "elicitation/create" {
			return fail("the server asks for input %q with the method %q, which a run cannot answer", script.Clean(name, 40), script.Clean(method, 40))
		}
	}
	if raw, err := document.Marshal(in); err != nil || len(raw) > MaxOutput {
		return fail("the server asks for input with %d bytes; the limit is %d", len(raw), MaxOutput)
	}
	return Outcome{Value: in, Err: &StepError{Code: CodeInput, Message: "the server asks for input", Final: true}}
}

// readInput decodes the recorded result of requireInput.
func readInput(recorded any) *Input {
	if in, ok := recorded.(Input); ok {
		return &in
	}
	members, _ := recorded.(map[string]any)
	in := &Input{State: members["requestState"]}
	in.Requests, _ = members["inputRequests"].(map[string]any)
	return in
}

// answer returns the input that a person gave. output holds the content of each form by the name of its
// request. With a single request, it may be the content itself. Requests without content are declined; if
// accepted is false, all are declined.
func (in *Input) answer(accepted bool, output any) *Input {
	out := &Input{State: in.State, Responses: map[string]any{}}
	contents, _ := output.(map[string]any)
	for name := range in.Requests {
		content, named := contents[name]
		if !named && len(in.Requests) == 1 {
			content, named = output, true
			if output == nil {
				content = map[string]any{}
			}
		}
		out.Responses[name] = map[string]any{"action": "decline"}
		if accepted && named {
			out.Responses[name] = map[string]any{"action": "accept", "content": content}
		}
	}
	return out
}
