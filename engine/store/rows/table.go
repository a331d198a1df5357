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

// Table is a table of which every driver that has tables keeps the same rows. Tables that are derived
// from these, or that say what a running process does, are not among them.
type Table struct {
	Name    string
	Columns []Column
	// Key counts the columns, from the first, by which rows differ. They are in its order.
	Key int
}

// Column is a column of a Table.
type Column struct {
	Name string
	Type Type
}

// Type is what the values of a column are, and whether they can be NULL (nil).
type Type int

// The types of columns.
const (
	Int   Type = iota // int64
	Bool              // int64, 0 or 1
	Text              // string without zero bytes, by their bytes in a key
	Named             // string of any bytes: what callers named
	Blob              // []byte
)

// Row is the values of a row, in the order of the columns.
type Row []any

// Tables are the tables of a store, in an order in which each refers to those before it.
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

// List is the names of the columns, for a query.
func (t Table) List() string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// KeyList is List of the key.
func (t Table) KeyList() string { return Table{Columns: t.Columns[:t.Key]}.List() }

// Compare compares the keys of two rows.
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

// Equal reports whether two rows are the same.
func (r Row) Equal(other Row) bool {
	return slices.EqualFunc(r, other, func(a, b any) bool {
		if a == nil || b == nil {
			return a == nil && b == nil
		}
		return compareValues(a, b) == 0
	})
}

// Size is about how many bytes a row takes.
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

// Normalize makes a row as a database returned it what its columns say, in place.
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

// Reader gives the rows of a store.
type Reader interface {
	// Rows are those of a table, in the order of its key.
	Rows(ctx context.Context, t Table) iter.Seq2[Row, error]
}

// View is a store as it was at one moment.
type View interface {
	Reader
	Close() error
}

// Writer is a store that is being made by copying rows.
type Writer interface {
	Reader
	// Replace removes rows, by their keys, and adds others, in one transaction.
	Replace(ctx context.Context, t Table, remove, add []Row) error
}
