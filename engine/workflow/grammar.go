package workflow

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/gavel-mcp/gavel/validators/document"
)

// The grammar of the document, in one place: the parser takes the known keys from it and
// FormatSchema the descriptions. The form of a value is defined twice, in the shape here and in
// the parser; tests compare the two.

type objectGrammar struct {
	name     string // of the $defs entry; "" for the document itself
	doc      string
	keys     []ObjectKey
	required []string
}

// ObjectKey describes a key of an object of the format.
type ObjectKey struct {
	Name, Doc string
	Shape     string // a JSON Schema as JSON text
}

// Limits of the format.
const (
	// MaxDefinition is the maximum size of a definition in bytes.
	MaxDefinition = 256 << 10
	// MaxScript is the maximum size of one validator or condition in bytes.
	MaxScript = 16 << 10
	// MaxName is the maximum length of a workflow name in characters.
	MaxName = 64
	// MaxLabel is the maximum length of a state or action name in characters.
	MaxLabel = 128
)

const (
	stringShape     = `{"type":"string"}`
	booleanShape    = `{"type":"boolean"}`
	labelShape      = `{"type":"string","minLength":1,"maxLength":128}`
	scriptShape     = `{"type":"string","minLength":1,"maxLength":16384}`
	stringListShape = `{"type":"array","items":{"type":"string","minLength":1}}`
	schemaShape     = `{"type":"object"}`
	pointersShape   = `{"type":"array","items":{"type":"string","pattern":"^/"}}`
	durationShape   = `{"type":"string","pattern":"^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^[0-9]{1,4}d$"}`
	routeList       = `{"$ref":"#/$defs/routes"}`
	stateNames      = `{"type":"array","items":` + labelShape + `}`
	validatorShape  = `{"anyOf":[` + scriptShape + `,{"$ref":"#/$defs/file"}]}`
	criterionShape  = `{"anyOf":[{"type":"string","minLength":1},{"$ref":"#/$defs/criterion"},{"$ref":"#/$defs/file"}]}`
)

var documentObject = objectGrammar{
	doc: "A workflow type: a state machine, and what guards its transitions.",
	keys: []ObjectKey{
		{"name", "The unique name of the workflow: letters, digits, dot, underscore and hyphen, 1 to 64 characters.", `{"type":"string","pattern":"^[A-Za-z0-9._-]{1,64}$"}`},
		{"description", "The purpose of the workflow, for people and models that choose one.", stringShape},
		{"comment", "A note for maintainers; nothing reads it.", stringShape},
		{"tags", "Free labels.", `{"type":"object","additionalProperties":{"type":"string"}}`},
		{"initialState", "The state in which instances start.", labelShape},
		{"inputSchema", "A JSON Schema of the start context (2020-12 unless $schema names another).", schemaShape},
		{"states", "The states by name. Their order is the order in listings and diagrams.", `{"type":"object","minProperties":1,"propertyNames":` + labelShape + `,"additionalProperties":{"$ref":"#/$defs/state"}}`},
		{"judgeConfig", "How the judge decides, for every transition that does not override it.", `{"$ref":"#/$defs/judgeConfig"}`},
		{"stateValidators", "By state: requirements on the merged context when an instance enters it (for the initial state: on the start context).", `{"type":"object","propertyNames":` + labelShape + `,"additionalProperties":{"$ref":"#/$defs/stateValidator"}}`},
		{"transitionValidators", "By action, or by state and action as \"state.action\": a function (data, context) => boolean or {valid, confidence, reason}. It runs in a sandbox in addition to the transition's own validator.", `{"type":"object","additionalProperties":` + validatorShape + `}`},
		{"sensitive", "JSON pointers into context and data whose values are masked for models, logs, errors and scripts; * matches every key or element.", pointersShape},
		{"mustPassThrough", "By state: the states that an instance must have visited before it may enter it.", `{"type":"object","propertyNames":` + labelShape + `,"additionalProperties":` + stateNames + `}`},
		{"retention", "How long the records of an instance are kept after it has ended. Only in definitions owned by an operator. Absent: forever.", `{"$ref":"#/$defs/retention"}`},
		{"access", "Who may read and move an instance: shared means every agent with the right to the workflow. Only in definitions owned by an operator. Absent: the agent that started it.", `{"enum":["shared"]}`},
		{"agents", "What agents may do with this definition, if an operator owns it, beyond following it.", `{"$ref":"#/$defs/agents"}`},
		{"$schema", "The schema that editors check this document against; nothing reads it.", stringShape},
	},
	required: []string{"name", "initialState", "states"},
}

