package llm

import (
	"context"
	"errors"
	"time"
)

// Complete makes one HTTP request in the present manner and reads its answer.
func (e *endpoint) Complete(ctx context.Context, req Request) (Reply, error) {
	at, _ := e.ladder.current()
	body, err := e.encodeRequest(req, at)
	if err != nil {
		return Reply{}, e.signError(&Error{Class: ClassConfig, Message: err.Error()}, 0)
	}
	began := time.Now()
	read, err := e.askOnce(ctx, req, at, body)
	if err != nil {
		return Reply{}, e.signAny(err, 1)
	}
	return Reply{
		Answer: read.Answer, Lenient: read.Lenient,
		Model: e.model.Name, Reported: read.Model, Fingerprint: read.Fingerprint,
		Endpoint: e.base.Host, Rung: at.rung,
		Usage: read.Usage, CostUSD: e.model.costOf(read.Usage),
		Calls: 1, Took: time.Since(began),
	}, nil
}

// askOnce sends a body and reads what comes back.
func (e *endpoint) askOnce(ctx context.Context, req Request, at manner, body []byte) (reading, error) {
	status, header, raw, err := e.post(ctx, body)
	if err != nil {
		return reading{}, err
	}
	nonce := req.Nonce
	if at.enforcesSchema() {
		nonce = "" // nobody was told it
	}
	read, err := readExchange(status, header, raw, nonce, time.Now())
	if ClassOf(err) == ClassNotFound {
		return reading{}, e.explainNotFound(err)
	}
	if err == nil && at.enforcesSchema() && read.Picked {
		// Here nothing ties the verdict to the question, and an endpoint that holds to the
		// form answers with nothing else: the model may be quoting the data.
		return reading{}, &Error{
			Class: ClassMalformed, Message: "the endpoint takes the form that was asked for and does not hold to it: the verdict stands in a longer text",
			Usage: read.Usage, Err: errNotHeld,
		}
	}
	return read, err
}

// errNotHeld says that an endpoint accepts a rung and ignores it.
var errNotHeld = errors.New("the endpoint does not hold to the form")
