package hook

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/driver"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/cli"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/module"
	"github.com/gavel-mcp/gavel/internal/modules/hook/agent"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

// rulesWorkflow is the workflow that stores the rules that a person approved, one instance per configuration file.
const rulesWorkflow = "gavel.hook-rules"

const rulesDefinition = `
name: gavel.hook-rules
description: The configuration file and the definitions that coding agents are held to, as a person last approved them.
initialState: approved
states:
  approved:
    transitions:
      approve: {target: approved, roles: [operator], writes: [config, files, hooks, noticed], description: "Put the files in force as they are; gavel hook trust does it."}
      notice: {target: approved, roles: [agent], writes: [noticed], description: "Note that the files are not as they were approved; gavel hook does it."}
      propose: {target: approved, roles: [agent], requireAssurance: human, review: {expiresAfter: never}, writes: [config, files, noticed], description: "Ask a person to put the changed files in force; gavel hook does it."}
      retire: {target: retired, roles: [operator], writes: [], description: "Forget the approval: the files count as they are again."}
  retired: {final: true, outcome: success}
`

// The principals of rulesWorkflow's instances. No local client, token or issuer can have this name.
var (
	rulesOwner = engine.Principal{ID: "gavel:hooks", Role: engine.RoleOperator}
	rulesAgent = engine.Principal{ID: rulesOwner.ID, Role: engine.RoleAgent}
)

// approvedRules is the context of an instance of rulesWorkflow.
type approvedRules struct {
	Config string `json:"config"` // the text of the configuration file
	// Files maps the configuration file to the digest of its text, and each definition to its hash, which also covers
	// the files that the definition names. Names are absolute.
	Files map[string]string `json:"files"`
	Hooks []recordedHooks   `json:"hooks,omitempty"`
	// Noticed is the digest of the last reported change, or "" if the files are as approved.
	Noticed string `json:"noticed"`
}

// recordedHooks lists the hooks that gavel hook install wrote into one settings file.
type recordedHooks struct {
	Client string   `json:"client"`
	File   string   `json:"file"`
	Events []string `json:"events"`
}

// record replaces the recorded hooks of a settings file, or removes them if h has no events. It reports whether that
// changed the record.
func (r *approvedRules) record(h recordedHooks) bool {
	before := r.Hooks
	r.Hooks = slices.DeleteFunc(slices.Clone(before), func(old recordedHooks) bool { return old.Client == h.Client && old.File == h.File })
	if len(h.Events) > 0 {
		r.Hooks = append(r.Hooks, h)
	}
	slices.SortFunc(r.Hooks, func(a, b recordedHooks) int { return cmp.Compare(a.Client+a.File, b.Client+b.File) })
	return fmt.Sprint(before) != fmt.Sprint(r.Hooks)
}

func (r approvedRules) digest() string {
	raw, _ := json.Marshal(r.Files) //nolint:errchkjson // strings only
	return digestFile(raw)
}

func digestFile(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// approval holds the rules that a person approved for the configuration file at path.
type approval struct {
	approvedRules
	path     string
	instance string
	revision int64
}

// rulesSubject returns the subject of a configuration file's approval. Subjects are limited to 200 bytes.
func rulesSubject(path string) string {
	if len(path) > 150 {
		path = digestFile([]byte(path))
	}
	return "file:" + path
}

// findApproval reads the approval of the configuration file of flag, or returns nil if there is none. It writes nothing.
func findApproval(ctx context.Context, flag cli.StoreFlag) (*approval, error) {
	path, err := cli.LocateFile(flag.Config)
	if err != nil {
		return nil, err
	}
	db, err := cli.OpenExistingStore(ctx, flag)
	if db == nil || err != nil {
		return nil, err
	}
	defer db.Close()
	inst, err := store.First(db.Instances(ctx, store.InstanceQuery{Workflow: rulesWorkflow, Subject: rulesSubject(path), Limit: 1}), "the approved rules")
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil //nolint:nilnil // no approval
	}
	if err != nil {
		return nil, term.UnknownErrorf("", "cannot %w", err)
	}
	return readApproval(path, inst)
}