var stateObject = objectGrammar{
	name: "state",
	doc:  "One state. A final one has no transitions, every other has at least one.",
	keys: []ObjectKey{
		{"description", "The meaning of this state.", stringShape},
		{"transitions", "What can be done here, by action: the target state, a list of routes, or an object.", `{"type":"object","propertyNames":` + labelShape + `,"additionalProperties":{"anyOf":[` + labelShape + `,` + routeList + `,{"$ref":"#/$defs/transition"}]}}`},
		{"final", "true when an instance that enters this state is complete.", booleanShape},
		{"outcome", "How a final state ends the instance, such as success or failure.", labelShape},
	},
}

var transitionObject = objectGrammar{
	name: "transition",
	doc:  "The effect of an action and its guards. Judge settings given here override judgeConfig; criteria are added.",
	keys: append([]ObjectKey{
		{"target", "The state that the action leads to, or a list of routes that are tried in order.", `{"anyOf":[` + labelShape + `,` + routeList + `]}`},
		{"description", "What performing the action means.", stringShape},
		{"requiredFields", "Fields of the action's data that must be present, not null and not a blank string: keys, dotted names or JSON pointers.", stringListShape},
		{"schema", "A JSON Schema of the action's data.", schemaShape},
		{"validator", "A function (data, context) => boolean or {valid, confidence, reason}; context is the one before the merge.", validatorShape},
		{"roles", "The roles that may perform the action. Absent: agents and operators.", `{"type":"array","minItems":1,"items":{"enum":["agent","reviewer","operator","auditor"]}}`},
		{"notBy", "An action, or several, whose performer may not perform this one on the same instance.", `{"anyOf":[` + labelShape + `,{"type":"array","items":` + labelShape + `}]}`},
		{"writes", "The top-level keys of context that the action may set. Absent: any that is not frozen.", stringListShape},
		{"freezes", "JSON pointers to fields that no one may change after this transition.", pointersShape},
		{"reference", "An example of data that meets the criteria, shown to the model.", `{"type":"string","maxLength":4000}`},
		{"exemplars", "At most three decided cases, shown to the model.", `{"type":"array","maxItems":3,"items":{"$ref":"#/$defs/exemplar"}}`},
		{"exemplarsFrom", "history: also show the model the nearest moves that persons decided in reviews. Only in definitions owned by an operator.", `{"enum":["history"]}`},
		{"evidence", "Facts that the gate fetches itself before it decides, instead of trusting the data. Only in definitions owned by an operator.", `{"type":"array","maxItems":8,"items":{"$ref":"#/$defs/evidence"}}`},
	}, settingKeys...),
	required: []string{"target"},
}

