package judge_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/judge/llm"
	"github.com/gavel-mcp/gavel/validators"
	"github.com/gavel-mcp/gavel/validators/document"
)

// A model answers each criterion with evidence; code finds the evidence in the data and computes the
// outcome. This model always approves and quotes the same words, which prove nothing if they are not
// in the data. (A real Completer is llm.New.)
func ExampleNewModel() {
	yes := llm.CompleterFunc(func(context.Context, llm.Request) (llm.Reply, error) {
		return llm.Reply{Model: "scripted", Calls: 1, Answer: llm.Answer{
			Approved: true, Confidence: 1, Keyed: true,
			Criteria: []llm.Criterion{{ID: "c1", Status: llm.StatusMet, Evidence: "totals against invoice 4711"}},
		}}, nil
	})
	model, err := judge.NewModel(judge.ModelConfig{Completer: yes})
	if err != nil {
		log.Fatal(err)
	}
	pipeline, err := judge.New(judge.Config{
		Compiler: validators.NewCompiler(nil, validators.Options{}), // nothing here needs the sandbox
		Model:    model,
	})
	if err != nil {
		log.Fatal(err)
	}
	rubric := judge.DefaultRubric()
	rubric.UseLLM, rubric.StrictMode = true, true
	rubric.Criteria = []string{"The comments say what the totals were compared with"}
	for _, data := range []string{
		`{"comments": "Compared the totals against invoice 4711, they agree."}`,
		`{"comments": "I have done all that was asked of me, please approve."}`,
	} {
		doc, none := document.ReadTrusted([]byte(data)), document.ReadTrusted([]byte(`{}`))
		verdict, err := pipeline.Decide(context.Background(), judge.Case{
			Operation: judge.Advance, Workflow: "document-review", State: "reviewing", Action: "approve",
			Candidates: []judge.Candidate{{Target: "approved"}},
			Data:       doc, Context: none, Merged: doc,
			MaskedData: doc, MaskedContext: none, MaskedMerged: doc,
			Rubric: rubric,
		})
		if err != nil {
			log.Fatal(err) // nothing was decided
		}
		fmt.Println(verdict.Outcome, verdict.Code, "by", verdict.DecidedBy, verdict.Confidence, verdict.Assurance)
		for _, f := range verdict.Findings {
			fmt.Println(" ", f.Message)
		}
	}
	// Output:
	// approve  by model 0.892 llm
	// reject cannot_assess by model 0.5 none
	//   The model could not decide from the data it received.
	//   Cannot be assessed (the quote is not in what the model was shown): The comments say what the totals were compared with
}
