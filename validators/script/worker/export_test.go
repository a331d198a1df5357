package worker

import (
	"time"

	"github.com/gavel-mcp/gavel/validators/script"
)

// InProcess is the evaluator without a process around it: the baseline.
type InProcess struct{ e *evaluator }

func NewInProcess() *InProcess {
	setup := script.Setup{Soft: time.Minute, Hard: time.Hour, ScriptMemory: 1 << 40, WorkerMemory: 1 << 40}
	return &InProcess{newEvaluator(setup)}
}

func (p *InProcess) Evaluate(q *script.Request, s script.Source) script.Outcome {
	return p.e.evaluate(q, s)
}
