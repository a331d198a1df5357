package record

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// DeriveKey returns a 32-byte key of its own for one purpose: HKDF-SHA256 of
// master, with the purpose and each part in the info, their lengths in front.
// Different purposes or parts give independent keys, and none leads back to
// master. A purpose is a constant of the form "gavel/what/v1".
func DeriveKey(master []byte, purpose string, parts ...string) []byte {
	info := appendPart(nil, purpose)
	for _, p := range parts {
		info = appendPart(info, p)
	}
	key, err := hkdf.Key(sha256.New, master, nil, string(info), keySize)
	if err != nil {
		panic(fmt.Sprintf("derive a key for %s: %v", purpose, err)) // only for lengths beyond 8160 bytes
	}
	return key
}

func appendPart(b []byte, part string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(part))), part...)
}
