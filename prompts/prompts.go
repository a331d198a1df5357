// Package prompts contains the prompts for models, as embedded, versioned templates.
//
// It promises:
//
//   - The same input gives the same text.
//   - A template never changes without its digest changing.
//   - Text written by an agent is escaped, appears between markers that the agent could not know, and comes
//     after all instructions except the last line of TransitionV3.
//   - Apart from the marker, the text before the documents is the same for every case of a transition.
//
// It knows nothing about judging. It must never read an environment variable, a clock or a file.
package prompts

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"text/template"
	"unicode"
)

// The editions of the prompt that asks about the criteria of one move. TransitionV2 adds that the context
// can prove a criterion, and how to judge a move without data. TransitionV3 adds the gate document, new
// status words, each preceded by a sentence of explanation, and a last line after the documents.
const (
	TransitionV1 = "transition/v1"
	TransitionV2 = "transition/v2"
	TransitionV3 = "transition/v3"
)

// Overall asks one question about a move as a whole, for owners who wrote no criteria. The answer has
// approved, confidence, reasoning, violations and suggestions. Owners cannot select it as an edition.
const Overall = "overall/v1"

// Input is the input of a template. Control characters in texts are removed; Documents are already JSON.
type Input struct {
	Workflow, About     string // name and description of the workflow
	From, FromAbout     string
	Action, ActionAbout string
	To, ToAbout         string
	Criteria            []Criterion
	// Passed lists facts that code has established, so that the model need not check them.
	Passed []string
	// Reference describes a good answer, in the owner's words.
	Reference string
	Exemplars []Exemplar
	// Documents are shown between markers, in this order. Callers pass context, evidence, data; for
	// TransitionV3, evidence, gate, context, data.
	Documents []Document
	// Fetched is true if the gate itself fetched the document named evidence.
	Fetched bool
	// Marker delimits the documents. It is random for each request, so that no document can imitate it.
	Marker string
	// Nonce must be repeated in the answer. It appears only in Shape.
	Nonce string
}

// Criterion is one question.
type Criterion struct{ ID, Text string }

// Exemplar is a case that was decided earlier.
type Exemplar struct {
	Data    json.RawMessage
	Outcome string // approve or reject
	Why     string
}

// Document is one JSON text to examine.
type Document struct {
	Name string // context, evidence, gate or data
	Text string // one line of JSON
}

// Prompt is a rendered template.
type Prompt struct {
	// ID names the template. Digest ("sha256:" and hex) covers its text and schema; calibrations are bound to
	// it. Neither depends on Input.
	ID, Digest string
	// System, User and Shape correspond to the fields of llm.Request.
	System, User, Shape string
	// Schema is the JSON Schema of the answer.
	Schema json.RawMessage
}

// The parts of the editions; some are shared. Never change a part: add a new edition instead. A change
// would change the digest of every edition that uses the part, and invalidate all calibrations and recorded
// questions that are bound to the digest.
var (
	//go:embed transition_v1.system.txt
	systemV1 string
	//go:embed transition_v2.system.txt
	systemV2 string
	//go:embed transition_v3.system.txt
	systemV3 string
	//go:embed transition_v1.user.tmpl
	userV1 string
	//go:embed transition_v3.user.tmpl
	userV3 string
	//go:embed transition_v1.shape.tmpl
	shapeV1 string
	//go:embed transition_v3.shape.tmpl
	shapeV3 string
	//go:embed transition_v1.schema.json
	schemaV1 []byte
	//go:embed transition_v2.schema.json
	schemaV2 []byte
	//go:embed transition_v3.schema.json
	schemaV3 []byte
	//go:embed overall_v1.system.txt
	systemOverall string
	//go:embed overall_v1.user.tmpl
	userOverall string
	//go:embed overall_v1.shape.tmpl
	shapeOverall string
	//go:embed overall_v1.schema.json
	schemaOverall []byte
)

type edition struct {
	id, digest, system string
	user, shape        *template.Template
	// schema is the schema of the answer; nonced is the same schema with the nonce as its first property.
	schema, nonced json.RawMessage
}

