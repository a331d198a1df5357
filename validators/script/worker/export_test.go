package worker

import (
	"time"

	"github.com/dop251/goja"

	"github.com/gavel-mcp/gavel/validators/script"
)

// InProcess is an evaluator in this process, for the benchmark's baseline and for tests of the contract.
type InProcess struct{ e *evaluator }

func NewInProcess() *InProcess {
	return &InProcess{newEvaluator(script.Setup{Soft: time.Minute, Hard: time.Hour, ScriptMemory: 1 << 40, WorkerMemory: 1 << 40})}
}

func (p *InProcess) Evaluate(q *script.Request, s script.Source) script.Outcome {
	return p.e.evaluate(q, s)
}

// Cached returns the number of cached programs.
func (p *InProcess) Cached() int { return p.e.programs.Len() }

// DecodeJSON decodes a text like a worker and returns the value as formatted by the runtime's own
// JSON.stringify.
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

// MaxPrograms is the size of the program cache.
const MaxPrograms = maxPrograms

// ProbeMain must be called by TestMain. It does not return in a process that was started as ProbeName.
var ProbeMain = func() {}

var (
	IsStarved     = isStarved
	ProcessorTime = processorTime
)
