package judge_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
	"github.com/gavel-mcp/gavel/validators/script"
)

// A move is judged by the requirements of its transition: here two fields and a
// validator. (The program's main, or TestMain, begins with worker.Main().)
func Example() {
	sandbox, err := script.NewPool(script.Config{Soft: time.Second, Hard: 3 * time.Second, Total: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Close()
	pipeline, err := judge.New(judge.Config{Compiler: validators.NewCompiler(sandbox, validators.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	rubric := judge.DefaultRubric()
	rubric.StrictMode = true
	for _, data := range []string{
		`{"reviewer": "ann"}`,
		`{"reviewer": "ann", "comments": "fine"}`,
		`{"reviewer": "ann", "comments": "All twelve figures match their sources."}`,
	} {
		doc, none := document.ReadTrusted([]byte(data)), document.ReadTrusted([]byte(`{}`))
		verdict, err := pipeline.Decide(context.Background(), judge.Case{
			Operation: judge.Advance, Workflow: "document-review", State: "reviewing", Action: "approve",
			Owner: validators.Owner{ID: "operator", Trusted: true},
			Checks: validators.Checks{
				RequiredFields: []string{"reviewer", "comments"},
				Validators: []script.Script{{
					Name: "comments", Kind: script.Validator,
					Source: "(data) => ({ valid: data.comments.length >= 20, reason: 'Say what you reviewed' })",
				}},
			},
			Candidates: []judge.Candidate{{Target: "approved"}},
			Data:       doc, Context: none, Merged: doc,
			MaskedData: doc, MaskedContext: none, MaskedMerged: doc,
			Rubric: rubric,
		})
		if err != nil {
			log.Fatal(err) // nothing was decided: the sandbox could not answer
		}
		fmt.Println(verdict.Outcome, verdict.Code, "by", verdict.DecidedBy, verdict.Confidence, verdict.Assurance)
		fmt.Println(" ", verdict.Reasoning)
	}
	// Output:
	// reject required_field by fields 1 structural
	//   "comments" is required. Correct this and perform the action again.
	// reject validator_rejected by script 1 validators
	//   The validator comments rejects this: Say what you reviewed. Correct this and perform the action again.
	// approve  by script 1 validators
	//   The action "approve" is legal in the state "reviewing". All 2 required fields are present. The validator agrees.
}
