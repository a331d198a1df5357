package llm

import (
	"net/http"
	"time"
)

// reading is what was read of one answer of an endpoint.
type reading struct {
	Answer Answer
	// Lenient: unmistakable, but not in the form asked for.
	Lenient bool
	// Picked: the verdict was picked out of a longer text. Where no nonce ties it to
	// the question it may be one that the model only quotes.
	Picked             bool
	Model, Fingerprint string
	Usage              *Usage
}

// Decode reads one recorded answer as a judge would. The second result is true
// when the answer was unmistakable but not in the form asked for. The error is an
// *Error.
func Decode(x Exchange) (Answer, bool, error) {
	header := make(http.Header, len(x.Headers))
	for name, value := range x.Headers {
		header.Set(name, value)
	}
	read, err := readExchange(x.Status, header, []byte(x.Body), x.Nonce, time.Now())
	return read.Answer, read.Lenient, err
}

// readExchange reads one HTTP answer. A nonce that was sent must be in it. now is
// what a date in Retry-After counts from.
func readExchange(status int, header http.Header, body []byte, nonce string, now time.Time) (reading, error) {
	if status < 200 || status > 299 {
		return reading{}, classifyResponse(status, header, body, now)
	}
	env, fail := openEnvelope(status, header, body, now)
	if fail != nil {
		return reading{}, fail
	}
	read := reading{Model: env.model, Fingerprint: env.fingerprint, Usage: env.usage}
	for i, c := range env.choices {
		answer, how, fail := c.decode(nonce)
		if fail != nil {
			fail.Usage = env.usage
			return reading{}, fail
		}
		if i > 0 && !answer.equal(read.Answer) {
			return reading{}, &Error{Class: ClassAmbiguous, Message: "the endpoint gave several answers that differ", Usage: env.usage}
		}
		read.Answer, read.Lenient, read.Picked = answer, read.Lenient || how.lenient || i > 0, read.Picked || how.picked
	}
	return read, nil
}
