package worker

import (
	"time"

	"github.com/dop251/goja"

	"github.com/gavel-mcp/gavel/validators/script"
)

// InProcess is the evaluator without a process around it: the baseline, and what
// tests of the contract call.
type InProcess struct{ e *evaluator }

func NewInProcess() *InProcess {
	return &InProcess{newEvaluator(script.Setup{Soft: time.Minute, Hard: time.Hour, ScriptMemory: 1 << 40, WorkerMemory: 1 << 40})}
}

func (p *InProcess) Evaluate(q *script.Request, s script.Source) script.Outcome {
	return p.e.evaluate(q, s)
}

// Cached is how many programs the evaluator remembers.
func (p *InProcess) Cached() int { return p.e.programs.Len() }

// DecodeJSON decodes a text as the worker does and says what the runtime's own
// JSON.stringify makes of it.
func DecodeJSON(text []byte) (string, error) {
	vm := goja.New()
	values := maxValues
	v, err := decodeObject(vm, text, &values)
	if err != nil {
		return "", err
	}
	raw, err := v.ToObject(vm).MarshalJSON()
	return string(raw), err
}

// MaxPrograms is the size of the cache.
const MaxPrograms = maxPrograms

// ProbeMain is called by TestMain; in a process started as ProbeName it does not return.
var ProbeMain = func() {}

var (
	IsStarved     = isStarved
	ProcessorTime = processorTime
)
