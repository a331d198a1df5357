package chain

import (
	"context"
	"fmt"
	"strings"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

const (
	// attrChain is the attribute that names the chain of a run.
	attrChain = "chain"
	// indexes are the indexes that speed up lists in the file. DBOS has none that SQLite can use to find a
	// run by its status, which DBOS passes as a parameter, or by its owner; SQLite would read every row.
	indexes = `CREATE INDEX IF NOT EXISTS gavel_runs_by_status ON workflow_status (status, name, created_at);
CREATE INDEX IF NOT EXISTS gavel_runs_by_owner ON workflow_status (authenticated_user, created_at);
CREATE INDEX IF NOT EXISTS gavel_runs_by_owner_and_status ON workflow_status (authenticated_user, status, name, created_at);
CREATE INDEX IF NOT EXISTS gavel_suspended_runs ON workflow_status (created_at) WHERE ` + suspendedInFile
	// maxOwners limits how many owners one list filters by.
	maxOwners = 500
)

func chainOf(owner string) string {
	chain, _, _ := strings.Cut(owner, "\n")
	return chain
}

// listOwners returns the owners of a chain's runs in a file, at most one more than a list may filter by.
func (r *Runs) listOwners(ctx context.Context, chain string) ([]string, error) {
	return r.queryFile(ctx, "SELECT DISTINCT authenticated_user FROM workflow_status WHERE authenticated_user > ? AND authenticated_user < ? LIMIT ?", chain+"\n", chain+"\v", maxOwners+1)
}

// filterSuspended returns the filters that find suspended runs, or nil if there are none.
func (r *Runs) filterSuspended(ctx context.Context, chain string) ([]dbos.ListWorkflowsOption, error) {
	out := []dbos.ListWorkflowsOption{dbos.WithFilterName(runName), dbos.WithFilterStatus(dbos.WorkflowStatusError)}
	if r.config.Database != nil {
		attributes := map[string]any{attrSuspended: true}
		if chain != "" {
			attributes[attrChain] = chain
		}
		return append(out, dbos.WithFilterAttributes(attributes)), nil
	}
	runs, err := r.queryFile(ctx, "SELECT workflow_uuid FROM workflow_status WHERE "+suspendedInFile)
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	return append(out, dbos.WithFilterWorkflowIDs(runs...)), nil
}

// suspendedInFile is the condition of the index gavel_suspended_runs.
const suspendedInFile = "status = 'ERROR' AND json_extract(attributes, '$." + attrSuspended + "') = 1"

// queryFile reads one column from the file. DBOS filters by attributes only in PostgreSQL, and cannot
// filter by a prefix of the owner.
func (r *Runs) queryFile(ctx context.Context, query string, arguments ...any) (out []string, err error) {
	rows, err := r.session.Load().file.QueryContext(ctx, query, arguments...)
	if err != nil {
		return nil, fmt.Errorf("list the runs: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, fmt.Errorf("list the runs: %w", err)
		}
		out = append(out, text)
	}
	return out, rows.Err()
}
