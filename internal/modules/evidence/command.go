package evidence

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/evidence"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/judge"
	"github.com/gavel-mcp/gavel/validators/document"
)

// command implements gavel evidence.
type command struct {
	List  listCommand  `cmd:"" help:"List the declared sources of evidence."`
	Fetch fetchCommand `cmd:"" help:"Fetch once from a source, and print the result."`
}

func (command) Help() string {
	return `The gate fetches evidence itself instead of believing an agent: the exit code of the
tests, the state of a ticket. Operators declare sources in the section evidence of the
--config file; definitions name the sources.`
}

type listCommand struct {
	JSON bool `name:"json" help:"Print JSON."`
	cli.ConfigFlag
}

func (listCommand) Help() string {
	return `Commands, addresses and headers are not shown. An argument with a ? is optional.

Examples:

    gavel evidence list --config gavel.yaml
    GAVEL_CONFIG=gavel.yaml gavel evidence list --json | jq -r '.sources[].name'`
}

func (c *listCommand) Run(ctx context.Context, con *cli.Console) error {
	declared, end, err := openDeclared(ctx, con, c.ConfigFlag)
	if err != nil {
		return err
	}
	defer end()
	infos := append([]evidence.Info{}, declared.List()...)
	rows := [][]string{{"NAME", "KIND", "READ-ONLY", "TIMEOUT", "ARGUMENTS", "DESCRIPTION"}}
	for _, i := range infos {
		kind := i.Kind
		if i.Background {
			kind += ", in the background"
		}
		rows = append(rows, []string{i.Name, kind, cli.FormatBool(i.ReadOnly), i.Timeout.Duration().String(), term.OrNone(argumentNames(i.Arguments)), term.OrNone(i.Description)})
	}
	return con.PrintList(c.JSON, map[string]any{"sources": infos, "count": len(infos)}, rows, c.Config+" declares no sources of evidence", "")
}

// openDeclared opens the declared sources without opening a store.
func openDeclared(ctx context.Context, con *cli.Console, flag cli.ConfigFlag) (declared fetcher, end func(), err error) {
	if flag.Config == "" {
		return declared, nil, term.UsageErrorf("give it with --config FILE, or in GAVEL_CONFIG", "no configuration file was given, and it declares the sources of evidence")
	}
	opened, end, err := flag.OpenAlone(ctx, con.Log)
	declared, _ = opened.(fetcher)
	return declared, end, err
}

func argumentNames(arguments map[string]evidence.Argument) string {
	names := slices.Sorted(maps.Keys(arguments))
	for i, name := range names {
		if arguments[name].Optional {
			names[i] += "?"
		}
	}
	return strings.Join(names, ", ")
}

type fetchCommand struct {
	Source    string   `arg:"" name:"source" help:"The source's name."`
	Args      []string `name:"arg" sep:"none" placeholder:"NAME=VALUE" help:"An argument as text; NAME:=VALUE for JSON. Repeatable."`
	ReadOnly  bool     `name:"read-only" help:"Fetch as a pre-check does: only from a source marked readOnly."`
	Role      string   `name:"role" enum:"agent,reviewer,operator,auditor" default:"agent" placeholder:"ROLE" help:"The role that calls another server's tool: agent (the default), reviewer, operator or auditor."`
	Principal string   `name:"principal" placeholder:"ID" help:"The principal of that role. Default: local: and the role."`
	JSON      bool     `name:"json" help:"Print JSON."`
	cli.StoreFlag
}

func (fetchCommand) Help() string {
	return `Fetches for real: it runs the command or calls the tool. Nothing is recorded. The digest is the
one that a decision would record. Values of --arg are text; := takes JSON, for tools
(--arg 'limit:=5'). A background command is shown as a decision sees it: its result for the current
files, or that it is running. Without a store it runs here. With a database, this needs the store's
key (--store-key), and shows what servers on this machine see.

Examples:

    gavel evidence fetch tests --config gavel.yaml
    gavel evidence fetch ticket --arg id=OPS-12 --config gavel.yaml --json | jq .content
    gavel evidence fetch issue --arg number:=12 --principal token:release --config gavel.yaml

Exit codes: 0 fetched (whatever a command's exit code is: that is evidence), 1 not available,
2 wrong usage, 3 could not find out.`
}

type fetchReport struct {
	Source    string                `json:"source"`
	Failure   judge.EvidenceFailure `json:"failure,omitempty"`
	Detail    string                `json:"detail,omitempty"`
	Digest    string                `json:"digest,omitempty"`
	Size      int                   `json:"size"`
	Truncated bool                  `json:"truncated,omitempty"`
	Content   json.RawMessage       `json:"content,omitempty"`
	Tree      string                `json:"tree,omitempty"` // of a background command
	At        time.Time             `json:"at"`
	Took      document.Milliseconds `json:"tookMs"`
}

