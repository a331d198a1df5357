package main

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

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/internal/config"
	"github.com/gavel-mcp/gavel/internal/gate"
	"github.com/gavel-mcp/gavel/internal/hook"
	"github.com/gavel-mcp/gavel/internal/term"
	"github.com/gavel-mcp/gavel/validators/document"
)

// hookRulesWorkflow keeps, in one instance for each configuration file, the rules that a person approved.
const hookRulesWorkflow = "gavel.hook-rules"

const hookRulesDefinition = `
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

// The principals of instances of hookRulesWorkflow: no client of this machine, no token and no issuer has their name.
var (
	hookRulesOwner = engine.Principal{ID: "gavel:hooks", Role: engine.RoleOperator}
	hookRulesAgent = engine.Principal{ID: hookRulesOwner.ID, Role: engine.RoleAgent}
)

// approvedRules is the context of an instance of hookRulesWorkflow.
type approvedRules struct {
	Config string `json:"config"` // the text of the configuration file
	// Files are the configuration file with the digest of its text, and the definitions with their hashes, which are over
	// the files that those name as well. Names are absolute.
	Files map[string]string `json:"files"`
	Hooks []recordedHooks   `json:"hooks,omitempty"`
	// Noticed is the digest of the changed files that were last reported, "" where they are as approved.
	Noticed string `json:"noticed"`
}

// recordedHooks is what gavel hook install wrote into one settings file.
type recordedHooks struct {
	Client string   `json:"client"`
	File   string   `json:"file"`
	Events []string `json:"events"`
}

// record notes what is installed in a settings file, nothing where there are no events. It reports whether that is new.
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
	raw, _ := json.Marshal(r.Files) //nolint:errchkjson // texts
	return digestFile(raw)
}

func digestFile(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// approval is what a person approved for the configuration file at path.
type approval struct {
	approvedRules
	path     string
	instance string
	revision int64
}

// locateFile is the absolute path of a file, which may be gone.
func locateFile(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", term.UnknownErrorf("", "cannot tell where this is: %w", err)
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return path, nil
}

// hookRulesSubject is what the approval of a configuration file is about. Subjects have at most 200 bytes.
func hookRulesSubject(path string) string {
	if len(path) > 150 {
		path = digestFile([]byte(path))
	}
	return "file:" + path
}

// findApproval reads what a person approved for the configuration file of flag; nil where nobody did. It writes nothing.
func findApproval(ctx context.Context, flag storeFlag) (*approval, error) {
	path, err := locateFile(flag.Config)
	if err != nil || flag.Store == memoryStore {
		return nil, err
	}
	place := storePlace{path: flag.Store}
	if !place.isDatabase() {
		places := flag.places()
		at := slices.IndexFunc(places, func(path string) bool {
			info, err := os.Stat(path)
			return err == nil && info.Mode().IsRegular() && info.Size() > 0
		})
		if at < 0 {
			return nil, nil //nolint:nilnil // nothing was ever approved
		}
		place.path = places[at]
	}
	db, _, err := openArchive(ctx, place)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	inst, err := store.First(db.Instances(ctx, store.InstanceQuery{Workflow: hookRulesWorkflow, Subject: hookRulesSubject(path), Limit: 1}), "the approved rules")
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && (inst.Status != record.Running || string(inst.Context) == "{}"):
		return nil, nil //nolint:nilnil // as above
	case err != nil:
		return nil, storeFailure(err, "")
	}
	a := &approval{path: path, instance: inst.ID, revision: inst.Revision}
	if err := json.Unmarshal(inst.Context, &a.approvedRules); err != nil {
		return nil, term.UnknownErrorf("approve the rules again: gavel hook trust", "the approved rules of %s cannot be read from %s", path, inst.ID)
	}
	return a, nil
}

// ruleFiles are the rules as the files at path have them now.
type ruleFiles struct {
	approvedRules
	path        string
	definitions definitions
}

// definitions are parsed definitions by the names of their files, as approvedRules has them.
type definitions map[string]*workflow.Definition

// define loads all as the operator's. A document has the files in it that the definition names.
func (d definitions) define(ctx context.Context, log *slog.Logger, to definer) error {
	return defineFiles(ctx, log, to, slices.Sorted(maps.Keys(d)), func(file string) (engine.DefineRequest, error) {
		return engine.DefineRequest{Source: file, Document: d[file].Document}, nil
	}, map[string]string{})
}

// readRuleFiles reads a configuration file and its definitions. With an error, the result has what could be read.
func readRuleFiles(path string) (ruleFiles, error) {
	text, err := config.Read(path)
	r := ruleFiles{path: path, approvedRules: approvedRules{Config: string(text), Files: map[string]string{path: digestFile(text)}}}
	if err != nil {
		return r, badConfig(err)
	}
	file, err := config.Parse(path, text)
	if err != nil {
		return r, badConfig(err)
	}
	if _, err := parseHookRules(file); err != nil {
		return r, err
	}
	values, _ := file.Values([]config.Setting{{Key: config.KeyDefinitions, Form: config.List}}) // other keys are checked where they are read
	patterns := values[config.KeyDefinitions].List
	for i, pattern := range patterns {
		patterns[i] = locatePath(file.Dir(), pattern)
	}
	r.definitions, err = readDefinitions(patterns)
	for name, d := range r.definitions {
		r.Files[name] = d.Hash
	}
	return r, err
}

// readDefinitions reads the definitions that patterns name. The error is about those that are missing in the result.
func readDefinitions(patterns []string) (definitions, error) {
	all, problems := definitions{}, []error(nil)
	for _, pattern := range patterns {
		files, err := definitionFiles([]string{pattern})
		problems = append(problems, err)
		for _, file := range files {
			name, err1 := locateFile(file)
			d, err2 := parseDefinition(file)
			if err := errors.Join(err1, err2); err != nil {
				problems = append(problems, term.UsageErrorf("check it with: gavel lint", "%w", err))
				continue
			}
			all[name] = d
		}
	}
	return all, errors.Join(problems...)
}

// isCurrent reports whether all files are as they were approved.
func (a *approval) isCurrent() bool {
	now, err := readRuleFiles(a.path)
	return err == nil && now.digest() == a.digest()
}

// load reads the definitions that may be loaded as the operator's: those that are as a person approved them. Without an
// approval these are all, and one with a mistake is an error.
func (a *approval) load(patterns []string) (definitions, error) {
	all, err := readDefinitions(patterns)
	if a == nil {
		return all, err
	}
	maps.DeleteFunc(all, func(name string, d *workflow.Definition) bool { return a.Files[name] != d.Hash })
	return all, nil
}

// loadApproved loads the definitions of an agent's server.
func loadApproved(ctx context.Context, con *console, to definer, patterns []string) error {
	a := con.settings.approval
	if a == nil {
		return loadDefinitions(ctx, con.log, to, patterns)
	}
	approved, _ := a.load(patterns) // of an approval without an error
	if all, _ := definitionFiles(patterns); len(approved) < len(all) || !a.isCurrent() {
		con.log.Warn("the configuration or a definition is not as a person approved it; what was approved is in force", "config", a.path, "hint", "gavel hook trust --config "+shellWord(a.path))
	}
	return approved.define(ctx, con.log, to)
}

// report says what changed since a person approved the rules, once for each change, and asks a person to approve it. The
// approved rules stay in force. It returns "" where there is nothing new to say.
func (a *approval) report(ctx context.Context, open func(context.Context) (*system, error)) string {
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
		_, err = advanceRules(ctx, sys, hookRulesAgent, engine.AdvanceRequest{ID: a.instance, Action: "notice", ExpectedRevision: &a.revision}, map[string]string{"noticed": noticed})
	}
	switch {
	case engine.CodeOf(err) == engine.CodeConflict, err == nil && noticed == "": // another hook was faster; they are back, which voids the review
		return ""
	case err == nil && problem != nil:
		return what + ", for what is there now cannot be used: " + hook.EndSentence(strings.Join(issuesOf(problem), "; "))
	}
	var moved engine.AdvanceResult
	if err == nil {
		moved, err = advanceRules(ctx, sys, hookRulesAgent, engine.AdvanceRequest{ID: a.instance, Action: "propose"}, approvedRules{Config: now.Config, Files: now.Files})
	}
	if err == nil && moved.Review == nil {
		err = errors.New(moved.Decision.Reasoning)
	}
	if err != nil {
		return what + "; no review could be opened: " + hook.EndSentence(err.Error())
	}
	return fmt.Sprintf("%s until a person approves the review %s.", what, moved.Review.ID)
}

// listChanges names the files that are not as they were approved, from the folder of the configuration file on.
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

// listMissingHooks says which hooks that were installed are gone from the settings of a client, a sentence for each file.
func (r approvedRules) listMissingHooks() (missing []string) {
	for _, recorded := range r.Hooks {
		text, err := os.ReadFile(recorded.File)
		var present []string
		if err == nil {
			var all []hook.InstalledHook
			all, err = hook.ReadHooks(recorded.Client, text)
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

func advanceRules(ctx context.Context, sys *system, by engine.Principal, req engine.AdvanceRequest, data any) (engine.AdvanceResult, error) {
	raw, err := document.Marshal(data)
	if err != nil {
		return engine.AdvanceResult{}, err
	}
	req.Data = document.Known(raw)
	return sys.Engine.Advance(ctx, by, req)
}

// approve puts in force what by, a person, has seen, and loads the definitions as the operator's.
func (r *rulesReview) approve(ctx context.Context, con *console, by engine.Principal) error {
	if err := r.open(ctx, con); err != nil {
		return err
	}
	if err := r.next.definitions.define(ctx, con.log, r.Engine); err != nil {
		return err
	}
	if _, err := r.Engine.Define(ctx, localCLI, engine.DefineRequest{Source: hookRulesWorkflow, Document: []byte(hookRulesDefinition)}); err != nil {
		return engineFailure(err)
	}
	at, _, err := gate.FindInstance(ctx, r.Engine, hookRulesOwner, hookRulesWorkflow, hookRulesSubject(r.next.path), "", true)
	if err != nil {
		return engineFailure(err)
	}
	if r.before != nil {
		at.Revision = r.before.revision // of what the person has seen
	}
	moved, err := advanceRules(ctx, r.system, by, engine.AdvanceRequest{ID: at.ID, Action: "approve", ExpectedRevision: &at.Revision}, r.next.approvedRules)
	switch {
	case engine.CodeOf(err) == engine.CodeTooLarge:
		return term.UsageErrorf("move what is long into definitions, of which only digests are kept", "the configuration file is too large to be approved: %w", err)
	case err == nil && !moved.Decision.Applied:
		return term.UnknownErrorf("", "the rules could not be approved: %s", moved.Decision.Reasoning)
	case err == nil:
		con.out.Printf("approved: %s\n", r.next.path)
	}
	return engineFailure(err)
}

// agentVariables are set in the shells of coding agents.
var agentVariables = []string{"CLAUDECODE", "CODEX_SANDBOX", "CODEX_THREAD_ID", "CURSOR_AGENT", "GEMINI_CLI", "OPENCODE"}

// confirm asks a person at a terminal. With yes a script has answered, unless a coding agent runs it.
func confirm(con *console, yes bool, question string) error {
	if at := slices.IndexFunc(agentVariables, func(name string) bool { return os.Getenv(name) != "" }); at >= 0 {
		return term.UsageErrorf("run it in a terminal of your own", "nothing was written: a coding agent runs this command (%s is set), and what it is held to a person approves", agentVariables[at])
	}
	if yes {
		return nil
	}
	if !con.out.IsTerminal() {
		return term.UsageErrorf("read it, and give --yes", "nothing was written")
	}
	con.out.Printf("%s [y/N] ", question)
	answer, _ := bufio.NewReader(con.stdin).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return &term.ExitError{Code: term.ExitBad, Err: errors.New("nothing was written")}
	}
	return nil
}

type hookTrustCmd struct {
	Yes       bool    `name:"yes" short:"y" help:"Approve without asking. Refused in the shell of a coding agent."`
	Principal *string `name:"principal" env:"GAVEL_REVIEWER" placeholder:"ID" help:"Who approves, for the record. Default: local:user: and your name on this machine."`
	storeFlag
}

func (hookTrustCmd) Help() string {
	return `Shows what changed in the configuration file and in the definitions that it names since they
