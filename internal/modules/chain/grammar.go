package chain

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/gavel-mcp/gavel/validators/document"
)

// The grammar of the document is described only here: the parser takes the allowed keys from it, and
// FormatSchema the descriptions.

type objectGrammar struct {
	name     string // name of the $defs entry; "" for the document itself
	doc      string
	keys     []keyGrammar
	required []string
}

type keyGrammar struct {
	name, doc string
	shape     string // a JSON Schema as JSON text
}

const (
	anyString  = `{"type":"string"}`
	aName      = `{"type":"string","pattern":"^[A-Za-z][A-Za-z0-9_-]{0,63}$"}`
	anObject   = `{"type":"object"}`
	aValue     = `{}`
	aSpan      = `{"type":"string","pattern":"^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"}`
	aCount     = `{"type":"integer","minimum":1}`
	seconds    = `{"type":"number","minimum":0,"maximum":2592000}`
	aStepList  = `{"type":"array","minItems":1,"items":{"$ref":"#/$defs/step"}}`
	aCondition = `{"anyOf":[{"type":"string","minLength":1},{"$ref":"#/$defs/script"}]}`
	aHandler   = `{"anyOf":[` + aName + `,{"$ref":"#/$defs/callback"}]}`
	aTarget    = `{"type":"string","pattern":"^(variables\\.(output|global|saved)|saved)\\.[A-Za-z_][A-Za-z0-9_-]*$"}`
)

var documentObject = objectGrammar{
	doc: "A chain: steps across MCP servers that pass their outputs on.",
	keys: []keyGrammar{
		{"name", "The name of the chain: letters, digits, dot, underscore and hyphen, 1 to 58 characters.", `{"type":"string","pattern":"^[A-Za-z0-9._-]{1,58}$"}`},
		{"description", "The purpose of the chain, for people and models that choose one.", anyString},
		{"comment", "A note for maintainers; nothing reads it.", anyString},
		{"tags", "Labels, by which a configuration can select the chains that become tools.", `{"type":"object","additionalProperties":{"type":"string"}}`},
		{"variables", "The variables and their initial values.", `{"$ref":"#/$defs/variables"}`},
		{"inputSchema", "A JSON Schema of the input.", anObject},
		{"steps", "The steps, in order. A step that on_error, on_fail or a conditional names runs only through them.", aStepList},
		{"conditionals", "Steps that run depending on the outputs of others, by a name of your choice. Each is decided once, when the steps in its condition have ended.", `{"type":"object","additionalProperties":{"$ref":"#/$defs/conditional"}}`},
		{"on_error", "The step that runs when the run has failed. The run still fails.", aHandler},
		{"schedule", "When the chain runs automatically.", `{"$ref":"#/$defs/schedule"}`},
		{"sensitive", "JSON pointers to values that are masked, and sealed if the store seals values: /input/NAME, /steps/ID/output, /output/NAME and below; * matches every key or element.", `{"type":"array","items":{"type":"string"}}`},
		{"concurrency", "Maximum number of concurrent runs. Default: unlimited.", aCount},
		{"$schema", "The schema that editors check this document against; nothing reads it.", anyString},
	},
	required: []string{"name", "steps"},
}

var variablesObject = objectGrammar{
	name: "variables",
	doc:  "Variables by scope. Steps refer to them as {{variables.input.x}}, {{variables.global.x}} and {{saved.x}}.",
	keys: []keyGrammar{
		{"input", "The input of a run; the values are defaults. Steps cannot write it.", anObject},
		{"output", "The result of the run, written with save_output_to. Steps cannot read it.", anObject},
		{"global", "Values that the steps of a run share.", anObject},
		{"saved", "Values for the next run of the same chain and owner, kept when a run succeeds.", anObject},
	},
}

