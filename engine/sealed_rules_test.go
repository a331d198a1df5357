package engine_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/memory"
	"github.com/gavel-mcp/gavel/engine/store/sqlite"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

var ruleKey = bytes.Repeat([]byte{42}, 32)

// vaultFile is a store file with sealed rules, and an attacker who can write the file.
type vaultFile struct {
	t    *testing.T
	path string
}

const sternPay = `{"name":"%s","initialState":"a","states":{
	"a":{"transitions":{"go":{"target":"b","requiredFields":["why"]}}},
	"b":{"final":true}}}`

// laxPay is sternPay without its requirements.
const laxPay = `{"name":"%s","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}}`

// newVaultFile has two workflows of an operator and one of an agent, with judge configurations.
func newVaultFile(t *testing.T) *vaultFile {
	t.Helper()
	v := &vaultFile{t: t, path: filepath.Join(t.TempDir(), "gavel.db")}
	b := v.open()
	b.define(operator, fmt.Sprintf(laxPay, "pay")) // an earlier version
	b.define(operator, fmt.Sprintf(sternPay, "pay"))
	b.define(operator, fmt.Sprintf(sternPay, "other"))
	b.define(agent, fmt.Sprintf(laxPay, "toy"))
	b.configure(operator, "pay", workflow.JudgeSettings{Enabled: new(false)})
	b.configure(operator, "pay", workflow.JudgeSettings{Enabled: new(true)})
	b.configure(operator, "other", workflow.JudgeSettings{StrictMode: new(true)})
	b.configure(agent, "toy", workflow.JudgeSettings{Enabled: new(false)})
	return v
}

func (b *bench) configure(p engine.Principal, name string, s workflow.JudgeSettings) {
	b.t.Helper()
	if _, err := b.ConfigureJudge(b.t.Context(), p, engine.JudgeConfigRequest{Name: name, Settings: s}); err != nil {
		b.t.Fatal(err)
	}
}

// open returns a server over the file, as another process would be.
func (v *vaultFile) open() *bench {
	v.t.Helper()
	db, err := sqlite.Open(v.t.Context(), sqlite.Config{Path: v.path})
	if err != nil {
		v.t.Fatal(err)
	}
	return newBenchWith(v.t, db, nil, func(c *engine.Config) { c.RuleKey = ruleKey })
}

// write runs SQL statements on the file, each of which must change something.
func (v *vaultFile) write(queries ...string) {
	v.t.Helper()
	db, err := sql.Open("sqlite", "file:"+v.path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		v.t.Fatal(err)
	}
	defer db.Close()
	for _, query := range queries {
		r, err := db.ExecContext(v.t.Context(), query)
		if err != nil {
			v.t.Fatalf("%s: %v", query, err)
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			v.t.Fatalf("%s: changed nothing, %v", query, err)
		}
	}
}

// forge appends a rule to the chain with correct hashes and the seal of another key.
func (v *vaultFile) forge(rule store.Rule) {
	v.t.Helper()
	db, err := sqlite.Open(v.t.Context(), sqlite.Config{Path: v.path})
	if err != nil {
		v.t.Fatal(err)
	}
	defer db.Close()
	head, _, err := db.Rules(v.t.Context(), 0)
	if err != nil {
		v.t.Fatal(err)
	}
	seal := record.NewRuleSealer([]byte("another key")).Seal(head.Position+1, head.Hash, rule.Parts()...)
	if d := rule.Definition; d != nil {
		d.Seal = seal
	} else {
		rule.Config.Seal = seal
	}
	if err := db.AddRule(v.t.Context(), rule); err != nil {
		v.t.Fatal(err)
	}
}

const insertConfig = `INSERT INTO judge_configs (workflow, revision, principal, role, scope, settings, hash, at, place, prev_seal, seal, mac)
	SELECT workflow, revision + 1, principal, role, scope, CAST('{"enabled":false}' AS BLOB), hash, at, 0, x'', x'', x'' FROM judge_configs WHERE workflow = 'pay' AND revision = 2`

