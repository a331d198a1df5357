// Package prompts contains the prompts for models, as embedded, versioned templates.
//
// It promises:
//
//   - The same input gives the same text.
//   - A template never changes without its digest changing.
//   - Text written by an agent is escaped, appears between markers that the agent could not know, and comes
//     after all instructions except the last line.
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
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"text/template"
	"unicode"
)

// The editions of the prompt that asks about the criteria of one move. TransitionV4 requires one answer for each
// criterion, under its id, and leaves the outcome to code. TransitionV3 asked for a list of answers and for the
// outcome; it is kept for recorded answers.
const (
	TransitionV3 = "transition/v3"
	TransitionV4 = "transition/v4"
)

// Overall asks one question about a move as a whole, for owners who wrote no criteria. The answer has
// approved, confidence, reasoning, violations and suggestions. Owners cannot select it as an edition.
const Overall = "overall/v2"

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
	// Documents are shown between markers, in this order.
	Documents []Document
	// Fetched is true if the gate itself fetched the document named evidence.
	Fetched bool
	// Marker delimits the documents. It is random for each request, so that no document can imitate it.
	Marker string
	// Nonce must be repeated in the answer. It appears only in Shape.
	Nonce string
}

// Criterion is one question.
type Criterion struct {
	ID, Text string
	// Grades is the highest grade of a criterion that is answered with a grade from 1, or 0 for one that is met or
	// not.
	Grades int
}

// Scaled reports whether one of the criteria is answered with a grade.
func (in Input) Scaled() bool {
	return slices.ContainsFunc(in.Criteria, func(c Criterion) bool { return c.Grades > 0 })
}

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
	// System, User and Shape correspond to the fields of llm.Request. System has the form of the answer in words,
	// with an example: an endpoint that enforces Schema may not show it to the model.
	System, User, Shape string
	// Schema is the JSON Schema of the answer.
	Schema json.RawMessage
}

// The parts of the editions; some are shared. Never change a part: add a new edition instead. A change
// would change the digest of every edition that uses the part, and invalidate all calibrations and recorded
// questions that are bound to the digest.
var (
	//go:embed transition_v3.system.txt
	systemV3 string
	//go:embed transition_v3.user.tmpl
	userV3 string
	//go:embed transition_v3.shape.tmpl
	shapeV3 string
	//go:embed transition_v3.schema.json
	schemaV3 string
	//go:embed transition_v4.system.tmpl
	systemV4 string
	//go:embed transition_v4.form.tmpl
	formV4 string
	//go:embed transition_v4.user.tmpl
	userV4 string
	//go:embed transition_v4.schema.tmpl
	schemaV4 string
	//go:embed overall_v2.system.txt
	systemOverall string
	//go:embed overall_v2.form.tmpl
	formOverall string
	//go:embed overall_v2.user.tmpl
	userOverall string
	//go:embed overall_v2.schema.tmpl
	schemaOverall string
)

// shapeOf ties an answer to its question where no schema is enforced. Models answer in the order that they are told, so
// an answer that begins with the right nonce belongs to this request. Small models leave the nonce out unless they are
// shown how the answer begins.
func shapeOf(first string) string {
	return `Here the object has one more member, "nonce", before the others. So the answer begins with exactly this:
{"nonce": "{{.Nonce}}", "` + first + `": `
}

type edition struct {
	id, digest                        string
	system, user, shape, schemaSource *template.Template
}

// editions are created on first use.
var editions = map[string]func() *edition{
	TransitionV3: sync.OnceValue(func() *edition { return newEdition(TransitionV3, systemV3, userV3, shapeV3, schemaV3) }),
	TransitionV4: sync.OnceValue(func() *edition {
		return newEdition(TransitionV4, systemV4+"\n"+formV4, userV4, shapeOf("criteria"), schemaV4)
	}),
	Overall: sync.OnceValue(func() *edition {
		return newEdition(Overall, systemOverall+"\n"+formOverall, userOverall, shapeOf("reasoning"), schemaOverall)
	}),
}

// IDs returns the editions that gates ask criteria with, the newest first.
func IDs() []string { return []string{TransitionV4} }

// RecordedIDs returns the editions that recorded answers can have, the newest first.
func RecordedIDs() []string { return []string{TransitionV4, TransitionV3} }

// Find returns the id of one of the editions, given the id or just its version, such as v4.
func Find(name string, ids []string) (id string, err error) {
	for _, id := range ids {
		if name == id || name == path.Base(id) {
			return id, nil
		}
	}
	return "", fmt.Errorf("unknown prompt %.40q; use %s", name, strings.Join(ids, " or "))
}

func newEdition(id, system, user, shape, schema string) *edition {
	h := sha256.New()
	for _, part := range []string{id, system, user, shape, schema} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	parse := func(part, text string) *template.Template {
		return template.Must(template.New(id + " " + part).Funcs(template.FuncMap{"line": singleLine, "upTo": countUpTo}).Parse(text))
	}
	return &edition{
		id: id, digest: "sha256:" + hex.EncodeToString(h.Sum(nil)),
		system: parse("system", strings.TrimRight(system, "\n")), user: parse("user", user), shape: parse("shape", shape), schemaSource: parse("schema", schema),
	}
}

// withNonce adds the nonce as the first property.
func withNonce(schema string) string {
	const properties, required = `"properties":{`, `"required":[`
	schema = strings.Replace(schema, properties, properties+`"nonce":{"type":"string","description":"Repeated from the instructions."},`, 1)
	outermost := strings.LastIndex(schema, required) + len(required)
	return schema[:outermost] + `"nonce",` + schema[outermost:]
}

// Render fills in a template. It fails for an unknown id.
func Render(id string, in Input) (Prompt, error) {
	find := editions[id]
	if find == nil {
		return Prompt{}, fmt.Errorf("prompts: unknown prompt %.40q", id)
	}
	e := find()
	p := Prompt{ID: e.id, Digest: e.digest}
	var errs [4]error
	p.System, errs[0] = fillTemplate(e.system, in)
	p.User, errs[1] = fillTemplate(e.user, in)
	schema, err := fillTemplate(e.schemaSource, in)
	errs[2] = err
	var compact bytes.Buffer
	if err == nil {
		errs[2] = json.Compact(&compact, []byte(schema))
	}
	p.Schema = nameCriteria(compact.Bytes(), in.Criteria)
	p.Shape, errs[3] = fillTemplate(e.shape, map[string]any{"Schema": withNonce(string(p.Schema)), "Nonce": singleLine(in.Nonce)})
	return p, errors.Join(errs[:]...)
}

// nameCriteria lists the valid criterion ids in the schema of TransitionV3.
func nameCriteria(schema json.RawMessage, criteria []Criterion) json.RawMessage {
	ids := make([]string, len(criteria))
	for i, c := range criteria {
		ids[i] = c.ID
	}
	list, err := json.Marshal(ids)
	if err != nil || len(ids) == 0 {
		return schema
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

// countUpTo returns the numbers from 1 to n.
func countUpTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i + 1
	}
	return out
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
