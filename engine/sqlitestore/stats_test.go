package sqlitestore_test

import (
	"testing"

	"github.com/gavel-mcp/gavel/engine/storetest"
)

func TestStats(t *testing.T) {
	s := openAt(t, newPath(t))
	defer s.Close()
	before := s.Stats()
	for i := range 3 {
		if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(i+1), `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Commit(t.Context(), storetest.Start(t, storetest.ID(1), `{}`)); err == nil {
		t.Fatal("the same instance twice")
	}
	after := s.Stats()
	if after.Writes-before.Writes != 3 || after.Batches-before.Batches != 3 || after.Queued != 0 || after.Bytes == 0 {
		t.Errorf("before %+v, after three writes and a refusal %+v", before, after)
	}
}
