package httpapi

import (
	"net/http"

	"github.com/gavel-mcp/gavel/engine"
	"github.com/gavel-mcp/gavel/internal/listen"
)

// negotiateMedia chooses the media type of the answer. Where live events are available,
// they are when Accept prefers that.
func negotiateMedia(r *http.Request, events bool) (string, error) {
	plain := listen.AcceptQuality(r, jsonType)
	if events && r.Method == http.MethodGet && listen.AcceptQuality(r, eventStream) > plain {
		return eventStream, nil
	}
	if plain > 0 {
		return jsonType, nil
	}
	hint := "It is " + jsonType + "."
	if events {
		hint = "It is " + jsonType + " or " + eventStream + "."
	}
	return "", &engine.Error{Code: CodeNotAcceptable, Message: "The answer is not available in the media types that Accept names.", Hint: hint}
}
