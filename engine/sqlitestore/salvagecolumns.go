package sqlitestore

import (
	"context"
	"slices"
	"strings"
)

// added are the columns that tables got by migrations, with what they hold before: a store
// of an older schema has none of them, and rows from before it are shorter.
var added = map[string]struct {
	literal string
	value   any
}{
	"place": {"0", int64(0)}, "prev_seal": {"x''", []byte{}}, "seal": {"x''", []byte{}}, "mac": {"x''", []byte{}},
}

// present are the columns of a table to be read, with what stands for those that the
// damaged store does not have.
func (s *salvor) present(ctx context.Context, table string, columns []string) string {
	rows, err := s.from.QueryContext(ctx, "SELECT name FROM pragma_table_info(?)", table)
	if err != nil {
		return strings.Join(columns, ", ") // to read them meets the same damage
	}
	have, err := scanAll(rows, func(r row) (name string, err error) { err = r.Scan(&name); return name, err })
	if err != nil || len(have) == 0 {
		return strings.Join(columns, ", ")
	}
	list := slices.Clone(columns)
	for i, column := range list {
		if was, ok := added[column]; ok && !slices.Contains(have, column) {
			list[i] = was.literal
		}
	}
	return strings.Join(list, ", ")
}

// fill makes a row as long as its table has columns.
func fill(row []any, columns []string) ([]any, bool) {
	for i := len(row); i < len(columns); i++ {
		was, ok := added[columns[i]]
		if !ok {
			return nil, false
		}
		row = append(row, was.value)
	}
	return row, len(row) == len(columns)
}
