package memstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/engine/store"
)

// review is one at rest. What it points to is never written again: a newer one
// takes its place whole.
type review struct {
	place                         store.ReviewCursor
	instance, workflow, principal string
	status                        record.ReviewStatus
	// body is the rest as JSON, as a durable driver would keep it: what is not meant
	// to be kept is not in it. data is byte for byte what was given.
	body, data []byte
}

func atRest(r store.Review) (review, error) {
	kept := review{
		place:    store.ReviewCursor{Rank: r.Priority.Rank(), ID: r.ID},
		instance: r.Instance, workflow: r.Workflow, principal: r.Principal, status: r.Status,
		data: bytes.Clone(r.Data),
	}
	r.Data = nil
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false) // what evidence says comes back as it is
	if err := enc.Encode(r); err != nil {
		return review{}, fmt.Errorf("encode review %s: %w", r.ID, err)
	}
	kept.body = body.Bytes()
	return kept, nil
}

func (r review) stored() (store.Review, error) {
	var out store.Review
	if err := json.Unmarshal(r.body, &out); err != nil {
		return store.Review{}, fmt.Errorf("decode review %s: %w", r.place.ID, err)
	}
	out.Data = bytes.Clone(r.data)
	return out, nil
}

func allAtRest(reviews []store.Review) ([]review, error) {
	out := make([]review, len(reviews))
	for i, r := range reviews {
		kept, err := atRest(r)
		if err != nil {
			return nil, err
		}
		out[i] = kept
	}
	return out, nil
}

// Review implements store.Store.
func (s *Store) Review(ctx context.Context, id string) (store.Review, error) {
	unlock, err := s.read(ctx)
	if err != nil {
		return store.Review{}, err
	}
	r, ok := s.reviews[id]
	unlock()
	if !ok {
		return store.Review{}, fmt.Errorf("%w: review %s", store.ErrNotFound, id)
	}
	return r.stored()
}

// Reviews implements store.Store.
func (s *Store) Reviews(ctx context.Context, q store.ReviewQuery) iter.Seq2[store.Review, error] {
	return func(yield func(store.Review, error) bool) {
		unlock, err := s.read(ctx)
		if err != nil {
			yield(store.Review{}, err)
			return
		}
		var all []review
		for _, r := range s.reviews {
			if r.matches(q) {
				all = append(all, r)
			}
		}
		unlock()
		slices.SortFunc(all, func(a, b review) int { return inOrder(a.place, b.place) })
		if q.Limit != 0 && len(all) > q.Limit {
			all = all[:q.Limit]
		}
		for _, r := range all {
			if err := ctx.Err(); err != nil {
				yield(store.Review{}, err)
				return
			}
			stored, err := r.stored()
			if !yield(stored, err) || err != nil {
				return
			}
		}
	}
}

func (r review) matches(q store.ReviewQuery) bool {
	return (q.Instance == "" || r.instance == q.Instance) && (q.Workflow == "" || r.workflow == q.Workflow) &&
		(q.Principal == "" || r.principal == q.Principal) && (q.Status == "" || r.status == q.Status) &&
		(q.After == nil || inOrder(r.place, *q.After) > 0)
}

// inOrder compares places: the highest rank first, then the oldest id.
func inOrder(a, b store.ReviewCursor) int {
	return cmp.Or(cmp.Compare(b.Rank, a.Rank), strings.Compare(a.ID, b.ID))
}
