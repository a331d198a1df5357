package rows

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Table is a table whose rows are the same in every driver with tables. Tables that are derived from these, or that
// hold the state of running processes, are not listed.
type Table struct {
	Name    string
	Columns []Column
	// Key is how many of the first columns form the primary key. Rows are ordered by it.
	Key int
}

// Column is a column of a Table.
type Column struct {
	Name string
	Type Type
}

// Type is the type of a column's values. Columns outside the key may also be NULL (nil).
type Type int

// The types of columns.
const (
	Int   Type = iota // int64
	Bool              // int64, 0 or 1
	Text              // string without zero bytes; compared by bytes in a key
	Named             // string of any bytes, chosen by callers
	Blob              // []byte
)

// Row holds the values of a row in column order.
type Row []any

// Tables lists the tables of a store; each refers only to tables before it.
var Tables = []Table{
	{"definitions", columns("name:text version:int hash:text document:blob owner:named operator:bool created_at:int " + sealColumns), 2},
	{"judge_configs", columns("workflow:text revision:int principal:named role:named scope:named settings:blob hash:text at:int " + sealColumns), 2},
	{"instances", columns(`n:int id:text workflow:text version:int definition_hash:text owner:named created_at:int updated_at:int
		seq:int revision:int state:text status:text head:blob facts:blob calls:int subject:named`), 1},
	{"contexts", columns("n:int context:blob"), 1},
	{"events", columns("pos:int n:int seq:int revision:int kind:text at:int key_scope:blob prev_hash:blob hash:blob body:blob"), 1},
	{"snapshots", columns("n:int revision:int instance:blob context:blob"), 2},
	{"refusals", columns("pos:int guard:named identity:named instance:named principal:named workflow:named action:named at:int opinion:blob"), 1},
	{"reviews", columns("id:text place:int status:text instance:text workflow:text principal:named body:blob data:blob"), 1},
	{"anchors", columns("number:int at:int note:named heads:blob"), 1},
	{"counters", columns("name:blob n:int ends:int"), 1},
	{"cursors", columns("name:blob position:int filter:blob made_at:int moved_at:int"), 1},
	{"dead_letters", columns("cursor:blob position:int instance:text seq:int tries:int cause:named at:int"), 2},
	{"data_keys", columns("instance:text number:int wrapped:blob under:text made_at:int destroyed_at:int"), 2},
}

const sealColumns = "place:int prev_seal:blob seal:blob mac:blob"

func columns(list string) (all []Column) {
	types := []string{Int: "int", Bool: "bool", Text: "text", Named: "named", Blob: "blob"}
	for word := range strings.FieldsSeq(list) {
		name, kind, _ := strings.Cut(word, ":")
		all = append(all, Column{name, Type(slices.Index(types, kind))})
	}
	return all
}

// List returns the column names as a list for a query.
func (t Table) List() string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// KeyList is like List, for the key columns only.
func (t Table) KeyList() string { return Table{Columns: t.Columns[:t.Key]}.List() }

// Compare compares two rows by key.
func (t Table) Compare(a, b Row) int {
	for i := range t.Key {
		if c := compareValues(a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}

func compareValues(a, b any) int {
	switch a := a.(type) {
	case int64:
		return cmp.Compare(a, b.(int64))
	case []byte:
		return bytes.Compare(a, b.([]byte))
	default:
		return cmp.Compare(a.(string), b.(string))
	}
}

// Equal reports whether two rows are equal.
func (r Row) Equal(other Row) bool {
	return slices.EqualFunc(r, other, func(a, b any) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return compareValues(a, b) == 0
	})
}

// Size returns the approximate size of a row in bytes.
func (r Row) Size() (n int) {
	for _, v := range r {
		switch v := v.(type) {
		case []byte:
			n += len(v)
		case string:
			n += len(v)
		}
		n += 8
	}
	return n
}

// Normalize converts the values of a row read from a database, in place, to the types of its columns.
func (t Table) Normalize(r Row) error {
	for i, c := range t.Columns {
		ok := r[i] == nil && i >= t.Key
		switch v := r[i].(type) {
		case int64:
			ok = c.Type == Int || c.Type == Bool && (v == 0 || v == 1)
		case bool:
			ok, r[i] = c.Type == Bool, int64(0)
			if v {
				r[i] = int64(1)
			}
		case string:
			ok = c.Type == Text || c.Type == Named
		case []byte:
			switch c.Type {
			case Blob:
				r[i], ok = OrEmpty(v), true
			case Named:
				r[i], ok = string(v), true
			case Int, Bool, Text:
			}
		}
		if !ok {
			return fmt.Errorf("%s.%s holds a %T", t.Name, c.Name, r[i])
		}
	}
	return nil
}

// Reader reads the rows of a store.
type Reader interface {
	// Rows returns the rows of a table in key order.
	Rows(ctx context.Context, t Table) iter.Seq2[Row, error]
}

// View is a consistent view of a store at one moment.
type View interface {
	Reader
	Close() error
}

// Writer is a store that is being built by copying rows.
type Writer interface {
	Reader
	// Replace deletes the rows with the keys of remove and inserts add, in one transaction.
	Replace(ctx context.Context, t Table, remove, add []Row) error
}
