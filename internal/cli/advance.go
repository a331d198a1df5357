package cli

import (
	"encoding/json"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// FormatAdvance returns the command that performs an action, with "..." for each required data field.
func (f TargetFlags) FormatAdvance(p engine.Position, n workflow.NextAction) string {
	line := "gavel advance " + p.ID + " " + n.Action
	if len(n.Requires) > 0 {
		data := map[string]any{}
		for _, field := range n.Requires {
			into, keys := data, strings.FieldsFunc(field, func(r rune) bool { return r == '/' || r == '.' })
			for _, key := range keys[:max(len(keys)-1, 0)] {
				next, ok := into[key].(map[string]any)
				if !ok {
					next = map[string]any{}
					into[key] = next
				}
				into = next
			}
			if len(keys) > 0 && into[keys[len(keys)-1]] == nil {
				into[keys[len(keys)-1]] = "..."
			}
		}
		text, _ := json.Marshal(data) // strings always marshal
		line += " --data '" + strings.ReplaceAll(string(text), "'", `'\''`) + "'"
	}
	return line + f.FormatFlags()
}
