package llm

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gavel-mcp/gavel/validators/document"
)

// complaint is an endpoint's error message, in any of the known formats.
type complaint struct {
	status           int // HTTP status, or the status in the body of a 200
	message          string
	code, kind, more string // code, type, and nested codes
	param            string
}

func classifyResponse(status int, header http.Header, body []byte, now time.Time) *Error {
	body = bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(body), []byte("\ufeff")))
	c := complaint{status: status}
	switch v, err := parseJSON(body); {
	case err != nil:
		c.message = plainText(body)
	default:
		c.read(v)
	}
	return c.newError(status, header, now)
}

func classifyObject(status int, header http.Header, o document.JSON, now time.Time) *Error {
	c := complaint{status: status}
	c.read(o)
	return c.newError(status, header, now)
}

func plainText(body []byte) string {
	if bytes.HasPrefix(body, []byte("<")) || len(body) > 2000 {
		return ""
	}
	return string(body)
}

// read reads the common formats: {"error": {...}}, {"error": "..."}, a list of these, {"message": ...},
// {"detail": ...}.
func (c *complaint) read(v document.JSON) {
	switch v.Kind() {
	case document.Array:
		c.read(v.At("0"))
	case document.String:
		c.message = strings.TrimSpace(c.message + " " + v.Text())
	case document.Object:
		if inner, _ := getMember(v, "error"); isSet(inner) {
			c.read(inner)
			return
		}
		c.readMembers(v)
	}
}

func (c *complaint) readMembers(o document.JSON) {
	for name, v := range o.Members() {
		switch name.Text() {
		case "message", "msg":
			c.message = strings.TrimSpace(c.message + " " + v.Text())
			c.readMembers(v) // Mistral nests here what others put into detail
		case "detail", "metadata":
			c.readDetail(v)
		case "code":
			c.codeOf(v)
		case "type", "status":
			c.kind = strings.TrimSpace(c.kind + " " + v.Text())
		case "param":
			c.param = v.Text()
		case "innererror":
			c.more += " " + v.Get("code").Text()
		}
	}
}

func (c *complaint) codeOf(v document.JSON) {
	s := v.Text()
	switch v.Kind() {
	case document.String:
	case document.Number:
		s = string(v.Raw())
	default:
		return
	}
	if status, err := strconv.Atoi(s); err == nil && status >= 400 && status < 600 {
		if c.status < 400 {
			c.status = status
		}
		return
	}
	c.code = s
}

// readDetail reads FastAPI's detail and OpenRouter's metadata.
func (c *complaint) readDetail(v document.JSON) {
	switch v.Kind() {
	case document.String:
		c.message = strings.TrimSpace(c.message + " " + v.Text())
	case document.Array:
		c.readDetail(v.At("0"))
	case document.Object:
		c.message = strings.TrimSpace(c.message + " " + v.Get("msg").Text() + " " + v.Get("raw").Text())
		c.kind += " " + v.Get("type").Text()
		if loc, _ := getMember(v, "loc"); loc.Kind() == document.Array && loc.Len() > 0 {
			c.param = loc.At(strconv.Itoa(loc.Len() - 1)).Text()
		}
	}
}

func (c *complaint) mentions(texts ...string) bool {
	all := strings.ToLower(c.message + " " + c.code + " " + c.kind + " " + c.more)
	return slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(all, t) })
}

// adviseModel is for an endpoint that knows the path but not the model.
const adviseModel = "check LLM_JUDGE_MODEL: the endpoint does not know this model, or the key may not use it"

// adviseForm is for an endpoint that fails without stating clearly whether the form of the question is the
// cause.
const adviseForm = "check the endpoint's log for the reason; if only the form of the question makes it fail, set --llm-structured to tool, json_object or prompt"

