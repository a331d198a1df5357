package chain

import (
	"context"
	"strings"
	"testing"
)

// TestModelsReadNothingSensitive: declared sensitive values are masked in prompts for models. This includes
// earlier outputs, and works without a store.
func TestModelsReadNothingSensitive(t *testing.T) {
	t.Parallel()
	var asked string
	effects := effectsFunc(func(_ context.Context, c Command) Outcome {
		switch {
		case c.Op == OpComplete:
			asked = marshal(c.Arguments)
			return Outcome{Value: "a summary"}
		case c.Kind == KindPrompt:
			text := "Sum up what Bob (123-45-6789) wrote: the word is swordfish-17."
			return Outcome{Value: []any{map[string]any{"role": "user", "content": map[string]any{"type": "text", "text": text}}}}
		}
		return Outcome{Value: map[string]any{"word": "swordfish-17"}}
	})
	r := openRuns(t, t.TempDir(), effects)
	defer r.Close()
	d := parse(t, `sensitive: [/input/ssn, /steps/a/output/word]
variables: {input: {ssn: none}}
`+steps(`{id: a, type: tool, server: s, action: look}`, `{id: p, type: prompt, server: s, prompt_name: sum, complete: {model: m}, save_output_to: variables.output.p}`))
	result := waitRun(t, r, startRun(t, r, d, `{"ssn":"123-45-6789"}`))
	if marshal(result.Output) != `{"p":"a summary"}` {
		t.Errorf("%s, %v", marshal(result.Output), result.Err)
	}
	if strings.Contains(asked, "123-45-6789") || strings.Contains(asked, "swordfish-17") || !strings.Contains(asked, "wrote: the word is") {
		t.Errorf("the model was asked %s", asked)
	}
}