were last approved, asks, and puts them in force for gavel hook and gavel mcp. Until then the
approved ones stay in force. Give the --store that gavel hook install wrote into the client's
settings. An open review of the change (gavel review list) is closed; to approve that does the same.

Examples:

    gavel hook trust --config gavel.yaml
    gavel hook trust --config gavel.yaml --store .workflows/gavel.db --yes

Exit codes: 0 approved, or nothing to approve; 1 not wanted; 2 wrong usage, or a file that has
mistakes; 3 could not find out.`
}

func (c *hookTrustCmd) Run(ctx context.Context, con *console) error {
	if c.Config == "" {
		return term.UsageErrorf("give --config FILE", "there is no configuration")
	}
	if err := c.setHookStore(); err != nil {
		return err
	}
	who, err := findReviewer(c.Principal)
	if err != nil {
		return err
	}
	r, err := openRulesReview(ctx, c.storeFlag)
	if err != nil {
		return err
	}
	defer r.close()
	if !r.isChanged() {
		con.out.Printf("nothing to approve: %s is as it was approved\n", c.Config)
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

// setHookStore names the store that the hooks of this project have where nothing else names one.
func (f *storeFlag) setHookStore() (err error) {
	if f.Store == "" {
		project, err := projectFolder()
		if err != nil {
			return err
		}
		f.Store = filepath.Join(project, storeFolder, storeFile)
	}
	if !gavel.IsDatabase(f.Store) && f.Store != memoryStore {
		f.Store, err = filepath.Abs(f.Store)
	}
	return err
}

// rulesReview is what a person is asked to approve.
type rulesReview struct {
	*system
	flag   storeFlag
	before *approval // nil for none
	next   ruleFiles
	hooked bool // what is installed is to be recorded
}

func openRulesReview(ctx context.Context, flag storeFlag) (*rulesReview, error) {
	if flag.Store == memoryStore {
		return nil, term.UsageErrorf("give the path of a store file", "hooks need a store that outlives them")
	}
	if _, err := checkConfig(flag.Config); err != nil {
		return nil, err
	}
	path, err := locateFile(flag.Config)
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

// open opens the store, which may not be there yet.
func (r *rulesReview) open(ctx context.Context, con *console) error {
	if r.system != nil {
		return nil
	}
	at, err := r.flag.place(con.log, true)
	if err == nil {
		r.system, err = openSystem(ctx, con.log, at, equipment{reviews: true})
	}
	return err
}

func (r *rulesReview) close() {
	if r.system != nil {
		_ = r.system.Close() // what was acknowledged is on disk
	}
}

func (r *rulesReview) isChanged() bool {
	return r.before == nil || r.before.digest() != r.next.digest() || r.before.Noticed != "" || r.hooked
}

// print shows what changed. What was never approved is named.
func (r *rulesReview) print(ctx context.Context, con *console) error {
	if r.before == nil {
		con.out.Printf("%s\n", con.out.Bold("never approved until now:"))
		for _, name := range (approvedRules{}).listChanges(r.next) {
			con.out.Printf("  %s\n", name)
		}
		return nil
	}
	if r.before.Config != r.next.Config {
		printDiff(con, r.next.path, []byte(r.before.Config), []byte(r.next.Config))
	}
	for _, name := range r.before.listChanges(r.next) {
		con.out.Printf("changed: %s\n", name)
	}
	if err := r.open(ctx, con); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.next.definitions)) {
		d := r.next.definitions[name]
		stored, _, err := r.Engine.LoadDefinition(ctx, localCLI, engine.RightRead, d.Name, 0)
		if err != nil && engine.CodeOf(err) != engine.CodeUnknownWorkflow {
			return engineFailure(err)
		}
		if stored.Hash != d.Hash {
			printDiff(con, name, indentDefinition(stored.Document), indentDefinition(d.Document))
		}
	}
	return nil
}

// indentDefinition is a definition for a diff: scripts in it have their lines.
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
