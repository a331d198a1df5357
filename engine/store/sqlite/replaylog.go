package sqlite

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
)

// ReplayedLog describes a write-ahead log that was replayed without its database.
type ReplayedLog struct {
	// Frames is the number of complete, committed frames, Pages the number of pages of the database.
	Frames int   `json:"frames"`
	Pages  int64 `json:"pages"`
	// MissingPages is the number of pages that only the database contained.
	MissingPages int64 `json:"missingPages,omitempty"`
	// Cut reports that the log continues with a damaged or incomplete frame.
	Cut bool `json:"cut,omitempty"`
}

// Whole reports whether the log contained the complete database.
func (r *ReplayedLog) Whole() bool { return r.MissingPages == 0 && !r.Cut }

// The format of a write-ahead log (sqlite.org/fileformat2.html#walformat).
const (
	pageSize4K  = 4096
	logHeader   = 32
	frameHeader = 24
	logMagic    = 0x377f0682 // the last bit sets the byte order of checksum words
)

// replayLog writes the pages of a log's complete, committed frames to a file: a new one, or the log's own database.
func replayLog(logPath, to string) (r *ReplayedLog, err error) {
	in, err := os.Open(logPath)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	latest, r, err := committedFrames(bufio.NewReaderSize(in, 1<<20))
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	page := make([]byte, pageSize4K)
	for number := int64(1); number <= r.Pages; number++ {
		at, ok := latest[number]
		if !ok {
			r.MissingPages++
			continue
		}
		if _, err := in.ReadAt(page, at); err != nil {
			return nil, err
		}
		if _, err := out.WriteAt(page, (number-1)*pageSize4K); err != nil {
			return nil, err
		}
	}
	return r, out.Truncate(r.Pages * pageSize4K)
}

// committedFrames returns the offsets in the log of the last committed state of each page. It stops at the first
// frame that belongs to an earlier log or fails its checksum.
func committedFrames(in io.Reader) (latest map[int64]int64, r *ReplayedLog, err error) {
	var header [logHeader]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return nil, nil, fmt.Errorf("%w (the log has no header)", ErrCorrupt)
	}
	sum := frameSum{order: binary.LittleEndian}
	magic := binary.BigEndian.Uint32(header[:])
	if magic&1 == 1 {
		sum.order = binary.BigEndian
	}
	sum.add(header[:24])
	switch {
	case magic&^1 != logMagic, !sum.matches(header[24:]):
		return nil, nil, fmt.Errorf("%w (the header of the log is damaged)", ErrCorrupt)
	case binary.BigEndian.Uint32(header[8:]) != pageSize4K:
		return nil, nil, fmt.Errorf("%w (the log is not a store's)", ErrNotAStore)
	}
	latest, r = map[int64]int64{}, &ReplayedLog{}
	open := map[int64]int64{} // frames of the transaction that is not committed yet
	frame := make([]byte, frameHeader+pageSize4K)
	for n := 0; ; n++ {
		switch _, err := io.ReadFull(in, frame); {
		case errors.Is(err, io.EOF):
			return latest, r, nothingCommitted(r)
		case errors.Is(err, io.ErrUnexpectedEOF):
			r.Cut = true
			return latest, r, nothingCommitted(r)
		case err != nil:
			return nil, nil, err
		}
		if string(frame[8:16]) != string(header[16:24]) { // left from before the log restarted
			return latest, r, nothingCommitted(r)
		}
		sum.add(frame[:8])
		sum.add(frame[frameHeader:])
		if !sum.matches(frame[16:24]) {
			r.Cut = true
			return latest, r, nothingCommitted(r)
		}
		open[int64(binary.BigEndian.Uint32(frame))] = logHeader + int64(n)*int64(len(frame)) + frameHeader
		if pages := binary.BigEndian.Uint32(frame[4:]); pages > 0 {
			maps.Copy(latest, open)
			clear(open)
			r.Frames, r.Pages = n+1, int64(pages)
		}
	}
}

func nothingCommitted(r *ReplayedLog) error {
	if r.Frames == 0 {
		return fmt.Errorf("%w (the log holds no committed write)", ErrCorrupt)
	}
	return nil
}

// frameSum is SQLite's cumulative checksum.
type frameSum struct {
	order  binary.ByteOrder
	s0, s1 uint32
}

func (f *frameSum) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		f.s0 += f.order.Uint32(b) + f.s1
		f.s1 += f.order.Uint32(b[4:]) + f.s0
	}
}

func (f *frameSum) matches(b []byte) bool {
	return binary.BigEndian.Uint32(b) == f.s0 && binary.BigEndian.Uint32(b[4:]) == f.s1
}