const insertLax = `INSERT INTO definitions (name, version, hash, document, owner, operator, created_at, place, prev_seal, seal, mac)
	SELECT name, 3, hash, document, owner, operator, created_at, 0, x'', x'', x'' FROM definitions WHERE name = 'pay' AND version = 1`

// ruleAttacks lists what an attacker who can write the file but does not have the key can do to have "pay"
// decided by other rules than the operator's.
var ruleAttacks = map[string]func(*vaultFile){
	"a configuration is inserted": func(v *vaultFile) { v.write(insertConfig) },
	"a version is inserted":       func(v *vaultFile) { v.write(insertLax) },
	"a configuration is changed": func(v *vaultFile) {
		v.write(`UPDATE judge_configs SET settings = CAST('{"enabled":false}' AS BLOB) WHERE workflow = 'pay' AND revision = 2`)
	},
	"the newest configuration is removed": func(v *vaultFile) { v.write(`DELETE FROM judge_configs WHERE workflow = 'pay' AND revision = 2`) },
	"the newest version is removed":       func(v *vaultFile) { v.write(`DELETE FROM definitions WHERE name = 'pay' AND version = 2`) },
	"all configurations are removed":      func(v *vaultFile) { v.write(`DELETE FROM judge_configs WHERE workflow = 'pay'`) },
	"the end of the chain is removed":     func(v *vaultFile) { v.write(`DELETE FROM judge_configs WHERE place > 5`) },
	"the chain is removed":                func(v *vaultFile) { v.write(`DELETE FROM judge_configs`) },
	"the seals are removed": func(v *vaultFile) {
		v.write(`UPDATE judge_configs SET place = 0`, `UPDATE definitions SET place = 0`, insertConfig)
	},
	"an older configuration is replayed": func(v *vaultFile) {
		v.write(`UPDATE judge_configs SET (settings, hash, at, prev_seal, seal, mac) = (SELECT settings, hash, at, prev_seal, seal, mac
			FROM judge_configs WHERE workflow = 'pay' AND revision = 1) WHERE workflow = 'pay' AND revision = 2`)
	},
	"an older version is replayed": func(v *vaultFile) {
		v.write(`UPDATE definitions SET (hash, document, created_at, prev_seal, seal, mac) = (SELECT hash, document, created_at, prev_seal, seal, mac
			FROM definitions WHERE name = 'pay' AND version = 1) WHERE name = 'pay' AND version = 2`)
	},
	"a whole row takes the place of a newer one": func(v *vaultFile) {
		v.write(`DELETE FROM judge_configs WHERE workflow = 'pay' AND revision = 2`, `UPDATE judge_configs SET revision = 2 WHERE workflow = 'pay'`)
	},
	"the configurations of two workflows are swapped": func(v *vaultFile) {
		v.write(`UPDATE judge_configs SET workflow = 'x', revision = 2 WHERE workflow = 'toy'`, `UPDATE judge_configs SET workflow = 'toy', revision = 1 WHERE workflow = 'pay' AND revision = 2`,
			`UPDATE judge_configs SET workflow = 'pay' WHERE workflow = 'x'`)
	},
	"the definitions of two workflows are swapped": func(v *vaultFile) {
		v.write(`UPDATE definitions SET version = 9 WHERE name = 'pay' AND version = 2`, `UPDATE definitions SET name = 'pay', version = 2 WHERE name = 'toy'`,
			`UPDATE definitions SET name = 'toy', version = 1 WHERE name = 'pay' AND version = 9`)
	},
	"the owner is changed":         func(v *vaultFile) { v.write(`UPDATE definitions SET owner = 'agent:ada' WHERE name = 'pay'`) },
	"it is no operator's any more": func(v *vaultFile) { v.write(`UPDATE definitions SET operator = 0 WHERE name = 'pay'`) },
	"the document is changed": func(v *vaultFile) {
		v.write(`UPDATE definitions SET document = (SELECT document FROM definitions WHERE name = 'pay' AND version = 1) WHERE name = 'pay' AND version = 2`)
	},
	"a configuration is forged": func(v *vaultFile) {
		v.forge(store.Rule{Config: &store.JudgeConfig{Workflow: "pay", Revision: 3, Principal: "op:eve", Role: "operator", Settings: workflow.JudgeSettings{Enabled: new(false)}}})
	},
	"a version is forged": func(v *vaultFile) {
		d, err := workflow.Parse("pay", fmt.Appendf(nil, laxPay, "pay"))
		if err != nil {
			v.t.Fatal(err)
		}
		v.forge(store.Rule{Definition: &store.Definition{Name: "pay", Version: 3, Hash: d.Hash, Document: d.Document, Owner: "op:eve", Operator: true}})
	},
	"the first configuration of a workflow is forged": func(v *vaultFile) {
		v.forge(store.Rule{Config: &store.JudgeConfig{Workflow: "pay", Revision: 3, Principal: "op:eve", Role: "operator", Settings: workflow.JudgeSettings{Enabled: new(false)}}})
		v.write(`UPDATE judge_configs SET place = 0 WHERE revision = 3`)
	},
}

