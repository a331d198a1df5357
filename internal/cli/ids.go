package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gavel-mcp/gavel"
	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/record"
	"github.com/gavel-mcp/gavel/internal/auth"
	"github.com/gavel-mcp/gavel/internal/operation"
	"github.com/gavel-mcp/gavel/internal/term"
)

// IDCompleter is a caller that accepts an unambiguous prefix of an id visible to it. All commands that take an
// instance or a review id use it.
type IDCompleter struct{ operation.Caller }

// Ask performs an operation after completing the ids in its request.
func (c IDCompleter) Ask(ctx context.Context, op *operation.Operation, req any) (any, error) {
	for i := range op.Fields {
		f := &op.Fields[i]
		find, ok := idFields[f.Name]
		if f.Complete != nil {
			find, ok = func(ctx context.Context, at operation.Caller, typed string) (string, error) {
				return complete(ctx, at, f, typed)
			}, true
		}
		if !ok {
			continue
		}
		v := f.In(req)
		if v.Kind() != reflect.String || v.String() == "" {
			continue
		}
		id, err := find(ctx, c.Caller, v.String())
		if err != nil {
			return nil, err
		}
		v.SetString(id)
	}
	return c.Caller.Ask(ctx, op, req) //nolint:wrapcheck // returned unchanged
}

// idFields maps operation fields that contain an id to the functions that complete it.
var idFields = map[string]func(context.Context, operation.Caller, string) (string, error){
	"id": findInstance, "reviewId": findReview,
}

// The prefixes, length and number of ids.
const (
	InstancePrefix = "wf-"
	reviewPrefix   = "rev-"
	uuidLength     = 36
	maxMatches     = 10 // listed for an ambiguous id
)

// IsWholeID reports whether an id is complete, so that it cannot be the prefix of another gavel id.
func IsWholeID(id, prefix string) bool {
	return strings.HasPrefix(id, prefix) && len(id) == len(prefix)+uuidLength
}

// findInstance returns the id of the instance that begins with typed, or typed if there is none.
func findInstance(ctx context.Context, at operation.Caller, typed string) (string, error) {
	if IsWholeID(typed, InstancePrefix) {
		return typed, nil
	}
	var found []idMatch
	for _, start := range possiblePrefixes(typed, InstancePrefix) {
		// The list is sorted from newest to oldest, which is descending by id.
		for page := (engine.InstancesRequest{Cursor: start + "~", Limit: maxMatches + 2}); ; {
			r, err := operation.Instances.Do(ctx, at, page)
			if err != nil {
				return "", err //nolint:wrapcheck // an *engine.Error
			}
			for _, i := range r.Instances {
				if strings.HasPrefix(i.ID, start) {
					found = append(found, idMatch{i.ID, fmt.Sprintf("%s, %s in %s", FormatVersion(i.Position), i.Status, i.State)})
				}
			}
			last := len(r.Instances) > 0 && !strings.HasPrefix(r.Instances[len(r.Instances)-1].ID, start)
			if page.Cursor = r.NextCursor; page.Cursor == "" || last || len(found) > maxMatches {
				break
			}
		}
	}
	// The instance with exactly this id is the oldest of those that begin with it.
	if len(found) > maxMatches && !isListed(found, typed) {
		if s, err := operation.Status.Do(ctx, at, operation.StatusRequest{ID: typed}); err == nil {
			return s.ID, nil
		}
	}
	return chooseID("instance", typed, found)
}

