package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine"
)

// sealedText is what DBOS records in the place of a text that may hold sensitive values: it names
// the run whose key seals it, because a redriven run has the steps of another.
type sealedText struct {
	Run    string `json:"sealedFor"`
	Text   string `json:"text"`
	Failed bool   `json:"failed,omitempty"` // of a result
}

// seal returns a text as DBOS records it: sealed where the chain has sensitive values and the store
// seals them.
func (r *Runs) seal(ctx context.Context, run string, sensitive, failed bool, text string) (string, error) {
	if !sensitive || r.config.Ledger == nil || r.config.Ledger.Values() == nil {
		return text, nil
	}
	sealed, err := r.config.Ledger.Values().SealText(ctx, engine.RunInstance(run), text)
	if err != nil {
		return "", fmt.Errorf("seal what the run %s records: %w", run, err)
	}
	raw, err := json.Marshal(sealedText{Run: run, Text: sealed, Failed: failed})
	return string(raw), err
}

// open returns a text as it was before seal.
func (r *Runs) open(ctx context.Context, text string) (string, error) {
	e, ok := readSealed(text)
	if !ok {
		return text, nil
	}
	if r.config.Ledger == nil {
		return "", fmt.Errorf("what the run %s recorded is sealed, and its store is not open here", e.Run)
	}
	plain, err := r.config.Ledger.Values().OpenText(ctx, engine.RunInstance(e.Run), e.Text)
	if err != nil {
		return "", fmt.Errorf("open what the run %s recorded: %w", e.Run, err)
	}
	return plain, nil
}

// isSealed reports whether what a run records is sealed.
func (r *Runs) isSealed(ctx context.Context, run string) (bool, error) {
	list, err := r.listRows(ctx, dbos.WithFilterWorkflowIDs(run), dbos.WithFilterLoadInput(true))
	if err != nil || len(list) == 0 {
		return false, err
	}
	_, sealed := readSealed(unquote(list[0].Input))
	return sealed, nil
}

func readSealed(text string) (e sealedText, ok bool) {
	if !strings.HasPrefix(text, `{"sealedFor":`) || json.Unmarshal([]byte(text), &e) != nil {
		return sealedText{}, false
	}
	return e, true
}

// unquote is a text as DBOS lists it, which may be JSON of it.
func unquote(recorded any) string {
	text, _ := recorded.(string)
	if unquoted := ""; strings.HasPrefix(text, `"`) && json.Unmarshal([]byte(text), &unquoted) == nil {
		return unquoted
	}
	return text
}

// readResult decodes what DBOS has as a run's output, nil where there is none. Of one whose key was
// destroyed it is known only whether the run failed.
func (r *Runs) readResult(output any) *Result {
	text := unquote(output)
	sealed, isSealed := readSealed(text)
	plain, err := r.open(context.Background(), text)
	if err != nil && isSealed {
		result := &Result{}
		if sealed.Failed {
			result.Err = &StepError{Code: CodeSealed, Message: "why it failed cannot be read: " + err.Error(), Final: true}
		}
		return result
	}
	var result Result
	d := json.NewDecoder(strings.NewReader(plain))
	d.UseNumber()
	if d.Decode(&result) != nil {
		return nil
	}
	return &result
}

// learnSaved notes which of the values that the last run saved are sensitive: what a step gave whose output is.
func (l *runRecord) learnSaved(d *Definition, saved map[string]any) {
	if l == nil {
		return
	}
	d.visitSteps(func(s *Step) {
		if t := s.SaveOutputTo; t != nil && t.scope == "saved" && saved[t.name] != nil {
			l.learn(map[string]any{"steps": map[string]any{s.ID: map[string]any{"output": saved[t.name]}}})
		}
	})
}
