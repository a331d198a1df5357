package chain_test

import (
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/internal/modules/chain"
)

// TestSavedSecretInTheNextRun: a value that a sensitive step saved is masked in the record of the next run,
// even if an error repeats it.
func TestSavedSecretInTheNextRun(t *testing.T) {
	const secret = "first-secret-1"
	_, service, e := openRecorded(t, func(c chain.Command) chain.Outcome {
		if last, _ := c.Arguments.(map[string]any)["last"].(string); last == secret {
			return chain.Outcome{Err: &chain.StepError{Code: chain.CodeToolError, Message: "refused " + last, Final: true}}
		}
		return chain.Outcome{Value: secret}
	}, `
name: saving
variables: {saved: {last: none}}
sensitive: [/steps/b/output]
steps:
- {id: a, type: tool, server: s, action: a, arguments: {last: "{{saved.last}}"}}
- {id: b, type: tool, server: s, action: b, arguments: {}, save_output_to: saved.last}
`)
	v, err := service.StartRun(t.Context(), ann, chain.StartRun{Chain: "saving"})
	if err == nil {
		v, err = service.WaitRun(t.Context(), ann, v.Run)
	}
	if err != nil || v.Status != chain.StatusDone {
		t.Fatalf("%+v, %v", v, err)
	}
	v, err = service.StartRun(t.Context(), ann, chain.StartRun{Chain: "saving", Run: "next"})
	if err == nil {
		v, err = service.WaitRun(t.Context(), ann, v.Run)
	}
	if err != nil || v.Status != chain.StatusFailed {
		t.Fatalf("%+v, %v", v, err)
	}
	kept, err := e.Status(t.Context(), olga, v.Instance)
	if err != nil || !strings.Contains(string(kept.Context), "refused ") || strings.Contains(string(kept.Context), secret) {
		t.Errorf("the record is %s, %v", kept.Context, err)
	}
}