func (c *fetchCommand) Run(ctx context.Context, con *cli.Console) error {
	arguments, err := c.arguments()
	if err != nil {
		return err
	}
	declared, end, err := openDeclared(ctx, con, c.ConfigFlag)
	if err != nil {
		return err
	}
	defer end()
	if known := declared.Names(); !slices.Contains(known, c.Source) {
		return term.UsageErrorf("declared: "+term.OrNone(strings.Join(known, ", ")), "%s declares no source %q", c.Config, c.Source)
	}
	if err := c.shareResults(ctx, con, declared); err != nil {
		return err
	}
	began := time.Now()
	got, err := declared.Fetch(ctx, judge.EvidenceRequest{
		Name: "evidence", Source: c.Source, Arguments: arguments, Required: true,
		Principal: cmp.Or(c.Principal, "local:"+c.Role), Role: c.Role,
	}, c.ReadOnly)
	if busy, ok := errors.AsType[*judge.BusyError](err); ok {
		return term.UnknownErrorf("", "%s (%w)", strings.TrimSuffix(busy.Message, "."), busy.Err)
	}
	if err != nil {
		return term.UnknownErrorf("try again", "cannot fetch from %s: %w", c.Source, err)
	}
	r := fetchReport{Source: c.Source, Failure: got.Failure, Detail: got.Detail, Truncated: got.Truncated, Tree: got.Tree, At: began.UTC(), Took: document.Milliseconds(time.Since(began))}
	if !got.At.IsZero() {
		r.At, r.Took = got.At.UTC(), document.Milliseconds(got.Took)
	}
	if got.Failure == "" {
		if r.Content, err = json.Marshal(got.Content); err != nil { // in the recorded form
			return term.UnknownErrorf("", "the result of %s is not JSON: %w", c.Source, err)
		}
		sum := sha256.Sum256(r.Content)
		r.Digest, r.Size = "sha256:"+hex.EncodeToString(sum[:]), len(r.Content)
	}
	err = con.Print(c.JSON, r, func() { printFetched(con, r) })
	return cmp.Or(err, cli.ExitBadUnless(r.Failure == ""))
}

// shareResults makes a fetch share the results of a background command with decisions over the same store.
func (c *fetchCommand) shareResults(ctx context.Context, con *cli.Console, declared fetcher) error {
	path, err := c.FindPath(con.Log, false)
	if err != nil || !slices.ContainsFunc(declared.List(), func(i evidence.Info) bool { return i.Name == c.Source && i.Background }) {
		return nil //nolint:nilerr // without a store, the command runs in this process
	}
	at, err := c.LocateAt(path)
	if err != nil {
		return err
	}
	if at.IsDatabase() {
		return shareDatabaseResults(ctx, con, at, declared)
	}
	key, err := cli.ExistingKey(path)
	if err != nil {
		return term.UsageErrorf("", "cannot use the key file: %w", err)
	}
	if key == nil {
		return nil
	}
	return declared.KeepResults(path, key)
}

// shareDatabaseResults is shareResults for a database. It requires the database's key.
func shareDatabaseResults(ctx context.Context, con *cli.Console, at cli.StoreLocation, declared fetcher) error {
	if at.Key == nil {
		return cli.StoreFailure(gavel.ErrNoStoreKey, "")
	}
	db, key, err := cli.OpenArchive(ctx, at)
	if err != nil {
		return err
	}
	if folder := at.MakeFolder(con.Log); folder != "" {
		err = declared.KeepResults(filepath.Join(folder, gavel.StoreFile), key)
	}
	return errors.Join(err, db.Close())
}

// arguments returns the command line's arguments as a JSON object: NAME=VALUE is a string, NAME:=VALUE is JSON.
func (c *fetchCommand) arguments() (json.RawMessage, error) {
	given := map[string]any{}
	for _, pair := range c.Args {
		name, value, ok := strings.Cut(pair, "=")
		name, isJSON := strings.CutSuffix(name, ":")
		switch _, twice := given[name]; {
		case !ok || name == "":
			return nil, term.UsageErrorf("", "--arg must be NAME=VALUE, not %q", pair)
		case twice:
			return nil, term.UsageErrorf("", "duplicate --arg %s", name)
		case isJSON && document.CheckJSON([]byte(value), document.Limits{}) != nil:
			return nil, term.UsageErrorf("write --arg "+name+"=VALUE for text", "--arg %s:= needs JSON, and %q is not JSON", name, value)
		case isJSON:
			given[name] = json.RawMessage(value)
		default:
			given[name] = value
		}
	}
	raw, err := json.Marshal(given)
	if err != nil {
		return nil, term.UsageErrorf("", "--arg: %w", err)
	}
	return raw, nil
}

func printFetched(con *cli.Console, r fetchReport) {
	rows := [][]string{{"source", r.Source}, {"took", term.ShortDuration(r.Took.Duration())}}
	if r.Tree != "" {
		rows = append(rows, []string{"ran at", r.At.Format(time.RFC3339)}, []string{"tree", r.Tree})
	}
	if r.Failure != "" {
		con.Out.Table(append(rows, []string{"failed", fmt.Sprintf("%s: %s", r.Failure, r.Detail)}))
		return
	}
	con.Out.Table(append(rows, cli.SizeRows(r.Size, r.Truncated, r.Digest)...))
	con.Out.PrintContent(r.Content)
}