// onlyRunning lists the attacks that only a running server detects. A server that starts over a file whose
// end is missing cannot detect them; verification does, with the anchors (TestVerifyFindsEveryTampering).
var onlyRunning = map[string]bool{"the end of the chain is removed": true, "the chain is removed": true}

func TestManipulatedRulesAreNotUsed(t *testing.T) {
	for name, attack := range ruleAttacks {
		t.Run(name, func(t *testing.T) {
			v := newVaultFile(t)
			running := v.open()
			id := running.start(agent, "pay", `{}`).ID
			if r, err := running.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`{}`))}); err != nil || r.Decision.Applied {
				t.Fatalf("before: %+v, %v", r.Decision, err)
			}
			attack(v)
			passes := func(b *bench, id string) error {
				r, err := b.Advance(t.Context(), agent, engine.AdvanceRequest{ID: id, Action: "go", Data: document.ReadTrusted([]byte(`{}`))})
				if r.Decision.Applied {
					t.Errorf("it passed: %+v", r.Decision)
				}
				return err
			}
			// A server continues with the rules that it has verified, or refuses; it never decides by
			// others.
			passes(running, id)
			if r, err := running.Start(t.Context(), agent, engine.StartRequest{Type: "pay", Context: json.RawMessage(`{}`)}); err == nil {
				passes(running, r.ID)
			} else {
				wantCode(t, err, engine.CodeUntrustedRules)
			}
			if onlyRunning[name] {
				return
			}
			fresh := v.open()
			_, err := fresh.Start(t.Context(), agent, engine.StartRequest{Type: "pay", Context: json.RawMessage(`{}`)})
			wantCode(t, err, engine.CodeUntrustedRules)
			if err := passes(fresh, id); err != nil {
				wantCode(t, err, engine.CodeUntrustedRules)
			}
		})
	}
}

