package upstream

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/clientstate"
	"github.com/gavel-mcp/gavel/validators/document"
)

// binding returns the data that a requestState is bound to.
func binding(p engine.Principal, req Request, arguments document.JSON) []byte {
	sum := sha256.Sum256(appendCanonical(nil, arguments))
	b := []byte{}
	for _, part := range []string{p.ID, req.Upstream, req.Method, req.Name} {
		b = document.AppendQuote(b, part)
	}
	return append(b, sum[:]...)
}

func invalidState(upstream string) *Error {
	e := newError(CodeInvalid, upstream, "Ask again without it.", "The requestState is not one that gavel issued for these arguments, or gavel was restarted and had its store in memory.")
	e.Err = clientstate.ErrState
	return e
}

// sealResult seals the requestState of a result, if it has one.
func sealResult(s *clientstate.States, result json.RawMessage, to []byte) json.RawMessage {
	if !bytes.Contains(result, []byte(`"requestState"`)) {
		return result
	}
	state := readChecked(result).Get("requestState")
	if state.Kind() != document.String {
		return result
	}
	return rewriteMembers(result, map[string]json.RawMessage{"requestState": document.AppendQuote(nil, s.Seal(state.Text(), to))})
}
