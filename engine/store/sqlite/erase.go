package sqlite

import (
	"context"
	"encoding/binary"
	"fmt"
)

// SQLite's file format: the header of a leaf page and the offsets of its fields.
const (
	leafHeader   = 8
	countAt      = 3 // the page's cell count
	contentAt    = 5 // start of the cell content
	tableLeaf    = 13
	largestStart = 65536 // stored as 0
)

// zeroGap zeroes the unused space between the cell pointers and the cells of a table leaf, and reports whether it
// contained anything else. When SQLite redistributes rows among pages, it rewrites them without clearing their old
// content, regardless of secure_delete.
func zeroGap(page []byte) (changed bool, err error) {
	if len(page) < leafHeader || page[0] != tableLeaf {
		return false, fmt.Errorf("%w: a page of the data keys is not a leaf of a table", ErrCorrupt)
	}
	begin := leafHeader + 2*int(binary.BigEndian.Uint16(page[countAt:]))
	end := int(binary.BigEndian.Uint16(page[contentAt:]))
	if end == 0 {
		end = largestStart
	}
	if begin > end || end > len(page) {
		return false, fmt.Errorf("%w: a page of the data keys has its cells in the wrong place", ErrCorrupt)
	}
	for i := begin; i < end; i++ {
		changed = changed || page[i] != 0
		page[i] = 0
	}
	return changed, nil
}

type keyPage struct {
	number int
	data   []byte // nil if there is nothing to clear
}

func scanKeyPage(r row) (p keyPage, err error) {
	if err = r.Scan(&p.number, &p.data); err != nil {
		return p, err
	}
	changed, err := zeroGap(p.data)
	if !changed {
		p.data = nil // do not keep unchanged pages until all are read
	}
	return p, err
}

// eraseKeyRemnants clears remnants of data keys in pages that their rows have left, within the open transaction. It
// reads the whole table.
func eraseKeyRemnants(ctx context.Context, on handle) error {
	pages, err := queryAll(ctx, on, scanKeyPage, `SELECT pgno, data FROM dbstat JOIN sqlite_dbpage ON pgno = pageno
		WHERE name = 'data_keys' AND pagetype = 'leaf'`)
	if err != nil {
		return err
	}
	for _, p := range pages {
		if p.data == nil {
			continue
		}
		if _, err := on.ExecContext(ctx, `UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?`, p.data, p.number); err != nil {
			return err
		}
	}
	return nil
}

// setSecureDelete sets how a connection clears deleted data: FAST only in pages that are written anyway, ON also in
// pages that become free.
func setSecureDelete(ctx context.Context, on handle, mode string) error {
	_, err := on.ExecContext(ctx, `PRAGMA secure_delete = `+mode)
	return err
}
