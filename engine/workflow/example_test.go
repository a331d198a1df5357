package workflow_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/judge"
)

const review = `
name: document-review
initialState: draft
states:
  draft:
    transitions: {submit: reviewing}
  reviewing:
    transitions: {approve: approved, reject: draft}
  approved: {final: true}
stateValidators:
  reviewing: {requiredFields: [documentId, reviewer]}
`

func ExampleParse() {
	_, err := workflow.Parse("review.yaml", []byte("name: review\ninitialState: draft\nstates:\n  draft:\n    finale: true\n"))
	if pe, ok := errors.AsType[*workflow.ParseError](err); ok {
		for _, issue := range pe.Issues {
			fmt.Println(issue)
		}
	}
	// Output:
	// line 5: /states/draft/finale: unknown key "finale"; did you mean "final"? [unknown-key]
}

func ExampleDefinition_Case() {
	d, err := workflow.Parse("review.yaml", []byte(review))
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := d.Case(workflow.CaseInput{
		Operation: judge.Advance, State: "draft", Action: "submit", Role: "agent",
		Data: []byte(`{"reviewer":"ada"}`), Context: []byte(`{"documentId":"d-1"}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("leads to", c.Candidates[0].Target)
	fmt.Println("entering needs", c.Candidates[0].Entry.RequiredFields)
	fmt.Println("of", string(c.Merged.Raw()))

	c, err = d.Case(workflow.CaseInput{Operation: judge.Advance, State: "draft", Action: "aprove", Role: "agent"})
	fmt.Println(c.Illegal[0].Message, err)
	// Output:
	// leads to reviewing
	// entering needs [documentId reviewer]
	// of {"documentId":"d-1","reviewer":"ada"}
	// The action "aprove" is not possible in state "draft"; possible: "submit". <nil>
}

func ExampleMerge() {
	merged, err := workflow.Merge([]byte(`{"title":"Draft","pages":10.50,"draft":true}`), []byte(`{"title":"Final","draft":null,"pages2":1}`))
	fmt.Println(string(merged), err)
	// Output: {"title":"Final","pages":10.50,"pages2":1} <nil>
}

func ExampleDefinition_WriteMermaid() {
	d, err := workflow.Parse("review.yaml", []byte(review))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := d.WriteMermaid(os.Stdout, workflow.Marks{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// stateDiagram-v2
	//     [*] --> draft
	//     draft --> reviewing : submit
	//     reviewing --> approved : approve
	//     reviewing --> draft : reject
	//     approved --> [*]
}
