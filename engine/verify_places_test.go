package engine_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/audit"
	"github.com/gavel-mcp/gavel/engine/workflow"
)

// Verification also finds data that is stored next to the events, or under a wrong place or name: it could
// be shown instead of the events, or hide them.
func TestVerifyFindsMisplacedData(t *testing.T) {
	l := newLedger(t)
	b, closing := l.open(t, l.path)
	b.define(operator, `{"name":"spare","initialState":"a","states":{"a":{"transitions":{"go":"b"}},"b":{"final":true}}}`)
	minimum := 0.9
	for range 2 {
		if _, err := b.ConfigureJudge(t.Context(), operator, engine.JudgeConfigRequest{Name: "ledger", Settings: workflow.JudgeSettings{MinConfidence: &minimum}}); err != nil {
			t.Fatal(err)
		}
		minimum += 0.05
	}
	b.advance(agent, l.ids[0], "end", `{"n":2}`)
	l.anchor(t, b)
	closing()
	if r := l.verify(t, l.path); !r.Clean() {
		t.Fatalf("untouched: %+v", r)
	}
	const none = -1
	tests := map[string]struct {
		tamper func(f file)
		want   []wantBreak
	}{
		"a snapshot of an event that is not there": {
			func(f file) {
				f.run(`UPDATE snapshots SET instance = CAST(replace(CAST(instance AS TEXT), '"seq":4', '"seq":999') AS BLOB),
					context = CAST('{}' AS BLOB) WHERE n = ? AND revision = 2`, f.n(0))
			},
			[]wantBreak{{audit.BreakRow, 0, 0}},
		},
		"a snapshot behind another of its event": {
			func(f file) {
				f.run(`INSERT INTO snapshots (n, revision, instance, context)
					SELECT n, 3, CAST(replace(CAST(instance AS TEXT), '"revision":2', '"revision":3') AS BLOB), CAST('{}' AS BLOB)
					FROM snapshots WHERE n = ? AND revision = 2`, f.n(1))
			},
			[]wantBreak{{audit.BreakRow, 1, 0}},
		},
		"a kind":     {func(f file) { f.run("UPDATE events SET kind = 'refused' WHERE n = ? AND seq = 4", f.n(0)) }, []wantBreak{{audit.BreakEdited, 0, 4}}},
		"a revision": {func(f file) { f.run("UPDATE events SET revision = 77 WHERE n = ? AND seq = 3", f.n(0)) }, []wantBreak{{audit.BreakEdited, 0, 3}}},
		"a time":     {func(f file) { f.run("UPDATE events SET at = at + 1 WHERE n = ? AND seq = 3", f.n(0)) }, []wantBreak{{audit.BreakEdited, 0, 3}}},
		"a key":      {func(f file) { f.run("UPDATE events SET key_scope = zeroblob(32) WHERE n = ? AND seq = 3", f.n(0)) }, []wantBreak{{audit.BreakEdited, 0, 3}}},
		"an event below the first": {
			func(f file) {
				f.run(`INSERT INTO events (n, seq, revision, kind, at, prev_hash, hash, body)
					SELECT n, -5, revision, kind, at, prev_hash, hash, CAST(replace(CAST(body AS TEXT), 'agent:ada', 'agent:eve') AS BLOB)
					FROM events WHERE n = ? AND seq = 3`, f.n(0))
			},
			[]wantBreak{{audit.BreakInserted, 0, 0}},
		},
		"a copy of the first below it": {
			func(f file) {
				f.run(`INSERT INTO events (n, seq, revision, kind, at, prev_hash, hash, body)
					SELECT n, 0, revision, kind, at, prev_hash, hash, body FROM events WHERE n = ? AND seq = 1`, f.n(0))
			},
			[]wantBreak{{audit.BreakInserted, 0, 0}},
		},
		"a definition that nobody uses": {
			func(f file) {
				f.run(`UPDATE definitions SET document = CAST(replace(CAST(document AS TEXT), '"go"', '"do"') AS BLOB) WHERE name = 'spare'`)
			},
			[]wantBreak{{audit.BreakRow, none, 0}},
		},
		"no definition": {
			func(f file) { f.run("DELETE FROM definitions WHERE name = 'ledger'") },
			[]wantBreak{
				{audit.BreakRule, none, 0}, {audit.BreakRule, none, 0}, // the chain, and the anchor
				{audit.BreakRow, 0, 0}, {audit.BreakRow, 1, 0}, {audit.BreakRow, 2, 0},
			},
		},
		"a judge configuration": {
			func(f file) {
				f.run(`UPDATE judge_configs SET settings = CAST(replace(CAST(settings AS TEXT), '0.9', '0.1') AS BLOB) WHERE revision = 1`)
			},
			[]wantBreak{{audit.BreakRow, none, 0}, {audit.BreakRule, none, 0}},
		},
		"who made a judge configuration": {
			func(f file) { f.run("UPDATE judge_configs SET principal = 'operator:eve' WHERE revision = 2") },
			[]wantBreak{{audit.BreakRow, none, 0}, {audit.BreakRule, none, 0}},
		},
		"the last judge configuration deleted": {
			func(f file) { f.run("DELETE FROM judge_configs WHERE revision = 2") },
			[]wantBreak{{audit.BreakRule, none, 0}, {audit.BreakRow, 0, 9}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gavel.db")
			copyFile(t, l.path, path)
			db, err := sql.Open("sqlite", path)
			if err != nil {
				t.Fatal(err)
			}
			tt.tamper(file{t, db, l})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			l.check(t, l.verify(t, path), tt.want)
		})
	}
}