var evidenceObject = objectGrammar{
	name: "evidence",
	doc:  "One fact that the gate fetches from a source that an operator declared. Validators and conditions see it as evidence.<name>, the model as fetched by the gate.",
	keys: []ObjectKey{
		{"name", "Its name for scripts, the model and the record: a letter or underscore, then letters, digits and underscores.", `{"type":"string","pattern":"^[A-Za-z_][A-Za-z0-9_]{0,63}$"}`},
		{"source", "The name of a source in the configuration file.", `{"type":"string","pattern":"^[A-Za-z0-9._-]{1,64}$"}`},
		{"arguments", "Arguments for the source: values, or references such as \"{{context.commit}}\", also within objects and lists. Commands and addresses take texts, numbers and booleans, tools of other servers any. The caller who sets the field chooses the lookup: if that matters, refer to frozen fields.", `{"type":"object","maxProperties":16,"additionalProperties":{"type":["string","number","boolean","object","array"]}}`},
		{"timeout", "Maximum time for fetching, such as 30s. Absent: the source's limit.", durationShape},
		{"required", "false allows the move to be judged without it. Default true: nothing is approved without it.", booleanShape},
		{"maxAge", "How old it may be when a reviewer resolves the decision, such as 15m. Older evidence is fetched again; if it has changed, the review is void. Absent: always fetched again.", durationShape},
	},
	required: []string{"name", "source"},
}

var reviewObject = objectGrammar{
	name: "review",
	doc:  "How a decision that was escalated waits for a person.",
	keys: []ObjectKey{
		{"priority", "Default normal.", `{"enum":["low","normal","high","urgent"]}`},
		{"expiresAfter", "How long it waits, such as 72h or 7d, or never. Default 7d.", `{"type":"string"}`},
		{"onExpire", "What happens then: reject closes it, raise makes it urgent and keeps it open. Default reject.", `{"enum":["reject","raise"]}`},
	},
}

var exemplarObject = objectGrammar{
	name: "exemplar",
	doc:  "A decided case, as guidance for the model.",
	keys: []ObjectKey{
		{"data", "The data that the action came with.", `{"type":"object"}`},
		{"outcome", "The decision.", `{"enum":["approve","reject"]}`},
		{"why", "Why, in a sentence.", stringShape},
	},
	required: []string{"data", "outcome"},
}

var judgeObject = objectGrammar{
	name: "judgeConfig",
	doc:  "How the judge decides.",
	keys: settingKeys,
}

// settingKeys are keys of judgeConfig and of transitions.
var settingKeys = []ObjectKey{
	{"enabled", "false drops the content checks, the model and minConfidence; fields, schema, scripts and states are checked all the same. Default true.", booleanShape},
	{"useLLM", "true asks a model, after every other check has passed. Default false.", booleanShape},
	{"strictMode", "true approves only with at least minConfidence; false allows a low confidence with a warning. Default false.", booleanShape},
	{"minConfidence", "The confidence that strictMode demands, 0 to 1. Default 0.8.", `{"type":"number","minimum":0,"maximum":1}`},
	{"mode", "shadow records the judge's decision but allows the move; legality and routing are always enforced. Default enforce.", `{"enum":["enforce","shadow"]}`},
	{"onJudgeUnavailable", "What happens when the model is needed and cannot answer. Default: escalate with strictMode, structural without.", `{"enum":["escalate","structural","reject"]}`},
	{"requireAssurance", "The least assurance that an approval needs. Default none.", `{"enum":["none","structural","validators","llm","llm_calibrated","human"]}`},
	{"risk", "high demands a calibrated model or a person.", `{"enum":["normal","high"]}`},
	{"criteria", "Sentences that the model judges one by one.", `{"type":"array","items":` + criterionShape + `}`},
	{"content", "What happens to words that may be meant for the judge: flag (the default) shows them to the model and to a reviewer, escalate asks a person, reject refuses. Hidden characters, tokens of chat templates, markers of the prompt and verdicts in the judge's form are always refused.", `{"enum":["flag","escalate","reject"]}`},
	{"model", "The name of a model that an operator configured. Absent: the default one.", `{"type":"string","minLength":1}`},
	{"onEvidenceMissing", "What happens when required evidence is unavailable. reject (the default), or escalate: a person may decide without it.", `{"enum":["reject","escalate"]}`},
	{"review", "How an escalated decision waits for a person.", `{"$ref":"#/$defs/review"}`},
	{"samples", "How many times the model is asked, an odd number: a split never approves. Default 1.", `{"enum":[1,3,5,7,9]}`},
	{"panel", "Several models that judge each move, instead of model and samples. Without the agreement that rule demands, a person decides.", `{"$ref":"#/$defs/panel"}`},
}

