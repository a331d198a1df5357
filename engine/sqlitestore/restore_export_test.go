package sqlitestore

// Watched asks before each step of a restore that changes what is there; an error ends it.
func Watched(req RestoreRequest, before func(step string) error) RestoreRequest {
	req.before = before
	return req
}
