package serve

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// TokenCommand has the commands that create and revoke tokens.
type TokenCommand struct {
	Create tokenCreateCmd `cmd:"" help:"Create a token, for the terminal or a file."`
	List   tokenListCmd   `cmd:"" help:"List tokens, without their secrets."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke tokens immediately."`
}

type tokenCreateCmd struct {
	Name      string `arg:"" name:"name" help:"The token's name: letters, digits, dots, hyphens, underscores. Tokens may share a name, for rotation."`
	Role      string `name:"role" enum:"agent,reviewer,operator,auditor,proxy" default:"agent" placeholder:"ROLE" help:"The role of its bearer: agent (the default), reviewer, operator, auditor or proxy."`
	Principal string `name:"principal" placeholder:"ID" help:"The name of its bearer, for ownership and the record. Default: token: and the name."`
	Workflows string `name:"workflows" placeholder:"NAMES" help:"Allow only these workflows: names separated by spaces, with * for any characters. Default: all."`
	Hooks     string `name:"hooks" placeholder:"FOLDER" help:"Create a token that can only post the hook events of a coding agent in this folder (absolute). --principal is then the agent, which may be local:agent."`
	Expires   string `name:"expires" placeholder:"WHEN" help:"When it expires: a time such as 2027-01-31T00:00:00Z, or a duration such as 30d or 12h. Default: never."`
	Out       string `name:"out" placeholder:"FILE" help:"Write the token to this file, which only you can read, instead of the terminal."`
	JSON      bool   `name:"json" help:"Print JSON."`
	cli.TokensFlag
	cli.StoreFlag
}

func (c *tokenCreateCmd) Run(ctx context.Context, con *cli.Console) (err error) {
	ends, err := parseExpiry(c.Expires, time.Now())
	if err != nil {
		return err
	}
	if c.Out == "" && !con.Out.IsTerminal() {
		return term.UsageErrorf("write it to a file that only you can read: --out FILE", "a token is shown only on a terminal, and stdout is not one")
	}
	tokens, release, err := cli.TokensAt(ctx, con, c.TokensFlag, c.StoreFlag, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	bearers, made, err := tokens.Create(auth.NewToken{
		Name: c.Name, Principal: c.Principal, Role: engine.Role(c.Role), Workflows: c.Workflows, Expires: ends,
		Events: c.Hooks, Local: c.Hooks != "",
	})
	if err != nil {
		return cli.TokenFailure(err)
	}
	shown := struct {
		Token string `json:"token,omitempty"`
		File  string `json:"file,omitempty"`
		cli.TokenView
	}{bearers[0], c.Out, cli.DescribeToken(made[0])}
	where := "shown only once"
	if c.Out != "" {
		if err := auth.WriteSecret(c.Out, bearers[0]); err != nil {
			_ = tokens.Forget(made[0].ID) // no one has seen it; the returned error is enough
			return term.UsageErrorf("give another --out", "%w", err)
		}
		shown.Token, where = "", "in the file "+c.Out
	}
	if c.JSON {
		return con.Out.JSON(shown)
	}
	if shown.Token != "" {
		con.Out.Printf("%s\n", shown.Token)
	}
	con.Err.Printf("token %s of %s, role %s: %s\n", made[0].ID, made[0].Principal, string(made[0].Role), where)
	return nil
}

// parseExpiry parses an expiry: a time, or a duration from now. "" means never and returns the zero time.
func parseExpiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	span, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		span = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || span <= 0 {
		return time.Time{}, term.UsageErrorf("give a time such as 2027-01-31T00:00:00Z, or a duration such as 30d or 12h", "--expires %q is neither a time nor a positive duration", text)
	}
	return now.Add(span), nil
}

type tokenListCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
	cli.TokensFlag
	cli.StoreFlag
}

func (c *tokenListCmd) Run(ctx context.Context, con *cli.Console) (err error) {
	tokens, release, err := cli.TokensAt(ctx, con, c.TokensFlag, c.StoreFlag, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	all, err := tokens.List()
	if err != nil {
		return cli.TokenFailure(err)
	}
	list := make([]cli.TokenView, len(all))
	for i, t := range all {
		list[i] = cli.DescribeToken(t)
	}
	rows := [][]string{{"ID", "NAME", "PRINCIPAL", "ROLE", "WORKFLOWS", "STATUS", "EXPIRES", "LAST USED"}}
	for _, t := range list {
		if t.Hooks != "" {
			t.Role += ", hooks in " + t.Hooks
		}
		rows = append(rows, []string{t.ID, t.Name, t.Principal, t.Role, cmp.Or(t.Workflows, "all"), t.Status, orNever(t.ExpiresAt), orNever(t.LastUsed)})
	}
	return con.PrintList(c.JSON, map[string]any{"tokens": list}, rows, "no tokens", "")
}

func orNever(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return at.Format(time.RFC3339)
}

type tokenRevokeCmd struct {
	IDs    []string `arg:"" name:"id" help:"The ids of the tokens, from gavel token list, or their first characters."`
	Forget bool     `name:"forget" help:"Also remove them from the list. Without it, gavel token list still shows them."`
	JSON   bool     `name:"json" help:"Print JSON."`
	cli.TokensFlag
	cli.StoreFlag
}

func (c *tokenRevokeCmd) Run(ctx context.Context, con *cli.Console) (err error) {
	tokens, release, err := cli.TokensAt(ctx, con, c.TokensFlag, c.StoreFlag, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	list := []cli.TokenView{}
	for _, id := range c.IDs {
		// A full token contains its id. A user who pastes the token wants it revoked.
		if parts := strings.SplitN(id, "_", 3); len(parts) == 3 && parts[0] == "gvl" {
			id = parts[1]
		}
		id, err := cli.FindToken(tokens, id)
		if err != nil {
			return err
		}
		t, err := tokens.Revoke(id)
		if errors.Is(err, auth.ErrNoToken) {
			return &term.ExitError{Code: term.ExitUsage, Err: errors.New("there is no token " + id), Hint: "gavel token list shows them"}
		}
		if err != nil {
			return cli.TokenFailure(err)
		}
		if c.Forget {
			if err := tokens.Forget(id); err != nil {
				return cli.TokenFailure(err)
			}
		}
		list = append(list, cli.DescribeToken(t))
	}
	return con.Print(c.JSON, map[string]any{"tokens": list}, func() {})
}
