package rest

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
)

// read reads a request into req. It rejects parts that no field accepts.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, op *operation.Operation, route *operation.Route, req any) error {
	for _, f := range route.Fields(operation.InPath) {
		if err := f.SetText(req, []string{r.PathValue(f.HTTP())}, operation.Parameter); err != nil {
			return err //nolint:wrapcheck // an *engine.Error
		}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return operation.NewArgumentError("", "The query string is malformed.", "Encode special characters as %XX.")
	}
	if err := operation.CheckQuery(query, route.Fields(operation.InQuery)); err != nil {
		return err //nolint:wrapcheck // an *engine.Error
	}
	if err := operation.BindQuery(req, route.Fields(operation.InQuery), query); err != nil {
		return err //nolint:wrapcheck // an *engine.Error
	}
	if err := readHeaders(r, route, req); err != nil || route.Reads() {
		return err
	}
	return h.readBody(w, r, op, route, req)
}

func readHeaders(r *http.Request, route *operation.Route, req any) error {
	for _, f := range route.Fields(operation.InHeader) {
		values := r.Header.Values(f.Header)
		if len(values) == 0 {
			continue
		}
		var err error
		text := strings.TrimSpace(strings.Join(values, ","))
		switch f.Header {
		case headerIfMatch:
			if text == "*" {
				continue // any revision
			}
			text, err = revisionOf(text)
		case headerIdempotencyKey:
			text, err = keyOf(values)
		}
		if err == nil {
			err = f.SetText(req, []string{text}, operation.Header)
		}
		if err != nil {
			return err //nolint:wrapcheck // an *engine.Error
		}
	}
	if route.Reads() {
		return nil
	}
	if !route.Has(operation.InHeader, headerIfMatch) && r.Header.Get(headerIfMatch) != "" {
		return operation.NewArgumentError(headerIfMatch, "This operation does not support If-Match.", "Omit it: an unchecked condition would not protect you.")
	}
	if !route.Has(operation.InHeader, headerIdempotencyKey) && len(r.Header.Values(headerIdempotencyKey)) > 0 {
		hint := "Omit it: a repeated request would be performed again."
		if route.Has(operation.InBody, "run") {
			hint = `Leave it out, and give the run an id of your own in "run": the same request with the same id returns that run.`
		}
		return operation.NewArgumentError(headerIdempotencyKey, "This operation does not support Idempotency-Key.", hint)
	}
	return nil
}

// revisionOf parses If-Match: "7", or the ETag of a resource read at revision 7. Weak tags are equivalent, because
// only revisions are compared.
func revisionOf(text string) (string, error) {
	inner, ok := strings.CutPrefix(strings.TrimPrefix(text, "W/"), `"`)
	if ok {
		inner, ok = strings.CutSuffix(inner, `"`)
	}
	digits, rest, more := strings.Cut(inner, "-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 1 || digits[0] == '+' || (more && !isHex(rest)) {
		return "", operation.NewArgumentError(headerIfMatch, fmt.Sprintf("The header If-Match must be one ETag of an instance, not %.60q.", text), `Send the ETag that you were given, or a revision in double quotes: "7".`)
	}
	return strconv.FormatInt(n, 10), nil
}

func isHex(text string) bool {
	return text != "" && strings.Trim(text, "0123456789abcdef") == ""
}

// keyOf parses Idempotency-Key: the plain key, or a string of RFC 9651 in double quotes.
func keyOf(values []string) (string, error) {
	bad := func(what string) (string, error) {
		return "", operation.NewArgumentError(headerIdempotencyKey, "The header Idempotency-Key "+what+".", "Send one key, for example a UUID.")
	}
	if len(values) != 1 {
		return bad("appears more than once")
	}
	key := strings.TrimSpace(values[0])
	if inner, ok := strings.CutPrefix(key, `"`); ok {
		if key, ok = strings.CutSuffix(inner, `"`); !ok || strings.ContainsAny(key, `"\`) {
			return bad("is an unterminated string")
		}
	}
	if key == "" {
		return bad("is empty")
	}
	return key, nil
}

// readBody reads a body of JSON members, or a body that is a document itself.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, op *operation.Operation, route *operation.Route, req any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.MaxBody))
	if tooLong, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &engine.Error{Code: engine.CodeTooLarge, Message: fmt.Sprintf("The body has more than %d bytes.", tooLong.Limit), Hint: "Send less; keep large content elsewhere and refer to it."}
	}
	if err != nil {
		return &engine.Error{Code: engine.CodeCancelled, Message: "The body is incomplete.", Hint: "Send it again.", Err: err}
	}
	media, err := mediaOf(r, route.YAML, len(body) == 0)
	if err != nil {
		return err
	}
	if op.Document {
		// The extension selects the document's format.
		source := map[string]string{jsonType: "body.json", yamlType: "body.yaml"}[media]
		operation.SetDocument(req, source, body)
		return nil
	}
	members, err := operation.ReadObject(body, "body is")
	if err != nil {
		return err //nolint:wrapcheck // an *engine.Error
	}
	if err := operation.CheckMembers(members, route.Fields(operation.InBody), operation.Member); err != nil {
		return err //nolint:wrapcheck // an *engine.Error
	}
	return operation.BindMembers(req, route.Fields(operation.InBody), members, operation.Member) //nolint:wrapcheck // an *engine.Error
}

// mediaOf returns the media type of the body: JSON, or YAML if the operation accepts it.
func mediaOf(r *http.Request, yaml, empty bool) (string, error) {
	sent := r.Header.Get("Content-Type")
	if empty && sent == "" {
		return jsonType, nil
	}
	media, params, err := mime.ParseMediaType(sent)
	charset := strings.ToLower(params["charset"])
	coded := r.Header.Get("Content-Encoding")
	fine := err == nil && (charset == "" || charset == "utf-8") && (coded == "" || strings.EqualFold(coded, "identity"))
	switch {
	case fine && media == jsonType:
		return jsonType, nil
	case fine && yaml && slices.Contains(yamlTypes, media):
		return yamlType, nil
	}
	hint := "Send it as plain UTF-8, with Content-Type: " + jsonType
	if yaml {
		hint += " or " + yamlType
	}
	return "", &engine.Error{Code: CodeUnsupportedMedia, Message: fmt.Sprintf("This operation does not accept a body of type %.80q.", sent), Hint: hint + "."}
}
