package engine

import (
	"context"
	"fmt"
	"strings"
)

// lookAlikes maps what is read as something else, to people and to models, onto what it is
// read as; what is only there for looks is left out. Names have no other characters than
// ASCII letters, digits, dot, underscore and hyphen.
var lookAlikes = strings.NewReplacer(
	"0", "o", "1", "l", "i", "l", "|", "l", "5", "s", "2", "z", "8", "b", "rn", "m", "vv", "w",
	".", "", "_", "", "-", "",
)

// foldName is what a name looks like at a glance.
func foldName(name string) string { return lookAlikes.Replace(strings.ToLower(name)) }

// mayBeNamed refuses a name that could be taken for an operator's: a reader of
// "refund" is to know whose rules were passed. same says whether the very same name
// counts as well.
func (e *Engine) mayBeNamed(ctx context.Context, p Principal, name string, same bool) error {
	if p.Role == RoleOperator {
		return nil
	}
	names, err := e.rules.listNames(ctx)
	if err != nil {
		return StoreError("list the definitions", err)
	}
	own := foldName(name)
	for _, other := range names {
		if foldName(other) != own || other == name && !same {
			continue
		}
		d, err := e.rules.loadDefinition(ctx, other, 0)
		if err != nil {
			return StoreError("read the definition", err)
		}
		if !d.Operator {
			continue
		}
		shown := "an operator's workflow"
		if p.inScope(d.Name) {
			shown = fmt.Sprintf("the operator's workflow %q", d.Name)
		}
		return newError(CodeForbidden, "/name", "The name %q could be taken for %s.", name, shown).
			hint("Choose a name that nobody confuses with it.")
	}
	return nil
}