// readApproval reads the approval that an instance holds, or returns nil if it holds none.
func readApproval(path string, inst record.Instance) (*approval, error) {
	if inst.Status != record.Running || string(inst.Context) == "{}" {
		return nil, nil //nolint:nilnil // no approval
	}
	a := &approval{path: path, instance: inst.ID, revision: inst.Revision}
	if err := json.Unmarshal(inst.Context, &a.approvedRules); err != nil {
		return nil, term.UnknownErrorf("approve the rules again: gavel hook trust", "the approved rules of %s cannot be read from %s", path, inst.ID)
	}
	return a, nil
}

// ruleFiles holds the current rules: the configuration file at path and its definitions.
type ruleFiles struct {
	approvedRules
	path        string
	definitions module.Definitions
}

// readRuleFiles reads a configuration file and its definitions. If it fails, the result holds the parts that it could
// read.
func readRuleFiles(path string) (ruleFiles, error) {
	text, err := config.Read(path)
	r := ruleFiles{path: path, approvedRules: approvedRules{Config: string(text), Files: map[string]string{path: digestFile(text)}}}
	if err != nil {
		return r, module.ConfigError(err)
	}
	file, err := config.Parse(path, text)
	if err != nil {
		return r, module.ConfigError(err)
	}
	if _, err := parseRules(file); err != nil {
		return r, err
	}
	_, patterns := cli.ListPlaces(file)
	r.definitions, err = cli.ReadDefinitions(patterns)
	for name, d := range r.definitions {
		r.Files[name] = d.Hash
	}
	return r, err
}

// isCurrent reports whether all files are unchanged since their approval.
func (a *approval) isCurrent() bool {
	now, err := readRuleFiles(a.path)
	return err == nil && now.digest() == a.digest()
}

// load reads the definitions that may be loaded as the operator's: those that are unchanged since a person approved
// them. If a is nil, it returns all of them, and an invalid one is an error.
func (a *approval) load(patterns []string) (module.Definitions, error) {
	if a == nil {
		return cli.ReadDefinitions(patterns)
	}
	all, _, _ := a.read(patterns)
	return all, nil
}

// read returns the definitions that are unchanged since their approval, and the number of changed ones. The error is
// about those that could not be read; the others are returned anyway.
func (a *approval) read(patterns []string) (approved module.Definitions, changed int, err error) {
	approved, err = cli.ReadDefinitions(patterns)
	all := len(approved)
	maps.DeleteFunc(approved, func(name string, d *workflow.Definition) bool { return a.Files[name] != d.Hash })
	return approved, all - len(approved), err
}

// Text implements [module.Approval].
func (a *approval) Text() []byte { return []byte(a.Config) }

// Definitions implements [module.Approval].
func (a *approval) Definitions(log *slog.Logger, patterns []string) module.Definitions {
	approved, changed, err := a.read(patterns)
	if changed > 0 || err != nil || !a.isCurrent() {
		log.Warn("the configuration or a definition has changed since a person approved it; the approved version is in force", "config", a.path, "hint", "gavel hook trust --config "+term.ShellWord(a.path))
	}
	return approved
}

// loadApproval returns the approval for a command that answers an agent from a store, or nil for any other command.
func loadApproval(ctx context.Context, command string, flag func(name string) string) (module.Approval, error) {
	if flag("server") != "" || !slices.Contains([]string{"hook answer", "mcp"}, command) {
		return nil, nil //nolint:nilnil // the approval does not apply
	}
	at := cli.StoreFlag{ConfigFlag: cli.ConfigFlag{Config: flag("config")}, Store: flag("store"), StoreKey: flag("store-key")}
	if at.Store == "" {
		if file, err := at.Load(); err == nil {
			at.Store, _ = cli.ListPlaces(file)
		}
	}
	a, err := findApproval(ctx, at)
	if a == nil { // return a nil interface, not one that holds a nil pointer
		return nil, err
	}
	return a, err
}

