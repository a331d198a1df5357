// Package judge decides whether a move may happen.
//
// A [Case] is put to layers in a fixed order, cheap ones first: is the action
// legal here; are the required fields there and does the JSON Schema hold; which
// route do the scripts choose and do the validators agree; does the state that is
// entered accept the merged context; and, where the definition asks for it, what
// does a model say. Layers on one line are all heard, and the first line that does
// not approve ends it. [Pipeline.Decide] hears them and settles their opinions
// into a [Verdict].
//
// The package promises:
//
//   - A "no" is final. No layer and no policy turns a rejection into an approval
//     (the loop guard may hand one that repeats itself to a person), and among
//     approvals no layer raises the confidence.
//   - A model can only lower. With the model asked, the outcome is never more
//     permissive than without, whatever the model or its layer answers.
//   - A model answers criteria and points to evidence; code looks the evidence up in
//     what the model was shown, and computes the outcome.
//   - The target is computed from the definition by code; no model chooses it.
//   - A judgement that was asked for and not given is never silent: it is
//     refused, handed to a person, or marked as degraded with a confidence of at
//     most 0.5.
//   - It either gives a verdict or an error, and an error (the sandbox is down, the
//     context ended) means that nothing was decided.
//   - The same case gives the same verdict, but for a model's mind and the times.
//
// It must never read anything beside the case and what was said of it before
// ([Memory]), choose a state by a model, show a threshold or an unscrubbed text to an
// agent, or log.
//
// Assurance says what was examined. A route condition only computes the target, as
// legality does, so routing alone leaves it at none; a validator lifts it to
// validators, and a validator that failed examined nothing.
package judge
