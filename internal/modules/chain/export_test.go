package chain

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine"
)

// These are exported for tests that need a whole engine, and therefore cannot be in this package.
var (
	RunUntilKilled = runUntilKilled
	ServePipe      = servePipe
	ListTicks      = listTicks
	WithSchedule   = withSchedule
	IsCode         = isCode
)

// NewTestEngine creates a whole engine; only tests outside this package can set it.
var NewTestEngine func(t testing.TB) *engine.Engine

// ScheduleActions lists the actions that are recorded for a schedule.
var ScheduleActions = []string{actStart, actStarted, actPause, actTrigger, actResume, actChange, actRefused}

// ListActions returns the recorded actions of a schedule, at most the first 1000.
func (s *Schedules) ListActions(t *testing.T, chain string) (out []string) {
	t.Helper()
	kept, err := s.find(context.Background(), chain)
	if err != nil {
		t.Fatal(err)
	}
	all, err := engine.ReadWholeHistory(context.Background(), s.Engine, systemPrincipal, kept.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		out = append(out, entry.Action)
	}
	return out
}

// CountRows returns how many rows the tables have for some runs, with their steps and signals.
func (r *Runs) CountRows(t *testing.T, runs ...string) (rows int) {
	t.Helper()
	db := openSQLite(t, r.config.Path)
	for _, run := range runs {
		for _, table := range []string{"workflow_status", "operation_outputs"} {
			var n int
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table+" WHERE workflow_uuid = ? OR workflow_uuid GLOB ?", run, run+"/*").Scan(&n); err != nil {
				t.Fatal(err)
			}
			rows += n
		}
	}
	return rows
}

// DamageRun replaces the input of a run in a file that no process has open.
func DamageRun(t *testing.T, path, run, begun string) {
	t.Helper()
	raw, err := json.Marshal(begun)
	if err != nil {
		t.Fatal(err)
	}
	db := openSQLite(t, path)
	if _, err := db.ExecContext(t.Context(), "UPDATE workflow_input SET inputs = ? WHERE workflow_uuid = ?", base64.StdEncoding.EncodeToString(raw), run); err != nil {
		t.Fatal(err)
	}
}

// AwaitQuestion waits until a run waits for someone else.
func AwaitQuestion(t *testing.T, s *Service, p engine.Principal, run string) RunQuestion {
	t.Helper()
	v, _ := await(t, "a question", func() (RunView, bool) {
		v, err := s.ReadStatus(t.Context(), p, run)
		return v, err == nil && len(v.Waiting) > 0
	})
	return v.Waiting[0]
}

// AwaitSuspended waits until the tables have want suspended runs.
func (r *Runs) AwaitSuspended(t *testing.T, want int) {
	t.Helper()
	awaitSuspended(t, r, want)
}

// SyncBuffer is a buffer that is safe for concurrent use.
type SyncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *SyncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *SyncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// List returns the latest runs, newest first.
func (r *Runs) List(ctx context.Context, limit int) ([]RunState, error) {
	list, err := r.listRows(ctx, dbos.WithFilterName(runName), dbos.WithFilterSortDesc(), dbos.WithFilterLimit(limit), dbos.WithFilterLoadOutput(true))
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	out := make([]RunState, len(list))
	for i, w := range list {
		out[i] = r.describeRun(w)
	}
	return out, nil
}
