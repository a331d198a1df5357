package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel/cmd/gavel/internal/term"
	"github.com/gavel-mcp/gavel/engine"
)

type sealCmd struct {
	Accept bool `name:"accept" help:"Seal what is there as it stands. Without it, gavel seal only shows it."`
	JSON   bool `name:"json" help:"Print JSON."`
	storeFlag
}

// Help says when to seal.
func (sealCmd) Help() string {
	return `Every definition and judge configuration in a store carries a seal, made with a key of
gavel.key. What has none, or a wrong one, is not used: every call that needs it ends with
untrusted_rules. This command lists all of them with who made them, and what is wrong.

Restore a backup if you can. Otherwise look at each line: --accept seals them as they
stand, and answers for them. It is needed for a store whose gavel.key is lost, and for a
store of an older version next to a gavel.key that has sealed others. Servers that have
the store open must be restarted. Anchors keep saying what the definitions were before.

Examples:

    gavel seal
    gavel seal --store restored.db --accept

Exit codes: 0 all are sealed, 1 some are not, 2 wrong usage, 3 could not find out.`
}

// Run lists the rules, and seals them.
func (c *sealCmd) Run(ctx context.Context, con *console) error {
	open := openToCheck
	if c.Accept {
		open = openForWriting
	}
	sys, err := open(ctx, con, c.storeFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	if key := keyBeside(sys.path); !isFile(key) {
		con.log.Warn("the key of this store is not next to it, so no seal can be checked; put it back, or accept what is there: that makes a new key", "missing", key)
	}
	r, err := sys.engine.SealRules(ctx, localCLI, engine.SealRequest{All: true, DryRun: !c.Accept})
	if err != nil {
		return engineFailure(err)
	}
	if c.JSON {
		err = con.out.JSON(r)
	} else {
		printSealed(con, r, c.Accept)
	}
	if err == nil && r.Sealed > 0 && !c.Accept {
		return term.ErrBad
	}
	return err
}

func printSealed(con *console, r engine.SealResult, accepted bool) {
	rows := [][]string{{"WORKFLOW", "WHAT", "BY", "TIME", "SEAL"}}
	for _, rule := range r.Rules {
		what, by, seal := fmt.Sprintf("version %d", rule.Version), rule.Principal, "as it was made"
		if rule.Revision > 0 {
			what = fmt.Sprintf("judge configuration %d", rule.Revision)
		}
		if rule.Operator {
			by += " (operator)"
		}
		if rule.Wrong != "" {
			seal = rule.Wrong
		}
		rows = append(rows, []string{rule.Workflow, what, by, rule.At.UTC().Format(time.RFC3339), seal})
	}
	con.out.Table(rows)
	total := term.Count(int64(len(r.Rules)), "rule")
	switch {
	case r.Sealed == 0:
		con.out.Printf("%s, %s\n", total, con.out.Green("all sealed"))
	case accepted:
		con.out.Printf("%s, %d sealed now\n", total, r.Sealed)
	default:
		con.out.Printf("%s, %s\n", total, con.out.Red(fmt.Sprintf("%d not sealed", r.Sealed)))
	}
}
