package httpapi

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/gavel-mcp/gavel/engine"
)

// negotiateMedia chooses the media type of the answer. Where live events are available,
// they are when Accept prefers that.
func negotiateMedia(r *http.Request, events bool) (string, error) {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(accept) == "" {
		return jsonType, nil
	}
	plain := acceptQuality(accept, jsonType)
	if events && r.Method == http.MethodGet {
		if q := acceptQuality(accept, eventStream); q > plain {
			return eventStream, nil
		}
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

// acceptQuality is how much an Accept header likes a media type: that of the most specific
// range that covers it, 0 when none does.
func acceptQuality(accept, media string) float64 {
	kind, _, _ := strings.Cut(media, "/")
	best, like := 0, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		ranged, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		specific := 0
		switch ranged {
		case media:
			specific = 3
		case kind + "/*":
			specific = 2
		case "*/*":
			specific = 1
		}
		if specific <= best {
			continue
		}
		best, like = specific, 1
		if q, ok := params["q"]; ok {
			if like, err = strconv.ParseFloat(q, 64); err != nil {
				like = 0
			}
		}
	}
	return like
}
