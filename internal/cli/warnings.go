package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gavel-mcp/gavel/internal/module"
)

// Missing lists the workflows that require what is not configured.
type Missing struct{ Model, Sources []string }

// FindMissing returns what the newest versions of the definitions require and the configuration lacks.
func FindMissing(ctx context.Context, sys *System) (m Missing, err error) {
	stored, err := sys.Store.Definitions(ctx)
	if err != nil {
		return m, err
	}
	for _, newest := range stored {
		d, err := sys.Store.Definition(ctx, newest.Name, newest.Version)
		if err != nil {
			return m, err
		}
		// Documents are compact JSON.
		if sys.Model == nil && bytes.Contains(d.Document, []byte(`"useLLM":true`)) {
			m.Model = append(m.Model, d.Name)
		}
		if sys.Sources == nil && bytes.Contains(d.Document, []byte(`"evidence":[{`)) {
			m.Sources = append(m.Sources, d.Name)
		}
	}
	return m, nil
}

// warningsAge is how long warnings are reused, so that open pages do not load the store.
const warningsAge = 5 * time.Second

// warningsTime limits how long finding them may take.
const warningsTime = 5 * time.Second

// Warnings finds what makes the decisions of a system unsafe.
type Warnings struct {
	Sys *System

	refreshing sync.Mutex // held while the warnings are found
	mu         sync.Mutex
	at         time.Time
	last       []module.Warning
}

// Find returns the present warnings. While one caller finds them anew, others get the last ones.
func (w *Warnings) Find(ctx context.Context) []module.Warning {
	all, at := w.get()
	if !at.IsZero() && (time.Since(at) < warningsAge || !w.refreshing.TryLock()) {
		return all
	}
	if at.IsZero() {
		w.refreshing.Lock()
	}
	defer w.refreshing.Unlock()
	if all, at = w.get(); !at.IsZero() && time.Since(at) < warningsAge {
		return all
	}
	// A caller that disconnects must not cause a warning for the next one.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), warningsTime)
	defer cancel()
	found := w.find(bounded)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.at = found, time.Now()
	return found
}

func (w *Warnings) get() ([]module.Warning, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.at
}

func (w *Warnings) find(ctx context.Context) (all []module.Warning) {
	if s, ok := w.Sys.Store.(interface {
		CheckWritable(ctx context.Context) error
	}); ok {
		if err := s.CheckWritable(ctx); err != nil {
			all = append(all, module.Warning{Name: "store", Text: fmt.Sprintf("The store cannot be written: %v.", err), Next: "No move is made until it can."})
		}
	}
	if w.Sys.Model != nil {
		if err := w.Sys.Model.FindTrouble(); err != nil {
			all = append(all, module.Warning{Name: "model", Text: fmt.Sprintf("The model gives no judgement: %v.", err), Next: "onJudgeUnavailable decides moves that need it. Test it with gavel judge doctor."})
		}
	}
	missing, err := FindMissing(ctx, w.Sys)
	if err != nil {
		return append(all, module.Warning{Name: "definitions", Text: fmt.Sprintf("The definitions cannot be read: %v.", err), Next: "The log of the server has the details."})
	}
	if len(missing.Model) > 0 {
		all = append(all, module.Warning{
			Name: "no-model", Text: "No model is configured, but workflows need its judgement: " + strings.Join(missing.Model, ", ") + ".",
			Next: "onJudgeUnavailable decides such moves. Set LLM_JUDGE_MODEL, LLM_BASE_URL and LLM_API_KEY.",
		})
	}
	if len(missing.Sources) > 0 {
		all = append(all, module.Warning{
			Name: "no-sources", Text: "No source of evidence is configured, but workflows need evidence: " + strings.Join(missing.Sources, ", ") + ".",
			Next: "onEvidenceMissing decides such moves. Declare the sources in a file, and give it with --config.",
		})
	}
	return append(all, w.Sys.Extensions().Warnings(ctx)...)
}
