package llm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
)

type endpoint struct {
	model Model // with a Name and a trimmed APIKey
	base  *url.URL
	host  host
	doer  Doer

	maxTokens int
	maxBody   int64
	ladder    *ladder
}

// newEndpoint expects defaults to be set.
func newEndpoint(m Model, cfg Config) (*endpoint, error) {
	if m.ID == "" {
		return nil, fmt.Errorf("model %q: the endpoint's name for it (its ID) is missing", m.Name)
	}
	normal, err := NormalizeBaseURL(m.BaseURL, cfg.Private)
	if err != nil {
		return nil, fmt.Errorf("model %q: %w", m.Name, err)
	}
	base, err := url.Parse(normal)
	if err != nil {
		return nil, fmt.Errorf("model %q: base URL: it is not a URL", m.Name)
	}
	if err := ValidThinking(m.Thinking); err != nil {
		return nil, fmt.Errorf("model %q: %w", m.Name, err)
	}
	if m.Rung != "" && !slices.Contains(rungs, m.Rung) {
		return nil, fmt.Errorf("model %q: unknown rung %q; use json_schema, tool, json_object or prompt, or leave it out to negotiate", m.Name, m.Rung)
	}
	m.APIKey = strings.TrimSpace(m.APIKey) // key files end in a line break
	if strings.ContainsFunc(m.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("model %q: the API key contains a space, a line break or another invalid character", m.Name)
	}
	e := &endpoint{model: m, base: base, host: hostOf(base), doer: cfg.Doer, maxTokens: cfg.tokensFor(m), maxBody: cfg.MaxBody}
	e.ladder = newLadder(manner{rung: e.host.startFor(m)}.without(e.host.omittedParameters(m)...), m.Rung != "")
	return e, nil
}

func (e *endpoint) url() string {
	return strings.TrimSuffix(e.base.String(), completionsPath) + completionsPath
}

// post sends the HTTP request; no other function does. The error is an *Error or the context's.
func (e *endpoint) post(ctx context.Context, body []byte) (status int, header http.Header, raw []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, &Error{Class: ClassConfig, Message: "the base URL cannot be called"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "gavel")
	if e.model.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+e.model.APIKey)
	}
	res, err := e.doer.Do(req)
	if err != nil {
		return 0, nil, nil, transportError(ctx, err, e.base.Host)
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		return 0, nil, nil, redirectError(req, res)
	}
	raw, err = io.ReadAll(io.LimitReader(res.Body, e.maxBody+1))
	switch {
	case int64(len(raw)) > e.maxBody:
		return 0, nil, nil, &Error{
			Class: ClassUpstream, Status: res.StatusCode,
			Message: fmt.Sprintf("the answer is longer than %d bytes", e.maxBody),
			Advice:  "check that the base URL leads to an OpenAI-compatible API",
		}
	case err != nil && (ctx.Err() != nil || res.StatusCode < 400):
		return 0, nil, nil, transportError(ctx, err, e.base.Host)
	}
	// A truncated error body is good enough, because the status decides.
	return res.StatusCode, res.Header, raw, nil
}

// annotateError adds the model, the endpoint and the number of calls to an error.
func (e *endpoint) annotateError(fail *Error, calls int) *Error {
	return fail.withChange(func(signed *Error) {
		if len(e.model.APIKey) >= minSecret { // even if it does not look like a key
			signed.Message = secrets{e.model.APIKey}.redact(signed.Message)
		}
		signed.Model, signed.Endpoint, signed.Calls = e.model.Name, e.base.Host, calls
	})
}

func (e *endpoint) annotateAny(err error, calls int) error {
	if fail := asError(err); fail != nil {
		return e.annotateError(fail, calls)
	}
	return err
}

// costOf returns nil if the usage or a price is unknown.
func (m Model) costOf(u *Usage) *float64 {
	if u == nil || m.PromptUSD == nil || m.CompletionUSD == nil {
		return nil
	}
	usd := (float64(u.Prompt)**m.PromptUSD + float64(u.Completion)**m.CompletionUSD) / 1e6
	return &usd
}

func redirectError(req *http.Request, res *http.Response) *Error {
	fail := &Error{Class: ClassConfig, Status: res.StatusCode, Message: "the endpoint redirects without a target"}
	to, err := res.Location()
	if err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" {
		fail.Advice = "check the base URL"
		return fail
	}
	base := quoteForeign(to.Scheme + "://" + to.Host + strings.TrimSuffix(strings.TrimRight(to.EscapedPath(), "/"), completionsPath))
	fail.Message = "the endpoint redirects to " + quoteForeign(to.Host) + ", and redirects are not followed"
	if to.Host == req.URL.Host {
		fail.Message = "the endpoint redirects to " + base + ", and redirects are not followed"
	}
	fail.Advice = "set LLM_BASE_URL to it if you trust it: " + base
	return fail
}

