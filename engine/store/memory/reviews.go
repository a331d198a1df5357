package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// review is a stored review. The memory that it refers to is never modified: a newer review replaces it as a whole.
type review struct {
	place                         store.ReviewCursor
	instance, workflow, principal string
	status                        record.ReviewStatus
	// body is the rest as JSON, as a durable driver would store it, so that fields that must not be stored are
	// absent. data is returned byte for byte.
	body, data []byte
}

func encodeReview(r store.Review) (review, error) {
	kept := review{
		place:    store.ReviewCursor{Rank: r.Priority.Rank(), ID: r.ID},
		instance: r.Instance, workflow: r.Workflow, principal: r.Principal, status: r.Status,
		data: bytes.Clone(r.Data),
	}
	var err error
	kept.body, err = r.Encode()
	return kept, err
}

func (r review) decode() (store.Review, error) {
	var out store.Review
	if err := json.Unmarshal(r.body, &out); err != nil {
		return store.Review{}, fmt.Errorf("decode review %s: %w", r.place.ID, err)
	}
	out.Data = bytes.Clone(r.data)
	return out, nil
}

// Reviews implements store.Store.
func (s *Store) Reviews(ctx context.Context, q store.ReviewQuery) iter.Seq2[store.Review, error] {
	return list(ctx, s, func() (found []review) {
		if q.ID != "" {
			if r, ok := s.reviews[q.ID]; ok && r.matches(q) {
				found = append(found, r)
			}
			return found
		}
		for _, r := range s.reviews {
			if r.matches(q) {
				found = append(found, r)
			}
		}
		slices.SortFunc(found, func(a, b review) int { return compareCursors(a.place, b.place) })
		return limitList(found, q.Limit)
	}, review.decode)
}

func (r review) matches(q store.ReviewQuery) bool {
	return (q.Instance == "" || r.instance == q.Instance) && (q.Workflow == "" || r.workflow == q.Workflow) &&
		(q.Principal == "" || r.principal == q.Principal) && (q.Status == "" || r.status == q.Status) &&
		(q.After == nil || compareCursors(r.place, *q.After) > 0)
}

// compareCursors orders by rank, highest first, then by id, oldest first.
func compareCursors(a, b store.ReviewCursor) int {
	return cmp.Or(cmp.Compare(b.Rank, a.Rank), strings.Compare(a.ID, b.ID))
}

// storeLesson stores a lesson; nil does nothing. Callers must hold the write lock.
func (s *Store) storeLesson(l *store.Lesson) {
	if l == nil {
		return
	}
	if l.Cleared {
		s.refusals = slices.DeleteFunc(s.refusals, func(kept store.Lesson) bool {
			return kept.Guard == l.Guard || kept.Guard == "" && l.Bound != "" && kept.Identity == l.Bound
		})
	}
	if l.Refused {
		oldest := l.At.Add(-store.MaxRefusalAge)
		s.refusals = slices.DeleteFunc(s.refusals, func(kept store.Lesson) bool { return kept.At.Before(oldest) })
		kept := *l
		kept.Opinion = bytes.Clone(l.Opinion)
		s.refusals = append(s.refusals, kept)
		if l.Bound != "" && l.Opinion != nil { // a separate row, which is not counted as a refusal
			kept.Guard, kept.Identity = "", l.Bound
			s.refusals = append(s.refusals, kept)
		}
	}
}

// Refusals implements store.Store.
func (s *Store) Refusals(ctx context.Context, guard, identity string, since time.Time) (n int, opinion json.RawMessage, err error) {
	err = s.read(ctx, func() error {
		for _, l := range s.refusals {
			if l.At.Before(since) {
				continue
			}
			if guard != "" && l.Guard == guard {
				n++
			}
			if identity != "" && l.Identity == identity && l.Opinion != nil {
				opinion = bytes.Clone(l.Opinion)
			}
		}
		return nil
	})
	return n, opinion, err
}

// ClearRefusals implements store.Store.
func (s *Store) ClearRefusals(ctx context.Context, q store.RefusalQuery) (n int, err error) {
	is := func(want, got string) bool { return want == "" || want == got }
	err = s.write(ctx, func() error {
		guards, identities := map[string]bool{}, map[string]bool{}
		for _, l := range s.refusals {
			guards[l.Guard] = guards[l.Guard] || l.Guard != "" && l.Instance == q.Instance
		}
		selected := func(l store.Lesson) bool {
			return is(q.Principal, l.Principal) && is(q.Workflow, l.Workflow) && is(q.Action, l.Action) && (is(q.Instance, l.Instance) || guards[l.Guard])
		}
		s.refusals = slices.DeleteFunc(s.refusals, func(l store.Lesson) bool {
			if !selected(l) {
				return false
			}
			if l.Guard != "" {
				n++
				identities[l.Identity] = true
			}
			return true
		})
		for i, l := range s.refusals { // an opinion that other principals received on the same case would answer it again
			if l.Guard != "" && identities[l.Identity] {
				s.refusals[i].Opinion = nil
			}
		}
		return nil
	})
	return n, err
}