// report describes what changed since a person approved the rules and opens a review of the change. The approved rules
// stay in force. Each change is reported once: without a new one, report returns "".
func (a *approval) report(ctx context.Context, open func(context.Context) (*cli.System, error)) string {
	now, problem := readRuleFiles(a.path)
	noticed := now.digest()
	switch {
	case problem != nil:
		noticed = digestFile([]byte(noticed + problem.Error()))
	case noticed == a.digest():
		noticed = ""
	}
	if noticed == a.Noticed {
		return ""
	}
	what := fmt.Sprintf("Changed since a person approved the rules: %s. The approved rules stay in force", cmp.Or(strings.Join(a.listChanges(now), ", "), a.path))
	sys, err := open(ctx)
	if err == nil {
		_, err = advanceRules(ctx, sys, rulesAgent, engine.AdvanceRequest{ID: a.instance, Action: "notice", ExpectedRevision: &a.revision}, map[string]string{"noticed": noticed})
	}
	switch {
	case engine.CodeOf(err) == engine.CodeConflict, err == nil && noticed == "": // another hook reported it first; or the files match the approval again, which voids the review
		return ""
	case err == nil && problem != nil:
		return what + ", because the changed files cannot be used: " + agent.EndSentence(strings.Join(term.ListLines(problem), "; "))
	}
	var moved engine.AdvanceResult
	if err == nil {
		moved, err = advanceRules(ctx, sys, rulesAgent, engine.AdvanceRequest{ID: a.instance, Action: "propose"}, approvedRules{Config: now.Config, Files: now.Files})
	}
	if err == nil && moved.Review == nil {
		err = errors.New(moved.Decision.Reasoning)
	}
	if err != nil {
		return what + "; no review could be opened: " + agent.EndSentence(err.Error())
	}
	return fmt.Sprintf("%s until a person approves the review %s.", what, moved.Review.ID)
}

// listChanges returns the files that differ from r, relative to the folder of the configuration file.
func (r approvedRules) listChanges(now ruleFiles) (names []string) {
	all := maps.Clone(now.Files)
	maps.Copy(all, r.Files)
	for _, file := range slices.Sorted(maps.Keys(all)) {
		if r.Files[file] == now.Files[file] {
			continue
		}
		name, err := filepath.Rel(filepath.Dir(now.path), file)
		if err != nil {
			name = file
		}
		names = append(names, filepath.ToSlash(name))
	}
	return names
}

// listMissingHooks returns one sentence for each settings file from which installed hooks are gone.
func (r approvedRules) listMissingHooks() (missing []string) {
	for _, recorded := range r.Hooks {
		text, err := os.ReadFile(recorded.File)
		var present []string
		if err == nil {
			var all []agent.InstalledHook
			all, err = agent.ReadHooks(recorded.Client, text)
			for _, h := range all {
				present = append(present, h.Event)
			}
		}
		gone := slices.DeleteFunc(slices.Clone(recorded.Events), func(event string) bool { return slices.Contains(present, event) })
		if err != nil || len(gone) > 0 {
			missing = append(missing, fmt.Sprintf("gavel's hooks that were installed in %s are gone: %s.", recorded.File, strings.Join(gone, ", ")))
		}
	}
	return missing
}

func advanceRules(ctx context.Context, sys *cli.System, by engine.Principal, req engine.AdvanceRequest, data any) (engine.AdvanceResult, error) {
	raw, err := document.Marshal(data)
	if err != nil {
		return engine.AdvanceResult{}, err
	}
	req.Data = document.ReadTrusted(raw)
	return sys.Engine.Advance(ctx, by, req)
}