// quoteForeign makes an untrusted text safe for an error message.
func quoteForeign(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}

// explainNotFound adds the URL that was called and alternatives. A wrong base URL is the most common mistake,
// and servers rarely report it.
func (e *endpoint) explainNotFound(err error) error {
	var fail *Error
	if !errors.As(err, &fail) {
		return err
	}
	explained := *fail
	explained.Message = strings.TrimSuffix(explained.Message, ".") + " (called was " + e.url() + ")"
	model := fmt.Sprintf("check that the endpoint has a model %q (LLM_JUDGE_MODEL)", quoteForeign(e.model.ID))
	switch others := e.otherBases(); {
	case fail.Advice != "": // the endpoint knows the path
		explained.Advice = model + ", and that the key may use it"
	case len(others) > 0:
		explained.Advice = "try LLM_BASE_URL=" + strings.Join(others, " or ") + ", or " + model
	default:
		explained.Advice = "check the path of LLM_BASE_URL, or " + model
	}
	return &explained
}

func (e *endpoint) otherBases() []string {
	origin := e.base.Scheme + "://" + e.base.Host
	path := e.base.EscapedPath()
	candidates := []string{e.host.base}
	switch {
	case e.host.name != "" || path == completionsPath:
	case strings.HasSuffix(path, "/v1"):
		candidates = []string{cmp.Or(strings.TrimSuffix(path, "/v1"), completionsPath)} // its API may have no /v1
	default:
		candidates = []string{path + "/v1", "/v1"}
	}
	var others []string
	for _, c := range candidates {
		if c != path && !slices.Contains(others, origin+c) {
			others = append(others, origin+c)
		}
	}
	return others
}

// Complete makes one HTTP request in the current manner and reads its answer.
func (e *endpoint) Complete(ctx context.Context, req Request) (Reply, error) {
	at, _ := e.ladder.current()
	if len(req.Dialogue) > 0 {
		at.rung = RungPrompt
	}
	body, err := e.encodeRequest(req, at)
	if err != nil {
		return Reply{}, e.annotateError(&Error{Class: ClassConfig, Message: err.Error()}, 0)
	}
	began := time.Now()
	read, err := e.askOnce(ctx, req, at, body)
	if err != nil {
		return Reply{}, e.annotateAny(err, 1)
	}
	return Reply{
		Answer: read.Answer, Text: read.Text, Lenient: read.Lenient,
		Model: e.model.Name, Reported: read.Model, Fingerprint: read.Fingerprint,
		Endpoint: e.base.Host, Rung: at.rung,
		Usage: read.Usage, CostUSD: e.model.costOf(read.Usage),
		Calls: 1, Took: time.Since(began),
	}, nil
}

func (e *endpoint) askOnce(ctx context.Context, req Request, at manner, body []byte) (decodedReply, error) {
	status, header, raw, err := e.post(ctx, body)
	if err != nil {
		return decodedReply{}, err
	}
	noteAnswer(ctx, status, header, raw)
	if len(req.Dialogue) > 0 {
		read, err := readDialogue(status, header, raw, time.Now())
		if ClassOf(err) == ClassNotFound {
			return decodedReply{}, e.explainNotFound(err)
		}
		return read, err
	}
	nonce := req.Nonce
	if at.enforcesSchema() {
		nonce = "" // the model does not know it
	}
	read, err := readExchange(status, header, raw, nonce, time.Now())
	if ClassOf(err) == ClassNotFound {
		return decodedReply{}, e.explainNotFound(err)
	}
	if fail := asError(err); fail != nil && fail.Class == ClassMalformed && fail.Usage != nil && fail.Usage.Completion >= e.answerTokens(req) {
		return decodedReply{}, truncatedError().withChange(func(e *Error) { e.Usage = fail.Usage }) // some servers report a finished call anyway
	}
	switch {
	case !at.enforcesSchema():
	case err == nil && read.Picked:
		// Without a nonce, nothing ties the verdict to the question. An endpoint that enforced the form
		// would send only the verdict, so the model may be quoting the data.
		return decodedReply{}, &Error{
			Class: ClassMalformed, Message: "the model writes its thinking or other text before its verdict, although the endpoint accepted the requested form",
			Advice: "turn on the server's reasoning parser, or turn the thinking off (LLM_JUDGE_THINKING_MODE=off): the extra text costs calls",
			Usage:  read.Usage, Err: errRungIgnored,
		}
	case at.rung == RungTool && errors.Is(err, errNoVerdict):
		return decodedReply{}, asError(err).withChange(func(e *Error) { e.Err = errors.Join(errRungIgnored, errNoVerdict) })
	}
	return read, err
}

// errRungIgnored reports that an endpoint accepts a rung but ignores it.
var errRungIgnored = errors.New("the endpoint ignores the requested form")
