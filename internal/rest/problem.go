package rest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// Codes for errors in a request that are found before the engine is called.
const (
	CodeUnknownPath      engine.Code = "unknown_path"
	CodeMethodNotAllowed engine.Code = "method_not_allowed"
	CodeNotAcceptable    engine.Code = "not_acceptable"
	CodeUnsupportedMedia engine.Code = "unsupported_media_type"
	CodeDraining         engine.Code = "draining"
)

// Codes documents the codes above, as engine.Codes does for the engine's.
var Codes = []engine.CodeInfo{
	{Code: CodeUnknownPath, Meaning: "Nothing is served at this path.", Do: "See /openapi.json for the paths."},
	{Code: CodeMethodNotAllowed, Meaning: "The path does not support this method.", Do: "Use a method from the Allow header."},
	{Code: CodeNotAcceptable, Meaning: "The answer is not available in the media types that Accept names.", Do: "Accept application/json; for events also text/event-stream."},
	{Code: CodeUnsupportedMedia, Meaning: "This operation does not accept the media type of the body.", Do: "Send Content-Type: application/json; for definitions also application/yaml."},
	{Code: CodeDraining, Meaning: "The server is shutting down and opens no event streams.", Do: "Connect again shortly, with Last-Event-ID.", Retryable: true},
}

// statuses maps codes to HTTP statuses. A test checks that every code is present.
var statuses = map[engine.Code]int{
	engine.CodeUnknownWorkflow:     http.StatusNotFound,
	engine.CodeUnknownInstance:     http.StatusNotFound,
	engine.CodeUnknownCheckpoint:   http.StatusNotFound,
	engine.CodeUnknownRevision:     http.StatusNotFound,
	engine.CodeUnknownReview:       http.StatusNotFound,
	engine.CodeNothingToUndo:       http.StatusConflict,
	engine.CodeInvalidDefinition:   http.StatusUnprocessableEntity,
	engine.CodeInvalidArgument:     http.StatusBadRequest,
	engine.CodeInvalidData:         http.StatusBadRequest,
	engine.CodeTooLarge:            http.StatusRequestEntityTooLarge,
	engine.CodeForbidden:           http.StatusForbidden,
	engine.CodeConflict:            http.StatusConflict, // 412 if the request has If-Match
	engine.CodeKeyReused:           http.StatusUnprocessableEntity,
	engine.CodeInstanceEnded:       http.StatusConflict,
	engine.CodeDefinitionTakenOver: http.StatusConflict,
	engine.CodeValuesDestroyed:     http.StatusConflict,
	engine.CodeReviewClosed:        http.StatusConflict,
	engine.CodeGatedAction:         http.StatusConflict,
	engine.CodeCallOpen:            http.StatusServiceUnavailable,
	engine.CodeSubjectTaken:        http.StatusConflict,
	engine.CodeUnknownCall:         http.StatusNotFound,
	engine.CodeTooManyEvents:       http.StatusConflict, // not 429, because a retry does not help
	// Quotas: 429 if the quota recovers with time, conflict if the caller must act.
	engine.CodeTooManyDefinitions: http.StatusConflict,
	engine.CodeTooManyConfigs:     http.StatusConflict,
	engine.CodeTooManyInstances:   http.StatusConflict,
	engine.CodeBytesSpent:         http.StatusTooManyRequests,
	engine.CodeWorkerTimeSpent:    http.StatusTooManyRequests,
	engine.CodeModelTokensSpent:   http.StatusTooManyRequests,
	engine.CodeRateLimited:        http.StatusTooManyRequests,
	engine.CodeTooManyStreams:     http.StatusTooManyRequests,
	engine.CodeUnauthenticated:    http.StatusUnauthorized,
	engine.CodeBusy:               http.StatusServiceUnavailable,
	engine.CodeUnavailable:        http.StatusServiceUnavailable,
	engine.CodeUntrustedRules:     http.StatusInternalServerError,
	engine.CodeValuesUnreadable:   http.StatusInternalServerError,
	engine.CodeCancelled:          http.StatusGatewayTimeout,
	engine.CodeInternal:           http.StatusInternalServerError,

	CodeUnknownPath:      http.StatusNotFound,
	CodeMethodNotAllowed: http.StatusMethodNotAllowed,
	CodeNotAcceptable:    http.StatusNotAcceptable,
	CodeUnsupportedMedia: http.StatusUnsupportedMediaType,
	CodeDraining:         http.StatusServiceUnavailable,
}

