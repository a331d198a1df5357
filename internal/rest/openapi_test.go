package rest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/operation"
)

// TestDocumentIsFresh checks that the served document matches the table and the types.
func TestDocumentIsFresh(t *testing.T) {
	made, err := json.MarshalIndent(describeTable(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	made = append(made, '\n')
	fresh(t, "openapi.json", made)
	if *Update {
		var packed bytes.Buffer
		w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is valid
		_, _ = w.Write(made)
		if err := errors.Join(w.Close(), os.WriteFile("openapi.json.gz", packed.Bytes(), 0o644)); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	} else if !bytes.Equal(openapi(), made) {
		t.Error("openapi.json.gz is out of date: go test ./internal/rest -update")
	}
}

// TestDocumentIsForClients checks requirements of client generators, and of readers who do not know Go.
func TestDocumentIsForClients(t *testing.T) {
	var doc object
	if err := json.Unmarshal(openapi(), &doc); err != nil {
		t.Fatal(err)
	}
	t.Run("servers", func(t *testing.T) {
		if list, _ := doc["servers"].([]any); len(list) == 0 || str(list[0].(object)["url"]) != "/" {
			t.Errorf("servers: %v, not / first", doc["servers"])
		}
	})
	goName := regexp.MustCompile(`\b(nil|[A-Z][a-z]+([A-Z][a-z]+)+)\b`) // names such as GitHub would need an exception
	operations := 0
	eachObject(doc, "", func(at string, o object) {
		text, speaks := o["description"].(string)
		if named := goName.FindString(text); speaks && named != "" {
			t.Errorf("%s: %q is a word of Go: %s", at, named, text)
		}
		for name, one := range members(o["properties"]) {
			if str(members(one)["description"]) == "" {
				t.Errorf("%s/%s: without a description", at, name)
			}
		}
		if o["type"] == "object" && o["properties"] == nil && o["additionalProperties"] == nil {
			t.Errorf("%s: an object that takes nothing: additionalProperties says what it takes", at)
		}
		if o["operationId"] != nil {
			operations++
			if members(o["responses"])["4XX"] == nil {
				t.Errorf("%s: no 4XX response", at)
			}
		}
	})
	if operations == 0 {
		t.Error("no operation was looked at")
	}
}

// eachObject calls do with every object of a document and its place.
func eachObject(v any, at string, do func(at string, o object)) {
	switch v := v.(type) {
	case object:
		do(at, v)
		for name, one := range v {
			eachObject(one, at+"/"+name, do)
		}
	case []any:
		for _, one := range v {
			eachObject(one, at, do)
		}
	}
}

func members(v any) object {
	o, _ := v.(object)
	return o
}

// fresh compares a generated file with its expected content.
func fresh(t *testing.T, file string, want []byte) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(file, want, 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is out of date: go test ./internal/rest -update, and read the diff", file)
	}
}

// describeTable returns the OpenAPI document of the table.
func describeTable(t testing.TB) object {
	s := &schemas{words: readWords(t), components: object{}, types: map[string]reflect.Type{}}
	paths := object{}
	for _, op := range operation.All() {
		for i := range op.Routes {
			about := &op.Routes[i]
			if paths[about.Path] == nil {
				paths[about.Path] = object{}
			}
			paths[about.Path].(object)[strings.ToLower(about.Method)] = s.operation(op, about)
		}
	}
	problem := s.of(reflect.TypeFor[Problem]())
	if unused := s.words.unused(); len(unused) > 0 {
		t.Errorf("%s has lines that nothing needs: %q", wordsFile, unused)
	}
	return object{
		"openapi":           "3.1.0",
		"jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
		"info": object{
			"title": "gavel", "version": "1",
			"summary":     "An LLM judge and validation gateway: workflow instances whose every move is judged before it happens.",
			"description": "A refused or parked move is an answer: 200 with the decision. What could not be decided is a problem (RFC 9457) whose code is stable. New members may appear in answers at any time; requests with members or parameters that nobody reads are refused.",
			"license":     object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"servers":  servers,
		"paths":    paths,
		"tags":     tags,
		"security": []any{object{"bearer": []string{}}},
		"components": object{
			"schemas":         s.components,
			"headers":         responseHeaders,
			"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer", "description": "A token of this gavel, or a JWT of an issuer that the operator trusts."}},
			"responses": object{"Problem": object{
				"description": "Why it could not be decided or done.",
				"headers":     object{"X-Request-Id": headerRef("RequestId"), "Retry-After": headerRef("RetryAfter")},
				"content":     object{ProblemType: object{"schema": problem}},
			}},
		},
	}
}

var servers = []object{
	{"url": "/", "description": "The server that this document came from."},
	{"url": "http://127.0.0.1:4285", "description": "gavel serve as it listens by default."},
}

