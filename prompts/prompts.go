// Package prompts holds the words that models are asked with: embedded, versioned
// templates.
//
// It promises that the same input gives the same text, that a template never
// changes without its digest changing, that everything an agent wrote stands
// last, escaped, between markers that it could not know, and that the text before
// it is the same for every case of a transition. It knows nothing of judging and
// must never read an environment, a clock or a file.
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

// The editions of the prompt that asks about the criteria of one move. TransitionV2 says that the context can
// prove a criterion, and what to do with a move that carries no data. TransitionV3 has a document of
// the gate, other statuses with a sentence of why before each, and a last line after the documents.
const (
	TransitionV1 = "transition/v1"
	TransitionV2 = "transition/v2"
	TransitionV3 = "transition/v3"
)

// Overall asks one question about a move as a whole, where its owner wrote no criteria: approved,
// confidence, reasoning, violations and suggestions. It is no edition that an owner chooses.
const Overall = "overall/v1"

// Input is what the template shows. Texts are shown as they are but for control
// characters; Documents are JSON already.
type Input struct {
	Workflow, About     string // name and description of the workflow
	From, FromAbout     string
	Action, ActionAbout string
	To, ToAbout         string
	Criteria            []Criterion
	// Passed are facts that code has established, so that the model need not.
	Passed []string
	// Reference is what a good answer looks like, in the owner's words.
	Reference string
	Exemplars []Exemplar
	// Documents are shown between markers, the last one last: context, then evidence,
	// then data; from TransitionV3 on evidence, gate, context, data.
	Documents []Document
	// Fetched says that the document named evidence was fetched by the gate.
	Fetched bool
	// Marker delimits the documents: random per request, so that nothing in them can
	// imitate it.
	Marker string
	// Nonce is to be repeated in the answer; it stands in Shape only.
	Nonce string
}

// Criterion is one question.
type Criterion struct{ ID, Text string }

// Exemplar is a case that has been decided before.
type Exemplar struct {
	Data    json.RawMessage
	Outcome string // approve or reject
	Why     string
}

// Document is one JSON text that is examined.
type Document struct {
	Name string // context, evidence, gate or data
	Text string // one line of JSON
}

// Prompt is a rendered template.
type Prompt struct {
	// ID names the template, Digest ("sha256:" and hex) its text with the schema: what
	// a calibration is bound to. It does not depend on Input.
	ID, Digest string
	// System, User and Shape are as in llm.Request.
	System, User, Shape string
	// Schema is the JSON Schema of the answer.
	Schema json.RawMessage
}

// The parts of the editions, of which some are shared. Changing one changes the digest of each
// edition that has it, and with it every calibration that was bound to it and every recorded
// question: make a new edition instead.
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
	// schema is that of the answer, nonced the same with the nonce first.
	schema, nonced json.RawMessage
}

// editions are made when they are first asked for.
var editions = map[string]func() *edition{
	TransitionV1: sync.OnceValue(func() *edition { return newEdition(TransitionV1, systemV1, userV1, shapeV1, schemaV1) }),
	TransitionV2: sync.OnceValue(func() *edition { return newEdition(TransitionV2, systemV2, userV1, shapeV1, schemaV2) }),
	TransitionV3: sync.OnceValue(func() *edition { return newEdition(TransitionV3, systemV3, userV3, shapeV3, schemaV3) }),
	Overall:      sync.OnceValue(func() *edition { return newEdition(Overall, systemOverall, userOverall, shapeOverall, schemaOverall) }),
}

// IDs are the editions that ask about criteria, the newest first.
func IDs() []string { return []string{TransitionV3, TransitionV2, TransitionV1} }

// Find returns the id of one of IDs by its id or by its version alone, such as v2.
func Find(name string) (id string, err error) {
	for _, id := range IDs() {
		if name == id || name == path.Base(id) {
			return id, nil
		}
	}
	return "", fmt.Errorf("there is no prompt %.40q; known: %s", name, strings.Join(IDs(), ", "))
}

// Digest is that of the Prompts that Render makes of a template, "" for an unknown id.
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

// withNonce puts the nonce first: keys are answered in the order of the schema, and an
// answer that begins right is an answer to us.
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

// Render fills a template in. The error is for an unknown id only.
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

// nameCriteria lists the ids that an answer can be about, where a schema has a place for them: small
// models take what they find in the documents for one.
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

// Hidden reports whether a character shows nothing of its own or changes how
// others show: control and format characters (zero-width, bidirectional), all of the
// tags block, variation selectors, fillers and whatever else Unicode lets a renderer
// ignore, private use, noncharacters.
func Hidden(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Noncharacter_Code_Point) || r == '\u2800' // braille without dots
}