// findReview returns the id of the review that begins with typed, or of a review whose instance does. It prefers
// open reviews and returns typed if there is none.
func findReview(ctx context.Context, at operation.Caller, typed string) (string, error) {
	if IsWholeID(typed, reviewPrefix) {
		return typed, nil
	}
	var found, past []idMatch
	starts := possiblePrefixes(typed, reviewPrefix)
	for page := (engine.ReviewsRequest{Status: "all", Limit: 500}); ; {
		r, err := operation.Reviews.Do(ctx, at, page)
		if err != nil {
			return "", err //nolint:wrapcheck // an *engine.Error
		}
		for _, review := range r.Reviews {
			match := idMatch{review.ID, fmt.Sprintf("%s %s, %s", review.Workflow, review.Action, DescribeEnd(review))}
			switch isInstance := strings.HasPrefix(typed, InstancePrefix) && strings.HasPrefix(review.Instance, typed); {
			case isInstance && review.Status != record.ReviewOpen:
				past = append(past, match)
			case isInstance, slices.ContainsFunc(starts, func(start string) bool { return strings.HasPrefix(review.ID, start) }):
				found = append(found, match)
			}
		}
		if page.Cursor = r.NextCursor; page.Cursor == "" {
			if len(found) == 0 {
				found = past
			}
			return chooseID("review", typed, found)
		}
	}
}

// complete returns the value of a field that begins with typed, or typed if there is none.
func complete(ctx context.Context, at operation.Caller, f *operation.Field, typed string) (string, error) {
	values, err := f.Complete(ctx, at, typed, maxMatches)
	if err != nil || len(values) == 0 {
		return typed, err //nolint:wrapcheck // an *engine.Error
	}
	var found []idMatch
	for _, v := range values {
		found = append(found, idMatch{v.Value, v.About})
	}
	return chooseID(f.Name, typed, found)
}

// FindToken returns the id of the token that begins with typed, or typed if there is none.
func FindToken(tokens *auth.Tokens, typed string) (string, error) {
	all, err := tokens.List()
	if err != nil {
		return "", TokenFailure(err)
	}
	var found []idMatch
	for _, t := range all {
		if typed != "" && strings.HasPrefix(t.ID, typed) {
			found = append(found, idMatch{t.ID, fmt.Sprintf("%s of %s, %s", t.Name, t.Principal, DescribeToken(t).Status)})
		}
	}
	return chooseID("token", typed, found)
}

// possiblePrefixes returns the possible prefixes: typed itself, and typed after the kind's prefix.
func possiblePrefixes(typed, prefix string) []string {
	if strings.HasPrefix(typed, prefix) {
		return []string{typed}
	}
	return []string{typed, prefix + typed}
}

// idMatch is an id that begins with the typed text, and a description.
type idMatch struct{ id, what string }

func isListed(found []idMatch, id string) bool {
	return slices.ContainsFunc(found, func(c idMatch) bool { return c.id == id })
}

// chooseID returns the single match. Without a match it returns typed, so that the operation reports the error.
// Several matches are an error that lists them.
func chooseID(noun, typed string, found []idMatch) (string, error) {
	switch {
	case len(found) == 0 || isListed(found, typed):
		return typed, nil
	case len(found) == 1:
		return found[0].id, nil
	}
	f := &term.ExitError{
		Code: term.ExitUsage, Reason: string(engine.CodeInvalidArgument),
		Err: fmt.Errorf("%q matches more than one %s", typed, noun), Hint: "give more characters of the id",
	}
	for _, c := range found[:min(len(found), maxMatches)] {
		f.Lines = append(f.Lines, c.id+"  "+c.what)
	}
	if len(found) > maxMatches {
		f.Lines = append(f.Lines, "...")
	}
	return "", f
}

// CompleteInstances completes instance ids for commands that perform no operation.
func (s *System) CompleteInstances(ctx context.Context, ids []string) error {
	for i := range ids {
		if err := s.CompleteInstance(ctx, &ids[i]); err != nil {
			return err
		}
	}
	return nil
}

// CompleteInstance completes one instance id, unless it is empty.
func (s *System) CompleteInstance(ctx context.Context, id *string) error {
	if *id == "" {
		return nil
	}
	whole, err := findInstance(ctx, s.asOperator(), *id)
	if _, ambiguous := errors.AsType[*term.ExitError](err); ambiguous {
		return err
	}
	if err == nil { // otherwise the command reports the store's problem
		*id = whole
	}
	return nil
}

// asOperator returns a caller that performs operations as the store's operator.
func (s *System) asOperator() operation.Call {
	return operation.Call{Engine: s.Engine, Caller: auth.Identity{Principal: gavel.Operator}, Services: s.Extensions().Services()}
}
