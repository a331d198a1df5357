package llm

import (
	"context"
	"strings"
)

// withReask asks once more when an answer could not be used, and says what was
// wrong with it, in words of ours: nothing of the answer is repeated, because data
// that the model quoted would come back as an instruction.
func withReask(next Completer, cfg Config, count *counters) Completer {
	return CompleterFunc(func(ctx context.Context, req Request) (Reply, error) {
		budget := spendCall(ctx)
		reply, err := checkReply(next.Complete(ctx, req))(req)
		fail := asError(err)
		if fail == nil || !fail.Class.Traits().Reask || budget.left <= 0 || budget.reasked || req.Complaint != "" {
			return reply, err
		}
		again := req
		again.Complaint = complaintOf(fail)
		if fail.Class == ClassTruncated {
			again.MaxTokens = 2 * tokensOf(req, cfg)
		}
		count.reask()
		budget.left--
		budget.reasked = true
		reply, err = checkReply(next.Complete(ctx, again))(req)
		reply.Calls += fail.Calls
		if err != nil {
			if second := asError(err); second != nil && second.Class == ClassShareSpent {
				return Reply{}, fail // that it was not asked again says less than what it answered
			} else if second != nil {
				return Reply{}, second.afterCalls(second.Calls + fail.Calls)
			}
			return Reply{}, err
		}
		reply.Reasked = true
		return reply, nil
	})
}

// checkReply holds a reply against what the caller can use.
func checkReply(reply Reply, err error) func(Request) (Reply, error) {
	return func(req Request) (Reply, error) {
		if err != nil || req.Check == nil {
			return reply, err
		}
		if wrong := req.Check(reply.Answer); wrong != nil {
			return Reply{}, &Error{
				Class: ClassInconsistent, Message: quoteForeign(wrong.Error()), Model: reply.Model, Endpoint: reply.Endpoint,
				Breaker: reply.Breaker, Calls: reply.Calls, Usage: reply.Usage,
			}
		}
		return reply, nil
	}
}

// complaintOf tells the model what was wrong.
func complaintOf(fail *Error) string {
	var b strings.Builder
	b.WriteString("Your previous answer could not be used")
	switch fail.Class {
	case ClassEmpty:
		b.WriteString(": it was empty.")
	case ClassTruncated:
		b.WriteString(": it was cut off. Answer more briefly.")
	case ClassAmbiguous:
		b.WriteString(": it held more than one verdict.")
	case ClassInconsistent:
		b.WriteString(": it contradicts itself. approved must be true if and only if every criterion is met, and violations must be empty then; each criterion is answered once, and confidence is a number from 0 to 1.")
	default:
		b.WriteString(": it was not in the form that was asked for.")
	}
	b.WriteString(" Judge the same documents again and answer in exactly that form.")
	return b.String()
}

// tokensOf is the bound of an answer that a request has.
func tokensOf(req Request, cfg Config) int {
	if req.MaxTokens > 0 {
		return req.MaxTokens
	}
	if cfg.MaxTokens > 0 {
		return cfg.MaxTokens
	}
	for _, m := range cfg.Models {
		if m.Name == req.Model && m.isThinking() {
			return defaultThinkingTokens
		}
	}
	return defaultTokens
}
