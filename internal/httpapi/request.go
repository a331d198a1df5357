package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// NewRequest writes req as the handler reads it, to the server at base, so that a client
// and the handler cannot understand a request differently.
func (o Operation[Req, Res]) NewRequest(ctx context.Context, base *url.URL, req Req) (*http.Request, error) {
	v := reflect.ValueOf(req)
	p := planOf(v.Type())
	for _, f := range p[inPath] {
		if v.FieldByIndex(f.index).IsZero() {
			return nil, wrong(f.name, fmt.Sprintf("The argument %q is missing.", f.name), "Give it.")
		}
	}
	at := strings.TrimSuffix(base.String(), "/") + p.address(v, o.Path)
	body, media, err := p.body(v, o.Route)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, o.Method, at, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	r.Header.Set("Accept", jsonType)
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	for _, f := range p[inHeader] {
		text, ok := textOf(v.FieldByIndex(f.index))
		if !ok {
			continue
		}
		switch f.name {
		case headerIfMatch:
			text = `"` + text + `"`
		case headerIdempotencyKey:
			if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) || strings.TrimSpace(text) != text {
				return nil, wrong(headerIdempotencyKey, "An idempotency key that goes over HTTP is of printable ASCII, without quotes and backslashes.", "Use another one, for example a UUID.")
			}
		}
		r.Header.Set(f.name, text)
	}
	return r, nil
}

// address is the path with its names filled in, and the query.
func (p plan) address(v reflect.Value, path string) string {
	for _, f := range p[inPath] {
		text, _ := textOf(v.FieldByIndex(f.index))
		path = strings.Replace(path, "{"+f.name+"}", url.PathEscape(text), 1)
	}
	query := url.Values{}
	for _, f := range p[inQuery] {
		value := v.FieldByIndex(f.index)
		if value.Kind() == reflect.Slice {
			for i := range value.Len() {
				query.Add(f.name, value.Index(i).String())
			}
			continue
		}
		if text, ok := textOf(value); ok {
			query.Set(f.name, text)
		}
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// textOf is a value as text of an address or a header; false for one that is not given.
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
		panic(fmt.Sprintf("httpapi: no text is a %s", v.Type())) // a mistake of this program, met by its first test
	}
}

// body is the body with its media type, "" for none.
func (p plan) body(v reflect.Value, o Route) ([]byte, string, error) {
	if document := p[inBody]; len(document) == 1 {
		d, _ := reflect.TypeAssert[Document](v.FieldByIndex(document[0].index))
		if d.Media == "" {
			d.Media = jsonType
		}
		return d.Bytes, d.Media, nil
	}
	if o.Method == http.MethodGet || len(p[inJSON]) == 0 {
		return nil, "", nil
	}
	members := map[string]any{}
	for _, f := range p[inJSON] {
		if value := v.FieldByIndex(f.index); !value.IsZero() {
			members[f.name] = value.Interface()
		}
	}
	body, err := encode(members)
	if err != nil {
		return nil, "", wrong("", "The request holds a document that is no JSON.", "Send a JSON object.")
	}
	return body, jsonType, nil
}
