package sqlitestore

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// pageSize is how many rows an iterator reads at a time. Between two pages it
// holds no connection and no snapshot: a slow or nested consumer blocks nobody,
// and the write-ahead log can be reset.
const pageSize = 64

// headsPage is pageSize for instances without their contexts.
const headsPage = 1024

// where gathers the conditions of a query.
type where struct {
	conditions []string
	args       []any
}

func (w *where) add(condition string, args ...any) {
	w.conditions, w.args = append(w.conditions, condition), append(w.args, args...)
}

func (w *where) addText(condition, value string) {
	if value != "" {
		w.add(condition, value)
	}
}

func (w *where) String() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}

// Events implements store.Store.
func (s *Store) Events(ctx context.Context, q store.EventQuery) iter.Seq2[record.Event, error] {
	return rows.Pages(ctx, q.Limit, pageSize, func(ctx context.Context, after *record.Event, n int) (page []record.Event, err error) {
		err = s.read(ctx, "events of "+q.Instance, func(ctx context.Context) (err error) {
			query, args := eventsPage(q, after, n)
			page, err = queryAll(ctx, s.poolFor(ctx), scanFiled, query, args...)
			return err
		})
		// What an event says of its place may not be where it is kept. Then the next page could be this one again.
		if from := startOf(q, after); err == nil && len(page) == pageSize && page[pageSize-1].Seq <= from {
			err = fmt.Errorf("%w: events of %s behind number %d lead back", ErrCorrupt, q.Instance, from)
		}
		return page, err
	})
}

// startOf is the number behind which a page begins.
func startOf(q store.EventQuery, after *record.Event) int64 {
	if after != nil {
		return after.Seq
	}
	return q.AfterSeq
}

func eventsPage(q store.EventQuery, after *record.Event, n int) (string, []any) {
	var w where
	w.add("e.n = (SELECT n FROM instances WHERE id = ?)", q.Instance)
	w.add("e.seq > ?", startOf(q, after))
	if q.MaxRevision != 0 {
		w.add("e.revision <= ?", q.MaxRevision) // revisions never fall along a history
	}
	if len(q.Kinds) > 0 {
		kinds := make([]any, len(q.Kinds))
		for i, k := range q.Kinds {
			kinds[i] = string(k)
		}
		w.add("e.kind IN (?"+strings.Repeat(", ?", len(kinds)-1)+")", kinds...)
	}
	return `SELECT ` + filedColumns + ` FROM events e` + w.String() + ` ORDER BY e.seq LIMIT ?`, append(w.args, n)
}

// Instances implements store.Store.
func (s *Store) Instances(ctx context.Context, q store.InstanceQuery) iter.Seq2[record.Instance, error] {
	size, scan := pageSize, scanInstance
	if q.Heads {
		size, scan = headsPage, scanHead
	}
	if q.MovedAfter > 0 {
		size = math.MaxInt32 // to find them again for each page would cost what is saved
	}
	return rows.Pages(ctx, q.Limit, size, func(ctx context.Context, after *record.Instance, n int) (page []record.Instance, err error) {
		err = s.read(ctx, "instances", func(ctx context.Context) (err error) {
			narrow, err := s.isNarrow(ctx, q)
			if err != nil {
				return err
			}
			query, args := instancesPage(q, narrow, after, n)
			page, err = queryAll(ctx, s.poolFor(ctx), scan, query, args...)
			return err
		})
		return page, err
	})
}

// fewInstances is how many instances are looked at one by one.
const fewInstances = 1000

// isNarrow reports whether a list is found along what never changes of an instance: where
// nothing else is asked for, and where its owner or workflow has few.
func (s *Store) isNarrow(ctx context.Context, q store.InstanceQuery) (narrow bool, err error) {
	if q.State == "" && q.Status == "" || q.Owner == "" && q.Workflow == "" {
		return q.State == "" && q.Status == "", nil
	}
	column, value := "owner", q.Owner
	if value == "" {
		column, value = "workflow", q.Workflow
	}
	query := `SELECT count(*) < ?1 FROM (SELECT 1 FROM instances WHERE ` + column + ` = ?2 LIMIT ?1)`
	return narrow, s.poolFor(ctx).QueryRowContext(ctx, query, fewInstances, value).Scan(&narrow)
}

func instancesPage(q store.InstanceQuery, narrow bool, after *record.Instance, n int) (string, []any) {
	var w where
	before := q.BeforeID
	if after != nil {
		before = after.ID
	}
	w.addText("i.id < ?", before)
	if q.Owner != "" {
		w.addText("+i.workflow = ?", q.Workflow) // the owner is what isNarrow looked at
	} else {
		w.addText("i.workflow = ?", q.Workflow)
	}
	w.addText("i.owner = ?", q.Owner)
	w.addText("i.state = ?", q.State)
	w.addText("i.subject = ?", q.Subject)
	from := `instances i`
	if q.OpenCalls {
		w.add("i.calls > 0")
		from += ` INDEXED BY instances_calls`
	}
	narrow = narrow || q.OpenCalls || q.Subject != ""
	if q.MovedAfter > 0 {
		w.add("i.n IN (SELECT n FROM events WHERE pos > ?)", q.MovedAfter)
	}
	columns, joined := instanceColumns, " JOIN contexts c ON c.n = i.n"
	if q.Heads {
		columns, joined = "i.id, i.seq, i.head", ""
	}
	if narrow {
		w.addText("i.status = ?", string(q.Status))
		return `SELECT ` + columns + ` FROM ` + from + joined + w.String() + ` ORDER BY i.id DESC LIMIT ?`, append(w.args, n)
	}
	query, args := byStatus(q.Status, w, n)
	return `SELECT ` + columns + ` FROM (` + query + `) p CROSS JOIN instances i ON i.n = p.n` + joined + ` ORDER BY p.id DESC`, args
}

// byStatus finds instances along the index of what changes of them, in which all that a list
// asks for is, so that others are passed over without a look at them: one status after the
// other is merged, where any will do.
func byStatus(status record.Status, w where, n int) (query string, args []any) {
	statuses := []record.Status{record.Running, record.Complete, record.Cancelled}
	if status != "" {
		statuses = []record.Status{status}
	}
	var parts []string
	for _, status := range statuses {
		of := where{slices.Clone(w.conditions), slices.Clone(w.args)}
		of.add("i.status = ?", string(status))
		parts = append(parts, `SELECT i.n, i.id FROM instances i INDEXED BY instances_status`+of.String())
		args = append(args, of.args...)
	}
	return strings.Join(parts, " UNION ALL ") + ` ORDER BY id DESC LIMIT ?`, append(args, n)
}

func scanHead(r row) (i record.Instance, err error) {
	var head []byte
	err = r.Scan(&i.ID, &i.Seq, &head)
	i.Head = hex.EncodeToString(head)
	return i, err
}
