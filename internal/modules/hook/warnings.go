package hook

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/term"
)

// trustWatch finds the files of rules that are not as a person approved them.
type trustWatch struct {
	file  *config.File // nil for none
	store store.Store
}

// maxApprovals limits the approvals that findWarnings compares with their files.
const maxApprovals = 50

// findWarnings compares the approvals in the store with the files on this machine. Hooks may run on others.
func (t *trustWatch) findWarnings(ctx context.Context) (all []module.Warning) {
	own := ""
	if t.file != nil {
		own, _ = cli.LocateFile(t.file.Path())
	}
	approved := map[string]bool{}
	warn := func(path, text string) {
		all = append(all, module.Warning{Name: fmt.Sprintf("hooks-%d", len(all)+1), Text: text, Next: "Read what changed, and approve it: gavel hook trust --config " + term.ShellWord(path) + "."})
	}
	for inst, err := range t.store.Instances(ctx, store.InstanceQuery{Workflow: rulesWorkflow, Limit: maxApprovals}) {
		if err != nil {
			return append(all, module.Warning{Name: "hooks", Text: "The approvals of hooks cannot be read.", Next: "Run gavel hook doctor."})
		}
		path := strings.TrimPrefix(inst.Subject, "file:")
		if inst.Subject == rulesSubject(own) {
			path = own
		}
		if _, err := os.Stat(path); err != nil {
			continue
		}
		a, err := readApproval(path, inst)
		switch {
		case err != nil:
			warn(path, err.Error()+".")
		case a != nil:
			approved[path] = true
			if !a.isCurrent() {
				warn(path, "The rules of coding agents changed since a person approved them: "+path+". The approved rules stay in force.")
			}
			for _, missing := range a.listMissingHooks() {
				warn(path, missing)
			}
		}
	}
	if t.file != nil && !approved[own] && t.hasRules() {
		warn(own, "No person approved the rules for the hooks of coding agents: an agent that can write "+own+" can change them.")
	}
	return all
}

// hasRules reports whether the configuration file has rules that hooks apply.
func (t *trustWatch) hasRules() bool {
	rules, err := parseRules(t.file)
	return err == nil && (t.file.Section(sectionHooks) != nil || rules.Gates.HasBuiltin())
}
