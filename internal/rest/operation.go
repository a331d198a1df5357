package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/listen"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// headers holds the parts of an answer that are sent as HTTP headers.
type headers struct {
	location string // of a created resource; the status is then 201
	revision int64  // for the ETag; 0 for none
	// The query parameter that selects the next page at the same address.
	nextParam, nextValue string
	replayed             bool
}

func (h *Handler) serve(op *operation.Operation, route *operation.Route) http.HandlerFunc {
	found := findHeaders(op.Result, route.Tagged)
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h.answer(w, r, op, route, found); err != nil {
			h.fail(w, r, route.ID, err)
		}
	}
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request, op *operation.Operation, route *operation.Route, found resultHeaders) error {
	who, ok := auth.FromContext(r.Context())
	if !ok {
		return &engine.Error{Code: engine.CodeUnauthenticated, Message: "The request is not authenticated."}
	}
	media, err := negotiateMedia(r, route.Events)
	if err != nil {
		return err
	}
	req := op.NewRequest()
	if err := h.read(w, r, op, route, req); err != nil {
		return err
	}
	if media == eventStream {
		return h.stream(w, r, who, req.(*operation.EventsRequest).Tail(-1)) //nolint:forcetypeassert // only this request type has an event stream
	}
	res, err := operation.Call{Engine: h.cfg.Engine, Caller: who, Sources: h.cfg.Sources, Services: h.cfg.Services}.Ask(r.Context(), op, req)
	if err != nil {
		return err //nolint:wrapcheck // an *engine.Error
	}
	body, err := document.Marshal(res)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	body = append(body, '\n')
	about := found.in(res)
	if route.Created && op.Location != nil {
		about.location = op.Location(res)
	}
	h.send(w, r, about, body)
	return nil
}

// resultHeaders holds the indexes of the result fields that become headers. Every result type uses the same field
// names.
type resultHeaders struct{ revision, replayed, cursor, after, more, next []int }

func findHeaders(result reflect.Type, tagged bool) resultHeaders {
	find := func(name string) []int {
		f, _ := result.FieldByName(name)
		return f.Index
	}
	found := resultHeaders{replayed: find("Replayed"), cursor: find("NextCursor"), after: find("NextAfter")}
	if tagged {
		found.revision = find("Revision")
	}
	if more, ok := result.FieldByName("More"); ok && more.Type.Kind() == reflect.Bool {
		found.more, found.next = more.Index, find("Next")
	}
	return found
}

func (r resultHeaders) in(res any) headers {
	about, v := headers{}, reflect.ValueOf(res)
	if r.revision != nil {
		about.revision = v.FieldByIndex(r.revision).Int()
	}
	if r.replayed != nil {
		about.replayed = v.FieldByIndex(r.replayed).Bool()
	}
	if r.cursor != nil {
		about.nextParam, about.nextValue = "cursor", v.FieldByIndex(r.cursor).String()
	} else if r.after != nil && !v.FieldByIndex(r.after).IsZero() {
		about.nextParam, about.nextValue = "after", strconv.FormatInt(v.FieldByIndex(r.after).Int(), 10)
	} else if r.more != nil && v.FieldByIndex(r.more).Bool() {
		about.nextParam, about.nextValue = "after", strconv.FormatInt(v.FieldByIndex(r.next).Int(), 10)
	}
	return about
}

func (h *Handler) send(w http.ResponseWriter, r *http.Request, about headers, body []byte) {
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	if about.revision > 0 {
		tag := entityTag(about.revision)
		if reading {
			tag = representationTag(about.revision, body)
			w.Header().Set("Cache-Control", "private, no-cache")
			w.Header().Set("Vary", "Authorization, Accept")
		}
		w.Header().Set(headerETag, tag)
		if reading && noneMatches(r.Header.Values(headerIfNoneMatch), tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if about.nextValue != "" {
		w.Header().Set("Link", nextLink(r.URL, about))
	}
	if about.replayed {
		w.Header().Set(headerReplayed, "true")
	}
	code := http.StatusOK
	if about.location != "" {
		code = http.StatusCreated
		w.Header().Set("Location", about.location)
	}
	h.write(w, r, code, jsonType, body)
}

// nextLink returns the Link header that leads to the next page.
func nextLink(at *url.URL, about headers) string {
	q := at.Query()
	q.Set(about.nextParam, about.nextValue)
	return fmt.Sprintf(`<%s?%s>; rel="next"`, at.EscapedPath(), q.Encode())
}

// entityTag returns the ETag of a revision.
func entityTag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// representationTag returns the ETag of a response: the revision, which If-Match compares, and a digest of the body.
// The digest is needed because the body may change without a new revision (a review is opened) and differs between
// roles.
func representationTag(revision int64, body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + strconv.FormatInt(revision, 10) + "-" + hex.EncodeToString(sum[:8]) + `"`
}

// noneMatches compares weakly, as RFC 9110 requires for If-None-Match.
func noneMatches(values []string, tag string) bool {
	for one := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			return true
		}
	}
	return false
}

// Media types.
const (
	jsonType    = "application/json"
	yamlType    = "application/yaml"
	eventStream = "text/event-stream"
)

// yamlTypes are the media types that clients use for YAML.
var yamlTypes = []string{yamlType, "application/x-yaml", "text/yaml", "text/x-yaml"}

// negotiateMedia selects the media type of the response. It selects live events if the route has them and Accept
// prefers them.
func negotiateMedia(r *http.Request, events bool) (string, error) {
	plain := listen.AcceptQuality(r, jsonType)
	if events && r.Method == http.MethodGet && listen.AcceptQuality(r, eventStream) > plain {
		return eventStream, nil
	}
	if plain > 0 {
		return jsonType, nil
	}
	hint := "It is " + jsonType + "."
	if events {
		hint = "It is " + jsonType + " or " + eventStream + "."
	}
	return "", &engine.Error{Code: CodeNotAcceptable, Message: "The answer is not available in the media types that Accept names.", Hint: hint}
}
