package httpapi

import (
	"context"
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
)

// Route is where an operation is, and what it is for.
type Route struct {
	Method, Path string
	// ID names the operation in the OpenAPI document and in clients made from it.
	ID string
	// Tag groups operations: definitions, instances and so on.
	Tag string
	// Summary is a few words, Description as many sentences as it takes.
	Summary, Description string
	// Created says that success can be 201, with a Location.
	Created bool
	// YAML says that the body may also be application/yaml.
	YAML bool
	// Events says that the answer can also be had as text/event-stream.
	Events bool
	// Tagged says that the answer carries an ETag that begins with the revision.
	Tagged bool
}

// Operation is one row of the table: what is asked as Req is answered as Res. The fields
// of Req say where in a request they stand: path:"name", query:"name", header:"Name",
// json:"name" of the body, or body:"document" for a body that is a document itself.
type Operation[Req, Res any] struct {
	Route
	// run asks the engine.
	run func(ctx context.Context, h *Handler, who auth.Identity, req Req) (Res, error)
	// about says what the headers of an answer are made of; nil for nothing.
	about func(req Req, res Res) headers
	// stream takes over when events are wanted as they happen.
	stream func(h *Handler, w http.ResponseWriter, r *http.Request, who auth.Identity, req Req) error
}

// headers are what an answer says outside its body.
type headers struct {
	location string // of what was created: the status is 201
	revision int64  // for the ETag; 0 for none
	// The next page is at the same address with this parameter set.
	nextParam, nextValue string
	replayed             bool
}

// operation is an Operation whatever its types.
type operation interface {
	route() Route
	types() (req, res reflect.Type)
	serve(h *Handler, w http.ResponseWriter, r *http.Request)
}

func (o Operation[Req, Res]) route() Route { return o.Route }

func (o Operation[Req, Res]) types() (req, res reflect.Type) {
	return reflect.TypeFor[Req](), reflect.TypeFor[Res]()
}

func (o Operation[Req, Res]) serve(h *Handler, w http.ResponseWriter, r *http.Request) {
	if err := o.answer(h, w, r); err != nil {
		h.fail(w, r, o.ID, err)
	}
}

func (o Operation[Req, Res]) answer(h *Handler, w http.ResponseWriter, r *http.Request) error {
	who, ok := auth.FromContext(r.Context())
	if !ok {
		return &engine.Error{Code: engine.CodeUnauthenticated, Message: "The request says not who calls."}
	}
	media, err := o.negotiate(r)
	if err != nil {
		return err
	}
	var req Req
	if err := h.read(w, r, o.Route, &req); err != nil {
		return err
	}
	if media == eventStream {
		return o.stream(h, w, r, who, req)
	}
	res, err := o.run(r.Context(), h, who, req)
	if err != nil {
		return err
	}
	body, err := encode(res)
	if err != nil {
		return err
	}
	h.send(w, r, o.headersOf(req, res), body)
	return nil
}

func (o Operation[Req, Res]) headersOf(req Req, res Res) headers {
	if o.about == nil {
		return headers{}
	}
	return o.about(req, res)
}

// send answers with a result.
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

// nextLink is the Link header of a page that another one follows.
func nextLink(at *url.URL, about headers) string {
	q := at.Query()
	q.Set(about.nextParam, about.nextValue)
	return fmt.Sprintf(`<%s?%s>; rel="next"`, at.EscapedPath(), q.Encode())
}

// entityTag is the ETag of a revision.
func entityTag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// representationTag is the ETag of what was read: it begins with the revision, which is
// what If-Match compares, and goes on with a digest of the answer, because an answer can
// change while the revision does not (a review is opened) and differs between roles.
func representationTag(revision int64, body []byte) string {
	sum := sha256.Sum256(body)
	return `"` + strconv.FormatInt(revision, 10) + "-" + hex.EncodeToString(sum[:8]) + `"`
}

// noneMatches compares weakly, as RFC 9110 says of If-None-Match.
func noneMatches(values []string, tag string) bool {
	for one := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			return true
		}
	}
	return false
}

// The media types.
const (
	jsonType    = "application/json"
	yamlType    = "application/yaml"
	eventStream = "text/event-stream"
)

// yamlTypes are what clients call YAML.
var yamlTypes = []string{yamlType, "application/x-yaml", "text/yaml", "text/x-yaml"}
