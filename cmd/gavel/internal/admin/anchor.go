package admin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/term"
)

// AnchorCommand has the commands that sign a store's anchors.
type AnchorCommand struct {
	Write  anchorWriteCmd  `cmd:"" default:"withargs" help:"Sign the current position of all instances."`
	Keygen anchorKeygenCmd `cmd:"" help:"Make a key pair that signs and verifies anchors."`
}

type anchorWriteCmd struct {
	Key  string `name:"key" env:"GAVEL_ANCHOR_KEY" placeholder:"FILE" help:"The private key, from gavel anchor keygen. The variable may hold the key itself."`
	File string `name:"anchor-file" placeholder:"FILE" help:"Also append the anchor to this file. Keep it away from the store: it reveals that an older store was restored."`
	JSON bool   `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (c *anchorWriteCmd) Run(ctx context.Context, con *cli.Console) error {
	if c.Key == "" {
		return term.UsageErrorf("make one with gavel anchor keygen --key FILE", "no key to sign the anchor: give --key or GAVEL_ANCHOR_KEY")
	}
	sys, err := cli.OpenToSign(ctx, con, c.StoreFlag, c.Key)
	if err != nil {
		return err
	}
	defer sys.Close()
	result, err := cli.Anchorer{Auditor: sys.Auditor, File: c.File}.Anchor(ctx)
	if err != nil {
		return err
	}
	return con.Print(c.JSON, result, func() {
		switch {
		case result.Written:
			con.Out.Text(result.Note)
		case result.Number == 0:
			con.Err.Printf("nothing to anchor\n")
		default:
			con.Err.Printf("nothing has happened since anchor %d of %s\n", result.Number, cli.FormatTime(result.At))
		}
	})
}

type anchorKeygenCmd struct {
	Key  string `name:"key" env:"GAVEL_ANCHOR_KEY" required:"" placeholder:"FILE" help:"Where to write the private key; the public one goes to FILE.pub."`
	Name string `name:"name" env:"GAVEL_ANCHOR_NAME" placeholder:"NAME" help:"The name in the signatures, without spaces. Default: gavel- and a random number."`
}

func (c *anchorKeygenCmd) Run(con *cli.Console) error {
	if cli.IsKeyText(c.Key) {
		return term.UsageErrorf("give a --key FILE to write to", "%s already holds a key", cli.AnchorKeyVariable)
	}
	name := c.Name
	if name == "" {
		number := make([]byte, 4)
		_, _ = rand.Read(number) // never fails
		name = "gavel-" + hex.EncodeToString(number)
	}
	key, err := record.GenerateSigner(name)
	if err != nil {
		return term.UsageErrorf("", "%w", err)
	}
	public := key.Verifier().String()
	if err := cli.WriteNewFile(c.Key, key.Export(), 0o600); err != nil {
		return term.UsageErrorf("give another --key, or remove the file if nothing was signed with it", "cannot write the key: %w", err)
	}
	if err := cli.WriteNewFile(c.Key+".pub", public, 0o644); err != nil {
		return term.UsageErrorf("remove both files and try again", "the private key was written, but the public key was not: %w", err)
	}
	con.Out.Printf("%s\n", public)
	return nil
}

// readVerifiers reads public keys: one per line, as keygen writes them, or one per file in PEM.
func readVerifiers(files []string) ([]*record.Verifier, error) {
	var keys []*record.Verifier
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, term.UsageErrorf("give the .pub file that gavel anchor keygen wrote", "cannot read the public key: %w", err)
		}
		lines := strings.Split(string(text), "\n")
		if strings.HasPrefix(string(text), "-----BEGIN") {
			lines = []string{string(text)}
		}
		before := len(keys)
		for _, line := range lines {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			key, err := record.NewVerifier(line)
			if err != nil {
				return nil, term.UsageErrorf("give the .pub file that gavel anchor keygen wrote", "%s: %w", file, err)
			}
			keys = append(keys, key)
		}
		if len(keys) == before {
			return nil, term.UsageErrorf("give the .pub file that gavel anchor keygen wrote", "%s holds no key", file)
		}
	}
	return keys, nil
}
