package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// NewRequest encodes req, a pointer to an operation's request, as a request to the server at base. It uses the
// handler's own rules, so that client and handler agree.
func NewRequest(ctx context.Context, base *url.URL, op *operation.Operation, req any) (*http.Request, error) {
	route, err := chooseRoute(op, req)
	if err != nil {
		return nil, err
	}
	body, media, err := writeBody(op, route, req)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, route.Method, strings.TrimSuffix(base.String(), "/")+requestPath(route, req), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	r.Header.Set("Accept", jsonType)
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	for _, f := range route.Fields(operation.InHeader) {
		text, ok := textOf(f.In(req))
		if !ok {
			continue
		}
		switch f.Header {
		case headerIfMatch:
			text = `"` + text + `"`
		case headerIdempotencyKey:
			if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) || strings.TrimSpace(text) != text {
				return nil, operation.NewArgumentError(headerIdempotencyKey, "Over HTTP, an idempotency key must be printable ASCII without quotes and backslashes.", "Use another one, for example a UUID.")
			}
		}
		r.Header.Set(f.Header, text)
	}
	return r, nil
}

// chooseRoute returns the route with the most path parameters whose values are all set in req.
func chooseRoute(op *operation.Operation, req any) (*operation.Route, error) {
	var chosen *operation.Route
	missing := ""
	for i := range op.Routes {
		route := &op.Routes[i]
		in := route.Fields(operation.InPath)
		lacks := slices.IndexFunc(in, func(f *operation.Field) bool { return f.In(req).IsZero() })
		switch {
		case lacks >= 0:
			missing = in[lacks].Name
		case chosen == nil || len(in) > len(chosen.Fields(operation.InPath)):
			chosen = route
		}
	}
	if chosen == nil {
		return nil, operation.NewArgumentError(missing, fmt.Sprintf("The argument %q is missing.", missing), "Give it.")
	}
	return chosen, nil
}

// requestPath returns the path with its parameters filled in, and the query.
func requestPath(route *operation.Route, req any) string {
	at := route.Path
	for _, f := range route.Fields(operation.InPath) {
		text, _ := textOf(f.In(req))
		at = strings.Replace(at, "{"+f.HTTP()+"}", url.PathEscape(text), 1)
	}
	query := url.Values{}
	for _, f := range route.Fields(operation.InQuery) {
		value := f.In(req)
		if value.Kind() == reflect.Slice {
			for i := range value.Len() {
				query.Add(f.HTTP(), value.Index(i).String())
			}
			continue
		}
		if text, ok := textOf(value); ok {
			query.Set(f.HTTP(), text)
		}
	}
	if len(query) == 0 {
		return at
	}
	return at + "?" + query.Encode()
}

// textOf formats a value for an address or a header. It returns false for a value that is not set.
func textOf(v reflect.Value) (string, bool) {
	if v.IsZero() {
		return "", false
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if at, ok := reflect.TypeAssert[time.Time](v); ok {
		return at.Format(time.RFC3339Nano), true
	}
	switch v.Kind() {
	case reflect.String:
		return v.String(), true
	case reflect.Int, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), true
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64), true
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), true
	default:
		panic(fmt.Sprintf("rest: cannot format a %s as text", v.Type())) // a programming error, found by the first test of the type
	}
}

// writeBody returns the body and its media type, or "" if there is none.
func writeBody(op *operation.Operation, route *operation.Route, req any) ([]byte, string, error) {
	if op.Document {
		define, _ := req.(*engine.DefineRequest)
		switch strings.ToLower(path.Ext(define.Source)) {
		case ".yaml", ".yml":
			return define.Document, yamlType, nil
		}
		return define.Document, jsonType, nil
	}
	fields := route.Fields(operation.InBody)
	if len(fields) == 0 {
		return nil, "", nil
	}
	members := map[string]any{}
	for _, f := range fields {
		value := f.In(req)
		switch doc := value.Interface().(type) {
		case []byte: // a JSON document, embedded unchanged
			if len(doc) > 0 {
				members[f.HTTP()] = json.RawMessage(doc)
			}
		default:
			if !value.IsZero() {
				members[f.HTTP()] = doc
			}
		}
	}
	body, err := document.Marshal(members)
	if err != nil {
		return nil, "", operation.NewArgumentError("", "The document in the request is not JSON.", "Send a JSON object.")
	}
	return body, jsonType, nil
}
