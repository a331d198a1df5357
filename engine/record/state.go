package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
)

const stateDomain = "gavel/state/v1\x00"

// DigestState is the hex SHA-256 of an instance's whole state. A truncated event names
// with it the state that the removed events led to.
func DigestState(i Instance) string {
	facts, err := json.Marshal(i.Facts)
	if err != nil { // texts and numbers always encode
		facts = []byte(err.Error())
	}
	h := sha256.New()
	h.Write([]byte(stateDomain))
	number := func(n int64) []byte { return strconv.AppendInt(nil, n, 10) }
	for _, field := range [][]byte{
		[]byte(i.ID), []byte(i.Workflow), number(int64(i.Version)), []byte(i.DefinitionHash), []byte(i.Owner),
		[]byte(i.State), []byte(i.Status), i.Context, number(i.Seq), number(i.Revision), facts, []byte(i.Head),
		number(i.CreatedAt.UnixNano()), number(i.UpdatedAt.UnixNano()),
	} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		h.Write(field)
	}
	return hex.EncodeToString(h.Sum(nil))
}
