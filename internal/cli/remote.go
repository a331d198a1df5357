package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/rest/client"
	"github.com/gavel-mcp/gavel/internal/term"
)

// serverFlags select a server. There is no flag for the token, because every user of the machine can see command
// lines. Some environment variables have special names, because gavel serve has flags of the usual names with
// other meanings.
type serverFlags struct {
	Server    string `name:"server" placeholder:"URL" help:"Use the server (gavel serve) at this URL instead of opening a store. The token identifies you."`
	TokenFile string `name:"token-file" env:"GAVEL_SERVER_TOKEN_FILE" placeholder:"FILE" help:"A file with the token for the server. Or set GAVEL_TOKEN."`
	CAFile    string `name:"ca-file" env:"GAVEL_SERVER_CA_FILE" placeholder:"FILE" help:"Trust only these certificates (PEM) of the server."`
	Plain     bool   `name:"insecure-plain-http" env:"GAVEL_SERVER_INSECURE_PLAIN_HTTP" help:"Send the token over http:// to another machine. Anyone on the network path can read it."`
}

// tokenVariable contains the token if no file does.
const tokenVariable = "GAVEL_TOKEN"

// TargetFlags choose between a store and a server.
type TargetFlags struct {
	StoreFlag
	serverFlags

	typed string
}

// AfterApply ignores a store from the environment or the configuration file if a server is selected. Giving both
// on the command line remains an error.
func (f *TargetFlags) AfterApply(ctx *kong.Context) error { //nolint:unparam // kong requires an error result
	given := slices.ContainsFunc(ctx.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == "store" && !p.Resolved })
	if f.Server != "" && !given {
		f.Store = ""
	}
	f.typed = ""
	for _, p := range ctx.Path {
		if p.Flag != nil && !p.Resolved && slices.Contains([]string{"config", "store", "store-key", "server", "token-file", "ca-file"}, p.Flag.Name) {
			if value, _ := ctx.FlagValue(p.Flag).(string); value != "" {
				f.typed += fmt.Sprintf(" --%s %s", p.Flag.Name, term.ShellWord(value))
			}
		}
		if p.Flag != nil && !p.Resolved && p.Flag.Name == "insecure-plain-http" {
			f.typed += " --insecure-plain-http"
		}
	}
	return nil
}

// Open returns a caller for the selected server or store, and a function that closes it. local opens the store.
func (f TargetFlags) Open(ctx context.Context, con *Console, local func(context.Context, *Console, StoreFlag) (*System, error)) (operation.Caller, func(), error) {
	if f.Server != "" {
		c, err := f.Connect(con.In)
		if err != nil {
			return nil, nil, err
		}
		return IDCompleter{c}, c.Close, nil
	}
	sys, err := local(ctx, con, f.StoreFlag)
	if err != nil {
		return nil, nil, err
	}
	return IDCompleter{sys.asOperator()}, func() { sys.Close() }, nil
}

// Ask performs one operation on the selected server or store. A store is opened for reading.
func Ask[Req, Res any](ctx context.Context, con *Console, at TargetFlags, op operation.Typed[Req, Res], req Req) (res Res, err error) {
	g, done, err := at.Open(ctx, con, OpenForReading)
	if err != nil {
		return res, err
	}
	defer done()
	res, err = op.Do(ctx, g, req)
	return res, EngineFailure(err)
}

// Print prints found as JSON, or calls text.
func (con *Console) Print(asJSON bool, found any, text func()) error {
	if asJSON {
		return con.Out.JSON(found)
	}
	text()
	return nil
}

// PrintList prints a page of a list: result as JSON, or rows with their heading. It prints none if there are no
// rows. more is the flag that continues the list; "" at its end. Narrow terminals omit the spare columns.
func (con *Console) PrintList(asJSON bool, result any, rows [][]string, none, more string, spare ...string) error {
	switch {
	case asJSON:
		return con.Out.JSON(result)
	case len(rows) > 1:
		con.Out.Table(ShortenForTerminal(con.Out, rows), spare...)
	default:
		con.Err.Printf("%s\n", none)
	}
	if more != "" {
		con.Err.Printf("more with %s\n", more)
	}
	return nil
}

// ExitBadUnless returns the result of a check whose findings are already printed.
func ExitBadUnless(ok bool) error {
	if ok {
		return nil
	}
	return term.ErrBad
}

// Connect returns a client of the server. It opens no connection yet.
func (f TargetFlags) Connect(stdin io.Reader) (*client.Client, error) {
	if f.Store != "" {
		return nil, term.UsageErrorf("give only one; also check the environment for GAVEL_SERVER", "--server and --store were both given")
	}
	token, err := f.token(stdin)
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{Server: f.Server, Token: token, CAFile: f.CAFile, PlainHTTP: f.Plain})
	if err != nil {
		return nil, term.UsageErrorf("", "--server: %w", err)
	}
	return c, nil
}

// maxToken is the maximum length of a token, in bytes.
const maxToken = 16 << 10

// token reads the token from a file, from stdin (file "-"), or from the environment.
func (f serverFlags) token(stdin io.Reader) (string, error) {
	text, place := []byte(os.Getenv(tokenVariable)), tokenVariable
	if f.TokenFile == "" && len(text) == 0 {
		return "", nil // a server without authentication
	}
	if f.TokenFile != "" {
		var err error
		if text, err = readInput(stdin, f.TokenFile, maxToken+1); err != nil {
			return "", term.UsageErrorf("", "--token-file: %w", err)
		}
		place = "--token-file " + f.TokenFile
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 || len(text) > maxToken || bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", term.UsageErrorf("write only the token into it", "%s holds no token", place)
	}
	return string(text), nil
}

// FormatFlags returns the flags that select the same server or store on another command line: those that were typed.
// Variables and the configuration file apply there anyway.
func (f TargetFlags) FormatFlags() string { return f.typed }

// LocalConfig returns the configuration file of a store on this machine; "" for a server.
func (f TargetFlags) LocalConfig() string {
	if f.Server != "" {
		return ""
	}
	return f.Config
}

// ReadToken reads the token in a file.
func ReadToken(file string) (string, error) {
	return serverFlags{TokenFile: file}.token(strings.NewReader(""))
}

// NewClient returns a client of a server that presents a token.
func NewClient(server, token string) (*client.Client, error) {
	c, err := client.New(client.Config{Server: server, Token: token})
	if err != nil {
		return nil, term.UsageErrorf("", "--server: %w", err)
	}
	return c, nil
}
