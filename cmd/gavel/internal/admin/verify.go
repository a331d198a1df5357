package admin

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// VerifyCommand verifies a store.
type VerifyCommand struct {
	Instance  string   `name:"instance" placeholder:"ID" help:"Only this instance. Default: the whole store."`
	PublicKey []string `name:"public-key" sep:"none" placeholder:"FILE" help:"The key that anchors must be signed with: the .pub file of gavel anchor keygen. Repeatable, for successive keys."`
	File      string   `name:"anchor-file" placeholder:"FILE" help:"Anchors kept outside the store: they reveal whether an older store was restored."`
	Jobs      int      `name:"jobs" placeholder:"N" help:"How many instances to verify in parallel. Default: one per processor."`
	JSON      bool     `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

// Run verifies the store and prints each break.
func (c *VerifyCommand) Run(ctx context.Context, con *cli.Console) error {
	if c.Jobs < 0 {
		return term.UsageErrorf("", "--jobs must be 1 or more, not %d", c.Jobs)
	}
	keys, err := readVerifiers(c.PublicKey)
	if err != nil {
		return err
	}
	req := audit.VerifyRequest{Instance: c.Instance, Keys: keys, Jobs: c.Jobs}
	if c.File != "" {
		if req.Published, err = c.readPublished(con); err != nil {
			return err
		}
	}
	sys, err := cli.OpenToCheck(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer sys.Close()
	if err := sys.CompleteInstance(ctx, &req.Instance); err != nil {
		return err
	}
	r, err := sys.Verify(ctx, con, req)
	if err != nil {
		return err
	}
	err = con.Print(c.JSON, r, func() {
		printLimits(con, r, sys.Location)
		printVerified(con, r)
	})
	return cmp.Or(err, cli.ExitBadUnless(r.Clean()))
}

func (c *VerifyCommand) readPublished(con *cli.Console) ([]string, error) {
	if !cli.IsFile(c.File) {
		return nil, term.UsageErrorf("give the file that gavel mcp --anchor-file or gavel anchor --anchor-file writes", "there is no anchor file at %s", c.File)
	}
	p, err := cli.ReadAnchorLog(c.File)
	if err != nil {
		return nil, err
	}
	if p.Torn > 0 {
		con.Log.Warn("the anchor file has notes without a complete signature, which are ignored", "file", c.File, "notes", p.Torn)
	}
	return append([]string{}, p.Notes...), nil
}

func printVerified(con *cli.Console, r audit.VerifyReport) {
	for _, p := range r.Problems {
		where := p.Instance
		switch {
		case where == "" && p.Anchor > 0:
			where = fmt.Sprintf("anchor %d", p.Anchor)
		case where == "":
			where = "store"
		case p.Seq > 0:
			where += fmt.Sprintf(" event %d", p.Seq)
		}
		con.Out.Printf("%s: %s: %s\n", where, con.Out.Red(string(p.Kind)), p.Message)
	}
	if r.More > 0 {
		con.Out.Printf("and %d more\n", r.More)
	}
	sum := fmt.Sprintf("%s, %s, ", term.Count(r.Instances, "instance"), term.Count(r.Events, "event"))
	if r.Rules > 0 { // definitions and judge configurations; not read if --instance is set
		sum += term.Count(r.Rules, "rule") + ", "
	}
	sum += term.Count(r.Anchors, "anchor")
	if r.Clean() {
		con.Out.Printf("%s: %s\n", sum, con.Out.Green("all as it was written"))
		return
	}
	con.Out.Printf("%s: %s\n", sum, con.Out.Red(term.Count(int64(len(r.Problems))+r.More, "break")))
}

// printLimits prints what a clean report does not prove.
func printLimits(con *cli.Console, r audit.VerifyReport, at cli.StoreLocation) {
	switch {
	case r.Anchors == 0:
		con.Err.Printf("no anchors: someone who can write the whole store could have recomputed all hashes (gavel anchor --help)\n")
	case !r.Signed:
		con.Err.Printf("the anchors' signatures were not checked: give --public-key\n")
	}
	if r.Rules > 0 && !r.RuleKey {
		missing := "there is no " + gavel.KeyFile + " next to the store"
		if at.IsDatabase() {
			missing = "give --store-key"
		}
		con.Err.Printf("the seals of rules (definitions and judge configurations) were not compared with the key: %s\n", missing)
	}
	if r.AnchoredAt != nil && r.Unanchored+r.UnanchoredRules > 0 {
		con.Err.Printf("%s and %s since the newest anchor, written %s\n", term.Count(r.Unanchored, "event"), term.Count(r.UnanchoredRules, "rule"), r.AnchoredAt.Format(time.RFC3339))
	}
}
