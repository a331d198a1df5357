package httpapi

import (
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/validators/document"
)

// The API takes and answers the names of the release before for one release more, next to
// today's. To end that, delete this file, what fails to compile then, and the words of
// oldNameHelp from the tests.

// oldParameters are former names of parameters of a query, by operation.
var oldParameters = map[string]map[string]string{
	operation.Reviews.ID:   {"instance": "id"},
	operation.Decisions.ID: {"instance": "id"},
}

// oldNames are former names of members, by type. Those in nanoseconds are in milliseconds today.
var oldNames = map[reflect.Type]map[string]string{
	reflect.TypeFor[engine.CheckpointResult]():  {"id": "workflowId"},
	reflect.TypeFor[engine.CheckpointsResult](): {"id": "workflowId"},
	reflect.TypeFor[engine.EventView]():         {"id": "workflowId"},
	reflect.TypeFor[engine.FoundDecision]():     {"id": "workflowId"},
	reflect.TypeFor[engine.HistoryResult]():     {"id": "workflowId"},
	reflect.TypeFor[engine.TimelineResult]():    {"id": "workflowId"},
	reflect.TypeFor[engine.ReviewSummary]():     {"id": "workflowId", "decision": "resolution"},
	reflect.TypeFor[engine.Opinion]():           {"tookMs": "tookNs", "retryAfterMs": "retryAfterNs"},
	reflect.TypeFor[engine.Evidence]():          {"tookMs": "tookNs", "maxAgeMs": "maxAgeNs"},
}

// renameParameters gives what a query says in a former name its name of today.
func renameParameters(op *operation.Operation, query url.Values) {
	for old, name := range oldParameters[op.ID] {
		if values, given := query[old]; given && !query.Has(name) {
			query[name] = values
			delete(query, old)
		}
	}
}

// former are the former names in an answer of a type: of its members, and in what they hold.
type former struct {
	old    map[string]string
	within map[string]*former
}

// findFormer returns nil for a type that never had another name in it.
func findFormer(t reflect.Type) *former {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return nil
	}
	found := &former{old: map[string]string{}, within: map[string]*former{}}
	found.collect(t)
	if len(found.old)+len(found.within) == 0 {
		return nil
	}
	return found
}

func (f *former) collect(t reflect.Type) {
	maps.Copy(f.old, oldNames[t])
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" {
			f.collect(field.Type)
		} else if inner := findFormer(field.Type); inner != nil {
			f.within[name] = inner
		}
	}
}

// add appends an answer with its former names to dst.
func (f *former) add(dst []byte, v document.JSON) []byte {
	switch {
	case f == nil:
		return append(dst, v.Raw()...)
	case v.Kind() == document.Array:
		dst = append(dst, '[')
		for i, one := range v.Elements() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = f.add(dst, one)
		}
		return append(dst, ']')
	case v.Kind() != document.Object:
		return append(dst, v.Raw()...)
	}
	dst = append(dst, '{')
	for name, value := range v.Members() {
		if dst[len(dst)-1] != '{' {
			dst = append(dst, ',')
		}
		dst = append(append(dst, name.Raw()...), ':')
		dst = f.within[name.Text()].add(dst, value)
		if old, ok := f.old[name.Text()]; ok {
			dst = append(document.AppendQuote(append(dst, ','), old), ':')
			dst = append(dst, formerValue(old, value)...)
		}
	}
	return append(dst, '}')
}

func formerValue(old string, v document.JSON) json.RawMessage {
	if !strings.HasSuffix(old, "Ns") {
		return v.Raw()
	}
	var ms document.Milliseconds
	_ = ms.UnmarshalJSON(v.Raw()) // it was written as one
	return strconv.AppendInt(nil, int64(ms), 10)
}

// eventNames are those of streams.
var eventNames = sync.OnceValue(func() *former { return findFormer(reflect.TypeFor[engine.EventView]()) })

// withFormer is an answer with its former names.
func (f *former) withFormer(body []byte) []byte {
	if f == nil {
		return body
	}
	return f.add(make([]byte, 0, len(body)+len(body)/8), document.Known(body))
}
