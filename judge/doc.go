// Package judge decides whether a move may happen.
//
// A [Case] passes through layers in a fixed order, cheap ones first:
//
//   - Is the action legal here?
//   - Are the required fields present, and does the data match the JSON Schema?
//   - Which route do the scripts choose, and do the validators agree?
//   - Does the target state accept the merged context?
//   - If the definition uses a model: what is its judgement?
//
// Layers of one line, such as fields and schema, all give an opinion; the first line that does not
// approve ends the process. [Pipeline.Decide] collects the opinions and settles them into a [Verdict].
//
// The package promises:
//
//   - A "no" is final. No layer and no policy turns a rejection into an approval (the loop guard may
//     escalate a repeated rejection to a person), and among approvals no layer raises the confidence.
//   - A model can only make a decision stricter. With a model, the outcome is never more permissive than
//     without one, whatever the model or its layer answers.
//   - A model answers criteria and points to evidence; code finds the evidence in the text that the
//     model was shown, and computes the outcome.
//   - Code computes the target from the definition; no model chooses it.
//   - A missing judgement is never silent: the move is rejected, escalated to a person, or marked as
//     degraded with a confidence of at most 0.5.
//   - The result is a verdict or an error; an error (the sandbox is down, the context ended) means
//     that nothing was decided.
//   - The same case gives the same verdict, except for a model's answers and the recorded times.
//
// It must never read anything except the case and its earlier judgements ([Memory]), let a model choose a
// state, or log. It must never show an agent a threshold or unscrubbed text.
//
// Assurance says how thoroughly a case was examined. Routing alone leaves it at none, because a route
// condition only computes the target, as legality does. A validator raises it to validators, but a
// validator that failed examined nothing.
package judge