// retryAfter is the suggested delay before a retry, if the error does not contain one.
const retryAfter = time.Second

// retryHint returns that delay in whole seconds, or "" if a retry cannot succeed.
func retryHint(e *engine.Error) string {
	after := e.RetryAfter
	if after <= 0 && codeInfo(e.Code).Retryable {
		after = retryAfter
	}
	if after <= 0 {
		return ""
	}
	return strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10)
}

// problemType is the address of the codes' documentation, to which the code is appended.
const problemType = "https://github.com/gavel-mcp/gavel/blob/main/docs/reference/rest.md#"

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// Problem explains why a request could not be decided or performed (RFC 9457).
type Problem struct {
	// Type is a URI that names the code and leads to its documentation.
	Type string `json:"type"`
	// Title is the meaning of the code, in one sentence.
	Title string `json:"title"`
	// Status is the HTTP status.
	Status int `json:"status"`
	// Detail is what happened, in one sentence.
	Detail string `json:"detail"`
	// Instance is the requested path.
	Instance string `json:"instance"`
	// Code is a stable code for programs.
	Code engine.Code `json:"code"`
	// Hint suggests what to do next.
	Hint string `json:"hint,omitempty"`
	// Path is a JSON pointer to the invalid part of the request.
	Path string `json:"path,omitempty"`
	// Retryable reports that the same request may succeed later without a change.
	Retryable bool `json:"retryable"`
	// Current is the instance's current position, for a conflict.
	Current *engine.Position `json:"current,omitempty"`
	// Issues are the issues of a definition.
	Issues []workflow.Issue `json:"issues,omitempty"`
	// RequestID identifies the request in the server's log.
	RequestID string `json:"requestId,omitempty"`
}

// codeInfo documents a code of this package or of the engine.
func codeInfo(code engine.Code) engine.CodeInfo {
	if i := slices.IndexFunc(Codes, func(c engine.CodeInfo) bool { return c.Code == code }); i >= 0 {
		return Codes[i]
	}
	return operation.CodeInfo(code)
}

func newProblem(ctx context.Context, e *engine.Error) Problem {
	known, status := codeInfo(e.Code), statuses[e.Code]
	status = cmp.Or(status, http.StatusInternalServerError)
	return Problem{
		Type: problemType + string(e.Code), Title: known.Meaning, Status: status, Detail: e.Message, Code: e.Code, Hint: e.Hint,
		Path: e.Path, Retryable: known.Retryable, Current: e.Current, Issues: e.Issues, RequestID: requestID(ctx),
	}
}

// explain converts an error to the form that callers see, and logs defects.
func (h *Handler) explain(ctx context.Context, what string, err error) *engine.Error {
	e, defect := operation.Explain(err)
	if defect {
		h.cfg.Logger.ErrorContext(ctx, "could not answer", "asked", what, "code", string(e.Code), "cause", fmt.Sprint(e.Err), "request", requestID(ctx))
	}
	return e
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, what string, err error) {
	e := h.explain(r.Context(), what, err)
	p := newProblem(r.Context(), e)
	p.Instance = r.URL.EscapedPath()
	if e.Code == engine.CodeConflict && r.Header.Get(headerIfMatch) != "" {
		p.Status = http.StatusPreconditionFailed
	}
	if seconds := retryHint(e); seconds != "" {
		w.Header().Set("Retry-After", seconds)
	}
	if e.Current != nil {
		w.Header().Set(headerETag, entityTag(e.Current.Revision))
	}
	if p.Status == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="gavel"`)
	}
	body, err := document.Marshal(p)
	if err != nil { // a position and issues always encode
		h.cfg.Logger.ErrorContext(r.Context(), "encode a problem", "cause", err.Error())
		body = []byte(`{"title":"An internal error.","status":500}`)
	}
	h.write(w, r, p.Status, ProblemType, append(body, '\n'))
}
