package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/engine/values"
	"github.com/gavel-mcp/gavel/engine/workflow"
	"github.com/gavel-mcp/gavel/validators/document"
)

// checkReuse rejects a request whose id belongs to a run that a different request started: another chain,
// principal or input. Inputs are compared after the defaults of the run's own definition are applied: a value
// that equals its default may be given or omitted. checkReuse returns nil if no run has the id.
func (r *Runs) checkReuse(ctx context.Context, req StartRequest) error {
	begun, owner, err := r.readBegun(ctx, req.Run)
	switch {
	case errors.Is(err, ErrUnknownRun):
		return nil
	case err != nil && owner == "":
		return err
	}
	chain, principal, _ := strings.Cut(owner, "\n")
	if wrong := checkOwner(req, chain, principal); wrong != nil {
		return wrong
	}
	if err != nil {
		if isLost(err) {
			return nil // its input can no longer be known
		}
		return err
	}
	d, err := Parse("chain.json", begun.Definition)
	if err != nil { // another version of gavel may have accepted it
		d = req.Definition
	}
	if bytes.Equal(d.beginInput(begun.Input), d.beginInput(req.Input)) {
		return nil
	}
	return reusedInput(req)
}

// readBegun returns the record with which a run began, and its chainOwner, which is set even if the record
// cannot be read. The error is ErrUnknownRun if there is no such run.
func (r *Runs) readBegun(ctx context.Context, run string) (begun recordedRun, owner string, err error) {
	w, err := r.findRow(ctx, run, dbos.WithFilterName(runName), dbos.WithFilterLoadInput(true))
	if err != nil {
		return begun, "", err
	}
	owner = w.AuthenticatedUser
	text, err := r.open(ctx, unquote(w.Input))
	if err != nil {
		return begun, owner, err
	}
	if err := json.Unmarshal([]byte(text), &begun); err != nil {
		return begun, owner, fmt.Errorf("read the run %s: %w: %w", run, errDamaged, err)
	}
	return begun, owner, nil
}

// isLost reports whether an error means that the start of a run can never be read again.
func isLost(err error) bool {
	return errors.Is(err, values.ErrDestroyed) || errors.Is(err, values.ErrUnreadable) || errors.Is(err, errDamaged)
}

// ReadDefinition returns the definition with which a run was started.
func (r *Runs) ReadDefinition(ctx context.Context, run string) (*Definition, error) {
	begun, _, err := r.readBegun(ctx, run)
	if err != nil {
		return nil, err
	}
	return Parse("chain.json", begun.Definition)
}

// lacksDefinition reports whether an error of ReadDefinition is permanent for this version of gavel.
func lacksDefinition(err error) bool {
	_, later := errors.AsType[*ParseError](err) // another version of gavel may have accepted it
	return later || isLost(err)
}

// beginInput returns the canonical text of a run's initial input, or given unchanged if the definition
// rejects it.
func (d *Definition) beginInput(given json.RawMessage) []byte {
	input, err := d.CheckInput(given)
	if err != nil {
		return given
	}
	return canonicalInput(input, given)
}

func canonicalInput(input any, given []byte) []byte {
	raw, err := document.Marshal(input)
	if err != nil {
		return given
	}
	if canonical, err := document.Canonical(raw); err == nil {
		return canonical
	}
	return raw // canonical form fails for numbers outside float64
}

// checkRecord is checkReuse for a run of which only the store's record remains. That record holds a digest
// in place of a long input, and sensitive values may have been destroyed.
func (r *Runs) checkRecord(req StartRequest, chain, principal string, recorded json.RawMessage) error {
	if err := checkOwner(req, chain, principal); err != nil {
		return err
	}
	input, err := req.Definition.CheckInput(req.Input)
	if err != nil {
		return reusedInput(req)
	}
	l, err := r.newRecord(req.Run, req.Principal, req.Definition)
	if err != nil {
		return err
	}
	l.learn(map[string]any{"input": input})
	asked := l.prepare(map[string]any{"input": l.shorten(input)})
	destroyed, err := l.definition.Mask(asked, func(string, json.RawMessage) string { return workflow.Destroyed })
	if err != nil {
		return fmt.Errorf("mask the input of the run %s: %w", req.Run, err)
	}
	known := recordedInput(recorded)
	if bytes.Equal(known, recordedInput(asked)) || bytes.Equal(known, recordedInput(destroyed)) {
		return nil
	}
	return reusedInput(req)
}

// recordedInput returns the canonical text of the input in the record of a run.
func recordedInput(record json.RawMessage) []byte {
	var of struct{ Input json.RawMessage }
	_ = json.Unmarshal(record, &of) // it was valid when it was recorded
	return canonicalInput(of.Input, of.Input)
}

// errOtherOwner reports that the run with this id belongs to another principal.
var errOtherOwner = errors.New("the run belongs to another principal")

func checkOwner(req StartRequest, chain, principal string) error {
	switch {
	case principal != req.Principal.ID:
		e := reusedRun("", "The id %q belongs to another run.", req.Run)
		e.Err = errOtherOwner
		return e
	case chain != req.Definition.Name:
		return reusedRun(repeatHint, "The id %q belongs to a run of the chain %q.", displayRunID(req.Principal, principal, req.Run), chain)
	}
	return nil
}

func reusedInput(req StartRequest) error {
	return reusedRun(repeatHint, "The id %q belongs to a run of the chain %q with another input.", displayRunID(req.Principal, req.Principal.ID, req.Run), req.Definition.Name)
}

// repeatHint completes the hint if the run belongs to the same principal.
const repeatHint = ", or repeat the request that started it"

func reusedRun(more, format string, a ...any) *engine.Error {
	return &engine.Error{Code: engine.CodeKeyReused, Path: "/run", Message: fmt.Sprintf(format, a...), Hint: "Use a new id for a new run" + more + "."}
}
