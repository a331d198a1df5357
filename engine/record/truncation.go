package record

import (
	"fmt"
)

// truncationTitle begins what is signed of a truncation. The name of a key, which begins
// an anchor, holds no space: neither passes for the other.
const truncationTitle = "gavel truncation v1"

// Text is what a note about a removal signs: enough that the note fits this truncation of
// this instance and no other.
func (t Truncation) Text(instance string) string {
	return fmt.Sprintf("%s\ninstance %q\nup to %d\nlast hash %s\ncount %d\nrevision %d\nfloor %s\n",
		truncationTitle, instance, t.UpTo, t.Hash, t.Count, t.Revision, t.Floor)
}

// CheckNote checks that Note was signed with one of the keys for this truncation of this
// instance; without keys, only that it names it. ErrNote, ErrSignature.
func (t Truncation) CheckNote(instance string, keys ...*Verifier) error {
	if t.Note == "" {
		return fmt.Errorf("%w: the note is missing", ErrNote)
	}
	text, err := ReadNoteText(t.Note)
	if err == nil && len(keys) > 0 {
		text, err = OpenNote(t.Note, keys...)
	}
	if err != nil {
		return err
	}
	if text != t.Text(instance) {
		return fmt.Errorf("%w: it covers another removal", ErrNote)
	}
	return nil
}
