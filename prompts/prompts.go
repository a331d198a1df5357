// Package prompts holds the words that models are asked with: embedded, versioned
// templates.
//
// It promises that the same input gives the same text, that a template never
// changes without its digest changing, that everything an agent wrote stands
// last, escaped, between markers that it could not know, and that the text before
// it is the same for every case of a transition. It knows nothing of judging and
// must never read an environment, a clock or a file.
package prompts

import "encoding/json"

// TransitionV1 is the prompt that asks about one move.
const TransitionV1 = "transition/v1"

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
	// then data.
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
	Name string // context, evidence or data
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