// approve puts in force the rules that the person by has seen, and loads the definitions as the operator's.
func (r *rulesReview) approve(ctx context.Context, con *cli.Console, by engine.Principal) error {
	if err := r.open(ctx, con); err != nil {
		return err
	}
	if err := cli.DefineParsed(ctx, con.Log, r.Engine, r.next.definitions); err != nil {
		return err
	}
	if _, err := r.Engine.Define(ctx, operator, engine.DefineRequest{Source: rulesWorkflow, Document: []byte(rulesDefinition)}); err != nil {
		return cli.EngineFailure(err)
	}
	at, _, err := gate.FindInstance(ctx, r.Engine, rulesOwner, rulesWorkflow, rulesSubject(r.next.path), "", true)
	if err != nil {
		return cli.EngineFailure(err)
	}
	if r.before != nil {
		at.Revision = r.before.revision // so that approval fails if another one was given since the person looked
	}
	moved, err := advanceRules(ctx, r.System, by, engine.AdvanceRequest{ID: at.ID, Action: "approve", ExpectedRevision: &at.Revision}, r.next.approvedRules)
	switch {
	case engine.CodeOf(err) == engine.CodeTooLarge:
		return term.UsageErrorf("move long parts into definitions: those are kept as digests", "the configuration file is too large to be approved: %w", err)
	case err == nil && !moved.Decision.Applied:
		return term.UnknownErrorf("", "the rules could not be approved: %s", moved.Decision.Reasoning)
	case err == nil:
		con.Out.Printf("approved: %s\n", r.next.path)
	}
	return cli.EngineFailure(err)
}

// agentVariables lists environment variables that coding agents set in their shells.
var agentVariables = []string{"CLAUDECODE", "CODEX_SANDBOX", "CODEX_THREAD_ID", "CURSOR_AGENT", "GEMINI_CLI", "OPENCODE"}

// confirm asks a person at a terminal and fails unless the answer is yes. If yes is set, it does not ask. It always
// fails in the shell of a coding agent.
func confirm(con *cli.Console, yes bool, question string) error {
	if at := slices.IndexFunc(agentVariables, func(name string) bool { return os.Getenv(name) != "" }); at >= 0 {
		return term.UsageErrorf("run it in a terminal of your own", "nothing was written: a coding agent runs this command (%s is set), but only a person may approve its rules", agentVariables[at])
	}
	if yes {
		return nil
	}
	if !con.Out.IsTerminal() {
		return term.UsageErrorf("read it, and give --yes", "nothing was written")
	}
	con.Out.Printf("%s [y/N] ", question)
	answer, _ := bufio.NewReader(con.In).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return &term.ExitError{Code: term.ExitBad, Err: errors.New("nothing was written")}
	}
	return nil
}

// trustCommand implements gavel hook trust.
type trustCommand struct {
	Yes       bool    `name:"yes" short:"y" help:"Approve without asking. Refused in the shell of a coding agent."`
	Principal *string `name:"principal" env:"GAVEL_REVIEWER" placeholder:"ID" help:"Who approves, for the record. Default: local:user: and your name on this machine."`
	cli.StoreFlag
}

func (trustCommand) Help() string {
	return `Shows what changed in the configuration file and in its definitions since they were last
approved. Then it asks, and puts them in force for gavel hook and gavel mcp. Until then the
approved ones stay in force. Give the --store that gavel hook install wrote into the client's
settings. An open review of the change (gavel review list) is closed; approving the review does the same.

Examples:

    gavel hook trust --config gavel.yaml
    gavel hook trust --config gavel.yaml --store .workflows/gavel.db --yes

Exit codes: 0 approved, or nothing to approve; 1 declined; 2 wrong usage, or a file that has
mistakes; 3 could not find out.`
}

func (c *trustCommand) Run(ctx context.Context, con *cli.Console) error {
	if c.Config == "" {
		return term.UsageErrorf("give --config FILE", "there is no configuration")
	}
	if err := setStore(&c.StoreFlag); err != nil {
		return err
	}
	who, err := cli.FindReviewer(c.Principal)
	if err != nil {
		return err
	}
	r, err := openRulesReview(ctx, con, c.StoreFlag)
	if err != nil {
		return err
	}
	defer r.close()
	if !r.isChanged() {
		con.Out.Printf("nothing to approve: %s is as it was approved\n", c.Config)
		return nil
	}
	if err := r.print(ctx, con); err != nil {
		return err
	}
	if err := confirm(con, c.Yes, "Approve this?"); err != nil {
		return err
	}
	return r.approve(ctx, con, who)
}

