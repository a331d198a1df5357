package listen

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// AcceptQuality is how much a request's Accept likes a media type, 0 to 1: the quality of the
// most specific range that covers it, 0 when none does. Without the header all are as good.
func AcceptQuality(r *http.Request, media string) float64 {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(accept) == "" {
		return 1
	}
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
