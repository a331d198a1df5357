package sqlitestore

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"slices"
)

// Where an inner page of a table is damaged, nothing leads to the pages below it any more,
// however good they are. They are found by looking at every page of the file. A page does
// not say which table it is of, and may hold rows that were removed; so that way is for
// rows only that prove themselves by a hash.

// tableLeaf is the first byte of a page that holds rows.
const tableLeaf = 0x0d

// leaf is what a page with rows says of them.
type leaf struct{ page []byte }

// leaves calls each with every page of a file that looks as if it held rows.
func leaves(path string, each func(leaf) error) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	in := bufio.NewReaderSize(f, 1<<20)
	page := make([]byte, pageSize4K)
	for first := true; ; first = false { // the first page is the schema's
		switch _, err := io.ReadFull(in, page); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
		if first || page[0] != tableLeaf {
			continue
		}
		if err := each(leaf{page}); err != nil {
			return err
		}
	}
}

// cells are where the page says that its rows begin.
func (l leaf) cells() []int {
	n := min(int(binary.BigEndian.Uint16(l.page[3:])), (pageSize4K-8)/2)
	out := make([]int, n)
	for i := range out {
		out[i] = int(binary.BigEndian.Uint16(l.page[8+2*i:]))
	}
	return out
}

// head is what a cell says first: how long its row is, its key, and where the row begins.
func (l leaf) head(at int) (size, key int64, body int, ok bool) {
	size, n := varint(l.page[min(at, len(l.page)):])
	key, m := varint(l.page[min(at+n, len(l.page)):])
	return size, key, at + n + m, n > 0 && m > 0 && size >= 0
}

// row is the bytes of a row; those that the page has no room for lie in a chain of others.
func (l leaf) row(file io.ReaderAt, size int64, body int) ([]byte, bool) {
	const most = pageSize4K - 35
	if size > maxRow {
		return nil, false
	}
	local := int(size)
	if local > most {
		least := (pageSize4K-12)*32/255 - 23
		local = least + (int(size)-least)%(pageSize4K-4)
		if local > most {
			local = least
		}
	}
	if body+local > len(l.page) {
		return nil, false
	}
	out := slices.Clone(l.page[body : body+local])
	if int64(local) == size {
		return out, true
	}
	if body+local+4 > len(l.page) {
		return nil, false
	}
	next := binary.BigEndian.Uint32(l.page[body+local:])
	chunk := make([]byte, pageSize4K)
	for int64(len(out)) < size {
		if next == 0 {
			return nil, false
		}
		if _, err := file.ReadAt(chunk, (int64(next)-1)*pageSize4K); err != nil {
			return nil, false
		}
		next = binary.BigEndian.Uint32(chunk)
		out = append(out, chunk[4:min(int64(pageSize4K), 4+size-int64(len(out)))]...)
	}
	return out, true
}

// maxRow is more than a row of any table that is looked for this way has, in bytes.
const maxRow = 1 << 20

// values are what a row's bytes say.
func values(row []byte) ([]any, bool) {
	length, n := varint(row)
	if n == 0 || length < int64(n) || length > int64(len(row)) {
		return nil, false
	}
	types, data := row[n:length], row[length:]
	var out []any
	for len(types) > 0 {
		kind, n := varint(types)
		if n == 0 {
			return nil, false
		}
		types = types[n:]
		size := sizeOf(kind)
		if size < 0 || size > int64(len(data)) {
			return nil, false
		}
		out = append(out, valueOf(kind, data[:size]))
		data = data[size:]
	}
	return out, len(data) == 0
}

// sizeOf is how many bytes a value of a kind has, negative for no kind.
func sizeOf(kind int64) int64 {
	switch {
	case kind < 0, kind == 10, kind == 11:
		return -1
	case kind >= 12:
		return (kind - 12) / 2
	}
	return [...]int64{0, 1, 2, 3, 4, 6, 8, 8, 0, 0}[kind]
}

func valueOf(kind int64, data []byte) any {
	switch {
	case kind == 0:
		return nil
	case kind == 7:
		return math.Float64frombits(binary.BigEndian.Uint64(data))
	case kind == 8, kind == 9:
		return kind - 8
	case kind >= 12 && kind%2 == 0:
		return slices.Clone(orEmpty(data))
	case kind >= 13:
		return string(data)
	}
	v := int64(int8(data[0])) //nolint:gosec // the first byte has the sign
	for _, b := range data[1:] {
		v = v<<8 | int64(b)
	}
	return v
}

// varint reads one of SQLite's numbers, the first byte first, and returns its length, 0
// for none.
func varint(b []byte) (v int64, n int) {
	for i, c := range b[:min(9, len(b))] {
		if i == 8 {
			return v<<8 | int64(c), 9
		}
		v = v<<7 | int64(c&0x7f)
		if c < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

// highestKey looks through all pages for the highest key of a row. What is above most
// is no key of a store of this size.
func highestKey(path string, most int64) (highest int64, err error) {
	err = leaves(path, func(l leaf) error {
		for _, at := range l.cells() {
			if _, key, _, ok := l.head(at); ok && key <= most {
				highest = max(highest, key)
			}
		}
		return nil
	})
	return highest, err
}

// proveThemselves are the tables whose rows are what a hash in them says, or are none.
var proveThemselves = []string{"events", "definitions"}

// strays saves the rows that no inner page leads to.
func (t *tableReader) strays(ctx context.Context, columns []string, save func(values []any) error) (err error) {
	f, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return leaves(t.path, func(l leaf) error {
		for _, at := range l.cells() {
			size, key, body, ok := l.head(at)
			if !ok || key < 0 || t.seen.has(key) {
				continue
			}
			raw, ok := l.row(f, size, body)
			if !ok {
				continue
			}
			row, ok := values(raw)
			if !ok {
				continue
			}
			if row, ok = fill(row, columns); !ok {
				continue
			}
			if columns[0] == "pos" { // the key itself, and not in the row
				row[0] = key
			}
			good, why := t.examine(t.damage.Name, columns, row)
			if why != nil {
				continue // of another table, or what is left of a row
			}
			switch err := save(good); {
			case err == nil:
				t.seen.add(key)
			case isFull(err), ctx.Err() != nil:
				return err
			}
		}
		return nil
	})
}

// without is ranges without the keys that were seen after all.
func without(all []Range, seen keySet) (out []Range) {
	for _, r := range all {
		from := r.From
		for key := r.From; key <= r.To && key/64 < int64(len(seen)); key++ {
			if !seen.has(key) {
				continue
			}
			if from < key {
				out = append(out, Range{from, key - 1})
			}
			from = key + 1
		}
		if from <= r.To {
			out = append(out, Range{from, r.To})
		}
	}
	return out
}