// setStore sets the project's default store if no flag names one, and makes the path of a store file absolute.
func setStore(f *cli.StoreFlag) (err error) {
	if f.Store == "" {
		project, err := projectFolder(".")
		if err != nil {
			return err
		}
		f.Store = filepath.Join(project, ".workflows", "gavel.db")
	}
	if driver.Find(f.Store) == nil && f.Store != inMemory {
		f.Store, err = filepath.Abs(f.Store)
	}
	return err
}

// rulesReview holds the rules that a person is asked to approve.
type rulesReview struct {
	*cli.System // nil until it is needed
	flag        cli.StoreFlag
	before      *approval // nil if no rules were approved yet
	next        ruleFiles
	hooked      bool // the record of installed hooks changes
}

func openRulesReview(ctx context.Context, con *cli.Console, flag cli.StoreFlag) (*rulesReview, error) {
	if flag.Store == inMemory {
		return nil, term.UsageErrorf("give the path of a store file", "hooks need a store that outlives them")
	}
	if err := con.CheckConfig(flag.Config); err != nil {
		return nil, err
	}
	path, err := cli.LocateFile(flag.Config)
	if err != nil {
		return nil, err
	}
	r := &rulesReview{flag: flag}
	if r.next, err = readRuleFiles(path); err != nil {
		return nil, err
	}
	if r.before, err = findApproval(ctx, flag); r.before != nil {
		r.next.Hooks = r.before.Hooks
	}
	return r, err
}

// open opens the store once, and creates it if it does not exist.
func (r *rulesReview) open(ctx context.Context, con *cli.Console) (err error) {
	if r.System == nil {
		r.System, err = cli.OpenOrCreateStore(ctx, con, r.flag)
	}
	return err
}

func (r *rulesReview) close() {
	if r.System != nil {
		_ = r.Close() // acknowledged writes are already on disk
	}
}

func (r *rulesReview) isChanged() bool {
	return r.before == nil || r.before.digest() != r.next.digest() || r.before.Noticed != "" || r.hooked
}

// print shows the changes since the last approval. If there was none, it lists the files.
func (r *rulesReview) print(ctx context.Context, con *cli.Console) error {
	if r.before == nil {
		con.Out.Printf("%s\n", con.Out.Bold("not approved before:"))
		for _, name := range (approvedRules{}).listChanges(r.next) {
			con.Out.Printf("  %s\n", name)
		}
		return nil
	}
	if r.before.Config != r.next.Config {
		con.Out.Text(cli.ShowDiff(r.next.path, []byte(r.before.Config), []byte(r.next.Config)))
	}
	for _, name := range r.before.listChanges(r.next) {
		con.Out.Printf("changed: %s\n", name)
	}
	if err := r.open(ctx, con); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.next.definitions)) {
		d := r.next.definitions[name]
		stored, _, err := r.Engine.LoadDefinition(ctx, operator, engine.RightRead, d.Name, 0)
		if err != nil && engine.CodeOf(err) != engine.CodeUnknownWorkflow {
			return cli.EngineFailure(err)
		}
		if stored.Hash != d.Hash {
			con.Out.Text(cli.ShowDiff(name, indentDefinition(stored.Document), indentDefinition(d.Document)))
		}
	}
	return nil
}

// indentDefinition formats a definition for a diff, with the scripts in it split into lines.
func indentDefinition(raw json.RawMessage) []byte {
	var text strings.Builder
	if len(raw) > 0 {
		var v any
		if json.Unmarshal(raw, &v) != nil {
			return raw
		}
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		_ = e.Encode(v) // it was JSON
	}
	return []byte(strings.ReplaceAll(text.String(), `\n`, "\n"))
}
