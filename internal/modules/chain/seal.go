package chain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine"
)

// sealedText is what DBOS records instead of a text that may hold sensitive values. It names the run whose
// key seals it, because a redriven run contains steps of another run.
type sealedText struct {
	Run    string `json:"sealedFor"`
	Text   string `json:"text"`
	Failed bool   `json:"failed,omitempty"` // of a result: whether the run failed
}

// seal returns a text as DBOS records it: sealed if the chain has sensitive values and the store seals
// them.
func (r *Runs) seal(ctx context.Context, run string, sensitive, failed bool, text string) (string, error) {
	if !sensitive || r.config.Ledger == nil || r.config.Ledger.Values() == nil {
		return text, nil
	}
	sealed, err := r.config.Ledger.Values().SealText(ctx, engine.RunInstance(run), text)
	if err != nil {
		return "", fmt.Errorf("seal the record of the run %s: %w", run, err)
	}
	raw, err := json.Marshal(sealedText{Run: run, Text: sealed, Failed: failed})
	return string(raw), err
}

// open returns the original of a text that may be sealed.
func (r *Runs) open(ctx context.Context, text string) (string, error) {
	e, ok := readSealed(text)
	if !ok {
		return text, nil
	}
	if r.config.Ledger == nil {
		return "", fmt.Errorf("the record of the run %s is sealed, and its store is not open here", e.Run)
	}
	plain, err := r.config.Ledger.Values().OpenText(ctx, engine.RunInstance(e.Run), e.Text)
	if err != nil {
		return "", fmt.Errorf("open the sealed record of the run %s: %w", e.Run, err)
	}
	return plain, nil
}

// isSealed reports whether the records of a run are sealed.
func (r *Runs) isSealed(ctx context.Context, run string) (bool, error) {
	w, err := r.findRow(ctx, run, dbos.WithFilterLoadInput(true))
	if errors.Is(err, ErrUnknownRun) {
		return false, nil
	}
	_, sealed := readSealed(unquote(w.Input))
	return sealed, err
}

func readSealed(text string) (e sealedText, ok bool) {
	if !strings.HasPrefix(text, `{"sealedFor":`) || json.Unmarshal([]byte(text), &e) != nil {
		return sealedText{}, false
	}
	return e, true
}

// unquote returns a text as DBOS lists it, decoded if it is a JSON string.
func unquote(recorded any) string {
	text, _ := recorded.(string)
	if unquoted := ""; strings.HasPrefix(text, `"`) && json.Unmarshal([]byte(text), &unquoted) == nil {
		return unquoted
	}
	return text
}

// readResult decodes the recorded output of a run, or returns nil if there is none. If its key was
// destroyed, only whether the run failed is known.
func (r *Runs) readResult(output any) *Result {
	text := unquote(output)
	sealed, isSealed := readSealed(text)
	plain, err := r.open(context.Background(), text)
	if err != nil && isSealed {
		result := &Result{}
		if sealed.Failed {
			result.Err = &StepError{Code: CodeSealed, Message: "the reason for the failure cannot be read: " + err.Error(), Final: true}
		}
		return result
	}
	var result Result
	if decodeExact(plain, &result) != nil {
		return nil
	}
	return &result
}

// learnSaved learns which of the values saved by the last run are sensitive: those that came from a step
// with sensitive output.
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
