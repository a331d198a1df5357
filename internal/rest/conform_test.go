package rest_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// described is the served document. The schemas of its answers are closed, so that members missing from the document
// fail the test.
type described struct {
	paths map[string]map[string]documented

	mu       sync.Mutex // a compiler is not safe for concurrent use
	compiler *jsonschema.Compiler
}

func (d *described) schema(component string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.compiler.Compile("doc.json#/components/schemas/" + component)
}

type documented struct {
	OperationID string                     `json:"operationId"`
	Responses   map[string]json.RawMessage `json:"responses"`
}

var document = sync.OnceValues(func() (*described, error) {
	raw, err := os.ReadFile("openapi.json")
	if err != nil {
		return nil, err
	}
	var doc struct {
		Paths      map[string]map[string]documented `json:"paths"`
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	for _, schema := range doc.Components.Schemas {
		if schema["properties"] != nil {
			schema["additionalProperties"] = false
		}
	}
	closed, err := json.Marshal(map[string]any{"components": doc.Components})
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat = true
	if err := c.AddResource("doc.json", bytes.NewReader(closed)); err != nil {
		return nil, err
	}
	return &described{paths: doc.Paths, compiler: c}, nil
})

// find returns the operation of a request, or false if the path or method does not exist.
func (d *described) find(r *http.Request) (documented, bool) {
	method := strings.ToLower(r.Method)
	if method == "head" {
		method = "get"
	}
	got := strings.Split(r.URL.EscapedPath(), "/")
	best, bestPath := documented{}, ""
	for path, methods := range d.paths {
		op, ok := methods[method]
		if want := strings.Split(path, "/"); !ok || len(want) != len(got) || !fits(want, got) {
			continue
		}
		if bestPath == "" || strings.Count(path, "{") < strings.Count(bestPath, "{") {
			best, bestPath = op, path
		}
	}
	return best, bestPath != ""
}

func fits(want, got []string) bool {
	for i := range want {
		if want[i] != got[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}

// seen holds the operations of which a successful answer was checked against its schema.
var seen sync.Map

// conforms checks an answer against the document.
func conforms(t testing.TB, r *http.Request, a answer) {
	t.Helper()
	d, err := document()
	if err != nil {
		t.Fatal(err)
	}
	if a.header.Get("X-Request-Id") == "" {
		t.Errorf("%s %s: no X-Request-Id", r.Method, r.URL)
	}
	if a.status >= 400 && r.Method != http.MethodHead {
		d.check(t, "Problem", a.body)
	}
	op, ok := d.find(r)
	if !ok {
		return
	}
	raw, ok := op.Responses[strconv.Itoa(a.status)]
	_, refuses := op.Responses["4XX"]
	switch {
	case !ok && a.status < 400, a.status >= 400 && a.status < 500 && !refuses:
		t.Errorf("%s %s: the document knows no status %d", r.Method, r.URL, a.status)
		return
	case !ok, r.Method == http.MethodHead, a.status >= 300:
		return
	}
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	var response struct {
		Headers map[string]any `json:"headers"`
		Content map[string]struct {
			Schema map[string]any `json:"schema"`
		} `json:"content"`
	}
	if err := json.Unmarshal(raw, &response); err != nil {
		t.Fatal(err)
	}
	content, ok := response.Content[media]
	if !ok {
		t.Errorf("%s: the document knows no answer of the type %q", op.OperationID, media)
		return
	}
	for _, name := range []string{"ETag", "Location", "Link", "Idempotency-Replayed"} {
		if _, ok := response.Headers[name]; a.header.Get(name) != "" && !ok {
			t.Errorf("%s: the document knows no header %s of status %d", op.OperationID, name, a.status)
		}
	}
	if media == "application/json" {
		ref, _ := content.Schema["$ref"].(string)
		d.check(t, filepath.Base(ref), a.body)
		seen.Store(op.OperationID, true)
	}
}

func (d *described) check(t testing.TB, component string, body []byte) {
	t.Helper()
	schema, err := d.schema(component)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if err := schema.Validate(v); err != nil {
		t.Errorf("not a %s: %#v\n%s", component, err, body)
	}
}

// TestDocumentIsOpenAPI validates the document against the OpenAPI Initiative's schema, and every schema in it
// against JSON Schema's.
func TestDocumentIsOpenAPI(t *testing.T) {
	meta, err := os.ReadFile("testdata/openapi-3.1-schema.json")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("https://spec.openapis.org/oas/3.1/schema/2026-08-03", bytes.NewReader(meta)); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("https://spec.openapis.org/oas/3.1/schema/2026-08-03")
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(doc); err != nil {
		t.Fatalf("%#v", err)
	}
	// The test can fail: a document with an invalid parameter is rejected.
	broken := bytes.Replace(raw, []byte(`"in": "path"`), []byte(`"in": "nowhere"`), 1)
	var bad any
	if err := json.Unmarshal(broken, &bad); err != nil {
		t.Fatal(err)
	}
	if schema.Validate(bad) == nil {
		t.Error("a document with a parameter in no place passes")
	}
	d, err := document()
	if err != nil {
		t.Fatal(err)
	}
	components, _ := doc.(map[string]any)["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	for name := range schemas {
		if _, err := d.schema(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