// editions are created on first use.
var editions = map[string]func() *edition{
	TransitionV1: sync.OnceValue(func() *edition { return newEdition(TransitionV1, systemV1, userV1, shapeV1, schemaV1) }),
	TransitionV2: sync.OnceValue(func() *edition { return newEdition(TransitionV2, systemV2, userV1, shapeV1, schemaV2) }),
	TransitionV3: sync.OnceValue(func() *edition { return newEdition(TransitionV3, systemV3, userV3, shapeV3, schemaV3) }),
	Overall:      sync.OnceValue(func() *edition { return newEdition(Overall, systemOverall, userOverall, shapeOverall, schemaOverall) }),
}

// IDs returns the editions that ask about criteria, newest first.
func IDs() []string { return []string{TransitionV3, TransitionV2, TransitionV1} }

// Find returns the id of an edition in IDs, given the id or just its version, such as v2.
func Find(name string) (id string, err error) {
	for _, id := range IDs() {
		if name == id || name == path.Base(id) {
			return id, nil
		}
	}
	return "", fmt.Errorf("unknown prompt %.40q; use one of %s", name, strings.Join(IDs(), ", "))
}

// Digest returns the Digest of the Prompts that Render creates for an id, or "" for an unknown id.
func Digest(id string) string {
	if find := editions[id]; find != nil {
		return find().digest
	}
	return ""
}

func newEdition(id, system, user, shape string, schema []byte) *edition {
	functions := template.FuncMap{"line": singleLine}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(id), []byte(system), []byte(user), []byte(shape), schema} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return &edition{
		id: id, digest: "sha256:" + hex.EncodeToString(h.Sum(nil)), system: strings.TrimRight(system, "\n"),
		user:   template.Must(template.New(id + " user").Funcs(functions).Parse(user)),
		shape:  template.Must(template.New(id + " shape").Funcs(functions).Parse(shape)),
		schema: compactJSON(schema), nonced: compactJSON(withNonce(schema)),
	}
}

// withNonce adds the nonce as the first property. Models answer in the order of the schema, so an answer that
// begins with the right nonce belongs to this request.
func withNonce(schema []byte) []byte {
	const properties, required = `"properties": {`, `"required": [`
	text := strings.Replace(string(schema), properties, properties+`"nonce": {"type": "string", "description": "Repeated from the instructions."},`, 1)
	outermost := strings.LastIndex(text, required) + len(required)
	return []byte(text[:outermost] + `"nonce", ` + text[outermost:])
}

func compactJSON(doc []byte) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, doc); err != nil {
		panic("prompts: an embedded schema is no JSON: " + err.Error())
	}
	return b.Bytes()
}

// Render fills in a template. It fails for an unknown id.
func Render(id string, in Input) (Prompt, error) {
	if id != Overall {
		var err error
		if id, err = Find(id); err != nil {
			return Prompt{}, err
		}
	}
	e := editions[id]()
	user, err := fillTemplate(e.user, in)
	if err != nil {
		return Prompt{}, err
	}
	shape, err := fillTemplate(e.shape, map[string]any{"Schema": string(nameCriteria(e.nonced, in.Criteria)), "Nonce": singleLine(in.Nonce)})
	if err != nil {
		return Prompt{}, err
	}
	return Prompt{
		ID: e.id, Digest: e.digest, System: e.system, User: user, Shape: shape,
		Schema: nameCriteria(e.schema, in.Criteria),
	}, nil
}

// nameCriteria lists the valid criterion ids in the schema, if it has a place for them. Otherwise small models
// mistake names in the documents for ids.
func nameCriteria(schema json.RawMessage, criteria []Criterion) json.RawMessage {
	ids := make([]string, len(criteria))
	for i, c := range criteria {
		ids[i] = c.ID
	}
	list, err := json.Marshal(ids)
	if err != nil || len(ids) == 0 {
		return bytes.Clone(schema)
	}
	return bytes.Replace(schema, []byte(`"enum":["c1"]`), slices.Concat([]byte(`"enum":`), list), 1)
}

func fillTemplate(t *template.Template, data any) (string, error) {
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		return "", fmt.Errorf("prompts: %s: %w", t.Name(), err)
	}
	return b.String(), nil
}

// singleLine removes line breaks and characters that hide or reorder text.
func singleLine(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case Hidden(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	return strings.Join(strings.Fields(s), " ")
}

// Hidden reports whether a character is invisible or changes how others appear. These are control and
// format characters (zero-width, bidirectional), the whole tags block, variation selectors, private use and
// noncharacters. They include fillers and other characters that Unicode lets a renderer ignore.
func Hidden(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Noncharacter_Code_Point) || r == '\u2800' // braille without dots
}