// These keys are shared by several kinds of steps.
var (
	keyID          = keyGrammar{"id", "The step's name: a letter, then letters, digits, underscore and hyphen. Unique in the chain.", aName}
	keyType        = keyGrammar{"type", "The type of the step.", `{"enum":["tool","resource","prompt","parallel","loop","forEach","switch","wait","workflow"]}`}
	keyDescription = keyGrammar{"description", "The purpose of the step.", anyString}
	keyOnError     = keyGrammar{"on_error", "The step that runs when this one has failed. Its output becomes this step's output.", aHandler}
	keySave        = keyGrammar{"save_output_to", "The variable that the output is saved to: variables.output.x, variables.global.x or saved.x.", aTarget}
	keySchema      = keyGrammar{"outputSchema", "A JSON Schema of the output. An output that does not match fails the step.", anObject}
	keyServer      = keyGrammar{"server", "The name of the MCP server, as in the section upstreams.", aName}
	keyArguments   = keyGrammar{"arguments", "Arguments. A value that is one reference keeps its type.", anObject}
	keyTimeout     = keyGrammar{"timeout", "How long the step may take, such as 30s.", aSpan}
	keyRetry       = keyGrammar{"retry", "How often the step is tried.", `{"$ref":"#/$defs/retry"}`}
	keyDefaults    = keyGrammar{"default", "By path: the value to use for a missing reference, such as {\"saved.last\": null}.", anObject}
	keyKeep        = keyGrammar{"keep", "The parts of the output to keep, as paths such as items[0].name. Without it, an output above 256 KB is an error.", `{"type":"array","minItems":1,"maxItems":100,"items":{"type":"string"}}`}
	keyConcurrent  = keyGrammar{"maxConcurrent", "Maximum number of concurrent branches. Default 10.", `{"type":"integer","minimum":1,"maximum":100}`}
	keyMode        = keyGrammar{"mode", "failFast (the default) starts no more branches once one has failed; all runs every branch. The step fails in both cases.", `{"enum":["failFast","all"]}`}
	keyInnerSteps  = keyGrammar{"steps", "The steps that are repeated.", aStepList}
)

// stepKeys lists the keys of a step by its kind.
var stepKeys = map[Kind][]keyGrammar{
	KindTool: {keyServer, {"action", "The name of the tool.", anyString}, keyArguments, keyTimeout, keyRetry, keyDefaults, keyKeep},
	KindResource: {
		keyServer,
		{"action", "read (the default), or write: with the tool that chains.writers names.", `{"enum":["read","write"]}`},
		{"uri", "The URI of the resource.", anyString},
		{"data", "The data to write.", aValue},
		keyTimeout, keyRetry, keyDefaults, keyKeep,
	},
	KindPrompt: {
		keyServer,
		{"action", "execute, the only action.", `{"enum":["execute"]}`},
		{"prompt_name", "The name of the prompt.", anyString},
		keyArguments,
		{"complete", "Lets a model answer the prompt's messages; its answer is the output.", `{"$ref":"#/$defs/complete"}`},
		keyTimeout, keyRetry, keyDefaults, keyKeep,
	},
	KindParallel: {{"tasks", "The steps that run in parallel.", aStepList}, keyConcurrent, keyMode},
	KindLoop: {
		keyInnerSteps,
		{"max_iterations", "Maximum number of iterations.", `{"type":"integer","minimum":1,"maximum":10000}`},
		{"delay_seconds", "How long to wait between iterations.", seconds},
		{"until", "The condition that ends the loop. If it never becomes true, the step fails.", aCondition},
	},
	KindForEach: {keyInnerSteps, {"items", "A list, or a reference to one. In the steps, {{item}} is the current item and {{index}} its position.", aValue}, keyConcurrent, keyMode, keyDefaults},
	KindSwitch: {
		{"cases", "The cases, in order. The steps of the first true case run.", `{"type":"array","minItems":1,"items":{"$ref":"#/$defs/case"}}`},
		{"else", "The steps that run if no case is true.", aStepList},
	},
	KindWait: {
		{"seconds", "How long to wait.", seconds},
		{"signal", "The signal to wait for; its value is the output.", aName},
		{"review", "The id of the review to wait for; the output has the decision.", anyString},
		keyTimeout, keyDefaults,
	},
	KindWorkflow: {
		{"action", "start an instance, advance it, or wait for a state.", `{"enum":["start","advance","wait"]}`},
		{"workflow", "The name of the workflow to start.", anyString},
		{"instance", "The id of the instance to advance or to wait for.", anyString},
		{"perform", "The action to perform.", anyString},
		{"data", "The data of the action, or the context of the new instance.", anObject},
		{"state", "The state to wait for.", anyString},
		keyTimeout, keyRetry, keyDefaults,
	},
}

