package chain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/validators/document"
)

// storeName is a workflow that executes once: its record identifies the store that the runs belong to. No
// run has its id.
const (
	storeName = "store"
	storeID   = "/" + storeName
)

// keepStore is a workflow that ends immediately: its record identifies the store that the runs belong to.
func keepStore(_ dbos.Context, text string) (string, error) { return text, nil }

// describeStore returns a digest that identifies the store only to holders of its secrets; "" without a
// store.
func (r *Runs) describeStore() string {
	if r.config.Ledger == nil {
		return ""
	}
	return r.config.Ledger.DigestStep("", storeName, []byte(storeName))
}

// where names the place of the runs, for messages.
func (r *Runs) where() string {
	if r.config.Database != nil {
		return fmt.Sprintf("the schema %q of the database", r.config.Database.schema())
	}
	return r.config.Path
}

// isBlank reports whether an empty file exists where the runs belong: someone created it on purpose.
func (r *Runs) isBlank() bool {
	if r.config.Database != nil {
		return false
	}
	info, err := os.Stat(r.config.Path)
	return err == nil && info.Size() == 0
}

// claim checks that the tables belong to this store before anything runs. New tables become the store's. It
// rejects tables of another store, of a later version of gavel, and tables that lost the store's runs.
// blank permits giving up the runs that the tables lack.
func (r *Runs) claim(ctx context.Context, s *session, blank bool) error {
	ours := r.describeStore()
	theirs, err := readStore(ctx, s)
	if err != nil {
		return r.failOpen(err)
	}
	switch {
	case theirs == ours:
	case ours == "":
		return r.failOpen(errors.New("they belong to a store, and only gavel serve and gavel mcp run them; name another file"))
	case theirs != "":
		return r.failOpen(errors.New("they belong to another store; set another location in chains.state"))
	}
	has, later, err := lookForRuns(ctx, s)
	switch {
	case err != nil:
		return r.failOpen(err)
	case later != "":
		return fmt.Errorf("%s holds runs of version %q, which this gavel cannot continue; start the gavel that began them", r.where(), later)
	case theirs != "" || ours == "" || s.executor == "":
		return nil
	case !has:
		if err := r.missRuns(ctx, blank); err != nil {
			return err
		}
	}
	c, done := s.within(ctx)
	defer done()
	if _, err := dbos.Enqueue[string](c, queueName, storeName, "", dbos.WithEnqueueWorkflowID(storeID), dbos.WithEnqueueApplicationVersion(version), dbos.WithEnqueueAttributes(map[string]any{storeName: ours})); err != nil {
		return r.failOpen(err)
	}
	switch theirs, err = readStore(ctx, s); {
	case err != nil:
		return r.failOpen(err)
	case theirs != ours: // another process was faster
		return r.claim(ctx, s, blank)
	}
	return nil
}

// readStore returns the store that the tables belong to, or "".
func readStore(ctx context.Context, s *session) (string, error) {
	c, done := s.within(ctx)
	defer done()
	list, err := listRows(c, dbos.WithFilterWorkflowIDs(storeID))
	if err != nil || len(list) == 0 {
		return "", err
	}
	theirs, _ := list[0].Attributes[storeName].(string)
	return theirs, nil
}

// lookForRuns reports whether the tables have any run. later is the version of an open run that this gavel
// does not know, or "".
func lookForRuns(ctx context.Context, s *session) (has bool, later string, err error) {
	c, done := s.within(ctx)
	defer done()
	list, err := listRows(c, dbos.WithFilterName(runName), dbos.WithFilterLimit(1))
	if err != nil || len(list) == 0 {
		return false, "", err
	}
	const most = 1000
	list, err = listRows(c, dbos.WithFilterName(runName), dbos.WithFilterStatus(dbos.WorkflowStatusPending, dbos.WorkflowStatusEnqueued), dbos.WithFilterSortDesc(), dbos.WithFilterLimit(most))
	for _, w := range list {
		if w.ApplicationVersion != version && w.ApplicationVersion != "" {
			later = w.ApplicationVersion
		}
	}
	return true, later, err
}

// missRuns looks in the store for open runs that empty tables have lost. If the tables were emptied on
// purpose (blank), these runs are given up.
func (r *Runs) missRuns(ctx context.Context, blank bool) error {
	lost, err := r.config.Ledger.ListOpenRuns(ctx)
	if err != nil || len(lost) == 0 {
		return err
	}
	if !blank {
		hint := "restore it, or create an empty file there to give up its runs"
		if r.config.Database != nil {
			hint = `restore it, or start once with an empty file as "state" to give up its runs`
		}
		runs := "the store's unfinished run " + lost[0]
		if len(lost) > 1 {
			runs = fmt.Sprintf("%d unfinished runs of the store, such as %s", len(lost), lost[0])
		}
		return fmt.Errorf("%s lacks %s; %s", r.where(), runs, hint)
	}
	raw, err := document.Marshal(map[string]any{"error": map[string]any{"code": "lost", "message": "the file with the run is lost, and an operator gave the run up"}})
	if err != nil {
		return err
	}
	for _, run := range lost {
		err := r.config.Ledger.RecordStep(ctx, engine.StepRecord{Run: run, Key: "end", Action: actionFail, Data: raw})
		if err != nil && engine.CodeOf(err) != engine.CodeInstanceEnded {
			return fmt.Errorf("give up the run %s: %w", run, err)
		}
		r.config.Logger.WarnContext(ctx, "gave up a run whose file is lost", "run", run)
	}
	return nil
}

// checkFile rejects a file with foreign content, or tables of a later version. DBOS would add its tables to
// any database, and would use tables of an unknown version.
func checkFile(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err == nil && info.IsDir() {
		return fmt.Errorf("%s is a folder; name a file in it", path)
	}
	tables, err := readTables(ctx, path)
	switch {
	case err != nil && strings.Contains(err.Error(), "not a database"):
		return fmt.Errorf("%s is not a database; name another file", path)
	case err != nil && strings.Contains(err.Error(), "malformed"):
		return fmt.Errorf("%s is damaged; restore a backup", path)
	case err != nil:
		return fmt.Errorf("open the runs in %s: %w", path, err)
	case tables.count > 0 && tables.version < 0:
		return fmt.Errorf("%s is a database that holds no chain runs; name another file", path)
	}
	if err := CheckVersion(tables.version); err != nil {
		return fmt.Errorf("open the runs in %s: %w; use a newer gavel, or another file", path, err)
	}
	return nil
}

// fileTables describes the tables of a file; version is -1 if they are not DBOS tables.
type fileTables struct{ count, version int64 }

func readTables(ctx context.Context, path string) (fileTables, error) {
	db, err := openReadOnly(path)
	if err != nil {
		return fileTables{}, err
	}
	defer func() { _ = db.Close() }()
	t, ours := fileTables{version: -1}, 0
	// DBOS creates the version table first, so a process that was killed at that point left no other table.
	err = db.QueryRowContext(ctx, "SELECT count(*), count(CASE WHEN name = ? THEN 1 END) FROM sqlite_master WHERE type = 'table'", VersionTable).Scan(&t.count, &ours)
	if err != nil || ours == 0 {
		return t, err
	}
	return t, db.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM "+VersionTable).Scan(&t.version)
}