// tags are the groups of operations, in the order of the reference.
var tags = []object{
	{"name": "definitions", "description": "Workflows: what states there are, and what is demanded of each move."},
	{"name": "judge", "description": "How strictly moves are judged."},
	{"name": "instances", "description": "Workflows that run."},
	{"name": "history", "description": "What was decided, and why."},
	{"name": "reviews", "description": "Moves that wait for a person."},
	{"name": "chains", "description": "Steps across MCP servers, run durably. A server has them where its configuration has a section chains."},
	{"name": "decide", "description": "Judgement without an instance."},
	{"name": "evidence", "description": "Facts that the gate fetches itself."},
	{"name": "identity", "description": "Who calls."},
}

var responseHeaders = object{
	"RequestId":  object{"description": "Names the request in the log: the caller's own, or a new one.", "schema": object{"type": "string"}},
	"RetryAfter": object{"description": "Seconds to wait, where the same request may succeed later.", "schema": object{"type": "integer"}},
	"ETag":       object{"description": "Begins with the revision; If-Match takes it.", "schema": object{"type": "string"}},
	"Location":   object{"description": "Where it can be read.", "schema": object{"type": "string", "format": "uri-reference"}},
	"Link":       object{"description": "rel=\"next\" is the next page; absent on the last one.", "schema": object{"type": "string"}},
	"Replayed":   object{"description": "true when this is the answer to an earlier request with the same Idempotency-Key.", "schema": object{"type": "string", "enum": []string{"true"}}},
}

func headerRef(name string) object { return object{"$ref": "#/components/headers/" + name} }

func problemRef() object { return object{"$ref": "#/components/responses/Problem"} }

// operation returns one operation object.
func (s *schemas) operation(op *operation.Operation, about *operation.Route) object {
	ok := s.success(about, op.Result)
	responses := object{"200": ok, "4XX": problemRef(), "default": problemRef()}
	if about.Created {
		created := maps.Clone(ok)
		created["description"] = "It was created."
		created["headers"] = maps.Clone(ok["headers"].(object))
		created["headers"].(object)["Location"] = headerRef("Location")
		responses["201"] = created
	}
	if about.Tagged && about.Reads() {
		responses["304"] = object{"description": "What If-None-Match names is still what it is."}
	}
	if about.Has(operation.InHeader, headerIfMatch) {
		responses["412"] = problemRef()
	}
	out := object{
		"operationId": about.ID, "summary": about.Title, "description": about.Description, "tags": []string{op.Group},
		"responses": responses,
	}
	if params := parameters(about); len(params) > 0 {
		out["parameters"] = params
	}
	if body := body(op, about); body != nil {
		out["requestBody"] = body
	}
	return out
}

func (s *schemas) success(about *operation.Route, res reflect.Type) object {
	content := object{jsonType: object{"schema": s.of(res)}}
	if about.Events {
		content[eventStream] = object{"schema": object{"type": "string", "description": "Server-sent events: id is what Last-Event-ID takes, event the kind, data one event as in the pages."}}
	}
	said := object{"X-Request-Id": headerRef("RequestId")}
	if about.Tagged {
		said["ETag"] = headerRef("ETag")
	}
	if about.Has(operation.InHeader, headerIdempotencyKey) {
		said["Idempotency-Replayed"] = headerRef("Replayed")
	}
	if about.Has(operation.InQuery, "limit") {
		said["Link"] = headerRef("Link")
	}
	return object{"description": "The answer.", "headers": said, "content": content}
}

// parameters returns the parameters of the path, the query and the headers.
func parameters(about *operation.Route) []object {
	var out []object
	for _, at := range []operation.ParameterLocation{operation.InPath, operation.InQuery, operation.InHeader} {
		for _, f := range about.Fields(at) {
			schema := f.Schema()
			if f.Header == headerIfMatch {
				schema = object{"type": "string"}
			}
			one := object{"name": f.HTTP(), "in": string(at), "schema": schema, "description": f.About()}
			if f.Required || at == operation.InPath {
				one["required"] = true
			}
			out = append(out, one)
		}
	}
	if about.Tagged && about.Reads() {
		out = append(out, object{"name": headerIfNoneMatch, "in": "header", "schema": object{"type": "string"}, "description": "ETags that the caller has."})
	}
	return out
}

func body(op *operation.Operation, about *operation.Route) object {
	if op.Document {
		content := object{jsonType: object{"schema": described(freeObject(), "A definition; see the reference of definitions.")}}
		if about.YAML {
			content[yamlType] = object{"schema": object{"type": "string", "description": "The same as YAML."}}
		}
		return object{"required": true, "content": content}
	}
	if len(about.Fields(operation.InBody)) == 0 {
		return nil
	}
	properties, required := object{}, []string{}
	for _, f := range about.Fields(operation.InBody) {
		schema := f.Schema()
		if f.Kind == operation.Object {
			schema = freeObject()
		}
		properties[f.HTTP()] = described(schema, f.About())
		if f.Required {
			required = append(required, f.HTTP())
		}
	}
	schema := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		schema["required"] = required
	}
	return object{"required": len(required) > 0, "content": object{jsonType: object{"schema": schema}}}
}
