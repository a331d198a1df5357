// Package llm asks a language model for a judgement over the OpenAI-compatible
// chat completions API, and reads its answer.
//
// It promises that an answer is returned only if it was read strictly enough that
// nobody can have meant another one, that every failure has a Class which says
// whether trying again helps and whose fault it is, that no call outlives its
// deadline, and that a dead or slow endpoint costs its callers next to nothing.
//
// It knows the form of an answer and nothing of what is judged: it never turns a
// failure into an answer, never repairs JSON, never guesses a verdict out of
// prose or out of a model's thinking, and never writes a key, a prompt or an
// answer to a log.
package llm
