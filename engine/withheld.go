package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// withheldSettings are settings of the judge that are nothing for those who are judged by somebody
// else's definition: where the cut-off lies, how often the model is asked, and the answers
// that others are compared with. Criteria are told, for they are what is demanded.
var withheldSettings = []string{"minConfidence", "samples", "reference", "exemplars"}

func showsJudge(p Principal, s store.Definition) bool { return canGovern(p, s) || seesAll(p.Role) }

// showsJudgeOf is the same for a version that may not be the newest: what an operator configured since
// he took the name over counts for the old ones, too.
func (e *Engine) showsJudgeOf(ctx context.Context, p Principal, s store.Definition) (bool, error) {
	if !showsJudge(p, s) || seesAll(p.Role) {
		return showsJudge(p, s), nil
	}
	newest, err := e.loadDefinition(ctx, s.Name, 0)
	return err == nil && canGovern(p, newest.stored), err
}

func definitionView(known bool, l definition, shared bool, overlays []workflow.Overlay) (DefinitionView, error) {
	out := DefinitionView{DefinitionSummary: summarizeDefinition(l, shared), Definition: l.stored.Document, Judge: rubricView(known, l, overlays)}
	if known {
		return out, nil
	}
	open, cut, err := workflow.RemoveJudgeSettings(l.stored.Document, withheldSettings...)
	if err != nil {
		return DefinitionView{}, InternalError(fmt.Sprintf("stored definition %s version %d does not parse", l.stored.Name, l.stored.Version), err)
	}
	out.Definition, out.Withheld = open, cut
	if !slices.Contains(cut, withheldSettings[0]) { // there is one for every definition
		out.Withheld = append([]string{withheldSettings[0]}, cut...)
	}
	return out, nil
}

func rubricView(known bool, l definition, overlays []workflow.Overlay) RubricView {
	r := l.def.Rubric(overlays)
	if known {
		return RubricView{Rubric: r, MinConfidence: &r.MinConfidence}
	}
	r.MinConfidence, r.Samples, r.Reference, r.Exemplars = 0, 0, "", nil
	return RubricView{Rubric: r}
}
