package llm

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds what an endpoint may ask for; some answer with days.
const maxRetryAfter = time.Hour

// retryAfter is how long an endpoint asks to be left alone (RFC 9110, section
// 10.2.3: seconds or a date; some send milliseconds in a header of their own). 0
// when it does not say.
func retryAfter(header http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(header.Get("Retry-After-Ms")), 64); err == nil && ms > 0 {
		return boundSeconds(ms / 1000)
	}
	value := strings.TrimSpace(header.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(value, 64); err == nil {
		return boundSeconds(seconds)
	}
	if at, err := http.ParseTime(value); err == nil {
		return boundSeconds(at.Sub(now).Seconds())
	}
	return 0
}

func boundSeconds(seconds float64) time.Duration {
	if !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
}