var panelObject = objectGrammar{
	name: "panel",
	doc:  "Several models that judge the same move independently. A model that does not answer counts for neither side.",
	keys: []ObjectKey{
		{"models", "The names of two to nine models that an operator configured.", `{"type":"array","minItems":2,"maxItems":9,"uniqueItems":true,"items":{"type":"string","minLength":1}}`},
		{"rule", "Which approvals are needed: all (the default), or majority (more than half of the models). More than half against it rejects; anything in between goes to a person.", `{"enum":["all","majority"]}`},
	},
	required: []string{"models"},
}

var routeObject = objectGrammar{
	name: "route",
	doc:  "One of the states that an action can lead to. The first route whose condition is true is taken.",
	keys: []ObjectKey{
		{"condition", "An expression over data, context, evidence and call that is true or false; \"true\" for the fallback route.", scriptShape},
		{"target", "The state that this route leads to.", labelShape},
		{"description", "When this route is taken, in words.", stringShape},
	},
	required: []string{"condition", "target"},
}

var stateValidatorObject = objectGrammar{
	name: "stateValidator",
	doc:  "Requirements on the merged context when an instance enters the state.",
	keys: []ObjectKey{
		{"requiredFields", "Fields of the context that must be present, not null and not a blank string: keys, dotted names or JSON pointers.", stringListShape},
		{"schema", "A JSON Schema of the context.", schemaShape},
	},
}

var criterionObject = objectGrammar{
	name: "criterion",
	doc:  "A criterion with its proof. A text alone takes a quote of at least four words from anywhere.",
	keys: []ObjectKey{
		{"text", "The sentence that the model judges.", `{"anyOf":[{"type":"string","minLength":1},{"$ref":"#/$defs/file"}]}`},
		{"basis", "evidence: only a quote from fetched evidence meets it; without one it is not met, whatever the model answers.", `{"enum":["evidence"]}`},
		{"proof", "Demands on the quote, in addition to being verbatim. If it does not meet them, the criterion cannot be assessed.", `{"$ref":"#/$defs/proof"}`},
		{"when", "A JavaScript expression over data, context, evidence and call: the criterion is asked only if it is true.", scriptShape},
		{"advisory", "true: the answer is reported and recorded, and never blocks.", `{"type":"boolean"}`},
		{"each", "A JSON pointer to a list of at most 20 items, such as /data/symptoms: the criterion is asked of each item, and all must hold.", `{"type":"string","pattern":"^/(data|context|evidence)/."}`},
		{"scale", "Grades instead of met or not. Code compares the grade with atLeast, which the model does not see.", `{"$ref":"#/$defs/scale"}`},
	},
	required: []string{"text"},
}

var scaleObject = objectGrammar{
	name: "scale",
	doc:  "The grades of a criterion, from 1 to of. Without a grade in the documents, a person decides.",
	keys: []ObjectKey{
		{"of", "The highest grade.", `{"type":"integer","minimum":2,"maximum":10}`},
		{"atLeast", "The lowest grade that meets the criterion.", `{"type":"integer","minimum":1,"maximum":10}`},
		{"grades", "What each grade means, from 1 on.", `{"type":"array","minItems":2,"maxItems":10,"items":{"type":"string","minLength":1}}`},
	},
	required: []string{"of", "atLeast"},
}

var proofObject = objectGrammar{
	name: "proof",
	doc:  "Demands on a quote. Code checks them; the model sees them.",
	keys: []ObjectKey{
		{"minWords", "Minimum number of words, 1 to 50. Default 4.", `{"type":"integer","minimum":1,"maximum":50}`},
		{"figure", "true demands a digit in it.", booleanShape},
		{"pattern", "A regular expression (RE2) that it must match.", `{"type":"string","minLength":1,"maxLength":500}`},
		{"from", "Its source: data, context, evidence, or a JSON pointer into one, such as /data/comments.", `{"type":"string","pattern":"^(data|context|evidence|/(data|context|evidence)/.+)$"}`},
	},
}