// stepRequired lists the required keys of a step in addition to id and type.
var stepRequired = map[Kind][]string{
	KindTool: {"server", "action"}, KindResource: {"server", "uri"}, KindPrompt: {"server", "prompt_name"},
	KindParallel: {"tasks"}, KindLoop: {"steps", "max_iterations"}, KindForEach: {"steps", "items"}, KindSwitch: {"cases"}, KindWorkflow: {"action"},
}

// kinds lists all kinds, in the order of the reference.
var kinds = []Kind{KindTool, KindResource, KindPrompt, KindParallel, KindLoop, KindForEach, KindSwitch, KindWait, KindWorkflow}

// grammarOf returns the grammar of a step of a kind.
func grammarOf(kind Kind) *objectGrammar {
	keys := append([]keyGrammar{keyID, keyType, keyDescription, keyOnError, keySave, keySchema}, stepKeys[kind]...)
	return &objectGrammar{name: string(kind) + "Step", doc: "A step of the type " + string(kind) + ".", keys: keys, required: append([]string{"id"}, stepRequired[kind]...)}
}

var retryObject = objectGrammar{
	name: "retry",
	doc:  "How often a step is tried. A call that the server answered with an error is retried. A call that a gate refused is not, and neither is a call of a non-repeatable tool that may have run.",
	keys: []keyGrammar{
		{"max_attempts", "Maximum number of attempts, 1 to 20.", `{"type":"integer","minimum":1,"maximum":20}`},
		{"delay_seconds", "How long to wait before the second attempt. Default 1.", seconds},
		{"backoff", "How the delay grows: fixed (the default), linear or exponential.", `{"enum":["fixed","linear","exponential"]}`},
		{"on_fail", "The step that runs when every attempt has failed. Its output becomes this step's output.", aHandler},
	},
	required: []string{"max_attempts"},
}

var callbackObject = objectGrammar{
	name: "callback",
	doc:  "A step that runs when another has failed, with other arguments. They may refer to {{failed_step.id}} and {{error.message}}.",
	keys: []keyGrammar{
		{"step", "The step's id.", aName},
		{"arguments", "The arguments, instead of the step's own.", anObject},
		{"then", "continue (the default): the run continues after the failed step. stop: the run is done, with the values saved so far.", `{"enum":["continue","stop"]}`},
	},
	required: []string{"step"},
}

var conditionalObject = objectGrammar{
	name: "conditional",
	doc:  "Steps that run depending on a condition.",
	keys: []keyGrammar{
		{"condition", "Two operands and ==, !=, <, <=, >, >= or contains; several of these joined by and, or, not and parentheses; or a script.", aCondition},
		{"if_true", "The steps that run if it is true.", `{"type":"array","items":` + aName + `}`},
		{"if_false", "The steps that run if it is false.", `{"type":"array","items":` + aName + `}`},
	},
	required: []string{"condition"},
}

var caseObject = objectGrammar{
	name: "case",
	doc:  "One case of a switch.",
	keys: []keyGrammar{
		{"when", "Its condition.", aCondition},
		{"steps", "The steps that run.", aStepList},
	},
	required: []string{"when", "steps"},
}

