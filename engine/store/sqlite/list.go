package sqlite

import (
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
	"github.com/gavel-mcp/gavel/engine/store/rows"
)

// pageSize is how many rows an iterator reads at a time. Between pages it holds no connection and no snapshot, so
// that slow or nested consumers block no one and the write-ahead log can restart.
const pageSize = 64

// headsPage is the page size for rows without contexts.
const headsPage = 1024

// where collects the conditions of a query.
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
			page, err = queryAll(ctx, s.poolFor(ctx), scanIndexedEvent, query, args...)
			return err
		})
		page = q.UpToRevision(page)
		// An event's own seq may differ from the number that it is stored under (damage). The next page could then
		// repeat this one.
		if from := startOf(q, after); err == nil && len(page) == pageSize && page[pageSize-1].Seq <= from {
			err = fmt.Errorf("%w: events of %s after number %d are out of order", ErrCorrupt, q.Instance, from)
		}
		return page, err
	})
}

// startOf returns the event number after which a page begins.
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
	from := `events e`
	if store.IsMarking(q.Kinds) {
		from += ` INDEXED BY events_marks`
		w.add("(e.kind = 'checkpointed' OR e.kind = 'truncated' OR e.kind = 'heard')")
	}
	if len(q.Kinds) > 0 {
		kinds := make([]any, len(q.Kinds))
		for i, k := range q.Kinds {
			kinds[i] = string(k)
		}
		w.add("e.kind IN (?"+strings.Repeat(", ?", len(kinds)-1)+")", kinds...)
	}
	return `SELECT ` + indexedEventColumns + ` FROM ` + from + w.String() + ` ORDER BY e.seq LIMIT ?`, append(w.args, n)
}

// Instances implements store.Store.
func (s *Store) Instances(ctx context.Context, q store.InstanceQuery) iter.Seq2[record.Instance, error] {
	size, scan := pageSize, scanInstance
	if q.Heads {
		size, scan = headsPage, scanHead
	}
	if q.MovedAfter > 0 {
		size = math.MaxInt32 // finding the moved instances again for each page would cost more than pages save
	}
	return rows.Pages(ctx, q.Limit, size, func(ctx context.Context, after *record.Instance, n int) (page []record.Instance, err error) {
		err = s.read(ctx, "instances", func(ctx context.Context) (err error) {
			index, err := s.chooseIndex(ctx, q)
			if err != nil {
				return err
			}
			query, args := instancesPage(q, index, after, n)
			page, err = queryAll(ctx, s.poolFor(ctx), scan, query, args...)
			return err
		})
		return page, err
	})
}

// fewInstances is how many index entries a page may skip before another index is tried.
const fewInstances = 1000

// listIndex is an index in list order.
type listIndex struct {
	name, prefix string // columns that are compared before id
	values       []any
}

// listIndexes returns the indexes that a query can use. The first includes every column that the query filters by, so
// that it skips entries without reading rows.
func listIndexes(q store.InstanceQuery) (all []listIndex) {
	switch {
	case q.Workflow != "" && q.State != "":
		all = append(all, listIndex{"instances_workflow_state", "workflow = ? AND state = ?", []any{q.Workflow, q.State}})
	case q.State != "":
		all = append(all, listIndex{"instances_state", "state = ?", []any{q.State}})
	}
	if q.Owner != "" {
		all = append(all, listIndex{"instances_owner", "owner = ?", []any{q.Owner}})
	}
	if q.Workflow != "" && q.State == "" {
		all = append(all, listIndex{"instances_workflow", "workflow = ?", []any{q.Workflow}})
	}
	if q.Status != "" {
		all = append(all, listIndex{"instances_status", "status = ?", []any{string(q.Status)}})
	}
	return all
}

// chooseIndex returns the name of the index to use: the first in which few instances match, or the default. It
// returns "" if the planner needs no hint.
func (s *Store) chooseIndex(ctx context.Context, q store.InstanceQuery) (string, error) {
	all := listIndexes(q)
	switch {
	case q.OpenCalls:
		return "instances_calls", nil
	case len(all) == 0 || q.Subject != "":
		return "", nil
	case len(all) == 1:
		return all[0].name, nil
	}
	for _, x := range all {
		var few bool
		query := `SELECT count(*) < ` + strconv.Itoa(fewInstances) + ` FROM (SELECT 1 FROM instances INDEXED BY ` + x.name + ` WHERE ` + x.prefix + ` LIMIT ` + strconv.Itoa(fewInstances) + `)`
		if err := s.poolFor(ctx).QueryRowContext(ctx, query, x.values...).Scan(&few); err != nil || few {
			return x.name, err
		}
	}
	return all[0].name, nil
}

// instancesPage builds a query that finds a page's instances in the index alone and then reads only their rows.
func instancesPage(q store.InstanceQuery, index string, after *record.Instance, n int) (string, []any) {
	var w where
	before := q.BeforeID
	if after != nil {
		before = after.ID
	}
	w.addText("i.id < ?", before)
	w.addText("i.workflow = ?", q.Workflow)
	w.addText("i.owner = ?", q.Owner)
	w.addText("i.state = ?", q.State)
	w.addText("i.status = ?", string(q.Status))
	w.addText("i.subject = ?", q.Subject)
	if q.OpenCalls {
		w.add("i.calls > 0")
	}
	if q.MovedAfter > 0 {
		w.add("i.n IN (SELECT n FROM events WHERE pos > ?)", q.MovedAfter)
	}
	columns, joined := instanceColumns, " JOIN contexts c ON c.n = i.n"
	if q.Heads {
		columns, joined = "i.id, i.seq, i.head", ""
	}
	from := `instances i`
	if index != "" {
		from += ` INDEXED BY ` + index
	}
	return `SELECT ` + columns + ` FROM (SELECT i.n, i.id FROM ` + from + w.String() + ` ORDER BY i.id DESC LIMIT ?) p
		CROSS JOIN instances i ON i.n = p.n` + joined + ` ORDER BY p.id DESC`, append(w.args, n)
}

func scanHead(r row) (i record.Instance, err error) {
	var head []byte
	err = r.Scan(&i.ID, &i.Seq, &head)
	i.Head = hex.EncodeToString(head)
	return i, err
}
