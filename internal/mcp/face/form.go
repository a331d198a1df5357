package face

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

const (
	// formKey names the form among the inputs that a call requests.
	formKey = "review"
	// Limits on the agent's data and on the judge's texts in a form, in bytes.
	maxFormData = 4000
	maxFormText = 1000
)

// formSchema has no default: clients fill in defaults, and no one may approve just by pressing enter.
var formSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"decision":{"type":"string","title":"Decision","description":"approve makes the move, reject refuses it.","enum":["approve","reject"]},` +
	`"reason":{"type":"string","title":"Reason","description":"Why, in one sentence. It is recorded, and the agent reads it.","minLength":1,"maxLength":1000}},` +
	`"required":["decision","reason"]}`)

// reviewForm returns the form that asks a person about a review. Text from others comes last, as JSON or on one line,
// so that it cannot imitate gavel's own text.
func reviewForm(v engine.ReviewView) mcp.ElicitationParams {
	var b strings.Builder
	fmt.Fprintf(&b, "An agent requests %q in the workflow %q (instance %s), and a person must decide.\n", v.Action, v.Workflow, v.Instance)
	fmt.Fprintf(&b, "From %q", v.From)
	if v.Target != "" {
		fmt.Fprintf(&b, " to %q", v.Target)
	}
	b.WriteString(".\n")
	if v.Description != "" {
		fmt.Fprintf(&b, "Purpose of the action: %s\n", truncateText(v.Description, maxFormText))
	}
	fmt.Fprintf(&b, "Why the judge does not approve it: %s\n", truncateText(operation.DescribeRefusal(v.Escalation.Decision), maxFormText))
	fmt.Fprintf(&b, "Full review: gavel review show %s\n", v.ID)
	fmt.Fprintf(&b, "The agent's data: %s", truncateText(string(v.Data), maxFormData))
	return mcp.ElicitationParams{Message: b.String(), RequestedSchema: formSchema}
}

// truncateText returns text for a person's screen: on one line, without characters that a terminal would interpret or
// hide. Text longer than most bytes is cut, and a note says how many bytes are missing.
func truncateText(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.In(r, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp), r == utf8.RuneError:
			return utf8.RuneError
		default:
			return r
		}
	}, s)
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s [%d more bytes are not shown]", s[:cut], len(s)-cut)
}

// formAnswer is a person's answer to a form. An empty decision means that there is none.
type formAnswer struct {
	decision judge.Outcome
	reason   string
}

var errUnusable = errors.New("the answer does not match the form")

// readForm accepts exactly what the form allows: an approval is an explicitly chosen word, with a reason.
func readForm(raw json.RawMessage) (formAnswer, error) {
	if document.CheckJSON(raw, document.Limits{Bytes: 64 << 10, Depth: 8}) != nil {
		return formAnswer{}, errUnusable
	}
	var reply, content map[string]json.RawMessage
	if json.Unmarshal(raw, &reply) != nil {
		return formAnswer{}, errUnusable
	}
	switch textOf(reply["action"]) {
	case string(mcp.ElicitationResponseActionDecline):
		return formAnswer{judge.Reject, "The person who was asked declined."}, nil
	case string(mcp.ElicitationResponseActionCancel):
		return formAnswer{}, nil
	case string(mcp.ElicitationResponseActionAccept):
	default:
		return formAnswer{}, errUnusable
	}
	if len(reply["content"]) == 0 || json.Unmarshal(reply["content"], &content) != nil || len(content) != 2 {
		return formAnswer{}, errUnusable
	}
	reason := textOf(content["reason"])
	out := formAnswer{judge.Outcome(textOf(content["decision"])), strings.TrimSpace(truncateText(reason, maxFormText))}
	if out.decision != judge.Approve && out.decision != judge.Reject || !strings.ContainsFunc(reason, isVisible) {
		return formAnswer{}, errUnusable
	}
	return out, nil
}

func isVisible(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) }

// textOf returns the value of a JSON string, "" for any other value.
func textOf(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// hasForms reports whether a client can show forms to a person. Elicitation without a mode means forms.
func hasForms(c *mcp.ClientCapabilities) bool {
	return c != nil && c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}