var fileObject = objectGrammar{
	name: "file",
	doc:  "A file whose text is used as a validator or a criterion. Only in definitions that an operator loads from disk.",
	keys: []ObjectKey{
		{"file", "Its path, below the definition's folder, with slashes: checks/release.js.", `{"type":"string","minLength":1}`},
	},
	required: []string{"file"},
}

var agentsObject = objectGrammar{
	name: "agents",
	doc:  "What agents may do with an operator's definition. Only the operator can take back moves with external effects.",
	keys: []ObjectKey{
		{"rollback", "They may roll back, undo and redo moves of their own instances. Default: false.", booleanShape},
		{"redefine", "They may define new versions, which all new instances follow. Default: false.", booleanShape},
		{"configureJudge", "How they may change the judge of their own instances: tighten (the default), set (enabled, strictMode, minConfidence and useLLM freely), or none.", `{"enum":["none","set","tighten"]}`},
	},
}

var retentionObject = objectGrammar{
	name: "retention",
	doc:  "How long the records of an instance are kept after it has ended. Nothing is removed until gavel retain runs.",
	keys: []ObjectKey{
		{"events", "How long the whole history is kept after the end, such as 90d; at least 7d. After that only the event that ended the instance remains, with the state before it.", durationShape},
	},
}

// objects lists all objects of the format, in the order of the schema's $defs.
var objects = []*objectGrammar{&documentObject, &stateObject, &transitionObject, &routeObject, &exemplarObject, &evidenceObject, &reviewObject, &judgeObject, &stateValidatorObject, &retentionObject, &agentsObject, &criterionObject, &scaleObject, &proofObject, &fileObject, &panelObject}

// notSupported lists keys that people may expect because other judges have them.
var notSupported = map[string]string{
	"shadowModel":  "a shadow model",
	"shadowModels": "shadow models",
	"canary":       "a canary",
	"canaries":     "canaries",
	"logprobs":     "reading token probabilities",
}

func (o *objectGrammar) listKeys() []string {
	out := make([]string, len(o.keys))
	for i, k := range o.keys {
		out[i] = k.Name
	}
	return out
}

// FormatSchema returns the JSON Schema (2020-12) of the definition format for editors, with a
// description of every key. It rejects every unknown key that Parse rejects. It cannot express
// what only Lint can find, such as an unknown target.
func FormatSchema() json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"gavel workflow definition",`)
	documentObject.writeSchema(&b)
	b.WriteString(`,"$defs":{`)
	for _, o := range objects[1:] {
		b.WriteString(strconv.Quote(o.name) + `:{`)
		o.writeSchema(&b)
		b.WriteString(`},`)
	}
	b.WriteString(`"routes":{"description":"Routes that are tried in order; when none matches, the action is rejected.","type":"array","minItems":1,"items":{"$ref":"#/$defs/route"}}`)
	b.WriteString(`}}`)
	return b.Bytes()
}

func (o *objectGrammar) writeSchema(b *bytes.Buffer) {
	b.WriteString(`"description":` + quoteJSON(o.doc) + `,"type":"object","properties":{`)
	for i, k := range o.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		// In 2020-12 a $ref may have siblings, so the description is written next to it.
		b.WriteString(quoteJSON(k.Name) + `:{"description":` + quoteJSON(k.Doc) + `,` + k.Shape[1:])
	}
	b.WriteString(`},"additionalProperties":false`)
	if len(o.required) > 0 {
		required, _ := json.Marshal(o.required) // strings always marshal
		b.WriteString(`,"required":` + string(required))
	}
}

// quoteJSON quotes s for JSON without escaping <, > and &.
func quoteJSON(s string) string {
	quoted, _ := document.Marshal(s) // strings always encode
	return string(quoted)
}