func (c *complaint) newError(status int, header http.Header, now time.Time) *Error {
	e := &Error{Status: status, RetryAfter: retryAfter(header, now)}
	e.Class = c.classify()
	if c.mayRefuseForm(e.Class) {
		e.otherwise, e.Class = e.Class, ClassCapability
	}
	if e.Class == ClassCapability {
		e.Param = c.namedParameter()
	}
	e.Message = c.summary()
	switch {
	case e.Class == ClassUpstream && c.status == 500:
		e.Advice = adviseForm
	case e.Class == ClassNotFound && c.mentions("model"):
		e.Advice = adviseModel
	case e.RetryAfter > 0 && (e.Class == ClassRateLimited || e.Class == ClassOverloaded):
		e.Message += fmt.Sprintf(" (it asks for a pause of %v)", e.RetryAfter.Round(time.Millisecond))
		e.Advice = "wait that long; a decision waits automatically if --llm-deadline leaves enough time"
	}
	return e
}

// classify maps an endpoint's complaint to a class. The order matters: codes, then texts, then the status.
func (c *complaint) classify() Class {
	isRejection := c.status == 400 || c.status == 422 || c.status == 404 || c.status == 405 || c.status == 501
	switch {
	case c.mentions("unexpected endpoint or method"):
		return ClassNotFound
	case c.mentions("content_filter", "responsibleaipolicyviolation", "content management policy", "content_policy", "data_inspection_failed"):
		return ClassFilter
	case c.mentions("json_validate_failed", "tool_use_failed", "failed_generation"):
		return ClassMalformed
	case c.status == 413 || c.status < 500 && c.mentions("context_length_exceeded", "maximum context length", "context length", "context window", "exceed_context_size", "prompt is too long", "input is too long", "too many tokens", "request too large", "string_above_max_length"):
		return ClassTooLong
	case c.status == 402 || c.mentions("insufficient_quota", "exceeded your current quota", "insufficient credits", "insufficient balance", "credit balance", "billing_hard_limit", "quota_exceeded"):
		return ClassQuota
	case c.status != 401 && c.mentions("flagged", "moderation", "invalid_prompt", "usage polic", "usage guideline", "safety", "content violat", "violates our", "violates the"):
		return ClassFilter
	case c.status == 403 && !c.mentions("key", "token", "permission", "auth", "credential", "account", "access", "country", "region", "allowed", "forbidden", "subscription", "billing"):
		return ClassRefusal // a firewall before the endpoint may have rejected the case's text
	case c.status == 401 || c.status == 403 || isRejection && c.mentions("api key not valid", "invalid api key", "incorrect api key", "api_key_invalid", "invalid_api_key", "missing api key"):
		return ClassAuth
	case c.status == 429:
		return ClassRateLimited
	case c.status == 408 || c.status == 499 || c.status == 504 || c.status == 522 || c.status == 524:
		return ClassTimeout
	case c.status == 503 || c.status == 529 || c.status == 500 && c.mentions("overloaded", "loading model"):
		return ClassOverloaded
	case c.status >= 500 && c.status != 501:
		return ClassUpstream
	case isRejection && c.mentions(refusals...) && c.namedParameter() != "":
		return ClassCapability
	case c.status == 404 || c.status == 405 || c.status == 410 || isRejection && c.mentions("model") && c.mentions("not found", "not_found", "does not exist", "not exist", "unknown model", "invalid model", "no such model", "not loaded"):
		return ClassNotFound
	case c.status >= 300 && c.status < 400:
		return ClassConfig
	case c.status >= 400 && c.status < 500:
		// The reason is unknown, so the case's text may be the cause.
		return ClassRefusal
	}
	return ClassUpstream
}