// Several processes over one file add rules; all of them are used, and the chain is complete.
func TestRulesOfSeveralProcesses(t *testing.T) {
	v := newVaultFile(t)
	servers := []*bench{v.open(), v.open(), v.open()}
	errs := make(chan error)
	for i, b := range servers {
		go func() {
			for n := range 20 {
				if _, err := b.Define(t.Context(), operator, engine.DefineRequest{Document: fmt.Appendf(nil, sternPay, fmt.Sprintf("w%d-%d", i, n%7))}); err != nil {
					errs <- err
					return
				}
				if _, err := b.ConfigureJudge(t.Context(), operator, engine.JudgeConfigRequest{Name: "other", Settings: workflow.JudgeSettings{MinConfidence: new(float64(n) / 100)}}); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range servers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range append(servers, v.open()) {
		all, err := b.List(t.Context(), operator)
		if err != nil || len(all) != 3+3*7 {
			t.Errorf("%d definitions, %v", len(all), err)
		}
		if configs, err := b.store.JudgeConfigs(t.Context(), "other"); err != nil || len(configs) != 61 {
			t.Errorf("%d configurations, %v", len(configs), err)
		}
		b.start(agent, "other", `{}`)
	}
}

// busyStore is a store to which another process writes once, when method is called.
type busyStore struct {
	store.Store
	method    string
	meanwhile func()
}

func (s *busyStore) asked(method string) {
	if f := s.meanwhile; f != nil && s.method == method {
		s.meanwhile = nil
		f()
	}
}

func (s *busyStore) Definition(ctx context.Context, name string, version int) (store.Definition, error) {
	defer s.asked("Definition")
	return s.Store.Definition(ctx, name, version)
}

func (s *busyStore) Definitions(ctx context.Context) ([]store.Definition, error) {
	defer s.asked("Definitions")
	return s.Store.Definitions(ctx)
}

func (s *busyStore) JudgeConfigs(ctx context.Context, name string) ([]store.JudgeConfig, error) {
	s.asked("JudgeConfigs")
	return s.Store.JudgeConfigs(ctx, name)
}

func (s *busyStore) AddRule(ctx context.Context, r store.Rule) error {
	if r.Config != nil {
		s.asked("AddRule of a configuration")
	} else {
		s.asked("AddRule of a definition")
	}
	return s.Store.AddRule(ctx, r)
}

func (s *busyStore) Commit(ctx context.Context, c store.Commit) error {
	s.asked("Commit")
	return s.Store.Commit(ctx, c)
}

// A rule that another process adds between two reads of the store is not reported as tampering.
func TestRulesAreMadeMeanwhile(t *testing.T) {
	store := memory.New()
	keyed := func(c *engine.Config) { c.RuleKey = ruleKey }
	s := &busyStore{Store: store}
	elsewhere, b := newBenchWith(t, store, nil, keyed), newBenchWith(t, s, nil, keyed)
	elsewhere.define(operator, fmt.Sprintf(sternPay, "pay"))
	made := 0
	define := func(name string) {
		made++
		elsewhere.define(operator, strings.Replace(fmt.Sprintf(sternPay, name), "why", fmt.Sprint("why", made), 1))
	}
	configure := func() {
		made++
		elsewhere.configure(operator, "pay", workflow.JudgeSettings{MinConfidence: new(float64(made) / 1000)})
	}
	for method, look := range map[string]func(){
		"Definition":   func() { b.start(agent, "pay", `{}`) },
		"JudgeConfigs": func() { b.start(agent, "pay", `{}`) },
		"Definitions": func() {
			if all, err := b.List(t.Context(), operator); err != nil || len(all) == 0 {
				t.Errorf("%d definitions, %v", len(all), err)
			}
		},
		"AddRule of a definition":    func() { b.define(operator, fmt.Sprintf(sternPay, fmt.Sprint("mine", made))) },
		"AddRule of a configuration": func() { b.configure(operator, "pay", workflow.JudgeSettings{MinConfidence: new(0.5)}) },
	} {
		for _, meanwhile := range []func(){configure, func() { define("pay") }, func() { define(fmt.Sprint("other", made)) }} {
			configure() // so that cached configurations are outdated
			if method == "Definition" {
				define("pay") // it is known once it is the newest in the chain
			}
			s.method, s.meanwhile = method, meanwhile
			if look(); s.meanwhile != nil {
				t.Errorf("%s was not asked", method)
			}
		}
	}
}

// Rules without a seal are not used until an operator accepts them.
func TestSealRules(t *testing.T) {
	v := newVaultFile(t)
	v.write(`UPDATE judge_configs SET place = 0, prev_seal = x'', seal = x'', mac = x''`, `UPDATE definitions SET place = 0, prev_seal = x'', seal = x'', mac = x''`)
	b := v.open()
	if _, err := b.Start(t.Context(), agent, engine.StartRequest{Type: "pay"}); engine.CodeOf(err) != engine.CodeUntrustedRules {
		t.Fatalf("without seals: %v", err)
	}
	if _, err := b.SealRules(t.Context(), agent, engine.SealRequest{}); engine.CodeOf(err) != engine.CodeForbidden {
		t.Fatalf("an agent: %v", err)
	}
	for _, want := range []int{8, 0} {
		if r, err := b.SealRules(t.Context(), operator, engine.SealRequest{}); err != nil || r.Sealed != want {
			t.Fatalf("%d sealed, %v; want %d", r.Sealed, err, want)
		}
	}
	b.start(agent, "pay", `{}`)
	head, _, err := b.store.Rules(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	v.write(insertConfig)
	if _, err := v.open().Start(t.Context(), agent, engine.StartRequest{Type: "pay"}); engine.CodeOf(err) != engine.CodeUntrustedRules {
		t.Fatalf("with an inserted row: %v", err)
	}
	if r, err := b.SealRules(t.Context(), operator, engine.SealRequest{}); err != nil || r.Sealed != 1 {
		t.Fatalf("accepted: %+v, %v", r, err)
	}
	b.start(agent, "pay", `{}`)
	after, _, err := b.store.Rules(t.Context(), 0)
	if err != nil || after.Position != head.Position+1 {
		t.Fatalf("from %+v to %+v, %v", head, after, err)
	}
	// Missing rules stay missing; the rest can be used again.
	v.write(`DELETE FROM judge_configs WHERE workflow = 'pay' AND revision = 1`, `DELETE FROM definitions WHERE name = 'other'`, `UPDATE definitions SET place = 0 WHERE name = 'pay' AND version = 1`)
	fresh := v.open()
	if _, err := fresh.SealRules(t.Context(), operator, engine.SealRequest{}); err != nil {
		t.Fatal(err)
	}
	fresh.start(agent, "pay", `{}`)
	fresh.configure(operator, "pay", workflow.JudgeSettings{StrictMode: new(true)})
	fresh.define(operator, fmt.Sprintf(sternPay, "other"))
	v.open().start(agent, "other", `{}`)
}

// With another key, no rule of this store is used.
func TestRulesOfAnotherKey(t *testing.T) {
	db := memory.New()
	b := newBenchWith(t, db, nil, func(c *engine.Config) { c.RuleKey = ruleKey })
	b.define(operator, fmt.Sprintf(sternPay, "pay"))
	other := newBenchWith(t, db, nil, func(c *engine.Config) { c.RuleKey = []byte("another") })
	_, err := other.Start(t.Context(), agent, engine.StartRequest{Type: "pay"})
	e, ok := errors.AsType[*engine.Error](err)
	if !ok || e.Code != engine.CodeUntrustedRules || !strings.Contains(e.Err.Error(), "version 1 of the definition pay") || strings.Contains(e.Error(), "pay") {
		t.Errorf("got %v", err)
	}
}

// Seals are hex in the engine, and raw bytes in the file.
func TestSealsAreKept(t *testing.T) {
	b := newVaultFile(t).open()
	_, all, err := b.store.Rules(t.Context(), 0)
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, rule := range all {
		seal := rule.Seal()
		if mac, err := hex.DecodeString(seal.MAC); err != nil || len(mac) != 32 || (seal.Prev == "") != (seal.Position == 1) {
			t.Errorf("%s: %+v", rule, seal)
		}
	}
}

// All code that decides reads rules through the code that checks their seals.
func TestRulesAreReadInOnePlace(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	direct := regexp.MustCompile(`(?i)store\.(Definitions?|JudgeConfigs|AddRule)\(`)
	for _, file := range files {
		// Verification reads the rules as they are.
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "verify") || file == "rules.go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := direct.Find(text); at != nil {
			t.Errorf("%s calls %s) itself; ask e.rules", file, at)
		}
	}
}