var scriptObject = objectGrammar{
	name: "script",
	doc:  "A condition that is an expression in the sandbox, over data: {variables, saved, and each step's output by its id}.",
	keys: []keyGrammar{
		{"script", "A JavaScript expression that is true or false.", `{"type":"string","minLength":1,"maxLength":16384}`},
	},
	required: []string{"script"},
}

var completeObject = objectGrammar{
	name: "complete",
	doc:  "The model that answers a prompt.",
	keys: []keyGrammar{
		{"model", "The name of a configured model.", anyString},
	},
	required: []string{"model"},
}

var scheduleObject = objectGrammar{
	name: "schedule",
	doc:  "When a chain runs.",
	keys: []keyGrammar{
		{"type", "cron, interval or once.", `{"enum":["cron","interval","once"]}`},
		{"expression", "With cron: minute, hour, day of the month, month and day of the week.", anyString},
		{"timezone", "With cron: the zone of the expression, such as Europe/Berlin. Default UTC.", anyString},
		{"seconds", "With interval: the time from one tick to the next.", `{"type":"integer","minimum":1}`},
		{"at", "With once: when, such as 2026-02-04T14:30:00Z.", anyString},
		{"missed", "What happens to missed ticks: latest (the default) runs the last one, all runs each, skip runs none.", `{"enum":["latest","all","skip"]}`},
		{"missedWithin", "How long after its time a missed tick may still run. Default 24h.", aSpan},
		{"overlap", "What happens to a tick while a run is under way: skip (the default), queue, replace or allow.", `{"enum":["skip","queue","replace","allow"]}`},
		{"jitter", "Maximum delay of a run's start, so that not all runs start at the same time.", aSpan},
	},
	required: []string{"type"},
}

// objects lists the objects with a fixed grammar, in the order of the schema's $defs.
var objects = []*objectGrammar{&variablesObject, &retryObject, &callbackObject, &conditionalObject, &caseObject, &scriptObject, &completeObject, &scheduleObject}

func (o *objectGrammar) listKeys() []string {
	out := make([]string, len(o.keys))
	for i, k := range o.keys {
		out[i] = k.name
	}
	return out
}

// FormatSchema returns the JSON Schema (2020-12) of the definition format, for editors. It does not cover
// what only Lint can check.
func FormatSchema() json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"gavel chain definition",`)
	documentObject.writeSchema(&b)
	b.WriteString(`,"$defs":{"step":{"description":"A step of one of the types.","oneOf":[`)
	for i, kind := range kinds {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"$ref":"#/$defs/` + string(kind) + `Step"}`)
	}
	b.WriteString(`]}`)
	for _, kind := range kinds {
		g := grammarOf(kind)
		g.keys[1].shape = `{"const":` + strconv.Quote(string(kind)) + `}`
		g.required = append(g.required, "type")
		b.WriteString(`,` + strconv.Quote(g.name) + `:{`)
		g.writeSchema(&b)
		b.WriteByte('}')
	}
	for _, o := range objects {
		b.WriteString(`,` + strconv.Quote(o.name) + `:{`)
		o.writeSchema(&b)
		b.WriteByte('}')
	}
	b.WriteString(`}}`)
	return b.Bytes()
}

func (o *objectGrammar) writeSchema(b *bytes.Buffer) {
	b.WriteString(`"description":` + quoteJSON(o.doc) + `,"type":"object","properties":{`)
	for i, k := range o.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quoteJSON(k.name) + `:{"description":` + quoteJSON(k.doc))
		if rest := k.shape[1:]; rest != "}" {
			b.WriteByte(',')
			b.WriteString(rest)
		} else {
			b.WriteByte('}')
		}
	}
	b.WriteString(`},"additionalProperties":false`)
	if len(o.required) > 0 {
		required, _ := json.Marshal(o.required) // strings always encode
		b.WriteString(`,"required":` + string(required))
	}
}

// quoteJSON quotes s for JSON without escaping <, > and &.
func quoteJSON(s string) string {
	quoted, _ := document.Marshal(s) // strings always encode
	return string(quoted)
}