// parameters are the request parameters that endpoints may reject, with the words that they use for them.
// Longer names come first, because one may be part of another.
var parameters = []struct {
	name  string
	words []string
}{
	{"max_completion_tokens", []string{"max_completion_tokens"}},
	{"max_tokens", []string{"max_tokens"}},
	{"parallel_tool_calls", []string{"parallel_tool_calls", "parallel tool"}},
	{"tool_choice", []string{"tool_choice", "tool choice"}},
	{"response_format", []string{"response_format", "response format", "json_schema", "json schema", "json_object", "json mode", "structured output", "output_config"}},
	{"tools", []string{"tools", "tool use", "tool call", "function call", "functions"}},
	{"reasoning_effort", []string{"reasoning_effort", "reasoning effort", "reasoning.effort"}},
	{"chat_template_kwargs", []string{"chat_template_kwargs"}},
	{"enable_thinking", []string{"enable_thinking"}},
	{"thinking", []string{"thinking"}},
	{"reasoning", []string{"reasoning"}},
	{"top_logprobs", []string{"top_logprobs"}},
	{"logprobs", []string{"logprobs"}},
	{"temperature", []string{"temperature"}},
	{"seed", []string{"seed"}},
	{"strict", []string{"'strict'", "\"strict\"", "`strict`"}},
	{"developer", []string{"developer"}},
	{"n", []string{"'n'", "\"n\"", "`n`"}},
	{"response_format", []string{"schema", "schemas", "response_schema", "grammar", "parameter", "parameters", "output_format", "format"}},
}

// refusals are phrases with which endpoints reject a parameter.
var refusals = []string{
	"unsupported", "not support", "n't support", "not permitted", "extra_forbidden", "extra inputs", "unknown", "unrecognized", "unexpected",
	"must be", "should be", "not allowed", "invalid", "not available", "no endpoints found", "only the default", "incompatible", "not implemented", "deprecated", "cannot be used", "not enabled", "requires --",
}

// mayRefuseForm reports whether a failure of another class may be about the form of the question, because
// its text names a parameter, a schema, a grammar or a format. Servers word this in many ways, and some
// answer 404 or 500. A request in another form settles it.
func (c *complaint) mayRefuseForm(class Class) bool {
	switch class {
	case ClassRefusal:
		return c.status != 403 && c.namedParameter() != ""
	case ClassNotFound:
		return !c.mentions("model") && c.namedParameter() != ""
	case ClassUpstream:
		return c.status == 500 && c.namedParameter() != ""
	default:
		return false
	}
}

// namedParameter returns the parameter that the complaint names, or "".
func (c *complaint) namedParameter() string {
	if param, _, _ := strings.Cut(c.param, "."); param != "" {
		if param == "messages" || param == "model" || param == "body" {
			return ""
		}
		return cleanText(param, 40)
	}
	all := links().ReplaceAllString(strings.ToLower(c.message+" "+c.code+" "+c.kind), " ")
	for _, p := range parameters {
		if slices.ContainsFunc(p.words, func(w string) bool { return wordIn(all, w) }) {
			return p.name
		}
	}
	return ""
}

var links = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`https?://\S+`) })

// wordIn reports whether a text contains a whole word.
func wordIn(text, word string) bool {
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' }
	for from := 0; ; {
		at := strings.Index(text[from:], word)
		if at < 0 {
			return false
		}
		at += from
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+len(word):])
		if !letter(before) && !letter(after) {
			return true
		}
		from = at + len(word)
	}
}

func (c *complaint) summary() string {
	text := cleanText(secrets(nil).redact(c.message), 200)
	if text == "" {
		if text := http.StatusText(c.status); text != "" {
			return "the endpoint answered: " + text
		}
		return "the endpoint answered with an error and no reason"
	}
	return "the endpoint answered with an error: " + text
}

// maxRetryAfter limits the pause that an endpoint can ask for; some ask for days.
const maxRetryAfter = time.Hour

// retryAfter returns the pause that an endpoint asks for, or 0. It is given in seconds or as a date (RFC
// 9110, section 10.2.3); some endpoints send milliseconds in a separate header.
func retryAfter(header http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(header.Get("Retry-After-Ms")), 64); err == nil && ms > 0 {
		return boundSeconds(ms / 1000)
	}
	value := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		return boundSeconds(seconds)
	}
	if at, err := http.ParseTime(value); err == nil {
		return boundSeconds(at.Sub(now).Seconds())
	}
	return 0
}

func boundSeconds(seconds float64) time.Duration {
	if !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
}
